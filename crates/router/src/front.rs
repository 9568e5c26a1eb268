//! The routing relay's front: what callers may ask, and what is answered before any upstream is.
//!
//! | asked | answered |
//! |---|---|
//! | `POST /v1/responses`, `/v1/chat/completions`, `/v1/messages` | by the route of the body's `model` |
//! | any other `/v1/…` | passed on by the same routes, without a look at the answer |
//! | `GET /v1/models` | the routes' names |
//! | `GET /metrics`, `/signals` | as on the operators' address |
//! | `GET /health`, `/ready` | whether the process lives; whether each route has somewhere to go |
//! | an upgrade to a websocket | 426 at once: Codex CLI then takes server-sent events without a delay |
//!
//! A caller is known before anything but its head is read. Its credentials end here. Every request is logged, also
//! one that is turned away at once; only probes of health and scrapes of metrics are not.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, HeaderValue, UPGRADE};
use hyper::http::request;
use hyper::{Method, Request, Response, StatusCode};
use sseismo_capture::dialect;
use sseismo_trace::Api;
use tokio::time::Instant;

use crate::access::{Access, Entry, Open};
use crate::admin::Admin;
use crate::affinity::{StateKey, paths, references};
use crate::choice::{Ask, Router, Stop};
use crate::clock;
use crate::exchange::{Exchange, Inbound, Shared, ms, name_request};
use crate::inbound::{self, BadBody};
use crate::observe::headers::is_http2_upgrade;
use crate::own::{self, FrontBody};
use crate::policy::{Considered, Known, Refusal};
use crate::rewrite::Members;
use crate::turn::Turns;

mod asked;
mod caller;

use asked::Asked;

/// The front. Cheap to clone; clones are the same.
#[derive(Clone)]
pub struct Front(Arc<Inner>);

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").field("access", &self.0.access).finish_non_exhaustive()
    }
}

/// The router that stands now.
pub type Current = Arc<dyn Fn() -> Arc<Router> + Send + Sync>;

struct Inner {
    current: Current,
    turns: Turns,
    shared: Arc<Shared>,
    access: Arc<Access>,
    /// Signals and metrics.
    admin: Option<Admin>,
    draining: AtomicBool,
}

impl Front {
    /// A front that routes by the router that `current` gives when a request comes.
    pub fn new(current: Current, shared: Shared, access: Arc<Access>, admin: Option<Admin>) -> Self {
        Self(Arc::new(Inner {
            current,
            turns: Turns::default(),
            shared: Arc::new(shared),
            access,
            admin,
            draining: AtomicBool::new(false),
        }))
    }

    /// From now on `/ready` says no, so that balancers send nothing more.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
    }

    /// Answers one request. Never fails: what goes wrong on the way becomes a response of our own.
    pub async fn answer(&self, request: Request<Incoming>) -> Response<FrontBody> {
        let started = Instant::now();
        let api = dialect::by_path(request.uri().path()).map(dialect::Dialect::api);
        let stranger = || self.begin(&request, api, None).forgotten();
        if request.headers().contains_key(UPGRADE) && !is_http2_upgrade(request.headers()) {
            return upgrade_refused(stranger(), started);
        }
        if let Some(response) = self.health(&request) {
            return response;
        }
        let router = (self.0.current)();
        let caller = match &router.config().auth {
            None => None, // everybody who reaches the socket, which is loopback then
            Some(tokens) => match caller::name(tokens, request.headers()) {
                Some(name) => Some(name.to_owned()),
                None => return unauthorized(api, stranger(), started),
            },
        };
        let path = request.uri().path();
        if let ("/metrics" | "/signals", Some(admin)) = (path, &self.0.admin) {
            return admin.answer(&request).map(FrontBody::Admin);
        }
        let mut open = self.begin(&request, api, caller);
        if !path.starts_with("/v1/") || climbs(path) {
            let message = "the relay serves paths under /v1/";
            return refused(api, StatusCode::NOT_FOUND, "not-found", message, open, started);
        }
        if *request.method() == Method::GET && path == "/v1/models" {
            (open.entry.status, open.entry.outcome) = (200, "models");
            open.entry.duration_ms = ms(started.elapsed());
            return self.models();
        }
        let (head, body) = request.into_parts();
        self.route(router, head, body, api, open, started).await
    }

    /// From now on the request will be logged.
    fn begin(&self, request: &Request<Incoming>, api: Option<Api>, caller: Option<String>) -> Open {
        self.0.access.begin(Entry {
            at: clock::now(),
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            api,
            caller,
            outcome: "client-gone", // unless something better is learnt
            ..Entry::default()
        })
    }

    /// Reads the body, plans, and runs the exchange.
    async fn route(
        &self,
        router: Arc<Router>,
        head: request::Parts,
        body: Incoming,
        api: Option<Api>,
        mut open: Open,
        started: Instant,
    ) -> Response<FrontBody> {
        let limits = router.config().server.limits;
        let mut inbound = match read(&head, body, limits.body_bytes, limits.body_timeout).await {
            Ok(inbound) => inbound,
            Err(bad) => return not_taken(api, bad, open, started),
        };
        open.entry.request_bytes = inbound.raw.len() as u64;
        open.entry.read_ms = ms(started.elapsed());
        let members = Members::read(&inbound.decoded);
        if let (Some(_), Err(error)) = (api, &members) {
            let message = format!("the request's body is not a JSON object: {error}");
            return refused(api, StatusCode::BAD_REQUEST, "invalid-json", &message, open, started);
        }
        let members = members.unwrap_or_default();
        if let Some(message) = asked::unfit_model(&members) {
            return refused(api, StatusCode::BAD_REQUEST, "invalid-model", message, open, started);
        }
        let mut asked = Asked::of(&members, &router);
        let caller = open.entry.caller.as_deref().unwrap_or_default();
        let now = Instant::now();
        let input = asked::input(&members, &inbound.decoded);
        let turn = self.0.turns.count(&head.headers, caller, asked.cache_key.as_deref(), input, now);
        let named = members.text("model");
        let state = state(&router, head.uri.path(), &inbound.decoded);
        if named.is_none() {
            asked.model = router.home(&asked.model, &state).to_owned();
        }
        open.entry.model.clone_from(&asked.model);
        (open.entry.streamed, open.entry.client_attempt) = (asked.streamed, turn.attempt);
        open.entry.turn = Some(format!("{:016x}", turn.key));
        let prompt_tokens = asked::tokens(inbound.decoded.len());
        let draw = turn.session.unwrap_or_else(|| router.draw());
        let considered = api.and_then(|api| {
            let known = Known {
                api,
                model: &asked.model,
                effort: asked.effort.as_deref(),
                prompt_tokens,
                streamed: asked.streamed,
                caller: open.entry.caller.as_deref(),
                session: turn.session,
                turn: (turn.key, turn.attempt),
                draw,
                members: &members,
                body: &inbound.decoded,
            };
            router.consider(&known, now)
        });
        if let Some(considered) = considered
            && let Err(stop) = heard(considered, &mut open).await
        {
            return stopped(api, &stop, open, started);
        }
        let ask = Ask {
            model: &asked.model,
            api,
            prompt_tokens: api.map(|_| prompt_tokens),
            effort: asked.effort.as_deref(),
            state: &state,
            session: turn.session,
            numeric_share: api.and_then(|_| router.numeric_share(&inbound.decoded)),
            draw: Some(draw),
        };
        let mut plan = match router.candidates(&ask, Instant::now()) {
            Ok(plan) => plan,
            Err(stop) => return stopped(api, &stop, open, started),
        };
        if let Some(considered) = &open.considered {
            plan.heed(&considered.advised);
        }
        let lacks_usage = asked::lacks_usage(&members);
        (inbound.model, inbound.lacks_usage) = (named, lacks_usage);
        open.entry.route = Some(plan.route().model.to_string());
        let exchange = Exchange {
            shared: Arc::clone(&self.0.shared),
            router,
            plan,
            head,
            inbound,
            api,
            streamed: asked.streamed,
            turn: (turn.key, turn.attempt),
            started,
            open,
        };
        exchange.run().await
    }

    fn health(&self, request: &Request<Incoming>) -> Option<Response<FrontBody>> {
        if *request.method() != Method::GET {
            return None;
        }
        match request.uri().path() {
            "/health" => Some(own::json(StatusCode::OK, &serde_json::json!({"status": "ok"}))),
            "/ready" => {
                let draining = self.0.draining.load(Ordering::Relaxed);
                let ready = !draining && (self.0.current)().ready(Instant::now());
                let (status, word) = match (ready, draining) {
                    (true, _) => (StatusCode::OK, "ready"),
                    (false, true) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
                    (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "a route has no upstream"),
                };
                Some(own::json(status, &serde_json::json!({"status": word})))
            }
            _ => None,
        }
    }

    fn models(&self) -> Response<FrontBody> {
        let router = (self.0.current)();
        let named = router.config().routes.iter().filter(|route| &*route.model != "*");
        let models: Vec<_> = named
            .map(|route| {
                let model = &*route.model;
                serde_json::json!({"id": model, "object": "model", "type": "model", "display_name": model,
                    "created": 0, "created_at": "1970-01-01T00:00:00Z", "owned_by": "sseismo"})
            })
            .collect();
        own::json(StatusCode::OK, &serde_json::json!({"object": "list", "data": models, "has_more": false}))
    }
}

/// Does what the route's policies advise before a plan is made, and hands them over to the request.
///
/// # Errors
/// When one of them refuses it.
async fn heard(considered: Considered, open: &mut Open) -> Result<(), Stop> {
    let refused = considered.advised.refuse;
    // In its hands before any wait: however the request ends, the policies learn it.
    let considered = open.considered.insert(considered);
    open.entry.route = Some(considered.route.to_string());
    open.entry.would_have = std::mem::take(&mut considered.would_have);
    if refused.is_none() && considered.has_to_wait() {
        let since = Instant::now();
        considered.wait().await;
        open.entry.queued_ms = Some(ms(since.elapsed()));
    }
    open.entry.policy = std::mem::take(&mut considered.done);
    match refused {
        Some(Refusal { message, retry_after, .. }) => Err(Stop::Refused { message, retry_after }),
        None => Ok(()),
    }
}

async fn read(
    head: &request::Parts,
    body: Incoming,
    most: usize,
    within: std::time::Duration,
) -> Result<Inbound, BadBody> {
    let raw = inbound::collect(body, most, within).await?;
    let encoding = head.headers.get(CONTENT_ENCODING).map(HeaderValue::to_str);
    let encoding = encoding.transpose().map_err(|_| BadBody::UnknownEncoding)?;
    let decoded = inbound::decode(encoding, &raw, most)?;
    Ok(Inbound { encoded: encoding.is_some(), raw, decoded, ..Inbound::default() })
}

/// What a request carries that its issuer alone can read; nothing while there is one organisation only.
fn state(router: &Router, path: &str, body: &[u8]) -> Vec<StateKey> {
    if !router.several_organisations() {
        return Vec::new();
    }
    let mut carried = references::carried(body);
    carried.extend(paths::carried(path).map(str::to_owned));
    router.state_keys(&carried)
}

/// Whether a path would leave the base URL that it is joined to.
fn climbs(path: &str) -> bool {
    let path = path
        .to_ascii_lowercase()
        .replace("%2e", ".")
        .replace("%2f", "/")
        .replace("%5c", "/")
        .replace('\\', "/");
    path.split('/').any(|segment| segment == "..")
}

fn upgrade_refused(open: Open, started: Instant) -> Response<FrontBody> {
    let message = "the relay speaks plain HTTP; use server-sent events";
    let status = StatusCode::UPGRADE_REQUIRED;
    let mut response = refused(None, status, "upgrade-refused", message, open, started);
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
    response
}

fn unauthorized(api: Option<Api>, open: Open, started: Instant) -> Response<FrontBody> {
    let message = "the relay's token is missing or wrong";
    refused(api, StatusCode::UNAUTHORIZED, "invalid_api_key", message, open, started)
}

fn refused(
    api: Option<Api>,
    status: StatusCode,
    code: &'static str,
    message: &str,
    mut open: Open,
    started: Instant,
) -> Response<FrontBody> {
    open.entry.status = status.as_u16();
    open.entry.outcome = code;
    open.entry.duration_ms = ms(started.elapsed());
    let mut response = own::error(api, status, code, message, None);
    name_request(response.headers_mut(), &open.entry.id);
    response
}

fn not_taken(api: Option<Api>, bad: BadBody, open: Open, started: Instant) -> Response<FrontBody> {
    let (status, code) = match bad {
        BadBody::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "request-too-large"),
        BadBody::TooSlow(_) => (StatusCode::REQUEST_TIMEOUT, "request-too-slow"),
        BadBody::Broken => (StatusCode::BAD_REQUEST, "request-broken-off"),
        BadBody::Encoding => (StatusCode::BAD_REQUEST, "bad-encoding"),
        BadBody::UnknownEncoding => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unknown-encoding"),
    };
    refused(api, status, code, &bad.to_string(), open, started)
}

fn stopped(api: Option<Api>, stop: &Stop, mut open: Open, started: Instant) -> Response<FrontBody> {
    let status = StatusCode::from_u16(stop.status()).unwrap_or(StatusCode::BAD_GATEWAY);
    open.entry.status = status.as_u16();
    open.entry.outcome = stop.name();
    open.entry.duration_ms = ms(started.elapsed());
    let code = if matches!(stop, Stop::NoRoute { .. }) { "model_not_found" } else { stop.name() };
    let mut response = own::error(api, status, code, &stop.to_string(), stop.retry_after());
    name_request(response.headers_mut(), &open.entry.id);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_cannot_climb_out_of_the_base() {
        for path in ["/v1/../x", "/v1/a/..", "/v1/%2E%2e/x", "/v1/..%2fx", "/v1/..\\x"] {
            assert!(climbs(path), "{path}");
        }
        for path in ["/v1/a..b", "/v1/files/x", "/v1/..."] {
            assert!(!climbs(path), "{path}");
        }
    }
}
