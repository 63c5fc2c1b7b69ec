//! Client connections: many requests on one transport, to origins and of the lab.
//!
//! A task owns the transport; requests talk to it through shared state. What they send is gathered and written when the
//! task runs next.

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

/// Gathered bytes above which content waits for the transport.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Bytes of one read.
const READ_BYTES: usize = 16 * 1024;

/// Reads before the task yields to others.
const READS_MAX: u32 = 8;

/// Payload of the PING that measures a round trip.
const PROBE_PING: u64 = u64::from_be_bytes(*b"measures");

/// Why a stream ended before its response did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// The peer did not process the request: its GOAWAY says so (RFC 9113 §6.8).
    Refused,
    /// The stream was reset, by the peer or because of an error of the peer.
    Reset(ErrorCode),
    /// The connection ended with this code, sent by either side.
    Connection(ErrorCode),
    /// The transport ended.
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

/// The head of a response.
#[derive(Debug)]
pub struct ResponseFields {
    /// Status code.
    pub status: u16,
    /// Field lines, each `name: value` and CR LF.
    pub lines: Vec<u8>,
    /// The declared length of the content, in bytes.
    pub content_length: Option<u64>,
    /// True if no content follows.
    pub ends: bool,
}

/// Received heads and content of a stream, until they are taken.
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
    /// `None` if the windows stay as they are.
    windows: Option<AdaptiveWindows>,
    /// A round trip has ended.
    is_measured: bool,
    /// Wakes the task.
    task: Option<Waker>,
    /// Requests that wait for a stream.
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

    /// Fails the open streams that `selects` accepts.
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
                // Readers first take what has arrived before it.
                self.is_measured = true;
                self.wake_task();
            }
            Event::GoAway { last_stream, code: ErrorCode::NoError } => {
                self.fail_streams(StreamError::Refused, |id| id > last_stream);
            }
            Event::GoAway { code, .. } => {
                self.ended.get_or_insert(StreamError::Connection(code));
            }
            Event::Acknowledged(_) | Event::Malformed { .. } | Event::Request { .. } => {}
        }
    }
}

/// A connection, as requests and pools hold it. It closes when nobody holds it and its streams have ended.
#[derive(Clone)]
pub struct ClientConnection(Rc<RefCell<ClientState>>);

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.0.borrow_mut().wake_task();
    }
}

impl ClientConnection {
    /// Opens a stream and sends a head, which `encode` writes as a field block. Pending while the peer permits no more
    /// streams; an error if the connection is closing, before anything was sent.
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

/// One request's stream. Dropping it before its end resets it.
pub struct ClientStream {
    connection: ClientConnection,
    id: u32,
    arrived: StreamState,
    /// The end of the response was taken.
    is_done: bool,
}

impl ClientStream {
    /// The next head: any interim ones, then the final one.
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

    /// The next piece of content, or the end. Credit is returned to the peer when a piece is taken.
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
            state.core.release(self.id, piece.len(), &mut state.output);
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

    /// Bytes of content that may be sent now, at least one.
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

    /// Returns the error that ended the stream, if any; otherwise wakes `context` when there is one.
    pub fn poll_error(&self, context: &mut Context<'_>) -> Poll<StreamError> {
        let mut arrived = self.arrived.borrow_mut();
        if let Some(error) = arrived.error {
            return Poll::Ready(error);
        }
        arrived.writer = Some(context.waker().clone());
        Poll::Pending
    }

    /// Sends content, at most as much as [`Self::poll_room`] returned.
    pub fn send(&self, bytes: &[u8], ends: bool) {
        let state = &mut *self.connection.0.borrow_mut();
        if self.arrived.borrow().error.is_none() {
            let head = state.core.send_data(self.id, bytes.len(), ends);
            state.output.extend_from_slice(&head);
            state.output.extend_from_slice(bytes);
            state.wake_task();
        }
    }

    /// Sends trailers, which end the request.
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
        if state.core.is_open(self.id) {
            let code = if self.is_done { ErrorCode::NoError } else { ErrorCode::Cancel };
            state.core.reset(self.id, code, &mut state.output);
        }
        // Credit for what nobody reads.
        for piece in self.arrived.borrow_mut().pieces.drain(..) {
            state.core.release(self.id, piece.len(), &mut state.output);
        }
        state.waiting.drain(..).for_each(Waker::wake);
        state.wake_task();
    }
}

/// The task of a connection.
pub struct ClientTask<T> {
    transport: T,
    shared: Rc<RefCell<ClientState>>,
    input: Box<[u8]>,
    stash: Vec<u8>,
    fields: FieldBlock,
    /// Bytes being written, and how many of them were.
    writing: Vec<u8>,
    written: usize,
}

impl<T: AsyncRead + AsyncWrite + Unpin> ClientTask<T> {
    /// A connection on `transport`, and its task, which the caller spawns.
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

    /// Reads once and handles what has arrived. `Ok(false)` if there is nothing.
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
        // A client has no budgets that time refills.
        while let Some(event) = state
            .core
            .handle(0, &mut input, &mut self.fields, &mut state.output)
            .map_err(|error| StreamError::Connection(error.code))?
        {
            state.handle_event(event, &self.fields);
        }
        self.stash = input.to_vec();
        Ok(true)
    }

    /// Writes what is gathered. `false` if the transport takes no more now.
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
        // The GOAWAY is a courtesy: what does not take it at once closes without.
        let _ = task.write(context);
        let _ = Pin::new(&mut task.transport).poll_shutdown(context);
        Poll::Ready(())
    }
}
