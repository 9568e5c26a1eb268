//! A proxy's buffer: bytes leave when it is full, whatever they are, and at the end of the body. Events
//! are cut where the buffer ends.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Behaviour;
use crate::script::{Script, Write};

/// `kind = "byte-buffer"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ByteBuffer {
    /// Its size; nginx's is 4 or 8 KiB.
    bytes: usize,
}

impl Default for ByteBuffer {
    fn default() -> Self {
        Self { bytes: 4_096 }
    }
}

impl Behaviour for ByteBuffer {
    fn ready(&mut self, _: &Path) -> Result<(), (&'static str, String)> {
        if self.bytes == 0 { Err(("bytes", "must be at least 1".into())) } else { Ok(()) }
    }

    fn deliver(&mut self, script: &mut Script) -> Option<Value> {
        let mut writes = Vec::new();
        let mut full = self.bytes;
        for write in &script.writes {
            while full <= write.end {
                writes.push(Write { at: write.at, end: full });
                full += self.bytes;
            }
        }
        if let Some(last) = script.writes.last()
            && writes.last().is_none_or(|write| write.end < last.end)
        {
            writes.push(Write { at: script.close_at, end: last.end });
        }
        script.writes = writes;
        Some(json!({ "bytes": self.bytes, "flushes": script.writes.len() }))
    }
}
