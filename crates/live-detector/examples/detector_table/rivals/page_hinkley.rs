//! Page–Hinkley on gaps, upwards: how far the sum of what exceeds the running mean is above its lowest.
//!
//! Source: Page, Biometrika 41 (1954). Checked against river 0.26.1, of which it also takes the defaults but
//! for the limit, which is calibrated.

use super::Rival;
use crate::traffic::Seen;

const DELTA: f64 = 0.005;
const FORGET: f64 = 0.9999;
const FEWEST: f64 = 30.0;

/// The detector.
pub(crate) struct PageHinkley {
    limit: f64,
    n: f64,
    mean: f64,
    sum: f64,
    /// The lowest that the sum was.
    lowest: f64,
}

impl PageHinkley {
    pub(crate) fn new(limit: f64) -> Self {
        Self { limit, n: 0.0, mean: 0.0, sum: 0.0, lowest: f64::INFINITY }
    }

    /// Takes a value in; whether it alarms, and starts afresh.
    pub(crate) fn push(&mut self, value: f64) -> bool {
        self.n += 1.0;
        self.mean += (value - self.mean) / self.n;
        self.sum = FORGET * self.sum + value - self.mean - DELTA;
        self.lowest = self.lowest.min(self.sum);
        let alarm = self.n >= FEWEST && self.sum - self.lowest > self.limit;
        if alarm {
            *self = Self::new(self.limit);
        }
        alarm
    }
}

impl Rival for PageHinkley {
    fn frame(&mut self, frame: &Seen) -> bool {
        frame.gap.is_some_and(|gap| self.push(gap.into()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Values of `data/golden/river_drift.json`, where ADWIN cuts and where Page–Hinkley alarms.
    pub(crate) fn drifts() -> Vec<(Vec<f64>, Vec<usize>, Vec<usize>)> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/golden/river_drift.json");
        let file: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let places = |list: &serde_json::Value| -> Vec<usize> {
            list.as_array().unwrap().iter().map(|at| usize::try_from(at.as_u64().unwrap()).unwrap()).collect()
        };
        let case = |case: &serde_json::Value| {
            let values = case["input"]["x"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
            let expected = &case["expected"];
            (values, places(&expected["adwin_drift_at"]), places(&expected["page_hinkley_drift_at"]))
        };
        file["cases"].as_array().unwrap().iter().map(case).collect()
    }

    #[test]
    fn drifts_are_found_where_river_finds_them() {
        let mut found = 0;
        for (values, _, wanted) in drifts() {
            let mut detector = PageHinkley::new(50.0);
            let got: Vec<usize> = (0..values.len()).filter(|at| detector.push(values[*at])).collect();
            assert_eq!(got, wanted);
            found += got.len();
        }
        assert_eq!(found, 1);
    }
}
