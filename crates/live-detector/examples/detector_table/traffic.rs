//! Streams of a scenario, as each detector sees them.

use std::error::Error;
use std::path::{Path, PathBuf};

use sseismo_analysis::flush::{Flush, Frames, Gap, Grouper};
use sseismo_simulator::{Scenario, Simulation};
use sseismo_trace::{Delta, Micros, Summary};

/// A frame or a flush group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// When it is known, seconds since the stream's first content.
    pub(crate) at: f32,
    /// The silence before it, seconds; `None` on a phase border and at the start.
    pub(crate) gap: Option<f32>,
    /// Tokens, at four characters each: simulated events report none.
    pub(crate) tokens: f32,
}

/// One stream.
pub(crate) struct Stream {
    pub(crate) frames: Vec<Seen>,
    pub(crate) groups: Vec<Seen>,
    /// The stream's events; emptied where only rivals look.
    pub(crate) deltas: Vec<Delta>,
    /// What is known about it.
    pub(crate) summary: Summary,
    /// When content began.
    pub(crate) begin: Micros,
    /// Seconds from the first content to the last.
    pub(crate) length: f64,
}

impl Stream {
    fn new(summary: Summary, deltas: Vec<Delta>) -> Option<Self> {
        let content = || deltas.iter().filter(|delta| delta.is_content()).filter_map(|delta| delta.t);
        let (begin, end) = (content().next()?, content().next_back()?);
        let (mut frames, mut groups) = (Vec::new(), Vec::new());
        let (mut cutter, mut grouper) = (Frames::default(), Grouper::coarse());
        let mut take = |frame: Flush, grouper: &mut Grouper| {
            frames.push(seen(&frame, begin, frame.first));
            groups.extend(grouper.push(frame).map(|group| seen(&group, begin, group.last)));
        };
        for frame in deltas.iter().filter_map(|delta| cutter.push(delta)) {
            take(frame, &mut grouper);
        }
        if let Some(frame) = cutter.finish() {
            take(frame, &mut grouper);
        }
        groups.extend(grouper.finish().map(|group| seen(&group, begin, group.last)));
        Some(Self { frames, groups, begin, length: end.since(begin).seconds(), deltas, summary })
    }

    /// Without its events: a tenth of the memory.
    pub(crate) fn bare(self) -> Self {
        Self { deltas: Vec::new(), summary: Summary::default(), ..self }
    }
}

fn seen(flush: &Flush, begin: Micros, known: Micros) -> Seen {
    let gap = match flush.gap {
        Gap::Within(gap) => Some(short(gap.seconds())),
        Gap::First | Gap::Border(_) | Gap::Unknown => None,
    };
    let tokens = short(f64::from(flush.size.chars) / 4.0);
    Seen { at: short(known.since(begin).seconds()), gap, tokens }
}

#[expect(clippy::cast_possible_truncation, reason = "seconds and tokens of one stream")]
fn short(value: f64) -> f32 {
    value as f32
}

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/scenarios")
}

/// A scenario of `data/scenarios`.
pub(crate) fn healthy(name: &str) -> Result<Scenario, Box<dyn Error + Send + Sync>> {
    let path = scenarios().join(name).with_extension("toml");
    Scenario::load(&path).map_err(|error| format!("{name}: {error}").into())
}

/// What the last behaviour of a scenario does to streams with the rhythm of `base`.
pub(crate) fn injected(name: &str, base: &str) -> Result<Scenario, Box<dyn Error + Send + Sync>> {
    let read = |name: &str| std::fs::read_to_string(scenarios().join(name).with_extension("toml"));
    let (text, base) = (read(name)?, read(base)?);
    let mark = "[[behaviour]]";
    let (Some(last), Some(first)) = (text.rfind(mark), base.find(mark)) else {
        return Err(format!("{name}: no behaviour to inject").into());
    };
    let mixed = format!("{}{}", &base[first..], &text[last..]);
    Scenario::parse(&mixed, &scenarios()).map_err(|error| format!("{name}: {error}").into())
}

/// Streams with content, by seed.
pub(crate) fn streams(scenario: &Scenario, seed: u64) -> impl Iterator<Item = Stream> + use<> {
    let scenario = Scenario { seed, ..scenario.clone() };
    Simulation::new(&scenario).filter_map(|one| Stream::new(one.summary, one.deltas))
}
