//! Handling of bytes received on unidirectional streams: stream types, the control stream, and the two QPACK streams
//! (RFC 9114 §6.2, RFC 9204 §4.2).

use super::requests::{Handled, StreamInput};
use super::{Connection, Event};
use crate::http2::connection::Role;
use crate::http2::priority::Priority;
use crate::http3::error::ConnectionError;
use crate::http3::flood::FloodGuard;
use crate::http3::frame::{FrameHead, HeadReader, kind, setting, stream_kind, take_varint};
use crate::http3::stream::FramePart;

/// Maximum payload of a frame on the control stream that this side handles, in bytes. Longer priorities and settings
/// serve no purpose.
const PAYLOAD_BYTES_MAX: u64 = 1024;

/// Maximum number of priorities that are stored for streams that have not arrived.
const EARLY_PRIORITIES_MAX: usize = 16;

/// The type of a unidirectional stream.
#[derive(Clone, Debug)]
enum StreamUse {
    /// The type is still arriving.
    Untyped(HeadReader),
    Control,
    Encoder,
    Decoder,
}

/// The peer's unidirectional streams of known or still unknown type. QUIC limits their number.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerStreams(Vec<(u64, StreamUse)>);

impl PeerStreams {
    pub(super) fn add(&mut self, id: u64) {
        self.0.push((id, StreamUse::Untyped(HeadReader::default())));
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut StreamUse> {
        self.0.iter_mut().find(|(other, _)| *other == id).map(|(_, stream_use)| stream_use)
    }

    /// Handles the end of a stream.
    pub(super) fn remove(&mut self, id: u64) -> Result<(), ConnectionError> {
        let Some(index) = self.0.iter().position(|(other, _)| *other == id) else { return Ok(()) };
        match self.0.swap_remove(index).1 {
            StreamUse::Untyped(_) => Ok(()),
            StreamUse::Control | StreamUse::Encoder | StreamUse::Decoder => Err(ConnectionError::CriticalStreamClosed),
        }
    }

    /// Sets the type of a stream. The peer may open only one stream of each type.
    fn set_type(&mut self, id: u64, stream_type: u64, role: Role) -> Result<(), ConnectionError> {
        let stream_use = match stream_type {
            stream_kind::CONTROL => StreamUse::Control,
            stream_kind::ENCODER => StreamUse::Encoder,
            stream_kind::DECODER => StreamUse::Decoder,
            stream_kind::PUSH if role == Role::Server => return Err(ConnectionError::PushStream),
            stream_kind::PUSH => return Err(ConnectionError::PushForbidden),
            // Unknown types are ignored (RFC 9114 §6.2).
            _ => return self.remove(id),
        };
        let is_same = |other: &StreamUse| std::mem::discriminant(other) == std::mem::discriminant(&stream_use);
        if self.0.iter().any(|(_, other)| is_same(other)) {
            return Err(ConnectionError::StreamRepeated);
        }
        if let Some(stream) = self.get_mut(id) {
            *stream = stream_use;
        }
        Ok(())
    }
}

/// Reader of the frames on the control stream.
#[derive(Clone, Debug, Default)]
pub(super) struct ControlReader {
    head: HeadReader,
    /// The head of the frame whose payload is arriving, and the number of payload bytes still to come.
    frame: Option<(FrameHead, u64)>,
    payload: Vec<u8>,
}

impl<T: Default> Connection<T> {
    pub(super) fn handle_unidirectional<'i>(
        &mut self,
        now_ms: u64,
        id: u64,
        mut input: StreamInput<'_, 'i>,
    ) -> Handled<'i, T> {
        if let Some(StreamUse::Untyped(reader)) = self.peer_streams.get_mut(id)
            && let Some(stream_type) = reader.take_with(input.bytes, take_varint)
        {
            self.peer_streams.set_type(id, stream_type, self.role)?;
        }
        let event = match self.peer_streams.get_mut(id) {
            Some(StreamUse::Control) => self.handle_control(now_ms, input.bytes)?,
            Some(StreamUse::Encoder) => {
                let guard = &mut self.guard;
                let admits = || admits_instruction(guard, now_ms);
                self.decoder.handle_instructions(input.bytes, admits, &mut self.decoder_output)?;
                input.clear();
                self.note_unblocked();
                self.next_unblocked()
            }
            Some(StreamUse::Decoder) => {
                let guard = &mut self.guard;
                self.feedback.handle(input.bytes, || admits_instruction(guard, now_ms))?;
                input.clear();
                None
            }
            Some(StreamUse::Untyped(_)) | None => {
                input.clear();
                None
            }
        };
        if event.is_none() && input.fin {
            self.peer_streams.remove(id)?;
        }
        Ok(event)
    }

    /// Queues the blocked streams for which enough entries have been inserted.
    fn note_unblocked(&mut self) {
        if self.blocked == 0 {
            return;
        }
        let inserted = self.decoder.insert_count();
        for stream in self.streams.iter_mut() {
            if let FramePart::Blocked { required } = &mut stream.frame
                && (1..=inserted).contains(required)
            {
                // 0 marks streams that are queued already, so that each is reported only once.
                *required = 0;
                self.unblocked.push_back(stream.id);
            }
        }
    }

    fn next_unblocked<'i>(&mut self) -> Option<Event<'i, T>> {
        while let Some(id) = self.unblocked.pop_front() {
            if self.streams.get(id).is_some_and(|stream| matches!(stream.frame, FramePart::Blocked { .. })) {
                return Some(Event::Unblocked { stream: id });
            }
        }
        None
    }

    fn handle_control<'i>(
        &mut self,
        now_ms: u64,
        input: &mut &'i [u8],
    ) -> Result<Option<Event<'i, T>>, ConnectionError> {
        loop {
            let (head, left) = if let Some(frame) = self.control.frame {
                frame
            } else {
                let Some(head) = self.control.head.take(input) else { return Ok(None) };
                self.check_control_head(now_ms, head)?;
                (head, head.payload_bytes)
            };
            let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
            let (piece, rest) = input.split_at(bytes);
            *input = rest;
            if is_handled(head.kind) {
                self.control.payload.extend_from_slice(piece);
            }
            let left = left - piece.len() as u64;
            self.control.frame = (left > 0).then_some((head, left));
            if left > 0 {
                return Ok(None);
            }
            let payload = std::mem::take(&mut self.control.payload);
            if let Some(event) = self.handle_control_frame(head.kind, &payload)? {
                return Ok(Some(event));
            }
        }
    }

    /// Checks whether a frame with this head is allowed on the control stream (RFC 9114 §7.2).
    fn check_control_head(&mut self, now_ms: u64, head: FrameHead) -> Result<(), ConnectionError> {
        let is_client = self.role == Role::Client;
        match head.kind {
            kind::SETTINGS if self.has_begun => return Err(ConnectionError::SettingsRepeated),
            kind::SETTINGS => {}
            _ if !self.has_begun => return Err(ConnectionError::MissingSettings),
            kind::DATA | kind::HEADERS | kind::PUSH_PROMISE => return Err(ConnectionError::ControlFrame),
            kind::MAX_PUSH_ID | kind::PRIORITY_UPDATE_REQUEST | kind::PRIORITY_UPDATE_PUSH if is_client => {
                return Err(ConnectionError::ControlFrame);
            }
            other if kind::is_of_http2(other) => return Err(ConnectionError::Http2Frame),
            _ => {
                if let Some(guard) = &mut self.guard {
                    guard.handle_other(now_ms)?;
                }
            }
        }
        if is_handled(head.kind) && head.payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(ConnectionError::FrameExcess);
        }
        Ok(())
    }

    fn handle_control_frame<'i>(
        &mut self,
        frame_kind: u64,
        payload: &[u8],
    ) -> Result<Option<Event<'i, T>>, ConnectionError> {
        match frame_kind {
            kind::SETTINGS => {
                self.handle_settings(payload)?;
                return Ok(Some(Event::Settings));
            }
            kind::GOAWAY => return self.handle_goaway(take_identifier(payload)?),
            kind::MAX_PUSH_ID => {
                let id = take_identifier(payload)?;
                if self.max_push_id.is_some_and(|last| id < last) {
                    return Err(ConnectionError::MaxPushIdDecreased);
                }
                self.max_push_id = Some(id);
            }
            kind::CANCEL_PUSH => {
                take_identifier(payload)?;
                // This side promises no pushes.
                return Err(ConnectionError::PushId);
            }
            kind::PRIORITY_UPDATE_REQUEST | kind::PRIORITY_UPDATE_PUSH => {
                self.handle_priority_update(frame_kind, payload)?;
            }
            // Unknown types are ignored (RFC 9114 §9).
            _ => {}
        }
        Ok(None)
    }

    fn handle_settings(&mut self, mut payload: &[u8]) -> Result<(), ConnectionError> {
        let mut identifiers = Vec::new();
        while !payload.is_empty() {
            let (Some(id), Some(value)) = (take_varint(&mut payload), take_varint(&mut payload)) else {
                return Err(ConnectionError::FrameLength);
            };
            identifiers.push(id);
            match id {
                setting::MAX_FIELD_SECTION_SIZE => self.peer.section_bytes_max = value,
                setting::ENABLE_CONNECT_PROTOCOL if value > 1 => return Err(ConnectionError::SettingValue),
                setting::ENABLE_CONNECT_PROTOCOL => self.peer.connect_protocol = value == 1,
                other if setting::is_of_http2(other) => return Err(ConnectionError::SettingReserved),
                _ => {}
            }
        }
        identifiers.sort_unstable();
        if identifiers.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(ConnectionError::SettingRepeated);
        }
        self.has_begun = true;
        Ok(())
    }

    fn handle_goaway<'i>(&mut self, id: u64) -> Result<Option<Event<'i, T>>, ConnectionError> {
        let is_client = self.role == Role::Client;
        if is_client && !id.is_multiple_of(4) {
            return Err(ConnectionError::GoawayId);
        }
        if self.goaway_received.is_some_and(|last| id > last) {
            return Err(ConnectionError::GoawayIncreased);
        }
        self.goaway_received = Some(id);
        // A client's GOAWAY refers to pushes, and there are none.
        Ok(is_client.then_some(Event::GoAway { id }))
    }

    fn handle_priority_update(&mut self, frame_kind: u64, mut payload: &[u8]) -> Result<(), ConnectionError> {
        let id = take_varint(&mut payload).ok_or(ConnectionError::FrameLength)?;
        // There are no pushes.
        if frame_kind == kind::PRIORITY_UPDATE_PUSH || !id.is_multiple_of(4) {
            return Err(ConnectionError::PriorityId);
        }
        let priority = Priority::parse(payload);
        if let Some(stream) = self.streams.get_mut(id) {
            (stream.priority, stream.is_reprioritized) = (priority, true);
        } else if id >= self.next_peer_request {
            self.early_priorities.retain(|(other, _)| *other != id);
            if self.early_priorities.len() == EARLY_PRIORITIES_MAX {
                self.early_priorities.pop_front();
            }
            self.early_priorities.push_back((id, priority));
        }
        Ok(())
    }
}

/// Returns whether the payload of this type of control frame is handled.
const fn is_handled(frame_kind: u64) -> bool {
    matches!(
        frame_kind,
        kind::SETTINGS
            | kind::GOAWAY
            | kind::MAX_PUSH_ID
            | kind::CANCEL_PUSH
            | kind::PRIORITY_UPDATE_REQUEST
            | kind::PRIORITY_UPDATE_PUSH
    )
}

/// Parses a payload that consists of a single identifier.
fn take_identifier(mut payload: &[u8]) -> Result<u64, ConnectionError> {
    let id = take_varint(&mut payload).filter(|_| payload.is_empty());
    id.ok_or(ConnectionError::FrameLength)
}

fn admits_instruction(guard: &mut Option<FloodGuard>, now_ms: u64) -> bool {
    guard.as_mut().is_none_or(|guard| guard.handle_instruction(now_ms))
}
