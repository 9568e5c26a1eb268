//! `LiteLLM`: its own cooldown, written into the Redis that its routers share.
//!
//! `deployment:ID:cooldown` with ID the `model_info.id` of a deployment, which its configuration must state;
//! `router_settings.redis_host` must be set. No plugin and no restart: every worker reads the key within a second
//! (`DEFAULT_COOLDOWN_REDIS_READ_INTERVAL_SECONDS`).
//!
//! A cooldown is all or nothing: a deployment is cooled while its share is below `cool_below` (0.5 unless stated),
//! and otherwise left alone.
//!
//! **Times.** A worker keeps what it has read until the cooldown's own end and does not notice that the key was
//! deleted. So each cooldown is short (`cooldown`, 5 s unless stated) and set again while the order stands: a cleared
//! deployment is back after that time at most. At the end of each a worker may send one request before it reads the
//! next; it serves as a probe.
//!
//! **Without the relay** the last cooldown ends by itself: this sink fails open alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use serde_json::json;
use tokio::time::Instant;

use super::lease::Restorer;
use super::redis::Server;
use super::standing::{Standing, Target, Want};
use super::{Doing, Failed, Plan, Sink};
use crate::clock;
use crate::config::sink::Reading;

/// How long one cooldown is, unless stated: `LiteLLM`'s own default.
const COOLDOWN: Duration = Duration::from_secs(5);

/// Shares below are cooled, unless stated: the nearer of all and nothing.
const COOL_BELOW: f64 = 0.5;

#[derive(Clone, Debug)]
struct LiteLlm {
    server: Server,
    targets: Vec<Target<String>>,
    cooldown: Duration,
    cool_below: f64,
}

/// Reads its keys.
pub(super) fn read(reading: &Reading<'_>) -> Option<Arc<dyn Plan>> {
    let section = reading.section;
    let server = Server::read(reading);
    let cooldown = section.duration("cooldown").unwrap_or(COOLDOWN);
    if cooldown < Duration::from_secs(2) {
        section.fault("cooldown", "`cooldown` must be at least 2s: it is read once a second only");
    }
    let cool_below = section.share("cool_below").unwrap_or(COOL_BELOW);
    let targets = reading.targets(|target| {
        let id = target.needed("id")?;
        Some((id.to_owned(), target.text("model").unwrap_or_default().to_owned()))
    });
    Some(Arc::new(LiteLlm { server: server?, targets, cooldown, cool_below }))
}

impl Plan for LiteLlm {
    fn sink(&self, _: &str, _: &Restorer) -> Result<Box<dyn Sink>, Failed> {
        Ok(Box::new(Cooling { plan: self.clone(), connection: None, cooled: BTreeSet::new() }))
    }
}

struct Cooling {
    plan: LiteLlm,
    connection: Option<MultiplexedConnection>,
    /// Deployments with a key of ours.
    cooled: BTreeSet<String>,
}

impl Sink for Cooling {
    fn every(&self) -> Duration {
        self.plan.cooldown / 4
    }

    fn steer<'a>(&'a mut self, standing: &'a Standing) -> Doing<'a> {
        Box::pin(async move {
            let now = Instant::now();
            let below = self.plan.cool_below;
            let cool = |want: &Want| !want.is_restored() && want.share < below;
            let wants = standing.wants(&self.plan.targets, cool);
            let mut pipeline = ::redis::pipe();
            let mut over = Vec::new();
            for (target, want) in self.plan.targets.iter().zip(&wants) {
                let key = format!("deployment:{}:cooldown", target.own);
                if cool(want) {
                    let ends = want.left(now).min(self.plan.cooldown).max(Duration::from_millis(1));
                    let ms = u64::try_from(ends.as_millis()).unwrap_or(u64::MAX);
                    pipeline.cmd("SET").arg(key).arg(value(ends)).arg("PX").arg(ms).ignore();
                    self.cooled.insert(target.own.clone());
                } else if self.cooled.contains(&target.own) {
                    pipeline.cmd("DEL").arg(key).ignore();
                    over.push(target.own.clone());
                }
            }
            self.plan.server.run(&mut self.connection, &pipeline).await?;
            for id in over {
                self.cooled.remove(&id);
            }
            Ok(())
        })
    }
}

/// What `LiteLLM` writes itself, with our reason in the exception's place.
fn value(cooldown: Duration) -> String {
    #[expect(clippy::cast_precision_loss, reason = "µs of this century fit into 53 bits")]
    let timestamp = clock::now().0 as f64 / 1e6;
    json!({
        "exception_received": "sseismo: reasoning streams of this deployment cluster", "status_code": "429",
        "timestamp": timestamp, "cooldown_time": cooldown.as_secs_f64(),
    })
    .to_string()
}
