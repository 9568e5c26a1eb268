//! Vectors of one fan-out's traces to cosines, clusters and stray traces.
//!
//! Sums run in index order in `f64`, so that the same vectors give the same bits on every machine.

use ndarray::{Array2, ArrayView2};

use super::ballot::count;
use super::cluster::{self, Error};

/// DBSCAN's minimum number of points, the point itself included. The only useful value for n ≤ 8.
const MIN_SAMPLES: usize = 2;
/// Bounds of the automatic eps: below 0.05 nearly every trace is alone, above 0.35 none is.
const AUTO_EPS: (f64, f64) = (0.05, 0.35);
/// Most traces of one fan-out: the matrix of cosines is square (32 MiB at this size).
pub const MAX_TRACES: usize = 2_048;

/// Within which cosine distance two traces are neighbours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Eps {
    /// This distance, 0..=2.
    Fixed(f64),
    /// The median pairwise distance, kept within 0.05..=0.35. The knee of nearest distances is not
    /// offered: it marks 30–43 % of honest traces as noise.
    Median,
}

/// How the traces of one fan-out lie to each other.
#[derive(Clone, Debug)]
pub struct Geometry {
    units: Array2<f64>,
    cosines: Vec<f64>,
    labels: Vec<Option<usize>>,
    empty: Vec<bool>,
    /// `None` when HDBSCAN clustered.
    eps: Option<f64>,
    semantic: bool,
}

impl Geometry {
    /// Computes cosines and clusters of `vectors`, one row a trace. An all-zero row is an empty trace:
    /// its cosine to all is 0 and it takes no part in clustering. `semantic` says whether the embedder
    /// knows meaning, or only wording.
    ///
    /// # Errors
    /// When a value is not finite, eps is no positive number, or there are too many traces.
    pub fn new(vectors: &Array2<f32>, eps: Eps, semantic: bool) -> Result<Self, Error> {
        Self::of(vectors.mapv(f64::from), eps, semantic)
    }

    /// As [`Geometry::new`], in double precision.
    ///
    /// # Errors
    /// As [`Geometry::new`].
    pub(crate) fn of(vectors: Array2<f64>, eps: Eps, semantic: bool) -> Result<Self, Error> {
        if vectors.nrows() > MAX_TRACES {
            return Err(Error::TooMany { points: vectors.nrows(), limit: MAX_TRACES });
        }
        let units = cluster::unit_rows(vectors)?;
        let n = units.nrows();
        let empty: Vec<bool> = units.rows().into_iter().map(|row| row.iter().all(|x| *x == 0.0)).collect();
        let cosines = cosine_matrix(&units);
        let eps = match eps {
            Eps::Fixed(eps) => eps,
            Eps::Median => {
                median_distance(&cosines, &empty).unwrap_or(AUTO_EPS.1).clamp(AUTO_EPS.0, AUTO_EPS.1)
            }
        };
        let blank = Self { units, cosines, labels: vec![None; n], empty, eps: Some(eps), semantic };
        blank.labelled(|points| cluster::dbscan(points, cluster::euclidean_eps(eps), MIN_SAMPLES))
    }

    /// The same traces in HDBSCAN's clusters instead of DBSCAN's.
    ///
    /// # Errors
    /// When fewer than [`cluster::Hdbscan::MIN_TRACES`] traces are not empty.
    pub fn by_hdbscan(self) -> Result<Self, Error> {
        Self { eps: None, ..self }.labelled(cluster::hdbscan_many)
    }

    /// Clusters what is not empty.
    fn labelled(
        mut self,
        cluster: impl Fn(&ArrayView2<'_, f64>) -> Result<Vec<Option<usize>>, Error>,
    ) -> Result<Self, Error> {
        let present: Vec<usize> = (0..self.len()).filter(|&i| !self.empty[i]).collect();
        let found = cluster(&self.units.select(ndarray::Axis(0), &present).view())?;
        self.labels.fill(None);
        for (&i, label) in present.iter().zip(found) {
            self.labels[i] = label;
        }
        Ok(self)
    }

    /// Number of traces.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no trace at all.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The traces as vectors of length 1 (or 0 for an empty trace), one row each.
    pub fn units(&self) -> &Array2<f64> {
        &self.units
    }

    /// Cluster of each trace, numbered by first appearance; `None` = noise or empty.
    pub fn labels(&self) -> &[Option<usize>] {
        &self.labels
    }

    /// Traces in no cluster, when there are at least two to compare.
    pub fn outliers(&self) -> Vec<usize> {
        if self.len() < 2 {
            return Vec::new();
        }
        (0..self.len()).filter(|&i| self.labels[i].is_none()).collect()
    }

    /// The cosine distance that made two traces neighbours; `None` when HDBSCAN clustered, which has none.
    pub fn eps(&self) -> Option<f64> {
        self.eps
    }

    /// Whether the vectors carry meaning, so that a tie may be broken by group means.
    pub fn is_semantic(&self) -> bool {
        self.semantic
    }

    /// Whether the trace was empty.
    pub fn is_blank(&self, i: usize) -> bool {
        self.empty[i]
    }

    /// Mean cosine of trace `i` to all others; `None` when it is alone.
    pub fn mean_cosine(&self, i: usize) -> Option<f64> {
        let n = self.len();
        let others = n.checked_sub(1).filter(|&k| k > 0)?;
        let sum: f64 = (0..n).filter(|&j| j != i).map(|j| self.cosines[i * n + j]).sum();
        Some(sum / count(others))
    }

    /// Mean cosine over all pairs of `members`; `None` for fewer than two.
    pub fn coherence(&self, members: &[usize]) -> Option<f64> {
        let n = self.len();
        let mut pairs = 0;
        let mut sum = 0.0;
        for (k, &i) in members.iter().enumerate() {
            for &j in &members[k + 1..] {
                sum += self.cosines[i * n + j];
                pairs += 1;
            }
        }
        (pairs > 0).then(|| sum / count(pairs))
    }

    /// The one of `among` that is closest to all traces; the first of equals.
    pub fn medoid(&self, among: impl IntoIterator<Item = usize>) -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        for i in among {
            let score = rounded(self.mean_cosine(i).unwrap_or(0.0));
            if best.is_none_or(|(_, top)| score > top) {
                best = Some((i, score));
            }
        }
        best.map(|(i, _)| i)
    }
}

/// To 1e-9, so that the last bits of a sum never decide.
pub(crate) fn rounded(score: f64) -> f64 {
    (score * 1e9).round()
}

fn cosine_matrix(units: &Array2<f64>) -> Vec<f64> {
    let n = units.nrows();
    let mut cosines = vec![0.0; n * n];
    for i in 0..n {
        for j in i + 1..n {
            let dot: f64 = units.row(i).iter().zip(units.row(j)).map(|(a, b)| a * b).sum();
            let cosine = dot.clamp(-1.0, 1.0);
            cosines[i * n + j] = cosine;
            cosines[j * n + i] = cosine;
        }
        cosines[i * n + i] = 1.0;
    }
    cosines
}

/// Median of the pairwise cosine distances of non-empty traces; the mean of the middle two.
fn median_distance(cosines: &[f64], empty: &[bool]) -> Option<f64> {
    let n = empty.len();
    let mut distances = Vec::new();
    for i in (0..n).filter(|&i| !empty[i]) {
        distances.extend((i + 1..n).filter(|&j| !empty[j]).map(|j| 1.0 - cosines[i * n + j]));
    }
    distances.sort_by(f64::total_cmp);
    let middle = distances.len() / 2;
    match distances.len() {
        0 => None,
        len if len % 2 == 1 => Some(distances[middle]),
        _ => Some(f64::midpoint(distances[middle - 1], distances[middle])),
    }
}
