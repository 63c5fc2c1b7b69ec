//! The transport of an HTTP/2 connection: a socket, possibly with a TLS session. The output of a turn is gathered and
//! sent in one call at its end.

use crate::send_room::{RoomRule, SendRoom};
use crate::sending::{SendProgress, Tail, Then, write_out};
use crate::tls_session::{Received, TlsSession};
use flatout_handler::ending::CloseReason;
use flatout_net::tls::TlsFailure;
use flatout_net::windows::WindowBudget;
use flatout_os::clock::precise_ns;
use flatout_os::registered::Registered;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Number of gathered bytes above which the output is sent before the turn ends.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Maximum bytes received in one turn before the connection yields to others.
const RECEIVED_BYTES_MAX: usize = 64 * 1024;

/// Maximum bytes written in one turn before the connection yields to others.
const WRITTEN_BYTES_MAX: usize = 1024 * 1024;

/// The socket of one connection, and its gathered output.
pub(crate) struct Http2Link {
    socket: Registered,
    tls: Option<Box<TlsSession>>,
    pub(super) output: Vec<u8>,
    /// Number of output bytes that were sent or encrypted.
    output_sent: usize,
    /// True if the last write was partial.
    blocked: bool,
    /// The room in the kernel, from the first partial write until no content waits, and the worker's budget for it.
    send_room: Option<SendRoom>,
    send_budget: Rc<WindowBudget>,
    /// The client has closed its side.
    ended: bool,
    failed: Option<(CloseReason, Option<TlsFailure>)>,
    /// Bytes that may still be received and written in this turn.
    receive_room: usize,
    write_room: usize,
    /// Bytes received and sent since the counters were last updated.
    received_bytes: u64,
    sent_bytes: u64,
}

impl Http2Link {
    pub(crate) const fn new(socket: Registered, tls: Option<Box<TlsSession>>, send_budget: Rc<WindowBudget>) -> Self {
        Self {
            socket,
            tls,
            output: Vec::new(),
            output_sent: 0,
            blocked: false,
            send_room: None,
            send_budget,
            ended: false,
            failed: None,
            receive_room: 0,
            write_room: 0,
            received_bytes: 0,
            sent_bytes: 0,
        }
    }

    /// Starts a turn. Takes the empty buffer `spare` if this connection has no buffer.
    pub(crate) fn begin_turn(&mut self, spare: &mut Vec<u8>) {
        self.receive_room = RECEIVED_BYTES_MAX;
        self.write_room = WRITTEN_BYTES_MAX;
        if self.output.capacity() == 0 {
            spare.clear();
            std::mem::swap(&mut self.output, spare);
        }
    }

    /// Ends a turn: sends the gathered output. If that empties the buffer, returns it to `spare`.
    pub(crate) fn end_turn(&mut self, spare: &mut Vec<u8>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.poll_flush(context);
        if self.output.is_empty() {
            std::mem::swap(&mut self.output, spare);
            self.output = Vec::new();
        }
        flushed
    }

    /// Returns the number of bytes received and sent since the last call.
    pub(crate) fn take_counts(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.received_bytes), std::mem::take(&mut self.sent_bytes))
    }

    /// Returns whether output is waiting for the socket.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Returns whether the kernel may hold more for this client than usual.
    pub(crate) const fn has_send_room(&self) -> bool {
        self.send_room.is_some()
    }

    /// Restores the room in the kernel: no content waits.
    pub(crate) fn lower_send_room(&mut self) {
        if let Some(mut room) = self.send_room.take() {
            room.lower(self.socket.fd());
        }
    }

    /// Bytes that may be gathered before the next write.
    pub(crate) const fn room(&self) -> usize {
        OUTPUT_BYTES_MAX.saturating_sub(self.output.len() - self.output_sent)
    }

    pub(crate) const fn has_ended(&self) -> bool {
        self.ended
    }

    pub(crate) const fn failed(&self) -> Option<(CloseReason, Option<TlsFailure>)> {
        self.failed
    }

    pub(crate) const fn socket(&self) -> &Registered {
        &self.socket
    }

    /// Closes the sending side, with close_notify if the connection uses TLS. Returns whether the socket was still
    /// connected.
    pub(crate) fn close_write(&mut self) -> bool {
        if let Some(session) = self.tls.as_mut() {
            session.close(self.socket.fd());
        }
        shutdown(self.socket.fd(), Shutdown::Write).is_ok()
    }

    /// Receives into `buffer`. Returns 0 bytes at the end.
    pub(crate) fn poll_receive(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        loop {
            if self.receive_room == 0 {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let wanted = buffer.len().min(self.receive_room);
            let mut guard = ready!(self.socket.poll_read_ready(context))?;
            match receive(self.socket.fd(), self.tls.as_deref_mut(), &mut buffer[..wanted]) {
                Received::Bytes { count, drained } => {
                    if drained {
                        guard.clear_ready();
                    }
                    self.receive_room -= count;
                    self.received_bytes += count as u64;
                    return Poll::Ready(Ok(count));
                }
                Received::Blocked => guard.clear_ready(),
                Received::End => {
                    self.ended = true;
                    return Poll::Ready(Ok(0));
                }
                Received::Failed(reason, failure) => {
                    self.failed = Some((reason, failure));
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
            }
        }
    }

    /// Receives bytes and discards them. Returns their number, or 0 at the end.
    pub(crate) fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Discarded bytes need not be decrypted.
        self.tls = None;
        let mut buffer = [0; 4096];
        self.poll_receive(context, &mut buffer)
    }

    /// Writes the gathered output until it is sent, the socket is full, or the turn's limit is reached.
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.blocked || self.output_sent < self.output.len() {
            if self.write_room == 0 {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let mut guard = ready!(self.socket.poll_write_ready(context))?;
            let unsent = &self.output[self.output_sent..];
            let (sent, total, progress) = match self.tls.as_deref_mut() {
                None => write_out(self.socket.fd(), unsent, &mut Tail::None, Then::Open),
                Some(session) => session.write_out(self.socket.fd(), unsent, &mut Tail::None),
            };
            self.output_sent += sent;
            self.sent_bytes += total;
            self.write_room = self.write_room.saturating_sub(sent);
            self.blocked = progress != SendProgress::Done;
            if let Some(room) = &mut self.send_room {
                room.handle_taken(self.socket.fd(), &self.send_budget, total, precise_ns);
            } else if self.blocked {
                self.send_room = Some(SendRoom::new(&RoomRule::HTTP2, precise_ns()));
            }
            match progress {
                SendProgress::Done | SendProgress::Yield => {}
                SendProgress::Blocked => {
                    guard.clear_ready();
                    if self.output_sent >= OUTPUT_BYTES_MAX / 2 {
                        // A client that never accepts all of the output must not make the buffer grow.
                        self.output.drain(..self.output_sent);
                        self.output_sent = 0;
                    }
                }
                SendProgress::Failed(reason) => {
                    self.failed.get_or_insert((reason, None));
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
            }
        }
        self.output.clear();
        self.output_sent = 0;
        Poll::Ready(Ok(()))
    }
}

fn receive(fd: BorrowedFd<'_>, tls: Option<&mut TlsSession>, buffer: &mut [u8]) -> Received {
    if let Some(session) = tls {
        return session.recv(fd, buffer);
    }
    loop {
        return match recv(fd, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => Received::End,
            Ok((count, _)) => Received::Bytes { count, drained: count < buffer.len() },
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Received::Blocked,
            Err(Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT) => Received::Failed(CloseReason::ClientReset, None),
            Err(_) => Received::Failed(CloseReason::SocketFailed, None),
        };
    }
}
