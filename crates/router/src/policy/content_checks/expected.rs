//! What an answer is held against: a request in, and later the answer's text; a [`ContentCheck`] out.
//!
//! | asked for | checked |
//! |---|---|
//! | JSON (`response_format`, `text.format`, `output_format`) | the text is one JSON value |
//! | a JSON Schema there | and what the schema asks for, as far as [`schema`](super::schema) understands it |
//! | tools | arguments of calls are JSON; of the only tool there is, what its schema asks for |
//! | anything | the answer is not empty, is no placeholder, and is no JSON with HTML-escaped braces |
//!
//! Only answers that are complete are checked: what its own limit cut off is not the upstream's fault. A
//! refusal in words, where JSON was asked for, is no JSON.

use std::sync::Arc;

use serde_json::Value;
use sseismo_trace::{Api, ContentCheck, Outcome};

use super::schema::{self, Holds};
use super::state::Armed;
use crate::hold::Text;
use crate::rewrite::Members;

/// Whole answers, or whole strings of a JSON answer, that stand where an answer should be.
const PLACEHOLDERS: [&str; 9] = [
    "placeholder",
    "todo",
    "tbd",
    "...",
    "…",
    "answer here",
    "your answer here",
    "insert answer here",
    "lorem ipsum",
];

/// Braces as HTML writes them.
const ESCAPED: [&str; 5] = ["&#123;", "&#x7b;", "&lbrace;", "&lcub;", "\\u0026#123;"];

/// What a request asks its answer to be.
#[derive(Debug)]
pub struct Expected {
    form: Form,
    /// Schema of the only tool's arguments.
    tool: Option<Value>,
    armed: Arc<Armed>,
}

#[derive(Debug)]
enum Form {
    Words,
    Json,
    Schema(Value),
}

impl Expected {
    pub(super) fn of(api: Api, members: &Members<'_>, armed: &Arc<Armed>) -> Self {
        Self { form: form(api, members), tool: only_tool(members), armed: Arc::clone(armed) }
    }

    /// What kind of answer it is, for the shape of the request.
    pub(super) fn kind(&self) -> u64 {
        match (&self.form, &self.tool) {
            (Form::Words, None) => 0,
            (Form::Words, Some(_)) => 1,
            (Form::Json, _) => 2,
            (Form::Schema(_), _) => 3,
        }
    }

    /// Checks the text of an answer that ended like this. What a check says that has disarmed itself is not
    /// returned.
    pub fn judge(&self, text: &Text, ended: Outcome) -> ContentCheck {
        if ended != Outcome::Completed || text.cut {
            return ContentCheck::NotChecked;
        }
        self.armed.weigh(self.check(text))
    }

    fn check(&self, text: &Text) -> ContentCheck {
        let (output, tools) = (text.output.trim(), text.tools.trim());
        if output.is_empty() && tools.is_empty() {
            return ContentCheck::Empty;
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
        for call in serde_json::Deserializer::from_str(tools).into_iter::<Value>() {
            let Ok(call) = call else { return ContentCheck::InvalidJson };
            if self.tool.as_ref().is_some_and(|schema| schema::holds(schema, &call) == Holds::No) {
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
        Value::String(text) => is_placeholder(text),
        Value::Array(items) => items.iter().any(holds_placeholder),
        Value::Object(members) => members.values().any(holds_placeholder),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether a text is nothing but a placeholder, in brackets or without.
fn is_placeholder(text: &str) -> bool {
    let bare = text.trim().trim_matches(['[', ']', '<', '>', '{', '}', '(', ')', '"', '\'', '*', '_']).trim();
    bare.len() <= 32 && PLACEHOLDERS.iter().any(|word| bare.eq_ignore_ascii_case(word))
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

/// The schema of the only tool, where there is one tool only: calls do not say here which one they call.
fn only_tool(members: &Members<'_>) -> Option<Value> {
    let mut tools: Vec<Value> = serde_json::from_str(members.get("tools")?).ok()?;
    let (Some(mut tool), None) = (tools.pop(), tools.pop()) else { return None };
    let places = ["/function/parameters", "/parameters", "/input_schema"];
    places.into_iter().find_map(|place| tool.pointer_mut(place).map(Value::take))
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
        for (request, tools, check) in [
            (&one, r#"{"n":1}{"n":2}"#, ContentCheck::Ok),
            (&one, r#"{"n":1}{"m":2}"#, ContentCheck::Schema),
            (&one, r#"{"n":1"#, ContentCheck::InvalidJson),
            (&two, r#"{"m":2}"#, ContentCheck::Ok),
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
