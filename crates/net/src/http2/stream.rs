//! Requests and responses in progress: content being received, pending responses, files being sent. A response in
//! memory is never here, as it is handed to the protocol machine whole.

use super::body::{Endings, ResponseEnd, SendBody};
use super::exchange::interim_head_of;
use super::intake::{Intake, IntakeTimeouts};
use super::streaming::Streaming;
use crate::access::{Description, Staged};
use crate::content::Interims;
use crate::ending::CloseReason;
use crate::handler::{LaterResponse, LogSource, Reply};
use crate::response::{FileBody, Response, Segment};
use crate::tls::session::read_piece;
use crate::windows::WindowReader;
use flatout_http::limits::Limits;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Bytes read from a file at once: one frame.
const PIECE_BYTES: usize = 16 * 1024;

/// The data of a request retained until its response.
#[derive(Clone, Debug)]
pub(crate) struct Http2Exchange {
    pub(crate) to_head: bool,
    pub(crate) started_ns: u64,
    /// The request's log description; `None` if nothing is logged.
    pub(crate) description: Option<Description>,
    /// The log and site to record if the handler's response is never sent.
    pub(crate) source: LogSource,
}

/// An unfinished stream.
pub(crate) enum ServerStream {
    /// Its request's content is being received and discarded, to find its end.
    Receiving(Box<Receiving>),
    /// Its response is pending.
    Awaiting(Box<Awaiting>),
    /// Its response is being read and sent.
    Sending(Box<StreamSending>),
    /// Its response is streamed.
    Streaming(Box<Streaming>),
}

pub(crate) struct Receiving {
    pub(crate) content: RecvStream,
    pub(crate) windows: WindowReader,
    pub(crate) respond: SendResponse<SendBody>,
    pub(crate) reply: Reply,
    /// Interim responses of a later reply.
    pub(crate) interims: Option<Interims>,
    pub(crate) exchange: Http2Exchange,
    pub(crate) received_bytes: u64,
    /// When the content must be complete.
    pub(crate) deadline_ms: u64,
}

pub(crate) struct Awaiting {
    pub(crate) respond: SendResponse<SendBody>,
    pub(crate) response: LaterResponse,
    pub(crate) exchange: Http2Exchange,
    /// Interim responses, if the handler took the channel.
    pub(crate) interims: Option<Interims>,
    /// The request's content, if the handler took it.
    pub(crate) intake: Option<Box<Intake>>,
}

pub(crate) struct StreamSending {
    pub(crate) stream: SendStream<SendBody>,
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) remaining_bytes: u64,
    pub(crate) staged: Staged,
    /// The unread rest of the request's content.
    pub(crate) rest: Option<RecvStream>,
    pub(crate) endings: Rc<Endings>,
}

/// The result of polling a stream.
pub(crate) enum StreamProgress {
    /// It waits.
    Wait(ServerStream),
    /// It waits, and has sent something.
    Sent(ServerStream),
    /// The response is ready; the request's content may still be arriving.
    Answer(SendResponse<SendBody>, Box<Response>, Http2Exchange, Option<Box<Intake>>),
    /// Its content exceeds the limit.
    TooLarge(SendResponse<SendBody>, Http2Exchange, RecvStream),
    /// It ended before its response: the client reset it, or the connection failed.
    Cut(Http2Exchange),
    /// A streamed response has ended.
    Ended(Box<Streaming>, ResponseEnd),
    /// It is finished, or the protocol machine has the rest.
    Over,
}

impl ServerStream {
    pub(crate) fn go_on(self, limits: &Limits, timeouts: IntakeTimeouts, context: &mut Context<'_>) -> StreamProgress {
        match self {
            Self::Receiving(receiving) => receiving.go_on(limits, timeouts, context),
            Self::Awaiting(awaiting) => awaiting.go_on(timeouts, context),
            Self::Sending(sending) => sending.go_on(context),
            Self::Streaming(streaming) => streaming.go_on(timeouts, context),
        }
    }
}

impl Receiving {
    fn go_on(
        mut self: Box<Self>,
        limits: &Limits,
        timeouts: IntakeTimeouts,
        context: &mut Context<'_>,
    ) -> StreamProgress {
        loop {
            match self.content.poll_data(context) {
                Poll::Pending => return StreamProgress::Wait(ServerStream::Receiving(self)),
                Poll::Ready(Some(Ok(bytes))) => {
                    self.received_bytes += bytes.len() as u64;
                    if self.received_bytes > limits.body_bytes_max {
                        return StreamProgress::TooLarge(self.respond, self.exchange, self.content);
                    }
                    self.windows.release(&mut self.content, bytes.len());
                }
                Poll::Ready(Some(Err(_))) => return StreamProgress::Cut(self.exchange),
                Poll::Ready(None) => break,
            }
        }
        let Self { respond, reply, interims, exchange, .. } = *self;
        match reply {
            Reply::Now(response) => StreamProgress::Answer(respond, Box::new(response), exchange, None),
            Reply::Later(response) => {
                Box::new(Awaiting { respond, response, exchange, interims, intake: None }).go_on(timeouts, context)
            }
        }
    }
}

impl Awaiting {
    fn go_on(mut self: Box<Self>, timeouts: IntakeTimeouts, context: &mut Context<'_>) -> StreamProgress {
        if self.respond.poll_reset(context).is_ready() {
            return StreamProgress::Cut(self.exchange);
        }
        if self.intake.as_mut().is_some_and(|intake| !intake.go_on(timeouts, context)) {
            return StreamProgress::Cut(self.exchange);
        }
        let polled = Pin::new(&mut self.response).poll(context);
        let mut sent = false;
        if let Some(interims) = &self.interims {
            while let Poll::Ready(interim) = interims.poll_next(context) {
                if let Some(head) = interim_head_of(&interim) {
                    // Fails if the stream is gone, which the next poll of it reports.
                    sent |= self.respond.send_informational(head).is_ok();
                }
            }
        }
        match polled {
            Poll::Pending if sent => StreamProgress::Sent(ServerStream::Awaiting(self)),
            Poll::Pending => StreamProgress::Wait(ServerStream::Awaiting(self)),
            Poll::Ready(response) => {
                StreamProgress::Answer(self.respond, Box::new(response), self.exchange, self.intake)
            }
        }
    }
}

impl StreamSending {
    /// Reads and hands over as much as the client's windows and the read-ahead limit permit.
    fn go_on(mut self: Box<Self>, context: &mut Context<'_>) -> StreamProgress {
        let before = self.remaining_bytes;
        loop {
            let wanted = usize::try_from(self.remaining_bytes).unwrap_or(usize::MAX).min(PIECE_BYTES);
            self.stream.reserve_capacity(wanted);
            let mut capacity = self.stream.capacity();
            if capacity == 0 {
                match self.stream.poll_capacity(context) {
                    Poll::Ready(Some(Ok(now))) => capacity = now,
                    Poll::Ready(Some(Err(_)) | None) => return self.end(ResponseEnd::Cut),
                    Poll::Pending if self.remaining_bytes < before => {
                        return StreamProgress::Sent(ServerStream::Sending(self));
                    }
                    Poll::Pending => return StreamProgress::Wait(ServerStream::Sending(self)),
                }
            }
            if capacity == 0 {
                continue;
            }
            let piece = self.read(wanted.min(capacity)).map_err(|reason| {
                self.stream.send_reset(Reason::INTERNAL_ERROR);
                self.end(ResponseEnd::Failed(reason))
            });
            let piece = match piece {
                Ok(piece) => piece,
                Err(step) => return step,
            };
            let last = self.remaining_bytes == 0;
            let piece =
                if last { piece.last(std::mem::take(&mut self.staged)).holding(self.rest.take()) } else { piece };
            if self.stream.send_data(piece, last).is_err() {
                return if last { StreamProgress::Over } else { self.end(ResponseEnd::Cut) };
            }
            if last {
                return StreamProgress::Over;
            }
        }
    }

    /// Ends it before it was sent.
    pub(crate) fn end(&mut self, ended: ResponseEnd) -> StreamProgress {
        self.endings.add(std::mem::take(&mut self.staged), ended);
        StreamProgress::Over
    }

    /// The next piece, at most `bytes_max` bytes.
    fn read(&mut self, bytes_max: usize) -> Result<SendBody, CloseReason> {
        while self.segments.front().is_some_and(Segment::is_empty) {
            self.segments.pop_front();
        }
        // The segments hold as many bytes as declared.
        let Some(segment) = self.segments.front_mut() else { return Err(CloseReason::FileChanged) };
        let piece = read_segment(segment, bytes_max, &self.endings)?;
        self.remaining_bytes -= piece.len() as u64;
        Ok(piece)
    }
}

/// The next piece of `segment`, at most `bytes_max` bytes.
pub(super) fn read_segment(
    segment: &mut Segment,
    bytes_max: usize,
    endings: &Rc<Endings>,
) -> Result<SendBody, CloseReason> {
    match segment {
        Segment::Bytes(bytes) => {
            let piece = bytes.slice(0..bytes.len().min(bytes_max));
            bytes.advance(piece.len());
            Ok(SendBody::shared(piece, endings))
        }
        Segment::File(file) => Ok(SendBody::owned(read_owned(file, bytes_max)?, endings)),
    }
}

fn read_owned(file: &mut FileBody, bytes_max: usize) -> Result<Vec<u8>, CloseReason> {
    let mut piece = vec![0; bytes_max];
    let count = read_piece(file, &mut piece)?;
    piece.truncate(count);
    Ok(piece)
}
