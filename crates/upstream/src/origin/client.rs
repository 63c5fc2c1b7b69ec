//! A complete exchange, and its retries.

use super::connect::connect;
use super::counts::OriginCounts;
use super::failure::{ExchangeFailure, OriginFailure, Repeat};
use super::http1::{self, ExchangeResult, WholeAnswer};
use super::http2;
use super::pool::OriginPool;
use super::request::{OutgoingContent, OutgoingRequest};
use super::response::Incoming;
use super::settings::OriginSettings;
use super::tls::OriginTls;
use flatout_handler::budget::{Budget, PIECE_BYTES_MAX};
use flatout_handler::shared::SharedBytes;
use flatout_http::limits::Limits;
use flatout_http::url::OriginAddress;
use flatout_net::task_deadlines::{DeadlineTable, DeadlineTimer, now_ms};
use flatout_net::transport::{Socket, Transport};
use flatout_net::windows::WindowBudget;
use flatout_os::timer::Timer;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

/// Upper bound of one receive, in bytes. The buffer is shared by all connections of the client: a waiting connection
/// owns none.
const INPUT_BYTES: usize = PIECE_BYTES_MAX;

/// Upper bound of the window growth of all HTTP/2 connections of one client, in bytes. Enough for one stream of 16
/// MiB beside slow readers; further streams keep their initial window.
const WINDOW_GROWTH_BYTES_MAX: u64 = 96 * 1024 * 1024;

/// State shared by all exchanges of one client.
pub(super) struct OriginShared {
    pub(super) settings: OriginSettings,
    pub(super) limits: Limits,
    pub(super) tls: Option<Arc<OriginTls>>,
    pub(super) counts: Arc<OriginCounts>,
    pub(super) deadlines: Rc<DeadlineTable>,
    /// The budget for HTTP/2 window growth.
    pub(super) windows: Rc<WindowBudget>,
    pub(super) input: RefCell<Box<[u8]>>,
    /// Counts bytes that were received and not forwarded yet.
    pub(super) budget: Arc<Budget>,
    /// A buffer for the next request's head.
    pub(super) spare: RefCell<Vec<u8>>,
    origins: RefCell<HashMap<OriginAddress, Rc<OriginPool>>>,
    /// The pool that was used last.
    latest: RefCell<Option<Rc<OriginPool>>>,
    sweeps: Cell<bool>,
}

impl fmt::Debug for OriginShared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Size below which a received piece is not counted, in bytes.
const COUNTED_BYTES_MIN: usize = 4 * 1024;

impl OriginShared {
    /// Upper bound of one receive, in bytes.
    pub(super) fn receive_bytes_max(&self) -> usize {
        self.budget.piece_bytes_max().min(INPUT_BYTES)
    }

    /// A copy of received bytes.
    pub(super) fn copy(&self, bytes: &[u8]) -> SharedBytes {
        if bytes.len() < COUNTED_BYTES_MIN { bytes.into() } else { SharedBytes::counted(bytes.to_vec(), &self.budget) }
    }
}

impl Drop for OriginShared {
    fn drop(&mut self) {
        // The sweep finds that nothing is left to check.
        self.deadlines.wake_sweep();
    }
}

/// A worker's client of origins. Clones share its connections.
#[derive(Clone, Debug)]
pub struct OriginClient(Rc<OriginShared>);

impl OriginClient {
    /// A client without connections. It may be created anywhere, and is used within one worker's runtime. `tls` is
    /// required for https origins.
    pub fn new(settings: OriginSettings, tls: Option<Arc<OriginTls>>, counts: Arc<OriginCounts>) -> Self {
        Self::within_budget(settings, tls, counts, Arc::default())
    }

    /// As [`Self::new`]; received bytes count among the pieces of `budget`, and receives are small while memory is
    /// short.
    pub fn within_budget(
        settings: OriginSettings,
        tls: Option<Arc<OriginTls>>,
        counts: Arc<OriginCounts>,
        budget: Arc<Budget>,
    ) -> Self {
        Self(Rc::new(OriginShared {
            budget,
            limits: settings.limits(),
            settings,
            tls,
            counts,
            deadlines: Rc::new(DeadlineTable::default()),
            windows: WindowBudget::new(WINDOW_GROWTH_BYTES_MAX),
            input: RefCell::new(vec![0; INPUT_BYTES].into_boxed_slice()),
            spare: RefCell::new(Vec::new()),
            origins: RefCell::new(HashMap::new()),
            latest: RefCell::new(None),
            sweeps: Cell::new(false),
        }))
    }

    /// Sends `request` to `origin` and returns when the head of its final response has arrived. `interims` is called
    /// with the status and the field lines of every interim response except 100 and 101.
    ///
    /// If the request met a connection that the origin had just closed, it is sent again immediately on a new one, if
    /// permitted. The caller decides about any other failure: the request can be sent again, to this origin or
    /// another, as far as [`ExchangeFailure::repeat`] and its content permit.
    ///
    /// Dropping the future closes the connection. A request whose content is [`OutgoingContent::Taken`] is not sent.
    pub async fn exchange(
        &self,
        origin: &OriginAddress,
        request: &mut OutgoingRequest<'_>,
        interims: impl FnMut(u16, &[u8]),
    ) -> Result<Incoming, ExchangeFailure> {
        self.exchange_by(origin, request, interims, true).await
    }

    /// As [`exchange`](Self::exchange), on a new connection, for a request that [`send_kept`](Self::send_kept) sent
    /// without a response: if one idle connection was closed, the next may be, too.
    pub async fn exchange_afresh(
        &self,
        origin: &OriginAddress,
        request: &mut OutgoingRequest<'_>,
        interims: impl FnMut(u16, &[u8]),
    ) -> Result<Incoming, ExchangeFailure> {
        self.exchange_by(origin, request, interims, false).await
    }

    async fn exchange_by(
        &self,
        origin: &OriginAddress,
        request: &mut OutgoingRequest<'_>,
        mut interims: impl FnMut(u16, &[u8]),
        by_kept: bool,
    ) -> Result<Incoming, ExchangeFailure> {
        let shared = &self.0;
        if request.content.is_taken() {
            // Without its content it would be a different request.
            return Err(ExchangeFailure::new(OriginFailure::ClientCutContent, Repeat::Never));
        }
        self.begin_sweep();
        let pool = self.pool(origin);
        let answered = exchange(shared, &pool, request, &mut interims, by_kept).await;
        if let Err(failure) = &answered {
            shared.counts.add_failure(failure.failure);
        }
        answered
    }

    /// Sends `request`, which has no content and requests no upgrade, to `origin` immediately on an idle connection.
    /// `None` if there is none; use [`exchange`](Self::exchange) then, which connects.
    pub fn send_kept(&self, origin: &OriginAddress, request: &mut OutgoingRequest<'_>) -> Option<KeptExchange> {
        let shared = &self.0;
        let is_bare = matches!(request.content, OutgoingContent::None) && request.upgrade.is_none();
        if !is_bare || shared.settings.http2 {
            return None;
        }
        let pool = self.pool(origin);
        let transport = pool.check_out(shared)?;
        self.begin_sweep();
        let mut exchange = http1::Http1Exchange::new(shared, &pool, transport, true, request);
        // The rest is sent when the exchange is polled.
        if exchange.poll_upload(&mut Context::from_waker(Waker::noop())).is_err() {
            // Nothing was sent.
            shared.counts.repeats.add(1);
            return None;
        }
        Some(KeptExchange { exchange, is_idempotent: request.is_idempotent() })
    }

    /// The result of `future`, or `None` after `timeout_ms`. A worker's runtime has no tokio timers, so tokio's own
    /// timeouts panic there; this one is late by up to a tenth of the shortest timeout of the settings, and by at
    /// most 100 ms.
    pub async fn within<T>(&self, timeout_ms: u64, future: impl Future<Output = T>) -> Option<T> {
        self.begin_sweep();
        let mut timer = DeadlineTimer::new(&self.0.deadlines);
        timer.begin(timeout_ms);
        timer.bound(future).await
    }

    /// Waits for `milliseconds`, with the precision of [`within`](Self::within).
    pub async fn pause(&self, milliseconds: u64) {
        self.within(milliseconds, std::future::pending::<()>()).await;
    }

    /// A timeout with the precision of [`within`](Self::within), not started yet.
    pub(crate) fn timer(&self) -> DeadlineTimer {
        self.begin_sweep();
        DeadlineTimer::new(&self.0.deadlines)
    }

    /// A new connection to `address`, without TLS, for a protocol other than HTTP.
    pub(crate) async fn connect_plain(&self, address: &OriginAddress) -> Result<Socket, OriginFailure> {
        self.begin_sweep();
        let pool = self.pool(address);
        match connect(&self.0, &pool, false).await.map_err(|failure| failure.failure)?.transport {
            Transport::Plain(socket) => Ok(socket),
            Transport::Tls(_) => Err(OriginFailure::ConnectFailed),
        }
    }

    /// Number of idle HTTP/1.1 connections to `origin`.
    pub fn idle_connections(&self, origin: &OriginAddress) -> usize {
        self.0.origins.borrow().get(origin).map_or(0, |pool| pool.idle_count())
    }

    /// Closes the idle connections.
    pub fn close_idle(&self) {
        for pool in self.0.origins.borrow().values() {
            pool.close_idle();
            pool.http2.forget();
        }
    }

    /// The counters.
    pub fn counts(&self) -> &Arc<OriginCounts> {
        &self.0.counts
    }

    fn begin_sweep(&self) {
        let shared = &self.0;
        if !shared.sweeps.replace(true) {
            tokio::task::spawn_local(sweep(Rc::downgrade(shared), Rc::clone(&shared.deadlines)));
        }
    }

    fn pool(&self, origin: &OriginAddress) -> Rc<OriginPool> {
        let mut latest = self.0.latest.borrow_mut();
        if let Some(pool) = latest.as_ref().filter(|pool| pool.address == *origin) {
            return Rc::clone(pool);
        }
        let pool = self.find_pool(origin);
        *latest = Some(Rc::clone(&pool));
        pool
    }

    fn find_pool(&self, origin: &OriginAddress) -> Rc<OriginPool> {
        let mut origins = self.0.origins.borrow_mut();
        if let Some(pool) = origins.get(origin) {
            return Rc::clone(pool);
        }
        let pool = Rc::new(OriginPool::new(origin));
        origins.insert(origin.clone(), Rc::clone(&pool));
        pool
    }
}

/// An exchange of a request without content on a reused connection.
pub struct KeptExchange {
    exchange: http1::Http1Exchange,
    is_idempotent: bool,
}

/// The result of an exchange on a reused connection.
#[derive(Debug)]
pub enum KeptAnswer<T> {
    /// The value that `look` returned for a complete response.
    Taken(T),
    /// Any other response, as from [`OriginClient::exchange`].
    Incoming(Incoming),
    /// The origin had closed the connection, and the request may be sent again immediately.
    Again,
    /// The exchange failed.
    Failed(ExchangeFailure),
}

impl KeptExchange {
    /// Advances the exchange. `interims` is as for [`OriginClient::exchange`]. `look` is called with a response that
    /// arrived completely with its head and is neither 101 nor 408; it may consume it in place, or return `None`.
    /// Dropping the exchange closes the connection. Must not be polled again after it was ready.
    pub fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        mut interims: impl FnMut(u16, &[u8]),
        mut look: impl FnMut(&WholeAnswer<'_>) -> Option<T>,
    ) -> Poll<KeptAnswer<T>> {
        let polled = ready!(self.exchange.poll(context, &mut interims, &mut look));
        let counts = &self.exchange.shared.counts;
        Poll::Ready(match polled {
            Ok(ExchangeResult::Taken(taken)) => KeptAnswer::Taken(taken),
            Ok(ExchangeResult::Incoming(incoming)) => KeptAnswer::Incoming(incoming),
            Err(failure) if may_repeat_bare(failure, self.is_idempotent) => {
                counts.repeats.add(1);
                KeptAnswer::Again
            }
            Err(failure) => {
                counts.add_failure(failure.failure);
                KeptAnswer::Failed(failure)
            }
        })
    }
}

impl fmt::Debug for KeptExchange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeptExchange").field("is_idempotent", &self.is_idempotent).finish_non_exhaustive()
    }
}

async fn exchange(
    shared: &Rc<OriginShared>,
    pool: &Rc<OriginPool>,
    request: &mut OutgoingRequest<'_>,
    interims: &mut impl FnMut(u16, &[u8]),
    by_kept: bool,
) -> Result<Incoming, ExchangeFailure> {
    if shared.settings.http2 && request.upgrade.is_none() {
        // An origin without HTTP/2 receives HTTP/1.1. The rare case is boxed, so that it does not enlarge the future
        // of every request.
        if let Some(incoming) = Box::pin(http2::exchange(shared, pool, request, interims)).await? {
            return Ok(incoming);
        }
    }
    // Only content streamed from a client, or a request that must not be repeated, is worth the additional system
    // call.
    if by_kept && let Some(transport) = pool.check_out(shared) {
        match http1::exchange(shared, pool, transport, true, request, interims).await {
            Err(failure) if may_repeat(failure, request) => shared.counts.repeats.add(1),
            answered => return answered,
        }
    }
    let connected = Box::pin(connect(shared, pool, false)).await?;
    Box::pin(http1::exchange(shared, pool, connected.transport, false, request, interims)).await
}

/// Returns whether a request that met a connection which the origin was closing may be sent again immediately.
pub(super) fn may_repeat(failure: ExchangeFailure, request: &OutgoingRequest<'_>) -> bool {
    may_repeat_bare(failure, request.is_idempotent()) && !request.content.is_taken()
}

/// As [`may_repeat`], for a request without content.
fn may_repeat_bare(failure: ExchangeFailure, is_idempotent: bool) -> bool {
    use OriginFailure::{ClosedBeforeHead, H2Failed, H2Refused, Reset};
    let ended = matches!(failure.failure, ClosedBeforeHead | Reset | H2Failed | H2Refused);
    let may = match failure.repeat {
        Repeat::Always => true,
        Repeat::Idempotent => is_idempotent,
        Repeat::Never => false,
    };
    ended && may
}

/// Scans deadlines and idle connections while there are any.
async fn sweep(shared: Weak<OriginShared>, deadlines: Rc<DeadlineTable>) {
    let Ok(timer) = Timer::new() else {
        // No descriptor is left. The next exchange tries again.
        if let Some(shared) = shared.upgrade() {
            shared.sweeps.set(false);
        }
        return;
    };
    let Some(interval_ms) = shared.upgrade().map(|shared| shared.settings.sweep_interval_ms()) else { return };
    let _ = timer.set_interval(interval_ms);
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let idle = strong.origins.borrow().values().any(|pool| pool.is_kept());
        drop(strong);
        if deadlines.is_empty() && !idle {
            let _ = timer.set_interval(0);
            deadlines.rest();
            deadlines.changed.notified().await;
            let _ = timer.set_interval(interval_ms);
            continue;
        }
        if timer.tick().await.is_err() {
            // An existing timerfd does not fail; if it does, exchanges have no deadlines.
            return;
        }
        let now = now_ms();
        deadlines.handle_time(now);
        let Some(strong) = shared.upgrade() else { return };
        for pool in strong.origins.borrow().values() {
            pool.handle_time(&strong, now);
        }
    }
}
