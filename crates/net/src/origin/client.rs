//! An exchange from beginning to end, and when it is tried again.

use super::address::OriginAddress;
use super::connect::connect;
use super::counts::OriginCounts;
use super::failure::{ExchangeFailure, OriginFailure, Repeat};
use super::http1::{self, Answer, WholeAnswer};
use super::http2;
use super::pool::OriginPool;
use super::request::{OutgoingContent, OutgoingRequest};
use super::response::Incoming;
use super::settings::OriginSettings;
use super::tls::OriginTls;
use super::transport::{Socket, Transport};
use super::waits::{Patience, Waits, now_ms};
use crate::budget::{Budget, PIECE_BYTES_MAX};
use crate::shared::SharedBytes;
use crate::timer::Timer;
use crate::windows::WindowBudget;
use flatout_http::limits::Limits;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

/// One receive takes so much at the most. Shared by all connections of the client: one that waits owns no buffer.
const INPUT_BYTES: usize = PIECE_BYTES_MAX;

/// What the windows of all HTTP/2 connections of one client may grow by, in bytes. Enough for one stream of 16 MiB
/// beside slow readers; what is beyond it waits for a window as it begins.
const WINDOW_GROWTH_BYTES_MAX: u64 = 96 * 1024 * 1024;

/// What all exchanges of one client share.
pub(super) struct Shared {
    pub(super) settings: OriginSettings,
    pub(super) limits: Limits,
    pub(super) tls: Option<Arc<OriginTls>>,
    pub(super) counts: Arc<OriginCounts>,
    pub(super) waits: Rc<Waits>,
    /// What windows of HTTP/2 may grow by.
    pub(super) windows: Rc<WindowBudget>,
    pub(super) input: RefCell<Box<[u8]>>,
    /// Counts what was received and not sent on.
    pub(super) budget: Arc<Budget>,
    /// Room for the next request's head.
    pub(super) spare: RefCell<Vec<u8>>,
    origins: RefCell<HashMap<OriginAddress, Rc<OriginPool>>>,
    /// The pool that was asked for last.
    latest: RefCell<Option<Rc<OriginPool>>>,
    sweeps: Cell<bool>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What is smaller than this when received is not counted, in bytes.
const COUNTED_BYTES_MIN: usize = 4 * 1024;

impl Shared {
    /// How much may be received at once, in bytes.
    pub(super) fn receive_bytes_max(&self) -> usize {
        self.budget.piece_bytes_max().min(INPUT_BYTES)
    }

    /// A copy of what was received.
    pub(super) fn copy(&self, bytes: &[u8]) -> SharedBytes {
        if bytes.len() < COUNTED_BYTES_MIN { bytes.into() } else { SharedBytes::counted(bytes.to_vec(), &self.budget) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The sweep finds that nothing is left to look at.
        self.waits.wake_sweep();
    }
}

/// A worker's connections to origins. Clones share them.
#[derive(Clone, Debug)]
pub struct OriginClient(Rc<Shared>);

impl OriginClient {
    /// A client without connections. Where it is made does not matter; it is used within one worker's runtime. `tls`
    /// is needed for origins of https.
    pub fn new(settings: OriginSettings, tls: Option<Arc<OriginTls>>, counts: Arc<OriginCounts>) -> Self {
        Self::within_budget(settings, tls, counts, Arc::default())
    }

    /// The same; what is received counts among the pieces of `budget`, and is received in small ones once memory is
    /// short.
    pub fn within_budget(
        settings: OriginSettings,
        tls: Option<Arc<OriginTls>>,
        counts: Arc<OriginCounts>,
        budget: Arc<Budget>,
    ) -> Self {
        Self(Rc::new(Shared {
            budget,
            limits: settings.limits(),
            settings,
            tls,
            counts,
            waits: Rc::new(Waits::default()),
            windows: WindowBudget::new(WINDOW_GROWTH_BYTES_MAX),
            input: RefCell::new(vec![0; INPUT_BYTES].into_boxed_slice()),
            spare: RefCell::new(Vec::new()),
            origins: RefCell::new(HashMap::new()),
            latest: RefCell::new(None),
            sweeps: Cell::new(false),
        }))
    }

    /// Sends `request` to `origin` and returns when the head of its final answer is here. `interims` is told of every
    /// interim answer but 100 and 101: its status and its field lines.
    ///
    /// A request that met a connection which the origin had just closed is sent again at once, on a fresh one, when it
    /// may be. Any other failure is the caller's to decide on: the request can be sent again, to this origin or
    /// another, as far as [`ExchangeFailure::repeat`] and its content allow.
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

    /// The same on a fresh connection, for a request that [`send_kept`](Self::send_kept) has sent in vain: what meets the end
    /// of one kept connection may meet that of the next.
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
            // Without its content it would be another request.
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

    /// Sends `request`, which has no content and asks for no upgrade, to `origin` at once, on a connection that is kept.
    /// `None` when there is none: then [`exchange`](Self::exchange) connects.
    pub fn send_kept(&self, origin: &OriginAddress, request: &mut OutgoingRequest<'_>) -> Option<KeptExchange> {
        let shared = &self.0;
        let is_bare = matches!(request.content, OutgoingContent::None) && request.upgrade.is_none();
        if !is_bare || shared.settings.http2 {
            return None;
        }
        let pool = self.pool(origin);
        let transport = pool.check_out(shared)?;
        self.begin_sweep();
        let mut exchange = http1::Exchange::new(shared, &pool, transport, true, request);
        // What the socket does not take now is sent when the exchange is polled.
        if exchange.poll_upload(&mut Context::from_waker(Waker::noop())).is_err() {
            // Nothing was sent.
            shared.counts.repeats.add(1);
            return None;
        }
        Some(KeptExchange { exchange, is_idempotent: request.is_idempotent() })
    }

    /// What `future` gives, or `None` when that takes longer than `timeout_ms`. A worker's runtime has no timers of
    /// tokio's, whose own timeouts panic there; this one is late by up to a tenth of the shortest timeout of the settings,
    /// and by 100 ms at the most.
    pub async fn within<T>(&self, timeout_ms: u64, future: impl Future<Output = T>) -> Option<T> {
        self.begin_sweep();
        let mut patience = Patience::new(&self.0.waits);
        patience.begin(timeout_ms);
        patience.bound(future).await
    }

    /// Waits for `milliseconds`, as exactly as [`within`](Self::within).
    pub async fn pause(&self, milliseconds: u64) {
        self.within(milliseconds, std::future::pending::<()>()).await;
    }

    /// A wait by the clock of [`within`](Self::within), which has not begun.
    pub(crate) fn patience(&self) -> Patience {
        self.begin_sweep();
        Patience::new(&self.0.waits)
    }

    /// A fresh connection to `address`, without TLS, for another protocol than HTTP.
    pub(crate) async fn connect_plain(&self, address: &OriginAddress) -> Result<Socket, OriginFailure> {
        self.begin_sweep();
        let pool = self.pool(address);
        match connect(&self.0, &pool, false).await.map_err(|failure| failure.failure)?.transport {
            Transport::Plain(socket) => Ok(socket),
            Transport::Tls(_) => Err(OriginFailure::ConnectFailed),
        }
    }

    /// Connections to `origin` that are kept without use now; none of HTTP/2.
    pub fn idle_connections(&self, origin: &OriginAddress) -> usize {
        self.0.origins.borrow().get(origin).map_or(0, |pool| pool.idle_count())
    }

    /// Closes what is kept without use.
    pub fn close_idle(&self) {
        for pool in self.0.origins.borrow().values() {
            pool.close_idle();
            pool.http2.forget();
        }
    }

    /// What was counted.
    pub fn counts(&self) -> &Arc<OriginCounts> {
        &self.0.counts
    }

    fn begin_sweep(&self) {
        let shared = &self.0;
        if !shared.sweeps.replace(true) {
            tokio::task::spawn_local(sweep(Rc::downgrade(shared), Rc::clone(&shared.waits)));
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

/// An exchange on a connection that had served others before, of a request without content.
pub struct KeptExchange {
    exchange: http1::Exchange,
    is_idempotent: bool,
}

/// What an exchange on a kept connection comes to.
#[derive(Debug)]
pub enum KeptAnswer<T> {
    /// What was made of the answer, which came whole.
    Taken(T),
    /// Any other answer, as [`OriginClient::exchange`] gives it.
    Incoming(Incoming),
    /// The origin had closed the connection, and the request may be sent again at once.
    Again,
    /// The exchange failed.
    Failed(ExchangeFailure),
}

impl KeptExchange {
    /// Goes on. `interims` as with [`OriginClient::exchange`]. `look` is shown an answer that has come whole with its head
    /// and is neither 101 nor 408; it may make something of it where it stands, or leave it. Dropping the exchange closes
    /// the connection. Not to be polled again when it was ready.
    pub fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        mut interims: impl FnMut(u16, &[u8]),
        mut look: impl FnMut(&WholeAnswer<'_>) -> Option<T>,
    ) -> Poll<KeptAnswer<T>> {
        let polled = ready!(self.exchange.poll(context, &mut interims, &mut look));
        let counts = &self.exchange.shared.counts;
        Poll::Ready(match polled {
            Ok(Answer::Taken(taken)) => KeptAnswer::Taken(taken),
            Ok(Answer::Incoming(incoming)) => KeptAnswer::Incoming(incoming),
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
    shared: &Rc<Shared>,
    pool: &Rc<OriginPool>,
    request: &mut OutgoingRequest<'_>,
    interims: &mut impl FnMut(u16, &[u8]),
    by_kept: bool,
) -> Result<Incoming, ExchangeFailure> {
    if shared.settings.http2 && request.upgrade.is_none() {
        // An origin that does not speak it is asked by HTTP/1.1.
        // What is rare is not in the future of every request: it lives in a box of its own.
        if let Some(incoming) = Box::pin(http2::exchange(shared, pool, request, interims)).await? {
            return Ok(incoming);
        }
    }
    // Only what streams from a client, or must not be sent twice, is worth a system call more.
    if by_kept && let Some(transport) = pool.check_out(shared) {
        match http1::exchange(shared, pool, transport, true, request, interims).await {
            Err(failure) if may_repeat(failure, request) => shared.counts.repeats.add(1),
            answered => return answered,
        }
    }
    let connected = Box::pin(connect(shared, pool, false)).await?;
    Box::pin(http1::exchange(shared, pool, connected.transport, false, request, interims)).await
}

/// Whether a request that met a connection which the origin was about to close may be sent again at once.
pub(super) fn may_repeat(failure: ExchangeFailure, request: &OutgoingRequest<'_>) -> bool {
    may_repeat_bare(failure, request.is_idempotent()) && !request.content.is_taken()
}

/// The same of a request without content.
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

/// Looks through deadlines and idle connections while there are any.
async fn sweep(shared: Weak<Shared>, waits: Rc<Waits>) {
    let Ok(timer) = Timer::new() else {
        // For want of a descriptor. The next exchange tries again.
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
        if waits.is_empty() && !idle {
            let _ = timer.set_interval(0);
            waits.rest();
            waits.changed.notified().await;
            let _ = timer.set_interval(interval_ms);
            continue;
        }
        if timer.tick().await.is_err() {
            // A timerfd that was made does not fail; should it, exchanges live without deadlines.
            return;
        }
        let now = now_ms();
        waits.handle_time(now);
        let Some(strong) = shared.upgrade() else { return };
        for pool in strong.origins.borrow().values() {
            pool.handle_time(&strong, now);
        }
    }
}
