//! Upstreams with known truth: pure seeded generators, and (feature `serve`) real HTTP servers.
//!
//! | module | truth |
//! |---|---|
//! | [`timing`] | when deltas arrive: honest and clustered arrival processes |

pub mod timing;
