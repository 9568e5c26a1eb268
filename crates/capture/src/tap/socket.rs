//! One read of a socket, with the kernel's own stamp where there is one.
//!
//! In: a readable socket. Out: the bytes, whether more was waiting, and how long the kernel had held
//! them. Linux stamps every segment in software (`SO_TIMESTAMPNS`, no privilege needed) and hands the
//! last segment's stamp out with `recvmsg`; elsewhere the read has no kernel stamp.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;

use bytes::Bytes;
use sseismo_trace::Micros;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::clock;

/// Bytes asked for in one read: the largest TLS record.
const READ_BYTES: usize = 16 << 10;

thread_local! {
    /// What reads fill before it is known how much there is. One for each thread: of a thousand connections that
    /// wait for their next event, none needs it.
    static ROOM: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Lends this thread's room; `fill` must not ask for it again.
pub(super) fn with_room<T>(fill: impl FnOnce(&mut [u8]) -> T) -> T {
    ROOM.with_borrow_mut(|room| fill(room))
}

/// What one read returned.
#[derive(Debug)]
pub(crate) struct Got {
    /// Empty at the end of the stream.
    pub(crate) bytes: Bytes,
    /// When the read returned.
    pub(crate) at: Micros,
    /// The socket had nothing more to give.
    pub(crate) drained: bool,
    /// Age of the last byte; `None` without a stamp and after a clock step.
    pub(crate) kernel_lag: Option<Micros>,
}

/// Reads one socket.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    stamp: stamp::Source,
}

impl Reader {
    /// Waits until `stream` has something and reads it.
    pub(crate) async fn read(&mut self, stream: &TcpStream) -> io::Result<Got> {
        loop {
            // The reader's own place in the registration; `readable` would queue up with other waiters.
            poll_fn(|cx| stream.poll_read_ready(cx)).await?;
            let mut short = None;
            let outcome = stream.try_io(Interest::READABLE, || {
                let bytes = with_room(|room| {
                    let n = self.stamp.read(stream, room)?;
                    io::Result::Ok(Bytes::copy_from_slice(&room[..n]))
                })?;
                if bytes.is_empty() || bytes.len() == READ_BYTES {
                    return Ok(bytes);
                }
                // A short read emptied the socket. Saying so clears the readiness, which saves the
                // read that would only find nothing.
                short = Some(bytes);
                Err(io::ErrorKind::WouldBlock.into())
            });
            let bytes = match (short, outcome) {
                (Some(bytes), _) | (None, Ok(bytes)) => bytes,
                (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => continue,
                (None, Err(error)) => return Err(error),
            };
            let at = clock::now();
            let kernel_lag = if bytes.is_empty() { None } else { self.stamp.lag(at) };
            return Ok(Got { drained: bytes.len() < READ_BYTES, bytes, at, kernel_lag });
        }
    }
}

/// Asks the kernel to stamp what arrives. Without stamps reads go on, with `kernel_lag` missing.
pub(crate) fn ask_for_stamps(stream: &TcpStream) {
    stamp::ask(stream);
}

#[cfg(target_os = "linux")]
mod stamp {
    use std::io::{self, IoSliceMut};
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
    use nix::sys::time::TimeSpec;
    use sseismo_trace::Micros;
    use tokio::net::TcpStream;

    use crate::clock;

    /// Wall and monotonic clock may drift apart by this much between two reads before it counts as a
    /// step: a millisecond, and 1/1000 of the time between them (twice the slew that NTP may apply).
    const STEP_US: i64 = 1_000;

    pub(super) fn ask(stream: &TcpStream) {
        let _ = setsockopt(stream, sockopt::ReceiveTimestampns, &true);
    }

    #[derive(Debug)]
    pub(super) struct Source {
        control: Vec<u8>,
        stamp: Option<TimeSpec>,
        before: Option<(i64, i64)>,
    }

    impl Default for Source {
        fn default() -> Self {
            Self { control: nix::cmsg_space!(TimeSpec), stamp: None, before: None }
        }
    }

    impl Source {
        pub(super) fn read(&mut self, stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
            let mut iov = [IoSliceMut::new(buffer)];
            let message =
                recvmsg::<()>(stream.as_raw_fd(), &mut iov, Some(&mut self.control), MsgFlags::empty())?;
            self.stamp = message.cmsgs()?.find_map(|control| match control {
                ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
                _ => None,
            });
            Ok(message.bytes)
        }

        /// How old the last stamp is `now`.
        pub(super) fn lag(&mut self, now: Micros) -> Option<Micros> {
            let (wall, mono) = (clock::wall().0, now.0);
            let stepped = self.before.replace((wall, mono)).is_some_and(|(wall_before, mono_before)| {
                let elapsed = mono - mono_before;
                (wall - wall_before - elapsed).abs() > STEP_US + elapsed / 1_000
            });
            let stamp = self.stamp.take()?;
            let lag = wall - (stamp.tv_sec() * 1_000_000 + stamp.tv_nsec() / 1_000);
            (!stepped && lag >= 0).then_some(Micros(lag))
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod stamp {
    use std::io;

    use sseismo_trace::Micros;
    use tokio::net::TcpStream;

    pub(super) fn ask(_: &TcpStream) {}

    #[derive(Debug, Default)]
    pub(super) struct Source;

    impl Source {
        pub(super) fn read(&mut self, stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
            use std::os::fd::AsFd;
            nix::unistd::read(stream.as_fd(), buffer).map_err(io::Error::from)
        }

        pub(super) fn lag(&mut self, _: Micros) -> Option<Micros> {
            None
        }
    }
}
