//! Usage that the caller did not ask for: asked for upstream, and taken out again on the way back.
//!
//! In: a Chat Completions request; later its answer's bytes. Out: the request with
//! `stream_options.include_usage`; the answer without its `usage` fields and without the chunk that carries
//! nothing else, all other bytes as they came. Responses and Messages always tell their usage.
//!
//! Why: without usage nothing tells how many reasoning tokens were billed. Why the whole field goes again:
//! with the option, OpenAI writes `"usage":null` into every chunk and adds one chunk with an empty list of
//! choices, over which clients that never asked for it fall.

use std::ops::Range;

use bytes::Bytes;
use memchr::memmem;
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::value::RawValue;
use sseismo_capture::budget::BUDGET;
use sseismo_capture::sse::Decoder;
use sseismo_trace::{Api, Body, Chunk, Frame};

use crate::rewrite::Members;

const KEY: &[u8] = b"\"usage\"";

/// Asks for usage where the API sends it only on request. Returns whether the answer must be
/// [stripped](Strip) for it.
pub fn ask(api: Api, members: &mut Members<'_>) -> bool {
    if api != Api::Chat || members.flag("stream") != Some(true) {
        return false;
    }
    let options = match members.get("stream_options") {
        None | Some("null") => Ok(Members::default()),
        Some(options) => Members::read(options.as_bytes()),
    };
    let Ok(mut options) = options else { return false }; // the upstream will say what is wrong
    if options.flag("include_usage") == Some(true) {
        return false;
    }
    options.set("include_usage", "true".to_owned());
    let options = String::from_utf8_lossy(&options.write()).into_owned();
    members.set("stream_options", options);
    true
}

/// Takes usage out of a stream of chat chunks.
#[derive(Debug)]
pub struct Strip {
    /// `None` once the buffer budget was used up: from there on everything passes.
    decoder: Option<Decoder>,
    /// Bytes of the event that is not complete yet.
    held: Vec<u8>,
    /// Place in the body of the first byte that was not handed on.
    base: u64,
}

/// What becomes of an event.
#[derive(Debug)]
enum Edit {
    Gone,
    /// The event's data without this part.
    Without(String, Range<usize>),
}

impl Default for Strip {
    fn default() -> Self {
        Self { decoder: Some(Decoder::new(&BUDGET)), held: Vec::new(), base: 0 }
    }
}

impl Strip {
    /// Takes the next bytes; what may go on is handed to `each`. Bytes of an event that is not complete yet
    /// are held back. Without edits and held bytes the same `bytes` go on, uncopied.
    pub fn push(&mut self, bytes: Bytes, mut each: impl FnMut(Bytes)) {
        let Some(decoder) = &mut self.decoder else { return each(bytes) };
        let mut edits = Vec::new();
        let mut complete = self.base;
        let chunk = Chunk { bytes: &bytes, read: 0, at: None };
        let decoded = decoder.push(chunk, |frame| {
            complete = frame.bytes.end;
            edits.extend(edit(&frame));
        });
        if decoded.is_ok() && edits.is_empty() && complete == self.base {
            // Within an event, that of an image say: to copy what is held with each piece would take time with the
            // square of its size.
            return self.held.extend_from_slice(&bytes);
        }
        let bytes = if self.held.is_empty() {
            bytes
        } else {
            self.held.extend_from_slice(&bytes);
            std::mem::take(&mut self.held).into()
        };
        if decoded.is_err() {
            self.decoder = None;
            complete = self.base + bytes.len() as u64;
        }
        self.hand_on(bytes, edits, complete, &mut each);
    }

    /// The body has ended: hands on what was held.
    pub fn finish(&mut self, mut each: impl FnMut(Bytes)) {
        let mut edits = Vec::new();
        if let Some(decoder) = self.decoder.take() {
            decoder.finish(|frame| edits.extend(edit(&frame)));
        }
        let bytes = Bytes::from(std::mem::take(&mut self.held));
        let complete = self.base + bytes.len() as u64;
        self.hand_on(bytes, edits, complete, &mut each);
    }

    fn hand_on(
        &mut self,
        mut bytes: Bytes,
        edits: Vec<(Range<u64>, Edit)>,
        complete: u64,
        each: &mut impl FnMut(Bytes),
    ) {
        for (place, edit) in edits {
            let before = bytes.split_to(within(place.start.max(self.base), self.base, bytes.len()));
            self.base += before.len() as u64;
            let event = bytes.split_to(within(place.end, self.base, bytes.len()));
            self.base += event.len() as u64;
            if !before.is_empty() {
                each(before);
            }
            if let Edit::Without(data, part) = edit {
                each(without(&event, &data, part));
            }
        }
        let rest = bytes.split_to(within(complete, self.base, bytes.len()));
        self.base += rest.len() as u64;
        if !rest.is_empty() {
            each(rest);
        }
        self.held.extend_from_slice(&bytes);
    }
}

/// How far `place` lies behind `base`, at most `most`.
fn within(place: u64, base: u64, most: usize) -> usize {
    usize::try_from(place.saturating_sub(base)).map_or(most, |offset| offset.min(most))
}

/// What must be done to an event, if anything.
fn edit(frame: &Frame<'_>) -> Option<(Range<u64>, Edit)> {
    let Body::Event { data, .. } = &frame.body else { return None };
    memmem::find(data.as_bytes(), KEY)?;
    let chunk: Usage<'_> = serde_json::from_str(data).ok()?;
    let usage = chunk.usage?.get();
    let no_choice =
        chunk.choices.is_none_or(|choices| choices.get()[1..].trim_ascii_start().starts_with(']'));
    let edit = if no_choice && usage != "null" {
        Edit::Gone
    } else {
        Edit::Without(data.to_string(), member(data, usage)?)
    };
    Some((frame.bytes.clone(), edit))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage<'a> {
    #[serde(borrow, deserialize_with = "present")]
    usage: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    choices: Option<&'a RawValue>,
}

/// A value that is there, even where it is `null`.
fn present<'de, D: Deserializer<'de>>(json: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(json).map(Some)
}

/// Where the member with `value`, a slice of `json`, stands, with the comma that separates it.
fn member(json: &str, value: &str) -> Option<Range<usize>> {
    let start = (value.as_ptr() as usize).checked_sub(json.as_ptr() as usize)?;
    let mut end = start + value.len();
    let before = json.get(..start)?.trim_ascii_end().strip_suffix(':')?.trim_ascii_end();
    let before = before.strip_suffix("\"usage\"")?;
    if let Some(others) = before.trim_ascii_end().strip_suffix(',') {
        return Some(others.len()..end);
    }
    let after = json.get(end..)?;
    if let Some(others) = after.trim_ascii_start().strip_prefix(',') {
        end = json.len() - others.trim_ascii_start().len();
    }
    Some(before.len()..end)
}

/// The event with its data shortened; its other bytes stay.
fn without(event: &[u8], data: &str, part: Range<usize>) -> Bytes {
    if let Some(at) = memmem::find(event, data.as_bytes()) {
        return [&event[..at + part.start], &event[at + part.end..]].concat().into();
    }
    // Data over several lines, or with bytes that are no UTF-8: written anew, as one line.
    let data = [&data[..part.start], &data[part.end..]].concat().replace(['\n', '\r'], " ");
    format!("data: {data}\n\n").into_bytes().into()
}

#[cfg(test)]
mod tests;
