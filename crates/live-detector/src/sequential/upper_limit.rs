//! How frequent flags may be in an innocent source, given a baseline that was seen.
//!
//! In: hits, n, confidence. Out: the exact (Clopper–Pearson) upper limit. An estimate of p0 that is too
//! low makes every stated false-alarm rate a lie; one that is too high costs delay alone.
//!
//! Source: Clopper and Pearson, Biometrika 26 (1934) 404–413.

use statrs::distribution::{Beta, ContinuousCDF as _};

/// One-sided upper limit of the probability behind `hits` of `n`, at `confidence` (0.95: a limit below the
/// truth is drawn at most once in 20 baselines). 1 when n is 0 or all were hits: nothing is excluded.
pub fn clopper_pearson(hits: u64, n: u64, confidence: f64) -> f64 {
    if hits >= n {
        return 1.0;
    }
    if hits == 0 {
        // Beta(1, n) has a closed form, exact for every n.
        return -((1.0 - confidence).ln() / real(n)).exp_m1();
    }
    Beta::new(real(hits) + 1.0, real(n - hits)).map_or(1.0, |beta| beta.inverse_cdf(confidence))
}

#[expect(clippy::cast_precision_loss, reason = "counts of observations are far below 2^53")]
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use statrs::distribution::{Binomial, DiscreteCDF as _};

    use super::*;

    /// The upper ends of `data/golden/proportion_ci.json` (SciPy's `exact`, two-sided: half of α each side),
    /// to 1e-6.
    #[test]
    fn limits_equal_scipy() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/golden/proportion_ci.json");
        let file: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let mut compared = 0;
        for case in file["cases"].as_array().unwrap() {
            let input = &case["input"];
            let (Some(k), Some(n)) = (input["k"].as_u64(), input["n"].as_u64()) else { continue };
            let Some(want) = case["expected"]["exact"][1].as_f64() else { continue };
            let confidence = input["confidence"].as_f64().unwrap();
            let got = clopper_pearson(k, n, 1.0 - (1.0 - confidence) / 2.0);
            assert!((got - want).abs() <= 1e-6 * want, "{k} of {n}: {got}, want {want}");
            compared += 1;
        }
        assert!(compared >= 5, "{compared}");
    }

    /// By definition: at the limit, so few hits have a chance of 1 − confidence.
    #[test]
    fn at_the_limit_the_tail_is_one_minus_confidence() {
        for (hits, n) in [(0, 300), (1, 1_000), (24, 12_000), (9, 10)] {
            let limit = clopper_pearson(hits, n, 0.99);
            let tail = Binomial::new(limit, n).unwrap().cdf(hits);
            assert!((tail - 0.01).abs() < 1e-6, "{hits} of {n}: {limit}, tail {tail}");
        }
        assert!((clopper_pearson(0, 0, 0.95) - 1.0).abs() < f64::EPSILON);
        assert!((clopper_pearson(7, 7, 0.95) - 1.0).abs() < f64::EPSILON);
    }
}
