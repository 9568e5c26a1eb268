//! Scenario files: TOML to what an upstream does, every fault of the file named with line and field.
//!
//! ```toml
//! about = "flushes of 40 to 80 tokens after dead air, in half of the requests"
//! seed = 1
//!
//! [answer]                      # how much is generated
//! reasoning = { median = 800, sigma = 0.6 }
//!
//! [load]                        # who asks, when no client does: --dataset
//! arrivals = { rate = 2.0 }
//!
//! [[behaviour]]
//! kind = "write-up-burst"
//! share = 0.5                   # of the requests; and from, until: since the start
//! ```

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::ask::Ask;
use crate::behaviour::{BEHAVIOURS, Behaviour, Entry};
use crate::load::Load;
use crate::unit::{Positive, Share, Span};

/// One fault of a scenario file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with which field.
    pub message: String,
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the scenario")]
    Read(#[from] std::io::Error),
    /// All faults of the file.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Faults(Vec<Fault>),
}

/// A lognormal amount of tokens.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Amount {
    /// Its median.
    pub median: Positive,
    /// Standard deviation of its logarithm; 0.0001 for a fixed amount.
    #[serde(default = "sigma")]
    pub sigma: Positive,
    /// The most that is ever drawn.
    #[serde(default = "most")]
    pub max: u32,
}

fn sigma() -> Positive {
    Positive(1.0)
}

fn most() -> u32 {
    12_000
}

/// How much is generated, and how soon.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sizes {
    /// Reasoning tokens at medium effort: a third at `low`, three times at `high` and above, none at
    /// `none`.
    pub reasoning: Amount,
    /// Answer tokens.
    pub output: Amount,
    /// Median time to the first token.
    pub first_token: Span,
    /// Standard deviation of its logarithm. Measured tails are long (p50 1.3 s, p99 14.8 s).
    pub first_token_sigma: Positive,
    /// Time that each prompt token adds to it.
    pub per_prompt_token: Span,
    /// Share of prompt tokens read from a cache.
    pub cached: Share,
}

impl Default for Sizes {
    fn default() -> Self {
        let amount = |median| Amount { median: Positive(median), sigma: Positive(1.0), max: most() };
        Self {
            reasoning: amount(800.0),
            output: amount(100.0),
            first_token: Span::ms(400),
            first_token_sigma: Positive(0.4),
            per_prompt_token: Span(sseismo_trace::Micros(20)),
            cached: Share(0.0),
        }
    }
}

/// One behaviour of a scenario, and to which requests it applies.
#[derive(Debug)]
pub struct Part {
    pub(crate) entry: &'static Entry,
    pub(crate) behaviour: Box<dyn Behaviour>,
    pub(crate) place: u64,
    select: Select,
}

impl Part {
    /// Whether it may apply to `ask`; its share is drawn by the caller.
    pub(crate) fn covers(&self, ask: &Ask) -> bool {
        let select = &self.select;
        ask.at >= select.from.0
            && select.until.is_none_or(|until| ask.at < until.0)
            && select.effort.as_ref().is_none_or(|effort| ask.effort.as_ref() == Some(effort))
    }

    pub(crate) fn share(&self) -> f64 {
        self.select.share.0
    }
}

impl Clone for Part {
    fn clone(&self) -> Self {
        Self { behaviour: self.behaviour.fresh(), select: self.select.clone(), ..*self }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Select {
    share: Share,
    from: Span,
    until: Option<Span>,
    effort: Option<String>,
}

impl Default for Select {
    fn default() -> Self {
        Self { share: Share(1.0), from: Span::default(), until: None, effort: None }
    }
}

/// A scenario, checked and ready to run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it shows, for people.
    pub about: String,
    /// Where all chance comes from.
    pub seed: u64,
    /// The model that answers.
    pub model: String,
    /// The upstream's name in a dataset.
    pub upstream: String,
    /// How much is generated, and how soon.
    pub answer: Sizes,
    /// Who asks, in virtual time.
    pub load: Load,
    /// Its behaviours, in the order in which they act.
    pub parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Head {
    about: String,
    seed: u64,
    model: String,
    upstream: String,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            about: String::new(),
            seed: 1,
            model: "sim-reasoner".into(),
            upstream: "simulated.invalid".into(),
        }
    }
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// When it cannot be read, or with all its faults.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path)?;
        Self::parse(&text, path.parent().unwrap_or(Path::new(".")))
    }

    /// Reads a scenario from `text`; files that it names are relative to `base`.
    ///
    /// # Errors
    /// All faults of the text.
    pub fn parse(text: &str, base: &Path) -> Result<Self, Error> {
        let mut reader = Reader { text, faults: Vec::new() };
        let scenario = reader.scenario(base);
        match scenario {
            Some(scenario) if reader.faults.is_empty() => Ok(scenario),
            _ => {
                reader.faults.sort_by_key(|fault| fault.line);
                Err(Error::Faults(reader.faults))
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    faults: Vec<Fault>,
}

impl<'a> Reader<'a> {
    fn scenario(&mut self, base: &Path) -> Option<Scenario> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        if !errors.is_empty() {
            for error in errors {
                self.fault(error.span().unwrap_or(0..0), error.message());
            }
            return None;
        }
        let span = table.span();
        let mut head = table.into_inner();
        let answer = self.section(&mut head, "answer");
        let client =
            head.get("load").and_then(|load| load.get_ref().as_table()?.get("client").map(Spanned::span));
        let mut load: Option<Load> = self.section(&mut head, "load");
        if let (Some(load), Some(span)) = (&mut load, client)
            && let Err(why) = load.ready(base)
        {
            self.fault(span, &format!("`client` of load: {why}"));
        }
        let parts = self.parts(&mut head, base);
        let head: Head = self.read(head, span, "", read)?;
        Some(Scenario {
            about: head.about,
            seed: head.seed,
            model: head.model,
            upstream: head.upstream,
            answer: answer?,
            load: load?,
            parts,
        })
    }

    fn section<T: DeserializeOwned + Default>(&mut self, table: &mut DeTable<'a>, name: &str) -> Option<T> {
        let Some(value) = table.remove(name) else { return Some(T::default()) };
        let span = value.span();
        if let DeValue::Table(inner) = value.into_inner() {
            self.read(inner, span, name, read)
        } else {
            self.fault(span, &format!("`{name}` must be a table: write [{name}]"));
            None
        }
    }

    fn parts(&mut self, table: &mut DeTable<'a>, base: &Path) -> Vec<Part> {
        let Some(value) = table.remove("behaviour") else { return Vec::new() };
        let span = value.span();
        let DeValue::Array(items) = value.into_inner() else {
            self.fault(span, "`behaviour` must be a list: write [[behaviour]]");
            return Vec::new();
        };
        let mut parts = Vec::new();
        for (place, item) in (0..).zip(items) {
            let span = item.span();
            match item.into_inner() {
                DeValue::Table(inner) => parts.extend(self.part(inner, span, place, base)),
                _ => self.fault(span, "each `behaviour` must be a table: write [[behaviour]]"),
            }
        }
        parts.sort_by_key(|part| part.entry.stage);
        parts
    }

    fn part(&mut self, mut table: DeTable<'a>, span: Range<usize>, place: u64, base: &Path) -> Option<Part> {
        let known = || BEHAVIOURS.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
        let Some(kind) = table.remove("kind") else {
            self.fault(span, &format!("`kind` is missing; known are {}", known()));
            return None;
        };
        let Some(entry) = BEHAVIOURS.iter().find(|entry| Some(entry.name) == kind.get_ref().as_str()) else {
            self.fault(kind.span(), &format!("`kind` is not known; known are {}", known()));
            return None;
        };
        let mut select = DeTable::new();
        for name in ["share", "from", "until", "effort"] {
            if let Some((key, value)) = table.remove_entry(name) {
                select.insert(key, value);
            }
        }
        let lines: Vec<(String, Range<usize>)> =
            table.iter().map(|(key, value)| (key.get_ref().to_string(), value.span())).collect();
        let select = self.read(select, span.clone(), entry.name, read);
        let behaviour = self.read(table, span.clone(), entry.name, entry.read);
        let mut behaviour = behaviour?;
        if let Err((field, why)) = behaviour.ready(base) {
            let at = lines.iter().find(|(name, _)| name == field).map_or(span, |(_, span)| span.clone());
            self.fault(at, &format!("`{field}` of {}: {why}", entry.name));
        }
        Some(Part { entry, behaviour, place, select: select? })
    }

    /// Reads a table; a field that does not fit is noted and left out, so that the next one is seen too.
    fn read<T>(
        &mut self,
        mut table: DeTable<'a>,
        span: Range<usize>,
        section: &str,
        read: impl Fn(ValueDeserializer<'_>) -> Result<T, toml::de::Error>,
    ) -> Option<T> {
        loop {
            let value = Spanned::new(span.clone(), DeValue::Table(table.clone()));
            let error = match read(ValueDeserializer::from(value)) {
                Ok(value) => return Some(value),
                Err(error) => error,
            };
            let at = error.span().unwrap_or(span.clone());
            let field = table.iter().find_map(|(key, value)| {
                let covers = key.span().start <= at.start && at.end <= value.span().end.max(key.span().end);
                covers.then(|| key.get_ref().clone())
            });
            let name = field.as_deref().unwrap_or_default();
            let message = match (name, section) {
                ("", "") => error.message().to_owned(),
                ("", _) => format!("{section}: {}", error.message()),
                (_, "") => format!("`{name}`: {}", error.message()),
                _ => format!("`{name}` of {section}: {}", error.message()),
            };
            self.fault(at, message.trim_end());
            table.remove(field?.as_ref());
        }
    }

    fn fault(&mut self, span: Range<usize>, message: &str) {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = 1 + before.matches('\n').count();
        let fault = Fault { line, message: message.to_owned() };
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }
}

fn read<T: DeserializeOwned>(value: ValueDeserializer<'_>) -> Result<T, toml::de::Error> {
    T::deserialize(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        match Scenario::parse(text, Path::new(".")) {
            Err(Error::Faults(faults)) => faults.iter().map(ToString::to_string).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_faults_are_named_with_their_lines() {
        let text = "sead = 1\n[answer]\nfirst-token = \"400\"\n[load]\nsessions = -3\n\n[[behaviour]]\nkind = \
                    \"cork\"\nshare = 1.5\nperiod = 200\n[[behaviour]]\nkind = \"corck\"\n[[behaviour]]\nkind = \
                    \"write-up-burst\"\ntokens = [80, 40]\n";
        let faults = faults(text);
        for (fault, expected) in faults.iter().zip([
            "line 1: `sead`: unknown field",
            "line 3: `first-token` of answer: invalid value",
            "line 5: `sessions` of load: invalid value",
            "line 9: `share` of cork: invalid value: floating point `1.5`, expected a share from 0 to 1",
            "line 10: `period` of cork: invalid type",
            "line 12: `kind` is not known",
            "line 15: `tokens` of write-up-burst: the first value",
        ]) {
            assert!(fault.starts_with(expected), "{fault}\nexpected {expected}");
        }
        assert_eq!(faults.len(), 7, "{faults:#?}");
    }

    #[test]
    fn broken_toml_is_a_fault() {
        assert!(faults("seed = \n")[0].starts_with("line 1: "));
    }

    #[test]
    fn an_empty_scenario_is_a_healthy_upstream() {
        let scenario = Scenario::parse("", Path::new(".")).unwrap();
        assert!(scenario.parts.is_empty());
        assert_eq!(scenario.seed, 1);
    }
}
