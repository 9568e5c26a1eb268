//! What the kernel knows of a connection: round-trip time and segments sent again.
//!
//! In: the two ends of a connection of ours. Out: two fields of the kernel's `tcp_info`, or nothing.
//!
//! `getsockopt(TCP_INFO)` has no safe binding, so the kernel is asked over its `sock_diag` netlink socket
//! (`man 7 sock_diag`), which answers any process about any socket that it may see: plain bytes both ways.
//! One question costs a few microseconds and is asked at the end of a stream; streams that end together share it.

use std::net::SocketAddr;

/// Smoothed round-trip time in µs, and segments that we sent again since the connection began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tcp {
    pub(crate) rtt_us: u32,
    pub(crate) retrans: u32,
}

/// Asks for the connection between `local` and `peer`. `None` when the kernel does not say.
#[cfg(target_os = "linux")]
pub(crate) fn ask(local: SocketAddr, peer: SocketAddr) -> Option<Tcp> {
    use std::sync::{Mutex, PoisonError};

    /// To open and close a socket takes the kernel longer than to answer.
    static KERNEL: Mutex<Option<kernel::Socket>> = Mutex::new(None);

    let request = request(local, peer)?;
    let mut kept = KERNEL.lock().unwrap_or_else(PoisonError::into_inner);
    let kernel = match kept.take() {
        Some(kernel) => kernel,
        None => kernel::Socket::open()?,
    };
    let mut answer = [0; 4096];
    let n = kernel.ask(&request, &mut answer)?;
    *kept = Some(kernel); // not after a failure: its answer might come later, to another question
    read(&answer[..n])
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::os::fd::{AsRawFd, OwnedFd};

    use nix::sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
    };

    /// Answers at once: an answer that is not there will not come.
    pub(super) struct Socket(OwnedFd);

    impl Socket {
        pub(super) fn open() -> Option<Self> {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let protocol = SockProtocol::NetlinkSockDiag;
            socket(AddressFamily::Netlink, SockType::Datagram, flags, protocol).ok().map(Self)
        }

        /// How many bytes of `answer` were filled.
        pub(super) fn ask(&self, request: &[u8], answer: &mut [u8]) -> Option<usize> {
            let fd = self.0.as_raw_fd();
            sendto(fd, request, &NetlinkAddr::new(0, 0), MsgFlags::empty()).ok()?;
            recv(fd, answer, MsgFlags::empty()).ok()
        }
    }
}

/// Asks for the connection between `local` and `peer`. `None` when the kernel does not say.
#[cfg(not(target_os = "linux"))]
pub(crate) fn ask(_: SocketAddr, _: SocketAddr) -> Option<Tcp> {
    None
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const INET_DIAG_INFO: u16 = 2;
const NETLINK_HEADER: usize = 16;
/// `struct inet_diag_msg`.
const DIAG_MESSAGE: usize = 72;
/// Places in `struct tcp_info`, which only ever grows at its end.
const RTT: usize = 68;
const TOTAL_RETRANS: usize = 100;

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(local: SocketAddr, peer: SocketAddr) -> Option<Vec<u8>> {
    let (family, source, target) = match (local, peer) {
        (SocketAddr::V4(local), SocketAddr::V4(peer)) => {
            let wide = |ip: std::net::Ipv4Addr| {
                let mut wide = [0; 16];
                wide[..4].copy_from_slice(&ip.octets());
                wide
            };
            (2, wide(*local.ip()), wide(*peer.ip()))
        }
        (SocketAddr::V6(local), SocketAddr::V6(peer)) => (10, local.ip().octets(), peer.ip().octets()),
        _ => return None,
    };
    let mut bytes = Vec::with_capacity(72);
    bytes.extend(72_u32.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend([0; 8]); // sequence and port
    bytes.extend([family, 6, 1 << (INET_DIAG_INFO - 1), 0]); // TCP, what to tell
    bytes.extend(u32::MAX.to_ne_bytes()); // in any state
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(peer.port().to_be_bytes());
    bytes.extend(source);
    bytes.extend(target);
    bytes.extend(0_u32.to_ne_bytes()); // on any interface
    bytes.extend([0xff; 8]); // without a cookie
    Some(bytes)
}

/// The attribute with `struct tcp_info`, if the answer has one.
fn read(answer: &[u8]) -> Option<Tcp> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let mut rest = answer.get(NETLINK_HEADER + DIAG_MESSAGE..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        let value = rest.get(4..length)?;
        if kind == INET_DIAG_INFO {
            let field = |at: usize| Some(u32::from_ne_bytes(value.get(at..at + 4)?.try_into().ok()?));
            return Some(Tcp { rtt_us: field(RTT)?, retrans: field(TOTAL_RETRANS)? });
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_or_strange_answers_say_nothing() {
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[0; 200]), None);
        let mut zero_length = vec![0; 120];
        zero_length[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        assert_eq!(read(&zero_length), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_kernel_knows_a_connection_that_has_carried_something() {
        use std::io::{Read as _, Write as _};
        use std::net::{TcpListener, TcpStream};

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"ping").unwrap();
        server.read_exact(&mut [0; 4]).unwrap();
        let told = ask(client.local_addr().unwrap(), client.peer_addr().unwrap());
        // Kernels without tcp_diag say nothing; that is allowed, a wrong figure is not.
        assert!(told.is_none_or(|tcp| tcp.rtt_us < 1_000_000 && tcp.retrans < 100), "{told:?}");
        assert_eq!(ask("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()), None);
    }
}
