//! One response body, from its bytes to its deltas and its part of the summary.
//!
//! In: what the response's head says, then the [`Chunk`]s of the decoded body. Out: one [`Delta`] per event
//! or comment as soon as it is complete, and at the end the fields of [`Summary`] that a body can tell. The
//! tap, the recorder, the importers of raw streams and `sseismo capture` all call this, so that a stream
//! means the same wherever it was met. No clock: times are those of the chunks, or `None`.
//!
//! The framing (server-sent events, NDJSON, one whole JSON answer) follows the content type, else the first
//! byte. The dialect follows the first event that can only be of one API, else the request's path. No text
//! is kept unless [`Answer::keep_words`] asks for it; a whole answer is held until it ends.

use sseismo_trace::{Api, Body, Chunk, Delta, Frame, Kind, Micros, Outcome, Phase, Summary};

use crate::budget::{BUDGET, Budget, Held, OverBudget};
use crate::dialect::{self, Dialect, Learnt, Said};
use crate::{ndjson, sse};

/// Characters per token: a rule of thumb for common English text, as OpenAI's tokenizer page gives it
/// (<https://platform.openai.com/tokenizer>), not a measurement of the model at hand. Code and other scripts
/// differ widely, hence the columns that it fills are called estimates.
const CHARS_PER_TOKEN: u64 = 4;

/// What is known before the body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head<'a> {
    /// Path of the request, a query allowed; empty when unknown.
    pub path: &'a str,
    /// `content-type` of the response.
    pub content_type: Option<&'a str>,
    /// Status of the response.
    pub status: Option<u16>,
}

/// What was met in a body, beside its deltas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events, comments not counted.
    pub events: u64,
    /// Comment lines.
    pub comments: u64,
    /// Events whose data no dialect could read; they became `meta`.
    pub unreadable: u64,
    /// Frames with bytes that are not UTF-8.
    pub invalid_utf8: u64,
    /// Bytes after the last complete event.
    pub tail_bytes: u64,
    /// The buffer budget was used up, and the rest of the body was not analysed.
    pub over_budget: bool,
}

/// Text of one kind in one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// The event, as [`Delta::seq`] counts; 0 of a whole answer, which has no events.
    pub seq: u32,
    /// What the text is.
    pub kind: Kind,
    /// The text; never empty.
    pub text: String,
}

/// A response body that is being read.
///
/// ```
/// use sseismo_capture::answer::{Answer, Head};
/// use sseismo_trace::{Chunk, Kind, Micros, Outcome, Summary};
///
/// let head = Head { path: "/v1/chat/completions", content_type: Some("text/event-stream"), status: Some(200) };
/// let mut answer = Answer::new(&head);
/// let mut deltas = Vec::new();
/// let reads: [&[u8]; 2] = [
///     b"data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"reasoning_content\":\"Hm",
///     b"mm\"}}]}\n\ndata: [DONE]\n\n",
/// ];
/// for (read, bytes) in (0..).zip(reads) {
///     let at = Some(Micros(i64::from(read) * 1000));
///     answer.push(Chunk { bytes, read, at }, |delta| deltas.push(delta));
/// }
/// let mut summary = Summary::default();
/// let counts = answer.finish(&mut summary, |delta| deltas.push(delta));
///
/// assert_eq!(deltas[0].kind, Kind::Reasoning);
/// assert_eq!((deltas[0].chars, deltas[0].first_read, deltas[0].extra_reads), (4, Some(0), 1));
/// assert_eq!(deltas[0].t, Some(Micros(1000)));
/// assert_eq!(counts.events, 2);
/// assert_eq!(summary.outcome, Outcome::Completed);
/// assert_eq!(summary.model_served.as_deref(), Some("m"));
/// assert_eq!(summary.usage.reasoning, None);
/// assert_eq!(summary.reasoning_tokens_est, Some(1));
/// ```
#[derive(Debug)]
pub struct Answer {
    framing: Framing,
    reader: Reader,
    budget: &'static Budget,
    status: Option<u16>,
    first_byte: Option<Micros>,
    end: Option<Micros>,
}

#[derive(Debug)]
enum Framing {
    /// No content type; the first byte that is not blank decides.
    Open,
    Sse(sse::Decoder),
    Ndjson(ndjson::Decoder),
    /// One JSON value, read at its end.
    Whole(Held),
    /// Something else, or over budget: passed on unanalysed.
    Off,
}

/// Frames to deltas: the part that does not depend on the framing.
#[derive(Debug, Default)]
struct Reader {
    /// By the request's path.
    expected: Option<&'static dyn Dialect>,
    /// By content, once an event has told.
    spoken: Option<&'static dyn Dialect>,
    learnt: Learnt,
    counts: Counts,
    phase: Phase,
    seq: u32,
    first_reasoning: Option<Micros>,
    first_output: Option<Micros>,
    /// Text that waits to be taken; `None` when nobody asked for it.
    words: Option<Vec<Words>>,
}

impl Answer {
    /// A body at its start, charged to the process's budget.
    pub fn new(head: &Head<'_>) -> Self {
        Self::within(head, &BUDGET)
    }

    /// The same, charged to `budget`.
    pub fn within(head: &Head<'_>, budget: &'static Budget) -> Self {
        Self {
            framing: Framing::new(head.content_type, budget),
            reader: Reader { expected: dialect::by_path(head.path), ..Reader::default() },
            budget,
            status: head.status,
            first_byte: None,
            end: None,
        }
    }

    /// Keeps the text from here on, until [`Answer::take_words`] or [`Answer::finish_with_words`] takes it.
    #[must_use]
    pub fn keep_words(mut self) -> Self {
        self.reader.words = Some(Vec::new());
        self
    }

    /// The text that came since it was last taken; nothing unless it is kept.
    pub fn take_words(&mut self) -> Vec<Words> {
        self.reader.words.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes the next bytes of the body and hands on the deltas that they complete. Over budget, the rest
    /// of the body is ignored and [`Counts::over_budget`] says so.
    pub fn push(&mut self, chunk: Chunk<'_>, mut each: impl FnMut(Delta)) {
        if chunk.bytes.is_empty() {
            return;
        }
        if self.first_byte.is_none() {
            self.first_byte = chunk.at;
        }
        self.end = chunk.at;
        if matches!(self.framing, Framing::Open) {
            self.framing = Framing::sniff(chunk.bytes, self.budget);
        }
        let reader = &mut self.reader;
        let taken = match &mut self.framing {
            Framing::Sse(decoder) => decoder.push(chunk, |frame| each(reader.delta(&frame))),
            Framing::Ndjson(decoder) => decoder.push(chunk, |frame| each(reader.delta(&frame))),
            Framing::Whole(held) => held.extend(chunk.bytes),
            Framing::Open | Framing::Off => Ok(()),
        };
        if let Err(OverBudget) = taken {
            self.framing = Framing::Off;
            reader.counts.over_budget = true;
        }
    }

    /// Ends the body: hands on what its end completes and fills the fields of `summary` that the body
    /// tells. `outcome` is `Truncated` when the API's own end was not seen; who knows that the client left
    /// or a timer fired, says so afterwards. Fields that the body does not tell are left alone.
    pub fn finish(self, summary: &mut Summary, each: impl FnMut(Delta)) -> Counts {
        self.finish_with_words(summary, each).0
    }

    /// The same, with the text that was kept and not yet taken. Only here comes that of a whole answer.
    pub fn finish_with_words(
        mut self,
        summary: &mut Summary,
        mut each: impl FnMut(Delta),
    ) -> (Counts, Vec<Words>) {
        let reader = &mut self.reader;
        let mut streamed = true;
        match self.framing {
            Framing::Sse(decoder) => {
                reader.counts.tail_bytes = decoder.finish(|frame| each(reader.delta(&frame)));
            }
            Framing::Ndjson(decoder) => {
                decoder.finish(|frame| each(reader.delta(&frame)));
            }
            Framing::Whole(held) => {
                let (body, _) = sse::text(held.as_slice());
                streamed = !reader.whole(&body) && reader.lines(&body, &mut each);
            }
            Framing::Open | Framing::Off => {}
        }
        if self.first_byte.is_some() || reader.api().is_some() {
            summary.streamed = Some(streamed);
        }
        summary.status = self.status.or(summary.status);
        summary.t_first_byte = self.first_byte;
        summary.t_end = self.end;
        self.reader.tell(self.status, summary);
        (self.reader.counts, self.reader.words.unwrap_or_default())
    }

    /// The API, as far as it is known by now.
    pub fn api(&self) -> Option<Api> {
        self.reader.api()
    }

    /// Bytes of memory that the stream takes now, its buffers included.
    pub fn memory(&self) -> usize {
        let buffers = match &self.framing {
            Framing::Sse(decoder) => decoder.memory() - size_of::<sse::Decoder>(),
            Framing::Ndjson(decoder) => decoder.memory() - size_of::<ndjson::Decoder>(),
            Framing::Whole(held) => held.capacity(),
            Framing::Open | Framing::Off => 0,
        };
        let names = [&self.reader.learnt.model, &self.reader.learnt.effort];
        let buffers = buffers + self.reader.learnt.form.memory();
        size_of::<Self>() + buffers + names.into_iter().flatten().map(String::capacity).sum::<usize>()
    }
}

impl Framing {
    fn new(content_type: Option<&str>, budget: &'static Budget) -> Self {
        let Some(content_type) = content_type else { return Self::Open };
        let essence = content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
        match essence.as_str() {
            "text/event-stream" => Self::Sse(sse::Decoder::new(budget)),
            "application/x-ndjson" | "application/jsonl" | "application/stream+json" => {
                Self::Ndjson(ndjson::Decoder::new(budget))
            }
            "application/json" => Self::Whole(Held::new(budget)),
            "" | "text/plain" | "application/octet-stream" => Self::Open,
            _ => Self::Off,
        }
    }

    fn sniff(bytes: &[u8], budget: &'static Budget) -> Self {
        match bytes.trim_ascii_start().first() {
            None => Self::Open,
            Some(b'{' | b'[') => Self::Whole(Held::new(budget)),
            Some(_) => Self::Sse(sse::Decoder::new(budget)),
        }
    }
}

impl Reader {
    fn api(&self) -> Option<Api> {
        self.spoken.or(self.expected).map(Dialect::api)
    }

    fn delta(&mut self, frame: &Frame<'_>) -> Delta {
        let said = match &frame.body {
            Body::Comment(_) => {
                self.counts.comments += 1;
                Said::new(Kind::Comment)
            }
            Body::Event { name, data } => {
                self.counts.events += 1;
                self.event(name, data)
            }
        };
        self.counts.invalid_utf8 += u64::from(frame.invalid_utf8);
        self.phase = said.phase.or(phase_of(said.kind)).unwrap_or(self.phase);
        match said.kind {
            Kind::Reasoning | Kind::Summary => self.first_reasoning = self.first_reasoning.or(frame.at),
            Kind::Text | Kind::Tool => self.first_output = self.first_output.or(frame.at),
            _ => {}
        }
        let delta = Delta {
            seq: self.seq,
            first_read: Some(frame.first_read),
            extra_reads: u16::try_from(frame.last_read.saturating_sub(frame.first_read)).unwrap_or(u16::MAX),
            t: frame.at,
            kind: said.kind,
            phase: self.phase,
            item_index: said.item_index,
            provider_seq: said.provider_seq,
            provider_ts: said.provider_ts,
            chars: said.chars,
            tokens: said.tokens,
            tokens_est: None,
            wire_bytes: u32::try_from(frame.bytes.end - frame.bytes.start).unwrap_or(u32::MAX),
            pad_bytes: said.padding,
        };
        self.seq = self.seq.saturating_add(1);
        Delta { tokens_est: (delta.is_content() && delta.chars > 0).then(|| estimate(delta.chars)), ..delta }
    }

    fn event(&mut self, name: &str, data: &str) -> Said {
        if data == "[DONE]" {
            self.learnt.end(Outcome::Completed);
            return Said::new(Kind::Done).phase(Phase::Tail);
        }
        if self.spoken.is_none() {
            self.spoken = dialect::by_content(data);
        }
        let blank = blank_padding(data);
        let Some(dialect) = self.spoken.or(self.expected) else {
            return Said { padding: blank, ..Said::new(Kind::Meta) };
        };
        self.hear(dialect, name, data);
        let said = dialect.event(name, data, &mut self.learnt).unwrap_or_else(|_| {
            self.counts.unreadable += 1;
            Said::new(Kind::Meta)
        });
        Said { padding: said.padding + blank, ..said }
    }

    /// Keeps the text of an event or of a whole answer, when it is asked for.
    fn hear(&mut self, dialect: &dyn Dialect, name: &str, json: &str) {
        let (seq, Some(words)) = (self.seq, &mut self.words) else { return };
        // What cannot be read has no text, and is counted where it is measured.
        let Ok(json) = serde_json::from_str(json) else { return };
        dialect.words(name, &json, &self.learnt, &mut |kind, text| match words.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if (last.seq, last.kind) == (seq, kind) => last.text.push_str(text),
            _ => words.push(Words { seq, kind, text: text.to_owned() }),
        });
    }

    /// Reads a whole answer. False when it is not one JSON value: NDJSON without a content type begins like
    /// one.
    fn whole(&mut self, body: &str) -> bool {
        self.spoken = dialect::by_content(body);
        let Some(dialect) = self.spoken.or(self.expected) else { return true };
        self.hear(dialect, "", body);
        dialect.whole(body, &mut self.learnt).is_ok()
    }

    /// Reads what was held for one JSON value as lines. When they came, nobody knows by now. False when there
    /// is but one line, so that the body was a broken answer.
    fn lines(&mut self, body: &str, each: &mut impl FnMut(Delta)) -> bool {
        if body.trim_ascii().lines().nth(1).is_none() {
            self.counts.unreadable += 1;
            return false;
        }
        let mut from = 0;
        for line in body.split_inclusive('\n') {
            let bytes = from..from + line.len() as u64;
            from = bytes.end;
            let data = line.trim_ascii();
            if data.is_empty() {
                continue;
            }
            let body = Body::Event { name: "".into(), data: data.into() };
            let delta = self.delta(&Frame {
                body,
                bytes,
                first_read: 0,
                last_read: 0,
                at: None,
                invalid_utf8: false,
            });
            each(Delta { first_read: None, ..delta });
        }
        true
    }

    fn tell(&self, status: Option<u16>, summary: &mut Summary) {
        let learnt = &self.learnt;
        summary.api = self.api().or(summary.api);
        summary.model_served = learnt.model.clone().or(summary.model_served.take());
        summary.effort = summary.effort.take().or_else(|| learnt.effort.clone());
        summary.usage = learnt.usage;
        summary.reasoning_tokens_est =
            (learnt.reasoning_chars > 0).then(|| learnt.reasoning_chars.div_ceil(CHARS_PER_TOKEN));
        summary.t_first_reasoning = self.first_reasoning;
        summary.t_first_output = self.first_output;
        summary.outcome = if status.is_some_and(|status| status >= 400) {
            Outcome::Failed
        } else if learnt.outcome == Outcome::Unknown && self.api().is_some() && !self.counts.over_budget {
            Outcome::Truncated
        } else {
            learnt.outcome
        };
    }
}

/// The phase that content of `kind` means.
fn phase_of(kind: Kind) -> Option<Phase> {
    match kind {
        Kind::Reasoning => Some(Phase::Reasoning),
        Kind::Summary => Some(Phase::Summary),
        Kind::Text => Some(Phase::Output),
        Kind::Tool => Some(Phase::Tool),
        Kind::Usage | Kind::Ping | Kind::Comment | Kind::Error | Kind::Done | Kind::Meta => None,
    }
}

/// Tokens of one event, at least one.
#[expect(clippy::cast_possible_truncation, reason = "a quarter of a u32 fits")]
fn estimate(chars: u32) -> u32 {
    ((u64::from(chars) + CHARS_PER_TOKEN / 2) / CHARS_PER_TOKEN).max(1) as u32
}

/// Blanks between the end of a JSON object's content and the end of the data.
fn blank_padding(data: &str) -> u32 {
    let trimmed = data.trim_ascii_end();
    let inner = trimmed.strip_suffix('}').map_or(trimmed, str::trim_ascii_end);
    let brace = usize::from(trimmed.len() > inner.len() && trimmed.ends_with('}'));
    dialect::field::small(data.len() - inner.len() - brace)
}

#[cfg(test)]
mod tests;
