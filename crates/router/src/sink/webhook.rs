//! Alerts: what Alertmanager takes, or what Alertmanager sends.
//!
//! | `shape` | is |
//! |---|---|
//! | `alerts`, unless stated | the body of `POST /api/v2/alerts`: for Alertmanager itself, and what reads its input |
//! | `webhook` | version 4 of what Alertmanager posts to a `webhook_config` receiver: for everything that takes that |
//!
//! Two alerts: `SseismoSignal` for each signal (labels: signature, upstream, model, effort), and `SseismoSteering` for
//! each order that stands (labels: upstream, model, effort). It tells and steers nothing; who steers by it reads the
//! annotation `share`.
//!
//! With `sign = "env:NAME"` each request carries `x-sseismo-signature: t=UNIX_SECONDS,v1=HEX`, HEX being the
//! HMAC-SHA256 of `UNIX_SECONDS.BODY` under that secret; a receiver that refuses old times cannot be replayed to.
//! Redirects are not followed. With `bearer = "env:NAME"` it carries that token, too.
//!
//! **Without the relay** each alert ends at its `endsAt`, which is the signal's or order's own end: Alertmanager
//! resolves it alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::Url;
use reqwest::header::CONTENT_TYPE;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::Sha256;
use sseismo_trace::{Cause, Dim, Signal, SignalId, SignalState, UtcMicros};
use tokio::time::Instant;

use super::lease::Restorer;
use super::standing::Standing;
use super::{Doing, Failed, Plan, Sink};
use crate::config::sink::Reading;
use crate::keys::Secret;
use crate::order::{About, Order};
use crate::{clock, sink};

/// What stands is told again this often: Alertmanager forgets it when it is started anew.
const EVERY: Duration = Duration::from_secs(15);

/// The header with the signature.
const SIGNATURE: &str = "x-sseismo-signature";

/// Signals whose start is remembered; more than are ever active.
const STARTS: usize = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Alerts,
    Webhook,
}

#[derive(Clone, Debug)]
struct Webhook {
    url: Url,
    shape: Shape,
    sign: Option<Secret>,
    bearer: Option<Secret>,
}

/// Reads its keys.
pub(super) fn read(reading: &Reading<'_>) -> Option<Arc<dyn Plan>> {
    let section = reading.section;
    let url = reading.url("url");
    let shape = match section.text("shape") {
        None | Some("alerts") => Shape::Alerts,
        Some("webhook") => Shape::Webhook,
        Some(_) => {
            section.fault("shape", "`shape` must be \"alerts\" or \"webhook\"");
            Shape::Alerts
        }
    };
    let (sign, bearer) = (reading.secret("sign"), reading.secret("bearer"));
    Some(Arc::new(Webhook { url: url?, shape, sign, bearer }))
}

impl Plan for Webhook {
    fn sink(&self, name: &str, _: &Restorer) -> Result<Box<dyn Sink>, Failed> {
        Ok(Box::new(Telling {
            name: name.to_owned(),
            plan: self.clone(),
            client: sink::client()?,
            ordered: BTreeMap::new(),
            starts: BTreeMap::new(),
        }))
    }
}

struct Telling {
    name: String,
    plan: Webhook,
    client: reqwest::Client,
    /// Targets whose alert has not been resolved → the order and when it began.
    ordered: BTreeMap<About, (Order, UtcMicros)>,
    starts: BTreeMap<SignalId, UtcMicros>,
}

/// An alert, in the form that both shapes share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Alert {
    labels: BTreeMap<&'static str, String>,
    annotations: BTreeMap<&'static str, String>,
    starts_at: String,
    ends_at: String,
    #[serde(skip)]
    firing: bool,
}

impl Sink for Telling {
    fn every(&self) -> Duration {
        EVERY
    }

    fn steer<'a>(&'a mut self, standing: &'a Standing) -> Doing<'a> {
        Box::pin(async move {
            let (now, wall) = (Instant::now(), clock::now());
            let mut alerts = Vec::new();
            let mut over = self.ordered.clone();
            for kept in standing.orders() {
                let since = over.remove(&kept.order.about).map_or(wall, |(_, since)| since);
                self.ordered.insert(kept.order.about.clone(), (kept.order.clone(), since));
                let left = clock::micros(kept.until.saturating_duration_since(now));
                alerts.push(of_order(&kept.order, since, UtcMicros(wall.0.saturating_add(left.0)), true));
            }
            let ended = over.values().map(|(order, since)| of_order(order, *since, wall, false));
            alerts.extend(ended);
            self.send(&alerts).await?;
            for key in over.keys() {
                self.ordered.remove(key);
            }
            Ok(())
        })
    }

    fn informs(&self) -> bool {
        true
    }

    fn inform<'a>(&'a mut self, signals: &'a [Arc<Signal>]) -> Doing<'a> {
        Box::pin(async move {
            let alerts: Vec<Alert> = signals.iter().map(|signal| self.of_signal(signal)).collect();
            self.send(&alerts).await?;
            for signal in signals.iter().filter(|signal| signal.state == SignalState::Clear) {
                self.starts.remove(&signal.id);
            }
            Ok(())
        })
    }
}

impl Telling {
    fn of_signal(&mut self, signal: &Signal) -> Alert {
        if self.starts.len() >= STARTS {
            self.starts.pop_first();
        }
        let since = *self.starts.entry(signal.id).or_insert(signal.at);
        let firing = signal.state != SignalState::Clear;
        let end = if firing { UtcMicros(signal.at.0.saturating_add(signal.ttl.0)) } else { signal.at };
        let signature = signal.detail.signature().name();
        let mut labels =
            BTreeMap::from([("alertname", "SseismoSignal".to_owned()), ("signature", signature.to_owned())]);
        for dim in [Dim::Upstream, Dim::Model, Dim::Effort] {
            labels.extend(signal.target.get(dim).map(|value| (dim.name(), value.to_owned())));
        }
        let mut annotations = BTreeMap::from([
            ("summary", format!("{signature} in {}", signal.target)),
            ("strength", format!("{:.2}", signal.strength)),
            ("signal", signal.id.to_string()),
            (
                "evidence",
                format!(
                    "{} is {:.4}, threshold {:.4}, over {} {}",
                    signal.evidence.statistic,
                    signal.evidence.value,
                    signal.evidence.threshold,
                    signal.evidence.n,
                    signal.evidence.unit
                ),
            ),
        ]);
        annotations.extend(signal.cause.map(Cause::name).map(|cause| ("cause", cause.to_owned())));
        Alert { labels, annotations, starts_at: rfc3339(since), ends_at: rfc3339(end), firing }
    }

    async fn send(&self, alerts: &[Alert]) -> Result<(), Failed> {
        if alerts.is_empty() {
            return Ok(());
        }
        let body = match self.plan.shape {
            Shape::Alerts => json!(alerts),
            Shape::Webhook => as_sent_by_alertmanager(&self.name, alerts),
        }
        .to_string();
        let mut request = self.client.post(self.plan.url.clone()).header(CONTENT_TYPE, "application/json");
        if let Some(secret) = &self.plan.sign {
            let seconds = clock::now().0 / 1_000_000;
            request = request.header(SIGNATURE, format!("t={seconds},v1={}", sign(secret, seconds, &body)?));
        }
        if let Some(token) = &self.plan.bearer {
            request = request.bearer_auth(token.expose());
        }
        sink::accepted("the webhook", request.body(body).send().await).await
    }
}

fn of_order(order: &Order, since: UtcMicros, until: UtcMicros, firing: bool) -> Alert {
    let About { upstream, model, effort } = &order.about;
    let mut labels =
        BTreeMap::from([("alertname", "SseismoSteering".to_owned()), ("upstream", upstream.to_string())]);
    labels.extend(model.as_ref().map(|model| ("model", model.to_string())));
    labels.extend(effort.as_ref().map(|effort| ("effort", effort.to_string())));
    let model = model.as_ref().map(|model| format!(" for {model}")).unwrap_or_default();
    let percent = order.share * 100.0;
    let annotations = BTreeMap::from([
        ("summary", format!("{upstream}{model} is given {percent:.0} % of its ordinary traffic")),
        ("share", format!("{:.3}", order.share)),
        ("signature", order.signal.detail.signature().name().to_owned()),
        ("signal", order.signal.id.to_string()),
    ]);
    Alert { labels, annotations, starts_at: rfc3339(since), ends_at: rfc3339(until), firing }
}

/// Version 4 of the payload of Alertmanager's `webhook_config`; each alert with its status and fingerprint.
fn as_sent_by_alertmanager(receiver: &str, alerts: &[Alert]) -> Value {
    let status = |firing: bool| if firing { "firing" } else { "resolved" };
    let told: Vec<Value> = alerts
        .iter()
        .map(|alert| {
            // Ends of what fires are not known there: Alertmanager writes year 1.
            let ends_at = if alert.firing { "0001-01-01T00:00:00Z" } else { &alert.ends_at };
            json!({
                "status": status(alert.firing), "labels": alert.labels, "annotations": alert.annotations,
                "startsAt": alert.starts_at, "endsAt": ends_at, "generatorURL": "",
                "fingerprint": fingerprint(&alert.labels),
            })
        })
        .collect();
    json!({
        "version": "4", "groupKey": format!("{{}}:{{receiver=\"{receiver}\"}}"), "truncatedAlerts": 0,
        "status": status(alerts.iter().any(|alert| alert.firing)), "receiver": receiver, "groupLabels": {},
        "commonLabels": {}, "commonAnnotations": {}, "externalURL": "", "alerts": told,
    })
}

/// Tells alerts apart by their labels, as Alertmanager's own does: FNV-1a over names and values.
fn fingerprint(labels: &BTreeMap<&'static str, String>) -> String {
    let bytes = labels.iter().flat_map(|(name, value)| {
        name.bytes().chain([0xff]).chain(value.bytes()).chain([0xff]).collect::<Vec<_>>()
    });
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

fn sign(secret: &Secret, seconds: i64, body: &str) -> Result<String, Failed> {
    let keyed = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes());
    let mut mac = keyed.map_err(|error| Failed::unreachable("the webhook's secret", &error))?;
    mac.update(format!("{seconds}.").as_bytes());
    mac.update(body.as_bytes());
    Ok(mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn rfc3339(at: UtcMicros) -> String {
    jiff::Timestamp::from_microsecond(at.0).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sseismo_trace::{Detail, Evidence, Micros, Scope};

    use super::*;
    use crate::keys::Source;

    fn secret(text: &str) -> Secret {
        Source::parse("env:S", Path::new("")).unwrap().read(&|_| Some(text.to_owned())).unwrap()
    }

    fn signal(state: SignalState, at: i64) -> Arc<Signal> {
        Arc::new(Signal {
            id: SignalId(0xabc),
            target: Scope::default().with(Dim::Upstream, "a").with(Dim::Model, "m"),
            detail: Detail::Concurrency { calls: 7, window_s: 4.0 },
            cause: None,
            state,
            strength: 0.5,
            evidence: Evidence::default(),
            at: UtcMicros(at),
            ttl: Micros(30_000_000),
        })
    }

    fn telling() -> Telling {
        Telling {
            name: "n".to_owned(),
            plan: Webhook {
                url: Url::parse("http://127.0.0.1:1/").unwrap(),
                shape: Shape::Alerts,
                sign: None,
                bearer: None,
            },
            client: {
                let _ = rustls::crypto::ring::default_provider().install_default();
                sink::client().unwrap()
            },
            ordered: BTreeMap::new(),
            starts: BTreeMap::new(),
        }
    }

    /// Made with `printf %s '1700000000.{"a":1}' | openssl dgst -sha256 -hmac key`.
    #[test]
    fn the_signature_is_what_openssl_makes() {
        let made = sign(&secret("key"), 1_700_000_000, r#"{"a":1}"#).unwrap();
        assert_eq!(made, "a438e398bfafc57e4396bb7fc2304422f0f768e965d073ca313cb52e22e6ad03");
    }

    #[test]
    fn an_alert_begins_with_its_onset_and_ends_with_its_time_to_live() {
        let mut telling = telling();
        let onset = telling.of_signal(&signal(SignalState::Onset, 1_000_000));
        assert_eq!(
            (onset.starts_at.as_str(), onset.ends_at.as_str()),
            ("1970-01-01T00:00:01Z", "1970-01-01T00:00:31Z")
        );
        let refresh = telling.of_signal(&signal(SignalState::Refresh, 11_000_000));
        assert_eq!((refresh.starts_at, refresh.ends_at.as_str()), (onset.starts_at, "1970-01-01T00:00:41Z"));
        let clear = telling.of_signal(&signal(SignalState::Clear, 12_000_000));
        assert!(!clear.firing && clear.ends_at == "1970-01-01T00:00:12Z" && clear.labels == onset.labels);
        let sent = as_sent_by_alertmanager("n", &[clear]);
        assert_eq!(
            (&sent["status"], &sent["alerts"][0]["labels"]["upstream"]),
            (&"resolved".into(), &"a".into())
        );
    }
}
