//! A client of `ServeGen`: requests drawn from the distributions of a production client.
//!
//! In: the two files of one client, `NAME-trace.csv` (arrivals, one window a line) and `NAME-dataset.json`
//! (shares of prompt and output sizes, one window an entry). Out: times and sizes drawn from them, the last
//! window followed by the first. No request of it was ever sent: what is drawn is simulated, not recorded.
//!
//! Columns of the trace: start of the window in s, requests a second, coefficient of variation, the law of the
//! gaps, its shape and its scale. Gamma gaps are drawn with the window's rate as their mean, since the law was
//! fitted to the part of the window in which the client was active.
//! Source: Xiang et al., "`ServeGen`: Workload Characterization and Generation of Large Language Model Serving in
//! Production" (2025), <https://github.com/alibaba/ServeGen>.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use sseismo_trace::Micros;

use crate::ask::Amounts;
use crate::draw::Draw;
use crate::unit::micros;

/// A law of gaps, in units of its mean (Gamma) or in seconds (Weibull).
#[derive(Clone, Copy, Debug, PartialEq)]
enum Law {
    Gamma { shape: f64 },
    Weibull { shape: f64, scale: f64 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Window {
    start: f64,
    /// Requests a second, and how their gaps are distributed; none in a quiet window.
    active: Option<(f64, Law)>,
}

/// Values and the sums of their shares up to each.
type Shares = Vec<(f64, f64)>;

#[derive(Clone, Debug, Default)]
struct Sizes {
    input: Shares,
    output: Shares,
    reasoning: Shares,
}

/// One client.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    windows: Vec<Window>,
    /// Length of all windows, s.
    period: f64,
    /// By the start of their window, s; those that hold nothing are left out.
    sizes: Vec<(f64, Sizes)>,
}

impl Client {
    /// Reads the two files whose names begin with `stem`.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub(crate) fn load(stem: &Path) -> Result<Self, String> {
        let read = |ending: &str| {
            let path = format!("{}-{ending}", stem.display());
            std::fs::read_to_string(&path).map_err(|error| {
                format!("{path} cannot be read ({error}): name a client without `-trace.csv`")
            })
        };
        Self::parse(&read("trace.csv")?, &read("dataset.json")?)
    }

    fn parse(trace: &str, dataset: &str) -> Result<Self, String> {
        let windows: Vec<Window> = (1..)
            .zip(trace.lines())
            .map(|(number, line)| {
                window(line).ok_or_else(|| format!("line {number} of the trace is no window"))
            })
            .collect::<Result<_, _>>()?;
        let last = windows.last().map_or(0.0, |window| window.start);
        let length = windows.get(1).map_or(600.0, |second| second.start - windows[0].start);
        if !windows.windows(2).all(|pair| pair[0].start < pair[1].start) {
            return Err("the windows of the trace are not in order".into());
        }
        if windows.iter().all(|window| window.active.is_none()) {
            return Err("no window of the trace has a request".into());
        }
        let sizes = sizes(dataset)?;
        if sizes.is_empty() {
            return Err("no window of the dataset has sizes".into());
        }
        Ok(Self { windows, period: last + length, sizes })
    }

    /// Time from `now` to the next request, µs.
    pub(crate) fn gap(&self, now: Micros, draw: &mut Draw) -> i64 {
        let at = now.seconds().rem_euclid(self.period);
        let place = self.windows.partition_point(|window| window.start <= at).saturating_sub(1);
        let later = self.windows.iter().cycle().skip(place).take(self.windows.len() + 1);
        for (step, window) in later.enumerate() {
            let Some((rate, law)) = window.active else { continue };
            let wait = if step == 0 { 0.0 } else { (window.start - at).rem_euclid(self.period) };
            let gap = match law {
                Law::Gamma { shape } => draw.gamma(shape) / (shape * rate),
                Law::Weibull { shape, scale } => scale * draw.exponential(1.0).powf(1.0 / shape),
            };
            return micros(wait + gap);
        }
        micros(self.period)
    }

    /// Prompt tokens of a request at `now`, and what is generated for it.
    pub(crate) fn sizes(&self, now: Micros, draw: &mut Draw) -> (u64, Amounts) {
        let at = now.seconds().rem_euclid(self.period);
        let place = self.sizes.partition_point(|(start, _)| *start <= at).saturating_sub(1);
        let sizes = &self.sizes[place].1;
        let (input, output) = (value(&sizes.input, draw).max(1.0), value(&sizes.output, draw).max(1.0));
        let reasoning = (output * value(&sizes.reasoning, draw).clamp(0.0, 1.0)).round().min(output - 1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked when they were read"
        )]
        let [input, output, reasoning] = [input, output, reasoning].map(|tokens| tokens as u64);
        (input, Amounts { reasoning, output: output - reasoning })
    }
}

fn window(line: &str) -> Option<Window> {
    let columns: Vec<&str> = line.split(',').map(str::trim).collect();
    let [start, rate, _, law, shape, scale] = columns[..] else { return None };
    let number = |text: &str| text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
    let (start, rate, shape, scale) = (number(start)?, number(rate)?, number(shape)?, number(scale)?);
    let law = match law {
        "Gamma" => Some(Law::Gamma { shape }),
        "Weibull" => Some(Law::Weibull { shape, scale }),
        "" => None,
        _ => return None,
    };
    Some(Window { start, active: law.filter(|_| rate > 0.0 && shape > 0.0).map(|law| (rate, law)) })
}

#[derive(Deserialize)]
struct Entry {
    input_tokens: String,
    output_tokens: String,
    reason_ratio: String,
}

fn sizes(dataset: &str) -> Result<Vec<(f64, Sizes)>, String> {
    let entries: BTreeMap<String, Entry> =
        serde_json::from_str(dataset).map_err(|error| format!("the dataset: {error}"))?;
    let mut sizes = Vec::new();
    for (start, entry) in entries {
        let start = start.parse::<f64>().map_err(|_| format!("the dataset's window {start} is no second"))?;
        let read = |text: &str, name: &str| {
            shares(text).ok_or_else(|| format!("{name} of the dataset's window {start} are no shares"))
        };
        let of_window = Sizes {
            input: read(&entry.input_tokens, "input_tokens")?,
            output: read(&entry.output_tokens, "output_tokens")?,
            reasoning: read(&entry.reason_ratio, "reason_ratio")?,
        };
        if ![&of_window.input, &of_window.output, &of_window.reasoning].iter().any(|shares| shares.is_empty())
        {
            sizes.push((start, of_window));
        }
    }
    sizes.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(sizes)
}

/// `{45: 0.5, 46: 0.5}`, as Python prints it, to running sums.
fn shares(text: &str) -> Option<Shares> {
    /// More tokens than any model takes.
    const MOST: f64 = 1e8;
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut sum = 0.0;
    inner
        .split(',')
        .filter(|pair| !pair.trim().is_empty())
        .map(|pair| {
            let (value, share) = pair.split_once(':')?;
            let (value, share) = (value.trim().parse::<f64>().ok()?, share.trim().parse::<f64>().ok()?);
            sum += Some(share).filter(|share| share.is_finite() && *share >= 0.0)?;
            (0.0..=MOST).contains(&value).then_some((value, sum))
        })
        .collect()
}

fn value(shares: &Shares, draw: &mut Draw) -> f64 {
    let total = shares.last().map_or(0.0, |last| last.1);
    let wanted = draw.unit() * total;
    let place = shares.partition_point(|(_, sum)| *sum <= wanted);
    shares.get(place).or(shares.last()).map_or(0.0, |(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn real(name: &str) -> Client {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/workload/servegen-deepseek-r1");
        Client::load(&folder.join(name)).unwrap()
    }

    /// Requests of a whole day against the file's own rates.
    #[test]
    fn a_day_has_as_many_requests_as_the_client_had() {
        let client = real("chunk-0");
        let wanted: f64 = client.windows.iter().filter_map(|window| Some(window.active?.0 * 600.0)).sum();
        let (mut at, mut made, mut draw) = (Micros(0), 0_u32, Draw::new(10_000, 0, 0));
        while at.seconds() < client.period {
            at = Micros(at.0 + client.gap(at, &mut draw).max(1));
            made += 1;
        }
        let ratio = f64::from(made) / wanted;
        assert!((0.8..1.25).contains(&ratio), "{made} made, {wanted} wanted");
    }

    /// Means of what is drawn against the means of the shares, within 5 %.
    #[test]
    fn sizes_are_those_of_the_shares() {
        let client = real("chunk-3");
        let mut draw = Draw::new(10_000, 1, 0);
        let drawn: Vec<(u64, Amounts)> = (0..20_000).map(|_| client.sizes(Micros(0), &mut draw)).collect();
        let mean = |shares: &Shares| {
            let mut before = 0.0;
            shares
                .iter()
                .map(|(value, sum)| value * (sum - std::mem::replace(&mut before, *sum)))
                .sum::<f64>()
                / shares.last().unwrap().1
        };
        let sizes = &client.sizes[0].1;
        #[expect(clippy::cast_precision_loss, reason = "tokens")]
        let got = |figure: fn(&(u64, Amounts)) -> u64| {
            drawn.iter().map(|one| figure(one) as f64).sum::<f64>() / 20_000.0
        };
        assert!((got(|one| one.0) / mean(&sizes.input) - 1.0).abs() < 0.05);
        assert!((got(|one| one.1.reasoning + one.1.output) / mean(&sizes.output) - 1.0).abs() < 0.05);
        assert!(drawn.iter().all(|one| one.1.output >= 1));
    }

    #[test]
    fn what_is_no_client_is_named() {
        let problem = |trace: &str, dataset: &str| Client::parse(trace, dataset).unwrap_err();
        let sizes = r#"{"0": {"input_tokens": "{5: 1.0}", "output_tokens": "{9: 1.0}", "reason_ratio": "{0.5: 1.0}"}}"#;
        assert!(problem("0,1,1,Gamma,1,1\n5,x", sizes).contains("line 2"));
        assert!(problem("0,0,0,,0,0", sizes).contains("no window of the trace"));
        assert!(problem("0,1,1,Gamma,1,1", "{}").contains("no window of the dataset"));
        assert!(problem("0,1,1,Gamma,1,1", "[").contains("the dataset"));
        assert!(problem("0,1,1,Gamma,1,1", &sizes.replace("5: 1.0", "5: x")).contains("input_tokens"));
        assert!(Client::load(Path::new("nowhere/chunk")).unwrap_err().contains("-trace.csv"));
    }
}
