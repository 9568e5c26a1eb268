//! What a verdict is about.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A property by which streams are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Dim {
    /// The input path.
    Source,
    /// Calendar month of the stream's start, UTC, `2026-07`.
    Month,
    /// Where the request went.
    Upstream,
    /// The API spoken.
    Api,
    /// The route of our relay.
    Route,
    /// The calling program.
    Client,
    /// The canary arm, or the value of a split column.
    Arm,
    /// The model: served, else requested.
    Model,
    /// Reasoning effort.
    Effort,
}

impl Dim {
    /// Every dimension, in the order in which a scope prints them.
    pub const ALL: [Self; 9] = [
        Self::Source,
        Self::Month,
        Self::Upstream,
        Self::Api,
        Self::Route,
        Self::Client,
        Self::Arm,
        Self::Model,
        Self::Effort,
    ];

    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Month => "month",
            Self::Upstream => "upstream",
            Self::Api => "api",
            Self::Route => "route",
            Self::Client => "client",
            Self::Arm => "arm",
            Self::Model => "model",
            Self::Effort => "effort",
        }
    }
}

/// A set of streams, by the values they share. A missing value means "not split by it".
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Scope {
    /// The input path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Calendar month, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub month: Option<String>,
    /// Where the requests went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// The API spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// The relay's route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The calling program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The canary arm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// The model: served, else requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Reasoning effort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
}

impl Scope {
    /// The value of one dimension.
    pub fn get(&self, dim: Dim) -> Option<&str> {
        match dim {
            Dim::Source => &self.source,
            Dim::Month => &self.month,
            Dim::Upstream => &self.upstream,
            Dim::Api => &self.api,
            Dim::Route => &self.route,
            Dim::Client => &self.client,
            Dim::Arm => &self.arm,
            Dim::Model => &self.model,
            Dim::Effort => &self.effort,
        }
        .as_deref()
    }

    /// The scope with one dimension set.
    #[must_use]
    pub fn with(mut self, dim: Dim, value: impl Into<String>) -> Self {
        let slot = match dim {
            Dim::Source => &mut self.source,
            Dim::Month => &mut self.month,
            Dim::Upstream => &mut self.upstream,
            Dim::Api => &mut self.api,
            Dim::Route => &mut self.route,
            Dim::Client => &mut self.client,
            Dim::Arm => &mut self.arm,
            Dim::Model => &mut self.model,
            Dim::Effort => &mut self.effort,
        };
        *slot = Some(value.into());
        self
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for dim in Dim::ALL {
            if let Some(value) = self.get(dim) {
                write!(f, "{separator}{}={value}", dim.name())?;
                separator = " ";
            }
        }
        if separator.is_empty() { f.write_str("everything") } else { Ok(()) }
    }
}
