//! What an answer is held against: a request in, and later the answer's text; a [`ContentCheck`] out.
//!
//! | asked for | checked |
//! |---|---|
//! | JSON (`response_format`, `text.format`, `output_format`) | the text is one JSON value |
//! | a JSON Schema there | and what the schema asks for, as far as [`schema`](super::schema) understands it |
//! | tools, functions all | arguments of calls are JSON; of the only one there is, what its schema asks for |
//! | anything | the answer is not empty, is no placeholder, and is no JSON with HTML-escaped braces |
//!
//! Several answers at once (`n` above 1) are not checked. Only answers that are complete are: what its own limit cut off is not the upstream's fault. A
//! refusal in words, where JSON was asked for, is no JSON.

use std::sync::Arc;

use serde_json::Value;
use sseismo_trace::{Api, ContentCheck, Outcome};

use super::schema::{self, Holds};
use super::state::Armed;
use crate::hold::Text;
use crate::rewrite::Members;

/// What stands where a whole answer should be, in brackets or without. A string within a JSON answer is one only
/// in brackets, or as one of the phrases: `{"kind": "placeholder"}` may be right.
const WORDS: [&str; 3] = ["placeholder", "...", "…"];

/// Words that are an answer of their own without brackets: `{"status": "todo"}`.
const IN_BRACKETS: [&str; 2] = ["todo", "tbd"];

/// Phrases that are never an answer.
const PHRASES: [&str; 4] = ["answer here", "your answer here", "insert answer here", "lorem ipsum"];

/// Braces as HTML writes them.
const ESCAPED: [&str; 5] = ["&#123;", "&#x7b;", "&lbrace;", "&lcub;", "\\u0026#123;"];

/// What a request asks its answer to be.
#[derive(Debug)]
pub struct Expected {
    form: Form,
    calls: Calls,
    /// Several answers are asked for at once, and come as one text.
    several: bool,
    armed: Arc<Armed>,
}

#[derive(Debug)]
enum Form {
    Words,
    Json,
    Schema(Value),
}

/// What arguments of tool calls are held against.
#[derive(Debug)]
enum Calls {
    /// There is no tool.
    None,
    /// Nothing: some tool takes free text (patches, code), and calls do not say here which one they call.
    Anything,
    /// Every tool is a function.
    Json,
    /// There is one function, and this is its schema.
    Schema(Value),
}

impl Expected {
    pub(super) fn of(api: Api, members: &Members<'_>, armed: &Arc<Armed>) -> Self {
        let several = members.get("n").is_some_and(|n| n != "1");
        Self { form: form(api, members), calls: calls(members), several, armed: Arc::clone(armed) }
    }

    /// What kind of answer it is, for the shape of the request.
    pub(super) fn kind(&self) -> u64 {
        match (&self.form, &self.calls) {
            (Form::Words, Calls::None | Calls::Anything) => 0,
            (Form::Words, Calls::Json | Calls::Schema(_)) => 1,
            (Form::Json, _) => 2,
            (Form::Schema(_), _) => 3,
        }
    }

    /// Checks the text of an answer that ended like this. What a check says that has disarmed itself is not
    /// returned.
    pub fn judge(&self, text: &Text, ended: Outcome) -> ContentCheck {
        if ended != Outcome::Completed || text.cut || self.several {
            return ContentCheck::NotChecked;
        }
        match self.check(text) {
            ContentCheck::NotChecked => ContentCheck::NotChecked,
            found => self.armed.weigh(found),
        }
    }

    fn check(&self, text: &Text) -> ContentCheck {
        let (output, tools) = (text.output.trim(), text.tools.trim());
        if output.is_empty() && tools.is_empty() {
            return match self.calls {
                // A search or a picture has no text that is seen here.
                Calls::Anything => ContentCheck::NotChecked,
                Calls::None | Calls::Json | Calls::Schema(_) => ContentCheck::Empty,
            };
        }
        let called = if tools.is_empty() { ContentCheck::Ok } else { self.arguments(tools) };
        if called != ContentCheck::Ok || output.is_empty() {
            return called;
        }
        match &self.form {
            // Beside a tool call words are an aside.
            _ if !tools.is_empty() => ContentCheck::Ok,
            Form::Words if is_placeholder(output) => ContentCheck::Placeholder,
            Form::Words if ESCAPED.iter().any(|brace| output.to_ascii_lowercase().starts_with(brace)) => {
                ContentCheck::InvalidJson
            }
            Form::Words => ContentCheck::Ok,
            Form::Json => json(output, None),
            Form::Schema(schema) => json(output, Some(schema)),
        }
    }

    /// Arguments of one call after the other.
    fn arguments(&self, tools: &str) -> ContentCheck {
        let schema = match &self.calls {
            Calls::None | Calls::Anything => return ContentCheck::Ok,
            Calls::Json => None,
            Calls::Schema(schema) => Some(schema),
        };
        for call in serde_json::Deserializer::from_str(tools).into_iter::<Value>() {
            let Ok(call) = call else { return ContentCheck::InvalidJson };
            if schema.is_some_and(|schema| schema::holds(schema, &call) == Holds::No) {
                return ContentCheck::Schema;
            }
        }
        ContentCheck::Ok
    }
}

/// Holds a text against JSON, and against a schema.
fn json(text: &str, schema: Option<&Value>) -> ContentCheck {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return if is_placeholder(text) { ContentCheck::Placeholder } else { ContentCheck::InvalidJson };
    };
    if holds_placeholder(&value) {
        return ContentCheck::Placeholder;
    }
    match schema.map(|schema| schema::holds(schema, &value)) {
        Some(Holds::No) => ContentCheck::Schema,
        Some(Holds::Yes | Holds::Unknown) | None => ContentCheck::Ok,
    }
}

fn holds_placeholder(value: &Value) -> bool {
    match value {
        Value::String(text) => is_phrase(text) || bracketed(text).is_some_and(is_word),
        Value::Array(items) => items.iter().any(holds_placeholder),
        Value::Object(members) => members.values().any(holds_placeholder),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether a whole answer is nothing but a placeholder.
fn is_placeholder(text: &str) -> bool {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    is_phrase(text) || is(&WORDS) || bracketed(text).is_some_and(is_word)
}

fn is_word(bare: &str) -> bool {
    WORDS.iter().chain(&IN_BRACKETS).any(|word| bare.eq_ignore_ascii_case(word))
}

fn is_phrase(text: &str) -> bool {
    let bare = bracketed(text).unwrap_or(text.trim());
    PHRASES.iter().any(|phrase| bare.eq_ignore_ascii_case(phrase))
}

/// What stands in brackets, when all of it does.
fn bracketed(text: &str) -> Option<&str> {
    let text = text.trim();
    let bare = text.trim_start_matches(['[', '<', '{', '(']).trim_end_matches([']', '>', '}', ')']).trim();
    (bare.len() + 2 <= text.len()).then_some(bare)
}

fn form(api: Api, members: &Members<'_>) -> Form {
    let at = |name: &str| members.get(name).and_then(|json| serde_json::from_str::<Value>(json).ok());
    let format = match api {
        Api::Chat => at("response_format"),
        Api::Responses => at("text").and_then(|mut text| Some(text.get_mut("format")?.take())),
        Api::Messages => at("output_format")
            .or_else(|| at("output_config").and_then(|mut config| Some(config.get_mut("format")?.take()))),
        Api::GenerateContent | Api::Ollama | Api::Cohere => None,
    };
    let Some(mut format) = format else { return Form::Words };
    match format.get("type").and_then(Value::as_str) {
        Some("json_object") => Form::Json,
        Some("json_schema") => {
            let schema = format.pointer_mut("/json_schema/schema").map(Value::take);
            let schema = schema.or_else(|| format.get_mut("schema").map(Value::take));
            schema.map_or(Form::Json, Form::Schema)
        }
        _ => Form::Words,
    }
}

fn calls(members: &Members<'_>) -> Calls {
    let tools = members.get("tools").and_then(|json| serde_json::from_str::<Vec<Value>>(json).ok());
    let mut tools = tools.unwrap_or_default();
    // Anthropic's tools have a type only where they are no functions.
    let is_function = |tool: &Value| match tool.get("type").and_then(Value::as_str) {
        Some(kind) => kind == "function" || (kind == "custom" && tool.get("input_schema").is_some()),
        None => true,
    };
    if tools.is_empty() {
        return Calls::None;
    }
    if !tools.iter().all(is_function) {
        return Calls::Anything;
    }
    let (Some(mut tool), None) = (tools.pop(), tools.pop()) else { return Calls::Json };
    let places = ["/function/parameters", "/parameters", "/input_schema"];
    let schema = places.into_iter().find_map(|place| tool.pointer_mut(place).map(Value::take));
    schema.map_or(Calls::Json, Calls::Schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(api: Api, request: &str, output: &str, tools: &str) -> ContentCheck {
        let members = Members::read(request.as_bytes()).unwrap();
        let expected = Expected::of(api, &members, &Arc::default());
        let text = Text { output: output.to_owned(), tools: tools.to_owned(), cut: false };
        expected.judge(&text, Outcome::Completed)
    }

    const SCHEMA: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;

    #[test]
    fn what_was_asked_for_is_found_in_each_api() {
        let chat =
            format!(r#"{{"response_format":{{"type":"json_schema","json_schema":{{"schema":{SCHEMA}}}}}}}"#);
        let responses = format!(r#"{{"text":{{"format":{{"type":"json_schema","schema":{SCHEMA}}}}}}}"#);
        let messages = format!(r#"{{"output_format":{{"type":"json_schema","schema":{SCHEMA}}}}}"#);
        let config =
            format!(r#"{{"output_config":{{"format":{{"type":"json_schema","schema":{SCHEMA}}}}}}}"#);
        for (api, request) in [
            (Api::Chat, chat),
            (Api::Responses, responses),
            (Api::Messages, messages),
            (Api::Messages, config),
        ] {
            for (output, check) in [
                (r#"{"n": 1}"#, ContentCheck::Ok),
                (r#"{"n": "1"}"#, ContentCheck::Schema),
                (r#"{"n": 1"#, ContentCheck::InvalidJson),
                ("&#123;\"n\": 1&#125;", ContentCheck::InvalidJson),
                ("[placeholder]", ContentCheck::Placeholder),
                (r#"{"n": "<TBD>"}"#, ContentCheck::Placeholder),
                ("", ContentCheck::Empty),
            ] {
                assert_eq!(checked(api, &request, output, ""), check, "{request} {output}");
            }
        }
        let object = r#"{"response_format":{"type":"json_object"}}"#;
        for (output, check) in [
            (r#"{"status": "todo", "kind": "placeholder", "more": "..."}"#, ContentCheck::Ok),
            (r#"{"text": ["[placeholder]"]}"#, ContentCheck::Placeholder),
            (r#"{"text": "Your answer here"}"#, ContentCheck::Placeholder),
            ("{}{}", ContentCheck::InvalidJson),
        ] {
            assert_eq!(checked(Api::Chat, object, output, ""), check, "{output}");
        }
        let two = r#"{"n":2,"response_format":{"type":"json_object"}}"#;
        assert_eq!(checked(Api::Chat, two, "{}{}", ""), ContentCheck::NotChecked);
        assert_eq!(checked(Api::Chat, object, r#"{"n": "1"}"#, ""), ContentCheck::Ok);
        assert_eq!(checked(Api::Chat, object, "forty-two", ""), ContentCheck::InvalidJson);
    }

    #[test]
    fn words_are_free_but_not_to_be_nothing() {
        for (output, check) in [
            ("It is 42.", ContentCheck::Ok),
            ("{not json", ContentCheck::Ok),
            ("In HTML a brace is &#123;.", ContentCheck::Ok),
            ("  ", ContentCheck::Empty),
            (" [Placeholder] ", ContentCheck::Placeholder),
            ("The placeholder is replaced below.", ContentCheck::Ok),
            ("placeholder", ContentCheck::Placeholder),
            ("todo", ContentCheck::Ok),
            ("<TODO>", ContentCheck::Placeholder),
            ("&#x7B;\"n\": 1}", ContentCheck::InvalidJson),
        ] {
            assert_eq!(checked(Api::Chat, "{}", output, ""), check, "{output}");
        }
    }

    #[test]
    fn tools_are_called_with_json_and_the_only_one_with_its_own() {
        let one =
            format!(r#"{{"tools":[{{"type":"function","function":{{"name":"f","parameters":{SCHEMA}}}}}]}}"#);
        let two = format!(r#"{{"tools":[{{"input_schema":{SCHEMA}}},{{"input_schema":{{}}}}]}}"#);
        // As Codex CLI has it: functions, and one that takes a patch as it is.
        let free =
            r#"{"tools":[{"type":"function","name":"f"},{"type":"custom","name":"apply_patch"}]}"#.to_owned();
        for (request, tools, check) in [
            (&one, r#"{"n":1}{"n":2}"#, ContentCheck::Ok),
            (&one, r#"{"n":1}{"m":2}"#, ContentCheck::Schema),
            (&one, r#"{"n":1"#, ContentCheck::InvalidJson),
            (&two, r#"{"m":2}"#, ContentCheck::Ok),
            (&two, r#"{"m":2"#, ContentCheck::InvalidJson),
            (&free, "*** Begin Patch", ContentCheck::Ok),
            (&free, "", ContentCheck::NotChecked),
            (&one, "", ContentCheck::Empty),
        ] {
            assert_eq!(checked(Api::Chat, request, "", tools), check, "{tools}");
        }
    }

    #[test]
    fn only_complete_answers_are_checked() {
        let expected = Expected::of(Api::Chat, &Members::default(), &Arc::default());
        for (text, ended) in [
            (Text::default(), Outcome::Incomplete),
            (Text::default(), Outcome::Failed),
            (Text { cut: true, ..Text::default() }, Outcome::Completed),
        ] {
            assert_eq!(expected.judge(&text, ended), ContentCheck::NotChecked);
        }
    }
}
