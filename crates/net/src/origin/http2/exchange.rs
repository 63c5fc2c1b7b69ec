//! An exchange on a stream, up to the head of the final answer.

use super::body::Http2Body;
use super::sending::{SendError, SendPiece, Taken, UploadSending};
use super::{ReadyConnection, StreamGuard, connection, name_error};
use crate::origin::body::IncomingBody;
use crate::origin::client::{OriginShared, may_repeat};
use crate::origin::failure::{ExchangeFailure, OriginFailure, Repeat};
use crate::origin::pool::OriginPool;
use crate::origin::request::OutgoingRequest;
use crate::origin::response::Incoming;
use crate::origin::timeouts::DeadlineTimer;
use crate::response::{encode_lines, parse_lines};
use crate::shared::SharedBytes;
use crate::windows::ConnectionWindows;
use flatout_http::framing::Version;
use flatout_http::media::is_grpc;
use flatout_http::refusal::Refusal;
use flatout_http::token::parse_decimal;
use h2::client::{ResponseFuture, SendRequest};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Sends `request` on a stream; `None` if the origin does not speak HTTP/2.
pub(in crate::origin) async fn exchange(
    shared: &Rc<OriginShared>,
    pool: &Rc<OriginPool>,
    request: &mut OutgoingRequest<'_>,
    interims: &mut impl FnMut(u16, &[u8]),
) -> Result<Option<Incoming>, ExchangeFailure> {
    let mut repeated = false;
    loop {
        let Some(ReadyConnection { sender, windows, generation, reused }) = connection(shared, pool).await? else {
            return Ok(None);
        };
        match exchange_on(shared, pool, (sender, windows), reused, request, interims).await {
            Err(failure) => {
                // In any case, the next exchange is better served by a new connection.
                if failure.failure.is_origin_fault() {
                    pool.http2.forget_if(generation);
                }
                if repeated || !reused || !may_repeat(failure, request) {
                    return Err(failure);
                }
                repeated = true;
                shared.counts.repeats.add(1);
            }
            Ok(incoming) => return Ok(Some(incoming)),
        }
    }
}

async fn exchange_on(
    shared: &Rc<OriginShared>,
    pool: &Rc<OriginPool>,
    (sender, windows): (SendRequest<SendPiece>, Rc<ConnectionWindows>),
    reused: bool,
    request: &mut OutgoingRequest<'_>,
    interims: &mut impl FnMut(u16, &[u8]),
) -> Result<Incoming, ExchangeFailure> {
    let guard = StreamGuard::new(pool);
    let mut timer = DeadlineTimer::new(&shared.deadlines);
    timer.begin(shared.settings.connect_timeout_ms);
    let no_stream = ExchangeFailure::new(OriginFailure::H2NoStream, Repeat::Always);
    let ready = timer.bound(sender.ready()).await.ok_or(no_stream)?;
    let mut sender = ready.map_err(|error| ExchangeFailure { repeat: Repeat::Always, ..name_error(&error) })?;
    let unsendable = ExchangeFailure::new(OriginFailure::RequestUnsendable, Repeat::Never);
    let mut head = build_head(pool, request).ok_or(unsendable)?;
    let taken = Taken::new(request);
    // RFC 9110 has no limit for it, and gRPC has its own: a head may come with the first message.
    let is_grpc = head.headers().get(CONTENT_TYPE).is_some_and(|media| is_grpc(media.as_bytes()));
    let settings = &shared.settings;
    let head_timeout_ms = if is_grpc { settings.stream_timeout_ms } else { settings.head_timeout_ms };
    if let Some(length) = taken.length {
        head.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    let is_empty = taken.is_empty();
    let (response, stream) = sender.send_request(head, is_empty).map_err(|error| name_error(&error))?;
    if reused {
        shared.counts.connections_reused.add(1);
    }
    let mut awaiting = Awaiting {
        shared,
        response,
        sending: (!is_empty).then(|| UploadSending::new(stream, taken)),
        timer,
        head_timeout_ms,
        waits_for: OriginFailure::HeadTimeout,
        upload_cut: false,
        interims: 0,
    };
    awaiting.timer.begin(head_timeout_ms);
    let response = poll_fn(|context| awaiting.poll(context, interims)).await?;
    shared.counts.responses.add(1);
    let (mut parts, stream) = response.into_parts();
    let content_length = take_content_length(&mut parts.headers).map_err(ExchangeFailure::head)?;
    let mut section = encode_lines(&parts.headers);
    section.extend_from_slice(b"\r\n");
    let Awaiting { sending, upload_cut, .. } = awaiting;
    let early = upload_cut || sending.is_some();
    let media = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let deadlines = (content_length, shared.settings.piece_timeout_ms(media));
    let body = Http2Body::new(shared, stream, (sending, early), deadlines, windows.reader(), guard);
    let body = if body.is_empty() { IncomingBody::empty() } else { IncomingBody::http2(body) };
    let mut incoming = Incoming::new(parts.status.as_u16(), Version::Http2, SharedBytes::from(section), body);
    incoming.content_length = content_length;
    incoming.reused = reused;
    Ok(incoming)
}

/// The value of Content-Length. Identical lines become one: an HTTP/1.1 client may treat two as an attack (RFC 9110
/// §8.6).
fn take_content_length(headers: &mut HeaderMap) -> Result<Option<u64>, Refusal> {
    let mut values = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = values.next() else { return Ok(None) };
    let length = parse_decimal(first.as_bytes()).ok_or(Refusal::LengthInvalid)?;
    let mut is_single = true;
    for other in values {
        is_single = false;
        if parse_decimal(other.as_bytes()) != Some(length) {
            return Err(Refusal::LengthDuplicate);
        }
    }
    if !is_single {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(Some(length))
}

/// The state of an exchange while its response is awaited.
struct Awaiting<'a> {
    shared: &'a OriginShared,
    response: ResponseFuture,
    sending: Option<UploadSending>,
    timer: DeadlineTimer,
    head_timeout_ms: u64,
    waits_for: OriginFailure,
    /// The origin stopped reading the request.
    upload_cut: bool,
    interims: u32,
}

impl Awaiting<'_> {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        interims: &mut impl FnMut(u16, &[u8]),
    ) -> Poll<Result<http::Response<h2::RecvStream>, ExchangeFailure>> {
        if let Err(failure) = self.poll_sending(context) {
            return Poll::Ready(Err(failure));
        }
        while let Poll::Ready(Some(Ok(interim))) = self.response.poll_informational(context) {
            self.interims += 1;
            if self.interims > self.shared.settings.interims_max {
                return Poll::Ready(Err(ExchangeFailure::new(OriginFailure::InterimsTooMany, Repeat::Never)));
            }
            if interim.status() != StatusCode::CONTINUE && interim.status() != StatusCode::SWITCHING_PROTOCOLS {
                interims(interim.status().as_u16(), &encode_lines(interim.headers()));
            }
        }
        if let Poll::Ready(response) = Pin::new(&mut self.response).poll(context) {
            return Poll::Ready(match response {
                // RFC 9113 §8.6: HTTP/2 has no 101.
                Ok(response) if response.status().as_u16() < 200 => {
                    Err(ExchangeFailure::new(OriginFailure::SwitchedUnasked, Repeat::Never))
                }
                Ok(response) => Ok(response),
                Err(error) => Err(self.name(&error)),
            });
        }
        if self.timer.poll_expired(context).is_ready() {
            return Poll::Ready(Err(ExchangeFailure::new(self.waits_for, Repeat::Idempotent)));
        }
        Poll::Pending
    }

    fn name(&self, error: &h2::Error) -> ExchangeFailure {
        let failure = name_error(error);
        let repeat = if self.interims > 0 { Repeat::Never } else { failure.repeat };
        ExchangeFailure { repeat, ..failure }
    }

    /// Continues sending, and sets the deadline accordingly.
    fn poll_sending(&mut self, context: &mut Context<'_>) -> Result<(), ExchangeFailure> {
        let Some(sending) = &mut self.sending else { return Ok(()) };
        let before = sending.sent_bytes;
        match sending.poll(context) {
            Poll::Pending if !sending.blocked => {
                self.timer.clear();
                return Ok(());
            }
            Poll::Pending => {
                if !self.timer.is_waiting()
                    || self.waits_for != OriginFailure::UploadTimeout
                    || sending.sent_bytes > before
                {
                    self.waits_for = OriginFailure::UploadTimeout;
                    self.timer.begin(self.shared.settings.body_timeout_ms);
                }
                return Ok(());
            }
            Poll::Ready(Err(SendError::ClientCut)) => {
                return Err(ExchangeFailure::new(OriginFailure::ClientCutContent, Repeat::Never));
            }
            // The response may still come; if not, it reports why.
            Poll::Ready(Err(SendError::Stream)) => self.upload_cut = true,
            Poll::Ready(Ok(())) => {}
        }
        self.sending = None;
        self.waits_for = OriginFailure::HeadTimeout;
        self.timer.begin(self.head_timeout_ms);
        Ok(())
    }
}

/// The request's head in HTTP/2 form; `None` if it has none.
fn build_head(pool: &OriginPool, request: &OutgoingRequest<'_>) -> Option<Request<()>> {
    let mut fields = parse_lines(request.lines);
    let host = fields.remove(HOST);
    let authority = match &host {
        Some(host) => Authority::try_from(host.as_bytes()).ok()?,
        None => Authority::try_from(pool.address.authority()).ok()?,
    };
    let uri = Uri::builder()
        .scheme(if pool.address.secure { Scheme::HTTPS } else { Scheme::HTTP })
        .authority(authority)
        .path_and_query(PathAndQuery::try_from(request.target).ok()?)
        .build()
        .ok()?;
    let mut head = Request::new(());
    *head.method_mut() = Method::from_bytes(request.method.as_bytes()).ok()?;
    *head.uri_mut() = uri;
    *head.headers_mut() = fields;
    Some(head)
}
