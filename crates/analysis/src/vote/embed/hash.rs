//! The default embedder: hashed words and character n-grams. No files, no network, the same on every
//! machine.
//!
//! Features of a lower-cased word (a run of word characters, or one sign): the word itself, and its 3- to
//! 5-grams with a space on either side. CRC-32 picks one of 1,024 places and a sign; a feature seen k times
//! counts 1 + ln k; the vector has length 1. It knows wording, not meaning.

use std::collections::HashMap;

use ndarray::Array2;

use super::super::ballot::count;
use super::super::geometry::Eps;
use super::{Embed, Error};

/// Places of the vector; a power of two, as the bits below the sign bit pick one.
const PLACES: usize = 1_024;
/// This bit of the hash is the sign; the ten below pick the place.
const SIGN_BIT: u32 = 16;
/// Leaves 0.3–3 % of same-model traces as noise; 0.10 would leave 70–99 %.
const EPS: f64 = 0.30;

/// The hashing embedder.
#[derive(Clone, Copy, Debug)]
pub struct Hash;

impl Embed for Hash {
    fn name(&self) -> &'static str {
        "hash"
    }

    fn is_semantic(&self) -> bool {
        false
    }

    fn eps(&self) -> Eps {
        Eps::Fixed(EPS)
    }

    fn embed(&self, texts: &[&str]) -> Result<Array2<f32>, Error> {
        let mut vectors = Array2::zeros((texts.len(), PLACES));
        for (mut row, text) in vectors.rows_mut().into_iter().zip(texts) {
            for (place, value) in row.iter_mut().zip(embed_one(text)) {
                *place = value;
            }
        }
        Ok(vectors)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "values lie in -1..=1; single precision is the product")]
fn embed_one(text: &str) -> Vec<f32> {
    let mut seen: HashMap<u32, u32> = HashMap::new();
    let lower = text.to_lowercase();
    let mut word = String::new();
    for c in lower.chars() {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        features(&word, &mut seen);
        word.clear();
        if !c.is_whitespace() {
            features(c.encode_utf8(&mut [0; 4]), &mut seen);
        }
    }
    features(&word, &mut seen);
    // Sorted, so that sums of floats do not depend on the map's order.
    let mut seen: Vec<(u32, u32)> = seen.into_iter().collect();
    seen.sort_unstable();
    let mut sums = vec![0.0_f64; PLACES];
    for (hash, times) in seen {
        let weight = 1.0 + f64::from(times).ln();
        sums[hash as usize % PLACES] += if hash >> SIGN_BIT & 1 == 1 { weight } else { -weight };
    }
    let length = sums.iter().map(|x| x * x).sum::<f64>().sqrt();
    let scale = if length > 0.0 { length } else { count(1) };
    sums.into_iter().map(|x| (x / scale) as f32).collect()
}

/// Counts the features of one word by hash. Two features with one hash count as one: 4 in 10⁹ pairs.
fn features(word: &str, seen: &mut HashMap<u32, u32>) {
    if word.is_empty() {
        return;
    }
    let mut tagged = crc32fast::Hasher::new();
    tagged.update(b"w:");
    tagged.update(word.as_bytes());
    *seen.entry(tagged.finalize()).or_default() += 1;
    let padded = format!(" {word} ");
    let starts: Vec<usize> =
        padded.char_indices().map(|(at, _)| at).chain(std::iter::once(padded.len())).collect();
    for length in 3..=5 {
        for ends in starts.windows(length + 1) {
            let gram = &padded.as_bytes()[ends[0]..ends[length]];
            *seen.entry(crc32fast::hash(gram)).or_default() += 1;
        }
    }
}
