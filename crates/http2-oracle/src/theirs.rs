//! The h2 crate as an [`Endpoint`], on a pipe in memory and polled by hand.

use super::{Endpoint, FieldList, OWN_REQUESTS, SECTION_BYTES_MAX, STREAMS_MAX, Verdict};
use bytes::Bytes;
use flatout_http::http2::connection::Role;
use flatout_http::http2::frame::{ErrorCode, FrameHead, HEAD_BYTES, PREFACE, kind};
use h2::client::ResponseFuture;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future as _;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Both directions of a connection.
#[derive(Clone, Default)]
struct Pipe(Rc<RefCell<(VecDeque<u8>, Vec<u8>)>>);

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let input = &mut self.0.borrow_mut().0;
        if input.is_empty() {
            return Poll::Pending;
        }
        let bytes: Vec<u8> = input.drain(..input.len().min(buffer.remaining())).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().1.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

enum Connection {
    Server(h2::server::Connection<Pipe, Bytes>),
    Client(h2::client::Connection<Pipe, Bytes>),
}

/// Handles of one stream. None is dropped before its stream has ended, for which the crate would reset it.
enum Sender {
    Server(SendResponse<Bytes>),
    Client(SendStream<Bytes>),
}

struct Stream {
    sender: Sender,
    response: Option<ResponseFuture>,
    content: Option<RecvStream>,
}

pub(crate) struct Theirs {
    pipe: Pipe,
    connection: Connection,
    streams: BTreeMap<u32, Stream>,
    /// Keeps a client's connection open.
    _requests: Option<h2::client::SendRequest<Bytes>>,
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// The result of a future that needs no more input.
///
/// # Panics
/// When it does.
#[allow(clippy::expect_used, clippy::panic)]
fn ready<T, E: std::fmt::Debug>(future: impl Future<Output = Result<T, E>>) -> T {
    match pin!(future).poll(&mut context()) {
        Poll::Ready(result) => result.expect("a handshake"),
        Poll::Pending => panic!("a handshake that waits"),
    }
}

impl Theirs {
    /// A connection that has sent and received its preface, and a client's requests.
    // The requests are constants.
    #[allow(clippy::expect_used)]
    pub(crate) fn new(role: Role) -> Self {
        let pipe = Pipe::default();
        let mut streams = BTreeMap::new();
        let (connection, requests) = match role {
            Role::Server => {
                pipe.0.borrow_mut().0.extend(PREFACE);
                let mut builder = h2::server::Builder::new();
                builder.max_concurrent_streams(STREAMS_MAX).max_header_list_size(SECTION_BYTES_MAX);
                builder.enable_connect_protocol();
                (Connection::Server(ready(builder.handshake(pipe.clone()))), None)
            }
            Role::Client => {
                let mut builder = h2::client::Builder::new();
                builder.max_header_list_size(SECTION_BYTES_MAX).enable_push(false);
                let (mut requests, connection) = ready(builder.handshake::<_, Bytes>(pipe.clone()));
                for (id, method, ends) in OWN_REQUESTS {
                    let request = Request::builder().method(method).uri("http://a/").body(()).expect("a request");
                    let (response, sender) = requests.send_request(request, ends).expect("a stream");
                    let stream = Stream { sender: Sender::Client(sender), response: Some(response), content: None };
                    streams.insert(id, stream);
                }
                (Connection::Client(connection), Some(requests))
            }
        };
        let mut this = Self { pipe, connection, streams, _requests: requests };
        let _ = this.advance();
        this.take_output();
        this
    }

    /// Handles what has arrived and sends what is due. Returns requests, or how the connection ended.
    fn advance(&mut self) -> Result<Option<(Request<()>, u32)>, Option<Reason>> {
        let mut found = None;
        let mut context = context();
        loop {
            match &mut self.connection {
                Connection::Server(connection) => match connection.poll_accept(&mut context) {
                    Poll::Ready(Some(Ok((request, sender)))) => {
                        let id = sender.stream_id().as_u32();
                        let (parts, content) = request.into_parts();
                        found = Some((Request::from_parts(parts, ()), id));
                        let sender = Sender::Server(sender);
                        self.streams.insert(id, Stream { sender, response: None, content: Some(content) });
                    }
                    Poll::Ready(Some(Err(error))) => return Err(error.reason()),
                    Poll::Ready(None) => return Err(Some(Reason::NO_ERROR)),
                    Poll::Pending => return Ok(found),
                },
                Connection::Client(connection) => {
                    return match Pin::new(connection).poll(&mut context) {
                        Poll::Ready(Ok(())) => Err(Some(Reason::NO_ERROR)),
                        Poll::Ready(Err(error)) => Err(error.reason()),
                        Poll::Pending => Ok(None),
                    };
                }
            }
        }
    }

    /// RST_STREAM and GOAWAY frames that were sent: type, stream and code.
    fn take_output(&mut self) -> Vec<(u8, u32, u32)> {
        let output = std::mem::take(&mut self.pipe.0.borrow_mut().1);
        let mut rest = output.strip_prefix(PREFACE).unwrap_or(&output);
        let mut found = Vec::new();
        while let Some(head) = FrameHead::parse(rest) {
            let payload = &rest[HEAD_BYTES..HEAD_BYTES + head.payload_bytes];
            rest = &rest[HEAD_BYTES + head.payload_bytes..];
            let at = match head.kind {
                kind::RST_STREAM => 0,
                kind::GOAWAY => 4,
                _ => continue,
            };
            let code = payload[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
            found.push((head.kind, head.stream, code));
        }
        found
    }
}

impl Endpoint for Theirs {
    fn receive(&mut self, bytes: &[u8]) -> Verdict {
        self.pipe.0.borrow_mut().0.extend(bytes);
        let advanced = self.advance();
        let output = self.take_output();
        let goaway = output.iter().find(|(kind, ..)| *kind == kind::GOAWAY).map(|(.., code)| *code);
        if let Some(code) = goaway.or_else(|| advanced.as_ref().err().map(|reason| reason.map_or(2, u32::from))) {
            let code = ErrorCode::from_number(code);
            return Verdict::ConnectionError { code, name: code.name().to_owned() };
        }
        if let Some(&(_, stream, code)) = output.first() {
            self.streams.remove(&stream);
            let code = ErrorCode::from_number(code);
            return Verdict::StreamError { stream, code, name: code.name().to_owned() };
        }
        if let Ok(Some((request, stream))) = advanced {
            let ends = self
                .streams
                .get(&stream)
                .is_some_and(|stream| stream.content.as_ref().is_some_and(RecvStream::is_end_stream));
            return Verdict::Message { stream, fields: request_fields(&request), ends };
        }
        // A frame may end several streams: GOAWAY does.
        let found: Vec<Verdict> = self.streams.iter_mut().filter_map(|(id, stream)| stream.poll(*id)).collect();
        for verdict in &found {
            if let Verdict::Reset { stream, .. } = verdict {
                self.streams.remove(stream);
            }
        }
        match found.into_iter().next() {
            // The crate resets a stream whose peer has ended it without saying so to the peer.
            Some(Verdict::Reset { stream, code }) if bytes.get(3) != Some(&kind::RST_STREAM) => {
                Verdict::StreamError { stream, code, name: code.name().to_owned() }
            }
            found => found.unwrap_or(Verdict::Nothing),
        }
    }

    fn end(&mut self, stream: u32) {
        match self.streams.get_mut(&stream).map(|stream| &mut stream.sender) {
            Some(Sender::Server(sender)) => {
                let _ = sender.send_response(Response::new(()), true);
            }
            Some(Sender::Client(sender)) => {
                let _ = sender.send_data(Bytes::new(), true);
            }
            None => {}
        }
        let _ = self.advance();
        self.take_output();
    }

    fn reset(&mut self, stream: u32) {
        match self.streams.remove(&stream).map(|stream| stream.sender) {
            Some(Sender::Server(mut sender)) => sender.send_reset(Reason::CANCEL),
            Some(Sender::Client(mut sender)) => sender.send_reset(Reason::CANCEL),
            None => {}
        }
        let _ = self.advance();
        self.take_output();
    }
}

impl Stream {
    /// Returns the verdict on the events that have arrived.
    fn poll(&mut self, id: u32) -> Option<Verdict> {
        let mut context = context();
        if let Some(response) = &mut self.response {
            if let Poll::Ready(Some(Ok(interim))) = response.poll_informational(&mut context) {
                return Some(Verdict::Message { stream: id, fields: response_fields(&interim), ends: false });
            }
            if let Poll::Ready(Ok(response)) = Pin::new(response).poll(&mut context) {
                let fields = response_fields(&response);
                let content = response.into_body();
                let ends = content.is_end_stream();
                (self.response, self.content) = (None, Some(content));
                return Some(Verdict::Message { stream: id, fields, ends });
            }
        }
        let reset = match &mut self.sender {
            Sender::Server(sender) => sender.poll_reset(&mut context),
            Sender::Client(sender) => sender.poll_reset(&mut context),
        };
        if let Poll::Ready(Ok(reason)) = reset {
            (self.response, self.content) = (None, None);
            let code = ErrorCode::from_number(reason.into());
            return Some(Verdict::Reset { stream: id, code });
        }
        let content = self.content.as_mut()?;
        match content.poll_data(&mut context) {
            Poll::Ready(Some(Ok(bytes))) => {
                let ends = content.is_end_stream();
                let is_nothing = bytes.is_empty() && !ends;
                (!is_nothing).then(|| Verdict::Data { stream: id, content: bytes.to_vec(), ends })
            }
            Poll::Ready(None) => match content.poll_trailers(&mut context) {
                Poll::Ready(Ok(Some(trailers))) => {
                    Some(Verdict::Trailers { stream: id, fields: sorted(list(&trailers)) })
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// The fields, with the lines of Cookie joined (RFC 9113 §8.2.3).
fn list(map: &HeaderMap) -> FieldList {
    let mut list: FieldList = Vec::new();
    for (name, value) in map {
        match list.iter_mut().find(|(other, _)| name == "cookie" && other == "cookie") {
            Some((_, joined)) => joined.extend([b"; ", value.as_bytes()].concat()),
            None => list.push((name.as_str().to_owned(), value.as_bytes().to_vec())),
        }
    }
    list
}

fn sorted(mut list: FieldList) -> FieldList {
    list.sort_by(|a, b| a.0.cmp(&b.0));
    list
}

fn request_fields(request: &Request<()>) -> FieldList {
    let mut fields = list(request.headers());
    let host = request.headers().get("host").map(|host| host.as_bytes().to_vec());
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes().to_vec());
    fields.retain(|(name, _)| name != "host");
    let mut add = |name: &str, value: &[u8]| fields.push((name.to_owned(), value.to_vec()));
    add(":authority", &authority.or(host).unwrap_or_default());
    add(":method", request.method().as_str().as_bytes());
    let protocol = request.extensions().get::<h2::ext::Protocol>();
    if let Some(protocol) = protocol {
        add(":protocol", protocol.as_str().as_bytes());
    }
    if request.method() != "CONNECT" || protocol.is_some() {
        add(":path", request.uri().path_and_query().map_or("", |path| path.as_str()).as_bytes());
    }
    sorted(fields)
}

fn response_fields<T>(response: &Response<T>) -> FieldList {
    let mut fields = list(response.headers());
    fields.push((":status".to_owned(), response.status().as_str().as_bytes().to_vec()));
    sorted(fields)
}
