//! RFC 3339 times, as Ollama writes them: to the nanosecond, in UTC or with an offset.
//!
//! Own code of a few lines, so that the default build needs no calendar; proved against `jiff` where that is
//! built in (feature `import`).

/// `text` as µs since 1970 UTC; `None` when it is no such time.
pub(super) fn micros(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let (year, month, day) = three(date, '-')?;
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (clock, fraction) = time[..zone].split_once('.').unwrap_or((&time[..zone], "0"));
    let (hour, minute, second) = three(clock, ':')?;
    let offset = match &time[zone..] {
        "Z" | "z" => 0,
        shift => {
            let (hours, minutes) = shift[1..].split_once(':')?;
            let minutes = number(hours)? * 60 + number(minutes)?;
            if shift.starts_with('-') { -minutes } else { minutes }
        }
    };
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let first = days(year, month, 1);
    let next = if month == 12 { days(year + 1, 1, 1) } else { days(year, month + 1, 1) };
    if day > next - first {
        return None;
    }
    let seconds = (first + day - 1) * 86_400 + hour * 3_600 + (minute - offset) * 60 + second;
    let nanos = number(fraction)? * 10_i64.pow(9_u32.checked_sub(u32::try_from(fraction.len()).ok()?)?);
    Some(seconds * 1_000_000 + nanos / 1_000)
}

fn three(text: &str, between: char) -> Option<(i64, i64, i64)> {
    let mut parts = text.split(between);
    let three = (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    parts.next().is_none().then_some(three)
}

fn number(digits: &str) -> Option<i64> {
    if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// Days from 1970-01-01 in the Gregorian calendar, counting years from March so that the leap day is last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let before = year * 365 + year / 4 - year / 100 + year / 400;
    before + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_stamps_are_read() {
        assert_eq!(micros("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(micros("2024-05-24T20:26:46.294874Z"), Some(1_716_582_406_294_874));
        assert_eq!(micros("2024-05-24T13:26:46.39151-07:00"), Some(1_716_582_406_391_510));
        assert_eq!(micros("2024-02-29T00:00:00.123456789Z"), Some(1_709_164_800_123_456));
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in
            ["", "now", "2024-13-01T00:00:00Z", "2024-05-24", "2024-05-24T20:26Z", "2024-05-24T20:26:46.+Z"]
        {
            assert_eq!(micros(text), None, "{text}");
        }
    }

    #[cfg(feature = "import")]
    proptest::proptest! {
        /// Law: a text is read as `jiff` reads it, days that a month does not have included.
        #[test]
        fn a_time_is_what_jiff_says(
            date in (1971..2200_i64, 1..=12_u8, 1..=31_u8),
            time in (0..24_u8, 0..60_u8, 0..60_u8),
            fraction in "(\\.[0-9]{1,9})?",
            zone in "Z|z|[+-](0[0-9]|1[0-4]):[0-5][0-9]",
        ) {
            let ((year, month, day), (hour, minute, second)) = (date, time);
            let text =
                format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}");
            let theirs = text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_microsecond);
            proptest::prop_assert_eq!(micros(&text), theirs, "{}", text);
        }
    }
}
