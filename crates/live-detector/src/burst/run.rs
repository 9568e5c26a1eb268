//! Frames of one stream to a run that a baseline can learn from.
//!
//! In: closed frames ([`Flush`]). Out: [`Run`]s of up to [`RUN_FRAMES`] neighbouring frames. Frames are kept
//! rather than groups, because the fine scale's window follows the baseline and may change later; and
//! neighbours are kept together, because the threshold's bootstrap draws blocks.

use serde::{Deserialize, Serialize};
use sseismo_analysis::flush::{Flush, Gap, Grouper, Size};
use sseismo_analysis::signature::burst::Unit;
use sseismo_trace::{Kind, Micros};

/// Frames in a full run: about 30 coarse groups of a GPT-4o stream, several blocks of the bootstrap.
pub(super) const RUN_FRAMES: usize = 128;

/// What came before a frame, in one number: the silence in µs, and two bits that say which silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct PackedGap(u32);

impl PackedGap {
    const MICROS: u32 = (1 << 30) - 1;

    pub(super) fn of(gap: Gap) -> Self {
        let micros = |gap: Micros| u32::try_from(gap.0.clamp(0, i64::from(Self::MICROS))).unwrap_or(0);
        Self(match gap {
            Gap::Within(gap) => micros(gap),
            Gap::Border(gap) => 1 << 30 | micros(gap),
            Gap::Unknown => 2 << 30,
            Gap::First => 3 << 30,
        })
    }

    pub(super) fn gap(self) -> Gap {
        let micros = Micros(i64::from(self.0 & Self::MICROS));
        match self.0 >> 30 {
            0 => Gap::Within(micros),
            1 => Gap::Border(micros),
            2 => Gap::Unknown,
            _ => Gap::First,
        }
    }
}

/// One frame as a recorder holds it: 16 bytes, every unit of size, for the unit may not be settled yet.
#[derive(Clone, Copy, Debug)]
struct Raw {
    gap: PackedGap,
    span: u16,
    events: u16,
    tokens: u16,
    tokens_est: u16,
    chars: u16,
}

impl Raw {
    fn of(frame: &Flush) -> Self {
        let small = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
        Self {
            gap: PackedGap::of(frame.gap),
            span: u16::try_from(frame.last.since(frame.first).0).unwrap_or(u16::MAX),
            events: small(frame.size.events),
            tokens: small(frame.size.tokens),
            tokens_est: small(frame.size.tokens_est),
            chars: small(frame.size.chars),
        }
    }

    fn size(&self) -> Size {
        Size {
            events: self.events.into(),
            tokens: self.tokens.into(),
            tokens_est: self.tokens_est.into(),
            chars: self.chars.into(),
            bytes: 0,
        }
    }
}

/// Neighbouring frames of one stream.
#[derive(Clone, Debug, Default)]
pub struct Run {
    frames: Vec<Raw>,
}

impl Run {
    /// The run of a whole recorded stream, in pieces of at most [`RUN_FRAMES`] frames.
    pub(super) fn push(&mut self, frame: &Flush) {
        if !self.is_full() {
            self.frames.push(Raw::of(frame));
        }
    }

    /// The silence before the stream's end: no frame, but as honest as one on a border.
    pub(super) fn push_end(&mut self, silence: Micros) {
        if !self.is_full() && !self.is_empty() {
            let gap = PackedGap::of(Gap::Border(silence));
            self.frames.push(Raw { gap, span: 0, events: 0, tokens: 0, tokens_est: 0, chars: 0 });
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.frames.len() >= RUN_FRAMES
    }

    /// Frames in it.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The best unit that 19 of 20 frames carry.
    pub(super) fn unit(&self) -> Unit {
        let frames = || self.frames.iter().filter(|frame| frame.events > 0);
        let all = frames().count();
        let carried =
            |size: fn(&Raw) -> u16| frames().filter(|frame| size(frame) > 0).count() * 20 >= all * 19;
        if carried(|frame| frame.tokens) {
            Unit::Tokens
        } else if carried(|frame| frame.tokens_est) {
            Unit::EstimatedTokens
        } else if carried(|frame| frame.chars) {
            Unit::Characters
        } else {
            Unit::Events
        }
    }

    pub(super) fn packed(&self, unit: Unit) -> Vec<Packed> {
        let size = |raw: &Raw| u16::try_from(unit.of(&raw.size())).unwrap_or(u16::MAX);
        self.frames.iter().map(|raw| Packed { gap: raw.gap, span: raw.span, size: size(raw) }).collect()
    }
}

/// One frame as a baseline holds it: 8 bytes, in the baseline's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(PackedGap, u16, u16)", into = "(PackedGap, u16, u16)")]
pub(super) struct Packed {
    pub(super) gap: PackedGap,
    /// From its first event to its last, µs.
    span: u16,
    size: u16,
}

impl From<(PackedGap, u16, u16)> for Packed {
    fn from((gap, span, size): (PackedGap, u16, u16)) -> Self {
        Self { gap, span, size }
    }
}

impl From<Packed> for (PackedGap, u16, u16) {
    fn from(packed: Packed) -> Self {
        (packed.gap, packed.span, packed.size)
    }
}

/// One flush group of a baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Group {
    /// The silence before it inside its phase; `None` where it is unknown or no silence of a phase.
    pub(super) gap: Option<Micros>,
    pub(super) size: u32,
    pub(super) span: Micros,
}

/// Groups of a run, formed by the grouper of live streams.
///
/// The first frame's own group began before the run, so its gap counts as unknown.
pub(super) fn groups(frames: &[Packed], mut grouper: Grouper) -> Vec<Group> {
    let mut out = Vec::new();
    let mut last = Micros(0);
    for (index, frame) in frames.iter().enumerate() {
        let gap = if index == 0 { Gap::First } else { frame.gap.gap() };
        let silence = match gap {
            Gap::Within(gap) | Gap::Border(gap) => gap,
            Gap::Unknown | Gap::First => Micros(0),
        };
        let first = Micros(last.0 + silence.0);
        last = Micros(first.0 + i64::from(frame.span));
        let flush = Flush {
            first,
            last,
            gap,
            keepalive: false,
            kind: Kind::Text,
            frames: 1,
            size: Size { events: frame.size.into(), ..Size::default() },
            reads: None,
            provider: None,
        };
        out.extend(grouper.push(flush));
    }
    out.extend(grouper.finish());
    out.iter().map(group).collect()
}

fn group(flush: &Flush) -> Group {
    let gap = match flush.gap {
        Gap::Within(gap) => Some(gap),
        Gap::First | Gap::Border(_) | Gap::Unknown => None,
    };
    Group { gap, size: flush.size.events, span: flush.last.since(flush.first) }
}
