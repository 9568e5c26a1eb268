//! Headers that end at each hop.

use hyper::HeaderMap;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};

use super::TOKEN_HEADER;

/// RFC 9110 § 7.6.1 and the proxy's own; `expect` because hyper answers it to the client itself.
const HOP_BY_HOP: [HeaderName; 10] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    EXPECT,
];

/// Removes what is meant for this hop alone, and what `connection` names.
pub(crate) fn end_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    // Of the two the transfer coding holds (RFC 9112 § 6.3). The length that it overrode would be wrong at the next
    // hop, which would take what follows for the rest of this body.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Some clients offer `upgrade: h2c` on an ordinary request, which may be ignored (RFC 9110 § 7.8).
pub(crate) fn is_http2_upgrade(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"h2c"))
}

/// Whether the relay's own token is there, in [`TOKEN_HEADER`] or as `proxy-authorization: Bearer …`.
pub(crate) fn carries_token(headers: &HeaderMap, token: &str) -> bool {
    let own = headers.get(TOKEN_HEADER).map(HeaderValue::as_bytes);
    let proxy = headers.get(PROXY_AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    [own, proxy].into_iter().flatten().any(|given| same(given, token.as_bytes()))
}

/// Compares without telling by its time where the first difference is.
pub(crate) fn same(given: &[u8], wanted: &[u8]) -> bool {
    given.len() == wanted.len() && given.iter().zip(wanted).fold(0, |odd, (a, b)| odd | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_hop_ends_with_its_own_headers_and_those_that_connection_names() {
        let mut given = headers(&[
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("content-length", "6"),
            ("authorization", "kept"),
            ("content-encoding", "gzip"),
        ]);
        end_hop(&mut given);
        assert_eq!(given, headers(&[("authorization", "kept"), ("content-encoding", "gzip")]));
    }

    #[test]
    fn the_token_is_taken_from_either_place_and_must_be_whole() {
        assert!(carries_token(&headers(&[("x-sseismo-token", "abc")]), "abc"));
        assert!(carries_token(&headers(&[("proxy-authorization", "Bearer abc")]), "abc"));
        assert!(!carries_token(&headers(&[("authorization", "Bearer abc")]), "abc"));
        assert!(!carries_token(&headers(&[("x-sseismo-token", "ab")]), "abc"));
    }
}
