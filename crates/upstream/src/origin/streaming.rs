//! Body of an HTTP/1.1 response that did not arrive completely with its head.

use super::body::IncomingPiece;
use super::client::OriginShared;
use super::failure::{ExchangeFailure, OriginFailure, Repeat};
use super::pool::{Connection, OriginPool};
use super::upload::Http1Upload;
use crate::upload::UploadState;
use flatout_handler::shared::SharedBytes;
use flatout_http::body::BodyDecoder;
use flatout_http::framing::Framing;
use flatout_http::limits::Limits;
use flatout_http::refusal::Refusal;
use flatout_net::task_deadlines::DeadlineTimer;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Minimum size in bytes of a receive after which the next receive goes to its own buffer, in order to avoid a copy.
const LARGE_BYTES: usize = 16 * 1024;

/// Received bytes that have not been decoded yet.
#[derive(Debug)]
pub(super) struct Received(Option<SharedBytes>);

impl Received {
    pub(super) fn new(bytes: SharedBytes) -> Self {
        Self(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

/// A body that is being received.
#[derive(Debug)]
pub(super) struct Streaming {
    pub(super) shared: Rc<OriginShared>,
    pub(super) pool: Rc<OriginPool>,
    /// The connection; `None` after the body has ended.
    pub(super) connection: Option<Connection>,
    pub(super) decoder: BodyDecoder,
    pub(super) received: Received,
    /// Number of bytes of the last receive.
    pub(super) received_bytes: usize,
    /// The unsent rest of the request, if the origin responded before it had received all of it.
    pub(super) upload: Option<Box<Http1Upload>>,
    pub(super) persistent: bool,
    /// How long the origin keeps the connection open while it is idle, in milliseconds.
    pub(super) keep_alive_ms: u64,
    /// True if the body is complete and its last bytes have been returned.
    pub(super) ended: bool,
    pub(super) timer: DeadlineTimer,
    /// Timeout for each further piece of the body, in milliseconds.
    pub(super) piece_timeout_ms: u64,
}

impl Streaming {
    /// Polls for the next piece. Must not be called after the last.
    pub(super) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<IncomingPiece> {
        if self.ended {
            return Poll::Ready(IncomingPiece::End(take_trailers(&self.decoder)));
        }
        self.poll_upload(context);
        loop {
            if let Some(piece) = self.decode() {
                self.timer.clear();
                return Poll::Ready(piece);
            }
            match self.poll_receive(context) {
                Poll::Ready(Ok(bytes)) if !bytes.is_empty() => {
                    self.shared.counts.bytes_received.add(bytes.len() as u64);
                    self.timer.clear();
                    self.received_bytes = bytes.len();
                    self.received = Received::new(bytes);
                }
                Poll::Ready(Ok(_)) if self.decoder.ends_with_connection() => {
                    self.ended = true;
                    self.connection = None;
                    return Poll::Ready(IncomingPiece::End(None));
                }
                Poll::Ready(_) => return Poll::Ready(self.cut()),
                Poll::Pending => break,
            }
        }
        if !self.timer.is_waiting() {
            self.timer.begin(self.piece_timeout_ms);
        }
        if self.timer.poll_expired(context).is_ready() {
            return Poll::Ready(self.fail(ExchangeFailure::new(OriginFailure::BodyTimeout, Repeat::Never)));
        }
        Poll::Pending
    }

    /// Receives once. The result is empty at the end of the connection. Large pieces are received into their own
    /// buffer, and small pieces are copied from the shared buffer, so that a small piece takes no more memory than it
    /// needs.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<SharedBytes>> {
        let Some(Connection { transport, .. }) = &mut self.connection else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let shared = &self.shared;
        let bytes_max = shared.receive_bytes_max();
        if self.received_bytes >= LARGE_BYTES
            && let Some(polled) = transport.poll_receive_buffer(context, bytes_max)
        {
            return polled.map_ok(|mut buffer| {
                if buffer.len() < LARGE_BYTES {
                    buffer.shrink_to_fit();
                }
                SharedBytes::counted(buffer, &shared.budget)
            });
        }
        let mut input = shared.input.borrow_mut();
        transport.poll_receive(context, &mut input[..bytes_max]).map_ok(|count| shared.copy(&input[..count]))
    }

    /// Continues sending the request while its response is read. If that fails, the response is not affected.
    fn poll_upload(&mut self, context: &mut Context<'_>) {
        let (Some(upload), Some(connection)) = (&mut self.upload, &mut self.connection) else { return };
        match upload.advance(&self.shared, &mut connection.transport, context) {
            Ok(UploadState::Client | UploadState::Continue | UploadState::Server(_)) => {}
            Ok(UploadState::Done) => self.upload = None,
            Ok(UploadState::Closed) | Err(_) => {
                self.upload = None;
                self.persistent = false;
            }
        }
    }

    /// Decodes the next piece from the received bytes. Returns `None` if more bytes are needed.
    fn decode(&mut self) -> Option<IncomingPiece> {
        let mut received = self.received.0.take()?;
        loop {
            let step = match self.decoder.decode(&received) {
                Ok(step) => step,
                Err(refusal) => return Some(self.fail(ExchangeFailure::body(refusal))),
            };
            let data =
                (step.data_bytes > 0).then(|| received.slice(step.data_start..step.data_start + step.data_bytes));
            received.advance(step.consumed);
            if step.done {
                self.finish(!received.is_empty());
            }
            if let Some(data) = data {
                self.received = Received::new(received);
                return Some(IncomingPiece::Bytes(data));
            }
            if step.done {
                return Some(IncomingPiece::End(take_trailers(&self.decoder)));
            }
            if received.is_empty() {
                return None;
            }
        }
    }

    /// Handles the end of the body: pools the connection, unless the request has not been sent completely or surplus
    /// bytes have arrived.
    fn finish(&mut self, has_surplus: bool) {
        self.ended = true;
        let connection = self.connection.take();
        if let Some(connection) = connection
            && self.persistent
            && self.upload.is_none()
            && !has_surplus
        {
            self.pool.check_in(&self.shared, connection, self.keep_alive_ms);
        }
    }

    fn cut(&mut self) -> IncomingPiece {
        self.fail(ExchangeFailure::new(OriginFailure::CutBody, Repeat::Never))
    }

    fn fail(&mut self, failure: ExchangeFailure) -> IncomingPiece {
        self.connection = None;
        self.shared.counts.add_failure(failure.failure);
        IncomingPiece::Failed(failure)
    }
}

/// Returns the trailer lines of a complete body, if it has any.
fn take_trailers(decoder: &BodyDecoder) -> Option<Rc<[u8]>> {
    Some(decoder.trailers()).filter(|lines| !lines.is_empty()).map(Into::into)
}

/// A body that arrived completely with its head.
pub(super) struct Whole {
    pub(super) content: SharedBytes,
    pub(super) trailers: Option<Rc<[u8]>>,
    /// True if more bytes arrived than belong to the body.
    pub(super) has_surplus: bool,
}

/// Decodes a body that is completely contained in `bytes`. Returns `None` if more bytes are needed.
///
/// # Errors
/// Fails if `bytes` violate the framing.
pub(super) fn decode_whole(framing: Framing, bytes: &SharedBytes, limits: &Limits) -> Result<Option<Whole>, Refusal> {
    let (length, has_surplus) = match framing {
        Framing::None => (0, !bytes.is_empty()),
        Framing::Length(length) => match usize::try_from(length).ok().filter(|&length| length <= bytes.len()) {
            Some(length) => (length, length < bytes.len()),
            None => return Ok(None),
        },
        Framing::Chunked => return decode_whole_chunks(bytes, limits),
        Framing::UntilClose => return Ok(None),
    };
    Ok(Some(Whole { content: bytes.slice(0..length), trailers: None, has_surplus }))
}

/// Decodes a chunked body that is completely contained in `bytes`. A single chunk, as in most small bodies, is not
/// copied.
fn decode_whole_chunks(bytes: &SharedBytes, limits: &Limits) -> Result<Option<Whole>, Refusal> {
    let Some(mut decoder) = BodyDecoder::of_response(Framing::Chunked, limits) else { return Ok(None) };
    // If this is false, the end has not arrived, and joining the chunks would be wasted work.
    let may_be_whole = bytes.ends_with(b"\r\n\r\n");
    let (mut used, mut first, mut joined) = (0, None, Vec::new());
    while used < bytes.len() {
        let step = decoder.decode(&bytes[used..])?;
        let data = used + step.data_start..used + step.data_start + step.data_bytes;
        used += step.consumed;
        if !data.is_empty() && may_be_whole {
            match &first {
                None => first = Some(data),
                Some(first) => {
                    if joined.is_empty() {
                        joined.extend_from_slice(&bytes[first.clone()]);
                    }
                    joined.extend_from_slice(&bytes[data]);
                }
            }
        }
        if step.done {
            if !may_be_whole {
                // Surplus bytes follow the end.
                return Ok(None);
            }
            let content = match first {
                Some(_) if !joined.is_empty() => SharedBytes::from(joined),
                Some(first) => bytes.slice(first),
                None => bytes.slice(0..0),
            };
            let trailers = take_trailers(&decoder);
            return Ok(Some(Whole { content, trailers, has_surplus: used < bytes.len() }));
        }
    }
    Ok(None)
}
