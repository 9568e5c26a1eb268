//! The form of the event before: what stays the same from event to event.
//!
//! In: an event that was skimmed, and where its changing values stood. Out: the same values of the next
//! event, when its bytes between them are the same. A stream repeats itself: ids, names and indices come
//! with every event, and only a text, a number and some padding are new. JSON that was read up to the end
//! of such a value is in the same state whatever the value was, so equal bytes around equal kinds of values
//! mean what they meant before. Nothing of the values themselves is kept.

use std::fmt;

use sseismo_trace::Kind;

use super::Json;

/// The bytes of longer events are not kept: they are few.
const MAX_BYTES: usize = 1 << 10;

/// Changing values of one event; one with more is not kept.
const SLOTS: usize = 4;

/// Where the changing values of an event stood.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::dialect) struct Spans {
    all: [(u8, usize, usize); SLOTS],
    /// May be more than there is place for.
    count: usize,
}

impl Spans {
    #[inline]
    pub(super) fn push(&mut self, slot: u8, from: usize, to: usize) {
        if let Some(place) = self.all.get_mut(self.count) {
            *place = (slot, from, to);
        }
        self.count += 1;
    }
}

/// What the last event looked like around its changing values, and what follows from that.
#[derive(Default)]
pub(crate) struct Form {
    /// Empty while nothing is kept.
    around: Vec<u8>,
    /// Which value follows `around` up to where.
    slots: [(u8, usize); SLOTS],
    count: usize,
    name: String,
    /// Of content.
    pub(in crate::dialect) kind: Option<Kind>,
    pub(in crate::dialect) item_index: Option<u16>,
}

impl Form {
    /// Keeps the form of an event called `name`.
    pub(in crate::dialect) fn keep(
        &mut self,
        name: &str,
        text: &str,
        spans: &Spans,
        kind: Option<Kind>,
        item_index: Option<u16>,
    ) {
        self.around.clear();
        let Some(spans) = spans.all.get(..spans.count).filter(|_| text.len() <= MAX_BYTES) else { return };
        let text = text.as_bytes();
        let mut from = 0;
        for (place, (slot, start, end)) in self.slots.iter_mut().zip(spans) {
            self.around.extend_from_slice(&text[from..*start]);
            *place = (*slot, self.around.len());
            from = *end;
        }
        self.around.extend_from_slice(&text[from..]);
        self.count = spans.len();
        if self.name != name {
            name.clone_into(&mut self.name);
        }
        (self.kind, self.item_index) = (kind, item_index);
    }

    /// Reads an event of the kept form: `value` is called before each changing value and must consume it.
    #[inline]
    pub(in crate::dialect) fn read<'a>(
        &self,
        name: &str,
        text: &'a str,
        mut value: impl FnMut(&mut Json<'a>, u8) -> Option<()>,
    ) -> Option<()> {
        if self.around.is_empty() || self.name != name {
            return None;
        }
        let mut json = Json::new(text);
        let mut from = 0;
        for (slot, until) in &self.slots[..self.count] {
            json.same(&self.around[from..*until])?;
            value(&mut json, *slot)?;
            from = *until;
        }
        json.same(&self.around[from..])?;
        (json.at == text.len()).then_some(())
    }

    /// Bytes of memory beside its own.
    pub(crate) fn memory(&self) -> usize {
        self.around.capacity() + self.name.capacity()
    }
}

impl fmt::Debug for Form {
    /// It is a memory of how to read, not of what was read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Form")
    }
}
