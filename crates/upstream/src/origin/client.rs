//! Client of origins: a complete exchange, and its retry on a new connection.

use super::connect::connect;
use super::counts::OriginCounts;
use super::failure::{ExchangeFailure, OriginFailure, Repeat};
use super::http1::{self, WholeAnswer};
use super::http2;
use super::pool::OriginPool;
use super::request::OutgoingRequest;
use super::resolve::recheck;
use super::response::Incoming;
use super::settings::OriginSettings;
use super::tls::OriginTls;
use super::upload::{Http1Upload, begin_head, give_back};
use flatout_handler::budget::{Budget, PIECE_BYTES_MAX};
use flatout_handler::shared::SharedBytes;
use flatout_http::connection_auth::authenticates_connection;
use flatout_http::limits::Limits;
use flatout_http::proxy_protocol::ProxyClient;
use flatout_http::request::is_idempotent;
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
use std::task::{Context, Poll, ready};

/// Size of the receive buffer in bytes, which all connections of the client share. A waiting connection has no buffer
/// of its own.
const INPUT_BYTES: usize = PIECE_BYTES_MAX;

/// Maximum growth of the flow-control windows of all HTTP/2 connections of a client, in bytes. Enough for one stream
/// with 16 MiB alongside slow readers; further streams keep their initial window.
const WINDOW_GROWTH_BYTES_MAX: u64 = 96 * 1024 * 1024;

/// State shared by all exchanges of a client.
pub(super) struct OriginShared {
    pub(super) settings: OriginSettings,
    pub(super) limits: Limits,
    pub(super) tls: Option<Arc<OriginTls>>,
    pub(super) counts: Arc<OriginCounts>,
    pub(super) deadlines: Rc<DeadlineTable>,
    /// Budget for the growth of HTTP/2 windows.
    pub(super) windows: Rc<WindowBudget>,
    pub(super) input: RefCell<Box<[u8]>>,
    /// Memory budget that counts bytes received and not yet forwarded.
    pub(super) budget: Arc<Budget>,
    /// Buffer for the head of the next request.
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

/// Size in bytes below which a received piece is not counted in the budget.
const COUNTED_BYTES_MIN: usize = 4 * 1024;

impl OriginShared {
    /// Returns the maximum number of bytes to receive at once.
    pub(super) fn receive_bytes_max(&self) -> usize {
        self.budget.piece_bytes_max().min(INPUT_BYTES)
    }

    /// Copies received bytes, counting them in the budget.
    pub(super) fn copy(&self, bytes: &[u8]) -> SharedBytes {
        if bytes.len() < COUNTED_BYTES_MIN { bytes.into() } else { SharedBytes::counted(bytes.to_vec(), &self.budget) }
    }

    /// Returns the client that the PROXY header of a connection for a request of `client` names.
    pub(super) fn named_client(&self, client: ProxyClient) -> ProxyClient {
        if self.settings.proxy_protocol.is_some() { client } else { ProxyClient::Sender }
    }
}

impl Drop for OriginShared {
    fn drop(&mut self) {
        // Wake the sweep, so that it ends.
        self.deadlines.wake_sweep();
    }
}

/// A worker's client of origins. Clones share its connections.
#[derive(Clone, Debug)]
pub struct OriginClient(Rc<OriginShared>);

impl OriginClient {
    /// Creates a client without connections. It may be created anywhere, but must be used within a single worker's
    /// runtime. `tls` is required for https origins.
    pub fn new(settings: OriginSettings, tls: Option<Arc<OriginTls>>, counts: Arc<OriginCounts>) -> Self {
        Self::within_budget(settings, tls, counts, Arc::default())
    }

    /// Creates a client like [`Self::new`] that counts received bytes in `budget`, and receives small pieces while
    /// memory is short.
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
    /// If the request is sent on a connection that the origin has just closed, it is sent again immediately on a new
    /// connection, if that is permitted. The caller handles all other failures: it may send the request again, to the
    /// same origin or to a different one, if [`ExchangeFailure::repeat`] and the content permit that.
    ///
    /// Dropping the future closes the connection or resets the stream. A request whose content is
    /// [spent](super::OutgoingContent::is_spent) is not sent.
    pub async fn exchange(
        &self,
        origin: &OriginAddress,
        request: &mut OutgoingRequest<'_>,
        interims: impl FnMut(u16, &[u8]),
    ) -> Result<Incoming, ExchangeFailure> {
        self.exchange_by(origin, request, interims, true).await
    }

    /// Performs an exchange like [`exchange`](Self::exchange), but always on a new HTTP/1.1 connection. For a request
    /// that [`send_kept`](Self::send_kept) sent on an idle connection that had been closed, since other idle
    /// connections may have been closed too.
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
        if request.content.is_spent() {
            // The request must not be sent without its content.
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

    /// Sends a request without content and without an upgrade to `origin` immediately on an idle connection. Returns
    /// `None` if there is no idle connection or `write_lines` returns `None`; use [`exchange`](Self::exchange) then,
    /// which opens a connection. `write_lines` appends lines to the head, as in [`OutgoingRequest::lines`]. `client` is
    /// as in [`OutgoingRequest::client`].
    pub fn send_kept(
        &self,
        origin: &OriginAddress,
        (method, target): (&str, &[u8]),
        client: ProxyClient,
        write_lines: impl FnOnce(&mut Vec<u8>) -> Option<()>,
    ) -> Option<KeptExchange> {
        let shared = &self.0;
        if shared.settings.http2 {
            return None;
        }
        let mut head = begin_head(shared, method, target);
        let sent = write_lines(&mut head).and_then(|()| {
            head.extend_from_slice(b"\r\n");
            let pool = self.pool(origin);
            let mut connection = pool.check_out(shared, client)?;
            self.begin_sweep();
            let sent = connection.transport.send_now(&head);
            if sent.is_none() {
                shared.counts.repeats.add(1);
            }
            Some((pool, connection, sent?))
        });
        let Some((pool, connection, (sent, has_left))) = sent else {
            give_back(shared, head);
            return None;
        };
        shared.counts.bytes_sent.add(sent as u64);
        let may_pool = !authenticates_connection(&head);
        let upload = if has_left && sent == head.len() {
            give_back(shared, head);
            None
        } else {
            // The unsent rest of the head is sent when the exchange is polled.
            Some(Http1Upload::rest_of(head, sent))
        };
        let mut exchange = http1::Http1Exchange::new(shared, &pool, connection, upload, (method == "HEAD", None));
        exchange.may_pool = may_pool;
        Some(KeptExchange { exchange, is_idempotent: is_idempotent(method) })
    }

    /// Returns the result of `future`, or `None` if it takes longer than `timeout_ms`. A worker's runtime has no Tokio
    /// timers, so Tokio's own timeouts would panic. This timeout may be late by up to a tenth of the shortest timeout
    /// in the settings, but by no more than 100 ms.
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

    /// Creates a timer with the precision of [`within`](Self::within), which is not started yet.
    pub(crate) fn timer(&self) -> DeadlineTimer {
        self.begin_sweep();
        DeadlineTimer::new(&self.0.deadlines)
    }

    /// Opens a connection to `address` without TLS, for a protocol other than HTTP.
    pub(crate) async fn connect_plain(&self, address: &OriginAddress) -> Result<Socket, OriginFailure> {
        self.begin_sweep();
        let pool = self.pool(address);
        match connect(&self.0, &pool, false, ProxyClient::Sender)
            .await
            .map_err(|failure| failure.failure)?
            .connection
            .transport
        {
            Transport::Plain(socket) => Ok(socket),
            Transport::Tls(_) => Err(OriginFailure::ConnectFailed),
        }
    }

    /// Returns the number of idle HTTP/1.1 connections to `origin`.
    #[cfg(test)]
    pub(super) fn idle_connections(&self, origin: &OriginAddress) -> usize {
        self.0.origins.borrow().get(origin).map_or(0, |pool| pool.idle_count())
    }

    /// Closes all idle connections.
    pub fn close_idle(&self) {
        for pool in self.0.origins.borrow().values() {
            pool.close_idle();
            pool.http2.forget();
        }
    }

    /// Returns the counters.
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

/// An exchange of a request without content, on a reused connection.
pub struct KeptExchange {
    exchange: http1::Http1Exchange,
    is_idempotent: bool,
}

/// Result of an exchange on a reused connection.
#[derive(Debug)]
pub enum KeptAnswer {
    /// `look` accepted a complete response.
    Taken,
    /// Any other response, as returned by [`OriginClient::exchange`].
    Incoming(Incoming),
    /// The origin had closed the connection. The request may be sent again immediately.
    Again,
    /// The exchange failed.
    Failed(ExchangeFailure),
}

impl KeptExchange {
    /// Advances the exchange. `interims` is as for [`OriginClient::exchange`]. `look` is called with a response that
    /// arrived completely with its head and is neither 101 nor 408. It returns true if it has processed the response,
    /// and false otherwise. Dropping the exchange closes the connection. Must not be polled again after it was ready.
    pub fn poll(
        &mut self,
        context: &mut Context<'_>,
        mut interims: impl FnMut(u16, &[u8]),
        mut look: impl FnMut(&WholeAnswer<'_>) -> bool,
    ) -> Poll<KeptAnswer> {
        let polled = ready!(self.exchange.poll(context, &mut interims, &mut look));
        let counts = &self.exchange.shared.counts;
        Poll::Ready(match polled {
            Ok(None) => KeptAnswer::Taken,
            Ok(Some(incoming)) => KeptAnswer::Incoming(incoming),
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
        // If the origin does not support HTTP/2, HTTP/1.1 is used. Box this rare case to keep the future of ordinary
        // requests small.
        if let Some(incoming) = Box::pin(http2::exchange(shared, pool, request, interims)).await? {
            return Ok(incoming);
        }
    }
    if let Some(protocols) = request.upgrade.filter(|_| shared.settings.http2) {
        return Box::pin(switch(shared, pool, request, interims, protocols)).await;
    }
    exchange_http1(shared, pool, request, interims, by_kept).await
}

/// Performs the exchange of a request to upgrade to one of `protocols`, to an origin that may support HTTP/2.
async fn switch(
    shared: &Rc<OriginShared>,
    pool: &Rc<OriginPool>,
    request: &mut OutgoingRequest<'_>,
    interims: &mut impl FnMut(u16, &[u8]),
    protocols: &[u8],
) -> Result<Incoming, ExchangeFailure> {
    use OriginFailure::{ClosedBeforeHead, CutHead, HeadMalformed, Reset, TlsFailed};
    if protocols.eq_ignore_ascii_case(b"websocket")
        && let Some(incoming) = http2::open_websocket(shared, pool, request, interims).await?
    {
        return Ok(incoming);
    }
    let answered = exchange_http1(shared, pool, request, interims, true).await;
    answered.map_err(|failure| match failure.failure {
        ClosedBeforeHead | CutHead | HeadMalformed | Reset | TlsFailed if pool.http2.is_open() => {
            ExchangeFailure::new(OriginFailure::UpgradeUnsupported, Repeat::Never)
        }
        _ => failure,
    })
}

async fn exchange_http1(
    shared: &Rc<OriginShared>,
    pool: &Rc<OriginPool>,
    request: &mut OutgoingRequest<'_>,
    interims: &mut impl FnMut(u16, &[u8]),
    by_kept: bool,
) -> Result<Incoming, ExchangeFailure> {
    if by_kept && let Some(connection) = pool.check_out(shared, request.client) {
        match http1::exchange(shared, pool, connection, true, request, interims).await {
            Err(failure) if may_repeat(failure, request) => shared.counts.repeats.add(1),
            answered => return answered,
        }
    }
    let connected = Box::pin(connect(shared, pool, false, request.client)).await?;
    Box::pin(http1::exchange(shared, pool, connected.connection, false, request, interims)).await
}

/// Returns whether a request that failed because the origin was closing the connection may be sent again immediately.
pub(super) fn may_repeat(failure: ExchangeFailure, request: &OutgoingRequest<'_>) -> bool {
    may_repeat_bare(failure, request.is_idempotent()) && !request.content.is_spent()
}

/// Returns the same as [`may_repeat`] for a request without content.
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

/// Checks deadlines and idle connections periodically while there are any.
async fn sweep(shared: Weak<OriginShared>, deadlines: Rc<DeadlineTable>) {
    let Ok(timer) = Timer::new() else {
        // No file descriptor is available. The next exchange tries again.
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
            // An existing timerfd does not fail. If it did, exchanges would have no deadlines.
            return;
        }
        let now = now_ms();
        deadlines.handle_time(now);
        let Some(strong) = shared.upgrade() else { return };
        for pool in strong.origins.borrow().values() {
            pool.handle_time(&strong, now);
            recheck(&strong, pool, now);
        }
    }
}

#[cfg(test)]
impl OriginClient {
    /// Handles these addresses as the result of a resolution of the name of `origin` that ends in `after_ms`
    /// milliseconds.
    pub(super) fn resolve_to(&self, origin: &OriginAddress, addresses: &[std::net::SocketAddr], after_ms: u64) {
        super::resolve::handle_addresses(&self.0, &self.pool(origin), addresses.into(), now_ms() + after_ms);
    }
}
