//! Which traffic a series is about. In: names from configuration and from clients. Out: label sets, of which
//! there are never more than a bound.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use sseismo_trace::{Api, Summary};

/// Combinations of upstream, model and api with series of their own.
pub const MAX_TARGETS: usize = 64;

/// A model's name is cut after this many bytes: clients choose it.
const MAX_NAME: usize = 96;

/// What the rest goes under.
pub(super) const OTHER: &str = "other";

/// Labels of the product's own families.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Target {
    pub(super) upstream: String,
    pub(super) model: String,
    pub(super) api: &'static str,
}

/// The same in OpenTelemetry's names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
#[expect(clippy::struct_field_names, reason = "the fields are the labels' names")]
pub(super) struct GenAi {
    gen_ai_operation_name: &'static str,
    gen_ai_provider_name: &'static str,
    gen_ai_request_model: String,
    server_address: String,
    server_port: Option<String>,
}

impl Target {
    /// In OpenTelemetry's names. `gen_ai_provider_name` tells which dialect was spoken, as the convention has
    /// it for instrumentation that sees no more than that.
    pub(super) fn gen_ai(&self) -> GenAi {
        let (operation, provider) = match self.api {
            "responses" | "chat" => ("chat", "openai"),
            "messages" => ("chat", "anthropic"),
            "generate-content" => ("generate_content", "gcp.gen_ai"),
            other => ("chat", other),
        };
        let port = self.upstream.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
        GenAi {
            gen_ai_operation_name: operation,
            gen_ai_provider_name: provider,
            gen_ai_request_model: self.model.clone(),
            server_address: port.map_or(self.upstream.as_str(), |(host, _)| host).to_owned(),
            server_port: port.map(|(_, port)| port.to_owned()),
        }
    }
}

/// The combinations seen so far.
#[derive(Debug, Default)]
pub(super) struct Targets(Mutex<HashSet<Target>>);

impl Targets {
    /// The labels of a stream.
    pub(super) fn of(&self, summary: &Summary) -> Target {
        let model = summary.model_requested.as_deref().or(summary.model_served.as_deref());
        let target = Target {
            upstream: summary.upstream.clone().unwrap_or_else(|| "unknown".to_owned()),
            model: cut(model.unwrap_or("unknown")).to_owned(),
            api: summary.api.map_or("unknown", Api::name),
        };
        self.bound(target)
    }

    /// `target` itself while there is room, then the same with the model called `other`. Upstreams are
    /// configured and apis are few, so those need no bound.
    fn bound(&self, target: Target) -> Target {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.contains(&target) || (seen.len() < MAX_TARGETS && seen.insert(target.clone())) {
            target
        } else {
            Target { model: OTHER.to_owned(), ..target }
        }
    }
}

/// A name of bounded length.
pub(super) fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(upstream: &str, model: &str) -> Summary {
        Summary {
            upstream: Some(upstream.to_owned()),
            model_requested: Some(model.to_owned()),
            api: Some(Api::Messages),
            ..Summary::default()
        }
    }

    #[test]
    fn whatever_clients_ask_for_series_stay_bounded() {
        let targets = Targets::default();
        let seen: HashSet<Target> =
            (0..10_000).map(|n| targets.of(&summary("a", &format!("model-{n}")))).collect();
        assert_eq!(seen.len(), MAX_TARGETS + 1);
        assert_eq!(targets.of(&summary("a", "model-3")).model, "model-3", "the first keep theirs");
        assert_eq!(targets.of(&summary("a", &"ü".repeat(90))).model, OTHER);
        assert_eq!(cut(&"ü".repeat(90)).len(), MAX_NAME);
    }

    #[test]
    fn open_telemetry_has_the_port_apart() {
        let targets = Targets::default();
        let local = targets.of(&summary("127.0.0.1:8000", "m")).gen_ai();
        assert_eq!(
            (local.server_address.as_str(), local.server_port.as_deref()),
            ("127.0.0.1", Some("8000"))
        );
        assert_eq!((local.gen_ai_operation_name, local.gen_ai_provider_name), ("chat", "anthropic"));
        assert_eq!(targets.of(&summary("api.example", "m")).gen_ai().server_port, None);
    }
}
