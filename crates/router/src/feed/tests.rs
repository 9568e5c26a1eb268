use bytes::Bytes;
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use sseismo_trace::{Detail, Dim, Evidence, Micros, Scope};

use super::*;

fn signal(id: u64, state: SignalState, at: i64) -> Signal {
    Signal {
        id: SignalId(id),
        target: Scope::default().with(Dim::Upstream, "api.example"),
        detail: Detail::Burst { gap_s: 1.4, tokens: 60.0 },
        cause: None,
        state,
        strength: 0.5,
        evidence: Evidence::default(),
        at: UtcMicros(at),
        ttl: Micros(10),
    }
}

fn ids(items: &[Arc<Item>]) -> Vec<u64> {
    items.iter().map(|item| item.signal.id.0).collect()
}

/// What can be had without waiting: sequence numbers.
fn seqs(subscription: &mut Subscription) -> Vec<u64> {
    let mut seen: Vec<u64> =
        std::mem::take(&mut subscription.missed).iter().map(|item| item.id.seq).collect();
    while let Ok(item) = subscription.live.try_recv() {
        seen.push(item.id.seq);
    }
    seen
}

#[test]
fn what_is_active_is_neither_cleared_nor_run_out() {
    let feed = Feed::new(1, 8);
    for (id, state, at) in [
        (1, SignalState::Onset, 0),
        (2, SignalState::Onset, 0),
        (3, SignalState::Onset, 0),
        (1, SignalState::Clear, 4),
    ] {
        feed.publish(signal(id, state, at));
    }
    feed.publish(signal(3, SignalState::Refresh, 8));
    assert_eq!(ids(&feed.active()), [2, 3]);
    feed.expire(UtcMicros(11));
    assert_eq!(ids(&feed.active()), [3], "2 ran out at 10, 3 was refreshed and lasts until 18");
}

#[test]
fn an_id_of_another_run_counts_as_none() {
    let feed = Feed::new(7, 8);
    feed.publish(signal(1, SignalState::Onset, 0));
    feed.publish(signal(2, SignalState::Onset, 0));
    let after = |text: &str| seqs(&mut feed.subscribe(EventId::parse(text)));
    assert_eq!(after("7-0"), [1]);
    assert_eq!(after("7-1"), [0u64; 0]);
    for unknown in ["8-0", "7-9", "seven", ""] {
        assert_eq!(after(unknown), [0, 1], "{unknown}");
    }
    let id = EventId { run: 0xabc, seq: 12 };
    assert_eq!(EventId::parse(&id.to_string()), Some(id));
}

#[test]
fn what_is_lost_for_good_is_made_up_for_by_what_is_active() {
    let feed = Feed::new(1, 2);
    for id in 0..5 {
        feed.publish(signal(id, SignalState::Onset, 0));
    }
    feed.publish(signal(1, SignalState::Clear, 0));
    // Kept are 4 and 5; of those before, 1 is over.
    assert_eq!(seqs(&mut feed.subscribe(Some(EventId { run: 1, seq: 0 }))), [0, 2, 3, 4, 5]);
}

#[tokio::test]
async fn a_subscriber_that_falls_behind_is_dropped_and_the_feed_goes_on() {
    let feed = Feed::new(1, 4);
    let (mut slow, mut quick) = (feed.subscribe(None), feed.subscribe(None));
    for id in 0..20 {
        feed.publish(signal(id, SignalState::Onset, 0));
        assert_eq!(quick.next().await.unwrap().id.seq, id);
    }
    assert_eq!(slow.next().await.unwrap_err(), Ended::TooSlow(16));
    assert_eq!((feed.too_slow(), feed.subscribers()), (1, 2));
    drop((slow, quick));
    assert_eq!(feed.subscribers(), 0);
}

async fn piece(body: &mut EventBody) -> Option<String> {
    let frame = body.frame().await?;
    let Ok(frame) = frame;
    frame.into_data().ok().map(|bytes: Bytes| String::from_utf8(bytes.into()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn events_carry_id_name_and_json_and_silence_is_filled() {
    let feed = Feed::new(0x2a, 8);
    feed.show(r#"{"scopes":[]}"#);
    let mut body = feed.events(None, true).unwrap();
    assert!(feed.has_viewers());
    assert_eq!(piece(&mut body).await.unwrap(), "retry: 2000\n\n");
    assert_eq!(piece(&mut body).await.unwrap(), "event: view\ndata: {\"scopes\":[]}\n\n");
    feed.publish(signal(0xff, SignalState::Onset, 5));
    let text = piece(&mut body).await.unwrap();
    let json = text.strip_prefix("id: 2a-0\nevent: onset\ndata: ").unwrap().strip_suffix("\n\n").unwrap();
    assert_eq!(serde_json::from_str::<Signal>(json).unwrap(), signal(0xff, SignalState::Onset, 5));
    assert_eq!(piece(&mut body).await.unwrap(), ": keep-alive\n\n", "after 15 s of paused time");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_loses_its_place() {
    let feed = Feed::new(1, 8);
    let body = feed.events(None, false).unwrap();
    for id in 0..40 {
        feed.publish(signal(id, SignalState::Onset, 0));
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(std::time::Duration::from_secs(31)).await;
    assert_eq!(feed.subscribers(), 0);
    drop(body);
    let bodies: Vec<_> = (0..MAX_SUBSCRIBERS).map(|_| feed.events(None, false).unwrap()).collect();
    assert!(feed.events(None, false).is_none(), "no more than {MAX_SUBSCRIBERS}");
    drop(bodies);
    tokio::task::yield_now().await;
    assert!(feed.events(None, false).is_some());
}

proptest! {
    /// However a reader comes and goes, with the id of what it saw last: as long as it is away for no more
    /// than the feed keeps, it sees every signal after its first exactly once and in order.
    #[test]
    fn a_reader_that_comes_back_in_time_misses_nothing(away in prop::collection::vec(0_u64..8, 1..20)) {
        let feed = Feed::new(3, 8);
        feed.publish(signal(0, SignalState::Onset, 0));
        let mut seen = seqs(&mut feed.subscribe(None));
        let mut published = 1;
        for missed in away {
            for _ in 0..missed {
                feed.publish(signal(published % 3, SignalState::Refresh, 0));
                published += 1;
            }
            let last = EventId { run: 3, seq: *seen.last().unwrap() };
            seen.extend(seqs(&mut feed.subscribe(Some(last))));
        }
        prop_assert_eq!(seen, (0..published).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_active_stays_bounded_and_what_ends_first_makes_room() {
    let feed = Feed::new(1, 8);
    for id in 0..MAX_ACTIVE as u64 + 5 {
        feed.publish(signal(id, SignalState::Onset, id.cast_signed()));
    }
    let active = feed.active();
    assert_eq!((active.len(), active[0].signal.id), (MAX_ACTIVE, SignalId(5)));
}
