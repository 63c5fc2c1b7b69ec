//! The loop itself: one thread's listener, its connections, and one epoll instance.

use super::connection::ResponderConnection;
use super::reply::Assembled;
use flatout_os::socket::take_zerocopy_notices;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, accept_with, recv};
use rustix::time::Timespec;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Events per wait; about the number of busy connections in common benchmarks.
const EVENTS_MAX: usize = 256;

/// Receive buffer, for many pipelined requests. If it is filled, it receives again.
const RECEIVE_BYTES: usize = 16 * 1024;

/// Interval at which an idle loop checks whether to stop.
const STOP_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// One thread of a responder.
pub(super) struct Worker {
    listener: OwnedFd,
    epoll: OwnedFd,
    reply: Arc<Assembled>,
    closes: bool,
    /// By descriptor number, which the kernel keeps small.
    connections: Vec<Option<ResponderConnection>>,
    buffer: Box<[u8; RECEIVE_BYTES]>,
}

/// The state of a connection after an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Keep,
    Close,
}

impl Worker {
    pub(super) fn new(listener: OwnedFd, reply: Arc<Assembled>, closes: bool) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(listener.as_raw_fd() as u64), EventFlags::IN)?;
        let buffer = Box::new([0; RECEIVE_BYTES]);
        Ok(Self { listener, epoll, reply, closes, connections: Vec::new(), buffer })
    }

    pub(super) fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut room = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
        let listener = self.listener.as_raw_fd() as u64;
        while !stop.load(Ordering::Relaxed) {
            let events = match epoll::wait(&self.epoll, &mut room, Some(&STOP_CHECK)) {
                Ok((events, _)) => events,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for event in events {
                let token = event.data.u64();
                if token == listener {
                    self.accept_all()?;
                } else {
                    self.handle_event(token as usize);
                }
            }
        }
        Ok(())
    }

    fn accept_all(&mut self) -> io::Result<()> {
        loop {
            match accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => self.handle_accepted(ResponderConnection::new(socket))?,
                Err(Errno::AGAIN) => return Ok(()),
                // Both are caused by the peer and concern only that connection.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn handle_accepted(&mut self, mut connection: ResponderConnection) -> io::Result<()> {
        // In close mode the request came with the connection: its response needs no epoll. A persistent connection is
        // registered once anyway, and registration reports its readiness.
        if self.closes && self.serve(&mut connection) == After::Close {
            return Ok(());
        }
        let index = connection.socket.as_raw_fd() as usize;
        // Edge-triggered: one registration for both directions, and no kernel work for a socket that is still ready.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, connection.socket.as_fd(), EventData::new_u64(index as u64), flags)?;
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

    /// Receives once (again only if the buffer was filled) and sends all owed bytes.
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
