//! The streams of an HTTP/3 connection and their output.
//!
//! QUIC stores the bytes that it has accepted until the client acknowledges them, and accepts no more than the client's
//! windows allow. Content that it does not accept stays with its source; only heads, which have no other place, wait
//! here.

use super::credit::ReceiveCredit;
use super::settings::{SEND_WINDOW_MAX, SEND_WINDOW_MIN};
use crate::counters::Counters;
use crate::streams::{ABORT_MS_MAX, LINGERING_MS, ServerStream, StreamReset, StreamTransport};
use crate::tls_session::read_piece;
use crate::worker::Worker;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::{FileBody, Head};
use flatout_http::framing::Version;
use flatout_http::http2::connection::Role;
use flatout_http::http2::priority::Priority;
use flatout_http::http3::connection::{Config, Connection, OwnStream};
use flatout_http::http3::error::{ConnectionError, ErrorCode, ErrorKind};
use flatout_http::http3::qpack;
use flatout_net::quic::QuicConnection;
use flatout_net::windows::WindowGrant;
use flatout_os::counter::Counter;
use quinn_proto::{Dir, StreamId, VarInt, WriteError};
use std::borrow::Cow;

/// Maximum content of one write and of one DATA frame, in bytes: incremental responses take turns by frame.
const PIECE_BYTES: usize = 32 * 1024;

/// Maximum content that one connection sends in a turn before it yields to others, in bytes.
const TURN_BYTES_MAX: usize = 512 * 1024;

/// Amount of delivered but unconsumed content at which no more of its stream is read, in bytes.
const UNTAKEN_BYTES_MAX: usize = 16 * 1024;

/// Number of round trips within which QUIC usually delivers what it has buffered of a response.
const ABORT_ROUND_TRIPS: u64 = 4;

/// Priority of the server's unidirectional streams, above all responses.
const OWN_PRIORITY: i32 = i32::MAX;

/// Number of bits in a QUIC priority that order streams whose responses have the same priority.
const ORDER_BITS: u32 = 26;

/// A request stream.
#[derive(Default)]
pub(super) struct Http3Stream {
    pub(super) state: ServerStream,
    /// Content bytes that the head of the last DATA frame has announced and that have not been sent.
    owed_bytes: u64,
    /// Content bytes that were delivered to the handler, and how many of them it has not consumed.
    content_bytes: u64,
    untaken_bytes: usize,
    /// True if QUIC accepts no more bytes until it reports that the stream is writable.
    is_blocked: bool,
    /// True if the stream is not read until its handler consumes content.
    pub(super) is_paused: bool,
    /// The priority that was last passed to QUIC.
    priority: i32,
    /// Received bytes that wait for the QPACK dynamic table.
    pub(super) stash: Option<Vec<u8>>,
    /// True if the client has ended the stream, even if a section before the end is still stashed.
    pub(super) has_ended: bool,
}

/// Heads that QUIC did not accept yet.
struct Unsent {
    id: u64,
    bytes: Vec<u8>,
    ends: bool,
}

/// The streams of a connection, and the QUIC connection.
pub(super) struct Http3Transport {
    pub(super) quic: QuicConnection,
    pub(super) core: Connection<Http3Stream>,
    /// The stream whose heads are in the buffer, to be written together with the content that follows.
    gathered: Option<u64>,
    /// Has capacity only during turns.
    buffer: Vec<u8>,
    unsent: Vec<Unsent>,
    /// Streams whose response cannot be completed, and when they are reset, in milliseconds.
    aborted: Vec<(u64, u64)>,
    /// Streams to be read.
    pub(super) readable: Vec<u64>,
    /// The control stream and the QPACK decoder stream, once they are open.
    own: [Option<StreamId>; 2],
    /// Content bytes that may still be sent in this turn.
    turn_bytes: usize,
    pub(super) credit: ReceiveCredit,
    /// Room granted beyond the minimum of the send window.
    send_grant: WindowGrant,
    /// The rule that the client violated, because of which the connection closes.
    pub(super) violation: Option<ConnectionError>,
}

/// Returns the identifier that quinn uses for a stream.
pub(super) fn stream_id(id: u64) -> StreamId {
    VarInt::from_u64(id).unwrap_or(VarInt::MAX).into()
}

/// Returns the priority of a stream for QUIC, which sends higher values first: the priority of the response, and within
/// the same priority the order of requests. Incremental responses have the same value, so they take turns.
fn quic_priority(Priority { urgency, incremental }: Priority, id: u64) -> i32 {
    let level = 2 * (7 - i32::from(urgency.min(7))) + i32::from(!incremental);
    let last = (1 << ORDER_BITS) - 1;
    let order = if incremental { last } else { (id / 4) as i32 & last };
    (level << ORDER_BITS) + last - order
}

/// Returns the error code as QUIC encodes it.
pub(super) fn code(code: ErrorCode) -> VarInt {
    VarInt::from_u64(code.number()).unwrap_or(VarInt::MAX)
}

impl Http3Transport {
    pub(super) fn new<H: Handler>(worker: &Worker<H>, quic: QuicConnection) -> Self {
        let config = Config { section_bytes_max: worker.settings.limits.section_bytes_max() };
        Self {
            quic,
            core: Connection::new(Role::Server, config),
            credit: ReceiveCredit::new(&worker.windows),
            send_grant: WindowGrant::new(&worker.send_room),
            gathered: None,
            buffer: Vec::new(),
            unsent: Vec::new(),
            aborted: Vec::new(),
            readable: Vec::new(),
            own: [None, None],
            turn_bytes: 0,
            violation: None,
        }
    }

    /// Starts a turn with the empty buffer `spare`, and adapts the send window to the congestion window.
    pub(super) fn begin_turn(&mut self, spare: &mut Vec<u8>) {
        std::mem::swap(&mut self.buffer, spare);
        self.buffer.clear();
        self.turn_bytes = TURN_BYTES_MAX;
        let window = self.quic.congestion_state().window().saturating_mul(2);
        let wanted = window.min(SEND_WINDOW_MAX).saturating_sub(SEND_WINDOW_MIN);
        self.quic.set_send_window(SEND_WINDOW_MIN + self.send_grant.grow_to(wanted).min(wanted));
    }

    /// Writes everything that was gathered, and returns the buffer to `spare`. Returns whether content waits for the
    /// next turn.
    pub(super) fn end_turn(&mut self, spare: &mut Vec<u8>) -> bool {
        self.flush();
        self.flush_own();
        *spare = std::mem::take(&mut self.buffer);
        if self.busy_streams() == 0 {
            // QUIC stores no more bytes; before that, it may store more than a reduced window.
            self.quic.set_send_window(SEND_WINDOW_MIN);
            self.send_grant.shrink_to(0);
            if let Some(window) = self.credit.shrink() {
                self.quic.set_receive_window(window.into());
            }
        }
        self.turn_bytes == 0
    }

    /// Returns whether the turn may send more content.
    pub(super) fn may_send(&self) -> bool {
        self.turn_bytes > 0 && !self.quic.is_blocked()
    }

    /// Returns the number of streams in progress, including those whose response the client has not acknowledged
    /// completely.
    pub(super) fn busy_streams(&mut self) -> usize {
        let own = self.own.iter().flatten().count();
        self.core.stream_count().max(self.quic.streams().send_streams().saturating_sub(own))
    }

    /// Writes to the server's unidirectional streams, which are opened once the client permits it.
    fn flush_own(&mut self) {
        if !self.core.has_output() || self.quic.is_handshaking() {
            return;
        }
        for (index, own) in [OwnStream::Control, OwnStream::Decoder].into_iter().enumerate() {
            let output = self.core.output(own);
            if output.is_empty() {
                continue;
            }
            let id = if let Some(id) = self.own[index] {
                id
            } else {
                let Some(id) = self.quic.streams().open(Dir::Uni) else { return };
                let _ = self.quic.send_stream(id).set_priority(OWN_PRIORITY);
                self.own[index] = Some(id);
                id
            };
            let written = self.quic.send_stream(id).write(output).unwrap_or(0);
            output.drain(..written);
        }
    }

    /// Prepares the buffer for output of stream `id`, by flushing the output of any other stream.
    fn gather(&mut self, id: u64) {
        if self.gathered.is_some_and(|of| of != id) {
            self.flush();
        }
        self.gathered = Some(id);
    }

    fn flush(&mut self) {
        if let Some(id) = self.gathered {
            self.write(id, self.buffer.len());
        }
    }

    /// Writes the buffer. If QUIC does not accept its first `kept_bytes`, they wait here. Returns how many of the other
    /// bytes QUIC has accepted.
    fn write(&mut self, id: u64, kept_bytes: usize) -> usize {
        self.gathered = None;
        if self.buffer.is_empty() {
            return 0;
        }
        if let Some(unsent) = self.unsent.iter_mut().find(|unsent| unsent.id == id) {
            unsent.bytes.extend_from_slice(&self.buffer[..kept_bytes]);
            self.buffer.clear();
            return 0;
        }
        self.set_priority(id);
        let total = self.buffer.len();
        let mut written = 0;
        // Write until QUIC refuses, because only then does it report when it accepts more.
        while written < total {
            // QUIC copies what it accepts, so that an almost closed window does not keep a whole piece in memory.
            match self.quic.send_stream(stream_id(id)).write(&self.buffer[written..]) {
                Ok(count) => written += count,
                Err(WriteError::Blocked) => {
                    if let Some(stream) = self.core.get_mut(id) {
                        stream.is_blocked = true;
                    }
                    break;
                }
                // The client has stopped the stream, which an event reports.
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => written = total,
            }
        }
        if written < kept_bytes {
            let bytes = self.buffer[written..kept_bytes].to_vec();
            self.unsent.push(Unsent { id, bytes, ends: false });
        }
        self.buffer.clear();
        written.saturating_sub(kept_bytes)
    }

    /// Passes the priority of a response to QUIC if it has changed.
    fn set_priority(&mut self, id: u64) {
        let priority = quic_priority(self.core.priority(id), id);
        let Some(stream) = self.core.get_mut(id) else { return };
        if stream.priority != priority {
            stream.priority = priority;
            let _ = self.quic.send_stream(stream_id(id)).set_priority(priority);
        }
    }

    /// Ends this side of a stream after the bytes that still wait.
    fn end(&mut self, id: u64) {
        self.flush();
        if let Some(unsent) = self.unsent.iter_mut().find(|unsent| unsent.id == id) {
            unsent.ends = true;
            return;
        }
        // Fails if the client has stopped the stream, which an event reports.
        let _ = self.quic.send_stream(stream_id(id)).finish();
    }

    /// Called when QUIC accepts more bytes of a stream.
    pub(super) fn handle_writable(&mut self, id: u64) {
        if self.own.contains(&Some(stream_id(id))) {
            return;
        }
        if let Some(index) = self.unsent.iter().position(|unsent| unsent.id == id) {
            let Unsent { bytes, ends, .. } = self.unsent.swap_remove(index);
            self.flush();
            self.buffer.extend_from_slice(&bytes);
            self.write(id, bytes.len());
            if ends {
                self.end(id);
            }
            if self.unsent.iter().any(|unsent| unsent.id == id) {
                return;
            }
        }
        if let Some(stream) = self.core.get_mut(id) {
            stream.is_blocked = false;
        }
    }

    /// Drops the bytes that wait for a stream that the client has stopped or reset.
    pub(super) fn forget_output(&mut self, id: u64) {
        self.unsent.retain(|unsent| unsent.id != id);
        if self.gathered.take_if(|of| *of == id).is_some() {
            self.buffer.clear();
        }
    }

    /// Resets both sides of a stream that the core has closed.
    pub(super) fn cut(&mut self, id: u64, error: ErrorCode) {
        self.forget_output(id);
        let _ = self.quic.send_stream(stream_id(id)).reset(code(error));
        let _ = self.quic.recv_stream(stream_id(id)).stop(code(error));
    }

    /// Returns when the next aborted stream must be reset, in milliseconds. `u64::MAX` if there is none.
    pub(super) fn abort_ms(&self) -> u64 {
        self.aborted.iter().map(|(_, until_ms)| *until_ms).min().unwrap_or(u64::MAX)
    }

    /// Resets aborted streams whose delay has expired.
    pub(super) fn reset_expired(&mut self, now_ms: u64) {
        while let Some(index) = self.aborted.iter().position(|(_, until_ms)| *until_ms <= now_ms) {
            let (id, _) = self.aborted.swap_remove(index);
            // The client may have reset the stream itself.
            if self.core.is_open(id) {
                self.reset(id, StreamReset::Incomplete);
            }
        }
    }

    /// Records a violation, whose error code the client receives, and returns the close reason.
    pub(super) fn note(&mut self, error: ConnectionError) -> CloseReason {
        self.violation = Some(error);
        reason_of(error)
    }

    /// Counts content that is being delivered to its handler. If a request has much content, the connection's window
    /// grows, as far as the worker's budget permits.
    pub(super) fn count_delivered(&mut self, id: u64, bytes: usize) {
        let Some(stream) = self.core.get_mut(id) else { return };
        stream.untaken_bytes += bytes;
        let before = stream.content_bytes;
        stream.content_bytes += bytes as u64;
        // If there are other requests, they may need the window after this one.
        let left = if self.core.stream_count() == 1 { self.core.content_left(id) } else { None };
        for window in self.credit.handle_delivered(before, bytes as u64, left).into_iter().flatten() {
            self.quic.set_receive_window(window.into());
        }
    }

    /// Asks a client that may still be sending to stop.
    fn stop(&mut self, id: u64, error: ErrorCode) {
        if self.core.is_receiving(id) {
            self.core.stop_receiving(id);
            let _ = self.quic.recv_stream(stream_id(id)).stop(code(error));
        }
    }

    fn count_taken(&mut self, id: u64, bytes: usize) {
        let Some(stream) = self.core.get_mut(id) else { return };
        stream.untaken_bytes = stream.untaken_bytes.saturating_sub(bytes);
        if stream.is_paused && !stream.is_saturated() {
            stream.is_paused = false;
            self.readable.push(id);
        }
    }
}

impl Http3Stream {
    /// Returns whether the handler must consume content before more is read.
    pub(super) const fn is_saturated(&self) -> bool {
        self.untaken_bytes >= UNTAKEN_BYTES_MAX
    }
}

impl StreamTransport for Http3Transport {
    const VERSION: Version = Version::Http3;

    const ANNOUNCES_HTTP3: bool = false;

    fn streams_cut(counters: &Counters) -> &Counter {
        &counters.http3_streams_cut
    }

    fn encode_status(status: u16, output: &mut Vec<u8>) {
        qpack::encode_status(status, output);
    }

    fn encode_field(name: &[u8], value: &[u8], output: &mut Vec<u8>) {
        qpack::encode_field(name, value, output);
    }

    fn head_block(head: &Head) -> Cow<'_, [u8]> {
        head.http3_block()
    }

    fn append_date<H: Handler>(worker: &Worker<H>, output: &mut Vec<u8>) {
        worker.append_http3_date(output);
    }

    fn stream_mut(&mut self, id: u64) -> Option<&mut ServerStream> {
        self.core.get_mut(id).map(|stream| &mut stream.state)
    }

    fn streams(&self) -> impl Iterator<Item = (u64, &ServerStream)> {
        self.core.iter().map(|(id, stream)| (id, &stream.state))
    }

    fn id_at(&self, index: usize) -> Option<u64> {
        self.core.id_at(index)
    }

    fn has_room(&self) -> bool {
        self.may_send()
    }

    fn next_sender(&mut self) -> Option<u64> {
        if !self.has_room() {
            return None;
        }
        self.core.next_sender(|_, stream| !stream.is_blocked && stream.state.is_sending())
    }

    fn send_fields(&mut self, id: u64, ends: bool, encode: impl FnOnce(&mut Vec<u8>)) {
        self.gather(id);
        self.core.send_fields(id, ends, &mut self.buffer, encode);
        if ends {
            self.end(id);
        }
    }

    fn send_bytes(&mut self, id: u64, bytes: &[u8], ends: bool) -> usize {
        if bytes.is_empty() {
            if ends {
                self.core.end(id);
                self.end(id);
            }
            return 0;
        }
        let Some(stream) = self.core.get_mut(id) else { return bytes.len() };
        if stream.is_blocked {
            return 0;
        }
        let mut owed_bytes = stream.owed_bytes;
        self.gather(id);
        if owed_bytes == 0 {
            owed_bytes = bytes.len().min(PIECE_BYTES) as u64;
            self.buffer.extend_from_slice(&self.core.send_data(id, owed_bytes as usize, false));
        }
        let kept_bytes = self.buffer.len();
        let count = bytes.len().min(owed_bytes as usize).min(PIECE_BYTES);
        self.buffer.extend_from_slice(&bytes[..count]);
        let sent = self.finish_piece(id, kept_bytes, owed_bytes);
        if ends && sent == bytes.len() {
            self.core.end(id);
            self.end(id);
        }
        sent
    }

    fn send_file(&mut self, id: u64, file: &mut FileBody, ends: bool) -> Result<usize, CloseReason> {
        let Some(stream) = self.core.get_mut(id) else { return Ok(0) };
        if stream.is_blocked {
            return Ok(0);
        }
        let mut owed_bytes = stream.owed_bytes;
        self.gather(id);
        if owed_bytes == 0 {
            owed_bytes = file.bytes.min(PIECE_BYTES as u64);
            self.buffer.extend_from_slice(&self.core.send_data(id, owed_bytes as usize, false));
        }
        let kept_bytes = self.buffer.len();
        let wanted = usize::try_from(owed_bytes).unwrap_or(usize::MAX).min(PIECE_BYTES);
        self.buffer.resize(kept_bytes + wanted, 0);
        // What QUIC does not accept is read again later.
        let mut ahead = file.clone();
        let read = read_piece(&mut ahead, &mut self.buffer[kept_bytes..]);
        let count = read.inspect_err(|_| self.buffer.truncate(kept_bytes))?;
        self.buffer.truncate(kept_bytes + count);
        let sent = self.finish_piece(id, kept_bytes, owed_bytes);
        file.offset += sent as u64;
        file.bytes -= sent as u64;
        if ends && file.bytes == 0 {
            self.core.end(id);
            self.end(id);
        }
        Ok(sent)
    }

    fn reset(&mut self, id: u64, why: StreamReset) {
        let error = match why {
            StreamReset::Incomplete => ErrorCode::Internal,
            StreamReset::Tunnel => ErrorCode::Connect,
            StreamReset::Stalled => ErrorCode::RequestCancelled,
        };
        self.core.reset(id);
        self.cut(id, error);
    }

    /// Both sides of a QUIC connection may discard what has not been read of a stream that is reset. Acknowledgements say
    /// only that the other side has received the bytes, so the delay is for the client to read them.
    fn abort(&mut self, id: u64, now_ms: u64) {
        self.stop(id, ErrorCode::Internal);
        let round_trip_ms = u64::try_from(self.quic.rtt().as_millis()).unwrap_or(u64::MAX);
        let delay_ms = LINGERING_MS.saturating_add(round_trip_ms.saturating_mul(ABORT_ROUND_TRIPS)).min(ABORT_MS_MAX);
        self.aborted.push((id, now_ms.saturating_add(delay_ms)));
    }

    fn handle_taken(&mut self, id: u64, bytes: usize) {
        self.count_taken(id, bytes);
    }

    fn handle_discarded(&mut self, now_ms: u64, id: u64, bytes: usize) -> Result<(), CloseReason> {
        self.count_taken(id, bytes);
        self.core.discard_data(now_ms, bytes).map_err(|error| self.note(error))
    }

    /// RFC 9114 §4.1.
    fn finish(&mut self, id: u64, _now_ms: u64) {
        self.stop(id, ErrorCode::NoError);
    }
}

impl Http3Transport {
    /// Writes a piece and records how much of the frame is still to be sent. Returns the number of content bytes
    /// accepted.
    fn finish_piece(&mut self, id: u64, kept_bytes: usize, owed_bytes: u64) -> usize {
        let sent = self.write(id, kept_bytes);
        self.turn_bytes = self.turn_bytes.saturating_sub(sent);
        if let Some(stream) = self.core.get_mut(id) {
            stream.owed_bytes = owed_bytes.saturating_sub(sent as u64);
        }
        sent
    }
}

/// Returns the close reason for a connection error.
fn reason_of(error: ConnectionError) -> CloseReason {
    match error.kind() {
        ErrorKind::Protocol => CloseReason::H3Protocol,
        ErrorKind::Excess => CloseReason::H3Excess,
        ErrorKind::Flood => CloseReason::H3Flood,
    }
}

#[cfg(test)]
mod tests {
    use super::quic_priority;
    use flatout_http::http2::priority::Priority;

    #[test]
    fn quic_sends_in_the_order_of_service() {
        let of = |urgency, incremental, id| quic_priority(Priority { urgency, incremental }, id);
        let ordered = [
            of(0, false, 4),
            of(0, false, 8),
            of(0, true, 0),
            of(3, false, 0),
            of(3, false, 400),
            of(3, true, 0),
            of(7, true, 0),
        ];
        assert!(ordered.is_sorted_by(|one, next| one > next), "{ordered:?}");
        assert_eq!(of(3, true, 0), of(3, true, 4), "incremental responses take turns");
        assert!(of(0, false, 0) < super::OWN_PRIORITY);
    }
}
