//! Prompt text of a given length and numeric share that nobody wrote.
//!
//! In: how many characters, how many of them numeric, a seed. Out: ASCII without anything that JSON escapes,
//! so that a character is a byte of the body.

/// Words and numbers, `length` characters long, of which exactly `numeric` are digits or a point between two
/// digits. The same seed gives the same text.
pub(super) fn synthetic(length: usize, numeric: usize, seed: u64) -> String {
    let numeric = numeric.min(length);
    let mut draw = Draw(seed);
    let mut text = String::with_capacity(length);
    let (mut digits_left, mut letters_left) = (numeric, length - numeric);
    while text.len() < length {
        // Whatever lags behind its share comes next: both kinds are spread over the whole text.
        let lags = (numeric - digits_left) * length < numeric * text.len() || text.is_empty();
        if digits_left > 0 && (lags || letters_left == 0) {
            let take = draw.between(4, 8).min(digits_left);
            number(&mut text, take, &mut draw);
            digits_left -= take;
        } else {
            let take = draw.between(3, 10).min(letters_left);
            word(&mut text, take, &mut draw);
            letters_left -= take;
        }
    }
    text
}

/// `1234.56`: the point stands between digits, so it counts as numeric itself.
fn number(text: &mut String, length: usize, draw: &mut Draw) {
    for place in 0..length {
        if length > 4 && place == length - 3 {
            text.push('.');
        } else {
            text.push(char::from(b'0' + draw.below(10)));
        }
    }
}

/// Letters and a space after them.
fn word(text: &mut String, length: usize, draw: &mut Draw) {
    text.extend((1..length).map(|_| char::from(b'a' + draw.below(26))));
    text.push(' ');
}

/// splitmix64 (Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// One of `0..n`.
    fn below(&mut self, n: u8) -> u8 {
        u8::try_from(self.next() % u64::from(n.max(1))).unwrap_or(0)
    }

    /// One of `lo..=hi`.
    fn between(&mut self, lo: u8, hi: u8) -> usize {
        usize::from(lo + self.below(hi - lo + 1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Law: length and number of numeric characters are those asked for, counted as the tap counts them.
        #[test]
        fn length_and_share_are_exact(length in 0_usize..5_000, share in 0.0_f64..=1.0, seed: u64) {
            #[expect(
                clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss,
                reason = "a share of a small length"
            )]
            let numeric = (share * length as f64) as usize;
            let text = synthetic(length, numeric, seed);
            prop_assert_eq!(text.len(), length);
            prop_assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b' ' || b == b'.'));
            let digits = text.bytes().filter(u8::is_ascii_digit).count();
            let points: Vec<&str> = text.split('.').collect();
            for pair in points.windows(2) {
                prop_assert!(pair[0].ends_with(|c: char| c.is_ascii_digit()));
                prop_assert!(pair[1].starts_with(|c: char| c.is_ascii_digit()));
            }
            prop_assert_eq!(digits + points.len() - 1, numeric);
        }
    }

    #[test]
    fn numbers_are_spread_over_the_text() {
        let text = synthetic(4_000, 1_000, 1);
        for quarter in text.as_bytes().chunks(1_000) {
            let digits = quarter.iter().filter(|b| b.is_ascii_digit() || **b == b'.').count();
            assert!((200..300).contains(&digits), "{digits}");
        }
        assert_ne!(text, synthetic(4_000, 1_000, 2));
    }
}
