//! One fetch that many clients wait for, and stream from, on all workers.
//!
//! The worker that began a fetch writes; whoever asked for the same meanwhile reads. A lock is held for moments only,
//! and by nobody who is answered from the store.

use crate::growing::{Cutter, Growing};
use crate::worker::Refused;
use crate::{Kept, Meta};
use flatout_cache::reason::NoStore;
use flatout_net::ending::CloseReason;
use flatout_net::stream::{Piece, Source};
use foldhash::fast::RandomState;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The head of an answer that is being fetched for all.
#[derive(Debug)]
pub struct FillHead {
    /// What the cache knows of it.
    pub meta: Meta,
    /// Its end-to-end field lines, without Content-Length when the length is not known.
    pub lines: Arc<[u8]>,
    /// Bytes of content, when the origin said so.
    pub length: Option<u64>,
    /// Why it will not be kept, where its length tells.
    pub unkept: Option<NoStore>,
    /// How many purges there had been when the origin was asked: whoever joins looks whether a later one names it.
    pub generation: u64,
}

/// How a fetch stands.
#[derive(Clone, Debug)]
pub enum Standing {
    /// Nobody knows yet what comes.
    Asking,
    /// The answer may be shared, and its content is coming or here.
    Streaming(Arc<FillHead>),
    /// What is stored may be used: it has been validated, or may be used although it is stale.
    Use(Arc<Kept>, Use),
    /// The answer is not for sharing: each asks for itself.
    Released,
    /// There is none.
    Failed(Refused),
}

/// Why what is stored may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The origin has said that it still holds.
    Validated,
    /// The same, and that nobody else may have it from now on.
    ValidatedOnce,
    /// The origin has failed, and it may be used instead of an error.
    InsteadOfError,
}

/// How content ended.
#[derive(Clone, Debug)]
enum End {
    /// It is whole, with these trailers.
    Whole(Option<Arc<[u8]>>),
    /// It will never be whole.
    Cut(CloseReason),
}

/// The number of the writer among those who wait.
const WRITER: u32 = 0;

#[derive(Debug)]
struct State {
    standing: Standing,
    content: Growing,
    end: Option<End>,
    /// Who waits, by number: whoever asks twice is woken once.
    waiting: HashMap<u32, Waker, RandomState>,
    next_id: u32,
    /// Where each reader is: all before it has been sent.
    readers: HashMap<u32, u64, RandomState>,
    /// Whether the writer waits for readers to go on.
    holds_back: bool,
}

/// One fetch.
pub struct Fill {
    state: Mutex<State>,
    /// Clients that wait for it or read from it.
    interested: AtomicU32,
    /// What it fetches has been made invalid meanwhile (RFC 9111 §4.4): it is for those who wait, and not kept.
    doomed: AtomicBool,
}

impl fmt::Debug for Fill {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Fill").field("interested", &self.interested).finish_non_exhaustive()
    }
}

impl Fill {
    fn new() -> Self {
        let state = State {
            standing: Standing::Asking,
            content: Growing::default(),
            end: None,
            waiting: HashMap::default(),
            next_id: WRITER,
            readers: HashMap::default(),
            holds_back: false,
        };
        Self { state: Mutex::new(state), interested: AtomicU32::new(0), doomed: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes everybody.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (result, waiting) = {
            let mut state = self.lock();
            let result = change(&mut state);
            (result, std::mem::take(&mut state.waiting))
        };
        // Without the lock: whoever wakes may ask at once.
        for waker in waiting.into_values() {
            waker.wake();
        }
        result
    }

    /// Whether nobody waits for it or reads from it.
    pub fn is_abandoned(&self) -> bool {
        self.interested.load(Ordering::Acquire) == 0
    }
}

/// Somebody who waits for a fetch, or reads from it.
#[derive(Debug)]
pub struct Interest {
    fill: Arc<Fill>,
    id: u32,
}

impl Interest {
    fn new(fill: &Arc<Fill>) -> Self {
        fill.interested.fetch_add(1, Ordering::AcqRel);
        let mut state = fill.lock();
        state.next_id = state.next_id.wrapping_add(1).max(WRITER + 1);
        Self { fill: Arc::clone(fill), id: state.next_id }
    }

    /// How the fetch stands, once anything is known.
    pub fn poll_standing(&self, context: &mut Context<'_>) -> Poll<Standing> {
        let mut state = self.fill.lock();
        match &state.standing {
            Standing::Asking => {
                state.waiting.insert(self.id, context.waker().clone());
                Poll::Pending
            }
            standing => Poll::Ready(standing.clone()),
        }
    }

    /// Reads the content from `first` to before `end`, or to its end.
    pub fn read(self, first: u64, end: Option<u64>) -> FillReader {
        let writer = {
            let mut state = self.fill.lock();
            state.readers.insert(self.id, first);
            // Whoever has not begun needs all; now it is known to need less.
            if state.holds_back { state.waiting.remove(&WRITER) } else { None }
        };
        if let Some(writer) = writer {
            writer.wake();
        }
        FillReader { interest: self, offset: first, end: end.unwrap_or(u64::MAX), cutter: Cutter::default() }
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let holds_back = {
            let mut state = self.fill.lock();
            state.waiting.remove(&self.id);
            state.readers.remove(&self.id);
            state.holds_back
        };
        if self.fill.interested.fetch_sub(1, Ordering::AcqRel) == 1 || holds_back {
            // The writer may be waiting for its origin on behalf of nobody, or for this reader.
            self.fill.change(|_| ());
        }
    }
}

/// Reads the content of a fetch as it comes.
#[derive(Debug)]
pub struct FillReader {
    interest: Interest,
    offset: u64,
    end: u64,
    cutter: Cutter,
}

impl Source for FillReader {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Piece> {
        if self.offset >= self.end {
            return Poll::Ready(Piece::End(None));
        }
        let mut state = self.interest.fill.lock();
        let before = state.readers.insert(self.interest.id, self.offset);
        let writer = if state.holds_back && before != Some(self.offset) { state.waiting.remove(&WRITER) } else { None };
        if let Some(part) = state.content.part(self.offset) {
            drop(state);
            if let Some(writer) = writer {
                writer.wake();
            }
            let segment = self.cutter.cut(part, self.offset, self.end - self.offset);
            self.offset += segment.len();
            return Poll::Ready(Piece::Segment(segment));
        }
        if let Some(writer) = writer {
            writer.wake();
        }
        match &state.end {
            Some(End::Whole(trailers)) => Poll::Ready(Piece::End(trailers.as_deref().map(Into::into))),
            Some(End::Cut(reason)) => Poll::Ready(Piece::Failed(*reason)),
            None => {
                state.waiting.insert(self.interest.id, context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The writing end of a fetch. Dropped before the end, it cuts everybody off.
#[derive(Debug)]
pub struct FillWriter {
    fill: Arc<Fill>,
    fills: Arc<Fills>,
    key: Box<[u8]>,
    open: bool,
}

impl FillWriter {
    /// Another one who waits.
    pub fn join(&self) -> Interest {
        Interest::new(&self.fill)
    }

    /// Ready when nobody waits any more.
    pub fn poll_abandoned(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.fill.lock();
        if self.fill.is_abandoned() {
            return Poll::Ready(());
        }
        state.waiting.insert(WRITER, context.waker().clone());
        Poll::Pending
    }

    /// What is fetched must not be kept.
    pub fn doom(&self) {
        self.fill.doomed.store(true, Ordering::Release);
    }

    /// Whether what is fetched must not be kept.
    pub fn is_doomed(&self) -> bool {
        self.fill.doomed.load(Ordering::Acquire)
    }

    /// Whether nobody waits now.
    pub fn is_abandoned(&self) -> bool {
        self.fill.is_abandoned()
    }

    /// The answer may be shared: its content will come.
    pub fn begin(&self, head: FillHead) {
        self.fill.change(|state| state.standing = Standing::Streaming(Arc::new(head)));
    }

    /// Adds to the content, by whatever `add` does.
    pub fn add<T>(&self, add: impl FnOnce(&mut Growing) -> T) -> T {
        self.fill.change(|state| add(&mut state.content))
    }

    /// Adds the last of the content. Nobody is woken before the end: what is kept is kept before anybody can have it
    /// whole, and ask again.
    pub fn add_last<T>(&self, add: impl FnOnce(&mut Growing) -> T) -> T {
        add(&mut self.fill.lock().content)
    }

    /// The content so far, for a look without waking anybody.
    pub fn look<T>(&self, look: impl FnOnce(&Growing) -> T) -> T {
        look(&self.fill.lock().content)
    }

    /// Where the slowest of those who wait or read is; `None` when there is nobody.
    pub fn slowest(&self) -> Option<u64> {
        let state = self.fill.lock();
        let interested = self.fill.interested.load(Ordering::Acquire) as usize;
        match interested {
            0 => None,
            // Somebody has not begun to read, and needs all.
            _ if state.readers.len() < interested => Some(0),
            _ => state.readers.values().min().copied(),
        }
    }

    /// How many wait or read.
    pub fn readers(&self) -> u32 {
        self.fill.interested.load(Ordering::Acquire)
    }

    /// Ready when the slowest is beyond `offset`, or nobody is left.
    pub fn poll_slowest(&self, offset: u64, context: &mut Context<'_>) -> Poll<()> {
        // Asked for first: whoever goes on meanwhile wakes us.
        let mut state = self.fill.lock();
        state.holds_back = true;
        state.waiting.insert(WRITER, context.waker().clone());
        drop(state);
        match self.slowest() {
            Some(slowest) if slowest <= offset => Poll::Pending,
            _ => {
                self.fill.lock().holds_back = false;
                Poll::Ready(())
            }
        }
    }

    /// Nobody joins from now on; those who have joined stay.
    pub fn close(&mut self) {
        if std::mem::take(&mut self.open) {
            self.fills.remove(&self.key, &self.fill);
        }
    }

    /// The content is whole.
    pub fn end(mut self, trailers: Option<Arc<[u8]>>) {
        self.close();
        self.finish(End::Whole(trailers));
    }

    /// The content will never be whole.
    pub fn cut(mut self, reason: CloseReason) {
        self.close();
        self.finish(End::Cut(reason));
    }

    /// There is no content to stream: this is how it ended.
    pub fn settle(mut self, standing: Standing) {
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
            if matches!(state.standing, Standing::Asking) {
                state.standing = Standing::Released;
            }
        });
    }
}

impl Drop for FillWriter {
    fn drop(&mut self) {
        self.close();
        // Has no effect after a proper end.
        self.finish(End::Cut(CloseReason::SocketFailed));
    }
}

/// Whether a fetch is one's own to make.
#[derive(Debug)]
pub enum Begin {
    /// It is.
    Yours(FillWriter),
    /// Somebody makes it.
    Theirs(Interest),
}

const SHARDS: usize = 16;

/// Behind the prefix in the keys of fetches that nobody joins.
const ALONE: u8 = 0xff;

type Shard = HashMap<Box<[u8]>, Arc<Fill>, RandomState>;

/// All fetches under way, by key.
#[derive(Debug, Default)]
pub struct Fills {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    /// Fetches so far that nobody could join.
    alone: AtomicU64,
    /// How often something has been made invalid.
    dooms: AtomicU64,
    /// The hashes of what was made invalid last.
    recent: Mutex<VecDeque<u64>>,
}

/// Invalidations that are remembered for fetches which are not listed; each is a hash.
const RECENT_MAX: usize = 1024;

impl Fills {
    fn hash(&self, bytes: &[u8]) -> u64 {
        use std::hash::BuildHasher as _;
        self.hasher.hash_one(bytes)
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        let index = self.hash(key) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the fetch for `key`, or begins it.
    pub fn begin(self: &Arc<Self>, key: &[u8]) -> Begin {
        let mut shard = self.shard(key);
        if let Some(fill) = shard.get(key) {
            return Begin::Theirs(Interest::new(fill));
        }
        let fill = Arc::new(Fill::new());
        shard.insert(key.into(), Arc::clone(&fill));
        Begin::Yours(FillWriter { fill, fills: Arc::clone(self), key: key.into(), open: true })
    }

    /// Begins a fetch that nobody joins but by its writer. `prefix` is what [`doom`](Self::doom) knows it by.
    pub fn begin_alone(self: &Arc<Self>, prefix: &[u8]) -> FillWriter {
        let mut key = prefix.to_vec();
        // No key that is asked for goes on with such a byte.
        key.push(ALONE);
        key.extend_from_slice(&self.alone.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        let fill = Arc::new(Fill::new());
        self.shard(&key).insert(key.clone().into(), Arc::clone(&fill));
        FillWriter { fill, fills: Arc::clone(self), key: key.into(), open: true }
    }

    /// How often something has been made invalid: whoever asks without being listed here compares.
    pub fn dooms(&self) -> u64 {
        self.dooms.load(Ordering::Acquire)
    }

    /// Whether what is known by `prefix` may have been made invalid since [`dooms`](Self::dooms) was `since`.
    pub fn is_doomed_since(&self, since: u64, prefix: &[u8]) -> bool {
        if self.dooms() == since {
            return false;
        }
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let news = usize::try_from(self.dooms().wrapping_sub(since)).unwrap_or(usize::MAX);
        let hash = self.hash(prefix);
        // Of what is not remembered any more the worst is believed.
        news > recent.len() || recent.iter().rev().take(news).any(|doomed| *doomed == hash)
    }

    /// Nobody joins the fetch of `interest` any more, should it still be the one for `key`.
    pub fn close(&self, key: &[u8], interest: &Interest) {
        self.remove(key, &interest.fill);
    }

    /// What is being fetched under keys that begin with `prefix` is invalid: nobody joins any more, and it is not kept.
    pub fn doom(&self, prefix: &[u8]) {
        {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            if recent.len() >= RECENT_MAX {
                recent.pop_front();
            }
            recent.push_back(self.hash(prefix));
            // Under the lock, so that the number tells the last of them.
            self.dooms.fetch_add(1, Ordering::AcqRel);
        }
        for shard in &self.shards {
            shard.lock().unwrap_or_else(PoisonError::into_inner).retain(|key, fill| {
                let named = key.starts_with(prefix);
                if named {
                    fill.doomed.store(true, Ordering::Release);
                }
                !named
            });
        }
    }

    /// Whether something is being fetched for `key`.
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
