//! Points to clusters: DBSCAN as scikit-learn labels it, and HDBSCAN for many traces.
//!
//! One row a point. Up to [`TREE_DIMENSIONS`] dimensions a k-d tree finds neighbours; above that a tree
//! visits every point anyway and blocked brute force is an order of magnitude faster. Both label alike.
//! Cosine distance goes through vectors of unit length, see [`euclidean_eps`].

mod blocked;
mod hdbscan;
mod kd_tree;

use ndarray::{Array2, ArrayView2};

pub use blocked::Blocked;
pub use hdbscan::{Hdbscan, hdbscan, hdbscan_many};
pub use kd_tree::KdTree;

/// Above this a k-d tree stops paying: measured 0.9 s at d = 8, n = 20,000, but 2.3 s against 0.16 s of
/// brute force at d = 384, n = 5,000.
pub const TREE_DIMENSIONS: usize = 16;

/// A number that points are made of: `f32` or `f64`.
pub trait Real: linfa::Float {}
impl Real for f32 {}
impl Real for f64 {}

/// Why points could not be clustered.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// NaN or infinity.
    #[error("value {column} of vector {row} is not finite: check what the embedder returned")]
    NotFinite {
        /// Row of the bad value.
        row: usize,
        /// Its column.
        column: usize,
    },
    /// Rows of different lengths.
    #[error("vector {row} has {found} values, the first has {expected}: all must come from one model")]
    Length {
        /// The odd row.
        row: usize,
        /// Its length.
        found: usize,
        /// Length of row 0.
        expected: usize,
    },
    /// Vectors without values.
    #[error("the vectors have no values")]
    NoDimensions,
    /// A bad parameter.
    #[error("{name} must be {wanted}")]
    Parameter {
        /// Which one.
        name: &'static str,
        /// What it may be.
        wanted: &'static str,
    },
    /// More points than memory is meant for.
    #[error("{points} points are too many: the limit is {limit}")]
    TooMany {
        /// How many there were.
        points: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Too few points for HDBSCAN to mean anything.
    #[error(
        "{points} traces are too few for HDBSCAN, which needs {least}: below that nearly all are noise; use DBSCAN"
    )]
    TooFew {
        /// How many there were.
        points: usize,
        /// How many there must be.
        least: usize,
    },
    /// The library gave up.
    #[error("clustering failed: {0}")]
    Library(String),
}

/// A way to run DBSCAN. All give scikit-learn's labels: a neighbourhood is `<= eps` and counts the point
/// itself, clusters are numbered by their first core point, and a border point goes to the first cluster
/// that reaches it.
pub trait Dbscan<F: Real> {
    /// Cluster of each row; `None` is noise.
    ///
    /// # Errors
    /// When a value is not finite or a parameter is out of its range.
    fn labels(
        &self,
        points: &ArrayView2<'_, F>,
        eps: f64,
        min_samples: usize,
    ) -> Result<Vec<Option<usize>>, Error>;
}

/// DBSCAN by whichever way suits the number of dimensions.
///
/// # Errors
/// When a value is not finite or a parameter is out of its range.
pub fn dbscan<F: Real>(
    points: &ArrayView2<'_, F>,
    eps: f64,
    min_samples: usize,
) -> Result<Vec<Option<usize>>, Error> {
    let way: &dyn Dbscan<F> = if points.ncols() <= TREE_DIMENSIONS { &KdTree } else { &Blocked };
    way.labels(points, eps, min_samples)
}

/// The Euclidean distance between unit vectors whose cosine distance is `eps`: √(2·eps).
pub fn euclidean_eps(eps: f64) -> f64 {
    (2.0 * eps).sqrt()
}

/// One array from rows of equal length.
///
/// # Errors
/// When the rows differ in length.
pub fn rows(rows: &[Vec<f32>]) -> Result<Array2<f32>, Error> {
    let expected = rows.first().map_or(0, Vec::len);
    if let Some((row, bad)) = rows.iter().enumerate().find(|(_, r)| r.len() != expected) {
        return Err(Error::Length { row, found: bad.len(), expected });
    }
    Array2::from_shape_vec((rows.len(), expected), rows.concat()).map_err(|e| Error::Library(e.to_string()))
}

/// Each row divided by its length; a row of zeros stays.
///
/// # Errors
/// When a value is not finite.
pub fn unit_rows(mut points: Array2<f64>) -> Result<Array2<f64>, Error> {
    check_finite(&points.view())?;
    for mut row in points.rows_mut() {
        // By the largest value first: squares of huge or tiny values would leave f64's range.
        let largest = row.iter().fold(0.0_f64, |top, x| top.max(x.abs()));
        if largest > 0.0 {
            row.mapv_inplace(|x| x / largest);
            let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
            row.mapv_inplace(|x| x / length);
        }
    }
    Ok(points)
}

/// What every way asks of its input.
fn check<F: Real>(points: &ArrayView2<'_, F>, eps: f64, min_samples: usize) -> Result<(), Error> {
    if !(eps.is_finite() && eps > 0.0) {
        return Err(Error::Parameter { name: "eps", wanted: "a finite number above 0" });
    }
    if min_samples == 0 {
        return Err(Error::Parameter { name: "min_samples", wanted: "at least 1" });
    }
    if points.ncols() == 0 && points.nrows() > 0 {
        return Err(Error::NoDimensions);
    }
    check_finite(points)
}

fn check_finite<F: Real>(points: &ArrayView2<'_, F>) -> Result<(), Error> {
    match points.indexed_iter().find(|(_, x)| !x.is_finite()) {
        Some(((row, column), _)) => Err(Error::NotFinite { row, column }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
