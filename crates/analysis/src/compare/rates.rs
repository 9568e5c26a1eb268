//! Requests and cluster events per hour on two sides.

use std::collections::BTreeMap;

use super::hours::{Span, watched};
use super::report::{Rate, RateSide, Test, Unit};
use crate::stats::rate::{Bunch, Counted, ratio};

/// Fewer events on both sides together say little: with ten, the upper limit of a rate is 1.8 times itself.
const EVENTS: u64 = 10;
/// A rate per hour from less than this many hours is an extrapolation.
const HOURS: f64 = 1.0;

/// What an hour of the clock is.
const CLOCK: &str = "an hour of the clock (UTC) in which the side has a stream running; hours without any are not \
                     counted, for nobody knows whether they were recorded";
/// What a cluster event is: the hits of `burst`.
const EVENT: &str = "a flush that brings unusually much after an unusually long silence inside a phase (a hit of \
                     `burst`, both sides against what is usual in all that was read)";

/// One row as rates see it.
#[derive(Clone, Copy)]
pub(super) struct Beat {
    pub(super) side: usize,
    /// The observation that it belongs to.
    pub(super) cluster: u32,
    pub(super) span: Option<Span>,
    /// Cluster events, and the seconds in which they could have come.
    pub(super) hits: Option<(u64, f64)>,
}

/// The rates that the rows allow.
pub(super) fn rates(beats: &[Beat], unit: Unit) -> Vec<Rate> {
    let timed = |beat: &&Beat| beat.span.is_some();
    let flagged = |beat: &&Beat| beat.hits.is_some();
    let hits = |beat: &Beat| Bunch {
        events: beat.hits.map_or(0, |(hits, _)| hits),
        exposure: beat.hits.map_or(0.0, |(_, seconds)| seconds / 3_600.0),
    };
    let side =
        |number: usize| -> Vec<Beat> { beats.iter().filter(|beat| beat.side == number).copied().collect() };
    let sides = [side(0), side(1)];
    let on_the_clock = |keep: fn(&&Beat) -> bool, bunch: &dyn Fn(&Beat) -> Bunch| {
        sides.each_ref().map(|side| {
            let kept: Vec<Beat> = side.iter().filter(keep).filter(timed).copied().collect();
            let spans: Vec<Span> = kept.iter().filter_map(|beat| beat.span).collect();
            Counted::on_the_clock(&bunches(&kept, bunch), watched(&spans).unwrap_or(0.0))
        })
    };
    let requests = on_the_clock(|_| true, &|_| Bunch { events: 1, exposure: 0.0 });
    let events = on_the_clock(|beat| beat.hits.is_some(), &hits);
    let in_streams = sides.each_ref().map(|side| {
        let kept: Vec<Beat> = side.iter().filter(flagged).copied().collect();
        Counted::in_own_time(&bunches(&kept, &hits))
    });
    [
        rate(["requests per hour", "one stream: each attempt counts", CLOCK], requests, unit),
        rate(["cluster events per hour", EVENT, CLOCK], events, unit),
        rate(
            [
                "cluster events per stream-hour",
                EVENT,
                "an hour between the first and the last content event of streams",
            ],
            in_streams,
            unit,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn bunches(beats: &[Beat], bunch: &dyn Fn(&Beat) -> Bunch) -> Vec<Bunch> {
    let mut clusters: BTreeMap<u32, Bunch> = BTreeMap::new();
    for beat in beats {
        let (sum, more) = (clusters.entry(beat.cluster).or_default(), bunch(beat));
        sum.events += more.events;
        sum.exposure += more.exposure;
    }
    clusters.into_values().collect()
}

/// `None` where a side has no time at all.
fn rate([name, event, hour]: [&str; 3], sides: [Counted; 2], unit: Unit) -> Option<Rate> {
    if sides.iter().any(|side| side.exposure <= 0.0) {
        return None;
    }
    let [first, second] = sides;
    let found = ratio(&first, &second);
    let side = |counted: Counted| RateSide {
        events: counted.events,
        hours: counted.exposure,
        rate: counted.rate(),
        ci95: counted.ci95(),
        design_effect: counted.design_effect,
    };
    Some(Rate {
        name: name.into(),
        event: event.into(),
        hour: hour.into(),
        first: side(first),
        second: side(second),
        ratio: found.and_then(|ratio| ratio.value),
        ratio_ci95: found.map_or([None; 2], |ratio| ratio.ci95),
        tests: found
            .map(|ratio| Test { name: "poisson-conditional".into(), unit, p: ratio.p, q: None })
            .into_iter()
            .collect(),
        too_few: too_few(first, second),
        does_not_prove:
            "cause; a rate holds for the hours that were watched, and clusters are taken to come \
                         independently of each other"
                .into(),
    })
}

fn too_few(first: Counted, second: Counted) -> Option<String> {
    let events = first.events + second.events;
    let shortest = first.exposure.min(second.exposure);
    if events < EVENTS {
        Some(format!("{events} events on both sides together: {EVENTS} are the least to go by"))
    } else if shortest < HOURS {
        Some(format!("{:.0} min on a side: a rate per hour is an extrapolation", shortest * 60.0))
    } else {
        None
    }
}
