//! HDBSCAN by the `hdbscan` crate, for fan-outs of [`Hdbscan::MIN_TRACES`] traces and more.
//!
//! Not for fewer: without `allow_single_cluster` a unanimous fan-out comes back all noise.

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
    /// Below this number of traces the answer is mostly "all noise".
    pub const MIN_TRACES: usize = 50;
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
