//! One FastCGI request: sending it, and incremental parsing of its response.

use crate::errors;
use crate::head::{CgiHead, EndFinder};
use crate::lines::LineSplitter;
use crate::outcome::PhpOutcome;
use crate::record::{Decoder, Header, ProtocolStatus, RecordEvent, RecordKind};
use crate::upload::{Upload, UploadError};
use flatout_balance::limit::{Permit, Sample};
use flatout_config::model::OriginTimeouts;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::Segment;
use flatout_handler::shared::SharedBytes;
use flatout_handler::stream::{ContentEvent, ContentSource};
use flatout_os::clock::{Now, precise_ns};
use flatout_upstream::fastcgi::FastcgiConnection;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Maximum bytes of content buffered ahead of the client.
const READY_BYTES_MAX: usize = 64 * 1024;

/// Failure of a request, and whether it could be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) outcome: PhpOutcome,
    /// No response bytes arrived on a pooled connection: the server may have closed it before it saw the request.
    pub(crate) is_stale: bool,
    /// Nothing was sent.
    pub(crate) is_unsent: bool,
}

/// State of the response.
struct CgiReader {
    decoder: Decoder,
    finder: EndFinder,
    /// Bytes of the incomplete head.
    stash: Vec<u8>,
    head: Option<CgiHead>,
    /// Content not yet consumed.
    ready: Vec<u8>,
    errors: LineSplitter,
    about: Rc<str>,
    ended: Option<ProtocolStatus>,
    /// Unexpected bytes followed the end.
    has_surplus: bool,
    received_any: bool,
}

impl CgiReader {
    fn new(about: Rc<str>) -> Self {
        Self {
            decoder: Decoder::default(),
            finder: EndFinder::default(),
            stash: Vec::new(),
            head: None,
            ready: Vec::new(),
            errors: LineSplitter::default(),
            about,
            ended: None,
            has_surplus: false,
            received_any: false,
        }
    }

    fn handle_bytes(&mut self, mut bytes: &[u8]) -> Result<(), PhpOutcome> {
        self.received_any |= !bytes.is_empty();
        while !bytes.is_empty() && !self.decoder.is_done() {
            let (used, event) = self.decoder.decode(bytes)?;
            bytes = &bytes[used..];
            match event {
                Some(RecordEvent::Stdout(part)) => self.handle_content(part)?,
                Some(RecordEvent::Stderr(part)) => {
                    self.errors.add(part, &mut |line| errors::report(&self.about, line));
                }
                Some(RecordEvent::End { status, .. }) => {
                    self.errors.end(&mut |line| errors::report(&self.about, line));
                    self.ended = Some(status);
                }
                Some(RecordEvent::StdoutEnd | RecordEvent::StderrEnd) | None => {}
            }
        }
        self.has_surplus = !bytes.is_empty();
        Ok(())
    }

    fn handle_content(&mut self, part: &[u8]) -> Result<(), PhpOutcome> {
        if self.head.is_some() {
            self.ready.extend_from_slice(part);
            return Ok(());
        }
        self.stash.extend_from_slice(part);
        if let Some(end) = self.finder.find(&self.stash)? {
            self.head = Some(CgiHead::parse(&self.stash[..end])?);
            self.ready.extend_from_slice(&self.stash[end..]);
            self.stash = Vec::new();
        }
        Ok(())
    }
}

/// A request in progress.
pub(crate) struct FastcgiExchange {
    /// `None` once it was returned to the pool.
    connection: Option<FastcgiConnection>,
    upload: Option<Upload>,
    /// The server closed its receiving side. It may still have responded.
    upload_cut: bool,
    reader: CgiReader,
    timeouts: OriginTimeouts,
    keeps: bool,
    waits_for: WaitsFor,
    /// Held until the end of the request.
    permit: Option<Permit>,
    began_ns: u64,
}

/// Cause of waiting before a response begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    /// None, or the client, whose timeout is handled elsewhere.
    Nobody,
    /// The server must accept more content.
    Taking,
    /// The server must respond.
    Head,
}

/// State of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendingState {
    /// Everything is sent.
    Done,
    /// The client has no more data at the moment.
    Client,
    /// The server accepts no more at the moment; the flag: it has accepted some since.
    Server(bool),
}

impl FastcgiExchange {
    /// Sends `upload` over `connection`. `keeps`: the request asks the server to leave the connection open.
    pub(crate) fn new(
        connection: FastcgiConnection,
        upload: Upload,
        timeouts: OriginTimeouts,
        keeps: bool,
        about: Rc<str>,
        permit: Permit,
    ) -> Self {
        Self {
            connection: Some(connection),
            upload: Some(upload),
            upload_cut: false,
            reader: CgiReader::new(about),
            timeouts,
            keeps,
            waits_for: WaitsFor::Nobody,
            permit: Some(permit),
            began_ns: precise_ns(),
        }
    }

    /// Returns the rest of the upload and the permit, for sending the request again.
    pub(crate) fn into_parts(mut self) -> Option<(Upload, Permit)> {
        self.connection = None;
        self.upload.take().zip(self.permit.take())
    }

    /// Returns whether any response bytes have arrived.
    pub(crate) const fn has_begun(&self) -> bool {
        self.reader.received_any
    }

    /// Waits for the head, and buffers the content received with it.
    pub(crate) fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<CgiHead, Failed>> {
        if let Err(outcome) = self.wait_for_head(context) {
            return Poll::Ready(Err(self.fail(outcome)));
        }
        while self.reader.ended.is_none() && self.reader.ready.len() < READY_BYTES_MAX {
            match self.poll_receive(context) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) if self.reader.head.is_some() => break,
                Poll::Ready(Ok(false)) => {
                    let begun = self.reader.received_any;
                    let outcome = if begun { PhpOutcome::CutHead } else { PhpOutcome::ClosedBeforeHead };
                    return Poll::Ready(Err(self.fail(outcome)));
                }
                Poll::Ready(Err(outcome)) => return Poll::Ready(Err(self.fail(outcome))),
                Poll::Pending => break,
            }
        }
        if let Some(head) = self.reader.head.take() {
            // Everything after this is content.
            self.reader.head = Some(CgiHead::default());
            if self.upload_cut {
                // Do not wait for the client to send content that is not needed.
                self.upload = None;
            }
            if let Some(connection) = &mut self.connection {
                connection.end_wait();
            }
            self.report(Sample::Answered { delay_us: precise_ns().saturating_sub(self.began_ns) / 1_000 });
            return Poll::Ready(Ok(head));
        }
        let outcome = match self.reader.ended {
            Some(ProtocolStatus::Complete) => PhpOutcome::CutHead,
            Some(ProtocolStatus::Overloaded) => PhpOutcome::Overloaded,
            Some(ProtocolStatus::CannotMultiplex | ProtocolStatus::UnknownRole) => PhpOutcome::RoleUnknown,
            None => {
                ready!(self.poll_expired(context));
                if self.waits_for == WaitsFor::Taking { PhpOutcome::UploadTimeout } else { PhpOutcome::HeadTimeout }
            }
        };
        if matches!(outcome, PhpOutcome::HeadTimeout | PhpOutcome::UploadTimeout | PhpOutcome::Overloaded) {
            self.report(Sample::Overloaded);
        }
        Poll::Ready(Err(self.fail(outcome)))
    }

    /// Reports the delay of the head to the concurrency limit.
    fn report(&mut self, sample: Sample) {
        if let Some(permit) = &mut self.permit {
            permit.report(sample, Now::read().monotonic_ms);
        }
    }

    /// Returns the whole content if it is complete; the connection is then returned to the pool.
    pub(crate) fn whole(&mut self) -> Option<Vec<u8>> {
        (self.reader.ended == Some(ProtocolStatus::Complete)).then(|| {
            self.finish();
            std::mem::take(&mut self.reader.ready)
        })
    }

    /// Continues sending, and determines the cause of waiting.
    fn wait_for_head(&mut self, context: &mut Context<'_>) -> Result<(), PhpOutcome> {
        let sending = self.send(context)?;
        let Some(connection) = &mut self.connection else { return Ok(()) };
        match sending {
            SendingState::Client => {
                connection.end_wait();
                self.waits_for = WaitsFor::Nobody;
            }
            SendingState::Server(has_taken) => {
                if has_taken || self.waits_for != WaitsFor::Taking {
                    connection.begin_wait(self.timeouts.body_timeout_ms);
                    self.waits_for = WaitsFor::Taking;
                }
            }
            SendingState::Done => {
                if self.waits_for != WaitsFor::Head {
                    connection.begin_wait(self.timeouts.head_timeout_ms);
                    self.waits_for = WaitsFor::Head;
                }
            }
        }
        Ok(())
    }

    /// Sends as much as possible now.
    fn send(&mut self, context: &mut Context<'_>) -> Result<SendingState, PhpOutcome> {
        if self.upload_cut {
            return Ok(SendingState::Done);
        }
        let (Some(upload), Some(connection)) = (&mut self.upload, &mut self.connection) else {
            return Ok(SendingState::Done);
        };
        let before = upload.sent_bytes();
        match upload.poll(connection, context) {
            Poll::Pending if upload.waits_for_client() => Ok(SendingState::Client),
            Poll::Pending => Ok(SendingState::Server(upload.sent_bytes() > before)),
            Poll::Ready(Ok(())) => Ok(SendingState::Done),
            Poll::Ready(Err(UploadError::Content(outcome))) => Err(outcome),
            Poll::Ready(Err(UploadError::Socket)) if upload.sent_bytes() == 0 => Err(PhpOutcome::ClosedBeforeHead),
            Poll::Ready(Err(UploadError::Socket)) => {
                // It may have responded before it closed.
                self.upload_cut = true;
                Ok(SendingState::Done)
            }
        }
    }

    /// Receives once. `false`: the connection has closed.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, PhpOutcome>> {
        let Self { connection: Some(connection), reader, .. } = self else { return Poll::Ready(Ok(false)) };
        connection
            .poll_receive(context, |bytes| reader.handle_bytes(bytes).map(|()| !bytes.is_empty()))
            .map(|received| received.unwrap_or(Ok(false)))
    }

    fn poll_expired(&mut self, context: &Context<'_>) -> Poll<()> {
        self.connection.as_mut().map_or(Poll::Pending, |connection| connection.poll_expired(context))
    }

    fn fail(&self, outcome: PhpOutcome) -> Failed {
        let reused = self.connection.as_ref().is_some_and(FastcgiConnection::is_reused);
        Failed {
            outcome,
            is_stale: reused && outcome == PhpOutcome::ClosedBeforeHead,
            is_unsent: self.upload.as_ref().is_some_and(|upload| upload.sent_bytes() == 0),
        }
    }

    /// Handles the end of the response: returns a reusable connection to the pool.
    fn finish(&mut self) {
        let is_sent = self.upload.take().is_none_or(|upload| upload.is_done());
        let Some(mut connection) = self.connection.take() else { return };
        if self.keeps && is_sent && !self.upload_cut && !self.reader.has_surplus {
            connection.end_wait();
            connection.give_back();
        }
    }
}

impl Drop for FastcgiExchange {
    fn drop(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        // The response is no longer needed. FCGI_ABORT_REQUEST may reach the server before it notices the close.
        if self.upload.as_ref().is_none_or(Upload::is_between_records) && !self.upload_cut {
            connection.send_at_once(&Header::new(RecordKind::AbortRequest, 0).encode());
        }
        self.reader.errors.end(&mut |line| errors::report(&self.reader.about, line));
    }
}

/// A response's content on its way to the client.
pub(crate) struct Through {
    exchange: FastcgiExchange,
    /// Remaining bytes, if the script stated a length.
    left: Option<u64>,
    /// Timeout for each piece, in milliseconds.
    piece_timeout_ms: u64,
}

impl Through {
    /// Content of `exchange` after its head; `length` bytes if the script stated a length.
    pub(crate) const fn new(exchange: FastcgiExchange, length: Option<u64>) -> Self {
        let piece_timeout_ms = exchange.timeouts.body_timeout_ms;
        Self { exchange, left: length, piece_timeout_ms }
    }

    /// The same for an event stream, which may be idle for longer.
    pub(crate) const fn of_events(mut self) -> Self {
        self.piece_timeout_ms = self.exchange.timeouts.stream_timeout_ms;
        self
    }

    fn take_ready(&mut self) -> ContentEvent {
        let bytes = std::mem::take(&mut self.exchange.reader.ready);
        if let Some(left) = &mut self.left {
            match left.checked_sub(bytes.len() as u64) {
                Some(after) => *left = after,
                None => return ContentEvent::Failed(CloseReason::OriginBodyMalformed),
            }
        }
        ContentEvent::Segment(Segment::Bytes(SharedBytes::from_buffer(bytes)))
    }
}

impl ContentSource for Through {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<ContentEvent> {
        loop {
            if !self.exchange.reader.ready.is_empty() {
                if let Some(connection) = &mut self.exchange.connection {
                    connection.end_wait();
                }
                return Poll::Ready(self.take_ready());
            }
            match self.exchange.reader.ended {
                Some(ProtocolStatus::Complete) if self.left.is_none_or(|left| left == 0) => {
                    self.exchange.finish();
                    return Poll::Ready(ContentEvent::End(None));
                }
                Some(_) => return Poll::Ready(ContentEvent::Failed(CloseReason::OriginCutBody)),
                None => {}
            }
            let Ok(sending) = self.exchange.send(context) else {
                return Poll::Ready(ContentEvent::Failed(CloseReason::OriginTruncated));
            };
            match self.exchange.poll_receive(context) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => return Poll::Ready(ContentEvent::Failed(CloseReason::OriginCutBody)),
                Poll::Ready(Err(_)) => return Poll::Ready(ContentEvent::Failed(CloseReason::OriginBodyMalformed)),
                Poll::Pending => {
                    let timeout_ms = self.piece_timeout_ms;
                    let Some(connection) = &mut self.exchange.connection else { return Poll::Pending };
                    match sending {
                        // The script may be waiting for the same.
                        SendingState::Client => connection.end_wait(),
                        SendingState::Server(true) => connection.begin_wait(timeout_ms),
                        _ if !connection.is_waiting() => connection.begin_wait(timeout_ms),
                        SendingState::Server(false) | SendingState::Done => {}
                    }
                    return connection
                        .poll_expired(context)
                        .map(|()| ContentEvent::Failed(CloseReason::OriginBodyTimeout));
                }
            }
        }
    }
}
