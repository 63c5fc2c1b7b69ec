//! A connected socket as a byte stream for TLS and HTTP/2.

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connected socket, registered for both directions.
#[derive(Debug)]
pub(super) struct Stream {
    fd: AsyncFd<Rc<OwnedFd>>,
    /// The last write would have blocked: wait for readiness before the next.
    full: bool,
}

impl Stream {
    pub(super) const fn new(fd: AsyncFd<Rc<OwnedFd>>) -> Self {
        Self { fd, full: false }
    }

    fn poll_receive(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let room = buffer.len();
        loop {
            let mut guard = ready!(self.fd.poll_read_ready(context))?;
            match recv(self.fd.get_ref(), &mut *buffer, RecvFlags::empty()) {
                Ok((count, _)) => {
                    if count < room {
                        // The socket is empty: this saves the next wait an empty receive.
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

    fn poll_send(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.full {
            match self.send(bytes) {
                Err(Errno::AGAIN) => self.full = true,
                result => return Poll::Ready(result.map_err(Into::into)),
            }
        }
        loop {
            let mut guard = ready!(self.fd.poll_write_ready(context))?;
            match self.send(bytes) {
                Err(Errno::AGAIN) => guard.clear_ready(),
                result => {
                    drop(guard);
                    self.full = false;
                    return Poll::Ready(result.map_err(Into::into));
                }
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        loop {
            let result = send(self.fd.get_ref(), bytes, SendFlags::NOSIGNAL);
            if result != Err(Errno::INTR) {
                return result;
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let count = ready!(self.poll_receive(context, buffer.initialize_unfilled()))?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match shutdown(self.fd.get_ref(), Shutdown::Write) {
            // A peer that has disconnected needs no shutdown.
            Ok(()) | Err(Errno::NOTCONN) => Ok(()),
            Err(errno) => Err(errno.into()),
        })
    }
}
