//! What a signal of each signature does to the traffic that it names.

use sseismo_trace::SignatureId;

/// What is done about a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing; it is shown.
    Observe,
    /// The upstream keeps ×0.8 of its share, again after each dwell, down to the floor.
    StepShare,
    /// The upstream keeps the floor at once.
    Cool,
    /// The calls that the signal is about go to somebody else first.
    Spill,
    /// Of the calls that the signal is about, no more than `limit` are in flight there; the rest go to
    /// somebody else first.
    LimitConcurrency,
    /// The next calls ask for one step less effort.
    LowerEffort,
}

impl Effect {
    /// Every effect.
    pub const ALL: [Self; 6] =
        [Self::Observe, Self::StepShare, Self::Cool, Self::Spill, Self::LimitConcurrency, Self::LowerEffort];

    /// The name in the configuration, in metrics and in logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::StepShare => "step-share",
            Self::Cool => "cool",
            Self::Spill => "spill",
            Self::LimitConcurrency => "limit-concurrency",
            Self::LowerEffort => "lower-effort",
        }
    }

    /// Whether it moves calls away from an upstream, so that the signal must name one.
    pub fn moves(self) -> bool {
        match self {
            Self::StepShare | Self::Cool | Self::Spill | Self::LimitConcurrency => true,
            Self::Observe | Self::LowerEffort => false,
        }
    }

    /// What is done unless the configuration says otherwise. Signatures that concern some calls only move
    /// those; retries stacked up by clients are not mended by another upstream.
    pub fn of(signature: SignatureId) -> Self {
        match signature {
            SignatureId::CountLattice | SignatureId::Burst => Self::StepShare,
            SignatureId::SizeWindow | SignatureId::Saturation => Self::Spill,
            SignatureId::Concurrency => Self::LimitConcurrency,
            SignatureId::Semantic | SignatureId::RetryAmplification => Self::Observe,
        }
    }
}

/// What is done about the signals of one signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaction {
    /// The effect.
    pub effect: Effect,
    /// Calls in flight that [`Effect::LimitConcurrency`] leaves.
    pub limit: u64,
}

/// Deep calls at once that the write-ups found to do no harm; no measured figure says otherwise.
pub const LIMIT: u64 = 6;

/// The name under which a signature's signals stand in logs and metrics.
pub fn policy_name(signature: SignatureId) -> &'static str {
    match signature {
        SignatureId::CountLattice => "signal:count-lattice",
        SignatureId::Burst => "signal:burst",
        SignatureId::SizeWindow => "signal:size-window",
        SignatureId::Concurrency => "signal:concurrency",
        SignatureId::Saturation => "signal:saturation",
        SignatureId::Semantic => "signal:semantic",
        SignatureId::RetryAmplification => "signal:retry-amplification",
    }
}
