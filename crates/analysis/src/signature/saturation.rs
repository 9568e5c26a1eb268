//! Long, dense numeric prompts are answered 200 OK and wrong.
//!
//! **Looks like**: content checks (JSON that does not parse, a broken schema, placeholders, nothing) or
//! labels that fail for prompts that are both long and numeric, and not for others.
//! **Known causes**: attention that runs dry over long digit runs; a gateway that cuts prompts.
//! **Statistic**: failures of long numeric prompts against those of all others, whole sessions as the
//! unit; and the two shapes that share only one of the properties, so that a plain length effect is
//! called that.
//! **Defaults**: long is over 3,200 tokens (the write-ups' edge), numeric a share of at least 0.4 of the
//! characters; present at p ≤ 0.01 and at least twice the failure share of the others.
//! **Smallest n**: 30 checked answers of each kind.
//! **False positives**: harder questions happen to be the long numeric ones: the comparison cannot know.
//! **Shown by**: `data/scenarios/saturation.toml`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sseismo_trace::{
    ContentCheck, Effect, Finding, Scope, SignatureId, Significance, Stream, Summary, Verdict,
};

use super::{Options, Pass, Score, Signature};
use crate::stats::clustered::{Cluster, Estimate, difference};
use crate::stats::{fisher, proportion, real};

/// Prompts over this many tokens are long: the edge that the write-ups name.
pub const LONG: u64 = 3_200;
/// Prompts with at least this share of digits are numeric: prose stays under 0.15.
pub const NUMERIC: f64 = 0.4;
/// Fewest checked answers of each kind.
pub const CHECKED: u64 = 30;
/// Level.
const ALPHA: f64 = 0.01;
/// The failure share must be at least this many times that of the others.
pub const RATIO: f64 = 2.0;

/// The signature.
#[derive(Debug)]
pub(super) struct Saturation;

/// Failures of one shape of prompts.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Shape {
    /// Checked answers.
    pub n: u64,
    /// Of these, failed.
    pub failed: u64,
}

impl Shape {
    fn share(self) -> f64 {
        if self.n == 0 { 0.0 } else { real(self.failed) / real(self.n) }
    }
}

/// What was found.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Long and numeric.
    pub long_numeric: Shape,
    /// Long, not numeric.
    pub long_prose: Shape,
    /// Short and numeric.
    pub short_numeric: Shape,
    /// Short, not numeric.
    pub short_prose: Shape,
    /// Failure share of long numeric prompts over that of all others; none when the others never failed.
    pub ratio: Option<f64>,
    /// Share of all prompts over 3,200 tokens, checked or not.
    pub long_share: f64,
}

impl Signature for Saturation {
    fn id(&self) -> SignatureId {
        SignatureId::Saturation
    }

    fn open(&self, _: &Options) -> Box<dyn Score> {
        Box::new(Checks::default())
    }

    fn evidence_schema(&self) -> schemars::Schema {
        schemars::schema_for!(Evidence)
    }
}

#[derive(Debug, Default)]
struct Checks {
    streams: u64,
    sized: u64,
    long: u64,
    checked: u64,
    labelled: u64,
    with_share: u64,
    shapes: BTreeMap<(bool, bool), Shape>,
    /// Rows and failures of each session: long numeric prompts, and all others.
    sessions: BTreeMap<u64, [Cluster; 2]>,
}

/// Whether the answer failed, by its content check or else by the label `correct`; and whether the label said
/// so. `None` when nobody checked.
pub fn failed(summary: &Summary) -> Option<(bool, bool)> {
    match summary.content_check {
        ContentCheck::NotChecked => {
            let label = summary.labels.get("correct")?;
            let wrong = match label.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" => false,
                "false" | "0" | "no" => true,
                _ => return None,
            };
            Some((wrong, true))
        }
        check => Some((check != ContentCheck::Ok, false)),
    }
}

impl Score for Checks {
    fn push(&mut self, pass: Pass, stream: &Stream<'_>) {
        if pass != Pass::Baseline {
            return;
        }
        let summary = stream.summary;
        self.streams += 1;
        let tokens = summary.usage.input.or(summary.prompt_tokens_est);
        self.sized += u64::from(tokens.is_some());
        self.long += u64::from(tokens.is_some_and(|tokens| tokens > LONG));
        let verdict = failed(summary);
        self.checked += u64::from(verdict.is_some());
        self.with_share += u64::from(summary.prompt_numeric_share.is_some());
        let (Some((failed, label)), Some(tokens), Some(share)) =
            (verdict, tokens, summary.prompt_numeric_share)
        else {
            return;
        };
        self.labelled += u64::from(label);
        let kind = (tokens > LONG, share >= NUMERIC);
        let shape = self.shapes.entry(kind).or_default();
        shape.n += 1;
        shape.failed += u64::from(failed);
        // Without a session every stream is its own.
        let session = summary.session_key.unwrap_or(summary.stream_id ^ self.streams.rotate_left(32));
        let cluster = &mut self.sessions.entry(session).or_default()[usize::from(kind != (true, true))];
        cluster.rows += 1;
        cluster.sum += f64::from(u8::from(failed));
    }

    fn finding(&self, scope: &Scope) -> Finding {
        let evidence = self.evidence();
        let others = self.others();
        let (risky, n) = (evidence.long_numeric, evidence.long_numeric.n + others.n);
        let p = self.p(risky, others);
        let missing = self.missing();
        let verdict = if missing.is_some() {
            Verdict::NotMeasurable
        } else if risky.n < CHECKED || others.n < CHECKED {
            Verdict::TooFew
        } else if p <= ALPHA && risky.share() >= RATIO * others.share() && risky.failed > 0 {
            Verdict::Present
        } else {
            Verdict::None
        };
        let measured = matches!(verdict, Verdict::Present | Verdict::None);
        Finding {
            signature: SignatureId::Saturation,
            scope: scope.clone(),
            verdict,
            n,
            unit: "checked answers".into(),
            effect: measured.then(|| Effect {
                name: "failure-share-difference".into(),
                unit: String::new(),
                value: risky.share() - others.share(),
                ci95: Some(proportion::difference_ci95(risky.failed, risky.n, others.failed, others.n)),
            }),
            significance: measured.then(|| Significance {
                kind: "p".into(),
                value: p,
                threshold: ALPHA,
                p: Some(p),
                q: None,
            }),
            notes: notes(&evidence, verdict, others),
            evidence: serde_json::to_value(evidence).unwrap_or_default(),
            cause: None,
            labelled: self.labelled,
            compared_with: "all other prompts: shorter ones, and long ones without many digits".into(),
            does_not_prove: "that the model saturates: long numeric questions may simply be \
                             harder, or their checks stricter."
                .into(),
            next_step: next_step(verdict, missing),
        }
    }
}

fn next_step(verdict: Verdict, missing: Option<&str>) -> String {
    match (missing, verdict) {
        (Some(missing), _) => missing.to_owned(),
        (None, Verdict::TooFew) => "Collect at least 30 checked answers to prompts of each kind.".into(),
        (None, Verdict::Present) => {
            "Send the same numbers in prompts split below 3,200 tokens, and compare the failure shares."
                .into()
        }
        (None, _) => "nothing to do".into(),
    }
}

fn notes(evidence: &Evidence, verdict: Verdict, others: Shape) -> Vec<String> {
    let mut notes = Vec::new();
    let risky = evidence.long_numeric.share();
    for (shape, name) in [(evidence.long_prose, "long prose"), (evidence.short_numeric, "short numeric")] {
        if verdict == Verdict::Present && shape.n >= CHECKED && shape.share() * RATIO > risky {
            let share = shape.share() * 100.0;
            notes.push(format!("{name} prompts fail too ({share:.1} %): one property may be enough"));
        }
    }
    if verdict == Verdict::None {
        let detectable = detectable(evidence.long_numeric.n, others);
        notes.push(format!(
            "a failure share of {:.1} % or more would have been found with 80 % power",
            detectable * 100.0
        ));
    }
    notes
}

/// Failure share that a test at [`ALPHA`] finds with 80 % power: normal approximation, z = 2.576 + 0.842.
fn detectable(n: u64, others: Shape) -> f64 {
    let base = (real(others.failed) + 0.5) / (real(others.n) + 1.0);
    (1..=1_000)
        .map(|i| base + (1.0 - base) * f64::from(i) / 1_000.0)
        .find(|share| {
            let spread = (base * (1.0 - base) / real(others.n) + share * (1.0 - share) / real(n)).sqrt();
            share - base >= 3.418 * spread && *share >= RATIO * base
        })
        .unwrap_or(1.0)
}

impl Checks {
    fn shape(&self, long: bool, numeric: bool) -> Shape {
        self.shapes.get(&(long, numeric)).copied().unwrap_or_default()
    }

    fn others(&self) -> Shape {
        [(true, false), (false, true), (false, false)].iter().fold(
            Shape::default(),
            |sum, &(long, numeric)| {
                let shape = self.shape(long, numeric);
                Shape { n: sum.n + shape.n, failed: sum.failed + shape.failed }
            },
        )
    }

    fn evidence(&self) -> Evidence {
        let (risky, others) = (self.shape(true, true), self.others());
        Evidence {
            long_numeric: risky,
            long_prose: self.shape(true, false),
            short_numeric: self.shape(false, true),
            short_prose: self.shape(false, false),
            ratio: (others.failed > 0).then(|| risky.share() / others.share()),
            long_share: if self.sized == 0 { 0.0 } else { real(self.long) / real(self.sized) },
        }
    }

    /// The larger of the exact p-value over calls and that over sessions: neither few failures nor
    /// sessions that fail as a whole make a result.
    fn p(&self, risky: Shape, others: Shape) -> f64 {
        let table = [[risky.failed, risky.n - risky.failed], [others.failed, others.n - others.failed]];
        let calls = fisher::two_sided(table);
        let side = |i: usize| {
            let rows: Vec<Cluster> =
                self.sessions.values().map(|sides| sides[i]).filter(|side| side.rows > 0).collect();
            Estimate::of(&rows)
        };
        let sessions = side(0).zip(side(1)).and_then(|(a, b)| difference(&a, &b)).map_or(1.0, |d| d.p);
        calls.max(sessions)
    }

    fn missing(&self) -> Option<&'static str> {
        if self.streams == 0 {
            None
        } else if self.checked == 0 {
            Some(
                "No answer was checked: column content_check is empty and there is no label; give --labels correct=COLUMN.",
            )
        } else if self.sized == 0 {
            Some("No prompt size: columns usage_input and prompt_tokens_est are empty.")
        } else if self.with_share == 0 {
            Some("Column prompt_numeric_share is empty: record through the relay, which measures prompts.")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{finding, parsed, scenario};
    use super::*;

    #[test]
    fn long_numeric_failures_are_found() {
        let found = finding(&Saturation, &scenario("saturation"), 1_500);
        assert_eq!(found.verdict, Verdict::Present);
        let share = found.evidence["long_numeric"]["failed"].as_f64().unwrap()
            / found.evidence["long_numeric"]["n"].as_f64().unwrap();
        assert!((0.28..0.42).contains(&share), "truth: 35 %, got {share}");
    }

    #[test]
    fn failures_of_any_shape_are_not_saturation() {
        let text = "[load]\njson = 1\nnumeric = 0.3\nprompt = { median = 2500 }\n[[behaviour]]\n\
                    kind = 'saturation'\nfails = 0.2\nfails-elsewhere = 0.2";
        let found = finding(&Saturation, &parsed(text), 1_000);
        assert_eq!(found.verdict, Verdict::None, "{found:#?}");
        assert!(found.notes[0].contains("80 % power"));
    }

    #[test]
    fn without_checks_it_cannot_be_measured() {
        let text = "[answer]\noutput = { median = 20 }\n[[behaviour]]\nkind = 'cut'";
        let found = finding(&Saturation, &parsed(text), 50);
        assert_eq!(found.verdict, Verdict::NotMeasurable);
        assert!(found.next_step.contains("content_check"));
    }
}
