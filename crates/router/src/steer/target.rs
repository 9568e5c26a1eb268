//! Which lanes and calls a signal is about.

use serde::Serialize;
use sseismo_trace::Scope;

/// The part of a signal's scope that routing can tell. What is `None` is any.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Target {
    /// The upstream's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// The route's model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The model's name at the upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Reasoning effort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
}

impl Target {
    /// That of a scope.
    pub fn of(scope: &Scope) -> Self {
        Self {
            upstream: scope.upstream.clone(),
            route: scope.route.clone(),
            model: scope.model.clone(),
            effort: scope.effort.clone(),
        }
    }

    /// Whether some calls of a lane are meant; the lane of a wildcard route has the model `*`.
    pub(crate) fn meets_lane(&self, upstream: &str, model: &str) -> bool {
        is(self.upstream.as_deref(), upstream) && (model == "*" || is(self.model.as_deref(), model))
    }

    /// Whether a call is meant, were it sent to this upstream under this model name.
    pub(crate) fn meets(&self, upstream: &str, model: &str, route: &str, effort: &str) -> bool {
        is(self.upstream.as_deref(), upstream)
            && is(self.model.as_deref(), model)
            && is(self.route.as_deref(), route)
            && is(self.effort.as_deref(), effort)
    }
}

fn is(wanted: Option<&str>, is: &str) -> bool {
    wanted.is_none_or(|wanted| wanted == is)
}
