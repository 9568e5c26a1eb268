//! Learns which state an answer issues, before the client can send it back.
//!
//! In: the bytes of one answer as they are passed on. Out: its references, noted in the map of issuers.

use std::sync::Arc;

use sseismo_capture::budget::BUDGET;
use sseismo_capture::sse::Decoder;
use sseismo_trace::{Body as Event, Chunk};

use super::pieces::Pieces;
use super::{Affinity, references};

/// A whole answer larger than this issues nothing that is learned.
const MAX_WHOLE: usize = 16 << 20;

/// Listens to one answer.
#[derive(Debug)]
pub struct Learner {
    affinity: Arc<Affinity>,
    organisation: Arc<str>,
    how: How,
    pieces: Pieces,
}

#[derive(Debug)]
enum How {
    Events(Decoder),
    Whole(Vec<u8>),
    /// It was too large, or it is over.
    Deaf,
}

impl Learner {
    /// Listens to an answer of `organisation`, which comes as events or as one JSON document.
    pub fn new(affinity: Arc<Affinity>, organisation: Arc<str>, events: bool) -> Self {
        let how = if events { How::Events(Decoder::new(&BUDGET)) } else { How::Whole(Vec::new()) };
        Self { affinity, organisation, how, pieces: Pieces::default() }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let Self { affinity, organisation, how, pieces } = self;
        let listens = match how {
            How::Events(decoder) => decoder
                .push(Chunk { bytes, read: 0, at: None }, |frame| {
                    if let Event::Event { data, .. } = &frame.body {
                        learn(affinity, organisation, pieces, data.as_bytes());
                    }
                })
                .is_ok(),
            How::Whole(body) => {
                body.extend_from_slice(bytes);
                body.len() <= MAX_WHOLE
            }
            How::Deaf => true,
        };
        if !listens {
            self.how = How::Deaf;
        }
    }

    /// The answer is over.
    pub fn finish(&mut self) {
        let Self { affinity, organisation, how, pieces } = self;
        match std::mem::replace(how, How::Deaf) {
            How::Events(decoder) => {
                decoder.finish(|frame| {
                    if let Event::Event { data, .. } = &frame.body {
                        learn(affinity, organisation, pieces, data.as_bytes());
                    }
                });
            }
            How::Whole(body) => learn(affinity, organisation, pieces, &body),
            How::Deaf => {}
        }
        affinity.issued(&pieces.finish(), organisation);
    }
}

fn learn(affinity: &Affinity, organisation: &Arc<str>, pieces: &mut Pieces, json: &[u8]) {
    let mut keys: Vec<_> = references::issued(json).iter().map(|reference| affinity.key(reference)).collect();
    keys.extend(pieces.push(affinity, json));
    affinity.issued(&keys, organisation);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::Issuer;

    fn issuer(affinity: &Affinity, reference: &str) -> Issuer {
        affinity.issuer(&[affinity.key(reference)])
    }

    #[test]
    fn events_and_whole_answers_are_learned_however_they_are_cut() {
        let events = "event: response.output_item.done\ndata: {\"item\":{\"type\":\"reasoning\",\"id\":\"rs_1\",\
                      \"encrypted_content\":\"gAAA\"}}\n\ndata: {\"delta\":{\"type\":\"signature_delta\",\
                      \"signature\":\"Eq\"}}\n\ndata: {\"delta\":{\"type\":\"signature_delta\",\"signature\":\"B=\"}}";
        let whole = "{\"object\":\"response\",\"id\":\"9f\",\"output\":[{\"id\":\"rs_1\",\"encrypted_content\":\"gAAA\"}]}";
        for (text, streamed, expected) in [
            (events, true, &["rs_1", "gAAA", "Eq", "B=", "EqB="][..]),
            (whole, false, &["9f", "rs_1", "gAAA"]),
        ] {
            for size in [1, 7, 10_000] {
                let affinity = Arc::new(Affinity::in_memory());
                let mut learner = Learner::new(Arc::clone(&affinity), "a".into(), streamed);
                text.as_bytes().chunks(size).for_each(|piece| learner.push(piece));
                learner.finish();
                for reference in expected {
                    assert_eq!(
                        issuer(&affinity, reference),
                        Issuer::One("a".into()),
                        "{reference} in {size}"
                    );
                }
                assert_eq!(issuer(&affinity, "reasoning"), Issuer::Unknown);
            }
        }
    }

    #[test]
    fn an_answer_that_is_too_large_is_passed_over() {
        let affinity = Arc::new(Affinity::in_memory());
        let mut learner = Learner::new(Arc::clone(&affinity), "a".into(), false);
        learner.push(b"{\"object\":\"response\",\"id\":\"9f\",\"x\":\"");
        learner.push(&vec![b'x'; MAX_WHOLE]);
        learner.push(b"\"}");
        learner.finish();
        assert_eq!(issuer(&affinity, "9f"), Issuer::Unknown);
    }
}
