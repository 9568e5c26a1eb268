//! `[[sink]]`: what all kinds have, and what their own files read with. A kind's keys are read in
//! `sink/KIND.rs`, beside what they mean.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::Url;

use super::section::{Section, Value};
use super::server::with_cause;
use crate::keys::{Env, Secret, Source};
use crate::sink::standing::Target;
use crate::sink::{KINDS, Named};

/// What the file and its surroundings say to every sink.
pub(super) struct Around<'a> {
    /// Names of the declared upstreams.
    pub(super) upstreams: &'a BTreeSet<&'a str>,
    /// Where relative paths begin.
    pub(super) folder: &'a Path,
    /// The environment.
    pub(super) env: Env<'a>,
}

/// One `[[sink]]` while it is read.
pub(crate) struct Reading<'a> {
    /// Its keys.
    pub(crate) section: &'a Section<'a>,
    around: &'a Around<'a>,
    files: RefCell<Vec<PathBuf>>,
}

/// Reads one sink; files that it names are added to `files`. `None` when it cannot be used.
pub(super) fn sink(mut section: Section<'_>, around: &Around<'_>, files: &mut Vec<PathBuf>) -> Option<Named> {
    let name = section.needed("name");
    if let Some(name) = name {
        section.entitle(format!("sink \"{name}\""));
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            section.fault("name", "`name` may hold letters, digits, `-`, `_` and `.` only");
        }
    }
    let kind = section.needed("kind").and_then(|kind| {
        let known = KINDS.into_iter().find(|(known, _)| *known == kind);
        if known.is_none() {
            let kinds = KINDS.map(|(kind, _)| format!("\"{kind}\"")).join(", ");
            section.fault("kind", &format!("`kind` must be one of {kinds}"));
        }
        known
    });
    let efforts = section.flag("efforts").unwrap_or(true);
    let (_, read) = kind?; // what the other keys mean is not known
    let reading = Reading { section: &section, around, files: RefCell::default() };
    let plan = read(&reading);
    files.append(&mut reading.files.take());
    section.end();
    Some(Named { name: name?.into(), efforts, plan: plan? })
}

impl<'a> Reading<'a> {
    /// A secret by where it is kept.
    pub(crate) fn secret(&self, key: &'static str) -> Option<Secret> {
        let text = self.section.text(key)?;
        let source = Source::parse(text, self.around.folder);
        self.files.borrow_mut().extend(source.as_ref().ok().and_then(Source::file).map(Path::to_owned));
        let secret = source.and_then(|source| source.read(self.around.env));
        secret.map_err(|error| self.section.fault(key, &with_cause(&error))).ok()
    }

    /// An address of HTTP that must be there, and holds no password.
    pub(crate) fn url(&self, key: &'static str) -> Option<Url> {
        let url = Url::parse(self.section.needed(key)?).ok();
        let well = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let well = well.filter(|url| url.username().is_empty() && url.password().is_none());
        if well.is_none() {
            self.section.fault(
                key,
                &format!("`{key}` must be like \"http://127.0.0.1:9093/path\", without a password"),
            );
        }
        well
    }

    /// `drain`: whether the word for it is said, instead of a weight of 0.
    pub(crate) fn drain_state(&self) -> bool {
        match self.section.text("drain") {
            None | Some("weight") => false,
            Some("state") => true,
            Some(_) => {
                self.section.fault("drain", "`drain` must be \"weight\" or \"state\"");
                false
            }
        }
    }

    /// `targets`; `own` reads what this kind calls one, and the group to which it belongs unless `group` is stated.
    pub(crate) fn targets<T: AsRef<str>>(
        &self,
        own: impl Fn(&Section<'a>) -> Option<(T, String)>,
    ) -> Vec<Target<T>> {
        if !self.section.has("targets") {
            self.section.fault("targets", "`targets` is missing: [{ upstream = \"NAME\", … }]");
        }
        let mut targets: Vec<Target<T>> = Vec::new();
        for item in self.section.list("targets").unwrap_or_default() {
            let Some(target) = self.target(item, &own) else { continue };
            let name = target.own.as_ref();
            if targets.iter().any(|other| other.own.as_ref() == name) {
                let message = format!("`{name}` is there twice: without `model` it follows every model");
                self.section.fault_at(&item.span(), &message);
            }
            targets.push(target);
        }
        if self.section.list("targets").is_some_and(<[_]>::is_empty) {
            self.section.fault("targets", "`targets` is empty: nobody would be steered");
        }
        targets
    }

    fn target<T>(
        &self,
        item: Value<'a>,
        own: impl Fn(&Section<'a>) -> Option<(T, String)>,
    ) -> Option<Target<T>> {
        let Some(inner) = self.section.inline(item) else {
            self.section.fault_at(&item.span(), "a target is { upstream = \"NAME\", … }");
            return None;
        };
        let upstream = inner.needed("upstream");
        if let Some(name) = upstream
            && !self.around.upstreams.contains(name)
        {
            inner.fault("upstream", &format!("there is no upstream named `{name}`"));
        }
        let (model, group, read) = (inner.text("model"), inner.text("group"), own(&inner));
        inner.end();
        let (own, usual) = read?;
        let group = group.map_or(usual, str::to_owned).into();
        Some(Target { upstream: upstream?.into(), model: model.map(Arc::from), group, own })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::check_in;

    fn env(name: &str) -> Option<String> {
        (name == "SECRET").then(|| "s3cret".to_owned())
    }

    const BASE: &str = "[[upstream]]\nname = \"a\"\nurl = \"https://a.example/v1\"\napis = [\"chat\"]\n\
                        [[upstream]]\nname = \"b\"\nurl = \"https://b.example/v1\"\napis = [\"chat\"]\n\
                        [[route]]\nmodel = \"m\"\ntiers = [[\"a\", \"b\"]]\n";

    /// One fault in the line with `<-`, told with this word.
    #[track_caller]
    fn one_fault(sink: &str, word: &str) {
        let text = format!("{BASE}[[sink]]\nname = \"s\"\n{sink}\n");
        let line = 1 + text.lines().position(|line| line.contains("<-")).expect("a marked line");
        let faults = check_in(&text, Path::new(""), &env).expect_err("a fault");
        assert_eq!(faults.len(), 1, "{faults:#?}");
        assert_eq!(faults[0].line, line, "{faults:#?}");
        assert!(faults[0].message.contains(word) && faults[0].message.contains("sink \"s\""), "{faults:#?}");
    }

    #[test]
    fn the_examples_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/relay");
        let text = std::fs::read_to_string(folder.join("sinks.toml")).unwrap();
        let config = check_in(&text, &folder, &|_| Some("secret".to_owned()));
        let config = config.unwrap_or_else(|faults| panic!("{faults:#?}"));
        let names: Vec<_> = config.sinks.iter().map(|sink| &*sink.name).collect();
        assert_eq!(names, ["alerts", "signals", "litellm", "haproxy", "haproxy-sock", "envoy"]);
        let plans = format!("{:?}", config.sinks);
        assert!(!plans.contains("\"secret\""), "secrets are never printed");
    }

    #[test]
    fn each_kind_names_its_faults() {
        one_fault("kind = \"haproxy\" # <-", "haproxy-agent");
        one_fault("kind = \"webhook\"\nurl = \"http://u:p@127.0.0.1/\" # <-", "without a password");
        one_fault("kind = \"webhook\"\nurl = \"http://127.0.0.1/\"\nshape = \"slack\" # <-", "alerts");
        one_fault("kind = \"webhook\"\nurl = \"http://127.0.0.1/\"\nsign = \"env:NONE\" # <-", "NONE");
        one_fault(
            "kind = \"webhook\"\nurl = \"http://127.0.0.1/\"\nsing = \"env:SECRET\" # <-",
            "unknown key `sing`",
        );
        one_fault("kind = \"redis\"\nurl = \"redis://:pw@127.0.0.1/\" # <-", "password");
        one_fault("kind = \"redis\"\nurl = \"rediss://127.0.0.1/\" # <-", "redis");
        one_fault("kind = \"redis\"\nurl = \"127.0.0.1:6379\" # <-", "redis://");
        let litellm = "kind = \"litellm\"\nurl = \"redis://127.0.0.1/\"\n";
        one_fault(&format!("{litellm}targets = [] # <-"), "nobody would be steered");
        one_fault(&format!("{litellm}targets = [{{ upstream = \"c\", id = \"1\" }}] # <-"), "`c`");
        one_fault(
            &format!("{litellm}targets = [{{ upstream = \"a\", ids = \"1\", id = \"1\" }}] # <-"),
            "`ids`",
        );
        one_fault(
            &format!(
                "{litellm}targets = [{{ upstream = \"a\", id = \"1\" }}, {{ upstream = \"b\", id = \"1\" }}] # <-"
            ),
            "twice",
        );
        one_fault(
            &format!("{litellm}cooldown = \"1s\" # <-\ntargets = [{{ upstream = \"a\", id = \"1\" }}]"),
            "2s",
        );
        let agent = "kind = \"haproxy-agent\"\n";
        one_fault(&format!("{agent}listen = \"8901\" # <-\ntargets = [{{ upstream = \"a\" }}]"), "address");
        one_fault(
            &format!(
                "{agent}listen = \"127.0.0.1:1\"\ndrain = \"no\" # <-\ntargets = [{{ upstream = \"a\" }}]"
            ),
            "state",
        );
        let runtime = "kind = \"haproxy-runtime\"\n";
        one_fault(
            &format!("{runtime}socket = \"sock\" # <-\ntargets = [{{ upstream = \"a\", server = \"b/a\" }}]"),
            "path",
        );
        one_fault(
            &format!(
                "{runtime}socket = \"/sock\"\ntargets = [{{ upstream = \"a\", server = \"b/a; shutdown\" }}] # <-"
            ),
            "BACKEND",
        );
        let envoy = "kind = \"envoy\"\nadmin = \"http://127.0.0.1:9901\"\nprefix = \"p\"\n";
        one_fault(
            &format!("{envoy}targets = [{{ upstream = \"a\", cluster = \"a\", weight = 1 }}] # <-"),
            "every cluster",
        );
    }
}
