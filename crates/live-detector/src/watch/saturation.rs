//! `saturation`: long, dense numeric prompts are answered 200 OK and wrong.
//!
//! **Observation**: a checked answer to a prompt that is long and numeric, as offline defines both; flagged
//! when the check failed.
//! **Null**: the failure share of all other prompts, as an upper limit, doubled: offline calls less than
//! twice the others' share health. No healthy time is needed: the others are the control, so it is seen
//! even when it was there from the start.
//! **Signal**: needs a failure share of at least 5 %.
//! **Smallest n**: 30 checked answers to other prompts.
//! **False positives**: the questions that are long and numeric may simply be harder; a session that fails as
//! a whole makes flags that depend on each other, which the printed check shows.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sseismo_analysis::signature::saturation::{CHECKED, LONG, NUMERIC, RATIO, failed};
use sseismo_trace::Detail;

use super::flagged::Flagged;
use super::{Call, Watch};
use crate::Options;
use crate::baseline::Kept;
use crate::sequence::{Hits, Sequence, upper_limit};
use crate::view::Figure;

/// Failure shares below this are no signal, however sure.
const LEAST: f64 = 0.05;
/// The others' answers from which on the older half fades.
const MEMORY: u64 = 20_000;

/// Starts watching.
pub(super) fn open(_: &Options) -> Box<dyn Watch> {
    Box::new(Saturation { others: Others::default(), sequence: Sequence::new(LEAST), smallest: None })
}

/// Answers to prompts that are short or hold few digits.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Others {
    checked: Hits,
    /// Of these, of the prompts that are long or numeric, but not both.
    half: Hits,
}

#[derive(Debug)]
struct Saturation {
    others: Others,
    sequence: Sequence,
    /// Size and numeric share of the smallest prompt that failed since the change began.
    smallest: Option<(u64, f64)>,
}

impl Saturation {
    fn ready(&self) -> bool {
        self.others.checked.n >= CHECKED
    }

    fn learn(&mut self, half: bool, failed: bool) {
        self.others.checked.push(failed);
        if half {
            self.others.half.push(failed);
        }
        if self.others.checked.n >= MEMORY {
            self.others.checked.halve();
            self.others.half.halve();
        }
        self.set_null();
    }

    fn set_null(&mut self) {
        if self.ready() {
            self.sequence.set_null(RATIO * upper_limit(self.others.checked));
        }
    }
}

impl Flagged for Saturation {
    const UNIT: &'static str = "checked answers to long numeric prompts";

    fn end(&mut self, call: &Call<'_>) {
        let summary = call.summary;
        let tokens = summary.usage.input.or(summary.prompt_tokens_est);
        let (Some((failed, _)), Some(tokens), Some(share)) =
            (failed(summary), tokens, summary.prompt_numeric_share)
        else {
            return;
        };
        let (long, numeric) = (tokens > LONG, share >= NUMERIC);
        if !(long && numeric) {
            self.learn(long || numeric, failed);
            return;
        }
        let quiet = self.sequence.hits().hits == 0;
        self.sequence.push(call.at, failed);
        if failed {
            let known = self.smallest.filter(|_| !quiet);
            let (size, digits) = known.unwrap_or((tokens, share));
            self.smallest = Some((size.min(tokens), digits.min(share)));
        }
    }

    fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    fn sequence_mut(&mut self) -> &mut Sequence {
        &mut self.sequence
    }

    fn learned(&self) -> [u64; 2] {
        [self.others.checked.n, CHECKED]
    }

    fn detail(&self) -> Detail {
        let (size, numeric_share) = self.smallest.unwrap_or((LONG, NUMERIC));
        Detail::Saturation { prompt_tokens: u32::try_from(size).unwrap_or(u32::MAX), numeric_share }
    }

    fn figures(&self) -> Vec<Figure> {
        vec![
            Figure::new("failure share of other prompts", self.others.checked.share(), ""),
            Figure::new("of those, long or numeric but not both", self.others.half.share(), ""),
        ]
    }

    fn bytes(&self) -> usize {
        size_of_val(self)
    }

    fn save(&self) -> Kept {
        Kept::of(self.others)
    }

    fn restore(&mut self, saved: Value) -> Result<(), serde_json::Error> {
        self.others = serde_json::from_value(saved)?;
        self.set_null();
        Ok(())
    }
}
