//! What is on the board: the latest view, how evidence came to where it is, and the last signals.

use std::collections::{HashMap, VecDeque};

use sseismo_live_detector::{State, View, WatchView};
use sseismo_trace::{Scope, Signal, SignatureId};

use super::Update;
use crate::exit::End;

/// Views of which the evidence is kept: two minutes at one a second.
const HISTORY: usize = 120;
/// Signals that are kept.
const SIGNALS: usize = 200;

/// Names one row.
type Row = (Scope, SignatureId);

/// Everything that is drawn.
#[derive(Debug)]
pub(super) struct Board {
    /// Where it comes from.
    pub(super) target: String,
    pub(super) view: Option<View>,
    /// Newest first.
    pub(super) signals: VecDeque<Signal>,
    /// What is to be said of the source; empty when there is nothing.
    pub(super) status: String,
    failed: bool,
    chosen: Option<Row>,
    history: HashMap<Row, VecDeque<f64>>,
}

impl Board {
    pub(super) fn new(target: &str) -> Self {
        Self {
            target: target.to_owned(),
            view: None,
            signals: VecDeque::new(),
            status: "waiting for the first view".to_owned(),
            failed: false,
            chosen: None,
            history: HashMap::new(),
        }
    }

    pub(super) fn apply(&mut self, update: Update) {
        match update {
            Update::View(view) => self.look(*view),
            Update::Signal(signal) => {
                self.signals.push_front(*signal);
                self.signals.truncate(SIGNALS);
            }
            Update::Status(text) => self.status = text,
            Update::End(how) => {
                self.failed = how.is_err();
                self.status = how.unwrap_or_else(|error| error);
            }
        }
    }

    /// Takes a view: what signals comes first, then what watches; within these the order stays.
    fn look(&mut self, mut view: View) {
        let urgency = |state| match state {
            State::Signalling => 0,
            State::Watching => 1,
            State::Learning => 2,
        };
        view.watches.sort_by(|a, b| {
            (urgency(a.state), &a.target, a.signature).cmp(&(urgency(b.state), &b.target, b.signature))
        });
        let mut history = std::mem::take(&mut self.history);
        self.history = view
            .watches
            .iter()
            .map(|watch| {
                let row = row(watch);
                let mut past = history.remove(&row).unwrap_or_default();
                past.push_back(watch.progress());
                if past.len() > HISTORY {
                    past.pop_front();
                }
                (row, past)
            })
            .collect();
        self.view = Some(view);
        if self.status == "waiting for the first view" {
            self.status.clear();
        }
    }

    /// Rows, as they are shown.
    pub(super) fn rows(&self) -> &[WatchView] {
        self.view.as_ref().map_or(&[], |view| &view.watches)
    }

    /// Place of the chosen row: the first one until the user chose, and the same one wherever it moves.
    pub(super) fn chosen(&self) -> usize {
        let place = |chosen: &Row| self.rows().iter().position(|watch| row(watch) == *chosen);
        self.chosen.as_ref().and_then(place).unwrap_or(0)
    }

    /// Moves the choice.
    pub(super) fn choose(&mut self, by: i32) {
        let last = self.rows().len().saturating_sub(1);
        let place = self.chosen().saturating_add_signed(by as isize).min(last);
        self.chosen = self.rows().get(place).map(row);
    }

    /// How evidence came to where it is, 0 to 1, oldest first.
    pub(super) fn history(&self, watch: &WatchView) -> impl DoubleEndedIterator<Item = f64> + '_ {
        self.history.get(&row(watch)).into_iter().flatten().copied()
    }

    /// How the verb ends.
    pub(super) fn end(&self) -> End {
        if self.failed { End::BadInput } else { End::Fine }
    }
}

fn row(watch: &WatchView) -> Row {
    (watch.target.clone(), watch.signature)
}
