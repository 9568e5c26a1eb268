//! Observing: every path to one upstream, nothing changed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail};
use sseismo_capture::tap::Tap;
use sseismo_router::admin;
use sseismo_router::observe::{Observe, Served, Upstream, serve};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{Args, Beside, Ending, announce, runtime, secret};
use crate::exit::End;

/// Where clients connect when nobody says otherwise.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8_899);

/// How long open streams may go on when nobody says otherwise.
const DRAIN: Duration = Duration::from_secs(30);

/// Observes until it is told to end.
pub(super) fn run(args: &Args, to: &str) -> anyhow::Result<End> {
    let upstream = Upstream::parse(to)?;
    let token = args.auth_token_env.as_deref().map(secret).transpose()?;
    let (listen, drain) = (args.listen.unwrap_or(LISTEN), args.drain.unwrap_or(DRAIN));
    if !listen.ip().is_loopback() && token.is_none() {
        bail!(
            "{listen} can be reached by others: name a variable that holds a token with --auth-token-env, or listen on 127.0.0.1",
        );
    }
    let options = args.recording.tap()?;
    let beside = Beside::start(args, None)?;
    let observer = beside.running.observer.clone();
    let runtime = runtime()?;
    let admin = beside.detecting.admin();
    let served = runtime.block_on(async {
        let listener =
            TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
        let operators = args.detection.listen().await?;
        let relay = Observe::new(Tap::new(&options)?, observer, upstream, token);
        let ending = Ending::catch();
        announce(&format!("observing {to}"), args, listener.local_addr()?, operators.local_addr()?);
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(admin::serve(operators, admin, stopping.clone()));
        tokio::select! {
            served = serve(listener, relay, stopping, drain) => {
                served.map(Some).context("the listening socket failed")
            }
            () = ending.watch(stop, drain) => Ok(None),
        }
    });
    // What failed is told after everything is on disk.
    match served {
        Ok(served) => beside.finish(runtime, served),
        Err(error) => beside.finish(runtime, Some(Served::default())).and(Err(error)),
    }
}
