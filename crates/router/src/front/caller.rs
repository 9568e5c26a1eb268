//! Who calls: a token in one of the places where clients of the APIs can put it.

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue, PROXY_AUTHORIZATION};

use crate::auth::Tokens;
use crate::observe::TOKEN_HEADER;

/// The name of the caller whose token the headers carry. The relay's own header goes first, then
/// `proxy-authorization`, then where OpenAI's, Anthropic's and Azure's clients put their key.
pub(super) fn name<'a>(tokens: &'a Tokens, headers: &HeaderMap) -> Option<&'a str> {
    let plain = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    let bearer = |name| {
        let value: &[u8] = headers.get(name).map(HeaderValue::as_bytes)?;
        let (scheme, token) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
    };
    let places = [
        plain(TOKEN_HEADER),
        bearer(PROXY_AUTHORIZATION),
        bearer(AUTHORIZATION),
        plain("x-api-key"),
        plain("api-key"),
    ];
    places.into_iter().flatten().find_map(|token| tokens.caller(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf %s secret | sha256sum`.
    const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b me";

    #[test]
    fn the_token_is_found_in_each_place_and_nowhere_else() {
        let tokens = Tokens::parse(SECRET).unwrap();
        let with = |header: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header, HeaderValue::from_static(value));
            name(&tokens, &headers)
        };
        for (header, value) in [
            ("x-sseismo-token", "secret"),
            ("proxy-authorization", "Bearer secret"),
            ("authorization", "bearer secret"),
            ("x-api-key", "secret"),
            ("api-key", "secret"),
        ] {
            assert_eq!(with(header, value), Some("me"), "{header}");
        }
        for (header, value) in [("authorization", "secret"), ("cookie", "secret"), ("x-api-key", "Secret")] {
            assert_eq!(with(header, value), None, "{header}");
        }
    }
}
