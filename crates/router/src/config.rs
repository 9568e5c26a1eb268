//! The relay's configuration: TOML text in, a [`Config`] or every [`Fault`] with its line out.
//!
//! Unknown keys are refused, since a misspelt `first_content_timout` must not pass for "off". All faults are
//! told at once: whoever repairs a file at night wants one round, not ten. Nothing here opens a socket; the
//! environment and the named key files are read, so that a missing key shows before the first request.
//! `data/relay/relay.toml` is a commented example.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sseismo_trace::Api;
use toml::de::DeTable;

use crate::auth::Tokens;
use crate::keys::{Env, Secret, Source};
use crate::policy::Installed;
use crate::spend::Price;
use crate::{breaker, observe, steer};

mod fault;
mod route;
mod section;
mod server;
mod signals;
#[cfg(feature = "sinks")]
pub(crate) mod sink;
mod upstream;

pub use fault::Fault;
use fault::Faults;
pub(crate) use section::{Section, number};

/// Everything that a relay is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen, and the limits of what comes in.
    pub server: Server,
    /// Who may call; `None`: everybody who reaches the socket, which is loopback then.
    pub auth: Option<Arc<Tokens>>,
    /// When an upstream's model is left alone.
    pub breaker: breaker::Settings,
    /// `[affinity]`.
    pub affinity: Affinity,
    /// `[signals]`.
    pub signals: steer::Settings,
    /// Every upstream, in the file's order.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Every route, in the file's order.
    pub routes: Vec<Arc<Route>>,
    /// Every sink, in the file's order.
    #[cfg(feature = "sinks")]
    pub sinks: Vec<crate::sink::Named>,
    /// Files with keys and tokens that the configuration names: a change of theirs is a change of it.
    pub files: Vec<PathBuf>,
}

/// `[server]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where callers connect.
    pub listen: SocketAddr,
    /// Where the admin API listens; `None`: nowhere. Always loopback.
    pub admin: Option<SocketAddr>,
    /// The token that the admin API asks for.
    pub admin_token: Option<Secret>,
    /// How long open streams may go on after SIGTERM.
    pub drain: Duration,
    /// After this much silence in the middle of an answer the client gets a sign of life; `None`: never.
    pub keep_alive: Option<Duration>,
    /// `[server.limits]`.
    pub limits: Limits,
}

/// What one caller may take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's head.
    pub header_bytes: usize,
    /// Bytes of a request's body, as sent and after decompression.
    pub body_bytes: usize,
    /// Connections at once.
    pub connections: usize,
    /// Time for a request's head, from its connection's start or the request before.
    pub header_timeout: Duration,
    /// Time for a request's body.
    pub body_timeout: Duration,
    /// How long a connection may stay open without a request.
    pub idle_timeout: Duration,
}

/// `[affinity]`: where requests with state may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    /// What happens to requests that carry state of an issuer that is not known.
    pub unknown_state: UnknownState,
    /// Where known issuers are kept, so that they outlive a restart; `None`: in memory.
    pub file: Option<PathBuf>,
}

/// What to do with state (`encrypted_content`, `previous_response_id`, a thinking signature) whose issuer is
/// not known: the relay was started anew, or the state was issued without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownState {
    /// Send it to the route's ordinary first choice and to no other organisation after that.
    #[default]
    FirstChoice,
    /// Refuse it when the route has more than one organisation.
    Refuse,
}

/// One `[[upstream]]`.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its name in this file, in metrics and in headers.
    pub name: Arc<str>,
    /// Its base URL, `/v1` included: `https://api.example/v1`.
    pub base: observe::Upstream,
    /// The APIs that it speaks.
    pub apis: Vec<Api>,
    /// Where it is; a failed request goes to another region first.
    pub region: Option<Arc<str>>,
    /// Who can read the state that it issues; its own name unless stated.
    pub organisation: Arc<str>,
    /// Its keys; empty: requests are sent without one.
    pub keys: Vec<Source>,
    /// The header that carries the key.
    pub key_header: KeyHeader,
    /// Model names of routes → its own names. A model that is not listed keeps its name.
    pub models: BTreeMap<String, String>,
    /// Top-level request parameters that it does not know: they are left out.
    pub drop: Vec<String>,
    /// Top-level numeric request parameters → the largest value that it takes.
    pub clamp: BTreeMap<String, f64>,
    /// Tokens that fit into its context, prompt and answer together.
    pub context_limit: Option<u64>,
    /// How connections are used.
    pub connection: Connection,
    /// Its own model names → prices.
    pub prices: BTreeMap<String, Price>,
    /// Longest wait for the response's head, where a stream was asked for: a server that streams sends it
    /// before it generates. (Whole answers come with their head, after minutes.)
    pub headers_timeout: Duration,
    /// Longest wait for the first content; `None`: learned, and off until then.
    pub first_content_timeout: Option<Duration>,
    /// Active health checks.
    pub health: Option<HealthCheck>,
}

/// How connections to an upstream are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connection {
    /// As long as both sides keep them.
    #[default]
    Reuse,
    /// No new request on a connection older than this: a balancer pins connections to one shard.
    MaxAge(Duration),
    /// A new one for each request.
    Fresh,
}

/// The header that carries an upstream's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyHeader {
    /// `authorization: Bearer …`.
    #[default]
    Bearer,
    /// `x-api-key`, as Anthropic wants it.
    XApiKey,
    /// `api-key`, as Azure wants it.
    ApiKey,
}

/// A request that shows whether an upstream is there. It costs no tokens and proves no generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Path below the base URL, `/models`.
    pub path: String,
    /// Time between two checks.
    pub every: Duration,
    /// Longest wait for its answer.
    pub timeout: Duration,
}

/// One `[[route]]`.
#[derive(Clone, Debug)]
pub struct Route {
    /// The model name that clients use; `*` takes every name that no other route has.
    pub model: Arc<str>,
    /// The APIs that it is asked in: stated, or else what the first tier speaks.
    pub apis: Vec<Api>,
    /// Upstreams by preference; a later tier is used when no earlier one can.
    pub tiers: Vec<Vec<Member>>,
    /// How long an answer without content is held back before it is given to the client.
    pub commit_after: Duration,
    /// Time for all attempts together, until an answer is committed.
    pub deadline: Duration,
    /// Share of the time left that is kept for the next candidates.
    pub fallback_share: f64,
    /// Second and later attempts, as a share of requests.
    pub retry_budget: f64,
    /// Attempts beyond tier 1 and beyond the first at once; `None`: no cap.
    pub fallback_in_flight: Option<usize>,
    /// The last resort.
    pub rollback: Option<Rollback>,
    /// What it does about calls before they are planned.
    pub policies: Vec<Installed>,
}

/// An upstream in a tier.
#[derive(Clone, Debug)]
pub struct Member {
    /// The upstream.
    pub upstream: Arc<Upstream>,
    /// Its share among the members of its tier, by weight; 0 takes no ordinary traffic and is tried last.
    pub weight: f64,
}

/// The upstream that takes over when all tiers have failed for a while.
#[derive(Clone, Debug)]
pub struct Rollback {
    /// The upstream.
    pub upstream: Arc<Upstream>,
    /// How long the tiers must have been without success.
    pub after: Duration,
}

impl Route {
    /// Every upstream that it may use, the rollback last.
    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        let members = self.tiers.iter().flatten().map(|member| &member.upstream);
        members.chain(self.rollback.iter().map(|rollback| &rollback.upstream))
    }

    /// The organisations of its upstreams, each once.
    pub fn organisations(&self) -> BTreeSet<&str> {
        self.upstreams().map(|upstream| &*upstream.organisation).collect()
    }
}

impl Upstream {
    /// Its own name for a route's model.
    pub fn model<'a>(&'a self, asked: &'a str) -> &'a str {
        self.models.get(asked).map_or(asked, String::as_str)
    }
}

/// Reads a configuration. `path` is where `text` came from: files that it names are looked up beside it.
///
/// # Errors
/// Every fault that was found, in the order of lines; never an empty list.
pub fn check(text: &str, path: &Path) -> Result<Config, Vec<Fault>> {
    let folder = path.parent().unwrap_or(Path::new(""));
    check_in(text, folder, &|name| std::env::var(name).ok())
}

/// [`check`] with an environment of the caller.
pub(crate) fn check_in(text: &str, folder: &Path, env: Env<'_>) -> Result<Config, Vec<Fault>> {
    let faults = Faults::new(text);
    let (table, broken) = DeTable::parse_recoverable(text);
    for error in &broken {
        faults.add(&error.span().unwrap_or_default(), error.message());
    }
    if !broken.is_empty() {
        return Err(faults.finish()); // half a table would give faults that are none
    }
    let top = Section::new(&faults, table.get_ref(), 0..0, "");
    let config = sections(&top, folder, env);
    top.end();
    let found = faults.finish();
    if found.is_empty() { Ok(config) } else { Err(found) }
}

fn sections(top: &Section<'_>, folder: &Path, env: Env<'_>) -> Config {
    let mut files = Vec::new();
    let auth = server::auth(top.section("auth"), folder, env, &mut files);
    let server = server::server(top.section("server"), !top.has("auth"), folder, env, &mut files);
    let mut declared = BTreeMap::new();
    let mut upstreams = Vec::new();
    for section in top.sections("upstream") {
        let name = section.text("name").unwrap_or_default().to_owned();
        if !name.is_empty() && declared.contains_key(&name) {
            section.fault("name", &format!("there are two upstreams named `{name}`"));
        }
        let upstream = upstream::upstream(section, folder, env, &mut files).map(Arc::new);
        upstreams.extend(upstream.clone());
        declared.entry(name).or_insert(upstream);
    }
    let mut routes: Vec<Arc<Route>> = Vec::new();
    for section in top.sections("route") {
        let model = section.text("model").unwrap_or_default();
        if routes.iter().any(|route| &*route.model == model) {
            section.fault("model", &format!("there are two routes for the model `{model}`"));
        }
        routes.extend(route::route(section, &declared).map(Arc::new));
    }
    #[cfg(feature = "sinks")]
    let sinks = sinks(top, &declared.keys().map(String::as_str).collect(), folder, env, &mut files);
    #[cfg(not(feature = "sinks"))]
    if top.value("sink").is_some() {
        top.fault("sink", "this program was built without sinks");
    }
    for (key, missing) in [("upstream", !top.has("upstream")), ("route", !top.has("route"))] {
        if missing {
            top.fault(key, &format!("there is no [[{key}]]"));
        }
    }
    Config {
        server,
        auth,
        breaker: server::breaker(top.section("breaker")),
        affinity: server::affinity(top.section("affinity"), folder),
        signals: signals::signals(top.section("signals")),
        upstreams,
        routes,
        #[cfg(feature = "sinks")]
        sinks,
        files,
    }
}

#[cfg(feature = "sinks")]
fn sinks(
    top: &Section<'_>,
    upstreams: &BTreeSet<&str>,
    folder: &Path,
    env: Env<'_>,
    files: &mut Vec<PathBuf>,
) -> Vec<crate::sink::Named> {
    let around = sink::Around { upstreams, folder, env };
    let mut sinks: Vec<crate::sink::Named> = Vec::new();
    for section in top.sections("sink") {
        let name = section.text("name").unwrap_or_default();
        if sinks.iter().any(|sink| &*sink.name == name) {
            section.fault("name", &format!("there are two sinks named `{name}`"));
        }
        sinks.extend(sink::sink(section, &around, files));
    }
    sinks
}

#[cfg(test)]
mod tests;
