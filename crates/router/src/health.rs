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
use crate::keys::{Pick, Secret};
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

/// Asks an upstream with one of its keys, by turns; the status of its answer.
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
    let key = match router.key(upstream, Instant::now()) {
        Pick::Key(key) => Some(key.secret),
        Pick::Keyless | Pick::Resting { .. } | Pick::None => None,
    };
    ask_with(upstream, key.as_ref(), path, links, observer).await
}

/// Asks an upstream for a path below its base URL; the status of its answer.
///
/// # Errors
/// Why there is none. Never tells the key.
pub async fn ask_with(
    upstream: &Upstream,
    key: Option<&Secret>,
    path: &str,
    links: &Links,
    observer: &Observer,
) -> Result<StatusCode, String> {
    let now = Instant::now();
    let uri = upstream.base.join(path).map_err(|error| error.to_string())?;
    let mut request = Request::get(uri).body(()).map_err(|error| error.to_string())?;
    request.headers_mut().insert(HOST, upstream.base.host().clone());
    if let Some(key) = key {
        credentials::put(request.headers_mut(), upstream.key_header, key.expose())
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

#[cfg(test)]
mod tests {
    use sseismo_capture::tap::{self, Tap};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::breaker::State;
    use crate::reload::Live;

    /// A server that answers with what stands in `status` and keeps the requests that it saw.
    async fn server(
        status: tokio::sync::watch::Receiver<u16>,
    ) -> (u16, tokio::sync::mpsc::UnboundedReceiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, requests) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut head = vec![0; 4096];
                let read = socket.read(&mut head).await.unwrap_or(0);
                let _ = seen.send(String::from_utf8_lossy(&head[..read]).into_owned());
                let status = *status.borrow();
                let answer =
                    format!("HTTP/1.1 {status} x\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}");
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        (port, requests)
    }

    fn ways() -> (Arc<Links>, Observer) {
        let tap = Tap::new(&tap::Options::default()).unwrap();
        let (observer, _) = Observer::new(Arc::new(|_: &str, _: &[u8]| 0), tap::Keep::default());
        (Arc::new(Links::new(tap)), observer)
    }

    fn live(port: u16, folder: &std::path::Path) -> Arc<Live> {
        std::fs::write(folder.join("key"), "sk-test").unwrap();
        let path = folder.join("relay.toml");
        let text = format!(
            "[breaker]\nfailures = 2\n[[upstream]]\nname = \"a\"\nurl = \"http://127.0.0.1:{port}/v1\"\napis = [\"chat\"]\n\
             keys = [\"file:key\"]\nhealth = {{ every = \"1ms\", timeout = \"5s\" }}\n[[route]]\nmodel = \"m\"\ntiers = [[\"a\"]]\n"
        );
        std::fs::write(&path, text).unwrap();
        Arc::new(Live::start(&path, 1, Instant::now()).unwrap())
    }

    #[tokio::test]
    async fn checks_open_and_half_open_the_breaker() {
        let (status, answers) = tokio::sync::watch::channel(503);
        let (port, mut requests) = server(answers).await;
        let folder = tempfile::tempdir().unwrap();
        let live = live(port, folder.path());
        let (links, observer) = ways();
        let current = live.clone();
        let watching = tokio::spawn(watch(Arc::new(move || current.router()), links, observer));
        let first = requests.recv().await.unwrap().to_ascii_lowercase();
        assert!(first.starts_with("get /v1/models http/1.1\r\n"), "{first}");
        assert!(first.contains("authorization: bearer sk-test\r\n"));
        let state = |at| live.router().breakers(at)[0].state;
        let mut checks = 1;
        while !matches!(state(Instant::now()), State::Open(_)) {
            requests.recv().await.unwrap();
            checks += 1;
            assert!(checks < 20, "still {:?}", state(Instant::now()));
        }
        status.send(401).unwrap(); // it is there
        checks = 0;
        while state(Instant::now()) != State::HalfOpen {
            requests.recv().await.unwrap();
            checks += 1;
            assert!(checks < 20, "still {:?}", state(Instant::now()));
        }
        watching.abort();
    }

    #[tokio::test]
    async fn an_upstream_that_is_not_there_is_told_without_the_key() {
        let (_status, answers) = tokio::sync::watch::channel(200);
        let (port, _requests) = server(answers).await;
        let folder = tempfile::tempdir().unwrap();
        let router = live(port, folder.path()).router();
        let (links, observer) = ways();
        let upstream = &router.config().upstreams[0];
        let Pick::Key(key) = router.key(upstream, Instant::now()) else { panic!("no key") };
        let key = Some(&key.secret);
        assert_eq!(ask_with(upstream, key, "/models", &links, &observer).await.unwrap(), StatusCode::OK);
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let base = crate::observe::Upstream::parse(&format!("http://{closed}/v1")).unwrap();
        let gone = Upstream { base, name: "gone".into(), ..(**upstream).clone() };
        let error = ask_with(&gone, key, "/models", &links, &observer).await.unwrap_err();
        assert!(!error.is_empty() && !error.contains("sk-test"), "{error}");
    }
}
