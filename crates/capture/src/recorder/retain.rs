//! Retention: the oldest parts go when a dataset grows too large or too old.

use std::fs;
use std::path::Path;
use std::time::Duration;

use sseismo_trace::UtcMicros;
use sseismo_trace::parquet::{Dataset, Part, PartName, events, raw, reads, streams, texts};

use super::Error;

/// `streams` goes first: a part exists while its streams do.
const TABLES: [&str; 5] = [streams::FOLDER, events::FOLDER, reads::FOLDER, texts::FOLDER, raw::FOLDER];

/// What a dataset may grow to; by default without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all finished parts.
    pub max_bytes: Option<u64>,
    /// Age of a part, from when it was begun.
    pub max_age: Option<Duration>,
}

/// Removes the oldest parts until the limits hold. Parts of foreign names have no age and stay.
pub(super) fn apply(root: &Path, limits: Limits, now: UtcMicros) -> Result<(), Error> {
    if limits == Limits::default() {
        return Ok(());
    }
    let dataset = Dataset::open(root)?;
    let mut parts: Vec<(PartName, &Part, u64)> = dataset
        .parts()
        .iter()
        .filter_map(|part| Some((PartName::parse(&part.name)?, part, size(&dataset, part))))
        .collect();
    parts.sort_by_key(|(name, ..)| *name);
    let mut bytes: u64 = parts.iter().map(|(.., bytes)| bytes).sum();
    let oldest = limits
        .max_age
        .map(|age| now.0.div_euclid(1_000_000) - i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
    for (name, part, size) in parts {
        let too_old = oldest.is_some_and(|oldest| name.unix_s < oldest);
        let too_large = limits.max_bytes.is_some_and(|most| bytes > most);
        if too_old || too_large {
            for path in TABLES.map(|table| dataset.file(table, part)).iter().filter(|path| path.exists()) {
                fs::remove_file(path).map_err(Error::io("remove", path))?;
            }
            bytes -= size;
        }
    }
    Ok(())
}

fn size(dataset: &Dataset, part: &Part) -> u64 {
    let file = |table| fs::metadata(dataset.file(table, part)).map_or(0, |meta| meta.len());
    TABLES.into_iter().map(file).sum()
}
