//! Values of a scenario file that carry a unit or a range, checked while they are read.

use std::fmt;

use serde::{Deserialize, Deserializer, de};
use sseismo_trace::Micros;

/// A length of time with its unit, `"200ms"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Micros);

impl Span {
    /// `ms` milliseconds.
    pub const fn ms(ms: i64) -> Self {
        Self(Micros(ms * 1_000))
    }

    /// In µs.
    pub fn us(self) -> i64 {
        self.0.0
    }

    /// In seconds.
    pub fn seconds(self) -> f64 {
        self.0.seconds()
    }
}

/// A number of seconds as µs.
#[expect(clippy::cast_possible_truncation, reason = "spans of a scenario are bounded by what a file says")]
pub(crate) fn micros(seconds: f64) -> i64 {
    (seconds * 1e6).round() as i64
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = Span;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time with its unit, like \"200ms\", \"1.5s\", \"2m\" or \"1h\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

fn parse(text: &str) -> Option<Span> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let value = number.trim().parse::<f64>().ok()? * seconds;
    (value.is_finite() && (0.0..=3.2e7).contains(&value)).then(|| Span(Micros(micros(value))))
}

/// A share in `0..=1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Share(pub f64);

/// A finite number above 0.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Positive(pub f64);

struct Number {
    wanted: &'static str,
    fits: fn(f64) -> bool,
}

impl de::Visitor<'_> for Number {
    type Value = f64;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wanted)
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<f64, E> {
        if (self.fits)(value) {
            Ok(value)
        } else {
            Err(E::invalid_value(de::Unexpected::Float(value), &self))
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a whole number in a scenario is far below 2^53")]
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<f64, E> {
        self.visit_f64(value as f64)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Number { wanted: "a share from 0 to 1", fits: |v| (0.0..=1.0).contains(&v) };
        deserializer.deserialize_f64(number).map(Self)
    }
}

impl<'de> Deserialize<'de> for Positive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Number { wanted: "a number above 0", fits: |v| v.is_finite() && v > 0.0 };
        deserializer.deserialize_f64(number).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_need_a_unit() {
        assert_eq!(parse("200ms"), Some(Span::ms(200)));
        assert_eq!(parse("1.5s"), Some(Span::ms(1_500)));
        assert_eq!(parse("2 m"), Some(Span::ms(120_000)));
        assert_eq!(parse("200"), None);
        assert_eq!(parse("-1s"), None);
        assert_eq!(parse("1fortnight"), None);
    }
}
