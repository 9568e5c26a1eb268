//! The feed of a running relay: server-sent events to updates, over interruptions.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use anyhow::{Context as _, bail};
use eventsource_stream::{Event, Eventsource as _};
use futures_util::StreamExt as _;

use super::Update;

/// Wait before a broken connection is made anew.
const AGAIN: Duration = Duration::from_secs(2);
/// The relay says something at least each 15 s.
const SILENCE: Duration = Duration::from_secs(45);

/// The feed's address for the address that the user named.
pub(super) fn address(target: &str) -> anyhow::Result<reqwest::Url> {
    let mut url: reqwest::Url = target.parse().with_context(|| format!("`{target}` is not a URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        bail!("`{target}` must begin with http:// or https://");
    }
    if url.path() == "/" {
        url.set_path("/signals");
    }
    url.set_query(Some("views"));
    Ok(url)
}

/// A client without a limit on a whole answer, for the feed has no end.
pub(super) fn client() -> anyhow::Result<reqwest::Client> {
    // Fails only when a provider is set already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("sseismo/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(5))
        .read_timeout(SILENCE)
        .build()
        .context("cannot set up the HTTP client")
}

/// Follows the feed until nobody wants updates; gives up only when the first try fails.
pub(super) fn follow(client: &reqwest::Client, url: &reqwest::Url, updates: &SyncSender<Update>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = updates.send(Update::End(Err(format!("cannot start the runtime: {error}"))));
            return;
        }
    };
    let mut last = None;
    let mut first = true;
    loop {
        let (spoke, why) = runtime.block_on(once(client, url, &mut last, updates));
        let told = if first && !spoke {
            updates.send(Update::End(Err(why)))
        } else {
            updates.send(Update::Status(format!("{why}; trying again")))
        };
        if told.is_err() || (first && !spoke) {
            return;
        }
        first = false;
        std::thread::sleep(AGAIN);
    }
}

/// One connection. Whether the feed spoke, and why it ended.
async fn once(
    client: &reqwest::Client,
    url: &reqwest::Url,
    last: &mut Option<String>,
    updates: &SyncSender<Update>,
) -> (bool, String) {
    let mut request = client.get(url.clone()).header("accept", "text/event-stream");
    if let Some(id) = &*last {
        request = request.header("last-event-id", id);
    }
    let response = match request.send().await {
        Ok(response) => response,
        Err(error) => return (false, format!("no relay answers at {}: {}", origin(url), plain(&error))),
    };
    let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
    if !response.status().is_success() || kind != Some("text/event-stream") {
        let status = response.status();
        return (
            false,
            format!("{} is no feed of signals ({status}): name the relay's admin address", origin(url)),
        );
    }
    let _ = updates.send(Update::Status(String::new()));
    let mut events = Box::pin(response.bytes_stream().eventsource());
    while let Some(event) = events.next().await {
        let Ok(event) = event else { return (true, "the feed broke off".to_owned()) };
        if !event.id.is_empty() {
            *last = Some(event.id.clone());
        }
        let update = match read(&event) {
            None => continue,
            Some(Ok(update)) => update,
            Some(Err(error)) => Update::Status(format!("an event could not be read: {error}")),
        };
        if updates.send(update).is_err() {
            return (true, String::new()); // nobody watches any more
        }
    }
    (true, "the relay closed the feed".to_owned())
}

/// One event; `None` for those of a later version.
fn read(event: &Event) -> Option<Result<Update, serde_json::Error>> {
    match event.event.as_str() {
        "view" => Some(serde_json::from_str(&event.data).map(Update::View)),
        "onset" | "refresh" | "clear" => Some(serde_json::from_str(&event.data).map(Update::Signal)),
        _ => None,
    }
}

fn origin(url: &reqwest::Url) -> String {
    url.origin().ascii_serialization()
}

/// The innermost cause of an HTTP error, which says the most in the fewest words.
fn plain(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_feed_is_found_from_the_admin_address() {
        let of = |target| address(target).map(|url| url.to_string());
        assert_eq!(of("http://127.0.0.1:8898").unwrap(), "http://127.0.0.1:8898/signals?views");
        assert_eq!(
            of("https://ops.example/sseismo/signals").unwrap(),
            "https://ops.example/sseismo/signals?views"
        );
        assert!(of("ftp://x").is_err() && of("http://").is_err());
    }

    #[test]
    fn events_of_later_versions_are_left_alone() {
        let event = |name: &str, data: &str| Event {
            event: name.to_owned(),
            data: data.to_owned(),
            ..Event::default()
        };
        assert!(read(&event("weather", "{}")).is_none());
        assert!(read(&event("view", "{}")).is_some_and(|read| read.is_err()));
    }
}
