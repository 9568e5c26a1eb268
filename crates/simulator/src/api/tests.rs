use std::path::Path;

use sseismo_trace::{Api, Kind, Micros};

use super::*;
use crate::scenario::Scenario;
use crate::upstream::{Truth, Upstream};

const APIS: [Api; 3] = [Api::Responses, Api::Chat, Api::Messages];

fn ask(api: Api, streamed: bool) -> Ask {
    Ask {
        number: 0,
        at: Micros(0),
        api,
        streamed,
        include_usage: true,
        wants_json: false,
        model: "m".into(),
        effort: None,
        prompt_bytes: 100,
        prompt_tokens: 27,
        numeric_share: 0.0,
        max_tokens: None,
        amounts: None,
        session: None,
        turn: None,
        attempt: 1,
    }
}

fn run(behaviour: &str, ask: Ask) -> (Script, Truth) {
    let text = format!("[answer]\ncached = 0.5\n{behaviour}");
    Upstream::new(&Scenario::parse(&text, Path::new(".")).unwrap(), 1_767_225_600).answer(ask)
}

/// The data lines of a stream, read by nothing but line ends.
fn data(script: &Script) -> Vec<String> {
    let body = String::from_utf8(script.body.clone()).unwrap();
    body.lines().filter_map(|line| line.strip_prefix("data: ").map(str::to_owned)).collect()
}

fn values(script: &Script) -> Vec<Value> {
    data(script).iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Reasoning tokens, all output tokens, prompt tokens as an answer's usage names them.
fn usage(api: Api, usage: &Value, start: &Value) -> [u64; 3] {
    let at = |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_u64).unwrap();
    match api {
        Api::Chat => [
            at(usage, "/completion_tokens_details/reasoning_tokens"),
            at(usage, "/completion_tokens"),
            at(usage, "/prompt_tokens"),
        ],
        Api::Messages => [
            at(usage, "/output_tokens_details/thinking_tokens"),
            at(usage, "/output_tokens"),
            at(start, "/input_tokens") + at(start, "/cache_read_input_tokens"),
        ],
        _ => [
            at(usage, "/output_tokens_details/reasoning_tokens"),
            at(usage, "/output_tokens"),
            at(usage, "/input_tokens"),
        ],
    }
}

#[test]
fn streamed_usage_is_what_was_generated() {
    for api in APIS {
        let (script, truth) = run("", ask(api, true));
        let values = values(&script);
        let (last, start) = match api {
            Api::Chat => (values.last().unwrap()["usage"].clone(), Value::Null),
            Api::Messages => {
                (values[values.len() - 2]["usage"].clone(), values[0]["message"]["usage"].clone())
            }
            _ => (values.last().unwrap()["response"]["usage"].clone(), Value::Null),
        };
        let expected = [truth.reasoning_tokens, truth.reasoning_tokens + truth.output_tokens, 27];
        assert_eq!(usage(api, &last, &start), expected, "{api:?}");
        let said: u32 = script.events.iter().filter(|e| e.kind == Kind::Reasoning).map(|e| e.tokens).sum();
        assert_eq!(u64::from(said), truth.reasoning_tokens, "{api:?}");
        assert_eq!(script.events.last().unwrap().kind, Kind::Done, "{api:?}");
        assert_eq!(script.events.last().unwrap().end, script.body.len());
    }
}

#[test]
fn whole_answers_carry_the_same_usage() {
    for api in APIS {
        let (script, truth) = run("", ask(api, false));
        let body: Value = serde_json::from_slice(&script.body).unwrap();
        let expected = [truth.reasoning_tokens, truth.reasoning_tokens + truth.output_tokens, 27];
        assert_eq!(usage(api, &body["usage"], &body["usage"]), expected, "{api:?}");
        assert!(script.events.is_empty() && script.writes.len() == 1);
        assert!(body.to_string().contains("42."), "{api:?}");
    }
}

#[test]
fn an_error_event_ends_a_stream_without_its_terminal_event() {
    for (api, name) in APIS.into_iter().zip(["response.failed", "error", "error"]) {
        for after in [0, 3] {
            let behaviour = format!("[[behaviour]]\nkind = 'error-event'\nafter = {after}");
            let (script, truth) = run(&behaviour, ask(api, true));
            let last = values(&script).pop().unwrap();
            let is_error = last["type"] == name || last.get("error").is_some();
            assert!(is_error, "{api:?}: {last}");
            assert_eq!(truth.outcome, sseismo_trace::Outcome::Failed);
            assert_eq!(script.events.len() == 1, after == 0, "{api:?}");
        }
    }
}

#[test]
fn a_malformed_line_is_no_json_and_the_stream_goes_on() {
    for api in APIS {
        let (script, truth) = run("[[behaviour]]\nkind = 'malformed'", ask(api, true));
        let broken = data(&script)
            .iter()
            .filter(|l| serde_json::from_str::<Value>(l).is_err() && *l != "[DONE]")
            .count();
        assert_eq!(broken, 1, "{api:?}");
        assert_eq!(truth.outcome, sseismo_trace::Outcome::Completed);
    }
}

#[test]
fn json_is_json_unless_it_is_broken_on_purpose() {
    let json = Ask { wants_json: true, ..ask(Api::Chat, false) };
    let content = |script: &Script| {
        let body: Value = serde_json::from_slice(&script.body).unwrap();
        body["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    let (script, _) = run("", json.clone());
    assert_eq!(serde_json::from_str::<Value>(&content(&script)).unwrap()["answer"], 42);
    let behaviour = "[[behaviour]]\nkind = 'saturation'\ntokens = 0\nnumeric-share = 0\nfails = 1";
    let unusable = (0..20).filter(|&number| {
        let (script, _) = run(behaviour, Ask { number, ..json.clone() });
        serde_json::from_str::<Value>(&content(&script)).is_err()
    });
    assert_eq!(unusable.count(), 20);
}

#[test]
fn refusals_speak_the_api_of_the_request() {
    let quota = "[[behaviour]]\nkind = 'quota'\nof = 'credit'\nlimit = 0\nretry-after = false";
    for api in APIS {
        let (script, _) = run(quota, ask(api, true));
        let body: Value = serde_json::from_slice(&script.body).unwrap();
        assert_eq!(script.status, 429);
        let expected = if api == Api::Messages { "rate_limit_error" } else { "insufficient_quota" };
        assert_eq!(body["error"]["type"], expected, "{api:?}");
        assert!(script.headers.iter().all(|(name, _)| *name != "retry-after"));
    }
}
