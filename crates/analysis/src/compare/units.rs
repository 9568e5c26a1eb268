//! What counts as one independent observation, and which one each row belongs to.

use std::collections::HashMap;

use super::Row;
use super::report::Unit;

/// The observations of two groups.
pub(super) struct Units {
    pub(super) unit: Unit,
    /// By row: number of its cluster, dense within its side.
    pub(super) of_row: Vec<u32>,
    pub(super) clusters: [u32; 2],
    /// Sessions or turns with rows on both sides.
    pub(super) shared: usize,
}

impl Units {
    /// Sessions if any row has one, else turns, else rows; rows where each cluster holds a single row.
    pub(super) fn of(rows: &[&Row], sides: [usize; 2]) -> Self {
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
