//! The way to an upstream: which connections a request may use.
//!
//! In: an upstream and its policy. Out: the [`Tap`] to send with. A balancer in front of an API pins a
//! connection to one of its shards; `max_age` and `fresh` are the ways to get off a bad one. A connection
//! that is too old is not cut: requests on it finish, and no new one is sent over it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::Full;
use sseismo_capture::tap::{SentBody, Tap};
use tokio::time::Instant;

use crate::config::{Connection, Upstream};

/// What is sent: whole bodies.
pub type Sending = Tap<SentBody<Full<Bytes>>>;

/// All ways, by upstream.
#[derive(Debug)]
pub struct Links {
    base: Sending,
    links: Mutex<HashMap<Arc<str>, Link>>,
}

#[derive(Debug)]
struct Link {
    policy: Connection,
    tap: Sending,
    since: Instant,
}

impl Links {
    /// Ways that begin at `base`.
    pub fn new(base: Sending) -> Self {
        Self { base, links: Mutex::default() }
    }

    /// The tap for one request to `upstream`, now.
    pub fn to(&self, upstream: &Upstream, now: Instant) -> Sending {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = || Link {
            policy: upstream.connection,
            tap: self.base.apart(upstream.connection != Connection::Fresh),
            since: now,
        };
        let link = links.entry(upstream.name.clone()).or_insert_with(opened);
        let too_old = matches!(link.policy, Connection::MaxAge(age) if now.saturating_duration_since(link.since) >= age);
        if link.policy != upstream.connection || too_old {
            *link = opened();
        }
        link.tap.clone()
    }
}
