//! Bytes drip: a few at a time, at an even pace, whatever the model does. Alive by every idle timer, and
//! useless.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use sseismo_trace::Micros;

use super::Behaviour;
use crate::script::{Script, Write};
use crate::unit::Span;

/// `kind = "slow-drip"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SlowDrip {
    /// Bytes of one drop.
    bytes: usize,
    /// From drop to drop.
    every: Span,
}

impl Default for SlowDrip {
    fn default() -> Self {
        Self { bytes: 16, every: Span::ms(100) }
    }
}

impl Behaviour for SlowDrip {
    fn ready(&mut self, _: &Path) -> Result<(), (&'static str, String)> {
        if self.bytes == 0 { Err(("bytes", "must be at least 1".into())) } else { Ok(()) }
    }

    fn deliver(&mut self, script: &mut Script) -> Option<Value> {
        let mut writes = Vec::new();
        let (mut done, mut at) = (0, script.head_at.0);
        for write in &script.writes {
            while done < write.end {
                done = (done + self.bytes).min(write.end);
                at = (at + self.every.us()).max(write.at.0);
                writes.push(Write { at: Micros(at), end: done });
            }
        }
        script.writes = writes;
        script.close_at = script.close_at.max(script.last_write_at());
        Some(json!({ "bytes": self.bytes, "every_us": self.every.us() }))
    }
}
