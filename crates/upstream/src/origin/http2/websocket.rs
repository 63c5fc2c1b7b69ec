//! WebSocket over an HTTP/2 stream: extended CONNECT (RFC 8441).

use super::body::Http2Body;
use super::exchange::{final_head, join_content_length};
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
use flatout_http::lines::each_line;
use flatout_http::token::trim;
use flatout_net::http2::{ClientConnection, ClientStream, StreamError};
use flatout_net::task_deadlines::DeadlineTimer;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Fields of the HTTP/1.1 handshake that are not sent over HTTP/2: Sec-WebSocket-Key (RFC 8441 §5), and Host, which
/// becomes `:authority`.
const OF_HTTP1: [&[u8]; 2] = [b"host", b"sec-websocket-key"];

/// Sends `request`, an upgrade to WebSocket, as an extended CONNECT. If the origin accepts it, returns a 101 as over
/// HTTP/1.1, but without Sec-WebSocket-Accept. Returns `None` if the origin does not support HTTP/2 or extended
/// CONNECT.
pub(in crate::origin) async fn open_websocket(
    shared: &Rc<OriginShared>,
    pool: &Rc<OriginPool>,
    request: &OutgoingRequest<'_>,
    interims: &mut impl FnMut(u16, &[u8]),
) -> Result<Option<Incoming>, ExchangeFailure> {
    let mut repeated = false;
    loop {
        let Some(ReadyConnection { connection, generation, reused }) = connection(shared, pool).await? else {
            return Ok(None);
        };
        match open_on(shared, pool, (&connection, reused), request, interims).await {
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
            Ok(incoming) => return Ok(incoming),
        }
    }
}

async fn open_on(
    shared: &Rc<OriginShared>,
    pool: &Rc<OriginPool>,
    (connection, reused): (&ClientConnection, bool),
    request: &OutgoingRequest<'_>,
    interims: &mut impl FnMut(u16, &[u8]),
) -> Result<Option<Incoming>, ExchangeFailure> {
    let mut timer = DeadlineTimer::new(&shared.deadlines);
    timer.begin(shared.settings.connect_timeout_ms);
    let no_stream = ExchangeFailure::new(OriginFailure::H2NoStream, Repeat::Always);
    let unsent = |error| ExchangeFailure { repeat: Repeat::Always, ..name_error(error) };
    let accepts = timer.bound(poll_fn(|context| connection.poll_connect_protocol(context))).await.ok_or(no_stream)?;
    if !accepts.map_err(unsent)? {
        return Ok(None);
    }
    let guard = StreamGuard::new(pool);
    let opens = poll_fn(|context| {
        connection.poll_open((false, false), |output| encode_connect(pool, request, output), context)
    });
    let stream = timer.bound(opens).await.ok_or(no_stream)?.map_err(unsent)?;
    let (stream, head) = final_head(shared, stream, request, interims).await?;
    shared.counts.responses.add(1);
    let mut lines = head.lines;
    join_content_length(&mut lines);
    if (200..300).contains(&head.status) && !head.ends {
        lines.extend_from_slice(b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
        let mut incoming = Incoming::new(101, Version::Http2, SharedBytes::from(lines), IncomingBody::empty());
        let received = SharedBytes::from(&[][..]);
        incoming.upgraded = Some(Box::new(StreamTunnel { stream, received, is_shut: false, _guard: guard }));
        incoming.reused = reused;
        return Ok(Some(incoming));
    }
    // The origin declined the upgrade.
    lines.extend_from_slice(b"\r\n");
    let body = if head.ends {
        IncomingBody::empty()
    } else {
        let deadlines = (head.content_length, shared.settings.body_timeout_ms);
        IncomingBody::http2(Http2Body::new(shared, stream, (None, true), deadlines, guard))
    };
    let mut incoming = Incoming::new(head.status, Version::Http2, SharedBytes::from(lines), body);
    incoming.content_length = head.content_length;
    incoming.reused = reused;
    Ok(Some(incoming))
}

/// Appends the head of an extended CONNECT, encoded as a field block, to `output`.
fn encode_connect(pool: &OriginPool, request: &OutgoingRequest<'_>, output: &mut Vec<u8>) {
    let host = each_line(request.lines).find(|(name, _)| name.eq_ignore_ascii_case(b"host"));
    let host = host.map(|(name, line)| trim(line[name.len() + 1..].trim_ascii_end()));
    encode_field(b":method", b"CONNECT", output);
    encode_field(b":protocol", b"websocket", output);
    encode_field(b":scheme", if pool.address.secure { b"https" } else { b"http" }, output);
    match host {
        Some(host) => encode_field(b":authority", host, output),
        None => encode_field(b":authority", pool.address.authority().as_bytes(), output),
    }
    encode_field(b":path", request.target, output);
    let is_kept = |name: &[u8]| !OF_HTTP1.iter().any(|other| name.eq_ignore_ascii_case(other));
    for (_, line) in each_line(request.lines).filter(|(name, _)| is_kept(name)) {
        encode_fields(line, None, output);
    }
}

/// Both directions of a stream, as a byte stream.
struct StreamTunnel {
    stream: ClientStream,
    /// Bytes that have been received but not read.
    received: SharedBytes,
    /// True if the sending side has been shut down.
    is_shut: bool,
    _guard: StreamGuard,
}

fn broken(_: StreamError) -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

impl AsyncRead for StreamTunnel {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let tunnel = self.get_mut();
        if tunnel.received.is_empty() {
            match ready!(tunnel.stream.poll_piece(context)).map_err(broken)? {
                Ok(bytes) => tunnel.received = bytes,
                Err(_) => return Poll::Ready(Ok(())),
            }
        }
        let count = tunnel.received.len().min(buffer.remaining());
        buffer.put_slice(&tunnel.received[..count]);
        tunnel.received.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for StreamTunnel {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_shut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = ready!(self.stream.poll_room(context)).map_err(broken)?.min(bytes.len());
        self.stream.send(&bytes[..count], false);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.is_shut, true) {
            self.stream.send(b"", true);
        }
        Poll::Ready(Ok(()))
    }
}
