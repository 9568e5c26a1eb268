//! Hours of the clock: how long a side was watched, and which hours of day two sides share.
//!
//! All hours are UTC, as trace files store them.

use std::collections::BTreeSet;

use sseismo_trace::UtcMicros;

use super::report::HourKey;

const HOUR: i64 = 3_600_000_000;
/// A stream is taken to have lasted at most so long: a clock that jumped must not add days.
const LONGEST: i64 = 24 * HOUR;

/// When one stream ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: UtcMicros,
    /// Its last byte; the start where that is not known.
    pub(super) end: UtcMicros,
}

/// An hour of day, of a weekday (0 is Monday) or of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    weekday: Option<i64>,
    hour: i64,
}

impl Slot {
    pub(super) fn of(at: UtcMicros, key: HourKey) -> Self {
        let weekday = match key {
            // 1970-01-01 was a Thursday.
            HourKey::WeekdayAndHour => Some((at.0.div_euclid(24 * HOUR) + 3).rem_euclid(7)),
            HourKey::Hour => None,
        };
        Self { weekday, hour: at.0.div_euclid(HOUR).rem_euclid(24) }
    }
}

/// Number of the day, UTC.
pub(super) fn day(at: UtcMicros) -> i64 {
    at.0.div_euclid(24 * HOUR)
}

/// How two sides' hours are matched: by weekday as well where the first side has each weekday of the second.
pub(super) fn key(first: &[UtcMicros], second: &[UtcMicros]) -> HourKey {
    let weekdays = |side: &[UtcMicros]| -> BTreeSet<Option<i64>> {
        side.iter().map(|at| Slot::of(*at, HourKey::WeekdayAndHour).weekday).collect()
    };
    if weekdays(second).is_subset(&weekdays(first)) { HourKey::WeekdayAndHour } else { HourKey::Hour }
}

/// The slots that both sides have.
pub(super) fn shared(sides: [&[UtcMicros]; 2], key: HourKey) -> BTreeSet<Slot> {
    let [first, second] =
        sides.map(|side| side.iter().map(|at| Slot::of(*at, key)).collect::<BTreeSet<Slot>>());
    first.intersection(&second).copied().collect()
}

/// Hours in which a side was watched: the hours of the clock in which it has a stream running, the first and
/// the last of all cut at the first start and the last end. An hour without any stream may be one in which
/// nobody recorded, so it is not counted as quiet. `None` without streams.
pub(super) fn watched(spans: &[Span]) -> Option<f64> {
    let first = spans.iter().map(|span| span.start.0).min()?;
    let ends =
        || spans.iter().map(|span| (span.start.0, span.end.0.clamp(span.start.0, span.start.0 + LONGEST)));
    let last = ends().map(|(_, end)| end).max()?;
    let hours: BTreeSet<i64> =
        ends().flat_map(|(start, end)| start.div_euclid(HOUR)..=end.div_euclid(HOUR)).collect();
    let micros: i64 = hours
        .iter()
        .map(|hour| ((hour + 1) * HOUR).min(last) - (hour * HOUR).max(first))
        .map(|us| us.max(0))
        .sum();
    #[expect(clippy::cast_precision_loss, reason = "spans stay far below 2^53 µs (285 years)")]
    let hours = micros as f64 / HOUR as f64;
    Some(hours)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Monday 2026-01-05 00:00 UTC.
    const MONDAY: i64 = 1_767_571_200_000_000;

    fn at(day: i64, minutes: i64) -> UtcMicros {
        UtcMicros(MONDAY + day * 24 * HOUR + minutes * HOUR / 60)
    }

    fn span(start: i64, end: i64) -> Span {
        Span { start: at(0, start), end: at(0, end) }
    }

    #[test]
    fn weekdays_and_hours_are_those_of_the_calendar() {
        let slot = Slot::of(at(0, 90), HourKey::WeekdayAndHour);
        assert_eq!((slot.weekday, slot.hour), (Some(0), 1));
        assert_eq!(Slot::of(UtcMicros(0), HourKey::WeekdayAndHour).weekday, Some(3));
        assert_eq!(Slot::of(UtcMicros(-1), HourKey::Hour).hour, 23);
    }

    #[test]
    fn weekdays_match_only_where_the_baseline_has_them_all() {
        let (week, monday): (Vec<_>, _) = ((0..5).map(|day| at(day, 600)).collect(), [at(7, 610)]);
        assert_eq!(key(&week, &monday), HourKey::WeekdayAndHour);
        assert_eq!(key(&week, &[at(5, 600)]), HourKey::Hour);
        assert_eq!(shared([&week, &monday], HourKey::Hour).len(), 1);
        assert!(shared([&week, &[at(7, 700)]], HourKey::Hour).is_empty());
    }

    /// 10:30–10:40 and 13:50–14:15: half of ten (cut at the first start), all of 13, a quarter of 14.
    #[test]
    fn hours_without_streams_are_not_watched() {
        let hours = watched(&[span(630, 640), span(830, 855)]).expect("streams");
        assert!((hours - 1.75).abs() < 1e-9, "{hours}");
        assert_eq!(watched(&[]), None);
        assert_eq!(watched(&[span(5, 5)]), Some(0.0));
    }

    proptest! {
        /// Never longer than from the first start to the last end, and never shorter than the longest stream.
        #[test]
        fn watched_time_is_bounded(spans in prop::collection::vec((0_i64..3_000, 0_i64..300), 1..20)) {
            let spans: Vec<Span> = spans.iter().map(|&(start, length)| span(start, start + length)).collect();
            let hours = watched(&spans).expect("streams");
            let minutes = |us: i64| us / (HOUR / 60);
            let first = spans.iter().map(|s| minutes(s.start.0)).min().expect("a span");
            let last = spans.iter().map(|s| minutes(s.end.0)).max().expect("a span");
            let longest = spans.iter().map(|s| minutes(s.end.0 - s.start.0)).max().expect("a span");
            let got = (hours * 60.0).round();
            #[expect(clippy::cast_precision_loss, reason = "minutes of some days")]
            let (low, high) = (longest as f64, (last - first) as f64);
            prop_assert!(low <= got && got <= high, "{low} {got} {high}");
        }
    }
}
