//! One limit for everything that decoders hold back, over all streams together.
//!
//! A decoder keeps the bytes of an event that is not complete yet. One stream's event may be large (a
//! closing event repeats the whole answer), so a limit per stream would be either too tight or too loose;
//! what must be bounded is the process. A stream that would go beyond the budget is no longer analysed:
//! its bytes still pass, and it is counted.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes that all decoders of a process may hold back together, and how often that was not enough.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
    refused: AtomicU64,
}

/// The budget of the process: 64 MiB, a thousand closing events of 64 KiB at the same moment.
pub static BUDGET: Budget = Budget::new(64 << 20);

/// The buffer budget of all streams is used up: this stream is passed on unanalysed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("buffer budget of all streams used up; stream passed on unanalysed")]
pub struct OverBudget;

impl Budget {
    /// A budget of `limit` bytes.
    pub const fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0), refused: AtomicU64::new(0) }
    }

    /// Bytes held back now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Streams that were given up because the budget was used up.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> Result<(), OverBudget> {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= self.limit {
            return Ok(());
        }
        self.give(bytes);
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(OverBudget)
    }

    fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A buffer whose capacity is charged to a [`Budget`].
#[derive(Debug)]
pub(crate) struct Held {
    bytes: Vec<u8>,
    charged: usize,
    budget: &'static Budget,
}

impl Held {
    /// Capacity kept between events: most events that are cut by a read fit, so buffers are not made anew.
    const KEPT: usize = 4 << 10;

    pub(crate) fn new(budget: &'static Budget) -> Self {
        Self { bytes: Vec::new(), charged: 0, budget }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Appends `more`; the buffer is left as it was when the budget does not allow it.
    pub(crate) fn extend(&mut self, more: &[u8]) -> Result<(), OverBudget> {
        let needed = self.bytes.len() + more.len();
        if needed > self.charged {
            let capacity = needed.next_power_of_two().max(512);
            self.budget.take(capacity - self.charged)?;
            self.charged = capacity;
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        if self.charged > Self::KEPT {
            self.release();
        }
    }

    /// Gives everything back.
    pub(crate) fn release(&mut self) {
        self.bytes = Vec::new();
        self.budget.give(self.charged);
        self.charged = 0;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.give(self.charged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SMALL: Budget = Budget::new(1 << 10);

    #[test]
    fn a_budget_is_shared_refuses_and_recovers() {
        let mut one = Held::new(&SMALL);
        let mut other = Held::new(&SMALL);
        one.extend(&[0; 600]).unwrap();
        assert_eq!(SMALL.used(), 1024);
        assert_eq!(other.extend(&[0; 10]), Err(OverBudget));
        assert_eq!((SMALL.refused(), other.as_slice().len()), (1, 0));
        drop(one);
        assert_eq!(SMALL.used(), 0);
        other.extend(&[0; 10]).unwrap();
        other.release();
        assert_eq!(SMALL.used(), 0);
    }
}
