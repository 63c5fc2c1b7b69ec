//! One HTTP/1.1 connection of the server: received bytes, exchanges, sent bytes. Nothing here blocks; each turn returns
//! what the connection waits for next.

use super::exchanges::{Exchanges, Peer, Turn};
use super::proxy_header::ProxyHeaderState;
use crate::deadline::Incomplete;
use crate::limits::ConnectionPermits;
use crate::sending::{SendProgress, Sending, Tail, Then, write_out};
use crate::tls_session::{Received, TlsSession};
use crate::worker::{Protocol, Worker};
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_http::connection::{ConnectionEvent, ConnectionState};
use flatout_http::timeouts::Timeouts;
use flatout_net::deadlines::DeadlineId;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Maximum receive calls in one turn before the connection yields to others.
const RECEIVES_MAX: u32 = 8;

/// Maximum number of bytes received and discarded after the connection's last response.
const LINGER_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The next action of a connection after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait until the socket is readable.
    Read,
    /// Wait until the socket is writable.
    Write,
    /// Wait for the handler's response or more of it, and watch for the client to disconnect.
    Answer,
    /// Continue after other connections have had their turn.
    Yield,
    /// Continue with HTTP/2.
    Http2,
    /// Continue with the handler's tunnel.
    Tunnel,
    /// Close the connection.
    Close(CloseReason),
}

/// The event that a connection waits for, which determines the timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The PROXY header, which precedes everything else.
    ProxyHeader,
    Handshake,
    /// The client preface of HTTP/2.
    Preface,
    Idle,
    Head,
    Body,
    Answer,
    Write,
    Linger,
}

/// How long a new client may take to send a request while the server is stopping, in milliseconds.
pub(crate) const DRAIN_IDLE_MS: u64 = 1000;

impl Wait {
    /// Returns the maximum duration of this wait, in milliseconds, and the reason to close the connection after that.
    /// `drains` is true if the server is stopping.
    pub(crate) const fn limit(self, timeouts: &Timeouts, drains: bool) -> (u64, CloseReason) {
        match self {
            Self::ProxyHeader => (timeouts.handshake_timeout_ms, CloseReason::ProxyHeaderTimeout),
            Self::Handshake => (timeouts.handshake_timeout_ms, CloseReason::TlsHandshakeTimeout),
            Self::Preface => (timeouts.handshake_timeout_ms, CloseReason::PrefaceTimeout),
            Self::Idle if drains => (DRAIN_IDLE_MS, CloseReason::Draining),
            Self::Idle => (timeouts.idle_timeout_ms, CloseReason::IdleTimeout),
            Self::Head => (timeouts.head_timeout_ms, CloseReason::HeadTimeout),
            Self::Body => (timeouts.body_timeout_ms, CloseReason::BodyTimeout),
            Self::Write => (timeouts.write_timeout_ms, CloseReason::WriteTimeout),
            Self::Linger => (timeouts.linger_timeout_ms, CloseReason::Refused),
            // The handler limits how long its response takes.
            Self::Answer => (u64::MAX, CloseReason::ClientClosed),
        }
    }
}

/// The state of one HTTP/1.1 connection.
#[derive(Debug)]
pub(crate) struct ServerConnection {
    pub(super) exchanges: Exchanges,
    /// The TLS session, if the listener uses TLS.
    pub(super) tls: Option<Box<TlsSession>>,
    pub(super) proxy_header: ProxyHeaderState,
    /// True if the client may use HTTP/2 and has sent at most a part of the preface.
    pub(super) may_be_http2: bool,
    /// Unprocessed bytes: a partial head, or requests beyond the pipelining limit. Empty and without capacity while the
    /// connection is idle.
    pub(super) stash: Vec<u8>,
    sending: Option<Box<Sending>>,
    /// True if the sending side is closed and received bytes are discarded.
    lingering: bool,
    lingered_bytes: u64,
    /// Number of successful writes, each of which starts a new wait.
    writes: u32,
    /// True if the last receive call did not empty the socket or the TLS session.
    pub(super) undrained: bool,
    /// True if the client closed its sending side before its response began, and may still read.
    pub(super) half_closed: bool,
    /// The number of the request whose response is pending, and since when, in milliseconds.
    pub(super) watched: Option<(u32, u64)>,
    /// `None` after another protocol has taken over the connection.
    pub(super) permits: Option<ConnectionPermits>,
}

/// The parts of a connection that another protocol takes over.
pub(crate) struct TakenConnection {
    pub(crate) tls: Option<Box<TlsSession>>,
    /// Bytes received after the last request.
    pub(crate) stash: Vec<u8>,
    pub(crate) permits: Option<ConnectionPermits>,
}

impl ServerConnection {
    /// Creates a connection. Returns `None` if the listener uses TLS and no TLS session can be created.
    pub(crate) fn new<H: Handler>(
        worker: &Worker<H>,
        (origin, permits): (Peer, ConnectionPermits),
        protocol: Protocol,
        proxy_protocol: bool,
    ) -> Option<Self> {
        let (tls, may_be_http2) = match protocol {
            Protocol::Plain { http2 } => (None, http2),
            Protocol::Tls => (Some(TlsSession::new(worker.tls.as_deref()?)?), false),
            // QUIC connections come from their endpoint.
            Protocol::Quic => return None,
        };
        Some(Self {
            exchanges: Exchanges::new(origin),
            tls,
            proxy_header: if proxy_protocol { ProxyHeaderState::Awaited } else { ProxyHeaderState::Done },
            may_be_http2,
            stash: Vec::new(),
            sending: None,
            lingering: false,
            lingered_bytes: 0,
            writes: 0,
            undrained: false,
            half_closed: false,
            watched: None,
            permits: Some(permits),
        })
    }

    /// Passes the connection to another protocol.
    pub(crate) fn take_over(&mut self) -> TakenConnection {
        let mut permits = self.permits.take();
        if let Some(permits) = &mut permits {
            permits.beginning.unmark();
        }
        TakenConnection { tls: self.tls.take(), stash: std::mem::take(&mut self.stash), permits }
    }

    /// Records in the entry `slot` whether the request head or handshake is incomplete, which it has been since
    /// `since_ms`.
    ///
    /// # Errors
    /// The reason to close this connection, if the client has too many incomplete heads or handshakes.
    pub(crate) fn note_incomplete<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        slot: DeadlineId,
        since_ms: u64,
    ) -> Result<(), CloseReason> {
        let kind = match self.wait() {
            Wait::ProxyHeader | Wait::Handshake | Wait::Preface => Some(Incomplete::Handshake),
            Wait::Head => Some(Incomplete::Head),
            _ => None,
        };
        // Before its PROXY header, a connection is not its client's.
        let client = self.origin().client.filter(|_| self.proxy_header != ProxyHeaderState::Awaited);
        let incomplete = kind.map(|kind| (kind, since_ms));
        match &mut self.permits {
            Some(permits) if !permits.beginning.is_set(incomplete) => {
                permits.beginning.set(worker, Some(slot), client, incomplete)
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the client has not completed `kind`.
    pub(crate) fn is_incomplete(&self, kind: Incomplete) -> bool {
        self.permits.as_ref().is_some_and(|permits| permits.beginning.kind() == Some(kind))
    }

    pub(crate) const fn origin(&self) -> Peer {
        self.exchanges.origin()
    }

    /// Identifies the current wait. While the identifier stays the same, so does the deadline, which a trickle of bytes
    /// therefore cannot extend.
    pub(crate) fn wait_id(&self) -> (Wait, u32) {
        (self.wait(), self.exchanges.requests().wrapping_add(self.writes).wrapping_add(self.exchanges.content_rounds()))
    }

    /// Returns what the connection waits for.
    pub(crate) fn wait(&self) -> Wait {
        if self.proxy_header == ProxyHeaderState::Awaited {
            return Wait::ProxyHeader;
        }
        if self.is_handshaking() {
            return Wait::Handshake;
        }
        if self.sending.is_some() {
            return Wait::Write;
        }
        if self.lingering {
            return Wait::Linger;
        }
        if self.exchanges.is_under_way() {
            return if self.exchanges.waits_for_content() { Wait::Body } else { Wait::Answer };
        }
        match self.exchanges.state() {
            ConnectionState::RequestHead => Wait::Head,
            ConnectionState::RequestBody | ConnectionState::AwaitContinue => Wait::Body,
            _ => Wait::Idle,
        }
    }

    fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.is_handshaking())
    }

    /// Receives once into `input`, from the TLS session if there is one.
    #[inline]
    pub(super) fn receive<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>, input: &mut [u8]) -> Received {
        if self.tls.is_some() {
            return self.receive_by_tls(worker, fd, input);
        }
        loop {
            return match recv(fd, &mut *input, RecvFlags::empty()) {
                Ok((0, _)) => Received::End,
                // A short receive emptied the socket, and another would only return EAGAIN.
                Ok((count, _)) => Received::Bytes { count, drained: count < input.len() },
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Received::Blocked,
                Err(Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT) => {
                    Received::Failed(CloseReason::ClientReset, None)
                }
                Err(_) => Received::Failed(CloseReason::SocketFailed, None),
            };
        }
    }

    /// Advances the connection as far as possible without blocking.
    pub(crate) fn turn<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>) -> Next {
        // Once per turn is enough: the rest takes microseconds, and the clock is coarser than that.
        worker.clock.read();
        if self.proxy_header != ProxyHeaderState::Done
            && let Some(next) = self.receive_proxy_header(worker, fd)
        {
            return next;
        }
        if self.is_handshaking()
            && let Some(next) = self.handshake(worker, fd)
        {
            return next;
        }
        for _ in 0..RECEIVES_MAX {
            if let Some(next) = self.go_on_sending(worker, fd) {
                return next;
            }
            if self.exchanges.is_under_way() {
                return Next::Answer;
            }
            if self.exchanges.has_tunnel() {
                return Next::Tunnel;
            }
            if !self.stash.is_empty() && self.may_have_request() {
                if let Some(next) = self.use_stash(worker, fd) {
                    return next;
                }
                continue;
            }
            if let Some(next) = self.close_or_linger(fd) {
                return next;
            }
            let mut input = worker.input.borrow_mut();
            match self.receive(worker, fd, &mut input) {
                Received::End => return Next::Close(self.handle_end()),
                Received::Bytes { count, drained } => {
                    self.undrained = !drained;
                    worker.counters.bytes_received.add(count as u64);
                    if let Some(next) = self.handle_received(worker, fd, &input[..count]) {
                        return next;
                    }
                    let waits = self.stash_is_waiting() && self.sending.is_none() && !self.exchanges.is_under_way();
                    if drained && waits && self.exchanges.closing().is_none() && !self.exchanges.has_tunnel() {
                        return Next::Read;
                    }
                }
                Received::Blocked => {
                    self.undrained = false;
                    // `requests > 0`: a new client has a moment to send its first request.
                    let leave = worker.draining.get()
                        && !worker.handing_over.get()
                        && self.wait() == Wait::Idle
                        && self.exchanges.requests() > 0;
                    return if leave { Next::Close(CloseReason::Draining) } else { Next::Read };
                }
                Received::Failed(CloseReason::ClientReset, _) => return Next::Close(self.handle_reset()),
                Received::Failed(reason, _) => return Next::Close(reason),
            }
        }
        Next::Yield
    }

    /// Returns whether progress requires more bytes than the stash has.
    fn stash_is_waiting(&self) -> bool {
        self.stash.is_empty() || !self.may_have_request()
    }

    /// Returns whether every received request has a response and all responses have been sent.
    pub(super) fn is_idle(&self) -> bool {
        let exchanges = &self.exchanges;
        let over = self.sending.is_none() && !exchanges.is_under_way() && !exchanges.has_tunnel();
        over && self.stash.is_empty() && exchanges.closing().is_none() && exchanges.state() == ConnectionState::Idle
    }

    /// Returns whether the stash may contain a complete request rather than a partial head.
    fn may_have_request(&self) -> bool {
        self.exchanges.closing().is_none() && self.exchanges.state() != ConnectionState::RequestHead
    }

    fn go_on_sending<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>) -> Option<Next> {
        let then = self.then();
        let sending = self.sending.as_mut()?;
        let (count, progress) = sending.write(fd, self.tls.as_deref_mut(), then, &worker.send_room);
        worker.counters.bytes_sent.add(count);
        if count > 0 {
            self.writes = self.writes.wrapping_add(1);
            sending.note_taken(worker.clock.latest().monotonic_ms);
        }
        match progress {
            SendProgress::Done => {
                let (ends, staged) = (sending.ends, std::mem::take(&mut sending.staged));
                self.sending = None;
                worker.commit_staged(&staged, "sent");
                self.exchanges.handle_sent(worker, ends);
                None
            }
            SendProgress::Blocked => Some(Next::Write),
            SendProgress::Yield => Some(Next::Yield),
            SendProgress::Failed(reason) => Some(Next::Close(reason)),
        }
    }

    fn use_stash<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>) -> Option<Next> {
        let stash = std::mem::take(&mut self.stash);
        self.use_input(worker, fd, &stash)
    }

    fn handle_received<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>, input: &[u8]) -> Option<Next> {
        if self.lingering {
            self.lingered_bytes += input.len() as u64;
            let too_many = self.lingered_bytes > LINGER_BYTES_MAX;
            return too_many.then(|| Next::Close(self.exchanges.closing().unwrap_or(CloseReason::Refused)));
        }
        if self.may_be_http2 {
            return self.handle_opening(worker, fd, input);
        }
        if self.stash.is_empty() {
            return self.use_input(worker, fd, input);
        }
        let mut stash = std::mem::take(&mut self.stash);
        stash.extend_from_slice(input);
        self.use_input(worker, fd, &stash)
    }

    /// Returns what follows the data being sent: nothing if the last response is complete.
    const fn then(&self) -> Then {
        if self.exchanges.closing().is_some() && !self.exchanges.is_under_way() { Then::Closed } else { Then::Open }
    }

    /// Sends `output` and `tail`, through the TLS session if there is one.
    fn write(&mut self, fd: BorrowedFd<'_>, output: &[u8], tail: &mut Tail) -> (usize, u64, SendProgress) {
        let then = self.then();
        match self.tls.as_mut() {
            None => write_out(fd, output, tail, then),
            Some(session) => session.write_out(fd, output, tail),
        }
    }

    /// Handles the requests in `input`, stashes the rest, and sends the responses in one call.
    pub(super) fn use_input<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        fd: BorrowedFd<'_>,
        input: &[u8],
    ) -> Option<Next> {
        let mut output = worker.output.borrow_mut();
        output.clear();
        let mut turn = Turn::new(worker, &mut output);
        let used = self.exchanges.handle_input(&mut turn, input);
        if used < input.len() && self.exchanges.closing().is_none() {
            self.stash = input[used..].to_vec();
        }
        let Turn { tail, ends, head_at, .. } = turn;
        if let Some(head_at) = head_at {
            self.exchanges.hold_head(&mut output, head_at);
        }
        if output.is_empty() {
            return None;
        }
        self.send_output(worker, fd, &output, tail, ends)
    }

    pub(super) fn send_output<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        fd: BorrowedFd<'_>,
        output: &[u8],
        mut tail: Tail,
        ends: Option<ConnectionEvent>,
    ) -> Option<Next> {
        let (sent, total, progress) = self.write(fd, output, &mut tail);
        worker.counters.bytes_sent.add(total);
        match progress {
            SendProgress::Done => {
                worker.commit("sent");
                self.exchanges.handle_sent(worker, ends);
                None
            }
            SendProgress::Blocked | SendProgress::Yield => {
                let now_ms = worker.clock.latest().monotonic_ms;
                let sending = Sending::new(&output[sent..], tail, ends, worker.take_staged(sent), now_ms);
                self.sending = Some(Box::new(sending));
                Some(if progress == SendProgress::Blocked { Next::Write } else { Next::Yield })
            }
            SendProgress::Failed(reason) => {
                worker.commit_staged(&worker.take_staged(sent), reason.name());
                Some(Next::Close(reason))
            }
        }
    }

    /// Returns when a wait that began at `began_ms` must be examined, at the latest after `timeout_ms`.
    pub(crate) fn deadline_ms(&self, began_ms: u64, timeout_ms: u64) -> u64 {
        match &self.sending {
            Some(sending) if self.wait() == Wait::Write => sending.deadline_ms(timeout_ms),
            _ => began_ms.saturating_add(timeout_ms),
        }
    }

    /// Returns whether the client has accepted nothing for the write timeout.
    fn is_stuck<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>) -> bool {
        let now_ms = worker.clock.read().monotonic_ms;
        let timeout_ms = worker.settings.timeouts.write_timeout_ms;
        self.sending.as_mut().is_none_or(|sending| sending.is_stuck(fd, now_ms, timeout_ms))
    }

    /// Handles a timeout: responds 408 to a slow request, otherwise closes the connection.
    pub(crate) fn handle_expired<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>) -> Next {
        let wait = self.wait();
        let (_, reason) = wait.limit(&worker.settings.timeouts, worker.drains_idle());
        match wait {
            Wait::Answer => Next::Answer,
            Wait::Linger => Next::Close(self.exchanges.closing().unwrap_or(reason)),
            Wait::Write if !self.is_stuck(worker, fd) => Next::Write,
            Wait::Head | Wait::Body if self.refuse_slow(worker, fd, reason) => {
                self.close_or_linger(fd).unwrap_or(Next::Read)
            }
            _ => Next::Close(reason),
        }
    }

    /// Responds 408 to an incomplete request. Returns whether the kernel has accepted the whole response.
    fn refuse_slow<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>, reason: CloseReason) -> bool {
        worker.clock.read();
        let raw = std::mem::take(&mut self.stash);
        let mut output = worker.output.borrow_mut();
        output.clear();
        self.exchanges.handle_slow(worker, &mut output, &raw, reason);
        let (_, total, progress) = self.write(fd, &output, &mut Tail::None);
        worker.counters.bytes_sent.add(total);
        let is_sent = progress == SendProgress::Done;
        worker.commit(if is_sent { "sent" } else { reason.name() });
        is_sent
    }

    /// Closes the connection for `reason` in favour of others, because its request head or TLS handshake is incomplete.
    pub(crate) fn give_way<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>, reason: CloseReason) -> Next {
        if self.wait() == Wait::Head {
            self.refuse_slow(worker, fd, reason);
        }
        Next::Close(reason)
    }

    /// Closes the connection after its last response has been sent, either immediately or after the client has closed
    /// its side.
    pub(super) fn close_or_linger(&mut self, fd: BorrowedFd<'_>) -> Option<Next> {
        let reason = self.exchanges.closing()?;
        if self.lingering {
            return None;
        }
        if !self.exchanges.lingers() {
            // The last bytes in the kernel have waited for the FIN. Closing the socket without it would discard them if
            // the client has sent more than it declared. TLS sends close_notify first and has no bytes waiting.
            if self.tls.is_none() {
                let _ = shutdown(fd, Shutdown::Write);
            }
            return Some(Next::Close(reason));
        }
        self.lingering = true;
        self.end_tls(fd);
        match shutdown(fd, Shutdown::Write) {
            Ok(()) => None,
            Err(_) => Some(Next::Close(reason)),
        }
    }

    /// Handles the end of the client's sending side.
    fn handle_end(&mut self) -> CloseReason {
        if let Some(reason) = self.exchanges.closing() {
            return reason;
        }
        match self.wait() {
            Wait::Head => CloseReason::ClientCutHead,
            Wait::Body => CloseReason::ClientCutBody,
            _ => CloseReason::ClientClosed,
        }
    }

    fn handle_reset(&mut self) -> CloseReason {
        self.exchanges.closing().unwrap_or(CloseReason::ClientReset)
    }

    /// Prepares to close the connection. Sends close_notify over TLS, unless a response that is delimited by the close
    /// is incomplete; a reset then tells the client so.
    pub(crate) fn end(&mut self, fd: BorrowedFd<'_>) {
        if self.exchanges.must_reset() {
            // If this fails, the connection has failed too.
            let _ = set_socket_linger(fd, Some(Duration::ZERO));
        } else {
            self.end_tls(fd);
        }
    }

    /// Sends close_notify, if the connection uses TLS.
    fn end_tls(&mut self, fd: BorrowedFd<'_>) {
        if let Some(session) = self.tls.as_mut() {
            session.close(fd);
        }
    }

    /// Logs responses that were still being sent when the connection was closed for `reason`.
    pub(crate) fn handle_close<H: Handler>(&mut self, worker: &Worker<H>, reason: CloseReason) {
        let mut unsent_bytes = 0;
        if let Some(sending) = self.sending.take() {
            unsent_bytes = sending.unsent_bytes();
            worker.commit_staged(&sending.staged, reason.name());
        }
        self.exchanges.handle_close(worker, reason, unsent_bytes);
    }
}
