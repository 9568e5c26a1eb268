//! The report that other tools read: `sseismo.report/1`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sseismo_trace::Finding;

use crate::signature::SIGNATURES;

/// Name and version of the report's form.
pub const SCHEMA: &str = "sseismo.report/1";

/// What one run read and what it decided.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Version of the program.
    pub version: String,
    /// The run was ended by the user: what is here covers what had been read by then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// One entry per file.
    pub inputs: Vec<Input>,
    /// One entry per scope and signature.
    pub findings: Vec<Finding>,
}

/// One file that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Input {
    /// Where it lies, as reached from the command line.
    pub path: String,
    /// The format that its content showed; `unknown` when none fits.
    pub format: String,
    /// Streams (attempts of requests) read.
    pub streams: u64,
    /// Server-sent events read, comments not counted.
    pub events: u64,
    /// Records left out, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// What a reader of the results should know about this file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Why the file, or the rest of it, could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// JSON Schema of [`Report`], with the evidence of each signature under `$defs`.
pub fn schema() -> schemars::Schema {
    let mut schema = schemars::schema_for!(Report);
    let evidence = SIGNATURES.iter().map(|signature| {
        (format!("evidence-{}", signature.id().name()), signature.evidence_schema().to_value())
    });
    if let Some(serde_json::Value::Object(defs)) = schema.get_mut("$defs") {
        defs.extend(evidence);
    }
    schema
}
