//! Two groups of rows, and every line of the report that they give.

use std::collections::{BTreeMap, BTreeSet};

use super::Row;
use super::calls::{CHAIN, Call, Chain, calls, chains};
use super::proportion::{Trial, proportion};
use super::quantity::{COST, MEASURES, Reading, quantity};
use super::rates::{Beat, rates};
use super::report::{GroupInfo, MatchedHours, Proportion, Quantity, Rate, Unit};
use super::units::Units;
use crate::signature::count_lattice::{self, FIELD, Lattice};
use crate::stats::{real, real_len};

/// The rows of two groups.
pub(super) struct View<'a> {
    rows: Vec<&'a Row>,
    sides: [usize; 2],
    units: Units,
    names: [String; 2],
    calls: Vec<Call>,
    chains: Vec<Chain>,
}

impl<'a> View<'a> {
    pub(super) fn new(rows: Vec<&'a Row>, sides: [usize; 2], names: [String; 2]) -> Self {
        let units = Units::of(&rows, sides);
        let placed = rows
            .iter()
            .zip(&units.of_row)
            .map(|(row, &cluster)| (*row, usize::from(row.group == sides[1]), cluster));
        let calls = calls(placed);
        let chains = chains(&calls);
        Self { rows, sides, units, names, calls, chains }
    }

    pub(super) fn unit(&self) -> Unit {
        self.units.unit
    }

    pub(super) fn names(&self) -> &[String; 2] {
        &self.names
    }

    fn side(&self, row: &Row) -> usize {
        usize::from(row.group == self.sides[1])
    }

    pub(super) fn group_info(&self, side: usize) -> GroupInfo {
        let rows = self.rows.iter().filter(|row| self.side(row) == side).count() as u64;
        GroupInfo { name: self.names[side].clone(), rows, units: u64::from(self.units.clusters[side]) }
    }

    /// The lattice of both groups' counts together, else the field's.
    pub(super) fn lattice(&self) -> (Lattice, bool) {
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

    pub(super) fn proportions(&self, flags: &[String], lattice: Lattice) -> Vec<Proportion> {
        let labels =
            flags.iter().enumerate().map(|(flag, name)| self.share(name.clone(), |row| row.flag(flag)));
        let on = self.share(format!("reasoning tokens on {lattice}"), |row| Some(lattice.holds(row.count?)));
        let values = self.values(lattice).into_iter().map(|value| {
            self.share(format!("reasoning tokens == {value}"), move |row| Some(row.count? == value))
        });
        labels.chain([self.chained(), on]).chain(values).flatten().collect()
    }

    /// Sessions of several calls that all succeeded. Sessions are independent, so each is one trial.
    fn chained(&self) -> Option<Proportion> {
        let trials: Vec<Trial> = (0..)
            .zip(&self.chains)
            .filter_map(|(place, chain)| {
                Some(Trial { side: chain.side, hit: chain.succeeded?, cluster: (chain.side, place) })
            })
            .collect();
        let name = format!("sessions of {CHAIN} or more calls in which every call succeeded");
        proportion(name, self.names.clone(), &trials, Unit::Session)
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
    pub(super) fn associations(&self, flags: &[String], lattice: Lattice) -> Vec<Proportion> {
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

    pub(super) fn quantities(&self) -> Vec<Quantity> {
        let of_rows = MEASURES.iter().enumerate().filter_map(|(index, measure)| {
            let mut sides = [Vec::new(), Vec::new()];
            for (row, &cluster) in self.rows.iter().zip(&self.units.of_row) {
                if let Some(value) = row.measures[index] {
                    sides[self.side(row)].push(Reading { value, cluster });
                }
            }
            quantity([measure.name, measure.unit], &sides, self.units.unit)
        });
        let attempts = self.of_calls(["attempts per client turn", ""], |call| call.attempts.map(f64::from));
        // Without attempts a turn costs what its stream does, which has its line already.
        let cost = self.of_calls(["cost per client turn", "USD"], |call| call.attempts.and(call.cost));
        of_rows.chain(attempts).chain(cost).collect()
    }

    fn of_calls(&self, name: [&str; 2], figure: impl Fn(&Call) -> Option<f64>) -> Option<Quantity> {
        let mut sides = [Vec::new(), Vec::new()];
        for call in &self.calls {
            if let Some(value) = figure(call) {
                sides[call.side].push(Reading { value, cluster: call.cluster });
            }
        }
        quantity(name, &sides, self.units.unit)
    }

    pub(super) fn rates(&self) -> Vec<Rate> {
        let beats: Vec<Beat> = self
            .rows
            .iter()
            .zip(&self.units.of_row)
            .map(|(row, &cluster)| Beat {
                side: self.side(row),
                cluster,
                span: row.span,
                hits: row.hits.map(|hits| (hits.hits, hits.seconds)),
            })
            .collect();
        rates(&beats, self.units.unit)
    }

    pub(super) fn notes(&self, found: bool, matched: Option<&MatchedHours>) -> Vec<String> {
        let mut notes = Vec::new();
        notes.extend(matched.into_iter().flat_map(|matched| self.notes_on_hours(matched)));
        if !found {
            notes.push(format!("no count lattice found in both groups together: {FIELD} is the field's"));
        }
        let unit = self.units.unit.name();
        if self.units.unit != Unit::Row {
            notes.push(format!(
                "labels by count: a {unit} with rows on both sides of a line counts as one observation on each"
            ));
        }
        if self.units.shared > 0 {
            let shared = self.units.shared;
            notes.push(format!(
                "{shared} {unit}s have rows in both groups; the tests take the groups for independent"
            ));
        }
        for side in [0, 1] {
            notes.extend(self.note_on_cost(side));
            notes.extend(self.note_on_hits(side));
            notes.extend(self.note_on_chains(side));
        }
        notes
    }

    fn notes_on_hours(&self, matched: &MatchedHours) -> Vec<String> {
        let [first, second] = &self.names;
        let mut notes = vec![format!(
            "{} matched by {} (UTC): {} streams of {first} and {} of {second} left out for want of one on the \
             other side, {} and {} because their start is unknown",
            if matched.hours == 1 { "1 hour".to_owned() } else { format!("{} hours", matched.hours) },
            matched.by.name(),
            matched.left_out[0],
            matched.left_out[1],
            matched.without_start[0],
            matched.without_start[1],
        )];
        if matched.days[0] < 2 {
            notes.push(format!(
                "{first} has these hours on one day only: what that day was like cannot be told from what the \
                 hour is like"
            ));
        }
        notes
    }

    fn rows_of(&self, side: usize) -> impl Iterator<Item = &Row> {
        self.rows.iter().copied().filter(move |row| self.side(row) == side)
    }

    /// Known cost is never mixed with unknown cost: what is left out is said.
    fn note_on_cost(&self, side: usize) -> Option<String> {
        let rows = self.rows_of(side).count();
        let unknown = self.rows_of(side).filter(|row| row.cost().is_none()).count();
        (unknown > 0 && unknown < rows).then(|| {
            format!(
                "{}: {COST} of {unknown} of {rows} rows is unknown: they are left out, not free",
                self.names[side]
            )
        })
    }

    fn note_on_hits(&self, side: usize) -> Option<String> {
        let rows = self.rows_of(side).count();
        let unknown = self.rows_of(side).filter(|row| row.hits.is_none()).count();
        let any = self.rows.iter().any(|row| row.hits.is_some());
        (any && unknown > 0).then(|| {
            format!(
                "{}: {unknown} of {rows} rows have no gaps to look for cluster events in: they are left out",
                self.names[side]
            )
        })
    }

    fn note_on_chains(&self, side: usize) -> Option<String> {
        let of_side: Vec<&Chain> = self.chains.iter().filter(|chain| chain.side == side).collect();
        let name = &self.names[side];
        let sessions = self.units.unit == Unit::Session;
        if of_side.is_empty() {
            return sessions.then(|| format!("{name}: no session has {CHAIN} or more calls"));
        }
        let unknown = of_side.iter().filter(|chain| chain.succeeded.is_none()).count();
        let calls: u64 = of_side.iter().map(|chain| chain.calls).sum();
        Some(format!(
            "{name}: sessions of {CHAIN} or more calls have {:.1} calls on average (longer ones fail more easily); \
             {unknown} of {} have a call whose end is unknown and are left out",
            real(calls) / real_len(of_side.len()),
            of_side.len()
        ))
    }
}
