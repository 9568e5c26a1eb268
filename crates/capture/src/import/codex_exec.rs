//! The output of `codex exec --json`: one stream per turn.
//!
//! In: JSON Lines of `thread.started`, `turn.*`, `item.*`. Out: the tokens of each turn.
//!
//! `turn.completed.usage` is the thread's running total, so the total before is taken off. A turn can
//! hold several responses: its counts are their sum, which leaves any lattice, and every stream is
//! marked as folded. Several runs may stand in one file; a total that went down was started anew, and
//! is then the turn's own. The first turn of a *resumed* thread holds what came before it, which
//! nothing in the output tells. Model, effort and times are not in the output.

use std::borrow::Cow;

use serde::Deserialize;
use sseismo_trace::{Outcome, Summary};

use super::Options;
use super::codex_usage::Tokens;
use super::importer::{Error, Fit, Grain, Head, Importer, Out, key};
use super::input::Input;

/// Standard output of `codex exec --json`.
pub(super) struct CodexExec;

impl Importer for CodexExec {
    fn name(&self) -> &'static str {
        "codex-exec"
    }

    fn expects(&self) -> &'static str {
        "output of `codex exec --json`"
    }

    fn grain(&self) -> Grain {
        Grain::Piece
    }

    fn recognises(&self, head: &Head<'_>) -> Fit {
        let is_exec = |line: &[u8]| {
            serde_json::from_slice(line).is_ok_and(|event: Event<'_>| {
                matches!(&*event.kind, "turn.started" | "turn.completed")
                    || (event.kind == "thread.started" && event.thread_id.is_some())
            })
        };
        head.lines().take(20).any(is_exec).into()
    }

    fn read(&self, input: &Input<'_>, _: &Options, out: &mut Out<'_>) -> Result<(), Error> {
        let mut lines = input.lines()?;
        let mut thread = Thread::default();
        while let Some(line) = lines.next(out)? {
            match serde_json::from_slice(line.bytes) {
                Ok(event) => thread.event(event, line.number, out),
                Err(_) if std::str::from_utf8(line.bytes).is_err() => out.skip("invalid-utf8"),
                Err(error) if error.is_data() => out.skip("unexpected-shape"),
                Err(_) if !line.ended || !line.bytes.ends_with(b"}") => out.skip("torn-line"),
                Err(_) => out.skip("invalid-json"),
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    thread_id: Option<String>,
    usage: Option<Tokens>,
}

#[derive(Default)]
struct Thread {
    id: Option<String>,
    turns: u32,
    total: Tokens,
}

impl Thread {
    fn event(&mut self, event: Event<'_>, line: u64, out: &mut Out<'_>) {
        match &*event.kind {
            "thread.started" if event.thread_id != self.id => {
                *self = Self { id: event.thread_id, ..Self::default() };
            }
            "turn.completed" => match event.usage {
                Some(total) => {
                    let tokens = total.since(&self.total).unwrap_or(total);
                    self.total = total;
                    self.turn(tokens, line, out);
                }
                None => out.skip("no-usage"),
            },
            "turn.failed" => out.skip("turn-failed"),
            _ => {}
        }
    }

    fn turn(&mut self, tokens: Tokens, line: u64, out: &mut Out<'_>) {
        if !tokens.is_of_a_response() {
            out.skip("not-a-response");
            return;
        }
        let (turn, thread) = (self.turns, self.id.as_deref());
        self.turns += 1;
        let summary = Summary {
            stream_id: key(&[thread.unwrap_or(out.path()), &format!("line {line}")]),
            session_key: thread.map(|thread| key(&[thread])),
            turn_index: Some(turn),
            turn_key: thread.map(|thread| key(&[thread, &turn.to_string()])),
            client_app: Some("codex_exec".to_owned()),
            outcome: Outcome::Completed,
            usage: tokens.usage(),
            folded: true,
            ..out.summary()
        };
        out.summary_only(&summary);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{folder, read};
    use super::*;

    const RUN: &str = r#"{"type":"thread.started","thread_id":"a"}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"hi"}}
{"type":"turn.completed","usage":{"input_tokens":1000,"cached_input_tokens":0,"output_tokens":536,"reasoning_output_tokens":516}}
{"type":"turn.completed","usage":{"input_tokens":2500,"cached_input_tokens":900,"output_tokens":1236,"reasoning_output_tokens":1032}}
{"type":"turn.failed","error":{"message":"stream disconnected"}}
{"type":"thread.started","thread_id":"b"}
{"type":"turn.completed","usage":{"input_tokens":900,"cached_input_tokens":0,"output_tokens":80,"reasoning_output_tokens":64}}
{"type":"thread.started","thread_id":"b"}
{"type":"turn.completed","usage":{"input_tokens":500,"cached_input_tokens":0,"output_tokens":30}}
{"type":"turn.comple"#;

    #[test]
    fn running_totals_are_differenced_and_flagged() {
        let folder = folder(&[("run.jsonl", RUN.as_bytes())]);
        let (imported, kept) = read(&folder.path().join("run.jsonl"), &Options::default());
        let seen: Vec<_> =
            kept.streams.iter().map(|(_, s)| (s.usage.reasoning, s.usage.output, s.turn_index)).collect();
        assert_eq!(
            seen,
            [
                (Some(516.0), Some(536), Some(0)),
                (Some(516.0), Some(700), Some(1)),
                (Some(64.0), Some(80), Some(0)),
                (None, Some(30), Some(1))
            ]
        );
        assert!(kept.streams.iter().all(|(_, summary)| summary.folded && summary.model().is_none()));
        assert_eq!(imported[0].format, "codex-exec");
        assert_eq!(imported[0].skipped, [("torn-line", 1), ("turn-failed", 1)].into());
    }
}
