//! `[signals]`: what is done about signals, and the guards that hold whatever comes in.

use std::time::Duration;

use sseismo_trace::SignatureId;

use super::effect::{Effect, LIMIT, Reaction};
use super::harm::Thresholds;

/// No share may be configured below this: what gets no calls shows no recovery. The breaker's floor is the same.
pub const FLOOR: f64 = 0.05;

/// What a step leaves of a share, and, turned round, what it gives back: the factor of the closest prior
/// controller of this kind, an AIMD on a preferred provider's share in production.
pub const STEP: f64 = 0.8;

/// `[signals]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Whether traffic is moved; otherwise everything is told as "would have".
    pub act: bool,
    /// The part of its ordinary calls that an upstream keeps, whatever is signalled.
    pub floor: f64,
    /// Least time between two changes of one share.
    pub dwell: Duration,
    /// A share comes back after this much time without a signal, step by step.
    pub calm: Duration,
    /// Changes of an upstream's shares …
    pub changes: usize,
    /// … in this time.
    pub window: Duration,
    /// When a lane counts as harmed.
    pub harm: Thresholds,
    reactions: [Reaction; SignatureId::ALL.len()],
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            act: false,
            floor: FLOOR,
            dwell: Duration::from_secs(10),
            calm: Duration::from_secs(30),
            changes: 6,
            window: Duration::from_mins(1),
            harm: Thresholds::default(),
            reactions: SignatureId::ALL
                .map(|signature| Reaction { effect: Effect::of(signature), limit: LIMIT }),
        }
    }
}

impl Settings {
    /// What is done about signals of a signature.
    pub fn reaction(&self, signature: SignatureId) -> Reaction {
        self.reactions[place(signature)]
    }

    /// The same, to be changed.
    pub fn reaction_mut(&mut self, signature: SignatureId) -> &mut Reaction {
        &mut self.reactions[place(signature)]
    }
}

/// A signature's place in [`SignatureId::ALL`].
fn place(signature: SignatureId) -> usize {
    SignatureId::ALL.iter().position(|other| *other == signature).unwrap_or_default()
}
