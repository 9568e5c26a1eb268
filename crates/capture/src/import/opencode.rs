//! OpenCode's database (`opencode.db`): one stream per request.
//!
//! In: the tables `message` and `part`, whose `data` column holds JSON. Out: one stream for each
//! `step-finish` part; a message's own counts are sums over its steps and are not read. OpenCode's
//! counters are disjoint, ours are not: reasoning is added to output, cache reads and writes to input.
//!
//! A request starts at its `step-start` part and ends at its `step-finish`, by OpenCode's clock. Steps
//! of sessions that another session started (sub-agents) get a source of their own.
//!
//! The file is never written to. SQLite would create files beside a database in WAL mode that has no
//! log, so such a file is opened as immutable; with a log it is opened read-only, log included.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, Row};
use serde::Deserialize;
use sseismo_trace::{Micros, Outcome, Summary, TimeSource, Usage, UtcMicros};

use super::Options;
use super::importer::{Error, Fit, Grain, Head, Importer, Out, key};
use super::input::Input;

/// What every SQLite file starts with.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Added to the source of sessions that another session started.
const HELPERS: &str = "helper threads";
/// After so many rows the progress is told.
const ROWS_AT_ONCE: u64 = 1024;

/// OpenCode's SQLite database.
pub(super) struct OpenCode;

impl Importer for OpenCode {
    fn name(&self) -> &'static str {
        "opencode"
    }

    fn expects(&self) -> &'static str {
        "OpenCode's database (opencode.db)"
    }

    fn grain(&self) -> Grain {
        Grain::Piece
    }

    fn recognises(&self, head: &Head<'_>) -> Fit {
        if !head.bytes.starts_with(MAGIC) {
            return Fit::No;
        }
        let tables =
            open(head.path).and_then(|db| Ok(has(&db, "message", "data")? && has(&db, "part", "data")?));
        match tables {
            Ok(true) => Fit::Yes,
            Ok(false) => {
                Fit::Near("a SQLite database, but without OpenCode's tables `message` and `part`".to_owned())
            }
            Err(error) => Fit::Near(error.to_string()),
        }
    }

    fn read(&self, input: &Input<'_>, _: &Options, out: &mut Out<'_>) -> Result<(), Error> {
        let db = open(input.path())?;
        let parent = if has(&db, "session", "parent_id")? {
            "(SELECT parent_id FROM session WHERE id = part.session_id)"
        } else {
            "NULL"
        };
        let size = fs::metadata(input.path())?.len();
        let last: i64 = db.query_row("SELECT coalesce(max(rowid), 0) FROM part", [], |row| row.get(0))?;
        let mut steps = db.prepare(&format!(
            "SELECT part.rowid, part.id, part.message_id, part.session_id, part.time_created, part.data,
                    (SELECT data FROM message WHERE id = part.message_id), {parent}
             FROM part WHERE instr(substr(part.data, 1, 4096), '\"step-') > 0 ORDER BY part.rowid"
        ))?;
        let mut rows = steps.query([])?;
        let (mut started, mut read) = (HashMap::new(), 0);
        while let Some(row) = rows.next()? {
            read += 1;
            if read % ROWS_AT_ONCE == 0 {
                let at: i64 = row.get(0)?;
                input.gauge().reach(share(size, at, last));
                if out.stopped() {
                    return Ok(());
                }
            }
            match Step::from(row).and_then(|step| step.stream(&mut started, out.summary())) {
                Ok(Some((summary, helper))) => {
                    out.set_aside(helper.then_some(HELPERS));
                    out.summary_only(&summary);
                }
                Ok(None) => {}
                Err(reason) => out.skip(reason),
            }
        }
        Ok(())
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Unusable(format!("SQLite says: {error}"))
    }
}

/// `size` bytes × `at` of `last` rows.
fn share(size: u64, at: i64, last: i64) -> u64 {
    let (at, last) = (u128::from(at.unsigned_abs()), u128::from(last.unsigned_abs().max(1)));
    u64::try_from(u128::from(size) * at.min(last) / last).unwrap_or(size)
}

fn open(path: &Path) -> Result<Connection, Error> {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    let has_log = fs::metadata(wal).is_ok_and(|meta| meta.len() > 0);
    let mode = if has_log { "mode=ro" } else { "immutable=1" };
    let uri = format!("file:{}?{mode}", percent_encoded(path)?);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok(Connection::open_with_flags(uri, flags)?)
}

/// A path as it may stand in a URI.
fn percent_encoded(path: &Path) -> Result<String, Error> {
    let path =
        path.to_str().ok_or_else(|| Error::Unusable("the path is not UTF-8; rename the file".to_owned()))?;
    Ok(path.replace('%', "%25").replace('?', "%3f").replace('#', "%23"))
}

fn has(db: &Connection, table: &str, column: &str) -> Result<bool, Error> {
    let sql = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = ?2";
    Ok(db.query_row(sql, [table, column], |row| row.get::<_, i64>(0))? > 0)
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    reason: Option<String>,
    tokens: Option<Tokens>,
}

#[derive(Deserialize)]
struct Tokens {
    input: Option<u64>,
    output: Option<u64>,
    reasoning: Option<u64>,
    #[serde(default)]
    cache: Cache,
}

#[derive(Default, Deserialize)]
struct Cache {
    read: Option<u64>,
    write: Option<u64>,
}

#[derive(Default, Deserialize)]
struct Message {
    #[serde(rename = "modelID")]
    model: Option<String>,
    #[serde(rename = "providerID")]
    provider: Option<String>,
    variant: Option<String>,
    /// The user's message that this one answers.
    #[serde(rename = "parentID")]
    parent: Option<String>,
}

/// A row of `part` with its message.
struct Step {
    id: String,
    message_id: String,
    session_id: String,
    /// ms since 1970.
    at: Option<i64>,
    part: Part,
    message: Message,
    helper: bool,
}

type Reason = &'static str;

impl Step {
    fn from(row: &Row<'_>) -> Result<Self, Reason> {
        let text = |column: usize| row.get::<_, String>(column).map_err(|_| "unexpected-shape");
        let part: String = text(5)?;
        let message: Option<String> = row.get(6).map_err(|_| "unexpected-shape")?;
        let parse =
            |error: serde_json::Error| if error.is_data() { "unexpected-shape" } else { "invalid-json" };
        Ok(Self {
            id: text(1)?,
            message_id: text(2)?,
            session_id: text(3)?,
            at: row.get(4).ok(),
            part: serde_json::from_str(&part).map_err(parse)?,
            message: message
                .map(|json| serde_json::from_str(&json))
                .transpose()
                .map_err(parse)?
                .unwrap_or_default(),
            helper: row.get::<_, Option<String>>(7).is_ok_and(|parent| parent.is_some()),
        })
    }

    /// The stream that this step ends, and whether a helper's; `started` holds the steps under way.
    fn stream(
        self,
        started: &mut HashMap<String, i64>,
        blank: Summary,
    ) -> Result<Option<(Summary, bool)>, Reason> {
        match &*self.part.kind {
            "step-start" => {
                if let Some(at) = self.at {
                    started.insert(self.message_id, at);
                }
                Ok(None)
            }
            "step-finish" => {
                let start = started.remove(&self.message_id);
                let tokens = self.part.tokens.as_ref().ok_or("no-usage")?;
                if [tokens.input, tokens.output, tokens.cache.read]
                    .iter()
                    .all(|count| count.unwrap_or(0) == 0)
                {
                    return Err("not-a-response");
                }
                Ok(Some((self.summary(tokens, start, blank), self.helper)))
            }
            _ => Ok(None),
        }
    }

    fn summary(&self, tokens: &Tokens, start: Option<i64>, blank: Summary) -> Summary {
        let took = start.zip(self.at).map(|(start, end)| (end - start) * 1000).filter(|took| *took >= 0);
        let turn = self.message.parent.as_ref().unwrap_or(&self.message_id);
        Summary {
            stream_id: key(&[&self.id]),
            session_key: Some(key(&[&self.session_id])),
            turn_key: Some(key(&[turn])),
            upstream: self.message.provider.clone(),
            client_app: Some("opencode".to_owned()),
            model_requested: self.message.model.clone(),
            effort: self.message.variant.clone(),
            started_at: took.and(start).map(|start| UtcMicros(start * 1000)),
            t_end: took.map(Micros),
            time_source: if took.is_some() { TimeSource::User } else { TimeSource::None },
            outcome: outcome(self.part.reason.as_deref()),
            usage: tokens.usage(),
            ..blank
        }
    }
}

fn outcome(reason: Option<&str>) -> Outcome {
    match reason {
        Some("stop" | "tool-calls") => Outcome::Completed,
        Some("length" | "content-filter") => Outcome::Incomplete,
        Some("error") => Outcome::Failed,
        _ => Outcome::Unknown,
    }
}

impl Tokens {
    #[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^53")]
    fn usage(&self) -> Usage {
        let cache = self.cache.read.unwrap_or(0).saturating_add(self.cache.write.unwrap_or(0));
        Usage {
            input: self.input.map(|input| input.saturating_add(cache)),
            cached: self.cache.read,
            output: self.output.map(|output| output.saturating_add(self.reasoning.unwrap_or(0))),
            reasoning: self.reasoning.map(|tokens| tokens as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;

    /// Built from the schema's description, for there is no database of a real user among the data.
    const SCHEMA: &str = "
        CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT);
        CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT NOT NULL, time_created INTEGER NOT NULL,
                              time_updated INTEGER NOT NULL, data TEXT NOT NULL);
        CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT NOT NULL, session_id TEXT NOT NULL,
                           time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, data TEXT NOT NULL);
        INSERT INTO session VALUES ('s1', NULL), ('s2', 's1');
        INSERT INTO message VALUES
          ('m1', 's1', 1000, 9000, '{\"role\":\"assistant\",\"modelID\":\"gpt-5.5\",\"providerID\":\"openai\",\"variant\":\"xhigh\",\"parentID\":\"u1\",\"tokens\":{\"input\":9,\"output\":9,\"reasoning\":1032,\"cache\":{\"read\":0,\"write\":0}},\"time\":{\"created\":1000,\"completed\":9000}}'),
          ('m2', 's2', 1000, 9000, '{\"role\":\"assistant\",\"modelID\":\"gpt-5.4-mini\",\"providerID\":\"openai\"}');
        INSERT INTO part VALUES
          ('p1', 'm1', 's1', 1000, 1000, '{\"type\":\"step-start\"}'),
          ('p2', 'm1', 's1', 1100, 3000, '{\"type\":\"reasoning\",\"text\":\"t\",\"time\":{\"start\":1100,\"end\":3000}}'),
          ('p3', 'm1', 's1', 4000, 4000, '{\"type\":\"step-finish\",\"reason\":\"tool-calls\",\"cost\":0,\"tokens\":{\"input\":100,\"output\":20,\"reasoning\":516,\"cache\":{\"read\":900,\"write\":0}}}'),
          ('p4', 'm1', 's1', 5000, 5000, '{\"type\":\"step-start\"}'),
          ('p5', 'm1', 's1', 9000, 9000, '{\"type\":\"step-finish\",\"reason\":\"stop\",\"tokens\":{\"input\":200,\"output\":30,\"reasoning\":516,\"cache\":{\"read\":1000,\"write\":5}}}'),
          ('p6', 'm2', 's2', 9000, 9000, '{\"type\":\"step-finish\",\"reason\":\"length\",\"tokens\":{\"input\":7,\"output\":3,\"reasoning\":0}}'),
          ('p7', 'm2', 's2', 9000, 9000, '{\"type\":\"step-finish\",\"reason\":\"stop\"}'),
          ('p8', 'm2', 's2', 9000, 9000, '{\"type\":\"step-finish\",'),
          ('p9', 'm2', 's2', 9000, 9000, '{\"type\":\"text\",\"text\":\"a \\\"step-finish\\\" in a text\"}');";

    fn database(name: &str, sql: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        (folder, path)
    }

    #[test]
    fn steps_are_requests_and_counters_are_made_ours() {
        let (folder, path) = database("open code?#%.db", SCHEMA);
        let before = fs::read(&path).unwrap();
        let (imported, kept) = read(&path, &Options::default());
        assert_eq!((imported[0].format, &imported[0].error), ("opencode", &None));
        let first = &kept.streams[0].1;
        assert_eq!(
            first.usage,
            Usage { input: Some(1000), cached: Some(900), output: Some(536), reasoning: Some(516.0) }
        );
        assert_eq!((first.model(), first.effort.as_deref()), (Some("gpt-5.5"), Some("xhigh")));
        assert_eq!((first.started_at, first.t_end), (Some(UtcMicros(1_000_000)), Some(Micros(3_000_000))));
        assert_eq!(kept.streams[1].1.usage.input, Some(1205));
        assert_eq!(kept.streams[1].1.turn_key, first.turn_key);
        assert!(kept.streams[2].0.ends_with("(helper threads)"));
        assert_eq!((kept.streams[2].1.outcome, kept.streams[2].1.t_end), (Outcome::Incomplete, None));
        assert_eq!(kept.streams.len(), 3);
        assert_eq!(imported[0].skipped, [("invalid-json", 1), ("no-usage", 1)].into());
        assert_eq!(fs::read(&path).unwrap(), before, "nothing is written");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no file is created");
    }

    #[test]
    fn what_stands_only_in_the_write_ahead_log_is_read() {
        let (_folder, path) = database("opencode.db", "PRAGMA journal_mode = WAL");
        let writer = Connection::open(&path).unwrap();
        writer.execute_batch(&format!("PRAGMA wal_autocheckpoint = 0; {SCHEMA}")).unwrap();
        let (imported, _) = read(&path, &Options::default());
        assert_eq!((imported[0].format, imported[0].streams), ("opencode", 3));
    }

    #[test]
    fn other_and_broken_databases_are_told() {
        let (_folder, path) = database("other.db", "CREATE TABLE part (id)");
        let (imported, _) = read(&path, &Options::default());
        assert!(imported[0].error.as_ref().unwrap().contains("without OpenCode's tables"));
        let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
                    INSERT INTO part SELECT 'x' || i, 'm1', 's1', i, i, '{\"type\":\"text\"}' FROM n;";
        let (_folder, path) = database("opencode.db", &format!("{SCHEMA}{many}"));
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let (imported, _) = read(&path, &Options::default());
        assert!(imported[0].error.as_ref().unwrap().contains("SQLite says"), "{imported:?}");
    }
}
