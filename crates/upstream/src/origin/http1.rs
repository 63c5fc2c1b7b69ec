//! An exchange over HTTP/1.1, up to the head of the final answer.

use super::body::IncomingBody;
use super::client::OriginShared;
use super::failure::{ExchangeFailure, OriginFailure, Repeat};
use super::pool::OriginPool;
use super::request::OutgoingRequest;
use super::response::Incoming;
use super::streaming::{Received, Streaming, decode_whole};
use super::upload::{Upload, UploadError, UploadWait};
use flatout_handler::shared::SharedBytes;
use flatout_http::body::BodyDecoder;
use flatout_http::framing::{Framing, Version};
use flatout_http::head::FieldStorage;
use flatout_http::response::{ResponseHead, parse_response_head};
use flatout_net::task_deadlines::DeadlineTimer;
use flatout_net::transport::{Transport, Upgraded};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The state of an exchange while its response is awaited.
pub(super) struct Http1Exchange {
    pub(super) shared: Rc<OriginShared>,
    pool: Rc<OriginPool>,
    /// Present until the response takes it.
    transport: Option<Transport>,
    upload: Option<Upload>,
    /// Bytes sent, once the upload has ended.
    sent_bytes: u64,
    /// The origin stopped reading. It may have responded nevertheless.
    upload_cut: bool,
    timer: DeadlineTimer,
    /// The failure to report if the current wait times out.
    waits_for: OriginFailure,
    /// A partial head. Empty, and never allocated, if heads arrive in one piece.
    stash: Vec<u8>,
    interims: u32,
    to_head: bool,
    asks_upgrade: bool,
    reused: bool,
}

/// Sends `request` and returns with the head of the final answer.
pub(super) async fn exchange(
    shared: &Rc<OriginShared>,
    pool: &Rc<OriginPool>,
    transport: Transport,
    reused: bool,
    request: &mut OutgoingRequest<'_>,
    interims: &mut impl FnMut(u16, &[u8]),
) -> Result<Incoming, ExchangeFailure> {
    let mut exchange = Http1Exchange::new(shared, pool, transport, reused, request);
    poll_fn(|context| {
        exchange.poll(context, interims, &mut |_| None::<Infallible>).map_ok(|answer| match answer {
            ExchangeResult::Incoming(incoming) => incoming,
            ExchangeResult::Taken(never) => match never {},
        })
    })
    .await
}

/// A complete final response in the receive buffer. It is never a 101.
#[derive(Clone, Copy, Debug)]
pub struct WholeAnswer<'a> {
    /// The head.
    pub head: &'a ResponseHead<'a>,
    /// Its field lines, each `Name: value` and CR LF.
    pub lines: &'a [u8],
    /// The content; empty if there is none.
    pub content: &'a [u8],
}

/// The result of an exchange.
#[derive(Debug)]
pub(super) enum ExchangeResult<T> {
    /// The value that `look` returned for the complete response.
    Taken(T),
    Incoming(Incoming),
}

/// The result of reading heads.
enum Heads<T> {
    Partial,
    Final(Final),
    Taken(T),
}

/// The relevant parts of a final head, after its fields were copied.
struct Final {
    status: u16,
    version: Version,
    framing: Framing,
    content_length: Option<u64>,
    /// Timeout for more of the body, in milliseconds.
    piece_timeout_ms: u64,
    persistent: bool,
    /// The field lines, the empty line and the bytes that follow.
    bytes: SharedBytes,
    section_bytes: usize,
}

impl Http1Exchange {
    /// An exchange whose request has not been sent.
    pub(super) fn new(
        shared: &Rc<OriginShared>,
        pool: &Rc<OriginPool>,
        transport: Transport,
        reused: bool,
        request: &mut OutgoingRequest<'_>,
    ) -> Self {
        Self {
            shared: Rc::clone(shared),
            pool: Rc::clone(pool),
            transport: Some(transport),
            upload: Some(Upload::new(shared, request)),
            sent_bytes: 0,
            upload_cut: false,
            timer: DeadlineTimer::new(&shared.deadlines),
            waits_for: OriginFailure::HeadTimeout,
            stash: Vec::new(),
            interims: 0,
            to_head: request.method == "HEAD",
            asks_upgrade: request.upgrade.is_some(),
            reused,
        }
    }

    /// Advances the exchange. `look` is called once with a complete final response; its value is the result of the
    /// exchange. If it returns `None`, the response is returned as usual.
    pub(super) fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        interims: &mut impl FnMut(u16, &[u8]),
        look: &mut impl FnMut(&WholeAnswer<'_>) -> Option<T>,
    ) -> Poll<Result<ExchangeResult<T>, ExchangeFailure>> {
        if let Err(failure) = self.poll_upload(context) {
            return Poll::Ready(Err(failure));
        }
        let shared = Rc::clone(&self.shared);
        loop {
            let Some(transport) = &mut self.transport else {
                return Poll::Ready(Err(self.cut()));
            };
            let mut input = shared.input.borrow_mut();
            match transport.poll_receive(context, &mut input[..shared.receive_bytes_max()]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(self.cut())),
                Poll::Ready(Ok(count)) => {
                    shared.counts.bytes_received.add(count as u64);
                    match self.handle_bytes(&input[..count], interims, look) {
                        Ok(Heads::Partial) => {}
                        Ok(Heads::Taken(taken)) => return Poll::Ready(Ok(ExchangeResult::Taken(taken))),
                        Ok(Heads::Final(head)) => {
                            drop(input);
                            return Poll::Ready(self.answer(head).map(ExchangeResult::Incoming));
                        }
                        Err(failure) => return Poll::Ready(Err(failure)),
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.broken(&error))),
                Poll::Pending => break,
            }
        }
        if self.timer.poll_expired(context).is_ready() {
            return Poll::Ready(Err(self.fail(self.waits_for)));
        }
        Poll::Pending
    }

    /// Continues sending, and sets the deadline accordingly.
    pub(super) fn poll_upload(&mut self, context: &mut Context<'_>) -> Result<(), ExchangeFailure> {
        let (Some(upload), Some(transport)) = (&mut self.upload, &mut self.transport) else { return Ok(()) };
        let before = upload.sent_bytes();
        let polled = upload.poll(&self.shared, transport, context);
        self.sent_bytes = upload.sent_bytes();
        match polled {
            Poll::Pending if upload.wait() == UploadWait::Client => {
                // The reader of the client's content bounds the client's time.
                self.timer.clear();
                return Ok(());
            }
            Poll::Pending => {
                if !self.timer.is_waiting() || self.sent_bytes > before {
                    self.waits_for = OriginFailure::UploadTimeout;
                    self.timer.begin(self.shared.settings.body_timeout_ms);
                }
                return Ok(());
            }
            Poll::Ready(Err(UploadError::ClientCut)) => {
                return Err(ExchangeFailure::new(OriginFailure::ClientCutContent, Repeat::Never));
            }
            Poll::Ready(Err(UploadError::Socket)) if self.sent_bytes == 0 => {
                return Err(ExchangeFailure::new(OriginFailure::Reset, Repeat::Always));
            }
            // The origin may have responded before it closed.
            Poll::Ready(Err(UploadError::Socket)) => self.upload_cut = true,
            Poll::Ready(Ok(())) => {}
        }
        self.upload = None;
        self.waits_for = OriginFailure::HeadTimeout;
        self.timer.begin(self.shared.settings.head_timeout_ms);
        Ok(())
    }

    /// Reads heads up to the final one.
    fn handle_bytes<T>(
        &mut self,
        received: &[u8],
        interims: &mut impl FnMut(u16, &[u8]),
        look: &mut impl FnMut(&WholeAnswer<'_>) -> Option<T>,
    ) -> Result<Heads<T>, ExchangeFailure> {
        if self.stash.is_empty() {
            let (used, heads) = self.read_heads(received, interims, look)?;
            if matches!(heads, Heads::Partial) {
                self.stash.extend_from_slice(&received[used..]);
            }
            return Ok(heads);
        }
        let mut stash = std::mem::take(&mut self.stash);
        stash.extend_from_slice(received);
        let (used, heads) = self.read_heads(&stash, interims, look)?;
        if matches!(heads, Heads::Partial) {
            stash.drain(..used);
            self.stash = stash;
        }
        Ok(heads)
    }

    fn read_heads<T>(
        &mut self,
        bytes: &[u8],
        interims: &mut impl FnMut(u16, &[u8]),
        look: &mut impl FnMut(&WholeAnswer<'_>) -> Option<T>,
    ) -> Result<(usize, Heads<T>), ExchangeFailure> {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            if rest.is_empty() {
                return Ok((used, Heads::Partial));
            }
            let mut storage = FieldStorage::new();
            let parsed = parse_response_head(rest, self.to_head, &self.shared.limits, &mut storage);
            let Some(head) = parsed.map_err(ExchangeFailure::head)? else {
                return Ok((used, Heads::Partial));
            };
            let section_at = section_start(rest);
            if head.status >= 200 || head.status == 101 {
                let heads = if let Some(taken) = self.look_at(&head, rest, section_at, look) {
                    Heads::Taken(taken)
                } else {
                    let timeout_ms = self.shared.settings.piece_timeout_ms(head.fields.first("content-type"));
                    Heads::Final(copy_final(&self.shared, &head, rest, section_at, timeout_ms))
                };
                return Ok((used, heads));
            }
            self.interims += 1;
            if self.interims > self.shared.settings.interims_max {
                return Err(ExchangeFailure::new(OriginFailure::InterimsTooMany, Repeat::Never));
            }
            // 100 is hop-by-hop: the client's server has sent its own.
            if head.status != 100 {
                interims(head.status, &rest[section_at..head.head_bytes - 2]);
            }
            used += head.head_bytes;
        }
    }

    /// Calls `look` if the response is complete and ordinary. If it takes the response, the connection is pooled.
    fn look_at<T>(
        &mut self,
        head: &ResponseHead<'_>,
        bytes: &[u8],
        section_at: usize,
        look: &mut impl FnMut(&WholeAnswer<'_>) -> Option<T>,
    ) -> Option<T> {
        let (lines, content) = (&bytes[section_at..head.head_bytes - 2], &bytes[head.head_bytes..]);
        let is_whole = match head.framing {
            Framing::None => content.is_empty(),
            Framing::Length(length) => content.len() as u64 == length,
            Framing::Chunked | Framing::UntilClose => false,
        };
        if !is_whole || matches!(head.status, 101 | 408) || self.upload.is_some() || self.upload_cut {
            return None;
        }
        let taken = look(&WholeAnswer { head, lines, content })?;
        self.shared.counts.responses.add(1);
        if let Some(transport) = self.transport.take().filter(|_| head.persistent) {
            self.pool.check_in(&self.shared, transport);
        }
        Some(taken)
    }

    /// Handles the final head; the connection continues with the body, or is pooled.
    fn answer(&mut self, head: Final) -> Result<Incoming, ExchangeFailure> {
        let Final { status, version, framing, content_length, piece_timeout_ms, persistent, bytes, section_bytes } =
            head;
        let section = bytes.slice(0..section_bytes);
        let rest = bytes.slice(section_bytes..bytes.len());
        let Some(transport) = self.transport.take() else { return Err(self.cut()) };
        self.shared.counts.responses.add(1);
        if status == 101 {
            if !self.asks_upgrade || self.upload.is_some() || self.upload_cut || version < Version::Http11 {
                return Err(ExchangeFailure::new(OriginFailure::SwitchedUnasked, Repeat::Never));
            }
            let mut incoming = Incoming::new(status, version, section, IncomingBody::empty());
            incoming.upgraded = Some(Box::new(Upgraded { received: rest.to_vec(), transport }));
            incoming.reused = self.reused;
            return Ok(incoming);
        }
        if status == 408 && self.reused && !persistent {
            // It waited too long for a request, and reported that while this one was on its way (RFC 9110 §15.5.9).
            return Err(ExchangeFailure::new(OriginFailure::ClosedBeforeHead, Repeat::Idempotent));
        }
        let may_persist = persistent && self.upload.is_none() && !self.upload_cut;
        let body = match decode_whole(framing, &rest, &self.shared.limits) {
            Some(whole) => {
                // Bytes after the end were not requested: nothing that follows could be trusted.
                if may_persist && !whole.has_surplus {
                    self.pool.check_in(&self.shared, transport);
                }
                IncomingBody::whole_of(whole.content, whole.trailers)
            }
            None => match BodyDecoder::of_response(framing, &self.shared.limits) {
                // `decode_whole` returns a value if there is no body.
                None => IncomingBody::empty(),
                Some(decoder) => IncomingBody::streaming(Streaming {
                    shared: Rc::clone(&self.shared),
                    pool: Rc::clone(&self.pool),
                    transport: Some(transport),
                    decoder,
                    received_bytes: rest.len(),
                    received: Received::new(rest),
                    upload: self.upload.take(),
                    persistent: persistent && !self.upload_cut,
                    ended: false,
                    timer: DeadlineTimer::new(&self.shared.deadlines),
                    piece_timeout_ms,
                }),
            },
        };
        let mut incoming = Incoming::new(status, version, section, body);
        incoming.content_length = content_length;
        incoming.ends_with_connection = framing == Framing::UntilClose;
        incoming.reused = self.reused;
        Ok(incoming)
    }

    /// The failure of a closed connection.
    fn cut(&self) -> ExchangeFailure {
        let begun = !self.stash.is_empty() || self.interims > 0;
        self.fail(if begun { OriginFailure::CutHead } else { OriginFailure::ClosedBeforeHead })
    }

    /// The failure of a receive. A TLS session closed without close_notify is an ordinary close.
    fn broken(&self, error: &io::Error) -> ExchangeFailure {
        if error.kind() == io::ErrorKind::UnexpectedEof { self.cut() } else { self.fail(OriginFailure::Reset) }
    }

    fn fail(&self, failure: OriginFailure) -> ExchangeFailure {
        let begun = !self.stash.is_empty() || self.interims > 0;
        ExchangeFailure::new(failure, if begun { Repeat::Never } else { Repeat::Idempotent })
    }
}

/// Offset of the field lines in a parsed head.
fn section_start(head: &[u8]) -> usize {
    head.iter().position(|&byte| byte == b'\n').map_or(0, |line_feed| line_feed + 1)
}

/// Copies the final response out of the worker's input buffer: the field lines and all bytes after them, at once.
fn copy_final(
    shared: &OriginShared,
    head: &ResponseHead<'_>,
    bytes: &[u8],
    section_at: usize,
    piece_timeout_ms: u64,
) -> Final {
    Final {
        status: head.status,
        version: head.version,
        framing: head.framing,
        content_length: head.content_length,
        piece_timeout_ms,
        persistent: head.persistent,
        bytes: shared.copy(&bytes[section_at..]),
        section_bytes: head.head_bytes - section_at,
    }
}
