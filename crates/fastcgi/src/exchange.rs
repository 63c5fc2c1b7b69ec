//! A FastCGI request: sends it, and parses its response incrementally.

mod through;

pub(crate) use through::Through;

use crate::errors;
use crate::head::{CgiHead, EndFinder};
use crate::lines::LineSplitter;
use crate::outcome::PhpOutcome;
use crate::record::{Decoder, Header, ProtocolStatus, RecordEvent, RecordKind};
use crate::step::PhpStep;
use crate::upload::{RecordSink, SentContent};
use flatout_balance::limit::{Permit, Sample};
use flatout_os::clock::{Now, precise_ns};
use flatout_upstream::fastcgi::FastcgiConnection;
use flatout_upstream::upload::{HeadWait, Upload, UploadState};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Maximum number of bytes of content held in memory ahead of the client, apart from one receive.
const READY_BYTES_MAX: usize = 64 * 1024;

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
    step: Arc<PhpStep>,
    keeps: bool,
    wait: HeadWait,
    /// The permit, which is held until the server has sent everything.
    permit: Option<Permit>,
    began_ns: u64,
}

impl FastcgiExchange {
    /// Sends `upload` of `step` over `connection`. `keeps` says whether the request asks the server to leave the
    /// connection open.
    pub(crate) fn new(
        connection: FastcgiConnection,
        upload: Upload<SentContent>,
        step: &Arc<PhpStep>,
        keeps: bool,
        about: Rc<str>,
        permit: Permit,
    ) -> Self {
        let timeouts = &step.settings.timeouts;
        Self {
            connection: Some(connection),
            upload: Some(upload),
            upload_cut: false,
            reader: CgiReader::new(about),
            wait: HeadWait::new(timeouts.body_timeout_ms, timeouts.head_timeout_ms),
            step: Arc::clone(step),
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
            // The request cannot be sent again. Content that the server no longer reads need not be received from the
            // client, and content that has been sent need not be buffered.
            let is_cut = self.upload_cut;
            self.upload.take_if(|upload| is_cut || upload.is_done());
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
        self.step.tell_change(change);
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

    /// Continues sending after the head of the response has arrived, and drops content that has been sent.
    fn send_rest(&mut self, context: &mut Context<'_>) -> Result<UploadState, PhpOutcome> {
        let state = self.send(context)?;
        self.upload.take_if(|upload| upload.is_done());
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
        self.permit = None;
        let is_sent = self.upload.take().is_none_or(|upload| upload.is_done());
        let Some(mut connection) = self.connection.take() else { return };
        if self.keeps && is_sent && !self.upload_cut && !self.reader.has_surplus {
            connection.timer().clear();
            connection.give_back();
        }
    }

    /// Closes the connection because the rest of the response is not needed.
    fn abort(&mut self) {
        self.permit = None;
        let Some(mut connection) = self.connection.take() else { return };
        // FCGI_ABORT_REQUEST may reach the server before it notices that the connection is closed.
        if self.upload.as_ref().is_none_or(Upload::is_between_frames) && !self.upload_cut {
            connection.send_at_once(&Header::new(RecordKind::AbortRequest, 0).encode());
        }
        self.reader.errors.end(&mut |line| errors::report(&self.reader.about, line));
    }
}

impl Drop for FastcgiExchange {
    fn drop(&mut self) {
        self.abort();
    }
}
