//! `[server]`, `[auth]`, `[breaker]` and `[affinity]`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::section::Section;
use super::{Affinity, Limits, Server, UnknownState};
use crate::auth::Tokens;
use crate::breaker::{FLOOR, Settings};
use crate::keys::{Env, Source};

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 32 << 10,
            // Codex sends up to some MB, images more; the biggest that providers take are 32 MB.
            body_bytes: 32 << 20,
            connections: 2000,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_mins(1),
            idle_timeout: Duration::from_mins(5),
        }
    }
}

/// Where relays listen unless told otherwise; the same port as `--observe`.
const LISTEN: SocketAddr = SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 8899));

/// `[server]`; `open`: there is no `[auth]`.
pub(super) fn server(
    section: Option<Section<'_>>,
    open: bool,
    folder: &Path,
    env: Env<'_>,
    files: &mut Vec<PathBuf>,
) -> Server {
    let mut server = Server {
        listen: LISTEN,
        admin: None,
        admin_token: None,
        drain: Duration::from_secs(30),
        keep_alive: None,
        limits: Limits::default(),
    };
    let Some(section) = section else { return server };
    if let Some(listen) = address(&section, "listen") {
        server.listen = listen;
        if !listen.ip().is_loopback() && open {
            let message = format!("{listen} can be reached by others: add [auth], or listen on 127.0.0.1");
            section.fault("listen", &message);
        }
    }
    server.admin = address(&section, "admin");
    if let Some(admin) = server.admin {
        if !admin.ip().is_loopback() {
            section.fault("admin", "the admin API listens on loopback only: use 127.0.0.1");
        }
        if admin == server.listen && admin.port() != 0 {
            section.fault("admin", "the admin API needs an address of its own");
        }
        if !section.has("admin_token") {
            section.fault("admin", "the admin API needs `admin_token = \"env:NAME\"` or \"file:PATH\"");
        }
    }
    server.admin_token = section.text("admin_token").and_then(|text| {
        let source = Source::parse(text, folder);
        files.extend(source.as_ref().ok().and_then(Source::file).map(Path::to_owned));
        let secret = source.and_then(|source| source.read(env));
        secret.map_err(|error| section.fault("admin_token", &with_cause(&error))).ok()
    });
    if server.admin.is_none() && section.has("admin_token") && !section.has("admin") {
        section.fault("admin_token", "it is of no use without `admin = \"127.0.0.1:PORT\"`");
    }
    server.keep_alive = section.duration("keep_alive");
    if let Some(drain) = section.duration("drain") {
        server.drain = drain;
    }
    if let Some(section) = section.section("limits") {
        limits(&section, &mut server.limits);
        section.end();
    }
    section.end();
    server
}

fn limits(section: &Section<'_>, limits: &mut Limits) {
    let size = |key, into: &mut usize, least| {
        if let Some(size) = section.size(key, least..=u64::MAX) {
            *into = size;
        }
    };
    // Below 8 KiB hyper refuses ordinary heads.
    size("header_bytes", &mut limits.header_bytes, 8192);
    size("body_bytes", &mut limits.body_bytes, 1024);
    size("connections", &mut limits.connections, 1);
    durations(
        section,
        [
            ("header_timeout", &mut limits.header_timeout),
            ("body_timeout", &mut limits.body_timeout),
            ("idle_timeout", &mut limits.idle_timeout),
        ],
    );
}

/// Reads durations over their defaults.
pub(super) fn durations<const N: usize>(section: &Section<'_>, wanted: [(&'static str, &mut Duration); N]) {
    for (key, into) in wanted {
        if let Some(duration) = section.duration(key) {
            *into = duration;
        }
    }
}

fn address(section: &Section<'_>, key: &'static str) -> Option<SocketAddr> {
    let text = section.text(key)?;
    let address = text.parse().ok();
    if address.is_none() {
        section.fault(key, &format!("`{key}` must be an address such as \"127.0.0.1:8899\""));
    }
    address
}

/// An error with what caused it, in one line.
pub(super) fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// `[auth]`; files that it names are added to `files`.
pub(super) fn auth(
    section: Option<Section<'_>>,
    folder: &Path,
    env: Env<'_>,
    files: &mut Vec<PathBuf>,
) -> Option<Arc<Tokens>> {
    let section = section?;
    let from_file = section.text("tokens_file").map(|path| ("tokens_file", Source::File(folder.join(path))));
    let from_env = section.text("tokens_env").map(|name| ("tokens_env", Source::Env(name.to_owned())));
    if from_file.is_some() == from_env.is_some() {
        section.fault("tokens_env", "name either `tokens_file` or `tokens_env`");
    }
    let tokens = from_file.or(from_env).and_then(|(key, source)| {
        files.extend(source.file().map(Path::to_owned));
        let told = |error: &dyn std::error::Error| section.fault(key, &with_cause(error));
        let text = source.text(env).map_err(|error| told(&error)).ok()?;
        Tokens::parse(&text).map_err(|error| told(&error)).ok()
    });
    section.end();
    tokens.map(Arc::new)
}

/// `[breaker]`.
pub(super) fn breaker(section: Option<Section<'_>>) -> Settings {
    let mut settings = Settings::default();
    let Some(section) = section else { return settings };
    if let Some(failures) = section.whole("failures", 1..=1000).and_then(|n| u32::try_from(n).ok()) {
        settings.failures = failures;
    }
    for (key, into) in [
        ("window", &mut settings.window),
        ("min_calls", &mut settings.min_calls),
        ("probation", &mut settings.probation),
    ] {
        if let Some(size) = section.size(key, 1..=100_000) {
            *into = size;
        }
    }
    for (key, into) in [
        ("open_at", &mut settings.open_at),
        ("close_at", &mut settings.close_at),
        ("floor_share", &mut settings.floor_share),
    ] {
        if let Some(share) = section.share(key) {
            *into = share;
        }
    }
    durations(
        &section,
        [
            ("window_age", &mut settings.window_age),
            ("cooldown", &mut settings.cooldown),
            ("max_cooldown", &mut settings.max_cooldown),
            ("max_retry_after", &mut settings.max_retry_after),
            ("probe_timeout", &mut settings.probe_timeout),
        ],
    );
    if settings.min_calls > settings.window {
        section
            .fault("min_calls", "`min_calls` must not be larger than `window`: no rate would ever be taken");
    }
    if settings.close_at >= settings.open_at {
        section.fault("close_at", "`close_at` must be smaller than `open_at`: it would flap");
    }
    if settings.floor_share < FLOOR {
        section.fault("floor_share", "`floor_share` must be at least 0.05: recovery would not be seen");
    }
    if settings.cooldown > settings.max_cooldown {
        section.fault("cooldown", "`cooldown` must not be longer than `max_cooldown`");
    }
    section.end();
    settings
}

/// `[affinity]`.
pub(super) fn affinity(section: Option<Section<'_>>, folder: &Path) -> Affinity {
    let Some(section) = section else { return Affinity::default() };
    let file = section.text("file").map(|path| folder.join(path));
    let unknown_state = match section.text("unknown_state") {
        None | Some("first-choice") => UnknownState::FirstChoice,
        Some("refuse") => UnknownState::Refuse,
        Some(_) => {
            section.fault("unknown_state", "`unknown_state` must be \"first-choice\" or \"refuse\"");
            UnknownState::default()
        }
    };
    section.end();
    Affinity { unknown_state, file }
}
