//! The request as an upstream gets it.
//!
//! In: the client's head and body, and an attempt. Out: the same request with the upstream's model name, the
//! parameters that it takes, usage asked for, and the operator's key instead of everything of the caller's.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HOST, HeaderValue};
use hyper::http::{self, request};
use hyper::{Request, Version};
use sseismo_trace::Api;

use crate::affinity::paths;
use crate::choice::Attempt;
use crate::config::Upstream;
use crate::credentials;
use crate::observe::TOKEN_HEADER;
use crate::observe::headers::end_hop;
use crate::rewrite::Members;
use crate::usage;

/// A request's body, as it came and as it reads.
#[derive(Clone, Debug, Default)]
pub struct Inbound {
    /// As it came.
    pub raw: Bytes,
    /// Without its content-encoding.
    pub decoded: Bytes,
    /// It came with one, and is sent with it.
    pub encoded: bool,
    /// The model that it names.
    pub model: Option<String>,
    /// It asks for a stream without usage.
    pub lacks_usage: bool,
}

/// Why no request can be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unsendable {
    /// The path does not fit behind the base URL.
    #[error("the path cannot be joined to the base URL")]
    Path(#[from] http::Error),
    /// The key is no header value.
    #[error("its key cannot be sent in a header")]
    Key,
}

/// The request of one attempt, and whether usage must be stripped from its answer.
pub(super) fn request(
    head: &request::Parts,
    inbound: &Inbound,
    api: Option<Api>,
    attempt: &Attempt,
) -> Result<(Request<Full<Bytes>>, bool), Unsendable> {
    let upstream = &*attempt.upstream;
    let mut head = head.clone();
    let looked_at = api.is_some() || paths::issues(head.uri.path());
    let path = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    head.uri = upstream.base.join(&below(path))?;
    head.version = Version::HTTP_11; // the connection decides
    let headers = &mut head.headers;
    end_hop(headers);
    headers.remove(TOKEN_HEADER);
    headers.remove(CONTENT_LENGTH);
    credentials::remove(headers);
    headers.insert(HOST, upstream.base.host().clone());
    if let Some(key) = &attempt.key {
        credentials::put(headers, upstream.key_header, key.secret.expose()).ok_or(Unsendable::Key)?;
    }
    if api == Some(Api::Messages) {
        headers.entry("anthropic-version").or_insert(HeaderValue::from_static("2023-06-01"));
    }
    if looked_at {
        // The answer is looked at.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    let (body, strip) = body(inbound, api, attempt, upstream);
    if body.is_some() || !inbound.encoded {
        headers.remove(CONTENT_ENCODING);
    }
    let as_it_came = if inbound.encoded { &inbound.raw } else { &inbound.decoded };
    Ok((Request::from_parts(head, Full::new(body.unwrap_or_else(|| as_it_came.clone()))), strip))
}

/// A path and query below a base URL, which has its `/v1` itself.
fn below(path: &str) -> String {
    credentials::clean(path.strip_prefix("/v1").unwrap_or(path))
}

/// The body, when it is not to go out as it came.
fn body(
    inbound: &Inbound,
    api: Option<Api>,
    attempt: &Attempt,
    upstream: &Upstream,
) -> (Option<Bytes>, bool) {
    let renamed = inbound.model.as_ref().is_some_and(|model| **model != *attempt.model);
    let asking = inbound.lacks_usage && api == Some(Api::Chat);
    let adjust = api.filter(|_| !attempt.adjust.is_nothing());
    if !renamed && !asking && adjust.is_none() && upstream.drop.is_empty() && upstream.clamp.is_empty() {
        return (None, false); // a large prompt is not read again for nothing
    }
    let Ok(mut members) = Members::read(&inbound.decoded) else { return (None, false) };
    if renamed {
        members.set("model", serde_json::Value::from(&*attempt.model).to_string());
    }
    for name in &upstream.drop {
        members.remove(name);
    }
    for (name, most) in &upstream.clamp {
        members.clamp(name, *most);
    }
    if let Some(api) = adjust {
        attempt.adjust.apply(api, &mut members);
    }
    let strip = api.is_some_and(|api| usage::ask(api, &mut members));
    (members.is_changed().then(|| members.write().into()), strip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe;

    #[test]
    fn paths_are_joined_behind_the_base_which_has_its_version_itself() {
        let base = observe::Upstream::parse("https://api.example/openai/v1").unwrap();
        let (clean, expected) = (
            below("/v1/chat/completions?a=1&key=secret"),
            "https://api.example/openai/v1/chat/completions?a=1",
        );
        assert_eq!(base.join(&clean).unwrap().to_string(), expected);
    }
}
