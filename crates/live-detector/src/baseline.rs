//! What was learned, to be kept over a restart.
//!
//! In: copies of what the watches know. Out: JSON, made wherever there is time for it, and the same read back, when it
//! still fits. Times of evidence are not kept: a restart forgets suspicion and keeps knowledge.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

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

/// What one watch learned, and how JSON is made of it.
pub(crate) struct Kept(Box<dyn FnOnce() -> Value + Send>);

impl Kept {
    /// Of a copy.
    pub(crate) fn of(known: impl Serialize + Send + 'static) -> Self {
        Self(Box::new(move || serde_json::to_value(known).unwrap_or_default()))
    }

    /// Nothing is worth keeping.
    pub(crate) fn nothing() -> Self {
        Self(Box::new(|| Value::Null))
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kept")
    }
}

/// What is known of one scope.
#[derive(Debug)]
pub(crate) enum Known {
    /// By the signature's name.
    Live(BTreeMap<&'static str, Kept>),
    /// From an earlier run; nothing of this scope was seen yet.
    Saved(Arc<ScopeBaselines>),
}

/// What a detector knew at one moment: taken between two events, since it is a copy, and made JSON of on any thread,
/// since that takes some twenty times as long (8 scopes: 2.4 and 59 ms, example `live_bench`).
#[derive(Debug)]
pub struct Snapshot(pub(crate) BTreeMap<Scope, Known>);

impl Snapshot {
    /// As JSON that can be taken up again.
    pub fn baselines(self) -> Baselines {
        let scopes = self.0.into_iter().map(|(scope, known)| Arc::unwrap_or_clone(known.json(scope)));
        Baselines { version: VERSION, scopes: scopes.collect() }
    }

    /// Writes [`Self::baselines`] scope by scope: of one alone the JSON takes several MB of memory.
    ///
    /// # Errors
    /// When `out` does not take it.
    pub fn write(self, mut out: impl Write) -> io::Result<()> {
        write!(out, "{{\"version\":{VERSION},\"scopes\":[")?;
        for (place, (scope, known)) in self.0.into_iter().enumerate() {
            if place > 0 {
                out.write_all(b",")?;
            }
            serde_json::to_writer(&mut out, &*known.json(scope))?;
        }
        out.write_all(b"]}")?;
        out.flush()
    }
}

impl Known {
    fn json(self, scope: Scope) -> Arc<ScopeBaselines> {
        match self {
            Self::Saved(saved) => saved,
            Self::Live(watches) => {
                let watches = watches.into_iter().map(|(name, kept)| (name.to_owned(), (kept.0)()));
                Arc::new(ScopeBaselines { scope, watches: watches.collect() })
            }
        }
    }
}
