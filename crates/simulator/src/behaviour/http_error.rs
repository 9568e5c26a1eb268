//! An HTTP error instead of an answer: 500, 502, 503, Anthropic's 529, or any other status of 400 and up.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Behaviour;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::{Plan, Refusal};
use crate::unit::Span;

/// `kind = "http-error"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct HttpError {
    /// The status.
    status: u16,
    /// Retry-After, where it is sent.
    retry_after: Option<Span>,
}

impl Default for HttpError {
    fn default() -> Self {
        Self { status: 500, retry_after: None }
    }
}

impl Behaviour for HttpError {
    fn ready(&mut self, _: &Path) -> Result<(), (&'static str, String)> {
        if (400..=599).contains(&self.status) {
            return Ok(());
        }
        Err(("status", "must be from 400 to 599".into()))
    }

    fn shape(&mut self, _: &Ask, plan: &mut Plan, _: &mut Draw) -> Option<Value> {
        if let Some(after) = self.retry_after {
            plan.headers.push(("retry-after", (after.us() / 1_000_000).to_string()));
        }
        let (kind, code) = match self.status {
            503 | 529 => ("overloaded_error", "server_is_overloaded"),
            500..=599 => ("server_error", "server_error"),
            _ => ("invalid_request_error", "invalid_request"),
        };
        let message = "The server had an error while processing your request.".to_owned();
        plan.refuse(self.status, Refusal { kind, code, message });
        Some(json!({ "status": self.status }))
    }
}
