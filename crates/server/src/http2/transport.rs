//! The streams of an HTTP/2 connection and their output.

use super::link::Http2Link;
use super::settings::{STREAMS_PER_CONNECTION, WINDOWS, config};
use crate::counters::Counters;
use crate::streams::{ABORT_MS_MAX, LINGERING_MS, ServerStream, StreamReset, StreamTransport};
use crate::tls_session::read_scattered;
use crate::worker::Worker;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::{FileBody, Head};
use flatout_http::framing::Version;
use flatout_http::http2::connection::{Connection, Role};
use flatout_http::http2::error::ConnectionError;
use flatout_http::http2::frame::{ErrorCode, HEAD_BYTES, PAYLOAD_BYTES_MAX};
use flatout_http::http2::hpack;
use flatout_http::http2::window::StreamCount;
use flatout_net::windows::AdaptiveWindows;
use flatout_os::counter::Counter;
use std::array;
use std::borrow::Cow;
use std::io::IoSliceMut;

/// Payload of a PING after the last bytes of a response that cannot be completed, without the number of its stream.
const ABORT_PING: u64 = u64::from_be_bytes(*b"cut\0\0\0\0\0");

/// Maximum streams whose response is complete while their content may still be arriving. They leave room in the
/// connection's window for others.
const LINGERING_MAX: usize = 3;

/// DATA frames whose content is read from a file with one system call: as many as one write of the link holds.
const FILE_FRAMES_MAX: usize = 4;

const FRAME_BYTES_MAX: usize = HEAD_BYTES + PAYLOAD_BYTES_MAX;

/// A stream, with its count of consumed bytes for the window estimate.
#[derive(Default)]
pub(super) struct Http2Stream {
    state: ServerStream,
    count: StreamCount,
}

/// A stream that will be reset, but not before the client has had time to read the response.
pub(super) struct LingeringStream {
    pub(super) id: u32,
    code: ErrorCode,
    /// When the stream is reset at the latest, in milliseconds.
    pub(super) until_ms: u64,
}

/// The streams of a connection, their windows and the socket.
pub(super) struct Http2Transport {
    pub(super) link: Http2Link,
    pub(super) core: Connection<Http2Stream>,
    pub(super) windows: AdaptiveWindows,
    /// True if a PING that measures a round trip must be sent.
    pub(super) must_probe: bool,
    /// Streams whose response has ended: complete, while the content of the request may still be arriving, or
    /// incomplete. Oldest first.
    pub(super) lingering: Vec<LingeringStream>,
    /// The rule that the client violated, because of which the connection closes.
    pub(super) violation: Option<ConnectionError>,
}

impl Http2Transport {
    pub(super) fn new<H: Handler>(worker: &Worker<H>, mut link: Http2Link) -> Self {
        let core = Connection::new(Role::Server, config(&worker.settings.limits), &mut link.output);
        let windows = AdaptiveWindows::new(WINDOWS, STREAMS_PER_CONNECTION, &worker.windows);
        Self { link, core, windows, must_probe: false, lingering: Vec::new(), violation: None }
    }

    /// Returns the number of streams in progress.
    pub(super) fn busy_streams(&self) -> usize {
        self.core.stream_count().saturating_sub(self.lingering.len())
    }

    /// Resets streams whose delay has expired.
    pub(super) fn reset_expired(&mut self, now_ms: u64) {
        while self.reset_lingering(|stream| stream.until_ms <= now_ms) {}
    }

    /// Resets the stream for which a PING with `payload` was sent: the client has received what precedes the PING.
    pub(super) fn handle_read(&mut self, payload: u64) {
        self.reset_lingering(|stream| {
            stream.code != ErrorCode::NoError && ABORT_PING | u64::from(stream.id) == payload
        });
    }

    /// Resets the oldest lingering stream that is `wanted`. Returns whether there was one.
    fn reset_lingering(&mut self, wanted: impl Fn(&LingeringStream) -> bool) -> bool {
        let Some(index) = self.lingering.iter().position(wanted) else { return false };
        let LingeringStream { id, code, .. } = self.lingering.remove(index);
        if self.core.is_open(id) {
            self.core.reset(id, code, &mut self.link.output);
        }
        true
    }

    /// Returns the number of content bytes that may be sent on a stream now in one frame.
    fn room(&self, id: u32) -> usize {
        self.core.data_room(id).min(self.link.room())
    }

    /// Records a violation, whose error code the client receives, and returns the close reason.
    pub(super) fn note(&mut self, error: ConnectionError) -> CloseReason {
        self.violation = Some(error);
        reason_of(error)
    }

    fn count_taken(&mut self, id: u32, bytes: usize) {
        if let Some(stream) = self.core.get_mut(id) {
            self.must_probe |= self.windows.handle_taken(&mut stream.count, bytes);
        }
    }
}

impl Http2Stream {
    pub(super) fn into_state(self) -> ServerStream {
        self.state
    }
}

impl StreamTransport for Http2Transport {
    const VERSION: Version = Version::Http2;

    const ANNOUNCES_HTTP3: bool = true;

    fn streams_cut(counters: &Counters) -> &Counter {
        &counters.http2_streams_cut
    }

    fn encode_status(status: u16, output: &mut Vec<u8>) {
        hpack::encode_status(status, output);
    }

    fn encode_field(name: &[u8], value: &[u8], output: &mut Vec<u8>) {
        hpack::encode_field(name, value, output);
    }

    fn head_block(head: &Head) -> Cow<'_, [u8]> {
        head.http2_block()
    }

    fn append_date<H: Handler>(worker: &Worker<H>, output: &mut Vec<u8>) {
        worker.append_http2_date(output);
    }

    fn stream_mut(&mut self, id: u64) -> Option<&mut ServerStream> {
        self.core.get_mut(id as u32).map(|stream| &mut stream.state)
    }

    fn streams(&self) -> impl Iterator<Item = (u64, &ServerStream)> {
        self.core.iter().map(|(id, stream)| (u64::from(id), &stream.state))
    }

    fn id_at(&self, index: usize) -> Option<u64> {
        self.core.id_at(index).map(u64::from)
    }

    fn has_room(&self) -> bool {
        self.link.room() > 0
    }

    fn next_sender(&mut self) -> Option<u64> {
        if !self.has_room() {
            return None;
        }
        self.core.next_sender(|stream| stream.state.is_sending()).map(u64::from)
    }

    fn send_fields(&mut self, id: u64, ends: bool, encode: impl FnOnce(&mut Vec<u8>)) {
        self.core.send_fields(id as u32, ends, &mut self.link.output, encode);
    }

    fn send_bytes(&mut self, id: u64, bytes: &[u8], ends: bool) -> usize {
        let id = id as u32;
        let count = bytes.len().min(self.room(id));
        let ends = ends && count == bytes.len();
        if count > 0 || ends {
            let head = self.core.send_data(id, count, ends);
            self.link.output.extend_from_slice(&head);
            self.link.output.extend_from_slice(&bytes[..count]);
        }
        count
    }

    fn send_file(&mut self, id: u64, file: &mut FileBody, ends: bool) -> Result<usize, CloseReason> {
        let id = id as u32;
        let room = self.core.turn_room(id, FILE_FRAMES_MAX).min(self.link.room());
        let room = usize::try_from(file.bytes).unwrap_or(usize::MAX).min(room);
        if room == 0 {
            return Ok(0);
        }
        let at = self.link.output.len();
        self.link.output.resize(at + room + room.div_ceil(PAYLOAD_BYTES_MAX) * HEAD_BYTES, 0);
        let mut frames = self.link.output[at..].chunks_mut(FRAME_BYTES_MAX);
        let mut contents: [_; FILE_FRAMES_MAX] =
            array::from_fn(|_| IoSliceMut::new(frames.next().map_or(&mut [], |frame| &mut frame[HEAD_BYTES..])));
        let read = read_scattered(file, &mut contents);
        let count = read.inspect_err(|_| self.link.output.truncate(at))?;
        self.link.output.truncate(at + count + count.div_ceil(PAYLOAD_BYTES_MAX) * HEAD_BYTES);
        let mut rest = count;
        for frame in self.link.output[at..].chunks_mut(FRAME_BYTES_MAX) {
            let bytes = frame.len() - HEAD_BYTES;
            rest -= bytes;
            let head = self.core.send_data(id, bytes, ends && rest == 0 && file.bytes == 0);
            frame[..HEAD_BYTES].copy_from_slice(&head);
        }
        Ok(count)
    }

    fn reset(&mut self, id: u64, why: StreamReset) {
        let code = match why {
            StreamReset::Incomplete => ErrorCode::Internal,
            StreamReset::Tunnel => ErrorCode::Connect,
            StreamReset::Stalled => ErrorCode::Cancel,
        };
        self.core.reset(id as u32, code, &mut self.link.output);
    }

    fn abort(&mut self, id: u64, now_ms: u64) {
        let id = id as u32;
        self.core.discard(id, &mut self.link.output);
        self.core.ping(ABORT_PING | u64::from(id), &mut self.link.output);
        let until_ms = now_ms.saturating_add(ABORT_MS_MAX);
        self.lingering.push(LingeringStream { id, code: ErrorCode::Internal, until_ms });
    }

    fn handle_taken(&mut self, id: u64, bytes: usize) {
        self.count_taken(id as u32, bytes);
        self.core.release(id as u32, bytes, &mut self.link.output);
    }

    fn handle_discarded(&mut self, now_ms: u64, id: u64, bytes: usize) -> Result<(), CloseReason> {
        self.count_taken(id as u32, bytes);
        let discarded = self.core.discard_data(now_ms, id as u32, bytes, &mut self.link.output);
        discarded.map_err(|error| self.note(error))
    }

    /// Discards the rest of the content. If the client may still be sending, resets the stream some time later (RFC
    /// 9113 §8.1).
    fn finish(&mut self, id: u64, now_ms: u64) {
        let id = id as u32;
        self.core.discard(id, &mut self.link.output);
        if !self.core.is_receiving(id) {
            return;
        }
        let until_ms = now_ms.saturating_add(LINGERING_MS);
        self.lingering.push(LingeringStream { id, code: ErrorCode::NoError, until_ms });
        let is_complete = |stream: &LingeringStream| stream.code == ErrorCode::NoError;
        if self.lingering.iter().filter(|stream| is_complete(stream)).count() > LINGERING_MAX {
            self.reset_lingering(is_complete);
        }
    }
}

/// Returns the close reason for a connection error.
fn reason_of(error: ConnectionError) -> CloseReason {
    match error {
        ConnectionError::SectionExcess | ConnectionError::DataExcess => CloseReason::H2Excess,
        error if error.code() == ErrorCode::EnhanceYourCalm => CloseReason::H2Flood,
        _ => CloseReason::H2Protocol,
    }
}
