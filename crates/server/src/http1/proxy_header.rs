//! The PROXY header at the beginning of a connection: it names the client, and precedes TLS and HTTP.

use super::connection::{Next, ServerConnection};
use crate::worker::Worker;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_http::proxy_protocol::{PROXY_HEADER_BYTES_MAX, ProxyClient, parse_proxy_header};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{RecvFlags, recv};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The progress of a connection's PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyHeaderState {
    /// The header is not complete.
    Awaited,
    /// The header named no client, and no byte has followed. Load balancers check with such connections whether the port
    /// is open.
    Nameless,
    /// The header is complete, or the listener has no `proxy-protocol`.
    Done,
}

impl ServerConnection {
    /// Receives the PROXY header, and no byte after it. Returns `None` if it is complete, and TLS or HTTP follows.
    #[inline(never)]
    pub(super) fn receive_proxy_header<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>) -> Option<Next> {
        if self.proxy_header == ProxyHeaderState::Awaited
            && let Some(next) = self.receive_header_bytes(worker, fd)
        {
            return Some(next);
        }
        if self.proxy_header == ProxyHeaderState::Nameless {
            match peek(fd, &mut [0]) {
                Ok(0) | Err(Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT) => {
                    return Some(Next::Close(CloseReason::ClientClosed));
                }
                Err(Errno::AGAIN) => return Some(Next::Read),
                // The next receive reports other errors.
                _ => self.proxy_header = ProxyHeaderState::Done,
            }
        }
        None
    }

    /// Receives bytes of the header. Returns `None` if it is complete.
    fn receive_header_bytes<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>) -> Option<Next> {
        // A load balancer that checks whether the port is open sends nothing.
        let unless_begun = |begun: CloseReason| if self.stash.is_empty() { CloseReason::ClientClosed } else { begun };
        let received_bytes = self.stash.len();
        let mut input = worker.input.borrow_mut();
        let count = match peek(fd, &mut input[..PROXY_HEADER_BYTES_MAX - received_bytes]) {
            Ok(0) => return Some(Next::Close(unless_begun(CloseReason::ProxyHeaderInvalid))),
            Ok(count) => count,
            Err(Errno::AGAIN) => return Some(Next::Read),
            Err(Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT) => {
                return Some(Next::Close(unless_begun(CloseReason::ClientReset)));
            }
            Err(_) => return Some(Next::Close(CloseReason::SocketFailed)),
        };
        self.stash.extend_from_slice(&input[..count]);
        let Ok(header) = parse_proxy_header(&self.stash) else {
            return Some(Next::Close(CloseReason::ProxyHeaderInvalid));
        };
        // An incomplete header has to be taken too: otherwise, its bytes would hide the end of the connection.
        let taken_bytes = header.map_or(count, |header| header.bytes - received_bytes);
        if recv(fd, &mut input[..taken_bytes], RecvFlags::empty()).map(|(count, _)| count) != Ok(taken_bytes) {
            return Some(Next::Close(CloseReason::SocketFailed));
        }
        worker.counters.bytes_received.add(taken_bytes as u64);
        let Some(header) = header else { return Some(Next::Read) };
        self.stash = Vec::new();
        self.proxy_header = ProxyHeaderState::Nameless;
        match header.client {
            ProxyClient::Sender => {}
            ProxyClient::Hidden => self.exchanges.set_client(None),
            ProxyClient::At(client) => {
                self.exchanges.set_client(Some(client));
                self.proxy_header = ProxyHeaderState::Done;
            }
        }
        let client = self.origin().client;
        let named =
            self.permits.as_mut().map_or(Ok(()), |permits| permits.name_client(worker, client, self.tls.is_some()));
        named.err().map(|reason| {
            // As for a client whose address is known when it connects.
            let _ = set_socket_linger(fd, Some(Duration::ZERO));
            Next::Close(reason)
        })
    }
}

/// Receives bytes without taking them from the socket.
fn peek(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match recv(fd, &mut *buffer, RecvFlags::PEEK) {
            Err(Errno::INTR) => {}
            received => return received.map(|(count, _)| count),
        }
    }
}
