//! How often honest streams are flagged: first the real ones, then blocks of them with tails.
//!
//! `cargo run --profile quick -p sseismo-live-detector --example burst_false_alarms -- 30 1`: one false alarm of one
//! stream in so many days is stated (default 30), with so many seeds (default 1); ten times as long is simulated.
//!
//! The first table is measured: a zero there only bounds the rate at 3 per observed time (rule of three). The
//! second is model-based: it shows that a threshold keeps its run length under the null model that it was
//! computed from, by plain simulation with another seed.
#![expect(clippy::print_stdout, reason = "the tables are what this program is for")]

use sseismo_live_detector::burst::{BurstBaseline, BurstModel, BurstStream, Flag, Run, Scale};
use sseismo_trace::Delta;

#[path = "shared/recorded.rs"]
mod recorded;

use recorded::{flags, learned, recorded, runs};

/// A tick of the process's clock, µs.
const TICK: i64 = 50_000;
/// GPT-4o streams are judged by what the others taught, in so many parts.
const FOLDS: usize = 5;
/// Run lengths that are simulated.
const LONGER: f64 = 10.0;

fn main() {
    let number = |place| std::env::args().nth(place).and_then(|arg| arg.parse::<f64>().ok());
    let (days, seeds) = (number(1).unwrap_or(30.0), number(2).unwrap_or(1.0));
    let gpt4o = recorded("whisperleak/gpt4o-part1.json");
    let baseline = learned(&gpt4o);
    let Ok(any) = baseline.freeze(1e6, 1) else { return };
    let pace = any.groups_per_second();
    let arl = days * 86_400.0 * pace;
    println!(
        "One false alarm in {days} days of one stream of {pace:.1} coarse groups a second: in {arl:.1e} groups.\n"
    );
    println!("| recording | sizes | streams | hours | flags | per stream-hour |\n|---|---|---|---|---|---|");
    let (mut hours, mut flags) = (0.0, 0);
    // As imported, TLS records carry no size: events are counted.
    let bare: Vec<Vec<Delta>> =
        gpt4o.iter().map(|stream| stream.iter().map(without_size).collect()).collect();
    for (name, streams) in [("GPT-4o, tokens by bytes", &gpt4o), ("GPT-4o, as imported", &bare)] {
        let flagged = (0..FOLDS).map(|fold| {
            let taught: Vec<&Vec<Delta>> = streams
                .iter()
                .enumerate()
                .filter(|(i, _)| i % FOLDS != fold)
                .map(|(_, stream)| stream)
                .collect();
            let tested = streams.iter().skip(fold).step_by(FOLDS);
            flagged(&enough(&taught), tested, arl)
        });
        let flagged = flagged.sum();
        // The same streams twice: counted once.
        (hours, flags) = (seconds_of(streams) / 3_600.0, flags + flagged);
        row(name, streams, flagged, &enough(&streams.iter().collect::<Vec<_>>()));
    }
    for (name, file) in [
        ("AIPerf, 1 at a time", "aiperf/qwen-c1/profile_export.jsonl"),
        ("AIPerf, 2 at a time", "aiperf/qwen-c2/profile_export.jsonl"),
        ("Ollama llama3", "ollama/llama3-chat.yaml"),
        ("Ollama qwen3, thinking", "ollama/qwen3-thinking.yaml"),
    ] {
        let streams = recorded(file);
        let baseline = enough(&streams.iter().collect::<Vec<_>>());
        let flagged = flagged(&baseline, streams.iter(), arl);
        (hours, flags) = (hours + seconds_of(&streams) / 3_600.0, flags + flagged);
        row(name, &streams, flagged, &baseline);
    }
    let bound = 3.0 / hours;
    println!("| all | | | {hours:.3} | {flags} | a zero bounds it at {bound:.0} (rule of three) |");

    println!("\nmodel-based: 8-group blocks of the GPT-4o streams with generalised Pareto tails\n");
    println!(
        "| run length, groups | simulated | stream-days | alarms (fine, coarse) | expected of each | thresholds (fine, coarse) | seed |\n|---|---|---|---|---|---|---|"
    );
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "numbers of groups and seeds"
    )]
    let (groups, seeds) = ((arl * LONGER) as u64, seeds as u64);
    let simulated = arl * LONGER / pace / 86_400.0;
    for seed in 1..=seeds {
        let Ok(model) = baseline.freeze(arl, seed) else { return };
        let [fine_alarms, coarse_alarms] = baseline.false_alarms(&model, groups, 1_000 + seed);
        let [fine, coarse] = [Scale::Fine, Scale::Coarse].map(|scale| model.threshold(scale));
        let expected = LONGER / 3.0;
        println!(
            "| {arl:.1e} | {:.1e} | {simulated:.0} | {fine_alarms}, {coarse_alarms} | {expected:.1} | {fine:.1}, {coarse:.1} | {seed} |",
            arl * LONGER
        );
    }
    println!("\nexpected of each: a third of the budget; the last is dead air's");
    any.notes().iter().for_each(|note| println!("- {note}"));
}

/// A baseline of few streams: taught over and over until it is enough.
fn enough(streams: &[&Vec<Delta>]) -> BurstBaseline {
    let mut baseline = learned(streams.iter().copied());
    for _ in 0..1_000 {
        if baseline.ready() {
            break;
        }
        streams.iter().flat_map(|stream| runs(stream)).for_each(|run| baseline.push(&run));
    }
    baseline
}

fn flagged<'a>(baseline: &BurstBaseline, streams: impl Iterator<Item = &'a Vec<Delta>>, arl: f64) -> usize {
    let Ok(model) = baseline.freeze(arl, 1) else { return 0 };
    let flags: Vec<_> = streams.flat_map(|stream| flags(&model, stream, TICK)).collect();
    for (at, flag) in &flags {
        println!("| | flagged at {:.2} s: {flag:?} | | | | |", at.seconds());
    }
    flags.len()
}

fn row(name: &str, streams: &[Vec<Delta>], flagged: usize, baseline: &BurstBaseline) {
    let hours = seconds_of(streams) / 3_600.0;
    let unit = baseline.unit().map_or("none", |unit| unit.name());
    let rate = if flagged == 0 {
        format!("0, at most {:.0} (rule of three)", 3.0 / hours)
    } else {
        format!("{flagged} seen")
    };
    println!("| {name} | {unit} | {} | {hours:.3} | {flagged} | {rate} |", streams.len());
}

fn seconds_of(streams: &[Vec<Delta>]) -> f64 {
    streams.iter().map(|stream| seconds(stream)).sum()
}

/// Time in which the clock ran forward.
fn seconds(stream: &[Delta]) -> f64 {
    let steps = stream.windows(2).filter_map(|pair| Some(pair[1].t?.since(pair[0].t?).seconds()));
    steps.filter(|step| *step > 0.0).sum()
}

fn without_size(delta: &Delta) -> Delta {
    Delta { tokens_est: None, ..*delta }
}
