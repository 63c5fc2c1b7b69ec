//! A FastCGI request: sends it, and parses its response incrementally.

use crate::errors;
use crate::head::{CgiHead, EndFinder};
use crate::lines::LineSplitter;
use crate::outcome::PhpOutcome;
use crate::record::{Decoder, Header, ProtocolStatus, RecordEvent, RecordKind};
use crate::upload::{RecordSink, SentContent};
use flatout_balance::limit::{Permit, Sample};
use flatout_config::model::OriginTimeouts;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::Segment;
use flatout_handler::shared::SharedBytes;
use flatout_handler::stream::{ContentEvent, ContentSource};
use flatout_os::clock::{Now, precise_ns};
use flatout_upstream::fastcgi::FastcgiConnection;
use flatout_upstream::upload::{HeadWait, Upload, UploadState};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Maximum number of bytes of content buffered ahead of the client.
const READY_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of bytes beyond the declared length that are discarded, in bytes. If the script sends more, the
/// request is aborted.
const SURPLUS_BYTES_MAX: u64 = 1024 * 1024;

/// The failure of a request, and whether the request could be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) outcome: PhpOutcome,
    /// True if no bytes of a response arrived on a pooled connection: the server may have closed it before it read the
    /// request.
    pub(crate) is_stale: bool,
    /// True if nothing was sent.
    pub(crate) is_unsent: bool,
}

/// The state of a response that is being received.
struct CgiReader {
    decoder: Decoder,
    finder: EndFinder,
    /// The bytes of the head until it is complete.
    stash: Vec<u8>,
    head: Option<CgiHead>,
    /// Content that has not been consumed yet.
    ready: Vec<u8>,
    errors: LineSplitter,
    about: Rc<str>,
    ended: Option<ProtocolStatus>,
    /// True if unexpected bytes followed the end of the response.
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
    /// The connection; `None` if it was returned to the pool.
    connection: Option<FastcgiConnection>,
    upload: Option<Upload<SentContent>>,
    /// True if the server has closed the receiving side of the connection. It may have responded anyway.
    upload_cut: bool,
    reader: CgiReader,
    timeouts: OriginTimeouts,
    keeps: bool,
    wait: HeadWait,
    /// The permit, which is held until the end of the request.
    permit: Option<Permit>,
    began_ns: u64,
}

impl FastcgiExchange {
    /// Sends `upload` over `connection`. `keeps` says whether the request asks the server to leave the connection open.
    pub(crate) fn new(
        connection: FastcgiConnection,
        upload: Upload<SentContent>,
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
            wait: HeadWait::new(timeouts.body_timeout_ms, timeouts.head_timeout_ms),
            timeouts,
            keeps,
            permit: Some(permit),
            began_ns: precise_ns(),
        }
    }

    /// Returns the upload and the permit, so that the request can be sent again.
    pub(crate) fn into_parts(mut self) -> Option<(Upload<SentContent>, Permit)> {
        self.connection = None;
        self.upload.take().zip(self.permit.take())
    }

    /// Returns whether any bytes of the response have arrived.
    pub(crate) const fn has_begun(&self) -> bool {
        self.reader.received_any
    }

    /// Waits for the head, and buffers the content that arrives with it.
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
            // Everything that follows is content.
            self.reader.head = Some(CgiHead::default());
            if self.upload_cut {
                // Content that the server no longer reads need not be received from the client.
                self.upload = None;
            }
            if let Some(connection) = &mut self.connection {
                connection.timer().clear();
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
                self.wait.timeout(PhpOutcome::UploadTimeout, PhpOutcome::HeadTimeout)
            }
        };
        match outcome {
            PhpOutcome::HeadTimeout | PhpOutcome::UploadTimeout => self.report(Sample::Late),
            PhpOutcome::Overloaded => self.report(Sample::Overloaded),
            _ => {}
        }
        Poll::Ready(Err(self.fail(outcome)))
    }

    /// Reports the sample to the concurrency limiter.
    fn report(&mut self, sample: Sample) {
        let change = self.permit.as_mut().and_then(|permit| permit.report(sample, Now::read().monotonic_ms));
        if let Some(change) = change {
            let line = format!("the application server {}: [{}] {}", change.effect(true), change.name(), change.text());
            errors::report(&self.reader.about, &line);
        }
    }

    /// Logs that the script has sent more content than the `length` bytes that it declared.
    pub(crate) fn report_surplus(&self, length: u64) {
        let line = format!("the script sent more content than its Content-Length of {length}; the rest was discarded");
        errors::report(&self.reader.about, &line);
    }

    /// If the content is complete, returns it and returns the connection to the pool.
    pub(crate) fn whole(&mut self) -> Option<Vec<u8>> {
        (self.reader.ended == Some(ProtocolStatus::Complete)).then(|| {
            self.finish();
            std::mem::take(&mut self.reader.ready)
        })
    }

    /// Continues sending, and determines what the request is waiting for.
    fn wait_for_head(&mut self, context: &mut Context<'_>) -> Result<(), PhpOutcome> {
        let state = self.send(context)?;
        if let Some(connection) = &mut self.connection {
            self.wait.handle(state, connection.timer());
        }
        Ok(())
    }

    /// Sends as much as possible without waiting.
    fn send(&mut self, context: &mut Context<'_>) -> Result<UploadState, PhpOutcome> {
        if self.upload_cut {
            return Ok(UploadState::Closed);
        }
        let (Some(upload), Some(connection)) = (&mut self.upload, &mut self.connection) else {
            return Ok(UploadState::Done);
        };
        let state = upload.advance(&mut RecordSink(connection), context)?;
        if state == UploadState::Closed {
            if upload.sent_bytes() == 0 {
                return Err(PhpOutcome::ClosedBeforeHead);
            }
            // The server may have responded before it closed the connection.
            self.upload_cut = true;
        }
        Ok(state)
    }

    /// Receives once. The result is `false` if the connection has closed.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, PhpOutcome>> {
        let Self { connection: Some(connection), reader, .. } = self else { return Poll::Ready(Ok(false)) };
        connection
            .poll_receive(context, |bytes| reader.handle_bytes(bytes).map(|()| !bytes.is_empty()))
            .map(|received| received.unwrap_or(Ok(false)))
    }

    fn poll_expired(&mut self, context: &Context<'_>) -> Poll<()> {
        self.connection.as_mut().map_or(Poll::Pending, |connection| connection.timer().poll_expired(context))
    }

    fn fail(&self, outcome: PhpOutcome) -> Failed {
        let reused = self.connection.as_ref().is_some_and(FastcgiConnection::is_reused);
        Failed {
            outcome,
            is_stale: reused && outcome == PhpOutcome::ClosedBeforeHead,
            is_unsent: self.upload.as_ref().is_some_and(|upload| upload.sent_bytes() == 0),
        }
    }

    /// Handles the end of the response. Returns the connection to the pool if it can be reused.
    fn finish(&mut self) {
        let is_sent = self.upload.take().is_none_or(|upload| upload.is_done());
        let Some(mut connection) = self.connection.take() else { return };
        if self.keeps && is_sent && !self.upload_cut && !self.reader.has_surplus {
            connection.timer().clear();
            connection.give_back();
        }
    }
}

impl Drop for FastcgiExchange {
    fn drop(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        // The response is no longer needed. FCGI_ABORT_REQUEST may reach the server before it notices that the
        // connection is closed.
        if self.upload.as_ref().is_none_or(Upload::is_between_frames) && !self.upload_cut {
            connection.send_at_once(&Header::new(RecordKind::AbortRequest, 0).encode());
        }
        self.reader.errors.end(&mut |line| errors::report(&self.reader.about, line));
    }
}

/// The content of a response that is passed on to the client.
pub(crate) struct Through {
    exchange: FastcgiExchange,
    /// The declared length and the number of bytes that remain, if the script declared a length.
    length: Option<(u64, u64)>,
    /// Number of bytes beyond the declared length that were discarded.
    surplus_bytes: u64,
    /// A failure that is reported after the content that arrived before it.
    failed: Option<CloseReason>,
    /// Timeout for each piece of content, in milliseconds.
    piece_timeout_ms: u64,
}

impl Through {
    /// The content of `exchange` after its head; `length` bytes if the script declared a length.
    pub(crate) fn new(exchange: FastcgiExchange, length: Option<u64>) -> Self {
        let piece_timeout_ms = exchange.timeouts.body_timeout_ms;
        let length = length.map(|length| (length, length));
        Self { exchange, length, surplus_bytes: 0, failed: None, piece_timeout_ms }
    }

    /// Uses the longer timeout of event streams, which may be idle.
    pub(crate) const fn of_events(mut self) -> Self {
        self.piece_timeout_ms = self.exchange.timeouts.stream_timeout_ms;
        self
    }

    /// Takes the content that has arrived, without bytes beyond the declared length.
    fn take_ready(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.exchange.reader.ready);
        if let Some((length, left)) = &mut self.length {
            let surplus_bytes = (bytes.len() as u64).saturating_sub(*left);
            if surplus_bytes > 0 {
                bytes.truncate(*left as usize);
                if self.surplus_bytes == 0 {
                    self.exchange.report_surplus(*length);
                }
                self.surplus_bytes = self.surplus_bytes.saturating_add(surplus_bytes);
            }
            *left -= bytes.len() as u64;
        }
        bytes
    }

    /// Returns whether all bytes of the declared length have been taken. The response is then complete, whatever
    /// follows.
    fn is_complete(&self) -> bool {
        self.length.is_some_and(|(_, left)| left == 0)
    }

    /// Ends the response with `reason`, unless it is complete.
    fn fail(&self, reason: CloseReason) -> ContentEvent {
        if self.is_complete() { ContentEvent::End(None) } else { ContentEvent::Failed(reason) }
    }
}

impl ContentSource for Through {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<ContentEvent> {
        loop {
            if !self.exchange.reader.ready.is_empty() {
                if let Some(connection) = &mut self.exchange.connection {
                    connection.timer().clear();
                }
                let bytes = self.take_ready();
                if !bytes.is_empty() {
                    return Poll::Ready(ContentEvent::Segment(Segment::Bytes(SharedBytes::from_buffer(bytes))));
                }
            }
            if let Some(reason) = self.failed {
                return Poll::Ready(self.fail(reason));
            }
            if self.surplus_bytes > SURPLUS_BYTES_MAX {
                return Poll::Ready(ContentEvent::End(None));
            }
            match self.exchange.reader.ended {
                Some(ProtocolStatus::Complete) if self.length.is_none_or(|(_, left)| left == 0) => {
                    self.exchange.finish();
                    return Poll::Ready(ContentEvent::End(None));
                }
                Some(_) => return Poll::Ready(self.fail(CloseReason::OriginCutBody)),
                None => {}
            }
            let Ok(state) = self.exchange.send(context) else {
                return Poll::Ready(self.fail(CloseReason::OriginTruncated));
            };
            match self.exchange.poll_receive(context) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => self.failed = Some(CloseReason::OriginCutBody),
                // Content that arrived in the same read is sent first.
                Poll::Ready(Err(_)) => self.failed = Some(CloseReason::OriginBodyMalformed),
                Poll::Pending => {
                    let timeout_ms = self.piece_timeout_ms;
                    let Some(connection) = &mut self.exchange.connection else { return Poll::Pending };
                    let timer = connection.timer();
                    match state {
                        // The script may be waiting for the same content.
                        UploadState::Client | UploadState::Continue => timer.clear(),
                        UploadState::Server(true) => timer.begin(timeout_ms),
                        _ if !timer.is_waiting() => timer.begin(timeout_ms),
                        UploadState::Server(false) | UploadState::Closed | UploadState::Done => {}
                    }
                    return timer.poll_expired(context).map(|()| self.fail(CloseReason::OriginBodyTimeout));
                }
            }
        }
    }
}
