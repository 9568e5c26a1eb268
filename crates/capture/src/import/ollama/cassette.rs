//! The bodies of a VCR cassette (YAML), without a YAML parser.
//!
//! In: the cassette's lines. Out: the text of each `string:` scalar, which is where recorders keep a
//! response's body. Only quoted scalars are read (block scalars are not what the recorders write for
//! bodies with escapes), folded by the rules of YAML 1.2, §7.3.

/// Finds quoted `string:` scalars line by line.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    open: Option<Scalar>,
}

#[derive(Debug)]
struct Scalar {
    quote: char,
    raw: String,
}

impl Bodies {
    /// Takes in one line without its end; yields the body that it closed.
    pub(super) fn line(&mut self, line: &str) -> Option<String> {
        if let Some(scalar) = &mut self.open {
            scalar.raw.push('\n');
            scalar.raw.push_str(line);
        } else {
            let value = line.trim_start().strip_prefix("string: ")?.trim_start();
            let quote = value.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
            self.open = Some(Scalar { quote, raw: value[1..].to_owned() });
        }
        // A line without the quote cannot close the scalar: long bodies are unfolded once, not per line.
        let scalar = self.open.as_ref()?;
        if !line.trim_end().ends_with(scalar.quote) {
            return None;
        }
        let body = unfold(&scalar.raw, scalar.quote == '"')?;
        self.open = None;
        Some(body)
    }

    /// Whether the file ended inside a scalar.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }
}

/// The text of a flow scalar up to its closing quote; `None` when that is missing.
fn unfold(raw: &str, double: bool) -> Option<String> {
    let mut text = String::with_capacity(raw.len());
    // White space up to here was escaped, and stays at the end of a line.
    let mut kept = 0;
    let mut rest = raw.chars().peekable();
    loop {
        match rest.next()? {
            '\'' if !double => {
                if rest.next_if_eq(&'\'').is_none() {
                    return Some(text);
                }
                text.push('\'');
            }
            '"' if double => return Some(text),
            '\\' if double => {
                match rest.next()? {
                    '\n' => while rest.next_if(|c| matches!(c, ' ' | '\t')).is_some() {},
                    escape => text.push(unescape(escape, &mut rest)?),
                }
                kept = text.len();
            }
            '\n' => {
                while text.len() > kept && text.ends_with([' ', '\t']) {
                    text.pop();
                }
                let mut breaks = 1;
                while let Some(c) = rest.next_if(|c| matches!(c, ' ' | '\t' | '\n')) {
                    breaks += u32::from(c == '\n');
                }
                if breaks == 1 {
                    text.push(' ');
                } else {
                    text.extend((1..breaks).map(|_| '\n'));
                }
                kept = text.len();
            }
            c => text.push(c),
        }
    }
}

fn unescape(escape: char, rest: &mut impl Iterator<Item = char>) -> Option<char> {
    Some(match escape {
        '0' => '\0',
        'a' => '\x07',
        'b' => '\x08',
        't' | '\t' => '\t',
        'n' => '\n',
        'v' => '\x0b',
        'f' => '\x0c',
        'r' => '\r',
        'e' => '\x1b',
        'N' => '\u{85}',
        '_' => '\u{a0}',
        'L' => '\u{2028}',
        'P' => '\u{2029}',
        'x' => hex(rest, 2)?,
        'u' => hex(rest, 4)?,
        'U' => hex(rest, 8)?,
        other => other,
    })
}

/// A character by its number; a lone surrogate becomes the replacement character.
fn hex(rest: &mut impl Iterator<Item = char>, digits: usize) -> Option<char> {
    let digits: String = rest.take(digits).collect();
    Some(char::from_u32(u32::from_str_radix(&digits, 16).ok()?).unwrap_or(char::REPLACEMENT_CHARACTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(cassette: &str) -> Vec<String> {
        let mut bodies = Bodies::default();
        cassette.lines().filter_map(|line| bodies.line(line)).collect()
    }

    #[test]
    fn single_quotes_fold_lines_and_double_themselves() {
        assert_eq!(
            bodies("  string: 'it''s\n    one\n\n    two\n\n\n    three'\n  x: y"),
            ["it's one\ntwo\n\nthree"]
        );
    }

    #[test]
    fn double_quotes_escape() {
        assert_eq!(bodies(r#"string: "a\n\"b\"\x41\u00e9\  ""#), ["a\n\"b\"Aé  "]);
        assert_eq!(bodies("string: \"one\\\n  \\ two  \n  three\""), ["one two three"]);
    }

    #[test]
    fn a_quote_at_a_line_s_end_need_not_close() {
        assert_eq!(bodies("string: 'he said ''no''\n  and left'"), ["he said 'no' and left"]);
        assert_eq!(bodies("string: \"a\\\"\n  b\""), ["a\" b"]);
    }

    #[test]
    fn a_cut_scalar_stays_open() {
        let mut cut = Bodies::default();
        assert_eq!(cut.line("string: 'never"), None);
        assert!(cut.is_open());
    }
}
