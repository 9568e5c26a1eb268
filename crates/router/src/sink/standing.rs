//! The orders that stand: orders and time in, what each target should be given out.
//!
//! There is no clock here and nothing waits. The latest order for a target replaces the one before; an order whose
//! time is over is gone, whether or not anybody said so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::order::{About, Order};

/// Shares are told apart to this much; below it a target counts as drained, above 1 less it as restored. Other
/// routers count in whole percents, or not at all.
const EXACT: f64 = 0.005;

/// Something that another router can be told to give less: our name for it, and its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<T> {
    /// The upstream whose orders it follows.
    pub upstream: Arc<str>,
    /// The model whose orders it follows; `None`: those of every model of the upstream.
    pub model: Option<Arc<str>>,
    /// Targets that take over from each other: one of them always keeps traffic.
    pub group: Arc<str>,
    /// Its name there.
    pub own: T,
}

/// What a target should be given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Want {
    /// Its share of its ordinary traffic, 0 to 1.
    pub share: f64,
    /// When the order that says so is over; `None`: no order does.
    pub until: Option<Instant>,
}

impl Want {
    /// No order.
    pub const ALL: Self = Self { share: 1.0, until: None };

    /// No traffic at all.
    pub fn is_drained(&self) -> bool {
        self.share < EXACT
    }

    /// As if there were no order.
    pub fn is_restored(&self) -> bool {
        self.until.is_none() || self.share > 1.0 - EXACT
    }

    /// In whole percents; 0 only when drained, 100 only when restored.
    pub fn percent(&self) -> u32 {
        if self.is_drained() {
            0
        } else if self.is_restored() {
            100
        } else {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 99")]
            let percent = (self.share * 100.0).round().clamp(1.0, 99.0) as u32;
            percent
        }
    }

    /// How much longer.
    pub fn left(&self, now: Instant) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

/// An order with its end.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The order.
    pub order: Order,
    /// When it is over.
    pub until: Instant,
}

/// The orders that stand.
#[derive(Clone, Debug, Default)]
pub struct Standing(BTreeMap<About, Kept>);

impl Standing {
    /// Takes an order over. A share of 1 ends the one that stands for the same target.
    pub fn take(&mut self, order: Order, now: Instant) {
        let key = order.about.clone();
        if order.share.is_nan() || order.share > 1.0 - EXACT {
            self.0.remove(&key);
        } else {
            let until = now.checked_add(order.ttl).unwrap_or(now);
            self.0.insert(key, Kept { order, until });
        }
    }

    /// Forgets what is over; says whether anything was.
    pub fn expire(&mut self, now: Instant) -> bool {
        let before = self.0.len();
        self.0.retain(|_, kept| kept.until > now);
        self.0.len() < before
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// When the next order is over.
    pub fn next_end(&self) -> Option<Instant> {
        self.0.values().map(|kept| kept.until).min()
    }

    /// Whether no order stands.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many orders stand.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The orders, by upstream and model.
    pub fn orders(&self) -> impl Iterator<Item = &Kept> {
        self.0.values()
    }

    /// What a target should be given: the smallest share that any of its orders says, whatever effort it is about,
    /// since the other router cannot tell efforts. Its end is the target's,
    /// so that a target whose orders are never repeated is back as soon as the strictest of them is over.
    pub fn want<T>(&self, target: &Target<T>) -> Want {
        let concerns = |order: &Order| {
            let models = [&order.about.model, &target.model];
            let same = models[0] == models[1] || models.iter().any(|model| model.is_none());
            order.about.upstream == target.upstream && same
        };
        let of = self.0.values().filter(|kept| concerns(&kept.order));
        let want = of.map(|kept| Want { share: kept.order.share.max(0.0), until: Some(kept.until) });
        want.reduce(|a, b| if (b.share, a.until) < (a.share, b.until) { b } else { a }).unwrap_or(Want::ALL)
    }

    /// What each target should be given, none of it more than `emptied` allows: where every target of a group of
    /// two or more would be empty, that group is left alone, since its traffic could go nowhere.
    pub fn wants<T>(&self, targets: &[Target<T>], emptied: impl Fn(&Want) -> bool) -> Vec<Want> {
        let mut wants: Vec<Want> = targets.iter().map(|target| self.want(target)).collect();
        let mut groups: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (target, want) in targets.iter().zip(&wants) {
            let (members, empty) = groups.entry(&target.group).or_default();
            *members += 1;
            *empty += usize::from(emptied(want));
        }
        for (target, want) in targets.iter().zip(&mut wants) {
            if matches!(groups.get(&*target.group), Some((members, empty)) if members == empty && *members > 1)
            {
                *want = Want::ALL;
            }
        }
        wants
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::order::tests::order;

    fn target(upstream: &str, model: Option<&str>) -> Target<()> {
        Target { upstream: upstream.into(), model: model.map(Arc::from), group: "g".into(), own: () }
    }

    #[tokio::test(start_paused = true)]
    async fn the_strictest_order_counts_until_its_own_end() {
        let (mut standing, now) = (Standing::default(), Instant::now());
        standing.take(order("a", Some("m"), 0.8, 60), now);
        standing.take(order("a", None, 0.0, 5), now);
        let later = |seconds| now + Duration::from_secs(seconds);
        let want = standing.want(&target("a", Some("m")));
        assert_eq!((want.percent(), want.until), (0, Some(later(5))));
        assert_eq!(standing.want(&target("a", None)).percent(), 0);
        assert_eq!(standing.want(&target("b", None)), Want::ALL);
        assert!(!standing.expire(later(4)) && standing.expire(later(5)));
        assert_eq!(standing.want(&target("a", Some("m"))).percent(), 80);
        assert_eq!(standing.want(&target("a", Some("other"))), Want::ALL);
        assert_eq!(standing.want(&target("a", None)).percent(), 80, "a whole upstream follows each model");
        standing.take(order("a", Some("m"), 1.0, 60), now);
        assert!(standing.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_is_never_emptied() {
        let (mut standing, now) = (Standing::default(), Instant::now());
        let targets = [target("a", None), target("b", None)];
        standing.take(order("a", None, 0.0, 60), now);
        let percents = |standing: &Standing, targets: &[Target<()>]| {
            let wants = standing.wants(targets, Want::is_drained);
            wants.iter().map(Want::percent).collect::<Vec<_>>()
        };
        assert_eq!(percents(&standing, &targets), [0, 100]);
        standing.take(order("b", None, 0.0, 60), now);
        assert_eq!(percents(&standing, &targets), [100, 100]);
        assert_eq!(percents(&standing, &targets[..1]), [0], "its others are not known here");
    }

    proptest! {
        /// Only what is drained is at 0 %, only what is restored at 100 %.
        #[test]
        fn percents_keep_the_ends_apart(share in 0.0..=1.0_f64) {
            let want = Want { share, until: Some(Instant::now()) };
            prop_assert!(want.percent() <= 100);
            prop_assert_eq!(want.percent() == 0, want.is_drained());
            prop_assert_eq!(want.percent() == 100, want.is_restored());
        }
    }
}
