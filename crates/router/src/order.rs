//! What steering decided, for those who steer other routers by it.
//!
//! In: what is in force. Out: [`Notice`]s for the sinks, through a bounded channel.
//!
//! Only what holds for all calls of a target becomes an order: a share that is stepped down or cooled. What steering
//! does to some calls (those of a size, those that reason long, those beyond a number in flight) other routers cannot
//! tell apart, so they are not told. An effort is named; whether an order about one moves a whole model elsewhere is
//! each sink's to say.
//!
//! Whoever sends need not wait and need not care what is lost. An order stands for its `ttl` and is sent again
//! while it should go on standing, so a lost one is made good by the next; one that is not sent again runs out by
//! itself, so a lost restore costs a ttl at most.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sseismo_trace::Signal;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::config::{Config, Route};
use crate::steer::{Effect, Kept, Snapshot, Target};

/// How long an order stands unless it is sent again: what a relay that is killed leaves behind. Long enough for a
/// relay that is started anew, short enough to be no outage.
pub const LEASE: Duration = Duration::from_secs(10);

/// An order that stands is sent again this often.
pub const AGAIN: Duration = Duration::from_secs(2);

/// Notices that may wait for the sinks; more than that, and the newest are dropped. A storm of one signal a
/// second over a hundred targets fits in ten times.
pub const WAITING: usize = 1_024;

/// The end that steering sends to, with `try_send`: an error says that the sinks are too slow or gone, and is no
/// reason to stop anything.
pub type Notices = mpsc::Sender<Notice>;

/// What an order is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct About {
    /// The upstream's name in the configuration.
    pub upstream: Arc<str>,
    /// The model, by the name that clients use; `None`: the whole upstream.
    pub model: Option<Arc<str>>,
    /// The reasoning effort; `None`: all. Most routers cannot tell efforts, and take it as about all.
    pub effort: Option<Arc<str>>,
}

/// How much of its ordinary traffic an upstream, or one of its models, should be given from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// Which traffic.
    pub about: About,
    /// What it keeps of its ordinary share: 0 is drained, 1 is restored. Always from 0 to 1.
    pub share: f64,
    /// For how long, from now, unless another order for the same target comes first. Without meaning at share 1.
    pub ttl: Duration,
    /// What it was decided by.
    pub signal: Arc<Signal>,
}

/// One thing that the sinks are told.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// Traffic should move, or come back. Sent only where steering acts, not where it observes.
    Order(Order),
    /// A signal was raised, goes on or is over; sent whether or not anything is done about it.
    Signal(Arc<Signal>),
}

/// The channel between steering and the sinks.
pub fn notices() -> (Notices, mpsc::Receiver<Notice>) {
    mpsc::channel(WAITING)
}

/// Turns what is in force into orders, look by look.
#[derive(Debug, Default)]
pub struct Orders(BTreeMap<About, Told>);

/// An order that stands.
#[derive(Debug)]
struct Told {
    share: f64,
    at: Instant,
    signal: Arc<Signal>,
}

impl Orders {
    /// What has changed since the last look or must be sent again. A share stands by its signal, and after that while
    /// it comes back.
    pub fn look(&mut self, snapshot: &Snapshot, config: &Config, now: Instant) -> Vec<Order> {
        let wanted = wanted(snapshot, config);
        let mut orders = Vec::new();
        let over: Vec<About> = self.0.keys().filter(|about| !wanted.contains_key(*about)).cloned().collect();
        for (about, told) in over.into_iter().filter_map(|about| self.0.remove_entry(&about)) {
            orders.push(order(about, 1.0, told.signal));
        }
        for (about, (share, signal)) in wanted {
            let told = self.0.get(&about);
            let Some(signal) = signal.or_else(|| told.map(|told| Arc::clone(&told.signal))) else {
                continue; // it was over before the first look
            };
            let due = told.is_none_or(|told| {
                (told.share - share).abs() > f64::EPSILON || now.saturating_duration_since(told.at) >= AGAIN
            });
            if due {
                orders.push(order(about.clone(), share, Arc::clone(&signal)));
                self.0.insert(about, Told { share, at: now, signal });
            }
        }
        orders
    }
}

/// The smallest share of each target that is not whole, and the signal that says so, while it is live.
fn wanted(snapshot: &Snapshot, config: &Config) -> BTreeMap<About, (f64, Option<Arc<Signal>>)> {
    let mut wanted = BTreeMap::new();
    for kept in snapshot.shares.iter().filter(|kept| kept.acted < 1.0 && holds_for_all(kept)) {
        let says = |force: &&crate::steer::Force| {
            force.target == kept.target && force.signal.detail.signature() == kept.detail.signature()
        };
        let signal = snapshot.forces.iter().find(says).map(|force| &force.signal);
        for about in abouts(&kept.target, config) {
            let known: &mut (f64, Option<Arc<Signal>>) = wanted.entry(about).or_insert((1.0, None));
            if kept.acted < known.0 {
                *known = (kept.acted, signal.cloned());
            }
        }
    }
    wanted
}

/// What a target is called outside: its model by each route's name for it.
fn abouts(target: &Target, config: &Config) -> BTreeSet<About> {
    let upstream = config.upstreams.iter().find(|own| Some(&*own.name) == target.upstream.as_deref());
    let Some(upstream) = upstream else { return BTreeSet::new() };
    let about = |model: Option<Arc<str>>| About {
        upstream: upstream.name.clone(),
        model,
        effort: target.effort.as_deref().map(Arc::from),
    };
    let Some(model) = &target.model else {
        return BTreeSet::from([about(target.route.as_deref().map(Arc::from))]);
    };
    let is_meant = |route: &&Arc<Route>| {
        target.route.as_deref().is_none_or(|wanted| wanted == &*route.model)
            && route.upstreams().any(|own| own.name == upstream.name)
    };
    let named = |route: &Arc<Route>| match &*route.model {
        "*" => Some(Arc::from(model.as_str())),
        asked => (upstream.model(asked) == model).then(|| route.model.clone()),
    };
    config.routes.iter().filter(is_meant).filter_map(named).map(|model| about(Some(model))).collect()
}

fn holds_for_all(kept: &Kept) -> bool {
    match kept.effect {
        Effect::StepShare | Effect::Cool => true,
        Effect::Observe | Effect::Spill | Effect::LimitConcurrency | Effect::LowerEffort => false,
    }
}

fn order(about: About, share: f64, signal: Arc<Signal>) -> Order {
    Order { about, share, ttl: LEASE, signal }
}

#[cfg(test)]
pub(crate) mod tests {
    use sseismo_trace::{Detail, Evidence, Micros, Scope, SignalId, SignalState, UtcMicros};

    use super::*;
    use crate::steer::harm::Harmed;
    use crate::steer::{Answer, Force, Source};

    /// An order about `upstream`.
    pub(crate) fn order(upstream: &str, model: Option<&str>, share: f64, ttl_s: u64) -> Order {
        let signal = signal(Detail::Concurrency { calls: 7, window_s: 4.0 });
        let ttl = Duration::from_secs(ttl_s);
        let about = About { upstream: upstream.into(), model: model.map(Arc::from), effort: None };
        Order { about, share, ttl, signal }
    }

    fn signal(detail: Detail) -> Arc<Signal> {
        Arc::new(Signal {
            id: SignalId(1),
            target: Scope::default(),
            detail,
            cause: None,
            state: SignalState::Onset,
            strength: 1.0,
            evidence: Evidence::default(),
            at: UtcMicros(0),
            ttl: Micros(1),
        })
    }

    const BURST: Detail = Detail::Burst { gap_s: 1.5, tokens: 60.0 };

    fn config() -> Config {
        let text = "[[upstream]]\nname = \"a\"\nurl = \"http://127.0.0.1:1/v1\"\napis = [\"chat\"]\n\
                    models = { renamed = \"own\" }\n[[route]]\nmodel = \"renamed\"\ntiers = [[\"a\"]]\n\
                    [[route]]\nmodel = \"*\"\ntiers = [[\"a\"]]\n";
        crate::config::check_in(text, std::path::Path::new(""), &|_| None).unwrap()
    }

    fn text(about: &About) -> String {
        let or = |name: &Option<Arc<str>>| name.as_deref().unwrap_or("-").to_owned();
        format!("{} {} {}", about.upstream, or(&about.model), or(&about.effort))
    }

    fn target(effort: Option<&str>) -> Target {
        Target {
            upstream: Some("a".to_owned()),
            model: Some("m".to_owned()),
            effort: effort.map(str::to_owned),
            route: None,
        }
    }

    fn kept(effort: Option<&str>, effect: Effect, acted: f64) -> Kept {
        Kept { target: target(effort), detail: BURST, effect, limit: 6, acted, would: 0.1, held: None }
    }

    fn snapshot(shares: Vec<Kept>, live: bool) -> Snapshot {
        let force = |kept: &Kept| Force {
            signal: signal(kept.detail),
            target: kept.target.clone(),
            source: Source::Admin,
            since: Instant::now(),
            expires: Instant::now(),
            answer: Answer { action: kept.effect, acted: true, held: None },
            harm: Harmed::default(),
        };
        let mut snapshot = Snapshot::default();
        snapshot.forces = shares.iter().filter(|_| live).map(force).collect();
        snapshot.shares = shares;
        snapshot
    }

    #[tokio::test(start_paused = true)]
    async fn a_share_is_ordered_repeated_and_restored() {
        let (mut orders, start) = (Orders::default(), Instant::now());
        let mut look = |share: f64, live: bool, after_s: u64| {
            let snapshot = snapshot(vec![kept(None, Effect::Cool, share)], live);
            let orders = orders.look(&snapshot, &config(), start + Duration::from_secs(after_s));
            orders.iter().map(|order| (order.share, order.ttl)).collect::<Vec<_>>()
        };
        assert_eq!(look(0.05, true, 0), [(0.05, LEASE)]);
        assert_eq!(look(0.05, true, 1), []);
        assert_eq!(look(0.05, true, 2), [(0.05, LEASE)], "sent again");
        assert_eq!(look(0.2, false, 3), [(0.2, LEASE)], "its signal is over, and it comes back");
        assert_eq!(look(1.0, false, 4), [(1.0, LEASE)]);
        assert_eq!(look(1.0, false, 9), []);
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_done_and_holds_for_all_calls_is_ordered() {
        let looked = |shares: Vec<Kept>| {
            let orders = Orders::default().look(&snapshot(shares, true), &config(), Instant::now());
            orders.iter().map(|order| (text(&order.about), order.share)).collect::<Vec<_>>()
        };
        assert_eq!(looked(vec![kept(None, Effect::StepShare, 1.0)]), [], "only told as \"would have\"");
        for some in [Effect::Spill, Effect::LimitConcurrency, Effect::LowerEffort, Effect::Observe] {
            assert_eq!(looked(vec![kept(None, some, 0.05)]), [], "{some:?}");
        }
        // Two signatures of one model: the smaller share. Efforts stand for themselves.
        let mut other = kept(None, Effect::StepShare, 0.8);
        other.detail = Detail::CountLattice { step: 518, offset: 516 };
        let all = vec![other, kept(None, Effect::StepShare, 0.64), kept(Some("high"), Effect::Cool, 0.05)];
        assert_eq!(looked(all), [("a m -".to_owned(), 0.64), ("a m high".to_owned(), 0.05)]);
    }

    #[test]
    fn models_are_called_as_clients_call_them() {
        let called = |model: Option<&str>, route: Option<&str>| {
            let [model, route] = [model, route].map(|name| name.map(str::to_owned));
            let target = Target { route, model, ..target(None) };
            abouts(&target, &config()).iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(called(Some("own"), None), ["a own -", "a renamed -"], "of the wildcard route, too");
        assert_eq!(called(Some("own"), Some("renamed")), ["a renamed -"]);
        assert_eq!(called(None, Some("renamed")), ["a renamed -"]);
        assert_eq!(called(None, None), ["a - -"]);
        let stranger = Target { upstream: Some("c".to_owned()), ..target(None) };
        assert!(abouts(&stranger, &config()).is_empty());
    }
}
