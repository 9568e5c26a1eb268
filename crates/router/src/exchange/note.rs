//! What the record of an attempt says beside what the wire tells.

use std::sync::{Arc, OnceLock};

use sseismo_capture::tap::Exchange as Observed;
use sseismo_trace::Outcome as Ending;

use crate::choice::Attempt;
use crate::outcome::Outcome;

/// How an attempt's record ends, where we end it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted(Arc<OnceLock<Ending>>);

impl Noted {
    /// We ended it, and like this; the first word counts.
    pub(crate) fn ends(&self, ending: Ending) {
        let _ = self.0.set(ending);
    }
}

/// Fills the columns of the route. `left_for` is how the attempt before it went.
pub(super) fn annotate(
    observed: &mut Observed,
    attempt: &Attempt,
    route: &Arc<str>,
    turn: (u64, u32),
    left_for: Option<Outcome>,
) -> Noted {
    let (turn, client_attempt) = turn;
    observed.annotate(|summary| {
        summary.attempt = Some(client_attempt.saturating_add(attempt.number).saturating_sub(1));
        summary.route = Some(route.to_string());
        summary.key_slot = attempt.key.as_ref().map(|key| key.slot);
        summary.fallback_reason = left_for.map(|outcome| outcome.to_string());
    });
    let noted = Noted::default();
    let ends = noted.clone();
    let price = attempt.upstream.prices.get(&*attempt.model).copied();
    observed.at_end(move |summary| {
        // A client that names its turns itself is believed: its key holds over restarts.
        summary.turn_key = summary.turn_key.or(Some(turn));
        summary.cost_usd = price.and_then(|price| price.cost(&summary.usage));
        if let (Some(ending), Ending::ClientGone | Ending::Unknown) = (ends.0.get(), summary.outcome) {
            summary.outcome = *ending;
        }
    });
    noted
}
