//! Background writing on a volume's writing thread.

use super::index::IndexError;
use super::known::short;
use super::pending::{Change, Layer};
use super::record::{ContentLocation, Id, Primary, Record, checksum, encode, primary_in, primary_of};
use super::writing::{Evicted, Writing};
use super::{Volume, VolumeCommand, reserve};
use crate::body::{StoredBody, write_at};
use crate::folder::{BodyFile, FileId, is_no_room};
use crate::hold;
use crate::notice::VolumeEvent;
use crate::object::{Meta, Object};
use crate::purge::{PurgeTarget, Purged};
use crate::seal::ChunkSums;
use flatout_os::clock;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Interval between steps. Each step waits for the disk, and further objects in a step cost little.
const STEP_INTERVAL: Duration = Duration::from_millis(100);

/// Minimum free space on the file system in bytes, since an index that runs out of space becomes unusable.
const RESERVE_BYTES: u64 = 16 * 1024 * 1024;

/// Maximum number of records moved to the end of the eviction order in one step.
const MOVES_MAX: usize = 1_024;

/// Maximum number of purged records removed in one step.
const DROPS: usize = 10_000;

/// Maximum number of purged records removed in one step if the file system is full. The step must then fit into the
/// index's reserve: each record may change a 4 KiB page in each of four tables.
const DROPS_WHEN_FULL: usize = (reserve::RESERVE_BYTES / (4 * 4_096)) as usize;

/// Free space in bytes required before a full volume accepts objects again. Larger than [`RESERVE_BYTES`], so that the
/// state does not alternate.
const ROOM_AGAIN_BYTES: u64 = 4 * RESERVE_BYTES;

/// Delay before writes are retried if they are refused despite free space, for instance because of a quota.
const REFUSED_WAIT: Duration = Duration::from_mins(10);

/// Decides whether a volume is full. Time and measurements are passed as arguments.
#[derive(Debug, Default)]
struct Room {
    /// Number of writes of content and the index refused so far.
    refusals: u64,
    refused_until: Option<Instant>,
}

impl Room {
    /// Returns whether the volume is full at `now`, given whether it `was_full`, the free space of the file system and
    /// the number of refused writes.
    fn is_full(&mut self, now: Instant, was_full: bool, free_bytes: u64, refusals: u64) -> bool {
        let least = if was_full { ROOM_AGAIN_BYTES } else { RESERVE_BYTES };
        if refusals != self.refusals {
            self.refusals = refusals;
            self.refused_until = (free_bytes >= ROOM_AGAIN_BYTES).then(|| now + REFUSED_WAIT);
        }
        free_bytes < least || self.refused_until.is_some_and(|until| now < until)
    }
}

/// An object that is ready to be entered in the index.
struct ReadyObject<M> {
    id: Id,
    object: Arc<Object<M>>,
    record: Vec<u8>,
    content: ContentLocation,
    /// The content's file, if this step references it for the first time.
    file: Option<Arc<BodyFile>>,
    /// The object that replaces it in memory, if its content was copied to the volume.
    moved: Option<Arc<Object<M>>>,
}

impl<M: Meta> Volume<M> {
    /// Writes queued changes and carries out commands until the volume goes out of use.
    pub(super) fn write_behind(&self) {
        let mut last_step = clock::now();
        let mut room = Room::default();
        loop {
            self.look_for_room(&mut room, clock::now());
            self.folder.tend();
            if !self.folder.is_good() {
                return;
            }
            let is_ending = self.is_ending.load(Ordering::Acquire);
            let orders = std::mem::take(&mut hold(&self.orders).waiting);
            let (is_long, is_empty) = {
                let pending = hold(&self.pending);
                (pending.is_long(), pending.is_empty())
            };
            let is_due = is_long || is_ending || !orders.is_empty() || clock::since(last_step) >= STEP_INTERVAL;
            let is_over_budget = self.folder.used_bytes() > self.folder.bytes_max
                && self.folder.indexed_bytes.load(Ordering::Relaxed) > 0;
            if is_due && (!is_empty || is_over_budget) {
                last_step = clock::now();
                if let Err(error) = self.step() {
                    self.fail("cannot write the index", &error);
                    continue;
                }
            }
            if let Err(error) = self.drop_some() {
                self.fail("cannot write the index", &error);
                continue;
            }
            for order in orders {
                if let Err(error) = self.obey(order) {
                    self.fail("cannot write the index", &error);
                    break;
                }
            }
            if is_ending {
                if hold(&self.pending).is_empty() {
                    self.folder.tidy_up();
                    return;
                }
                continue;
            }
            if self.folder.is_good() && hold(&self.drops).is_empty() {
                self.folder.wait(STEP_INTERVAL);
            }
        }
    }

    /// Cleans up when the thread ends, for whatever reason.
    pub(super) fn stop_writing(&self) {
        let orders = std::mem::replace(&mut *hold(&self.orders), super::Orders { is_over: true, ..Default::default() });
        // Dropping the commands tells waiting threads that they failed.
        drop(orders);
        if !self.folder.is_good() {
            let problem = self.folder.problem();
            self.shared.notices.report(VolumeEvent::VolumeFailed, &self.folder.path.display(), &problem);
            self.abandon();
        }
    }

    /// Discards all content of this volume, so that it is not used now or after a restart.
    fn abandon(&self) {
        *self.index.write().unwrap_or_else(PoisonError::into_inner) = None;
        // A full or read-only disk may refuse even this. The next start then uses the index that it finds.
        let _ = std::fs::remove_file(self.folder.path.join(super::index::FILE_NAME));
        *hold(&self.pending) = super::Pending::default();
        self.known.clear();
        // The content of objects on this volume may become unreadable at any moment.
        let mut lost = Vec::new();
        self.shared.memory.each(|object| {
            if object.body().place().is_some_and(|place| Arc::ptr_eq(place.folder(), &self.folder)) {
                lost.push(Arc::clone(object));
            }
        });
        for object in &lost {
            self.shared.memory.remove_object(object, || ());
        }
    }

    /// Writes all queued changes, and evicts the oldest records if the volume's limit is exceeded.
    fn step(&self) -> Result<(), IndexError> {
        let layer = hold(&self.pending).begin();
        let outcome = self.write_layer(&layer);
        hold(&self.pending).end();
        outcome
    }

    fn write_layer(&self, layer: &Layer<M>) -> Result<(), IndexError> {
        let Some(index) = self.index() else { return Ok(()) };
        let inline: u64 = layer.changes.values().map(inline_bytes).sum();
        let is_tight = self.folder.is_full() || self.free_bytes() < RESERVE_BYTES + 2 * inline;
        if is_tight && inline > 0 {
            self.set_full(true);
        }
        let mut ready = Vec::new();
        let mut removed: Vec<Id> = Vec::new();
        for (id, change) in &layer.changes {
            let made = match change {
                Change::Write(object) if !is_tight || needs_little_room(object) => self.make_ready(*id, object),
                _ => None,
            };
            if let Some(made) = made {
                ready.push(made);
                continue;
            }
            if let Change::Write(object) = change {
                self.give_up(object);
            }
            if self.may_have_record(&primary_in(id)) {
                removed.push(*id);
            }
        }
        let is_over_budget = self.folder.used_bytes() > self.folder.bytes_max;
        if ready.is_empty() && removed.is_empty() && layer.removed.is_empty() && !is_over_budget {
            return Ok(());
        }
        self.folder.sync_names(ready.iter().filter_map(|made| Some(made.file.as_ref()?.id())))?;

        let ((moved_out, unplaced), written) = index.write(|writing| {
            for primary in &layer.removed {
                writing.remove_key(primary)?;
            }
            for id in &removed {
                writing.remove(id)?;
            }
            let mut unplaced = Vec::new();
            for (position, made) in ready.iter().enumerate() {
                if is_tight
                    && matches!(made.content, ContentLocation::Inline { .. })
                    && !writing.holds(&made.id, made.content)?
                {
                    // The content is not in the index yet, and there is no space for it.
                    writing.remove(&made.id)?;
                    unplaced.push(position);
                    continue;
                }
                if let (ContentLocation::File { id, .. }, None) = (made.content, &made.file)
                    && !writing.knows_file(id)?
                {
                    // The record has been evicted since, and its file was removed.
                    writing.remove(&made.id)?;
                    unplaced.push(position);
                    continue;
                }
                let sequence = self.shared.sequence.fetch_add(1, Ordering::Relaxed);
                let body = match made.object.body() {
                    StoredBody::Memory(bytes) => Some(&**bytes),
                    _ => None,
                };
                writing.put((&made.id, sequence), &made.record, made.content, body)?;
            }
            Ok((self.make_room(writing)?, unplaced))
        })?;

        // The changes are durable now: a restart finds this state.
        for primary in &written.emptied {
            self.known.remove(primary);
        }
        // Add keys after removing others, since a key may have lost its records and gained new ones in the same step.
        for made in &ready {
            self.known.add(&primary_in(&made.id));
        }
        self.folder.indexed_bytes.store(written.bytes, Ordering::Relaxed);
        self.objects.store(written.objects, Ordering::Relaxed);
        self.evicted.fetch_add(written.evicted, Ordering::Relaxed);
        self.written.fetch_add((ready.len() - unplaced.len()) as u64, Ordering::Relaxed);
        for (key, file) in moved_out {
            self.drop_from_memory(&key, file);
        }
        for (position, made) in ready.into_iter().enumerate() {
            if unplaced.contains(&position) {
                if made.object.body().has_descriptor() {
                    self.shared.memory.remove_object(&made.object, || ());
                } else {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
                continue;
            }
            if let Some(file) = &made.file {
                file.set_indexed();
            }
            made.object.set_on_disk();
            if let Some(moved) = &made.moved {
                moved.set_on_disk();
                self.shared.memory.swap(&made.object, moved);
            }
        }
        for file in written.obsolete {
            self.folder.unlink(file);
        }
        Ok(())
    }

    /// Compares the free space with the required reserve. A volume that is full although it is below its limit retains
    /// its objects, and accepts no more until there is space.
    fn look_for_room(&self, room: &mut Room, now: Instant) {
        let refusals = self.folder.refusals() + self.reserve.spent();
        let is_full = room.is_full(now, self.folder.is_full(), self.free_bytes(), refusals);
        self.set_full(is_full);
        if !is_full {
            self.reserve.fill();
        }
    }

    fn set_full(&self, is_full: bool) {
        if self.folder.is_full() == is_full || !self.folder.is_good() {
            return;
        }
        let event = if is_full { VolumeEvent::VolumeFull } else { VolumeEvent::VolumeHasRoom };
        let mebibytes = |bytes: u64| bytes / (1 << 20);
        let detail = format!(
            "{} MiB free, {} of {} MiB of the budget used",
            mebibytes(self.free_bytes()),
            mebibytes(self.folder.used_bytes()),
            mebibytes(self.folder.bytes_max)
        );
        // Count the event first, so that the count includes the change as soon as the new state is visible.
        self.shared.notices.report(event, &self.folder.path.display(), &detail);
        self.folder.set_full(is_full);
    }

    /// Returns the free space on the file system in bytes, or the maximum value if it is unknown.
    fn free_bytes(&self) -> u64 {
        rustix::fs::statvfs(&self.folder.path).map_or(u64::MAX, |room| room.f_bavail.saturating_mul(room.f_frsize))
    }

    /// Abandons writing an object. If its content is in a file that is not in the index, also removes it from memory.
    fn give_up(&self, object: &Arc<Object<M>>) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        if object.body().place().is_some_and(|place| !place.is_indexed()) {
            self.shared.memory.remove_object(object, || ());
        }
    }

    /// Writes and syncs the content of an object, and encodes its record. Returns `None` if the object must not or
    /// cannot be written.
    fn make_ready(&self, id: Id, object: &Arc<Object<M>>) -> Option<ReadyObject<M>> {
        let (purged, _) = self.shared.log.verdict(&object.subject());
        if !self.shared.log.may_be_written(object.generation(), purged) {
            return None;
        }
        let mut moved = None;
        let (content, file) = match object.body() {
            StoredBody::Empty => (ContentLocation::None, None),
            StoredBody::Memory(bytes) => {
                (ContentLocation::Inline { bytes: bytes.len() as u64, sum: checksum(bytes) }, None)
            }
            StoredBody::File { bytes, place: Some(place), .. } => {
                if !place.is_indexed() && !self.seal(place, primary_in(&id), *bytes) {
                    return None;
                }
                let file = (!place.is_indexed()).then(|| Arc::clone(place));
                (ContentLocation::File { bytes: *bytes, id: place.id() }, file)
            }
            StoredBody::File { fd, bytes, place: None } => {
                let (file, new) = self.copy(fd, *bytes)?;
                if !self.seal(&file, primary_in(&id), *bytes) {
                    return None;
                }
                let body = StoredBody::File { fd: new, bytes: *bytes, place: Some(Arc::clone(&file)) };
                let content = ContentLocation::File { bytes: *bytes, id: file.id() };
                moved = self.with_body(object, body);
                (content, Some(file))
            }
        };
        let record = encode(object, content)?;
        Some(ReadyObject { id, object: Arc::clone(object), record, content, file, moved })
    }

    /// Returns a copy of the object with `body` as its content. Returns `None` if the metadata cannot be copied.
    fn with_body(&self, object: &Object<M>, body: StoredBody) -> Option<Arc<Object<M>>> {
        let mut meta = Vec::new();
        object.meta().encode(&mut meta);
        let (meta, lines) = (M::decode(&meta)?, Arc::clone(object.lines()));
        let made = Object::new(object.key().clone(), object.variant(), meta, lines, body, object.generation());
        let (purged, generation) = self.shared.log.verdict(&object.subject());
        made.set_checked(generation, purged);
        Some(Arc::new(made))
    }

    /// Seals a file and syncs it. Returns whether that succeeded. A full disk does not take the volume out of use.
    fn seal(&self, file: &Arc<BodyFile>, primary: Primary, bytes: u64) -> bool {
        match file.seal(primary, bytes).and_then(|()| file.sync()) {
            Ok(()) => true,
            Err(error) if is_no_room(&error) => {
                self.folder.note_refusal();
                false
            }
            Err(error) => {
                self.fail("cannot write content", &error);
                false
            }
        }
    }

    fn note_write_error(&self, error: &std::io::Error) {
        if is_no_room(error) {
            self.folder.note_refusal();
        } else {
            self.folder.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Copies content from a memory file to a new file on the volume. Returns `None` if there is no space or a write
    /// fails.
    fn copy(&self, from: &OwnedFd, bytes: u64) -> Option<(Arc<BodyFile>, Arc<OwnedFd>)> {
        self.folder.room_for(bytes)?;
        if self.free_bytes() < RESERVE_BYTES + bytes {
            return None;
        }
        let copying = || -> std::io::Result<_> {
            let (file, fd) = self.folder.create()?;
            let (mut buffer, mut offset) = (vec![0; 256 * 1024], 0);
            let mut sums = ChunkSums::default();
            while offset < bytes {
                let wanted = buffer.len().min((bytes - offset) as usize);
                let count = rustix::io::pread(from, &mut buffer[..wanted], offset)?;
                if count == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                write_at(&fd, &buffer[..count], offset)?;
                sums.add(&buffer[..count]);
                offset += count as u64;
            }
            file.grow(bytes);
            file.set_sums(sums.finish());
            Ok((file, fd))
        };
        let copied = copying();
        copied.map_err(|error| self.note_write_error(&error)).ok()
    }

    /// Evicts the oldest records until the volume's limit is met. Returns the files of the evicted records, with their
    /// keys.
    fn make_room(&self, writing: &mut Writing<'_>) -> Result<Vec<(Vec<u8>, FileId)>, IndexError> {
        let now_s = clock::unix_s().max(0).cast_unsigned();
        let loose = self.folder.loose_bytes();
        let bytes_max = self.folder.bytes_max.saturating_sub(loose);
        let (mut files, mut moves) = (Vec::new(), 0);
        while writing.bytes() > bytes_max {
            let next = self.shared.sequence.fetch_add(1, Ordering::Relaxed);
            let keeps =
                |record: &Record<'_>| moves < MOVES_MAX && record.useful_until_s > now_s && self.is_warm(record);
            match writing.evict(next, keeps)? {
                None => break,
                Some(Evicted::Moved) => moves += 1,
                Some(Evicted::Gone(file)) => files.extend(file),
            }
        }
        Ok(files)
    }

    /// Returns whether a record was requested since it was written, on this volume or in memory.
    fn is_warm(&self, record: &Record<'_>) -> bool {
        if self.shared.log.verdict(&record.subject()).0 != Purged::No {
            return false;
        }
        if hold(&self.warm).remove(&short(&primary_of(record.key))) {
            return true;
        }
        let hash = self.shared.hash(record.key);
        let Some(bucket) = self.shared.memory.peek(hash, record.key) else { return false };
        bucket.objects().iter().any(|object| object.variant() == record.variant && object.hits() > 0)
    }

    /// Removes the object whose content is in `file` from memory, so that the file is closed.
    pub(super) fn drop_from_memory(&self, key: &[u8], file: FileId) {
        let hash = self.shared.hash(key);
        self.shared.memory.change_key(hash);
        let bucket = self.shared.memory.peek(hash, key);
        for object in bucket.iter().flat_map(|bucket| bucket.objects()) {
            if object.body().place().is_some_and(|place| place.id() == file) {
                self.shared.memory.remove_object(object, || ());
            }
        }
    }

    /// Carries out a command of the control thread.
    fn obey(&self, order: VolumeCommand) -> Result<(), IndexError> {
        let Some(index) = self.index() else { return Ok(()) };
        match order {
            VolumeCommand::Purges { purges, generation, dropped, done } => {
                index.write(|writing| {
                    if purges.iter().any(|(target, last)| *target == PurgeTarget::All && last.hard == generation) {
                        // A purge of everything supersedes all earlier purges.
                        writing.forget_purges(generation - 1)?;
                    }
                    for (target, last) in &purges {
                        writing.put_purge(target, *last)?;
                    }
                    writing.set_generation(generation)
                })?;
                // The purges are effective now. Removing the records only frees space and is done gradually.
                hold(&self.drops).extend(dropped);
                let _ = done.try_send(());
            }
            VolumeCommand::Forget { generation, done } => {
                let mut purged = Vec::new();
                index.each_record(|sequence, record| {
                    if self.shared.log.verdict(&record.subject()).0 != Purged::No {
                        purged.push(sequence);
                    }
                })?;
                purged.chunks(self.drops_max()).try_for_each(|part| self.drop_all(part, |_| true))?;
                index.write(|writing| {
                    writing.forget_purges(generation)?;
                    writing.set_generation(generation)?;
                    writing.set_floor(generation)
                })?;
                let _ = done.try_send(());
            }
            VolumeCommand::Wipe { done } => {
                let mut all = Vec::new();
                index.each_record(|sequence, _| all.push(sequence))?;
                all.chunks(self.drops_max()).try_for_each(|part| self.drop_all(part, |_| true))?;
                let _ = done.try_send(());
            }
        }
        Ok(())
    }

    fn drops_max(&self) -> usize {
        if self.folder.is_full() { DROPS_WHEN_FULL } else { DROPS }
    }

    /// Removes some of the purged records that are queued for removal.
    fn drop_some(&self) -> Result<(), IndexError> {
        let part = {
            let mut drops = hold(&self.drops);
            let rest = drops.len().saturating_sub(self.drops_max());
            drops.split_off(rest)
        };
        // A record that has been replaced since is not removed.
        let goes = |record: &Record<'_>| self.shared.log.verdict(&record.subject()).0 == Purged::Hard;
        if part.is_empty() { Ok(()) } else { self.drop_all(&part, goes) }
    }

    /// Removes the records with these sequence numbers for which `goes` returns true, in one step.
    fn drop_all(&self, sequences: &[u64], goes: impl Fn(&Record<'_>) -> bool) -> Result<(), IndexError> {
        let Some(index) = self.index() else { return Ok(()) };
        let ((), written) =
            index.write(|writing| sequences.iter().try_for_each(|one| writing.remove_sequence(*one, &goes)))?;
        for primary in &written.emptied {
            self.known.remove(primary);
        }
        self.folder.indexed_bytes.store(written.bytes, Ordering::Relaxed);
        self.objects.store(written.objects, Ordering::Relaxed);
        for file in written.obsolete {
            self.folder.unlink(file);
        }
        Ok(())
    }
}

/// Returns whether an object may be written to a full disk because its content may already be there, so that only a
/// record changes. Content in the index is compared with that of the existing record later.
fn needs_little_room<M>(object: &Object<M>) -> bool {
    match object.body() {
        StoredBody::Empty | StoredBody::Memory(_) => true,
        StoredBody::File { place, .. } => place.as_ref().is_some_and(|place| place.is_indexed()),
    }
}

/// Returns the number of bytes that a change adds to the disk, not counting content that is already in a file on the
/// volume.
fn inline_bytes<M>(change: &Change<M>) -> u64 {
    match change {
        Change::Write(object) if object.body().place().is_none() => object.body().len(),
        _ => 0,
    }
}
