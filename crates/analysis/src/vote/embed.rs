//! Texts to vectors: one file an embedder, one line in [`NAMES`] to register it.
//!
//! An embedder that needs a network lives with the program, not here: this crate has no sockets. It
//! implements [`Embed`] all the same.

mod hash;
mod minilm;

use std::path::Path;

use ndarray::Array2;

pub use hash::Hash;
pub use minilm::{LoadError, MiniLm};

use super::cluster;
use super::geometry::Eps;

/// The embedders that need no network.
pub const NAMES: [&str; 2] = ["hash", "minilm"];

/// Characters at the end of a trace that stand for its answer when none can be extracted. Measured: 80
/// 0.702, 150 0.701, 300 0.685, everything 0.674, the first 400 characters 0.654, one sample 0.637.
pub const TAIL_CHARS: usize = 80;

/// Why texts could not be embedded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The vectors that came back cannot be used.
    #[error(transparent)]
    Vectors(#[from] cluster::Error),
    /// The service failed.
    #[error("the embeddings service failed: {0}")]
    Service(String),
}

/// Something that turns texts into vectors.
pub trait Embed: std::fmt::Debug {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Whether its vectors carry meaning, so that they may break a tie by group means.
    fn is_semantic(&self) -> bool;
    /// Within which cosine distance two traces count as neighbours unless the user says otherwise.
    fn eps(&self) -> Eps;
    /// One row for each text, in order.
    ///
    /// # Errors
    /// When a service fails or returns vectors that cannot be used.
    fn embed(&self, texts: &[&str]) -> Result<Array2<f32>, Error>;
}

/// The end of a text: its last [`TAIL_CHARS`] characters.
pub fn tail(text: &str) -> &str {
    let text = text.trim_end();
    text.char_indices().rev().nth(TAIL_CHARS - 1).map_or(text, |(at, _)| &text[at..])
}

/// The embedder called `name`; `folder` holds the weights of one that needs them.
///
/// # Errors
/// When weights cannot be read.
pub fn local(name: &str, folder: Option<&Path>) -> Result<Option<Box<dyn Embed>>, LoadError> {
    match (name, folder) {
        ("hash", _) => Ok(Some(Box::new(Hash))),
        ("minilm", Some(folder)) => Ok(Some(Box::new(MiniLm::load(folder)?))),
        ("minilm", None) => Err(LoadError::NoFolder),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
