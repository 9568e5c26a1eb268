//! `--coarse`: sums of a flush instead of the sizes of its events. Sizes per event let a reader guess
//! the text (Whisper Leak, 2025); the sums of a flush do so far less.

use sseismo_trace::Delta;

/// Gap above which two events belong to different flushes, µs: record gaps of real streams leave
/// 0.1–1 ms nearly empty (1.6 % of 4,600), so 1 ms parts them cleanly.
const FLUSH_GAP: i64 = 1_000;

/// Takes `next` into `sum` when it is of the same flush and of the same nature; says whether it did.
/// The sum keeps the place of its first event and the time of its last.
pub(super) fn fold(sum: &mut Delta, next: &Delta) -> bool {
    let same_nature = (sum.kind, sum.phase, sum.item_index) == (next.kind, next.phase, next.item_index);
    let same_flush = match (sum.t, next.t) {
        (Some(before), Some(now)) => (0..=FLUSH_GAP).contains(&now.since(before).0),
        // Nothing says where a flush ends: one sum hides more than many sizes.
        _ => true,
    };
    if !same_nature || !same_flush {
        return false;
    }
    sum.t = next.t.or(sum.t);
    sum.chars = sum.chars.saturating_add(next.chars);
    sum.tokens = added(sum.tokens, next.tokens);
    sum.tokens_est = added(sum.tokens_est, next.tokens_est);
    sum.wire_bytes = sum.wire_bytes.saturating_add(next.wire_bytes);
    sum.pad_bytes = sum.pad_bytes.saturating_add(next.pad_bytes);
    if let (Some(first), Some(last)) = (sum.first_read, next.first_read) {
        let reads = last.saturating_add(next.extra_reads.into()).saturating_sub(first);
        sum.extra_reads = u16::try_from(reads).unwrap_or(u16::MAX);
    }
    true
}

/// Nothing reported stays nothing.
fn added(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    }
}
