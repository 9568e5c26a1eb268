//! Content encodings: what came over the wire to what the API said.
//!
//! In: pieces of an encoded body. Out: the decoded bytes that each piece made available, at once. The
//! body itself is forwarded as it came; this copy serves the analysis alone.

use std::io::{self, Write};

use brotli::DecompressorWriter;
use flate2::write::{MultiGzDecoder, ZlibDecoder};

/// One piece may not become more than this: a body that does is not an answer but an attack.
const MAX_OUTPUT: usize = 16 << 20;

/// Buffer of the brotli decoder.
const BROTLI_BUFFER: usize = 4 << 10;

/// Takes what a decoder writes, up to [`MAX_OUTPUT`] between two calls.
#[derive(Debug, Default)]
pub(crate) struct Output(Vec<u8>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An incremental decoder of one body.
pub(crate) enum Decompressor {
    /// Not encoded.
    Identity,
    Gzip(Box<MultiGzDecoder<Output>>),
    Deflate(Box<ZlibDecoder<Output>>),
    Brotli(Box<DecompressorWriter<Output>>),
    Zstd(Box<zstd::stream::write::Decoder<'static, Output>>),
}

impl Decompressor {
    /// The decoder for a `content-encoding`; `None` for one that is not known.
    pub(crate) fn of(encoding: Option<&str>) -> Option<Self> {
        let output = Output::default();
        Some(match encoding.unwrap_or("identity").trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Self::Identity,
            "gzip" | "x-gzip" => Self::Gzip(Box::new(MultiGzDecoder::new(output))),
            "deflate" => Self::Deflate(Box::new(ZlibDecoder::new(output))),
            "br" => Self::Brotli(Box::new(DecompressorWriter::new(output, BROTLI_BUFFER))),
            "zstd" => Self::Zstd(Box::new(zstd::stream::write::Decoder::new(output).ok()?)),
            _ => return None,
        })
    }

    /// Decodes `bytes` and hands what they made available to `each`.
    ///
    /// # Errors
    /// When the bytes are not of this encoding, or become more than [`MAX_OUTPUT`].
    pub(crate) fn push<T>(&mut self, bytes: &[u8], each: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
        let output = match self {
            Self::Identity => return Ok(each(bytes)),
            Self::Gzip(decoder) => {
                write(decoder, bytes)?;
                decoder.get_mut()
            }
            Self::Deflate(decoder) => {
                write(decoder, bytes)?;
                decoder.get_mut()
            }
            Self::Brotli(decoder) => {
                write(decoder, bytes)?;
                decoder.get_mut()
            }
            Self::Zstd(decoder) => {
                write(decoder, bytes)?;
                decoder.get_mut()
            }
        };
        let outcome = each(&output.0);
        output.0.clear();
        Ok(outcome)
    }
}

impl std::fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Identity => "Identity",
            Self::Gzip(_) => "Gzip",
            Self::Deflate(_) => "Deflate",
            Self::Brotli(_) => "Brotli",
            Self::Zstd(_) => "Zstd",
        })
    }
}

fn write(decoder: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    decoder.write_all(bytes)?;
    decoder.flush()
}

/// Decodes a whole body of at most [`MAX_OUTPUT`] bytes; `None` when that fails.
pub(crate) fn whole(encoding: Option<&str>, bytes: &[u8]) -> Option<Vec<u8>> {
    Decompressor::of(encoding)?.push(bytes, <[u8]>::to_vec).ok()
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    const EVENTS: [&[u8]; 3] =
        [b"data: {\"a\":1}\n\n", b"data: {\"b\":\"\xc3\xa9\"}\n\n", b"data: [DONE]\n\n"];

    /// Encodes each event with a flush behind it, as a streaming server does.
    fn flushed<W: Write>(mut encoder: W, take: impl Fn(&mut W) -> Vec<u8>) -> Vec<Vec<u8>> {
        EVENTS
            .iter()
            .map(|event| {
                encoder.write_all(event).unwrap();
                encoder.flush().unwrap();
                take(&mut encoder)
            })
            .collect()
    }

    fn pieces(encoding: &str) -> Vec<Vec<u8>> {
        let level = Compression::default();
        match encoding {
            "gzip" => flushed(GzEncoder::new(Vec::new(), level), |e| std::mem::take(e.get_mut())),
            "deflate" => flushed(ZlibEncoder::new(Vec::new(), level), |e| std::mem::take(e.get_mut())),
            "br" => {
                let encoder = brotli::CompressorWriter::new(Vec::new(), BROTLI_BUFFER, 5, 22);
                flushed(encoder, |e| std::mem::take(e.get_mut()))
            }
            "zstd" => {
                let encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
                flushed(encoder, |e| std::mem::take(e.get_mut()))
            }
            _ => EVENTS.map(<[u8]>::to_vec).to_vec(),
        }
    }

    #[test]
    fn each_flushed_event_is_available_at_once() {
        for encoding in ["gzip", "deflate", "br", "zstd", "identity"] {
            let mut decoder = Decompressor::of(Some(encoding)).unwrap();
            for (piece, event) in pieces(encoding).iter().zip(EVENTS) {
                let got = decoder.push(piece, <[u8]>::to_vec).unwrap();
                assert_eq!(got, event, "{encoding}");
            }
        }
    }

    #[test]
    fn what_is_no_such_encoding_is_an_error_not_a_panic() {
        for encoding in ["gzip", "deflate", "br", "zstd"] {
            let mut decoder = Decompressor::of(Some(encoding)).unwrap();
            assert!(decoder.push(b"certainly not compressed", <[u8]>::to_vec).is_err(), "{encoding}");
        }
        assert!(Decompressor::of(Some("compress")).is_none());
    }

    #[test]
    fn a_bomb_is_refused() {
        let zeros = vec![0; MAX_OUTPUT + 1];
        let bomb = zstd::bulk::compress(&zeros, 1).unwrap();
        assert!(bomb.len() < 1 << 20);
        assert!(whole(Some("zstd"), &bomb).is_none());
    }
}
