//! Recorded traces through a detector of our own, at the times at which they were recorded.
//!
//! In: any file that can be imported. Out: updates, at the recorded pace times a factor. Streams overlap as they
//! did; one without a start time cannot be placed and is left out and counted.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use anyhow::{Context as _, bail};
use sseismo_capture::import;
use sseismo_live_detector::{Options, Replay};
use sseismo_trace::{Delta, Micros, SignalState, Summary, UtcMicros};

use super::{Speed, Update};
use crate::reading::Reading;
use crate::spool::Spool;

/// Recorded time between two looks, µs: the detector's own tick.
const TICK: i64 = 1_000_000;
/// Views a second at most: more are neither seen nor worth their making.
const VIEWS: f64 = 20.0;
/// As fast as possible there is a view after so much recorded time, µs.
const SPARSE: i64 = 60_000_000;
/// A longer silence is not waited out, µs of recorded time: nights are dull.
const DULL: i64 = 600_000_000;
/// After so long a silence nothing changes any more, µs, and the rest is one step.
const STILL: i64 = 3_600_000_000;
/// Silence after the last stream, µs: signals that nothing speaks for any more clear in it.
const AFTER: i64 = 120_000_000;

/// Everything that can be played.
#[derive(Debug)]
pub(super) struct Tape {
    /// On disk: memory grows with what runs at once.
    streams: Spool,
    /// Streams that cannot be placed in time.
    unplaced: usize,
    /// What was named could not be read to its end.
    damaged: bool,
}

/// Reads what is at `path`.
pub(super) fn read(path: &Path) -> anyhow::Result<Tape> {
    let mut reading = Reading::new(&[path.to_owned()], import::Options::default())?;
    let mut streams = Spool::new().context("cannot make a temporary file for the streams")?;
    let (mut unplaced, mut failed) = (0, None);
    let inputs = reading.read(&mut |_, stream| match stream.summary.started_at {
        None => unplaced += 1,
        Some(_) if failed.is_none() => failed = streams.push(stream.summary, stream.deltas).err(),
        Some(_) => {}
    });
    if let Some(error) = failed {
        return Err(error).context("cannot spool the streams to a temporary file");
    }
    let damaged = reading.tell_errors(&inputs);
    match (streams.is_empty(), unplaced) {
        (true, 0) => bail!("{}: no streams could be read", path.display()),
        (true, n) => bail!("{}: none of {n} streams has a start time", path.display()),
        (false, _) => {}
    }
    Ok(Tape { streams, unplaced, damaged })
}

/// Plays a tape until its end, or until `stop`.
pub(super) fn play(
    tape: Tape,
    speed: Speed,
    options: Options,
    updates: &SyncSender<Update>,
    stop: &AtomicBool,
) {
    let _ = updates.send(Update::Status(String::new()));
    let mut player = Player::new(options, speed, updates, stop);
    let streams = tape.streams.len();
    let played = tape.streams.read(|started, summary, deltas| player.stream(started, summary, deltas));
    if let Err(error) = played {
        let _ = updates.send(Update::End(Err(format!("cannot read the spooled streams back: {error}"))));
        return;
    }
    player.finish();
    let unplaced = match tape.unplaced {
        0 => String::new(),
        n => format!("; {n} without a start time were left out"),
    };
    let told = format!("the end: {} signals in {streams} streams{unplaced}", player.onsets);
    let end = if tape.damaged { Err(format!("{told}; not all could be read, see above")) } else { Ok(told) };
    let _ = updates.send(Update::End(end));
}

struct Player<'a> {
    replay: Replay,
    speed: Speed,
    updates: &'a SyncSender<Update>,
    stop: &'a AtomicBool,
    now: Option<UtcMicros>,
    viewed: Option<UtcMicros>,
    onsets: usize,
}

impl<'a> Player<'a> {
    fn new(options: Options, speed: Speed, updates: &'a SyncSender<Update>, stop: &'a AtomicBool) -> Self {
        let replay = Replay::new(options);
        Self { replay, speed, updates, stop, now: None, viewed: None, onsets: 0 }
    }

    /// Plays what happens before a stream starts, and starts it.
    fn stream(&mut self, started: UtcMicros, summary: &Summary, deltas: &[Delta]) -> ControlFlow<()> {
        if let Some(now) = self.now {
            self.pass(now, started);
        }
        if self.stop.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        self.replay.push(started, summary, deltas);
        self.tell();
        self.now = Some(started);
        ControlFlow::Continue(())
    }

    /// Plays to the end of the last stream, and a while of silence.
    fn finish(&mut self) {
        let Some(mut now) = self.now else { return };
        while self.replay.is_running() && !self.stop.load(Ordering::Relaxed) {
            let next = UtcMicros(now.0 + TICK);
            self.pass(now, next);
            now = next;
        }
        self.pass(now, UtcMicros(now.0 + AFTER));
        self.viewed = None; // the last view is shown, however soon after the one before
        self.look(now);
    }

    /// Lets time pass, silence included.
    fn pass(&mut self, from: UtcMicros, to: UtcMicros) {
        let silence = to.0 - from.0;
        let waited = |us: i64| us.min(us.saturating_mul(DULL) / silence.max(1));
        let mut now = from.0;
        while now < to.0 && !self.stop.load(Ordering::Relaxed) {
            let is_still = now - from.0 >= STILL && !self.replay.is_running();
            let step = if is_still { to.0 - now } else { TICK.min(to.0 - now) };
            now += step;
            self.wait(waited(step.min(TICK)));
            self.replay.advance(UtcMicros(now));
            self.tell();
            self.look(UtcMicros(now));
        }
    }

    /// Shows the detector, if it is time.
    fn look(&mut self, now: UtcMicros) {
        if self.viewed.is_none_or(|viewed| now.0 - viewed.0 >= self.between_views()) {
            self.viewed = Some(now);
            let _ = self.updates.send(Update::View(Box::new(self.replay.detector().view())));
        }
    }

    fn tell(&mut self) {
        for signal in self.replay.take_signals() {
            self.onsets += usize::from(signal.state == SignalState::Onset);
            let _ = self.updates.send(Update::Signal(Box::new(signal)));
        }
    }

    /// Recorded time between two views, µs.
    fn between_views(&self) -> i64 {
        match self.speed {
            Speed::Max => SPARSE,
            #[expect(clippy::cast_possible_truncation, reason = "saturates")]
            Speed::Times(times) => TICK.max((times / VIEWS * 1e6) as i64),
        }
    }

    /// Waits as long as `us` of recorded time are to last.
    fn wait(&self, us: i64) {
        if let Speed::Times(times) = self.speed
            && us > 0
        {
            std::thread::sleep(Duration::from_secs_f64(Micros(us).seconds() / times));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn summary(start_s: i64) -> Summary {
        Summary {
            stream_id: start_s.unsigned_abs(),
            started_at: Some(UtcMicros(start_s * 1_000_000)),
            t_end: Some(Micros(3_000_000)),
            ..Summary::default()
        }
    }

    #[test]
    fn time_passes_to_the_end_of_the_last_stream_and_a_night_is_not_waited_out() {
        let (updates, seen) = sync_channel(100_000);
        let stop = AtomicBool::new(false);
        let mut player = Player::new(Options::default(), Speed::Times(1e6), &updates, &stop);
        for start_s in [10, 11, 40_000] {
            let summary = summary(start_s);
            assert!(player.stream(UtcMicros(start_s * 1_000_000), &summary, &[]).is_continue());
        }
        player.finish();
        let views: Vec<_> = seen
            .try_iter()
            .filter_map(|update| match update {
                Update::View(view) => Some((view.at.0 / 1_000_000, view.live_streams)),
                Update::Signal(_) | Update::Status(_) | Update::End(_) => None,
            })
            .collect();
        assert!(views.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{views:?}");
        assert!(views.last().is_some_and(|(at, live)| *at >= 40_003 && *live == 0), "{views:?}");
    }
}
