//! A bounded line: so many calls at once, so many waiting, the rest goes on without.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The line. First come, first served.
#[derive(Debug)]
pub struct Line {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    most: usize,
}

/// A call's place; free again when it is dropped.
#[derive(Debug)]
pub struct Place(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

/// One who waits, until he is gone, whatever the reason.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Line {
    /// A line in front of `places` places, in which at most `waiting` wait.
    pub fn new(places: usize, waiting: usize) -> Self {
        let places = Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        Self { places, waiting: AtomicUsize::new(0), most: waiting }
    }

    /// Waits for a place; `None` when too many wait already.
    pub async fn enter(&self) -> Option<Place> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(Place(place));
        }
        let free = |waiting: usize| (waiting < self.most).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).ok()?;
        let _waiting = Waiting(&self.waiting);
        Arc::clone(&self.places).acquire_owned().await.ok().map(Place)
    }

    /// A place, if one is free.
    pub fn try_enter(&self) -> Option<Place> {
        Arc::clone(&self.places).try_acquire_owned().ok().map(Place)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn places_and_those_who_wait_are_bounded() {
        let line = Arc::new(Line::new(1, 1));
        let place = line.enter().await.unwrap();
        let waiting = tokio::spawn({
            let line = Arc::clone(&line);
            async move { line.enter().await.is_some() }
        });
        tokio::task::yield_now().await;
        assert!(line.enter().await.is_none(), "one waits already");
        drop(place);
        assert!(waiting.await.unwrap());
        // Who gives up makes room for the next one who waits.
        let place = line.enter().await.unwrap();
        for _ in 0..3 {
            assert!(timeout(Duration::from_millis(1), line.enter()).await.is_err());
        }
        drop(place);
        assert!(line.try_enter().is_some());
    }
}
