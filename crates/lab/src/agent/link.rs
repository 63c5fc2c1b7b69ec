//! One connection between a controller and an agent: TLS over a non-blocking socket, with frames in both directions.

use super::frame::{AgentFrame, FrameLimits, FrameRefusal, Inbox, encode};
use super::message::Message;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::Connection;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

/// Maximum number of bytes read from TLS at once.
const READ_BYTES: usize = 16 * 1024;

/// Maximum number of reads from the socket per turn, which bounds the memory that a peer can fill.
const READS_MAX: usize = 64;

/// The reason a link ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkEnd {
    /// The peer closed the connection.
    #[error("the connection was closed")]
    Closed,
    /// The peer sent an invalid frame.
    #[error("{0}")]
    Frame(FrameRefusal),
    /// TLS or the socket failed.
    #[error("{0}")]
    Io(io::Error),
}

impl From<io::Error> for LinkEnd {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A connection between a controller and an agent.
#[derive(Debug)]
pub struct AgentLink {
    socket: TcpStream,
    tls: Connection,
    inbox: Inbox,
    /// Bytes that have not been passed to TLS yet.
    outbox: Vec<u8>,
    is_ended: bool,
}

impl AgentLink {
    /// Creates a link over a connected socket.
    pub fn new(socket: TcpStream, tls: Connection, limits: FrameLimits) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, tls, inbox: Inbox::new(limits), outbox: Vec::new(), is_ended: false })
    }

    /// Permits longer frames from the peer.
    pub fn trust(&mut self) {
        self.inbox.set_limits(FrameLimits::KNOWN);
    }

    /// Queues a message for sending.
    pub fn say(&mut self, message: Message) {
        self.send(&AgentFrame::Message(message));
    }

    /// Queues a frame for sending. A frame that is too long for any receiver ends the link.
    pub fn send(&mut self, frame: &AgentFrame) {
        self.is_ended |= encode(frame, &mut self.outbox).is_err();
    }

    /// Returns the events to wait for: readable, and also writable if bytes are pending.
    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        let is_pending = !self.outbox.is_empty() || self.tls.wants_write();
        let room = if is_pending { PollFlags::OUT } else { PollFlags::empty() };
        PollFd::new(self, PollFlags::IN | room)
    }

    /// Returns whether the TLS handshake is incomplete.
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Sends as many pending bytes as possible without blocking.
    pub fn flush(&mut self) -> Result<(), LinkEnd> {
        Ok(self.write()?)
    }

    /// Transfers as many bytes as possible in both directions without blocking. Returns whether any bytes arrived.
    pub fn pump(&mut self) -> Result<bool, LinkEnd> {
        if self.is_ended {
            return Err(LinkEnd::Frame(FrameRefusal::TooLong));
        }
        let mut came = false;
        for _ in 0..READS_MAX {
            self.write()?;
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => {
                    self.take_plain()?;
                    return Err(LinkEnd::Closed);
                }
                Ok(_) => came = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            }
            if let Err(error) = self.tls.process_new_packets() {
                // The peer should receive the alert, but its socket may already be closed.
                let _told = self.write();
                return Err(io::Error::other(error).into());
            }
            self.take_plain()?;
        }
        Ok(came)
    }

    /// Returns the next complete frame that was received, and removes it.
    pub fn take(&mut self) -> Result<Option<AgentFrame>, LinkEnd> {
        self.inbox.take().map_err(LinkEnd::Frame)
    }

    /// Sends close_notify if the socket accepts it immediately.
    pub fn close(mut self) {
        self.tls.send_close_notify();
        // Bytes that cannot be sent now are dropped.
        let _written = self.write();
    }

    fn write(&mut self) -> io::Result<()> {
        loop {
            if !self.outbox.is_empty() && !self.tls.is_handshaking() {
                // TLS buffers a limited part, and the rest stays here.
                let taken = self.tls.writer().write(&self.outbox)?;
                self.outbox.drain(..taken);
            }
            if !self.tls.wants_write() {
                return Ok(());
            }
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take_plain(&mut self) -> Result<(), LinkEnd> {
        let mut buffer = [0; READ_BYTES];
        loop {
            match self.tls.reader().read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => self.inbox.feed(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(LinkEnd::Closed),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Waits until a descriptor is ready, at most for `turn_ns`.
pub(super) fn wait(watched: &mut [PollFd<'_>], turn_ns: i64) -> io::Result<()> {
    match poll(watched, Some(&Timespec { tv_sec: 0, tv_nsec: turn_ns })) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl AsFd for AgentLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
