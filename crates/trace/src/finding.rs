//! A verdict on one scope and one signature, with everything needed to trust or doubt it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Scope;

/// The ways in which reasoning traffic clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SignatureId {
    /// Reasoning-token counts pile up at fixed values.
    CountLattice,
    /// Deltas arrive in bursts after dead air.
    Burst,
    /// Sizes converge on a narrow window that is slow.
    SizeWindow,
    /// Deep calls pile into a few seconds.
    Concurrency,
    /// Long numeric prompts are answered 200 OK and wrong.
    Saturation,
    /// The traces of one fan-out form clusters.
    Semantic,
    /// One client turn becomes many billed attempts.
    RetryAmplification,
}

impl SignatureId {
    /// Every signature, in the order of the report.
    pub const ALL: [Self; 7] = [
        Self::CountLattice,
        Self::Burst,
        Self::SizeWindow,
        Self::Concurrency,
        Self::Saturation,
        Self::Semantic,
        Self::RetryAmplification,
    ];

    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::CountLattice => "count-lattice",
            Self::Burst => "burst",
            Self::SizeWindow => "size-window",
            Self::Concurrency => "concurrency",
            Self::Saturation => "saturation",
            Self::Semantic => "semantic",
            Self::RetryAmplification => "retry-amplification",
        }
    }
}

/// What was decided. The first four serve every signature, the rest are one signature's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Looked for with enough data, and not there.
    None,
    /// Too little data to say.
    TooFew,
    /// A column that the statistic needs is missing.
    NotMeasurable,
    /// There.
    Present,
    /// count-lattice: stops at step·n+offset, of one model.
    BoundaryStops,
    /// count-lattice: the provider reports in multiples of a unit.
    ReportingQuantised,
    /// count-lattice: a lattice over mixed or unknown models, nobody is accused.
    LatticeUnclassified,
    /// count-lattice: people's or tools' round numbers.
    Heaping,
    /// count-lattice: a maximum that was hit again and again.
    Capped,
    /// burst: a short cork, with its period or byte grid.
    Coalesced,
    /// burst: everything came in one read.
    HeldWhole,
}

impl Verdict {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::TooFew => "too-few",
            Self::NotMeasurable => "not-measurable",
            Self::Present => "present",
            Self::BoundaryStops => "boundary-stops",
            Self::ReportingQuantised => "reporting-quantised",
            Self::LatticeUnclassified => "lattice-unclassified",
            Self::Heaping => "heaping",
            Self::Capped => "capped",
            Self::Coalesced => "coalesced",
            Self::HeldWhole => "held-whole",
        }
    }

    /// Whether `--fail-on` counts this verdict as the signature being there.
    pub fn is_alarm(self) -> bool {
        matches!(self, Self::Present | Self::BoundaryStops)
    }
}

/// Why deltas came in bursts, as far as the stored columns prove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The sender wrote the events together.
    UpstreamBatching,
    /// A limit was hit and the upstream cooled down.
    RateLimitCooldown,
    /// A proxy on the way held the bytes back.
    ProxyBuffering,
    /// TCP segments were joined on the way.
    TcpCoalescing,
    /// Our own process read late.
    SlowReader,
    /// Retries of one turn stacked up.
    RetryAmplification,
    /// Packets were lost and sent again.
    NetworkLoss,
    /// The silence lies on the border of two phases.
    PhaseBorder,
    /// The stored columns do not tell.
    Unknown,
}

impl Cause {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::UpstreamBatching => "upstream-batching",
            Self::RateLimitCooldown => "rate-limit-cooldown",
            Self::ProxyBuffering => "proxy-buffering",
            Self::TcpCoalescing => "tcp-coalescing",
            Self::SlowReader => "slow-reader",
            Self::RetryAmplification => "retry-amplification",
            Self::NetworkLoss => "network-loss",
            Self::PhaseBorder => "phase-border",
            Self::Unknown => "unknown",
        }
    }
}

/// How large the effect is, with its interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// What is measured, for example `share`.
    pub name: String,
    /// Its unit; empty for shares and ratios.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// The estimate.
    pub value: f64,
    /// 95 % interval.
    pub ci95: Option<[f64; 2]>,
}

/// How surprising the data would be without the signature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Significance {
    /// What `value` is: `llr`, `p` or `e-value`.
    pub kind: String,
    /// The statistic.
    pub value: f64,
    /// What it had to reach.
    pub threshold: f64,
    /// p-value or an upper bound of it, before adjustment.
    pub p: Option<f64>,
    /// The same after Benjamini–Hochberg over the scopes of this report.
    pub q: Option<f64>,
}

/// One verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Which signature was looked for.
    pub signature: SignatureId,
    /// In which streams.
    pub scope: Scope,
    /// What was decided.
    pub verdict: Verdict,
    /// Observations that the decision rests on.
    pub n: u64,
    /// What `n` counts, for example `positive counts`.
    pub unit: String,
    /// The signature's own figures; each signature publishes the schema of its evidence.
    pub evidence: serde_json::Value,
    /// Size of the effect.
    pub effect: Option<Effect>,
    /// Strength of the evidence.
    pub significance: Option<Significance>,
    /// The cause, where the columns prove one.
    pub cause: Option<Cause>,
    /// Observations that carried a label.
    pub labelled: u64,
    /// What the data was compared with.
    pub compared_with: String,
    /// One sentence on what the verdict does not prove.
    pub does_not_prove: String,
    /// What to do next.
    pub next_step: String,
    /// Reservations that belong beside the verdict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}
