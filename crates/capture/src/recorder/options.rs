//! What is recorded, and how much of it.

use std::time::Duration;

use sseismo_trace::Summary;
use sseismo_trace::parquet::Manifest;

use super::{Hasher, Limits};

/// How to record.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Store the text of events in `texts/`.
    pub keep_text: bool,
    /// Store bodies with their read boundaries in `raw/`.
    pub keep_raw: bool,
    /// Store sums of a flush instead of sizes of events.
    pub coarse: bool,
    /// Share of streams to keep, 0 to 1; anomalous ones are always kept.
    pub sample: f64,
    /// Bytes of journal after which Parquet parts are written.
    pub rotate_bytes: u64,
    /// Time after which they are written even so.
    pub rotate_age: Duration,
    /// What the dataset may grow to.
    pub limits: Limits,
}

impl Default for Options {
    /// Everything but texts and bodies. 8 MiB of journal are about 300,000 events, which compaction
    /// holds in memory at once.
    fn default() -> Self {
        Self {
            keep_text: false,
            keep_raw: false,
            coarse: false,
            sample: 1.0,
            rotate_bytes: 8 << 20,
            rotate_age: Duration::from_mins(5),
            limits: Limits::default(),
        }
    }
}

impl Options {
    /// What `dataset.json` will say.
    pub(super) fn manifest(&self, hasher: &Hasher) -> Manifest {
        let choices = [(!self.keep_text, "texts"), (!self.keep_raw, "raw"), (self.coarse, "event-sizes")];
        Manifest {
            hash_key_id: Some(hasher.key_id()),
            sample: self.sample,
            left_out: choices.into_iter().filter(|(out, _)| *out).map(|(_, name)| name.to_owned()).collect(),
            ..Manifest::default()
        }
    }

    /// Whether sampling keeps a stream.
    pub(super) fn samples(&self, hasher: &Hasher, summary: &Summary) -> bool {
        let unit = summary.group_id.or(summary.turn_key).unwrap_or(summary.stream_id);
        // 32 bits: a share is kept to one in four billion, and 1 keeps all.
        let bits = u32::try_from(hasher.hash("sample", &unit.to_le_bytes()) >> 32).unwrap_or(0);
        f64::from(bits) < self.sample * 4_294_967_296.0
    }
}
