//! Statistics that the signatures and comparisons rest on, one subject a file, each checked against
//! reference values in `data/golden`.
//!
//! In: slices of plain numbers. Out: plain numbers. What each function does with NaN, no data, one
//! value or all-equal values is written on it and tested.
//!
//! Distribution functions come from `statrs`; its own Fisher and Mann–Whitney tests do not, because
//! version 0.19.1 gets them wrong (a test in [`fisher`] and one in [`mann_whitney`] show it, and will
//! fail when it is repaired).

pub mod bootstrap;
pub mod clustered;
pub mod fdr;
pub mod fisher;
pub mod histogram;
pub mod interval;
pub mod ks;
pub mod mann_whitney;
pub mod odds;
pub mod proportion;
pub mod quantile;
pub mod rate;
pub mod tail;

/// A count as a real number.
#[expect(clippy::cast_precision_loss, reason = "counts of observations and tokens are far below 2^53")]
pub fn real(count: u64) -> f64 {
    count as f64
}

/// A length as a real number.
pub(crate) fn real_len(length: usize) -> f64 {
    real(length as u64)
}

/// Two-sided p-value of a standard normal deviate, by the survival function: no 1 − cdf, so that small
/// p-values keep their digits (statrs's erfc: relative error up to 2e-8 at z = 12). NaN stays NaN.
pub(crate) fn two_sided_normal(z: f64) -> f64 {
    statrs::function::erf::erfc(z.abs() / std::f64::consts::SQRT_2).min(1.0)
}

/// z of a 95 % interval.
pub(crate) const Z95: f64 = 1.959_963_984_540_054;

#[cfg(test)]
pub(crate) mod golden {
    //! Reads `data/golden`: the strings "NaN" and "Infinity" stand for numbers that JSON has not.

    use serde_json::Value;

    /// The cases of one golden file.
    pub(crate) fn cases(name: &str) -> Vec<Value> {
        let path = format!("{}/../../data/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect("golden file");
        let file: Value = serde_json::from_str(&text).expect("golden JSON");
        file["cases"].as_array().expect("cases").clone()
    }

    /// One number.
    pub(crate) fn number(value: &Value) -> f64 {
        match value {
            Value::String(word) if word == "NaN" => f64::NAN,
            Value::String(word) if word == "Infinity" => f64::INFINITY,
            other => other.as_f64().expect("a number"),
        }
    }

    /// A list of numbers.
    pub(crate) fn numbers(value: &Value) -> Vec<f64> {
        value.as_array().expect("a list").iter().map(number).collect()
    }

    /// Asserts equality up to a relative tolerance; NaN equals NaN.
    #[track_caller]
    pub(crate) fn assert_close(got: f64, want: f64, relative: f64, what: &str) {
        if want.is_nan() {
            assert!(got.is_nan(), "{what}: got {got}, want NaN");
        } else {
            let slack = relative * want.abs().max(f64::MIN_POSITIVE);
            assert!((got - want).abs() <= slack, "{what}: got {got:e}, want {want:e}");
        }
    }
}
