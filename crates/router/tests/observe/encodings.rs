//! Compressed answers: forwarded as they came, decoded for the analysis, whatever the encoding.

use std::io::Write;

use super::upstream::{Framing, Script, http1, http2};
use super::{Options, PAUSE, check_events, passes};
use sseismo_trace::{Attribution, Outcome};

/// Buffer of the brotli encoder.
const BUFFER: usize = 4 << 10;
/// Quality and window of the brotli encoder: what nginx and Cloudflare use for answers that are made anew.
const QUALITY: u32 = 5;
const WINDOW: u32 = 22;

/// The events of [`Script::events`], each compressed and flushed as a streaming server does.
fn script(encoding: &'static str, framing: Framing) -> Script {
    let mut script = Script::events(framing, PAUSE);
    let level = flate2::Compression::default();
    script.pieces = match encoding {
        "gzip" => {
            let encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            flushed(encoder, &script.pieces, flate2::write::GzEncoder::get_mut, |e| e.finish().unwrap())
        }
        "deflate" => {
            let encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
            flushed(encoder, &script.pieces, flate2::write::ZlibEncoder::get_mut, |e| e.finish().unwrap())
        }
        "br" => {
            let encoder = brotli::CompressorWriter::new(Vec::new(), BUFFER, QUALITY, WINDOW);
            flushed(
                encoder,
                &script.pieces,
                brotli::CompressorWriter::get_mut,
                brotli::CompressorWriter::into_inner,
            )
        }
        _ => {
            let encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
            flushed(encoder, &script.pieces, zstd::stream::write::Encoder::get_mut, |e| e.finish().unwrap())
        }
    };
    script.headers.push(("content-encoding", encoding));
    script
}

fn flushed<W: Write>(
    mut encoder: W,
    pieces: &[Vec<u8>],
    inner: impl Fn(&mut W) -> &mut Vec<u8>,
    finish: impl FnOnce(W) -> Vec<u8>,
) -> Vec<Vec<u8>> {
    let mut compressed = Vec::new();
    for piece in pieces {
        encoder.write_all(piece).unwrap();
        encoder.flush().unwrap();
        compressed.push(std::mem::take(inner(&mut encoder)));
    }
    compressed.push(finish(encoder));
    compressed.retain(|piece| !piece.is_empty());
    compressed
}

#[tokio::test]
async fn every_encoding_passes_as_it_came_and_is_read() {
    let http2_options = Options { http2_prior_knowledge: true, ..Options::default() };
    for encoding in ["gzip", "deflate", "br", "zstd"] {
        let script = script(encoding, Framing::Chunked);
        assert!(script.body() != Script::events(Framing::Chunked, PAUSE).body());
        let (address, _) = http1(script.clone(), None).await;
        let record = passes(&script, address, &Options::default(), "http").await;
        check_events(&record, Attribution::Exact);
        assert_eq!(record.summary.content_encoding.as_deref(), Some(encoding));
        let (address, _) = http2(script.clone(), None).await;
        let record = passes(&script, address, &http2_options, "http").await;
        check_events(&record, Attribution::Frame);
    }
}

/// What says that it is compressed and is not passes all the same; nobody makes events of it.
#[tokio::test]
async fn what_cannot_be_decoded_passes_and_yields_no_events() {
    for encoding in ["br", "zstd", "deflate", "gzip", "x-unheard-of"] {
        let mut script = Script::events(Framing::Chunked, PAUSE);
        script.headers.push(("content-encoding", encoding));
        let (address, _) = http1(script.clone(), None).await;
        let record = passes(&script, address, &Options::default(), "http").await;
        assert!(record.deltas.iter().all(|delta| !delta.is_content()), "{encoding}: {:?}", record.deltas);
        assert_ne!(record.summary.outcome, Outcome::Completed, "{encoding}: nobody saw its end");
    }
}
