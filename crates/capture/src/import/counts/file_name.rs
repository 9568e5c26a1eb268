//! What a table's file name tells where its columns do not: `MODEL-EFFORT.csv`, as people name batches.
//!
//! Only a name that ends in a known effort is taken, and the report says where the values come from.

use std::path::Path;

/// Efforts that the APIs know (OpenAI's `reasoning.effort`, `max` of others).
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Model and effort, when the name ends in an effort.
pub(super) fn model_and_effort(path: &Path) -> Option<(&str, &str)> {
    let name = path.file_name()?.to_str()?;
    let stem = [".csv", ".tsv", ".jsonl", ".json", ".txt"].iter().find_map(|ending| {
        let name = name.strip_suffix(".zst").or_else(|| name.strip_suffix(".gz")).unwrap_or(name);
        name.strip_suffix(ending)
    })?;
    let (model, effort) = stem.rsplit_once('-')?;
    (!model.is_empty() && EFFORTS.contains(&effort)).then_some((model, effort))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_ends_in_an_effort_tells_model_and_effort() {
        assert_eq!(model_and_effort(Path::new("x/gpt-5.5-xhigh.csv")), Some(("gpt-5.5", "xhigh")));
        assert_eq!(model_and_effort(Path::new("o4-mini-low.jsonl.zst")), Some(("o4-mini", "low")));
    }

    #[test]
    fn any_other_name_tells_nothing() {
        for name in ["runs.csv", "evaluation_stats.csv", "gpt-5.5.csv", "-high.csv", "gpt-5.5-xhigh"] {
            assert_eq!(model_and_effort(Path::new(name)), None, "{name}");
        }
    }
}
