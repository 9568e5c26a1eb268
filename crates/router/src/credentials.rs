//! Whose key goes where.
//!
//! In: a caller's headers and query. Out: the same without anything that identifies the caller to an
//! upstream, and with the operator's key where that upstream looks for it. A caller's credentials are for this
//! relay: they must never reach an upstream, let alone another one after a failover.

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, COOKIE, HeaderName, HeaderValue, PROXY_AUTHORIZATION};

use crate::config::KeyHeader;

/// Headers that carry a credential, an account or an organisation.
const CALLERS: [HeaderName; 17] = [
    AUTHORIZATION,
    PROXY_AUTHORIZATION,
    COOKIE,
    HeaderName::from_static("cookie2"),
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
    HeaderName::from_static("x-goog-api-key"),
    HeaderName::from_static("x-goog-user-project"),
    HeaderName::from_static("x-auth-token"),
    HeaderName::from_static("x-amz-security-token"),
    HeaderName::from_static("ocp-apim-subscription-key"),
    HeaderName::from_static("openai-organization"),
    HeaderName::from_static("openai-project"),
    HeaderName::from_static("anthropic-organization-id"),
    HeaderName::from_static("chatgpt-account-id"),
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("forwarded"),
];

/// Query parameters that carry a credential.
const IN_QUERY: [&str; 6] = ["key", "api_key", "api-key", "access_token", "token", "subscription-key"];

/// Removes what is the caller's.
pub fn remove(headers: &mut HeaderMap) {
    for name in &CALLERS {
        headers.remove(name);
    }
}

/// Puts the operator's key in. `None` where it is no valid header value.
pub fn put(headers: &mut HeaderMap, place: KeyHeader, key: &str) -> Option<()> {
    let (name, text) = match place {
        KeyHeader::Bearer => (AUTHORIZATION, format!("Bearer {key}")),
        KeyHeader::XApiKey => (HeaderName::from_static("x-api-key"), key.to_owned()),
        KeyHeader::ApiKey => (HeaderName::from_static("api-key"), key.to_owned()),
    };
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true); // printed as `Sensitive`
    headers.insert(name, value);
    Some(())
}

/// A path and query without the parameters that carry a credential.
pub fn clean(path_and_query: &str) -> String {
    let Some((path, query)) = path_and_query.split_once('?') else { return path_and_query.to_owned() };
    let secret = |parameter: &str| {
        let name = parameter.split('=').next().unwrap_or_default().to_ascii_lowercase();
        IN_QUERY.contains(&&*name)
    };
    let kept: Vec<_> = query.split('&').filter(|parameter| !secret(parameter)).collect();
    if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_caller_is_left_and_the_key_stands_where_it_is_looked_for() {
        for (place, name, value) in [
            (KeyHeader::ApiKey, "api-key", "sk-ours"),
            (KeyHeader::Bearer, "authorization", "Bearer sk-ours"),
            (KeyHeader::XApiKey, "x-api-key", "sk-ours"),
        ] {
            let mut headers = HeaderMap::new();
            for caller in &CALLERS {
                headers.append(caller, HeaderValue::from_static("caller-secret"));
                headers.append(caller, HeaderValue::from_static("caller-secret-2"));
            }
            headers.insert("accept", HeaderValue::from_static("kept"));
            remove(&mut headers);
            put(&mut headers, place, "sk-ours").unwrap();
            assert!(headers.values().all(|value| !value.to_str().unwrap().contains("caller")));
            assert_eq!(headers[name], value);
            assert_eq!(headers["accept"], "kept");
            assert!(!format!("{headers:?}").contains("sk-ours"));
        }
    }

    #[test]
    fn a_key_that_is_no_header_value_is_refused() {
        assert!(put(&mut HeaderMap::new(), KeyHeader::Bearer, "a\nb").is_none());
    }

    #[test]
    fn keys_leave_the_query_and_the_rest_stays() {
        assert_eq!(clean("/v1/x?key=secret&beta=true"), "/v1/x?beta=true");
        assert_eq!(clean("/v1/x?KEY=secret"), "/v1/x");
        assert_eq!(clean("/v1/x?beta=true&keys=1"), "/v1/x?beta=true&keys=1");
        assert_eq!(clean("/v1/x"), "/v1/x");
    }
}
