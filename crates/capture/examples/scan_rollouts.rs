//! Reads session logs and does nothing else with them; writes a corpus to read.
//!
//! `generate DIR GB` writes a seeded corpus in the shape of `$CODEX_HOME/sessions`; `scan DIR` imports
//! it and says what was counted. `python3 tests/bench/rollouts.py` measures it beside other tools.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::ops::ControlFlow;
use std::path::Path;

use sseismo_capture::import::{self, Options};
use sseismo_trace::Stream;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["generate", folder, size] => {
            let gb: f64 = size.parse().map_err(|_| io::Error::other("GB must be a number"))?;
            generate(Path::new(folder), gb * 1e9)
        }
        ["scan", folder] => scan(Path::new(folder)),
        _ => Err(io::Error::other("use: generate DIR GB | scan DIR")),
    }
}

#[derive(Default)]
struct Tally {
    responses: u64,
    at_516: u64,
}

impl import::Sink for Tally {
    fn stream(&mut self, _: &str, stream: Stream<'_>) {
        self.responses += 1;
        self.at_516 += u64::from(stream.summary.usage.reasoning == Some(516.0));
    }

    fn progress(&mut self, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

fn scan(folder: &Path) -> io::Result<()> {
    let mut tally = Tally::default();
    import::import(folder, &Options::default(), &mut tally);
    // The kernel's own high-water mark; what a parent sees includes the parent.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown").trim();
    writeln!(io::stdout(), "peak {peak}; {} responses, {} at 516", tally.responses, tally.at_516)
}

#[expect(clippy::cast_precision_loss, reason = "the size is approximate")]
fn generate(folder: &Path, bytes: f64) -> io::Result<()> {
    let mut seeded = Seeded(516);
    let (mut written, mut session) = (0_u64, 0_u64);
    while (written as f64) < bytes {
        let day = 1 + session % 28;
        let days = folder.join(format!("sessions/2026/07/{day:02}"));
        fs::create_dir_all(&days)?;
        let id = format!("{session:08x}-0000-7000-8000-000000000000");
        let file = File::create(days.join(format!("rollout-2026-07-{day:02}T10-00-00-{id}.jsonl")))?;
        let mut log = Log { file: BufWriter::new(file), line: String::new(), day, clock: 0, written: 0 };
        log.session(&id, &mut seeded)?;
        log.file.flush()?;
        written += log.written;
        session += 1;
    }
    Ok(())
}

/// A session log being written.
struct Log {
    file: BufWriter<File>,
    line: String,
    day: u64,
    /// Seconds since the day began.
    clock: u64,
    written: u64,
}

impl Log {
    /// 40 turns with 5 responses each: about 8 MB, of which the lines with counts are 2 %.
    fn session(&mut self, id: &str, seeded: &mut Seeded) -> io::Result<()> {
        let meta = format!(
            r#""id":"{id}","cli_version":"0.146.0","originator":"codex-tui","source":"cli","model_provider":"openai","instructions":""#
        );
        self.put("session_meta", &meta, 20_000, "\"", seeded)?;
        let mut total = [0; 3];
        for turn in 0..40 {
            let model = ["gpt-5.5", "gpt-5.4"][usize::from(seeded.below(2) == 0)];
            let context = format!(r#""turn_id":"t{turn}","cwd":"/p","model":"{model}","effort":"xhigh""#);
            self.put("turn_context", &context, 0, "", seeded)?;
            let message = r#""type":"message","role":"user","content":[{"type":"input_text","text":""#;
            self.put("response_item", message, 2_000, "\"}]", seeded)?;
            for _ in 0..5 {
                self.response(&mut total, seeded)?;
            }
        }
        Ok(())
    }

    /// Reasoning, a tool call, the counts, the tool's output. A fifth of all counts is 516.
    fn response(&mut self, total: &mut [u64; 3], seeded: &mut Seeded) -> io::Result<()> {
        let reasoning = if seeded.below(5) == 0 { 516 } else { 20 + seeded.below(3000) };
        let last = [8_000 + seeded.below(90_000), reasoning + 30 + seeded.below(900), reasoning];
        for (sum, part) in total.iter_mut().zip(last) {
            *sum += part;
        }
        let thought = r#""type":"reasoning","summary":[],"content":null,"encrypted_content":""#;
        self.put("response_item", thought, 4 * reasoning, "\"", seeded)?;
        let call = r#""type":"function_call","name":"shell","call_id":"c","arguments":""#;
        self.put("response_item", call, 400, "\"", seeded)?;
        let counts = format!(
            r#""type":"token_count","info":{{"total_token_usage":{},"last_token_usage":{},"model_context_window":258400}},"rate_limits":{{"limit_id":"codex","primary":{{"used_percent":3.0,"window_minutes":300,"resets_at":1790000000}},"plan_type":"pro"}}"#,
            usage(*total),
            usage(last)
        );
        self.put("event_msg", &counts, 0, "", seeded)?;
        let output = r#""type":"function_call_output","call_id":"c","output":""#;
        let bytes = 1_000 + seeded.below(60_000);
        self.put("response_item", output, bytes, "\"", seeded)
    }

    /// A line of this type: `start`, so many bytes of text, `end`.
    fn put(&mut self, kind: &str, start: &str, text: u64, end: &str, seeded: &mut Seeded) -> io::Result<()> {
        self.clock += 7;
        let (hour, minute, second) = (self.clock / 3600 % 24, self.clock / 60 % 60, self.clock % 60);
        self.line.clear();
        let _ = write!(
            self.line,
            r#"{{"timestamp":"2026-07-{:02}T{hour:02}:{minute:02}:{second:02}.000Z","type":"{kind}","payload":{{{start}"#,
            self.day
        );
        seeded.text(text, &mut self.line);
        self.line.push_str(end);
        self.line.push_str("}}\n");
        self.written += self.line.len() as u64;
        self.file.write_all(self.line.as_bytes())
    }
}

fn usage([input, output, reasoning]: [u64; 3]) -> String {
    format!(
        r#"{{"input_tokens":{input},"cached_input_tokens":0,"output_tokens":{output},"reasoning_output_tokens":{reasoning},"total_tokens":{}}}"#,
        input + output
    )
}

/// A seeded sequence of numbers (`SplitMix64`).
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Text as it stands in a JSON string: words, and a line feed here and there.
    fn text(&mut self, bytes: u64, into: &mut String) {
        let end = into.len() as u64 + bytes;
        while (into.len() as u64) < end {
            let word = self.next();
            let _ = write!(into, "{word:016x}{}", if word.is_multiple_of(8) { "\\n" } else { " " });
        }
    }
}
