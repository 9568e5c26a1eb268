//! `--check` and `--probe`: is this configuration right, and do its upstreams answer?

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use sseismo_capture::tap::{Keep, Observer, Options, Tap};
use sseismo_router::choice::Router;
use sseismo_router::health;
use sseismo_router::link::Links;
use sseismo_router::reload;
use tokio::time::{Instant, timeout};

use super::told;
use crate::exit::End;
use crate::relay::runtime;

/// Longest wait for one upstream.
const WITHIN: Duration = Duration::from_secs(10);

/// Asked for: every API that is spoken here has it, and it costs no tokens.
const PATH: &str = "/models";

/// Checks the file and, with `probe`, asks its upstreams. What is found goes to stdout, a fault is an error.
pub(in crate::relay) fn check(path: &Path, probe: bool, options: &Options) -> anyhow::Result<End> {
    let config = reload::read(path).map_err(told)?;
    let (upstreams, routes, sinks) = (config.upstreams.len(), config.routes.len(), config.sinks.len());
    let path = path.display().to_string();
    show(&json!({"config": path, "upstreams": upstreams, "routes": routes, "sinks": sinks}))?;
    if !probe {
        return Ok(End::Fine);
    }
    let router = Arc::new(Router::new(config, &|name| std::env::var(name).ok(), 0, Instant::now()));
    let bad = runtime()?.block_on(ask_all(&router, options))?;
    anyhow::ensure!(bad == 0, "{bad} of {upstreams} upstreams did not answer as they should");
    Ok(End::Fine)
}

/// Asks every upstream; how many did not answer well.
async fn ask_all(router: &Router, options: &Options) -> anyhow::Result<usize> {
    let links = Links::new(Tap::new(options)?);
    let (observer, _) = Observer::new(Arc::new(|_, _| 0), Keep::default());
    let mut bad = 0;
    for upstream in &router.config().upstreams {
        let since = Instant::now();
        let asked = timeout(WITHIN, health::ask(router, upstream, PATH, &links, &observer)).await;
        let (status, error) = match asked {
            Ok(Ok(status)) => (Some(status.as_u16()), None),
            Ok(Err(error)) => (None, Some(error)),
            Err(_) => (None, Some(format!("no answer within {} s", WITHIN.as_secs()))),
        };
        let well = status.is_some_and(|status| (200..300).contains(&status));
        bad += usize::from(!well);
        let took = since.elapsed().as_millis();
        show(
            &json!({"upstream": &*upstream.name, "well": well, "status": status, "error": error, "ms": took}),
        )?;
    }
    Ok(bad)
}

fn show(line: &serde_json::Value) -> anyhow::Result<()> {
    use std::io::Write as _;

    writeln!(anstream::stdout(), "{line}").context("cannot write to stdout")
}
