//! A script as a response body: each write at its deadline.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use sseismo_trace::Micros;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{Lateness, Shared};
use crate::plan::Close;
use crate::script::{Script, Write};
use crate::upstream::Truth;

/// The rest of a body that is being written.
pub(super) struct Paced {
    body: Bytes,
    writes: Vec<Write>,
    next: usize,
    done: usize,
    pacing: Option<Pacing>,
}

struct Pacing {
    truth: Truth,
    shared: Arc<Shared>,
    asked_at: Micros,
    close_at: Micros,
    close: Close,
    reset: Option<Arc<AtomicBool>>,
    sleep: Pin<Box<Sleep>>,
    lateness: Lateness,
}

impl Pacing {
    /// Ready when `at` has come.
    fn poll_until(&mut self, at: Micros, cx: &mut Context<'_>) -> Poll<Instant> {
        let deadline = self.shared.moment(self.asked_at, at);
        if Instant::now() < deadline {
            if self.sleep.deadline() != deadline {
                self.sleep.as_mut().reset(deadline);
            }
            ready!(self.sleep.as_mut().poll(cx));
        }
        Poll::Ready(deadline)
    }
}

impl Paced {
    pub(super) fn new(
        script: Script,
        truth: Truth,
        asked_at: Micros,
        shared: Arc<Shared>,
        reset: Option<Arc<AtomicBool>>,
    ) -> Self {
        let pacing = Pacing {
            truth,
            asked_at,
            close_at: script.close_at,
            close: script.close,
            reset,
            sleep: Box::pin(sleep_until(Instant::now())),
            lateness: Lateness::default(),
            shared,
        };
        Self { body: Bytes::from(script.body), writes: script.writes, next: 0, done: 0, pacing: Some(pacing) }
    }

    /// A short text, at once.
    pub(super) fn whole(text: &str) -> Self {
        let body = Bytes::copy_from_slice(text.as_bytes());
        let writes = vec![Write { at: Micros(0), end: body.len() }];
        Self { body, writes, next: 0, done: 0, pacing: None }
    }
}

impl Body for Paced {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        if let Some(write) = this.writes.get(this.next) {
            if let Some(pacing) = &mut this.pacing {
                let deadline = ready!(pacing.poll_until(write.at, cx));
                let late = Instant::now().saturating_duration_since(deadline).as_micros();
                pacing.lateness.record(u64::try_from(late).unwrap_or(u64::MAX));
            }
            let bytes = this.body.slice(this.done..write.end);
            (this.done, this.next) = (write.end, this.next + 1);
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let Some(pacing) = &mut this.pacing else { return Poll::Ready(None) };
        ready!(pacing.poll_until(pacing.close_at, cx));
        if pacing.close == Close::Reset
            && let Some(reset) = &pacing.reset
        {
            reset.store(true, Ordering::Relaxed);
        }
        Poll::Ready(match pacing.close {
            Close::Clean => None,
            Close::Cut | Close::Reset => Some(Err(io::Error::other("cut on purpose"))),
        })
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        if let Some(pacing) = &self.pacing {
            pacing.shared.finished(&pacing.truth, self.next, self.writes.len(), &pacing.lateness);
        }
    }
}
