//! What the sinks count: calls of other routers, notices that were dropped, orders that stand. Sinks are named by
//! the configuration.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Sink {
    sink: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    sink: String,
    outcome: &'static str,
}

/// The sinks' counters. See [`Metrics::sinks`](super::Metrics::sinks).
#[derive(Debug)]
pub struct Sinks {
    calls: Family<Call, Counter>,
    dropped: Family<Sink, Counter>,
    orders: Family<Sink, Gauge>,
    behind: Family<Sink, Gauge>,
}

impl Sinks {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let sinks = Self {
            calls: Family::default(),
            dropped: Family::default(),
            orders: Family::default(),
            behind: Family::default(),
        };
        let Self { calls, dropped, orders, behind } = &sinks;
        registry.register("sseismo_sink_calls", "Calls of other routers, ok or failed", calls.clone());
        registry.register(
            "sseismo_sink_dropped",
            "Orders and signals that were dropped because a sink was too slow",
            dropped.clone(),
        );
        registry.register("sseismo_sink_orders", "Orders that stand", orders.clone());
        registry.register(
            "sseismo_sink_behind",
            "1 while the other router has not been told what is right now",
            behind.clone(),
        );
        sinks
    }

    /// Another router was called.
    pub fn called(&self, sink: &str, ok: bool) {
        let outcome = if ok { "ok" } else { "failed" };
        self.calls.get_or_create(&Call { sink: sink.to_owned(), outcome }).inc();
    }

    /// A notice was dropped.
    pub fn dropped(&self, sink: &str) {
        self.dropped.get_or_create(&Sink { sink: sink.to_owned() }).inc();
    }

    /// How a sink stands.
    pub fn standing(&self, sink: &str, orders: usize, behind: bool) {
        let labels = Sink { sink: sink.to_owned() };
        self.orders.get_or_create(&labels).set(i64::try_from(orders).unwrap_or(i64::MAX));
        self.behind.get_or_create(&labels).set(i64::from(behind));
    }
}
