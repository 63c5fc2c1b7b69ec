//! Handling of bytes received on request streams.

use super::{Connection, UNIDIRECTIONAL_BIT};
use crate::http2::connection::Role;
use crate::http2::error::{StreamError, check_length};
use crate::http2::fields::{FieldBlock, SectionKind};
use crate::http2::priority::Priority;
use crate::http3::error::{ConnectionError, ErrorCode};
use crate::http3::frame::{FrameHead, kind};
use crate::http3::qpack::{BLOCKED_STREAMS_MAX, append_acknowledgment};
use crate::http3::stream::{FramePart, MessagePart};
use crate::status::has_content;

/// A change that the caller has to handle.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'i, T> {
    /// A request arrived, whose fields are in the field block.
    Request {
        /// The stream identifier.
        stream: u64,
        /// True if no content follows.
        ends: bool,
    },
    /// A final or interim response head arrived, whose fields are in the field block.
    Response {
        /// The stream identifier.
        stream: u64,
        /// True if no content follows.
        ends: bool,
    },
    /// Content arrived.
    Data {
        /// The stream identifier.
        stream: u64,
        /// The content. Empty only at the end of the message.
        bytes: &'i [u8],
        /// True if this is the end of the message.
        ends: bool,
    },
    /// Trailers arrived, which end the message. Their fields are in the field block. The end of the stream may follow
    /// without a further event.
    Trailers {
        /// The stream identifier.
        stream: u64,
    },
    /// A stream was closed before it ended.
    Reset {
        /// The stream identifier.
        stream: u64,
        /// The error code.
        code: ErrorCode,
        /// The peer's error because of which the caller must reset and stop the stream, or `None` if the peer reset the
        /// stream.
        error: Option<StreamError>,
        /// The caller's state of the stream.
        data: T,
    },
    /// The server needs no more of a request (STOP_SENDING), and its response may follow. Only for clients.
    Stopped {
        /// The stream identifier.
        stream: u64,
        /// The error code.
        code: ErrorCode,
    },
    /// A request is malformed (RFC 9114 §4.1.2). Its fields are in the field block. The stream is closed, and the
    /// caller must reset and stop it.
    Rejected {
        /// The stream identifier.
        stream: u64,
        /// The client's error.
        error: StreamError,
    },
    /// A stream is no longer blocked. The caller must pass the rest of its input again, even if it is empty.
    Unblocked {
        /// The stream identifier.
        stream: u64,
    },
    /// The peer's settings have arrived.
    Settings,
    /// The server accepts no more requests, and has not handled any request from `id` on.
    GoAway {
        /// The lowest identifier of a request that the server has not handled.
        id: u64,
    },
}

pub(super) type Handled<'i, T> = Result<Option<Event<'i, T>>, ConnectionError>;

/// Received bytes of a stream. Handled bytes are removed.
pub(super) struct StreamInput<'a, 'i> {
    pub(super) bytes: &'a mut &'i [u8],
    /// True if the stream ends after `bytes`.
    pub(super) fin: bool,
}

impl<'i> StreamInput<'_, 'i> {
    /// Takes up to `count` bytes.
    fn take(&mut self, count: u64) -> &'i [u8] {
        let (piece, rest) = self.bytes.split_at(usize::try_from(count).unwrap_or(usize::MAX).min(self.bytes.len()));
        *self.bytes = rest;
        piece
    }

    /// Drops all bytes.
    pub(super) const fn clear(&mut self) {
        *self.bytes = &[];
    }

    /// Returns whether the stream ends here, with no bytes left.
    const fn is_at_end(&self) -> bool {
        self.bytes.is_empty() && self.fin
    }
}

impl<T: Default> Connection<T> {
    /// Handles received bytes of a stream up to the next event and removes the bytes used. `fin` is true if the stream
    /// ends after `input`. The caller repeats the call until it returns no event.
    ///
    /// If some of `input` is left then, the stream is blocked because QPACK insertions are missing. The caller keeps
    /// the rest until [`Event::Unblocked`]. Bytes of streams that are not open are dropped.
    ///
    /// # Errors
    /// The peer violated a rule, and the caller must close the connection.
    pub fn handle<'i>(
        &mut self,
        now_ms: u64,
        id: u64,
        input: &mut &'i [u8],
        fin: bool,
        fields: &mut FieldBlock,
    ) -> Handled<'i, T> {
        let mut input = StreamInput { bytes: input, fin };
        if self.has_failed {
            input.clear();
            return Ok(None);
        }
        let handled = if id & UNIDIRECTIONAL_BIT == 0 {
            self.handle_request_stream(now_ms, id, &mut input, fields)
        } else {
            self.handle_unidirectional(now_ms, id, input)
        };
        handled.inspect_err(|_| self.has_failed = true)
    }

    /// Handles a stream that the peer has reset.
    ///
    /// # Errors
    /// The connection needs the stream, or the client resets too many streams.
    pub fn handle_reset(&mut self, now_ms: u64, id: u64, code: u64) -> Handled<'static, T> {
        let handled = if id & UNIDIRECTIONAL_BIT == 0 {
            self.close_for_peer(now_ms, id, code)
        } else {
            self.peer_streams.remove(id).map(|()| None)
        };
        handled.inspect_err(|_| self.has_failed = true)
    }

    /// Handles a stream of which the peer wants to receive no more (STOP_SENDING).
    ///
    /// # Errors
    /// The connection needs the stream, or the client stops too many streams.
    pub fn handle_stopped(&mut self, now_ms: u64, id: u64, code: u64) -> Handled<'static, T> {
        if id & UNIDIRECTIONAL_BIT != 0 {
            // All unidirectional streams of this side are needed by the connection.
            self.has_failed |= self.is_own(id);
            return if self.is_own(id) { Err(ConnectionError::CriticalStreamClosed) } else { Ok(None) };
        }
        match self.streams.get_mut(id) {
            Some(stream) if stream.own_done => Ok(None),
            Some(stream) if self.role == Role::Client => {
                stream.own_done = true;
                Ok(Some(Event::Stopped { stream: id, code: ErrorCode::from_number(code) }))
            }
            _ => self.close_for_peer(now_ms, id, code).inspect_err(|_| self.has_failed = true),
        }
    }

    fn close_for_peer(&mut self, now_ms: u64, id: u64, code: u64) -> Handled<'static, T> {
        let Some(stream) = self.remove(id) else { return Ok(None) };
        if let Some(guard) = &mut self.guard {
            guard.handle_reset(now_ms)?;
        }
        Ok(Some(Event::Reset { stream: id, code: ErrorCode::from_number(code), error: None, data: stream.data }))
    }

    /// Closes a stream because of an error of the peer (RFC 9114 §8).
    fn reset_for<'i>(&mut self, now_ms: u64, id: u64, error: StreamError) -> Handled<'i, T> {
        debug_assert!(error.is_of_http3(), "{error:?}");
        if let Some(guard) = &mut self.guard {
            guard.handle_provoked_reset(now_ms)?;
        }
        let closed = self.remove(id);
        let code = error.into();
        Ok(closed.map(|stream| Event::Reset { stream: id, code, error: Some(error), data: stream.data }))
    }

    fn handle_request_stream<'i>(
        &mut self,
        now_ms: u64,
        id: u64,
        input: &mut StreamInput<'_, 'i>,
        fields: &mut FieldBlock,
    ) -> Handled<'i, T> {
        loop {
            let Some(stream) = self.streams.get_mut(id).filter(|stream| !stream.peer_done) else {
                input.clear();
                return Ok(None);
            };
            match stream.frame {
                FramePart::Head if input.is_at_end() && stream.head.is_empty() => return self.handle_end(now_ms, id),
                FramePart::Head => {
                    let Some(head) = stream.head.take(input.bytes) else {
                        return if input.fin { Err(ConnectionError::FrameTruncated) } else { Ok(None) };
                    };
                    self.handle_head(now_ms, id, head, input.is_at_end())?;
                }
                FramePart::Section { left } => {
                    let event = self.handle_section_bytes(now_ms, id, left, input, fields)?;
                    if event.is_some() || input.bytes.is_empty() && !input.fin {
                        return Ok(event);
                    }
                }
                FramePart::Content { left } => {
                    let piece = input.take(left);
                    let left = left - piece.len() as u64;
                    stream.frame = if left == 0 { FramePart::Head } else { FramePart::Content { left } };
                    let is_last = input.is_at_end();
                    if is_last && left > 0 {
                        return Err(ConnectionError::FrameTruncated);
                    }
                    if let Err(error) = check_length(&mut stream.content_left, piece.len() as u64, is_last) {
                        return self.reset_for(now_ms, id, error);
                    }
                    if !piece.is_empty() {
                        stream.peer_done = is_last;
                        return Ok(Some(Event::Data { stream: id, bytes: piece, ends: is_last }));
                    }
                    if !is_last {
                        return Ok(None);
                    }
                }
                FramePart::Ignored { left } => {
                    let left = left - input.take(left).len() as u64;
                    stream.frame = if left == 0 { FramePart::Head } else { FramePart::Ignored { left } };
                    if left > 0 {
                        return if input.fin { Err(ConnectionError::FrameTruncated) } else { Ok(None) };
                    }
                }
                FramePart::Blocked { required } => {
                    if self.decoder.insert_count() < required {
                        return Ok(None);
                    }
                    let section = self.take_section(id);
                    if let Some(event) = self.handle_section(now_ms, id, &section, input.is_at_end(), fields)? {
                        return Ok(Some(event));
                    }
                }
            }
        }
    }

    /// Handles the head of a frame (RFC 9114 §7.2). `is_last` is true if the stream ends after the head.
    fn handle_head(&mut self, now_ms: u64, id: u64, head: FrameHead, is_last: bool) -> Result<(), ConnectionError> {
        let section_bytes_max = self.section_bytes_max() as u64;
        let is_client = self.role == Role::Client;
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        let left = head.payload_bytes;
        match head.kind {
            kind::DATA | kind::HEADERS if stream.message == MessagePart::End => {
                return Err(ConnectionError::AfterTrailers);
            }
            kind::DATA if stream.message == MessagePart::Head => return Err(ConnectionError::DataFirst),
            kind::DATA => {
                if left > 0 {
                    stream.frame = FramePart::Content { left };
                } else if !is_last && let Some(guard) = &mut self.guard {
                    guard.handle_empty_data(now_ms)?;
                }
            }
            kind::HEADERS if stream.message == MessagePart::Tunnel => return Err(ConnectionError::RequestFrame),
            kind::HEADERS if left > section_bytes_max => return Err(ConnectionError::SectionExcess),
            kind::HEADERS => stream.frame = FramePart::Section { left },
            kind::PUSH_PROMISE if is_client => return Err(ConnectionError::PushForbidden),
            kind::CANCEL_PUSH
            | kind::SETTINGS
            | kind::PUSH_PROMISE
            | kind::GOAWAY
            | kind::MAX_PUSH_ID
            | kind::PRIORITY_UPDATE_REQUEST
            | kind::PRIORITY_UPDATE_PUSH => return Err(ConnectionError::RequestFrame),
            other if kind::is_of_http2(other) => return Err(ConnectionError::Http2Frame),
            _ => {
                stream.frame = FramePart::Ignored { left };
                if let Some(guard) = &mut self.guard {
                    guard.handle_other(now_ms)?;
                }
            }
        }
        Ok(())
    }

    /// Handles bytes of a field section. `left` is the number of bytes of the section still to come.
    fn handle_section_bytes<'i>(
        &mut self,
        now_ms: u64,
        id: u64,
        left: u64,
        input: &mut StreamInput<'_, 'i>,
        fields: &mut FieldBlock,
    ) -> Handled<'i, T> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        let piece = input.take(left);
        let is_complete = piece.len() as u64 == left;
        let is_last = input.is_at_end();
        if is_last && !is_complete {
            return Err(ConnectionError::FrameTruncated);
        }
        if is_complete && stream.section.is_empty() {
            stream.frame = FramePart::Head;
            return self.handle_section(now_ms, id, piece, is_last, fields);
        }
        stream.section.extend_from_slice(piece);
        stream.frame = FramePart::Section { left: left - piece.len() as u64 };
        self.section_bytes += piece.len();
        if is_complete {
            let section = self.take_section(id);
            return self.handle_section(now_ms, id, &section, is_last, fields);
        }
        if self.section_bytes > self.section_bytes_max() {
            // The request has not been handled at all, so the client may retry it.
            return self.reset_for(now_ms, id, StreamError::SectionsTooLarge);
        }
        Ok(None)
    }

    /// Stores a section until the dynamic table has received `required` insertions.
    fn block(&mut self, id: u64, section: &[u8], required: u64) -> Result<(), ConnectionError> {
        if self.blocked == BLOCKED_STREAMS_MAX {
            return Err(ConnectionError::SectionsBlocked);
        }
        if let Some(stream) = self.streams.get_mut(id) {
            stream.section = section.to_vec();
            stream.frame = FramePart::Blocked { required };
            self.section_bytes += section.len();
            self.blocked += 1;
        }
        Ok(())
    }

    /// Handles a complete field section. `is_last` is true if the stream ends after the section.
    fn handle_section<'i>(
        &mut self,
        now_ms: u64,
        id: u64,
        section: &[u8],
        is_last: bool,
        fields: &mut FieldBlock,
    ) -> Handled<'i, T> {
        let required = self.decoder.required_insert_count(section).map_err(|_| ConnectionError::SectionInvalid)?;
        if required > self.decoder.insert_count() {
            self.block(id, section, required)?;
            return Ok(None);
        }
        let Some(stream) = self.streams.get(id) else { return Ok(None) };
        let kind = match (self.role, stream.message) {
            (Role::Server, MessagePart::Head) => SectionKind::Request,
            (Role::Client, MessagePart::Head) => SectionKind::Response,
            _ => SectionKind::Trailers,
        };
        fields
            .decode(&mut self.decoder, section, kind, self.config.section_bytes_max)
            .map_err(|_| ConnectionError::SectionInvalid)?;
        if required > 0 {
            append_acknowledgment(id, &mut self.decoder_output);
        }
        if fields.is_excessive() {
            return Err(ConnectionError::SectionExcess);
        }
        match kind {
            SectionKind::Request => self.handle_request(now_ms, id, is_last, fields),
            SectionKind::Response => self.handle_response(now_ms, id, is_last, fields),
            SectionKind::Trailers => self.handle_trailers(now_ms, id, is_last, fields),
        }
    }

    fn handle_request<'i>(&mut self, now_ms: u64, id: u64, ends: bool, fields: &FieldBlock) -> Handled<'i, T> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        stream.peer_done = ends;
        stream.content_left = fields.content_length();
        stream.message = if fields.is_connect() { MessagePart::Tunnel } else { MessagePart::Content };
        if !stream.is_reprioritized {
            stream.priority = fields.first("priority").map_or(Priority::DEFAULT, Priority::parse);
        }
        let is_wrong_length = ends && stream.content_left.is_some_and(|length| length > 0);
        let error = fields.malformed().or(is_wrong_length.then_some(StreamError::ContentTooShort));
        if let Some(error) = error {
            self.reset_for(now_ms, id, error)?;
            return Ok(Some(Event::Rejected { stream: id, error }));
        }
        Ok(Some(Event::Request { stream: id, ends }))
    }

    fn handle_response<'i>(&mut self, now_ms: u64, id: u64, ends: bool, fields: &FieldBlock) -> Handled<'i, T> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        let status = fields.status().unwrap_or_default();
        let is_interim = status < 200;
        // A response without content may have the Content-Length of another response (RFC 9110 §8.6).
        let has_content = !stream.is_head && has_content(status);
        let content_left = if has_content { fields.content_length() } else { Some(0) };
        let error = match fields.malformed() {
            Some(error) => Some(error),
            None if fields.is_too_large() => Some(StreamError::SectionTooLarge),
            None if is_interim && ends => Some(StreamError::InterimEnd),
            None if ends && content_left.is_some_and(|left| left > 0) => Some(StreamError::ContentTooShort),
            None => None,
        };
        if let Some(error) = error {
            return self.reset_for(now_ms, id, error);
        }
        if !is_interim {
            (stream.message, stream.content_left) = (MessagePart::Content, content_left);
            stream.peer_done = ends;
        }
        Ok(Some(Event::Response { stream: id, ends }))
    }

    fn handle_trailers<'i>(&mut self, now_ms: u64, id: u64, is_last: bool, fields: &FieldBlock) -> Handled<'i, T> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        let error = match fields.malformed() {
            Some(error) => Some(error),
            None if fields.is_too_large() => Some(StreamError::SectionTooLarge),
            None if stream.content_left.is_some_and(|left| left > 0) => Some(StreamError::ContentTooShort),
            None => None,
        };
        if let Some(error) = error {
            return self.reset_for(now_ms, id, error);
        }
        stream.message = MessagePart::End;
        stream.peer_done = is_last;
        Ok(Some(Event::Trailers { stream: id }))
    }

    /// Handles the end of a stream after a complete frame.
    fn handle_end<'i>(&mut self, now_ms: u64, id: u64) -> Handled<'i, T> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        match stream.message {
            MessagePart::Head if self.role == Role::Server => self.reset_for(now_ms, id, StreamError::Incomplete),
            // The error code for incomplete requests does not apply to responses (RFC 9114 §8.1).
            MessagePart::Head => self.reset_for(now_ms, id, StreamError::PseudoMissing),
            MessagePart::Content | MessagePart::Tunnel => {
                if stream.content_left.is_some_and(|left| left > 0) {
                    return self.reset_for(now_ms, id, StreamError::ContentTooShort);
                }
                stream.peer_done = true;
                Ok(Some(Event::Data { stream: id, bytes: &[], ends: true }))
            }
            MessagePart::End => {
                stream.peer_done = true;
                self.take_done(id);
                Ok(None)
            }
        }
    }
}
