//! A recorded stream to a request of the same shape.
//!
//! In: a [`Summary`]. Out: a [`Shape`]: when, which API and model, how large, how numeric, whether streamed, and
//! which session, turn and fan-out it belongs to; and from that the request itself. No text was ever stored, so
//! the prompt is made up: words and numbers of the same length and numeric share. What an upstream knows of a
//! prompt beyond that (its cached prefix, how long it makes a model think) is not brought back.

use sseismo_trace::{Api, ContentCheck, Summary, UtcMicros};

use crate::dialect::{self, Asks};

pub(crate) mod text;

/// Bytes of a prompt token where only tokens are known: the inverse of the start ratio of `prompt_tokens_est`,
/// 0.27 tokens a byte.
const BYTES_PER_TOKEN: f64 = 1.0 / 0.27;

/// What of a recorded request is sent again.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// When it was sent.
    pub at: UtcMicros,
    /// The API spoken.
    pub api: Api,
    /// The model asked for.
    pub model: String,
    /// The reasoning effort asked for.
    pub effort: Option<String>,
    /// Whether the answer is to be streamed.
    pub streamed: bool,
    /// Bytes of the body.
    pub bytes: u64,
    /// Share of the prompt's characters that are numeric.
    pub numeric_share: f64,
    /// Whether JSON is asked for.
    pub json: bool,
    /// Whether usage is asked for at the end of a stream.
    pub usage: bool,
    /// Hash of the session.
    pub session: Option<u64>,
    /// Number of the turn in its session.
    pub turn_index: Option<u32>,
    /// Hash of the client turn.
    pub turn: Option<u64>,
    /// Hash of the fan-out.
    pub group: Option<u64>,
    /// What its text is drawn from: requests that asked the same ask the same again.
    pub draw: u64,
}

/// Why a recorded stream cannot be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shapeless {
    /// Nobody knows when it was sent.
    Start,
    /// Nobody knows which API it spoke.
    Api,
    /// Nobody knows which model it asked for.
    Model,
    /// Neither bytes nor tokens of its prompt are known.
    Size,
    /// It answered a failure that may not come again: the second or a later attempt of its turn.
    LaterAttempt,
}

impl Shapeless {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "no-start-time",
            Self::Api => "no-api",
            Self::Model => "no-model",
            Self::Size => "no-prompt-size",
            Self::LaterAttempt => "later-attempt",
        }
    }

    /// What the user can do about it, where there is something.
    pub fn advice(self) -> Option<&'static str> {
        match self {
            Self::Api => Some("name it with --api"),
            Self::Model => Some("name one with --model"),
            Self::LaterAttempt => Some("--retries sends a request again that fails again"),
            Self::Start | Self::Size => None,
        }
    }
}

/// What is said of requests whose record does not say it.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The API of those without one.
    pub api: Option<Api>,
    /// The model of all.
    pub model: Option<String>,
}

impl Shape {
    /// The shape of a recorded request.
    ///
    /// # Errors
    /// Which column says too little.
    pub fn of(summary: &Summary, given: &Given) -> Result<Self, Shapeless> {
        if summary.attempt.is_some_and(|attempt| attempt > 1) {
            return Err(Shapeless::LaterAttempt);
        }
        let model = given.model.as_deref().or(summary.model_requested.as_deref()).or(summary.model());
        let tokens = summary.usage.input.or(summary.prompt_tokens_est);
        let at = summary.started_at.ok_or(Shapeless::Start)?;
        let api = summary.api.or(given.api).ok_or(Shapeless::Api)?;
        Ok(Self {
            at,
            api,
            model: model.filter(|model| !model.is_empty()).ok_or(Shapeless::Model)?.to_owned(),
            effort: summary.effort.clone(),
            streamed: summary.streamed.unwrap_or(true),
            bytes: summary.prompt_bytes.or(tokens.map(bytes)).ok_or(Shapeless::Size)?,
            numeric_share: summary.prompt_numeric_share.unwrap_or(0.0).clamp(0.0, 1.0),
            // Messages has no word for it.
            json: summary.content_check != ContentCheck::NotChecked && api != Api::Messages,
            usage: summary.usage.output.is_some(),
            session: summary.session_key,
            turn_index: summary.turn_index,
            turn: summary.turn_key,
            group: summary.group_id,
            draw: summary.group_id.or(summary.turn_key).unwrap_or(summary.stream_id),
        })
    }

    /// Where below the API's root the request goes; a query may follow.
    pub fn path(&self) -> String {
        dialect::by_api(self.api).path(&self.model, self.streamed)
    }

    /// The request's body. It has the shape's bytes, or as few as a request takes without a prompt. `most` caps
    /// the tokens of the answer; `seed` varies the texts of all.
    pub fn body(&self, seed: u64, most: Option<u64>) -> Vec<u8> {
        let dialect = dialect::by_api(self.api);
        // OpenAI refuses to answer in JSON unless the prompt speaks of it.
        let lead = if self.json { "JSON " } else { "" };
        let asks = Asks {
            model: &self.model,
            effort: self.effort.as_deref(),
            streamed: self.streamed,
            json: self.json,
            usage: self.usage,
            most,
            prompt: lead,
        };
        let bare = dialect.request(&asks).to_string();
        let wanted = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        let room = wanted.saturating_sub(bare.len());
        let numeric = share(room + lead.len(), self.numeric_share);
        let mut draw = text::Draw(seed ^ self.draw);
        let prompt = format!("{lead}{}", text::synthetic(room, numeric, draw.next()));
        dialect.request(&Asks { prompt: &prompt, ..asks }).to_string().into_bytes()
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "prompts are far below 2^53 bytes"
)]
fn share(of: usize, share: f64) -> usize {
    (of as f64 * share).round() as usize
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "prompts are far below 2^53 tokens"
)]
fn bytes(tokens: u64) -> u64 {
    (tokens as f64 * BYTES_PER_TOKEN).round() as u64
}

#[cfg(test)]
mod tests {
    use sseismo_trace::Usage;

    use super::*;

    fn recorded() -> Summary {
        Summary {
            started_at: Some(UtcMicros(5)),
            api: Some(Api::Chat),
            model_requested: Some("m".into()),
            prompt_bytes: Some(1_000),
            prompt_numeric_share: Some(0.25),
            ..Summary::default()
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let of = |summary: &Summary| Shape::of(summary, &Given::default()).unwrap_err();
        assert_eq!(of(&Summary { started_at: None, ..recorded() }), Shapeless::Start);
        assert_eq!(of(&Summary { api: None, ..recorded() }), Shapeless::Api);
        assert_eq!(of(&Summary { model_requested: None, ..recorded() }), Shapeless::Model);
        assert_eq!(of(&Summary { prompt_bytes: None, ..recorded() }), Shapeless::Size);
        assert_eq!(of(&Summary { attempt: Some(2), ..recorded() }), Shapeless::LaterAttempt);
        let given = Given { api: Some(Api::Ollama), model: Some("n".into()) };
        let shape = Shape::of(&Summary { api: None, ..recorded() }, &given).unwrap();
        assert_eq!((shape.api, shape.model.as_str()), (Api::Ollama, "n"));
    }

    #[test]
    fn tokens_stand_in_for_bytes() {
        let usage = Usage { input: Some(270), ..Usage::default() };
        let shape = Shape::of(&Summary { prompt_bytes: None, usage, ..recorded() }, &Given::default());
        assert_eq!(shape.unwrap().bytes, 1_000);
    }

    /// In every API: the size is that of the record, and whoever asked the same before asks the same again.
    #[test]
    fn bodies_have_the_size_of_the_record() {
        for dialect in dialect::DIALECTS {
            for (bytes, json) in [(400, false), (1_000, true), (20_000, false)] {
                let check = if json { ContentCheck::Ok } else { ContentCheck::NotChecked };
                let api = Some(dialect.api());
                let effort = Some("high".to_owned());
                let summary = Summary {
                    api,
                    effort,
                    content_check: check,
                    prompt_bytes: Some(bytes),
                    group_id: Some(7),
                    ..recorded()
                };
                let shape = Shape::of(&summary, &Given::default()).unwrap();
                let body = shape.body(1, None);
                assert_eq!(body.len() as u64, bytes, "{api:?}");
                assert_eq!(dialect::by_path(&shape.path()).map(dialect::Dialect::api), api);
                assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok());
                assert_eq!(shape.body(1, None), body);
                assert_ne!(shape.body(2, None), body);
            }
        }
    }

    #[test]
    fn a_request_is_never_smaller_than_it_can_be() {
        let shape = Shape::of(&Summary { prompt_bytes: Some(3), ..recorded() }, &Given::default()).unwrap();
        let body: serde_json::Value = serde_json::from_slice(&shape.body(1, Some(50))).unwrap();
        assert_eq!(body["messages"][0]["content"], "");
        assert_eq!(body["max_completion_tokens"], 50);
    }
}
