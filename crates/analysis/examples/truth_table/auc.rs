//! How well one stream of a burst is told from one innocent stream: `burst` beside the statistics that are
//! usually taken for it.

use sseismo_analysis::stats::mann_whitney;
use sseismo_trace::{SignatureId, Verdict};

use crate::Results;
use crate::run::Alone;

type Score = (&'static str, fn(&Alone) -> f64);

/// Each statistic; where it is undefined (too few gaps) it cannot alarm.
const SCORES: [Score; 5] = [
    ("burst", |alone| alone.burst),
    ("B (Kim–Jo)", |alone| alone.regularity.burstiness_kim_jo.unwrap_or(f64::NEG_INFINITY)),
    ("CV", |alone| alone.regularity.cv.unwrap_or(f64::NEG_INFINITY)),
    ("LV", |alone| alone.regularity.lv.unwrap_or(f64::NEG_INFINITY)),
    ("gap > 1 s", |alone| alone.long_gaps),
];

/// AUC of each scenario that bursts against all innocent ones together, one stream a run.
pub(crate) fn table(results: &[Results]) {
    let streams = |wanted: &dyn Fn(&Results) -> bool| -> Vec<Alone> {
        results.iter().filter(|of| wanted(of)).flat_map(|of| of.runs.iter().map(|run| run.alone)).collect()
    };
    let innocent = streams(&|of| of.truth.is_innocent());
    println!("AUC of one stream against one of {} innocent streams:\n", innocent.len());
    println!("| scenario | {} |", SCORES.map(|(name, _)| name).join(" | "));
    println!("|---|{}", "---|".repeat(SCORES.len()));
    for of in results.iter().filter(|of| of.truth.word(SignatureId::Burst) == Some(Verdict::Present)) {
        let cells = SCORES.map(|(_, score)| {
            let side = |streams: &mut dyn Iterator<Item = &Alone>| streams.map(score).collect::<Vec<f64>>();
            let (bursting, quiet) =
                (side(&mut of.runs.iter().map(|run| &run.alone)), side(&mut innocent.iter()));
            mann_whitney::asymptotic(&bursting, &quiet)
                .map_or_else(|| "–".to_owned(), |test| format!("{:.3}", test.superiority))
        });
        println!("| {} | {} |", of.truth.scenario, cells.join(" | "));
    }
    println!();
}
