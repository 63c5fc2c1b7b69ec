//! Connections that switch to another protocol after a 101 (RFC 9110 §7.8). They are passed to the tunnel as a whole,
//! and closed at the latest when the drain timeout expires.

use crate::deadline::Call;
use crate::exchange::record::{Exchange, ExchangeRecord, ResponseOutline};
use crate::http1::connection::TakenConnection;
use crate::http1::exchanges::{Exchanges, Turn, count_answer};
use crate::limits::ConnectionPermits;
use crate::sending::{SendProgress, Tail, Then, write_out};
use crate::tls_session::{Received, TlsSession};
use crate::worker::Worker;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::Response;
use flatout_handler::stream::{TunnelStart, Tunnelling};
use flatout_http::connection::ConnectionEvent;
use flatout_http::framing::Version;
use flatout_net::deadlines::DeadlineId;
use flatout_os::registered::Registered;
use flatout_overload::ClientPermit;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::spawn_local;

/// Maximum bytes of one receive call, and of one write to the TLS session.
const PIECE_BYTES: usize = 16 * 1024;

/// A connection that is about to switch protocols.
#[derive(Debug)]
pub(crate) struct Tunnelled {
    start: TunnelStart,
    pub(super) request: ExchangeRecord,
    outline: ResponseOutline,
}

impl Exchanges {
    /// Returns whether this response can switch protocols: it is a 101 to a complete HTTP/1.1 request.
    pub(super) fn may_tunnel(&self, response: &Response, exchange: Exchange) -> bool {
        response.status == 101 && exchange.version != Version::Http10 && self.intake.is_none()
    }

    /// Appends the head of a 101 to the output, with the response's own Connection field.
    pub(super) fn begin_tunnel<H: Handler>(
        &mut self,
        turn: &mut Turn<'_, H>,
        response: &Response,
        start: TunnelStart,
        request: ExchangeRecord,
    ) {
        self.machine.advance(ConnectionEvent::ResponseBegins);
        response.head.append_to(turn.output, &turn.worker.clock.date(), response.extra_lines(), None);
        count_answer(turn.worker, response);
        self.machine.advance(ConnectionEvent::ResponseEndsLast);
        self.tunnel = Some(Box::new(Tunnelled { start, request, outline: ResponseOutline::new(response) }));
    }

    /// Returns whether a tunnel starts after the output.
    pub(crate) const fn has_tunnel(&self) -> bool {
        self.tunnel.is_some()
    }

    pub(crate) fn take_tunnel(&mut self) -> Option<Box<Tunnelled>> {
        self.tunnel.take()
    }
}

/// Returns the response to send instead of `response` if the connection cannot switch protocols.
pub(crate) fn refuse_tunnel<H: Handler>(handler: &H, response: &Response) -> Response {
    let refused = handler.handle_error(501, NO_TUNNEL);
    Response { outcome: response.outcome, logged: response.logged.clone(), ..refused }
}

/// The error text if a handler requests a tunnel on a connection that cannot have one.
const NO_TUNNEL: &str = "The server cannot switch the protocol of this connection.";

/// The task of a tunnel, which counts as an open connection.
pub(crate) struct TunnelTask<H: Handler> {
    worker: Rc<Worker<H>>,
    tunnelling: Option<Tunnelling>,
    tunnelled: Box<Tunnelled>,
    /// Number of bytes sent to the client.
    sent_bytes: Rc<Cell<u64>>,
    slot: Option<DeadlineId>,
    _permit: Option<ClientPermit>,
}

impl<H: Handler> TunnelTask<H> {
    /// Starts the tunnel on `socket`, with the bytes received after the request.
    pub(crate) fn spawn(
        worker: &Rc<Worker<H>>,
        socket: Registered,
        tunnelled: Box<Tunnelled>,
        TakenConnection { tls, stash: received, permits }: TakenConnection,
    ) {
        worker.open.set(worker.open.get() + 1);
        worker.changed.notify_waiters();
        let sent_bytes = Rc::new(Cell::new(0));
        let side = ClientSide { worker: Rc::clone(worker), socket, tls, received, sent_bytes: Rc::clone(&sent_bytes) };
        let tunnelling = tunnelled.start.begin(Box::new(side));
        let worker = Rc::clone(worker);
        let permit = permits.map(ConnectionPermits::into_connection);
        spawn_local(Box::pin(Self { worker, tunnelling, tunnelled, sent_bytes, slot: None, _permit: permit }));
    }

    fn end(&mut self, reason: CloseReason) {
        // Dropping the tunnel also drops the socket.
        self.tunnelling = None;
        let Tunnelled { request, outline, .. } = self.tunnelled.as_ref();
        let answer = || outline.logged(self.sent_bytes.get(), request.exchange.started_ns);
        self.worker.stage_described(request.description.as_ref(), answer);
        self.worker.commit(reason.name());
        self.worker.counters.closes[reason as usize].add(1);
    }
}

impl<H: Handler> Future for TunnelTask<H> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = self.get_mut();
        let worker = Rc::clone(&task.worker);
        worker.clock.read();
        let slot = *task.slot.get_or_insert_with(|| worker.deadlines.borrow_mut().insert(context.waker().clone()));
        let call = worker.deadlines.borrow_mut().take_call(slot);
        // A tunnel is never idle, so neither a drain nor a lack of file descriptors closes it before the final
        // deadline.
        if call == Some(Call::Abandon) {
            task.end(CloseReason::DrainDeadline);
            return Poll::Ready(());
        }
        let reason = match task.tunnelling.as_mut() {
            Some(tunnelling) => ready!(tunnelling.as_mut().poll(context)),
            // The tunnel was already started elsewhere.
            None => CloseReason::TunnelEnded,
        };
        task.end(reason);
        Poll::Ready(())
    }
}

impl<H: Handler> Drop for TunnelTask<H> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.worker.deadlines.borrow_mut().remove(slot);
        }
        self.worker.open.set(self.worker.open.get().saturating_sub(1));
        self.worker.changed.notify_waiters();
    }
}

/// The client's side of a tunnel.
struct ClientSide<H: Handler> {
    worker: Rc<Worker<H>>,
    socket: Registered,
    tls: Option<Box<TlsSession>>,
    /// Bytes received before the tunnel started.
    received: Vec<u8>,
    sent_bytes: Rc<Cell<u64>>,
}

impl<H: Handler> ClientSide<H> {
    fn receive(&mut self, buffer: &mut [u8]) -> Received {
        if let Some(session) = self.tls.as_mut() {
            return session.recv(self.socket.fd(), buffer);
        }
        loop {
            return match recv(self.socket.fd(), &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => Received::End,
                Ok((count, _)) => Received::Bytes { count, drained: count < buffer.len() },
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Received::Blocked,
                Err(Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT) => {
                    Received::Failed(CloseReason::ClientReset, None)
                }
                Err(_) => Received::Failed(CloseReason::SocketFailed, None),
            };
        }
    }

    /// Writes as much of `bytes` as possible, through the TLS session if there is one. Bytes that were encrypted but
    /// not sent count as written, and the next flush sends them.
    fn poll_give(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            // Write before waiting, because the readiness may have been consumed before the tunnel took over.
            let bytes = &bytes[..bytes.len().min(PIECE_BYTES)];
            let (taken, total, progress) = match self.tls.as_deref_mut() {
                None => write_out(self.socket.fd(), bytes, &mut Tail::None, Then::Open),
                Some(session) => session.write_out(self.socket.fd(), bytes, &mut Tail::None),
            };
            self.worker.counters.bytes_sent.add(total);
            self.sent_bytes.set(self.sent_bytes.get() + taken as u64);
            match progress {
                SendProgress::Done => return Poll::Ready(Ok(taken)),
                _ if taken > 0 => return Poll::Ready(Ok(taken)),
                SendProgress::Failed(_) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                SendProgress::Yield => {}
                SendProgress::Blocked => ready!(self.socket.poll_write_ready(context))?.clear_ready(),
            }
        }
    }
}

impl<H: Handler> AsyncRead for ClientSide<H> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let side = self.get_mut();
        if !side.received.is_empty() {
            let count = side.received.len().min(buffer.remaining());
            buffer.put_slice(&side.received[..count]);
            side.received.drain(..count);
            return Poll::Ready(Ok(()));
        }
        let wanted = buffer.remaining().min(PIECE_BYTES);
        if wanted == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            // Read before waiting, because a TLS session may hold bytes that the socket no longer has.
            match side.receive(&mut buffer.initialize_unfilled()[..wanted]) {
                Received::Bytes { count, .. } => {
                    side.worker.counters.bytes_received.add(count as u64);
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Received::End => return Poll::Ready(Ok(())),
                Received::Failed(_, failure) => {
                    if let Some(failure) = failure {
                        side.worker.counters.tls_failures[failure as usize].add(1);
                    }
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                Received::Blocked => ready!(side.socket.poll_read_ready(context))?.clear_ready(),
            }
        }
    }
}

impl<H: Handler> AsyncWrite for ClientSide<H> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.get_mut().poll_give(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_give(context, b"").map_ok(|_| ())
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let side = self.get_mut();
        ready!(side.poll_give(context, b""))?;
        if let Some(session) = side.tls.as_mut() {
            session.close(side.socket.fd());
        }
        // Fails if the client has disconnected, which also ends the connection.
        let _ = shutdown(side.socket.fd(), Shutdown::Write);
        Poll::Ready(Ok(()))
    }
}
