//! The signatures over live windows.
//!
//! In: deltas and summaries with their times, as they come. Out: [`Signal`](sseismo_trace::Signal)s. There is
//! no I/O, no clock and no async code here: time is an argument, so recorded traffic gives the same signals
//! as live traffic.
