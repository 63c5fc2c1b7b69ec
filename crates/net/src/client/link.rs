//! A connected socket of the client: one direct send a request, one receive an arrival.

use super::connector::Begun;
use super::deadline::Slot;
use super::failure::Failure;
use super::reader::{Answer, Reader};
use super::worker::{Room, Shared};
use super::{Drive, Event};
use crate::clock::precise_ns;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What one receive brought.
pub(super) struct ReceivedOnce {
    pub(super) answer: Option<Answer>,
    pub(super) server_closed: bool,
}

/// A connected socket, registered with the runtime once something must be waited for.
pub(super) struct Link {
    /// Always there, except while it is registered for something else.
    socket: Option<AsyncFd<Rc<OwnedFd>>>,
    /// Bytes of the next request that were already sent.
    sent_bytes: usize,
}

impl Link {
    /// Connects and sends the first request as far as it goes; returns also when that sending began.
    pub(super) async fn open<D: Drive>(
        shared: &Shared<D>,
        slot: &Slot,
        is_reconnect: bool,
    ) -> Result<(Self, u64), Failure> {
        let begun_ns = precise_ns();
        let begun = shared.connector.begin()?;
        let stands = matches!(begun, Begun::Connected(_));
        let (Begun::Connected(socket) | Begun::UnderWay(socket)) = begun;
        let socket = Rc::new(socket);
        slot.watch(&socket);
        slot.set_deadline(begun_ns.saturating_add(shared.settings.request_timeout_ns));
        // Over loopback the handshake is over when connect returns, whatever it said: sending finds out, and spares the
        // wait for a writable socket.
        let mut sent_ns = precise_ns();
        let sent = match send(&socket, &shared.settings.request, SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN) if !stands => None,
            Err(Errno::AGAIN) => Some(0),
            sent => Some(sent?),
        };
        let (socket, sent_bytes) = if let Some(sent_bytes) = sent {
            (register(socket, Interest::READABLE)?, sent_bytes)
        } else {
            let socket = register(socket, Interest::READABLE | Interest::WRITABLE)?;
            let connected = wait_connected(&socket).await;
            connected.map_err(|failure| slot.cut().unwrap_or(failure))?;
            sent_ns = precise_ns();
            (socket, 0)
        };
        shared
            .drive
            .borrow_mut()
            .handle_event(Event::Connected { connect_ns: sent_ns.saturating_sub(begun_ns), is_reconnect });
        Ok((Self { socket: Some(socket), sent_bytes }, sent_ns))
    }

    /// Sends a whole request, directly; waits only when the socket takes no more.
    pub(super) async fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        let mut sent_bytes = std::mem::take(&mut self.sent_bytes);
        while sent_bytes < request.len() {
            let Some(socket) = &self.socket else { return Err(Failure::ClosedEarly) };
            match send(socket.get_ref(), &request[sent_bytes..], SendFlags::NOSIGNAL) {
                Ok(sent) => sent_bytes += sent,
                Err(Errno::AGAIN) => return self.send_patiently(&request[sent_bytes..]).await,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends the rest of a request that the socket did not take at once. Rare, for a request is small: so a socket is
    /// registered for writing only now.
    async fn send_patiently(&mut self, mut request: &[u8]) -> Result<(), Failure> {
        // It must leave the runtime before it can be registered anew.
        let Some(socket) = self.socket.take().map(AsyncFd::into_inner) else { return Err(Failure::ClosedEarly) };
        let socket = self.socket.insert(register(socket, Interest::READABLE | Interest::WRITABLE)?);
        while !request.is_empty() {
            let mut ready = socket.writable().await?;
            match send(socket.get_ref(), request, SendFlags::NOSIGNAL) {
                Ok(sent) => request = &request[sent..],
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for bytes, receives once and reads what came.
    pub(super) async fn receive<D: Drive>(
        &mut self,
        shared: &Shared<D>,
        reader: &mut Reader,
    ) -> Result<ReceivedOnce, Failure> {
        let Some(socket) = &self.socket else { return Err(Failure::ClosedEarly) };
        loop {
            let mut ready = poll_fn(|context| socket.poll_read_ready(context)).await?;
            let Room { buffer, memo } = &mut *shared.room.borrow_mut();
            let (received, _) = match recv(socket.get_ref(), &mut buffer[..], RecvFlags::empty()) {
                Ok(received) => received,
                Err(Errno::AGAIN) => {
                    ready.clear_ready();
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if received == 0 {
                return Ok(ReceivedOnce { answer: Some(reader.handle_end()?), server_closed: true });
            }
            // Asked for before readiness is cleared, for the guard forgets it then; an end stays known to the runtime.
            let server_closed = ready.ready().is_read_closed();
            if received < buffer.len() {
                // The socket is empty: the next wait needs no receive that finds nothing.
                ready.clear_ready();
            }
            let answer = reader.handle_bytes(memo, &buffer[..received])?;
            return Ok(ReceivedOnce { answer, server_closed });
        }
    }
}

async fn wait_connected(socket: &AsyncFd<Rc<OwnedFd>>) -> Result<(), Failure> {
    socket.writable().await?.retain_ready();
    Ok(sockopt::socket_error(socket.get_ref())??)
}

#[expect(unsafe_code, reason = "the runtime cannot see that an owned descriptor stays open")]
fn register(socket: Rc<OwnedFd>, interest: Interest) -> Result<AsyncFd<Rc<OwnedFd>>, Failure> {
    // SAFETY: an `OwnedFd` is open for as long as it lives and is always the same descriptor. The `Rc` that the `AsyncFd`
    // holds keeps it alive, and nothing can take the `OwnedFd` out of an `Rc` that is held twice.
    let registered = unsafe { AsyncFd::register_with_interest(socket, interest) };
    registered.map_err(|error| Failure::from(error.into_parts().1))
}
