//! Handling of received frames.

use super::{Connection, OpenSection, Role, WINDOW_BYTES, WINDOW_BYTES_MAX, window_bytes};
use crate::http2::error::{ConnectionError, StreamError, check_length};
use crate::http2::fields::{FieldBlock, SectionKind};
use crate::http2::frame::{
    ErrorCode, FrameHead, HEAD_BYTES, PAYLOAD_BYTES_MAX, PREFACE, append_frame, flag, kind, leading_number, setting,
    without_padding,
};
use crate::http2::hpack::{DecoderError, TABLE_BYTES};
use crate::http2::priority::Priority;
use crate::http2::stream::{OpenStream, PastStream};
use crate::status::has_content;

/// Maximum compressed size of a field section, as a multiple of its maximum uncompressed size. No
/// encoder uses Huffman coding for a string that it makes longer, and the uncompressed size counts 32 bytes more for each
/// field.
const BLOCK_FACTOR: usize = 2;

/// A change that the caller has to handle.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'i, T> {
    /// A request arrived, whose fields are in the field block. The stream is open, with the default caller state.
    Request {
        /// The stream identifier.
        stream: u32,
        /// True if no content follows.
        ends: bool,
    },
    /// A final or interim response head arrived, whose fields are in the field block.
    Response {
        /// The stream identifier.
        stream: u32,
        /// True if no content follows.
        ends: bool,
    },
    /// Content arrived. The caller returns credit for it with [`Connection::release`], unless the stream is reset or
    /// discarded first, which returns the credit too.
    Data {
        /// The stream identifier.
        stream: u32,
        /// The content, without padding.
        bytes: &'i [u8],
        /// True if this is the end of the message.
        ends: bool,
    },
    /// Trailers arrived, which end the message. Their fields are in the field block.
    Trailers {
        /// The stream identifier.
        stream: u32,
    },
    /// A stream was closed before it ended.
    Reset {
        /// The stream identifier.
        stream: u32,
        /// The error code in RST_STREAM.
        code: ErrorCode,
        /// The peer's error because of which this side reset the stream, or `None` if the peer reset the stream.
        error: Option<StreamError>,
        /// The caller's state of the stream.
        data: T,
    },
    /// A request was rejected and its stream reset, because the request is malformed (RFC 9113 §8.1.1) or exceeds a
    /// limit. Its fields are in the field block.
    Rejected {
        /// The stream identifier.
        stream: u32,
        /// The client's error.
        error: StreamError,
    },
    /// The peer acknowledged a PING with this payload.
    Acknowledged(u64),
    /// The peer accepts no more streams, and has not handled any stream after `last_stream`.
    GoAway {
        /// Highest identifier of a stream that the peer may have handled.
        last_stream: u32,
        /// The error code that gives the peer's reason.
        code: ErrorCode,
    },
}

pub(super) type Handled<'i, T> = Result<Option<Event<'i, T>>, ConnectionError>;

impl<T: Default> Connection<T> {
    /// Handles `input` up to the next event and removes the bytes used. Returns `Ok(None)` if there is no further
    /// event; the caller must pass the rest of `input`, an incomplete frame, again with more bytes.
    pub fn handle<'i>(
        &mut self,
        now_ms: u64,
        input: &mut &'i [u8],
        fields: &mut FieldBlock,
        output: &mut Vec<u8>,
    ) -> Handled<'i, T> {
        if self.has_failed {
            *input = &[];
            return Ok(None);
        }
        self.handle_frames(now_ms, input, fields, output).inspect_err(|error| self.fail(*error, output))
    }

    fn handle_frames<'i>(
        &mut self,
        now_ms: u64,
        input: &mut &'i [u8],
        fields: &mut FieldBlock,
        output: &mut Vec<u8>,
    ) -> Handled<'i, T> {
        if self.preface_left > 0 {
            let expected = &PREFACE[PREFACE.len() - self.preface_left..];
            let count = expected.len().min(input.len());
            if input[..count] != expected[..count] {
                return Err(ConnectionError::Preface);
            }
            *input = &input[count..];
            self.preface_left -= count;
        }
        loop {
            let skipped = self.skip_bytes.min(input.len());
            *input = &input[skipped..];
            self.skip_bytes -= skipped;
            let Some(head) = FrameHead::parse(input) else { break };
            if !self.has_begun && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
                return Err(ConnectionError::Preface);
            }
            if head.payload_bytes > PAYLOAD_BYTES_MAX {
                // Any other oversized frame would affect the state of the whole connection (RFC 9113 §4.2).
                if head.kind != kind::DATA || !self.is_open(head.stream) || self.section.is_some() {
                    return Err(ConnectionError::FrameTooLarge);
                }
                *input = &input[HEAD_BYTES..];
                self.skip_bytes = head.payload_bytes;
                self.take_connection_window(head.payload_bytes)?;
                self.release_connection(head.payload_bytes as u32, output);
                return self.reset_for(now_ms, head.stream, StreamError::FrameTooLarge, output);
            }
            let Some(payload) = input[HEAD_BYTES..].get(..head.payload_bytes) else { break };
            *input = &input[HEAD_BYTES + head.payload_bytes..];
            self.has_begun = true;
            if let Some(event) = self.handle_frame(now_ms, head, payload, fields, output)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn handle_frame<'i>(
        &mut self,
        now_ms: u64,
        head: FrameHead,
        payload: &'i [u8],
        fields: &mut FieldBlock,
        output: &mut Vec<u8>,
    ) -> Handled<'i, T> {
        check_size(head)?;
        if self.section.as_ref().is_some_and(|section| head.kind != kind::CONTINUATION || head.stream != section.stream)
        {
            return Err(ConnectionError::SectionInterrupted);
        }
        let content = match head.kind {
            kind::DATA | kind::HEADERS => match without_padding(head, payload) {
                Some(content) => content,
                None => return Err(ConnectionError::Padding),
            },
            _ => payload,
        };
        if let Some(guard) = &mut self.guard {
            guard.handle_received(now_ms, head, content.len())?;
        }
        let is_of_stream = head.stream != 0;
        match head.kind {
            kind::DATA | kind::HEADERS | kind::PRIORITY | kind::RST_STREAM | kind::CONTINUATION if !is_of_stream => {
                Err(ConnectionError::StreamMissing)
            }
            kind::SETTINGS | kind::PING | kind::GOAWAY | kind::PRIORITY_UPDATE if is_of_stream => {
                Err(ConnectionError::StreamForbidden)
            }
            kind::PUSH_PROMISE => Err(ConnectionError::PushPromise),
            kind::DATA => self.handle_data(now_ms, head, content, output),
            kind::HEADERS => self.handle_headers(now_ms, head, content, fields, output),
            kind::CONTINUATION => self.handle_continuation(now_ms, head, payload, fields, output),
            kind::PRIORITY => self.handle_priority(now_ms, head.stream, payload, output),
            kind::RST_STREAM => self.handle_reset(head, payload, output),
            kind::SETTINGS => self.handle_settings(head, payload, output).map(|()| None),
            kind::PING => Ok(handle_ping(head, payload, output)),
            kind::GOAWAY => {
                self.is_leaving = true;
                let last_stream = leading_number(payload) & 0x7fff_ffff;
                Ok(Some(Event::GoAway { last_stream, code: ErrorCode::from_number(leading_number(&payload[4..])) }))
            }
            kind::WINDOW_UPDATE => self.handle_credit(now_ms, head.stream, payload, output),
            kind::PRIORITY_UPDATE => self.handle_priority_update(payload).map(|()| None),
            // Unknown types are ignored (RFC 9113 §4.1).
            _ => Ok(None),
        }
    }

    fn handle_data<'i>(
        &mut self,
        now_ms: u64,
        head: FrameHead,
        content: &'i [u8],
        output: &mut Vec<u8>,
    ) -> Handled<'i, T> {
        let (id, ends) = (head.stream, head.has(flag::END_STREAM));
        if self.is_idle(id) {
            return Err(ConnectionError::StreamIdle);
        }
        let flow_bytes = window_bytes(head.payload_bytes);
        self.take_connection_window(head.payload_bytes)?;
        let Some(stream) = self.streams.get_mut(id) else {
            self.release_connection(flow_bytes as u32, output);
            return match self.streams.past(id) {
                PastStream::EndedByPeer => Err(ConnectionError::StreamClosed),
                PastStream::Unknown | PastStream::ResetByUs => Ok(None),
            };
        };
        stream.receive_window -= flow_bytes;
        let error = if stream.peer_done {
            Some(StreamError::Closed)
        } else if !stream.has_head && self.role == Role::Client {
            Some(StreamError::DataFirst)
        } else if stream.receive_window < 0 {
            Some(StreamError::WindowExceeded)
        } else {
            check_length(&mut stream.content_left, content.len() as u64, ends).err()
        };
        if let Some(error) = error {
            self.release_connection(flow_bytes as u32, output);
            return self.reset_for(now_ms, id, error, output);
        }
        stream.peer_done = ends;
        if stream.is_discarded {
            self.release_connection(flow_bytes as u32, output);
            self.streams.remove_done(id);
            return self.handle_discarded(now_ms, content.len()).map(|()| None);
        }
        stream.held_bytes += flow_bytes as u32;
        // Padding counts as consumed immediately.
        self.release(id, head.payload_bytes - content.len(), output);
        Ok(Some(Event::Data { stream: id, bytes: content, ends }))
    }

    /// Subtracts the `bytes` of a received payload from the connection's window.
    const fn take_connection_window(&mut self, bytes: usize) -> Result<(), ConnectionError> {
        self.receive.available -= window_bytes(bytes);
        if self.receive.available < 0 { Err(ConnectionError::WindowExceeded) } else { Ok(()) }
    }

    fn handle_headers<'i>(
        &mut self,
        now_ms: u64,
        head: FrameHead,
        content: &[u8],
        fields: &mut FieldBlock,
        output: &mut Vec<u8>,
    ) -> Handled<'i, T> {
        let (mut block, mut depends_on_itself) = (content, false);
        if head.has(flag::PRIORITY) {
            let Some((priority, rest)) = content.split_first_chunk::<5>() else {
                return Err(ConnectionError::FrameLength);
            };
            depends_on_itself = leading_number(priority) & 0x7fff_ffff == head.stream;
            block = rest;
        }
        let is_own = (head.stream % 2 == 1) == (self.role == Role::Client);
        if self.is_idle(head.stream) && (is_own || self.role == Role::Client) || self.role == Role::Server && is_own {
            return Err(ConnectionError::StreamId);
        }
        let mut section =
            OpenSection { stream: head.stream, ends: head.has(flag::END_STREAM), depends_on_itself, block: Vec::new() };
        if head.has(flag::END_HEADERS) {
            return self.handle_section(now_ms, &section, block, fields, output);
        }
        section.block.extend_from_slice(block);
        self.section = Some(section);
        Ok(None)
    }

    fn handle_continuation<'i>(
        &mut self,
        now_ms: u64,
        head: FrameHead,
        payload: &[u8],
        fields: &mut FieldBlock,
        output: &mut Vec<u8>,
    ) -> Handled<'i, T> {
        let Some(section) = &mut self.section else {
            return Err(ConnectionError::Continuation);
        };
        if section.block.len() + payload.len() > self.config.section_bytes_max.saturating_mul(BLOCK_FACTOR) {
            return Err(ConnectionError::SectionExcess);
        }
        section.block.extend_from_slice(payload);
        if !head.has(flag::END_HEADERS) {
            return Ok(None);
        }
        let Some(section) = self.section.take() else { return Ok(None) };
        self.handle_section(now_ms, &section, &section.block, fields, output)
    }

    /// Handles a complete field section.
    fn handle_section<'i>(
        &mut self,
        now_ms: u64,
        section: &OpenSection,
        block: &[u8],
        fields: &mut FieldBlock,
        output: &mut Vec<u8>,
    ) -> Handled<'i, T> {
        let (id, ends) = (section.stream, section.ends);
        let is_open = self.streams.get(id);
        let kind = match (self.role, is_open) {
            (Role::Client, Some(stream)) if !stream.has_head => SectionKind::Response,
            (Role::Server, None) => SectionKind::Request,
            _ => SectionKind::Trailers,
        };
        match fields.decode(&mut self.decoder, block, kind, self.config.section_bytes_max) {
            Ok(()) => {}
            Err(DecoderError::ResizesTooMany) => return Err(ConnectionError::TableSizeFlood),
            Err(_) => return Err(ConnectionError::SectionInvalid),
        }
        if fields.is_excessive() {
            return Err(ConnectionError::SectionExcess);
        }
        if is_open.is_some() {
            return self.handle_later_section(now_ms, section, kind, fields, output);
        }
        if !self.is_idle(id) {
            return match (self.streams.past(id), self.role) {
                (PastStream::EndedByPeer, _) => Err(ConnectionError::StreamClosed),
                (PastStream::Unknown, Role::Server) => Err(ConnectionError::StreamId),
                // The section was in flight when this side reset the stream, perhaps long ago.
                (PastStream::ResetByUs, _) | (PastStream::Unknown, Role::Client) => Ok(None),
            };
        }
        self.last_peer_stream = id;
        if self.goaway_sent.is_some_and(|last| id > last) {
            // The client knows from GOAWAY that this request will not be handled.
            self.streams.note_closed(id, PastStream::ResetByUs);
            return Ok(None);
        }
        let is_wrong_length = ends && fields.content_length().is_some_and(|length| length > 0);
        let error = match fields.malformed() {
            _ if self.streams.len() >= self.config.streams_max as usize => Some(StreamError::StreamsExceeded),
            None if section.depends_on_itself => Some(StreamError::SelfDependency),
            None if is_wrong_length => Some(StreamError::ContentTooShort),
            error => error,
        };
        if let Some(error) = error {
            self.reset_for(now_ms, id, error, output)?;
            return Ok(Some(Event::Rejected { stream: id, error }));
        }
        let mut stream = self.new_stream(id);
        stream.peer_done = ends;
        stream.content_left = fields.content_length();
        stream.priority = fields.first("priority").map_or(Priority::DEFAULT, Priority::parse);
        self.streams.insert(stream);
        Ok(Some(Event::Request { stream: id, ends }))
    }

    /// Handles a response head or trailers.
    fn handle_later_section<'i>(
        &mut self,
        now_ms: u64,
        section: &OpenSection,
        kind: SectionKind,
        fields: &FieldBlock,
        output: &mut Vec<u8>,
    ) -> Handled<'i, T> {
        let (id, ends) = (section.stream, section.ends);
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        let status = fields.status().filter(|_| kind == SectionKind::Response);
        let is_interim = status.is_some_and(|status| status < 200);
        let has_content = status.is_some_and(has_content) && !stream.is_head;
        let content_left = match kind {
            SectionKind::Response if has_content => fields.content_length(),
            // A response without content may have the Content-Length of another response (RFC 9110 §8.6).
            SectionKind::Response => Some(0),
            _ => stream.content_left,
        };
        let error = match fields.malformed() {
            _ if stream.peer_done => Some(StreamError::Closed),
            Some(error) => Some(error),
            None if fields.is_too_large() => Some(StreamError::SectionTooLarge),
            None if section.depends_on_itself => Some(StreamError::SelfDependency),
            None if is_interim && ends => Some(StreamError::InterimEnd),
            None if kind == SectionKind::Trailers && !ends => Some(StreamError::TrailersOpen),
            None if ends && content_left.is_some_and(|left| left > 0) => Some(StreamError::ContentTooShort),
            None => None,
        };
        if let Some(error) = error {
            return self.reset_for(now_ms, id, error, output);
        }
        stream.peer_done = ends;
        if kind == SectionKind::Response {
            if !is_interim {
                (stream.has_head, stream.content_left) = (true, content_left);
            }
            return Ok(Some(Event::Response { stream: id, ends }));
        }
        if stream.is_discarded {
            self.streams.remove_done(id);
            return Ok(None);
        }
        Ok(Some(Event::Trailers { stream: id }))
    }

    pub(super) fn new_stream(&self, id: u32) -> OpenStream<T> {
        OpenStream {
            id,
            peer_done: false,
            own_done: false,
            is_discarded: false,
            has_head: false,
            is_head: false,
            send_window: self.peer.initial_window,
            receive_window: i64::from(self.stream_window),
            owed_bytes: 0,
            held_bytes: 0,
            content_left: None,
            priority: Priority::DEFAULT,
            served: 0,
            data: T::default(),
        }
    }

    fn handle_reset<'i>(&mut self, head: FrameHead, payload: &[u8], output: &mut Vec<u8>) -> Handled<'i, T> {
        if self.is_idle(head.stream) {
            return Err(ConnectionError::StreamIdle);
        }
        let code = ErrorCode::from_number(leading_number(payload));
        let closed = self.streams.remove(head.stream, PastStream::EndedByPeer);
        self.release_connection(closed.as_ref().map_or(0, |stream| stream.held_bytes), output);
        Ok(closed.map(|stream| Event::Reset { stream: stream.id, code, error: None, data: stream.data }))
    }

    fn handle_settings(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        if head.has(flag::ACK) {
            if let Some(window) = self.unacknowledged.pop_front() {
                let change = i64::from(window) - i64::from(self.stream_window);
                self.stream_window = window;
                for stream in self.streams.iter_mut() {
                    stream.receive_window += change;
                }
            }
            return Ok(());
        }
        self.peer.have_arrived = true;
        for pair in payload.chunks_exact(6) {
            let value = leading_number(&pair[2..]);
            match u16::from_be_bytes([pair[0], pair[1]]) {
                setting::HEADER_TABLE_SIZE => self.must_shrink_table |= (value as usize) < TABLE_BYTES,
                setting::ENABLE_PUSH | setting::ENABLE_CONNECT_PROTOCOL | setting::NO_RFC7540_PRIORITIES
                    if value > 1 =>
                {
                    return Err(ConnectionError::SettingValue);
                }
                // RFC 9113 §6.5.2: clients must not push, so a server cannot accept pushes.
                setting::ENABLE_PUSH if value == 1 && self.role == Role::Client => {
                    return Err(ConnectionError::SettingValue);
                }
                setting::ENABLE_CONNECT_PROTOCOL => self.peer.connect_protocol = value == 1,
                setting::MAX_CONCURRENT_STREAMS => self.peer.streams_max = value,
                setting::INITIAL_WINDOW_SIZE => {
                    let window = i64::from(value);
                    let change = window - self.peer.initial_window;
                    self.peer.initial_window = window;
                    for stream in self.streams.iter_mut() {
                        stream.send_window += change;
                    }
                    let is_too_large = |stream: &OpenStream<T>| stream.send_window > WINDOW_BYTES_MAX;
                    if window > WINDOW_BYTES_MAX || self.streams.iter().any(is_too_large) {
                        return Err(ConnectionError::SettingWindow);
                    }
                }
                setting::MAX_FRAME_SIZE if !(PAYLOAD_BYTES_MAX as u32..1 << 24).contains(&value) => {
                    return Err(ConnectionError::SettingValue);
                }
                _ => {}
            }
        }
        append_frame(kind::SETTINGS, flag::ACK, 0, &[], output);
        Ok(())
    }

    /// Checks a PRIORITY frame (RFC 7540 §6.3), which is otherwise ignored. RST_STREAM must not be sent for an idle
    /// stream (RFC 9113 §6.4), so an error on a stream that is not open is a connection error.
    fn handle_priority(&mut self, now_ms: u64, id: u32, payload: &[u8], output: &mut Vec<u8>) -> Handled<'static, T> {
        let is_open = self.is_open(id);
        match payload.len() {
            5 if leading_number(payload) & 0x7fff_ffff != id => Ok(None),
            5 if is_open => self.reset_for(now_ms, id, StreamError::SelfDependency, output),
            5 => Err(ConnectionError::SelfDependency),
            _ if is_open => self.reset_for(now_ms, id, StreamError::FrameLength, output),
            _ => Err(ConnectionError::FrameLength),
        }
    }

    fn handle_priority_update(&mut self, payload: &[u8]) -> Result<(), ConnectionError> {
        let Some((_, value)) = payload.split_first_chunk::<4>() else {
            return Err(ConnectionError::FrameLength);
        };
        if self.role == Role::Client {
            return Err(ConnectionError::PriorityUpdate);
        }
        let id = leading_number(payload) & 0x7fff_ffff;
        // Even identifiers belong to pushed responses, and nothing is pushed.
        if id.is_multiple_of(2) {
            return Err(ConnectionError::PriorityId);
        }
        // A priority for a stream that is not open is dropped, as RFC 9218 §7.1 permits.
        if let Some(stream) = self.streams.get_mut(id) {
            stream.priority = Priority::parse(value);
        }
        Ok(())
    }

    /// Resets a stream because of an error of the peer (RFC 9113 §5.4.2).
    pub(super) fn reset_for<'i>(
        &mut self,
        now_ms: u64,
        id: u32,
        error: StreamError,
        output: &mut Vec<u8>,
    ) -> Handled<'i, T> {
        debug_assert!(error.is_of_http2(), "{error:?}");
        if let Some(guard) = &mut self.guard {
            guard.handle_provoked_reset(now_ms)?;
        }
        let closed = self.reset(id, error.code(), output);
        Ok(closed.map(|data| Event::Reset { stream: id, code: error.code(), error: Some(error), data }))
    }

    /// Returns credit for content that the caller discards.
    pub fn discard_data(
        &mut self,
        now_ms: u64,
        id: u32,
        bytes: usize,
        output: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        self.release(id, bytes, output);
        self.handle_discarded(now_ms, bytes).inspect_err(|error| self.fail(*error, output))
    }

    fn handle_discarded(&mut self, now_ms: u64, bytes: usize) -> Result<(), ConnectionError> {
        match &mut self.guard {
            Some(guard) if bytes > 0 => {
                let is_fair = guard.handle_discarded(now_ms, bytes);
                if is_fair { Ok(()) } else { Err(ConnectionError::DataExcess) }
            }
            _ => Ok(()),
        }
    }
}

/// Checks the payload length of frames whose type prescribes it (RFC 9113 §4.2).
const fn check_size(head: FrameHead) -> Result<(), ConnectionError> {
    let is_valid = match head.kind {
        kind::SETTINGS if head.has(flag::ACK) => head.payload_bytes == 0,
        kind::SETTINGS => head.payload_bytes.is_multiple_of(6),
        kind::PING => head.payload_bytes == 8,
        kind::RST_STREAM | kind::WINDOW_UPDATE => head.payload_bytes == 4,
        kind::GOAWAY => head.payload_bytes >= 8,
        _ => true,
    };
    if is_valid { Ok(()) } else { Err(ConnectionError::FrameLength) }
}

/// Responds to a PING, or reports the acknowledgement of a PING.
fn handle_ping<'i, T>(head: FrameHead, payload: &[u8], output: &mut Vec<u8>) -> Option<Event<'i, T>> {
    if head.has(flag::ACK) {
        return payload.first_chunk().map(|bytes| Event::Acknowledged(u64::from_be_bytes(*bytes)));
    }
    append_frame(kind::PING, flag::ACK, 0, payload, output);
    None
}

const _: () = assert!(WINDOW_BYTES as i64 <= WINDOW_BYTES_MAX);
