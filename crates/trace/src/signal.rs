//! What the live detector tells the router: something began, goes on, or is over.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Cause, Micros, Scope, SignatureId, UtcMicros};

/// Names one onset; its refreshes and its clear carry the same id. Written as 16 hex digits, because JSON
/// numbers of many readers end at 2^53.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SignalId(pub u64);

impl fmt::Display for SignalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for SignalId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SignalId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16)
            .map(Self)
            .map_err(|_| serde::de::Error::custom("a signal's id is a hexadecimal number"))
    }
}

impl JsonSchema for SignalId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SignalId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "pattern": "^[0-9a-f]{1,16}$"})
    }
}

/// Where a signal stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SignalState {
    /// It began.
    Onset,
    /// It goes on; sent before the time to live of the last one ends.
    Refresh,
    /// It is over.
    Clear,
}

impl SignalState {
    /// The name used in trace files and streams of signals.
    pub fn name(self) -> &'static str {
        match self {
            Self::Onset => "onset",
            Self::Refresh => "refresh",
            Self::Clear => "clear",
        }
    }
}

/// What exactly clusters: one variant per signature that can be watched live.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "signature", rename_all = "kebab-case")]
pub enum Detail {
    /// Counts of reasoning tokens pile up at step·n + offset.
    CountLattice {
        /// Distance of two values, tokens.
        step: u32,
        /// Smallest positive value, tokens.
        offset: u32,
    },
    /// Deltas come in bursts after dead air.
    Burst {
        /// Typical silence before a burst, seconds.
        gap_s: f64,
        /// Typical size of a burst, tokens (characters where tokens are unknown).
        tokens: f64,
    },
    /// A narrow range of sizes is slow.
    SizeWindow {
        /// Smallest size of the window, tokens.
        lo: u32,
        /// Largest size of the window, tokens.
        hi: u32,
    },
    /// Deep calls pile into a few seconds and suffer together.
    Concurrency {
        /// Deep calls in the window.
        calls: u32,
        /// The window, seconds.
        window_s: f64,
    },
    /// Long numeric prompts are answered 200 OK and wrong.
    Saturation {
        /// Prompts from this size on are hit, tokens.
        prompt_tokens: u32,
        /// … with at least this share of numeric characters.
        numeric_share: f64,
    },
    /// One client turn becomes many attempts.
    RetryAmplification {
        /// Attempts per client turn.
        attempts_per_turn: f64,
    },
}

impl Detail {
    /// The signature that it belongs to.
    pub fn signature(&self) -> SignatureId {
        match self {
            Self::CountLattice { .. } => SignatureId::CountLattice,
            Self::Burst { .. } => SignatureId::Burst,
            Self::SizeWindow { .. } => SignatureId::SizeWindow,
            Self::Concurrency { .. } => SignatureId::Concurrency,
            Self::Saturation { .. } => SignatureId::Saturation,
            Self::RetryAmplification { .. } => SignatureId::RetryAmplification,
        }
    }
}

/// Why a signal was raised: a statistic that reached its threshold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// What was computed, for example `log-mean-exp of 4 CUSUMs`.
    pub statistic: String,
    /// Its value.
    pub value: f64,
    /// What it had to reach.
    pub threshold: f64,
    /// Observations since the change began, as far as the statistic tells.
    pub n: u64,
    /// What `n` counts, for example `flush groups`.
    pub unit: String,
    /// The average run length behind the threshold: observations between two false alarms.
    pub average_run_length: f64,
    /// Reservations, for example that a long run length rests on a tail model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Something began, goes on, or is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Signal {
    /// The onset that this belongs to.
    pub id: SignalId,
    /// Which traffic: upstream, model, effort.
    pub target: Scope,
    /// What clusters.
    #[serde(flatten)]
    pub detail: Detail,
    /// Why, where that is known.
    pub cause: Option<Cause>,
    /// Onset, refresh or clear.
    pub state: SignalState,
    /// From 0 to 1: how far the traffic is affected, for example the share of streams that burst.
    pub strength: f64,
    /// What the decision rests on.
    pub evidence: Evidence,
    /// When it was raised.
    #[schemars(with = "i64")]
    pub at: UtcMicros,
    /// After this time without a refresh the signal counts as cleared.
    #[schemars(with = "i64")]
    pub ttl: Micros,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_survives_json_and_names_its_signature() {
        let signal = Signal {
            id: SignalId(0xabc),
            target: Scope::default(),
            detail: Detail::SizeWindow { lo: 150, hi: 220 },
            cause: None,
            state: SignalState::Onset,
            strength: 0.3,
            evidence: Evidence::default(),
            at: UtcMicros(5),
            ttl: Micros(60_000_000),
        };
        let json = serde_json::to_string(&signal).unwrap();
        assert!(
            json.starts_with(r#"{"id":"0000000000000abc","target":{},"signature":"size-window","lo":150"#),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<Signal>(&json).unwrap(), signal);
        assert!(serde_json::from_str::<Signal>(&json.replace("abc", "xyz")).is_err());
    }
}
