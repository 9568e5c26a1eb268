//! The words of the closed sets, as they stand in trace files. The same as their serde names (a test
//! holds them together); a `match` without wildcard is not needed because the test counts them.

use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

use super::cell::{Cell, read_words, words, words_type, write_words};
use crate::{Api, Attribution, ContentCheck, Kind, Outcome, Phase, SignalState, TimeSource};

words!(Kind {
    Reasoning = "reasoning",
    Summary = "summary",
    Text = "text",
    Tool = "tool",
    Usage = "usage",
    Ping = "ping",
    Comment = "comment",
    Error = "error",
    Done = "done",
    Meta = "meta",
});

words!(Phase {
    Queued = "queued",
    Reasoning = "reasoning",
    Summary = "summary",
    Output = "output",
    Tool = "tool",
    Tail = "tail",
});

words!(TimeSource {
    Kernel = "kernel",
    Socket = "socket",
    User = "user",
    Server = "server",
    Pcap = "pcap",
    None = "none",
});

words!(Attribution { Exact = "exact", Frame = "frame", None = "none" });

words!(Outcome {
    Completed = "completed",
    Incomplete = "incomplete",
    Failed = "failed",
    Truncated = "truncated",
    ClientGone = "client-gone",
    Timeout = "timeout",
    Unknown = "unknown",
});

words!(ContentCheck {
    Ok = "ok",
    InvalidJson = "invalid-json",
    Schema = "schema",
    Placeholder = "placeholder",
    Empty = "empty",
    NotChecked = "not-checked",
});

words!(SignalState { Onset = "onset", Refresh = "refresh", Clear = "clear" });

words!(Api {
    Responses = "responses",
    Chat = "chat",
    Messages = "messages",
    GenerateContent = "generate-content",
    Ollama = "ollama",
    Cohere = "cohere",
});

impl Cell for Option<Api> {
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        words_type()
    }

    fn write<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        write_words(cells.copied())
    }

    fn read(array: &dyn Array, set: impl FnMut(usize, Self)) -> Result<(), String> {
        read_words(array, set)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use serde::{Serialize, de::DeserializeOwned};

    use super::super::cell::Word;
    use super::*;

    /// Law: a word in a trace file is the word that serde writes, and every value has one.
    fn same_as_serde<W: Word + Serialize + DeserializeOwned + Debug>() {
        for (word, name) in W::WORDS {
            assert_eq!(serde_json::to_value(word).unwrap(), *name);
        }
        let error = serde_json::from_str::<W>("\"no such word\"").unwrap_err().to_string();
        let listed = error.matches('`').count() / 2 - 1;
        assert_eq!(listed, W::WORDS.len(), "{error}");
    }

    #[test]
    fn words_are_complete_and_named_as_in_json() {
        same_as_serde::<Kind>();
        same_as_serde::<Phase>();
        same_as_serde::<TimeSource>();
        same_as_serde::<Attribution>();
        same_as_serde::<Outcome>();
        same_as_serde::<ContentCheck>();
        same_as_serde::<SignalState>();
        same_as_serde::<Api>();
    }
}
