//! Text in, the answer that it commits to out; then answers to keys that are equal when the answers are.

mod extract;
mod normal;

pub use extract::{BadPattern, Extract};

use normal::Key;

/// A key for each answer; `None` abstains. Two answers with one key are the same vote.
///
/// Answers of one fan-out are seen together because a bare number joins the same number with a unit
/// (`5` and `5 cm`), but only while no other unit of that number was named.
pub fn keys(answers: &[Option<&str>]) -> Vec<Option<String>> {
    let keys: Vec<Option<Key>> = answers.iter().map(|a| a.and_then(normal::key)).collect();
    keys.iter()
        .map(|key| {
            let key = key.as_ref()?;
            if key.unit.is_some() || !key.number {
                return Some(key.full());
            }
            let mut units = keys
                .iter()
                .flatten()
                .filter(|k| k.number && k.value == key.value)
                .filter_map(|k| k.unit.as_ref());
            let unit = units.next();
            let unit = unit.filter(|unit| units.all(|other| other == *unit)).cloned();
            Some(Key { unit, ..key.clone() }.full())
        })
        .collect()
}

/// One answer's key on its own, for comparing with a reference answer.
pub fn key(answer: &str) -> Option<String> {
    normal::key(answer).map(|key| key.full())
}

#[cfg(test)]
mod tests;
