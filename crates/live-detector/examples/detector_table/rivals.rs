//! Other people's detectors, for comparison alone.
//!
//! Each takes frames (events merged at 1 ms) of one route, stream after stream, and has one number that
//! trades false alarms for delay; the write-up's rule has none.

pub(crate) mod adwin;
pub(crate) mod burstiness;
pub(crate) mod gap_count;
pub(crate) mod page_hinkley;
pub(crate) mod write_up;

use crate::traffic::{Seen, Stream};

/// A detector at work.
pub(crate) trait Rival {
    /// A new stream begins.
    fn begin(&mut self) {}

    /// Takes in a frame; whether it alarms. After an alarm it starts afresh.
    fn frame(&mut self, frame: &Seen) -> bool {
        let _ = frame;
        false
    }

    /// Takes in a flush group (frames merged at 30 ms); whether it alarms.
    fn group(&mut self, group: &Seen) -> bool {
        let _ = group;
        false
    }
}

/// How a detector is made, and between which settings its false alarms go from many to none.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) make: fn(f64) -> Box<dyn Rival>,
    pub(crate) settings: [f64; 2],
}

/// Every rival that can be calibrated.
pub(crate) const RIVALS: [Kind; 4] = [
    Kind { name: "B > b in 8 s", make: |b| Box::new(burstiness::Window::new(b)), settings: [-1.0, 1.0] },
    Kind {
        name: "3 gaps in 60 s",
        make: |gap| Box::new(gap_count::GapCount::new(gap)),
        settings: [0.0, 30.0],
    },
    Kind {
        name: "Page–Hinkley",
        make: |limit| Box::new(page_hinkley::PageHinkley::new(limit)),
        settings: [0.0, 1_000.0],
    },
    // The setting is −ln δ.
    Kind { name: "ADWIN", make: |ln| Box::new(adwin::Adwin::new((-ln).exp())), settings: [0.0, 400.0] },
];

/// Times of alarms in one stream, seconds since its first content.
pub(crate) fn alarms(rival: &mut dyn Rival, stream: &Stream) -> Vec<f64> {
    rival.begin();
    let (mut frames, mut groups) = (stream.frames.iter().peekable(), stream.groups.iter().peekable());
    let mut alarms = Vec::new();
    loop {
        let frame_first = match (frames.peek(), groups.peek()) {
            (Some(frame), Some(group)) => frame.at <= group.at,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return alarms,
        };
        if frame_first {
            alarms.extend(frames.next().filter(|frame| rival.frame(frame)).map(|frame| f64::from(frame.at)));
        } else {
            alarms.extend(groups.next().filter(|group| rival.group(group)).map(|group| f64::from(group.at)));
        }
    }
}

/// The setting at which a rival alarms once in `arl` groups of `streams`, by halving.
pub(crate) fn calibrate(kind: &Kind, streams: &[Stream], arl: f64) -> f64 {
    let groups: usize = streams.iter().map(|stream| stream.groups.len()).sum();
    let wanted = real(groups) / arl;
    let [mut low, mut high] = kind.settings;
    for _ in 0..14 {
        let middle = f64::midpoint(low, high);
        let mut rival = (kind.make)(middle);
        let count: usize = streams.iter().map(|stream| alarms(rival.as_mut(), stream).len()).sum();
        if real(count) > wanted { low = middle } else { high = middle }
    }
    high
}

#[expect(clippy::cast_precision_loss, reason = "counts of groups are far below 2^53")]
pub(crate) fn real(count: usize) -> f64 {
    count as f64
}
