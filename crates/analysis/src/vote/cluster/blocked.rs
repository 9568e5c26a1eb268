//! DBSCAN for embeddings: every pair is measured, a block of rows at a time.
//!
//! d² = |a|² + |b|² − 2ab, with ab by matrix product. Where rounding could decide (d² within
//! [`doubt`] of eps²), the pair is measured again in `f64`, as scikit-learn's brute force does. A neighbourhood is one bit per pair, so memory is
//! n²/16 bytes beside the points: 25 MB at n = 20,000.

use std::ops::Range;

use ndarray::{ArrayView2, Axis, Slice};

use super::{Dbscan, Error, Real, check};

/// Rows measured together: two blocks of 1,536 dimensions fit a second-level cache.
const BLOCK: usize = 128;
/// n²/16 bytes are 625 MB here.
const MAX_POINTS: usize = 100_000;

/// Neighbours by measuring every pair.
#[derive(Clone, Copy, Debug)]
pub struct Blocked;

impl<F: Real> Dbscan<F> for Blocked {
    fn labels(
        &self,
        points: &ArrayView2<'_, F>,
        eps: f64,
        min_samples: usize,
    ) -> Result<Vec<Option<usize>>, Error> {
        check(points, eps, min_samples)?;
        if points.nrows() > MAX_POINTS {
            return Err(Error::TooMany { points: points.nrows(), limit: MAX_POINTS });
        }
        let pairs = neighbours(points, eps);
        Ok(label(&pairs, min_samples))
    }
}

/// Which pairs i < j are neighbours: row i holds one bit for each j > i.
#[derive(Debug)]
pub(super) struct Pairs {
    n: usize,
    starts: Vec<usize>,
    bits: Vec<u64>,
}

impl Pairs {
    pub(super) fn none(n: usize) -> Self {
        let mut starts = Vec::with_capacity(n);
        let mut words = 0;
        for i in 0..n {
            starts.push(words);
            words += (n - i - 1).div_ceil(64);
        }
        Self { n, starts, bits: vec![0; words] }
    }

    /// Marks the pair `i < j`.
    pub(super) fn add(&mut self, i: usize, j: usize) {
        let bit = j - i - 1;
        self.bits[self.starts[i] + bit / 64] |= 1 << (bit % 64);
    }

    /// Calls `visit` with every marked pair, in order.
    fn each(&self, mut visit: impl FnMut(usize, usize)) {
        for i in 0..self.n {
            let words = (self.n - i - 1).div_ceil(64);
            for (w, &word) in self.bits[self.starts[i]..self.starts[i] + words].iter().enumerate() {
                let mut left = word;
                while left != 0 {
                    visit(i, i + 1 + w * 64 + left.trailing_zeros() as usize);
                    left &= left - 1;
                }
            }
        }
    }
}

/// Half-width of the band around eps² in which a product in `F` is not trusted. Its error is bounded by
/// about d·ulp·(|a|²+|b|²); eight times the square root of d is generous for sums in blocks.
fn doubt<F: Real>(dimensions: usize, largest_square: f64) -> f64 {
    let ulp = F::epsilon().to_f64().unwrap_or(f64::EPSILON);
    let dimensions = super::super::ballot::count(dimensions);
    8.0 * dimensions.sqrt().max(4.0) * ulp * (4.0 * largest_square).max(f64::MIN_POSITIVE)
}

fn neighbours<F: Real>(points: &ArrayView2<'_, F>, eps: f64) -> Pairs {
    let n = points.nrows();
    let mut pairs = Pairs::none(n);
    let points = points.as_standard_layout();
    let squares: Vec<f64> = points.rows().into_iter().map(|row| square_sum(row.iter())).collect();
    let largest = squares.iter().copied().fold(0.0, f64::max);
    let band = doubt::<F>(points.ncols(), largest);
    let eps2 = eps * eps;
    let blocks = || (0..n).step_by(BLOCK).map(|start| start..(start + BLOCK).min(n));
    let rows = |block: &Range<usize>| points.slice_axis(Axis(0), Slice::from(block.clone()));
    for upper in blocks() {
        for lower in blocks().filter(|block| block.start >= upper.start) {
            let products = rows(&upper).dot(&rows(&lower).t());
            for (i, line) in upper.clone().zip(products.axis_iter(Axis(0))) {
                for (j, product) in lower.clone().zip(line).filter(|(j, _)| *j > i) {
                    let product = product.to_f64().unwrap_or(f64::NAN);
                    let d2 = squares[i] + squares[j] - 2.0 * product;
                    // Written so that a NaN (an overflowed product) is in doubt too.
                    let sure = (d2 - eps2).abs() > band;
                    if if sure { d2 < eps2 } else { expanded(&points.view(), i, j) <= eps2 } {
                        pairs.add(i, j);
                    }
                }
            }
        }
    }
    pairs
}

/// The squared distance in `f64`, expanded as scikit-learn's brute force expands it, so that a pair at exactly
/// eps falls on the same side.
fn expanded<F: Real>(points: &ArrayView2<'_, F>, i: usize, j: usize) -> f64 {
    let (a, b) = (points.row(i), points.row(j));
    let wide = |x: &F| x.to_f64().unwrap_or(f64::NAN);
    let product: f64 = a.iter().zip(b).map(|(x, y)| wide(x) * wide(y)).sum();
    -2.0 * product + square_sum(a.iter()) + square_sum(b.iter())
}

fn square_sum<'a, F: Real>(row: impl Iterator<Item = &'a F>) -> f64 {
    row.map(|x| x.to_f64().unwrap_or(f64::NAN)).map(|x| x * x).sum()
}

/// Labels from neighbourhoods. Clusters are the connected parts of the core points, numbered by their
/// lowest core point; a border point takes the lowest number among its core neighbours. That is what the
/// scan in index order gives.
pub(super) fn label(pairs: &Pairs, min_samples: usize) -> Vec<Option<usize>> {
    let n = pairs.n;
    let mut around = vec![1_usize; n];
    pairs.each(|i, j| {
        around[i] += 1;
        around[j] += 1;
    });
    let core: Vec<bool> = around.iter().map(|&k| k >= min_samples).collect();
    let mut roots = Roots((0..n).collect());
    pairs.each(|i, j| {
        if core[i] && core[j] {
            roots.join(i, j);
        }
    });
    let mut number = vec![None; n];
    let mut labels = vec![None; n];
    let mut clusters = 0;
    for i in (0..n).filter(|&i| core[i]) {
        let root = roots.find(i);
        labels[i] = Some(*number[root].get_or_insert_with(|| {
            clusters += 1;
            clusters - 1
        }));
    }
    let of_core = labels.clone();
    let mut reach = |border: usize, from: usize| {
        if !core[border] && core[from] {
            labels[border] = [labels[border], of_core[from]].into_iter().flatten().min();
        }
    };
    pairs.each(|i, j| {
        reach(i, j);
        reach(j, i);
    });
    labels
}

/// Disjoint sets; the root of a set is its lowest member.
struct Roots(Vec<usize>);

impl Roots {
    fn find(&mut self, mut i: usize) -> usize {
        while self.0[i] != i {
            self.0[i] = self.0[self.0[i]];
            i = self.0[i];
        }
        i
    }

    fn join(&mut self, i: usize, j: usize) {
        let (a, b) = (self.find(i), self.find(j));
        self.0[a.max(b)] = a.min(b);
    }
}
