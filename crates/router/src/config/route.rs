//! `[[route]]`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use sseismo_trace::Api;

use super::section::{Section, Value};
use super::server::durations;
use super::{Member, Rollback, Route, Upstream, upstream};
use crate::policy;

/// Declared upstreams by name; `None` for one that has faults of its own.
pub(super) type Declared = BTreeMap<String, Option<Arc<Upstream>>>;

/// The time for all attempts together: answers that are not streamed come whole, after minutes of reasoning.
const DEADLINE: Duration = Duration::from_mins(10);

/// How long the tiers must have failed, unless stated.
const ROLLBACK_AFTER: Duration = Duration::from_mins(5);

/// Reads one route; `None` when it cannot be used.
pub(super) fn route(mut section: Section<'_>, declared: &Declared) -> Option<Route> {
    let model = section.needed("model");
    if let Some(model) = model {
        section.entitle(format!("route \"{model}\""));
    }
    let tiers = tiers(&section, declared);
    let rollback = rollback(&section, declared);
    let stated = upstream::apis(&section);
    let first: Vec<Api> = tiers.first().into_iter().flatten().flat_map(|m| m.upstream.apis.clone()).collect();
    let spoken = || upstream::APIS.into_iter().filter(|api| first.contains(api)).collect();
    let apis = stated.unwrap_or_else(spoken);
    if tiers.first().is_some_and(|tier| !tier.is_empty()) {
        for api in apis.iter().filter(|api| !first.contains(api)) {
            section.fault("apis", &format!("no upstream of the first tier speaks {}", api.name()));
        }
    }
    let mut route = Route {
        model: model.unwrap_or_default().into(),
        apis,
        tiers,
        commit_after: Duration::from_secs(1),
        deadline: DEADLINE,
        fallback_share: section.share("fallback_share").unwrap_or(0.5),
        retry_budget: section.share("retry_budget").unwrap_or(0.1),
        fallback_in_flight: section.size("fallback_in_flight", 1..=1_000_000),
        rollback,
        policies: Vec::new(),
    };
    durations(&section, [("commit_after", &mut route.commit_after), ("deadline", &mut route.deadline)]);
    if route.commit_after >= route.deadline {
        section.fault("commit_after", "`commit_after` must be shorter than `deadline`");
    }
    fallbacks_can(&section, &route);
    route.policies = policy::read(&section, &route);
    section.end();
    model.map(|_| route)
}

fn tiers(section: &Section<'_>, declared: &Declared) -> Vec<Vec<Member>> {
    if !section.has("tiers") {
        section.fault("tiers", "`tiers` is missing: [[\"first\"], [\"fallback\"]]");
    }
    let list = section.list("tiers").unwrap_or_default();
    if section.has("tiers") && list.is_empty() {
        section.fault("tiers", "`tiers` is empty: no upstream would ever be asked");
    }
    let mut seen = Vec::new();
    list.iter().map(|tier| members(section, tier, declared, &mut seen)).collect()
}

fn members(
    section: &Section<'_>,
    tier: Value<'_>,
    declared: &Declared,
    seen: &mut Vec<String>,
) -> Vec<Member> {
    let Some(items) = tier.get_ref().as_array() else {
        section.fault_at(&tier.span(), "a tier is a list: [{ upstream = \"a\", weight = 3 }, \"b\"]");
        return Vec::new();
    };
    if items.is_empty() {
        section.fault_at(&tier.span(), "a tier is empty");
    }
    let mut weights = Vec::new();
    let mut members = Vec::new();
    for item in items {
        let Some((name, weight)) = member(section, item) else { continue };
        weights.push(weight);
        if seen.contains(&name) {
            section.fault_at(&item.span(), &format!("the upstream `{name}` stands in the route twice"));
        }
        let upstream = find(section, &item.span(), &name, declared);
        seen.push(name);
        members.extend(upstream.map(|upstream| Member { upstream, weight }));
    }
    if !weights.is_empty() && weights.iter().all(|weight| *weight <= 0.0) {
        section.fault_at(&tier.span(), "all weights of a tier are 0: nobody would take its traffic");
    }
    members
}

/// `"a"` or `{ upstream = "a", weight = 3 }`.
fn member(section: &Section<'_>, item: Value<'_>) -> Option<(String, f64)> {
    if let Some(name) = item.get_ref().as_str() {
        return Some((name.to_owned(), 1.0));
    }
    let Some(inner) = section.inline(item) else {
        section.fault_at(&item.span(), "a member of a tier is \"a\" or { upstream = \"a\", weight = 3 }");
        return None;
    };
    let name = inner.needed("upstream");
    let weight = inner.amount("weight").or_else(|| (!inner.has("weight")).then_some(1.0));
    inner.end();
    Some((name?.to_owned(), weight?))
}

fn find(section: &Section<'_>, at: &Range<usize>, name: &str, declared: &Declared) -> Option<Arc<Upstream>> {
    let Some(upstream) = declared.get(name) else {
        let known: Vec<&str> = declared.keys().map(String::as_str).collect();
        section.fault_at(at, &format!("there is no upstream `{name}`; known are {}", known.join(", ")));
        return None;
    };
    upstream.clone()
}

fn rollback(section: &Section<'_>, declared: &Declared) -> Option<Rollback> {
    let name = section.text("rollback");
    let after = section.duration("rollback_after");
    if after.is_some() && !section.has("rollback") {
        section.fault("rollback_after", "`rollback_after` needs `rollback = \"UPSTREAM\"`");
    }
    let at = section.value("rollback")?.span();
    let upstream = find(section, &at, name?, declared)?;
    Some(Rollback { upstream, after: after.unwrap_or(ROLLBACK_AFTER) })
}

/// Every upstream after the first tier must take what the first tier takes: otherwise it is no fallback.
fn fallbacks_can(section: &Section<'_>, route: &Route) {
    let first = route.tiers.first().map_or(0, Vec::len);
    for upstream in route.upstreams().skip(first) {
        let missing: Vec<&str> =
            route.apis.iter().filter(|api| !upstream.apis.contains(api)).map(|api| api.name()).collect();
        if !missing.is_empty() {
            let message = format!(
                "the fallback `{}` cannot take requests of the API {}; name with `apis` what the route is asked in, \
                 or use another fallback",
                upstream.name,
                missing.join(", ")
            );
            section.fault("tiers", &message);
        }
    }
}
