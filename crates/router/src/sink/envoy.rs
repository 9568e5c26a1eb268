//! Envoy: weights of a route's `weighted_clusters`, overridden in its runtime.
//!
//! `POST /runtime_modify?PREFIX.a=20&PREFIX.b=80` on Envoy's admin address. The route has `runtime_key_prefix:
//! PREFIX`, and the bootstrap an `admin_layer` among its `layered_runtime`. All targets of one sink are the clusters
//! of one such route, with the weights that are configured there: overrides must add up to the same total, so what
//! one cluster loses, the others get, by their weights (evenly where those are 0: a standby).
//!
//! **Without the relay** an override stays until Envoy is started anew: it does not fail open alone. The restorer
//! deletes it (an empty value) within a second after the order's end. An Envoy that is started anew has its configured
//! weights, and is told again within [`EVERY`].

use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;

use super::lease::{Restorer, Undo};
use super::standing::{Standing, Target, Want};
use super::{Doing, Failed, Plan, Sink};
use crate::config::sink::Reading;

/// What stands is said again this often.
const EVERY: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
struct Envoy {
    admin: Url,
    prefix: String,
    targets: Vec<Target<Cluster>>,
}

#[derive(Clone, Debug)]
struct Cluster {
    name: String,
    weight: u32,
}

impl AsRef<str> for Cluster {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

/// Reads its keys.
pub(super) fn read(reading: &Reading<'_>) -> Option<Arc<dyn Plan>> {
    let section = reading.section;
    let admin = reading.url("admin");
    let prefix = section.needed("prefix");
    let targets = reading.targets(|target| {
        let name = target.needed("cluster")?.to_owned();
        if !target.has("weight") {
            target.fault("cluster", "`weight` is missing: the cluster's weight in Envoy's configuration");
        }
        let weight = target.whole("weight", 0..=1_000_000)?;
        Some((Cluster { name, weight: u32::try_from(weight).unwrap_or_default() }, String::new()))
    });
    if targets.len() < 2 || targets.iter().all(|target| target.own.weight == 0) {
        section.fault(
            "targets",
            "name every cluster of the route with its weight, since overrides must add up to the same total",
        );
    }
    Some(Arc::new(Envoy { admin: admin?, prefix: prefix?.to_owned(), targets }))
}

impl Envoy {
    /// The request that overrides weights; `None` deletes the overrides.
    fn request(&self, weights: Option<&[u32]>) -> String {
        let mut url = self.admin.clone();
        url.set_path("/runtime_modify");
        {
            let mut query = url.query_pairs_mut();
            query.clear();
            for (place, target) in self.targets.iter().enumerate() {
                let weight = weights.and_then(|weights| weights.get(place)).map(u32::to_string);
                let key = format!("{}.{}", self.prefix, target.own.name);
                query.append_pair(&key, &weight.unwrap_or_default());
            }
        }
        url.into()
    }
}

impl Plan for Envoy {
    fn leases(&self) -> bool {
        true
    }

    fn sink(&self, name: &str, restorer: &Restorer) -> Result<Box<dyn Sink>, Failed> {
        Ok(Box::new(Overriding {
            lease: name.to_owned(),
            plan: self.clone(),
            restorer: restorer.clone(),
            client: super::client()?,
            touched: false,
        }))
    }
}

struct Overriding {
    lease: String,
    plan: Envoy,
    restorer: Restorer,
    client: reqwest::Client,
    /// There may be overrides of ours.
    touched: bool,
}

impl Sink for Overriding {
    fn every(&self) -> Duration {
        EVERY
    }

    fn steer<'a>(&'a mut self, standing: &'a Standing) -> Doing<'a> {
        Box::pin(async move {
            let wants = standing.wants(&self.plan.targets, Want::is_drained);
            let until = wants.iter().filter(|want| !want.is_restored()).filter_map(|want| want.until).min();
            let Some(until) = until else {
                if self.touched {
                    post(&self.client, &self.plan.request(None)).await?;
                    self.touched = false;
                    self.restorer.release(&self.lease).await?;
                }
                return Ok(());
            };
            let configured: Vec<u32> = self.plan.targets.iter().map(|target| target.own.weight).collect();
            let shares: Vec<f64> = wants.iter().map(|want| f64::from(want.percent()) / 100.0).collect();
            let weights = spread(&configured, &shares);
            let undo = Undo::Envoy { url: self.plan.request(None) };
            self.restorer.hold(&self.lease, until, undo).await?;
            self.touched = true;
            post(&self.client, &self.plan.request(Some(&weights))).await
        })
    }
}

/// Posts to Envoy's admin address.
///
/// # Errors
/// When it cannot be reached or refuses.
pub(super) async fn post(client: &reqwest::Client, url: &str) -> Result<(), Failed> {
    super::accepted("Envoy's admin address", client.post(url).send().await).await
}

/// Weights by share, adding up to what the configured ones add up to. What is taken from some goes to those that
/// keep their whole share, by weight; where there are none, each share counts for itself.
fn spread(configured: &[u32], shares: &[f64]) -> Vec<u32> {
    let total: u32 = configured.iter().sum();
    let kept: Vec<f64> =
        configured.iter().zip(shares).map(|(weight, share)| f64::from(*weight) * share).collect();
    let freed = f64::from(total) - kept.iter().sum::<f64>();
    let whole: Vec<bool> = shares.iter().map(|share| *share >= 1.0).collect();
    let takers = |place: usize, some_whole: bool| !some_whole || whole.get(place).is_some_and(|whole| *whole);
    let some_whole = whole.iter().any(|whole| *whole);
    let by_weight: f64 =
        kept.iter().enumerate().filter(|(place, _)| takers(*place, some_whole)).map(|(_, kept)| kept).sum();
    let count = (0..kept.len()).filter(|place| takers(*place, some_whole)).count();
    let wanted = |(place, kept): (usize, &f64)| {
        if !takers(place, some_whole) {
            *kept
        } else if by_weight > 0.0 {
            kept + freed * kept / by_weight
        } else {
            #[expect(clippy::cast_precision_loss, reason = "a handful")]
            let evenly = freed / count as f64;
            kept + evenly
        }
    };
    whole_numbers(&kept.iter().enumerate().map(wanted).collect::<Vec<_>>(), total)
}

/// Rounds so that the sum is kept: those that lose most by rounding down get one more.
fn whole_numbers(wanted: &[f64], total: u32) -> Vec<u32> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to the total")]
    let mut weights: Vec<u32> = wanted.iter().map(|weight| weight.floor() as u32).collect();
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    let rest = |place: usize| wanted[place] - wanted[place].floor();
    order.sort_by(|a, b| rest(*b).total_cmp(&rest(*a)));
    let missing = total.saturating_sub(weights.iter().sum()) as usize;
    for place in order.into_iter().filter(|place| wanted[*place] > 0.0).take(missing) {
        weights[place] += 1;
    }
    weights
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_one_loses_the_others_get() {
        assert_eq!(spread(&[50, 50], &[0.0, 1.0]), [0, 100]);
        assert_eq!(spread(&[100, 0], &[0.0, 1.0]), [0, 100]);
        assert_eq!(spread(&[100, 0], &[0.25, 1.0]), [25, 75]);
        assert_eq!(spread(&[60, 30, 10], &[0.5, 1.0, 1.0]), [30, 53, 17]);
        assert_eq!(spread(&[60, 40], &[0.5, 0.25]), [75, 25], "nobody is whole");
    }

    proptest! {
        /// The total is kept, nobody drained gets anything while somebody is not, nobody whole loses.
        #[test]
        fn the_total_is_kept(members in prop::collection::vec((0..500_u32, 0..=100_u32), 2..6)) {
            let configured: Vec<u32> = members.iter().map(|(weight, _)| *weight).collect();
            let shares: Vec<f64> = members.iter().map(|(_, percent)| f64::from(*percent) / 100.0).collect();
            prop_assume!(shares.iter().any(|share| *share > 0.0));
            prop_assume!(configured.iter().zip(&shares).any(|(weight, share)| *weight > 0 && *share > 0.0));
            let weights = spread(&configured, &shares);
            prop_assert_eq!(weights.iter().sum::<u32>(), configured.iter().sum::<u32>());
            for place in 0..weights.len() {
                prop_assert!(shares[place] > 0.0 || weights[place] == 0, "{weights:?}");
                prop_assert!(shares[place] < 1.0 || weights[place] >= configured[place], "{weights:?}");
            }
        }
    }
}
