//! Reasoning inside the answer's text, between `<think>` and `</think>`.
//!
//! In: the pieces of one answer's text. Out: what of a piece is reasoning and what is answer; the tags are
//! neither. A tag may be cut anywhere. Only a tag that opens the answer counts:
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
        self.parts(piece, |is_reasoning, part| {
            *(if is_reasoning { &mut reasoning } else { &mut answer }) += part.chars().count();
        });
        (super::field::small(reasoning), super::field::small(answer))
    }

    /// Hands on the parts of `piece`, each with whether it is reasoning. What an earlier piece held back
    /// because it looked like a tag comes with the piece that shows that it is none.
    pub(crate) fn parts(&mut self, piece: &str, mut each: impl FnMut(bool, &str)) {
        let mut rest = piece;
        while let Some(c) = rest.chars().next() {
            let after = &rest[c.len_utf8()..];
            match *self {
                Self::Outside => {
                    each(false, rest);
                    break;
                }
                Self::Inside(0) => {
                    let plain = rest.find('<').unwrap_or(rest.len());
                    each(true, &rest[..plain]);
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
                    each(true, &CLOSE[..matched]);
                    *self = Self::Inside(0);
                    continue;
                }
                Self::Start if c.is_whitespace() => each(false, &rest[..c.len_utf8()]),
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
                    each(false, &OPEN[..matched]);
                    *self = Self::Outside;
                    continue;
                }
            }
            rest = after;
        }
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
