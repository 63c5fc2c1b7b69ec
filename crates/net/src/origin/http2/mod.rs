//! The exchange over HTTP/2: one connection per worker and origin, with many streams.

mod body;
mod exchange;
mod sending;

use super::client::OriginShared;
use super::connect::connect;
use super::failure::{ExchangeFailure, OriginFailure, Repeat};
use super::pool::OriginPool;
use super::timeouts::{DeadlineTimer, now_ms};
use crate::windows::{AdaptiveWindows, ConnectionWindows};
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

/// Initial windows: one for each stream, and one for all together that is large enough that a few slow readers do not
/// block the others.
const WINDOWS: Windows = Windows { stream: 128 * 1024, connection: 16 * 1024 * 1024 };

/// Lower bound of the connection's window, in stream windows.
const STREAMS_PER_CONNECTION: u32 = 4;

/// Bytes of one stream queued for the socket or the origin's window.
const SEND_BYTES_MAX: usize = 64 * 1024;

/// How long an origin is remembered as not speaking HTTP/2, in milliseconds.
const HTTP1_TTL_MS: u64 = 60_000;

/// The connection to one origin.
#[derive(Default)]
pub(super) struct Http2Pool {
    state: RefCell<Http2PoolState>,
    changed: Notify,
    /// Distinguishes successive connections.
    generation: Cell<u64>,
    streams: Cell<usize>,
    used_ms: Cell<u64>,
}

#[derive(Default)]
enum Http2PoolState {
    #[default]
    None,
    Connecting,
    Open(SendRequest<SendPiece>, Rc<ConnectionWindows>),
    /// The origin chose HTTP/1.1 by ALPN; HTTP/2 is not tried again until this time.
    Http1(u64),
}

/// The next action of an exchange that needs a connection.
enum Look {
    Open(SendRequest<SendPiece>, Rc<ConnectionWindows>),
    Http1,
    /// Open one.
    Begin,
    /// Wait for the one being opened.
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
            Http2PoolState::Open(sender, windows) => Look::Open(sender.clone(), Rc::clone(windows)),
            Http2PoolState::Http1(until_ms) if now_ms() < *until_ms => Look::Http1,
            Http2PoolState::Connecting => Look::Wait,
            Http2PoolState::None | Http2PoolState::Http1(_) => {
                *state = Http2PoolState::Connecting;
                Look::Begin
            }
        }
    }

    /// Makes the next exchange open a new connection. Streams of this one continue.
    pub(super) fn forget(&self) {
        let mut state = self.state.borrow_mut();
        if matches!(*state, Http2PoolState::Open(..)) {
            *state = Http2PoolState::None;
        }
    }

    /// As [`Self::forget`], if `generation` is current.
    fn forget_if(&self, generation: u64) {
        if self.generation.get() == generation {
            self.forget();
        }
    }

    /// Returns whether a connection needs periodic checks.
    pub(super) fn is_open(&self) -> bool {
        matches!(*self.state.borrow(), Http2PoolState::Open(..))
    }

    /// Closes the connection after its idle timeout.
    pub(super) fn handle_time(&self, shared: &OriginShared, now_ms: u64) {
        let idle_ms = now_ms.saturating_sub(self.used_ms.get());
        if self.streams.get() == 0 && idle_ms > shared.settings.idle_timeout_ms {
            self.forget();
        }
    }
}

/// Counts a stream as long as it lives.
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

/// Resets the pool's state if a connection attempt is dropped.
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

/// A connection to send a request on.
struct ReadyConnection {
    sender: SendRequest<SendPiece>,
    windows: Rc<ConnectionWindows>,
    generation: u64,
    reused: bool,
}

/// The connection, opened if necessary; `None` if the origin does not speak HTTP/2.
async fn connection(
    shared: &Rc<OriginShared>,
    pool: &Rc<OriginPool>,
) -> Result<Option<ReadyConnection>, ExchangeFailure> {
    let http2 = &pool.http2;
    let mut timer = DeadlineTimer::new(&shared.deadlines);
    loop {
        let changed = http2.changed.notified();
        match http2.look() {
            Look::Open(sender, windows) => {
                return Ok(Some(ReadyConnection { sender, windows, generation: http2.generation.get(), reused: true }));
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
    let connected = connect(shared, pool, true).await?;
    if pool.address.secure && !connected.alpn_http2 {
        attempt.state = Some(Http2PoolState::Http1(now_ms().saturating_add(HTTP1_TTL_MS)));
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
    let mut timer = DeadlineTimer::new(&shared.deadlines);
    timer.begin(shared.settings.connect_timeout_ms);
    let failed = |failure| ExchangeFailure::new(failure, Repeat::Always);
    let (sender, mut connection) = timer
        .bound(handshake)
        .await
        .ok_or(failed(OriginFailure::ConnectTimeout))?
        .map_err(|_| failed(OriginFailure::H2Failed))?;
    let ping_pong = connection.ping_pong().ok_or(failed(OriginFailure::H2Failed))?;
    let adaptive = AdaptiveWindows::new(WINDOWS, STREAMS_PER_CONNECTION, &shared.windows);
    let windows = ConnectionWindows::new(ping_pong, adaptive);
    let windows = Rc::new(windows);
    let generation = http2.generation.get() + 1;
    http2.generation.set(generation);
    http2.used_ms.set(now_ms());
    // The pool keeps the connection open, so this task must not own the pool, or it would never end.
    let owner = Rc::downgrade(pool);
    let adapting = Rc::clone(&windows);
    tokio::task::spawn_local(async move {
        // Each stream receives the connection's error.
        let _ended = poll_fn(|context| {
            let streams = owner.upgrade().map_or(0, |owner| owner.http2.streams.get());
            if let Some(windows) = adapting.poll(streams, context) {
                connection.set_target_window_size(windows.connection);
                // Fails until the previous settings are acknowledged, which wakes this task.
                if connection.set_initial_window_size(windows.stream).is_ok() {
                    adapting.handle_announced(windows);
                }
            }
            Pin::new(&mut connection).poll(context)
        })
        .await;
        if let Some(owner) = owner.upgrade() {
            owner.http2.forget_if(generation);
        }
    });
    attempt.state = Some(Http2PoolState::Open(sender.clone(), Rc::clone(&windows)));
    shared.deadlines.wake_sweep();
    Ok(Some(ReadyConnection { sender, windows, generation, reused: false }))
}

/// The failure of a stream that ended before its response.
fn name_error(error: &h2::Error) -> ExchangeFailure {
    use h2::Reason;
    let (failure, repeat) = match error.reason() {
        // RFC 9113 §8.7: the origin did not process the request.
        Some(Reason::REFUSED_STREAM) => (OriginFailure::H2Refused, Repeat::Always),
        Some(Reason::NO_ERROR) if error.is_go_away() && error.is_remote() => (OriginFailure::H2Refused, Repeat::Always),
        _ if error.is_io() => (OriginFailure::Reset, Repeat::Idempotent),
        _ => (OriginFailure::H2Failed, Repeat::Idempotent),
    };
    ExchangeFailure::new(failure, repeat)
}
