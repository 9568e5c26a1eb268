//! The recorded streams of `data/timing`, with token counts estimated from bytes.

use std::ops::ControlFlow;
use std::path::Path;

use sseismo_capture::import::{Options, Sink, import};
use sseismo_trace::{Delta, Micros, Stream};

use super::{BurstBaseline, BurstModel, BurstStream, Flag, Run};

/// Streams of one recording.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    /// As they were imported.
    pub(crate) streams: Vec<Vec<Delta>>,
}

impl Sink for Recorded {
    fn stream(&mut self, _: &str, stream: Stream<'_>) {
        let mut deltas = stream.deltas.to_vec();
        if deltas.iter().all(|delta| delta.tokens.is_none() && delta.chars == 0) {
            estimate(&mut deltas, stream.summary.usage.output);
        }
        self.streams.push(deltas);
    }

    fn progress(&mut self, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Spreads the tokens that the provider reported for the whole answer over its events by their bytes: at
/// least one each.
fn estimate(deltas: &mut [Delta], output: Option<u64>) {
    let bytes: u32 = deltas.iter().map(|delta| delta.wire_bytes).sum();
    let Some(output) = output.filter(|_| bytes > 0) else { return };
    let per_byte = f64::from(u32::try_from(output).unwrap_or(u32::MAX)) / f64::from(bytes);
    let mut due = 0.0;
    for delta in deltas {
        due += f64::from(delta.wire_bytes) * per_byte;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few tokens")]
        let tokens = due.round().max(0.0) as u32;
        due -= f64::from(tokens);
        delta.tokens_est = Some(tokens);
    }
}

/// Reads one recording of `data/timing`; a file that cannot be read has no streams.
pub(crate) fn recorded(file: &str) -> Vec<Vec<Delta>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/timing").join(file);
    let mut out = Recorded::default();
    import(&path, &Options::default(), &mut out);
    out.streams
}

/// A baseline of recorded streams.
pub(crate) fn learned<'a>(streams: impl IntoIterator<Item = &'a Vec<Delta>>) -> BurstBaseline {
    let mut baseline = BurstBaseline::default();
    for run in streams.into_iter().flat_map(|stream| runs(stream)) {
        baseline.push(&run);
    }
    baseline
}

/// What a baseline can learn from one stream.
pub(crate) fn runs(stream: &[Delta]) -> Vec<Run> {
    let mut recorder = BurstStream::learning();
    let mut out = Vec::new();
    for delta in stream {
        recorder.push(delta);
        out.extend(recorder.take_run());
    }
    recorder.end();
    out.extend(recorder.take_run());
    out
}

/// Flags of one stream, each with its time; `every` µs a tick.
pub(crate) fn flags(model: &BurstModel, stream: &[Delta], every: i64) -> Vec<(Micros, Flag)> {
    let mut live = BurstStream::new(model);
    let (mut out, mut now) = (Vec::new(), Micros(0));
    for delta in stream {
        if let Some(at) = delta.t {
            // A clock that went back is not followed: ticks come from our own.
            while now.0 + every < at.0 {
                now = Micros(now.0 + every);
                out.extend(live.tick(now).map(|flag| (now, flag)));
            }
        }
        out.extend(live.push(delta).map(|flag| (delta.t.unwrap_or(now), flag)));
    }
    out.extend(live.end().map(|flag| (now, flag)));
    out
}
