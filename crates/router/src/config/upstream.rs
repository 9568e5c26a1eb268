//! `[[upstream]]`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sseismo_trace::Api;

use super::section::{Section, number};
use super::server::{durations, with_cause};
use super::{Connection, HealthCheck, KeyHeader, Upstream};
use crate::keys::{Env, Source};
use crate::observe;
use crate::spend::Price;

/// The APIs that the relay routes.
pub(super) const APIS: [Api; 3] = [Api::Responses, Api::Chat, Api::Messages];

/// The wait for a streamed answer's head, unless stated. Hosted APIs send it within seconds; a llama.cpp that
/// works on a long prompt first needs more, and says so in the file.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads one upstream; files that it names are added to `files`. `None` when it cannot be used.
pub(super) fn upstream(
    mut section: Section<'_>,
    folder: &Path,
    env: Env<'_>,
    files: &mut Vec<PathBuf>,
) -> Option<Upstream> {
    let name = section.needed("name").filter(|name| named_well(&section, "name", name));
    if let Some(name) = name {
        section.entitle(format!("upstream \"{name}\""));
    }
    let base = section.needed("url").and_then(|url| base(&section, url));
    let apis = apis(&section).unwrap_or_else(|| {
        section
            .fault("apis", "`apis` is missing: name what it speaks, [\"responses\", \"chat\", \"messages\"]");
        Vec::new()
    });
    let keys = keys(&section, folder, env, files);
    let name: Arc<str> = name.unwrap_or_default().into();
    let read = Upstream {
        key_header: key_header(&section, &apis),
        region: section.text("region").map(Arc::from),
        organisation: organisation(&section).unwrap_or_else(|| name.clone()),
        models: models(&section),
        drop: section.texts("drop").into_iter().map(|(_, name)| name.to_owned()).collect(),
        clamp: clamp(&section),
        context_limit: section.whole("context_limit", 1..=u64::MAX),
        connection: connection(&section),
        prices: prices(&section),
        headers_timeout: section.duration("headers_timeout").unwrap_or(HEADERS_TIMEOUT),
        first_content_timeout: section.duration("first_content_timeout"),
        health: section.section("health").map(health),
        name,
        base: base?,
        apis,
        keys,
    };
    section.end();
    Some(read)
}

/// Names stand in headers, metrics and file names.
fn named_well(section: &Section<'_>, key: &str, name: &str) -> bool {
    let well = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !well {
        section.fault(key, &format!("`{key}` may hold letters, digits, `-`, `_` and `.` only"));
    }
    well
}

fn organisation(section: &Section<'_>) -> Option<Arc<str>> {
    let name = section.text("organisation")?;
    named_well(section, "organisation", name).then(|| name.into())
}

fn base(section: &Section<'_>, url: &str) -> Option<observe::Upstream> {
    let base = match observe::Upstream::parse(url) {
        Ok(base) => base,
        Err(error) => {
            section.fault("url", &error.to_string());
            return None;
        }
    };
    // Clients ask for /v1/responses, and what stands after /v1 is put after this URL.
    let version = |part: &str| {
        part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    if !base.prefix().split('/').any(version) {
        section.fault(
            "url",
            "`url` has no version in its path: write it with /v1, as in \"https://api.example/v1\"",
        );
    }
    Some(base)
}

/// `apis` by name; `None` when there is no such key.
pub(super) fn apis(section: &Section<'_>) -> Option<Vec<Api>> {
    if !section.has("apis") {
        return None;
    }
    let mut apis = Vec::new();
    for (at, name) in section.texts("apis") {
        match APIS.into_iter().find(|api| api.name() == name) {
            Some(api) if !apis.contains(&api) => apis.push(api),
            Some(_) => {}
            None => section.fault_at(&at, "an API is one of \"responses\", \"chat\", \"messages\""),
        }
    }
    if apis.is_empty() {
        section.fault("apis", "`apis` names no API");
    }
    Some(apis)
}

fn keys(section: &Section<'_>, folder: &Path, env: Env<'_>, files: &mut Vec<PathBuf>) -> Vec<Source> {
    let key = |(at, text): (Range<usize>, &str)| {
        let source =
            Source::parse(text, folder).map_err(|error| section.fault_at(&at, &with_cause(&error))).ok()?;
        files.extend(source.file().map(Path::to_owned));
        if let Err(error) = source.read(env) {
            section.fault_at(&at, &with_cause(&error));
        }
        Some(source)
    };
    section.texts("keys").into_iter().filter_map(key).collect()
}

fn key_header(section: &Section<'_>, apis: &[Api]) -> KeyHeader {
    match section.text("key_header") {
        None if apis == [Api::Messages] => KeyHeader::XApiKey,
        None | Some("authorization") => KeyHeader::Bearer,
        Some("x-api-key") => KeyHeader::XApiKey,
        Some("api-key") => KeyHeader::ApiKey,
        Some(_) => {
            section
                .fault("key_header", "`key_header` must be \"authorization\", \"x-api-key\" or \"api-key\"");
            KeyHeader::default()
        }
    }
}

fn models(section: &Section<'_>) -> BTreeMap<String, String> {
    let model = |(name, value): (&str, super::section::Value<'_>)| {
        let own = value.get_ref().as_str().filter(|own| !own.is_empty());
        if own.is_none() {
            section.fault_at(&value.span(), &format!("the upstream's name for `{name}` must be a string"));
        }
        Some((name.to_owned(), own?.to_owned()))
    };
    section.entries("models").into_iter().filter_map(model).collect()
}

fn clamp(section: &Section<'_>) -> BTreeMap<String, f64> {
    let limit = |(name, value): (&str, super::section::Value<'_>)| {
        let limit = number(value.get_ref());
        if limit.is_none() {
            section.fault_at(&value.span(), &format!("the largest `{name}` must be a number"));
        }
        Some((name.to_owned(), limit?))
    };
    section.entries("clamp").into_iter().filter_map(limit).collect()
}

fn connection(section: &Section<'_>) -> Connection {
    let Some(value) = section.value("connection") else { return Connection::default() };
    match value.get_ref().as_str() {
        Some("reuse") => return Connection::Reuse,
        Some("fresh") => return Connection::Fresh,
        _ => {}
    }
    if let Some(inner) = section.inline(value)
        && inner.has("max_age")
    {
        let age = inner.duration("max_age");
        inner.end();
        return age.map_or(Connection::Reuse, Connection::MaxAge);
    }
    section.fault("connection", "`connection` must be \"reuse\", \"fresh\" or { max_age = \"5m\" }");
    Connection::default()
}

fn prices(section: &Section<'_>) -> BTreeMap<String, Price> {
    let price = |(model, value): (&str, super::section::Value<'_>)| {
        let Some(inner) = section.inline(value) else {
            section.fault_at(
                &value.span(),
                &format!("the price of `{model}` must be {{ input = …, output = … }}"),
            );
            return None;
        };
        let (input, output) = (inner.amount("input"), inner.amount("output"));
        let price = Price { input: input?, cached_input: inner.amount("cached_input"), output: output? };
        inner.end();
        Some((model.to_owned(), price))
    };
    section.entries("prices").into_iter().filter_map(price).collect()
}

fn health(section: Section<'_>) -> HealthCheck {
    let mut health = HealthCheck {
        path: "/models".to_owned(),
        every: Duration::from_secs(10),
        timeout: Duration::from_secs(2),
    };
    if let Some(path) = section.text("path") {
        if path.starts_with('/') {
            path.clone_into(&mut health.path);
        } else {
            section.fault("path", "`path` must begin with /");
        }
    }
    durations(&section, [("every", &mut health.every), ("timeout", &mut health.timeout)]);
    section.end();
    health
}
