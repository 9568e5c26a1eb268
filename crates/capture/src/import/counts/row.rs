//! One row of a table to one stream.

use std::borrow::Cow;

use sseismo_trace::{Micros, Summary, TimeSource, UtcMicros};

use super::super::importer::key;
use super::columns::{Field, Slot};

/// Longer values are no labels but texts, which must not reach a trace.
const LONGEST_LABEL: usize = 64;
/// The label that says whether an answer was right.
const CORRECT: &str = "correct";

/// Why a row is left out.
pub(super) type Reason = &'static str;

/// Fills `blank` from the values of a row, in the order of `slots`.
///
/// # Errors
/// The reason, when the row has a count that is none, or neither count nor label.
pub(super) fn summary(
    slots: &[Slot<'_>],
    values: &[Option<Cow<'_, str>>],
    blank: Summary,
) -> Result<Summary, Reason> {
    let mut row = blank;
    for (slot, value) in slots.iter().zip(values) {
        let Some(value) = value.as_deref().map(str::trim).filter(|value| !value.is_empty()) else { continue };
        match *slot {
            Slot::Field(field) => set(&mut row, field, value)?,
            Slot::Label(label) if value.len() <= LONGEST_LABEL => {
                row.labels.insert(label.to_owned(), normalised(label, value).to_owned());
            }
            Slot::Split if value.len() <= LONGEST_LABEL => row.canary_arm = Some(value.to_owned()),
            Slot::Label(_) | Slot::Split => return Err("label-too-long"),
        }
    }
    if row.usage.reasoning.is_none() && row.usage.output.is_none() && row.labels.is_empty() {
        return Err("no-count");
    }
    if row.t_end.is_some() || row.t_first_output.is_some() {
        row.time_source = TimeSource::User;
    }
    Ok(row)
}

fn set(row: &mut Summary, field: Field, value: &str) -> Result<(), Reason> {
    let text = || (value.len() <= LONGEST_LABEL).then(|| value.to_owned());
    match field {
        Field::Reasoning => row.usage.reasoning = reported(value)?,
        Field::Input => row.usage.input = whole(value),
        Field::Cached => row.usage.cached = whole(value),
        Field::Output => row.usage.output = whole(value),
        Field::Model => row.model_requested = text(),
        Field::Effort => row.effort = text(),
        Field::Upstream => row.upstream = text(),
        Field::Time => row.started_at = moment(value),
        Field::Session => row.session_key = Some(key(&[value])),
        Field::Turn => row.turn_key = Some(key(&[value])),
        Field::WallMs => row.t_end = span(value, 1e3),
        Field::WallS => row.t_end = row.t_end.or(span(value, 1e6)),
        // Who writes tables sees text, not reasoning: first token means first visible token.
        Field::TtftMs => row.t_first_output = span(value, 1e3),
        Field::TtftS => row.t_first_output = row.t_first_output.or(span(value, 1e6)),
    }
    Ok(())
}

/// A reported count; a fraction stays one, so that analysis sees that the source estimates.
fn reported(value: &str) -> Result<Option<f64>, Reason> {
    if ["null", "none", "na", "n/a", "nan", "-"].iter().any(|none| value.eq_ignore_ascii_case(none)) {
        return Ok(None);
    }
    match value.parse::<f64>() {
        Ok(count) if count.is_finite() && count >= 0.0 => Ok(Some(count)),
        Ok(count) if count.is_finite() => Err("negative-count"),
        _ => Err("not-a-number"),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be whole and in range"
)]
fn whole(value: &str) -> Option<u64> {
    let count = value.parse::<f64>().ok()?;
    (count.fract() == 0.0 && (0.0..9e15).contains(&count)).then_some(count as u64)
}

/// A duration in units of `micros` µs.
#[expect(clippy::cast_possible_truncation, reason = "checked to be in range")]
fn span(value: &str, micros: f64) -> Option<Micros> {
    let span = value.parse::<f64>().ok()? * micros;
    (0.0..9e15).contains(&span).then(|| Micros(span.round() as i64))
}

/// RFC 3339, a civil time (taken as UTC), or a number since 1970 in s, ms, µs or ns, told apart by size:
/// a number under a billion (before 2001 in seconds) counts from some other start, and is no date.
#[expect(clippy::cast_possible_truncation, reason = "checked to be in range")]
fn moment(value: &str) -> Option<UtcMicros> {
    if let Ok(number) = value.parse::<f64>() {
        let scale = match number {
            1e9..1e11 => 1e6,
            1e12..1e14 => 1e3,
            1e15..1e17 => 1.0,
            1e18..1e20 => 1e-3,
            _ => return None,
        };
        return Some(UtcMicros((number * scale).round() as i64));
    }
    let zoned = value.parse::<jiff::Timestamp>().ok();
    let civil = || jiff::tz::Offset::UTC.to_timestamp(value.parse().ok()?).ok();
    zoned.or_else(civil).map(|time| UtcMicros(time.as_microsecond()))
}

/// Truth in its many spellings; 0 and 1 only where the label asks for truth, for elsewhere they may be
/// numbers.
fn normalised<'v>(label: &str, value: &'v str) -> &'v str {
    let is = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
    if is(&["true", "yes", "t", "y"]) {
        return "true";
    }
    if is(&["false", "no", "f", "n"]) {
        return "false";
    }
    if label == CORRECT {
        if is(&["1", "1.0", "correct", "right", "pass", "passed"]) {
            return "true";
        }
        if is(&["0", "0.0", "incorrect", "wrong", "fail", "failed"]) {
            return "false";
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_in_every_unit_are_the_same() {
        let expected = Some(UtcMicros(1_782_900_000_000_000));
        for value in [
            "2026-07-01T10:00:00Z",
            "2026-07-01T12:00:00+02:00",
            "2026-07-01 10:00:00",
            "1782900000",
            "1782900000000",
            "1782900000000000",
            "1.7829e18",
        ] {
            assert_eq!(moment(value), expected, "{value}");
        }
        assert_eq!((moment("27482"), moment("soon")), (None, None));
    }

    #[test]
    fn counts_are_kept_as_they_are() {
        assert_eq!(reported("516"), Ok(Some(516.0)));
        assert_eq!(reported("515.6"), Ok(Some(515.6)));
        assert_eq!(reported("N/A"), Ok(None));
        assert_eq!(reported("-1"), Err("negative-count"));
        assert_eq!(reported("many"), Err("not-a-number"));
        assert_eq!(reported("inf"), Err("not-a-number"));
        assert_eq!((whole("7.0"), whole("7.5"), whole("1e30")), (Some(7), None, None));
    }

    #[test]
    fn truth_is_normalised_but_numbers_are_not() {
        assert_eq!(normalised("correct", "True"), "true");
        assert_eq!(normalised("correct", "0"), "false");
        assert_eq!(normalised("wall_ms", "1"), "1");
        assert_eq!(normalised("parsed", "YES"), "true");
    }
}
