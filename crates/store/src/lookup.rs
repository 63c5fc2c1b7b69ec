//! Asynchronous lookup on volumes.

use crate::memory::Changed;
use crate::object::{Bucket, Meta};
use crate::purge::Purged;
use crate::volume::{StoreShared, Volume, VolumeObjects};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tokio::sync::oneshot::Receiver;

/// Maximum number of attempts at a lookup whose key changes while volumes are read. After that, only memory is
/// consulted.
const TRIES_MAX: u8 = 4;

/// Future of a lookup of a key's variants on volumes.
#[derive(Debug)]
pub struct DiskLookup<M> {
    shared: Arc<StoreShared<M>>,
    volumes: Vec<Arc<Volume<M>>>,
    key: Box<[u8]>,
    hash: u64,
    changes: u64,
    waiting: Vec<Receiver<VolumeObjects<M>>>,
    found: VolumeObjects<M>,
    /// True if all volumes have responded.
    is_whole: bool,
    tries: u8,
}

impl<M: Meta> DiskLookup<M> {
    /// Starts a lookup on `volumes`, which are those that may have the key.
    pub(crate) fn new(shared: Arc<StoreShared<M>>, volumes: Vec<Arc<Volume<M>>>, hash: u64, key: &[u8]) -> Self {
        let (waiting, found) = (Vec::new(), Vec::new());
        let (changes, is_whole, tries) = (0, true, 0);
        let mut lookup = Self { shared, volumes, key: key.into(), hash, changes, waiting, found, is_whole, tries };
        lookup.ask();
        lookup
    }

    fn ask(&mut self) {
        self.tries += 1;
        // Read this first, so that any later change invalidates the result.
        self.changes = self.shared.memory.changes(self.hash);
        self.found.clear();
        self.waiting = self.volumes.iter().filter_map(|volume| volume.ask(self.hash, &self.key)).collect();
        self.is_whole = self.waiting.len() == self.volumes.len();
    }

    /// Joins the results of all volumes and promotes the objects to memory.
    fn join(&mut self) -> Result<Option<Arc<Bucket<M>>>, Changed> {
        // Newest first: a crash may have left an older object of the same variant on another volume.
        self.found.sort_by_key(|(sequence, _)| std::cmp::Reverse(*sequence));
        let mut objects: Vec<Arc<_>> = Vec::new();
        for (_, object) in self.found.drain(..) {
            let (purged, generation) = self.shared.log.verdict(&object.subject());
            let is_known = objects.iter().any(|other: &Arc<crate::Object<M>>| other.variant() == object.variant());
            if object.set_checked(generation, purged) != Purged::Hard && !is_known {
                objects.push(object);
            }
        }
        let counter = if objects.is_empty() { &self.shared.disk_misses } else { &self.shared.disk_hits };
        let joined = self.shared.memory.promote((self.hash, &self.key), &objects, (self.changes, self.is_whole))?;
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(joined)
    }
}

impl<M: Meta> Future for DiskLookup<M> {
    type Output = Option<Arc<Bucket<M>>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            while let Some(receiver) = self.waiting.last_mut() {
                match Pin::new(receiver).poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(found)) => {
                        self.found.extend(found);
                        self.waiting.pop();
                    }
                    // A volume that has failed yields no objects.
                    Poll::Ready(Err(_)) => {
                        self.is_whole = false;
                        self.waiting.pop();
                    }
                }
            }
            match self.join() {
                Ok(bucket) => return Poll::Ready(bucket),
                Err(Changed) if self.tries < TRIES_MAX => self.ask(),
                Err(Changed) => return Poll::Ready(self.shared.memory.peek(self.hash, &self.key)),
            }
        }
    }
}
