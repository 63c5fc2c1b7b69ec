//! Transfer of content from an origin to waiting readers and the store.

use super::separation::Separation;
use crate::fill::FillWriter;
use crate::growing::{Growing, MEMORY_BYTES_MAX, SEGMENT_BYTES_MAX, WINDOW_BYTES_MAX};
use crate::worker::ProxyWorker;
use flatout_cache::reason::NoStore;
use flatout_handler::budget::{BudgetUser, PIECE_BYTES_MAX};
use flatout_handler::response::StorageResult;
use flatout_handler::shared::SharedBytes;
use flatout_store::NewBody;
use flatout_upstream::origin::{IncomingBody, IncomingPiece, OriginClient};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// A fetch continues without readers if at most this many bytes are missing, or at most as many as have already
/// arrived.
const FINISH_BYTES_MAX: u64 = 1024 * 1024;

/// Share of the memory budget above which content takes much memory, as a divisor.
const MUCH_DIVISOR: u64 = 8;

/// How often the writer, while it waits for slow readers, checks how long they have delayed others, in milliseconds.
const DELAY_CHECK_MS: u64 = 250;

/// How long to pause reading from the origin if a volume falls behind, in milliseconds.
const BEHIND_MS: u64 = 5;

/// State of the transfer of a fetch's content.
pub(super) struct Pumping {
    pub(super) writer: FillWriter,
    /// The file that the content is written to, if it has been created.
    pub(super) body: Option<NewBody>,
    /// Reason for not storing the content, if there is one.
    pub(super) unkept: Option<NoStore>,
    /// The result for the access log.
    pub(super) logged: StorageResult,
    /// True if the content is wanted for the store, so that the fetch continues without readers.
    pub(super) wanted: bool,
    pub(super) length: Option<u64>,
    /// How to make further requests fetch the response separately, unless that is disabled.
    pub(super) separation: Option<Separation>,
}

impl Pumping {
    /// Receives the next piece. Returns `None` if the content is no longer needed.
    pub(super) async fn next(&mut self, body: &mut IncomingBody) -> Option<IncomingPiece> {
        let may_be_left = !self.is_worth_finishing();
        poll_fn(|context| {
            // Check this first, because content that arrives without pauses would never get to the check below.
            if may_be_left && self.writer.is_abandoned() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(piece) = body.poll_piece(context) {
                return Poll::Ready(Some(piece));
            }
            if may_be_left && self.writer.poll_abandoned(context).is_ready() {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await
    }

    /// Returns whether to continue the fetch to the end without readers.
    pub(super) fn is_worth_finishing(&self) -> bool {
        let here = self.writer.look(Growing::bytes);
        let is_near = |length: u64| length.saturating_sub(here) <= FINISH_BYTES_MAX.max(here);
        self.unkept.is_none() && (self.wanted || self.length.is_some_and(is_near))
    }

    /// Appends `bytes` to memory or the file. Content that will not be stored is buffered for its readers up to a
    /// window, beyond which the slowest reader slows down the origin.
    pub(super) async fn add(
        &mut self,
        worker: &Rc<ProxyWorker>,
        client: &OriginClient,
        bytes: SharedBytes,
        bytes_max: u64,
    ) {
        let before = self.writer.look(Growing::bytes);
        let after = before + bytes.len() as u64;
        if after > bytes_max {
            self.stop_storing(worker, NoStore::TooLarge);
        }
        let is_large = after > MEMORY_BYTES_MAX || self.length.is_some_and(|length| length > MEMORY_BYTES_MAX);
        if self.body.is_none() && self.unkept.is_none() && is_large && !self.open_file(worker) {
            self.stop_storing(worker, NoStore::NoRoom);
        }
        if self.body.is_none() && self.unkept.is_none() && !Self::has_room(worker, bytes.len() as u64) {
            self.stop_storing(worker, NoStore::NoRoom);
        }
        let is_last = self.length == Some(after);
        if self.body.is_some() && !self.write(worker, client, &bytes, is_last).await {
            // No readers are left.
            return;
        }
        if self.body.is_none() {
            let piece: Arc<[u8]> = bytes[..].into();
            self.grow(is_last, |content| content.push(piece));
        }
        // The bytes were copied, so release the buffer before waiting for readers.
        drop(bytes);
        if self.unkept.is_some() {
            self.hold_back(worker, client).await;
        } else if let Some(store) = worker.store().filter(|store| store.budget().is_over()) {
            store.make_room();
        }
        if self.body.as_ref().is_some_and(NewBody::is_behind) {
            client.pause(BEHIND_MS).await;
        }
    }

    /// Appends content with `add`. Does not wake readers for the last piece, unless the content is not stored: the
    /// writer then waits for the readers.
    fn grow(&self, is_last: bool, add: impl FnOnce(&mut Growing)) {
        if is_last && self.unkept.is_none() { self.writer.add_last(add) } else { self.writer.add(add) }
    }

    /// Returns the reason for not storing content of `length` bytes, if it is known before the content arrives.
    pub(super) fn decide_room(worker: &ProxyWorker, length: u64, bytes_max: u64) -> Option<NoStore> {
        if length > bytes_max {
            return Some(NoStore::TooLarge);
        }
        let Some(store) = worker.store() else { return Some(NoStore::NoRoom) };
        let has_room = match length {
            0 => true,
            1..=MEMORY_BYTES_MAX => Self::has_room(worker, length),
            _ => store.may_hold(length) && store.has_body_room(length),
        };
        (!has_room).then_some(NoStore::NoRoom)
    }

    /// Returns whether the memory budget has room for `count` more bytes, evicting stored content if necessary.
    fn has_room(worker: &ProxyWorker, count: u64) -> bool {
        let Some(store) = worker.store() else { return false };
        store.budget().has_room(count) || {
            worker.make_room();
            store.budget().has_room(count)
        }
    }

    /// Writes `bytes` to the file. If the volume has no space, stops storing, and waits for readers in order to release
    /// content that all have read. When they have read the whole file, drops the file, so that `bytes` is kept in
    /// memory instead. Returns false if no readers are left.
    async fn write(&mut self, worker: &ProxyWorker, client: &OriginClient, bytes: &[u8], is_last: bool) -> bool {
        loop {
            let Some(body) = &mut self.body else { return true };
            let mut is_written = body.write(bytes).is_ok();
            if !is_written && self.unkept.is_none() {
                worker.make_room();
                is_written = body.write(bytes).is_ok();
            }
            if is_written {
                let (fd, written) = (Arc::clone(body.fd()), body.len());
                self.grow(is_last, |content| content.move_to(fd, written));
                return true;
            }
            self.stop_storing(worker, NoStore::NoRoom);
            let Some(slowest) = self.writer.slowest() else { return false };
            let Some(body) = &mut self.body else { return true };
            let has_freed = body.forget_before(slowest);
            if slowest >= body.len() {
                // Do not wake the readers, since there is no new content.
                self.writer.add_last(Growing::leave_file);
                Self::release(worker, self.body.take());
                return true;
            }
            if !has_freed {
                self.wait_for_readers(worker, client, slowest, WINDOW_BYTES_MAX).await;
            }
        }
    }

    /// Drops the file of content that is not stored. As long as readers have it open, its memory counts.
    pub(super) fn release(worker: &ProxyWorker, body: Option<NewBody>) {
        if let (Some(store), Some(body)) = (worker.store(), body) {
            store.release(body);
        }
    }

    /// Waits until the reader at `slowest` has read more. If there are several readers, waits only for some time, and cuts
    /// off those that lag by more than `window` bytes, or the slowest, if they have paused and others are delayed. They
    /// can repeat their requests, and then get responses of their own.
    async fn wait_for_readers(&mut self, worker: &ProxyWorker, client: &OriginClient, slowest: u64, window: u64) {
        let progress = poll_fn(|context| self.writer.poll_slowest(slowest, context));
        if self.writer.readers() <= 1 {
            return progress.await;
        }
        let here = self.writer.look(Growing::bytes);
        self.writer.begin_wait(slowest.max(here.saturating_sub(window + 1)));
        client.within(DELAY_CHECK_MS, progress).await;
        let cut = self.writer.end_wait();
        if !cut.is_empty() {
            self.separate_requests(worker);
        }
        if let Some(body) = &mut self.body {
            // The kernel may still be sending this segment to the client.
            for at in cut {
                body.retain(at..at.saturating_add(SEGMENT_BYTES_MAX));
            }
        }
    }

    /// Waits until no reader lags by more than a window. The window for a single reader is the same as for a forwarded
    /// response. Several readers should not wait for the slowest at every piece, so their window is larger while memory
    /// permits.
    async fn hold_back(&mut self, worker: &ProxyWorker, client: &OriginClient) {
        loop {
            let here = self.writer.look(Growing::bytes);
            let Some(slowest) = self.writer.slowest() else { return };
            match &mut self.body {
                Some(body) => _ = body.forget_before(slowest),
                None => self.writer.add_last(|content| content.forget_before(slowest)),
            }
            let budget = worker.accelerator().budget();
            let window = match (budget.is_short(), self.writer.readers()) {
                (true, _) => 0,
                (false, 1) => PIECE_BYTES_MAX as u64,
                (false, _) => WINDOW_BYTES_MAX,
            };
            if here - slowest.min(here) <= window {
                return;
            }
            self.wait_for_readers(worker, client, slowest, window).await;
        }
    }

    /// Makes further requests fetch the response separately, because the readers of one fetch delay one another.
    fn separate_requests(&self, worker: &ProxyWorker) {
        if let (Some(separation), Some(reason)) = (&self.separation, self.unkept) {
            separation.mark(worker, reason);
        }
    }

    /// Stops storing the content, which from now on is only for current readers. If much of it has arrived, makes
    /// further requests fetch it separately and without storing it: its readers may delay one another, and another
    /// attempt to store it would take memory from other responses.
    pub(super) fn stop_storing(&mut self, worker: &ProxyWorker, reason: NoStore) {
        if self.unkept.is_none() {
            self.unkept = Some(reason);
            self.logged.set(reason.name());
            self.writer.close();
            self.writer.add_last(|content| content.move_count_to(BudgetUser::Windows));
            if let Some(body) = &mut self.body {
                body.become_window();
            }
            let much = WINDOW_BYTES_MAX.min(worker.accelerator().budget().bytes_max() / MUCH_DIVISOR);
            if self.writer.look(Growing::bytes) > much {
                self.separate_requests(worker);
            }
        }
    }

    /// Moves the content from memory to a new file. Returns false if that fails.
    pub(super) fn open_file(&mut self, worker: &ProxyWorker) -> bool {
        let Some(mut body) = worker.store().and_then(|store| store.create_body(self.length).ok()) else { return false };
        let pieces: Vec<Vec<u8>> = self.writer.look(|content| content.pieces().map(<[u8]>::to_vec).collect());
        for piece in pieces {
            if body.write(&piece).is_err() {
                return false;
            }
        }
        self.body = Some(body);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Pumping;
    use crate::fill::{FetchJoin, FillStorage, Fills};
    use flatout_cache::reason::NoStore;
    use flatout_handler::stream::{ContentEvent, ContentSource as _};
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    struct Noticed(std::sync::atomic::AtomicBool);

    impl Wake for Noticed {
        fn wake(self: Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// The writer waits until content that is not stored has been read, so readers must be notified of the last piece
    /// as well.
    #[test]
    fn the_last_piece_of_what_is_not_kept_wakes_its_reader() {
        for unkept in [None, Some(NoStore::NoRoom)] {
            let fills = Arc::<Fills>::default();
            let FetchJoin::Yours(writer) = fills.begin(b"key") else { panic!("nobody else fetches") };
            let mut reader = writer.join().read(0, None);
            let noticed = Arc::new(Noticed(false.into()));
            let waker = Waker::from(Arc::clone(&noticed));
            assert!(reader.poll_piece(&mut Context::from_waker(&waker)).is_pending());
            let logged = FillStorage::new(unkept).logged;
            let pumping =
                Pumping { writer, body: None, unkept, logged, wanted: true, length: Some(3), separation: None };
            pumping.grow(true, |content| content.push(b"end"[..].into()));
            assert_eq!(noticed.0.load(std::sync::atomic::Ordering::Relaxed), unkept.is_some(), "{unkept:?}");
            assert!(matches!(
                reader.poll_piece(&mut Context::from_waker(&waker)),
                Poll::Ready(ContentEvent::Segment(_))
            ));
        }
    }
}
