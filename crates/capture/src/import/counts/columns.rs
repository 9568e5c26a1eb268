//! Which column of a table holds what: by the field's usual names, or as the user said.

use std::collections::BTreeMap;

use super::super::Options;
use super::super::importer::Error;

/// What a column can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// Reasoning tokens.
    Reasoning,
    /// Prompt tokens.
    Input,
    /// Of these, read from a cache.
    Cached,
    /// Generated tokens, reasoning included.
    Output,
    /// The model's name.
    Model,
    /// Reasoning effort.
    Effort,
    /// Who answered.
    Upstream,
    /// When the request was sent.
    Time,
    /// The session's identifier.
    Session,
    /// The turn's identifier.
    Turn,
    /// Duration of the whole request, ms.
    WallMs,
    /// The same in seconds.
    WallS,
    /// Time to first token, ms.
    TtftMs,
    /// The same in seconds.
    TtftS,
}

/// A field, its name for `--map`, and the names by which it is known, best first: lower case, without
/// `_`, `-` and space, so that `reasoning_tokens`, `reasoningTokens` and `Reasoning Tokens` are one.
/// A dotted name is a path into nested objects; any path that ends in a name has it. Fields are tried
/// in this order: OpenTelemetry's `gen_ai.usage.reasoning.output_tokens` is no `output_tokens`.
const FIELDS: [(Field, &str, &[&str]); 14] = [
    (
        Field::Reasoning,
        "reasoning",
        &[
            "reasoningoutputtokens",
            "reasoningtokens",
            "tokensreasoning",
            "reasoningtokencount",
            "thinkingtokens",
            "tokensthinking",
            "thoughtstokencount",
            "thoughtstokens",
            "reasoning.outputtokens",
            "tokens.reasoning",
            "usage.reasoning",
        ],
    ),
    (Field::Cached, "cached", &["cachedinputtokens", "cachedtokens", "cachereadinputtokens", "tokenscached"]),
    (
        Field::Input,
        "input",
        &["inputtokens", "prompttokens", "prompttokencount", "tokensinput", "tokensprompt"],
    ),
    (Field::Output, "output", &["outputtokens", "completiontokens", "tokenscompletion"]),
    (Field::Model, "model", &["model", "modelname", "modelid", "modelserved", "modelrequested", "modelslug"]),
    (Field::Effort, "effort", &["effort", "reasoningeffort", "modelreasoningeffort", "thinkinglevel"]),
    (Field::Upstream, "upstream", &["upstream", "provider", "modelprovider", "providerid"]),
    (Field::Time, "time", &["startedat", "starttime", "timestamp", "createdat", "timestampms", "ts"]),
    (Field::Session, "session", &["sessionid", "session", "sessionkey", "threadid", "conversationid"]),
    (Field::Turn, "turn", &["turnid", "turnkey"]),
    (
        Field::WallMs,
        "wall_ms",
        &["wallms", "latencyms", "durationms", "elapsedms", "totalms", "e2ems", "e2elatencyms"],
    ),
    (
        Field::WallS,
        "wall_s",
        &[
            "walls",
            "latencys",
            "durations",
            "elapseds",
            "latencyseconds",
            "durationseconds",
            "elapsedseconds",
        ],
    ),
    (Field::TtftMs, "ttft_ms", &["ttftms", "timetofirsttokenms", "firsttokenms"]),
    (Field::TtftS, "ttft_s", &["ttfts", "ttftseconds", "timetofirsttokenseconds"]),
];

/// The place that a value of a row goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot<'o> {
    /// A field of the stream.
    Field(Field),
    /// `--labels label=column`.
    Label(&'o str),
    /// `--split column`.
    Split,
}

/// How well a column fits a slot; the least is taken.
type Rank = (usize, usize);

/// The slots of a table, and which columns go into them.
pub(super) struct Columns<'o> {
    pub(super) slots: Vec<Slot<'o>>,
    /// By slot: the column that the user asked for.
    asked: Vec<Option<&'o str>>,
    /// By slot: whether a column for it was seen.
    seen: Vec<bool>,
    /// Names of columns seen, for error messages.
    names: Vec<String>,
}

/// How many column names an error names.
const NAMED: usize = 40;

impl<'o> Columns<'o> {
    /// # Errors
    /// When `--map` names a field that is none.
    pub(super) fn new(options: &'o Options) -> Result<Self, Error> {
        if let Some(field) = options.map.keys().find(|field| FIELDS.iter().all(|(_, name, _)| name != field))
        {
            let fields: Vec<&str> = FIELDS.iter().map(|(_, name, _)| *name).collect();
            return Err(Error::Unusable(format!("--map: no field `{field}`; fields: {}", fields.join(", "))));
        }
        let mut slots = Vec::new();
        let mut asked = Vec::new();
        for (field, name, _) in FIELDS {
            slots.push(Slot::Field(field));
            asked.push(options.map.get(name).map(String::as_str));
        }
        for (label, column) in &options.labels {
            slots.push(Slot::Label(label));
            asked.push(Some(column));
        }
        if let Some(column) = &options.split {
            slots.push(Slot::Split);
            asked.push(Some(column));
        }
        let seen = vec![false; slots.len()];
        Ok(Self { slots, asked, seen, names: Vec::new() })
    }

    /// The slots that a column can fill, as (index, rank). The column now counts as seen.
    pub(super) fn slots_of(&mut self, column: &str) -> Vec<(usize, Rank)> {
        if self.names.len() < NAMED && !self.names.iter().any(|name| name == column) {
            self.names.push(column.to_owned());
        }
        let usual = usual(column);
        let mut slots = Vec::new();
        for (index, slot) in self.slots.iter().enumerate() {
            let rank = match (self.asked[index], slot, usual) {
                (Some(asked), _, _) => (asked == column).then_some((0, 0)),
                (None, Slot::Field(field), Some((usual, rank))) => (*field == usual).then_some(rank),
                (None, _, _) => None,
            };
            if let Some(rank) = rank {
                self.seen[index] = true;
                slots.push((index, rank));
            }
        }
        slots
    }

    /// Whether a column of reasoning tokens was seen.
    pub(super) fn has_reasoning(&self) -> bool {
        self.slots.iter().zip(&self.seen).any(|(slot, seen)| *seen && *slot == Slot::Field(Field::Reasoning))
    }

    /// # Errors
    /// When a column that the user asked for was not seen.
    pub(super) fn check_asked(&self) -> Result<(), Error> {
        let missing = self.asked.iter().zip(&self.seen).find_map(|(asked, seen)| asked.filter(|_| !seen));
        match missing {
            Some(column) => Err(Error::Unusable(format!("no column `{column}`; columns: {}", self.named()))),
            None => Ok(()),
        }
    }

    /// What to say of a table in which nothing was known.
    pub(super) fn why_not(&self) -> String {
        format!(
            "a table without a known column of reasoning tokens; columns: {}; name one with \
             --map reasoning=COLUMN",
            self.named()
        )
    }

    fn named(&self) -> String {
        let names: Vec<String> = self.names.iter().map(|name| name.chars().take(60).collect()).collect();
        names.join(", ") + if self.names.len() < NAMED { "" } else { " …" }
    }
}

/// The field that a column is usually for, and how usual its name is.
fn usual(column: &str) -> Option<(Field, Rank)> {
    let name: String =
        column.chars().filter(|char| !matches!(char, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect();
    let depth = name.matches('.').count();
    FIELDS.iter().find_map(|(field, _, names)| {
        let known = names.iter().position(|known| {
            name.strip_suffix(known).is_some_and(|path| path.is_empty() || path.ends_with('.'))
        })?;
        Some((*field, (known, depth)))
    })
}

/// Remembers which columns go where, for objects whose keys come anew with every row.
#[derive(Default)]
pub(super) struct Paths {
    known: BTreeMap<String, Vec<(usize, Rank)>>,
}

/// So many paths are remembered; more, in objects keyed by data, are looked up every time.
const REMEMBERED: usize = 4096;

impl Paths {
    pub(super) fn slots_of(&mut self, path: &str, columns: &mut Columns<'_>) -> Vec<(usize, Rank)> {
        if let Some(slots) = self.known.get(path) {
            return slots.clone();
        }
        let slots = columns.slots_of(path);
        if self.known.len() < REMEMBERED {
            self.known.insert(path.to_owned(), slots.clone());
        }
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_names_in_every_spelling_and_depth() {
        for (column, field) in [
            ("reasoning_output_tokens", Some(Field::Reasoning)),
            ("Reasoning Tokens", Some(Field::Reasoning)),
            ("usage.output_tokens_details.reasoning_tokens", Some(Field::Reasoning)),
            ("usage.completion_tokens_details.reasoning_tokens", Some(Field::Reasoning)),
            ("usageMetadata.thoughtsTokenCount", Some(Field::Reasoning)),
            ("gen_ai.usage.reasoning.output_tokens", Some(Field::Reasoning)),
            ("gen_ai.usage.output_tokens", Some(Field::Output)),
            ("tokens_reasoning", Some(Field::Reasoning)),
            ("reasoning_tokens_is_516", None),
            ("tokens_output", None),
            ("model_name", Some(Field::Model)),
            ("wall_ms", Some(Field::WallMs)),
            ("ttft_ms", Some(Field::TtftMs)),
            ("unusualmodel", None),
        ] {
            assert_eq!(usual(column).map(|(field, _)| field), field, "{column}");
        }
        assert!(usual("reasoning_tokens").unwrap().1 < usual("usage.reasoning_tokens").unwrap().1);
    }

    #[test]
    fn names_of_fields_are_written_as_they_are_compared() {
        for (_, _, names) in FIELDS {
            for name in names {
                assert!(
                    name.chars()
                        .all(|char| char == '.' || char.is_ascii_lowercase() || char.is_ascii_digit())
                );
            }
        }
    }
}
