//! Reasoning inside the answer's text, between `<think>` and `</think>`.
//!
//! In: the pieces of one answer's text. Out: how many of a piece's characters are reasoning and how many
//! are answer; the tags are neither. A tag may be cut anywhere. Only a tag that opens the answer counts:
//! later ones are text about tags.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Where in the answer the next piece begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Think {
    /// At the start, after so many characters of the opening tag.
    #[default]
    Start,
    Opening(usize),
    /// In the reasoning, after so many characters of the closing tag.
    Inside(usize),
    Outside,
}

impl Think {
    /// The server sends reasoning apart from the answer: a tag that opens the answer is text, too. A real
    /// llama.cpp server with a model of random weights does that.
    pub(crate) fn tell_apart(&mut self) {
        if matches!(self, Self::Start) {
            *self = Self::Outside;
        }
    }

    /// Characters of `piece` that are reasoning, and that are answer.
    pub(crate) fn split(&mut self, piece: &str) -> (u32, u32) {
        let (mut reasoning, mut answer) = (0_usize, 0_usize);
        let mut rest = piece;
        while let Some(c) = rest.chars().next() {
            let after = &rest[c.len_utf8()..];
            match *self {
                Self::Outside => {
                    answer += rest.chars().count();
                    break;
                }
                Self::Inside(0) => {
                    let plain = rest.find('<').unwrap_or(rest.len());
                    reasoning += rest[..plain].chars().count();
                    rest = &rest[plain..];
                    if let Some(after) = rest.strip_prefix('<') {
                        *self = Self::Inside(1);
                        rest = after;
                    }
                    continue;
                }
                Self::Inside(matched) if CLOSE[matched..].starts_with(c) => {
                    *self =
                        if matched + 1 == CLOSE.len() { Self::Outside } else { Self::Inside(matched + 1) };
                }
                Self::Inside(matched) => {
                    // Not the tag: what looked like it is reasoning, and this character is looked at again.
                    reasoning += matched;
                    *self = Self::Inside(0);
                    continue;
                }
                Self::Start if c.is_whitespace() => answer += 1,
                Self::Start if c == '<' => *self = Self::Opening(1),
                Self::Start => {
                    *self = Self::Outside;
                    continue;
                }
                Self::Opening(matched) if OPEN[matched..].starts_with(c) => {
                    *self =
                        if matched + 1 == OPEN.len() { Self::Inside(0) } else { Self::Opening(matched + 1) };
                }
                Self::Opening(matched) => {
                    answer += matched;
                    *self = Self::Outside;
                    continue;
                }
            }
            rest = after;
        }
        (super::field::small(reasoning), super::field::small(answer))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (u32, u32) {
        let mut think = Think::default();
        pieces.into_iter().fold((0, 0), |sum, piece| {
            let (reasoning, answer) = think.split(piece);
            (sum.0 + reasoning, sum.1 + answer)
        })
    }

    #[test]
    fn only_a_tag_that_opens_the_answer_counts() {
        assert_eq!(split(["\n<think>abc</think>de"]), (3, 3));
        assert_eq!(split(["<th", "ink", ">ab", "<", "b></", "think>", "xy"]), (5, 2));
        assert_eq!(split(["a<think>b</think>"]), (0, 17));
        assert_eq!(split(["<thin", "g>"]), (0, 7));
        assert_eq!(split(["<think><</think>x"]), (1, 1));
        let mut apart = Think::default();
        apart.tell_apart();
        assert_eq!(apart.split("<think>abc"), (0, 10));
    }

    proptest! {
        /// The split does not depend on where the text is cut.
        #[test]
        fn cuts_do_not_matter(text in "[ ]?(<think>)?[<>/thinkä]{0,12}(</think>)?[a<]{0,4}", cut in any::<prop::sample::Index>()) {
            let at = (0..=cut.index(text.len() + 1)).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            prop_assert_eq!(split([&text[..at], &text[at..]]), split([text.as_str()]));
        }
    }
}
