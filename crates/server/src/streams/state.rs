//! The states of a stream.

use super::content::StreamIntake;
use super::tunnel::{TunnelInput, TunnelStream};
use crate::exchange::pace::Pace;
use crate::exchange::pending::PendingResponse;
use crate::exchange::record::ExchangeRecord;
use crate::exchange::streamed::StreamedResponse;
use flatout_access_log::Staged;
use flatout_handler::Reply;
use flatout_handler::content::Interims;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::Segment;
use flatout_handler::stream::MessageEnd;
use std::collections::VecDeque;

/// An open stream. A response in memory for which the windows have room is sent immediately, so its stream never has a
/// state other than idle.
#[derive(Default)]
pub(crate) enum ServerStream {
    /// The request is being handled, or its response is complete while content may still arrive.
    #[default]
    Idle,
    /// The content of the request is received and discarded, to find its end.
    Receiving(Box<Receiving>),
    /// The response is pending.
    Pending(Box<PendingStream>),
    /// The response is being sent.
    Sending(Box<Sending>),
    /// The response is streamed.
    Streaming(Box<Streaming>),
    /// The stream is a tunnel.
    Tunnel(Box<TunnelStream>),
}

/// A request whose content is discarded, and the reply that follows.
pub(crate) struct Receiving {
    pub(super) reply: Reply,
    /// Interim responses that precede the reply.
    pub(super) interims: Option<Interims>,
    pub(super) record: ExchangeRecord,
    pub(super) received_bytes: u64,
    pub(super) pace: Pace,
    /// When the round must be complete, in milliseconds on the monotonic clock.
    pub(super) deadline_ms: u64,
}

/// A request whose response is pending.
pub(crate) struct PendingStream {
    pub(super) response: PendingResponse,
    /// The request's content, if the handler took it.
    pub(super) intake: Option<StreamIntake>,
    /// For an extended CONNECT: the bytes that the client has sent already.
    pub(super) tunnel: Option<TunnelInput>,
}

/// A response whose content is available.
pub(crate) struct Sending {
    pub(super) segments: VecDeque<Segment>,
    pub(super) remaining_bytes: u64,
    pub(super) staged: Staged,
    /// When the client last accepted content, or the content began to wait for it, in milliseconds.
    pub(super) moved_ms: u64,
}

/// A response whose content is still arriving.
pub(crate) struct Streaming {
    pub(super) response: StreamedResponse,
    /// The piece that is being sent.
    pub(super) segment: Option<Segment>,
    /// The end of the content, or the reason it will never be complete, if the source has reported either.
    pub(super) ended: Option<Result<MessageEnd, CloseReason>>,
    /// The request's content, which may still be arriving.
    pub(super) intake: Option<StreamIntake>,
    /// When the client last accepted content, or the piece began to wait for it, in milliseconds.
    pub(super) moved_ms: u64,
}

impl ServerStream {
    /// Returns since when content has been waiting for the client, in milliseconds, or `None` if none is.
    pub(super) fn waiting_since_ms(&self) -> Option<u64> {
        let moved_ms = match self {
            Self::Sending(sending) => sending.moved_ms,
            Self::Streaming(streaming) => streaming.moved_ms,
            Self::Tunnel(tunnel) => tunnel.moved_ms,
            Self::Idle | Self::Receiving(_) | Self::Pending(_) => return None,
        };
        self.is_sending().then_some(moved_ms)
    }

    /// Records that the client has accepted content.
    pub(super) fn note_moved(&mut self, now_ms: u64) {
        match self {
            Self::Sending(sending) => sending.moved_ms = now_ms,
            Self::Streaming(streaming) => streaming.moved_ms = now_ms,
            Self::Tunnel(tunnel) => tunnel.moved_ms = now_ms,
            Self::Idle | Self::Receiving(_) | Self::Pending(_) => {}
        }
    }

    /// Returns whether content waits for the client's windows or the socket.
    pub(crate) const fn is_sending(&self) -> bool {
        match self {
            Self::Sending(_) => true,
            // The client is not responsible for a slow source.
            Self::Streaming(streaming) => streaming.segment.is_some(),
            Self::Tunnel(tunnel) => tunnel.is_sending(),
            Self::Idle | Self::Receiving(_) | Self::Pending(_) => false,
        }
    }

    /// Returns the request content that the handler takes, if any.
    pub(super) const fn intake_mut(&mut self) -> Option<&mut StreamIntake> {
        match self {
            Self::Pending(pending) => pending.intake.as_mut(),
            Self::Streaming(streaming) => streaming.intake.as_mut(),
            Self::Idle | Self::Receiving(_) | Self::Sending(_) | Self::Tunnel(_) => None,
        }
    }

    /// Returns the input of a tunnel, or of an extended CONNECT whose response is pending.
    pub(super) fn tunnel_input_mut(&mut self) -> Option<&mut TunnelInput> {
        match self {
            Self::Pending(pending) => pending.tunnel.as_mut(),
            Self::Tunnel(tunnel) => Some(&mut tunnel.input),
            Self::Idle | Self::Receiving(_) | Self::Sending(_) | Self::Streaming(_) => None,
        }
    }

    /// Returns when the client must have sent more content, or `u64::MAX` if no content is awaited. After the response
    /// has begun, its handler and the client decide how long the rest takes.
    pub(crate) fn content_deadline_ms(&self) -> u64 {
        match self {
            Self::Receiving(receiving) => receiving.deadline_ms,
            Self::Pending(pending) => pending.intake.as_ref().map_or(u64::MAX, StreamIntake::deadline_ms),
            Self::Idle | Self::Sending(_) | Self::Streaming(_) | Self::Tunnel(_) => u64::MAX,
        }
    }
}
