//! Content on its way from an origin to whoever waits for it, and to where it is kept.

use crate::fill::FillWriter;
use crate::growing::{Growing, MEMORY_BYTES_MAX};
use crate::store::NewBody;
use crate::worker::ProxyWorker;
use flatout_cache::reason::NoStore;
use flatout_net::origin::{IncomingBody, IncomingPiece, OriginClient};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// What has been begun is finished although nobody waits any more, when no more than this is missing.
const FINISH_BYTES_MAX: u64 = 1024 * 1024;

/// How far the slowest reader of what is not kept may be behind before the origin is held back, in bytes.
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

    /// Adds `bytes`: to memory, or to the file. What is not kept is held for its readers alone, and no more of it than
    /// a window: then the origin is held back by the slowest.
    pub(super) async fn add(&mut self, worker: &Rc<ProxyWorker>, client: &OriginClient, bytes: &[u8], bytes_max: u64) {
        let before = self.writer.look(Growing::bytes);
        let after = before + bytes.len() as u64;
        if after > bytes_max {
            self.stop_keeping(NoStore::TooLarge);
        }
        let is_large = after > MEMORY_BYTES_MAX || self.length.is_some_and(|length| length > MEMORY_BYTES_MAX);
        if self.body.is_none() && self.unkept.is_none() && is_large && !self.open_file(worker) {
            self.stop_keeping(NoStore::NoRoom);
        }
        let is_last = self.length == Some(after);
        if self.body.is_none() {
            let piece: Arc<[u8]> = bytes.into();
            self.grow(is_last, |content| content.push(piece));
        } else {
            self.write(bytes, is_last).await;
        }
        if self.unkept.is_some() {
            self.hold_back().await;
        }
        if self.body.as_ref().is_some_and(NewBody::is_behind) {
            client.pause(BEHIND_MS).await;
        }
    }

    pub(super) fn grow(&self, is_last: bool, add: impl FnOnce(&mut Growing)) {
        if is_last { self.writer.add_last(add) } else { self.writer.add(add) }
    }

    /// Writes to the file; when there is no room, makes some by forgetting what all have read.
    pub(super) async fn write(&mut self, bytes: &[u8], is_last: bool) {
        loop {
            let Some(body) = &mut self.body else { return };
            if body.write(bytes).is_ok() {
                let (fd, written) = (Arc::clone(body.fd()), body.len());
                return self.grow(is_last, |content| content.move_to(fd, written));
            }
            self.stop_keeping(NoStore::NoRoom);
            let Some(slowest) = self.writer.slowest() else { return };
            if let Some(body) = &mut self.body {
                body.forget_before(slowest);
                if body.write(bytes).is_ok() {
                    let (fd, written) = (Arc::clone(body.fd()), body.len());
                    return self.grow(is_last, |content| content.move_to(fd, written));
                }
            }
            poll_fn(|context| self.writer.poll_slowest(slowest, context)).await;
        }
    }

    /// Waits until no reader is a window behind.
    pub(super) async fn hold_back(&mut self) {
        loop {
            let here = self.writer.look(Growing::bytes);
            let Some(slowest) = self.writer.slowest() else { return };
            match &mut self.body {
                Some(body) => body.forget_before(slowest),
                None => self.writer.add(|content| content.forget_before(slowest)),
            }
            if here - slowest.min(here) <= WINDOW_BYTES_MAX {
                return;
            }
            poll_fn(|context| self.writer.poll_slowest(slowest, context)).await;
        }
    }

    /// From now on it is for those who read already.
    pub(super) fn stop_keeping(&mut self, reason: NoStore) {
        self.unkept.get_or_insert(reason);
        self.writer.close();
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
