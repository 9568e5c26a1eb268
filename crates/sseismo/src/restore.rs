//! `sseismo restore`: beside a relay with sinks; takes back what it has told other routers when it no longer can.
//!
//! The relay starts it with a socket as its stdin. A session of its own keeps it from what a terminal sends to the
//! relay; SIGTERM, which service managers send to all that is left of a dead service, takes everything back at once
//! when the relay is gone.

use std::io::stdin;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use anyhow::Context as _;
use sseismo_router::sink::restore::restore;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::exit::End;
use crate::relay::log_to_stderr;

/// Started by a relay with sinks: takes back what it has told other routers when it no longer can.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {}

/// Runs the verb.
pub(crate) fn run(_: &Args) -> anyhow::Result<End> {
    // Fails only where it leads a session already, which is as good.
    let _ = nix::unistd::setsid();
    log_to_stderr();
    // Fails only when a provider is set already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let relay = stdin().as_fd().try_clone_to_owned().context("there is no stdin")?;
    let relay = UnixStream::from(relay);
    relay.local_addr().context("its stdin must be the socket of a relay: only a relay starts it")?;
    relay.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(async {
        let relay = tokio::net::UnixStream::from_std(relay)?;
        let (hurry, hurried) = watch::channel(false);
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::spawn(async move {
            terminate.recv().await;
            let _ = hurry.send(true);
        });
        restore(relay, hurried).await;
        Ok(End::Fine)
    })
}
