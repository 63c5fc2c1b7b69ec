//! A connection over HTTP/2 or HTTP/3 and its streams, as a slot uses them.

use crate::content::Digesting;
use crate::failure::{QuicFailure, RequestFailure};
use crate::http3::{Http3Connection, Http3Stream};
use crate::link::stand;
use crate::reader::{SET_COOKIE, collect_set_cookies};
use crate::slot::ClientSlot;
use crate::worker::{ClientShared, failure_of};
use crate::{Drive, Made};
use flatout_http::http2::connection::Config;
use flatout_http::http2::window::Windows;
use flatout_http::limits::Limits;
use flatout_net::http2::{ClientConnection, ClientStream, ClientTask};
use flatout_net::tls::config::ALPN_HTTP2;
use flatout_net::transport::Transport;
use flatout_os::clock::precise_ns;
use memchr::memmem::Finder;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};

/// Settings of an HTTP/2 connection. A body that fits in a stream's window needs no window update.
const HTTP2_CONFIG: Config = Config {
    streams_max: 0,
    windows: Windows { stream: 1024 * 1024, connection: 64 * 1024 * 1024 },
    section_bytes_max: Limits::CLIENT.head_bytes_max,
};

/// Finds the name of the field that sets a cookie. Field names are in lower case.
static SET_COOKIE_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(SET_COOKIE));

/// A handle to a connection over HTTP/2 or HTTP/3, on which requests open streams.
#[derive(Clone)]
pub(super) enum StreamConnection {
    Http2(ClientConnection),
    Http3(Http3Connection),
}

/// The task that receives and sends for all requests of one connection.
pub(super) type ConnectionTask = Pin<Box<dyn Future<Output = ()>>>;

/// A new connection, its task, and how it was opened.
type Opened = (StreamConnection, ConnectionTask, Made);

/// Opens an HTTP/2 connection, over TLS if configured. `times` are the start and the deadline of the attempt.
pub(super) async fn open_http2<D: Drive>(
    shared: &Rc<ClientShared<D>>,
    slot: &ClientSlot,
    times: (u64, u64),
    is_reconnect: bool,
) -> Result<Opened, RequestFailure> {
    let standing = stand(shared, slot, times, is_reconnect).await?;
    if let Transport::Tls(stream) = &standing.transport
        && stream.get_ref().1.alpn_protocol() != Some(ALPN_HTTP2)
    {
        return Err(RequestFailure::NoHttp2);
    }
    let (connection, task) = ClientTask::new(standing.transport, HTTP2_CONFIG, None);
    Ok((StreamConnection::Http2(connection), Box::pin(task), standing.made))
}

/// Opens an HTTP/3 connection, with the deadline `due_ns`. The handshake is part of connecting.
pub(super) async fn open_http3<D: Drive>(
    shared: &Rc<ClientShared<D>>,
    slot: &ClientSlot,
    (connecting_ns, due_ns): (u64, u64),
    is_reconnect: bool,
) -> Result<Opened, RequestFailure> {
    let quic = shared.quic.as_ref().ok_or(RequestFailure::NoHttp3)?;
    let (connection, mut task) = quic.begin(shared.settings.stores_cookies)?;
    slot.deadline.watch_stream();
    slot.deadline.set(due_ns);
    let connected = poll_fn(|context| {
        slot.register(context);
        // The task is spawned only after the connection is established, so poll it here.
        let ended = Pin::new(&mut task).poll(context);
        match connection.poll_connected(context) {
            Poll::Pending if slot.deadline.cut().is_some() => Poll::Ready(Err(RequestFailure::TimedOut)),
            Poll::Pending if ended.is_ready() => Poll::Ready(Err(RequestFailure::ClosedEarly)),
            connected => connected,
        }
    });
    match connected.await {
        Ok(()) => {}
        Err(RequestFailure::TimedOut) if !connection.has_received() => {
            return Err(match failure_of(slot, RequestFailure::TimedOut) {
                RequestFailure::TimedOut => {
                    // This name says more than the timeout, which would otherwise take precedence.
                    slot.deadline.watch_stream();
                    RequestFailure::Quic(QuicFailure::Silent)
                }
                aborted => aborted,
            });
        }
        Err(failure) => return Err(failure_of(slot, failure)),
    }
    let connect_ns = precise_ns().saturating_sub(connecting_ns);
    let made = Made { connect_ns, tls_ns: 0, is_reconnect, is_resumed: false };
    Ok((StreamConnection::Http3(connection), Box::pin(task), made))
}

impl StreamConnection {
    /// Opens a stream and sends the head of a request, which `encode` writes as a field block. `kind` says whether the
    /// method is HEAD, and whether the request has no content. Pending while the server permits no more streams.
    pub(super) fn poll_open(
        &self,
        kind: (bool, bool),
        encode: impl FnOnce(&mut Vec<u8>),
        is_digested: bool,
        context: &mut Context<'_>,
    ) -> Poll<Result<RequestStream, RequestFailure>> {
        match self {
            Self::Http2(connection) => {
                let opened = connection.poll_open(kind, encode, context);
                opened.map_ok(RequestStream::Http2).map_err(RequestFailure::from)
            }
            Self::Http3(connection) => {
                connection.poll_open(kind, encode, is_digested, context).map_ok(RequestStream::Http3)
            }
        }
    }

    /// Returns the number of streams that the server permits at once, or `wanted` if that is less. Pending until the
    /// server has stated the number.
    pub(super) fn poll_streams_max(&self, wanted: u32, context: &mut Context<'_>) -> Poll<Result<u32, RequestFailure>> {
        match self {
            Self::Http2(connection) => {
                connection.poll_streams_max(context).map_ok(|max| max.min(wanted)).map_err(RequestFailure::from)
            }
            Self::Http3(connection) => Poll::Ready(Ok(connection.reserve_streams(wanted))),
        }
    }

    /// Waits until an HTTP/3 server permits more than `before` streams at once. Returns their number, or `wanted` if that
    /// is less.
    ///
    /// # Errors
    /// Fails if the connection has ended, and over HTTP/2, where the number is not expected to change.
    pub(super) fn poll_more_streams(&self, before: u32, wanted: u32, context: &Context<'_>) -> Poll<Result<u32, ()>> {
        match self {
            Self::Http2(_) => Poll::Ready(Err(())),
            Self::Http3(connection) => connection.poll_more_streams(before, wanted, context),
        }
    }

    /// Closes an HTTP/3 connection. TCP connections close when they are dropped.
    pub(super) fn close(&self) {
        if let Self::Http3(connection) = self {
            connection.close();
        }
    }
}

/// The stream of one request. If it is dropped before its end, it is reset.
pub(super) enum RequestStream {
    Http2(ClientStream),
    Http3(Http3Stream),
}

impl RequestStream {
    /// Returns status and length of field lines, in HTTP/1 form, of the next head: first any interim responses, then
    /// the final response. Appends the values of its Set-Cookie fields to `set_cookies`, each followed by LF.
    pub(super) fn poll_head(
        &self,
        context: &mut Context<'_>,
        set_cookies: Option<&mut Vec<u8>>,
    ) -> Poll<Result<(u16, usize), RequestFailure>> {
        match self {
            Self::Http2(stream) => {
                let head = ready!(stream.poll_head(context))?;
                // Few responses set cookies, and searching for the name is faster than parsing the lines.
                if let Some(set_cookies) = set_cookies
                    && SET_COOKIE_FINDER.find(&head.lines).is_some()
                {
                    collect_set_cookies(&head.lines, set_cookies);
                }
                Poll::Ready(Ok((head.status, head.lines.len())))
            }
            Self::Http3(stream) => stream.poll_head(context, set_cookies),
        }
    }

    /// Adds the content that has arrived. Ready when the content has ended.
    pub(super) fn poll_content(
        &mut self,
        context: &mut Context<'_>,
        content_bytes: &mut u64,
        digesting: &mut Option<Digesting>,
    ) -> Poll<Result<(), RequestFailure>> {
        match self {
            Self::Http2(stream) => {
                while let Ok(piece) = ready!(stream.poll_piece(context))? {
                    *content_bytes += piece.len() as u64;
                    if let Some(digesting) = digesting {
                        digesting.take(&piece);
                    }
                }
                Poll::Ready(Ok(()))
            }
            Self::Http3(stream) => stream.poll_content(context, content_bytes, digesting),
        }
    }

    /// Sends a part of `content`, which is the remainder of the request. Returns the number of bytes sent.
    ///
    /// # Errors
    /// Fails if the server reads no more of the request. Its response gives the reason.
    pub(super) fn poll_send(&self, content: &[u8], context: &mut Context<'_>) -> Poll<Result<usize, ()>> {
        match self {
            Self::Http2(stream) => {
                let room = ready!(stream.poll_room(context)).map_err(|_| ())?;
                let sent = room.min(content.len());
                stream.send(&content[..sent], sent == content.len());
                Poll::Ready(Ok(sent))
            }
            Self::Http3(stream) => stream.poll_send(content, context),
        }
    }

    /// Returns whether a part of the head is still to be sent, although no content follows.
    pub(super) fn has_unsent_head(&self) -> bool {
        match self {
            Self::Http2(_) => false,
            Self::Http3(stream) => stream.has_unsent_head(),
        }
    }
}
