//! A quick look at events that come by the thousand.
//!
//! In: the text of one JSON object. Out: the few fields that a dialect asks for, in one walk that allocates
//! nothing. Serde stays the reference: whatever is rare or odd makes every function here give `None`, and
//! the caller then reads the event with serde. So `None` never means that the JSON is bad; but what is not
//! `None` is exactly what serde would have read. Odd are, among others, a key with an escape, a field that
//! comes twice, half a surrogate pair, and more than [`DEPTH`] levels.

use super::field::{Piece, Size, small};

mod form;

pub(super) use form::Form;
pub(super) use form::Spans;

/// Deeper values are left to serde, which needs no stack for them.
const DEPTH: u8 = 16;

/// The rest of a JSON text.
#[derive(Debug)]
pub(super) struct Json<'a> {
    text: &'a str,
    at: usize,
    depth: u8,
    spans: Spans,
}

/// A string as it stands in the JSON.
#[derive(Clone, Copy, Debug)]
struct Raw<'a> {
    quoted: &'a str,
    /// By how much its escapes make it longer.
    excess: Size,
}

/// Reads a text that is one object: `field` is called with each key and must consume the key's value. Says
/// where the values stood that [`Json::slot`] read.
#[inline]
pub(super) fn object<'a>(
    text: &'a str,
    field: impl FnMut(&mut Json<'a>, &'a str) -> Option<()>,
) -> Option<Spans> {
    let mut json = Json::new(text);
    json.blank();
    json.object(field)?;
    json.blank();
    (json.at == text.len()).then_some(json.spans)
}

/// Keeps the value of a field, which may come once.
#[inline]
pub(super) fn once<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

impl<'a> Json<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0, spans: Spans::default() }
    }

    /// Reads a string, a number or `null` that may be another in the next event; `slot` tells it from others.
    #[inline]
    pub(super) fn slot<T>(&mut self, slot: u8, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let from = self.at;
        let value = read(self)?;
        self.spans.push(slot, from, self.at);
        Some(value)
    }

    /// Consumes exactly these bytes.
    #[inline]
    fn same(&mut self, bytes: &[u8]) -> Option<()> {
        let rest = self.text.as_bytes().get(self.at..)?;
        self.at += bytes.len();
        rest.starts_with(bytes).then_some(())
    }

    /// Reads an object, like [`object`].
    #[inline]
    pub(super) fn object(&mut self, mut field: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.list(b'{', b'}', |json| {
            let key = json.string()?.plain()?;
            json.blank();
            json.eat(b':')?;
            json.blank();
            field(json, key)
        })
    }

    /// Reads an array: `item` is called before each element and must consume it.
    #[inline]
    pub(super) fn array(&mut self, item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.list(b'[', b']', item)
    }

    /// `null`, and nothing else.
    #[inline]
    pub(super) fn null(&mut self) -> Option<()> {
        self.word("null")
    }

    /// What `read` makes of the value, or nothing of `null`.
    #[expect(clippy::option_option, reason = "left to serde, or null, or a value")]
    #[inline]
    pub(super) fn or_null<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.peek() == b'n' { self.null().map(|()| None) } else { read(self).map(Some) }
    }

    /// An unsigned integer that fits, or `null`.
    #[expect(clippy::option_option, reason = "left to serde, or null, or a value")]
    #[inline]
    pub(super) fn number<T: TryFrom<u64>>(&mut self) -> Option<Option<T>> {
        self.or_null(|json| {
            let from = json.at;
            json.digits()?;
            let digits = &json.text.as_bytes()[from..json.at];
            if digits.len() > 1 && digits[0] == b'0' || digits.len() > 18 {
                return None;
            }
            let value = digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
            T::try_from(value).ok()
        })
    }

    /// The length of a string, or of `null`.
    #[inline]
    pub(super) fn size(&mut self) -> Option<Size> {
        self.or_null(|json| Some(json.string()?.size())).map(Option::unwrap_or_default)
    }

    /// A string to look at, or `null`. With escapes it is serde that reads it.
    #[inline]
    pub(super) fn piece(&mut self) -> Option<Piece<'a>> {
        let text = self.or_null(|json| {
            let raw = json.string()?;
            raw.plain().map(|text| Piece(text.into())).or_else(|| serde_json::from_str(raw.quoted).ok())
        });
        text.map(Option::unwrap_or_default)
    }

    /// Any value, not looked at.
    #[inline]
    pub(super) fn skip(&mut self) -> Option<()> {
        match self.peek() {
            b'"' => self.string().map(drop),
            b'n' => self.null(),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'{' | b'[' => self.skip_nested(),
            _ => self.skip_number(),
        }
    }

    fn skip_nested(&mut self) -> Option<()> {
        if self.peek() == b'{' { self.object(|json, _| json.skip()) } else { self.array(Self::skip) }
    }

    fn skip_number(&mut self) -> Option<()> {
        self.at += usize::from(self.peek() == b'-');
        if self.peek() == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == b'.' {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), b'+' | b'-'));
            self.digits()?;
        }
        Some(())
    }

    /// Members between brackets, separated by commas.
    #[inline]
    fn list(&mut self, open: u8, close: u8, mut member: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.eat(open)?;
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        self.blank();
        if self.peek() != close {
            loop {
                member(self)?;
                self.blank();
                if self.peek() != b',' {
                    break;
                }
                self.at += 1;
                self.blank();
            }
        }
        self.depth -= 1;
        self.eat(close)
    }

    #[inline]
    fn string(&mut self) -> Option<Raw<'a>> {
        let from = self.at;
        self.eat(b'"')?;
        let mut excess = Size::default();
        loop {
            self.at += plain(&self.text.as_bytes()[self.at..]);
            match self.peek() {
                b'"' => break,
                b'\\' => self.escape(&mut excess)?,
                _ => return None,
            }
        }
        self.at += 1;
        Some(Raw { quoted: self.text.get(from..self.at)?, excess })
    }

    /// Consumes an escape, and adds by how much it is longer than what it stands for.
    fn escape(&mut self, excess: &mut Size) -> Option<()> {
        let from = self.at;
        let c = match *self.text.as_bytes().get(from + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                self.at += 2;
                // As long in UTF-8 as all that these stand for.
                ' '
            }
            b'u' => {
                let unit = self.unit()?;
                if let 0xd800..0xdc00 = unit {
                    let pair = [unit, self.unit()?];
                    char::decode_utf16(pair).next()?.ok()?
                } else {
                    char::from_u32(u32::from(unit))?
                }
            }
            _ => return None,
        };
        let written = small(self.at - from);
        excess.chars += written - 1;
        excess.bytes += written - small(c.len_utf8());
        Some(())
    }

    /// The UTF-16 unit of an escape `\uXXXX`.
    fn unit(&mut self) -> Option<u16> {
        let hex = self.text.get(self.at..self.at + 6)?.strip_prefix("\\u")?;
        self.at += 6;
        // `from_str_radix` also takes a sign.
        hex.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u16::from_str_radix(hex, 16).ok())?
    }

    #[inline]
    fn digits(&mut self) -> Option<()> {
        let from = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        (self.at > from).then_some(())
    }

    #[inline]
    fn word(&mut self, word: &str) -> Option<()> {
        self.same(word.as_bytes())
    }

    #[inline]
    fn eat(&mut self, byte: u8) -> Option<()> {
        let found = self.peek() == byte;
        self.at += 1;
        found.then_some(())
    }

    /// The next byte; at the end a zero, which begins nothing in JSON.
    #[inline]
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    #[inline]
    fn blank(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }
}

impl<'a> Raw<'a> {
    /// The text of a string without escapes.
    #[inline]
    fn plain(self) -> Option<&'a str> {
        if self.excess.chars > 0 {
            return None;
        }
        self.quoted.get(1..self.quoted.len() - 1)
    }

    #[inline]
    fn size(self) -> Size {
        Size {
            chars: small(self.quoted.chars().count() - 2) - self.excess.chars,
            bytes: small(self.quoted.len() - 2) - self.excess.bytes,
        }
    }
}

/// How many bytes come before a quote, a backslash or a control character, eight at a time: most strings are
/// too short for a vectorised search to pay, and that has no way to look for control characters too.
#[inline]
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let mut at = 0;
    while let Some(word) = bytes[at..].first_chunk() {
        let word = u64::from_le_bytes(*word);
        // The high bit of an ASCII byte tells that it was too small to take from; only the first such bit is
        // sure, for it borrows from the bytes after it.
        let control = word.wrapping_sub(ONES * 0x20);
        let quote = (word ^ (ONES * u64::from(b'"'))).wrapping_sub(ONES);
        let backslash = (word ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
        let odd = (control | quote | backslash) & !word & (ONES << 7);
        if odd != 0 {
            return at + odd.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + bytes[at..].iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | ..0x20)).count()
}

#[cfg(test)]
pub(super) mod tests;
