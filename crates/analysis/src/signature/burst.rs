//! `burst`: deltas come in flushes after dead air.
//!
//! **Looks like** 40–80 tokens in one flush, then more than a second of silence, again and again.
//!
//! **Known causes** are an upstream that batches or cools down after a limit, a proxy that buffers, a
//! corked socket, lost packets, retries, and our own process reading late. A cause is named only as far
//! as the stored columns prove it; else it is `unknown`, with the missing columns.
//!
//! **Statistic.** Two passes: the first learns what is usual in the scope, the second forms flush groups
//! at two scales ([`crate::flush`]) and counts *hits*: groups that bring unusually much after a silence
//! inside a phase that is unusually long. Under health a group is a hit with probability at most
//! `verdict::HEALTHY`; `present` needs two hits and a binomial p ≤ 0.01 (Bonferroni over the scales).
//! The token-weighted gap, the Gini coefficient of tokens in 100 ms bins and tokens per group say how
//! bad it is. Burstiness B, CV and LV are reported and never alarm: one big frame each second is
//! perfectly regular, and a healthy stream reaches B = 0.405.
//!
//! **Defaults** (180 packet-captured GPT-4o streams, none with a silence over 750 ms): a stall is
//! longer than 50 median gaps of its stream, between 750 ms and 1 s; unusually much is 40 tokens
//! (160 characters), or 8 events with 10 times the usual size of an event at the fine scale.
//! `--preset write-up`: 40–80 tokens, then more than 1 s, three times in 60 s.
//!
//! **Lesser words.** `coalesced`: a short cork on an even period or byte grid, which is named.
//! `held-whole`: whole answers in one read; `content_encoding` tells whether a compressor held them.
//!
//! **Smallest n**: 30 known gaps, except where hits alone decide.
//!
//! **False positives to know**: Gemini's honest frames of about 90 tokens (three times the usual frame
//! is asked for where the API or the model is Gemini's), summary parts and phase borders (never stalls), silent reasoning.
//!
//! **Golden**: the stalled Claude stream in `data/timing/mastra`; the 90 GPT-4o streams as the null.

use schemars::{Schema, schema_for};
use sseismo_trace::{Finding, Scope, SignatureId, Stream};

use super::{Options, Pass, Preset, Score, Signature};

mod baseline;
mod cause;
mod evidence;
mod tally;
#[cfg(test)]
mod tests;
mod verdict;
mod whole;

pub use baseline::{Unit, sends_large_frames};
pub use evidence::{Evidence, GridEvidence, LateGroup, Quantiles, ScaleEvidence};
pub use tally::{MUCH_TOKENS, STALL_MAX};
pub use verdict::HEALTHY;

use baseline::Baseline;
use tally::Tally;

/// The signature.
#[derive(Debug)]
pub struct Burst;

/// The hits of [`Burst`], stream by stream: for a comparison, which counts them.
#[derive(Debug, Default)]
pub struct Hits {
    baseline: Baseline,
    /// From the second pass.
    tally: Option<Tally>,
}

/// What one stream showed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamHits {
    /// Flushes that bring unusually much after an unusually long silence inside a phase.
    pub hits: u64,
    /// Time from its first to its last content event, in which they could have come, s.
    pub seconds: f64,
}

impl Hits {
    /// First pass: what is usual.
    pub fn learn(&mut self, stream: &Stream<'_>) {
        self.baseline.push(stream);
    }

    /// Whether any stream has times to look at in a second pass.
    pub fn wants_second_pass(&self) -> bool {
        self.baseline.timed_streams > 0
    }

    /// Second pass; `None` when the stream has no known gap inside a phase.
    pub fn count(&mut self, stream: &Stream<'_>) -> Option<StreamHits> {
        let baseline = &self.baseline;
        let tally = self.tally.get_or_insert_with(|| Tally::new(baseline, Preset::Measured));
        let (gaps, seconds) = (tally.fine.gaps, tally.seconds);
        tally.push(stream, baseline);
        (tally.fine.gaps > gaps)
            .then_some(StreamHits { hits: tally.hits_of_stream, seconds: tally.seconds - seconds })
    }
}

impl Signature for Burst {
    fn id(&self) -> SignatureId {
        SignatureId::Burst
    }

    fn open(&self, options: &Options) -> Box<dyn Score> {
        Box::new(BurstScore { preset: options.preset, baseline: Baseline::default(), tally: None })
    }

    fn evidence_schema(&self) -> Schema {
        schema_for!(Evidence)
    }
}

struct BurstScore {
    preset: Preset,
    baseline: Baseline,
    /// From the second pass.
    tally: Option<Tally>,
}

impl Score for BurstScore {
    fn push(&mut self, pass: Pass, stream: &Stream<'_>) {
        match pass {
            Pass::Baseline => self.baseline.push(stream),
            Pass::Groups => {
                let (baseline, preset) = (&self.baseline, self.preset);
                self.tally.get_or_insert_with(|| Tally::new(baseline, preset)).push(stream, baseline);
            }
        }
    }

    fn wants_second_pass(&self) -> bool {
        self.baseline.timed_streams > 0
    }

    fn finding(&self, scope: &Scope) -> Finding {
        verdict::finding(scope, self.preset, &self.baseline, self.tally.as_ref())
    }
}
