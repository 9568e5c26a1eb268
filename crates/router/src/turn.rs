//! Which requests are attempts of one client turn: headers and input in, a [`Turn`] out.
//!
//! A client that retries sends the same input again; what tells it apart was measured with the real programs.
//! The SDKs of OpenAI and Anthropic count in `x-stainless-retry-count`. Codex CLI has no counter: thread, turn
//! metadata and input hash together name the turn (its tool calls send other inputs). Other programs are
//! known by their session header or cache key and the input. Only keyed hashes are kept.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::HeaderValue;
use tokio::time::Instant;

/// Headers that name a session or thread, the more exact first.
const SESSIONS: [&str; 4] = ["thread-id", "session-id", "x-session-affinity", "x-claude-code-session-id"];

/// Headers that name a turn.
const TURNS: [&str; 2] = ["x-codex-turn-metadata", "x-turn-id"];

/// The same request later than this is a new turn: Codex gives up after 30 attempts in 25 s, and an SDK that
/// waits for a long Retry-After counts by itself.
const MEMORY: Duration = Duration::from_mins(2);

/// Turns remembered; about 3 MB.
const KEPT: usize = 50_000;

/// A request as part of a client's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Hash of the session, where the client names one: for affinity. Without a secret key, so that a session
    /// finds its upstream again after a restart; it is kept nowhere.
    pub session: Option<u64>,
    /// Hash of the turn: equal for all its attempts.
    pub key: u64,
    /// Which attempt of the client this is, from 1.
    pub attempt: u32,
}

/// Remembers turns.
#[derive(Debug, Default)]
pub struct Turns {
    hasher: RandomState,
    seen: Mutex<HashMap<u64, (u32, Instant)>>,
}

impl Turns {
    /// Counts one request. `input` is what the model reads (`input` or `messages`, or the whole body),
    /// `cache_key` the body's `prompt_cache_key`, `caller` the name under which the client was let in.
    pub fn count(
        &self,
        headers: &HeaderMap,
        caller: &str,
        cache_key: Option<&str>,
        input: &[u8],
        now: Instant,
    ) -> Turn {
        let first =
            |names: &[&str]| names.iter().find_map(|name| headers.get(*name)).map(HeaderValue::as_bytes);
        let session = first(&SESSIONS).or(cache_key.map(str::as_bytes));
        let caller = caller.as_bytes();
        let key = self.hasher.hash_one([
            caller,
            session.unwrap_or_default(),
            first(&TURNS).unwrap_or_default(),
            input,
        ]);
        let session =
            session.map(|session| BuildHasherDefault::<DefaultHasher>::default().hash_one([caller, session]));
        let counted = self.seen(key, now);
        let told = headers.get("x-stainless-retry-count").and_then(|count| count.to_str().ok());
        let told = told.and_then(|count| count.parse::<u32>().ok()).map(|count| count.saturating_add(1));
        Turn { session, key, attempt: told.unwrap_or(counted) }
    }

    fn seen(&self, key: u64, now: Instant) -> u32 {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= KEPT {
            seen.retain(|_, (_, last)| now.saturating_duration_since(*last) < MEMORY);
            if seen.len() >= KEPT {
                seen.clear(); // a flood of turns: counting begins anew rather than growing
            }
        }
        let (count, last) = seen.entry(key).or_insert((0, now));
        if now.saturating_duration_since(*last) >= MEMORY {
            *count = 0;
        }
        *last = now;
        *count = count.saturating_add(1);
        *count
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let header = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(header).collect()
    }

    #[test]
    fn codex_attempts_are_grouped_by_thread_turn_and_input() {
        let (turns, now) = (Turns::default(), Instant::now());
        let codex = headers(&[("thread-id", "t"), ("x-codex-turn-metadata", r#"{"turn_id":"1"}"#)]);
        let count = |input: &[u8], at| turns.count(&codex, "", None, input, at);
        let first = count(b"[1]", now);
        let second = count(b"[1]", now + Duration::from_secs(1));
        assert_eq!((first.attempt, second.attempt, first.key), (1, 2, second.key));
        let tool_call = count(b"[1,2]", now);
        assert_eq!((tool_call.attempt, tool_call.session), (1, first.session));
        assert_ne!(tool_call.key, first.key);
        assert_eq!(count(b"[1]", now + Duration::from_mins(5)).attempt, 1);
    }

    #[test]
    fn a_counter_of_the_client_is_believed() {
        let (turns, now) = (Turns::default(), Instant::now());
        let retry = headers(&[("x-stainless-retry-count", "2")]);
        assert_eq!(turns.count(&retry, "", None, b"x", now).attempt, 3);
    }

    #[test]
    fn callers_and_sessions_do_not_mix() {
        let (turns, now) = (Turns::default(), Instant::now());
        let count = |caller, cache| turns.count(&HeaderMap::new(), caller, cache, b"x", now);
        let (a, b) = (count("a", Some("s")), count("b", Some("s")));
        assert_ne!(a.key, b.key);
        assert_ne!(a.session, b.session);
        assert_eq!(count("a", None).session, None);
        assert_eq!(count("a", None).attempt, 2);
    }

    #[test]
    fn memory_is_bounded() {
        let (turns, now) = (Turns::default(), Instant::now());
        for turn in 0..u32::try_from(KEPT).unwrap() + 10 {
            turns.count(&HeaderMap::new(), "", None, &turn.to_le_bytes(), now);
        }
        assert!(turns.seen.lock().unwrap().len() <= KEPT);
    }
}
