//! Received frames.

use super::{Connection, ConnectionError, Offence, OpenSection, Role, WINDOW_BYTES, WINDOW_BYTES_MAX, window_bytes};
use crate::http2::fields::{FieldBlock, SectionKind};
use crate::http2::flood::Flood;
use crate::http2::frame::{
    ErrorCode, FrameHead, HEAD_BYTES, PAYLOAD_BYTES_MAX, PREFACE, append_frame, flag, kind, leading_number, setting,
    without_padding,
};
use crate::http2::hpack::{DecoderError, TABLE_BYTES};
use crate::http2::priority::Priority;
use crate::http2::stream::{OpenStream, PastStream};

/// Compressed bytes of a field section, as a multiple of its limit: Huffman coding makes a text at most 3.75 times as
/// long, and no encoder uses it then.
const BLOCK_FACTOR: usize = 4;

/// A change that the caller has to handle.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'i, T> {
    /// A request, whose fields are in the block; the stream is open, with the default state.
    Request {
        /// Its identifier.
        stream: u32,
        /// True if no content follows.
        ends: bool,
    },
    /// A response head, or an interim one, whose fields are in the block.
    Response {
        /// Its identifier.
        stream: u32,
        /// True if no content follows.
        ends: bool,
    },
    /// Content. The caller returns credit for it with [`Connection::release`].
    Data {
        /// Its identifier.
        stream: u32,
        /// The content, without padding.
        bytes: &'i [u8],
        /// True if it is the end of the message.
        ends: bool,
    },
    /// Trailers, which end the message; their fields are in the block.
    Trailers {
        /// Its identifier.
        stream: u32,
    },
    /// A stream that was closed before its end.
    Reset {
        /// Its identifier.
        stream: u32,
        /// The code of RST_STREAM.
        code: ErrorCode,
        /// True if the peer reset it, rather than this side because of an error of the peer.
        by_peer: bool,
        /// The caller's state.
        data: T,
    },
    /// A request with a field section that violates a rule; its stream was reset (RFC 9113 §8.1.1).
    Malformed {
        /// Its identifier.
        stream: u32,
        /// The rule.
        rule: &'static str,
    },
    /// The acknowledgement of a PING.
    Acknowledged(u64),
    /// The peer wants no more streams; it has not seen those beyond `last_stream`.
    GoAway {
        /// Highest stream that the peer may have handled.
        last_stream: u32,
        /// Its reason.
        code: ErrorCode,
    },
}

impl<T: Default> Connection<T> {
    /// Handles `input` up to the next event and removes the bytes used. `Ok(None)`: the rest of `input`, less than a
    /// frame, has to be given again with more bytes.
    pub fn handle<'i>(
        &mut self,
        now_ms: u64,
        input: &mut &'i [u8],
        fields: &mut FieldBlock,
        output: &mut Vec<u8>,
    ) -> Result<Option<Event<'i, T>>, ConnectionError> {
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
    ) -> Result<Option<Event<'i, T>>, ConnectionError> {
        if self.preface_left > 0 {
            let expected = &PREFACE[PREFACE.len() - self.preface_left..];
            let count = expected.len().min(input.len());
            if input[..count] != expected[..count] {
                return Err(ConnectionError::protocol(ErrorCode::Protocol));
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
                return Err(ConnectionError::protocol(ErrorCode::Protocol));
            }
            if head.payload_bytes > PAYLOAD_BYTES_MAX {
                // Only DATA leaves the state of the connection alone (RFC 9113 §4.2).
                if head.kind != kind::DATA || !self.is_open(head.stream) || self.section.is_some() {
                    return Err(ConnectionError::protocol(ErrorCode::FrameSize));
                }
                *input = &input[HEAD_BYTES..];
                self.skip_bytes = head.payload_bytes;
                self.take_connection_window(head.payload_bytes)?;
                self.release_connection(head.payload_bytes as u32, output);
                return self.reset_for(now_ms, head.stream, ErrorCode::FrameSize, output);
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
    ) -> Result<Option<Event<'i, T>>, ConnectionError> {
        let protocol_error = Err(ConnectionError::protocol(ErrorCode::Protocol));
        check_size(head)?;
        if self.section.as_ref().is_some_and(|section| head.kind != kind::CONTINUATION || head.stream != section.stream)
        {
            return protocol_error;
        }
        let content = match head.kind {
            kind::DATA | kind::HEADERS => match without_padding(head, payload) {
                Some(content) => content,
                None => return protocol_error,
            },
            _ => payload,
        };
        if let Some(guard) = &mut self.guard {
            guard.handle_received(now_ms, head, content.len()).map_err(flood)?;
        }
        let is_of_stream = head.stream != 0;
        match head.kind {
            kind::DATA | kind::HEADERS | kind::PRIORITY | kind::RST_STREAM | kind::CONTINUATION if !is_of_stream => {
                protocol_error
            }
            kind::SETTINGS | kind::PING | kind::GOAWAY | kind::PRIORITY_UPDATE if is_of_stream => protocol_error,
            kind::PUSH_PROMISE => protocol_error,
            kind::DATA => self.handle_data(now_ms, head, content, output),
            kind::HEADERS => self.handle_headers(now_ms, head, content, fields, output),
            kind::CONTINUATION => self.handle_continuation(now_ms, head, payload, fields, output),
            kind::PRIORITY if payload.len() != 5 => self.reset_for(now_ms, head.stream, ErrorCode::FrameSize, output),
            kind::PRIORITY if leading_number(payload) & 0x7fff_ffff == head.stream => {
                self.reset_for(now_ms, head.stream, ErrorCode::Protocol, output)
            }
            kind::RST_STREAM => self.handle_reset(head, payload),
            kind::SETTINGS => self.handle_settings(head, payload, output).map(|()| None),
            kind::PING => Ok(handle_ping(head, payload, output)),
            kind::GOAWAY => {
                self.is_leaving = true;
                let last_stream = leading_number(payload) & 0x7fff_ffff;
                Ok(Some(Event::GoAway { last_stream, code: ErrorCode::from_number(leading_number(&payload[4..])) }))
            }
            kind::WINDOW_UPDATE => self.handle_window_update(now_ms, head, payload, output),
            kind::PRIORITY_UPDATE => self.handle_priority_update(payload).map(|()| None),
            // Unknown types are ignored (RFC 9113 §4.1), and so are priorities of RFC 7540.
            _ => Ok(None),
        }
    }

    fn handle_data<'i>(
        &mut self,
        now_ms: u64,
        head: FrameHead,
        content: &'i [u8],
        output: &mut Vec<u8>,
    ) -> Result<Option<Event<'i, T>>, ConnectionError> {
        let (id, ends) = (head.stream, head.has(flag::END_STREAM));
        if self.is_idle(id) {
            return Err(ConnectionError::protocol(ErrorCode::Protocol));
        }
        let flow_bytes = window_bytes(head.payload_bytes);
        self.take_connection_window(head.payload_bytes)?;
        let Some(stream) = self.streams.get_mut(id) else {
            self.release_connection(flow_bytes as u32, output);
            return match self.streams.past(id) {
                PastStream::EndedByPeer => Err(ConnectionError::protocol(ErrorCode::StreamClosed)),
                PastStream::Unknown | PastStream::ResetByUs => Ok(None),
            };
        };
        if stream.peer_done || !stream.has_head && self.role == Role::Client {
            self.release_connection(flow_bytes as u32, output);
            return self.reset_for(now_ms, id, ErrorCode::StreamClosed, output);
        }
        stream.receive_window -= flow_bytes;
        let error = if stream.receive_window < 0 {
            Some(ErrorCode::FlowControl)
        } else {
            check_length(&mut stream.content_left, content.len() as u64, ends).err()
        };
        if let Some(code) = error {
            self.release_connection(flow_bytes as u32, output);
            return self.reset_for(now_ms, id, code, output);
        }
        stream.peer_done = ends;
        if stream.is_discarded {
            self.release_connection(flow_bytes as u32, output);
            self.streams.remove_done(id);
            return self.handle_discarded(now_ms, content.len()).map(|()| None);
        }
        // Padding is taken at once.
        self.release(id, head.payload_bytes - content.len(), output);
        Ok(Some(Event::Data { stream: id, bytes: content, ends }))
    }

    /// Subtracts received content from the connection's window.
    const fn take_connection_window(&mut self, bytes: usize) -> Result<(), ConnectionError> {
        self.receive.available -= window_bytes(bytes);
        if self.receive.available < 0 { Err(ConnectionError::protocol(ErrorCode::FlowControl)) } else { Ok(()) }
    }

    fn handle_headers<'i>(
        &mut self,
        now_ms: u64,
        head: FrameHead,
        content: &[u8],
        fields: &mut FieldBlock,
        output: &mut Vec<u8>,
    ) -> Result<Option<Event<'i, T>>, ConnectionError> {
        let (mut block, mut depends_on_itself) = (content, false);
        if head.has(flag::PRIORITY) {
            let Some((priority, rest)) = content.split_first_chunk::<5>() else {
                return Err(ConnectionError::protocol(ErrorCode::FrameSize));
            };
            depends_on_itself = leading_number(priority) & 0x7fff_ffff == head.stream;
            block = rest;
        }
        let is_own = (head.stream % 2 == 1) == (self.role == Role::Client);
        if self.is_idle(head.stream) && (is_own || self.role == Role::Client) || self.role == Role::Server && is_own {
            return Err(ConnectionError::protocol(ErrorCode::Protocol));
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
    ) -> Result<Option<Event<'i, T>>, ConnectionError> {
        let Some(section) = &mut self.section else {
            return Err(ConnectionError::protocol(ErrorCode::Protocol));
        };
        if section.block.len() + payload.len() > self.config.section_bytes_max.saturating_mul(BLOCK_FACTOR) {
            return Err(ConnectionError { code: ErrorCode::EnhanceYourCalm, offence: Offence::Excess });
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
    ) -> Result<Option<Event<'i, T>>, ConnectionError> {
        let (id, ends) = (section.stream, section.ends);
        let is_open = self.streams.get(id);
        let kind = match (self.role, is_open) {
            (Role::Client, Some(stream)) if !stream.has_head => SectionKind::Response,
            (Role::Server, None) => SectionKind::Request,
            _ => SectionKind::Trailers,
        };
        match fields.decode(&mut self.decoder, block, kind, self.config.section_bytes_max) {
            Ok(()) => {}
            Err(DecoderError::ResizesTooMany) => return Err(flood(Flood::TableSize)),
            Err(_) => return Err(ConnectionError::protocol(ErrorCode::Compression)),
        }
        if fields.is_excessive() {
            return Err(ConnectionError { code: ErrorCode::EnhanceYourCalm, offence: Offence::Excess });
        }
        if is_open.is_some() {
            return self.handle_later_section(now_ms, section, kind, fields, output);
        }
        if self.role == Role::Client {
            // The response to a request that was reset.
            return Ok(None);
        }
        if !self.is_idle(id) {
            return match self.streams.past(id) {
                PastStream::ResetByUs => Ok(None),
                PastStream::EndedByPeer => Err(ConnectionError::protocol(ErrorCode::StreamClosed)),
                PastStream::Unknown => Err(ConnectionError::protocol(ErrorCode::Protocol)),
            };
        }
        self.last_peer_stream = id;
        if self.goaway_sent.is_some_and(|last| id > last) {
            // Its client knows from GOAWAY that nobody handles it.
            self.streams.note_closed(id, PastStream::ResetByUs);
            return Ok(None);
        }
        if self.streams.len() >= self.config.streams_max as usize {
            return self.reset_for(now_ms, id, ErrorCode::RefusedStream, output);
        }
        let is_wrong_length = ends && fields.content_length().is_some_and(|length| length > 0);
        let rule = match fields.malformed() {
            None if section.depends_on_itself => Some("a stream depends on itself"),
            None if is_wrong_length => Some("a message without content declares a length"),
            rule => rule,
        };
        if let Some(rule) = rule {
            self.reset_for(now_ms, id, ErrorCode::Protocol, output)?;
            return Ok(Some(Event::Malformed { stream: id, rule }));
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
    ) -> Result<Option<Event<'i, T>>, ConnectionError> {
        let (id, ends) = (section.stream, section.ends);
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        if stream.peer_done {
            return self.reset_for(now_ms, id, ErrorCode::StreamClosed, output);
        }
        let is_interim = kind == SectionKind::Response && fields.status().is_some_and(|status| status < 200);
        let is_incomplete = match kind {
            SectionKind::Trailers => !ends || stream.content_left.is_some_and(|left| left > 0),
            _ => is_interim && ends,
        };
        if fields.is_too_large() || fields.malformed().is_some() || section.depends_on_itself || is_incomplete {
            return self.reset_for(now_ms, id, ErrorCode::Protocol, output);
        }
        stream.peer_done = ends;
        if kind == SectionKind::Response {
            if !is_interim {
                stream.has_head = true;
                stream.content_left = fields.content_length().filter(|_| !ends && !stream.is_head);
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
            content_left: None,
            priority: Priority::DEFAULT,
            served: 0,
            data: T::default(),
        }
    }

    fn handle_reset<'i>(&mut self, head: FrameHead, payload: &[u8]) -> Result<Option<Event<'i, T>>, ConnectionError> {
        if self.is_idle(head.stream) {
            return Err(ConnectionError::protocol(ErrorCode::Protocol));
        }
        let code = ErrorCode::from_number(leading_number(payload));
        let closed = self.streams.remove(head.stream, PastStream::EndedByPeer);
        Ok(closed.map(|stream| Event::Reset { stream: stream.id, code, by_peer: true, data: stream.data }))
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
        for pair in payload.chunks_exact(6) {
            let value = leading_number(&pair[2..]);
            match u16::from_be_bytes([pair[0], pair[1]]) {
                setting::HEADER_TABLE_SIZE => self.must_shrink_table |= (value as usize) < TABLE_BYTES,
                setting::ENABLE_PUSH | setting::ENABLE_CONNECT_PROTOCOL | setting::NO_RFC7540_PRIORITIES
                    if value > 1 =>
                {
                    return Err(ConnectionError::protocol(ErrorCode::Protocol));
                }
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
                        return Err(ConnectionError::protocol(ErrorCode::FlowControl));
                    }
                }
                setting::MAX_FRAME_SIZE if !(PAYLOAD_BYTES_MAX as u32..1 << 24).contains(&value) => {
                    return Err(ConnectionError::protocol(ErrorCode::Protocol));
                }
                _ => {}
            }
        }
        append_frame(kind::SETTINGS, flag::ACK, 0, &[], output);
        Ok(())
    }

    fn handle_window_update<'i>(
        &mut self,
        now_ms: u64,
        head: FrameHead,
        payload: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Option<Event<'i, T>>, ConnectionError> {
        let bytes = i64::from(leading_number(payload) & 0x7fff_ffff);
        if head.stream == 0 {
            self.send_window += bytes;
            return match bytes {
                0 => Err(ConnectionError::protocol(ErrorCode::Protocol)),
                _ if self.send_window > WINDOW_BYTES_MAX => Err(ConnectionError::protocol(ErrorCode::FlowControl)),
                _ => Ok(None),
            };
        }
        if self.is_idle(head.stream) {
            return Err(ConnectionError::protocol(ErrorCode::Protocol));
        }
        let Some(stream) = self.streams.get_mut(head.stream) else { return Ok(None) };
        stream.send_window += bytes;
        match bytes {
            0 => self.reset_for(now_ms, head.stream, ErrorCode::Protocol, output),
            _ if stream.send_window > WINDOW_BYTES_MAX => {
                self.reset_for(now_ms, head.stream, ErrorCode::FlowControl, output)
            }
            _ => Ok(None),
        }
    }

    fn handle_priority_update(&mut self, payload: &[u8]) -> Result<(), ConnectionError> {
        let Some((_, value)) = payload.split_first_chunk::<4>() else {
            return Err(ConnectionError::protocol(ErrorCode::FrameSize));
        };
        match leading_number(payload) & 0x7fff_ffff {
            0 => return Err(ConnectionError::protocol(ErrorCode::Protocol)),
            // A signal for a stream that is not open is lost, which RFC 9218 §7.1 permits.
            id => {
                if let Some(stream) = self.streams.get_mut(id) {
                    stream.priority = Priority::parse(value);
                }
            }
        }
        Ok(())
    }

    /// Resets a stream because of an error of the peer (RFC 9113 §5.4.2).
    fn reset_for<'i>(
        &mut self,
        now_ms: u64,
        id: u32,
        code: ErrorCode,
        output: &mut Vec<u8>,
    ) -> Result<Option<Event<'i, T>>, ConnectionError> {
        if let Some(guard) = &mut self.guard {
            guard.handle_provoked_reset(now_ms).map_err(flood)?;
        }
        let closed = self.reset(id, code, output);
        Ok(closed.map(|data| Event::Reset { stream: id, code, by_peer: false, data }))
    }

    /// Returns credit for content that nobody reads.
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
                let error = ConnectionError { code: ErrorCode::EnhanceYourCalm, offence: Offence::Excess };
                if is_fair { Ok(()) } else { Err(error) }
            }
            _ => Ok(()),
        }
    }
}

const fn flood(flood: Flood) -> ConnectionError {
    ConnectionError { code: ErrorCode::EnhanceYourCalm, offence: Offence::Flood(flood) }
}

/// Checks the length of frames that have a fixed one: a connection error (RFC 9113 §4.2).
const fn check_size(head: FrameHead) -> Result<(), ConnectionError> {
    let is_valid = match head.kind {
        kind::SETTINGS if head.has(flag::ACK) => head.payload_bytes == 0,
        kind::SETTINGS => head.payload_bytes.is_multiple_of(6),
        kind::PING => head.payload_bytes == 8,
        kind::RST_STREAM | kind::WINDOW_UPDATE => head.payload_bytes == 4,
        kind::GOAWAY => head.payload_bytes >= 8,
        _ => true,
    };
    if is_valid { Ok(()) } else { Err(ConnectionError::protocol(ErrorCode::FrameSize)) }
}

/// Subtracts `bytes` from the declared length; at the end, none may be left (RFC 9113 §8.1.1).
const fn check_length(left: &mut Option<u64>, bytes: u64, ends: bool) -> Result<(), ErrorCode> {
    if let Some(left) = left {
        match left.checked_sub(bytes) {
            Some(rest) if !ends || rest == 0 => *left = rest,
            _ => return Err(ErrorCode::Protocol),
        }
    }
    Ok(())
}

/// Answers a PING, or reports its acknowledgement.
fn handle_ping<'i, T>(head: FrameHead, payload: &[u8], output: &mut Vec<u8>) -> Option<Event<'i, T>> {
    if head.has(flag::ACK) {
        return payload.first_chunk().map(|bytes| Event::Acknowledged(u64::from_be_bytes(*bytes)));
    }
    append_frame(kind::PING, flag::ACK, 0, payload, output);
    None
}

const _: () = assert!(WINDOW_BYTES as i64 <= WINDOW_BYTES_MAX);
