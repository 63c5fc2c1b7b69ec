//! Tunnels on a stream: an extended CONNECT (RFC 8441), to which the handler responds as to the equivalent HTTP/1.1
//! upgrade. The DATA frames of the stream are passed through one end of a pipe, and the handler's tunnel holds the
//! other end.

use super::state::{PendingStream, ServerStream};
use super::{StreamReset, StreamTransport, Streams};
use crate::exchange::pending::PendingResponse;
use crate::exchange::record::{ExchangeRecord, ResponseOutline};
use crate::http1::exchanges::{Peer, count_answer};
use crate::http1::tunnel::refuse_tunnel;
use crate::worker::Worker;
use flatout_access_log::Logged;
use flatout_handler::content::Offers;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::{Body, Head, Response};
use flatout_handler::stream::{TunnelStart, Tunnelling};
use flatout_handler::{Handler, Reply, Request};
use flatout_http::lines::write_line;
use flatout_http::request::RequestHead;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};

/// Capacity of the pipe in each direction, in bytes.
const PIPE_BYTES: usize = 16 * 1024;

/// A field of the HTTP/1.1 handshake that HTTP/2 does not have (RFC 8441 §5).
const ACCEPT: &[u8] = b"sec-websocket-accept";

/// Bytes that a client has sent into a tunnel. At most one window is buffered.
#[derive(Debug, Default)]
pub(crate) struct TunnelInput {
    buffered: Vec<u8>,
    has_ended: bool,
}

impl TunnelInput {
    /// Adds received bytes. `ends` is true if they are the last.
    pub(super) fn add(&mut self, bytes: &[u8], ends: bool) {
        self.buffered.extend_from_slice(bytes);
        self.has_ended |= ends;
    }
}

/// A WebSocket or another protocol on a stream, after extended CONNECT.
pub(crate) struct TunnelStream {
    pub(super) input: TunnelInput,
    /// This side's end of the pipe.
    pipe: DuplexStream,
    /// True once the pipe is closed for writing.
    is_shut: bool,
    /// Bytes to be sent to the client.
    output: Vec<u8>,
    sent_bytes: u64,
    /// When the client last accepted bytes, or they began to wait for it, in milliseconds.
    pub(super) moved_ms: u64,
    /// `None` once the handler's tunnel has ended. The pipe may still hold bytes for the client.
    tunnelling: Option<Tunnelling>,
    record: ExchangeRecord,
    outline: ResponseOutline,
}

impl TunnelStream {
    /// Returns whether bytes wait for the client's windows or the socket.
    pub(super) const fn is_sending(&self) -> bool {
        !self.output.is_empty()
    }

    /// Sends bytes to the client. Returns the number of bytes sent.
    pub(super) fn send<T: StreamTransport>(&mut self, id: u64, transport: &mut T) -> usize {
        let count = transport.send_bytes(id, &self.output, false);
        self.output.drain(..count);
        self.sent_bytes += count as u64;
        count
    }

    /// Logs the end of the tunnel.
    pub(super) fn log<H: Handler>(&self, worker: &Worker<H>, name: &'static str) {
        let outline = || self.outline.logged(self.sent_bytes, self.record.exchange.started_ns);
        worker.stage_described(self.record.description.as_ref(), outline);
        worker.commit(name);
    }

    /// Passes received bytes to the handler's tunnel. Returns the number of bytes passed.
    fn pass_input(&mut self, context: &mut Context<'_>) -> usize {
        let mut passed = 0;
        while passed < self.input.buffered.len()
            && let Poll::Ready(Ok(count @ 1..)) =
                Pin::new(&mut self.pipe).poll_write(context, &self.input.buffered[passed..])
        {
            passed += count;
        }
        self.input.buffered.drain(..passed);
        if self.input.buffered.is_empty() {
            // An idle tunnel holds no buffer.
            self.input.buffered = Vec::new();
        }
        if self.input.has_ended && self.input.buffered.is_empty() && !self.is_shut {
            self.is_shut = Pin::new(&mut self.pipe).poll_shutdown(context).is_ready();
        }
        passed
    }

    /// Reads bytes for the client from the pipe. Returns whether the pipe has ended.
    fn take_output(&mut self, context: &mut Context<'_>) -> bool {
        self.output.resize(PIPE_BYTES, 0);
        let mut buffer = ReadBuf::new(&mut self.output);
        let polled = Pin::new(&mut self.pipe).poll_read(context, &mut buffer);
        let count = buffer.filled().len();
        self.output.truncate(count);
        if count == 0 {
            self.output = Vec::new();
        }
        polled.is_ready() && count == 0
    }
}

impl<H: Handler, T: StreamTransport> Streams<H, T> {
    /// Handles an extended CONNECT, whose `head` is that of an HTTP/1.1 upgrade.
    pub(super) fn handle_connect(&mut self, id: u64, head: &RequestHead<'_>, started_ns: u64) {
        let worker = Rc::clone(&self.worker);
        let Peer { client, unix, listener, secure } = self.peer;
        let offers = Offers::new().behind();
        let request = Request { head, client, unix, secure, listener, offers: &offers };
        let reply = worker.handler.handle(&request, worker.clock.latest());
        let description = worker.describe(self.logged_peer(), Logged::Head(head));
        let record =
            ExchangeRecord { exchange: Self::exchange(false, started_ns), description, facts: reply.log_facts() };
        let input = TunnelInput::default();
        match reply {
            Reply::Now(response) => self.respond_to_connect(id, response, record, input),
            Reply::Later(response) => {
                let response = PendingResponse::new(response, offers.taken_interims(), record);
                let pending = PendingStream { response, intake: None, tunnel: Some(input) };
                self.set(id, ServerStream::Pending(Box::new(pending)));
            }
        }
    }

    /// Responds to an extended CONNECT. A 101 from the handler opens the tunnel. Any other successful response is
    /// replaced, because the client would mistake its content for the tunnel.
    pub(super) fn respond_to_connect(
        &mut self,
        id: u64,
        mut response: Response,
        record: ExchangeRecord,
        input: TunnelInput,
    ) {
        if let Body::Tunnel(start) = &response.body {
            let start = start.clone();
            return self.begin_tunnel(id, response, &start, record, input);
        }
        if response.status < 300 {
            response = refuse_tunnel(&self.worker.handler, &response);
        }
        self.transport.handle_taken(id, input.buffered.len());
        self.respond(id, response, record, None);
    }

    fn begin_tunnel(
        &mut self,
        id: u64,
        response: Response,
        start: &TunnelStart,
        record: ExchangeRecord,
        input: TunnelInput,
    ) {
        let (pipe, far) = duplex(PIPE_BYTES);
        let Some(tunnelling) = start.begin(Box::new(far)) else {
            self.transport.reset(id, StreamReset::Incomplete);
            return;
        };
        let mut lines = Vec::new();
        for (name, value) in response.head.fields().filter(|(name, _)| !name.eq_ignore_ascii_case(ACCEPT)) {
            write_line(name, value, &mut lines);
        }
        let response = Response { status: 200, head: Head::from_lines(200, &lines), body: Body::Empty, ..response };
        count_answer(&self.worker, &response);
        self.send_head(id, &response, false);
        let outline = ResponseOutline::new(&response);
        let tunnel = TunnelStream {
            input,
            pipe,
            is_shut: false,
            output: Vec::new(),
            sent_bytes: 0,
            moved_ms: self.now_ms(),
            tunnelling: Some(tunnelling),
            record,
            outline,
        };
        self.set(id, ServerStream::Tunnel(Box::new(tunnel)));
    }

    /// Advances a tunnel in both directions. Returns whether it made progress.
    pub(super) fn poll_tunnel(&mut self, id: u64, context: &mut Context<'_>) -> bool {
        let ServerStream::Tunnel(mut tunnel) = self.take(id) else { return false };
        let passed = tunnel.pass_input(context);
        if passed > 0 {
            self.transport.handle_taken(id, passed);
        }
        let ended = match tunnel.tunnelling.as_mut().map(|tunnelling| tunnelling.as_mut().poll(context)) {
            Some(Poll::Ready(reason)) => {
                tunnel.tunnelling = None;
                Some(reason)
            }
            Some(Poll::Pending) | None => None,
        };
        // Bytes that wait for the client's windows are not progress.
        let may_take = !tunnel.is_sending();
        let has_output_ended = may_take && tunnel.take_output(context);
        match ended {
            Some(reason) if reason != CloseReason::TunnelEnded => {
                self.transport.reset(id, StreamReset::Tunnel);
                tunnel.log(&self.worker, reason.name());
                return true;
            }
            // The other server has ended the protocol, so nothing receives what the client still sends.
            _ if has_output_ended => {
                self.transport.send_bytes(id, b"", true);
                tunnel.log(&self.worker, CloseReason::TunnelEnded.name());
                self.finish(id);
                return true;
            }
            _ => {}
        }
        let has_moved = passed > 0 || (may_take && tunnel.is_sending());
        self.set(id, ServerStream::Tunnel(tunnel));
        has_moved
    }
}
