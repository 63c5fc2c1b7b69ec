//! An exchange over HTTP/1.1, up to the head of the final answer.

use super::body::IncomingBody;
use super::client::Shared;
use super::failure::{ExchangeFailure, OriginFailure, Repeat};
use super::pool::OriginPool;
use super::request::OutgoingRequest;
use super::response::Incoming;
use super::streaming::{Received, Streaming, decode_whole};
use super::transport::{Transport, Upgraded};
use super::upload::{Upload, UploadError, UploadWait};
use super::waits::Patience;
use crate::shared::SharedBytes;
use flatout_http::body::BodyDecoder;
use flatout_http::framing::{Framing, Version};
use flatout_http::head::FieldStorage;
use flatout_http::response::{ResponseHead, parse_response_head};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

/// What is known of an exchange while its answer is awaited.
struct Exchange<'a> {
    shared: &'a Rc<Shared>,
    pool: &'a Rc<OriginPool>,
    /// Always there, until the answer takes it.
    transport: Option<Transport>,
    upload: Option<Upload>,
    /// Bytes sent, when the upload is over.
    sent_bytes: u64,
    /// The origin would take no more. It may have answered all the same.
    upload_cut: bool,
    patience: Patience,
    /// What the patience is for.
    waits_for: OriginFailure,
    /// The beginning of a head. Empty, and never allocated, where heads come in one piece.
    stash: Vec<u8>,
    interims: u32,
    to_head: bool,
    asks_upgrade: bool,
    reused: bool,
}

/// Sends `request` and returns with the head of the final answer.
pub(super) async fn exchange(
    shared: &Rc<Shared>,
    pool: &Rc<OriginPool>,
    transport: Transport,
    reused: bool,
    request: &mut OutgoingRequest<'_>,
    interims: &mut impl FnMut(u16, &[u8]),
) -> Result<Incoming, ExchangeFailure> {
    let mut exchange = Exchange {
        shared,
        pool,
        transport: Some(transport),
        upload: Some(Upload::new(shared, request)),
        sent_bytes: 0,
        upload_cut: false,
        patience: Patience::new(&shared.waits),
        waits_for: OriginFailure::HeadTimeout,
        stash: Vec::new(),
        interims: 0,
        to_head: request.method == "HEAD",
        asks_upgrade: request.upgrade.is_some(),
        reused,
    };
    poll_fn(|context| exchange.poll(context, interims)).await
}

/// What matters of a final head, once its fields are copied.
struct Final {
    status: u16,
    version: Version,
    framing: Framing,
    content_length: Option<u64>,
    persistent: bool,
    /// The field lines, the empty line and what came behind it.
    bytes: SharedBytes,
    section_bytes: usize,
}

impl Exchange<'_> {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        interims: &mut impl FnMut(u16, &[u8]),
    ) -> Poll<Result<Incoming, ExchangeFailure>> {
        if let Err(failure) = self.poll_upload(context) {
            return Poll::Ready(Err(failure));
        }
        let shared = self.shared;
        loop {
            let Some(transport) = &mut self.transport else {
                return Poll::Ready(Err(self.cut()));
            };
            let mut input = shared.input.borrow_mut();
            match transport.poll_receive(context, &mut input) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(self.cut())),
                Poll::Ready(Ok(count)) => {
                    shared.counts.bytes_received.add(count as u64);
                    match self.handle_bytes(&input[..count], interims) {
                        Ok(None) => {}
                        Ok(Some(head)) => {
                            drop(input);
                            return Poll::Ready(self.answer(head));
                        }
                        Err(failure) => return Poll::Ready(Err(failure)),
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.broken(&error))),
                Poll::Pending => break,
            }
        }
        if self.patience.poll_expired(context).is_ready() {
            return Poll::Ready(Err(self.fail(self.waits_for)));
        }
        Poll::Pending
    }

    /// Goes on sending, and sets whom we wait for.
    fn poll_upload(&mut self, context: &mut Context<'_>) -> Result<(), ExchangeFailure> {
        let (Some(upload), Some(transport)) = (&mut self.upload, &mut self.transport) else { return Ok(()) };
        let before = upload.sent_bytes();
        let polled = upload.poll(self.shared, transport, context);
        self.sent_bytes = upload.sent_bytes();
        match polled {
            Poll::Pending if upload.wait() == UploadWait::Client => {
                // How long the client may take is for whoever reads from it to say.
                self.patience.clear();
                return Ok(());
            }
            Poll::Pending => {
                if !self.patience.is_waiting() || self.sent_bytes > before {
                    self.waits_for = OriginFailure::UploadTimeout;
                    self.patience.begin(self.shared.settings.body_timeout_ms);
                }
                return Ok(());
            }
            Poll::Ready(Err(UploadError::ClientCut)) => {
                return Err(ExchangeFailure::new(OriginFailure::ClientCutContent, Repeat::Never));
            }
            Poll::Ready(Err(UploadError::Socket)) if self.sent_bytes == 0 => {
                return Err(ExchangeFailure::new(OriginFailure::Reset, Repeat::Always));
            }
            // It may have answered before it ended.
            Poll::Ready(Err(UploadError::Socket)) => self.upload_cut = true,
            Poll::Ready(Ok(())) => {}
        }
        self.upload = None;
        self.waits_for = OriginFailure::HeadTimeout;
        self.patience.begin(self.shared.settings.head_timeout_ms);
        Ok(())
    }

    /// Reads heads up to the final one.
    fn handle_bytes(
        &mut self,
        received: &[u8],
        interims: &mut impl FnMut(u16, &[u8]),
    ) -> Result<Option<Final>, ExchangeFailure> {
        if self.stash.is_empty() {
            let (used, head) = self.read_heads(received, interims)?;
            if head.is_none() {
                self.stash.extend_from_slice(&received[used..]);
            }
            return Ok(head);
        }
        let mut stash = std::mem::take(&mut self.stash);
        stash.extend_from_slice(received);
        let (used, head) = self.read_heads(&stash, interims)?;
        if head.is_none() {
            stash.drain(..used);
            self.stash = stash;
        }
        Ok(head)
    }

    fn read_heads(
        &mut self,
        bytes: &[u8],
        interims: &mut impl FnMut(u16, &[u8]),
    ) -> Result<(usize, Option<Final>), ExchangeFailure> {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            if rest.is_empty() {
                return Ok((used, None));
            }
            let mut storage = FieldStorage::new();
            let parsed = parse_response_head(rest, self.to_head, &self.shared.limits, &mut storage);
            let Some(head) = parsed.map_err(ExchangeFailure::head)? else { return Ok((used, None)) };
            let section_at = section_start(rest);
            if head.status >= 200 || head.status == 101 {
                return Ok((used, Some(copy_final(&head, rest, section_at))));
            }
            self.interims += 1;
            if self.interims > self.shared.settings.interims_max {
                return Err(ExchangeFailure::new(OriginFailure::InterimsTooMany, Repeat::Never));
            }
            // 100 is between neighbours: whoever asked for it has been told by whoever it asked.
            if head.status != 100 {
                interims(head.status, &rest[section_at..head.head_bytes - 2]);
            }
            used += head.head_bytes;
        }
    }

    /// The final head is here; the connection goes on with the body, or waits for the next request.
    fn answer(&mut self, head: Final) -> Result<Incoming, ExchangeFailure> {
        let Final { status, version, framing, content_length, persistent, bytes, section_bytes } = head;
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
            // It waited too long for a request, and said so as this one was on its way (RFC 9110 §15.5.9).
            return Err(ExchangeFailure::new(OriginFailure::ClosedBeforeHead, Repeat::Idempotent));
        }
        let may_persist = persistent && self.upload.is_none() && !self.upload_cut;
        let body = match decode_whole(framing, &rest, &self.shared.limits) {
            Some(whole) => {
                // What lies behind the end was not asked for: nothing that follows could be believed.
                if may_persist && !whole.has_surplus {
                    self.pool.check_in(self.shared, transport);
                }
                IncomingBody::whole_of(whole.content, whole.trailers)
            }
            None => match BodyDecoder::new(framing, &self.shared.limits) {
                // `decode_whole` is whole where there is no body.
                None => IncomingBody::empty(),
                Some(decoder) => IncomingBody::streaming(Streaming {
                    shared: Rc::clone(self.shared),
                    pool: Rc::clone(self.pool),
                    transport: Some(transport),
                    decoder,
                    received_bytes: rest.len(),
                    received: Received::new(rest),
                    upload: self.upload.take(),
                    persistent: persistent && !self.upload_cut,
                    ended: false,
                    patience: Patience::new(&self.shared.waits),
                }),
            },
        };
        let mut incoming = Incoming::new(status, version, section, body);
        incoming.content_length = content_length;
        incoming.ends_with_connection = framing == Framing::UntilClose;
        incoming.reused = self.reused;
        Ok(incoming)
    }

    /// The connection ended.
    fn cut(&self) -> ExchangeFailure {
        let begun = !self.stash.is_empty() || self.interims > 0;
        self.fail(if begun { OriginFailure::CutHead } else { OriginFailure::ClosedBeforeHead })
    }

    /// Receiving failed. A session of TLS that ends without saying so is no more than an end.
    fn broken(&self, error: &io::Error) -> ExchangeFailure {
        if error.kind() == io::ErrorKind::UnexpectedEof { self.cut() } else { self.fail(OriginFailure::Reset) }
    }

    fn fail(&self, failure: OriginFailure) -> ExchangeFailure {
        let begun = !self.stash.is_empty() || self.interims > 0;
        ExchangeFailure::new(failure, if begun { Repeat::Never } else { Repeat::Idempotent })
    }
}

/// Where the field lines of a head begin that was parsed.
fn section_start(head: &[u8]) -> usize {
    head.iter().position(|&byte| byte == b'\n').map_or(0, |line_feed| line_feed + 1)
}

/// Copies what is kept of the final answer out of the worker's input buffer: the field lines and all that came behind
/// them, at once.
fn copy_final(head: &ResponseHead<'_>, bytes: &[u8], section_at: usize) -> Final {
    Final {
        status: head.status,
        version: head.version,
        framing: head.framing,
        content_length: head.content_length,
        persistent: head.persistent,
        bytes: SharedBytes::from(&bytes[section_at..]),
        section_bytes: head.head_bytes - section_at,
    }
}
