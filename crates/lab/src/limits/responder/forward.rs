//! The bare forwarding loop, which does the least work of a proxy for small responses.
//!
//! It makes one receive and one send for each direction of an exchange, over pooled connections to the origin. It
//! changes no byte, and parses only what shows where a response ends: the end of its head, and Content-Length.
//!
//! It has no timeouts, and no buffer for a slow receiver. A connection is closed if its peer does not accept all bytes
//! at once, if it pipelines requests, or if a response has no Content-Length.

use super::{ConnectionWork, EventLoop};
use memchr::memmem;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

/// Length of the receive buffer, in bytes. A longer response is forwarded in pieces.
const RECEIVE_BYTES: usize = 16 * 1024;

/// The bytes that end a response head.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Maximum length of a response head that arrives in pieces, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// One connection, and the descriptor number of the connection at the other end of its exchange.
#[derive(Debug)]
struct ForwardConnection {
    socket: OwnedFd,
    peer: Option<usize>,
    /// Finds the end of responses. Present only on connections to the origin.
    response: Option<ResponseEnd>,
}

/// Finds the end of a response that arrives in pieces.
#[derive(Debug, Default)]
struct ResponseEnd {
    /// The head so far, if the head arrives in pieces.
    head: Vec<u8>,
    /// Number of bytes of content that have not arrived; `None` before the end of the head.
    left_bytes: Option<u64>,
}

/// The state of a response after another piece has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseState {
    Partial,
    Complete,
    /// The response cannot be forwarded: its end is unknown, or more bytes followed it.
    Unsupported,
}

impl ResponseEnd {
    fn handle_bytes(&mut self, bytes: &[u8]) -> ResponseState {
        let content_bytes = if let Some(left_bytes) = self.left_bytes {
            left_bytes.checked_sub(bytes.len() as u64)
        } else {
            let is_first = self.head.is_empty();
            if !is_first {
                self.head.extend_from_slice(bytes);
            }
            let received = if is_first { bytes } else { &self.head[..] };
            let Some(end) = memmem::find(received, HEAD_END) else {
                if is_first {
                    self.head.extend_from_slice(bytes);
                }
                let is_bounded = self.head.len() <= HEAD_BYTES_MAX;
                return if is_bounded { ResponseState::Partial } else { ResponseState::Unsupported };
            };
            content_left(received, end + HEAD_END.len())
        };
        match content_bytes {
            None => ResponseState::Unsupported,
            Some(0) => {
                *self = Self::default();
                ResponseState::Complete
            }
            Some(_) => {
                self.left_bytes = content_bytes;
                ResponseState::Partial
            }
        }
    }
}

/// Returns the number of bytes of content that are missing after `bytes`, which begin with a response head of
/// `head_bytes`. Returns `None` if the content length is unknown, or smaller than what has arrived.
fn content_left(bytes: &[u8], head_bytes: usize) -> Option<u64> {
    const NAME: &[u8] = b"content-length:";
    let line = bytes[..head_bytes].split(|&byte| byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(NAME.len())?;
        name.eq_ignore_ascii_case(NAME).then_some(value)
    });
    let length = std::str::from_utf8(line?).ok()?.trim().parse::<u64>().ok()?;
    length.checked_sub((bytes.len() - head_bytes) as u64)
}

/// One thread of a forwarding responder.
pub(super) struct ForwardLoop {
    events: EventLoop,
    origin: SocketAddr,
    /// Connections by descriptor number, which the kernel keeps small.
    connections: Vec<Option<ForwardConnection>>,
    /// Connections to the origin that are in no exchange. The last is used first.
    idle: Vec<usize>,
    buffer: Box<[u8; RECEIVE_BYTES]>,
}

impl ForwardLoop {
    pub(super) fn new(events: EventLoop, origin: SocketAddr) -> Self {
        Self { events, origin, connections: Vec::new(), idle: Vec::new(), buffer: Box::new([0; RECEIVE_BYTES]) }
    }

    /// Registers a connection, and returns its number.
    fn add(&mut self, socket: OwnedFd, response: Option<ResponseEnd>) -> io::Result<usize> {
        let index = self.events.add(&socket, EventFlags::IN)?;
        if index >= self.connections.len() {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(ForwardConnection { socket, peer: None, response });
        Ok(index)
    }

    /// Receives, repeatedly while the buffer is filled, and sends the bytes to the other side. Returns `None` if the
    /// exchange cannot continue.
    fn forward(&mut self, index: usize) -> Option<()> {
        loop {
            // The connection may have been closed since the event occurred.
            let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else { return Some(()) };
            let received = match recv(&connection.socket, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((0, _)) => return None,
                Ok((received, _)) => received,
                Err(Errno::AGAIN) => return Some(()),
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            };
            let state = connection.response.as_mut().map(|response| response.handle_bytes(&self.buffer[..received]));
            let peer = match (connection.peer, state) {
                (_, Some(ResponseState::Unsupported)) | (None, Some(_)) => return None,
                (Some(peer), _) => peer,
                (None, None) => self.connect(index)?,
            };
            let socket = &self.connections.get(peer)?.as_ref()?.socket;
            let sent = send(socket, &self.buffer[..received], SendFlags::NOSIGNAL).ok()?;
            if sent < received {
                return None;
            }
            if state == Some(ResponseState::Complete) {
                self.part(index, peer);
            }
            if received < self.buffer.len() {
                return Some(());
            }
        }
    }

    /// Joins `client` with an idle connection to the origin, or with a new connection.
    fn connect(&mut self, client: usize) -> Option<usize> {
        let origin = if let Some(idle) = self.idle.pop() {
            idle
        } else {
            // Connecting may block, but this is rare, and instant over loopback.
            let stream = TcpStream::connect(self.origin).ok()?;
            stream.set_nonblocking(true).ok()?;
            stream.set_nodelay(true).ok()?;
            self.add(stream.into(), Some(ResponseEnd::default())).ok()?
        };
        self.connections.get_mut(client)?.as_mut()?.peer = Some(origin);
        self.connections.get_mut(origin)?.as_mut()?.peer = Some(client);
        Some(origin)
    }

    /// Ends an exchange, and returns the connection to the origin to the pool.
    fn part(&mut self, origin: usize, client: usize) {
        for index in [origin, client] {
            if let Some(Some(connection)) = self.connections.get_mut(index) {
                connection.peer = None;
            }
        }
        self.idle.push(origin);
    }

    /// Closes a connection, and the connection at the other end of its exchange.
    fn close(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::take) else { return };
        self.idle.retain(|idle| *idle != index);
        if let Some(peer) = connection.peer {
            self.connections[peer] = None;
        }
    }
}

impl ConnectionWork for ForwardLoop {
    fn events(&self) -> &EventLoop {
        &self.events
    }

    fn handle_accepted(&mut self, socket: OwnedFd) -> io::Result<()> {
        self.add(socket, None).map(|_| ())
    }

    fn handle_event(&mut self, index: usize) {
        if self.forward(index).is_none() {
            self.close(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ResponseEnd, ResponseState};

    #[test]
    fn a_response_ends_with_its_content_however_the_bytes_arrive() {
        let response = b"HTTP/1.1 200 OK\r\nDate: x\r\ncontent-length:  5\r\n\r\nhello";
        for size in 1..=response.len() {
            let mut end = ResponseEnd::default();
            for _ in 0..2 {
                let states: Vec<_> = response.chunks(size).map(|piece| end.handle_bytes(piece)).collect();
                let (last, before) = states.split_last().unwrap();
                assert_eq!(*last, ResponseState::Complete, "pieces of {size}");
                assert!(before.iter().all(|state| *state == ResponseState::Partial), "pieces of {size}");
            }
        }
    }

    #[test]
    fn responses_of_unknown_or_wrong_length_are_not_forwarded() {
        for response in [
            &b"HTTP/1.1 200 OK\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
        ] {
            assert_eq!(ResponseEnd::default().handle_bytes(response), ResponseState::Unsupported);
        }
    }
}
