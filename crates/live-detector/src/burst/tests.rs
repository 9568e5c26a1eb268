use sseismo_simulator::timing::Process;
use sseismo_trace::{Delta, Micros};

use super::*;

/// A baseline of one process.
fn learned(process: Process, seeds: std::ops::Range<u64>) -> BurstBaseline {
    let mut baseline = BurstBaseline::default();
    for seed in seeds {
        let mut stream = BurstStream::learning();
        for delta in process.deltas(seed) {
            assert_eq!(stream.push(&delta), None);
            if let Some(run) = stream.take_run() {
                baseline.push(&run);
            }
        }
        assert_eq!(stream.end(), None);
        if let Some(run) = stream.take_run() {
            baseline.push(&run);
        }
    }
    baseline
}

/// Flags of one stream, with ticks every 50 ms.
fn flags(model: &BurstModel, deltas: &[Delta]) -> Vec<(Micros, Flag)> {
    let mut stream = BurstStream::new(model);
    let (mut out, mut now) = (Vec::new(), Micros(0));
    for delta in deltas {
        let at = delta.t.unwrap();
        while now.0 + 50_000 < at.0 {
            now = Micros(now.0 + 50_000);
            out.extend(stream.tick(now).map(|flag| (now, flag)));
        }
        out.extend(stream.push(delta).map(|flag| (at, flag)));
    }
    out.extend(stream.end().map(|flag| (now, flag)));
    out
}

#[test]
fn clustered_streams_are_flagged_and_honest_ones_are_not() {
    for honest in [Process::Steady, Process::Poisson, Process::Lognormal] {
        let model = learned(honest, 0..12).freeze(1e8, 1).unwrap();
        for seed in 100..110 {
            assert_eq!(flags(&model, &honest.deltas(seed)), [], "{}", honest.name());
        }
        for process in
            [Process::Burst, Process::BurstMulti, Process::Buffered, Process::Coalesced, Process::TokenBucket]
        {
            let found = flags(&model, &process.deltas(1));
            assert!(!found.is_empty(), "{}", process.name());
        }
    }
}

#[test]
fn a_stream_takes_less_than_a_kibibyte() {
    assert!(BurstStream::bytes() <= 1_024, "{}", BurstStream::bytes());
}
