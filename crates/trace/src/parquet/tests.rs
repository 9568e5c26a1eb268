//! Laws of the trace files, and their size on realistic streams.

mod damage;
mod identity;
mod size;
