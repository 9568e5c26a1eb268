//! Why no upstream is asked (any more).

use std::sync::Arc;
use std::time::Duration;

use sseismo_trace::Api;

/// Why there is no next attempt. The message is for the client: it names no upstream's address and no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// No route has this model.
    #[error("no route takes the model `{model}`")]
    NoRoute {
        /// As the client named it.
        model: String,
    },
    /// No upstream of the route speaks the API.
    #[error("no upstream of the route `{route}` speaks the {} API", .api.name())]
    NoApi {
        /// The route's model.
        route: Arc<str>,
        /// What was asked for.
        api: Api,
    },
    /// State of an organisation whose upstreams are gone from the route or cannot be used now.
    #[error(
        "the request carries state (encrypted reasoning, a response id or a thinking signature) that only \
         `{organisation}` can read, and none of its upstreams can be used now; retry later, or start anew \
         without that state"
    )]
    StateBound {
        /// Who issued it.
        organisation: Arc<str>,
        /// When one of its upstreams may be back.
        retry_after: Option<Duration>,
    },
    /// State of several organisations at once.
    #[error("the request carries state of several organisations ({}); none of them can read all of it", .organisations.join(", "))]
    MixedState {
        /// Who issued it.
        organisations: Vec<Arc<str>>,
    },
    /// State whose issuer is not known, and the configuration says to refuse it.
    #[error("the request carries state whose issuer is not known here; start anew without that state")]
    UnknownState,
    /// Every upstream is to be left alone for now.
    #[error("every upstream of the route `{route}` asks to be left alone for now")]
    Resting {
        /// The route's model.
        route: Arc<str>,
        /// When the first one may be asked again.
        retry_after: Duration,
    },
    /// The fallback has as many requests as it may have.
    #[error("the fallback of the route `{route}` is full")]
    FallbackFull {
        /// The route's model.
        route: Arc<str>,
    },
    /// A policy refuses it.
    #[error("{message}")]
    Refused {
        /// What the policy says.
        message: &'static str,
        /// When to come back; `None`: never with the same request.
        retry_after: Option<Duration>,
    },
    /// The last outcome is the client's own or a success: it is passed on.
    #[error("nothing is left to do")]
    Settled,
    /// Every candidate was tried: the last answer is passed on.
    #[error("every upstream that could take the request was tried")]
    Exhausted,
    /// The retry budget is spent: the last answer is passed on.
    #[error("the retry budget of the route is spent")]
    BudgetSpent,
    /// The deadline is over.
    #[error("no answer within the route's deadline")]
    Deadline,
}

impl Stop {
    /// The status for the client when there is no upstream's answer to pass on.
    pub fn status(&self) -> u16 {
        match self {
            Self::NoRoute { .. } => 404,
            // A refusal for good: Codex CLI repeats a 403 five times, and gives up at once on a 400.
            Self::NoApi { .. }
            | Self::MixedState { .. }
            | Self::UnknownState
            | Self::Refused { retry_after: None, .. } => 400,
            Self::StateBound { .. } | Self::Resting { .. } | Self::FallbackFull { .. } => 503,
            Self::Refused { .. } => 429,
            Self::Settled | Self::Exhausted | Self::BudgetSpent => 502,
            Self::Deadline => 504,
        }
    }

    /// The wait to tell the client.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::StateBound { retry_after, .. } | Self::Refused { retry_after, .. } => *retry_after,
            Self::Resting { retry_after, .. } => Some(*retry_after),
            Self::FallbackFull { .. } => Some(Duration::from_secs(1)),
            Self::NoRoute { .. }
            | Self::NoApi { .. }
            | Self::MixedState { .. }
            | Self::UnknownState
            | Self::Settled
            | Self::Exhausted
            | Self::BudgetSpent
            | Self::Deadline => None,
        }
    }

    /// A short name for logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoRoute { .. } => "no-route",
            Self::NoApi { .. } => "no-api",
            Self::StateBound { .. } => "state-bound",
            Self::MixedState { .. } => "mixed-state",
            Self::UnknownState => "unknown-state",
            Self::Resting { .. } => "resting",
            Self::FallbackFull { .. } => "fallback-full",
            Self::Refused { .. } => "refused-by-policy",
            Self::Settled => "settled",
            Self::Exhausted => "exhausted",
            Self::BudgetSpent => "budget-spent",
            Self::Deadline => "deadline",
        }
    }
}
