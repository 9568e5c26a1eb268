//! `signals/`: what the live detector raised. In: [`Signal`]s with what was done about them. Out: the same.
//!
//! Signals belong to no stream, so their parts stand alone: those of one day, sorted by time.

use std::ops::ControlFlow;
use std::path::Path;

use super::part::{PartName, TableWriter, partition};
use super::read::{Rows, table_parts};
use super::table::{Row, SignalRow, signals};
use super::{Dataset, Error, Manifest, Report};
use crate::{Cause, Detail, Evidence, Micros, Scope, Signal, SignalId, SignalState, UtcMicros};

/// A signal and what was done about it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSignal {
    /// The signal.
    pub signal: Signal,
    /// What the router did or would have done; `None` where nobody listened.
    pub action: Option<String>,
    /// Whether it did it; `None` without an action.
    pub acted: Option<bool>,
}

impl From<Signal> for StoredSignal {
    fn from(signal: Signal) -> Self {
        Self { signal, action: None, acted: None }
    }
}

/// Adds `signals` to the dataset at `root`, which is made with this `manifest` if it is not there. `now` names
/// the parts, one for each day.
///
/// # Errors
/// The folder cannot be written, or holds another format's or a newer version's dataset.
pub fn write_signals(
    root: &Path,
    manifest: Manifest,
    signals: &[StoredSignal],
    now: UtcMicros,
) -> Result<(), Error> {
    manifest.create_or_load(root)?;
    let mut rows: Vec<SignalRow> = signals.iter().map(SignalRow::from).collect();
    rows.sort_by_key(Row::key);
    rows.dedup_by_key(|row| row.key());
    let mut name = PartName { unix_s: now.0.div_euclid(1_000_000), pid: std::process::id(), n: 0 };
    for day in rows.chunk_by(|a, b| partition(a.at) == partition(b.at)) {
        let folder = partition(day[0].at);
        while super::part::file(root, signals::FOLDER, &folder, &name.to_string()).exists() {
            name.n += 1;
        }
        let mut writer = TableWriter::new(root, &folder, name, &[]);
        for row in day {
            writer.push(row.clone())?;
        }
        writer.complete(None)?;
        writer.publish()?;
    }
    Ok(())
}

impl Dataset {
    /// The rows of `signals/`, by day and time within a part. Break to stop early. A row whose detail this
    /// version does not know makes its part damaged.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn signals(&self, mut take: impl FnMut(StoredSignal) -> ControlFlow<()>) -> Result<Report, Error> {
        let mut report = Report::default();
        for part in table_parts(self.root(), signals::FOLDER)? {
            let path = self.file(signals::FOLDER, &part);
            let mut one = || -> Result<ControlFlow<()>, Error> {
                for batch in Rows::<SignalRow>::open(&path)? {
                    for row in batch? {
                        let wrong =
                            |problem| Error::Column { path: path.clone(), column: signals::DETAIL, problem };
                        if take(row.stored().map_err(wrong)?).is_break() {
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                }
                Ok(ControlFlow::Continue(()))
            };
            match one() {
                Ok(flow) => {
                    report.parts += 1;
                    if flow.is_break() {
                        break;
                    }
                }
                Err(error) => report.damaged.push(error),
            }
        }
        Ok(report)
    }
}

impl From<&StoredSignal> for SignalRow {
    fn from(stored: &StoredSignal) -> Self {
        let signal = &stored.signal;
        Self {
            signal_id: signal.id.0,
            at: Some(signal.at),
            upstream: signal.target.upstream.clone(),
            route: signal.target.route.clone(),
            model: signal.target.model.clone(),
            effort: signal.target.effort.clone(),
            signature: signal.detail.signature().name().to_owned(),
            cause: signal.cause.map(|cause| cause.name().to_owned()),
            state: signal.state,
            strength: signal.strength,
            detail: serde_json::to_string(&signal.detail).unwrap_or_default(),
            evidence: serde_json::to_string(&signal.evidence).unwrap_or_default(),
            ttl_s: signal.ttl.seconds(),
            action: stored.action.clone(),
            acted: stored.acted,
        }
    }
}

impl SignalRow {
    fn stored(self) -> Result<StoredSignal, String> {
        let detail: Detail =
            serde_json::from_str(&self.detail).map_err(|error| format!("is not known here: {error}"))?;
        let evidence: Evidence = serde_json::from_str(&self.evidence).unwrap_or_default();
        let cause = self.cause.map(serde_json::Value::String);
        let cause: Option<Cause> = cause.and_then(|name| serde_json::from_value(name).ok());
        #[expect(clippy::cast_possible_truncation, reason = "a time to live in µs")]
        let ttl = Micros((self.ttl_s * 1e6).round() as i64);
        let signal = Signal {
            id: SignalId(self.signal_id),
            target: Scope {
                upstream: self.upstream,
                route: self.route,
                model: self.model,
                effort: self.effort,
                ..Scope::default()
            },
            detail,
            cause,
            state: self.state,
            strength: self.strength,
            evidence,
            at: self.at.unwrap_or_default(),
            ttl,
        };
        Ok(StoredSignal { signal, action: self.action, acted: self.acted })
    }
}

/// Place of a state among messages of one moment: an onset comes before its clear.
pub(super) fn place(state: SignalState) -> u32 {
    match state {
        SignalState::Onset => 0,
        SignalState::Refresh => 1,
        SignalState::Clear => 2,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn signal(id: u64, at: i64, state: SignalState) -> StoredSignal {
        StoredSignal {
            signal: Signal {
                id: SignalId(id),
                target: Scope {
                    upstream: Some("api.example".into()),
                    model: Some("m".into()),
                    ..Scope::default()
                },
                detail: Detail::SizeWindow { lo: 150, hi: 220 },
                cause: (id.is_multiple_of(2)).then_some(Cause::ProxyBuffering),
                state,
                strength: 0.25,
                evidence: Evidence { n: id, notes: vec!["a note".into()], ..Evidence::default() },
                at: UtcMicros(at),
                ttl: Micros(60_000_000),
            },
            action: (id.is_multiple_of(3)).then(|| "drain".to_owned()),
            acted: (id.is_multiple_of(3)).then_some(id.is_multiple_of(2)),
        }
    }

    fn read(root: &Path) -> Vec<StoredSignal> {
        let mut found = Vec::new();
        let report = Dataset::open(root)
            .unwrap()
            .signals(|stored| {
                found.push(stored);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert!(report.damaged.is_empty(), "{:?}", report.damaged);
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// What is written is what is read, over several days and calls, by day and time.
        #[test]
        fn signals_survive(times in prop::collection::vec(0_i64..400_000_000_000, 0..30)) {
            let folder = tempfile::tempdir().unwrap();
            let states = [SignalState::Onset, SignalState::Refresh, SignalState::Clear];
            let mut all: Vec<StoredSignal> =
                (0..).zip(&times).map(|(id, at)| signal(id, *at, states[usize::try_from(id % 3).unwrap()])).collect();
            for half in all.chunks(all.len() / 2 + 1) {
                write_signals(folder.path(), Manifest::default(), half, UtcMicros(7_000_000)).unwrap();
            }
            let mut found = if times.is_empty() { Vec::new() } else { read(folder.path()) };
            let key = |stored: &StoredSignal| (stored.signal.at, stored.signal.id);
            all.sort_by_key(key);
            found.sort_by_key(key);
            prop_assert_eq!(found, all);
        }
    }

    #[test]
    fn a_dataset_without_signals_has_none() {
        let folder = tempfile::tempdir().unwrap();
        write_signals(folder.path(), Manifest::default(), &[], UtcMicros(0)).unwrap();
        assert_eq!(read(folder.path()), []);
    }
}
