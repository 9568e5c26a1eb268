//! From figures to a word: the order of the rules is the contract.

use sseismo_trace::{Effect, Finding, Scope, SignatureId, Significance, Verdict};

use super::background::Background;
use super::detectable::detectable;
use super::evidence::{Evidence, evidence};
use super::scan::{Fit, Scan, hypotheses, threshold};
use super::{Count, Counts, Lattice, Tally, ascending};
use crate::stats::{proportion::wilson, real, real_len, tail};

/// Fewer positive counts say nothing.
pub(super) const MIN_COUNTS: u64 = 30;
/// Share on a lattice of multiples from which on it is the provider's unit.
const UNIT_SHARE: f64 = 0.995;
/// Below this n a unit with an offset is not excluded even when every count is on the lattice: the upper
/// Wilson limit of 0 in 600 is 0.6 %.
const UNIT_EXCLUDED_FROM: u64 = 600;
/// A cap cuts a spread: fewer distinct values below it are no spread.
const SPREAD: usize = 10;
/// Chance at which a largest value without a cap is taken for one.
const CAP_P: f64 = 0.01;
/// Steps at which people and tools round; multiples of 50 count as well.
const ROUND: [u32; 9] = [10, 50, 100, 128, 256, 500, 512, 1_000, 1_024];

/// The verdict on one scope.
pub(super) fn finding(tally: &Tally, scope: &Scope) -> Finding {
    let mut notes = notes(tally);
    let judged = judged(tally, &mut notes);
    let counts = ascending(&judged.counts.histogram);
    let background = Background::of(&counts);
    let scan = Scan::new(&counts, &background);
    let n = background.n();
    let fit = scan.best();
    let claimable = n >= MIN_COUNTS && !judged.counts.estimated();
    let found = fit.filter(|fit| claimable && scan.stands(fit));
    if let Some(fit) = fit.filter(|fit| claimable && found.is_none() && scan.piles_up(fit)) {
        notes.push(format!(
            "popular values that share a step of {}, but no more of them than chance would put there: no \
             lattice is claimed",
            fit.lattice.step
        ));
    }
    let cap = Cap::of(&counts, &background).filter(|_| claimable);
    let verdict = if tally.with_usage == 0 {
        Verdict::NotMeasurable
    } else if n < MIN_COUNTS {
        Verdict::TooFew
    } else if let Some(fit) = found {
        classify(&scan, &fit, n, cap.as_ref(), judged.one_model, &mut notes)
    } else if cap.is_some() {
        Verdict::Capped
    } else {
        Verdict::None
    };
    let mut evidence = evidence(&judged.counts.answers, &counts, &background, fit.as_ref(), found.is_some());
    if matches!(verdict, Verdict::None | Verdict::TooFew) {
        evidence.detectable = Some(detectable(&background));
    }
    let words = Words::of(verdict, fit.as_ref(), &evidence);
    Finding {
        signature: SignatureId::CountLattice,
        scope: scope.clone(),
        verdict,
        n,
        unit: "positive counts".into(),
        effect: (n > 0).then(|| Effect {
            name: "share".into(),
            unit: String::new(),
            value: evidence.share,
            ci95: Some(wilson(evidence.hits, n)),
        }),
        significance: match cap {
            Some(cap) if verdict == Verdict::Capped => Some(cap.significance()),
            _ => claimable.then(|| significance(evidence.llr)),
        },
        evidence: serde_json::to_value(&evidence).unwrap_or_default(),
        cause: None,
        labelled: tally.labelled,
        compared_with: format!(
            "the same counts smoothed in ln(count), over {:.0} pairs of step and offset",
            hypotheses()
        ),
        does_not_prove: words.does_not_prove,
        next_step: words.next_step,
        notes,
    }
}

/// Union bound: no batch without a lattice reaches this ratio more often than that.
fn significance(llr: f64) -> Significance {
    let p = (hypotheses() * (-llr).exp()).min(1.0);
    Significance { kind: "llr".into(), value: llr, threshold: threshold(), p: Some(p), q: None }
}

fn notes(tally: &Tally) -> Vec<String> {
    let mut notes = Vec::new();
    if tally.unreported > 0 {
        notes
            .push(format!("{} of {} answers report no reasoning tokens", tally.unreported, tally.with_usage));
    }
    if tally.folded > 0 {
        notes.push(format!("{} answers folded by a proxy left out: their counts are sums", tally.folded));
    }
    if tally.unclear > 0 {
        notes.push(format!("{} labels `correct` are neither true nor false: not used", tally.unclear));
    }
    if tally.unusable > 0 {
        notes.push(format!("{} counts below 0 or above 1,048,576 left out", tally.unusable));
    }
    notes
}

/// The counts that are judged together.
struct Judged {
    counts: Counts,
    /// They come from one model, and it is known.
    one_model: bool,
}

/// Models whose counts are estimates are left out of a scope that has reported counts as well; a scope of
/// estimates alone is looked at, but no lattice is claimed.
fn judged(tally: &Tally, notes: &mut Vec<String>) -> Judged {
    let all_estimated = tally.models.values().filter(|own| own.positive > 0).all(Counts::estimated);
    let mut counts = Counts::default();
    let mut models = Vec::new();
    for (model, own) in tally.models.iter().filter(|(_, own)| own.positive > 0) {
        let name = model.as_deref().unwrap_or("an unknown model");
        if own.estimated() {
            let share = 100.0 * real(own.fractional) / real(own.positive);
            let left_out = if all_estimated { "no lattice can be claimed" } else { "left out" };
            notes.push(format!(
                "estimated counts: {share:.0} % of the {} counts of {name} are no whole numbers, {left_out}",
                own.positive
            ));
        }
        if all_estimated || !own.estimated() {
            counts.add(own);
            models.push(model);
        }
    }
    // Labels of zero counts belong to the scorecard as well.
    for own in tally.models.values().filter(|own| own.positive == 0) {
        counts.add(own);
    }
    Judged { counts, one_model: matches!(models[..], [Some(_)]) }
}

fn classify(
    scan: &Scan<'_>,
    fit: &Fit,
    n: u64,
    cap: Option<&Cap>,
    one_model: bool,
    notes: &mut Vec<String>,
) -> Verdict {
    let Lattice { step, offset } = fit.lattice;
    let share = real(fit.hits) / real(n);
    let multiples = offset == step;
    if multiples && (ROUND.contains(&step) || step.is_multiple_of(50)) {
        if share >= UNIT_SHARE {
            notes.push(format!(
                "practically all counts are multiples of {step}: a reporting unit looks the same"
            ));
        }
        return Verdict::Heaping;
    }
    if cap.is_some_and(|cap| cap.carries(fit.lattice, &scan.outstanding(fit.lattice))) {
        return Verdict::Capped;
    }
    if multiples && share >= UNIT_SHARE {
        return Verdict::ReportingQuantised;
    }
    if multiples || !one_model {
        notes.push(if multiples {
            format!("a lattice of multiples of {step} that holds {:.1} % of the counts", 100.0 * share)
        } else {
            "the counts come from several or unknown models: split by model".into()
        });
        return Verdict::LatticeUnclassified;
    }
    if fit.hits == n && n < UNIT_EXCLUDED_FROM {
        notes.push("every count lies on the lattice: a reporting unit is not excluded".into());
    }
    Verdict::BoundaryStops
}

/// The largest value, when far more counts stop there than the spread below it explains.
struct Cap {
    value: u32,
    /// Chance of so many counts at the largest of all values seen, Bonferroni over these.
    p: f64,
}

impl Cap {
    fn of(counts: &[Count], background: &Background) -> Option<Self> {
        let &Count { value, count } = counts.last()?;
        let p = tail::ln_poisson(count, background.at(value)).exp() * real_len(counts.len());
        (counts.len() > SPREAD && count >= 3 && p <= CAP_P).then_some(Self { value, p })
    }

    /// Whether nothing but the cap and one value that is no neighbouring tier carries the lattice: any
    /// two popular values share some step.
    fn carries(&self, lattice: Lattice, outstanding: &[u32]) -> bool {
        match outstanding {
            [other, last] => *last == self.value && last - other > lattice.step,
            _ => false,
        }
    }

    fn significance(&self) -> Significance {
        Significance { kind: "p".into(), value: self.p, threshold: CAP_P, p: Some(self.p), q: None }
    }
}

/// The two sentences that belong to a verdict.
struct Words {
    does_not_prove: String,
    next_step: String,
}

impl Words {
    fn of(verdict: Verdict, fit: Option<&Fit>, evidence: &Evidence) -> Self {
        let lattice = fit.map_or_else(String::new, |fit| fit.lattice.to_string());
        let (does_not_prove, next_step) = match verdict {
            Verdict::BoundaryStops if harmful(evidence) => (
                "why the model stops there, nor that other prompts suffer the same loss".into(),
                format!("treat answers on the low tiers of {lattice} as suspect, compare routes or dates with `sseismo compare`"),
            ),
            Verdict::BoundaryStops => (
                "that answers on the lattice are worse, nor why the model stops there".into(),
                "label answers and rerun with `--labels correct=COLUMN`; compare routes or dates with `sseismo compare`".into(),
            ),
            Verdict::ReportingQuantised => (
                "that the model stops at these counts: the provider rounds what it reports".into(),
                format!("none: counts in units of {} carry no sign of early stops", evidence.step.unwrap_or_default()),
            ),
            Verdict::LatticeUnclassified => (
                format!("that any one model stops on {lattice}: pooled or partial units look the same"),
                "split the scope with `--by model,effort`; where a table has the model in a column of its own, name it: `--map model=COLUMN`".into(),
            ),
            Verdict::Heaping => (
                "anything about the model: people and tools round to such numbers".into(),
                "look for estimates or rounding in the source of the counts".into(),
            ),
            Verdict::Capped => (
                "that the model would have stopped there by itself".into(),
                "raise the token limit and compare".into(),
            ),
            Verdict::TooFew => (
                "that there is no lattice".into(),
                format!("collect at least {MIN_COUNTS} positive counts per scope"),
            ),
            Verdict::NotMeasurable => (
                "anything: no usable token counts are reported (usage_reasoning and the other columns usage_*)".into(),
                "import a source that reports reasoning tokens, or name its column with `--map`".into(),
            ),
            Verdict::None
            | Verdict::Present
            | Verdict::Coalesced
            | Verdict::HeldWhole => (
                "that answers are good: without clustering every answer can still be wrong".into(),
                "none; a smaller lattice than the detectable mass needs more counts".into(),
            ),
        };
        Self { does_not_prove, next_step }
    }
}

/// Harm is stated only where labels show it: the interval of the first tier's share of correct answers
/// lies below that of the later tiers together.
fn harmful(evidence: &Evidence) -> bool {
    let Some(first) = evidence.tiers.first().filter(|tier| tier.labelled > 0) else { return false };
    let [_, high] = wilson(first.correct, first.labelled);
    let rest = evidence.tiers[1..].iter().fold((0, 0), |sum, t| (sum.0 + t.correct, sum.1 + t.labelled));
    let [low, _] = wilson(rest.0, rest.1);
    rest.1 > 0 && high < low
}
