//! Active health checks: asks each upstream that wants it, whether or not there is traffic.
//!
//! In: the router that stands. Out: each check's result to its breakers. A check costs no tokens and proves no
//! generation: a good one ends a cooldown early, after which a probe decides; bad ones in a row open.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use sseismo_capture::tap::Observer;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::choice::Router;
use crate::config::Upstream;
use crate::credentials;
use crate::front::Current;
use crate::keys::Pick;
use crate::link::Links;

/// How often it is looked whether a check is due.
const LOOK: Duration = Duration::from_millis(250);

/// Checks for as long as it is polled.
pub async fn watch(current: Current, links: Arc<Links>, observer: Observer) {
    let mut due: HashMap<Arc<str>, Instant> = HashMap::new();
    let mut checks = JoinSet::new();
    loop {
        tokio::time::sleep(LOOK).await;
        while checks.try_join_next().is_some() {}
        let (router, now) = (current(), Instant::now());
        for upstream in &router.config().upstreams {
            let Some(check) = &upstream.health else { continue };
            if due.get(&upstream.name).is_some_and(|due| now < *due) {
                continue;
            }
            due.insert(upstream.name.clone(), now + check.every);
            let (router, upstream, links, observer) =
                (Arc::clone(&router), Arc::clone(upstream), Arc::clone(&links), observer.clone());
            let (path, within) = (check.path.clone(), check.timeout);
            checks.spawn(async move {
                let asked = timeout(within, ask(&router, &upstream, &path, &links, &observer)).await;
                let well = matches!(asked, Ok(Ok(status)) if is_well(status));
                router.health(&upstream.name, well, Instant::now());
            });
        }
    }
}

/// Whether an upstream that answers so is there: what it says of keys and paths is no matter of its health.
fn is_well(status: StatusCode) -> bool {
    !status.is_server_error()
}

/// Asks an upstream with one of its keys; the status of its answer.
///
/// # Errors
/// Why there is none.
pub async fn ask(
    router: &Router,
    upstream: &Upstream,
    path: &str,
    links: &Links,
    observer: &Observer,
) -> Result<StatusCode, String> {
    let now = Instant::now();
    let uri = upstream.base.join(path).map_err(|error| error.to_string())?;
    let mut request = Request::get(uri).body(()).map_err(|error| error.to_string())?;
    request.headers_mut().insert(HOST, upstream.base.host().clone());
    if let Pick::Key(key) = router.key(upstream, now) {
        credentials::put(request.headers_mut(), upstream.key_header, key.secret.expose())
            .ok_or("its key cannot be sent in a header")?;
    }
    let (head, ()) = request.into_parts();
    // The path speaks no API, so nothing is recorded.
    let exchange = observer.request(&head, &upstream.name);
    let request = Request::from_parts(head, exchange.body(Full::new(Bytes::new())));
    let response = links.to(upstream, now).send(request).await;
    let response = response.map_err(|error| sseismo_capture::tap::causes(&error))?;
    let response = exchange.answered(response);
    let status = response.status();
    // Read to its end, so that the connection can be used again.
    let _ = http_body_util::Limited::new(response.into_body(), 1 << 20).collect().await;
    Ok(status)
}
