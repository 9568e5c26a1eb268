//! The families that describe streams, and the handles of one target's series.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::target::{GenAi, Target};

/// Borders, s: the convention's, continued to ten minutes: a first token after 819 s has been seen.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 320.0, 640.0,
];
/// Borders, s: the convention's, and finer below: fast providers write a token each 2 ms.
const PER_TOKEN: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];
/// Borders, s: the convention's, continued to ten minutes.
const DURATION: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68,
    655.36,
];
/// Borders, s: the convention's, with 1 and 30 ms, the merging windows of flush groups, and 1 s, the
/// write-ups' dead air.
const GAP: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.28, 2.56, 5.12, 10.24,
    20.48, 40.96, 81.92,
];
/// Borders, tokens: the convention's as far as a context window reaches.
const TOKENS: &[f64] =
    &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0];
/// Borders of a share.
const SHARE: &[f64] = &[0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9];

/// A lattice of reasoning-token counts that is counted by name: every value `step`·n − (`step` − `offset`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Lattice {
    pub(super) name: &'static str,
    step: u64,
    offset: u64,
}

/// The lattice that the field reported, and the reporting unit that looks like one.
pub(super) const LATTICES: [Lattice; 2] =
    [Lattice { name: "518n-2", step: 518, offset: 516 }, Lattice { name: "64n", step: 64, offset: 64 }];

impl Lattice {
    /// Whether a positive count lies on it.
    pub(super) fn holds(&self, count: u64) -> bool {
        count >= self.offset && (count - self.offset).is_multiple_of(self.step)
    }
}

/// Makes histograms with fixed borders.
#[derive(Clone, Copy, Debug)]
pub(super) struct Borders(&'static [f64]);

impl MetricConstructor<Histogram> for Borders {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

type Histograms<L> = Family<L, Histogram, Borders>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    #[prometheus(flatten)]
    target: GenAi,
    error_type: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Used {
    #[prometheus(flatten)]
    target: GenAi,
    gen_ai_token_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OnLattice {
    #[prometheus(flatten)]
    target: Target,
    lattice: &'static str,
}

/// The families.
#[derive(Debug)]
pub(super) struct Streams {
    first_token: Histograms<GenAi>,
    per_token: Histograms<GenAi>,
    gap: Histograms<GenAi>,
    duration: Histograms<Ended>,
    usage: Histograms<Used>,
    burst_share: Histograms<Target>,
    live: Family<Target, Gauge>,
    reasoning_counts: Family<Target, Counter>,
    on_lattice: Family<OnLattice, Counter>,
}

impl Streams {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let streams = Self {
            first_token: Family::new_with_constructor(Borders(FIRST_TOKEN)),
            per_token: Family::new_with_constructor(Borders(PER_TOKEN)),
            gap: Family::new_with_constructor(Borders(GAP)),
            duration: Family::new_with_constructor(Borders(DURATION)),
            usage: Family::new_with_constructor(Borders(TOKENS)),
            burst_share: Family::new_with_constructor(Borders(SHARE)),
            live: Family::default(),
            reasoning_counts: Family::default(),
            on_lattice: Family::default(),
        };
        streams.register_gen_ai(registry);
        streams.register_own(registry);
        streams
    }

    fn register_gen_ai(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "gen_ai_server_time_to_first_token",
            "Time to the first content event (reasoning, summary, text or tool call); keep-alives and errors are none",
            Unit::Seconds,
            self.first_token.clone(),
        );
        registry.register_with_unit(
            "gen_ai_server_time_per_output_token",
            "Time per output token after the first, of completed streams whose usage was reported",
            Unit::Seconds,
            self.per_token.clone(),
        );
        registry.register_with_unit(
            "gen_ai_client_operation_time_per_output_chunk",
            "Inter-chunk gap: time from one content event of a stream to the next",
            Unit::Seconds,
            self.gap.clone(),
        );
        registry.register_with_unit(
            "gen_ai_server_request_duration",
            "Time from the request to the last byte; error_type says how it failed, if it did",
            Unit::Seconds,
            self.duration.clone(),
        );
        registry.register(
            "gen_ai_client_token_usage",
            "Tokens per request as the provider reported them; output includes reasoning",
            self.usage.clone(),
        );
    }

    fn register_own(&self, registry: &mut Registry) {
        registry.register(
            "sseismo_stream_burst_share",
            "Share of a stream's content that came in flushes after dead air of 1 s or more",
            self.burst_share.clone(),
        );
        registry.register("sseismo_streams_live", "Streams that have begun and not ended", self.live.clone());
        registry.register(
            "sseismo_reasoning_counts",
            "Answers with a positive reported reasoning-token count",
            self.reasoning_counts.clone(),
        );
        registry.register(
            "sseismo_reasoning_counts_on_lattice",
            "Of these, counts on a lattice; divide by sseismo_reasoning_counts_total for its share (chance: 1/518, 1/64)",
            self.on_lattice.clone(),
        );
    }

    /// The series of one target.
    pub(super) fn of(&self, target: &Target) -> Handles {
        let gen_ai = target.gen_ai();
        let used = |kind| {
            let labels = Used { target: gen_ai.clone(), gen_ai_token_type: kind };
            self.usage.get_or_create_owned(&labels)
        };
        let on_lattice = LATTICES.map(|lattice| {
            let labels = OnLattice { target: target.clone(), lattice: lattice.name };
            self.on_lattice.get_or_create_owned(&labels)
        });
        Handles {
            first_token: self.first_token.get_or_create_owned(&gen_ai),
            per_token: self.per_token.get_or_create_owned(&gen_ai),
            gap: self.gap.get_or_create_owned(&gen_ai),
            input: used("input"),
            output: used("output"),
            burst_share: self.burst_share.get_or_create_owned(target),
            live: self.live.get_or_create_owned(target),
            reasoning_counts: self.reasoning_counts.get_or_create_owned(target),
            on_lattice,
            gen_ai: Arc::new(gen_ai),
        }
    }

    /// A request's duration, s.
    pub(super) fn ended(&self, handles: &Handles, error_type: Option<String>, seconds: f64) {
        let labels = Ended { target: GenAi::clone(&handles.gen_ai), error_type };
        self.duration.get_or_create(&labels).observe(seconds);
    }
}

/// One target's series.
#[derive(Debug)]
pub(super) struct Handles {
    pub(super) first_token: Histogram,
    pub(super) per_token: Histogram,
    pub(super) gap: Histogram,
    pub(super) input: Histogram,
    pub(super) output: Histogram,
    pub(super) burst_share: Histogram,
    pub(super) live: Gauge,
    pub(super) reasoning_counts: Counter,
    pub(super) on_lattice: [Counter; 2],
    gen_ai: Arc<GenAi>,
}
