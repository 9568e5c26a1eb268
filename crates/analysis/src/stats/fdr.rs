//! Many tests at once.

/// Benjamini–Hochberg adjusted p-values, in the order of `p`.
///
/// NaN stays NaN and does not count as a test.
///
/// Source: Benjamini & Hochberg, J. R. Stat. Soc. B 57 (1995) 289–300.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).filter(|&i| !p[i].is_nan()).collect();
    order.sort_by(|&a, &b| p[b].total_cmp(&p[a]));
    let mut adjusted = vec![f64::NAN; p.len()];
    let mut smallest = 1.0_f64;
    let m = order.len();
    for (from_top, &i) in order.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "numbers of tests are far below 2^53")]
        let scaled = p[i] * m as f64 / (m - from_top) as f64;
        smallest = smallest.min(scaled);
        adjusted[i] = smallest;
    }
    adjusted
}
