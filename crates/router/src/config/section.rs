//! One table of the file: values by name and kind in the code's hands, faults for everything else.
//!
//! Serde would stop at the first fault; here every value is asked for by name, what was never asked for is
//! unknown, and each fault keeps its place.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::sync::LazyLock;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::Faults;

/// A value with its place.
pub(crate) type Value<'a> = &'a Spanned<DeValue<'a>>;

/// A table that is being read.
pub(crate) struct Section<'a> {
    faults: &'a Faults<'a>,
    table: &'a DeTable<'a>,
    at: Range<usize>,
    /// What messages call it: `[server]`, `upstream "a"`; empty for the file itself.
    title: String,
    asked: RefCell<BTreeSet<&'static str>>,
    /// The route's preset stands for what is not stated.
    preset: bool,
}

/// The longest duration: adding it to a moment overflows no clock, and nobody means a longer one.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// What is asked where there is no table.
static EMPTY: LazyLock<DeTable<'static>> = LazyLock::new(DeTable::default);

impl<'a> Section<'a> {
    pub(super) fn new(faults: &'a Faults<'a>, table: &'a DeTable<'a>, at: Range<usize>, title: &str) -> Self {
        Self { faults, table, at, title: title.to_owned(), asked: RefCell::default(), preset: false }
    }

    /// The same, under the preset of the section above or not.
    pub(crate) fn with_preset(self, preset: bool) -> Self {
        Self { preset, ..self }
    }

    /// Whether a preset above stands for what is not stated.
    pub(crate) fn has_preset(&self) -> bool {
        self.preset
    }

    /// A table below this one that is not there.
    pub(crate) fn empty(&self, key: &str) -> Section<'a> {
        Section::new(self.faults, &EMPTY, self.at.clone(), &format!("{}, {key}", self.title))
    }

    /// Calls it by its own name from here on.
    pub(crate) fn entitle(&mut self, title: String) {
        self.title = title;
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    /// A fault at the value of `key`, or at the section when it is missing.
    pub(crate) fn fault(&self, key: &str, message: &str) {
        let at = self.table.get(key).map_or(self.at.clone(), Spanned::span);
        self.fault_at(&at, message);
    }

    pub(crate) fn fault_at(&self, at: &Range<usize>, message: &str) {
        match self.title.as_str() {
            "" => self.faults.add(at, message),
            title => self.faults.add(at, format!("{title}: {message}")),
        }
    }

    pub(crate) fn value(&self, key: &'static str) -> Option<Value<'a>> {
        self.asked.borrow_mut().insert(key);
        self.table.get(key)
    }

    fn take<T>(
        &self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
    ) -> Option<T> {
        let value = self.value(key)?;
        let read = read(value.get_ref());
        if read.is_none() {
            self.fault_at(&value.span(), &format!("`{key}` must be {expected}"));
        }
        read
    }

    /// A string that is not empty.
    pub(crate) fn text(&self, key: &'static str) -> Option<&'a str> {
        self.take(key, "a string that is not empty", |value| value.as_str().filter(|text| !text.is_empty()))
    }

    /// A string that must be there.
    pub(crate) fn needed(&self, key: &'static str) -> Option<&'a str> {
        if !self.has(key) {
            self.fault_at(&self.at, &format!("`{key}` is missing"));
        }
        self.text(key)
    }

    /// One of these words.
    pub(crate) fn word(&self, key: &'static str, words: &[&'static str]) -> Option<&'static str> {
        let expected = words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ");
        self.take(key, &expected, |value| {
            let text = value.as_str()?;
            words.iter().find(|word| **word == text).copied()
        })
    }

    /// `true` or `false`.
    pub(crate) fn flag(&self, key: &'static str) -> Option<bool> {
        self.take(key, "true or false", DeValue::as_bool)
    }

    /// A whole number in a range.
    pub(crate) fn whole(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let expected = match *range.end() {
            u64::MAX => format!("a whole number from {}", range.start()),
            end => format!("a whole number from {} to {end}", range.start()),
        };
        self.take(key, &expected, |value| whole(value).filter(|number| range.contains(number)))
    }

    /// [`whole`](Self::whole) as a size.
    pub(crate) fn size(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<usize> {
        self.whole(key, range).and_then(|number| usize::try_from(number).ok())
    }

    /// A share from 0 to 1.
    pub(crate) fn share(&self, key: &'static str) -> Option<f64> {
        self.take(key, "a share from 0 to 1", |value| {
            number(value).filter(|share| (0.0..=1.0).contains(share))
        })
    }

    /// A number that is not negative.
    pub(crate) fn amount(&self, key: &'static str) -> Option<f64> {
        self.take(key, "a number that is not negative", |value| number(value).filter(|amount| *amount >= 0.0))
    }

    /// A duration with its unit, longer than nothing and at most [`LONGEST`].
    pub(crate) fn duration(&self, key: &'static str) -> Option<Duration> {
        let expected = "a duration with its unit, up to 365d: \"250ms\", \"10s\", \"5m\", \"1h\"";
        self.take(key, expected, |value| value.as_str().and_then(duration))
    }

    /// A list of strings, with their places.
    pub(crate) fn texts(&self, key: &'static str) -> Vec<(Range<usize>, &'a str)> {
        let Some(items) = self.list(key) else { return Vec::new() };
        let text = |item: Value<'a>| {
            let text = item.get_ref().as_str().filter(|text| !text.is_empty());
            if text.is_none() {
                self.fault_at(&item.span(), &format!("`{key}` must hold strings only"));
            }
            Some((item.span(), text?))
        };
        items.iter().filter_map(text).collect()
    }

    /// A list.
    pub(crate) fn list(&self, key: &'static str) -> Option<&'a [Spanned<DeValue<'a>>]> {
        self.take(key, "a list", |value| value.as_array().map(|items| &**items))
    }

    /// A table with names that are the user's own.
    pub(crate) fn entries(&self, key: &'static str) -> Vec<(&'a str, Value<'a>)> {
        let table = self.take(key, "a table", DeValue::as_table);
        table.into_iter().flatten().map(|(name, value)| (&**name.get_ref(), value)).collect()
    }

    /// A table below this one.
    pub(crate) fn section(&self, key: &'static str) -> Option<Section<'a>> {
        let at = self.value(key)?.span();
        let table = self.take(key, "a table", DeValue::as_table)?;
        let title = match self.title.strip_suffix(']') {
            _ if self.title.is_empty() => format!("[{key}]"),
            Some(above) => format!("{above}.{key}]"),
            None => format!("{}, {key}", self.title),
        };
        Some(Section::new(self.faults, table, at, &title))
    }

    /// A list of tables below this one: `[[upstream]]`.
    pub(crate) fn sections(&self, key: &'static str) -> Vec<Section<'a>> {
        let Some(items) = self.list(key) else { return Vec::new() };
        let section = |item: Value<'a>| {
            let table = item.get_ref().as_table();
            if table.is_none() {
                self.fault_at(&item.span(), &format!("write [[{key}]]"));
            }
            Some(Section::new(self.faults, table?, item.span(), key))
        };
        items.iter().filter_map(section).collect()
    }

    /// A table that is a value: `{ upstream = "a" }`.
    pub(crate) fn inline(&self, value: Value<'a>) -> Option<Section<'a>> {
        let table = value.get_ref().as_table()?;
        Some(Section::new(self.faults, table, value.span(), &self.title))
    }

    /// All has been asked for: what is left is unknown.
    pub(crate) fn end(self) {
        let asked = self.asked.borrow();
        for key in self.table.keys().filter(|key| !asked.contains(&**key.get_ref())) {
            let known: Vec<&str> = asked.iter().copied().collect();
            let message = format!("unknown key `{}`; known are {}", key.get_ref(), known.join(", "));
            self.fault_at(&key.span(), &message);
        }
    }
}

fn whole(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
}

/// A number, whole or not, that is finite.
pub(crate) fn number(value: &DeValue<'_>) -> Option<f64> {
    let text = match value {
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        _ => return None,
    };
    text.replace('_', "").parse().ok().filter(|number: &f64| number.is_finite())
}

fn duration(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let number: f64 = text[..unit].parse().ok()?;
    let seconds = match text[unit..].trim() {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * seconds).ok().filter(|span| !span.is_zero() && *span <= LONGEST)
}
