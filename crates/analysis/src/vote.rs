//! Fan-out and vote: the samples of one prompt in, one answer with its honest confidence out.
//!
//! The way through: [`answer::Extract`] takes the answer out of each text and normalises it, an
//! [`embed::Embed`] turns each trace into a vector, [`geometry::Geometry`] holds their cosines and
//! clusters, a [`rule::Rule`] chooses, and [`decide`] puts the tally around the choice.
//!
//! What was measured on 2,100 real fan-outs, of which `data/fanout` holds 420, sets the defaults: plain
//! plurality of normalised answers (0.722) beats one sample (0.616) and the published cluster-label rule
//! (0.620), and no weight by coherence or cost beats plurality. So vectors only break ties and flag stray
//! traces; cost is saved by stopping early ([`stop`]), not by weighting.
//!
//! Deterministic to the bit: no random numbers, sums in index order, and scores are compared after
//! rounding to 1e-9.

pub mod accuracy;
pub mod answer;
mod ballot;
pub mod cluster;
mod decide;
pub mod embed;
pub mod geometry;
pub mod rule;
pub mod stop;

pub use ballot::{Ballots, Group};
pub use decide::{Answer, Clusters, Options, Outcome, Tie, decide};

/// One branch of a fan-out.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Everything that the branch wrote: reasoning, then output.
    pub trace: String,
    /// Its answer as extracted, not yet normalised; `None` abstains.
    pub answer: Option<String>,
    /// Output tokens as the provider reported them.
    pub tokens: Option<u64>,
    /// Its price in US dollars, from reported tokens.
    pub cost_usd: Option<f64>,
}
