//! Text to word pieces, as BERT's uncased tokenizer does it.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;
use unicode_normalization::UnicodeNormalization as _;

/// A longer word is unknown as a whole.
const MAX_WORD: usize = 100;
/// Characters looked at for each piece wanted: more than any piece has.
const CHARS_PER_PIECE: usize = 32;

static PUNCTUATION: LazyLock<Regex> = LazyLock::new(|| class(r"^\p{P}$"));
static MARK: LazyLock<Regex> = LazyLock::new(|| class(r"^\p{Mn}$"));
static CONTROL: LazyLock<Regex> = LazyLock::new(|| class(r"^\p{C}$"));

fn class(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern that the tests compile")
}

fn is(class: &Regex, c: char) -> bool {
    class.is_match(c.encode_utf8(&mut [0; 4]))
}

/// A vocabulary of word pieces.
#[derive(Debug)]
pub(super) struct WordPiece {
    pieces: HashMap<String, usize>,
    unknown: usize,
    first: usize,
    last: usize,
}

impl WordPiece {
    /// From one piece a line; the line's number is its id.
    pub(super) fn new(vocabulary: &str) -> Result<Self, String> {
        let pieces: HashMap<String, usize> =
            vocabulary.lines().enumerate().map(|(id, piece)| (piece.trim_end().to_owned(), id)).collect();
        let id = |piece: &str| pieces.get(piece).copied().ok_or_else(|| format!("{piece} is missing"));
        Ok(Self { unknown: id("[UNK]")?, first: id("[CLS]")?, last: id("[SEP]")?, pieces })
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Ids of a text between the border marks, at most `limit` in all; of a long text the end.
    pub(super) fn ids(&self, text: &str, limit: usize) -> Vec<usize> {
        let room = limit.saturating_sub(2);
        let mut ids = Vec::new();
        for word in words(end_of(text, room * CHARS_PER_PIECE)) {
            self.pieces_of(&word, &mut ids);
        }
        let mut all = vec![self.first];
        all.extend_from_slice(&ids[ids.len().saturating_sub(room)..]);
        all.push(self.last);
        all
    }

    /// Longest match first; a word with no match anywhere is unknown as a whole.
    fn pieces_of(&self, word: &str, ids: &mut Vec<usize>) {
        let ends: Vec<usize> = word.char_indices().map(|(at, c)| at + c.len_utf8()).collect();
        if ends.len() > MAX_WORD {
            return ids.push(self.unknown);
        }
        let before = ids.len();
        let mut start = 0;
        while start < word.len() {
            let found = ends.iter().rev().take_while(|&&end| end > start).find_map(|&end| {
                let piece = &word[start..end];
                let id =
                    if start == 0 { self.pieces.get(piece) } else { self.pieces.get(&format!("##{piece}")) };
                id.map(|id| (*id, end))
            });
            let Some((id, end)) = found else {
                ids.truncate(before);
                return ids.push(self.unknown);
            };
            ids.push(id);
            start = end;
        }
    }
}

/// The last `chars` characters, from the start of a word on.
fn end_of(text: &str, chars: usize) -> &str {
    match text.char_indices().rev().nth(chars.saturating_sub(1)) {
        Some((at, _)) if at > 0 => {
            text[at..].find(char::is_whitespace).map_or(&text[at..], |space| &text[at + space..])
        }
        _ => text,
    }
}

/// Words and single signs, lower case, without accents and control characters.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let cleaned = text.chars().filter(|&c| c.is_whitespace() || !is_control(c));
    for c in cleaned.nfd().filter(|&c| c.is_ascii() || !is(&MARK, c)).flat_map(char::to_lowercase) {
        if c.is_whitespace() || is_alone(c) {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
            if !c.is_whitespace() {
                words.push(c.to_string());
            }
        } else {
            word.push(c);
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

fn is_control(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_control() } else { c == '\u{fffd}' || is(&CONTROL, c) }
}

/// Punctuation (every ASCII sign counts) and Chinese characters stand alone.
fn is_alone(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_punctuation();
    }
    let chinese = matches!(u32::from(c),
        0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x2A6DF | 0x2A700..=0x2CEAF | 0x2F800..=0x2FA1F);
    chinese || is(&PUNCTUATION, c)
}
