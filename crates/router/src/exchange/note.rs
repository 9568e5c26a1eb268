//! What the record of an attempt says beside what the wire tells.

use std::sync::{Arc, OnceLock};

use sseismo_capture::tap::Exchange as Observed;
use sseismo_trace::{ContentCheck, Outcome as Ending};
use tokio::sync::oneshot;

use crate::choice::Attempt;
use crate::outcome::Outcome;

/// What only we can say of an attempt's record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted {
    said: Arc<Said>,
    /// Held until all is said, where the record waits for that.
    open: Option<Arc<oneshot::Sender<()>>>,
}

#[derive(Debug, Default)]
struct Said {
    ending: OnceLock<Ending>,
    check: OnceLock<ContentCheck>,
}

impl Noted {
    /// We ended it, and like this; the first word counts.
    pub(crate) fn ends(&self, ending: Ending) {
        let _ = self.said.ending.set(ending);
    }

    /// What a check of its content said.
    pub(crate) fn checked(&self, check: ContentCheck) {
        let _ = self.said.check.set(check);
    }

    /// Nothing more will be said.
    pub(crate) fn close(&mut self) {
        self.open = None;
    }
}

/// What a record says of the call, beside its attempt.
pub(super) struct About<'a> {
    /// The route.
    pub(super) route: &'a Arc<str>,
    /// The client's turn, and which attempt of the client it is.
    pub(super) turn: (u64, u32),
    /// How the attempt before it went.
    pub(super) left_for: Option<Outcome>,
    /// The arm of a comparison.
    pub(super) arm: Option<&'static str>,
    /// Whether the answer's content will be checked.
    pub(super) checked: bool,
}

/// Fills the columns of the route.
pub(super) fn annotate(observed: &mut Observed, attempt: &Attempt, about: &About<'_>) -> Noted {
    let (turn, client_attempt) = about.turn;
    observed.annotate(|summary| {
        summary.attempt = Some(client_attempt.saturating_add(attempt.number).saturating_sub(1));
        summary.route = Some(about.route.to_string());
        summary.key_slot = attempt.key.as_ref().map(|key| key.slot);
        summary.fallback_reason = about.left_for.map(|outcome| outcome.to_string());
        summary.canary_arm = about.arm.map(str::to_owned);
    });
    let mut noted = Noted::default();
    if about.checked {
        let (open, known) = oneshot::channel();
        noted.open = Some(Arc::new(open));
        observed.known_when(known);
    }
    let said = Arc::clone(&noted.said);
    let price = attempt.upstream.prices.get(&*attempt.model).copied();
    observed.at_end(move |summary| {
        // A client that names its turns itself is believed: its key holds over restarts.
        summary.turn_key = summary.turn_key.or(Some(turn));
        summary.cost_usd = price.and_then(|price| price.cost(&summary.usage));
        if let Some(check) = said.check.get() {
            summary.content_check = *check;
        }
        if let (Some(ending), Ending::ClientGone | Ending::Unknown) = (said.ending.get(), summary.outcome) {
            summary.outcome = *ending;
        }
    });
    noted
}
