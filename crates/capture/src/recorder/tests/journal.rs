//! The journal's law, at every byte.

use proptest::collection::vec;
use proptest::prelude::*;
use sseismo_trace::parquet::{Raw, Text};
use sseismo_trace::{Delta, Kind, Micros, Phase, Read, Summary, Usage, UtcMicros};

use super::super::entry::Entry;
use super::super::journal::{Journal, MAGIC, blocks};
use super::at;

fn entry() -> impl Strategy<Value = Entry> {
    let delta =
        (any::<u64>(), any::<[u32; 4]>(), any::<u16>(), any::<[Option<u32>; 4]>(), any::<Option<i64>>());
    let delta = delta.prop_map(|(stream, numbers, extra_reads, options, time)| {
        let delta = Delta {
            first_read: options[0],
            extra_reads,
            item_index: options[1].map(|number| (number & 0xffff) as u16),
            provider_seq: options[2],
            provider_ts: time.map(|time| !time),
            tokens: options[3],
            tokens_est: options[0].map(|number| number / 2),
            chars: numbers[1],
            wire_bytes: numbers[2],
            pad_bytes: numbers[3],
            ..Delta::new(numbers[0], Kind::Tool, Phase::Tail, time.map(Micros))
        };
        Entry::Delta(stream, delta)
    });
    let read = (any::<u64>(), any::<[u32; 2]>(), any::<i64>(), any::<bool>(), any::<[Option<i64>; 3]>());
    let read = read.prop_map(|(conn_id, [read_id, bytes], t, drained, spans)| {
        let [kernel_lag, idle, loop_lag] = spans.map(|span| span.map(Micros));
        Entry::Read(Read { conn_id, read_id, t: Micros(t), kernel_lag, bytes, drained, idle, loop_lag })
    });
    let text = (any::<u64>(), any::<u32>(), "\\PC{0,20}")
        .prop_map(|(stream_id, seq, text)| Entry::Text(Text { stream_id, seq, kind: Kind::Meta, text }));
    let raw = (any::<u64>(), any::<Option<u32>>(), any::<Option<i64>>(), vec(any::<u8>(), 0..40)).prop_map(
        |(stream_id, read_id, t, bytes)| {
            Entry::Raw(Raw { stream_id, chunk: 3, read_id, t: t.map(Micros), bytes })
        },
    );
    let end = (any::<u64>(), any::<[Option<u64>; 2]>(), -1e9..1e9_f64, any::<bool>(), "\\PC{0,20}").prop_map(
        |(stream_id, numbers, float, kept, text)| {
            let summary = Summary {
                stream_id,
                session_key: numbers[0],
                started_at: numbers[1].map(|number| UtcMicros(number.cast_signed())),
                prompt_numeric_share: Some(float),
                cost_usd: numbers[0].map(|_| float / 3.0),
                usage: Usage { reasoning: numbers[1].map(|_| float / 7.0), ..Usage::default() },
                upstream: Some(text.clone()),
                labels: [(text, "x".to_owned())].into(),
                ..Summary::default()
            };
            if kept {
                Entry::Begin(Box::new(summary))
            } else {
                Entry::Finish(Box::new(summary), stream_id % 2 == 0)
            }
        },
    );
    prop_oneof![4 => delta, 2 => read, 1 => text, 1 => raw, 1 => end, 1 => Just(Entry::Anchor(at(5)))]
}

fn decode(mut payload: &[u8]) -> Vec<Entry> {
    let entries = std::iter::from_fn(|| Entry::decode(&mut payload)).collect();
    assert!(payload.is_empty());
    entries
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Law: cut a journal at any byte, and exactly the blocks before the cut come back; damage a byte,
    /// and exactly the blocks before it do.
    #[test]
    fn a_cut_journal_gives_back_its_whole_blocks(content in vec(vec(entry(), 1..6), 1..6), flip in any::<u8>()) {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(&folder.path().join("x.journal")).unwrap();
        let mut ends = vec![usize::try_from(journal.len()).unwrap()];
        for entries in &content {
            let mut payload = Vec::new();
            for entry in entries {
                entry.encode(&mut payload);
            }
            journal.append(&payload).unwrap();
            ends.push(usize::try_from(journal.len()).unwrap());
        }
        let bytes = std::fs::read(journal.path()).unwrap();
        prop_assert_eq!(bytes.len(), ends[content.len()]);
        for cut in 0..=bytes.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count().saturating_sub(1);
            let found = blocks(&bytes[..cut]).unwrap();
            prop_assert_eq!(decode(&found.payload), content[..whole].concat());
            let known = if cut < MAGIC.len() { 0 } else { ends[whole] };
            prop_assert_eq!(found.torn, (cut - known) as u64);
        }
        for hit in (MAGIC.len()..bytes.len()).step_by(7) {
            let mut bytes = bytes.clone();
            bytes[hit] ^= flip | 1;
            let whole = ends.iter().filter(|end| **end <= hit).count() - 1;
            prop_assert_eq!(decode(&blocks(&bytes).unwrap().payload), content[..whole].concat());
        }
    }
}
