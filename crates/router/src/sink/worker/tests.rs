use std::sync::Mutex;

use sseismo_trace::SignalState;
use tokio::time::{advance, sleep};

use super::*;
use crate::feed::Feed;
use crate::order::Order;
use crate::order::tests::order;
use crate::sink::Plan;
use crate::sink::lease::Restorer;

/// What a sink was called with: percents by upstream, signals' states.
type Calls = Arc<Mutex<Vec<String>>>;

/// A sink that writes down what it is called with, and fails while told so.
struct Noting {
    calls: Calls,
    broken: Arc<Mutex<bool>>,
}

impl Noting {
    fn note(&self, call: String) -> Result<(), Failed> {
        self.calls.lock().unwrap().push(call);
        if *self.broken.lock().unwrap() { Err(Failed::TimedOut) } else { Ok(()) }
    }
}

impl Sink for Noting {
    fn every(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn steer<'a>(&'a mut self, standing: &'a Standing) -> Doing<'a> {
        let shares: Vec<String> = standing.orders().map(|kept| kept.order.share.to_string()).collect();
        Box::pin(async move { self.note(shares.join(" ")) })
    }

    fn informs(&self) -> bool {
        true
    }

    fn inform<'a>(&'a mut self, signals: &'a [Arc<Signal>]) -> Doing<'a> {
        let states: Vec<_> = signals.iter().map(|signal| signal.state.name()).collect();
        Box::pin(async move { self.note(states.join(" ")) })
    }
}

/// The worker has its sink already.
#[derive(Debug)]
struct NoPlan;

impl Plan for NoPlan {
    fn sink(&self, _: &str, _: &Restorer) -> Result<Box<dyn Sink>, Failed> {
        Err(Failed::TimedOut)
    }
}

struct Stand {
    queue: mpsc::Sender<Notice>,
    calls: Calls,
    broken: Arc<Mutex<bool>>,
    metrics: Arc<Metrics>,
    running: tokio::task::JoinHandle<()>,
}

impl Stand {
    fn new() -> Self {
        let (calls, broken) = (Calls::default(), Arc::<Mutex<bool>>::default());
        let metrics = Arc::new(Metrics::new(&Feed::new(1, 1)));
        let sink = Noting { calls: Arc::clone(&calls), broken: Arc::clone(&broken) };
        let named = Named { name: "s".into(), efforts: false, plan: Arc::new(NoPlan) };
        let worker = Worker::new(&named, Box::new(sink), Arc::clone(&metrics));
        let (queue, waiting) = mpsc::channel(64);
        Self { queue, calls, broken, metrics, running: tokio::spawn(worker.run(waiting)) }
    }

    async fn order(&self, order: Order) {
        self.queue.send(Notice::Order(order)).await.unwrap();
    }

    /// What has been called since the last look; paused time stands still meanwhile.
    async fn calls(&self) -> Vec<String> {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_is_said_repeated_and_over() {
    let stand = Stand::new();
    let mut of_an_effort = order("b", Some("m"), 0.5, 25);
    of_an_effort.about.effort = Some("high".into());
    stand.order(of_an_effort).await;
    stand.order(order("a", None, 0.25, 25)).await;
    assert_eq!(stand.calls().await, ["0.25"], "and none about an effort, as this sink was told");
    for silence in [9, 8] {
        sleep(Duration::from_secs(silence)).await;
        assert!(stand.calls().await.is_empty());
        sleep(Duration::from_secs(2)).await;
        assert_eq!(stand.calls().await, ["0.25"]);
    }
    sleep(Duration::from_secs(5)).await;
    assert_eq!(stand.calls().await, [""], "its time is over");
    sleep(Duration::from_mins(5)).await;
    assert!(stand.calls().await.is_empty(), "nothing stands");
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_was_away_gets_what_is_right_now() {
    let stand = Stand::new();
    *stand.broken.lock().unwrap() = true;
    stand.order(order("a", None, 0.0, 600)).await;
    for share in [0.1, 0.2, 0.3] {
        sleep(Duration::from_secs(20)).await;
        stand.order(order("a", None, share, 600)).await;
    }
    let tries = stand.calls().await.len();
    // 0.1, 0.2 … 3.2 s, then every 5 to 7.5 s: far fewer than one a second.
    assert!((10..25).contains(&tries), "{tries}");
    *stand.broken.lock().unwrap() = false;
    sleep(Duration::from_secs(8)).await;
    assert_eq!(stand.calls().await, ["0.3"], "once, and only the latest");
    let counted = stand.metrics.encode(false);
    assert!(counted.contains(r#"sseismo_sink_calls_total{sink="s",outcome="ok"} 1"#), "{counted}");
    assert!(counted.contains(r#"sseismo_sink_behind{sink="s"} 0"#), "{counted}");
}

#[tokio::test(start_paused = true)]
async fn of_each_signal_the_latest_word_is_told() {
    let stand = Stand::new();
    let signal = |id: u64, state: SignalState| {
        let mut signal = (*order("a", None, 0.0, 1).signal).clone();
        (signal.id, signal.state) = (SignalId(id), state);
        Notice::Signal(Arc::new(signal))
    };
    *stand.broken.lock().unwrap() = true;
    stand.queue.send(signal(1, SignalState::Onset)).await.unwrap();
    stand.calls().await;
    stand.queue.send(signal(2, SignalState::Onset)).await.unwrap();
    stand.queue.send(signal(1, SignalState::Clear)).await.unwrap();
    *stand.broken.lock().unwrap() = false;
    advance(Duration::from_secs(1)).await;
    assert_eq!(stand.calls().await, ["onset clear"]);
}

#[tokio::test(start_paused = true)]
async fn the_end_takes_back_what_stands() {
    let stand = Stand::new();
    stand.order(order("a", None, 0.0, 600)).await;
    assert_eq!(stand.calls().await, ["0"]);
    let Stand { queue, calls, running, .. } = stand;
    drop(queue);
    running.await.unwrap();
    assert_eq!(*calls.lock().unwrap(), [""]);
}
