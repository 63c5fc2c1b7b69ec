//! The connections of one thread, all of which receive the same response.

use super::connection::ResponderConnection;
use super::reply::Assembled;
use super::{ConnectionWork, EventLoop};
use flatout_os::socket::take_zerocopy_notices;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Length of the receive buffer in bytes, which has room for many pipelined requests. If it is filled, the thread
/// receives again.
const RECEIVE_BYTES: usize = 16 * 1024;

/// One thread of a responder.
pub(super) struct Worker {
    events: EventLoop,
    reply: Arc<Assembled>,
    closes: bool,
    /// Connections by descriptor number, which the kernel keeps small.
    connections: Vec<Option<ResponderConnection>>,
    buffer: Box<[u8; RECEIVE_BYTES]>,
}

/// The action to take on a connection after an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Keep,
    Close,
}

impl Worker {
    pub(super) fn new(events: EventLoop, reply: Arc<Assembled>, closes: bool) -> Self {
        Self { events, reply, closes, connections: Vec::new(), buffer: Box::new([0; RECEIVE_BYTES]) }
    }

    /// Receives, repeatedly while the buffer is filled, and sends all pending bytes.
    fn serve(&mut self, connection: &mut ResponderConnection) -> After {
        if self.reply.is_lent() {
            take_zerocopy_notices(connection.socket.as_fd());
        }
        loop {
            let received = match recv(&connection.socket, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((0, _)) => return After::Close,
                Ok((received, _)) => received,
                Err(Errno::AGAIN) => 0,
                Err(Errno::INTR) => continue,
                Err(_) => return After::Close,
            };
            let heads = connection.ends.handle_bytes(&self.buffer[..received]);
            connection.owed_bytes += self.reply.owed_bytes(if self.closes { heads.min(1) } else { heads });
            let owed_before = connection.owed_bytes;
            match self.reply.send(connection.socket.as_fd(), owed_before) {
                Ok(owed_bytes) => connection.owed_bytes = owed_bytes,
                Err(_) => return After::Close,
            }
            if self.closes && owed_before > 0 && connection.owed_bytes == 0 {
                return After::Close;
            }
            if received < self.buffer.len() {
                return After::Keep;
            }
        }
    }
}

impl ConnectionWork for Worker {
    fn events(&self) -> &EventLoop {
        &self.events
    }

    fn handle_accepted(&mut self, socket: OwnedFd) -> io::Result<()> {
        let mut connection = ResponderConnection::new(socket);
        // In close mode, the request arrived with the connection, so its response needs no epoll. A persistent
        // connection has to be registered in any case, and registration reports whether it is ready.
        if self.closes && self.serve(&mut connection) == After::Close {
            return Ok(());
        }
        // A single registration covers both directions and costs no kernel work while the socket stays ready.
        let index = self.events.add(&connection.socket, EventFlags::IN | EventFlags::OUT)?;
        if index >= self.connections.len() {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(connection);
        Ok(())
    }

    fn handle_event(&mut self, index: usize) {
        let Some(mut connection) = self.connections.get_mut(index).and_then(Option::take) else { return };
        if self.serve(&mut connection) == After::Keep {
            self.connections[index] = Some(connection);
        }
    }
}
