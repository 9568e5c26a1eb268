//! Signals from outside: JSON in, [`Signal`]s or the field that is wrong out.
//!
//! One signal or a list of them, in the JSON of [`Signal`]; `cause`, `evidence` and `at` may be left out, since
//! whoever posts by hand has none. Unknown fields are refused: a misspelt `efort` must not widen a target.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sseismo_trace::{Detail, Evidence, Micros, Scope, Signal, SignalState, UtcMicros};

use super::table::MAX_TTL;

/// Signals in one list.
const MOST: usize = 256;

/// Bytes of a name or a text, and notes of one signal: what is live is kept in memory and told to everybody.
const LONGEST: usize = 256;
const NOTES: usize = 16;

/// What is wrong with a posted signal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}{problem}")]
pub struct BadSignal {
    /// Which of a list, where it is one: `signal 3: `.
    place: String,
    /// The field and what to do.
    problem: String,
}

/// Reads what was posted; `wall` is the time of signals that name none.
///
/// # Errors
/// The first fault, with its field.
pub fn parse(body: &[u8], wall: UtcMicros) -> Result<Vec<Signal>, BadSignal> {
    let bad = |place: String, problem: String| BadSignal { place, problem };
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| bad(String::new(), format!("the body is no JSON: {error}")))?;
    let list = match value {
        Value::Array(list) if list.len() > MOST => {
            return Err(bad(String::new(), format!("at most {MOST} signals are taken at once")));
        }
        Value::Array(list) => list,
        one => return Ok(vec![signal(one, wall).map_err(|problem| bad(String::new(), problem))?]),
    };
    let numbered = |(n, value)| signal(value, wall).map_err(|problem| bad(format!("signal {n}: "), problem));
    (1..).zip(list).map(numbered).collect()
}

fn signal(value: Value, wall: UtcMicros) -> Result<Signal, String> {
    let Value::Object(mut fields) = value else { return Err("a signal is an object".to_owned()) };
    let target = target(fields.remove("target").ok_or("`target` is missing: {} is all traffic")?)?;
    let read = Signal {
        id: needed(&mut fields, "id", "16 hexadecimal digits that name the onset")?,
        target,
        cause: optional(&mut fields, "cause", "a cause such as \"upstream-batching\"")?.flatten(),
        state: needed::<SignalState>(&mut fields, "state", "\"onset\", \"refresh\" or \"clear\"")?,
        strength: optional(&mut fields, "strength", "a number from 0 to 1")?.unwrap_or(1.0),
        evidence: optional::<Evidence>(&mut fields, "evidence", "an object as in /signals")?
            .unwrap_or_default(),
        at: optional(&mut fields, "at", "µs since 1970 UTC")?.unwrap_or(wall),
        ttl: needed(&mut fields, "ttl", "µs")?,
        detail: detail(fields)?,
    };
    if !(0.0..=1.0).contains(&read.strength) {
        return Err("`strength` must be a number from 0 to 1".to_owned());
    }
    let longest = i64::try_from(MAX_TTL.as_micros()).unwrap_or(i64::MAX);
    if read.state != SignalState::Clear && !(1..=longest).contains(&read.ttl.0) {
        return Err(format!("`ttl` must be from 1 to {longest} µs: {}", "24 hours; send refreshes for more"));
    }
    let Evidence { statistic, unit, notes, .. } = &read.evidence;
    if notes.len() > NOTES || [statistic, unit].into_iter().chain(notes).any(|text| text.len() > LONGEST) {
        return Err(format!("`evidence` may hold {NOTES} notes, and texts of up to {LONGEST} bytes"));
    }
    Ok(Signal { ttl: Micros(read.ttl.0.max(0)), ..read })
}

fn target(value: Value) -> Result<Scope, String> {
    let Value::Object(mut fields) = value else { return Err("`target` must be an object".to_owned()) };
    let mut name = |field: &str| match fields.remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name)) if name.len() > LONGEST => {
            Err(format!("`target.{field}` is longer than {LONGEST} bytes"))
        }
        Some(Value::String(name)) if name.is_empty() || name.contains(char::is_control) => {
            Err(format!("`target.{field}` must be a name; leave it out for any"))
        }
        Some(Value::String(name)) => Ok(Some(name)),
        Some(_) => Err(format!("`target.{field}` must be a string")),
    };
    let (upstream, route, model, effort) =
        (name("upstream")?, name("route")?, name("model")?, name("effort")?);
    if let Some(field) = fields.keys().next() {
        return Err(format!("`target.{field}` is not known; known are upstream, route, model, effort"));
    }
    Ok(Scope { upstream, route, model, effort, ..Scope::default() })
}

/// What is left of the fields: the signature and what belongs to it.
fn detail(fields: Map<String, Value>) -> Result<Detail, String> {
    let names: Vec<String> = fields.keys().filter(|name| *name != "signature").cloned().collect();
    if !fields.contains_key("signature") {
        return Err("`signature` is missing, such as \"burst\"".to_owned());
    }
    let detail: Detail =
        serde_json::from_value(Value::Object(fields)).map_err(|error| format!("`signature`: {error}"))?;
    let known = serde_json::to_value(detail).unwrap_or_default();
    match names.iter().find(|name| known.get(name.as_str()).is_none()) {
        Some(name) => Err(format!("`{name}` is not known for a signal of {}", detail.signature().name())),
        None => numbers(detail),
    }
}

/// A signal whose numbers mean nothing would be told, and would be about no call or about every one.
fn numbers(detail: Detail) -> Result<Detail, String> {
    let wrong = match detail {
        Detail::CountLattice { step, .. } => (step == 0).then_some("`step` must be at least 1"),
        Detail::Burst { gap_s, tokens } => {
            (gap_s < 0.0 || tokens < 0.0).then_some("`gap_s` and `tokens` must not be negative")
        }
        Detail::SizeWindow { lo, hi } => (lo > hi).then_some("`lo` must not be larger than `hi`"),
        Detail::Concurrency { window_s, .. } => (window_s < 0.0).then_some("`window_s` must not be negative"),
        Detail::Saturation { numeric_share, .. } => {
            (!(0.0..=1.0).contains(&numeric_share)).then_some("`numeric_share` must be from 0 to 1")
        }
        Detail::RetryAmplification { attempts_per_turn } => {
            (attempts_per_turn < 0.0).then_some("`attempts_per_turn` must not be negative")
        }
    };
    wrong.map_or(Ok(detail), |wrong| Err(wrong.to_owned()))
}

fn needed<T: DeserializeOwned>(fields: &mut Map<String, Value>, name: &str, what: &str) -> Result<T, String> {
    optional(fields, name, what)?.ok_or_else(|| format!("`{name}` is missing: {what}"))
}

fn optional<T: DeserializeOwned>(
    fields: &mut Map<String, Value>,
    name: &str,
    what: &str,
) -> Result<Option<T>, String> {
    let Some(value) = fields.remove(name) else { return Ok(None) };
    serde_json::from_value(value).map(Some).map_err(|_| format!("`{name}` must be {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"id":"ab","target":{"upstream":"a"},"signature":"burst","gap_s":1.5,"tokens":60,"state":"onset","ttl":60000000}"#;

    #[test]
    fn what_may_be_left_out_is_filled_in() {
        let read = parse(GOOD.as_bytes(), UtcMicros(7)).unwrap();
        assert_eq!((read.len(), read[0].at, read[0].id.0), (1, UtcMicros(7), 0xab));
        assert_eq!(read[0].detail, Detail::Burst { gap_s: 1.5, tokens: 60.0 });
        // What the feed says can be posted as it is.
        let json = serde_json::to_string(&read).unwrap();
        assert_eq!(parse(json.as_bytes(), UtcMicros(9)).unwrap(), read);
    }

    fn evidence(note: &str, notes: usize) -> Value {
        let notes = vec![note; notes];
        serde_json::json!({
            "statistic": "s", "value": 1, "threshold": 1, "n": 1, "unit": "u", "average_run_length": 1, "notes": notes,
        })
    }

    #[test]
    fn a_fault_names_its_field() {
        for (from, to, field) in [
            ("\"id\":\"ab\",", "", "`id` is missing"),
            ("\"ab\"", "\"zz\"", "`id` must be"),
            ("upstream", "efort", "`target.efort`"),
            ("{\"upstream\":\"a\"}", "{\"upstream\":1}", "`target.upstream`"),
            ("\"target\":{\"upstream\":\"a\"},", "", "`target` is missing"),
            ("burst", "bursts", "`signature`"),
            ("gap_s", "gap", "gap_s"),
            ("\"gap_s\":1.5", "\"gap_s\":-1", "`gap_s`"),
            ("\"burst\",\"gap_s\":1.5,\"tokens\":60", "\"size-window\",\"lo\":9,\"hi\":3", "`lo` must"),
            (
                "\"burst\",\"gap_s\":1.5,\"tokens\":60",
                "\"saturation\",\"prompt_tokens\":0,\"numeric_share\":-7",
                "`numeric_share` must",
            ),
            ("{\"upstream\":\"a\"}", "{\"upstream\":\"\"}", "`target.upstream` must be a name"),
            ("{\"upstream\":\"a\"}", "{\"model\":\"a\\n\"}", "`target.model` must be a name"),
            ("\"tokens\":60", "\"tokens\":60,\"lo\":1", "`lo` is not known"),
            ("\"onset\"", "\"began\"", "`state` must be"),
            ("\"ttl\":60000000", "\"ttl\":\"60s\"", "`ttl` must be"),
            ("\"ttl\":60000000", "\"ttl\":0", "`ttl` must be"),
            ("\"ttl\":60000000", "\"ttl\":1,\"strength\":2", "`strength` must be"),
            ("\"ttl\":60000000", "\"ttl\":1,\"cause\":\"weather\"", "`cause` must be"),
        ] {
            let text = GOOD.replace(from, to);
            assert_ne!(text, GOOD);
            let error = parse(text.as_bytes(), UtcMicros(0)).unwrap_err().to_string();
            assert!(error.contains(field), "{field}: {error}");
            let error = parse(format!("[{GOOD},{text}]").as_bytes(), UtcMicros(0)).unwrap_err().to_string();
            assert!(error.starts_with("signal 2: "), "{error}");
        }
        let long = "n".repeat(LONGEST + 1);
        for (from, to, field) in [
            ("\"a\"", format!("\"{long}\""), "`target.upstream` is longer"),
            ("\"ttl\":60000000", format!("\"ttl\":1,\"evidence\":{}", evidence(&long, 1)), "`evidence` may"),
            ("\"ttl\":60000000", format!("\"ttl\":1,\"evidence\":{}", evidence("n", 17)), "`evidence` may"),
        ] {
            let error = parse(GOOD.replace(from, &to).as_bytes(), UtcMicros(0)).unwrap_err().to_string();
            assert!(error.contains(field) && !error.contains(&long), "{field}: {error}");
        }
        let most = GOOD.replace("\"ttl\":60000000", &format!("\"ttl\":1,\"evidence\":{}", evidence("n", 16)));
        assert!(parse(most.as_bytes(), UtcMicros(0)).is_ok(), "{most}");
        assert!(parse(b"{", UtcMicros(0)).is_err() && parse(b"3", UtcMicros(0)).is_err());
    }
}
