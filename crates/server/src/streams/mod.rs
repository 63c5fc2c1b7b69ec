//! Requests on the streams of one connection, independent of the HTTP version: HTTP/2 and HTTP/3 only differ in their
//! transports.
//!
//! | file | contents |
//! |---|---|
//! | `state` | states of a stream |
//! | `requests` | requests and their responses |
//! | `content` | request content |
//! | `sending` | response content |
//! | `task` | the turns of a connection, its deadlines and its close |
//! | `tunnel` | WebSockets (RFC 8441, RFC 9220) |

mod content;
mod requests;
mod sending;
mod state;
mod task;
mod tunnel;

pub(crate) use state::ServerStream;
pub(crate) use task::{StreamConnection, spawn};

use crate::counters::Counters;
use crate::deadline::Incomplete;
use crate::http1::exchanges::Peer;
use crate::limits::ConnectionPermits;
use crate::worker::Worker;
use flatout_handler::Handler;
use flatout_handler::ending::{CLIENT_CLOSED, CloseReason};
use flatout_handler::response::{FileBody, Head, Segment, encode_lines};
use flatout_http::framing::Version;
use flatout_http::http2::error::StreamError;
use flatout_net::deadlines::DeadlineId;
use flatout_os::counter::Counter;
use state::PendingStream;
use std::borrow::Cow;
use std::rc::Rc;
use std::task::Context;

/// The logged ending of a response whose stream the client reset.
const STREAM_RESET: &str = "stream_reset";

/// Minimum time between the last bytes of a response and a reset of its stream that is not urgent, in milliseconds. An estimate: longer than a client needs to read the response from its socket. A client that receives
/// both at once may mistake the reset for the end of the response, or discard the response, as libcurl 7.88 does.
pub(crate) const LINGERING_MS: u64 = 500;

/// Maximum time between the last bytes of a response that cannot be completed and the reset of its stream, in
/// milliseconds, for clients that acknowledge late or never. An estimate.
pub(crate) const ABORT_MS_MAX: u64 = 5_000;

/// The reason the server resets a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamReset {
    /// The response cannot be completed.
    Incomplete,
    /// The other side of a tunnel failed.
    Tunnel,
    /// The client accepts no content.
    Stalled,
}

/// The streams of one connection, and how they are sent. Bytes are gathered and sent at the end of a turn.
pub(crate) trait StreamTransport {
    /// The HTTP version that is logged.
    const VERSION: Version;

    /// True if responses announce HTTP/3, provided that it is served.
    const ANNOUNCES_HTTP3: bool;

    /// Returns the counter of streams that ended before their response was sent.
    fn streams_cut(counters: &Counters) -> &Counter;

    /// Appends a status in the field compression of the version.
    fn encode_status(status: u16, output: &mut Vec<u8>);

    /// Appends a field, whose name must be in lower case.
    fn encode_field(name: &[u8], value: &[u8], output: &mut Vec<u8>);

    /// Returns the head as a field block, without the server's Date.
    fn head_block(head: &Head) -> Cow<'_, [u8]>;

    /// Appends the Date field.
    fn append_date<H: Handler>(worker: &Worker<H>, output: &mut Vec<u8>);

    /// Appends field lines, each given as `Name: value` and CR LF.
    fn encode_lines(lines: &[u8], left_out: Option<&'static str>, output: &mut Vec<u8>) {
        encode_lines(lines, left_out, output, Self::encode_field);
    }

    /// Returns the state of an open stream.
    fn stream_mut(&mut self, id: u64) -> Option<&mut ServerStream>;

    /// Returns the states of all open streams.
    fn streams(&self) -> impl Iterator<Item = (u64, &ServerStream)>;

    /// Returns the identifier of the open stream at position `index`.
    fn id_at(&self, index: usize) -> Option<u64>;

    /// Returns whether more bytes may be gathered before the next send.
    fn has_room(&self) -> bool;

    /// Returns the stream to serve next: the most urgent one that has content to send and room to send it.
    fn next_sender(&mut self) -> Option<u64>;

    /// Sends a head or trailers, which `encode` appends as a field block. If `ends`, ends this side of the stream.
    fn send_fields(&mut self, id: u64, ends: bool, encode: impl FnOnce(&mut Vec<u8>));

    /// Sends as much of `bytes` as there is room for, in one frame. If `ends` and everything was sent, ends this side
    /// of the stream; ending it without content needs no room. Returns the number of bytes sent.
    fn send_bytes(&mut self, id: u64, bytes: &[u8], ends: bool) -> usize;

    /// Sends content of `file` in the same way, and advances the file.
    ///
    /// # Errors
    /// Reading the file failed, and nothing was sent.
    fn send_file(&mut self, id: u64, file: &mut FileBody, ends: bool) -> Result<usize, CloseReason>;

    /// Sends content of a segment in the same way.
    fn send_segment(&mut self, id: u64, segment: &mut Segment, ends: bool) -> Result<usize, CloseReason> {
        match segment {
            Segment::Bytes(bytes) => {
                let sent = self.send_bytes(id, bytes, ends);
                bytes.advance(sent);
                Ok(sent)
            }
            Segment::File(file) => self.send_file(id, file, ends),
        }
    }

    /// Resets a stream immediately, which is then closed. The client may lose what it has not read of the response.
    fn reset(&mut self, id: u64, why: StreamReset);

    /// Resets a stream as [`StreamReset::Incomplete`] as soon as the client has had time to read what was sent of the
    /// response.
    fn abort(&mut self, id: u64, now_ms: u64);

    /// Records that `bytes` of a stream's content were consumed, so that the client may send as many again.
    fn handle_taken(&mut self, id: u64, bytes: usize);

    /// Records that `bytes` of a stream's content were discarded, so that the client may send as many again.
    ///
    /// # Errors
    /// The client sends the content in too many small pieces.
    fn handle_discarded(&mut self, now_ms: u64, id: u64, bytes: usize) -> Result<(), CloseReason>;

    /// Called when the response is complete. Content that still arrives is discarded.
    fn finish(&mut self, id: u64, now_ms: u64);
}

/// The requests of one connection.
pub(crate) struct Streams<H: Handler, T> {
    pub(crate) worker: Rc<Worker<H>>,
    pub(crate) peer: Peer,
    pub(crate) transport: T,
    /// The reason the connection closes, once it has been decided.
    pub(crate) closing: Option<CloseReason>,
    /// Since when the connection has been idle, or in another state with a deadline, in milliseconds.
    pub(crate) since_ms: u64,
    /// Number of content bytes sent.
    pub(crate) content_bytes: u64,
    /// When the client last accepted bytes of a response, and how many content bytes had been sent by then.
    pub(crate) taken_ms: u64,
    taken_bytes: u64,
    /// True if the last turn ended with a response that waits for the client.
    is_waiting: bool,
    /// True once the connection has announced that the server is stopping.
    pub(crate) draining: bool,
    /// Number of streams that are included in the worker's count.
    counted: usize,
    slot: Option<DeadlineId>,
    /// The deadline in the worker's table.
    armed_ms: u64,
    permits: Option<ConnectionPermits>,
}

impl<H: Handler, T: StreamTransport> Streams<H, T> {
    pub(crate) fn new(
        worker: &Rc<Worker<H>>,
        (peer, permits): (Peer, Option<ConnectionPermits>),
        transport: T,
    ) -> Self {
        let since_ms = worker.clock.latest().monotonic_ms;
        worker.open.set(worker.open.get() + 1);
        worker.changed.notify_waiters();
        Self {
            worker: Rc::clone(worker),
            peer,
            transport,
            closing: None,
            since_ms,
            content_bytes: 0,
            taken_ms: since_ms,
            taken_bytes: 0,
            is_waiting: false,
            draining: false,
            counted: 0,
            slot: None,
            armed_ms: u64::MAX,
            permits,
        }
    }

    /// Counts what the client has not completed, and since when, in milliseconds. If the connection has its own file
    /// descriptor, the table of deadlines records this, and other connections are closed if all clients together have
    /// too many.
    ///
    /// # Errors
    /// The reason to close this connection, if there are too many incomplete parts of this kind.
    pub(crate) fn note_incomplete(
        &mut self,
        incomplete: Option<(Incomplete, u64)>,
        has_descriptor: bool,
    ) -> Result<(), CloseReason> {
        match &mut self.permits {
            Some(permits) if !permits.beginning.is_set(incomplete) => {
                let slot = self.slot.filter(|_| has_descriptor);
                permits.beginning.set(&self.worker, slot, self.peer.client, incomplete)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.worker.clock.latest().monotonic_ms
    }

    /// Takes the state of a stream, which is idle afterwards.
    fn take(&mut self, id: u64) -> ServerStream {
        self.transport.stream_mut(id).map(std::mem::take).unwrap_or_default()
    }

    /// Sets the state of a stream. Drops the state if the stream is closed.
    fn set(&mut self, id: u64, state: ServerStream) {
        if let Some(stream) = self.transport.stream_mut(id) {
            *stream = state;
        }
    }

    fn finish(&mut self, id: u64) {
        self.set(id, ServerStream::Idle);
        let now_ms = self.now_ms();
        self.transport.finish(id, now_ms);
    }

    /// Polls the streams in progress. Returns whether any stream made progress.
    pub(crate) fn poll_streams(&mut self, context: &mut Context<'_>) -> bool {
        let (mut moved, mut index) = (false, 0);
        while let Some(id) = self.transport.id_at(index) {
            moved |= self.poll_stream(id, context);
            index += usize::from(self.transport.id_at(index) == Some(id));
        }
        moved
    }

    /// Returns whether any content waits for the client.
    pub(crate) fn is_sending(&self) -> bool {
        self.transport.streams().any(|(_, stream)| stream.is_sending())
    }

    /// Returns the earliest deadline of all request content.
    pub(crate) fn content_deadline_ms(&self) -> u64 {
        self.transport.streams().map(|(_, stream)| stream.content_deadline_ms()).min().unwrap_or(u64::MAX)
    }

    /// Responds 408 to every request whose content is late.
    pub(crate) fn refuse_slow_bodies(&mut self) {
        let now_ms = self.now_ms();
        let is_slow = |(id, stream): (u64, &ServerStream)| (stream.content_deadline_ms() <= now_ms).then_some(id);
        let slow: Vec<u64> = self.transport.streams().filter_map(is_slow).collect();
        for id in slow {
            let record = match self.take(id) {
                ServerStream::Receiving(receiving) => receiving.record,
                ServerStream::Pending(pending) => {
                    let PendingStream { response, intake, .. } = *pending;
                    if let Some(mut intake) = intake {
                        intake.cut(CloseReason::BodyTimeout);
                    }
                    response.record
                }
                ServerStream::Idle
                | ServerStream::Sending(_)
                | ServerStream::Streaming(_)
                | ServerStream::Tunnel(_) => continue,
            };
            let error = (408, "The request was not complete in time.", CloseReason::BodyTimeout.name());
            self.respond_with_error(id, error, &record, None);
        }
    }

    /// Resets the streams whose content has been waiting for the client for the write timeout. The others go on.
    pub(crate) fn reset_stalled(&mut self) {
        let now_ms = self.now_ms();
        let timeout_ms = self.worker.settings.timeouts.write_timeout_ms;
        let is_stalled = |(id, stream): (u64, &ServerStream)| {
            stream
                .waiting_since_ms()
                .is_some_and(|since_ms| now_ms.saturating_sub(since_ms) >= timeout_ms)
                .then_some(id)
        };
        let stalled: Vec<u64> = self.transport.streams().filter_map(is_stalled).collect();
        for id in stalled {
            let stream = self.take(id);
            self.transport.reset(id, StreamReset::Stalled);
            self.log_cut(stream, CloseReason::WriteTimeout.name());
        }
        let waiting = self.transport.streams().filter_map(|(_, stream)| stream.waiting_since_ms());
        self.taken_ms = waiting.min().unwrap_or(now_ms);
    }

    /// Aborts all streams and logs their requests.
    pub(crate) fn cut(&mut self) {
        let name = self.closing.unwrap_or(CloseReason::ClientClosed).name();
        let mut index = 0;
        while let Some(id) = self.transport.id_at(index) {
            let stream = self.take(id);
            self.log_cut(stream, name);
            index += 1;
        }
    }

    /// Returns the outcome to log for a request without a response whose stream was aborted as `name`.
    fn unanswered_outcome(&self, name: &'static str) -> &'static str {
        match self.closing {
            Some(reason) => reason.unanswered_outcome(),
            None if StreamError::NAMES.contains(&name) => name,
            None => CLIENT_CLOSED,
        }
    }
}
