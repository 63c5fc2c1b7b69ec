//! Changes that are not yet in a volume's index. Lookups take them into account, so that they never return replaced
//! objects.

use super::record::{Id, Primary, primary_in};
use crate::folder::FileId;
use crate::object::Object;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of objects queued for writing.
const WRITES_MAX: usize = 16_384;

/// Maximum total size in bytes of queued content that is not in a file and stays in memory until it is written.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A change to a record.
#[derive(Debug)]
pub(super) enum Change<M> {
    Write(Arc<Object<M>>),
    Remove,
}

impl<M> Clone for Change<M> {
    fn clone(&self) -> Self {
        match self {
            Self::Write(object) => Self::Write(Arc::clone(object)),
            Self::Remove => Self::Remove,
        }
    }
}

/// Set of changes that are applied in one step. Removals of whole keys are applied first.
#[derive(Debug)]
pub(super) struct Layer<M> {
    pub(super) removed: BTreeSet<Primary>,
    pub(super) changes: BTreeMap<Id, Change<M>>,
}

impl<M> Default for Layer<M> {
    fn default() -> Self {
        Self { removed: BTreeSet::new(), changes: BTreeMap::new() }
    }
}

impl<M> Layer<M> {
    pub(super) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.changes.is_empty()
    }

    fn names(&self, primary: &Primary) -> bool {
        self.removed.contains(primary) || self.changes_of(primary).next().is_some()
    }

    fn changes_of(&self, primary: &Primary) -> impl Iterator<Item = (&Id, &Change<M>)> {
        let mut first = [0; 32];
        first[..16].copy_from_slice(primary);
        self.changes.range(first..).take_while(move |(id, _)| primary_in(id) == *primary)
    }

    /// Returns the changes in this layer for one key.
    fn of(&self, primary: &Primary) -> Self {
        let changes = self.changes_of(primary).map(|(id, change)| (*id, change.clone())).collect();
        Self { removed: self.removed.iter().filter(|other| *other == primary).copied().collect(), changes }
    }
}

/// Two layers of changes on top of the index: those being written, and later ones.
#[derive(Debug)]
pub(super) struct Pending<M> {
    in_flight: Arc<Layer<M>>,
    queued: Layer<M>,
    writes: usize,
    bytes: u64,
}

impl<M> Default for Pending<M> {
    fn default() -> Self {
        Self { in_flight: Arc::default(), queued: Layer::default(), writes: 0, bytes: 0 }
    }
}

impl<M> Pending<M> {
    /// Returns whether changes for a key are queued or being written.
    pub(super) fn names(&self, primary: &Primary) -> bool {
        self.queued.names(primary) || self.in_flight.names(primary)
    }

    /// Returns whether the record `id` in the index will be removed or replaced.
    pub(super) fn replaces(&self, id: &Id) -> bool {
        let layers = [&*self.in_flight, &self.queued];
        layers.iter().any(|layer| layer.changes.contains_key(id) || layer.removed.contains(&primary_in(id)))
    }

    pub(super) const fn writes(&self) -> usize {
        self.writes
    }

    /// Returns whether the queue is so long that it should be written now.
    pub(super) const fn is_long(&self) -> bool {
        self.writes > WRITES_MAX / 8 || self.bytes > BYTES_MAX / 4
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.queued.is_empty() && self.in_flight.is_empty()
    }

    /// Queues `object` for writing. Returns whether there was room. There is always room for content in a file, because
    /// it uses no memory in the queue.
    pub(super) fn write(&mut self, id: Id, object: &Arc<Object<M>>) -> bool {
        let bytes = inline_bytes(object);
        let is_full = self.writes >= WRITES_MAX || self.bytes + bytes > BYTES_MAX;
        if is_full && !object.body().has_descriptor() {
            return false;
        }
        self.forget(&id);
        self.writes += 1;
        self.bytes += bytes;
        self.queued.changes.insert(id, Change::Write(Arc::clone(object)));
        true
    }

    /// Queues the removal of the record `id`. The number of removals is bounded by the number of records, since only
    /// existing records are removed.
    pub(super) fn remove(&mut self, id: Id) {
        self.forget(&id);
        self.queued.changes.insert(id, Change::Remove);
    }

    /// Queues the removal of the record `id`, unless a change for its key is queued.
    pub(super) fn remove_if_idle(&mut self, id: Id) {
        if !self.names(&primary_in(&id)) {
            self.remove(id);
        }
    }

    /// Queues the removal of the record `id`, unless the queue contains a version of it whose content is not in `file`.
    pub(super) fn remove_body(&mut self, id: Id, file: FileId) {
        let is_other = |change: &Change<M>| match change {
            Change::Write(object) => object.body().place().is_none_or(|place| place.id() != file),
            Change::Remove => false,
        };
        let last = self.queued.changes.get(&id).or_else(|| self.in_flight.changes.get(&id));
        if !last.is_some_and(is_other) {
            self.remove(id);
        }
    }

    /// Queues the removal of all variants of a key.
    pub(super) fn remove_key(&mut self, primary: Primary) {
        let ids: Vec<_> = self.queued.changes_of(&primary).map(|(id, _)| *id).collect();
        for id in ids {
            self.forget(&id);
        }
        self.queued.removed.insert(primary);
    }

    fn forget(&mut self, id: &Id) {
        if let Some(Change::Write(object)) = self.queued.changes.remove(id) {
            self.writes -= 1;
            self.bytes -= inline_bytes(&object);
        }
    }

    /// Makes the queued changes the layer being written, and returns it.
    pub(super) fn begin(&mut self) -> Arc<Layer<M>> {
        debug_assert!(self.in_flight.is_empty());
        self.in_flight = Arc::new(std::mem::take(&mut self.queued));
        (self.writes, self.bytes) = (0, 0);
        Arc::clone(&self.in_flight)
    }

    /// Drops the layer being written, after it was written or abandoned.
    pub(super) fn end(&mut self) {
        self.in_flight = Arc::default();
    }

    /// Returns the changes for a key, in the order in which they are applied.
    pub(super) fn layers_of(&self, primary: &Primary) -> [Layer<M>; 2] {
        [self.in_flight.of(primary), self.queued.of(primary)]
    }

    /// Returns the newest version of each object that is queued or being written.
    pub(super) fn objects(&self) -> Vec<(Id, Arc<Object<M>>)> {
        let in_flight =
            self.in_flight.changes.iter().filter(|(id, _)| {
                !self.queued.changes.contains_key(*id) && !self.queued.removed.contains(&primary_in(id))
            });
        in_flight
            .chain(&self.queued.changes)
            .filter_map(|(id, change)| match change {
                Change::Write(object) => Some((*id, Arc::clone(object))),
                Change::Remove => None,
            })
            .collect()
    }
}

fn inline_bytes<M>(object: &Object<M>) -> u64 {
    if object.body().has_descriptor() { 0 } else { object.body().len() }
}
