//! An exchange on a stream, up to the head of the final response.

use super::body::Http2Body;
use super::{ReadyConnection, StreamGuard, connection, name_error};
use crate::origin::body::IncomingBody;
use crate::origin::client::{OriginShared, may_repeat};
use crate::origin::content::TakenContent;
use crate::origin::failure::{ExchangeFailure, OriginFailure, Repeat};
use crate::origin::pool::OriginPool;
use crate::origin::request::OutgoingRequest;
use crate::origin::response::Incoming;
use crate::upload::{HeadWait, Upload, UploadState};
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
use std::task::{Context, Poll, ready};

/// Performs an exchange over HTTP/2. Returns `None` if the origin does not support HTTP/2.
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
                // Whether or not the request is repeated, the next exchange should use a new connection.
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
    let content = TakenContent::new(request, false, &shared.budget);
    let (length, is_empty, expects_continue) = (content.length, content.is_empty(), content.expects_continue);
    let opens = poll_fn(|context| {
        let encode = |output: &mut Vec<u8>| encode_head(pool, request, (length, expects_continue), output);
        connection.poll_open((request.method == "HEAD", is_empty), encode, context)
    });
    let no_stream = ExchangeFailure::new(OriginFailure::H2NoStream, Repeat::Always);
    let opened = timer.bound(opens).await.ok_or(no_stream)?;
    let stream = opened.map_err(|error| ExchangeFailure { repeat: Repeat::Always, ..name_error(error) })?;
    // gRPC has its own deadlines, and the response head may arrive only with the first message.
    let settings = &shared.settings;
    let is_grpc = field(request.lines, "content-type").is_some_and(is_grpc);
    let head_timeout_ms = if is_grpc { settings.stream_timeout_ms } else { settings.head_timeout_ms };
    if reused {
        shared.counts.connections_reused.add(1);
    }
    let mut awaiting = Awaiting {
        shared,
        stream,
        upload: (!is_empty).then(|| Upload::new(Vec::new(), content)),
        timer,
        wait: HeadWait::new(settings.body_timeout_ms, head_timeout_ms)
            .with_continue_timeout_ms(settings.continue_timeout_ms)
            .with_head_left_ms(request.head_left_ms.filter(|_| !is_grpc)),
        upload_cut: false,
        interims: 0,
    };
    awaiting.wait.begin(&mut awaiting.timer);
    let ResponseFields { status, mut lines, content_length, ends } =
        poll_fn(|context| awaiting.poll(context, interims)).await?;
    shared.counts.responses.add(1);
    join_content_length(&mut lines);
    lines.extend_from_slice(b"\r\n");
    let Awaiting { stream, mut upload, mut upload_cut, .. } = awaiting;
    if upload.take_if(|upload| upload.is_held()).is_some() {
        // RFC 9110 §10.1.1: the origin does not want the content, so the client does not send it.
        upload_cut = true;
    }
    let early = upload_cut || upload.is_some();
    let deadlines = (content_length, shared.settings.piece_timeout_ms(field(&lines, "content-type")));
    let body = if ends {
        IncomingBody::empty()
    } else {
        IncomingBody::http2(Http2Body::new(shared, stream, (upload, early), deadlines, guard))
    };
    let mut incoming = Incoming::new(status, Version::Http2, SharedBytes::from(lines), body);
    incoming.content_length = content_length;
    incoming.reused = reused;
    Ok(incoming)
}

/// Returns the final head of the response on `stream`, on which `request` was sent without content.
pub(super) async fn final_head(
    shared: &OriginShared,
    stream: ClientStream,
    request: &OutgoingRequest<'_>,
    interims: &mut impl FnMut(u16, &[u8]),
) -> Result<(ClientStream, ResponseFields), ExchangeFailure> {
    let settings = &shared.settings;
    let wait =
        HeadWait::new(settings.body_timeout_ms, settings.head_timeout_ms).with_head_left_ms(request.head_left_ms);
    let timer = DeadlineTimer::new(&shared.deadlines);
    let mut awaiting = Awaiting { shared, stream, upload: None, timer, wait, upload_cut: false, interims: 0 };
    awaiting.wait.begin(&mut awaiting.timer);
    let head = poll_fn(|context| awaiting.poll(context, interims)).await?;
    Ok((awaiting.stream, head))
}

/// Iterates over the field lines, each including its line end.
fn lines_of(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines.split_inclusive(|&byte| byte == b'\n')
}

/// Returns the name of a field line.
fn name_of(line: &[u8]) -> &[u8] {
    line.split(|&byte| byte == b':').next().unwrap_or_default()
}

/// Returns the value of the first field line called `name`.
fn field<'a>(lines: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let line = lines_of(lines).find(|line| name_of(line).eq_ignore_ascii_case(name.as_bytes()))?;
    Some(trim(line.get(name.len() + 1..)?.trim_ascii_end()))
}

/// Removes all lines of Content-Length except the first; they are identical. An HTTP/1.1 client may treat two lines as
/// an attack (RFC 9110 §8.6).
pub(super) fn join_content_length(lines: &mut Vec<u8>) {
    let is_length = |line: &&[u8]| name_of(line) == b"content-length";
    if lines_of(lines).filter(is_length).count() > 1 {
        let mut has_length = false;
        let joined = lines_of(lines).filter(|line| !is_length(line) || !std::mem::replace(&mut has_length, true));
        *lines = joined.collect::<Vec<_>>().concat();
    }
}

/// State of an exchange until the head of its final response has arrived.
struct Awaiting<'a> {
    shared: &'a OriginShared,
    stream: ClientStream,
    upload: Option<Upload<TakenContent>>,
    timer: DeadlineTimer,
    wait: HeadWait,
    /// True if the origin stopped reading the request.
    upload_cut: bool,
    interims: u32,
}

impl Awaiting<'_> {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        interims: &mut impl FnMut(u16, &[u8]),
    ) -> Poll<Result<ResponseFields, ExchangeFailure>> {
        loop {
            if let Err(failure) = self.poll_upload(context) {
                return Poll::Ready(Err(failure));
            }
            let was_held = self.is_held();
            if let Poll::Ready(received) = self.poll_heads(context, interims) {
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
                return Poll::Ready(Err(ExchangeFailure::new(failure, Repeat::Idempotent)));
            }
            self.release();
        }
    }

    /// Receives response heads up to the final one.
    fn poll_heads(
        &mut self,
        context: &mut Context<'_>,
        interims: &mut impl FnMut(u16, &[u8]),
    ) -> Poll<Result<ResponseFields, ExchangeFailure>> {
        loop {
            let head = match ready!(self.stream.poll_head(context)) {
                Ok(head) if head.status >= 200 => return Poll::Ready(Ok(head)),
                Ok(head) => head,
                Err(error) => return Poll::Ready(Err(self.name(error))),
            };
            self.interims += 1;
            if self.interims > self.shared.settings.interims_max {
                return Poll::Ready(Err(ExchangeFailure::new(OriginFailure::InterimsTooMany, Repeat::Never)));
            }
            match head.status {
                // The client receives its own 100 (Continue) when its content is polled.
                100 => self.release(),
                // RFC 9113 §8.6: HTTP/2 has no 101.
                101 => return Poll::Ready(Err(ExchangeFailure::new(OriginFailure::SwitchedUnasked, Repeat::Never))),
                status => interims(status, &head.lines),
            }
        }
    }

    /// Returns whether the content is held back until the origin requests it.
    fn is_held(&self) -> bool {
        self.upload.as_ref().is_some_and(Upload::is_held)
    }

    /// Stops holding the content back.
    fn release(&mut self) {
        if let Some(upload) = &mut self.upload {
            upload.release();
        }
    }

    fn name(&self, error: StreamError) -> ExchangeFailure {
        let failure = name_error(error);
        let repeat = if self.interims > 0 { Repeat::Never } else { failure.repeat };
        ExchangeFailure { repeat, ..failure }
    }

    /// Continues sending the request, and sets the deadline accordingly.
    fn poll_upload(&mut self, context: &mut Context<'_>) -> Result<(), ExchangeFailure> {
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let sent = upload.advance(&mut self.stream, context);
        let state = sent.map_err(|failure| ExchangeFailure::new(failure, Repeat::Never))?;
        if matches!(state, UploadState::Closed | UploadState::Done) {
            // A response may still arrive. If not, polling for it returns the reason.
            self.upload_cut = state == UploadState::Closed;
            self.upload = None;
        }
        self.wait.handle(state, &mut self.timer);
        Ok(())
    }
}

/// Appends the request head, encoded as a field block, to `output`.
fn encode_head(
    pool: &OriginPool,
    request: &OutgoingRequest<'_>,
    (length, expects_continue): (Option<u64>, bool),
    output: &mut Vec<u8>,
) {
    encode_field(b":method", request.method.as_bytes(), output);
    encode_field(b":scheme", if pool.address.secure { b"https" } else { b"http" }, output);
    match field(request.lines, "host") {
        Some(host) => encode_field(b":authority", host, output),
        None => encode_field(b":authority", pool.address.authority().as_bytes(), output),
    }
    encode_field(b":path", request.target, output);
    encode_fields(request.lines, Some("host"), output);
    if expects_continue {
        encode_field(b"expect", b"100-continue", output);
    }
    if let Some(length) = length {
        encode_field(b"content-length", length.to_string().as_bytes(), output);
    }
}
