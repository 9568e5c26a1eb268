//! HDBSCAN by the `hdbscan` crate: a choice for fan-outs of [`Hdbscan::MIN_TRACES`] traces and more.
//!
//! Not for fewer, see [`hdbscan_many`]. The `write-up` rule calls it for any number all the same, because it
//! shows what the published rule does.

use hdbscan::{DistanceMetric, HdbscanHyperParams, NnAlgorithm};
use ndarray::ArrayView2;

use super::{Error, check};

/// How HDBSCAN is to cluster.
#[derive(Clone, Copy, Debug)]
pub struct Hdbscan {
    /// Smallest number of points that is a cluster, at least 2.
    pub min_cluster_size: usize,
    /// Neighbours that make a core distance, the point itself included, as scikit-learn counts.
    pub min_samples: usize,
    /// Whether all points together may be the one cluster.
    pub allow_single_cluster: bool,
}

impl Hdbscan {
    /// Below this number of traces the answer is mostly "all noise", so [`hdbscan_many`] refuses.
    pub const MIN_TRACES: usize = 50;
}

/// HDBSCAN with scikit-learn's defaults of 5, and with all points allowed to be the one cluster, so that a
/// unanimous fan-out does not come back all noise.
///
/// # Errors
/// As [`hdbscan()`], and when there are fewer points than [`Hdbscan::MIN_TRACES`].
pub fn hdbscan_many(points: &ArrayView2<'_, f64>) -> Result<Vec<Option<usize>>, Error> {
    if points.nrows() < Hdbscan::MIN_TRACES {
        return Err(Error::TooFew { points: points.nrows(), least: Hdbscan::MIN_TRACES });
    }
    hdbscan(points, Hdbscan { min_cluster_size: 5, min_samples: 5, allow_single_cluster: true })
}

/// Cluster of each row; `None` is noise. Numbers are by first appearance.
///
/// # Errors
/// When a value is not finite, a parameter is out of range, or there are fewer points than
/// `min_cluster_size` or `min_samples`.
pub fn hdbscan(points: &ArrayView2<'_, f64>, params: Hdbscan) -> Result<Vec<Option<usize>>, Error> {
    // The crate checks for infinity alone and panics on NaN.
    check(points, 1.0, params.min_samples)?;
    let n = points.nrows();
    if params.min_cluster_size < 2 || params.min_cluster_size > n {
        return Err(Error::Parameter { name: "min_cluster_size", wanted: "2 to the number of points" });
    }
    if params.min_samples > n {
        return Err(Error::Parameter { name: "min_samples", wanted: "1 to the number of points" });
    }
    let rows: Vec<Vec<f64>> = points.rows().into_iter().map(|row| row.to_vec()).collect();
    let how = HdbscanHyperParams::builder()
        .min_cluster_size(params.min_cluster_size)
        .min_samples(params.min_samples)
        .allow_single_cluster(params.allow_single_cluster)
        .dist_metric(DistanceMetric::Euclidean)
        .nn_algorithm(NnAlgorithm::BruteForce)
        .build();
    let labels =
        hdbscan::Hdbscan::new(&rows, how).cluster().map_err(|error| Error::Library(error.to_string()))?;
    Ok(renumbered(&labels))
}

fn renumbered(labels: &[i32]) -> Vec<Option<usize>> {
    let mut seen = Vec::new();
    labels
        .iter()
        .map(|&label| {
            (label >= 0).then(|| {
                seen.iter().position(|s| *s == label).unwrap_or_else(|| {
                    seen.push(label);
                    seen.len() - 1
                })
            })
        })
        .collect()
}
