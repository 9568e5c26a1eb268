//! `[route.token_bucket]`: no more to an upstream than it takes.
//!
//! Each upstream of the route has a bucket of requests (`burst` at once, then `per_second`) and, where
//! `tokens_per_minute` is stated, one of tokens: the estimated prompt and the mean of the latest answers, put
//! right when the answer reports. Beside them stands what the upstream itself says is left: the rate-limit
//! headers of its last answer under each of its keys (`headers = false` ignores them). An upstream at which one
//! of these does not cover a call is empty; what happens then is a list, `empty`, of which the first that can
//! help does:
//!
//! | word | does |
//! |---|---|
//! | `next` | another upstream that speaks the API and is not empty takes the call |
//! | `queue` | the call waits for the first upstream to have room, if that is within `queue_for`; `queue` wait at most |
//! | `refuse` | 429 with a Retry-After: the wait, and up to `jitter` of it more, so that not all come back at once |
//!
//! Without `next` only the primary counts, and calls wait for it or are refused. When nothing can help, the call
//! goes on as if nothing were. The write-ups' figures are a burst of 20 and 25
//! a second (`preset = "write-up"`); limits are a provider's own, so that without the preset they are stated.
//! Buckets belong to a route: an upstream that two routes share has one in each.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::HeaderMap;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Advice, Call, Policy, Thought, by_write_up};
use crate::access::Entry;
use crate::clock;
use crate::config::{Route, Section, Upstream};

mod bucket;
mod limits;

use bucket::Bucket;
use limits::Left;

/// The table's name.
pub(crate) const NAME: &str = "token_bucket";

/// The write-ups' figures: requests at once, and in a second.
const WRITE_UP: (f64, f64) = (20.0, 25.0);

/// Answers whose mean is expected of the next one.
const LEARNED: usize = 50;

/// A mark holds tokens below this bit, and above it who has the call's place already, counted from 1.
const RESERVED: u32 = 48;

#[derive(Clone, Debug)]
struct TokenBucket {
    settings: Settings,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Settings {
    burst: f64,
    per_second: f64,
    tokens_per_minute: Option<f64>,
    jitter: f64,
    empty: Vec<Empty>,
    queue: usize,
    queue_for: Duration,
    headers: bool,
}

/// What an empty bucket leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Empty {
    Next,
    Queue,
    Refuse,
}

#[derive(Debug, Default)]
struct State {
    upstreams: HashMap<Arc<str>, Room>,
    outputs: VecDeque<u64>,
    /// When those who wait will have their turn.
    waiting: VecDeque<Instant>,
    /// Draws of jitter.
    draws: u64,
}

/// What one upstream takes.
#[derive(Clone, Debug)]
struct Room {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    /// By key, what the upstream says is left of requests and of tokens, and until when that is so.
    told: BTreeMap<Option<u16>, [Option<Told>; 2]>,
    /// Keys that it has.
    keys: usize,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    left: f64,
    until: Instant,
}

#[expect(clippy::unnecessary_wraps, reason = "as every policy is read")]
pub(crate) fn read(section: &Section<'_>, route: &Route) -> Option<Arc<dyn Policy>> {
    let preset = by_write_up(section);
    let burst = section.amount("burst").or(preset.then_some(WRITE_UP.0));
    let tokens_per_minute = section.amount("tokens_per_minute");
    let by_minute = section.amount("requests_per_minute").map(|requests| requests / 60.0);
    let per_second = section.amount("per_second").or(by_minute).or(preset.then_some(WRITE_UP.1));
    let headers = section.flag("headers").unwrap_or(true);
    if section.has("per_second") && section.has("requests_per_minute") {
        section.fault("requests_per_minute", "state `per_second` or `requests_per_minute`, not both");
    }
    if burst.is_some() != per_second.is_some() {
        section
            .fault("burst", "`burst` needs `per_second` or `requests_per_minute`, and each of them `burst`");
    }
    for (key, amount) in
        [("burst", burst), ("per_second", per_second), ("tokens_per_minute", tokens_per_minute)]
    {
        if amount.is_some_and(|amount| amount <= 0.0) {
            section.fault(key, &format!("with `{key}` of 0 nothing would ever be sent"));
        }
    }
    if burst.is_none() && tokens_per_minute.is_none() && !headers {
        section.fault("headers", "without `burst`, `tokens_per_minute` and `headers` there is no limit");
    }
    let settings = Settings {
        burst: burst.unwrap_or(f64::INFINITY),
        per_second: per_second.unwrap_or(f64::INFINITY),
        tokens_per_minute,
        jitter: section.share("jitter").unwrap_or(0.2),
        empty: reactions(section),
        queue: section.size("queue", 1..=100_000).unwrap_or(100),
        queue_for: section.duration("queue_for").unwrap_or(Duration::from_secs(2)),
        headers,
    };
    let room = |upstream: &Arc<Upstream>| (Arc::clone(&upstream.name), Room::new(&settings, upstream));
    let state = State { upstreams: route.upstreams().map(room).collect(), ..State::default() };
    Some(Arc::new(TokenBucket { settings, state: Arc::new(Mutex::new(state)) }))
}

fn reactions(section: &Section<'_>) -> Vec<Empty> {
    let mut empty = Vec::new();
    for (at, word) in section.texts("empty") {
        match word {
            "next" => empty.push(Empty::Next),
            "queue" => empty.push(Empty::Queue),
            "refuse" => empty.push(Empty::Refuse),
            _ => section.fault_at(&at, "`empty` holds \"next\", \"queue\", \"refuse\""),
        }
    }
    if empty.is_empty() { vec![Empty::Next] } else { empty }
}

impl Room {
    fn new(settings: &Settings, upstream: &Upstream) -> Self {
        let finite = settings.burst.is_finite();
        let minute = |tokens: f64| Bucket::new(tokens, tokens / 60.0);
        Self {
            requests: finite.then(|| Bucket::new(settings.burst, settings.per_second)),
            tokens: settings.tokens_per_minute.map(minute),
            told: BTreeMap::new(),
            keys: upstream.keys.len().max(1),
        }
    }

    fn take(&mut self, tokens: f64, now: Instant) {
        if let Some(bucket) = &mut self.requests {
            bucket.take(1.0, now);
        }
        self.take_tokens(tokens, now);
        // Keys are used by turns; who has most is next, more or less.
        let left = |told: &[Option<Told>; 2]| told[0].map_or(f64::INFINITY, |told| told.left);
        let fullest = self.told.values_mut().max_by(|one, other| left(one).total_cmp(&left(other)));
        for (told, amount) in fullest.into_iter().flatten().zip([1.0, tokens]) {
            if let Some(told) = told {
                told.left -= amount;
            }
        }
    }

    fn take_tokens(&mut self, tokens: f64, now: Instant) {
        if let Some(bucket) = &mut self.tokens {
            bucket.take(tokens, now);
        }
    }

    /// The wait until a call of so many tokens is covered.
    fn wait(&mut self, tokens: f64, now: Instant) -> Duration {
        let requests = self.requests.as_mut().map(|bucket| bucket.wait(1.0, now));
        let tokens_wait = self.tokens.as_mut().map(|bucket| bucket.wait(tokens, now));
        let told = self.told_wait(tokens, now);
        requests.max(tokens_wait).unwrap_or_default().max(told)
    }

    /// As far as the upstream itself says: it is empty when it is so under each key.
    fn told_wait(&self, tokens: f64, now: Instant) -> Duration {
        if self.told.len() < self.keys {
            return Duration::ZERO; // nobody knows about some key
        }
        let wait = |told: &[Option<Told>; 2]| {
            let lacking = told
                .iter()
                .zip([1.0, tokens])
                .filter_map(|(told, needed)| told.filter(|told| told.left < needed));
            lacking.map(|told| told.until.saturating_duration_since(now)).max().unwrap_or_default()
        };
        self.told.values().map(wait).min().unwrap_or_default()
    }

    fn hear(&mut self, slot: Option<u16>, left: [Option<Left>; 2], now: Instant) {
        let told = |left: Left| Told { left: left.amount, until: now + left.resets };
        if left.iter().any(Option::is_some) {
            self.told.insert(slot, left.map(|left| left.map(told)));
        }
    }
}

impl State {
    /// What an answer is expected to take, tokens.
    fn output(&self) -> u64 {
        // What upstreams report may be anything.
        let sum = self.outputs.iter().fold(0, |sum: u64, output| sum.saturating_add(*output));
        sum.checked_div(self.outputs.len() as u64).unwrap_or(0)
    }

    /// A wait and a little more, at most `jitter` of it.
    fn jittered(&mut self, wait: Duration, jitter: f64) -> Duration {
        self.draws += 1;
        wait.mul_f64(1.0 + jitter * crate::choice::uniform(self.draws, NAME))
    }

    fn is_queue_full(&mut self, most: usize, now: Instant) -> bool {
        self.waiting.retain(|until| *until > now);
        self.waiting.len() >= most
    }
}

impl TokenBucket {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Policy for TokenBucket {
    fn name(&self) -> &'static str {
        NAME
    }

    fn consider(&self, call: &Call<'_>, now: Instant) -> Thought {
        let settings = &self.settings;
        let mut state = self.state();
        let mark = call.prompt_tokens.saturating_add(state.output()) & ((1 << RESERVED) - 1);
        let tokens = number(mark);
        let primary = call.primary();
        let is_primary = |upstream: &Upstream| primary.iter().any(|one| one.name == upstream.name);
        let any = settings.empty.contains(&Empty::Next);
        let mut waits: Vec<(usize, &Arc<str>, Duration)> = Vec::new();
        for (place, upstream) in call.route.upstreams().enumerate() {
            let asked = upstream.apis.contains(&call.api) && (any || is_primary(upstream));
            if let Some(room) = state.upstreams.get_mut(&upstream.name).filter(|_| asked) {
                waits.push((place, &upstream.name, room.wait(tokens, now)));
            }
        }
        let longer = |than: Duration| -> Vec<Arc<str>> {
            waits.iter().filter(|(.., wait)| *wait > than).map(|(_, name, _)| Arc::clone(name)).collect()
        };
        let empty = longer(Duration::ZERO);
        let Some((place, soonest, wait)) = waits.iter().min_by_key(|(.., wait)| *wait).copied() else {
            return Thought::nothing(mark);
        };
        let none = !wait.is_zero();
        // A bucket that nobody would have turned to anyway is not worth a word.
        let concerned = primary.iter().any(|upstream| empty.contains(&upstream.name));
        if empty.is_empty() || (!none && !concerned) {
            return Thought::nothing(mark);
        }
        for reaction in &settings.empty {
            match reaction {
                Empty::Next if !none => {
                    return Thought { advice: vec![Advice::Avoid(empty)], ..Thought::nothing(mark) };
                }
                Empty::Queue
                    if none && wait <= settings.queue_for && !state.is_queue_full(settings.queue, now) =>
                {
                    // Its place is taken now: who comes next waits longer.
                    if let Some(room) = state.upstreams.get_mut(soonest) {
                        room.take(tokens, now);
                    }
                    let until = state.jittered(wait, settings.jitter);
                    state.waiting.push_back(now + until);
                    let mut advice = vec![Advice::Wait(until)];
                    let later = longer(wait);
                    if !later.is_empty() {
                        advice.push(Advice::Avoid(later));
                    }
                    return Thought { advice, ..Thought::nothing(mark | (place as u64 + 1) << RESERVED) };
                }
                Empty::Refuse if none => {
                    let retry_after = Some(state.jittered(wait, settings.jitter));
                    let message = "every upstream of this route has as many requests as it takes for now";
                    return Thought {
                        advice: vec![Advice::Refuse { retry_after, message }],
                        ..Thought::nothing(mark)
                    };
                }
                Empty::Next | Empty::Queue | Empty::Refuse => {}
            }
        }
        Thought::nothing(mark)
    }

    fn began(&self, upstream: &Upstream, mark: u64, now: Instant) {
        let mut state = self.state();
        let Some(room) = state.upstreams.get_mut(&upstream.name) else { return };
        if mark >> RESERVED == 0 {
            room.take(number(mark), now);
        }
    }

    fn answered(&self, upstream: &Upstream, slot: Option<u16>, headers: &HeaderMap, now: Instant) {
        if !self.settings.headers {
            return;
        }
        let (requests, tokens) = limits::of(headers, clock::now());
        if let Some(room) = self.state().upstreams.get_mut(&upstream.name) {
            room.hear(slot, [requests, tokens], now);
        }
    }

    fn ended(&self, entry: &Entry, mark: u64, now: Instant) -> Option<&'static str> {
        let expected = number(mark & ((1 << RESERVED) - 1));
        let mut state = self.state();
        for tried in &entry.attempts {
            let (Some(input), Some(output)) = (tried.tokens.input, tried.tokens.output) else { continue };
            if let Some(room) = state.upstreams.get_mut(&*tried.upstream) {
                room.take_tokens(number(input.saturating_add(output)) - expected, now);
            }
            state.outputs.push_back(output);
            if state.outputs.len() > LEARNED {
                state.outputs.pop_front();
            }
        }
        None
    }

    fn view(&self, now: Instant) -> Option<Value> {
        let mut state = self.state();
        let mut level = |(name, room): (&Arc<str>, &mut Room)| {
            let level = |bucket: &mut Option<Bucket>| bucket.as_mut().map(|bucket| bucket.level(now));
            let wait = room.wait(1.0, now).as_secs_f64();
            let levels = json!({"requests": level(&mut room.requests), "tokens": level(&mut room.tokens), "empty_s": wait});
            (name.to_string(), levels)
        };
        Some(state.upstreams.iter_mut().map(&mut level).collect::<serde_json::Map<_, _>>().into())
    }

    fn after(&self, old: &dyn Policy) -> Option<Arc<dyn Policy>> {
        let old: &dyn std::any::Any = old;
        let old = old.downcast_ref::<Self>()?;
        let same = old.settings.burst.to_bits() == self.settings.burst.to_bits()
            && old.settings.per_second.to_bits() == self.settings.per_second.to_bits()
            && old.settings.tokens_per_minute == self.settings.tokens_per_minute;
        let (mut state, old) = (self.state(), old.state());
        state.outputs.clone_from(&old.outputs);
        for (name, room) in &mut state.upstreams {
            let Some(known) = old.upstreams.get(name) else { continue };
            if known.keys == room.keys {
                room.told.clone_from(&known.told);
            }
            if same {
                (room.requests, room.tokens) = (known.requests.clone(), known.tokens.clone());
            }
        }
        drop(state);
        Some(Arc::new(self.clone()))
    }
}

#[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^53")]
fn number(tokens: u64) -> f64 {
    tokens as f64
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::super::tests::{Asked, Lab, PLAIN, fault, lab, names};
    use super::*;
    use crate::access::{Tokens, Tried};

    const TABLE: &str = "[route.token_bucket]\nact = true\n";

    /// Sends so many calls, each to the first of its order; who got them.
    fn sent(lab: &Lab, asked: &Asked, calls: usize) -> String {
        (0..calls).map(|_| one(lab, asked)).collect()
    }

    /// One call; `-` when it is refused, `~` when it waits.
    fn one(lab: &Lab, asked: &Asked) -> String {
        let considered = lab.considered(asked);
        if considered.advised.refuse.is_some() {
            return "-".to_owned();
        }
        let mut plan = lab.plan(asked);
        plan.heed(&considered.advised);
        let first = plan.names()[0].to_owned();
        considered.began(lab.upstream(&first), lab.now);
        if considered.has_to_wait() { format!("~{first}") } else { first }
    }

    fn headers(lab: &Lab, upstream: &str, pairs: &[(&'static str, &'static str)]) {
        let header = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let headers = pairs.iter().map(header).collect();
        lab.considered(&PLAIN).answered(lab.upstream(upstream), None, &headers, lab.now);
    }

    #[test]
    fn what_is_too_much_for_one_goes_to_the_next() {
        let mut lab = lab(&format!("{TABLE}preset = \"write-up\"\n"));
        let all = sent(&lab, &PLAIN, 70);
        let expected =
            [("a", 20), ("b", 20), ("c", 20), ("a", 10)].map(|(name, count)| name.repeat(count)).concat();
        assert_eq!(all, expected, "with nobody left it goes on");
        lab.now += Duration::from_millis(40 * 11);
        assert_eq!(sent(&lab, &PLAIN, 2), "ab", "a owed 10");
    }

    #[test]
    fn the_queue_is_short_and_bounded_and_then_it_is_refused() {
        let lab = lab(&format!(
            "{TABLE}burst = 1\nper_second = 10\nempty = [\"next\", \"queue\", \"refuse\"]\nqueue_for = \"150ms\"\njitter = 0.0\n"
        ));
        assert_eq!(
            sent(&lab, &PLAIN, 7),
            "abc~a~b~c-",
            "the second place in a line of 100 ms is too far away"
        );
        let refused = lab.considered(&PLAIN).advised.refuse.unwrap();
        assert_eq!(refused.retry_after, Some(Duration::from_millis(200)));
        let lab = self::lab(&format!(
            "{TABLE}burst = 1\nper_second = 10\nempty = [\"queue\"]\nqueue = 2\nqueue_for = \"9s\"\n"
        ));
        assert_eq!(sent(&lab, &PLAIN, 5), "a~a~aaa", "two wait at most, and the others go on");
    }

    #[test]
    fn jitter_spreads_those_who_are_refused() {
        let lab = lab(&format!("{TABLE}burst = 1\nper_second = 0.1\nempty = [\"refuse\"]\njitter = 0.5\n"));
        assert_eq!(sent(&lab, &PLAIN, 2), "a-");
        let waits: Vec<f64> = (0..50)
            .map(|_| lab.considered(&PLAIN).advised.refuse.unwrap().retry_after.unwrap().as_secs_f64())
            .collect();
        let (least, most) =
            (waits.iter().copied().fold(f64::MAX, f64::min), waits.iter().copied().fold(0.0, f64::max));
        assert!((10.0..11.0).contains(&least) && (14.0..15.0).contains(&most), "{least} {most}");
    }

    #[test]
    fn what_the_upstream_says_is_believed() {
        let mut lab = lab(TABLE);
        assert_eq!(sent(&lab, &PLAIN, 30), "a".repeat(30), "nothing is known");
        headers(&lab, "a", &[("x-ratelimit-remaining-requests", "2"), ("x-ratelimit-reset-requests", "6s")]);
        assert_eq!(sent(&lab, &PLAIN, 4), "aabb");
        headers(&lab, "b", &[("anthropic-ratelimit-input-tokens-remaining", "50")]);
        let large = Asked { prompt_tokens: 60, ..PLAIN };
        assert_eq!(sent(&lab, &large, 1) + &sent(&lab, &PLAIN, 1), "cb");
        lab.now += Duration::from_secs(6);
        assert_eq!(sent(&lab, &PLAIN, 1), "a");
        let lab = self::lab(&format!("{TABLE}preset = \"write-up\"\nheaders = false\n"));
        headers(&lab, "a", &[("x-ratelimit-remaining-requests", "0")]);
        assert_eq!(sent(&lab, &PLAIN, 1), "a");
    }

    #[test]
    fn tokens_are_expected_and_put_right_by_what_is_reported() {
        let lab = lab(&format!("{TABLE}tokens_per_minute = 1000\n"));
        let asked = Asked { prompt_tokens: 600, ..PLAIN };
        assert_eq!(sent(&lab, &asked, 2), "ab");
        let lab = self::lab(&format!("{TABLE}tokens_per_minute = 1000\n"));
        let considered = lab.considered(&asked);
        considered.began(lab.upstream("a"), lab.now);
        let tokens = Tokens { input: Some(50), output: Some(50), ..Tokens::default() };
        let tried = Tried { upstream: "a".into(), tokens, ..Tried::default() };
        considered.ended(&mut Entry { attempts: vec![tried], ..Entry::default() }, lab.now);
        assert_eq!(sent(&lab, &asked, 2), "ab", "900 are left, of which the next takes 650");
    }

    #[test]
    fn observe_only_tells_and_moves_nothing() {
        let lab = lab("[route.token_bucket]\nburst = 1\nper_second = 1\nempty = [\"next\", \"refuse\"]\n");
        assert_eq!(sent(&lab, &PLAIN, 5), "aaaaa");
        assert_eq!(names(&lab.considered(&PLAIN).would_have), ["token_bucket avoid observe-only"]);
        for name in ["b", "c"] {
            lab.considered(&PLAIN).began(lab.upstream(name), lab.now);
        }
        assert_eq!(names(&lab.considered(&PLAIN).would_have), ["token_bucket refuse observe-only"]);
    }

    #[test]
    fn a_changed_configuration_keeps_levels() {
        let table = format!("{TABLE}burst = 2\nper_second = 1\n");
        let lab = lab(&table);
        assert_eq!(sent(&lab, &PLAIN, 2), "aa");
        assert_eq!(sent(&lab.reconfigured(&format!("{table}jitter = 0.0\n")), &PLAIN, 1), "b");
        assert_eq!(sent(&lab.reconfigured(&format!("{TABLE}burst = 3\nper_second = 1\n")), &PLAIN, 1), "a");
    }

    #[test]
    fn faults_are_told() {
        for (lines, told) in [
            ("burst = 3\n", "`burst` needs"),
            ("headers = false\n", "there is no limit"),
            ("burst = 0\nper_second = 1\n", "nothing would ever be sent"),
            ("burst = 1\nper_second = 1\nrequests_per_minute = 1\n", "not both"),
            ("empty = [\"wait\"]\n", "\"next\", \"queue\", \"refuse\""),
        ] {
            assert!(fault(&format!("{TABLE}{lines}")).contains(told), "{told}");
        }
    }
}
