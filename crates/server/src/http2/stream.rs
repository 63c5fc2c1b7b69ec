//! States of a stream.

use super::content::StreamIntake;
use crate::exchange::pending::PendingResponse;
use crate::exchange::record::ExchangeRecord;
use crate::exchange::streamed::StreamedResponse;
use flatout_access_log::Staged;
use flatout_handler::Reply;
use flatout_handler::content::Interims;
use flatout_handler::response::Segment;
use flatout_handler::stream::MessageEnd;
use flatout_http::http2::window::StreamCount;
use std::collections::VecDeque;

/// An open stream. A response in memory that the windows permit is sent at once, so its stream never has a state.
#[derive(Default)]
pub(super) enum ServerStream {
    /// It is being handled, or its response is complete while content may still arrive.
    #[default]
    Idle,
    /// Its request's content is discarded, to find its end.
    Receiving(Box<Receiving>),
    /// Its response is pending.
    Pending(Box<PendingStream>),
    /// Its response is being sent.
    Sending(Box<Sending>),
    /// Its response is streamed.
    Streaming(Box<Streaming>),
}

/// A request whose content is discarded, with the response that follows.
pub(super) struct Receiving {
    pub(super) reply: Reply,
    /// Interim responses of a later reply.
    pub(super) interims: Option<Interims>,
    pub(super) record: ExchangeRecord,
    pub(super) received_bytes: u64,
    pub(super) count: StreamCount,
    /// When the content must be complete.
    pub(super) deadline_ms: u64,
}

/// A request whose response is pending.
pub(super) struct PendingStream {
    pub(super) response: PendingResponse,
    /// The request's content, if the handler took it.
    pub(super) intake: Option<StreamIntake>,
}

/// A response whose content is known.
pub(super) struct Sending {
    pub(super) segments: VecDeque<Segment>,
    pub(super) remaining_bytes: u64,
    pub(super) staged: Staged,
}

/// A response whose content is still arriving.
pub(super) struct Streaming {
    pub(super) response: StreamedResponse,
    /// The piece that is being sent.
    pub(super) segment: Option<Segment>,
    /// The end of the source.
    pub(super) ended: Option<MessageEnd>,
    /// The request's content, which may still be arriving.
    pub(super) intake: Option<StreamIntake>,
}

impl ServerStream {
    /// Returns whether content waits for the client's windows or the socket.
    pub(super) const fn is_sending(&self) -> bool {
        match self {
            Self::Sending(_) => true,
            // A slow source is not the client's fault.
            Self::Streaming(streaming) => streaming.segment.is_some(),
            Self::Idle | Self::Receiving(_) | Self::Pending(_) => false,
        }
    }

    /// The request's content, if its handler takes it.
    pub(super) const fn intake_mut(&mut self) -> Option<&mut StreamIntake> {
        match self {
            Self::Pending(pending) => pending.intake.as_mut(),
            Self::Streaming(streaming) => streaming.intake.as_mut(),
            Self::Idle | Self::Receiving(_) | Self::Sending(_) => None,
        }
    }

    /// When the client must have sent more of the content; `u64::MAX` if none is awaited. After the response has
    /// started, its handler and the client decide how long the rest takes.
    pub(super) fn content_deadline_ms(&self) -> u64 {
        match self {
            Self::Receiving(receiving) => receiving.deadline_ms,
            Self::Pending(pending) => pending.intake.as_ref().map_or(u64::MAX, StreamIntake::deadline_ms),
            Self::Idle | Self::Sending(_) | Self::Streaming(_) => u64::MAX,
        }
    }
}
