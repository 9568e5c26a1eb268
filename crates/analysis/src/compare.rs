//! Before and after, A and B: two groups of streams in, every difference with its interval out.
//!
//! Streams are pushed one by one under the name of their group (a file, or the value of a split column);
//! [`Comparison::finish`] compares two groups: shares (labels, completed, valid at first parse, on the
//! count lattice, sessions in which every call succeeded), means and quantiles of tokens, throughput, times,
//! attempts and cost, and rates: requests and cluster events per hour. Cluster events are the hits of `burst`
//! and take a second pass over the same streams ([`Comparison::start_second_pass`]). Where one side's events
//! come later and closer together, the hop that only this side passes is named ([`Hop`]).
//!
//! Rows are not independent: the calls of a session share its prompt and its luck. Where sessions (else
//! turns) are known they are the unit of every interval and test, and the report says which unit it was.
//! Only when each row stands alone are row-level tests used.
//!
//! ```
//! use sseismo_analysis::compare::Comparison;
//! use sseismo_trace::{Stream, Summary};
//!
//! let mut comparison = Comparison::default();
//! for (arm, correct) in [("a", "true"), ("a", "false"), ("b", "true")] {
//!     let mut summary = Summary::default();
//!     summary.labels.insert("correct".into(), correct.into());
//!     comparison.push(arm, &Stream { summary: &summary, deltas: &[], reads: &[] });
//! }
//! let report = comparison.finish("a", "b").unwrap();
//! assert_eq!(report.proportions[0].first.n, 2);
//! ```

mod calls;
mod hop;
mod hours;
mod proportion;
mod quantity;
mod rates;
mod report;
#[cfg(test)]
mod tests;
mod units;
mod view;

use sseismo_trace::{ContentCheck, Outcome, Stream, Summary, UtcMicros};

pub use report::{
    CompareReport, GroupInfo, Hop, HourKey, LatticeUsed, MatchedHours, MeanDifference, Proportion,
    QuantileRatio, Quantity, QuantitySide, Rate, RateSide, SCHEMA, Share, Test, Unit, schema,
};

use crate::flush::pace;
use crate::signature::burst::{Hits, StreamHits};
use crate::signature::count_lattice;
use crate::stats::fdr;
use hours::Span;
use quantity::{COST, MEASURES};
use view::View;

/// Why two groups cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No stream was pushed under that name.
    #[error("no group `{name}`: there are {have}")]
    NoSuchGroup {
        /// The name asked for.
        name: String,
        /// The names that exist.
        have: String,
    },
    /// Both sides are the same group.
    #[error("`{0}` cannot be compared with itself")]
    Same(String),
    /// Hours are to be matched and there is none that both sides have.
    #[error(
        "no hour of day has streams of both `{first}` and `{second}` with a known start: nothing to match"
    )]
    NoSharedHours {
        /// The first side.
        first: String,
        /// The second side.
        second: String,
    },
}

/// Fewer independent observations on a side are too few to go by: the Wilson interval of a share of ten is up
/// to 0.53 wide.
const OBSERVATIONS: usize = 10;

/// Said of a line of the report where a side has too few observations.
fn too_few(observations: [usize; 2], unit: Unit) -> Option<String> {
    let fewest = observations[0].min(observations[1]);
    (fewest < OBSERVATIONS)
        .then(|| format!("{fewest} {}s on a side: {OBSERVATIONS} are the least to go by", unit.name()))
}

/// Streams of any number of groups; keeps some 400 bytes a stream.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Group names in the order in which they came.
    names: Vec<String>,
    rows: Vec<Row>,
    /// Names of shares in the order in which they came.
    flags: Vec<String>,
    /// What counts as a cluster event, learnt from all groups alike: one yardstick for all.
    hits: Hits,
    /// In the second pass: the row of the stream that comes next.
    again: Option<usize>,
}

#[derive(Debug)]
struct Row {
    group: usize,
    session: Option<u64>,
    turn: Option<u64>,
    attempt: Option<u32>,
    /// One of several answers to one prompt: no attempt after another.
    fan_out: bool,
    completed: Option<bool>,
    span: Option<Span>,
    /// From the second pass.
    hits: Option<StreamHits>,
    /// Reported reasoning tokens, when usable on a lattice.
    count: Option<u32>,
    flags: Vec<(usize, bool)>,
    measures: [Option<f64>; MEASURES.len()],
}

impl Comparison {
    /// Takes in one stream of `group`.
    pub fn push(&mut self, group: &str, stream: &Stream<'_>) {
        let summary = stream.summary;
        let group = place(&mut self.names, group);
        if let Some(next) = &mut self.again {
            // A file that grew between the passes has streams that the first one did not see.
            let row = self.rows.get_mut(*next).filter(|row| row.group == group);
            *next += 1;
            if let Some(row) = row {
                row.hits = self.hits.count(stream);
            }
            return;
        }
        self.hits.learn(stream);
        let mut flags = Vec::new();
        for (name, value) in &summary.labels {
            if let Ok(value) = value.parse::<bool>() {
                flags.push((place(&mut self.flags, name), value));
            }
        }
        let completed =
            (summary.outcome != Outcome::Unknown).then_some(summary.outcome == Outcome::Completed);
        if let Some(completed) = completed {
            flags.push((place(&mut self.flags, "completed"), completed));
        }
        if summary.content_check != ContentCheck::NotChecked && summary.attempt.is_none_or(|n| n <= 1) {
            let valid = summary.content_check == ContentCheck::Ok;
            flags.push((place(&mut self.flags, "valid at first parse"), valid));
        }
        let pace = pace(stream);
        let reasoning = summary.usage.reasoning.filter(|_| !summary.folded);
        self.rows.push(Row {
            group,
            session: summary.session_key,
            turn: summary.turn_key,
            attempt: summary.attempt,
            fan_out: summary.group_id.is_some(),
            completed,
            span: span(summary),
            hits: None,
            count: reasoning.and_then(count_lattice::whole_count),
            flags,
            measures: MEASURES.map(|measure| (measure.read)(summary, &pace).filter(|v| v.is_finite())),
        });
    }

    /// Whether pushing every stream once more would find cluster events.
    pub fn wants_second_pass(&self) -> bool {
        self.again.is_none() && self.hits.wants_second_pass()
    }

    /// From now on the same streams are pushed for the second time, in the same order.
    pub fn start_second_pass(&mut self) {
        self.again = Some(0);
    }

    /// The groups seen so far, in the order in which they came.
    pub fn groups(&self) -> &[String] {
        &self.names
    }

    /// Compares `second` with `first`: differences are second minus first, ratios second over first.
    ///
    /// # Errors
    /// When a name is unknown or both are the same.
    pub fn finish(&self, first: &str, second: &str) -> Result<CompareReport, Error> {
        let (sides, rows) = self.sides(first, second)?;
        Ok(self.report(&View::new(rows, sides, [first.to_owned(), second.to_owned()]), None))
    }

    /// The same with only those streams whose hour of day both sides have, so that a busy noon is not compared
    /// with a quiet night. Weekdays are matched too where `first` has each one that `second` has.
    ///
    /// # Errors
    /// As [`Self::finish`], and when no hour is shared.
    pub fn finish_at_shared_hours(&self, first: &str, second: &str) -> Result<CompareReport, Error> {
        let (sides, rows) = self.sides(first, second)?;
        let of = |side: usize| rows.iter().filter(move |row| row.group == sides[side]);
        let starts =
            [0, 1].map(|side| -> Vec<UtcMicros> { of(side).filter_map(|row| row.start()).collect() });
        let by = hours::key(&starts[0], &starts[1]);
        let shared = hours::shared([&starts[0], &starts[1]], by);
        if shared.is_empty() {
            return Err(Error::NoSharedHours { first: first.to_owned(), second: second.to_owned() });
        }
        let fits = |at: UtcMicros| shared.contains(&hours::Slot::of(at, by));
        let count = |side: usize, wanted: fn(Option<bool>) -> bool| {
            of(side).filter(|row| wanted(row.start().map(fits))).count() as u64
        };
        let days = |side: usize| {
            let kept = starts[side].iter().filter(|at| fits(**at));
            kept.map(|at| hours::day(*at)).collect::<std::collections::BTreeSet<i64>>().len() as u64
        };
        let matched = MatchedHours {
            by,
            hours: shared.len() as u64,
            days: [0, 1].map(days),
            left_out: [0, 1].map(|side| count(side, |fits| fits == Some(false))),
            without_start: [0, 1].map(|side| count(side, |fits| fits.is_none())),
        };
        let kept = rows.iter().copied().filter(|row| row.start().is_some_and(fits)).collect();
        Ok(self.report(&View::new(kept, sides, [first.to_owned(), second.to_owned()]), Some(matched)))
    }

    fn sides(&self, first: &str, second: &str) -> Result<([usize; 2], Vec<&Row>), Error> {
        let sides = [self.find(first)?, self.find(second)?];
        if sides[0] == sides[1] {
            return Err(Error::Same(first.to_owned()));
        }
        Ok((sides, self.rows.iter().filter(|row| sides.contains(&row.group)).collect()))
    }

    fn report(&self, view: &View<'_>, matched_hours: Option<MatchedHours>) -> CompareReport {
        let (lattice, found) = view.lattice();
        let quantities = view.quantities();
        let mut report = CompareReport {
            schema: SCHEMA.into(),
            groups: [0, 1].map(|side| view.group_info(side)),
            unit: view.unit(),
            lattice: LatticeUsed { step: lattice.step, offset: lattice.offset, found },
            proportions: view.proportions(&self.flags, lattice),
            hop: hop::between(view.names(), &quantities),
            quantities,
            rates: view.rates(),
            associations: view.associations(&self.flags, lattice),
            does_not_prove:
                "that the split caused a difference: the groups may also differ in prompts, dates, \
                load or users unless they were assigned at random"
                    .into(),
            notes: view.notes(found, matched_hours.as_ref()),
            matched_hours,
        };
        adjust(&mut report);
        report
    }

    fn find(&self, name: &str) -> Result<usize, Error> {
        self.names
            .iter()
            .position(|known| known == name)
            .ok_or_else(|| Error::NoSuchGroup { name: name.to_owned(), have: self.names.join(", ") })
    }
}

/// Number of `name` in a list that grows.
fn place(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

impl Row {
    fn flag(&self, flag: usize) -> Option<bool> {
        self.flags.iter().find(|f| f.0 == flag).map(|f| f.1)
    }

    fn cost(&self) -> Option<f64> {
        MEASURES.iter().zip(self.measures).find(|(measure, _)| measure.name == COST)?.1
    }

    fn start(&self) -> Option<UtcMicros> {
        self.span.map(|span| span.start)
    }
}

/// When a stream ran; `None` when nobody knows its start.
fn span(summary: &Summary) -> Option<Span> {
    let start = summary.started_at?;
    let length = summary.t_end.map_or(0, |end| end.0);
    Some(Span { start, end: UtcMicros(start.0.saturating_add(length)) })
}

/// Benjamini–Hochberg over the first test of each line of the report.
fn adjust(report: &mut CompareReport) {
    let mut tests: Vec<&mut Test> = report
        .proportions
        .iter_mut()
        .chain(&mut report.associations)
        .map(|p| &mut p.tests)
        .chain(report.quantities.iter_mut().map(|q| &mut q.tests))
        .chain(report.rates.iter_mut().map(|r| &mut r.tests))
        .filter_map(|tests| tests.first_mut())
        .collect();
    let p: Vec<f64> = tests.iter().map(|test| test.p).collect();
    for (test, q) in tests.iter_mut().zip(fdr::benjamini_hochberg(&p)) {
        test.q = Some(q);
    }
}
