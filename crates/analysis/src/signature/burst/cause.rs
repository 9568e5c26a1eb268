//! Why one group came late and together, as far as the stored columns prove it.
//!
//! The rules are in the order of what they rule out: our own process first, because a late reader makes
//! every other picture.
//!
//! Reads alone never tell the upstream from a hop that nobody announces. Prompt, drained reads prove that
//! the other end of *our connection* sent the events together; a hop that holds bytes and an upstream that
//! writes at intervals left the very same columns in the whole-path test of both. Only the sender's clock
//! (`events.provider_ts`), a keep-alive that passed meanwhile, or a direct capture tells. Nor does the size
//! of the reads: a sender that writes 20 kB at once fills reads as a proxy's buffer does.

use std::collections::BTreeSet;

use sseismo_trace::{Cause, Micros, Read, Stream, TimeSource, Verdict};

use crate::flush::Flush;

/// Later than this is late: a prompt reader is 24 µs behind the kernel at the median, a scheduler under
/// load a few ms.
const LATE: Micros = Micros(10_000);
/// The smallest retransmission timeout of Linux: shorter silences are not a lost packet's.
const RTO_MIN: Micros = Micros(200_000);

/// What is missing where we read promptly and the other end of the connection sent the events together.
const SENDER_CLOCK: &str =
    "events.provider_ts: without the sender's clock a hop that holds bytes looks like a sender that does";

/// A cause, and the columns that would tell more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) cause: Cause,
    pub(super) missing: BTreeSet<&'static str>,
    /// The other end of the connection is known to have sent the events together.
    pub(super) together: bool,
}

impl Judged {
    pub(super) fn proven(cause: Cause) -> Self {
        Self { cause, missing: BTreeSet::new(), together: false }
    }

    pub(super) fn unknown(missing: &[&'static str]) -> Self {
        Self { cause: Cause::Unknown, missing: missing.iter().copied().collect(), together: false }
    }
}

/// What is known about the surroundings of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    /// Something of the scope was throttled within a minute.
    pub(super) throttled: bool,
    /// Late groups of this stream judged before: each may have used up one retransmission.
    pub(super) earlier: u32,
}

/// Judges the silence of `gap` before `group`.
pub(super) fn judge(stream: &Stream<'_>, group: &Flush, gap: Micros, around: Around) -> Judged {
    let summary = stream.summary;
    let reads = group.reads.map_or(&[][..], |range| reads_of(stream, range));
    if reads.first().is_some_and(|read| is_late(read, gap)) {
        return Judged::proven(Cause::SlowReader);
    }
    if around.throttled {
        return Judged::proven(Cause::RateLimitCooldown);
    }
    if summary.attempt.is_some_and(|attempt| attempt > 1) {
        return Judged::proven(Cause::RetryAmplification);
    }
    if summary.time_source == TimeSource::Server {
        // The times are the sender's own: nothing on the way can have moved them.
        return Judged::proven(Cause::UpstreamBatching);
    }
    let lost = summary.tcp_retrans.is_some_and(|sent_again| sent_again > around.earlier) && gap >= RTO_MIN;
    if let (Some((from, to)), true) = (group.provider, group.size.events > 1) {
        let spread = to - from;
        if spread >= gap.0 / 2 {
            return if lost { Judged::proven(Cause::NetworkLoss) } else { held(summary.via.is_some()) };
        }
        // Provider stamps in whole seconds cannot show that a group was written at once.
        if spread <= gap.0 / 10 && (from % 1_000_000 != 0 || to % 1_000_000 != 0) {
            return Judged::proven(Cause::UpstreamBatching);
        }
    }
    if group.keepalive {
        // Keep-alives passed while content did not: the way was open.
        return Judged::proven(Cause::UpstreamBatching);
    }
    if lost {
        return Judged::proven(Cause::NetworkLoss);
    }
    by_reads(reads, summary.via.is_some())
}

/// The provider's clock was smooth, so the bytes were held on the way.
pub(super) fn held(hop: bool) -> Judged {
    if hop {
        Judged::proven(Cause::ProxyBuffering)
    } else {
        Judged::unknown(&["a direct capture of the same upstream, to tell which hop held the bytes"])
    }
}

fn by_reads(reads: &[Read], via: bool) -> Judged {
    let Some(first) = reads.first() else {
        return Judged::unknown(&["reads.drained", "reads.kernel_lag_us", "provider_ts"]);
    };
    if !first.drained {
        return Judged::unknown(&["a drained read: more bytes were waiting, nobody knows since when"]);
    }
    if first.kernel_lag.is_none() && first.loop_lag.is_none() && first.idle.is_none() {
        return Judged::unknown(&["reads.kernel_lag_us or reads.loop_lag_us"]);
    }
    if via {
        return Judged::unknown(&["a direct capture: the answer names a proxy in its via header"]);
    }
    Judged { together: true, ..Judged::unknown(&[SENDER_CLOCK]) }
}

/// Whether our own lateness explains at least half of the silence.
pub(super) fn is_late(read: &Read, gap: Micros) -> bool {
    [read.idle, read.loop_lag, read.kernel_lag]
        .into_iter()
        .flatten()
        .any(|late| late >= LATE && Micros(late.0.saturating_mul(2)) >= gap)
}

pub(super) fn reads_of<'a>(stream: &Stream<'a>, (first, last): (u32, u32)) -> &'a [Read] {
    let from = stream.reads.partition_point(|read| read.read_id < first);
    let to = stream.reads.partition_point(|read| read.read_id <= last);
    &stream.reads[from..to.max(from)]
}

/// The period of a corked socket on Linux: `TCP_CORK` and `MSG_MORE` hold at most 200 ms, and a timer
/// tick and a round trip come on top (HAProxy 2.6: 224 ms at the median).
const CORK_MS: std::ops::RangeInclusive<f64> = 190.0..=260.0;

/// The cause of an even grid, given what most of its groups say; what they prove comes first.
pub(super) fn of_grid(grid: Grid, most: Judged) -> Judged {
    match (grid, most.cause) {
        (Grid::Bytes { full: true, .. }, Cause::Unknown) => Judged::proven(Cause::ProxyBuffering),
        (Grid::Period { ms }, Cause::Unknown) if most.together && CORK_MS.contains(&ms) => {
            Judged::proven(Cause::TcpCoalescing)
        }
        _ => most,
    }
}

/// What is even about the groups of a cork.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Grid {
    /// Released by a timer.
    Period { ms: f64 },
    /// Released by a full buffer.
    Bytes {
        /// Bytes of a group.
        bytes: f64,
        /// The bytes are clearly more even than the number of events: events of one size, so many at a
        /// time, are no full buffer.
        full: bool,
    },
}

/// What to do about it.
pub(super) fn next_step(verdict: Verdict, cause: Option<Cause>, missing: &BTreeSet<&'static str>) -> String {
    let step = match (verdict, cause) {
        (Verdict::NotMeasurable, _) => {
            "record streamed answers with `sseismo capture` or `sseismo relay --observe`: this source has no event times"
        }
        (_, Some(Cause::UpstreamBatching)) => {
            "route around this upstream or ask its operator: the sender wrote these events together; compare another route with `sseismo compare`"
        }
        (_, Some(Cause::RateLimitCooldown)) => {
            "lower concurrency or honour Retry-After: streams next to these were throttled; the response's rate-limit headers tell the budget"
        }
        (_, Some(Cause::ProxyBuffering)) => {
            "turn buffering off on the way: nginx `proxy_buffering off` and `gzip off` for text/event-stream, or answer with `X-Accel-Buffering: no`; then compare against a direct capture"
        }
        (_, Some(Cause::TcpCoalescing)) => {
            "turn off the cork on the way: HAProxy `option http-no-delay` (its default holds small writes for 200 ms), TCP_NODELAY in your own proxy"
        }
        (_, Some(Cause::SlowReader)) => {
            "fix our own side first: the process read late (idle, scheduler or kernel lag in reads/); take work out of the read loop, then capture again"
        }
        (_, Some(Cause::RetryAmplification)) => {
            "look at retry-amplification for these turns: the late groups belong to second and later attempts"
        }
        (_, Some(Cause::NetworkLoss)) => {
            "look at the network path: segments were sent again during these silences; compare from another host"
        }
        (_, Some(Cause::PhaseBorder)) => {
            "nothing: the long silences lie between phases, where models think or tools run"
        }
        (Verdict::TooFew, _) => "record more streams of this scope: 30 gaps inside a phase are the least",
        (_, Some(Cause::Unknown)) if missing.contains(SENDER_CLOCK) => {
            "capture the upstream once more without the hops before it and `sseismo compare` the two: the other end of our connection sent these events together, and only that tells the upstream from a hop on the way"
        }
        (_, Some(Cause::Unknown)) => {
            let columns: Vec<&str> = missing.iter().copied().collect();
            return format!(
                "record with `sseismo capture` or `sseismo relay --observe` to learn the cause; missing: {}",
                columns.join("; ")
            );
        }
        (_, None) => "nothing to do",
    };
    step.to_owned()
}
