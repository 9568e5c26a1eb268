//! Routing: by a configuration, over upstreams that fail now and then.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use sseismo_capture::tap::{Observer, Options, Tap};
use sseismo_router::access::{Access, Entry, Sink, counting};
use sseismo_router::admin::{self, Admin};
use sseismo_router::breaker::State;
use sseismo_router::exchange::Shared;
use sseismo_router::feed::{Ended, Feed};
use sseismo_router::front::{Current, Front};
use sseismo_router::health;
use sseismo_router::link::Links;
use sseismo_router::metrics::{Breaker, Metrics};
use sseismo_router::operator::{Operator, Outside};
use sseismo_router::order::{Notice, Notices, Orders, notices};
use sseismo_router::reload::{self, Live, Unusable};
use sseismo_router::serve::{Limits, Served, serve};
use sseismo_router::sink::lease::Restorer;
use sseismo_router::sink::{Named, Sinks};
use sseismo_router::steer::Source;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::detection::Steer;
use super::lines::{self, Lines};
use super::{Args, Beside, Ending, announce, runtime};
use crate::clock;
use crate::exit::End;
use crate::recording::tell;

mod probe;

pub(super) use probe::check;

/// How often signals are looked at without calls, and states put into the metrics.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often is looked for orders that other routers must be given.
const ORDERS_EVERY: Duration = Duration::from_millis(250);

/// Longest time for taking back what other routers were told.
const TAKE_BACK: Duration = Duration::from_secs(5);

/// Routes until it is told to end.
pub(super) fn run(args: &Args, path: &Path) -> anyhow::Result<End> {
    let seed = clock::now().0.cast_unsigned();
    let live = Arc::new(Live::start(path, seed, Instant::now()).map_err(told)?);
    let lines = Lines::start("access log", args.access_log.as_deref())?;
    let options = args.recording.tap()?;
    let steered = Arc::clone(&live);
    let steer: Steer =
        Box::new(move |signal| steered.router().signal(signal.clone(), Source::Detector, Instant::now()));
    let beside = Beside::start(args, Some(steer))?;
    let runtime = runtime()?;
    let parts = Parts {
        live: Arc::clone(&live),
        options,
        observer: beside.running.observer.clone(),
        metrics: beside.detecting.metrics(),
        feed: beside.detecting.feed(),
        admin: beside.detecting.admin(),
        outside: beside.detecting.outside(),
        lines: lines.sender(),
    };
    let served = runtime.block_on(parts.serve(args, path));
    live.save();
    lines.finish();
    // What failed is told after everything is on disk.
    match served {
        Ok(served) => beside.finish(runtime, served),
        Err(error) => beside.finish(runtime, Some(Served::default())).and(Err(error)),
    }
}

/// What the traffic needs.
struct Parts {
    live: Arc<Live>,
    options: Options,
    observer: Observer,
    metrics: Arc<Metrics>,
    feed: Feed,
    admin: Admin,
    outside: Outside,
    lines: lines::Sender,
}

impl Parts {
    async fn serve(self, args: &Args, path: &Path) -> anyhow::Result<Option<Served>> {
        let Self { live, options, observer, metrics, feed, admin, outside, lines } = self;
        let server = live.router().config().server.clone();
        let listener = TcpListener::bind(server.listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", server.listen))?;
        let operators = match server.admin {
            Some(_) if args.detection.has_address() => {
                bail!("--admin and `admin` of {} name an address each: leave one out", path.display())
            }
            Some(address) => TcpListener::bind(address)
                .await
                .with_context(|| format!("cannot serve the admin API on {address}"))?,
            None => args.detection.listen().await?,
        };
        let standing = Arc::clone(&live);
        let current: Current = Arc::new(move || standing.router());
        let sinks: Vec<Sink> =
            vec![counting(Arc::clone(&metrics)), Box::new(move |entry: &Entry| lines.send(entry))];
        let access = Arc::new(Access::new(clock::now().0.cast_unsigned(), sinks));
        let admin = match server.admin_token {
            Some(token) => {
                let operator = Operator::new(token, Arc::clone(&current), Arc::clone(&access));
                admin.with_operator(operator.telling(outside))
            }
            None => admin,
        };
        let sinks = live.router().config().sinks.clone();
        let (told, sinks) = feed_others(&sinks, &metrics).await?;
        let mut telling = JoinSet::new();
        telling.spawn(give_orders(Arc::clone(&current), told.clone()));
        telling.spawn(pass_on(feed, told));
        let links = Arc::new(Links::new(Tap::new(&options)?));
        let mut beside = JoinSet::new();
        beside.spawn(reload::follow(live));
        beside.spawn(health::watch(Arc::clone(&current), Arc::clone(&links), observer.clone()));
        beside.spawn(look(Arc::clone(&current), Arc::clone(&metrics)));
        let shared = Shared { links, observer, keep_alive: server.keep_alive, metrics: Some(metrics) };
        let front = Front::new(current, shared, access, Some(admin.clone()));
        let ending = Ending::catch();
        announce(
            &format!("routing by {}", path.display()),
            args,
            listener.local_addr()?,
            operators.local_addr()?,
        );
        let (stop, stopping) = watch::channel(false);
        beside.spawn(drain(front.clone(), stopping.clone()));
        tokio::spawn(admin::serve(operators, admin, stopping.clone()));
        let limits = Limits {
            header_bytes: server.limits.header_bytes,
            connections: server.limits.connections,
            header_timeout: server.limits.header_timeout,
            idle_timeout: server.limits.idle_timeout,
            ..Limits::default()
        };
        let answer = move |request| {
            let front = front.clone();
            async move { front.answer(request).await }
        };
        let served = tokio::select! {
            served = serve(listener, answer, limits, stopping, server.drain) => served.map(Some).context("the listening socket failed"),
            () = ending.watch(stop, server.drain) => Ok(None),
        };
        beside.shutdown().await; // they hold the observer, which must end
        telling.shutdown().await; // the last sender of notices: the sinks end with it
        if tokio::time::timeout(TAKE_BACK, sinks).await.is_err() {
            tell("warning: what other routers were told could not all be taken back; it runs out");
        }
        served
    }
}

/// Starts the sinks: what is sent reaches them, and when the sender is gone they take back what stands.
async fn feed_others(sinks: &[Named], metrics: &Arc<Metrics>) -> anyhow::Result<(Notices, JoinHandle<()>)> {
    if !sinks.is_empty() {
        // Fails only when a provider is set already.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    // On Linux this is the running program even after an upgrade has replaced its file.
    let running = Path::new("/proc/self/exe");
    let program = if running.exists() { running.to_owned() } else { std::env::current_exe()? };
    let sinks = Sinks::start(sinks, Restorer::new(program), Arc::clone(metrics)).await?;
    let (told, telling) = notices();
    Ok((told, tokio::spawn(sinks.follow(telling))))
}

/// Gives the orders that follow from what is in force.
async fn give_orders(current: Current, told: Notices) {
    let mut orders = Orders::default();
    loop {
        let (router, now) = (current(), Instant::now());
        router.steer(now);
        for order in orders.look(&router.steering_snapshot(), router.config(), now) {
            // Full, and the sinks are too slow: it is sent again.
            let _ = told.try_send(Notice::Order(order));
        }
        tokio::time::sleep(ORDERS_EVERY).await;
    }
}

/// Passes signals on to the sinks. One that falls behind goes on with what is active then.
async fn pass_on(feed: Feed, told: Notices) {
    let mut signals = feed.subscribe(None);
    loop {
        match signals.next().await {
            // Full, and the sinks are too slow: the next refresh tells the same.
            Ok(item) => drop(told.try_send(Notice::Signal(Arc::new(item.signal.clone())))),
            Err(Ended::TooSlow(_)) => signals = feed.subscribe(None),
            Err(Ended::Closed) => return,
        }
    }
}

/// Says "not ready" once the end has begun.
async fn drain(front: Front, mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
    front.drain();
}

/// Lets time work on signals, and keeps gauges up to date: the shares that are steered, and of each upstream the
/// breaker of its worst model.
async fn look(current: Current, metrics: Arc<Metrics>) {
    loop {
        let router = current();
        router.steer(Instant::now());
        metrics.traffic().shares(&router.steering_snapshot());
        let mut worst = std::collections::BTreeMap::new();
        for view in router.breakers(Instant::now()) {
            let state = match view.state {
                State::Closed => (0, Breaker::Closed),
                State::HalfOpen => (1, Breaker::HalfOpen),
                State::Open(_) => (2, Breaker::Open),
            };
            let known = worst.entry(view.upstream).or_insert(state);
            if state.0 > known.0 {
                *known = state;
            }
        }
        for (upstream, (_, state)) in worst {
            metrics.traffic().breaker(&upstream, state);
        }
        drop(router); // a configuration that is gone must not wait for this sleep
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A configuration that cannot be used, with every fault.
fn told(error: Unusable) -> anyhow::Error {
    match error {
        Unusable::Faulty { path, faults } => {
            let lines: Vec<_> = faults.iter().map(|fault| format!("{}: {fault}", path.display())).collect();
            anyhow::anyhow!("{}", lines.join("\n"))
        }
        error @ Unusable::Unreadable { .. } => error.into(),
    }
}
