//! An exchange over HTTP/1.1, up to the head of the final response.

use super::body::IncomingBody;
use super::client::OriginShared;
use super::failure::{ExchangeFailure, OriginFailure, Repeat};
use super::pool::{Connection, OriginPool, keep_alive_ms};
use super::request::OutgoingRequest;
use super::response::Incoming;
use super::streaming::{Received, Streaming, decode_whole};
use super::upload::Http1Upload;
use crate::upload::{HeadWait, UploadState};
use flatout_handler::shared::SharedBytes;
use flatout_http::body::BodyDecoder;
use flatout_http::connection_auth::authenticates_connection;
use flatout_http::framing::{Framing, Version};
use flatout_http::head::FieldStorage;
use flatout_http::refusal::Refusal;
use flatout_http::repair::{RepairedHead, repair_response_head};
use flatout_http::response::{ResponseHead, parse_response_head};
use flatout_net::task_deadlines::DeadlineTimer;
use flatout_net::transport::Upgraded;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// State of an exchange until the head of its final response has arrived.
pub(super) struct Http1Exchange {
    pub(super) shared: Rc<OriginShared>,
    pool: Rc<OriginPool>,
    /// The connection; `None` after it has been passed to the response.
    connection: Option<Connection>,
    /// The part of the request that has not been sent yet.
    upload: Option<Box<Http1Upload>>,
    /// True if the origin stopped reading the request. It may nevertheless respond.
    upload_cut: bool,
    timer: DeadlineTimer,
    wait: HeadWait,
    /// Bytes of an incomplete head. Empty, and never allocated, if heads arrive in one piece.
    stash: Vec<u8>,
    interims: u32,
    to_head: bool,
    asks_upgrade: bool,
    reused: bool,
    /// False if the connection must not be used for another request, whatever its final response says.
    pub(super) may_pool: bool,
}

/// Sends `request` on `connection` and returns when the head of the final response has arrived.
pub(super) async fn exchange(
    shared: &Rc<OriginShared>,
    pool: &Rc<OriginPool>,
    connection: Connection,
    reused: bool,
    request: &mut OutgoingRequest<'_>,
    interims: &mut impl FnMut(u16, &[u8]),
) -> Result<Incoming, ExchangeFailure> {
    let upload = Some(Http1Upload::new(shared, request));
    let mut exchange =
        Http1Exchange::new(shared, pool, connection, upload, (request.method == "HEAD", request.head_left_ms));
    exchange.reused = reused;
    exchange.asks_upgrade = request.upgrade.is_some();
    exchange.may_pool = !authenticates_connection(request.lines);
    let answered = poll_fn(|context| exchange.poll(context, interims, &mut |_| false)).await;
    // `look` always returns false, so there is a response.
    answered?.ok_or_else(|| exchange.cut())
}

/// A complete final response in the receive buffer. Never a 101.
#[derive(Clone, Copy, Debug)]
pub struct WholeAnswer<'a> {
    /// The response head.
    pub head: &'a ResponseHead<'a>,
    /// The field lines, each `Name: value` and CR LF.
    pub lines: &'a [u8],
    /// The content, which is empty if there is none.
    pub content: &'a [u8],
}

/// Result of reading response heads.
enum Heads {
    Partial,
    Final(Final),
    /// `look` accepted the response.
    Taken,
}

/// The relevant parts of a final head, with a copy of its fields.
struct Final {
    status: u16,
    /// The reason phrase, if it is not the usual one for the status.
    reason: Option<Box<[u8]>>,
    version: Version,
    framing: Framing,
    content_length: Option<u64>,
    /// Timeout for each further piece of the body, in milliseconds.
    piece_timeout_ms: u64,
    persistent: bool,
    /// How long the origin keeps the connection open while it is idle, in milliseconds.
    keep_alive_ms: u64,
    /// The field lines, the empty line and all bytes received after them.
    bytes: SharedBytes,
    section_bytes: usize,
}

impl Http1Exchange {
    /// Creates an exchange on a reused connection. `upload` is the part of the request that has not been sent yet, or
    /// `None` if all of it has been sent.
    pub(super) fn new(
        shared: &Rc<OriginShared>,
        pool: &Rc<OriginPool>,
        connection: Connection,
        upload: Option<Http1Upload>,
        (to_head, head_left_ms): (bool, Option<u64>),
    ) -> Self {
        let mut timer = DeadlineTimer::new(&shared.deadlines);
        let mut wait = HeadWait::new(shared.settings.body_timeout_ms, shared.settings.head_timeout_ms)
            .with_continue_timeout_ms(shared.settings.continue_timeout_ms)
            .with_head_left_ms(head_left_ms);
        if upload.is_none() {
            wait.handle(UploadState::Done, &mut timer);
        }
        Self {
            shared: Rc::clone(shared),
            pool: Rc::clone(pool),
            connection: Some(connection),
            upload: upload.map(Box::new),
            upload_cut: false,
            timer,
            wait,
            stash: Vec::new(),
            interims: 0,
            to_head,
            asks_upgrade: false,
            reused: true,
            may_pool: true,
        }
    }

    /// Advances the exchange. If the final response arrived completely with its head, calls `look` with it. If `look`
    /// returns true, the result is `None`; otherwise, the response is returned as usual.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        interims: &mut impl FnMut(u16, &[u8]),
        look: &mut impl FnMut(&WholeAnswer<'_>) -> bool,
    ) -> Poll<Result<Option<Incoming>, ExchangeFailure>> {
        loop {
            if let Err(failure) = self.poll_upload(context) {
                return Poll::Ready(Err(failure));
            }
            let was_held = self.is_held();
            if let Poll::Ready(received) = self.poll_heads(context, interims, look) {
                return Poll::Ready(received);
            }
            if was_held && !self.is_held() {
                continue;
            }
            if self.timer.poll_expired(context).is_pending() {
                return Poll::Pending;
            }
            if !self.wait.is_for_continue() {
                let failure = self.wait.timeout(OriginFailure::UploadTimeout, OriginFailure::HeadTimeout);
                return Poll::Ready(Err(self.fail(failure)));
            }
            self.release();
        }
    }

    /// Receives response heads up to the final one.
    fn poll_heads(
        &mut self,
        context: &mut Context<'_>,
        interims: &mut impl FnMut(u16, &[u8]),
        look: &mut impl FnMut(&WholeAnswer<'_>) -> bool,
    ) -> Poll<Result<Option<Incoming>, ExchangeFailure>> {
        let shared = Rc::clone(&self.shared);
        loop {
            let Some(Connection { transport, .. }) = &mut self.connection else {
                return Poll::Ready(Err(self.cut()));
            };
            let mut input = shared.input.borrow_mut();
            match ready!(transport.poll_receive(context, &mut input[..shared.receive_bytes_max()])) {
                Ok(0) => return Poll::Ready(Err(self.cut())),
                Ok(count) => {
                    shared.counts.bytes_received.add(count as u64);
                    match self.handle_bytes(&input[..count], interims, look) {
                        Ok(Heads::Partial) => {}
                        Ok(Heads::Taken) => return Poll::Ready(Ok(None)),
                        Ok(Heads::Final(head)) => {
                            drop(input);
                            return Poll::Ready(self.answer(head).map(Some));
                        }
                        Err(failure) => return Poll::Ready(Err(failure)),
                    }
                }
                Err(error) => return Poll::Ready(Err(self.broken(&error))),
            }
        }
    }

    /// Returns whether the content is held back until the origin requests it.
    fn is_held(&self) -> bool {
        self.upload.as_ref().is_some_and(|upload| upload.is_held())
    }

    /// Stops holding the content back.
    fn release(&mut self) {
        if let Some(upload) = &mut self.upload {
            upload.release();
        }
    }

    /// Continues sending the request, and sets the deadline accordingly.
    fn poll_upload(&mut self, context: &mut Context<'_>) -> Result<(), ExchangeFailure> {
        let (Some(upload), Some(connection)) = (&mut self.upload, &mut self.connection) else { return Ok(()) };
        let sent = upload.advance(&self.shared, &mut connection.transport, context);
        let state = sent.map_err(|failure| ExchangeFailure::new(failure, Repeat::Never))?;
        match state {
            UploadState::Client | UploadState::Continue | UploadState::Server(_) => {}
            UploadState::Closed if upload.sent_bytes() == 0 => {
                return Err(ExchangeFailure::new(OriginFailure::Reset, Repeat::Always));
            }
            // The origin may have responded before it stopped reading.
            UploadState::Closed | UploadState::Done => {
                self.upload_cut = state == UploadState::Closed;
                self.upload = None;
            }
        }
        self.wait.handle(state, &mut self.timer);
        Ok(())
    }

    /// Reads response heads from received bytes, up to the final one.
    fn handle_bytes(
        &mut self,
        received: &[u8],
        interims: &mut impl FnMut(u16, &[u8]),
        look: &mut impl FnMut(&WholeAnswer<'_>) -> bool,
    ) -> Result<Heads, ExchangeFailure> {
        if self.stash.is_empty() {
            let (used, heads) = self.read_heads(received, false, interims, look)?;
            if matches!(heads, Heads::Partial) {
                self.stash.extend_from_slice(&received[used..]);
            }
            return Ok(heads);
        }
        let mut stash = std::mem::take(&mut self.stash);
        stash.extend_from_slice(received);
        let (used, heads) = self.read_heads(&stash, false, interims, look)?;
        if matches!(heads, Heads::Partial) {
            stash.drain(..used);
            self.stash = stash;
        }
        Ok(heads)
    }

    /// Reads response heads from `bytes`, up to the final one. Also returns the number of bytes used, which does not
    /// include a final head. `is_repaired` is true if the first head was [repaired](repair_response_head).
    fn read_heads(
        &mut self,
        bytes: &[u8],
        is_repaired: bool,
        interims: &mut impl FnMut(u16, &[u8]),
        look: &mut impl FnMut(&WholeAnswer<'_>) -> bool,
    ) -> Result<(usize, Heads), ExchangeFailure> {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            if rest.is_empty() {
                return Ok((used, Heads::Partial));
            }
            let mut storage = FieldStorage::new();
            let head = match parse_response_head(rest, self.to_head, &self.shared.limits, &mut storage) {
                Ok(Some(head)) => head,
                Ok(None) => return Ok((used, Heads::Partial)),
                Err(refusal) if is_repaired && used == 0 => return Err(ExchangeFailure::head(refusal)),
                Err(refusal) => {
                    let (used_of_rest, heads) = self.read_repaired(rest, refusal, interims, look)?;
                    return Ok((used + used_of_rest, heads));
                }
            };
            self.may_pool &= !head.authenticates_connection;
            let section_at = head.head_bytes - head.fields.section().len();
            if head.status >= 200 || head.status == 101 {
                let heads = if self.look_at(&head, rest, section_at, look) {
                    Heads::Taken
                } else {
                    let timeout_ms = self.shared.settings.piece_timeout_ms(head.fields.first("content-type"));
                    Heads::Final(copy_final(&self.shared, &head, rest, section_at, timeout_ms))
                };
                return Ok((used, heads));
            }
            self.may_pool &= head.persistent;
            self.interims += 1;
            if self.interims > self.shared.settings.interims_max {
                return Err(ExchangeFailure::new(OriginFailure::InterimsTooMany, Repeat::Never));
            }
            match head.status {
                // The client receives its own 100 (Continue) when its content is polled.
                100 => self.release(),
                status => interims(status, &rest[section_at..head.head_bytes - 2]),
            }
            used += head.head_bytes;
        }
    }

    /// Reads response heads of which the first was refused because of `refusal`, if it is a kind that old origins send
    /// and that can be repaired.
    fn read_repaired(
        &mut self,
        bytes: &[u8],
        refusal: Refusal,
        interims: &mut impl FnMut(u16, &[u8]),
        look: &mut impl FnMut(&WholeAnswer<'_>) -> bool,
    ) -> Result<(usize, Heads), ExchangeFailure> {
        let repaired = repair_response_head(bytes, refusal, &self.shared.limits).map_err(ExchangeFailure::head)?;
        let Some(RepairedHead { head: mut repaired, received_bytes }) = repaired else {
            return Ok((0, Heads::Partial));
        };
        repaired.extend_from_slice(&bytes[received_bytes..]);
        let (used, heads) = self.read_heads(&repaired, true, interims, look)?;
        // A final head is not included in `used`.
        let left_bytes = repaired.len() - used;
        Ok((bytes.len().saturating_sub(left_bytes), heads))
    }

    /// Calls `look` if the response is complete and ordinary. If `look` accepts the response, pools the connection if
    /// it is persistent. Returns whether it was accepted.
    fn look_at(
        &mut self,
        head: &ResponseHead<'_>,
        bytes: &[u8],
        section_at: usize,
        look: &mut impl FnMut(&WholeAnswer<'_>) -> bool,
    ) -> bool {
        let (lines, content) = (&bytes[section_at..head.head_bytes - 2], &bytes[head.head_bytes..]);
        let is_whole = match head.framing {
            Framing::None => content.is_empty(),
            Framing::Length(length) => content.len() as u64 == length,
            Framing::Chunked | Framing::UntilClose => false,
        };
        if !is_whole || matches!(head.status, 101 | 408) || self.upload.is_some() || self.upload_cut {
            return false;
        }
        if !look(&WholeAnswer { head, lines, content }) {
            return false;
        }
        self.shared.counts.responses.add(1);
        if let Some(connection) = self.connection.take().filter(|_| head.persistent && self.may_pool) {
            self.pool.check_in(&self.shared, connection, keep_alive_ms(head.fields));
        }
        true
    }

    /// Turns the final head into a response. The connection is passed on to the body, pooled or closed.
    fn answer(&mut self, head: Final) -> Result<Incoming, ExchangeFailure> {
        let Final { status, reason, version, framing, content_length, piece_timeout_ms, persistent, .. } = head;
        let Final { bytes, section_bytes, keep_alive_ms, .. } = head;
        let section = bytes.slice(0..section_bytes);
        let rest = bytes.slice(section_bytes..bytes.len());
        let Some(connection) = self.connection.take() else { return Err(self.cut()) };
        self.shared.counts.responses.add(1);
        if self.upload.take_if(|upload| upload.is_held()).is_some() {
            // RFC 9110 §10.1.1: the origin does not want the content, so the client does not send it.
            self.upload_cut = true;
        }
        if status == 101 {
            if !self.asks_upgrade || self.upload.is_some() || self.upload_cut || version < Version::Http11 {
                return Err(ExchangeFailure::new(OriginFailure::SwitchedUnasked, Repeat::Never));
            }
            let mut incoming = Incoming::new(status, version, section, IncomingBody::empty());
            incoming.upgraded = Some(Box::new(Upgraded { received: rest.to_vec(), transport: connection.transport }));
            incoming.reused = self.reused;
            return Ok(incoming);
        }
        if status == 408 && self.reused && !persistent {
            // The origin reported that it had waited too long for a request, while this request was in transit (RFC
            // 9110 §15.5.9).
            return Err(ExchangeFailure::new(OriginFailure::ClosedBeforeHead, Repeat::Idempotent));
        }
        let persistent = persistent && self.may_pool && !self.upload_cut;
        let may_persist = persistent && self.upload.is_none();
        // If the framing of the body is already known to be invalid, the exchange fails, so that the client receives an
        // error.
        let whole = decode_whole(framing, &rest, &self.shared.limits).map_err(ExchangeFailure::body)?;
        let body = match whole {
            Some(whole) => {
                // If bytes follow the end of the response, nothing received on this connection could be trusted any
                // more.
                if may_persist && !whole.has_surplus {
                    self.pool.check_in(&self.shared, connection, keep_alive_ms);
                }
                IncomingBody::whole_of(whole.content, whole.trailers)
            }
            None => match BodyDecoder::of_response(framing, &self.shared.limits) {
                // Cannot happen, because `decode_whole` returns a value if there is no body.
                None => IncomingBody::empty(),
                Some(decoder) => IncomingBody::streaming(Streaming {
                    shared: Rc::clone(&self.shared),
                    pool: Rc::clone(&self.pool),
                    connection: Some(connection),
                    decoder,
                    received_bytes: rest.len(),
                    received: Received::new(rest),
                    upload: self.upload.take(),
                    persistent,
                    keep_alive_ms,
                    ended: false,
                    timer: DeadlineTimer::new(&self.shared.deadlines),
                    piece_timeout_ms,
                }),
            },
        };
        let mut incoming = Incoming::new(status, version, section, body);
        incoming.reason = reason;
        incoming.content_length = content_length;
        incoming.ends_with_connection = framing == Framing::UntilClose;
        incoming.reused = self.reused;
        Ok(incoming)
    }

    /// Returns the failure for a connection that the origin closed.
    fn cut(&self) -> ExchangeFailure {
        let begun = !self.stash.is_empty() || self.interims > 0;
        self.fail(if begun { OriginFailure::CutHead } else { OriginFailure::ClosedBeforeHead })
    }

    /// Returns the failure for a receive that failed. The end of a TLS connection without close_notify is treated as an
    /// ordinary close.
    fn broken(&self, error: &io::Error) -> ExchangeFailure {
        if error.kind() == io::ErrorKind::UnexpectedEof { self.cut() } else { self.fail(OriginFailure::Reset) }
    }

    fn fail(&self, failure: OriginFailure) -> ExchangeFailure {
        let begun = !self.stash.is_empty() || self.interims > 0;
        ExchangeFailure::new(failure, if begun { Repeat::Never } else { Repeat::Idempotent })
    }
}

/// Copies the final head from the receive buffer: the field lines and all bytes after them, in one copy.
fn copy_final(
    shared: &OriginShared,
    head: &ResponseHead<'_>,
    bytes: &[u8],
    section_at: usize,
    piece_timeout_ms: u64,
) -> Final {
    Final {
        status: head.status,
        reason: head.unusual_reason().map(Into::into),
        version: head.version,
        framing: head.framing,
        content_length: head.content_length,
        piece_timeout_ms,
        persistent: head.persistent,
        keep_alive_ms: keep_alive_ms(head.fields),
        bytes: shared.copy(&bytes[section_at..]),
        section_bytes: head.head_bytes - section_at,
    }
}
