use serde_json::Value;
use sseismo_simulator::timing::Process;
use sseismo_trace::{Api, Cause, Delta, Kind, Micros, Phase, Read, Summary, TimeSource, UtcMicros, Verdict};

use super::*;

/// Seeds on which nothing was tuned.
const SEEDS: std::ops::Range<u64> = 2_000..2_020;

struct Given {
    summary: Summary,
    deltas: Vec<Delta>,
    reads: Vec<Read>,
}

fn given(deltas: Vec<Delta>) -> Given {
    let summary = Summary { time_source: TimeSource::Socket, ..Summary::default() };
    Given { summary, deltas, reads: Vec::new() }
}

fn judge(streams: &[Given], preset: Preset) -> Finding {
    let mut score = Burst.open(&Options { preset });
    for pass in [Pass::Baseline, Pass::Groups] {
        for Given { summary, deltas, reads } in streams {
            score.push(pass, &Stream { summary, deltas, reads });
        }
        if !score.wants_second_pass() {
            break;
        }
    }
    score.finding(&Scope::default())
}

fn measured(streams: &[Given]) -> Finding {
    judge(streams, Preset::Measured)
}

fn number(finding: &Finding, path: &str) -> f64 {
    finding.evidence.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {finding:#?}"))
}

fn reasoning(seq: u32, at_ms: i64, tokens: u32) -> Delta {
    Delta {
        tokens: Some(tokens),
        ..Delta::new(seq, Kind::Reasoning, Phase::Reasoning, Some(Micros(at_ms * 1_000)))
    }
}

fn frames(times_and_tokens: impl IntoIterator<Item = (i64, u32)>) -> Vec<Delta> {
    (0..).zip(times_and_tokens).map(|(seq, (at, tokens))| reasoning(seq, at, tokens)).collect()
}

/// The write-up's log, as `data/golden/marked_stream.json` holds it, said `rounds` times.
fn literal_log(rounds: usize) -> Vec<Delta> {
    let gaps = [1_400, 1_301, 1_601, 1_201, 1_701].into_iter().cycle();
    let tokens = [67, 81, 45, 60, 52].into_iter().cycle();
    let mut at = 0;
    frames(gaps.zip(tokens).take(5 * rounds).map(|(gap, tokens)| {
        at += gap;
        (at, tokens)
    }))
}

#[test]
fn the_literal_log_of_the_write_up_fires() {
    for preset in [Preset::Measured, Preset::WriteUp] {
        let finding = judge(&[given(literal_log(3))], preset);
        assert_eq!(finding.verdict, Verdict::Present, "{preset:?}");
        assert_eq!(finding.cause, Some(Cause::Unknown));
        assert!(number(&finding, "/fine/token_weighted_gap_s") > 1.2);
    }
}

#[test]
fn the_write_up_asks_for_three_in_a_minute() {
    let rare = frames([(0, 60), (1_500, 60), (1_520, 3), (61_500, 60), (64_000, 3)]);
    assert_ne!(judge(&[given(rare)], Preset::WriteUp).verdict, Verdict::Present);
}

/// One stream a scope, 20 seeds each: honest processes are never called clustered, the clustered ones
/// get their word in at least 19 of 20. A token bucket at W2 holds 30 tokens a group: half is enough.
#[test]
fn processes_get_their_verdicts() {
    for process in Process::ALL {
        let verdicts: Vec<Verdict> =
            SEEDS.map(|seed| measured(&[given(process.deltas(seed))]).verdict).collect();
        let count = |verdict| verdicts.iter().filter(|&&got| got == verdict).count();
        let name = process.name();
        match process {
            _ if process.is_honest() => {
                assert_eq!(count(Verdict::None) + count(Verdict::TooFew), 20, "{name}: {verdicts:?}");
            }
            Process::Coalesced => assert!(count(Verdict::Coalesced) >= 19, "{name}: {verdicts:?}"),
            Process::TokenBucket => assert!(count(Verdict::Present) >= 10, "{name}: {verdicts:?}"),
            _ => assert!(count(Verdict::Present) >= 19, "{name}: {verdicts:?}"),
        }
    }
}

#[test]
fn a_cork_is_named_by_its_grid() {
    let corked = measured(&[given(Process::Coalesced.deltas(2_000))]);
    assert_eq!(corked.evidence["grid"]["kind"], "period");
    assert!((number(&corked, "/grid/ms") - 200.0).abs() < 3.0);
    assert!(!corked.verdict.is_alarm());
    assert_eq!(corked.cause, Some(Cause::Unknown), "no reads were seen");

    let one_size = measured(&[given(Process::Buffered.deltas(2_000))]);
    assert_eq!(one_size.cause, Some(Cause::Unknown), "as well so many events at a time as a full buffer");

    let buffered = measured(&[given(buffered())]);
    assert_eq!(buffered.evidence["grid"]["kind"], "bytes");
    assert!((number(&buffered, "/grid/bytes") - 4_200.0).abs() < 150.0);
    assert_eq!(buffered.cause, Some(Cause::ProxyBuffering));
    assert!(buffered.next_step.contains("X-Accel-Buffering"));
}

/// Events of 100 to 400 bytes each 100 ms, behind a buffer of 4 KiB.
fn buffered() -> Vec<Delta> {
    let (mut deltas, mut held, mut bytes) = (Vec::new(), Vec::new(), 0);
    for seq in 0..600_u32 {
        // Any numbers without a pattern do: Knuth's multiplicative hash.
        let wire_bytes = 100 + (seq.wrapping_mul(2_654_435_761) >> 16) % 301;
        bytes += wire_bytes;
        held.push(Delta { wire_bytes, ..reasoning(seq, i64::from(seq) * 100, 3) });
        if bytes >= 4_096 {
            let released = held.last().and_then(|last| last.t);
            deltas.extend(held.drain(..).map(|delta| Delta { t: released, ..delta }));
            bytes = 0;
        }
    }
    deltas
}

/// Every event of a 200 ms cork in one drained, prompt read: what HAProxy's default does.
fn corked_with_reads(lateness: impl Fn(&mut Read)) -> Given {
    let mut stream = given(Process::Coalesced.deltas(2_000));
    let mut last = None;
    for delta in &mut stream.deltas {
        let at = delta.t.unwrap();
        if last.is_none_or(|last| at.since(last) > Micros(1_000)) {
            let read_id = u32::try_from(stream.reads.len()).unwrap();
            let mut read = Read { read_id, t: at, bytes: 900, drained: true, ..Read::default() };
            lateness(&mut read);
            stream.reads.push(read);
        }
        last = Some(at);
        delta.first_read = Some(stream.reads.last().unwrap().read_id);
    }
    stream
}

#[test]
fn drained_prompt_reads_prove_a_cork_and_late_ones_our_own_reader() {
    let prompt = measured(&[corked_with_reads(|read| read.kernel_lag = Some(Micros(30)))]);
    assert_eq!((prompt.verdict, prompt.cause), (Verdict::Coalesced, Some(Cause::TcpCoalescing)));
    assert!(prompt.next_step.contains("option http-no-delay"));

    let late = measured(&[corked_with_reads(|read| read.idle = Some(Micros(150_000)))]);
    assert_eq!((late.verdict, late.cause), (Verdict::Coalesced, Some(Cause::SlowReader)));

    let unknown = measured(&[corked_with_reads(|_| {})]);
    assert_eq!(unknown.cause, Some(Cause::Unknown));
    assert!(unknown.next_step.contains("kernel_lag_us"), "{}", unknown.next_step);
}

#[test]
fn the_cause_of_a_stall_follows_the_columns() {
    let with = |change: &dyn Fn(&mut Given)| {
        let mut stream = given(literal_log(3));
        stream.summary.started_at = Some(UtcMicros(1_700_000_000_000_000));
        change(&mut stream);
        measured(&[stream]).cause.unwrap()
    };
    assert_eq!(with(&|_| {}), Cause::Unknown);
    assert_eq!(with(&|stream| stream.summary.time_source = TimeSource::Server), Cause::UpstreamBatching);
    assert_eq!(with(&|stream| stream.summary.attempt = Some(2)), Cause::RetryAmplification);
    assert_eq!(with(&|stream| stream.summary.tcp_retrans = Some(30)), Cause::NetworkLoss);
    assert_eq!(with(&|stream| stream.summary.tcp_retrans = Some(2)), Cause::Unknown, "two cannot explain 14");
    let pings = |stream: &mut Given| {
        let pings = stream.deltas.clone().into_iter().map(|delta| Delta {
            kind: Kind::Ping,
            tokens: None,
            t: delta.t.map(|at| Micros(at.0 - 500_000)),
            ..delta
        });
        stream.deltas = pings.zip(stream.deltas.clone()).flat_map(|(ping, delta)| [ping, delta]).collect();
    };
    assert_eq!(with(&pings), Cause::UpstreamBatching);
    // A keep-alive that came with the content may have been held with it.
    let held_pings = |stream: &mut Given| {
        pings(stream);
        for pair in stream.deltas.chunks_exact_mut(2) {
            pair[0].t = pair[1].t;
        }
    };
    assert_eq!(with(&held_pings), Cause::Unknown);
}

/// Prompt, drained reads, large or small: a hop that nobody announces would have left the same.
#[test]
fn reads_alone_do_not_tell_the_upstream_from_a_hop() {
    for bytes in [900, 16_384] {
        let mut stream = given(literal_log(3));
        for (read_id, delta) in (0..).zip(&mut stream.deltas) {
            let (t, kernel_lag) = (delta.t.unwrap(), Some(Micros(30)));
            stream.reads.push(Read { read_id, t, bytes, kernel_lag, drained: true, ..Read::default() });
            delta.first_read = Some(read_id);
        }
        let finding = measured(&[stream]);
        assert_eq!((finding.verdict, finding.cause), (Verdict::Present, Some(Cause::Unknown)));
        assert!(finding.evidence["missing"][0].as_str().unwrap().starts_with("events.provider_ts"));
        assert!(finding.next_step.contains("sseismo compare"), "{}", finding.next_step);
    }
}

#[test]
fn a_neighbour_that_was_throttled_explains_a_cooldown() {
    let at = |seconds: i64| Some(UtcMicros((1_700_000_000 + seconds) * 1_000_000));
    let mut stalled = given(literal_log(3));
    stalled.summary.started_at = at(0);
    let mut refused = given(Vec::new());
    (refused.summary.started_at, refused.summary.status) = (at(30), Some(429));
    assert_eq!(measured(&[stalled, refused]).cause, Some(Cause::RateLimitCooldown));
}

#[test]
fn a_whole_answer_in_one_read_was_held() {
    let finding = measured(&[whole(None, None)]);
    assert_eq!((finding.verdict, finding.cause), (Verdict::HeldWhole, Some(Cause::Unknown)));
    assert!(finding.next_step.contains("gzip off"));
    assert!(finding.evidence["missing"][0].as_str().unwrap().contains("direct capture"), "{finding:#?}");
}

/// Three hundred events in one read after 6.1 s.
fn whole(encoding: Option<&str>, server: Option<&str>) -> Given {
    let mut stream =
        given((0..300).map(|seq| Delta { first_read: Some(4), ..reasoning(seq, 6_123, 3) }).collect());
    stream.summary.content_encoding = encoding.map(str::to_owned);
    stream.summary.server = server.map(str::to_owned);
    stream.reads.push(Read { read_id: 4, t: Micros(6_123_000), drained: true, ..Read::default() });
    stream
}

#[test]
fn a_compressor_that_held_an_answer_is_named_as_far_as_it_announces_itself() {
    let said = |stream: Given| {
        let finding = measured(&[stream]);
        assert_eq!(finding.verdict, Verdict::HeldWhole);
        finding
    };
    let nginx = said(whole(Some("gzip"), Some("nginx/1.22.1")));
    assert_eq!(nginx.cause, Some(Cause::ProxyBuffering));
    assert_eq!(
        (&nginx.evidence["held_encodings"]["gzip"], nginx.evidence["missing"][0].as_str()),
        (&Value::from(1), None)
    );
    assert_eq!(nginx.evidence["causes"]["proxy-buffering"], 1);
    assert!(nginx.next_step.contains("gzip off") && nginx.notes.iter().any(|note| note.contains("(gzip)")));

    let nobody = said(whole(Some("br"), Some("uvicorn")));
    assert_eq!(nobody.cause, Some(Cause::Unknown));
    assert!(nobody.evidence["missing"][0].as_str().unwrap().starts_with("streams.via"), "{nobody:#?}");
    assert!(nobody.next_step.contains("compression off"), "{}", nobody.next_step);

    let plain = said(whole(None, Some("nginx")));
    assert_eq!(plain.cause, Some(Cause::Unknown), "an honest proxy in front of who knows what");

    let mut late = whole(Some("gzip"), Some("nginx"));
    late.reads[0].idle = Some(Micros(6_000_000));
    assert_eq!(said(late).cause, Some(Cause::SlowReader));
}

/// The sender's clock tells what compression does not: that it wrote over time, or all at once.
#[test]
fn the_senders_clock_decides_who_held_an_answer() {
    let stamped = |step: i64, server| {
        let mut stream = whole(None, server);
        for (i, delta) in (0..).zip(&mut stream.deltas) {
            delta.provider_ts = Some(1_700_000_000_000_123 + i * step);
        }
        measured(&[stream]).cause.unwrap()
    };
    assert_eq!(stamped(20_000, Some("cloudflare")), Cause::ProxyBuffering);
    assert_eq!(stamped(20_000, None), Cause::Unknown);
    assert_eq!(stamped(10, Some("cloudflare")), Cause::UpstreamBatching);
}

#[test]
fn sources_without_times_name_the_missing_column() {
    let mut untimed = given(literal_log(3));
    untimed.deltas.iter_mut().for_each(|delta| delta.t = None);
    let finding = measured(&[untimed]);
    assert_eq!(finding.verdict, Verdict::NotMeasurable);
    assert!(finding.notes[0].contains("events.t_us"));

    let counts_only = measured(&[given(Vec::new())]);
    assert_eq!(counts_only.verdict, Verdict::NotMeasurable);
    assert!(counts_only.notes[0].contains("events/"));
    // A capture of failures has none either: to capture again is not enough.
    assert!(counts_only.next_step.contains("streamed answers"), "{}", counts_only.next_step);
}

#[test]
fn reported_and_estimated_tokens_do_not_mix() {
    let mut estimated = literal_log(3);
    for delta in &mut estimated {
        (delta.tokens, delta.tokens_est) = (None, delta.tokens);
    }
    let finding = measured(&[given(estimated.clone())]);
    assert_eq!(finding.evidence["unit"], "estimated tokens");
    assert_eq!(finding.verdict, Verdict::Present);

    // One stream with each: neither serves 19 of 20 events, and nobody adds them up.
    let mixed = measured(&[given(literal_log(3)), given(estimated)]);
    assert_eq!(mixed.evidence["unit"], "events");
}

#[test]
fn characters_stand_in_for_tokens_and_say_so() {
    let mut deltas = literal_log(3);
    for delta in &mut deltas {
        (delta.chars, delta.tokens) = (delta.tokens.unwrap() * 4, None);
    }
    let finding = measured(&[given(deltas)]);
    assert_eq!((finding.verdict, &finding.evidence["unit"]), (Verdict::Present, &Value::from("characters")));
    assert!(finding.notes.iter().any(|note| note.contains("characters")));
}

#[test]
fn honest_large_frames_of_gemini_are_no_bursts() {
    let deltas = frames((0..60).map(|i| (i * 1_100, 85 + u32::try_from(i % 10).unwrap())));
    let mut stream = given(deltas);
    stream.summary.api = Some(Api::GenerateContent);
    assert_eq!(measured(&[stream]).verdict, Verdict::None);
}

#[test]
fn absence_says_what_it_would_have_seen() {
    let finding = measured(&[given(Process::Steady.deltas(2_000))]);
    assert_eq!(finding.verdict, Verdict::None);
    let share = number(&finding, "/detectable_share");
    assert!((0.001..0.01).contains(&share), "600 gaps, two hits: {share}");
    assert!(finding.notes.iter().any(|note| note.contains("80 % power")));
}

#[test]
fn few_gaps_are_too_few() {
    let finding = measured(&[given(frames((0..20).map(|i| (i * 50, 3))))]);
    assert_eq!((finding.verdict, finding.n), (Verdict::TooFew, 19));
}
