//! What was learned, to be kept over a restart.
//!
//! In: the watches' own JSON. Out: the same, when it still fits. Times of evidence are not kept: a restart
//! forgets suspicion and keeps knowledge.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sseismo_trace::Scope;

/// The layout of the watches' JSON; another one is not read.
pub(crate) const VERSION: u32 = 1;

/// What every watch of one scope learned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScopeBaselines {
    /// The scope.
    pub scope: Scope,
    /// By the signature's name.
    pub watches: BTreeMap<String, Value>,
}

/// What the detector learned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baselines {
    /// The layout of what follows.
    pub version: u32,
    /// By scope.
    pub scopes: Vec<ScopeBaselines>,
}
