//! Connections of clients, such as the benchmark client and the proxy: a socket, possibly with a TLS session.

use flatout_os::registered::{Descriptor, Registered};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, send, sendmsg, shutdown};
use std::cell::Cell;
use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

/// A connected socket.
#[derive(Debug)]
pub struct Socket<T: Descriptor = OwnedFd> {
    fd: Registered<T>,
    /// True if the last write would have blocked, so that the next write must wait for readiness first.
    full: Cell<bool>,
}

impl<T: Descriptor> Socket<T> {
    /// Creates a stream from a registered socket.
    pub const fn new(fd: Registered<T>) -> Self {
        Self { fd, full: Cell::new(false) }
    }

    /// Receives available bytes. Returns 0 bytes at the end.
    pub fn poll_receive(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let room = buffer.len();
        self.poll_receive_by(context, room, |fd| recv(fd, &mut *buffer, RecvFlags::empty()).map(|(count, _)| count))
    }

    fn poll_receive_by(
        &self,
        context: &mut Context<'_>,
        room: usize,
        mut receive: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.fd.poll_read_ready(context))?;
            match receive(self.fd.fd()) {
                Ok(count) => {
                    if count < room {
                        // The socket is empty, so clearing readiness saves a useless receive call before the next wait.
                        // The runtime retains a read-closed state.
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }

    /// Sends as much of `slices` as the socket accepts.
    pub fn poll_send(&self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if !self.full.get() {
            match self.send(slices) {
                Err(Errno::AGAIN) => self.full.set(true),
                result => return Poll::Ready(result.map_err(Into::into)),
            }
        }
        loop {
            let mut guard = ready!(self.fd.poll_write_ready(context))?;
            match self.send(slices) {
                Err(Errno::AGAIN) => guard.clear_ready(),
                result => {
                    self.full.set(false);
                    return Poll::Ready(result.map_err(Into::into));
                }
            }
        }
    }

    fn send(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        loop {
            let result = match slices {
                [slice] => send(self.fd.fd(), slice, SendFlags::NOSIGNAL),
                _ => sendmsg(self.fd.fd(), slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL),
            };
            if result != Err(Errno::INTR) {
                return result;
            }
        }
    }

    /// Returns whether nothing has arrived, not even the end. If `ask_kernel`, asks the kernel instead of relying on
    /// the runtime's readiness.
    pub fn is_quiet(&self, ask_kernel: bool) -> bool {
        let look = || recv(self.fd.fd(), &mut [0_u8; 1][..], RecvFlags::PEEK) == Err(Errno::AGAIN);
        if ask_kernel {
            // If the readiness is stale, the next receive corrects it.
            return look();
        }
        let mut context = Context::from_waker(Waker::noop());
        let mut guard = match self.fd.poll_read_ready(&mut context) {
            Poll::Pending => return true,
            Poll::Ready(Ok(guard)) => guard,
            Poll::Ready(Err(_)) => return false,
        };
        let quiet = look();
        if quiet {
            guard.clear_ready();
        }
        quiet
    }
}

impl<T: Descriptor> AsyncRead for Socket<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let count = ready!(self.poll_receive(context, buffer.initialize_unfilled()))?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<T: Descriptor> AsyncWrite for Socket<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match shutdown(self.fd.fd(), Shutdown::Write) {
            // No shutdown is needed if the peer has disconnected.
            Ok(()) | Err(Errno::NOTCONN) => Ok(()),
            Err(errno) => Err(errno.into()),
        })
    }
}

/// Transports bytes to and from a server.
#[derive(derive_more::Debug)]
pub enum Transport<T: Descriptor = OwnedFd> {
    /// A connection without TLS.
    #[debug("Plain")]
    Plain(Socket<T>),
    /// A TLS session on a socket.
    #[debug("Tls")]
    Tls(Box<TlsStream<Socket<T>>>),
}

impl<T: Descriptor> Transport<T> {
    /// Receives available bytes. Returns 0 bytes at the end.
    pub fn poll_receive(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_receive(context, buffer),
            Self::Tls(stream) => {
                let mut buffer = ReadBuf::new(buffer);
                ready!(Pin::new(stream).poll_read(context, &mut buffer))?;
                Poll::Ready(Ok(buffer.filled().len()))
            }
        }
    }

    /// Receives available bytes into a new buffer of at most `bytes_max`, which is empty at the end. Returns `None` if
    /// that would save no copy.
    pub fn poll_receive_buffer(
        &mut self,
        context: &mut Context<'_>,
        bytes_max: usize,
    ) -> Option<Poll<io::Result<Vec<u8>>>> {
        let Self::Plain(socket) = self else { return None };
        // Nothing is allocated while nothing can be received.
        let mut buffer = Vec::new();
        Some(
            socket
                .poll_receive_by(context, bytes_max, |fd| {
                    buffer.reserve_exact(bytes_max);
                    recv(fd, spare_capacity(&mut buffer), RecvFlags::empty()).map(|(_, count)| count)
                })
                .map_ok(|_| buffer),
        )
    }

    /// Sends as much of `slices` as possible. None of the slices may be empty.
    pub fn poll_send(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_send(context, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    /// Sends as much of `bytes`, which must not be empty, as possible without waiting. Returns the number of bytes
    /// accepted, and whether they have left the process. Returns `None` if the connection has failed and will never
    /// accept bytes.
    pub fn send_now(&mut self, bytes: &[u8]) -> Option<(usize, bool)> {
        let mut context = Context::from_waker(Waker::noop());
        match self.poll_send(&mut context, &[IoSlice::new(bytes)]) {
            Poll::Pending => Some((0, false)),
            Poll::Ready(Err(_) | Ok(0)) => None,
            Poll::Ready(Ok(sent)) => Some((sent, matches!(self.poll_flush(&mut context), Poll::Ready(Ok(()))))),
        }
    }

    /// Sends buffered bytes and waits for the socket. Only TLS buffers bytes.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    /// Returns whether an idle connection is usable, because nothing has arrived on it, not even its end.
    pub fn is_quiet(&mut self, ask_kernel: bool) -> bool {
        match self {
            Self::Plain(socket) => socket.is_quiet(ask_kernel),
            Self::Tls(stream) => {
                if stream.get_ref().0.is_quiet(ask_kernel) {
                    return true;
                }
                // What has arrived may be a session ticket, which is processed here.
                let mut byte = [0];
                let mut buffer = ReadBuf::new(&mut byte);
                Pin::new(stream).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer).is_pending()
            }
        }
    }
}

impl<T: Descriptor> AsyncRead for Transport<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(socket) => Pin::new(socket).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl<T: Descriptor> AsyncWrite for Transport<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_flush(&mut self, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// A connection that has switched protocols, and the bytes received after the 101.
#[derive(Debug)]
pub struct Upgraded {
    /// Bytes that arrived after the head of the 101 response.
    pub received: Vec<u8>,
    /// The connection.
    pub transport: Transport,
}

impl AsyncRead for Upgraded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.received.is_empty() {
            return Pin::new(&mut self.transport).poll_read(context, buffer);
        }
        let count = self.received.len().min(buffer.remaining());
        buffer.put_slice(&self.received[..count]);
        self.received.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.transport).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut self.transport), context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(context)
    }
}
