//! `[route.deep_concurrency]`: not too many deep calls at the primary at once.
//!
//! A deep call reasons long: its effort says so (`high` and above), the route does (`all = true`), or calls with
//! prompts of its size have reasoned for a median of at least 1,000 tokens. Of these, `calls` may begin at the
//! primary within `window` and as many be in flight there; what is beyond goes to others (`spill`), waits in a
//! bounded line (`queue`), or asks for one step less effort (`lower_effort`), as far as each is configured.
//!
//! The write-ups saw throttling and latency climb together beyond 6 deep calls in 2 to 4 s
//! (`preset = "write-up"`: 6 calls, 4 s). Calls beyond the limit are not counted: told or done, the policy sees
//! the same load.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::effort::can_be_lowered;
use super::line::Line;
use super::{Advice, Call, Policy, Thought, by_write_up, figure};
use crate::access::Entry;
use crate::config::{Route, Section};

/// The table's name.
pub(crate) const NAME: &str = "deep_concurrency";

/// The write-ups' figures: calls, and the window in seconds.
const WRITE_UP: (u64, u64) = (6, 4);

/// The median of reasoning tokens from which a prompt size is deep.
const DEEP: f64 = 1_000.0;
/// Answers of a prompt size that its median rests on, and the least.
const LEARNED: (usize, usize) = (31, 15);
/// Classes of prompt size: powers of two.
const CLASSES: usize = 24;

#[derive(Clone, Debug)]
struct DeepConcurrency {
    settings: Settings,
    state: Arc<State>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Settings {
    calls: usize,
    window: Duration,
    all: bool,
    spill: bool,
    queue: usize,
    queue_for: Duration,
    lower_effort: bool,
}

#[derive(Debug)]
struct State {
    /// Places for calls in flight at the primary.
    line: Arc<Line>,
    begun: Mutex<VecDeque<Instant>>,
    learned: Mutex<Vec<VecDeque<f64>>>,
}

pub(crate) fn read(section: &Section<'_>, _: &Route) -> Option<Arc<dyn Policy>> {
    let calls = figure(section, "calls", WRITE_UP.0);
    let window = section.duration("window");
    let window = window.or(by_write_up(section).then_some(Duration::from_secs(WRITE_UP.1)));
    if window.is_none() && !section.has("window") {
        section.fault(
            "window",
            "`window` is missing: state it, or take the write-ups' 4 s with preset = \"write-up\"",
        );
    }
    let settings = Settings {
        calls: usize::try_from(calls?).ok()?,
        window: window?,
        all: section.flag("all").unwrap_or(false),
        spill: section.flag("spill").unwrap_or(true),
        queue: section.size("queue", 0..=100_000).unwrap_or(0),
        queue_for: section.duration("queue_for").unwrap_or(Duration::from_secs(2)),
        lower_effort: section.flag("lower_effort").unwrap_or(false),
    };
    if !settings.spill && settings.queue == 0 && !settings.lower_effort {
        section.fault("spill", "with `spill = false`, no `queue` and no `lower_effort` it would do nothing");
    }
    Some(Arc::new(DeepConcurrency { settings, state: Arc::new(State::new(&settings, Vec::new())) }))
}

impl State {
    fn new(settings: &Settings, learned: Vec<VecDeque<f64>>) -> Self {
        Self {
            line: Arc::new(Line::new(settings.calls, settings.queue)),
            begun: Mutex::default(),
            learned: Mutex::new(learned),
        }
    }

    /// Whether calls of a size class have reasoned long.
    fn is_deep(&self, class: usize) -> bool {
        let learned = locked(&self.learned);
        let Some(counts) = learned.get(class).filter(|counts| counts.len() >= LEARNED.1) else {
            return false;
        };
        let mut sorted: Vec<f64> = counts.iter().copied().collect();
        let middle = sorted.len() / 2;
        *sorted.select_nth_unstable_by(middle, f64::total_cmp).1 >= DEEP
    }

    fn learn(&self, class: usize, reasoning: f64) {
        let mut learned = locked(&self.learned);
        learned.resize_with(CLASSES, VecDeque::new);
        if let Some(counts) = learned.get_mut(class) {
            counts.push_back(reasoning);
            if counts.len() > LEARNED.0 {
                counts.pop_front();
            }
        }
    }

    /// Whether one more may begin now; counts it then.
    fn begin(&self, settings: &Settings, now: Instant) -> bool {
        let mut begun = locked(&self.begun);
        while begun.front().is_some_and(|at| now.saturating_duration_since(*at) >= settings.window) {
            begun.pop_front();
        }
        let free = begun.len() < settings.calls;
        if free {
            begun.push_back(now);
        }
        free
    }
}

impl Policy for DeepConcurrency {
    fn name(&self) -> &'static str {
        NAME
    }

    fn consider(&self, call: &Call<'_>, now: Instant) -> Thought {
        let Settings { all, spill, queue, queue_for, lower_effort, .. } = self.settings;
        let class = class(call.prompt_tokens);
        let mark = class as u64;
        if !(all || call.is_deep() || self.state.is_deep(class)) {
            return Thought::nothing(mark);
        }
        let place = self.state.line.try_enter();
        let full = place.is_none();
        if !full && self.state.begin(&self.settings, now) {
            return Thought { place, ..Thought::nothing(mark) };
        }
        drop(place);
        let mut advice = Vec::new();
        if spill && call.route.upstreams().count() > call.primary().len() {
            advice.push(Advice::Spill { cheapest: false });
        } else if queue > 0 && full {
            advice.push(Advice::Queue(Arc::clone(&self.state.line), queue_for));
        }
        if lower_effort && can_be_lowered(call.effort) {
            advice.push(Advice::LowerEffort(1));
        }
        Thought { advice, ..Thought::nothing(mark) }
    }

    fn ended(&self, entry: &Entry, mark: u64, _: Instant) -> Option<&'static str> {
        if let (Some(reasoning), Ok(class)) = (entry.reported.reasoning, usize::try_from(mark)) {
            self.state.learn(class, reasoning);
        }
        None
    }

    fn after(&self, old: &dyn Policy) -> Option<Arc<dyn Policy>> {
        let old: &dyn std::any::Any = old;
        let old = old.downcast_ref::<Self>()?;
        let same = (old.settings.calls, old.settings.queue) == (self.settings.calls, self.settings.queue);
        let state = if same {
            Arc::clone(&old.state)
        } else {
            Arc::new(State::new(&self.settings, locked(&old.state.learned).clone()))
        };
        Some(Arc::new(Self { settings: self.settings, state }))
    }
}

/// The power of two below a prompt's size.
fn class(tokens: u64) -> usize {
    usize::try_from(tokens.max(1).ilog2()).unwrap_or(0).min(CLASSES - 1)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{Asked, PLAIN, lab, names};
    use crate::access::{Entry, Tokens};

    const TABLE: &str = "[route.deep_concurrency]\npreset = \"write-up\"\nact = true\n";
    const DEEP: Asked = Asked { effort: Some("high"), prompt_tokens: 500, ..PLAIN };

    #[test]
    fn the_seventh_deep_call_goes_elsewhere_until_one_has_ended_and_the_window_is_over() {
        let mut lab = lab(TABLE);
        let held: Vec<_> = (0..6).map(|_| lab.considered(&DEEP)).collect();
        assert!(held.iter().all(|considered| !considered.advised.moves()));
        assert_eq!(lab.order(&DEEP), "b c a");
        assert_eq!(lab.order(&Asked { effort: Some("low"), ..DEEP }), "a b c", "it is not deep");
        lab.now += Duration::from_secs(4);
        assert_eq!(lab.order(&DEEP), "b c a", "six are in flight still");
        drop(held);
        assert_eq!(lab.order(&DEEP), "a b c");
        for _ in 0..5 {
            lab.considered(&DEEP);
        }
        assert_eq!(lab.order(&DEEP), "b c a", "none is in flight, but six began in the window");
    }

    #[test]
    fn told_only_it_counts_the_same_load() {
        let lab = lab(&TABLE.replace("true", "false"));
        let held: Vec<_> = (0..9).map(|_| lab.considered(&DEEP)).collect();
        let told: Vec<_> = held.iter().map(|considered| considered.would_have.len()).collect();
        assert_eq!(told, [0, 0, 0, 0, 0, 0, 1, 1, 1]);
        assert_eq!(names(&held[8].would_have), ["deep_concurrency spill observe-only"]);
        assert_eq!(lab.order(&DEEP), "a b c");
    }

    #[test]
    fn sizes_that_reason_long_are_deep_whatever_they_ask_for() {
        let lab = lab(TABLE);
        let plain = Asked { effort: None, ..DEEP };
        let ended = |reasoning| {
            let reported = Tokens { reasoning: Some(reasoning), ..Tokens::default() };
            lab.considered(&plain).ended(&mut Entry { reported, ..Entry::default() }, lab.now);
        };
        (0..14).for_each(|_| ended(2_000.0));
        let held: Vec<_> = (0..7).map(|_| lab.considered(&plain)).collect();
        assert_eq!(lab.order(&plain), "a b c", "14 are too few");
        drop(held);
        (0..3).for_each(|_| ended(1_500.0));
        let held: Vec<_> = (0..6).map(|_| lab.considered(&plain)).collect();
        assert_eq!(lab.order(&plain), "b c a");
        assert_eq!(lab.order(&Asked { prompt_tokens: 5_000, ..plain }), "a b c", "another size");
        drop(held);
    }

    #[test]
    fn effort_is_lowered_and_the_line_waited_in_when_configured() {
        let more = "spill = false\nqueue = 2\nlower_effort = true\n";
        let lab = lab(&format!("{TABLE}{more}"));
        let held: Vec<_> = (0..6).map(|_| lab.considered(&DEEP)).collect();
        let beyond = lab.considered(&DEEP);
        assert_eq!(beyond.advised.adjust.steps, 1);
        assert_eq!(names(&beyond.done), ["deep_concurrency lower-effort"]);
        assert!(beyond.has_to_wait());
        assert_eq!(lab.order(&DEEP), "a b c");
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_is_left_when_it_takes_too_long() {
        let lab = lab(&format!("{TABLE}spill = false\nqueue = 1\nqueue_for = \"1s\"\n"));
        let mut held: Vec<_> = (0..6).map(|_| lab.considered(&DEEP)).collect();
        let mut beyond = lab.considered(&DEEP);
        let since = tokio::time::Instant::now();
        beyond.wait().await;
        assert_eq!(names(&beyond.done), ["deep_concurrency queue waited-in-vain"]);
        assert_eq!(since.elapsed().as_secs(), 1);
        let mut beyond = lab.considered(&DEEP);
        held.pop();
        beyond.wait().await;
        assert_eq!(names(&beyond.done), ["deep_concurrency queue"]);
    }

    #[test]
    fn a_changed_configuration_keeps_what_is_in_flight() {
        let lab = lab(TABLE);
        let held: Vec<_> = (0..6).map(|_| lab.considered(&DEEP)).collect();
        let again = lab.reconfigured(&format!("{TABLE}lower_effort = true\n"));
        assert_eq!(again.order(&DEEP), "b c a");
        drop(held);
    }

    #[test]
    fn faults_are_told() {
        let fault = super::super::tests::fault;
        assert!(fault("[route.deep_concurrency]\nwindow = \"2s\"\n").contains("`calls` is missing"));
        assert!(fault("[route.deep_concurrency]\ncalls = 3\n").contains("`window` is missing"));
        assert!(fault(&format!("{TABLE}spill = false\n")).contains("do nothing"));
    }
}
