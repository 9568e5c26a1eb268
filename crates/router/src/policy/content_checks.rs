//! `[route.content_checks]`: answers that are not what was asked for.
//!
//! Providers answer 200 with JSON that breaks off, with a placeholder, or with nothing; no status tells. An
//! answer that is complete is held against what its request asked for (see [`Expected`]), and what is found is
//! the traces' `content_check`, from which the detector learns of `saturation`. `failures` in `window` (3 in a
//! minute) by one upstream for one shape of request put it off for that shape for `off` (5 minutes): its
//! breaker does not hear of it, since it is healthy for everything else. A shape is a prompt's size (powers of
//! four), whether it is densely numeric (more than 0.3), and the form that was asked for.
//!
//! An answer that is not streamed is held to its end anyway: with `act = true` one that fails is passed over
//! for the next candidate's while the client has seen nothing; when nobody has a better one, it is passed on,
//! for the check may be wrong. A streamed one is only counted. Texts are kept until the answer's end, at most
//! 1 MiB, and nowhere else.
//!
//! **A check is not believed for good**: one that fails `disarm_share` (0.5) of the last 30 to 100 answers
//! disarms itself, tells (`disarm` in `sseismo_steering_decisions_total` and a warning), finds `not-checked` from
//! then on, and is believed again when it fails a quarter.
//!
//! The write-ups' circuit is 3 in 60 s and 5 minutes; these are the defaults, since nobody measured others.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sseismo_trace::ContentCheck;
use tokio::time::Instant;

use super::{Advice, Call, Policy, Thought};
use crate::access::Entry;
use crate::config::{Route, Section};

mod expected;
pub mod schema;
mod state;

pub use expected::Expected;
use state::{Armed, Disarm, Limit, Shape, Shapes};

/// The table's name.
pub(crate) const NAME: &str = "content_checks";

/// The numeric share above which a prompt is dense: the write-ups' edge of saturation.
const DENSE: f64 = 0.3;

#[derive(Clone, Debug)]
struct ContentChecks {
    limit: Limit,
    disarm: Disarm,
    armed: Arc<Armed>,
    shapes: Arc<Shapes>,
}

/// Whether an answer may be given to the client, as far as a check knows.
pub(crate) fn is_fit(check: ContentCheck) -> bool {
    match check {
        ContentCheck::Ok | ContentCheck::NotChecked => true,
        ContentCheck::InvalidJson
        | ContentCheck::Schema
        | ContentCheck::Placeholder
        | ContentCheck::Empty => false,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as every policy is read")]
pub(crate) fn read(section: &Section<'_>, _: &Route) -> Option<Arc<dyn Policy>> {
    let limit = Limit {
        failures: section.size("failures", 1..=10_000).unwrap_or(3),
        window: section.duration("window").unwrap_or(Duration::from_mins(1)),
        off: section.duration("off").unwrap_or(Duration::from_mins(5)),
    };
    let ordinary = Disarm::default();
    let disarm = Disarm { share: section.share("disarm_share").unwrap_or(ordinary.share), ..ordinary };
    let checks = ContentChecks { limit, disarm, armed: Arc::default(), shapes: Arc::default() };
    checks.armed.configure(disarm);
    Some(Arc::new(checks))
}

impl Policy for ContentChecks {
    fn name(&self) -> &'static str {
        NAME
    }

    fn consider(&self, call: &Call<'_>, now: Instant) -> Thought {
        let expected = Expected::of(call.api, call.members, &self.armed);
        let shape = shape(call, &expected);
        let off = |name: &Arc<str>| self.shapes.is_off(name, shape, now);
        let off: Vec<_> =
            call.route.upstreams().map(|upstream| &upstream.name).filter(|name| off(name)).cloned().collect();
        let advice = if off.is_empty() { Vec::new() } else { vec![Advice::Avoid(off)] };
        Thought { advice, mark: shape, expected: Some(Arc::new(expected)), ..Thought::default() }
    }

    fn ended(&self, entry: &Entry, mark: u64, now: Instant) -> Option<&'static str> {
        let mut off = false;
        for tried in entry.attempts.iter().filter(|tried| !is_fit(tried.content_check)) {
            off |= self.shapes.failed(&tried.upstream, mark, &self.limit, now);
        }
        self.armed.changed().or(off.then_some("off-for-shape"))
    }

    fn view(&self, now: Instant) -> Option<Value> {
        let check = |(check, believed, share): (ContentCheck, bool, f64)| json!({"check": check, "believed": believed, "fails": share});
        let checks: Vec<_> = self.armed.shares().into_iter().map(check).collect();
        let off: serde_json::Map<_, _> = self
            .shapes
            .off(now)
            .into_iter()
            .map(|(upstream, shapes)| (upstream.to_string(), shapes.into()))
            .collect();
        Some(json!({"checks": checks, "off_for_shapes": off}))
    }

    fn after(&self, old: &dyn Policy) -> Option<Arc<dyn Policy>> {
        let old: &dyn std::any::Any = old;
        let old = old.downcast_ref::<Self>()?;
        let (armed, shapes) = (Arc::clone(&old.armed), Arc::clone(&old.shapes));
        armed.configure(self.disarm);
        Some(Arc::new(Self { armed, shapes, ..self.clone() }))
    }
}

/// The size as a power of four, the density and the form.
fn shape(call: &Call<'_>, expected: &Expected) -> Shape {
    let size = u64::from(call.prompt_tokens.max(1).ilog2() / 2);
    let dense = call.numeric_share().is_some_and(|share| share > DENSE);
    size << 3 | expected.kind() << 1 | u64::from(dense)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Asked, Lab, PLAIN, lab, names};
    use super::*;
    use crate::access::Tried;

    const TABLE: &str = "[route.content_checks]\nact = true\n";
    const LONG: Asked = Asked { prompt_tokens: 5_000, ..PLAIN };

    /// An answer of `upstream` to such a call; what the policies did about it.
    fn answered(lab: &Lab, asked: &Asked, upstream: &str, check: ContentCheck) -> Vec<String> {
        let tried = Tried { upstream: upstream.to_owned(), content_check: check, ..Tried::default() };
        let mut entry = Entry { attempts: vec![tried], ..Entry::default() };
        lab.considered(asked).ended(&mut entry, lab.now);
        names(&[entry.policy, entry.would_have].concat())
    }

    #[test]
    fn three_wrong_answers_put_an_upstream_off_for_such_requests_and_no_others() {
        let mut lab = lab(TABLE);
        let wrong = |lab: &Lab| answered(lab, &LONG, "a", ContentCheck::InvalidJson);
        assert_eq!(wrong(&lab).len() + wrong(&lab).len(), 0);
        assert_eq!(lab.order(&LONG), "a b c");
        assert_eq!(wrong(&lab), ["content_checks off-for-shape"]);
        assert_eq!(lab.order(&LONG), "b c a");
        let json = r#"{"response_format":{"type":"json_object"}}"#;
        let dense = r#"{"messages":[{"content":"1234567"}]}"#;
        for other in [
            Asked { prompt_tokens: 500, ..LONG },
            Asked { body: json, ..LONG },
            Asked { body: dense, ..LONG },
        ] {
            assert_eq!(lab.order(&other), "a b c", "{other:?}");
        }
        lab.now += Duration::from_mins(5);
        assert_eq!(lab.order(&LONG), "a b c");
    }

    #[test]
    fn observe_only_tells_and_moves_nothing() {
        let lab = lab(&TABLE.replace("true", "false"));
        let said: Vec<_> =
            (0..3).flat_map(|_| answered(&lab, &LONG, "a", ContentCheck::Placeholder)).collect();
        assert_eq!(said, ["content_checks off-for-shape observe-only"]);
        let considered = lab.considered(&LONG);
        assert_eq!(names(&considered.would_have), ["content_checks avoid observe-only"]);
        assert!(considered.expected.is_some_and(|(_, moves)| !moves));
        assert_eq!(lab.order(&LONG), "a b c");
    }

    #[test]
    fn what_passes_or_is_not_checked_counts_for_nothing() {
        let lab = lab(TABLE);
        for check in [ContentCheck::Ok, ContentCheck::NotChecked] {
            (0..9).for_each(|_| assert!(answered(&lab, &LONG, "a", check).is_empty()));
        }
        assert_eq!(lab.order(&LONG), "a b c");
    }

    #[test]
    fn a_check_that_fails_everything_disarms_itself_and_says_so() {
        let lab = lab(TABLE);
        let json = Asked { body: r#"{"response_format":{"type":"json_object"}}"#, ..PLAIN };
        let text = crate::hold::Text { output: "no JSON".to_owned(), ..Default::default() };
        let mut said = Vec::new();
        for n in 0..31 {
            let considered = lab.considered(&json);
            let (expected, _) = considered.expected.as_ref().unwrap();
            let check = expected.judge(&text, sseismo_trace::Outcome::Completed);
            assert_eq!(check == ContentCheck::InvalidJson, n < 29, "{n}");
            // Of another upstream each time: none of them is put off.
            let tried = Tried { upstream: n.to_string(), content_check: check, ..Tried::default() };
            let mut entry = Entry { attempts: vec![tried], ..Entry::default() };
            considered.ended(&mut entry, lab.now);
            said.extend(names(&entry.policy));
        }
        assert_eq!(said, ["content_checks disarm"]);
        let view = lab.router.policy_views(lab.now).remove(0).2;
        assert_eq!(
            (&view["checks"][0]["check"], &view["checks"][0]["believed"]),
            (&json!("invalid-json"), &json!(false))
        );
    }

    #[test]
    fn a_changed_configuration_keeps_who_is_off() {
        let lab = lab(TABLE);
        (0..3).for_each(|_| drop(answered(&lab, &LONG, "a", ContentCheck::Empty)));
        let lab = lab.reconfigured(&format!("{TABLE}failures = 5\n"));
        assert_eq!(lab.order(&LONG), "b c a");
    }
}
