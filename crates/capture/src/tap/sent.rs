//! The request body on its way out: passed on unchanged, counted, and copied up to a limit.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// A request larger than this is only counted: settings stand in its first part, but JSON is read whole.
const MAX_COPY: usize = 8 << 20;

/// What was sent so far.
#[derive(Debug, Default)]
pub(crate) struct Sent(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    bytes: u64,
    copy: Vec<Bytes>,
    whole: bool,
    taken: bool,
}

impl Sent {
    /// How many bytes were sent, and the copy when it is whole. The copy is taken out, and a whole one
    /// only once: later calls say nothing.
    pub(crate) fn take(&self) -> Option<(u64, Option<Vec<u8>>)> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.taken {
            return None;
        }
        state.taken = state.whole;
        let copy = state.whole.then(|| std::mem::take(&mut state.copy).concat());
        Some((state.bytes, copy))
    }

    fn with(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A request body whose bytes are counted and copied.
#[derive(Debug)]
pub struct SentBody<B> {
    body: B,
    sent: Arc<Sent>,
}

impl<B: Body> SentBody<B> {
    pub(crate) fn new(body: B, sent: Arc<Sent>) -> Self {
        if body.is_end_stream() {
            sent.with(|state| state.whole = true);
        }
        Self { body, sent }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for SentBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(frame) = &polled {
            let ended = frame.is_none() || self.body.is_end_stream();
            self.sent.with(|state| {
                if let Some(Ok(frame)) = frame
                    && let Some(bytes) = frame.data_ref()
                {
                    state.bytes += bytes.len() as u64;
                    state.copy.push(bytes.clone());
                }
                let small = state.bytes <= MAX_COPY as u64;
                if !small {
                    state.copy = Vec::new();
                }
                state.whole = ended && small;
            });
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
