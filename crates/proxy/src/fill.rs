//! Shared fetch (request collapsing): clients on all workers stream the content of one upstream response as it arrives.
//!
//! The worker that started the fetch writes the content, and all requests for the response read it. A lock is held only
//! briefly, and never when serving a stored response.

mod readers;

use crate::growing::{Cutter, Growing, WINDOW_BYTES_MAX};
use crate::{Meta, StoredResponse};
use flatout_cache::reason::NoStore;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::StorageResult;
use flatout_handler::routed::Refusal;
use flatout_handler::stream::{ContentEvent, ContentSource};
use flatout_os::clock::monotonic_ms;
use flatout_os::random::HashState;
use readers::Readers;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Head of a shared response.
#[derive(Debug)]
pub struct FillHead {
    /// Cache metadata.
    pub meta: Meta,
    /// End-to-end field lines, without Content-Length if the length is unknown.
    pub lines: Arc<[u8]>,
    /// Content length in bytes, if the origin sent it.
    pub length: Option<u64>,
    /// The result of storing the response.
    pub storage: FillStorage,
    /// Store generation before the upstream request was sent. Requests that join later use it to check for purges.
    pub generation: u64,
    /// Index of the origin that sent the response.
    pub served: usize,
}

/// The result of storing a response while it is being fetched.
#[derive(Clone, Debug)]
pub struct FillStorage {
    /// Reason for not storing the response, if it is known when the head is sent.
    pub unkept: Option<NoStore>,
    /// The result for the access log, which may only be known when the content ends.
    pub logged: StorageResult,
}

impl FillStorage {
    /// Creates the result for a response that is not stored because of `unkept`, or is stored unless its content
    /// prevents that.
    pub fn new(unkept: Option<NoStore>) -> Self {
        let pending = || StorageResult::Pending(Arc::default());
        Self { unkept, logged: unkept.map_or_else(pending, |reason| reason.name().into()) }
    }
}

impl FillHead {
    /// Returns whether the response will not be stored and does not fit into the window of its readers, so that the
    /// slowest of them would delay the others.
    pub fn is_too_large_to_share(&self) -> bool {
        self.storage.unkept.is_some() && self.length.is_some_and(|length| length > WINDOW_BYTES_MAX)
    }
}

/// State of a fetch.
#[derive(Clone, Debug)]
pub enum FetchState {
    /// The response head has not arrived.
    Asking,
    /// The response may be shared. Its content is arriving or complete.
    Streaming(Arc<FillHead>),
    /// The stored response may be used because it was validated or may be served stale.
    Use(Arc<StoredResponse>, Use),
    /// The response cannot be shared, so each client sends its own request.
    Released,
    /// The fetch failed, and there is no response.
    Failed(Refusal),
}

/// Reason for using a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The origin confirmed that the stored response is still valid.
    Validated,
    /// The origin confirmed that the stored response is still valid, but it may not be used for later requests.
    ValidatedOnce,
    /// The origin failed, and the stored response may be served in place of an error.
    InsteadOfError,
}

/// The result of receiving the content.
#[derive(Clone, Debug)]
enum End {
    /// The content is complete, and has these trailers.
    Whole(Option<Arc<[u8]>>),
    /// The content is truncated, for this reason.
    Cut(CloseReason),
}

/// Identifier of the writer among the waiters.
const WRITER: u32 = 0;

#[derive(Debug)]
struct FillState {
    standing: FetchState,
    /// True if the response head is late. Clients that may use a stored response need not wait for it.
    is_late: bool,
    content: Growing,
    end: Option<End>,
    /// Wakers by waiter identifier. Each waiter has one entry.
    waiting: HashMap<u32, Waker, HashState>,
    next_id: u32,
    /// The clients that wait for the fetch or read from it. Those that have not started reading are at the beginning.
    readers: Readers,
}

/// A shared fetch.
#[derive(derive_more::Debug)]
#[debug("Fill")]
pub struct Fill {
    state: Mutex<FillState>,
    /// True if the response was invalidated in flight (RFC 9111 §4.4). It is served to waiting clients but not stored.
    invalidated: AtomicBool,
}

impl Fill {
    fn new() -> Self {
        let state = FillState {
            standing: FetchState::Asking,
            is_late: false,
            content: Growing::default(),
            end: None,
            waiting: HashMap::default(),
            next_id: WRITER,
            readers: Readers::default(),
        };
        Self { state: Mutex::new(state), invalidated: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, FillState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes all waiters.
    fn change<T>(&self, change: impl FnOnce(&mut FillState) -> T) -> T {
        let (result, waiting) = {
            let mut state = self.lock();
            let result = change(&mut state);
            (result, std::mem::take(&mut state.waiting))
        };
        // Release the lock before waking, since a woken task may need it immediately.
        for waker in waiting.into_values() {
            waker.wake();
        }
        result
    }

    /// Returns whether no client waits for the fetch or reads from it.
    pub fn is_abandoned(&self) -> bool {
        self.lock().readers.count() == 0
    }
}

/// Registration of a client that waits for a fetch or reads from it.
#[derive(Debug)]
pub struct Interest {
    fill: Arc<Fill>,
    id: u32,
}

impl Interest {
    fn new(fill: &Arc<Fill>) -> Self {
        let mut state = fill.lock();
        let id = state.next_id.wrapping_add(1).max(WRITER + 1);
        state.next_id = id;
        state.readers.add(id);
        Self { fill: Arc::clone(fill), id }
    }

    /// Polls for the state of the fetch. Pending until the response head has arrived or the fetch has failed, or, if
    /// `may_leave` is true, until the head is late.
    pub fn poll_standing(&self, may_leave: bool, context: &mut Context<'_>) -> Poll<FetchState> {
        let mut state = self.fill.lock();
        match &state.standing {
            FetchState::Asking if !(may_leave && state.is_late) => {
                state.waiting.insert(self.id, context.waker().clone());
                Poll::Pending
            }
            standing => Poll::Ready(standing.clone()),
        }
    }

    /// Starts reading the content from the offset `first` up to, but excluding, `end`. If `end` is `None`, reads to the
    /// end of the content.
    pub fn read(self, first: u64, end: Option<u64>) -> FillReader {
        let writer = {
            let mut state = self.fill.lock();
            state.readers.skip_to(self.id, first);
            // Until now, this client counted as needing all content. It may need less, so the writer may be able to
            // continue.
            if state.readers.holds_back { state.waiting.remove(&WRITER) } else { None }
        };
        if let Some(writer) = writer {
            writer.wake();
        }
        FillReader { interest: self, offset: first, end: end.unwrap_or(u64::MAX), cutter: Cutter::default() }
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let is_noticed = {
            let mut state = self.fill.lock();
            state.waiting.remove(&self.id);
            // A client that was cut off has not counted since then.
            state.readers.remove(self.id) && (state.readers.count() == 0 || state.readers.holds_back)
        };
        if is_noticed {
            // The writer may be waiting for an origin although no client is left, or for this reader.
            self.fill.change(|_| ());
        }
    }
}

/// Reader that streams the content of a fetch as it arrives.
#[derive(Debug)]
pub struct FillReader {
    interest: Interest,
    offset: u64,
    end: u64,
    cutter: Cutter,
}

impl ContentSource for FillReader {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<ContentEvent> {
        if self.offset >= self.end {
            return Poll::Ready(ContentEvent::End(None));
        }
        let mut state = self.interest.fill.lock();
        let Some(has_moved) = state.readers.advance(self.interest.id, self.offset) else {
            return Poll::Ready(ContentEvent::Failed(CloseReason::DelayedOthers));
        };
        let writer = if state.readers.holds_back && has_moved { state.waiting.remove(&WRITER) } else { None };
        if let Some(part) = state.content.part(self.offset) {
            drop(state);
            if let Some(writer) = writer {
                writer.wake();
            }
            let segment = self.cutter.cut(part, self.offset, self.end - self.offset);
            self.offset += segment.len();
            return Poll::Ready(ContentEvent::Segment(segment));
        }
        if let Some(writer) = writer {
            writer.wake();
        }
        match &state.end {
            Some(End::Whole(trailers)) => Poll::Ready(ContentEvent::End(trailers.as_deref().map(Into::into))),
            Some(End::Cut(reason)) => Poll::Ready(ContentEvent::Failed(*reason)),
            None => {
                if state.readers.holds_back {
                    state.readers.set_delayed(self.interest.id, monotonic_ms());
                }
                state.waiting.insert(self.interest.id, context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Writer of a fetch. If it is dropped before the end, the content is truncated for all readers.
#[derive(Debug)]
pub struct FillWriter {
    fill: Arc<Fill>,
    fills: Arc<Fills>,
    key: Box<[u8]>,
    open: bool,
}

impl FillWriter {
    /// Registers another client of this fetch.
    pub fn join(&self) -> Interest {
        Interest::new(&self.fill)
    }

    /// Polls until no client is left.
    pub fn poll_abandoned(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.fill.lock();
        if state.readers.count() == 0 {
            return Poll::Ready(());
        }
        state.waiting.insert(WRITER, context.waker().clone());
        Poll::Pending
    }

    /// Reports that the response head is late.
    pub fn set_late(&self) {
        self.fill.change(|state| state.is_late = true);
    }

    /// Forbids storing the response.
    pub fn invalidate(&self) {
        self.fill.invalidated.store(true, Ordering::Release);
    }

    /// Returns whether the response must not be stored.
    pub fn is_invalidated(&self) -> bool {
        self.fill.invalidated.load(Ordering::Acquire)
    }

    /// Returns whether no client waits for the fetch or reads from it.
    pub fn is_abandoned(&self) -> bool {
        self.fill.is_abandoned()
    }

    /// Publishes the head of a shareable response. Its content follows.
    pub fn begin(&self, head: FillHead) {
        self.fill.change(|state| state.standing = FetchState::Streaming(Arc::new(head)));
    }

    /// Appends content with `add`, and wakes the readers.
    pub fn add<T>(&self, add: impl FnOnce(&mut Growing) -> T) -> T {
        self.fill.change(|state| add(&mut state.content))
    }

    /// Appends the last content without waking readers. The response must be stored before a client can finish reading
    /// it and repeat the request.
    pub fn add_last<T>(&self, add: impl FnOnce(&mut Growing) -> T) -> T {
        add(&mut self.fill.lock().content)
    }

    /// Reads the content received so far, without waking readers.
    pub fn look<T>(&self, look: impl FnOnce(&Growing) -> T) -> T {
        look(&self.fill.lock().content)
    }

    /// Returns the position of the slowest client in bytes, or `None` if there are no clients.
    pub fn slowest(&self) -> Option<u64> {
        self.fill.lock().readers.slowest()
    }

    /// Returns the number of clients that wait for the fetch or read from it.
    pub fn readers(&self) -> usize {
        self.fill.lock().readers.count()
    }

    /// Polls until the slowest client is beyond `offset` or no client is left.
    pub fn poll_slowest(&self, offset: u64, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.fill.lock();
        let waits = state.readers.slowest().is_some_and(|slowest| slowest <= offset);
        state.readers.holds_back = waits;
        if !waits {
            return Poll::Ready(());
        }
        state.waiting.insert(WRITER, context.waker().clone());
        Poll::Pending
    }

    /// Begins a wait for the readers at or before `limit`, which delay those that have read everything.
    pub fn begin_wait(&self, limit: u64) {
        let mut state = self.fill.lock();
        let bytes = state.content.bytes();
        state.readers.begin_wait(limit, bytes, monotonic_ms());
    }

    /// Ends the wait, and cuts off the readers that have paused while others were delayed. Returns their positions. Each
    /// may still be sending the segment that begins there.
    pub fn end_wait(&self) -> Vec<u64> {
        self.fill.lock().readers.end_wait(monotonic_ms())
    }

    /// Closes the fetch to further clients. Current clients stay.
    pub fn close(&mut self) {
        if std::mem::take(&mut self.open) {
            self.fills.remove(&self.key, &self.fill);
        }
    }

    /// Marks the content as complete, with these trailers.
    pub fn end(mut self, trailers: Option<Arc<[u8]>>) {
        self.close();
        self.finish(End::Whole(trailers));
    }

    /// Marks the content as truncated.
    pub fn cut(mut self, reason: CloseReason) {
        self.close();
        self.finish(End::Cut(reason));
    }

    /// Ends the fetch with a state that has no content to stream.
    pub fn settle(mut self, standing: FetchState) {
        self.close();
        self.fill.change(|state| {
            state.standing = standing;
            state.end = Some(End::Whole(None));
        });
    }

    fn finish(&self, end: End) {
        self.fill.change(|state| {
            if state.end.is_none() {
                state.end = Some(end);
            }
            if matches!(state.standing, FetchState::Asking) {
                state.standing = FetchState::Released;
            }
        });
    }
}

impl Drop for FillWriter {
    fn drop(&mut self) {
        self.close();
        // This has no effect if the content has already ended.
        self.finish(End::Cut(CloseReason::SocketFailed));
    }
}

/// Result of joining or starting a fetch.
#[derive(Debug)]
pub enum FetchJoin {
    /// The caller must perform the fetch.
    Yours(FillWriter),
    /// Another request is performing the fetch.
    Theirs(Interest),
}

const SHARDS: usize = 16;

/// Byte that follows the prefix in the keys of fetches that cannot be joined.
const ALONE: u8 = 0xff;

type FillShard = HashMap<Box<[u8]>, Arc<Fill>, HashState>;

/// All fetches in progress, by key.
#[derive(Debug, Default)]
pub struct Fills {
    shards: [Mutex<FillShard>; SHARDS],
    hasher: HashState,
    /// Number of fetches started so far that cannot be joined.
    alone: AtomicU64,
    /// Number of invalidations so far.
    invalidations: AtomicU64,
    /// Hashes of the most recently invalidated prefixes, oldest first.
    recent: Mutex<VecDeque<u64>>,
}

fn join_in(shard: &FillShard, key: &[u8]) -> Option<FetchJoin> {
    shard.get(key).map(|fill| FetchJoin::Theirs(Interest::new(fill)))
}

/// Maximum number of invalidations remembered for fetches that are not listed in [`Fills`].
const RECENT_MAX: usize = 1024;

impl Fills {
    fn hash(&self, bytes: &[u8]) -> u64 {
        use std::hash::BuildHasher as _;
        self.hasher.hash_one(bytes)
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, FillShard> {
        let index = self.hash(key) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the fetch for `key`, or starts one.
    pub fn begin(self: &Arc<Self>, key: &[u8]) -> FetchJoin {
        let mut shard = self.shard(key);
        join_in(&shard, key).unwrap_or_else(|| self.start_in(&mut shard, key))
    }

    /// Joins the fetch for `key`, or starts one unless `is_stored` returns true: then a fetch has stored its response
    /// since the caller's lookup, and the caller must look it up again. A fetch stores its response before it leaves
    /// this list, so it cannot be missed by both.
    pub fn begin_unless(self: &Arc<Self>, key: &[u8], is_stored: impl FnOnce() -> bool) -> Option<FetchJoin> {
        let mut shard = self.shard(key);
        join_in(&shard, key).or_else(|| (!is_stored()).then(|| self.start_in(&mut shard, key)))
    }

    fn start_in(self: &Arc<Self>, shard: &mut FillShard, key: &[u8]) -> FetchJoin {
        let fill = Arc::new(Fill::new());
        shard.insert(key.into(), Arc::clone(&fill));
        FetchJoin::Yours(FillWriter { fill, fills: Arc::clone(self), key: key.into(), open: true })
    }

    /// Starts a fetch that can be joined only through its writer. [`invalidate`](Self::invalidate) with `prefix`
    /// invalidates it.
    pub fn begin_alone(self: &Arc<Self>, prefix: &[u8]) -> FillWriter {
        let mut key = prefix.to_vec();
        // No cache key continues with this byte after the prefix.
        key.push(ALONE);
        key.extend_from_slice(&self.alone.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        let fill = Arc::new(Fill::new());
        self.shard(&key).insert(key.clone().into(), Arc::clone(&fill));
        FillWriter { fill, fills: Arc::clone(self), key: key.into(), open: true }
    }

    /// Returns the number of invalidations so far. Fetches that are not listed here compare it before and after the
    /// fetch.
    pub fn invalidations(&self) -> u64 {
        self.invalidations.load(Ordering::Acquire)
    }

    /// Returns whether `prefix` may have been invalidated since [`invalidations`](Self::invalidations) returned `since`.
    pub fn is_invalidated_since(&self, since: u64, prefix: &[u8]) -> bool {
        self.is_invalidated_again_since(since, prefix, 0)
    }

    /// Returns whether `prefix` may have been invalidated more than `own` times since
    /// [`invalidations`](Self::invalidations) returned `since`.
    pub fn is_invalidated_again_since(&self, since: u64, prefix: &[u8], own: usize) -> bool {
        if self.invalidations() == since {
            return false;
        }
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let news = usize::try_from(self.invalidations().wrapping_sub(since)).unwrap_or(usize::MAX);
        let hash = self.hash(prefix);
        // If an invalidation has been forgotten, assume that it matched.
        news > recent.len() || recent.iter().rev().take(news).filter(|invalidated| **invalidated == hash).count() > own
    }

    /// Closes the fetch of `interest` to further clients if it is still the current fetch for `key`.
    pub fn close(&self, key: &[u8], interest: &Interest) {
        self.remove(key, &interest.fill);
    }

    /// Invalidates fetches whose keys begin with `prefix`: they accept no further clients and are not stored.
    pub fn invalidate(&self, prefix: &[u8]) {
        {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            if recent.len() >= RECENT_MAX {
                recent.pop_front();
            }
            recent.push_back(self.hash(prefix));
            // Increment under the lock, so that the number corresponds to the last entry.
            self.invalidations.fetch_add(1, Ordering::AcqRel);
        }
        for shard in &self.shards {
            shard.lock().unwrap_or_else(PoisonError::into_inner).retain(|key, fill| {
                let named = key.starts_with(prefix);
                if named {
                    fill.invalidated.store(true, Ordering::Release);
                }
                !named
            });
        }
    }

    /// Invalidates fetches like [`invalidate`](Self::invalidate), then removes stored responses with `remove`. In the
    /// opposite order, a fetch could store its response between the two, and find afterwards that it is still valid.
    pub fn invalidate_and_remove<T>(&self, prefix: &[u8], remove: impl FnOnce() -> T) -> T {
        self.invalidate(prefix);
        remove()
    }

    /// Returns whether a fetch for `key` is in progress.
    #[cfg(test)]
    pub(crate) fn is_under_way(&self, key: &[u8]) -> bool {
        self.shard(key).contains_key(key)
    }

    fn remove(&self, key: &[u8], fill: &Arc<Fill>) {
        let mut shard = self.shard(key);
        if shard.get(key).is_some_and(|other| Arc::ptr_eq(other, fill)) {
            shard.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
