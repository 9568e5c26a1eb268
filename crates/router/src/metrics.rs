//! Metrics for Prometheus: what the relay saw, in the names that dashboards know.
//!
//! In: streams as they happen ([`Meter`]), what the router does ([`Traffic`]), signals and the state of the
//! detector. Out: one text document per scrape, `OpenMetrics` or Prometheus 0.0.4 as the scraper asks.
//!
//! | family | from |
//! |---|---|
//! | `gen_ai_*` | OpenTelemetry's conventions for generative AI, with its names, labels and bucket borders (widened: reasoning takes longer, and bursts are shorter, than those borders reach) |
//! | `sseismo_stream_*`, `sseismo_reasoning_*` | how tokens come: nobody else exports these |
//! | `sseismo_signals*`, `sseismo_detector_*`, `sseismo_feed_*` | the detector and its feed |
//! | `sseismo_route_*` | what the router decided |
//! | `sseismo_sink_*` | what became of it at other routers |
//! | `sseismo_steering_*` | what signals and policies did, or would have done |
//!
//! Labels are few and their values bounded: upstream, model, api, signature. Models are named by clients, so
//! only the first [`MAX_TARGETS`] combinations get their own series, the rest are counted under `other`. The
//! model is the requested one, because it is known when a stream begins, as in the scopes of signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use sseismo_trace::{Signal, SignalState};

use crate::feed::Feed;

mod meter;
mod process;
mod signals;
#[cfg(feature = "sinks")]
mod sinks;
mod streams;
mod target;
mod traffic;

pub use meter::Meter;
use signals::{Named, SignalLabels, Signals};
#[cfg(feature = "sinks")]
pub use sinks::Sinks;
use streams::Streams;
pub use target::MAX_TARGETS;
use target::Targets;
pub use traffic::{Breaker, InFlight, Mode, TokenKind, Traffic};

/// What `OpenMetrics` scrapers ask for and get.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What everybody else gets.
pub const TEXT: &str = prometheus_text::CONTENT_TYPE;

/// Where events can be lost on their way to the detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The tap's queue of one stream was full.
    Tap,
    /// The recorder took notes too slowly.
    Recorder,
    /// The detector took notes too slowly.
    Detector,
}

/// How the detector stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DetectorState {
    /// Scopes that it holds.
    pub scopes: u64,
    /// Pairs of scope and signature that still learn what is normal and cannot signal.
    pub learning: u64,
    /// Pairs that watch.
    pub watching: u64,
    /// Pairs whose signal is raised.
    pub signalling: u64,
    /// Scopes that it forgot because there were too many.
    pub evicted: u64,
    /// Notes that did not fit into its queue.
    pub notes_dropped: u64,
}

/// Everything that is counted. Shared by reference; one per process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    targets: Targets,
    streams: Streams,
    traffic: Traffic,
    #[cfg(feature = "sinks")]
    sinks: Sinks,
    signals: Family<SignalLabels, Counter>,
    scopes_named: Named,
    scopes: Gauge,
    watches: Family<[(&'static str, &'static str); 1], Gauge>,
    evicted: Counter,
    dropped: Family<[(&'static str, &'static str); 1], Counter>,
}

impl Metrics {
    /// Nothing counted yet; what `feed` holds is read at each scrape.
    pub fn new(feed: &Feed) -> Self {
        let mut registry = Registry::default();
        let streams = Streams::register(&mut registry);
        let traffic = Traffic::register(&mut registry);
        #[cfg(feature = "sinks")]
        let sinks = Sinks::register(&mut registry);
        let (signals, dropped, watches) = (Family::default(), Family::default(), Family::default());
        let (scopes, evicted) = (Gauge::default(), Counter::default());
        registry.register("sseismo_signals", "Signals raised, by signature and state", signals.clone());
        registry.register("sseismo_detector_scopes", "Scopes that the detector holds", scopes.clone());
        registry.register(
            "sseismo_detector_watches",
            "Pairs of scope and signature: still learning what is normal, watching, or signalling",
            watches.clone(),
        );
        registry.register(
            "sseismo_detector_evictions",
            "Scopes that the detector forgot because there were too many",
            evicted.clone(),
        );
        registry.register(
            "sseismo_dropped",
            "Events (at=tap) and notes (at=recorder, detector) that were dropped instead of delaying traffic",
            dropped.clone(),
        );
        registry.register_collector(Box::new(Signals(feed.clone())));
        registry.register_collector(Box::new(process::Memory));
        Self {
            registry,
            targets: Targets::default(),
            streams,
            traffic,
            #[cfg(feature = "sinks")]
            sinks,
            signals,
            scopes_named: Named::default(),
            scopes,
            watches,
            evicted,
            dropped,
        }
    }

    /// Measures streams; one per thread that follows some.
    pub fn meter(self: &Arc<Self>) -> Meter {
        Meter::new(Arc::clone(self))
    }

    /// What the router counts.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// What the sinks count.
    #[cfg(feature = "sinks")]
    pub fn sinks(&self) -> &Sinks {
        &self.sinks
    }

    /// Counts a signal.
    pub fn signal(&self, signal: &Signal) {
        let state = match signal.state {
            SignalState::Onset => "onset",
            SignalState::Refresh => "refresh",
            SignalState::Clear => "clear",
        };
        let labels = self.scopes_named.bound(SignalLabels::of(signal, None));
        self.signals.get_or_create(&labels.with_state(state)).inc();
    }

    /// Takes over how the detector stands.
    pub fn detector(&self, state: DetectorState) {
        self.scopes.set(state.scopes.cast_signed());
        for (name, pairs) in
            [("learning", state.learning), ("watching", state.watching), ("signalling", state.signalling)]
        {
            self.watches.get_or_create(&[("state", name)]).set(pairs.cast_signed());
        }
        self.evicted.inner().store(state.evicted, Ordering::Relaxed);
        self.total_dropped(Loss::Detector, state.notes_dropped);
    }

    /// Sets how much has been dropped so far.
    pub fn total_dropped(&self, at: Loss, total: u64) {
        self.dropped(at).inner().store(total, Ordering::Relaxed);
    }

    fn dropped(&self, at: Loss) -> Counter<u64, AtomicU64> {
        let name = match at {
            Loss::Tap => "tap",
            Loss::Recorder => "recorder",
            Loss::Detector => "detector",
        };
        self.dropped.get_or_create_owned(&[("at", name)])
    }

    /// The scrape: `OpenMetrics` with `open`, else the older text format.
    pub fn encode(&self, open: bool) -> String {
        let mut text = String::new();
        let encoded = if open {
            text::encode(&mut text, &self.registry)
        } else {
            prometheus_text::encode(&mut text, &self.registry)
        };
        // Writing to a string fails only when a metric refuses to write itself, which none here does.
        debug_assert!(encoded.is_ok(), "{encoded:?}");
        text
    }
}

#[cfg(test)]
mod tests;
