//! The burst detector of this crate: streams one by one, and the route they share.

use std::error::Error;

use sseismo_live_detector::burst::{BurstBaseline, BurstModel, BurstStream};
use sseismo_live_detector::sequential::aggregate::{Aggregate, Thresholds};
use sseismo_live_detector::sequential::dependence;
use sseismo_live_detector::sequential::upper_limit::clopper_pearson;
use sseismo_trace::Micros;

use crate::traffic::Stream;

/// How often a live process looks at silent streams, µs.
const TICK: i64 = 100_000;
/// Streams from which health is learned.
pub(crate) const LEARNED: usize = 200;
const CONFIDENCE: f64 = 0.95;

/// The detector, learned.
#[derive(Clone)]
pub(crate) struct Ours {
    model: BurstModel,
    route: Aggregate,
    /// How the flags of the baseline depend on one another.
    pub(crate) note: String,
}

impl Ours {
    /// Learns `streams` and shares one false alarm in `arl` groups between streams and route.
    pub(crate) fn learn(
        streams: impl Iterator<Item = Stream>,
        arl: f64,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut baseline = BurstBaseline::default();
        let streams: Vec<Stream> = streams.take(LEARNED).collect();
        for stream in &streams {
            let mut live = BurstStream::learning();
            for delta in &stream.deltas {
                live.push(delta);
                live.take_run().iter().for_each(|run| baseline.push(run));
            }
            live.end();
            live.take_run().iter().for_each(|run| baseline.push(run));
        }
        let model = baseline.freeze(2.0 * arl, 1)?;
        let rate = model.hit_rate();
        let p0 = clopper_pearson(rate.hits, rate.groups, CONFIDENCE);
        let route = Aggregate::new(p0, 2.0 * arl, &mut Thresholds::default())?;
        let mut ours = Self { model, route, note: String::new() };
        let mut flags = dependence::Baseline::default();
        for stream in &streams {
            ours.watch(stream, |flag| flags.push(flag));
        }
        ours.route.reset();
        ours.note = format!("p0 {p0:.4} ({} of {} groups); {}", rate.hits, rate.groups, flags.dependence());
        Ok(ours)
    }

    /// A route on which nothing was seen yet.
    pub(crate) fn restart(&mut self) {
        self.route.reset();
    }

    /// Times of alarms in one stream, seconds since its first content.
    pub(crate) fn alarms(&mut self, stream: &Stream) -> Vec<f64> {
        self.watch(stream, |_| {})
    }

    fn watch(&mut self, stream: &Stream, mut on_group: impl FnMut(bool)) -> Vec<f64> {
        let mut live = BurstStream::new(&self.model);
        let (mut alarms, mut seen, mut ticked) = (Vec::new(), live.tally(), Micros(0));
        let mut note = |live: &BurstStream, flagged: bool, at: Micros, route: &mut Aggregate| {
            let tally = live.tally();
            let hits = tally.hits - seen.hits;
            let mut alarm = flagged;
            for group in 0..tally.groups - seen.groups {
                on_group(group < hits);
                if route.push(group < hits) {
                    route.reset();
                    alarm = true;
                }
            }
            seen = tally;
            if alarm {
                alarms.push(at.since(stream.begin).seconds());
            }
        };
        for delta in &stream.deltas {
            let Some(at) = delta.t else { continue };
            while ticked.0 + TICK < at.0 {
                ticked.0 += TICK;
                let flag = live.tick(ticked);
                note(&live, flag.is_some(), ticked, &mut self.route);
            }
            let flag = live.push(delta);
            note(&live, flag.is_some(), at, &mut self.route);
        }
        let end = stream.deltas.last().and_then(|delta| delta.t).unwrap_or(ticked);
        let flag = live.end();
        note(&live, flag.is_some(), end, &mut self.route);
        alarms
    }
}
