//! One request to the application server: sent, and its answer taken apart as it comes.

use crate::errors;
use crate::head::{CgiHead, EndFinder};
use crate::lines::Lines;
use crate::outcome::Outcome;
use crate::record::{Decoder, Event, Header, Kind, ProtocolStatus};
use crate::step::Permit;
use crate::upload::{Upload, UploadError};
use flatout_config::model::OriginTimeouts;
use flatout_net::ending::CloseReason;
use flatout_net::fastcgi::Connection;
use flatout_net::response::Segment;
use flatout_net::shared::SharedBytes;
use flatout_net::stream::{Piece, Source};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Content that is received before the client has taken what was received before.
const READY_BYTES_MAX: usize = 64 * 1024;

/// Why there is no answer, and whether the request could be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) outcome: Outcome,
    /// Nothing of an answer had come, and the connection had been kept: the server may have closed it before it saw the
    /// request.
    pub(crate) is_stale: bool,
    /// Nothing was sent at all.
    pub(crate) is_unsent: bool,
}

/// What has come of the answer.
struct Reader {
    decoder: Decoder,
    finder: EndFinder,
    /// The head, until it is whole.
    stash: Vec<u8>,
    head: Option<CgiHead>,
    /// Content that nobody has taken yet.
    ready: Vec<u8>,
    errors: Lines,
    about: Rc<str>,
    ended: Option<ProtocolStatus>,
    /// Something lay behind the end, which was not asked for.
    has_surplus: bool,
    received_any: bool,
}

impl Reader {
    fn new(about: Rc<str>) -> Self {
        Self {
            decoder: Decoder::default(),
            finder: EndFinder::default(),
            stash: Vec::new(),
            head: None,
            ready: Vec::new(),
            errors: Lines::default(),
            about,
            ended: None,
            has_surplus: false,
            received_any: false,
        }
    }

    fn handle_bytes(&mut self, mut bytes: &[u8]) -> Result<(), Outcome> {
        self.received_any |= !bytes.is_empty();
        while !bytes.is_empty() && !self.decoder.is_done() {
            let (used, event) = self.decoder.decode(bytes)?;
            bytes = &bytes[used..];
            match event {
                Some(Event::Stdout(part)) => self.handle_content(part)?,
                Some(Event::Stderr(part)) => {
                    self.errors.add(part, &mut |line| errors::report(&self.about, line));
                }
                Some(Event::End { status, .. }) => {
                    self.errors.end(&mut |line| errors::report(&self.about, line));
                    self.ended = Some(status);
                }
                Some(Event::StdoutEnd | Event::StderrEnd) | None => {}
            }
        }
        self.has_surplus = !bytes.is_empty();
        Ok(())
    }

    fn handle_content(&mut self, part: &[u8]) -> Result<(), Outcome> {
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

/// One request under way.
pub(crate) struct Exchange {
    /// `None` once it was given back.
    connection: Option<Connection>,
    upload: Option<Upload>,
    /// The server would take no more. It may have answered all the same.
    upload_cut: bool,
    reader: Reader,
    timeouts: OriginTimeouts,
    keeps: bool,
    waits_for: WaitsFor,
    /// Held until the request is done with.
    permit: Option<Permit>,
}

/// Whom a request waits for before its answer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    /// For nobody, or for the client, whose patience is another's business.
    Nobody,
    /// For the server to take more of the content.
    Taking,
    /// For the server to answer.
    Head,
}

/// How sending goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    /// Everything is sent that will be.
    Done,
    /// The client has no more just now.
    Client,
    /// The server takes no more just now. Whether it has taken something since.
    Server(bool),
}

impl Exchange {
    /// Sends `upload` by `connection`. `keeps`: the server was told to keep the connection.
    pub(crate) fn new(
        connection: Connection,
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
            reader: Reader::new(about),
            timeouts,
            keeps,
            waits_for: WaitsFor::Nobody,
            permit: Some(permit),
        }
    }

    /// What is left of the upload and the place among the requests under way, for the request to be sent again.
    pub(crate) fn into_parts(mut self) -> Option<(Upload, Permit)> {
        self.connection = None;
        self.upload.take().zip(self.permit.take())
    }

    /// Whether anything of an answer has come.
    pub(crate) const fn has_begun(&self) -> bool {
        self.reader.received_any
    }

    /// Waits for the head, and takes what of the content has come with it.
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
                    let outcome = if begun { Outcome::CutHead } else { Outcome::ClosedBeforeHead };
                    return Poll::Ready(Err(self.fail(outcome)));
                }
                Poll::Ready(Err(outcome)) => return Poll::Ready(Err(self.fail(outcome))),
                Poll::Pending => break,
            }
        }
        if let Some(head) = self.reader.head.take() {
            // What comes from here on is content.
            self.reader.head = Some(CgiHead::default());
            if self.upload_cut {
                // The client is not held back by what nobody takes.
                self.upload = None;
            }
            if let Some(connection) = &mut self.connection {
                connection.end_wait();
            }
            return Poll::Ready(Ok(head));
        }
        let outcome = match self.reader.ended {
            Some(ProtocolStatus::Complete) => Outcome::CutHead,
            Some(ProtocolStatus::Overloaded) => Outcome::Overloaded,
            Some(ProtocolStatus::CannotMultiplex | ProtocolStatus::UnknownRole) => Outcome::RoleUnknown,
            None => {
                ready!(self.poll_expired(context));
                if self.waits_for == WaitsFor::Taking { Outcome::UploadTimeout } else { Outcome::HeadTimeout }
            }
        };
        Poll::Ready(Err(self.fail(outcome)))
    }

    /// All of the content, when it is here already; the connection is kept then.
    pub(crate) fn whole(&mut self) -> Option<Vec<u8>> {
        (self.reader.ended == Some(ProtocolStatus::Complete)).then(|| {
            self.finish();
            std::mem::take(&mut self.reader.ready)
        })
    }

    /// Sends on, and sets whom we wait for.
    fn wait_for_head(&mut self, context: &mut Context<'_>) -> Result<(), Outcome> {
        let sending = self.send(context)?;
        let Some(connection) = &mut self.connection else { return Ok(()) };
        match sending {
            Sending::Client => {
                connection.end_wait();
                self.waits_for = WaitsFor::Nobody;
            }
            Sending::Server(has_taken) => {
                if has_taken || self.waits_for != WaitsFor::Taking {
                    connection.begin_wait(self.timeouts.body_timeout_ms);
                    self.waits_for = WaitsFor::Taking;
                }
            }
            Sending::Done => {
                if self.waits_for != WaitsFor::Head {
                    connection.begin_wait(self.timeouts.head_timeout_ms);
                    self.waits_for = WaitsFor::Head;
                }
            }
        }
        Ok(())
    }

    /// Sends what can be sent now.
    fn send(&mut self, context: &mut Context<'_>) -> Result<Sending, Outcome> {
        if self.upload_cut {
            return Ok(Sending::Done);
        }
        let (Some(upload), Some(connection)) = (&mut self.upload, &mut self.connection) else {
            return Ok(Sending::Done);
        };
        let before = upload.sent_bytes();
        match upload.poll(connection, context) {
            Poll::Pending if upload.waits_for_client() => Ok(Sending::Client),
            Poll::Pending => Ok(Sending::Server(upload.sent_bytes() > before)),
            Poll::Ready(Ok(())) => Ok(Sending::Done),
            Poll::Ready(Err(UploadError::Content(outcome))) => Err(outcome),
            Poll::Ready(Err(UploadError::Socket)) if upload.sent_bytes() == 0 => Err(Outcome::ClosedBeforeHead),
            Poll::Ready(Err(UploadError::Socket)) => {
                // It may have answered before it ended.
                self.upload_cut = true;
                Ok(Sending::Done)
            }
        }
    }

    /// Receives once. `false`: the connection has ended.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, Outcome>> {
        let Self { connection: Some(connection), reader, .. } = self else { return Poll::Ready(Ok(false)) };
        connection
            .poll_receive(context, |bytes| reader.handle_bytes(bytes).map(|()| !bytes.is_empty()))
            .map(|received| received.unwrap_or(Ok(false)))
    }

    fn poll_expired(&mut self, context: &Context<'_>) -> Poll<()> {
        self.connection.as_mut().map_or(Poll::Pending, |connection| connection.poll_expired(context))
    }

    fn fail(&self, outcome: Outcome) -> Failed {
        let reused = self.connection.as_ref().is_some_and(Connection::is_reused);
        Failed {
            outcome,
            is_stale: reused && outcome == Outcome::ClosedBeforeHead,
            is_unsent: self.upload.as_ref().is_some_and(|upload| upload.sent_bytes() == 0),
        }
    }

    /// The answer is whole: the connection carries another request, if it may.
    fn finish(&mut self) {
        let is_sent = self.upload.take().is_none_or(|upload| upload.is_done());
        let Some(mut connection) = self.connection.take() else { return };
        if self.keeps && is_sent && !self.upload_cut && !self.reader.has_surplus {
            connection.end_wait();
            connection.give_back();
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        // Nobody wants the answer any more. A server that looks learns it sooner than by the end of the connection.
        if self.upload.as_ref().is_none_or(Upload::is_between_records) && !self.upload_cut {
            connection.send_at_once(&Header::new(Kind::AbortRequest, 0).encode());
        }
        self.reader.errors.end(&mut |line| errors::report(&self.reader.about, line));
    }
}

/// An answer's content on its way to the client.
pub(crate) struct Through {
    exchange: Exchange,
    /// Bytes still to come, when the script has said how many there are.
    left: Option<u64>,
    /// How long more of it may take.
    piece_timeout_ms: u64,
}

impl Through {
    /// What `exchange` has after its head, and `length` bytes of it when the script has said so.
    pub(crate) const fn new(exchange: Exchange, length: Option<u64>) -> Self {
        let piece_timeout_ms = exchange.timeouts.body_timeout_ms;
        Self { exchange, left: length, piece_timeout_ms }
    }

    /// The same for an event stream, which may be silent for longer.
    pub(crate) const fn of_events(mut self) -> Self {
        self.piece_timeout_ms = self.exchange.timeouts.stream_timeout_ms;
        self
    }

    fn take_ready(&mut self) -> Piece {
        let bytes = std::mem::take(&mut self.exchange.reader.ready);
        if let Some(left) = &mut self.left {
            match left.checked_sub(bytes.len() as u64) {
                Some(after) => *left = after,
                None => return Piece::Failed(CloseReason::OriginBodyMalformed),
            }
        }
        Piece::Segment(Segment::Bytes(SharedBytes::from_buffer(bytes)))
    }
}

impl Source for Through {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Piece> {
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
                    return Poll::Ready(Piece::End(None));
                }
                Some(_) => return Poll::Ready(Piece::Failed(CloseReason::OriginCutBody)),
                None => {}
            }
            let Ok(sending) = self.exchange.send(context) else {
                return Poll::Ready(Piece::Failed(CloseReason::OriginCut));
            };
            match self.exchange.poll_receive(context) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => return Poll::Ready(Piece::Failed(CloseReason::OriginCutBody)),
                Poll::Ready(Err(_)) => return Poll::Ready(Piece::Failed(CloseReason::OriginBodyMalformed)),
                Poll::Pending => {
                    let timeout_ms = self.piece_timeout_ms;
                    let Some(connection) = &mut self.exchange.connection else { return Poll::Pending };
                    match sending {
                        // The script may be waiting for the same.
                        Sending::Client => connection.end_wait(),
                        Sending::Server(true) => connection.begin_wait(timeout_ms),
                        _ if !connection.is_waiting() => connection.begin_wait(timeout_ms),
                        Sending::Server(false) | Sending::Done => {}
                    }
                    return connection.poll_expired(context).map(|()| Piece::Failed(CloseReason::OriginBodyTimeout));
                }
            }
        }
    }
}
