//! Content on its way from an origin to whoever waits for it, and to where it is kept.

use crate::fill::FillWriter;
use crate::growing::{Growing, MEMORY_BYTES_MAX};
use crate::store::NewBody;
use crate::worker::ProxyWorker;
use flatout_cache::reason::NoStore;
use flatout_net::budget::{PIECE_BYTES_MAX, Share};
use flatout_net::origin::{IncomingBody, IncomingPiece, OriginClient};
use flatout_net::shared::SharedBytes;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// What has been begun is finished although nobody waits any more, when no more than this is missing.
const FINISH_BYTES_MAX: u64 = 1024 * 1024;

/// How far the slowest of several readers of what is not stored may be behind before the origin is held back, in bytes,
/// as long as memory is not short.
const WINDOW_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// How long the origin is not read from while a volume has fallen behind, in milliseconds.
const BEHIND_MS: u64 = 5;

/// The content of a fetch on its way.
pub(super) struct Pumping {
    pub(super) writer: FillWriter,
    /// The file, once there is one.
    pub(super) body: Option<NewBody>,
    /// Why it will not be kept.
    pub(super) unkept: Option<NoStore>,
    /// Whether it is for the store, and goes on although nobody reads.
    pub(super) wanted: bool,
    pub(super) length: Option<u64>,
}

impl Pumping {
    /// The next piece; `None` when nobody wants it.
    pub(super) async fn next(&mut self, body: &mut IncomingBody) -> Option<IncomingPiece> {
        let may_be_left = !self.is_worth_finishing();
        poll_fn(|context| {
            // First: content that never pauses would hide that nobody reads it.
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

    /// Whether it is fetched to its end although nobody reads.
    pub(super) fn is_worth_finishing(&self) -> bool {
        let here = self.writer.look(Growing::bytes);
        let is_near = |length: u64| length.saturating_sub(here) <= FINISH_BYTES_MAX.max(here);
        self.unkept.is_none() && (self.wanted || self.length.is_some_and(is_near))
    }

    /// Adds `bytes`: to memory, or to the file. What will not be stored is held for its readers alone, and no more of it
    /// than a window: then the origin is held back by the slowest.
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
            self.stop_storing(NoStore::TooLarge);
        }
        let is_large = after > MEMORY_BYTES_MAX || self.length.is_some_and(|length| length > MEMORY_BYTES_MAX);
        if self.body.is_none() && self.unkept.is_none() && is_large && !self.open_file(worker) {
            self.stop_storing(NoStore::NoRoom);
        }
        if self.body.is_none() && self.unkept.is_none() && !Self::has_room(worker, bytes.len() as u64) {
            self.stop_storing(NoStore::NoRoom);
        }
        let is_last = self.length == Some(after);
        if self.body.is_some() && !self.write(worker, &bytes, is_last).await {
            // Nobody is left to have it.
            return;
        }
        if self.body.is_none() {
            let piece: Arc<[u8]> = bytes[..].into();
            self.grow(is_last, |content| content.push(piece));
        }
        // It is copied; what waits for readers is held once.
        drop(bytes);
        if self.unkept.is_some() {
            self.hold_back(worker).await;
        } else if let Some(store) = worker.store().filter(|store| store.budget().is_over()) {
            store.make_room();
        }
        if self.body.as_ref().is_some_and(NewBody::is_behind) {
            client.pause(BEHIND_MS).await;
        }
    }

    /// What is not kept wakes its readers at the last piece as well: the writer waits for them to take it.
    fn grow(&self, is_last: bool, add: impl FnOnce(&mut Growing)) {
        if is_last && self.unkept.is_none() { self.writer.add_last(add) } else { self.writer.add(add) }
    }

    /// Whether the budget has room for `count` bytes more, perhaps after others have made some.
    fn has_room(worker: &ProxyWorker, count: u64) -> bool {
        let Some(store) = worker.store() else { return false };
        store.budget().has_room(count) || {
            worker.make_room();
            store.budget().has_room(count)
        }
    }

    /// Writes to the file. When there is no room, what all have read is forgotten; when that makes none, the file is given
    /// up once all have read it, and `bytes` remain to be added to memory. Returns whether anybody is left to read them.
    async fn write(&mut self, worker: &ProxyWorker, bytes: &[u8], is_last: bool) -> bool {
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
            self.stop_storing(NoStore::NoRoom);
            let Some(slowest) = self.writer.slowest() else { return false };
            let Some(body) = &mut self.body else { return true };
            if slowest >= body.len() {
                self.body = None;
                // Nobody is woken: there is nothing new.
                self.writer.add_last(Growing::leave_file);
                return true;
            }
            body.forget_before(slowest);
            poll_fn(|context| self.writer.poll_slowest(slowest, context)).await;
        }
    }

    /// Waits until no reader is a window behind. One reader has what a forwarded response has. Several must not wait for
    /// the slowest of them at every piece, so as long as there is memory they share a larger one.
    async fn hold_back(&mut self, worker: &ProxyWorker) {
        loop {
            let here = self.writer.look(Growing::bytes);
            let Some(slowest) = self.writer.slowest() else { return };
            match &mut self.body {
                Some(body) => body.forget_before(slowest),
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
            poll_fn(|context| self.writer.poll_slowest(slowest, context)).await;
        }
    }

    /// From now on it is for those who read already.
    fn stop_storing(&mut self, reason: NoStore) {
        if self.unkept.is_none() {
            self.unkept = Some(reason);
            self.writer.close();
            self.writer.add_last(|content| content.move_count_to(Share::Windows));
            if let Some(body) = &mut self.body {
                body.become_window();
            }
        }
    }

    /// Moves what is in memory to a file.
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
    use crate::fill::{Begin, Fills};
    use flatout_cache::reason::NoStore;
    use flatout_net::stream::{Piece, Source as _};
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    struct Noticed(std::sync::atomic::AtomicBool);

    impl Wake for Noticed {
        fn wake(self: Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// The writer waits until what is not kept has been read, so whoever reads must learn of the last piece as well.
    #[test]
    fn the_last_piece_of_what_is_not_kept_wakes_its_reader() {
        for unkept in [None, Some(NoStore::NoRoom)] {
            let fills = Arc::<Fills>::default();
            let Begin::Yours(writer) = fills.begin(b"key") else { panic!("nobody else fetches") };
            let mut reader = writer.join().read(0, None);
            let noticed = Arc::new(Noticed(false.into()));
            let waker = Waker::from(Arc::clone(&noticed));
            assert!(reader.poll_piece(&mut Context::from_waker(&waker)).is_pending());
            let pumping = Pumping { writer, body: None, unkept, wanted: true, length: Some(3) };
            pumping.grow(true, |content| content.push(b"end"[..].into()));
            assert_eq!(noticed.0.load(std::sync::atomic::Ordering::Relaxed), unkept.is_some(), "{unkept:?}");
            assert!(matches!(reader.poll_piece(&mut Context::from_waker(&waker)), Poll::Ready(Piece::Segment(_))));
        }
    }
}
