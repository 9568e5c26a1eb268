//! What the feed holds, read at each scrape: a signal that ran out is gone without anybody counting.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use sseismo_trace::Signal;

use super::target::{OTHER, cut};
use crate::feed::Feed;

/// Signatures, upstreams and models with counters of their own. The detector holds fewer scopes; operators may post
/// signals about any.
pub(super) const MAX_NAMED: usize = 1_024;

/// Labels of signals. Efforts of one model are not told apart: the signal itself has the whole scope.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct SignalLabels {
    signature: &'static str,
    upstream: String,
    model: String,
    state: Option<&'static str>,
}

impl SignalLabels {
    /// What a signal is about; a scrape has no more of them than the feed has active signals.
    pub(super) fn of(signal: &Signal, state: Option<&'static str>) -> Self {
        let name = |value: &Option<String>| cut(value.as_deref().unwrap_or_default()).to_owned();
        Self {
            signature: signal.detail.signature().name(),
            upstream: name(&signal.target.upstream),
            model: name(&signal.target.model),
            state,
        }
    }

    pub(super) fn with_state(self, state: &'static str) -> Self {
        Self { state: Some(state), ..self }
    }
}

/// What signals were counted for so far.
#[derive(Debug, Default)]
pub(super) struct Named(Mutex<BTreeSet<SignalLabels>>);

impl Named {
    /// `labels` while there is room, then the same with upstream and model called `other`.
    pub(super) fn bound(&self, labels: SignalLabels) -> SignalLabels {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.contains(&labels) || (seen.len() < MAX_NAMED && seen.insert(labels.clone())) {
            return labels;
        }
        SignalLabels { upstream: OTHER.to_owned(), model: OTHER.to_owned(), ..labels }
    }
}

/// Reads a feed.
#[derive(Debug)]
pub(super) struct Signals(pub(super) Feed);

impl Collector for Signals {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut active: BTreeMap<SignalLabels, (u64, f64)> = BTreeMap::new();
        for item in self.0.active() {
            let (scopes, strength) = active.entry(SignalLabels::of(&item.signal, None)).or_default();
            (*scopes, *strength) = (*scopes + 1, strength.max(item.signal.strength));
        }
        family(
            &mut encoder,
            "sseismo_signals_active",
            "Scopes in which a signal is active",
            active.iter().map(|(labels, (scopes, _))| (labels, *scopes)),
        )?;
        family(
            &mut encoder,
            "sseismo_signal_strength",
            "How far the traffic is affected, 0 to 1: the strongest active signal",
            active.iter().map(|(labels, (_, strength))| (labels, *strength)),
        )?;
        let subscribers = ConstGauge::new(self.0.subscribers() as u64);
        let metric = encoder.encode_descriptor(
            "sseismo_feed_subscribers",
            "Listeners to the feed of signals.",
            None,
            subscribers.metric_type(),
        )?;
        subscribers.encode(metric)?;
        let too_slow = ConstCounter::new(self.0.too_slow());
        let metric = encoder.encode_descriptor(
            "sseismo_feed_dropped_subscribers",
            "Listeners that were dropped because they fell behind.",
            None,
            too_slow.metric_type(),
        )?;
        too_slow.encode(metric)
    }
}

/// Writes gauges of one family.
fn family<'a, N>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl Iterator<Item = (&'a SignalLabels, N)>,
) -> fmt::Result
where
    ConstGauge<N>: prometheus_client::encoding::EncodeMetric,
{
    let help = format!("{help}.");
    let mut metric =
        encoder.encode_descriptor(name, &help, None, prometheus_client::metrics::MetricType::Gauge)?;
    for (labels, value) in series {
        ConstGauge::new(value).encode(metric.encode_family(labels)?)?;
    }
    Ok(())
}
