//! `[route.size_window]`: calls whose prompt has a size that suffers go elsewhere.
//!
//! Prompts are short, mid or long; the mid ones, from `lo` to `hi` tokens, are kept off the primary, always or
//! while a `size-window` signal with harm is live on it. The write-ups saw sizes from 150 to 220 tokens pinned to
//! one slow shard and always kept 80 to 260 off it (`preset = "write-up"`); nothing measured says that these are
//! anybody else's figures, so without a preset they are stated, or taken from the signal.
//!
//! The size is an estimate from the body's bytes, as in traces. While signalled, the primary keeps the floor's
//! share of these sessions: otherwise nobody would see it recover.

use std::sync::Arc;

use sseismo_trace::{Detail, SignatureId};
use tokio::time::Instant;

use super::{Advice, Call, Policy, Thought, by_write_up, figure, upstreams};
use crate::config::{Route, Section};
use crate::steer::Held;

/// The table's name.
pub(crate) const NAME: &str = "size_window";

/// The write-ups' margins around the window that they saw, tokens.
const WRITE_UP: (u64, u64) = (80, 260);

#[derive(Clone, Debug)]
struct SizeWindow {
    /// `None`: that of the signal.
    window: Option<(u64, u64)>,
    /// Only while signalled.
    signalled: bool,
    /// Of the others the cheapest first.
    cheapest: bool,
    short: Vec<Arc<str>>,
    mid: Vec<Arc<str>>,
    long: Vec<Arc<str>>,
}

pub(crate) fn read(section: &Section<'_>, route: &Route) -> Option<Arc<dyn Policy>> {
    let preset = by_write_up(section);
    let when = section.word("when", &["always", "signalled"]);
    let signalled = when.map_or(!preset, |when| when == "signalled");
    let of_signal = signalled && !section.has("lo") && !section.has("hi") && !preset;
    let window = if of_signal {
        None
    } else {
        let (lo, hi) = (figure(section, "lo", WRITE_UP.0)?, figure(section, "hi", WRITE_UP.1)?);
        if lo > hi {
            section.fault("lo", "`lo` must not be larger than `hi`");
        }
        Some((lo, hi))
    };
    if of_signal && (section.has("short") || section.has("long")) {
        section.fault("short", "`short` and `long` need `lo` and `hi`");
    }
    Some(Arc::new(SizeWindow {
        window,
        signalled,
        cheapest: section.flag("cheapest").unwrap_or(true),
        short: upstreams(section, "short", route),
        mid: upstreams(section, "mid", route),
        long: upstreams(section, "long", route),
    }))
}

impl Policy for SizeWindow {
    fn name(&self) -> &'static str {
        NAME
    }

    fn consider(&self, call: &Call<'_>, _: Instant) -> Thought {
        let force = call.signalled(SignatureId::SizeWindow).filter(|_| self.signalled);
        let of_signal = force.and_then(|force| match force.signal.detail {
            Detail::SizeWindow { lo, hi } => Some((u64::from(lo), u64::from(hi))),
            Detail::CountLattice { .. }
            | Detail::Burst { .. }
            | Detail::Concurrency { .. }
            | Detail::Saturation { .. }
            | Detail::RetryAmplification { .. } => None,
        });
        let Some((lo, hi)) = self.window.or(of_signal) else { return Thought::nothing(0) };
        let size = call.prompt_tokens;
        if size < lo {
            return preferred(&self.short);
        }
        if size > hi {
            return preferred(&self.long);
        }
        if self.signalled && (force.is_none() || call.keeps(call.floor)) {
            return Thought::nothing(0);
        }
        let held = force.filter(|force| !force.harm.any()).map(|_| Held::NoHarm);
        let mut thought = preferred(&self.mid);
        thought.advice.push(Advice::Spill { cheapest: self.cheapest });
        Thought { held, ..thought }
    }
}

fn preferred(names: &[Arc<str>]) -> Thought {
    let advice = (!names.is_empty()).then(|| Advice::Prefer(names.to_vec()));
    Thought { advice: advice.into_iter().collect(), ..Thought::default() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Asked, lab, names};

    const TABLE: &str = "[route.size_window]\npreset = \"write-up\"\nact = true\n";

    #[test]
    fn the_middle_sizes_stay_off_the_primary_and_go_to_the_cheapest() {
        let lab = lab(&format!("{TABLE}when = \"always\"\n"));
        // Of the sizes from 80 to 260; `c` is cheaper than `b`, which comes first by tier.
        for (tokens, order) in [(79, "a b c"), (80, "c b a"), (260, "c b a"), (261, "a b c")] {
            assert_eq!(lab.order(&Asked { prompt_tokens: tokens, ..Asked::default() }), order, "{tokens}");
        }
        let lab = self::lab(&format!("{TABLE}when = \"always\"\ncheapest = false\nlong = [\"b\"]\n"));
        for (tokens, order) in [(80, "b c a"), (261, "b a c")] {
            assert_eq!(lab.order(&Asked { prompt_tokens: tokens, ..Asked::default() }), order, "{tokens}");
        }
    }

    #[test]
    fn while_signalled_it_takes_a_signal_and_harm() {
        let lab = lab("[route.size_window]\nact = true\n");
        let asked = Asked { prompt_tokens: 180, session: Some(3), ..Asked::default() };
        assert_eq!(lab.order(&asked), "a b c");
        lab.signal(r#"{"id":"1","target":{"upstream":"a"},"signature":"size-window","lo":150,"hi":220,"state":"onset","ttl":60000000}"#);
        let considered = lab.considered(&asked);
        assert_eq!(names(&considered.would_have), ["size_window spill no-harm"]);
        assert_eq!(lab.order(&asked), "a b c");
        lab.harm("a");
        lab.look();
        assert_eq!(lab.order(&asked), "c b a");
        assert_eq!(lab.order(&Asked { prompt_tokens: 221, ..asked }), "a b c");
    }

    #[test]
    fn observe_only_tells_and_moves_nothing() {
        let lab = lab(&format!("{}when = \"always\"\n", TABLE.replace("true", "false")));
        let asked = Asked { prompt_tokens: 100, ..Asked::default() };
        assert_eq!(names(&lab.considered(&asked).would_have), ["size_window spill observe-only"]);
        assert_eq!(lab.order(&asked), "a b c");
    }

    #[test]
    fn faults_are_told() {
        for (table, fault) in [
            ("[route.size_window]\nwhen = \"always\"\n", "`lo` is missing"),
            ("[route.size_window]\nlo = 9\nhi = 3\n", "`lo` must not be larger"),
            ("[route.size_window]\npreset = \"write-up\"\nshort = [\"x\"]\n", "no upstream `x`"),
            ("[route.size_window]\nwhen = \"never\"\n", "`when` must be"),
            ("[route.size_window]\nlow = 9\n", "unknown key `low`"),
        ] {
            assert!(super::super::tests::fault(table).contains(fault), "{fault}");
        }
    }
}
