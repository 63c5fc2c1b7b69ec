//! Lookups on a volume, which run on its reading thread.

use super::index::{IndexError, Stored, is_intact};
use super::pending::Change;
use super::record::{ContentLocation, Record, id_of, primary_of};
use super::{Volume, VolumeObjects};
use crate::body::StoredBody;
use crate::folder::BodyFile;
use crate::hold;
use crate::notice::VolumeEvent;
use crate::object::{Meta, Object, ObjectKey};
use crate::purge::Purged;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

impl<M: Meta> Volume<M> {
    /// Handles lookups until the volume goes out of use.
    pub(super) fn read_on(&self) {
        loop {
            let lookup = {
                let mut lookups = hold(&self.lookups);
                loop {
                    if lookups.is_over || self.is_over() {
                        // Dropping the senders tells the requesters that nothing was found.
                        lookups.is_over = true;
                        lookups.waiting.clear();
                        return;
                    }
                    if let Some(lookup) = lookups.waiting.pop_front() {
                        break lookup;
                    }
                    let timeout = Duration::from_secs(1);
                    let waited = self.lookup_wakeup.wait_timeout(lookups, timeout);
                    lookups = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            };
            if lookup.reply.is_closed() {
                continue;
            }
            match self.read_key(lookup.hash, &lookup.key) {
                Ok(found) => {
                    if !found.is_empty() {
                        self.note_warm(&primary_of(&lookup.key));
                    }
                    // The requester may no longer be waiting.
                    let _ = lookup.reply.send(found);
                }
                Err(error) => self.fail("cannot read the index", &error),
            }
        }
    }

    /// Reads all usable objects of a key.
    pub(super) fn read_key(&self, hash: u64, key: &[u8]) -> Result<VolumeObjects<M>, IndexError> {
        let primary = primary_of(key);
        // Read queued changes before the index, so that an object that is being written is found twice rather than
        // missed.
        let floor = self.shared.log.floor();
        let layers = hold(&self.pending).layers_of(&primary);
        let Some(index) = self.index() else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for stored in index.read(&primary)? {
            match self.restore(&stored, (hash, key)) {
                Ok(object) => found.push((stored.sequence, Arc::new(object))),
                Err(event) => self.forget_broken(&stored, key, event),
            }
        }
        for layer in &layers {
            if layer.removed.contains(&primary) {
                found.clear();
            }
            for (id, change) in &layer.changes {
                found.retain(|(_, object)| id_of(&primary, object.variant()) != *id);
                if let Change::Write(object) = change
                    && object.key().as_bytes() == key
                    && self.shared.log.remembers(object.generation())
                {
                    found.push((u64::MAX, Arc::clone(object)));
                }
            }
        }
        found.retain(|(_, object)| self.shared.log.verdict(&object.subject()).0 != Purged::Hard);
        if self.shared.log.floor() != floor {
            // Purges were removed from the log during the read, so the result may include purged objects.
            found.clear();
        }
        Ok(found)
    }

    /// Reports and removes an invalid record, but not a valid record of a different key with the same name.
    fn forget_broken(&self, stored: &Stored, key: &[u8], event: VolumeEvent) {
        let is_others = Record::decode(&stored.record).is_some_and(|record| record.key != key);
        if !is_others {
            self.folder.errors.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let named = String::from_utf8_lossy(key);
            self.shared.notices.report(event, &self.folder.path.display(), &named.escape_debug().to_string());
            hold(&self.pending).remove_if_idle(stored.id);
        }
    }

    /// Restores the object from a record, which must be intact. Content in a file is verified later, before use.
    fn restore(&self, stored: &Stored, (hash, key): (u64, &[u8])) -> Result<Object<M>, VolumeEvent> {
        let broken = VolumeEvent::RecordCorrupt;
        let record = Record::decode(&stored.record).ok_or(broken)?;
        if record.key != key || !is_intact(record.content, stored.body.as_deref()) {
            return Err(broken);
        }
        let body = match record.content {
            ContentLocation::None => StoredBody::Empty,
            ContentLocation::Inline { .. } => StoredBody::Memory(stored.body.as_deref().ok_or(broken)?.into()),
            ContentLocation::File { bytes, id } => {
                let fd = self.folder.open_file(id).map_err(|error| match error.kind() {
                    std::io::ErrorKind::NotFound => VolumeEvent::BodyMissing,
                    _ => VolumeEvent::BodyUnreadable,
                });
                let fd = Arc::new(fd?);
                let place = Some(BodyFile::indexed(&self.folder, (id, &fd), primary_of(key), bytes));
                StoredBody::File { fd, bytes, place }
            }
        };
        let (meta, key) =
            (M::decode(record.meta).ok_or(broken)?, ObjectKey::new(record.key, record.locator.clone(), hash));
        let object = Object::new(key, record.variant, meta, record.lines.into(), body, record.generation);
        object.set_on_disk();
        Ok(object)
    }
}
