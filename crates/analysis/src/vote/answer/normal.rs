//! Answers in a form in which equal ones are equal: numbers, LaTeX, case, units.

use std::sync::LazyLock;

use regex::Regex;

use super::extract::braced;

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// The number in canonical form, or the text.
    pub(super) value: String,
    /// Whether `value` is a number.
    pub(super) number: bool,
    /// Its unit, singular.
    pub(super) unit: Option<String>,
}

impl Key {
    pub(super) fn full(&self) -> String {
        match &self.unit {
            Some(unit) => format!("{} {unit}", self.value),
            None => self.value.clone(),
        }
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a constant pattern that the tests compile")
}

static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?P<sign>[+-]?)(?P<whole>\d{1,3}(?:,\d{3})+|\d*)(?:\.(?P<part>\d*))?(?:e(?P<exp>[+-]?\d{1,3}))?$",
    )
});
static FRACTION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^([+-]?)\(?([+-]?\d{1,15})\)?/\(?(\d{1,15})\)?$"));
static WITH_UNIT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^([+-]?[\d.,]+(?:e[+-]?\d+|/\d+)?)\s*(\p{L}[\p{L}\s./^²³\d]*)$"));

/// An answer's key; `None` when nothing is left of it.
pub(super) fn key(answer: &str) -> Option<Key> {
    let text = unwrapped(answer.trim());
    if text.is_empty() {
        return None;
    }
    if is_verbatim(text) {
        return Some(Key { value: text.to_owned(), number: false, unit: None });
    }
    let text = plain(&latex(text));
    let text = text.trim().trim_end_matches('.').trim();
    if text.is_empty() {
        return None;
    }
    if let Some(value) = number(text) {
        return Some(Key { value, number: true, unit: None });
    }
    if let Some(found) = WITH_UNIT.captures(text)
        && let Some(value) = number(found[1].trim_end_matches(','))
    {
        return Some(Key { value, number: true, unit: unit(&found[2]) });
    }
    Some(Key { value: spaced(text), number: false, unit: None })
}

/// Without what only wraps: `$…$`, `\(…\)`, `**…**`, backticks, and double quotes around a number.
fn unwrapped(mut text: &str) -> &str {
    const WRAPS: [(&str, &str); 7] =
        [("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"), ("__", "__")];
    loop {
        let before = text;
        let bare = text.strip_suffix('.').unwrap_or(text);
        for (open, close) in WRAPS {
            if let Some(inner) = bare.strip_prefix(open).and_then(|rest| rest.strip_suffix(close)) {
                text = inner.trim();
                break;
            }
        }
        if let Some(inner) = bare.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))
            && number(inner.trim()).is_some()
        {
            text = inner.trim();
        }
        if text == before {
            return text;
        }
    }
}

/// Code and quoted strings mean their spaces and capitals.
fn is_verbatim(text: &str) -> bool {
    text.starts_with(['\'', '"']) || (text.starts_with(['[', '(', '{']) && text.contains(['\'', '"']))
}

/// LaTeX to plain text: fractions, text wrappers, spacing and signs.
fn latex(text: &str) -> String {
    const NAMES: [(&str, &str); 28] = [
        (r"\left", ""),
        (r"\right", ""),
        (r"\!", ""),
        (r"\,", ""),
        (r"\;", ""),
        (r"\:", ""),
        (r"\ ", " "),
        (r"\quad", " "),
        (r"\dfrac", r"\frac"),
        (r"\tfrac", r"\frac"),
        (r"^{\circ}", ""),
        (r"^\circ", ""),
        (r"\degree", ""),
        (r"\cdot", "*"),
        (r"\times", "*"),
        (r"\div", "/"),
        (r"\pi", "pi"),
        (r"\%", ""),
        (r"\$", ""),
        (r"\{", "{"),
        (r"\}", "}"),
        ("{,}", ","),
        (r"\infty", "inf"),
        ("−", "-"),
        ("×", "*"),
        ("°", ""),
        ("π", "pi"),
        ("∞", "inf"),
    ];
    let mut text = text.to_owned();
    for (name, plain) in NAMES {
        text = text.replace(name, plain);
    }
    for wrapper in [r"\text", r"\mathrm", r"\textbf", r"\mathbf", r"\mbox", r"\boxed"] {
        text = commands(&text, wrapper, 1, |args| args[0].clone());
    }
    text = commands(&text, r"\frac", 2, |args| format!("{}/{}", grouped(&args[0]), grouped(&args[1])));
    commands(&text, r"\sqrt", 1, |args| format!("sqrt({})", args[0]))
}

/// Replaces `\name{a}{b}` (or `\name12`) by what `write` makes of its arguments, inside out.
fn commands(text: &str, name: &str, arguments: usize, write: impl Fn(&[String]) -> String) -> String {
    let mut text = text.to_owned();
    let mut end = text.len();
    // From the right, so that inner commands are written before the ones around them.
    while let Some(at) = text[..end].rfind(name) {
        end = at;
        let mut rest = &text[at + name.len()..];
        // `\textbf` is not `\text`.
        if rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            continue;
        }
        let mut args = Vec::new();
        for _ in 0..arguments {
            rest = rest.trim_start();
            if let Some(inner) = rest.strip_prefix('{').and_then(braced) {
                args.push(inner.trim().to_owned());
                rest = &rest[inner.len() + 2..];
            } else if let Some(c) = rest.chars().next().filter(char::is_ascii_alphanumeric) {
                args.push(c.to_string());
                rest = &rest[1..];
            }
        }
        if args.len() == arguments {
            text = format!("{}{}{rest}", &text[..at], write(&args));
        }
    }
    text
}

fn grouped(part: &str) -> String {
    if part.chars().all(|c| c.is_alphanumeric() || c == '.') { part.to_owned() } else { format!("({part})") }
}

/// Without currency and percent signs, in lower case.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '$' | '€' | '£' | '¥' | '%')).flat_map(char::to_lowercase).collect()
}

/// Single spaces between words, none around signs.
fn spaced(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let words = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    for word in text.split_whitespace() {
        if words(out.chars().last()) && words(word.chars().next()) {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

/// A decimal number or fraction in canonical form.
fn number(text: &str) -> Option<String> {
    let text = text.trim();
    if let Some(found) = FRACTION.captures(text) {
        return fraction(&found[1], found[2].parse().ok()?, found[3].parse().ok()?);
    }
    let found = NUMBER.captures(text)?;
    let whole = found["whole"].replace(',', "");
    let part = found.name("part").map_or("", |m| m.as_str());
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let exponent: i32 = found.name("exp").map_or(Some(0), |m| m.as_str().parse().ok())?;
    Some(decimal(&found["sign"], &whole, part, exponent))
}

/// Digits with the point moved by `exponent`; no leading or trailing zeros, no minus on zero.
fn decimal(sign: &str, whole: &str, part: &str, exponent: i32) -> String {
    let mut digits = format!("{whole}{part}");
    let mut point = i64::try_from(whole.len()).unwrap_or(i64::MAX) + i64::from(exponent);
    while point < 0 {
        digits.insert(0, '0');
        point += 1;
    }
    let point = usize::try_from(point).unwrap_or(0);
    while digits.len() < point {
        digits.push('0');
    }
    let (whole, part) = digits.split_at(point);
    let whole = whole.trim_start_matches('0');
    let part = part.trim_end_matches('0');
    let value = match (whole, part) {
        ("", "") => return "0".to_owned(),
        (whole, "") => whole.to_owned(),
        ("", part) => format!("0.{part}"),
        (whole, part) => format!("{whole}.{part}"),
    };
    if sign == "-" { format!("-{value}") } else { value }
}

/// In lowest terms; a decimal number when it ends (1/2 = 0.5), else `a/b`.
fn fraction(sign: &str, top: i64, bottom: i64) -> Option<String> {
    let top = if sign == "-" { -top } else { top };
    let divisor = gcd(top.unsigned_abs(), bottom.unsigned_abs());
    if bottom == 0 || divisor == 0 {
        return None;
    }
    let divisor = i64::try_from(divisor).ok()?;
    let (top, bottom) = (top / divisor, bottom / divisor);
    let sign = if top < 0 { "-" } else { "" };
    let mut scale: i64 = 1;
    for places in 0..=6_i32 {
        if scale % bottom == 0 {
            let digits = top.checked_mul(scale / bottom)?.unsigned_abs().to_string();
            return Some(decimal(sign, &digits, "", -places));
        }
        scale *= 10;
    }
    Some(format!("{top}/{bottom}"))
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Singular, single-spaced; signs and words for money, percent and degrees are no unit, as their symbols
/// are none.
fn unit(text: &str) -> Option<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let singular =
        if text.len() > 3 && !text.ends_with("ss") { text.strip_suffix('s').unwrap_or(&text) } else { &text };
    match singular {
        "dollar" | "usd" | "euro" | "eur" | "pound" | "percent" | "degree" | "unit" => None,
        other => Some(other.to_owned()),
    }
}
