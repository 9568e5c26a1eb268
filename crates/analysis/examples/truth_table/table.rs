//! Results to tables.

use std::collections::BTreeMap;

use sseismo_analysis::stats::proportion::wilson;
use sseismo_trace::{Cause, Finding, SignatureId, Verdict};

use crate::Results;

/// The signatures that runs have findings of.
const SIGNATURES: [SignatureId; 6] = [
    SignatureId::CountLattice,
    SignatureId::Burst,
    SignatureId::SizeWindow,
    SignatureId::Concurrency,
    SignatureId::Saturation,
    SignatureId::RetryAmplification,
];

/// One scenario × one signature.
struct Cell<'a> {
    of: &'a Results,
    signature: SignatureId,
    findings: Vec<&'a Finding>,
}

impl<'a> Cell<'a> {
    fn new(of: &'a Results, signature: SignatureId) -> Self {
        let found = of.runs.iter().flat_map(|run| &run.findings);
        Self { of, signature, findings: found.filter(|finding| finding.signature == signature).collect() }
    }

    fn count(&self, wanted: impl Fn(Verdict) -> bool) -> u64 {
        self.findings.iter().filter(|finding| wanted(finding.verdict)).count() as u64
    }

    fn runs(&self) -> u64 {
        self.findings.len() as u64
    }

    /// Runs in which the right word was said; `None` where the scenario shows no such thing.
    fn detected(&self) -> Option<u64> {
        self.of.truth.word(self.signature).map(|word| self.count(|verdict| verdict == word))
    }

    /// Runs with an alarm that nothing in the scenario deserves; `None` where one would be right.
    fn falsely(&self) -> Option<u64> {
        self.of.truth.is_innocent_of(self.signature).then(|| self.count(Verdict::is_alarm))
    }

    /// Runs in which there was enough to judge.
    fn judged(&self) -> u64 {
        self.count(|verdict| !matches!(verdict, Verdict::TooFew | Verdict::NotMeasurable))
    }

    /// Median of the effect, with its name.
    fn evidence(&self) -> Option<(&str, f64)> {
        let effects: Vec<_> = self.findings.iter().filter_map(|finding| finding.effect.as_ref()).collect();
        let mut values: Vec<f64> = effects.iter().map(|effect| effect.value).collect();
        values.sort_by(f64::total_cmp);
        Some((effects.first()?.name.as_str(), *values.get(values.len() / 2)?))
    }

    fn words(&self) -> BTreeMap<&'static str, u64> {
        let mut words = BTreeMap::new();
        for finding in &self.findings {
            *words.entry(finding.verdict.name()).or_default() += 1;
        }
        words
    }
}

fn cells(results: &[Results], signature: SignatureId) -> impl Iterator<Item = Cell<'_>> {
    results.iter().map(move |of| Cell::new(of, signature))
}

/// One line a signature: how often it is right, how often wrong, and the scenario where it is worst. Scenarios
/// share their seeds, and with them sizes, so only runs of one scenario are independent: intervals are of these.
pub(crate) fn signatures(results: &[Results]) {
    println!(
        "| signature | detected | worst scenario (95 %) | false alarms | worst scenario (95 %) | too few to judge |"
    );
    println!("|---|---|---|---|---|---|");
    for signature in SIGNATURES {
        let (mut shown, mut innocent, mut few) = (Vec::new(), Vec::new(), 0);
        for cell in cells(results, signature) {
            few += cell.runs() - cell.judged();
            shown.extend(cell.detected().map(|detected| (detected, cell.runs(), cell.of.truth.scenario)));
            let falsely = cell.falsely().filter(|_| cell.judged() > 0);
            innocent.extend(falsely.map(|falsely| (falsely, cell.judged(), cell.of.truth.scenario)));
        }
        let order = |a: &&Counted, b: &&Counted| percent(a.0, a.1).total_cmp(&percent(b.0, b.1));
        println!(
            "| `{}` | {} | {} | {} | {} | {few} |",
            signature.name(),
            pooled(&shown),
            worst(shown.iter().min_by(order)),
            pooled(&innocent),
            worst(innocent.iter().max_by(order)),
        );
    }
    println!();
}

/// Runs that count, runs, and the scenario.
type Counted<'a> = (u64, u64, &'a str);

fn pooled(cells: &[Counted<'_>]) -> String {
    let (part, whole) = cells.iter().fold((0, 0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1));
    format!("{part} of {whole}")
}

fn worst(cell: Option<&Counted<'_>>) -> String {
    let Some(&(part, whole, name)) = cell else { return "–".to_owned() };
    let [low, high] = wilson(part, whole).map(|share| 100.0 * share);
    format!("{name}: {:.1} % ({low:.1}–{high:.1})", percent(part, whole))
}

/// Scenario × signature: share of alarms (or of the right word) and the median effect.
pub(crate) fn matrix(results: &[Results]) {
    println!("Share of runs with an alarm (median effect); **bold** where it is right, with the right word;");
    println!("`–` where no run had enough of what the signature needs:\n");
    println!("| scenario | streams | {} |", SIGNATURES.map(SignatureId::name).join(" | "));
    println!("|---|---|{}", "---|".repeat(SIGNATURES.len()));
    for of in results {
        let row = SIGNATURES.map(|signature| {
            let cell = Cell::new(of, signature);
            if cell.judged() == 0 {
                return "–".to_owned();
            }
            let effect =
                cell.evidence().map_or_else(String::new, |(_, value)| format!(" ({})", digits(value)));
            match (of.truth.word(signature), cell.detected()) {
                (Some(word), Some(detected)) if word.is_alarm() => {
                    format!("**{:.1} %**{effect}", percent(detected, cell.runs()))
                }
                (Some(word), Some(detected)) => {
                    format!("**{:.1} %** {}{effect}", percent(detected, cell.runs()), word.name())
                }
                _ => format!("{:.1} %{effect}", percent(cell.count(Verdict::is_alarm), cell.runs())),
            }
        });
        println!("| {} | {} | {} |", of.truth.scenario, of.truth.streams, row.join(" | "));
    }
    println!();
}

/// Scenario × named cause of `burst`, from stored columns alone.
pub(crate) fn causes(results: &[Results]) {
    const CAUSES: [Cause; 9] = [
        Cause::UpstreamBatching,
        Cause::RateLimitCooldown,
        Cause::ProxyBuffering,
        Cause::TcpCoalescing,
        Cause::SlowReader,
        Cause::RetryAmplification,
        Cause::NetworkLoss,
        Cause::PhaseBorder,
        Cause::Unknown,
    ];
    println!("Named cause of `burst`, runs; **bold** is what the stored columns prove:\n");
    println!("| scenario | {} | none named |", CAUSES.map(Cause::name).join(" | "));
    println!("|---|{}---|", "---|".repeat(CAUSES.len()));
    for of in results {
        let cell = Cell::new(of, SignatureId::Burst);
        let count = |cause: Option<Cause>| cell.findings.iter().filter(|f| f.cause == cause).count() as u64;
        if of.truth.cause.is_none() && count(None) == cell.runs() {
            continue;
        }
        let row = CAUSES.map(|cause| match (count(Some(cause)), of.truth.cause == Some(cause)) {
            (n, true) => format!("**{n}**"),
            (0, false) => String::new(),
            (n, false) => n.to_string(),
        });
        println!("| {} | {} | {} |", of.truth.scenario, row.join(" | "), count(None));
    }
    println!();
}

/// One JSON line a cell.
pub(crate) fn json(results: &[Results]) -> Result<(), serde_json::Error> {
    for of in results {
        for cell in SIGNATURES.map(|signature| Cell::new(of, signature)) {
            let line = serde_json::json!({
                "scenario": of.truth.scenario,
                "streams": of.truth.streams,
                "signature": cell.signature,
                "runs": cell.runs(),
                "right_word": of.truth.word(cell.signature),
                "detected": cell.detected(),
                "false_alarms": cell.falsely(),
                "judged": cell.judged(),
                "verdicts": cell.words(),
                "effect": cell.evidence().map(|(name, _)| name),
                "median_effect": cell.evidence().map(|(_, value)| value),
            });
            println!("{}", serde_json::to_string(&line)?);
        }
    }
    Ok(())
}

/// The same as a table of values.
pub(crate) fn csv(results: &[Results]) -> Result<(), csv::Error> {
    let mut out = csv::Writer::from_writer(std::io::stdout());
    out.write_record([
        "scenario",
        "streams",
        "signature",
        "runs",
        "right_word",
        "detected",
        "false_alarms",
        "judged",
        "effect",
        "median_effect",
    ])?;
    let optional = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    for of in results {
        for cell in SIGNATURES.map(|signature| Cell::new(of, signature)) {
            let (name, value) =
                cell.evidence().map_or(("", String::new()), |(name, v)| (name, v.to_string()));
            out.write_record([
                of.truth.scenario,
                &of.truth.streams.to_string(),
                cell.signature.name(),
                &cell.runs().to_string(),
                of.truth.word(cell.signature).map_or("", Verdict::name),
                &optional(cell.detected()),
                &optional(cell.falsely()),
                &cell.judged().to_string(),
                name,
                &value,
            ])?;
        }
    }
    Ok(out.flush()?)
}

#[expect(clippy::cast_precision_loss, reason = "numbers of runs")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn digits(value: f64) -> String {
    if value == 0.0 || value.abs() >= 0.1 { format!("{value:.2}") } else { format!("{value:.4}") }
}
