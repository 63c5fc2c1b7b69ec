//! The transport of HTTP/2: a socket, possibly with a TLS session. Writes of one turn are gathered and sent at its
//! end in one call; received bytes are inspected before the protocol machine sees them.

use crate::ending::CloseReason;
use crate::registered::Registered;
use crate::server::sending::{SendProgress, Tail, Then, write_out};
use crate::tls::TlsFailure;
use crate::tls::session::{Received, TlsSession};
use flatout_http::http2::flood::{FloodGuard, Offence};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Gathered bytes above which the socket is written to before the turn ends.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Bytes received in one turn before it yields to other connections.
const RECEIVED_BYTES_MAX: usize = 64 * 1024;

/// Bytes written in one turn before it yields to other connections.
const WRITTEN_BYTES_MAX: usize = 1024 * 1024;

/// One connection's socket and its gathered output.
pub(crate) struct Http2Link {
    socket: Registered,
    tls: Option<Box<TlsSession>>,
    /// Bytes received before HTTP/2 took over.
    received_before: Vec<u8>,
    output: Vec<u8>,
    /// Bytes of the output that were sent, or encrypted.
    output_sent: usize,
    /// The last write was partial.
    blocked: bool,
    watch: FloodGuard,
    /// The offence that was detected. Nothing more is read then.
    offence: Option<Offence>,
    /// The client has closed its side.
    ended: bool,
    failed: Option<(CloseReason, Option<TlsFailure>)>,
    /// Bytes that may still be read and written in this turn.
    receive_room: usize,
    write_room: usize,
    now_ms: u64,
    /// Bytes received and sent since the counters were last updated.
    received_bytes: u64,
    sent_bytes: u64,
}

impl Http2Link {
    pub(crate) fn new(socket: Registered, tls: Option<Box<TlsSession>>, received_before: Vec<u8>) -> Self {
        Self {
            socket,
            tls,
            received_before,
            output: Vec::new(),
            output_sent: 0,
            blocked: false,
            watch: FloodGuard::new(),
            offence: None,
            ended: false,
            failed: None,
            receive_room: 0,
            write_room: 0,
            now_ms: 0,
            received_bytes: 0,
            sent_bytes: 0,
        }
    }

    /// Starts a turn. `spare` is an empty buffer, taken if this connection has none.
    pub(crate) fn begin_turn(&mut self, now_ms: u64, spare: &mut Vec<u8>) {
        self.now_ms = now_ms;
        self.receive_room = RECEIVED_BYTES_MAX;
        self.write_room = WRITTEN_BYTES_MAX;
        if self.output.capacity() == 0 {
            spare.clear();
            std::mem::swap(&mut self.output, spare);
        }
    }

    /// Ends a turn: sends the gathered output. The buffer is returned if it is empty then.
    pub(crate) fn end_turn(&mut self, spare: &mut Vec<u8>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.poll_flush(context);
        if self.output.is_empty() {
            std::mem::swap(&mut self.output, spare);
            self.output = Vec::new();
        }
        flushed
    }

    /// Bytes received and sent since the last call.
    pub(crate) fn take_counts(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.received_bytes), std::mem::take(&mut self.sent_bytes))
    }

    /// Returns whether output waits for the socket.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(crate) const fn offence(&self) -> Option<Offence> {
        self.offence
    }

    /// Returns whether the client's preface is complete, including its SETTINGS.
    pub(crate) const fn has_begun(&self) -> bool {
        self.watch.has_begun()
    }

    pub(crate) const fn has_ended(&self) -> bool {
        self.ended
    }

    pub(crate) const fn failed(&self) -> Option<(CloseReason, Option<TlsFailure>)> {
        self.failed
    }

    /// Returns whether the client is sending a request's fields.
    pub(crate) const fn is_within_fields(&self) -> bool {
        self.watch.is_within_fields()
    }

    pub(crate) const fn socket(&self) -> &Registered {
        &self.socket
    }

    /// Appends a frame to the gathered output.
    pub(crate) fn append(&mut self, frame: &[u8]) {
        self.output.extend_from_slice(frame);
    }

    /// Closes the sending side: with close_notify, and in the kernel. Returns whether the socket was still connected.
    pub(crate) fn close_write(&mut self) -> bool {
        if let Some(session) = self.tls.as_mut() {
            session.close(self.socket.fd());
        }
        shutdown(self.socket.fd(), Shutdown::Write).is_ok()
    }

    /// Receives into `buffer`; 0 bytes at the end.
    fn poll_receive(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
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

    /// Receives, and inspects the bytes. Stays pending after a flood was detected.
    fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.offence.is_some() {
            return Poll::Pending;
        }
        let unfilled = buffer.initialize_unfilled();
        let count = if self.received_before.is_empty() {
            ready!(self.poll_receive(context, unfilled))?
        } else {
            let count = self.received_before.len().min(unfilled.len());
            unfilled[..count].copy_from_slice(&self.received_before[..count]);
            self.received_before.drain(..count);
            if self.received_before.is_empty() {
                self.received_before = Vec::new();
            }
            count
        };
        if let Err(offence) = self.watch.handle_received(self.now_ms, &unfilled[..count]) {
            self.offence = Some(offence);
            return Poll::Pending;
        }
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }

    /// Receives bytes and discards them. Returns their number; 0 at the end.
    pub(crate) fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Bytes that are discarded need not be decrypted.
        self.tls = None;
        let mut buffer = [0; 4096];
        self.poll_receive(context, &mut buffer)
    }

    /// Gathers `slices`, as far as there is room. Responses that the client provokes are inspected, too.
    fn poll_write(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.output.len() - self.output_sent >= OUTPUT_BYTES_MAX {
            ready!(self.poll_flush(context))?;
        }
        if self.output_sent >= OUTPUT_BYTES_MAX / 2 {
            // A client that never takes all of it must not make the buffer grow.
            self.output.drain(..self.output_sent);
            self.output_sent = 0;
        }
        let mut total = 0;
        for slice in slices {
            let room = OUTPUT_BYTES_MAX - (self.output.len() - self.output_sent).min(OUTPUT_BYTES_MAX);
            let taken = &slice[..slice.len().min(room)];
            self.output.extend_from_slice(taken);
            total += taken.len();
            if let Err(flood) = self.watch.handle_sent(self.now_ms, taken) {
                self.offence.get_or_insert(Offence::Flood(flood));
            }
        }
        Poll::Ready(Ok(total))
    }

    /// Writes the gathered output until the socket is full or the turn's limit is reached.
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
            match progress {
                SendProgress::Done | SendProgress::Yield => {}
                SendProgress::Blocked => guard.clear_ready(),
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

/// The link as the protocol machine holds it.
pub(crate) struct Io(pub(crate) Rc<RefCell<Http2Link>>);

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// The gathered output is sent at the end of the turn: all responses of a turn in one call.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The task closes the connection, as it may still have to write.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
