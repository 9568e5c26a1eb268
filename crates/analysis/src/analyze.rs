//! Streams in, findings out: sorts streams into scopes and runs every signature over each.

use std::collections::BTreeMap;

use sseismo_trace::{Dim, Finding, Scope, Stream, Verdict};

use crate::signature::{Options, Pass, SIGNATURES, Score};
use crate::stats::fdr;

/// False-discovery rate that a positive verdict must hold over all scopes of a report; the level of
/// the lattice threshold log(hypotheses/α), α = 0.01.
const Q_MAX: f64 = 0.01;

/// A run over any number of streams.
///
/// Memory grows with scopes and distinct values, not with streams.
pub struct Analysis {
    by: Vec<Dim>,
    options: Options,
    scopes: BTreeMap<Scope, Vec<Box<dyn Score>>>,
    pass: Pass,
}

impl std::fmt::Debug for Analysis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Analysis")
            .field("by", &self.by)
            .field("scopes", &self.scopes.len())
            .finish_non_exhaustive()
    }
}

impl Analysis {
    /// Starts a run that groups streams by `by`.
    pub fn new(by: Vec<Dim>, options: Options) -> Self {
        Self { by, options, scopes: BTreeMap::new(), pass: Pass::Baseline }
    }

    /// Takes in one stream that was read from `source`.
    pub fn push(&mut self, source: &str, stream: &Stream<'_>) {
        let scope = scope_of(&self.by, source, stream);
        let scores = self
            .scopes
            .entry(scope)
            .or_insert_with(|| SIGNATURES.iter().map(|signature| signature.open(&self.options)).collect());
        for score in scores {
            score.push(self.pass, stream);
        }
    }

    /// Whether pushing every stream once more would change a verdict.
    pub fn wants_second_pass(&self) -> bool {
        self.pass == Pass::Baseline && self.scopes.values().flatten().any(|score| score.wants_second_pass())
    }

    /// From now on streams are pushed for the second time.
    pub fn start_second_pass(&mut self) {
        self.pass = Pass::Groups;
    }

    /// Every verdict, by signature and then scope; p-values are adjusted over the scopes.
    pub fn finish(self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (scope, scores) in &self.scopes {
            findings.extend(scores.iter().map(|score| score.finding(scope)));
        }
        findings.sort_by(|a, b| (a.signature, &a.scope).cmp(&(b.signature, &b.scope)));
        for same in findings.chunk_by_mut(|a, b| a.signature == b.signature) {
            adjust(same);
        }
        findings
    }
}

/// Benjamini–Hochberg over one signature's findings; a verdict that does not hold is withdrawn.
fn adjust(findings: &mut [Finding]) {
    let tested: Vec<usize> = (0..findings.len())
        .filter(|&i| findings[i].significance.as_ref().is_some_and(|s| s.p.is_some()))
        .collect();
    let p: Vec<f64> = tested.iter().filter_map(|&i| findings[i].significance.as_ref()?.p).collect();
    for (&i, q) in tested.iter().zip(fdr::benjamini_hochberg(&p)) {
        let finding = &mut findings[i];
        if let Some(significance) = &mut finding.significance {
            significance.q = Some(q);
        }
        let positive = !matches!(finding.verdict, Verdict::None | Verdict::TooFew | Verdict::NotMeasurable);
        if positive && q > Q_MAX {
            finding.notes.push(format!(
                "{} alone, but not after adjustment over {} scopes (q = {q:.3})",
                finding.verdict.name(),
                p.len()
            ));
            finding.verdict = Verdict::None;
        }
    }
}

fn scope_of(by: &[Dim], source: &str, stream: &Stream<'_>) -> Scope {
    let summary = stream.summary;
    let mut scope = Scope::default();
    for &dim in by {
        let month;
        let value = match dim {
            Dim::Source => Some(source),
            Dim::Month => {
                month = summary.started_at.map(month_of);
                month.as_deref()
            }
            Dim::Upstream => summary.upstream.as_deref(),
            Dim::Api => summary.api.map(sseismo_trace::Api::name),
            Dim::Route => summary.route.as_deref(),
            Dim::Client => summary.client_app.as_deref(),
            Dim::Arm => summary.canary_arm.as_deref(),
            Dim::Model => summary.model(),
            Dim::Effort => summary.effort.as_deref(),
        };
        scope = scope.with(dim, value.unwrap_or("unknown"));
    }
    scope
}

/// `YYYY-MM` of a moment, UTC. Civil-from-days after Howard Hinnant's "chrono-compatible low-level
/// date algorithms": exact for every day that an `i64` of microseconds holds.
fn month_of(at: sseismo_trace::UtcMicros) -> String {
    let z = at.0.div_euclid(86_400_000_000) + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}")
}
