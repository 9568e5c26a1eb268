//! Sequential statistics: from yes-or-no observations that never end to alarms at a stated rate.
//!
//! ```text
//! flags ─▶ e-detector ─▶ ln statistic ≥ threshold? ─▶ alarm
//!             ▲                           ▲
//!  upper limit of p0                calibration: the wanted average run length (ARL)
//! ```
//!
//! A *flag* is one observation that an innocent source raises with a probability of at most p0 (a stream
//! that looked clustered, a count exactly on a lattice). [`e_detector`] accumulates evidence for a higher
//! probability without knowing it, [`upper_limit`] turns a baseline into p0, [`calibration`] computes the
//! threshold that gives the wanted ARL (checked against the exact chain of [`markov`]), [`design`] holds
//! the tuned alternatives, [`aggregate`] puts these together for one route. [`betting`] plays the same game
//! on token counts, [`dependence`] checks the assumption that everything here rests on: that flags of an
//! innocent source do not depend on one another.
//!
//! Sources: Shin, Ramdas and Rinaldo, "E-detectors" (arXiv 2203.03532); Lorden (1971) and Moustakides
//! (1986) for the worst-case delay and its optimum, the CUSUM that knows the alternative.

pub mod aggregate;
pub mod betting;
pub mod calibration;
pub mod dependence;
pub mod design;
pub mod e_detector;
pub mod markov;
pub mod upper_limit;
