//! References that come in pieces.
//!
//! In: the JSON of one event after the other. Out: keys of what the pieces of one block make together, since some
//! clients send that back. Signatures of thinking come in `signature_delta`s, encrypted reasoning behind the Chat
//! API in `reasoning_details`. A text is hashed as it comes and is kept nowhere.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;

use super::{Affinity, PartialKey, StateKey};

/// One of these words stands in every event with a piece.
const WORDS: [&str; 2] = ["signature_delta", "reasoning_details"];

/// Blocks of one answer whose pieces are joined; of more, each piece counts alone.
const MOST: usize = 1_024;

/// The blocks of one answer.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    open: HashMap<Place, Block>,
    /// Pieces came since the last keys were given.
    fresh: bool,
}

/// Where a block stands: the choice, the block, and whether it is a signature.
type Place = (u64, u64, bool);

#[derive(Debug)]
struct Block {
    key: PartialKey,
    pieces: u32,
    fresh: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Event<'a> {
    index: u64,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice<'a> {
    index: u64,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow)]
    signature: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reasoning_details: Vec<Detail<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Detail<'a> {
    index: u64,
    #[serde(borrow)]
    data: Option<Cow<'a, str>>,
    #[serde(borrow)]
    signature: Option<Cow<'a, str>>,
}

impl Pieces {
    /// Takes one event. The keys are those of blocks that it does not go on with.
    pub(super) fn push(&mut self, affinity: &Affinity, json: &[u8]) -> Vec<StateKey> {
        let may_hold = WORDS.iter().any(|word| memchr::memmem::find(json, word.as_bytes()).is_some());
        let event = may_hold.then(|| serde_json::from_slice::<Event<'_>>(json).ok()).flatten();
        if let Some(event) = event {
            self.take(affinity, &event);
            return Vec::new();
        }
        if std::mem::take(&mut self.fresh) { self.joined() } else { Vec::new() }
    }

    /// The answer is over.
    pub(super) fn finish(&mut self) -> Vec<StateKey> {
        self.joined()
    }

    fn take(&mut self, affinity: &Affinity, event: &Event<'_>) {
        if let Some(signature) = event.delta.as_ref().and_then(|delta| delta.signature.as_deref()) {
            self.piece(affinity, (0, event.index, true), signature);
        }
        for choice in &event.choices {
            for detail in choice.delta.iter().flat_map(|delta| &delta.reasoning_details) {
                for (text, signature) in [(&detail.data, false), (&detail.signature, true)] {
                    if let Some(text) = text {
                        self.piece(affinity, (choice.index, detail.index, signature), text);
                    }
                }
            }
        }
    }

    fn piece(&mut self, affinity: &Affinity, place: Place, text: &str) {
        if text.is_empty() || (self.open.len() >= MOST && !self.open.contains_key(&place)) {
            return;
        }
        let begun = || Block { key: affinity.begin(), pieces: 0, fresh: false };
        let block = self.open.entry(place).or_insert_with(begun);
        block.key.push(text);
        block.pieces += 1;
        block.fresh = block.pieces > 1; // one piece alone is found without us
        self.fresh |= block.fresh;
    }

    fn joined(&mut self) -> Vec<StateKey> {
        let joined = |block: &mut Block| std::mem::take(&mut block.fresh).then(|| block.key.key());
        self.open.values_mut().filter_map(joined).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(affinity: &Affinity, events: &[&str]) -> Vec<StateKey> {
        let mut pieces = Pieces::default();
        let mut keys: Vec<_> =
            events.iter().flat_map(|event| pieces.push(affinity, event.as_bytes())).collect();
        keys.extend(pieces.finish());
        keys
    }

    #[test]
    fn pieces_of_one_block_are_joined() {
        let affinity = Affinity::in_memory();
        let delta = |index: u32, text: &str| {
            format!(
                r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"signature_delta","signature":"{text}"}}}}"#
            )
        };
        let [a, b, c] = [delta(0, "Eq"), delta(1, "other"), delta(0, "B=")];
        let stop = r#"{"type":"content_block_stop","index":0}"#;
        assert_eq!(keys(&affinity, &[&a, &b, &c, stop]), [affinity.key("EqB=")]);
        assert_eq!(keys(&affinity, &[&a, &c]), [affinity.key("EqB=")], "the answer broke off");
        assert!(keys(&affinity, &[&a, stop]).is_empty(), "one piece is whole");
    }

    #[test]
    fn details_of_the_chat_api_are_joined_by_choice_and_place() {
        let affinity = Affinity::in_memory();
        let chunk = |index: u32, data: &str| {
            format!(
                r#"{{"choices":[{{"index":0,"delta":{{"content":"","reasoning_details":[{{"type":"reasoning.encrypted","index":{index},"data":"{data}"}}]}}}}]}}"#
            )
        };
        let [a, b, c] = [chunk(0, "ZZ"), chunk(1, "Y"), chunk(0, "zz")];
        assert_eq!(keys(&affinity, &[&a, &b, &c, "[DONE]"]), [affinity.key("ZZzz")]);
    }
}
