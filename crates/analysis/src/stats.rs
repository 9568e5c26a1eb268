//! Statistics that the signatures and comparisons rest on, one subject a file, each checked against
//! reference values in `data/golden`.

pub mod fdr;
pub mod histogram;
pub mod interval;
