//! A request's body on its way in: whole, bounded in bytes and time, and decoded to be looked at.
//!
//! In: the body of a caller who may call. Out: its bytes as they came, and what they say. The body is taken
//! in whole because it may have to be sent again, to another upstream.

use std::io::Read;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body;

/// Largest window of a zstd body, as a power of two: what RFC 8878 § 3.1.1.1.2 asks decoders to support.
const ZSTD_WINDOW: u32 = 23;

/// Why a body is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBody {
    /// More bytes than the limit, as sent or decoded.
    #[error("the request's body is larger than {0} bytes")]
    TooLarge(usize),
    /// It did not come in time.
    #[error("the request's body did not come within {} s", .0.as_secs())]
    TooSlow(Duration),
    /// The caller stopped in the middle of it.
    #[error("the request's body broke off")]
    Broken,
    /// The bytes are not of the encoding that the head names.
    #[error("the request's body is not of the content-encoding that it names")]
    Encoding,
    /// An encoding that is not spoken.
    #[error("the request's content-encoding is not known; send it plain, as gzip or as zstd")]
    UnknownEncoding,
}

/// Takes a body in.
///
/// # Errors
/// When it is too large or too slow, or the caller breaks off.
pub async fn collect<B>(body: B, most: usize, within: Duration) -> Result<Bytes, BadBody>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if body.size_hint().lower() > most as u64 {
        return Err(BadBody::TooLarge(most)); // it says so itself: nothing of it is read
    }
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let collected = tokio::time::timeout(within, Limited::new(body, most).collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BadBody::TooLarge(most)),
        Ok(Err(_)) => Err(BadBody::Broken),
        Err(_) => Err(BadBody::TooSlow(within)),
    }
}

/// The body as its `content-encoding` means it.
///
/// # Errors
/// When it is not of that encoding, or larger than `most` bytes.
pub fn decode(encoding: Option<&str>, body: &Bytes, most: usize) -> Result<Bytes, BadBody> {
    match encoding.unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "" | "identity" => Ok(body.clone()),
        "gzip" | "x-gzip" => read(flate2::read::MultiGzDecoder::new(&body[..]), most),
        "zstd" => {
            let mut decoder = zstd::stream::read::Decoder::new(&body[..]).map_err(|_| BadBody::Encoding)?;
            decoder.window_log_max(ZSTD_WINDOW).map_err(|_| BadBody::Encoding)?;
            read(decoder, most)
        }
        _ => Err(BadBody::UnknownEncoding),
    }
}

fn read(decoder: impl Read, most: usize) -> Result<Bytes, BadBody> {
    let mut decoded = Vec::new();
    decoder.take(most as u64 + 1).read_to_end(&mut decoded).map_err(|_| BadBody::Encoding)?;
    if decoded.len() > most { Err(BadBody::TooLarge(most)) } else { Ok(decoded.into()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use http_body_util::Full;

    use super::*;

    fn gzip(bytes: &[u8]) -> Bytes {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap().into()
    }

    fn zstd(bytes: &[u8]) -> Bytes {
        zstd::bulk::compress(bytes, 3).unwrap().into()
    }

    #[test]
    fn each_encoding_is_read_and_bombs_are_not() {
        let body = b"{\"model\":\"m\"}";
        assert_eq!(decode(None, &Bytes::from_static(body), 13).unwrap(), &body[..]);
        assert_eq!(decode(Some("gzip"), &gzip(body), 13).unwrap(), &body[..]);
        assert_eq!(decode(Some("ZSTD"), &zstd(body), 13).unwrap(), &body[..]);
        let zeros = vec![0; 1 << 20];
        for (encoding, bomb) in [("gzip", gzip(&zeros)), ("zstd", zstd(&zeros))] {
            assert!(bomb.len() < 10_000);
            assert_eq!(decode(Some(encoding), &bomb, 100_000), Err(BadBody::TooLarge(100_000)));
        }
        let wrong = Bytes::from_static(b"plain");
        for encoding in ["gzip", "zstd"] {
            assert_eq!(decode(Some(encoding), &wrong, 100), Err(BadBody::Encoding));
        }
        assert_eq!(decode(Some("br"), &wrong, 100), Err(BadBody::UnknownEncoding));
    }

    #[tokio::test]
    async fn a_large_body_is_refused() {
        let body = Full::new(Bytes::from(vec![0; 100]));
        assert_eq!(collect(body.clone(), 100, Duration::from_secs(1)).await.unwrap().len(), 100);
        assert_eq!(collect(body, 99, Duration::from_secs(1)).await, Err(BadBody::TooLarge(99)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_given_up() {
        let (sender, receiver) = tokio::sync::mpsc::channel::<()>(1);
        let body = http_body_util::StreamBody::new(Never(receiver));
        let wait = Duration::from_secs(3);
        assert_eq!(collect(body, 100, wait).await, Err(BadBody::TooSlow(wait)));
        drop(sender);
    }

    /// A stream that waits for what does not come.
    struct Never(tokio::sync::mpsc::Receiver<()>);

    impl futures_util::Stream for Never {
        type Item = Result<hyper::body::Frame<Bytes>, std::convert::Infallible>;

        fn poll_next(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Self::Item>> {
            self.0.poll_recv(cx).map(|_| None)
        }
    }
}
