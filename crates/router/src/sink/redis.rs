//! Redis: each order as a key with a time to live, and as a message on a channel of the same name.
//!
//! `route:signal:UPSTREAM`, with `/MODEL` for an order about one model and `#EFFORT` for one about one effort, holds
//! JSON:
//!
//! ```json
//! {"upstream":"a","model":"gpt-5.5","effort":"high","share":0.05,"ttl_ms":9650,"signature":"burst","signal":"0000000000000abc"}
//! ```
//!
//! Whoever steers by it reads the key at its start and follows the channel. A change is published at once, an end as
//! the same with `"share":1.0`, when the key is deleted. While an order stands its key is set anew every [`EVERY`],
//! which is not published.
//!
//! **Without the relay** every key is gone at its order's end: this sink fails open alone, for those who read the
//! key. Those who only follow the channel must honour `ttl_ms`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, Pipeline,
};
use serde_json::json;
use tokio::time::Instant;

use super::lease::Restorer;
use super::standing::{Kept, Standing};
use super::{Doing, Failed, Plan, Sink};
use crate::config::sink::Reading;
use crate::keys::Secret;
use crate::order::About;

/// What stands is set again this often: a Redis that lost it has it again.
const EVERY: Duration = Duration::from_secs(2);

/// The names' beginning, unless stated.
const PREFIX: &str = "route:signal:";

#[derive(Clone, Debug)]
struct Keys {
    server: Server,
    prefix: String,
}

/// Reads its keys.
pub(super) fn read(reading: &Reading<'_>) -> Option<Arc<dyn Plan>> {
    let server = Server::read(reading);
    let prefix = reading.section.text("prefix").unwrap_or(PREFIX).to_owned();
    Some(Arc::new(Keys { server: server?, prefix }))
}

impl Plan for Keys {
    fn sink(&self, _: &str, _: &Restorer) -> Result<Box<dyn Sink>, Failed> {
        Ok(Box::new(Setting { plan: self.clone(), connection: None, told: BTreeMap::new() }))
    }
}

struct Setting {
    plan: Keys,
    connection: Option<MultiplexedConnection>,
    /// Names of keys that may be there → the share that was published.
    told: BTreeMap<String, Told>,
}

struct Told {
    about: About,
    /// In thousandths; `None`: not published yet.
    share: Option<u64>,
}

impl Sink for Setting {
    fn every(&self) -> Duration {
        EVERY
    }

    fn steer<'a>(&'a mut self, standing: &'a Standing) -> Doing<'a> {
        Box::pin(async move {
            let now = Instant::now();
            let mut pipeline = ::redis::pipe();
            let mut stand = BTreeMap::new();
            for kept in standing.orders() {
                let name = self.name(kept);
                let text = text(kept, now);
                pipeline.cmd("SET").arg(&name).arg(&text).arg("PX").arg(left_ms(kept, now)).ignore();
                let share = thousandths(kept.order.share);
                if self.told.get(&name).and_then(|told| told.share) != Some(share) {
                    pipeline.cmd("PUBLISH").arg(&name).arg(&text).ignore();
                }
                // Until it is done it counts as there but not published.
                let about = kept.order.about.clone();
                self.told.entry(name.clone()).or_insert(Told { about, share: None });
                stand.insert(name, share);
            }
            let over: Vec<String> =
                self.told.keys().filter(|name| !stand.contains_key(*name)).cloned().collect();
            for name in &over {
                let Some(told) = self.told.get(name) else { continue };
                pipeline.cmd("DEL").arg(name).ignore();
                pipeline.cmd("PUBLISH").arg(name).arg(over_text(&told.about)).ignore();
            }
            self.plan.server.run(&mut self.connection, &pipeline).await?;
            for name in &over {
                self.told.remove(name);
            }
            for (name, share) in stand {
                if let Some(told) = self.told.get_mut(&name) {
                    told.share = Some(share);
                }
            }
            Ok(())
        })
    }
}

impl Setting {
    fn name(&self, kept: &Kept) -> String {
        let About { upstream, model, effort } = &kept.order.about;
        let model = model.as_ref().map(|model| format!("/{model}")).unwrap_or_default();
        let effort = effort.as_ref().map(|effort| format!("#{effort}")).unwrap_or_default();
        format!("{}{upstream}{model}{effort}", self.plan.prefix)
    }
}

fn text(kept: &Kept, now: Instant) -> String {
    let (order, about) = (&kept.order, &kept.order.about);
    json!({
        "upstream": &*about.upstream, "model": about.model.as_deref(), "effort": about.effort.as_deref(),
        "share": order.share, "ttl_ms": left_ms(kept, now), "signature": order.signal.detail.signature().name(),
        "signal": order.signal.id.to_string(),
    })
    .to_string()
}

fn over_text(about: &About) -> String {
    let About { upstream, model, effort } = about;
    json!({"upstream": &**upstream, "model": model.as_deref(), "effort": effort.as_deref(), "share": 1.0})
        .to_string()
}

/// Redis takes no time of 0.
fn left_ms(kept: &Kept, now: Instant) -> u64 {
    let left = kept.until.saturating_duration_since(now).as_millis();
    u64::try_from(left).unwrap_or(u64::MAX).max(1)
}

fn thousandths(share: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
    let thousandths = (share.clamp(0.0, 1.0) * 1_000.0).round() as u64;
    thousandths
}

/// A Redis server, as sinks reach it.
#[derive(Clone, Debug)]
pub(super) struct Server {
    url: String,
    username: Option<String>,
    password: Option<Secret>,
}

impl Server {
    /// Reads `url`, `username` and `password`.
    pub(super) fn read(reading: &Reading<'_>) -> Option<Self> {
        let section = reading.section;
        let username = section.text("username").map(str::to_owned);
        let password = reading.secret("password");
        let url = section.needed("url")?;
        let Ok(info) = url.into_connection_info() else {
            // The URL is not repeated: it may hold a password.
            section.fault("url", "`url` must be like \"redis://127.0.0.1:6379/0\" or \"unix:///path\"");
            return None;
        };
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            section.fault("url", "TLS to Redis is not supported: use redis:// or a local stunnel");
        }
        if info.redis_settings().password().is_some() {
            section.fault("url", "a password must not stand here: use `password = \"env:NAME\"`");
        }
        Some(Self { url: url.to_owned(), username, password })
    }

    fn info(&self) -> ::redis::RedisResult<ConnectionInfo> {
        let info = self.url.as_str().into_connection_info()?;
        let mut settings = info.redis_settings().clone();
        if let Some(name) = &self.username {
            settings = settings.set_username(name);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password.expose());
        }
        Ok(info.set_redis_settings(settings))
    }

    /// Runs all commands at once, over a connection that is kept while it works.
    pub(super) async fn run(
        &self,
        connection: &mut Option<MultiplexedConnection>,
        pipeline: &Pipeline,
    ) -> Result<(), Failed> {
        if pipeline.is_empty() {
            return Ok(());
        }
        let failed = |error: &::redis::RedisError| Failed::unreachable("Redis", error);
        // Taken out, so that one that breaks is not used again.
        let mut open = match connection.take() {
            Some(open) => open,
            None => self.connect().await.map_err(|error| failed(&error))?,
        };
        pipeline.exec_async(&mut open).await.map_err(|error| failed(&error))?;
        *connection = Some(open);
        Ok(())
    }

    async fn connect(&self) -> ::redis::RedisResult<MultiplexedConnection> {
        let patience = Some(Duration::from_secs(2));
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(patience).set_response_timeout(patience);
        Client::open(self.info()?)?.get_multiplexed_async_connection_with_config(&config).await
    }
}
