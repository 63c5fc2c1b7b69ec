//! A UDP socket for QUIC: batches of datagrams in both directions, segmentation offload, ECN and local addresses.

use flatout_os::registered::Registered;
use quinn_proto::{EcnCodepoint, Transmit};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};
use rustix::io::fcntl_dupfd_cloexec;
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::Interest;

/// Maximum size of one received batch, in bytes. The kernel joins datagrams up to this size.
const MESSAGE_BYTES: usize = 64 * 1024;

/// Number of batches received by one system call. Each batch has up to 64 datagrams of one peer.
const MESSAGES: usize = if BATCH_SIZE < 8 { BATCH_SIZE } else { 8 };

/// Maximum datagrams in one send call. The kernel limits a segmented send to 64 KiB.
const SEGMENTS_MAX: usize = 40;

/// Properties of received datagrams, all of which are from one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The address of the peer.
    pub remote: SocketAddr,
    /// The local address to which the datagrams were sent, if known.
    pub local_ip: Option<IpAddr>,
    /// The codepoint of explicit congestion notification.
    pub ecn: Option<EcnCodepoint>,
}

/// A UDP socket registered with the runtime.
#[derive(Debug)]
pub(crate) struct QuicSocket {
    /// Registered for reading only, because the kernel reports a UDP socket as writable each time a sent packet leaves.
    readable: Registered<Rc<OwnedFd>>,
    socket: Rc<OwnedFd>,
    state: UdpSocketState,
    /// While sends are blocked: a copy of the descriptor, registered for writing.
    writable: RefCell<Option<Registered>>,
    /// Wakers of tasks whose sends are blocked.
    blocked: RefCell<Vec<Waker>>,
    /// The receive buffer, allocated when the socket is first polled.
    input: RefCell<Vec<u8>>,
    is_blocked: Cell<bool>,
}

impl QuicSocket {
    /// Registers a socket. Must be called within a worker's runtime.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = Rc::new(socket);
        let state = UdpSocketState::new(UdpSockRef::from(&*socket))?;
        Ok(Self {
            readable: Registered::with_interest(Rc::clone(&socket), Interest::READABLE)?,
            socket,
            state,
            writable: RefCell::new(None),
            blocked: RefCell::new(Vec::new()),
            input: RefCell::new(Vec::new()),
            is_blocked: Cell::new(false),
        })
    }

    /// Returns the maximum number of datagrams in one send call.
    pub(crate) fn segments_max(&self) -> usize {
        self.state.max_gso_segments().min(SEGMENTS_MAX)
    }

    /// Returns whether the kernel never fragments datagrams, so that the path MTU can be discovered.
    pub(crate) fn may_discover_mtu(&self) -> bool {
        !self.state.may_fragment()
    }

    /// Receives once and calls `handle` with each datagram. Returns the number of bytes received.
    pub(crate) fn poll_receive(
        &self,
        context: &mut Context<'_>,
        mut handle: impl FnMut(Arrival, &[u8]),
    ) -> Poll<io::Result<usize>> {
        let mut input = self.input.borrow_mut();
        if input.is_empty() {
            input.resize(MESSAGES * MESSAGE_BYTES, 0);
        }
        let mut meta = [RecvMeta::default(); MESSAGES];
        let count = loop {
            let mut guard = ready!(self.readable.poll_read_ready(context))?;
            let mut chunks = input.chunks_exact_mut(MESSAGE_BYTES);
            let mut slices: [IoSliceMut<'_>; MESSAGES] =
                std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
            match self.state.recv(UdpSockRef::from(&*self.socket), &mut slices, &mut meta) {
                Ok(count) => {
                    if count < MESSAGES {
                        guard.clear_ready();
                    }
                    break count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // An ICMP error caused by an earlier send, which is reported once. QUIC detects unreachable peers
                // itself.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        };
        let mut bytes = 0;
        for (meta, message) in meta[..count].iter().zip(input.chunks_exact(MESSAGE_BYTES)) {
            let arrival = Arrival {
                remote: meta.addr,
                local_ip: meta.dst_ip,
                ecn: meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
            };
            let message = &message[..meta.len.min(MESSAGE_BYTES)];
            bytes += message.len();
            message.chunks(meta.stride.max(1)).for_each(|datagram| handle(arrival, datagram));
        }
        Poll::Ready(Ok(bytes))
    }

    /// Sends the datagrams that `transmit` describes. Returns `false` if the socket's buffer is full, and then wakes
    /// the task of `context` when there is room. Other failures count as packet loss, from which QUIC recovers.
    pub(crate) fn send(&self, transmit: &Transmit, contents: &[u8], context: &mut Context<'_>) -> bool {
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents,
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        match self.state.try_send(UdpSockRef::from(&*self.socket), &transmit) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.wait_writable(context.waker());
                false
            }
            _ => true,
        }
    }

    fn wait_writable(&self, waker: &Waker) {
        let mut blocked = self.blocked.borrow_mut();
        if !blocked.iter().any(|known| known.will_wake(waker)) {
            blocked.push(waker.clone());
        }
        self.is_blocked.set(true);
    }

    /// Returns whether sends are blocked, so that [`Self::poll_writable`] must be polled.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked.get()
    }

    /// Wakes the tasks whose sends are blocked when the socket is writable.
    pub(crate) fn poll_writable(&self, context: &mut Context<'_>) {
        let mut writable = self.writable.borrow_mut();
        if writable.is_none() {
            let copy = fcntl_dupfd_cloexec(&*self.socket, 0).map_err(io::Error::from);
            *writable = copy.and_then(|copy| Registered::with_interest(copy, Interest::WRITABLE)).ok();
        }
        // If the descriptor cannot be copied, the tasks try again immediately.
        if writable.as_ref().is_some_and(|writable| writable.poll_write_ready(context).is_pending()) {
            return;
        }
        *writable = None;
        self.is_blocked.set(false);
        let blocked = self.blocked.take();
        blocked.into_iter().for_each(Waker::wake);
    }
}
