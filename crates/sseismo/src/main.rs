//! The binary: flags, wiring, exit codes.

fn main() {}
