//! Shard pinning: prompts of 150 to 220 tokens all go to one shard of the primary and queue there. The relay keeps
//! the write-ups' 80 to 260 tokens off it; other sizes stay.

use sseismo_trace::Summary;

use super::lab::{Case, Line};

/// How a healthy upstream answers.
pub(crate) const ANSWERS: &str = "[answer]
reasoning = { median = 15, sigma = 0.3 }
output = { median = 6, sigma = 0.3 }
first-token = \"280ms\"
first-token-sigma = 0.2
[[behaviour]]
kind = \"steady\"
gap = \"10ms\"
";

fn case() -> Case {
    Case {
        load: "[load]\narrivals = { rate = 20 }\nsessions = 100000\nprompt = { median = 210, sigma = 0.3 }\n"
            .to_owned(),
        requests: 2_700,
        primary: format!(
            "{ANSWERS}[[behaviour]]\nkind = \"shard-pinning\"\nwindow = [150, 220]\nshards = 12\nslots = 3\n"
        ),
        fallback: ANSWERS.to_owned(),
        policies: "[route.size_window]\npreset = \"write-up\"\nact = ACT\n",
        ..Case::default()
    }
}

/// Prompts that the primary pins, as it counts them: without the some 105 bytes of JSON around the text.
pub(crate) fn pinned(summary: &Summary, _: f64) -> bool {
    let text = summary.prompt_bytes.unwrap_or(0).saturating_sub(105);
    (150..=220).contains(&(text * 27 / 100))
}

/// Runs it.
pub(crate) fn lines() -> Vec<Line> {
    let ran = case().run();
    let table = ran.compare(pinned);
    let (p50, p99) = (table.quantile("t_first_reasoning", 0.5), table.quantile("t_first_reasoning", 0.99));
    for figures in [&p50, &p99] {
        let [healthy, direct, telling, acting] = figures.all();
        assert!(direct > 1.5 * healthy && telling > 1.5 * healthy, "the primary queues: {figures:?}");
        assert!(acting < 1.25 * healthy, "back to what is healthy: {figures:?}");
    }
    let steering = ran.steering();
    vec![
        p50.line("shard pinning", "first token, p50, of 150–220-token prompts", &steering),
        p99.line("", "first token, p99, of the same", ""),
    ]
}
