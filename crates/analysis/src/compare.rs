//! Before and after, A and B: two groups of streams in, every difference with its interval out.
//!
//! Streams are pushed one by one under the name of their group (a file, or the value of a split column);
//! [`Comparison::finish`] compares two groups: shares (labels, completed, valid at first parse, on the
//! count lattice), means and quantiles of tokens, times and cost. Where one side's events come later and
//! closer together, the hop that only this side passes is named ([`Hop`]).
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

mod hop;
mod proportion;
mod quantity;
mod report;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sseismo_trace::{ContentCheck, Outcome, Stream};

pub use report::{
    CompareReport, GroupInfo, Hop, LatticeUsed, MeanDifference, Proportion, QuantileRatio, Quantity,
    QuantitySide, SCHEMA, Share, Test, Unit,
};

use crate::flush::pace;
use crate::signature::count_lattice::{self, FIELD, Lattice};
use crate::stats::fdr;
use proportion::{Trial, proportion};
use quantity::{MEASURES, Reading, quantity};

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
}

/// Streams of any number of groups; keeps some 100 bytes a stream.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Group names in the order in which they came.
    names: Vec<String>,
    rows: Vec<Row>,
    /// Names of shares in the order in which they came.
    flags: Vec<String>,
}

#[derive(Debug)]
struct Row {
    group: usize,
    session: Option<u64>,
    turn: Option<u64>,
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
        let mut flags = Vec::new();
        for (name, value) in &summary.labels {
            if let Ok(value) = value.parse::<bool>() {
                flags.push((place(&mut self.flags, name), value));
            }
        }
        if summary.outcome != Outcome::Unknown {
            flags.push((place(&mut self.flags, "completed"), summary.outcome == Outcome::Completed));
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
            count: reasoning.and_then(count_lattice::whole_count),
            flags,
            measures: MEASURES.map(|measure| (measure.read)(summary, &pace).filter(|v| v.is_finite())),
        });
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
        let sides = [self.find(first)?, self.find(second)?];
        if sides[0] == sides[1] {
            return Err(Error::Same(first.to_owned()));
        }
        let rows: Vec<&Row> = self.rows.iter().filter(|row| sides.contains(&row.group)).collect();
        let units = Units::of(&rows, sides);
        let view = View { rows, sides, units, names: [first.to_owned(), second.to_owned()] };
        let (lattice, found) = view.lattice();
        let quantities = view.quantities();
        let mut report = CompareReport {
            schema: SCHEMA.into(),
            groups: [0, 1].map(|side| view.group_info(side)),
            unit: view.units.unit,
            lattice: LatticeUsed { step: lattice.step, offset: lattice.offset, found },
            proportions: view.proportions(&self.flags, lattice),
            hop: hop::between(&view.names, &quantities),
            quantities,
            associations: view.associations(&self.flags, lattice),
            does_not_prove:
                "that the split caused a difference: the groups may also differ in prompts, dates, \
                load or users unless they were assigned at random"
                    .into(),
            notes: view.notes(found),
        };
        adjust(&mut report);
        Ok(report)
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

/// What counts as one observation, and which observation each row belongs to.
struct Units {
    unit: Unit,
    /// By row: number of its cluster, dense within its side.
    of_row: Vec<u32>,
    clusters: [u32; 2],
    /// Sessions or turns with rows on both sides.
    shared: usize,
}

impl Units {
    /// Sessions if any row has one, else turns, else rows; rows where each cluster holds a single row.
    fn of(rows: &[&Row], sides: [usize; 2]) -> Self {
        for (unit, key) in
            [(Unit::Session, (|row| row.session) as fn(&Row) -> Option<u64>), (Unit::Turn, |row| row.turn)]
        {
            if rows.iter().any(|row| key(row).is_some()) {
                let units = Self::by(unit, rows, sides, key);
                if (units.clusters[0] + units.clusters[1]) as usize != rows.len() || units.shared > 0 {
                    return units;
                }
            }
        }
        Self::by(Unit::Row, rows, sides, |_| None)
    }

    fn by(unit: Unit, rows: &[&Row], sides: [usize; 2], key: impl Fn(&Row) -> Option<u64>) -> Self {
        let mut known: [HashMap<u64, u32>; 2] = [HashMap::new(), HashMap::new()];
        let mut clusters = [0_u32; 2];
        let of_row = rows
            .iter()
            .map(|row| {
                let side = usize::from(row.group == sides[1]);
                let mut new = || {
                    clusters[side] += 1;
                    clusters[side] - 1
                };
                match key(row) {
                    Some(key) => *known[side].entry(key).or_insert_with(new),
                    None => new(),
                }
            })
            .collect();
        let shared = known[0].keys().filter(|key| known[1].contains_key(key)).count();
        Self { unit, of_row, clusters, shared }
    }
}

/// The rows of two groups.
struct View<'a> {
    rows: Vec<&'a Row>,
    sides: [usize; 2],
    units: Units,
    names: [String; 2],
}

impl View<'_> {
    fn side(&self, row: &Row) -> usize {
        usize::from(row.group == self.sides[1])
    }

    fn group_info(&self, side: usize) -> GroupInfo {
        let rows = self.rows.iter().filter(|row| self.side(row) == side).count() as u64;
        GroupInfo { name: self.names[side].clone(), rows, units: u64::from(self.units.clusters[side]) }
    }

    /// The lattice of both groups' counts together, else the field's.
    fn lattice(&self) -> (Lattice, bool) {
        let mut histogram = BTreeMap::new();
        for value in self.rows.iter().filter_map(|row| row.count).filter(|&value| value > 0) {
            *histogram.entry(value).or_default() += 1;
        }
        count_lattice::find(&histogram).map_or((FIELD, false), |lattice| (lattice, true))
    }

    /// A share between the two groups.
    fn share(&self, name: String, hit: impl Fn(&Row) -> Option<bool>) -> Option<Proportion> {
        let trials = self.trials(|row| Some((self.side(row), hit(row)?)));
        proportion(name, self.names.clone(), &trials, self.units.unit)
    }

    fn trials(&self, hit: impl Fn(&Row) -> Option<(usize, bool)>) -> Vec<Trial> {
        let of_row = self.rows.iter().zip(&self.units.of_row);
        of_row
            .filter_map(|(row, &cluster)| {
                let (side, hit) = hit(row)?;
                // Cluster numbers are dense per group: the group keeps them apart when sides are tiers.
                Some(Trial { side, hit, cluster: (self.side(row), cluster) })
            })
            .collect()
    }

    fn proportions(&self, flags: &[String], lattice: Lattice) -> Vec<Proportion> {
        let labels =
            flags.iter().enumerate().map(|(flag, name)| self.share(name.clone(), |row| row.flag(flag)));
        let on = self.share(format!("reasoning tokens on {lattice}"), |row| Some(lattice.holds(row.count?)));
        let values = self.values(lattice).into_iter().map(|value| {
            self.share(format!("reasoning tokens == {value}"), move |row| Some(row.count? == value))
        });
        labels.chain([on]).chain(values).flatten().collect()
    }

    /// The lattice's first value, and the most frequent one where that is another.
    fn values(&self, lattice: Lattice) -> BTreeSet<u32> {
        let mut counted: BTreeMap<u32, u64> = BTreeMap::new();
        for value in self.rows.iter().filter_map(|row| row.count).filter(|&value| value > 0) {
            *counted.entry(value).or_default() += 1;
        }
        let modal = counted.iter().max_by_key(|(value, count)| (**count, std::cmp::Reverse(**value)));
        modal.map(|(&value, _)| value).into_iter().chain([lattice.offset]).collect()
    }

    /// Each label by where the count lies, both groups together.
    fn associations(&self, flags: &[String], lattice: Lattice) -> Vec<Proportion> {
        let mut all = Vec::new();
        for (flag, name) in flags.iter().enumerate() {
            for value in self.values(lattice) {
                all.push(self.association(flag, name, &value.to_string(), |count| count == value));
            }
            all.push(self.association(flag, name, &format!("on {lattice}"), |count| lattice.holds(count)));
        }
        all.into_iter().flatten().collect()
    }

    fn association(
        &self,
        flag: usize,
        name: &str,
        place: &str,
        inside: impl Fn(u32) -> bool,
    ) -> Option<Proportion> {
        let trials = self.trials(|row| Some((usize::from(!inside(row.count?)), row.flag(flag)?)));
        let between = [format!("reasoning tokens {place}"), "other counts".to_owned()];
        proportion(name.to_owned(), between, &trials, self.units.unit)
            .filter(|found| found.first.n > 0 && found.second.n > 0)
    }

    fn quantities(&self) -> Vec<Quantity> {
        let readings = |index: usize| {
            let mut sides = [Vec::new(), Vec::new()];
            for (row, &cluster) in self.rows.iter().zip(&self.units.of_row) {
                if let Some(value) = row.measures[index] {
                    sides[self.side(row)].push(Reading { value, cluster });
                }
            }
            sides
        };
        (0..MEASURES.len()).filter_map(|i| quantity(&MEASURES[i], &readings(i), self.units.unit)).collect()
    }

    fn notes(&self, found: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if !found {
            notes.push(format!("no count lattice found in both groups together: {FIELD} is the field's"));
        }
        if self.units.unit != Unit::Row {
            notes.push(format!(
                "labels by count: a {} with rows on both sides of a line counts as one observation on each",
                self.units.unit.name()
            ));
        }
        if self.units.shared > 0 {
            notes.push(format!(
                "{} {}s have rows in both groups; the tests take the groups for independent",
                self.units.shared,
                self.units.unit.name()
            ));
        }
        notes
    }
}

impl Row {
    fn flag(&self, flag: usize) -> Option<bool> {
        self.flags.iter().find(|f| f.0 == flag).map(|f| f.1)
    }
}

/// Benjamini–Hochberg over the first test of each line of the report.
fn adjust(report: &mut CompareReport) {
    let mut tests: Vec<&mut Test> = report
        .proportions
        .iter_mut()
        .chain(&mut report.associations)
        .map(|p| &mut p.tests)
        .chain(report.quantities.iter_mut().map(|q| &mut q.tests))
        .filter_map(|tests| tests.first_mut())
        .collect();
    let p: Vec<f64> = tests.iter().map(|test| test.p).collect();
    for (test, q) in tests.iter_mut().zip(fdr::benjamini_hochberg(&p)) {
        test.q = Some(q);
    }
}
