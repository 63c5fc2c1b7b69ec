//! An exchange on a stream, up to the head of the final answer.

use super::body::Http2Body;
use super::sending::{SendError, Taken, UploadSending};
use super::{ReadyConnection, StreamGuard, connection, name_error};
use crate::origin::body::IncomingBody;
use crate::origin::client::{OriginShared, may_repeat};
use crate::origin::failure::{ExchangeFailure, OriginFailure, Repeat};
use crate::origin::pool::OriginPool;
use crate::origin::request::OutgoingRequest;
use crate::origin::response::Incoming;
use flatout_handler::response::encode_fields;
use flatout_handler::shared::SharedBytes;
use flatout_http::framing::Version;
use flatout_http::http2::hpack::encode_field;
use flatout_http::media::is_grpc;
use flatout_http::token::trim;
use flatout_net::http2::{ClientConnection, ClientStream, ResponseFields, StreamError};
use flatout_net::task_deadlines::DeadlineTimer;
use std::future::poll_fn;
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
        let Some(ReadyConnection { connection, generation, reused }) = connection(shared, pool).await? else {
            return Ok(None);
        };
        match exchange_on(shared, pool, connection, reused, request, interims).await {
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
    connection: ClientConnection,
    reused: bool,
    request: &mut OutgoingRequest<'_>,
    interims: &mut impl FnMut(u16, &[u8]),
) -> Result<Incoming, ExchangeFailure> {
    let guard = StreamGuard::new(pool);
    let mut timer = DeadlineTimer::new(&shared.deadlines);
    timer.begin(shared.settings.connect_timeout_ms);
    let taken = Taken::new(request);
    let is_empty = taken.is_empty();
    let opens = poll_fn(|context| {
        let encode = |output: &mut Vec<u8>| encode_head(pool, request, taken.length, output);
        connection.poll_open((request.method == "HEAD", is_empty), encode, context)
    });
    let no_stream = ExchangeFailure::new(OriginFailure::H2NoStream, Repeat::Always);
    let opened = timer.bound(opens).await.ok_or(no_stream)?;
    let stream = opened.map_err(|error| ExchangeFailure { repeat: Repeat::Always, ..name_error(error) })?;
    // RFC 9110 has no limit for it, and gRPC has its own: a head may come with the first message.
    let settings = &shared.settings;
    let is_grpc = field(request.lines, "content-type").is_some_and(is_grpc);
    let head_timeout_ms = if is_grpc { settings.stream_timeout_ms } else { settings.head_timeout_ms };
    if reused {
        shared.counts.connections_reused.add(1);
    }
    let mut awaiting = Awaiting {
        shared,
        stream,
        sending: (!is_empty).then(|| UploadSending::new(taken)),
        timer,
        head_timeout_ms,
        waits_for: OriginFailure::HeadTimeout,
        upload_cut: false,
        interims: 0,
    };
    awaiting.timer.begin(head_timeout_ms);
    let ResponseFields { status, mut lines, content_length, ends } =
        poll_fn(|context| awaiting.poll(context, interims)).await?;
    shared.counts.responses.add(1);
    join_content_length(&mut lines);
    lines.extend_from_slice(b"\r\n");
    let Awaiting { stream, sending, upload_cut, .. } = awaiting;
    let early = upload_cut || sending.is_some();
    let deadlines = (content_length, shared.settings.piece_timeout_ms(field(&lines, "content-type")));
    let body = if ends {
        IncomingBody::empty()
    } else {
        IncomingBody::http2(Http2Body::new(shared, stream, (sending, early), deadlines, guard))
    };
    let mut incoming = Incoming::new(status, Version::Http2, SharedBytes::from(lines), body);
    incoming.content_length = content_length;
    incoming.reused = reused;
    Ok(incoming)
}

/// Field lines, each with its end.
fn lines_of(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines.split_inclusive(|&byte| byte == b'\n')
}

/// The name of a field line, which may lack a value.
fn name_of(line: &[u8]) -> &[u8] {
    line.split(|&byte| byte == b':').next().unwrap_or_default()
}

/// The value of the first field called `name`.
fn field<'a>(lines: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let line = lines_of(lines).find(|line| name_of(line).eq_ignore_ascii_case(name.as_bytes()))?;
    Some(trim(line.get(name.len() + 1..)?.trim_ascii_end()))
}

/// Leaves one of several identical lines of Content-Length: an HTTP/1.1 client may treat two as an attack (RFC 9110
/// §8.6).
fn join_content_length(lines: &mut Vec<u8>) {
    let is_length = |line: &&[u8]| name_of(line) == b"content-length";
    if lines_of(lines).filter(is_length).count() > 1 {
        let mut has_length = false;
        let joined = lines_of(lines).filter(|line| !is_length(line) || !std::mem::replace(&mut has_length, true));
        *lines = joined.collect::<Vec<_>>().concat();
    }
}

/// The state of an exchange while its response is awaited.
struct Awaiting<'a> {
    shared: &'a OriginShared,
    stream: ClientStream,
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
    ) -> Poll<Result<ResponseFields, ExchangeFailure>> {
        if let Err(failure) = self.poll_sending(context) {
            return Poll::Ready(Err(failure));
        }
        while let Poll::Ready(head) = self.stream.poll_head(context) {
            let head = match head {
                Ok(head) if head.status >= 200 => return Poll::Ready(Ok(head)),
                Ok(head) => head,
                Err(error) => return Poll::Ready(Err(self.name(error))),
            };
            self.interims += 1;
            if self.interims > self.shared.settings.interims_max {
                return Poll::Ready(Err(ExchangeFailure::new(OriginFailure::InterimsTooMany, Repeat::Never)));
            }
            match head.status {
                100 => {}
                // RFC 9113 §8.6: HTTP/2 has no 101.
                101 => return Poll::Ready(Err(ExchangeFailure::new(OriginFailure::SwitchedUnasked, Repeat::Never))),
                status => interims(status, &head.lines),
            }
        }
        if self.timer.poll_expired(context).is_ready() {
            return Poll::Ready(Err(ExchangeFailure::new(self.waits_for, Repeat::Idempotent)));
        }
        Poll::Pending
    }

    fn name(&self, error: StreamError) -> ExchangeFailure {
        let failure = name_error(error);
        let repeat = if self.interims > 0 { Repeat::Never } else { failure.repeat };
        ExchangeFailure { repeat, ..failure }
    }

    /// Continues sending, and sets the deadline accordingly.
    fn poll_sending(&mut self, context: &mut Context<'_>) -> Result<(), ExchangeFailure> {
        let Some(sending) = &mut self.sending else { return Ok(()) };
        let before = sending.sent_bytes;
        match sending.poll(&self.stream, context) {
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

/// Appends the request's head as a field block.
fn encode_head(pool: &OriginPool, request: &OutgoingRequest<'_>, length: Option<u64>, output: &mut Vec<u8>) {
    encode_field(b":method", request.method.as_bytes(), output);
    encode_field(b":scheme", if pool.address.secure { b"https" } else { b"http" }, output);
    match field(request.lines, "host") {
        Some(host) => encode_field(b":authority", host, output),
        None => encode_field(b":authority", pool.address.authority().as_bytes(), output),
    }
    encode_field(b":path", request.target, output);
    encode_fields(request.lines, Some("host"), output);
    if let Some(length) = length {
        encode_field(b"content-length", length.to_string().as_bytes(), output);
    }
}
