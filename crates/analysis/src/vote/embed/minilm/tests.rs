use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::{Value, json};

use super::*;

fn golden() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/golden/embed_cases.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A model of two layers with weights from a counter: shape and files as the real one.
fn tiny(folder: &Path) {
    let vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "wor", "##ld", "!", "cafe"];
    let (d, inner, positions) = (8, 16, 16);
    let config = json!({"hidden_size": d, "num_attention_heads": 2, "num_hidden_layers": 2,
        "max_position_embeddings": positions, "layer_norm_eps": 1e-12});
    let mut shapes = vec![
        ("embeddings.word_embeddings.weight".to_owned(), vec![vocabulary.len(), d]),
        ("embeddings.position_embeddings.weight".to_owned(), vec![positions, d]),
        ("embeddings.token_type_embeddings.weight".to_owned(), vec![2, d]),
        ("embeddings.LayerNorm.weight".to_owned(), vec![d]),
        ("embeddings.LayerNorm.bias".to_owned(), vec![d]),
    ];
    for layer in 0..2 {
        for (part, out, input) in [
            ("attention.self.query", d, d),
            ("attention.self.key", d, d),
            ("attention.self.value", d, d),
            ("attention.output.dense", d, d),
            ("intermediate.dense", inner, d),
            ("output.dense", d, inner),
        ] {
            shapes.push((format!("encoder.layer.{layer}.{part}.weight"), vec![out, input]));
            shapes.push((format!("encoder.layer.{layer}.{part}.bias"), vec![out]));
        }
        for part in ["attention.output.LayerNorm", "output.LayerNorm"] {
            shapes.push((format!("encoder.layer.{layer}.{part}.weight"), vec![d]));
            shapes.push((format!("encoder.layer.{layer}.{part}.bias"), vec![d]));
        }
    }
    let mut header = serde_json::Map::new();
    let mut data: Vec<u8> = Vec::new();
    let mut state = 1_u32;
    for (name, shape) in shapes {
        let from = data.len();
        for _ in 0..shape.iter().product() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = f32::from(u16::try_from(state >> 16).unwrap()) / 65_536.0 - 0.5;
            data.extend(value.to_le_bytes());
        }
        header.insert(name, json!({"dtype": "F32", "shape": shape, "data_offsets": [from, data.len()]}));
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut file = u64::try_from(header.len()).unwrap().to_le_bytes().to_vec();
    file.extend(header);
    file.extend(data);
    std::fs::write(folder.join("model.safetensors"), file).unwrap();
    std::fs::write(folder.join("vocab.txt"), vocabulary.join("\n")).unwrap();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

#[test]
fn a_tiny_model_embeds() {
    let folder = tempfile::tempdir().unwrap();
    tiny(folder.path());
    let model = MiniLm::load(folder.path()).unwrap();
    assert_eq!(model.ids("Hello world! Café?"), [2, 4, 5, 6, 7, 8, 1, 3]);
    let long = "hello ".repeat(100) + "world";
    let ids = model.ids(&long);
    assert_eq!(ids.len(), 16);
    assert_eq!(ids[13..], [5, 6, 3], "the end of a long text is kept");
    let vectors = model.embed(&["hello world", "hello world", "", &long]).unwrap();
    assert_eq!(vectors.dim(), (4, 8));
    assert_eq!(vectors.row(0), vectors.row(1));
    assert!(vectors.row(2).iter().all(|x| *x == 0.0));
    for row in [0, 3] {
        let length: f32 = vectors.row(row).iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5);
    }
}

#[test]
fn a_broken_model_is_an_error_that_names_file_and_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let tell = |folder: &Path| {
        let mut error: &dyn std::error::Error = &MiniLm::load(folder).unwrap_err();
        let mut text = error.to_string();
        while let Some(source) = error.source() {
            write!(text, ": {source}").unwrap();
            error = source;
        }
        text
    };
    assert!(tell(folder.path()).contains("config.json"));
    tiny(folder.path());
    let path = folder.path().join("model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    for cut in [0, 4, 100, whole.len() - 4] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        assert!(tell(folder.path()).contains("model.safetensors"), "cut at {cut}");
    }
    std::fs::write(&path, &whole).unwrap();
    std::fs::write(folder.path().join("vocab.txt"), "[UNK]\n[CLS]\n[SEP]").unwrap();
    assert!(tell(folder.path()).contains("embeddings.word_embeddings.weight has shape [9, 8], not [3, 8]"));
}

/// Against the real weights; names of the folder in `MINILM_DIR`.
#[test]
fn the_real_model_gives_the_reference_ids_and_values() {
    let Some(folder) = std::env::var_os("MINILM_DIR") else {
        let mut err = std::io::stderr();
        writeln!(err, "SKIPPED: set MINILM_DIR to the folder of the real all-MiniLM-L6-v2 to run this")
            .unwrap();
        return;
    };
    let model = MiniLm::load(Path::new(&folder)).unwrap();
    for case in golden() {
        let text = case["text"].as_str().unwrap();
        let want: Vec<usize> = serde_json::from_value(case["ids"].clone()).unwrap();
        let ids = model.ids(text);
        assert_eq!(ids, want, "{text}");
        let vector = model.forward(&ids);
        for (got, want) in vector.iter().zip(case["v_fp32_first8"].as_array().unwrap()) {
            // The reference is rounded to six decimals and sums in another order.
            assert!((f64::from(*got) - want.as_f64().unwrap()).abs() < 5e-6, "{text}: {got} {want}");
        }
    }
}
