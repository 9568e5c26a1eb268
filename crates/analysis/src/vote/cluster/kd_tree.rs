//! DBSCAN for few dimensions, by `linfa-clustering`.
//!
//! Of linfa's searches only the k-d tree takes a neighbour at exactly eps, as scikit-learn does; it
//! panics on NaN and on column-major arrays, so both are dealt with before the call.

use linfa::ParamGuard as _;
use linfa::traits::Transformer as _;
use linfa_clustering::Dbscan as Linfa;
use linfa_nn::CommonNearestNeighbour;
use linfa_nn::distance::L2Dist;
use ndarray::ArrayView2;

use super::{Dbscan, Error, Real, check};

/// Neighbours by a k-d tree.
#[derive(Clone, Copy, Debug)]
pub struct KdTree;

impl<F: Real> Dbscan<F> for KdTree {
    fn labels(
        &self,
        points: &ArrayView2<'_, F>,
        eps: f64,
        min_samples: usize,
    ) -> Result<Vec<Option<usize>>, Error> {
        check(points, eps, min_samples)?;
        if min_samples == 1 {
            // Every point is a core point; linfa refuses this case.
            return super::Blocked.labels(points, eps, min_samples);
        }
        let rows = points.as_standard_layout().into_owned();
        let labels = Linfa::params_with(min_samples, L2Dist, CommonNearestNeighbour::KdTree)
            .tolerance(F::cast(eps))
            .check()
            .map_err(|error| Error::Library(error.to_string()))?
            .transform(&rows);
        Ok(labels.to_vec())
    }
}
