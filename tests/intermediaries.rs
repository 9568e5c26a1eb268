//! Real intermediaries between a paced source and our tap: each leaves its mark in the stored columns, and
//! `sseismo analyze` and `sseismo compare` read it there, without knowing what was on the way.

#![expect(clippy::disallowed_methods, reason = "the paced source stamps its events as an engine does")]

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use sseismo_tests::{Listening, Peer, Program, free_port, json, needs, root};

#[path = "intermediaries/lab.rs"]
mod lab;
#[path = "intermediaries/source.rs"]
mod source;

use lab::{Capture, Lab};
use source::{Source, Speaks};

/// `sseismo simulate` at an even pace.
fn steady() -> Listening {
    let scenario = root().join("tests/intermediaries/steady.toml");
    Listening::start(&["simulate", &scenario.display().to_string()])
}

fn responses(port: u16) -> String {
    format!("http://127.0.0.1:{port}/v1/responses")
}

fn address(source: &Listening) -> &str {
    source.url.trim_start_matches("http://")
}

/// Verdict and cause.
fn said(finding: &Value) -> (&str, Option<&str>) {
    (finding["verdict"].as_str().expect("a verdict"), finding["cause"].as_str())
}

fn missing(finding: &Value) -> String {
    finding["evidence"]["missing"].to_string()
}

/// Captures every way at once. The first is the control: while the machine is too busy for even a direct
/// stream to arrive evenly, nothing can be said of an intermediary, and all is captured anew, twice at most.
fn captured<const N: usize>(lab: &Lab, ways: &[(&str, String, &[&str]); N]) -> [Value; N] {
    let once = || {
        let captures = ways.each_ref().map(|(name, url, headers)| lab.capture(name, url, headers, 2));
        captures.map(Capture::judged)
    };
    let is_quiet = |findings: &[Value; N]| said(&findings[0]) == ("none", None);
    let first = once();
    if is_quiet(&first) {
        return first;
    }
    let second = once();
    if is_quiet(&second) { second } else { once() }
}

/// HAProxy holds small writes for about 200 ms unless told otherwise; against a direct capture the
/// comparison names it.
#[test]
fn haproxy_corks_by_default_and_not_with_http_no_delay() {
    let Some(haproxy) = needs(Peer::Debian("haproxy", "haproxy")) else { return };
    let (lab, source) = (Lab::new(), steady());
    let (corked, prompt) = (free_port(), free_port());
    let mut command = Command::new(haproxy);
    command.arg("-db").arg("-f").arg(root().join("tests/intermediaries/haproxy.cfg"));
    command
        .env("SOURCE", address(&source))
        .env("CORKED", corked.to_string())
        .env("PROMPT", prompt.to_string());
    let _haproxy = Program::start(&mut command, &[corked, prompt]);

    let direct = format!("{}/v1/responses", source.url);
    let [direct, prompt, corked] = captured(
        &lab,
        &[
            ("direct", direct, &[]),
            ("http-no-delay", responses(prompt), &[]),
            ("haproxy", responses(corked), &[]),
        ],
    );

    assert_eq!((said(&direct), said(&prompt)), (("none", None), ("none", None)));
    assert_eq!(said(&corked), ("coalesced", Some("tcp-coalescing")));
    assert_eq!(corked["evidence"]["grid"]["kind"], "period");
    let period = corked["evidence"]["grid"]["ms"].as_f64().expect("a period");
    assert!((190.0..260.0).contains(&period), "{period} ms");
    assert!(corked["next_step"].as_str().is_some_and(|step| step.contains("option http-no-delay")));

    let path = |name: &str| lab.path(name).display().to_string();
    let (direct, corked, prompt) = (path("direct"), path("haproxy"), path("http-no-delay"));
    let compared = |first: &str, second: &str| json(&["compare", first, second, "--json"]);
    for report in [compared(&direct, &corked), compared(&corked, &direct)] {
        assert_eq!(report["hop"]["group"], corked.as_str(), "{report:#}");
    }
    assert_eq!(compared(&direct, &prompt)["hop"], Value::Null);
}

/// gzip swallows the whole stream; buffering, against common belief, does not join what trickles.
#[test]
fn nginx_holds_a_stream_with_gzip_and_not_with_buffering() {
    let Some(nginx) = needs(Peer::Debian("nginx", "nginx")) else { return };
    let (lab, source) = (Lab::new(), steady());
    let [gzip, buffered, unbuffered] = [(); 3].map(|()| free_port());
    let folder = lab.path("nginx");
    std::fs::create_dir(&folder).expect("a folder");
    let form = std::fs::read_to_string(root().join("tests/intermediaries/nginx.conf")).expect("the form");
    let config = form
        .replace("FOLDER", &folder.display().to_string())
        .replace("SOURCE", address(&source))
        .replace("GZIP", &gzip.to_string())
        .replace("UNBUFFERED", &unbuffered.to_string())
        .replace("BUFFERED", &buffered.to_string());
    let path = folder.join("nginx.conf");
    std::fs::write(&path, config).expect("written");
    let mut command = Command::new(nginx);
    command.arg("-c").arg(&path).arg("-e").arg(folder.join("error.log"));
    let _nginx = Program::start(&mut command, &[gzip, buffered, unbuffered]);

    let direct = format!("{}/v1/responses", source.url);
    let [direct, gzip, buffered, unbuffered] = captured(
        &lab,
        &[
            ("direct", direct, &[]),
            ("gzip", responses(gzip), &["accept-encoding: gzip"]),
            ("proxy_buffering-on", responses(buffered), &[]),
            ("proxy_buffering-off", responses(unbuffered), &[]),
        ],
    );
    assert_eq!(said(&direct), ("none", None));

    // nginx writes its name into `server`, and the answer says that it was compressed.
    assert_eq!(said(&gzip), ("held-whole", Some("proxy-buffering")), "{gzip:#}");
    assert_eq!(gzip["evidence"]["held_encodings"]["gzip"], gzip["evidence"]["held_whole"]);
    assert!(gzip["next_step"].as_str().is_some_and(|step| step.contains("gzip off")));
    assert_eq!((said(&buffered), said(&unbuffered)), (("none", None), ("none", None)));
}

/// Our own process is stopped and continued in a rhythm while the source goes on evenly: to the parser it
/// looks like a stall of the upstream, the lag columns tell. Kernel stamps alone would not, for the last
/// byte of a read is always a fresh one.
#[test]
fn a_slow_reader_of_our_own_is_named() {
    let (lab, source) = (Lab::new(), steady());
    let mut capture = lab.capture("stopped", &format!("{}/v1/responses", source.url), &[], 1);
    let id = capture.child.id().to_string();
    let signal = |name: &str| Command::new("kill").args([name, &id]).status().expect("kill");
    let wait = |ms| std::thread::sleep(Duration::from_millis(ms));
    // Let it send its requests first.
    wait(400);
    while capture.child.try_wait().expect("its state").is_none() {
        signal("-STOP");
        wait(1_200);
        signal("-CONT");
        wait(60);
    }
    let finding = capture.judged();
    assert_eq!(said(&finding), ("present", Some("slow-reader")), "{finding:#}");
    assert!(finding["next_step"].as_str().is_some_and(|step| step.contains("our own side")));
}

/// Sixty events at once each 1.5 s: written so by the source, or held by a hop that nobody announces. Only
/// the sender's clock and keep-alives tell which; without them the cause stays open and says why.
#[test]
fn a_hold_on_the_way_is_told_from_the_senders_batching_where_the_columns_allow() {
    let lab = Lab::new();
    let source = |speaks, batches| Source { speaks, batches, keepalives: false, via: false };
    let batching = |speaks| source(speaks, true);
    let smooth = |speaks| source(speaks, false);
    let start = |name: &str, source: Source, held: bool| lab.capture(name, &source.url(held), &[], 1);
    let captures = [
        start("chat-batched", batching(Speaks::Chat), false),
        start("chat-held", smooth(Speaks::Chat), true),
        start("ollama-batched", batching(Speaks::Ollama), false),
        start("ollama-held", smooth(Speaks::Ollama), true),
        start("ollama-held-via", Source { via: true, ..smooth(Speaks::Ollama) }, true),
        start("keepalives-batched", Source { keepalives: true, ..batching(Speaks::Chat) }, false),
        start("keepalives-held", Source { keepalives: true, ..smooth(Speaks::Chat) }, true),
        start("ollama-smooth", smooth(Speaks::Ollama), false),
    ];
    let findings = captures.map(Capture::judged);
    let [
        chat_batched,
        chat_held,
        ollama_batched,
        ollama_held,
        ollama_via,
        kept_batched,
        kept_held,
        undisturbed,
    ] = &findings;
    assert_eq!(said(undisturbed), ("none", None));
    for same in [chat_batched, chat_held, kept_held] {
        assert_eq!(said(same), ("present", Some("unknown")), "{same:#}");
        assert!(missing(same).contains("events.provider_ts"), "{same:#}");
    }
    assert_eq!(said(ollama_batched), ("present", Some("upstream-batching")), "{ollama_batched:#}");
    assert_eq!(said(kept_batched), ("present", Some("upstream-batching")), "{kept_batched:#}");
    assert_eq!(said(ollama_held), ("present", Some("unknown")), "{ollama_held:#}");
    assert!(missing(ollama_held).contains("a direct capture"), "{ollama_held:#}");
    assert_eq!(said(ollama_via), ("present", Some("proxy-buffering")), "{ollama_via:#}");
}
