//! Codex's session logs (`$CODEX_HOME/sessions` and `archived_sessions`): one stream per response.
//!
//! In: `rollout-*.jsonl`, plain or compressed, of every version that wrote `{timestamp,type,payload}`
//! lines. Out: per response its counts, with the model and effort of the turn context before it.
//!
//! What makes hand-written counts wrong, and what is done about it:
//!
//! - The last counts are written again (a heartbeat, a resumed session): dropped as
//!   `repeated-snapshot` when the running total has not moved. Equal *last* counts with a moved total
//!   are two responses; two real 516 in a row are common.
//! - Since 0.171 one response stands in the file twice, as `token_usage_record` and as `token_count`:
//!   read once, the other dropped as `recorded-twice`.
//! - `info` is null: `null-info`. Counts of a context's size after a compaction, which no response had:
//!   `not-a-response`.
//! - `total_token_usage` is the thread's sum and never used as a response's. A file without
//!   `last_token_usage` is differenced, and its streams are marked as folded.
//! - A fork copies its parent's lines and stamps them with the moment of the fork: usage within
//!   [`COPYING`] of a forked (or spawned) session's first line is dropped as `forked-copy`.
//! - Helpers (sub-agents, reviewers) are not the user's turns: they get a source of their own, the
//!   path with ` (helper threads)` added.
//! - A line that does not end in `}` was cut by a crash: `torn-line`.
//!
//! **Times.** A line's time is when the client wrote it. A request starts when its last input was
//! written (user message or tool output), for the client sends it right after, and ends when its usage
//! was written. Retries inside the client lie in between. A response without input before it has no
//! times.
//!
//! Trap descriptions: facts of the log format as of 0.146 and 0.171; a `response.failed` that billed
//! tokens leaves no line at all, so a log counts less than a proxy does.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use sseismo_trace::{Micros, Outcome, Summary, TimeSource, UtcMicros};

use super::Options;
use super::codex_usage::Tokens;
use super::importer::{Error, Fit, Grain, Head, Importer, Out, key};
use super::input::Input;
use super::lines::Line;

mod relevance;
#[cfg(test)]
mod tests;

use relevance::{Relevance, relevance};

/// How long after a forked session's first line the parent's lines are still being copied.
const COPYING: Micros = Micros(2_000_000);
/// Added to the source of threads that the user did not start.
const HELPERS: &str = "helper threads";
/// The model that Codex reviews its own approvals with.
const REVIEWER: &str = "codex-auto-review";
/// Line types of a rollout; a file with one of them among its first lines is one.
const TYPES: [&[u8]; 7] = [
    b"session_meta",
    b"turn_context",
    b"event_msg",
    b"response_item",
    b"compacted",
    b"world_state",
    b"token_usage_record",
];

/// Codex rollouts.
pub(super) struct CodexRollout;

impl Importer for CodexRollout {
    fn name(&self) -> &'static str {
        "codex-rollout"
    }

    fn expects(&self) -> &'static str {
        "Codex session logs (rollout-*.jsonl in ~/.codex/sessions)"
    }

    fn grain(&self) -> Grain {
        Grain::Piece
    }

    fn recognises(&self, head: &Head<'_>) -> Fit {
        // The first line can be longer than the head: its start has to do.
        head.bytes.split(|&byte| byte == b'\n').take(5).any(is_rollout_line).into()
    }

    fn read(&self, input: &Input<'_>, _: &Options, out: &mut Out<'_>) -> Result<(), Error> {
        let mut lines = input.lines()?;
        let mut thread = Thread::default();
        while let Some(line) = lines.next(out)? {
            if let Err(reason) = thread.line(line, out) {
                out.skip(reason);
            }
        }
        Ok(())
    }
}

fn is_rollout_line(line: &[u8]) -> bool {
    let start = &line[..line.len().min(400)];
    let has = |name: &[u8]| memchr::memmem::find(start, name).is_some();
    start.starts_with(b"{")
        && has(br#""timestamp""#)
        && has(br#""type""#)
        && has(br#""payload""#)
        && TYPES.iter().any(|kind| has(kind))
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    timestamp: Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    payload: &'a RawValue,
}

#[derive(Deserialize)]
struct SessionMeta {
    id: String,
    originator: Option<String>,
    model_provider: Option<String>,
    /// A name (`cli`, `exec`, `vscode`) or, for a helper, an object that says what kind.
    source: Option<serde_json::Value>,
    thread_source: Option<String>,
    forked_from_id: Option<String>,
    parent_thread_id: Option<String>,
}

impl SessionMeta {
    fn is_helper(&self) -> bool {
        self.source.as_ref().is_some_and(serde_json::Value::is_object)
            || self.parent_thread_id.is_some()
            || self.thread_source.as_ref().is_some_and(|source| source != "user")
    }

    fn has_copied_lines(&self) -> bool {
        self.forked_from_id.is_some() || self.parent_thread_id.is_some()
    }
}

/// Model and effort, as `turn_context` and `thread_settings_applied` hold them.
#[derive(Deserialize)]
struct Settings {
    turn_id: Option<String>,
    model: Option<String>,
    effort: Option<String>,
    reasoning_effort: Option<String>,
    collaboration_mode: Option<Collaboration>,
}

#[derive(Deserialize)]
struct Collaboration {
    settings: Option<CollaborationSettings>,
}

#[derive(Deserialize)]
struct CollaborationSettings {
    model: Option<String>,
    reasoning_effort: Option<String>,
}

#[derive(Deserialize)]
struct UsageRecord {
    thread_id: Option<String>,
    turn_id: Option<String>,
    response_id: Option<String>,
    usage: Tokens,
    thread_token_usage: Option<Tokens>,
}

#[derive(Deserialize)]
struct EventMsg<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    info: Option<TokenCount>,
    thread_id: Option<String>,
    thread_settings: Option<Settings>,
}

#[derive(Deserialize)]
struct TokenCount {
    total_token_usage: Option<Tokens>,
    last_token_usage: Option<Tokens>,
}

/// What is known at one line of a file.
#[derive(Debug, Default)]
struct Thread {
    /// The thread's own id: of the first `session_meta`. A fork repeats its parent's after it.
    id: Option<String>,
    originator: Option<String>,
    provider: Option<String>,
    helper: bool,
    copied_until: Option<UtcMicros>,
    turn_id: Option<String>,
    turns: u32,
    model: Option<String>,
    effort: Option<String>,
    /// When the last input of the next request was written; empty when none was since the last response.
    input_at: String,
    total: Option<Tokens>,
    /// The response of the last `token_usage_record`, until its `token_count` was seen.
    recorded: Option<Tokens>,
    response_id: Option<String>,
}

/// Why a line is left out.
type Reason = &'static str;

impl Thread {
    fn line(&mut self, line: Line<'_>, out: &mut Out<'_>) -> Result<(), Reason> {
        if !line.bytes.ends_with(b"}") {
            return Err("torn-line");
        }
        match relevance(line.bytes) {
            Relevance::Parse => self.parse(line, out),
            relevant => {
                if !line.ended && serde_json::from_slice::<serde::de::IgnoredAny>(line.bytes).is_err() {
                    return Err("torn-line");
                }
                if let Relevance::Input(time) = relevant {
                    self.input_at.clear();
                    self.input_at.push_str(std::str::from_utf8(time).unwrap_or_default());
                }
                Ok(())
            }
        }
    }

    fn parse(&mut self, line: Line<'_>, out: &mut Out<'_>) -> Result<(), Reason> {
        let text = std::str::from_utf8(line.bytes).map_err(|_| "invalid-utf8")?;
        let envelope: Envelope<'_> = serde_json::from_str(text).map_err(|error| reason(&error, line))?;
        let payload = envelope.payload.get();
        match &*envelope.kind {
            "session_meta" => self.session(from(payload)?, &envelope.timestamp),
            "turn_context" => {
                let settings: Settings = from(payload)?;
                if settings.turn_id.is_none() || settings.turn_id != self.turn_id {
                    self.turns += 1;
                }
                self.turn_id.clone_from(&settings.turn_id);
                self.settings(settings);
                self.input_at = envelope.timestamp.into_owned();
            }
            "token_usage_record" => return self.record(from(payload)?, &envelope.timestamp, line, out),
            "event_msg" => {
                let event: EventMsg<'_> = from(payload)?;
                match (&*event.kind, event.thread_settings) {
                    ("token_count", _) => return self.count(event.info, &envelope.timestamp, line, out),
                    ("thread_settings_applied", Some(settings)) if self.is_own(event.thread_id.as_ref()) => {
                        self.settings(settings);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn session(&mut self, meta: SessionMeta, timestamp: &str) {
        if self.id.is_some() {
            return;
        }
        self.helper = meta.is_helper();
        if meta.has_copied_lines() {
            self.copied_until = moment(timestamp).map(|start| UtcMicros(start.0 + COPYING.0));
        }
        self.id = Some(meta.id);
        self.originator = meta.originator;
        self.provider = meta.model_provider;
    }

    fn settings(&mut self, settings: Settings) {
        let mode = settings.collaboration_mode.and_then(|mode| mode.settings);
        let (mode_model, mode_effort) = mode.map_or((None, None), |mode| (mode.model, mode.reasoning_effort));
        self.model = settings.model.or(mode_model);
        self.effort = settings.effort.or(settings.reasoning_effort).or(mode_effort);
    }

    fn record(
        &mut self,
        record: UsageRecord,
        timestamp: &str,
        line: Line<'_>,
        out: &mut Out<'_>,
    ) -> Result<(), Reason> {
        if !self.is_own(record.thread_id.as_ref()) {
            return Err("forked-copy");
        }
        if record.thread_token_usage.is_some() && record.thread_token_usage == self.total {
            return Err("recorded-twice");
        }
        self.total = record.thread_token_usage.or(self.total);
        self.recorded = Some(record.usage);
        if record.response_id.is_some() && record.response_id == self.response_id {
            return Err("repeated-snapshot");
        }
        self.response_id.clone_from(&record.response_id);
        let response =
            Response { tokens: record.usage, folded: false, id: record.response_id, turn: record.turn_id };
        self.response(response, timestamp, line, out)
    }

    fn count(
        &mut self,
        info: Option<TokenCount>,
        timestamp: &str,
        line: Line<'_>,
        out: &mut Out<'_>,
    ) -> Result<(), Reason> {
        let Some(info) = info else { return Err("null-info") };
        let before = self.total;
        self.total = info.total_token_usage.or(before);
        if let Some(recorded) = self.recorded.take()
            && (info.last_token_usage == Some(recorded) || info.total_token_usage == before)
        {
            return Err("recorded-twice");
        }
        if info.total_token_usage.is_some() && info.total_token_usage == before {
            return Err("repeated-snapshot");
        }
        let differenced = || {
            let total = info.total_token_usage?;
            before.and_then(|before| total.since(&before)).or(Some(total))
        };
        let (tokens, folded) = match info.last_token_usage {
            Some(last) => (last, false),
            None => (differenced().ok_or("no-usage")?, true),
        };
        self.response(Response { tokens, folded, id: None, turn: None }, timestamp, line, out)
    }

    fn response(
        &mut self,
        response: Response,
        timestamp: &str,
        line: Line<'_>,
        out: &mut Out<'_>,
    ) -> Result<(), Reason> {
        let end = moment(timestamp);
        if self.copied_until.is_some_and(|until| end.is_some_and(|end| end <= until)) {
            return Err("forked-copy");
        }
        if !response.tokens.is_of_a_response() {
            return Err("not-a-response");
        }
        let start = moment(&self.input_at);
        self.input_at.clear();
        let helper = self.helper || self.model.as_deref() == Some(REVIEWER);
        let place = response.id.clone().unwrap_or_else(|| format!("line {}", line.number));
        let stream_id = key(&[self.id.as_deref().unwrap_or(out.path()), &place]);
        let summary = self.summary(response, start, end, Summary { stream_id, ..out.summary() });
        out.set_aside(helper.then_some(HELPERS));
        out.summary_only(&summary);
        Ok(())
    }

    fn summary(
        &self,
        response: Response,
        start: Option<UtcMicros>,
        end: Option<UtcMicros>,
        blank: Summary,
    ) -> Summary {
        let session = self.id.as_deref();
        let turn = response.turn.or_else(|| self.turn_id.clone());
        let took = start.zip(end).map(|(start, end)| Micros(end.0 - start.0)).filter(|took| took.0 >= 0);
        Summary {
            session_key: session.map(|session| key(&[session])),
            turn_index: self.turns.checked_sub(1),
            turn_key: session.zip(turn.as_deref()).map(|(session, turn)| key(&[session, turn])),
            upstream: self.provider.clone(),
            client_app: self.originator.clone(),
            model_requested: self.model.clone(),
            effort: self.effort.clone(),
            started_at: took.and(start),
            t_end: took,
            time_source: if took.is_some() { TimeSource::User } else { TimeSource::None },
            outcome: Outcome::Completed,
            usage: response.tokens.usage(),
            folded: response.folded,
            ..blank
        }
    }

    fn is_own(&self, thread: Option<&String>) -> bool {
        thread.is_none() || self.id.is_none() || thread == self.id.as_ref()
    }
}

/// One response, as one line tells of it.
struct Response {
    tokens: Tokens,
    folded: bool,
    id: Option<String>,
    turn: Option<String>,
}

fn from<'a, T: Deserialize<'a>>(payload: &'a str) -> Result<T, Reason> {
    serde_json::from_str(payload).map_err(|_| "unexpected-shape")
}

fn reason(error: &serde_json::Error, line: Line<'_>) -> Reason {
    match error.classify() {
        serde_json::error::Category::Data => "unexpected-shape",
        _ if !line.ended => "torn-line",
        _ => "invalid-json",
    }
}

fn moment(timestamp: &str) -> Option<UtcMicros> {
    timestamp.parse().ok().map(|time: jiff::Timestamp| UtcMicros(time.as_microsecond()))
}
