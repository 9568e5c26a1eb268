//! Signals for people: what clusters, in the words of `backtest` and `watch`.

use sseismo_trace::Detail;

/// What clusters, in words.
pub(crate) fn detail(detail: &Detail) -> String {
    match detail {
        Detail::CountLattice { step, offset } => format!("counts at {step}·n + {offset}"),
        Detail::Burst { gap_s, tokens } => {
            format!("{tokens:.0} tokens at once after {gap_s:.1} s of silence")
        }
        Detail::SizeWindow { lo, hi } => format!("sizes {lo} to {hi} are slow"),
        Detail::Concurrency { calls, window_s } => format!("{calls} deep calls within {window_s:.0} s"),
        Detail::Saturation { prompt_tokens, numeric_share } => {
            format!("prompts over {prompt_tokens} tokens, {:.0} % numeric, fail", numeric_share * 100.0)
        }
        Detail::RetryAmplification { attempts_per_turn } => {
            format!("{attempts_per_turn:.1} attempts per turn")
        }
    }
}
