//! What was counted, to a verdict.

use std::collections::{BTreeMap, BTreeSet};

use sseismo_trace::{Cause, Effect, Finding, Scope, SignatureId, Significance, Verdict};
use statrs::distribution::{Binomial, DiscreteCDF};

use super::baseline::{Baseline, Unit};
use super::cause::{Judged, next_step, of_grid};
use super::evidence::Evidence;
use super::tally::{Scale, Tally};
use super::whole;
use crate::signature::Preset;
use crate::stats::proportion::wilson;
use crate::stats::real;

/// Upper 95 % bound of the share of healthy gaps over 750 ms: none of 22,856 (rule of three). One
/// client on one day; the streams are GPT-4o's.
pub const HEALTHY: f64 = 3.0 / 22_856.0;
/// Level of `present`.
const ALPHA: f64 = 0.01;
/// Two scales are tried.
const SCALES: f64 = 2.0;
/// One late group is an event, not a signature.
const LEAST_HITS: u64 = 2;
/// Fewer known gaps say nothing about absence.
const LEAST_GAPS: u64 = 30;
/// Power at which absence is stated.
const POWER: f64 = 0.8;

const COMPARED_WITH: &str = "the scope's own frame gaps and event sizes, and a healthy share of at most 0.013 % of gaps over 750 ms (180 packet-captured GPT-4o streams)";

/// What was decided, before it is put into words.
struct Decision<'a> {
    verdict: Verdict,
    scale: Option<&'a Scale>,
    p: Option<f64>,
    judged: Option<Judged>,
}

pub(super) fn finding(scope: &Scope, preset: Preset, baseline: &Baseline, tally: Option<&Tally>) -> Finding {
    let mut evidence = Evidence::of_baseline(baseline);
    let mut notes = Vec::new();
    let decision = match tally {
        Some(tally) => {
            evidence = evidence.with(tally);
            describe(tally, &mut evidence, &mut notes);
            decide(preset, tally)
        }
        None if baseline.timed_streams == 0 => {
            notes.push(unmeasured(baseline).to_owned());
            Decision { verdict: Verdict::NotMeasurable, scale: None, p: None, judged: None }
        }
        None => {
            notes.push("the second pass was not run: baselines only".to_owned());
            Decision { verdict: Verdict::TooFew, scale: None, p: None, judged: None }
        }
    };
    let (n, hits) = decision.scale.map_or((0, 0), |scale| (scale.gaps, scale.hits));
    if decision.verdict == Verdict::None
        && let Some(share) = detectable_share(n)
    {
        evidence.detectable_share = Some(share);
        notes.push(format!(
            "{n} gaps would have shown a share of {:.2} % late, large groups with 80 % power",
            share * 100.0
        ));
    }
    let missing = decision.judged.as_ref().map_or_else(BTreeSet::new, |judged| judged.missing.clone());
    let cause = decision.judged.map(|judged| judged.cause);
    evidence.missing = missing.iter().map(|&column| column.to_owned()).collect();
    if let Some(scale) = decision.scale {
        let late = if scale.hits > 0 { &scale.hit_causes } else { &scale.cork_causes };
        let whole = tally.filter(|_| decision.verdict == Verdict::HeldWhole);
        let votes = whole.map_or(late, |tally| &tally.held_causes);
        let names = votes.counts.iter().map(|(cause, count)| (cause_name(*cause), *count));
        evidence.causes = if cause.is_some() { names.collect() } else { BTreeMap::new() };
    }
    let whole_step = (decision.verdict == Verdict::HeldWhole)
        .then(|| whole::next_step(cause, !evidence.held_encodings.is_empty()))
        .flatten();
    Finding {
        signature: SignatureId::Burst,
        scope: scope.clone(),
        verdict: decision.verdict,
        n,
        unit: "gaps inside a phase".to_owned(),
        evidence: serde_json::to_value(&evidence).unwrap_or_default(),
        effect: (n > 0).then(|| effect(n, hits)),
        significance: decision.p.map(|p| Significance {
            kind: "p".to_owned(),
            value: p,
            threshold: ALPHA,
            p: Some(p),
            q: None,
        }),
        cause,
        labelled: 0,
        compared_with: COMPARED_WITH.to_owned(),
        does_not_prove: does_not_prove(decision.verdict, cause).to_owned(),
        next_step: whole_step.map_or_else(|| next_step(decision.verdict, cause, &missing), str::to_owned),
        notes,
    }
}

fn decide(preset: Preset, tally: &Tally) -> Decision<'_> {
    let p_of = |scale: &Scale| (SCALES * tail(scale.hits, scale.gaps)).min(1.0);
    let (fine, coarse) = (p_of(&tally.fine), p_of(&tally.coarse));
    let (scale, p) = if coarse < fine { (&tally.coarse, coarse) } else { (&tally.fine, fine) };
    let decided = |verdict, p, judged| Decision { verdict, scale: Some(scale), p, judged };
    let grid = tally.fine.grid();
    let of_grid = || grid.map(|corked| of_grid(corked.grid, tally.fine.cork_causes.most()));

    if tally.held_whole > 0 && tally.held_whole * 2 >= tally.long_streams {
        return decided(Verdict::HeldWhole, None, Some(tally.held_causes.most()));
    }
    let present = match preset {
        Preset::Measured => scale.hits >= LEAST_HITS && p <= ALPHA,
        Preset::WriteUp => tally.write_up,
    };
    // The write-up's rule has no error rate, so none is claimed for it.
    let claimed = (preset == Preset::Measured).then_some(p);
    if present {
        let judged = of_grid().filter(|judged| judged.cause != Cause::Unknown);
        return decided(Verdict::Present, claimed, Some(judged.unwrap_or_else(|| scale.hit_causes.most())));
    }
    if grid.is_some_and(|corked| corked.short) {
        return Decision {
            verdict: Verdict::Coalesced,
            scale: Some(&tally.fine),
            p: None,
            judged: of_grid(),
        };
    }
    let lone = tally.largest.as_ref().map(|largest| largest.judged.clone());
    let border = (tally.borders.over_1s > 0).then(|| Judged::proven(Cause::PhaseBorder));
    if scale.gaps < LEAST_GAPS {
        return decided(Verdict::TooFew, None, lone.or(border));
    }
    decided(Verdict::None, claimed, border)
}

/// What belongs beside the verdict whatever it is.
fn describe(tally: &Tally, evidence: &mut Evidence, notes: &mut Vec<String>) {
    evidence.grid = tally.fine.grid().filter(|corked| corked.noticeable).map(Into::into);
    match tally.unit {
        Unit::Tokens => {}
        Unit::EstimatedTokens => {
            notes.push("sizes are estimated tokens: the source reports none per event".to_owned());
        }
        Unit::Characters => {
            notes.push(
                "sizes are characters (4 stand for a token): the source has no tokens per event".to_owned(),
            );
        }
        Unit::Events => {
            notes.push("sizes are events: the source has neither tokens nor characters per event".to_owned());
        }
    }
    if evidence.clock_steps > 0 {
        notes.push(format!("{} clock steps: the gaps there are unknown", evidence.clock_steps));
    }
    if tally.borders.over_1s > 0 {
        notes.push(format!(
            "{} silences over 1 s lie on phase borders (longest {:.0} ms): no stalls",
            tally.borders.over_1s, evidence.longest_border_silence_ms
        ));
    }
    for (encoding, streams) in &evidence.held_encodings {
        notes.push(format!(
            "{streams} of {} whole answers came compressed ({encoding}): a compressor that does not flush after each event holds the stream to its end",
            evidence.held_whole
        ));
    }
    if let Some(late) = &evidence.largest {
        notes.push(format!(
            "longest stall: {:.0} ms of silence, then {} events within {:.1} ms",
            late.gap_ms, late.events, late.span_ms
        ));
    }
}

fn unmeasured(baseline: &Baseline) -> &'static str {
    if baseline.content == 0 {
        "missing: events/ (the source holds no events, only counts per response)"
    } else {
        "missing: events.t_us (time_source is none: the source holds events without times)"
    }
}

/// P(at least `hits` of `n` healthy groups are hits).
fn tail(hits: u64, n: u64) -> f64 {
    if hits == 0 || n == 0 {
        return 1.0;
    }
    Binomial::new(HEALTHY, n).map_or(1.0, |null| null.sf(hits - 1))
}

/// Smallest share of hits that `n` gaps show as `present` with 80 % power; `None` when none would.
fn detectable_share(n: u64) -> Option<f64> {
    let needed = (LEAST_HITS..=n).find(|&hits| SCALES * tail(hits, n) <= ALPHA)?;
    let power = |share: f64| Binomial::new(share, n).map_or(0.0, |real| real.sf(needed - 1));
    let (mut low, mut high) = (HEALTHY, 1.0);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if power(middle) >= POWER { high = middle } else { low = middle }
    }
    Some(high)
}

/// Share of late, large groups, with Wilson's interval.
fn effect(n: u64, hits: u64) -> Effect {
    Effect {
        name: "share of late, large groups".to_owned(),
        unit: String::new(),
        value: real(hits) / real(n),
        ci95: Some(wilson(hits, n)),
    }
}

fn cause_name(cause: Cause) -> String {
    match serde_json::to_value(cause) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

fn does_not_prove(verdict: Verdict, cause: Option<Cause>) -> &'static str {
    match verdict {
        Verdict::Present => {
            "that the model thought in bursts: only that its events arrived so; and groups of one stream are not independent"
        }
        Verdict::Coalesced => {
            "that anything stalled: the delay is short, and who adds it is told only by the cause"
        }
        Verdict::HeldWhole => whole::does_not_prove(cause),
        Verdict::NotMeasurable | Verdict::TooFew => "that there are no bursts",
        _ => "that streams elsewhere, or at other hours, are free of bursts",
    }
}
