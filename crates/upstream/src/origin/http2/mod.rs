//! Exchanges over HTTP/2, with one connection per worker and origin.

mod body;
mod exchange;
mod sending;
mod websocket;

use super::client::OriginShared;
use super::connect::connect;
use super::failure::{ExchangeFailure, OriginFailure, Repeat};
use super::pool::{Connection, OriginPool};
pub(super) use body::Http2Body;
pub(super) use exchange::exchange;
use flatout_http::http2::connection::Config;
use flatout_http::http2::frame::ErrorCode;
use flatout_http::http2::window::Windows;
use flatout_http::proxy_protocol::ProxyClient;
use flatout_net::http2::{ClientConnection, ClientTask, StreamError};
use flatout_net::task_deadlines::{DeadlineTimer, now_ms};
use flatout_net::windows::AdaptiveWindows;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use tokio::sync::Notify;
pub(super) use websocket::open_websocket;

/// Initial flow-control windows: that of each stream, and that of the connection, which is large enough that a few slow
/// readers do not block the others.
const WINDOWS: Windows = Windows { stream: 128 * 1024, connection: 16 * 1024 * 1024 };

/// Minimum size of the connection's window, as a multiple of the stream window.
const STREAMS_PER_CONNECTION: u32 = 4;

/// How long to remember that an origin does not support HTTP/2, in milliseconds.
const HTTP1_TTL_MS: u64 = 60_000;

/// The HTTP/2 connection to an origin.
#[derive(Default)]
pub(super) struct Http2Pool {
    state: RefCell<Http2PoolState>,
    changed: Notify,
    /// Number that distinguishes successive connections.
    generation: Cell<u64>,
    streams: Cell<usize>,
    used_ms: Cell<u64>,
    /// Address to which the latest connection goes.
    peer: Cell<Option<SocketAddr>>,
}

#[derive(Default)]
enum Http2PoolState {
    #[default]
    None,
    Connecting,
    Open(ClientConnection),
    /// The origin selected HTTP/1.1 by ALPN. HTTP/2 is not tried again until this time, in milliseconds.
    Http1(u64),
}

/// The next action of an exchange that needs a connection.
enum Look {
    Open(ClientConnection),
    Http1,
    /// Open a connection.
    Begin,
    /// Wait for the connection that is being opened.
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
            Http2PoolState::Open(connection) if connection.takes_streams() => Look::Open(connection.clone()),
            Http2PoolState::Http1(until_ms) if now_ms() < *until_ms => Look::Http1,
            Http2PoolState::Connecting => Look::Wait,
            Http2PoolState::None | Http2PoolState::Open(_) | Http2PoolState::Http1(_) => {
                *state = Http2PoolState::Connecting;
                Look::Begin
            }
        }
    }

    /// Makes the next exchange open a new connection. Streams on the current connection continue.
    pub(super) fn forget(&self) {
        let mut state = self.state.borrow_mut();
        if matches!(*state, Http2PoolState::Open(..)) {
            *state = Http2PoolState::None;
        }
    }

    /// Calls [`Self::forget`] unless `is_current` returns true for the address to which the connection goes.
    pub(super) fn retire(&self, is_current: impl FnOnce(SocketAddr) -> bool) {
        if self.peer.get().is_some_and(|peer| !is_current(peer)) {
            self.forget();
        }
    }

    /// Calls [`Self::forget`] if `generation` is that of the current connection.
    fn forget_if(&self, generation: u64) {
        if self.generation.get() == generation {
            self.forget();
        }
    }

    /// Returns whether there is a connection, which needs periodic checks.
    pub(super) fn is_open(&self) -> bool {
        matches!(*self.state.borrow(), Http2PoolState::Open(..))
    }

    /// Closes the connection if its idle timeout has passed.
    pub(super) fn handle_time(&self, shared: &OriginShared, now_ms: u64) {
        let idle_ms = now_ms.saturating_sub(self.used_ms.get());
        if self.streams.get() == 0 && idle_ms > shared.settings.idle_timeout_ms {
            self.forget();
        }
    }
}

/// Counts a stream as long as this exists.
#[derive(Debug)]
struct StreamGuard(Rc<OriginPool>);

impl StreamGuard {
    fn new(pool: &Rc<OriginPool>) -> Self {
        pool.http2.streams.set(pool.http2.streams.get() + 1);
        pool.note_use();
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

/// Connection attempt, which sets the pool's state when it is dropped.
struct Attempt<'a> {
    http2: &'a Http2Pool,
    state: Option<Http2PoolState>,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        *self.http2.state.borrow_mut() = self.state.take().unwrap_or_default();
        self.http2.changed.notify_waiters();
    }
}

/// A connection on which a request can be sent.
struct ReadyConnection {
    connection: ClientConnection,
    generation: u64,
    reused: bool,
}

/// Returns the connection, which is opened if necessary. Returns `None` if the origin does not support HTTP/2.
async fn connection(
    shared: &Rc<OriginShared>,
    pool: &Rc<OriginPool>,
) -> Result<Option<ReadyConnection>, ExchangeFailure> {
    let http2 = &pool.http2;
    let mut timer = DeadlineTimer::new(&shared.deadlines);
    loop {
        let changed = http2.changed.notified();
        match http2.look() {
            Look::Open(connection) => {
                return Ok(Some(ReadyConnection { connection, generation: http2.generation.get(), reused: true }));
            }
            Look::Http1 => return Ok(None),
            Look::Begin => return open(shared, pool).await,
            Look::Wait => {}
        }
        if !timer.is_waiting() {
            timer.begin(shared.settings.connect_timeout_ms);
        }
        let failure = ExchangeFailure::new(OriginFailure::ConnectTimeout, Repeat::Always);
        timer.bound(changed).await.ok_or(failure)?;
    }
}

async fn open(shared: &Rc<OriginShared>, pool: &Rc<OriginPool>) -> Result<Option<ReadyConnection>, ExchangeFailure> {
    let http2 = &pool.http2;
    let mut attempt = Attempt { http2, state: None };
    let connected = connect(shared, pool, true, ProxyClient::Sender).await?;
    if pool.address.secure && !connected.alpn_http2 {
        attempt.state = Some(Http2PoolState::Http1(now_ms().saturating_add(HTTP1_TTL_MS)));
        pool.check_in(shared, connected.connection, u64::MAX);
        return Ok(None);
    }
    let config = Config { streams_max: 0, windows: WINDOWS, section_bytes_max: shared.settings.head_bytes_max };
    let windows = AdaptiveWindows::new(WINDOWS, STREAMS_PER_CONNECTION, &shared.windows);
    let Connection { transport, peer, .. } = connected.connection;
    http2.peer.set(Some(peer));
    let (connection, task) = ClientTask::new(transport, config, Some(windows));
    let generation = http2.generation.get() + 1;
    http2.generation.set(generation);
    http2.used_ms.set(now_ms());
    // The pool keeps the connection open, so if this task owned the pool, it would never end.
    let owner = Rc::downgrade(pool);
    tokio::task::spawn_local(async move {
        // The connection's error is reported to each stream.
        task.await;
        if let Some(owner) = owner.upgrade() {
            owner.http2.forget_if(generation);
        }
    });
    // If the name has lost the address while the connection was being opened, only this exchange uses it.
    if pool.resolution.has(peer) {
        attempt.state = Some(Http2PoolState::Open(connection.clone()));
    }
    shared.deadlines.wake_sweep();
    Ok(Some(ReadyConnection { connection, generation, reused: false }))
}

/// Returns the failure for a stream that ended before its response.
const fn name_error(error: StreamError) -> ExchangeFailure {
    let (failure, repeat) = match error {
        // RFC 9113 §8.7: the origin did not process the request.
        StreamError::Refused | StreamError::Reset(ErrorCode::RefusedStream) => {
            (OriginFailure::H2Refused, Repeat::Always)
        }
        StreamError::Closed | StreamError::System(_) | StreamError::Tls(_) => {
            (OriginFailure::Reset, Repeat::Idempotent)
        }
        StreamError::Reset(_) | StreamError::Connection(_) => (OriginFailure::H2Failed, Repeat::Idempotent),
    };
    ExchangeFailure::new(failure, repeat)
}
