use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use serde_json::json;
use sseismo_trace::UtcMicros;

use super::*;

/// 2026-07-01 12:00:00 UTC.
const NOW: UtcMicros = UtcMicros(1_782_907_200_000_000);

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let header = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    pairs.iter().map(header).collect()
}

fn answer(status: u16, pairs: &[(&'static str, &str)], body: &str) -> Outcome {
    Outcome::of_answer(StatusCode::from_u16(status).unwrap(), &headers(pairs), body.as_bytes(), NOW)
}

fn named(status: u16, body: &str) -> &'static str {
    answer(status, &[], body).name()
}

#[test]
fn kinds_of_429_are_told_apart() {
    let openai = |code: &str, message: &str| {
        json!({"error": {"message": message, "type": code, "param": null, "code": code}}).to_string()
    };
    let rate = "Rate limit reached for gpt-5.5 on tokens per min (TPM): Limit 30000, Used 29000. Please try again in 2.5s.";
    assert_eq!(named(429, &openai("rate_limit_exceeded", rate)), "rate-limit");
    let quota = "You exceeded your current quota, please check your plan and billing details.";
    assert_eq!(named(429, &openai("insufficient_quota", quota)), "insufficient-quota");
    assert_eq!(named(429, &openai("rate_limit_exceeded", "Too many requests from your IP")), "per-ip-limit");
    assert_eq!(
        named(429, r#"{"error":{"type":"usage_limit_reached","resets_in_seconds":3600}}"#),
        "insufficient-quota"
    );
    assert_eq!(
        named(429, r#"{"type":"error","error":{"type":"rate_limit_error","message":"…"}}"#),
        "rate-limit"
    );
    assert_eq!(named(429, ""), "rate-limit");
    assert_eq!(named(402, ""), "insufficient-quota");
    let edge = answer(429, &[("cf-ray", "8a")], "<html>error code: 1015</html>");
    assert_eq!(edge.name(), "per-ip-limit");
    let gemini = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Quota exceeded",
        "details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"26s"}]}}"#;
    let gemini = answer(429, &[], gemini);
    assert_eq!((gemini.name(), gemini.retry_after()), ("rate-limit", Some(Duration::from_secs(26))));
}

#[test]
fn abilities_and_keys_are_no_failures() {
    let context =
        r#"{"error":{"code":"context_length_exceeded","message":"Your input exceeds the context window"}}"#;
    assert_eq!(named(400, context), "context-length");
    let claude = r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#;
    assert_eq!(named(400, claude), "context-length");
    let poor = r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API"}}"#;
    assert_eq!(named(400, poor), "insufficient-quota");
    assert_eq!(
        named(404, r#"{"error":{"code":"model_not_found","message":"The model does not exist"}}"#),
        "no-such-model"
    );
    assert_eq!(named(404, "not found"), "no-such-api");
    assert_eq!(
        named(400, r#"{"error":{"code":"unsupported_parameter","message":"…"}}"#),
        "unsupported-parameter"
    );
    assert_eq!(named(401, ""), "key-refused");
    assert_eq!(named(403, ""), "forbidden");
    let flagged = r#"{"error":{"code":403,"message":"Your chosen model requires moderation and your input was flagged"}}"#;
    assert_eq!(named(403, flagged), "neutral");
    let quoted = r#"{"error":{"code":"invalid_value","message":"invalid input: 'my ip address is'"}}"#;
    assert_eq!(named(400, quoted), "neutral", "a prompt must not cool an upstream");
    assert_eq!(named(400, r#"{"error":{"code":"invalid_encrypted_content","message":"…"}}"#), "neutral");
    assert_eq!(named(422, "{}"), "neutral");
}

#[test]
fn failures_are_those_of_the_server() {
    for (status, name) in [
        (500, "status"),
        (502, "status"),
        (503, "status"),
        (529, "overloaded"),
        (408, "status"),
        (409, "status"),
    ] {
        let outcome = answer(status, &[], "");
        assert_eq!(outcome.name(), name, "{status}");
        assert!(outcome.goes_on());
    }
    assert_eq!(answer(503, &[], "").to_string(), "status-503");
    assert_eq!(named(503, r#"{"error":{"code":"server_is_overloaded","message":"…"}}"#), "overloaded");
    assert_eq!(named(200, ""), "good");
}

#[test]
fn each_form_of_retry_after_is_read() {
    let wait = |pairs: &[(&'static str, &str)], body: &str| answer(429, pairs, body).retry_after();
    let ms = |ms| Some(Duration::from_millis(ms));
    assert_eq!(wait(&[("retry-after", "3")], ""), ms(3000));
    assert_eq!(wait(&[("retry-after", "0.25")], ""), ms(250));
    assert_eq!(wait(&[("retry-after", "3"), ("retry-after-ms", "1500")], ""), ms(1500));
    assert_eq!(wait(&[("retry-after", "Wed, 01 Jul 2026 12:00:30 GMT")], ""), ms(30_000));
    assert_eq!(wait(&[("retry-after", "Wed, 01 Jul 2026 11:00:00 GMT")], ""), ms(0));
    assert_eq!(wait(&[("retry-after", "soon")], ""), None);
    assert_eq!(wait(&[("retry-after", "-1")], ""), None);
    let told = |message: &str| {
        wait(&[], &json!({"error": {"code": "rate_limit_exceeded", "message": message}}).to_string())
    };
    assert_eq!(told("Please try again in 2.5s. Visit …"), ms(2500));
    assert_eq!(told("Please try again in 250ms."), ms(250));
    assert_eq!(told("Please try again in 1m30.5s."), ms(90_500));
    assert_eq!(told("Please retry in 6 minutes."), ms(360_000));
    assert_eq!(told("Please try again in a while"), None);
    assert_eq!(
        wait(&[], r#"{"error":{"type":"usage_limit_reached","resets_in_seconds":3600}}"#),
        ms(3_600_000)
    );
    let busy = answer(503, &[("retry-after", "2")], "");
    assert_eq!(busy.retry_after(), ms(2000));
}

#[test]
fn what_the_server_says_about_retries_is_believed() {
    let Outcome::Limited(limit) = answer(429, &[("x-should-retry", "false")], "") else { panic!("no limit") };
    assert!(limit.elsewhere);
    assert_eq!(answer(400, &[("x-should-retry", "true")], "").name(), "status");
    assert_eq!(answer(400, &[("x-should-retry", "false")], "").name(), "neutral");
}

#[test]
fn error_events_are_read_in_each_shape() {
    let name = |event: serde_json::Value| Outcome::of_event(&event).name();
    let failed = |code: &str| json!({"type": "response.failed", "response": {"error": {"code": code, "message": "Please try again in 2.5s."}}});
    assert_eq!(name(failed("rate_limit_exceeded")), "rate-limit");
    assert_eq!(
        Outcome::of_event(&failed("rate_limit_exceeded")).retry_after(),
        Some(Duration::from_millis(2500))
    );
    assert_eq!(name(failed("server_error")), "error-frame");
    assert_eq!(name(failed("server_is_overloaded")), "overloaded");
    assert_eq!(name(failed("context_length_exceeded")), "context-length");
    assert_eq!(name(json!({"type": "error", "code": "rate_limit_exceeded", "message": "…"})), "rate-limit");
    assert_eq!(
        name(json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})),
        "overloaded"
    );
    assert_eq!(name(json!({"error": "boom"})), "error-frame");
    assert_eq!(name(json!(null)), "error-frame");
}
