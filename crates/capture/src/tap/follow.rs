//! One answer's body, from pieces of the tap to the events of its notes.
//!
//! In: what arrived, piece by piece, holes included. Out: notes of events, and at the end the body's part of the
//! summary. No clock, no queue and no task: [`observer`](super::observer) owns those.

use bytes::Bytes;
use sseismo_trace::{Attribution, Chunk, ContentCheck, Delta, Kind, Micros, Outcome, Summary};

use super::anomaly::Gaps;
use super::body::{End, split_at_blank_line};
use super::decompress::Decompressor;
use super::observer::{Keep, Note, RawPiece};
use super::wire::Handle;
use crate::answer::{Answer, Head, Words};

/// One body on its way through decompression, framing and dialect.
#[derive(Debug)]
pub(super) struct Follow {
    /// `None` once it is finished.
    answer: Option<Answer>,
    /// `None` for an encoding that is not known or a body that broke its own.
    decompressor: Option<Decompressor>,
    started: Micros,
    /// With `notes_only`, those that are not noted.
    pub(super) deltas: Vec<Delta>,
    pub(super) gaps: Gaps,
    pub(super) dropped: u64,
    /// Events were lost: what follows up to the next blank line belongs to one of them.
    resync: bool,
    pub(super) last_read: u32,
    /// The first read that is still needed.
    pub(super) needs: u32,
    /// Some bytes could not be tied to a read.
    untied: bool,
    keep: Keep,
    raw: Vec<RawPiece>,
    words: Vec<Words>,
    /// What was answered so far, where it should be JSON.
    json: Option<String>,
    /// How many deltas, and the reads up to which one, were noted.
    noted: (usize, u32),
}

impl Follow {
    pub(super) fn new(
        head: &Head<'_>,
        encoding: Option<&str>,
        started: Micros,
        head_read: u32,
        keep: Keep,
    ) -> Self {
        let answer = Answer::new(head);
        Self {
            answer: Some(if keep.text { answer.keep_words() } else { answer }),
            decompressor: Decompressor::of(encoding),
            started,
            deltas: Vec::new(),
            gaps: Gaps::default(),
            dropped: 0,
            resync: false,
            last_read: head_read,
            needs: head_read,
            untied: false,
            keep,
            raw: Vec::new(),
            words: Vec::new(),
            json: None,
            noted: (0, head_read),
        }
    }

    /// Holds the answer against JSON.
    pub(super) fn expect_json(mut self) -> Self {
        self.answer = self.answer.map(Answer::keep_words);
        self.json = Some(String::new());
        self
    }

    /// Words that came: kept, where that was asked for.
    fn hear(&mut self, words: Vec<Words>) {
        if let Some(json) = &mut self.json {
            let said = words.iter().filter(|words| words.kind == Kind::Text);
            said.for_each(|words| json.push_str(&words.text));
        }
        if self.keep.text {
            self.words.extend(words);
        }
    }

    /// Whether a complete answer is what was asked for.
    fn check(&self, outcome: Outcome) -> ContentCheck {
        let whole = outcome == Outcome::Completed && self.dropped == 0;
        match self.json.as_deref().map(str::trim).filter(|_| whole) {
            None => ContentCheck::NotChecked,
            Some("") => ContentCheck::Empty,
            Some(json) if serde_json::from_str::<serde::de::IgnoredAny>(json).is_ok() => ContentCheck::Ok,
            Some(_) => ContentCheck::InvalidJson,
        }
    }

    pub(super) fn bytes(&mut self, bytes: Bytes, tied_to: Option<u32>, at: Micros) {
        let t = at.since(self.started);
        let read = tied_to.unwrap_or(0);
        self.untied |= tied_to.is_none();
        self.last_read = self.last_read.max(read);
        let mut rest = &bytes[..];
        if self.resync {
            let Some((_, after)) = split_at_blank_line(rest) else { return };
            (self.resync, rest) = (false, after);
            self.dropped += 1;
        }
        let Self { answer: Some(answer), deltas, gaps, .. } = self else { return };
        let pushed = self.decompressor.as_mut().map(|decompressor| {
            decompressor.push(rest, |bytes| {
                answer.push(Chunk { bytes, read, at: Some(t) }, |delta| {
                    gaps.push(&delta);
                    deltas.push(delta);
                });
            })
        });
        let words = answer.take_words();
        self.hear(words);
        if matches!(pushed, Some(Err(_))) {
            self.decompressor = None;
        }
        if self.keep.raw {
            self.raw.push(RawPiece { read: tied_to, t, bytes });
        }
    }

    pub(super) fn dropped(&mut self, events: u64) {
        self.dropped += events;
        if matches!(self.decompressor, Some(Decompressor::Identity)) {
            // Ends the event that was cut in two, whose half must not be taken for one.
            if let Some(answer) = &mut self.answer {
                answer.push(Chunk { bytes: b"\n\n", read: self.last_read, at: None }, |_| {});
                drop(answer.take_words());
            }
            self.resync = true;
        } else {
            self.decompressor = None; // a compressed stream with a hole cannot be read on
        }
    }

    /// How much is to be noted.
    pub(super) fn waiting(&self) -> usize {
        self.deltas.len() - self.noted.0 + self.raw.len() + self.words.len()
    }

    /// The events that came since the last note, with the reads that brought them; `None` when there are none.
    pub(super) fn take(&mut self, stream_id: u64, handle: Option<&Handle>) -> Option<Note> {
        if self.waiting() == 0 {
            return None;
        }
        let (from, read) = std::mem::replace(&mut self.noted, (self.deltas.len(), self.last_read + 1));
        let reads = handle.map(|handle| handle.ledger.reads(read, self.last_read)).unwrap_or_default();
        let deltas = if self.keep.notes_only {
            self.noted.0 = 0;
            if let Some(handle) = handle {
                let needed = std::mem::replace(&mut self.needs, self.last_read);
                handle.ledger.go_on(needed, self.needs);
            }
            std::mem::take(&mut self.deltas)
        } else {
            self.deltas[from..].to_vec()
        };
        let (raw, words) = (std::mem::take(&mut self.raw), std::mem::take(&mut self.words));
        Some(Note::Events { stream_id, deltas, reads, raw, words })
    }

    /// Ends the body and says what it told.
    pub(super) fn finish(&mut self, mut summary: Summary, end: End) -> Summary {
        let Some(answer) = self.answer.take() else { return summary };
        let (deltas, gaps) = (&mut self.deltas, &mut self.gaps);
        summary.outcome = Outcome::Unknown;
        let (_, words) = answer.finish_with_words(&mut summary, |delta| {
            gaps.push(&delta);
            deltas.push(delta);
        });
        self.hear(words);
        let unread = self.decompressor.is_none() || self.dropped > 0;
        summary.outcome = match (summary.outcome, end) {
            (Outcome::Unknown | Outcome::Truncated, End::Left) => Outcome::ClientGone,
            (Outcome::Unknown | Outcome::Truncated, End::Broken) => Outcome::Truncated,
            (Outcome::Truncated, End::Complete) if unread => Outcome::Unknown,
            (outcome, _) => outcome,
        };
        if self.json.is_some() {
            summary.content_check = self.check(summary.outcome);
        }
        if self.untied || summary.attribution == Attribution::None {
            summary.attribution = Attribution::None;
            for delta in &mut self.deltas {
                (delta.first_read, delta.extra_reads) = (None, 0);
            }
        }
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tap::body::Piece;
    use crate::tap::observer::Record;

    fn event(word: &str) -> Bytes {
        Bytes::from(format!("data: {{\"choices\":[{{\"delta\":{{\"reasoning_content\":\"{word}\"}}}}]}}\n\n"))
    }

    fn follow(pieces: Vec<Piece>) -> Record {
        let ended = |mut body: Follow, how| {
            let summary = body.finish(Summary::default(), how);
            let summary = Summary { events_dropped: body.dropped, ..summary };
            Record { summary, deltas: body.deltas, ..Record::default() }
        };
        let head =
            Head { path: "/v1/chat/completions", content_type: Some("text/event-stream"), status: Some(200) };
        let mut body = Follow::new(&head, None, Micros(0), 0, Keep::default());
        for piece in pieces {
            match piece {
                Piece::Bytes { bytes, read, at } => body.bytes(bytes, read, at),
                Piece::Dropped { events } => body.dropped(events),
                Piece::End { how, .. } => return ended(body, how),
            }
        }
        ended(body, End::Left)
    }

    fn piece(bytes: impl Into<Bytes>) -> Piece {
        Piece::Bytes { bytes: bytes.into(), read: Some(0), at: Micros(0) }
    }

    #[test]
    fn after_a_hole_whole_events_are_read_again_and_halves_are_never_taken_for_events() {
        let (cut, other) = (event("cut"), event("other"));
        let record = follow(vec![
            piece(event("one")),
            piece(cut.slice(..20)),
            Piece::Dropped { events: 3 },
            piece(other.slice(10..)),
            piece(event("two")),
            piece("data: [DONE]\n\n"),
            Piece::End { at: Micros(0), how: End::Complete },
        ]);
        let kinds: Vec<_> = record.deltas.iter().map(|delta| (delta.kind, delta.chars)).collect();
        assert_eq!(kinds, [(Kind::Reasoning, 3), (Kind::Reasoning, 3), (Kind::Done, 0)]);
        assert_eq!(record.summary.events_dropped, 4);
        assert_eq!(record.summary.outcome, Outcome::Completed);
    }

    #[test]
    fn an_answer_that_should_be_json_is_held_against_it_and_forgotten() {
        let head =
            Head { path: "/v1/chat/completions", content_type: Some("text/event-stream"), status: Some(200) };
        let check = |words: &[&str], last: &'static str| {
            let mut body = Follow::new(&head, None, Micros(0), 0, Keep::default()).expect_json();
            for words in words {
                let json = serde_json::json!({"choices": [{"delta": {"content": words}}]});
                body.bytes(Bytes::from(format!("data: {json}\n\n")), Some(0), Micros(0));
            }
            body.bytes(Bytes::from_static(last.as_bytes()), Some(0), Micros(0));
            let summary = body.finish(Summary::default(), End::Complete);
            assert!(body.words.is_empty());
            summary.content_check
        };
        let done = "data: [DONE]\n\n";
        assert_eq!(check(&["{\"a\": ", "[1, 2]} "], done), ContentCheck::Ok);
        assert_eq!(check(&["{\"a\": ", "[1, 2"], done), ContentCheck::InvalidJson);
        assert_eq!(check(&[" "], done), ContentCheck::Empty);
        assert_eq!(check(&["{\"a\": "], ": cut\n\n"), ContentCheck::NotChecked, "it is not whole");
    }

    #[test]
    fn who_ended_a_stream_is_told_apart() {
        let outcome = |how, last: &'static str| {
            follow(vec![piece(event("one")), piece(last), Piece::End { at: Micros(0), how }]).summary.outcome
        };
        assert_eq!(outcome(End::Complete, "data: [DONE]\n\n"), Outcome::Completed);
        assert_eq!(outcome(End::Left, "data: [DONE]\n\n"), Outcome::Completed);
        assert_eq!(outcome(End::Left, ": more\n\n"), Outcome::ClientGone);
        assert_eq!(outcome(End::Broken, ": more\n\n"), Outcome::Truncated);
        assert_eq!(outcome(End::Complete, ": more\n\n"), Outcome::Truncated);
    }
}
