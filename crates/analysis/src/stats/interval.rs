//! Statistics of the intervals between events, and of the sizes that arrive after them.
//!
//! In: gaps in seconds, sizes in tokens (or characters, or events). Out: dimensionless figures.
//! Undefined is `None`: too few values, a mean of zero, or a value that is not finite. Checked against
//! `data/golden/interval_stats.json` (elephant, numpy) and `marked_stream.json`.
//!
//! Unmarked statistics (B, CV, LV) do not see one large frame each second: it is regular. That is why
//! the signature rests on the marked ones ([`weighted_gap`], [`gini`]) and only reports the others.

/// Regularity of a sequence of intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Regularity {
    /// Coefficient of variation: population sd ÷ mean.
    pub cv: Option<f64>,
    /// Burstiness B = (r−1)/(r+1), r = CV. Goh & Barabási, EPL 81 (2008) 48002.
    pub burstiness: Option<f64>,
    /// Burstiness corrected for few events. Kim & Jo, Phys. Rev. E 94 (2016) 032311.
    pub burstiness_kim_jo: Option<f64>,
    /// Memory M: Pearson correlation of neighbouring intervals. Goh & Barabási (2008).
    pub memory: Option<f64>,
    /// Mean of 2|b−a|/(b+a) over neighbours. Holt et al., J. Neurophysiol. 75 (1996) 1806.
    pub cv2: Option<f64>,
    /// Local variation: 3 × mean of ((b−a)/(b+a))². Shinomoto et al., Neural Comput. 15 (2003) 2823.
    pub lv: Option<f64>,
}

/// Regularity of `gaps` (any unit). One value that is not finite makes everything undefined.
pub fn regularity(gaps: &[f64]) -> Regularity {
    if gaps.is_empty() || gaps.iter().any(|gap| !gap.is_finite()) {
        return Regularity::default();
    }
    let (mean, sd) = moments(gaps);
    let cv = (mean > 0.0).then(|| sd / mean);
    // B of a single gap would be −1 by arithmetic alone.
    let several = cv.filter(|_| gaps.len() > 1);
    Regularity {
        cv,
        burstiness: several.map(|r| (r - 1.0) / (r + 1.0)),
        burstiness_kim_jo: several.map(|r| kim_jo(r, count(gaps.len() + 1))),
        memory: memory(gaps),
        cv2: mean_of_neighbours(gaps, |a, b| 2.0 * (b - a).abs() / (b + a)),
        lv: mean_of_neighbours(gaps, |a, b| 3.0 * ((b - a) / (b + a)).powi(2)),
    }
}

/// Gap before the average token: Σ size·gap ÷ Σ size, over the groups that have a known gap.
///
/// Half a second here means that the average token arrived after half a second of dead air, however
/// many frames it shared the wait with. `None` when no size is positive.
pub fn weighted_gap(gaps_and_sizes: impl IntoIterator<Item = (f64, f64)>) -> Option<f64> {
    let mut weight = 0.0;
    let mut sum = 0.0;
    for (gap, size) in gaps_and_sizes {
        weight += size;
        sum += size * gap;
    }
    (weight > 0.0).then(|| sum / weight)
}

/// Gini coefficient of what each of `bins` equal time bins received: 0 = the same in each, towards
/// 1 = all in one. `filled` holds the bins that received anything, in any order; it is sorted here.
/// `None` when nothing was received.
pub fn gini(filled: &mut [f64], bins: usize) -> Option<f64> {
    let total: f64 = filled.iter().sum();
    if total.is_nan() || total <= 0.0 {
        return None;
    }
    filled.sort_unstable_by(f64::total_cmp);
    let n = count(bins.max(filled.len()));
    let empty = n - count(filled.len());
    let weighted: f64 =
        filled.iter().enumerate().map(|(i, size)| (2.0 * (empty + count(i + 1)) - n - 1.0) * size).sum();
    Some(weighted / (n * total))
}

/// Mean and population standard deviation.
fn moments(values: &[f64]) -> (f64, f64) {
    let n = count(values.len());
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
    (mean, variance.sqrt())
}

/// Equation 22 of Kim & Jo for `events` events (intervals + 1).
fn kim_jo(r: f64, events: f64) -> f64 {
    let (above, below) = ((events + 1.0).sqrt(), (events - 1.0).sqrt());
    (above * r - below) / ((above - 2.0) * r + below)
}

/// Lag-one Pearson correlation, each side with its own mean; `None` under three intervals and when
/// one side does not vary beyond rounding.
fn memory(gaps: &[f64]) -> Option<f64> {
    if gaps.len() < 3 {
        return None;
    }
    let (earlier, later) = (&gaps[..gaps.len() - 1], &gaps[1..]);
    let ((mean_a, sd_a), (mean_b, sd_b)) = (moments(earlier), moments(later));
    let varies = |mean: f64, sd: f64| sd > mean.abs() * 1e-12;
    if !varies(mean_a, sd_a) || !varies(mean_b, sd_b) {
        return None;
    }
    let covariance = earlier.iter().zip(later).map(|(a, b)| (a - mean_a) * (b - mean_b)).sum::<f64>()
        / count(earlier.len());
    Some(covariance / (sd_a * sd_b))
}

/// Mean of `of` over neighbouring pairs; `None` without a pair, or when a pair sums to zero.
fn mean_of_neighbours(gaps: &[f64], of: impl Fn(f64, f64) -> f64) -> Option<f64> {
    let sum: f64 = gaps.windows(2).map(|pair| of(pair[0], pair[1])).sum();
    (gaps.len() > 1 && sum.is_finite()).then(|| sum / count(gaps.len() - 1))
}

#[expect(clippy::cast_precision_loss, reason = "numbers of events are far below 2^53")]
fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn cases(file: &str) -> Vec<Value> {
        let path = format!("{}/../../data/golden/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let golden: Value = serde_json::from_str(&text).unwrap();
        golden["cases"].as_array().unwrap().clone()
    }

    fn numbers(value: &Value) -> Vec<f64> {
        value.as_array().unwrap().iter().map(|n| n.as_f64().unwrap_or(f64::NAN)).collect()
    }

    fn same(got: Option<f64>, want: &Value, what: &str) {
        match want.as_f64() {
            Some(want) => {
                let got = got.unwrap_or_else(|| panic!("{what}: undefined, wanted {want}"));
                assert!((got - want).abs() <= 1e-12 * want.abs().max(1.0), "{what}: {got} is not {want}");
            }
            None => assert_eq!(got, None, "{what}"),
        }
    }

    /// Tolerance 1e-12 relative (and absolute under 1).
    #[test]
    fn regularity_equals_the_reference() {
        let cases = cases("interval_stats.json");
        assert_eq!(cases.len(), 11);
        for case in cases {
            let name = case["name"].as_str().unwrap();
            let got = regularity(&numbers(&case["input"]["intervals_s"]));
            let want = &case["expected"];
            same(got.cv, &want["cv_pop"], &format!("{name} cv"));
            same(got.cv2, &want["cv2"], &format!("{name} cv2"));
            same(got.lv, &want["lv"], &format!("{name} lv"));
            same(got.burstiness, &want["B_goh_barabasi"], &format!("{name} B"));
            same(got.burstiness_kim_jo, &want["B_kim_jo"], &format!("{name} Kim-Jo"));
            same(got.memory, &want["memory_M"], &format!("{name} M"));
        }
    }

    #[test]
    fn one_value_that_is_not_finite_makes_all_undefined() {
        assert_eq!(regularity(&[0.1, f64::INFINITY, 0.2]), Regularity::default());
    }

    proptest! {
        /// Scaling all gaps changes no figure: they are dimensionless.
        #[test]
        fn regularity_has_no_unit(gaps in prop::collection::vec(1e-3_f64..10.0, 3..60)) {
            let scaled: Vec<f64> = gaps.iter().map(|gap| gap * 1024.0).collect();
            let (a, b) = (regularity(&gaps), regularity(&scaled));
            for (a, b) in [(a.cv, b.cv), (a.burstiness_kim_jo, b.burstiness_kim_jo), (a.cv2, b.cv2), (a.lv, b.lv)] {
                prop_assert!((a.unwrap() - b.unwrap()).abs() < 1e-9);
            }
        }

        /// The Gini coefficient stays in 0..=1.
        #[test]
        fn gini_stays_in_its_range(mut sizes in prop::collection::vec(0.0_f64..100.0, 1..50), more in 0_usize..500) {
            let bins = sizes.len() + more;
            if let Some(gini) = gini(&mut sizes, bins) {
                prop_assert!((-1e-12..=1.0).contains(&gini));
            }
        }
    }
}
