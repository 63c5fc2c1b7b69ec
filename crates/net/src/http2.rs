//! HTTP/2 connections of clients, such as the proxy and the benchmark client: many requests share one transport.
//!
//! A task owns the transport, and requests communicate with the task through shared state. What requests send is
//! gathered and written when the task runs next.

use crate::tls::ClientTlsFailure;
use crate::windows::AdaptiveWindows;
use flatout_handler::response::trailer_lines;
use flatout_handler::shared::SharedBytes;
use flatout_handler::stream::MessageEnd;
use flatout_http::http2::connection::{Config, Connection, Event, Role};
use flatout_http::http2::fields::FieldBlock;
use flatout_http::http2::frame::ErrorCode;
use flatout_http::http2::window::StreamCount;
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Amount of gathered output at which content waits for the transport, in bytes.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Size of the read buffer, in bytes.
const READ_BYTES: usize = 16 * 1024;

/// Maximum reads before the task yields to others.
const READS_MAX: u32 = 8;

/// Payload of the PING that measures a round trip.
const PROBE_PING: u64 = u64::from_be_bytes(*b"measures");

/// The reason a stream ended before its response was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// The peer did not process the request, according to its GOAWAY (RFC 9113 §6.8).
    Refused,
    /// The stream was reset, by the peer or because of an error of the peer.
    Reset(ErrorCode),
    /// The connection was closed with this error code, sent by either side.
    Connection(ErrorCode),
    /// The transport reached its end.
    Closed,
    /// The transport failed.
    System(Errno),
    /// TLS failed.
    Tls(ClientTlsFailure),
}

impl From<io::Error> for StreamError {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => Self::System(errno),
            None => match error.kind() {
                // The connection closed without notice.
                io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => Self::Closed,
                _ => ClientTlsFailure::of(&error).map_or(Self::System(Errno::IO), Self::Tls),
            },
        }
    }
}

/// The head of a final or interim response.
#[derive(Debug)]
pub struct ResponseFields {
    /// The status code.
    pub status: u16,
    /// Field lines, each as `name: value` and CR LF.
    pub lines: Vec<u8>,
    /// The declared length of the content, in bytes.
    pub content_length: Option<u64>,
    /// True if no content follows.
    pub ends: bool,
}

/// Heads and content of a stream that were received and not consumed yet.
#[derive(Debug, Default)]
struct Arrived {
    heads: VecDeque<ResponseFields>,
    pieces: VecDeque<SharedBytes>,
    ended: Option<MessageEnd>,
    error: Option<StreamError>,
    count: StreamCount,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Arrived {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }

    fn fail(&mut self, error: StreamError) {
        self.error.get_or_insert(error);
        self.wake();
    }
}

type StreamState = Rc<RefCell<Arrived>>;

struct ClientState {
    core: Connection<StreamState>,
    output: Vec<u8>,
    /// `None` if the windows keep their initial size.
    windows: Option<AdaptiveWindows>,
    /// True if a round trip has ended and its result is not applied yet.
    is_measured: bool,
    /// Wakes the task of the connection.
    task: Option<Waker>,
    /// Wakers of requests that wait for a stream.
    waiting: Vec<Waker>,
    ended: Option<StreamError>,
}

impl ClientState {
    fn wake_task(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    fn room(&self) -> usize {
        OUTPUT_BYTES_MAX.saturating_sub(self.output.len())
    }

    /// Fails the open streams for which `selects` returns true.
    fn fail_streams(&mut self, error: StreamError, selects: impl Fn(u32) -> bool) {
        for (id, stream) in self.core.iter() {
            if selects(id) {
                stream.borrow_mut().fail(error);
            }
        }
    }

    fn handle_event(&mut self, event: Event<'_, StreamState>, fields: &FieldBlock) {
        match event {
            Event::Response { stream, ends } => {
                let Some(state) = self.core.get_mut(stream).cloned() else { return };
                let mut lines = Vec::new();
                for (name, value) in fields.iter() {
                    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                        lines.extend_from_slice(part);
                    }
                }
                let (status, content_length) = (fields.status().unwrap_or_default(), fields.content_length());
                let mut arrived = state.borrow_mut();
                arrived.heads.push_back(ResponseFields { status, lines, content_length, ends });
                arrived.ended = ends.then_some(MessageEnd(None));
                arrived.wake();
                self.core.take_done(stream);
            }
            Event::Data { stream, bytes, ends } => {
                let Some(state) = self.core.get_mut(stream).cloned() else { return };
                let mut arrived = state.borrow_mut();
                if !bytes.is_empty() {
                    arrived.pieces.push_back(SharedBytes::from(bytes));
                }
                arrived.ended = ends.then_some(MessageEnd(None));
                arrived.wake();
                self.core.take_done(stream);
            }
            Event::Trailers { stream } => {
                let Some(state) = self.core.get_mut(stream).cloned() else { return };
                let mut arrived = state.borrow_mut();
                arrived.ended = Some(MessageEnd(trailer_lines(fields.iter())));
                arrived.wake();
                self.core.take_done(stream);
            }
            Event::Reset { code, data, .. } => data.borrow_mut().fail(StreamError::Reset(code)),
            Event::Acknowledged(PROBE_PING) => {
                // Readers first consume what arrived before the acknowledgement.
                self.is_measured = true;
                self.wake_task();
            }
            Event::GoAway { last_stream, code: ErrorCode::NoError } => {
                self.fail_streams(StreamError::Refused, |id| id > last_stream);
            }
            Event::GoAway { code, .. } => {
                self.ended.get_or_insert(StreamError::Connection(code));
            }
            Event::Acknowledged(_) | Event::Rejected { .. } | Event::Request { .. } => {}
        }
    }
}

/// A shared handle to a connection. The connection closes when the last handle is dropped, including those held by its
/// streams.
#[derive(Clone)]
pub struct ClientConnection(Rc<RefCell<ClientState>>);

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.0.borrow_mut().wake_task();
    }
}

impl ClientConnection {
    /// Returns whether the connection accepts new streams: it has not ended, and neither side has sent GOAWAY.
    pub fn takes_streams(&self) -> bool {
        let state = self.0.borrow();
        state.ended.is_none() && !state.core.is_leaving()
    }

    /// Opens a stream and sends a head, which `encode` writes as a field block. Returns `Pending` while the peer
    /// permits no more streams, and an error if the connection is closing, in which case nothing was sent.
    pub fn poll_open(
        &self,
        (is_head, ends): (bool, bool),
        encode: impl FnOnce(&mut Vec<u8>),
        context: &mut Context<'_>,
    ) -> Poll<Result<ClientStream, StreamError>> {
        let state = &mut *self.0.borrow_mut();
        if let Some(error) = state.ended {
            return Poll::Ready(Err(error));
        }
        if state.core.is_leaving() {
            return Poll::Ready(Err(StreamError::Refused));
        }
        let Some(id) = state.core.open(is_head) else {
            state.waiting.push(context.waker().clone());
            return Poll::Pending;
        };
        state.core.send_fields(id, ends, &mut state.output, encode);
        let arrived = state.core.get_mut(id).cloned().unwrap_or_default();
        state.wake_task();
        Poll::Ready(Ok(ClientStream { connection: self.clone(), id, arrived, is_done: false }))
    }
}

impl ClientConnection {
    /// Returns whether the peer accepts extended CONNECT (RFC 8441 §3). Returns `Pending` until the peer's first
    /// SETTINGS frame has arrived, and an error if the connection has ended.
    pub fn poll_connect_protocol(&self, context: &mut Context<'_>) -> Poll<Result<bool, StreamError>> {
        self.poll_peer(Connection::peer_connect_protocol, context)
    }

    /// Returns the number of streams that the peer permits to be open at once. Returns `Pending` until the peer's first
    /// SETTINGS frame has arrived, and an error if the connection has ended.
    pub fn poll_streams_max(&self, context: &mut Context<'_>) -> Poll<Result<u32, StreamError>> {
        self.poll_peer(Connection::peer_streams_max, context)
    }

    fn poll_peer<V>(
        &self,
        read: impl FnOnce(&Connection<StreamState>) -> Option<V>,
        context: &mut Context<'_>,
    ) -> Poll<Result<V, StreamError>> {
        let state = &mut *self.0.borrow_mut();
        match (state.ended, read(&state.core)) {
            (Some(error), _) => Poll::Ready(Err(error)),
            (None, Some(value)) => Poll::Ready(Ok(value)),
            (None, None) => {
                state.waiting.push(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The stream of one request. Dropping it before the stream has ended resets the stream.
pub struct ClientStream {
    connection: ClientConnection,
    id: u32,
    arrived: StreamState,
    /// True if the end of the response has been consumed.
    is_done: bool,
}

impl ClientStream {
    /// Returns the next head: interim responses first, then the final response.
    pub fn poll_head(&self, context: &mut Context<'_>) -> Poll<Result<ResponseFields, StreamError>> {
        let mut arrived = self.arrived.borrow_mut();
        if let Some(head) = arrived.heads.pop_front() {
            return Poll::Ready(Ok(head));
        }
        if let Some(error) = arrived.error {
            return Poll::Ready(Err(error));
        }
        arrived.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// Returns the next piece of content, or the end. Returning a piece also returns its credit to the peer.
    pub fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Result<SharedBytes, MessageEnd>, StreamError>> {
        let mut arrived = self.arrived.borrow_mut();
        if let Some(piece) = arrived.pieces.pop_front() {
            let state = &mut *self.connection.0.borrow_mut();
            if let Some(windows) = &mut state.windows
                && windows.handle_taken(&mut arrived.count, piece.len())
            {
                state.core.ping(PROBE_PING, &mut state.output);
            }
            // If the stream was reset, its credit has been returned already.
            if arrived.error.is_none() {
                state.core.release(self.id, piece.len(), &mut state.output);
            }
            if !state.output.is_empty() {
                state.wake_task();
            }
            return Poll::Ready(Ok(Ok(piece)));
        }
        if let Some(end) = arrived.ended.clone() {
            self.is_done = true;
            return Poll::Ready(Ok(Err(end)));
        }
        if let Some(error) = arrived.error {
            return Poll::Ready(Err(error));
        }
        arrived.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// Returns the number of content bytes that may be sent now, which is at least 1.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<Result<usize, StreamError>> {
        let mut arrived = self.arrived.borrow_mut();
        if let Some(error) = arrived.error {
            return Poll::Ready(Err(error));
        }
        let state = self.connection.0.borrow();
        match state.core.data_room(self.id).min(state.room()) {
            0 => {
                arrived.writer = Some(context.waker().clone());
                Poll::Pending
            }
            room => Poll::Ready(Ok(room)),
        }
    }

    /// Returns the error that ended the stream. Wakes `context` when there is one.
    pub fn poll_error(&self, context: &mut Context<'_>) -> Poll<StreamError> {
        let mut arrived = self.arrived.borrow_mut();
        if let Some(error) = arrived.error {
            return Poll::Ready(error);
        }
        arrived.writer = Some(context.waker().clone());
        Poll::Pending
    }

    /// Sends content, at most as many bytes as [`Self::poll_room`] returned. If `ends`, ends the request.
    pub fn send(&self, bytes: &[u8], ends: bool) {
        let state = &mut *self.connection.0.borrow_mut();
        if self.arrived.borrow().error.is_none() {
            let head = state.core.send_data(self.id, bytes.len(), ends);
            state.output.extend_from_slice(&head);
            state.output.extend_from_slice(bytes);
            state.wake_task();
        }
    }

    /// Sends trailers, which `encode` writes as a field block and which end the request.
    pub fn send_trailers(&self, encode: impl FnOnce(&mut Vec<u8>)) {
        let state = &mut *self.connection.0.borrow_mut();
        if self.arrived.borrow().error.is_none() {
            state.core.send_fields(self.id, true, &mut state.output, encode);
            state.wake_task();
        }
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        let state = &mut *self.connection.0.borrow_mut();
        let mut arrived = self.arrived.borrow_mut();
        if state.core.is_open(self.id) {
            let code = if self.is_done { ErrorCode::NoError } else { ErrorCode::Cancel };
            state.core.reset(self.id, code, &mut state.output);
        } else if arrived.error.is_none() {
            // Return the credit for content that will not be read.
            for piece in arrived.pieces.drain(..) {
                state.core.release(self.id, piece.len(), &mut state.output);
            }
        }
        state.waiting.drain(..).for_each(Waker::wake);
        state.wake_task();
    }
}

/// The task of a connection, which the caller must spawn.
pub struct ClientTask<T> {
    transport: T,
    shared: Rc<RefCell<ClientState>>,
    input: Box<[u8]>,
    stash: Vec<u8>,
    fields: FieldBlock,
    /// Bytes that are being written, and how many of them have been written.
    writing: Vec<u8>,
    written: usize,
}

impl<T: AsyncRead + AsyncWrite + Unpin> ClientTask<T> {
    /// Creates a connection on `transport`, and its task, which the caller must spawn.
    pub fn new(transport: T, config: Config, windows: Option<AdaptiveWindows>) -> (ClientConnection, Self) {
        let mut output = Vec::new();
        let core = Connection::new(Role::Client, config, &mut output);
        let state =
            ClientState { core, output, windows, is_measured: false, task: None, waiting: Vec::new(), ended: None };
        let shared = Rc::new(RefCell::new(state));
        let task = Self {
            transport,
            shared: Rc::clone(&shared),
            input: vec![0; READ_BYTES].into(),
            stash: Vec::new(),
            fields: FieldBlock::new(),
            writing: Vec::new(),
            written: 0,
        };
        (ClientConnection(shared), task)
    }

    /// Reads once and handles what has arrived. Returns `Ok(false)` if nothing has.
    fn read(&mut self, context: &mut Context<'_>) -> Result<bool, StreamError> {
        let mut buffer = ReadBuf::new(&mut self.input);
        match Pin::new(&mut self.transport).poll_read(context, &mut buffer) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Err(error)) => return Err(error.into()),
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Err(StreamError::Closed),
            Poll::Ready(Ok(())) => {}
        }
        let stashed = !self.stash.is_empty();
        if stashed {
            self.stash.extend_from_slice(buffer.filled());
        }
        let mut input = if stashed { &self.stash[..] } else { buffer.filled() };
        let state = &mut *self.shared.borrow_mut();
        // Time is 0, because only servers have flood budgets that refill over time.
        while let Some(event) = state
            .core
            .handle(0, &mut input, &mut self.fields, &mut state.output)
            .map_err(|error| StreamError::Connection(error.code()))?
        {
            state.handle_event(event, &self.fields);
        }
        self.stash = input.to_vec();
        Ok(true)
    }

    /// Writes the gathered output. Returns `false` if the transport accepts no more now.
    fn write(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        loop {
            if self.written == self.writing.len() {
                self.writing.clear();
                self.written = 0;
                std::mem::swap(&mut self.writing, &mut self.shared.borrow_mut().output);
                if self.writing.is_empty() {
                    let flushed = Pin::new(&mut self.transport).poll_flush(context)?;
                    return Ok(flushed.is_ready());
                }
            }
            match Pin::new(&mut self.transport).poll_write(context, &self.writing[self.written..])? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(count) => self.written += count,
                Poll::Pending => return Ok(false),
            }
        }
    }

    fn go_on(&mut self, context: &mut Context<'_>) -> Result<(), StreamError> {
        {
            let state = &mut *self.shared.borrow_mut();
            state.task = Some(context.waker().clone());
            if std::mem::take(&mut state.is_measured)
                && let Some(windows) = &mut state.windows
            {
                windows.handle_acknowledged();
            }
        }
        let mut reads = 0;
        while self.read(context)? {
            reads += 1;
            if reads == READS_MAX {
                context.waker().wake_by_ref();
                break;
            }
        }
        {
            let state = &mut *self.shared.borrow_mut();
            if let Some(adaptive) = &mut state.windows
                && let Some(windows) = adaptive.wanted(state.core.stream_count())
                && state.core.is_acknowledged()
            {
                state.core.set_windows(windows, &mut state.output);
                adaptive.handle_announced(windows);
            }
        }
        self.write(context)?;
        let state = &mut *self.shared.borrow_mut();
        if let Some(error) = state.ended {
            return Err(error);
        }
        if state.room() > 0 {
            for (id, stream) in state.core.iter() {
                if state.core.data_room(id) > 0
                    && let Some(writer) = stream.borrow_mut().writer.take()
                {
                    writer.wake();
                }
            }
        }
        state.waiting.drain(..).for_each(Waker::wake);
        Ok(())
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Future for ClientTask<T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = self.get_mut();
        let ended = task.go_on(context);
        let is_unused = Rc::strong_count(&task.shared) == 1;
        if ended.is_ok() && !is_unused {
            return Poll::Pending;
        }
        let error = ended.err().unwrap_or(StreamError::Closed);
        {
            let state = &mut *task.shared.borrow_mut();
            state.ended.get_or_insert(error);
            state.fail_streams(error, |_| true);
            state.waiting.drain(..).for_each(Waker::wake);
            state.core.shut(ErrorCode::NoError, &mut state.output);
        }
        // The GOAWAY is a courtesy: if the transport does not accept it immediately, the connection closes without it.
        let _ = task.write(context);
        let _ = Pin::new(&mut task.transport).poll_shutdown(context);
        Poll::Ready(())
    }
}
