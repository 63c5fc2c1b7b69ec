//! The same exchange over HTTP/2: one connection for each worker and origin, with many streams.

mod body;
mod exchange;
mod sending;

use super::client::Shared;
use super::connect::connect;
use super::failure::{ExchangeFailure, OriginFailure, Repeat};
use super::pool::OriginPool;
use super::waits::{Patience, now_ms};
use crate::windows::ConnectionWindows;
pub(super) use body::Http2Body;
pub(super) use exchange::exchange;
use flatout_http::http2::window::Windows;
use h2::client::{Builder, SendRequest};
use sending::SendPiece;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use tokio::sync::Notify;

/// What an origin may send at first, before somebody has read it: on one stream, and on all together, so much that a few
/// readers who are slow do not hold up the others.
const WINDOWS: Windows = Windows { stream: 128 * 1024, connection: 16 * 1024 * 1024 };

/// The connection's window is at least as large as so many streams'.
const STREAMS_PER_CONNECTION: u32 = 4;

/// Bytes of one stream that wait for the socket, or for the origin's window.
const SEND_BYTES_MAX: usize = 64 * 1024;

/// How long it is believed that an origin does not speak HTTP/2, in milliseconds.
const HTTP1_TTL_MS: u64 = 60_000;

/// The connection to one origin.
#[derive(Default)]
pub(super) struct Http2Pool {
    state: RefCell<State>,
    changed: Notify,
    /// Tells one connection from the next.
    generation: Cell<u64>,
    streams: Cell<usize>,
    used_ms: Cell<u64>,
}

#[derive(Default)]
enum State {
    #[default]
    None,
    Connecting,
    Open(SendRequest<SendPiece>, Rc<ConnectionWindows>),
    /// The origin chose HTTP/1.1 by ALPN; not asked again until then.
    Http1(u64),
}

/// What an exchange does for a connection.
enum Look {
    Open(SendRequest<SendPiece>, Rc<ConnectionWindows>),
    Http1,
    /// It makes one.
    Begin,
    /// Another is making one.
    Wait,
}

impl fmt::Debug for Http2Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Http2Pool").field("streams", &self.streams).finish_non_exhaustive()
    }
}

impl Http2Pool {
    fn look(&self) -> Look {
        let mut state = self.state.borrow_mut();
        match &*state {
            State::Open(sender, windows) => Look::Open(sender.clone(), Rc::clone(windows)),
            State::Http1(until_ms) if now_ms() < *until_ms => Look::Http1,
            State::Connecting => Look::Wait,
            State::None | State::Http1(_) => {
                *state = State::Connecting;
                Look::Begin
            }
        }
    }

    /// The next exchange makes a new connection. Streams of this one go on.
    pub(super) fn forget(&self) {
        let mut state = self.state.borrow_mut();
        if matches!(*state, State::Open(..)) {
            *state = State::None;
        }
    }

    /// The same, if `generation` is the connection at hand.
    fn forget_if(&self, generation: u64) {
        if self.generation.get() == generation {
            self.forget();
        }
    }

    /// Whether there is a connection to look at from time to time.
    pub(super) fn is_open(&self) -> bool {
        matches!(*self.state.borrow(), State::Open(..))
    }

    /// Closes the connection when it has been without use for too long.
    pub(super) fn handle_time(&self, shared: &Shared, now_ms: u64) {
        let idle_ms = now_ms.saturating_sub(self.used_ms.get());
        if self.streams.get() == 0 && idle_ms > shared.settings.idle_timeout_ms {
            self.forget();
        }
    }
}

/// Counts a stream for as long as it lives.
#[derive(Debug)]
struct StreamGuard(Rc<OriginPool>);

impl StreamGuard {
    fn new(pool: &Rc<OriginPool>) -> Self {
        pool.http2.streams.set(pool.http2.streams.get() + 1);
        Self(Rc::clone(pool))
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let http2 = &self.0.http2;
        http2.streams.set(http2.streams.get().saturating_sub(1));
        http2.used_ms.set(now_ms());
    }
}

/// Puts the pool's state right when a connection that is being made is given up.
struct Attempt<'a> {
    http2: &'a Http2Pool,
    state: Option<State>,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        *self.http2.state.borrow_mut() = self.state.take().unwrap_or_default();
        self.http2.changed.notify_waiters();
    }
}

/// A connection to send a request on.
struct Opened {
    sender: SendRequest<SendPiece>,
    windows: Rc<ConnectionWindows>,
    generation: u64,
    reused: bool,
}

/// The connection, made if need be; `None` when the origin does not speak HTTP/2.
async fn connection(shared: &Rc<Shared>, pool: &Rc<OriginPool>) -> Result<Option<Opened>, ExchangeFailure> {
    let http2 = &pool.http2;
    let mut patience = Patience::new(&shared.waits);
    loop {
        let changed = http2.changed.notified();
        match http2.look() {
            Look::Open(sender, windows) => {
                return Ok(Some(Opened { sender, windows, generation: http2.generation.get(), reused: true }));
            }
            Look::Http1 => return Ok(None),
            Look::Begin => return open(shared, pool).await,
            Look::Wait => {}
        }
        if !patience.is_waiting() {
            patience.begin(shared.settings.connect_timeout_ms);
        }
        let failure = ExchangeFailure::new(OriginFailure::ConnectTimeout, Repeat::Always);
        patience.bound(changed).await.ok_or(failure)?;
    }
}

async fn open(shared: &Rc<Shared>, pool: &Rc<OriginPool>) -> Result<Option<Opened>, ExchangeFailure> {
    let http2 = &pool.http2;
    let mut attempt = Attempt { http2, state: None };
    let connected = connect(shared, pool, true).await?;
    if pool.address.secure && !connected.alpn_http2 {
        attempt.state = Some(State::Http1(now_ms().saturating_add(HTTP1_TTL_MS)));
        pool.check_in(shared, connected.transport);
        return Ok(None);
    }
    let handshake = Builder::new()
        .initial_window_size(WINDOWS.stream)
        .initial_connection_window_size(WINDOWS.connection)
        .max_send_buffer_size(SEND_BYTES_MAX)
        .max_header_list_size(u32::try_from(shared.settings.head_bytes_max).unwrap_or(u32::MAX))
        .enable_push(false)
        .handshake::<_, SendPiece>(connected.transport);
    let mut patience = Patience::new(&shared.waits);
    patience.begin(shared.settings.connect_timeout_ms);
    let failed = |failure| ExchangeFailure::new(failure, Repeat::Always);
    let (sender, mut connection) = patience
        .bound(handshake)
        .await
        .ok_or(failed(OriginFailure::ConnectTimeout))?
        .map_err(|_| failed(OriginFailure::H2Failed))?;
    let ping_pong = connection.ping_pong().ok_or(failed(OriginFailure::H2Failed))?;
    let windows = ConnectionWindows::new(ping_pong, WINDOWS, STREAMS_PER_CONNECTION, &shared.windows);
    let windows = Rc::new(windows);
    let generation = http2.generation.get() + 1;
    http2.generation.set(generation);
    http2.used_ms.set(now_ms());
    // Who holds the pool holds the connection open: this task must not, or it would never end.
    let owner = Rc::downgrade(pool);
    let adapting = Rc::clone(&windows);
    tokio::task::spawn_local(async move {
        // How it ended, each of its streams is told.
        let _ended = poll_fn(|context| {
            let streams = owner.upgrade().map_or(0, |owner| owner.http2.streams.get());
            if let Some(windows) = adapting.poll(streams, context) {
                connection.set_target_window_size(windows.connection);
                // It fails until the settings before these are acknowledged, which wakes us.
                if connection.set_initial_window_size(windows.stream).is_ok() {
                    adapting.handle_told(windows);
                }
            }
            Pin::new(&mut connection).poll(context)
        })
        .await;
        if let Some(owner) = owner.upgrade() {
            owner.http2.forget_if(generation);
        }
    });
    attempt.state = Some(State::Open(sender.clone(), Rc::clone(&windows)));
    shared.waits.wake_sweep();
    Ok(Some(Opened { sender, windows, generation, reused: false }))
}

/// The name of what ended a stream before its answer.
fn name_error(error: &h2::Error) -> ExchangeFailure {
    use h2::Reason;
    let (failure, repeat) = match error.reason() {
        // RFC 9113 §8.7: the origin did not look at the request.
        Some(Reason::REFUSED_STREAM) => (OriginFailure::H2Refused, Repeat::Always),
        Some(Reason::NO_ERROR) if error.is_go_away() && error.is_remote() => (OriginFailure::H2Refused, Repeat::Always),
        _ if error.is_io() => (OriginFailure::Reset, Repeat::Idempotent),
        _ => (OriginFailure::H2Failed, Repeat::Idempotent),
    };
    ExchangeFailure::new(failure, repeat)
}
