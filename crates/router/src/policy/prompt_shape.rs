//! `[route.prompt_shape]`: long, dense numeric prompts go to another tier.
//!
//! A prompt of more than `tokens` tokens of which more than `numeric_share` is digits (and separators within
//! runs of digits, as in the traces' `prompt_numeric_share`) goes to `tier`, counted from 1, always or while a
//! `saturation` signal with harm is live on the primary. The write-ups saw such prompts answered 200 and wrong
//! above 3,200 tokens with a share above 0.3 and sent them to tier 2 (`preset = "write-up"`). That is one
//! observer's edge for one model: without the preset the figures are stated.
//!
//! The size is an estimate from the body's bytes. Short prompts are not looked at: the share is counted only
//! once the size says so. While signalled, the primary keeps the floor's share, so that its recovery shows.

use std::sync::Arc;

use sseismo_trace::SignatureId;
use tokio::time::Instant;

use super::{Advice, Call, Policy, Thought, by_write_up, figure};
use crate::config::{Route, Section};
use crate::steer::Held;

/// The table's name.
pub(crate) const NAME: &str = "prompt_shape";

/// The write-ups' edge: tokens, and numeric share.
const WRITE_UP: (u64, f64) = (3_200, 0.3);

#[derive(Clone, Debug)]
struct PromptShape {
    tokens: u64,
    numeric_share: f64,
    /// From 0.
    tier: usize,
    /// Only while signalled.
    signalled: bool,
}

pub(crate) fn read(section: &Section<'_>, route: &Route) -> Option<Arc<dyn Policy>> {
    let tokens = figure(section, "tokens", WRITE_UP.0);
    let preset = by_write_up(section).then_some(WRITE_UP.1);
    let numeric_share = section.share("numeric_share").or(preset);
    if numeric_share.is_none() && !section.has("numeric_share") {
        section.fault(
            "numeric_share",
            "`numeric_share` is missing: state it, or take the write-ups' 0.3 with preset = \"write-up\"",
        );
    }
    let by_route = section.has_preset() && !section.has("act") && !section.has("tier");
    if by_route && route.tiers.len() < 2 {
        return None; // the route's preset is meant for what the route can do
    }
    let tier = section.size("tier", 1..=1_000).unwrap_or(2);
    if tier > route.tiers.len() {
        section.fault("tier", &format!("there is no tier {tier}: the route has {}", route.tiers.len()));
    }
    let signalled = section.word("when", &["always", "signalled"]) == Some("signalled");
    let (tokens, numeric_share) = (tokens?, numeric_share?);
    Some(Arc::new(PromptShape { tokens, numeric_share, tier: tier.saturating_sub(1), signalled }))
}

impl Policy for PromptShape {
    fn name(&self) -> &'static str {
        NAME
    }

    fn consider(&self, call: &Call<'_>, _: Instant) -> Thought {
        let dense = || call.numeric_share().is_some_and(|share| share > self.numeric_share);
        if call.prompt_tokens <= self.tokens || !dense() {
            return Thought::nothing(0);
        }
        let force = call.signalled(SignatureId::Saturation).filter(|_| self.signalled);
        if self.signalled && (force.is_none() || call.keeps(call.floor)) {
            return Thought::nothing(0);
        }
        let held = force.filter(|force| !force.harm.any()).map(|_| Held::NoHarm);
        Thought { advice: vec![Advice::FromTier(self.tier)], held, ..Thought::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Asked, PLAIN, fault, lab, names};

    const TABLE: &str = "[route.prompt_shape]\npreset = \"write-up\"\nact = true\n";
    /// Numeric shares of 0.8 and of a little less than 0.3.
    const DENSE: &str = r#"{"messages":[{"content":"12345678ab"}]}"#;
    const PROSE: &str = r#"{"messages":[{"content":"2 abcdefgh"}]}"#;

    #[test]
    fn long_and_dense_prompts_go_to_the_second_tier_and_no_others() {
        let lab = lab(TABLE);
        for (tokens, body, order) in [
            (3_201, DENSE, "b c a"),
            (3_200, DENSE, "a b c"),
            (9_999, PROSE, "a b c"),
            (9_999, "{}", "a b c"),
        ] {
            let asked = Asked { prompt_tokens: tokens, body, ..PLAIN };
            assert_eq!(lab.order(&asked), order, "{tokens} {body}");
        }
        let lab =
            self::lab("[route.prompt_shape]\ntokens = 10\nnumeric_share = 0.05\ntier = 3\nact = true\n");
        assert_eq!(lab.order(&Asked { prompt_tokens: 11, body: PROSE, ..PLAIN }), "c a b");
    }

    #[test]
    fn while_signalled_it_takes_a_signal_and_harm() {
        let lab = lab(&format!("{TABLE}when = \"signalled\"\n"));
        let asked = Asked { prompt_tokens: 5_000, body: DENSE, session: Some(3), ..PLAIN };
        assert_eq!(lab.order(&asked), "a b c");
        lab.signal(r#"{"id":"1","target":{"upstream":"a"},"signature":"saturation","prompt_tokens":3200,"numeric_share":0.3,"state":"onset","ttl":60000000}"#);
        assert_eq!(names(&lab.considered(&asked).would_have), ["prompt_shape from-tier no-harm"]);
        assert_eq!(lab.order(&asked), "a b c");
        lab.harm("a");
        lab.look();
        assert_eq!(lab.order(&asked), "b c a");
    }

    #[test]
    fn observe_only_tells_and_moves_nothing() {
        let lab = lab(&TABLE.replace("true", "false"));
        let asked = Asked { prompt_tokens: 5_000, body: DENSE, ..PLAIN };
        assert_eq!(names(&lab.considered(&asked).would_have), ["prompt_shape from-tier observe-only"]);
        assert_eq!(lab.order(&asked), "a b c");
    }

    #[test]
    fn faults_are_told() {
        for (table, told) in [
            ("[route.prompt_shape]\nnumeric_share = 0.3\n", "`tokens` is missing"),
            ("[route.prompt_shape]\ntokens = 3\n", "`numeric_share` is missing"),
            ("[route.prompt_shape]\npreset = \"write-up\"\ntier = 4\n", "there is no tier 4"),
            ("[route.prompt_shape]\npreset = \"write-up\"\ntire = 2\n", "unknown key `tire`"),
        ] {
            assert!(fault(table).contains(told), "{told}");
        }
    }
}
