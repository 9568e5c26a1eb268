//! The safetensors file: eight bytes of header length, a JSON header, then raw tensors.

use std::collections::BTreeMap;

use ndarray::{Array1, Array2};
use serde::Deserialize;
use serde_json::Value;

/// A header of a small encoder is a few kilobytes.
const MAX_HEADER: u64 = 16 << 20;

#[derive(Debug, Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// Tensors by name, still in the file's bytes.
#[derive(Debug)]
pub(super) struct Tensors<'a> {
    entries: BTreeMap<String, Entry>,
    data: &'a [u8],
}

impl<'a> Tensors<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or("shorter than its own header")?;
        let length = u64::from_le_bytes(*length);
        let length = usize::try_from(length.min(MAX_HEADER + 1)).map_err(|error| error.to_string())?;
        if length > rest.len() {
            return Err("the header's length is beyond the file's end".to_owned());
        }
        let (header, data) = rest.split_at(length);
        let header: BTreeMap<String, Value> =
            serde_json::from_slice(header).map_err(|error| format!("bad header: {error}"))?;
        let mut entries = BTreeMap::new();
        for (name, value) in header.into_iter().filter(|(name, _)| name != "__metadata__") {
            let entry = serde_json::from_value(value).map_err(|error| format!("tensor {name}: {error}"))?;
            // Some exports name the encoder in front.
            let name = name.strip_prefix("bert.").map_or(name.clone(), str::to_owned);
            entries.insert(name, entry);
        }
        Ok(Self { entries, data })
    }

    pub(super) fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<Array2<f32>, String> {
        let (shape, values) = self.values(name)?;
        if shape != [rows, columns] {
            return Err(format!("{name} has shape {shape:?}, not [{rows}, {columns}]"));
        }
        Array2::from_shape_vec((rows, columns), values).map_err(|error| format!("{name}: {error}"))
    }

    pub(super) fn vector(&self, name: &str) -> Result<Array1<f32>, String> {
        let (shape, values) = self.values(name)?;
        if shape.len() == 1 {
            Ok(values.into())
        } else {
            Err(format!("{name} has shape {shape:?}, not one dimension"))
        }
    }

    fn values(&self, name: &str) -> Result<(&[usize], Vec<f32>), String> {
        let entry = self.entries.get(name).ok_or_else(|| format!("{name} is missing"))?;
        if entry.dtype != "F32" {
            return Err(format!("{name} is {}, only F32 is read", entry.dtype));
        }
        let (from, to) = entry.data_offsets;
        let bytes = self.data.get(from..to).ok_or_else(|| format!("{name} is beyond the file's end"))?;
        let values: Vec<f32> =
            bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect();
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(format!("{name}: value {at} is not finite"));
        }
        Ok((&entry.shape, values))
    }
}
