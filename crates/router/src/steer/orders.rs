//! What other routers are told: the shares that stand here, as orders with a time to live.
//!
//! Only whole shares go out: of calls of one size or effort other routers know nothing, and an order about all of
//! a model would move more than was decided. An order is sent when its share changes, and again before it runs
//! out; once the share is whole, that is sent once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sseismo_trace::Signal;
use tokio::time::Instant;

use super::{Effect, Inner, Router, Target};
use crate::order::{Notice, Notices, Order};

/// How long an order stands. A relay that dies is forgotten this soon.
const TTL: Duration = Duration::from_secs(30);

/// It is sent again this often: two may be lost before it runs out.
const AGAIN: Duration = Duration::from_secs(10);

/// Upstream, and the model by the name that clients use.
type Key = (Arc<str>, Option<Arc<str>>);

/// The orders that stand.
pub(super) type Standing = BTreeMap<Key, (f64, Instant, Arc<Signal>)>;

impl Router {
    /// From now on orders go to `notices`, or to nobody. They go on under changed configurations.
    pub fn tell_others(&self, notices: Option<Notices>) {
        *self.steering().notices() = notices;
    }

    pub(super) fn order(&self, inner: &mut Inner, now: Instant) {
        let Some(notices) = self.steering().notices().clone() else { return };
        let wanted = self.wanted(inner);
        // What is not wanted any more is whole again; one that cannot be sent now stands until the next look.
        inner
            .standing
            .retain(|key, (_, _, signal)| wanted.contains_key(key) || !send(&notices, key, 1.0, signal));
        for (key, (share, signal)) in wanted {
            let known = inner.standing.get(&key);
            let due = known.is_none_or(|(sent, at, _)| {
                (sent - share).abs() > f64::EPSILON || now.saturating_duration_since(*at) >= AGAIN
            });
            if due && send(&notices, &key, share, &signal) {
                inner.standing.insert(key, (share, now, signal));
            }
        }
    }

    /// The shares that are not whole, by what other routers call it; of several the smallest.
    fn wanted(&self, inner: &Inner) -> BTreeMap<Key, (f64, Arc<Signal>)> {
        let mut wanted = BTreeMap::<Key, (f64, Arc<Signal>)>::new();
        for ((target, _), shares) in &inner.shares {
            let whole = matches!(shares.effect, Effect::StepShare | Effect::Cool) && target.effort.is_none();
            if !whole || shares.acted.is_whole() {
                continue;
            }
            for key in self.keys_of(target) {
                let share = shares.acted.value();
                let known = wanted.entry(key).or_insert_with(|| (share, Arc::clone(&shares.signal)));
                if share < known.0 {
                    *known = (share, Arc::clone(&shares.signal));
                }
            }
        }
        wanted
    }

    /// What a target is called outside.
    fn keys_of(&self, target: &Target) -> Vec<Key> {
        let upstream =
            self.config().upstreams.iter().find(|own| Some(&*own.name) == target.upstream.as_deref());
        let Some(upstream) = upstream else { return Vec::new() };
        let Some(model) = &target.model else {
            return vec![(upstream.name.clone(), target.route.as_deref().map(Arc::from))];
        };
        let routes = self.config().routes.iter();
        let routes =
            routes.filter(|route| target.route.as_deref().is_none_or(|wanted| wanted == &*route.model));
        let routes = routes.filter(|route| route.upstreams().any(|own| own.name == upstream.name));
        let named = |route: &Arc<crate::config::Route>| match &*route.model {
            "*" => Some(Arc::from(model.as_str())),
            asked => (upstream.model(asked) == model).then(|| route.model.clone()),
        };
        let mut keys: Vec<Key> =
            routes.filter_map(named).map(|model| (upstream.name.clone(), Some(model))).collect();
        keys.sort();
        keys.dedup();
        keys
    }
}

/// Whether it went out; if not, the next look tries again.
fn send(notices: &Notices, (upstream, model): &Key, share: f64, signal: &Arc<Signal>) -> bool {
    let order = Order {
        upstream: upstream.clone(),
        model: model.clone(),
        share,
        ttl: TTL,
        signal: Arc::clone(signal),
    };
    notices.try_send(Notice::Order(order)).is_ok()
}
