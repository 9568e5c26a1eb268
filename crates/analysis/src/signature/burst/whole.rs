//! Why whole answers came at once, as far as the stored columns prove it.
//!
//! In: one stream that came in one read. Out: a cause. A compressor that does not flush after each event
//! holds a stream to its end: nginx with `gzip on` for `text/event-stream` did so for 6.1 s in the
//! whole-path test. `content_encoding` says that somebody compressed, not who, so a proxy is named only
//! where `via` or `server` announce one.

use sseismo_trace::{Cause, Stream, Summary};

use super::cause::{Judged, held, is_late, reads_of};
use crate::flush::Flush;

/// Compressed, and no hop says that it was there.
const WHO_COMPRESSED: &str =
    "streams.via or streams.server: the answer was compressed, and nothing says whether on the way";
const WHICH_HOP: &str = "a direct capture of the same upstream, to tell which hop held the answer";

/// What programs that pass answers on write into `server`. Application servers and names that both kinds
/// use (Apache, Google's) are left out.
const PROXIES: [&str; 8] =
    ["nginx", "openresty", "tengine", "cloudflare", "envoy", "istio-envoy", "caddy", "awselb"];

/// How the answer was compressed, if it was.
pub(super) fn encoding(summary: &Summary) -> Option<&str> {
    summary.content_encoding.as_deref().map(str::trim).filter(|name| !name.is_empty() && *name != "identity")
}

/// Whether the answer says that a proxy passed it on.
fn announces_hop(summary: &Summary) -> bool {
    let server = summary.server.as_deref().unwrap_or_default().to_ascii_lowercase();
    let name = server.split(['/', ' ']).next().unwrap_or_default();
    summary.via.is_some() || PROXIES.contains(&name)
}

/// Judges an answer that came at once, as `whole`.
pub(super) fn judge(stream: &Stream<'_>, whole: &Flush) -> Judged {
    let reads = whole.reads.map_or(&[][..], |range| reads_of(stream, range));
    let waited = whole.first;
    if reads.first().is_some_and(|read| is_late(read, waited)) {
        return Judged::proven(Cause::SlowReader);
    }
    let hop = announces_hop(stream.summary);
    if let Some((from, to)) = whole.provider {
        let spread = to - from;
        if spread >= waited.0 / 2 {
            return held(hop);
        }
        // Provider stamps in whole seconds cannot show that an answer was written at once.
        if spread <= waited.0 / 10 && (from % 1_000_000 != 0 || to % 1_000_000 != 0) {
            return Judged::proven(Cause::UpstreamBatching);
        }
    }
    match (encoding(stream.summary), hop) {
        (Some(_), true) => Judged::proven(Cause::ProxyBuffering),
        (Some(_), false) => Judged::unknown(&[WHO_COMPRESSED]),
        (None, _) => Judged::unknown(&[WHICH_HOP]),
    }
}

/// What to do about it; `compressed` when some of the answers were.
pub(super) fn next_step(cause: Option<Cause>, compressed: bool) -> Option<&'static str> {
    Some(match cause {
        Some(Cause::ProxyBuffering | Cause::Unknown) if compressed => {
            "turn compression off for event streams on the way: in nginx `gzip off` for text/event-stream, or ask with `Accept-Encoding: identity`; then capture again"
        }
        Some(Cause::Unknown) => {
            "look for full buffering on the way, a CDN's or SDK's response buffering or `gzip off` forgotten for text/event-stream in nginx, and compare against a direct capture"
        }
        _ => return None,
    })
}

/// What the verdict leaves open.
pub(super) fn does_not_prove(cause: Option<Cause>) -> &'static str {
    match cause {
        Some(Cause::ProxyBuffering) => {
            "that the hop which announces itself is the one that held the answers: one behind it may have"
        }
        _ => "who held the answers: a proxy, compression, an SDK, or a cache that had them whole",
    }
}
