//! Client files of `ServeGen`: distributions of production reasoning workloads.
//!
//! They hold shares of sizes and arrival rates per window, and no requests. Requests drawn from them
//! would be invented, so nothing is imported; the file is named and the way to use it said.

use super::Options;
use super::importer::{Error, Fit, Grain, Head, Importer, Out};
use super::input::Input;

/// A `ServeGen` client.
pub(super) struct ServeGen;

const HOLDS_NO_REQUESTS: &str = "a ServeGen client: distributions of sizes and rates, no requests to look at; \
                                 name it as `client` in the [load] of a scenario for `sseismo simulate`, as \
                                 data/scenarios/servegen-client.toml does";

impl Importer for ServeGen {
    fn name(&self) -> &'static str {
        "servegen"
    }

    fn expects(&self) -> &'static str {
        "a client of ServeGen (named, not read)"
    }

    fn grain(&self) -> Grain {
        Grain::Table
    }

    fn recognises(&self, head: &Head<'_>) -> Fit {
        let text = head.bytes.get(..400).unwrap_or(head.bytes);
        let is_sizes = text.trim_ascii_start().starts_with(b"{")
            && memchr::memmem::find(text, b"\"input_tokens\": \"{").is_some();
        let is_rates = head.lines().next().is_some_and(|line| line.split(|&byte| byte == b',').count() == 6)
            && head.lines().take(200).any(|line| {
                let name = line.split(|&byte| byte == b',').nth(3);
                matches!(name, Some(b"Gamma" | b"Weibull"))
            });
        if is_sizes || is_rates { Fit::Near(HOLDS_NO_REQUESTS.to_owned()) } else { Fit::No }
    }

    fn read(&self, _: &Input<'_>, _: &Options, _: &mut Out<'_>) -> Result<(), Error> {
        Err(Error::Unusable(HOLDS_NO_REQUESTS.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{data, read};
    use super::*;

    #[test]
    fn real_client_files_are_named_and_not_invented_from() {
        for file in ["chunk-0-dataset.json", "chunk-0-trace.csv", "chunk-2-dataset.json"] {
            let path = data(&format!("workload/servegen-deepseek-r1/{file}"));
            let (imported, kept) = read(&path, &Options::default());
            assert!(
                imported[0].error.as_ref().unwrap().contains("a ServeGen client"),
                "{file}: {imported:?}"
            );
            assert!(kept.streams.is_empty());
        }
    }
}
