//! HTTP/3 connections, each of which carries many requests over one QUIC connection.
//!
//! | file | contents |
//! |---|---|
//! | `sockets` | UDP sockets of a worker, and starting connections |
//! | `stream` | the stream of one request |
//!
//! A task drives the QUIC connection. Requests use the connection through shared state. What they write is sent when
//! the task runs next, together with acknowledgments of what has arrived.

mod sockets;
mod stream;

pub(super) use sockets::QuicSockets;
pub(super) use stream::Http3Stream;

use super::StreamVersion;
use super::failure::RequestFailure;
use super::reader::push_set_cookie;
use flatout_http::http2::connection::Role;
use flatout_http::http2::fields::FieldBlock;
use flatout_http::http3::connection::{Config, Connection, Event, OwnStream};
use flatout_http::http3::error::{ConnectionError, ErrorCode};
use flatout_http::limits::Limits;
use flatout_net::quic::QuicConnection;
use quinn_proto::{Dir, ReadError, StreamEvent, StreamId, VarInt};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use stream::{Arrived, ArrivedHead, StreamState};

/// Settings of every connection.
const CONFIG: Config = Config { section_bytes_max: Limits::CLIENT.head_bytes_max };

/// State that the task of a connection shares with its requests.
struct Http3State {
    quic: QuicConnection,
    core: Connection<StreamState>,
    fields: FieldBlock,
    stores_cookies: bool,
    /// Buffer for the heads of requests, reused.
    output: Vec<u8>,
    /// The control stream and the QPACK decoder stream, when they are open.
    own: [Option<StreamId>; 2],
    /// Streams that were opened, but not used yet.
    reserved: VecDeque<StreamId>,
    is_connected: bool,
    /// Wakes the connection's task.
    task: Option<Waker>,
    /// Wakers of requests that wait for a stream, or for the connection.
    waiting: Vec<Waker>,
    ended: Option<RequestFailure>,
}

/// Converts a stream ID to QUIC's type.
fn stream_id(id: u64) -> StreamId {
    VarInt::from_u64(id).unwrap_or(VarInt::MAX).into()
}

/// Converts an error code to QUIC's type.
fn number_of(code: ErrorCode) -> VarInt {
    VarInt::from_u64(code.number()).unwrap_or(VarInt::MAX)
}

impl Http3State {
    fn wake_task(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// Opens streams for later requests, without sending anything, until `wanted` streams are open. Returns the number of
    /// open streams, which the server must permit: QUIC has no other way to tell.
    fn reserve_streams(&mut self, wanted: u32) -> u32 {
        let in_use = self.core.iter().count();
        while in_use + self.reserved.len() < wanted as usize {
            let Some(id) = self.quic.streams().open(Dir::Bi) else { break };
            self.reserved.push_back(id);
        }
        (in_use + self.reserved.len()) as u32
    }

    fn wake_waiting(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }

    /// Fails all open streams for which `selects` returns true.
    fn fail_streams(&mut self, failure: RequestFailure, selects: impl Fn(u64) -> bool) {
        for (id, stream) in self.core.iter() {
            if selects(id) {
                stream.borrow_mut().fail(failure);
            }
        }
    }

    /// Closes the connection with `code`.
    fn close(&mut self, code: ErrorCode, failure: RequestFailure) {
        if self.ended.is_none() {
            self.ended = Some(failure);
            self.quic.close(Instant::now(), number_of(code), Vec::new().into());
        }
    }

    /// Handles all events that QUIC reports.
    fn handle_events(&mut self) {
        while let Some(event) = self.quic.poll() {
            match event {
                quinn_proto::Event::Connected => {
                    self.is_connected = true;
                    self.wake_waiting();
                }
                quinn_proto::Event::ConnectionLost { reason } => {
                    self.ended.get_or_insert(RequestFailure::of_quic(&reason));
                }
                quinn_proto::Event::Stream(event) => {
                    if let Err(error) = self.handle_stream_event(&event) {
                        self.close(error.code(), RequestFailure::Http3Violation(error));
                    }
                }
                quinn_proto::Event::HandshakeDataReady
                | quinn_proto::Event::DatagramReceived
                | quinn_proto::Event::DatagramsUnblocked => {}
            }
        }
    }

    fn handle_stream_event(&mut self, event: &StreamEvent) -> Result<(), ConnectionError> {
        match *event {
            StreamEvent::Opened { dir } => {
                while let Some(id) = self.quic.streams().accept(dir) {
                    self.core.accept(0, id.into())?;
                    self.read(id)?;
                }
            }
            StreamEvent::Readable { id } => self.read(id)?,
            StreamEvent::Writable { id } => {
                if let Some(stream) = self.core.get_mut(id.into()) {
                    stream.borrow_mut().wake_writer();
                }
            }
            StreamEvent::Stopped { id, error_code } => {
                if let Some(event) = self.core.handle_stopped(0, id.into(), error_code.into_inner())? {
                    self.handle_event(event);
                }
            }
            StreamEvent::Available { .. } => self.wake_waiting(),
            StreamEvent::Finished { .. } => {}
        }
        Ok(())
    }

    /// Reads all bytes that have arrived on a stream.
    fn read(&mut self, id: StreamId) -> Result<(), ConnectionError> {
        let mut last = None;
        loop {
            let mut stream = self.quic.recv_stream(id);
            let Ok(mut chunks) = stream.read(true) else { return Ok(()) };
            let next = chunks.next(usize::MAX);
            // The flow-control credit for these bytes is sent at the end of the turn.
            let _ = chunks.finalize();
            match next {
                Ok(Some(chunk)) => {
                    if let Some(piece) = last.replace(chunk.bytes) {
                        self.handle_bytes(id.into(), &piece, false)?;
                    }
                }
                // The end of the stream is handled together with its last piece.
                Ok(None) => return self.handle_bytes(id.into(), &last.unwrap_or_default(), true),
                Err(ReadError::Blocked) => {
                    return match last {
                        Some(piece) => self.handle_bytes(id.into(), &piece, false),
                        None => Ok(()),
                    };
                }
                Err(ReadError::Reset(code)) => {
                    if let Some(event) = self.core.handle_reset(0, id.into(), code.into_inner())? {
                        self.handle_event(event);
                    }
                    return Ok(());
                }
            }
        }
    }

    /// Handles bytes received on a stream. A blocked stream stores them.
    fn handle_bytes(&mut self, id: u64, bytes: &[u8], fin: bool) -> Result<(), ConnectionError> {
        let state = self.core.get_mut(id).cloned();
        if let Some(state) = &state
            && state.borrow_mut().stash(bytes, fin)
        {
            return Ok(());
        }
        let mut input = bytes;
        while let Some(event) = self.core.handle(0, id, &mut input, fin, &mut self.fields)? {
            if let Event::Unblocked { stream } = event {
                self.handle_unblocked(stream)?;
            } else {
                self.handle_event(event);
            }
        }
        if let Some(state) = state {
            state.borrow_mut().end_piece(input, fin, self.core.is_blocked(id));
        }
        Ok(())
    }

    fn handle_unblocked(&mut self, id: u64) -> Result<(), ConnectionError> {
        let Some((bytes, fin)) = self.core.get_mut(id).and_then(|state| state.borrow_mut().take_stash()) else {
            return Ok(());
        };
        self.handle_bytes(id, &bytes, fin)
    }

    fn handle_event(&mut self, event: Event<'_, StreamState>) {
        match event {
            Event::Response { stream, ends } => {
                let status = self.fields.status().unwrap_or_default();
                let mut head = ArrivedHead { status, line_bytes: 0, set_cookies: Vec::new() };
                for (name, value) in self.fields.iter() {
                    head.line_bytes += name.len() + ": ".len() + value.len() + "\r\n".len();
                    if self.stores_cookies {
                        push_set_cookie(name.as_bytes(), value, &mut head.set_cookies);
                    }
                }
                self.deliver(stream, |arrived| arrived.add_head(head, ends));
            }
            Event::Data { stream, bytes, ends } => self.deliver(stream, |arrived| arrived.add_content(bytes, ends)),
            Event::Trailers { stream } => self.deliver(stream, Arrived::end),
            Event::Reset { stream, code, error, data } => {
                let sending = number_of(if error.is_none() { ErrorCode::RequestCancelled } else { code });
                // A part of the stream that is already closed needs neither.
                let _ = self.quic.send_stream(stream_id(stream)).reset(sending);
                if error.is_some() {
                    let _ = self.quic.recv_stream(stream_id(stream)).stop(sending);
                }
                data.borrow_mut().fail(RequestFailure::Http3Reset(code));
            }
            Event::Stopped { stream, .. } => {
                let _ = self.quic.send_stream(stream_id(stream)).reset(number_of(ErrorCode::NoError));
                self.deliver(stream, Arrived::stop_sending);
            }
            Event::GoAway { id } => {
                let failure = RequestFailure::Unprocessed(StreamVersion::Http3);
                self.fail_streams(failure, |stream| stream >= id);
                self.wake_waiting();
            }
            Event::Settings | Event::Unblocked { .. } | Event::Rejected { .. } | Event::Request { .. } => {}
        }
    }

    fn deliver(&mut self, id: u64, change: impl FnOnce(&mut Arrived)) {
        let Some(state) = self.core.get_mut(id).cloned() else { return };
        let mut arrived = state.borrow_mut();
        change(&mut arrived);
        arrived.wake();
        self.core.take_done(id);
    }

    /// Writes pending bytes to the connection's own streams.
    fn write_own(&mut self) {
        if !self.is_connected || !self.core.has_output() {
            return;
        }
        for (index, own) in [OwnStream::Control, OwnStream::Decoder].into_iter().enumerate() {
            let output = self.core.output(own);
            if output.is_empty() {
                continue;
            }
            if self.own[index].is_none() {
                self.own[index] = self.quic.streams().open(Dir::Uni);
            }
            let Some(id) = self.own[index] else { continue };
            let written = self.quic.send_stream(id).write(output).unwrap_or(0);
            output.drain(..written);
        }
    }
}

/// A shared handle to a connection. The connection closes when the last handle is dropped.
#[derive(Clone)]
pub(super) struct Http3Connection(Rc<RefCell<Http3State>>);

impl Drop for Http3Connection {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.try_borrow_mut() {
            state.wake_task();
        }
    }
}

impl Http3Connection {
    /// Creates a connection on `quic`, which has started its handshake. If `stores_cookies`, its streams return the
    /// cookies that responses set. Also returns the connection's task, which the caller spawns.
    fn new(quic: QuicConnection, stores_cookies: bool) -> (Self, Http3Task) {
        let state = Http3State {
            quic,
            core: Connection::new(Role::Client, CONFIG),
            fields: FieldBlock::new(),
            stores_cookies,
            output: Vec::new(),
            own: [None, None],
            reserved: VecDeque::new(),
            is_connected: false,
            task: None,
            waiting: Vec::new(),
            ended: None,
        };
        let shared = Rc::new(RefCell::new(state));
        (Self(Rc::clone(&shared)), Http3Task(shared))
    }

    /// Waits until the handshake is complete.
    pub(super) fn poll_connected(&self, context: &Context<'_>) -> Poll<Result<(), RequestFailure>> {
        let state = &mut *self.0.borrow_mut();
        match state.ended {
            Some(failure) => Poll::Ready(Err(failure)),
            None if state.is_connected => Poll::Ready(Ok(())),
            None => {
                state.waiting.push(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Returns whether anything has been received from the server.
    pub(super) fn has_received(&self) -> bool {
        self.0.borrow().quic.received_bytes() > 0
    }

    /// Opens a stream and sends a request head, which `encode` writes as a field block. Pending while the server permits
    /// no more streams. Fails, before anything is sent, if the connection is closing.
    pub(super) fn poll_open(
        &self,
        (is_head, ends): (bool, bool),
        encode: impl FnOnce(&mut Vec<u8>),
        is_digested: bool,
        context: &Context<'_>,
    ) -> Poll<Result<Http3Stream, RequestFailure>> {
        let state = &mut *self.0.borrow_mut();
        if let Some(failure) = state.ended {
            return Poll::Ready(Err(failure));
        }
        if !state.core.can_open() {
            return Poll::Ready(Err(RequestFailure::Unprocessed(StreamVersion::Http3)));
        }
        let Some(id) = state.reserved.pop_front().or_else(|| state.quic.streams().open(Dir::Bi)) else {
            state.waiting.push(context.waker().clone());
            return Poll::Pending;
        };
        state.core.open(id.into(), is_head);
        state.output.clear();
        state.core.send_fields(id.into(), ends, &mut state.output, encode);
        let written = state.quic.send_stream(id).write(&state.output).unwrap_or(0);
        let unsent = state.output[written..].to_vec();
        if ends && unsent.is_empty() {
            // This fails if the server has stopped the stream, which an event reports.
            let _ = state.quic.send_stream(id).finish();
        }
        let arrived = state.core.get_mut(id.into()).cloned().unwrap_or_default();
        arrived.borrow_mut().begin(unsent, ends, is_digested);
        state.wake_task();
        Poll::Ready(Ok(Http3Stream::new(self.clone(), id, arrived)))
    }

    /// Returns the number of streams that the server permits at once, at most `wanted`.
    pub(super) fn reserve_streams(&self, wanted: u32) -> u32 {
        self.0.borrow_mut().reserve_streams(wanted)
    }

    /// Waits until the server permits more than `before` streams at once. Returns their number, at most `wanted`.
    pub(super) fn poll_more_streams(&self, before: u32, wanted: u32, context: &Context<'_>) -> Poll<Result<u32, ()>> {
        let state = &mut *self.0.borrow_mut();
        if state.ended.is_some() {
            return Poll::Ready(Err(()));
        }
        match state.reserve_streams(wanted) {
            now if now > before => Poll::Ready(Ok(now)),
            _ => {
                state.waiting.push(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Closes the connection.
    pub(super) fn close(&self) {
        let state = &mut *self.0.borrow_mut();
        state.close(ErrorCode::NoError, RequestFailure::ClosedEarly);
        state.wake_task();
    }
}

/// The task that drives a connection.
pub(super) struct Http3Task(Rc<RefCell<Http3State>>);

impl Future for Http3Task {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let is_unused = Rc::strong_count(&self.0) == 1;
        let state = &mut *self.0.borrow_mut();
        state.task = Some(context.waker().clone());
        let now = Instant::now();
        state.quic.begin_turn(now, context);
        state.handle_events();
        if is_unused {
            state.close(ErrorCode::NoError, RequestFailure::ClosedEarly);
        }
        state.write_own();
        state.quic.end_turn(now, context);
        let Some(failure) = state.ended else { return Poll::Pending };
        state.fail_streams(failure, |_| true);
        state.wake_waiting();
        Poll::Ready(())
    }
}

/// Gives the tasks of closed connections the chance to run once more.
pub(super) async fn yield_to_tasks() {
    for _ in 0..2 {
        let mut has_yielded = false;
        poll_fn(|context| {
            if std::mem::replace(&mut has_yielded, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}
