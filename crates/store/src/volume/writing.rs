//! A write transaction on the index.

use super::index::{BODIES, FACTS, FILES, INDEX, IndexError, PURGES, RECORDS, range_of};
use super::record::{ContentLocation, Id, Primary, Record, cost, id_of, primary_in, primary_of};
use crate::folder::FileId;
use crate::purge::{LastPurges, PurgeTarget};
use redb::{ReadableTable, Table, WriteTransaction};

/// Result of a transaction.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) bytes: u64,
    pub(super) objects: u64,
    /// Files that the index no longer references and that must be removed.
    pub(super) obsolete: Vec<FileId>,
    /// Keys that no longer have any records.
    pub(super) emptied: Vec<Primary>,
    pub(super) evicted: u64,
}

/// A write transaction on the index.
pub(super) struct Writing<'t> {
    index: Table<'t, Id, u64>,
    records: Table<'t, u64, &'static [u8]>,
    bodies: Table<'t, u64, &'static [u8]>,
    files: Table<'t, u128, u64>,
    purges: Table<'t, &'static [u8], (u64, u64)>,
    facts: Table<'t, &'static str, u64>,
    written: Written,
}

impl<'t> Writing<'t> {
    /// Opens all tables for writing.
    pub(super) fn begin(transaction: &'t WriteTransaction) -> Result<Self, IndexError> {
        let facts = transaction.open_table(FACTS)?;
        let fact = |name| Ok::<_, IndexError>(facts.get(name)?.map_or(0, |value| value.value()));
        let written = Written { bytes: fact("bytes")?, objects: fact("objects")?, ..Written::default() };
        Ok(Self {
            index: transaction.open_table(INDEX)?,
            records: transaction.open_table(RECORDS)?,
            bodies: transaction.open_table(BODIES)?,
            files: transaction.open_table(FILES)?,
            purges: transaction.open_table(PURGES)?,
            facts,
            written,
        })
    }

    /// Records the statistics and closes the tables.
    pub(super) fn end(mut self) -> Result<Written, IndexError> {
        self.facts.insert("bytes", self.written.bytes)?;
        self.facts.insert("objects", self.written.objects)?;
        Ok(self.written)
    }
}

impl Writing<'_> {
    /// Returns the estimated size in bytes of all records and their content.
    pub(super) const fn bytes(&self) -> u64 {
        self.written.bytes
    }

    /// Returns whether the index references a file.
    pub(super) fn knows_file(&self, id: FileId) -> Result<bool, IndexError> {
        Ok(self.files.get(id.encode())?.is_some())
    }

    /// Returns the location of the content of the record `id`, if the record exists.
    pub(super) fn content_of(&self, id: &Id) -> Result<Option<ContentLocation>, IndexError> {
        let Some(sequence) = self.index.get(id)?.map(|row| row.value()) else { return Ok(None) };
        let record = self.records.get(sequence)?;
        Ok(record.and_then(|bytes| Record::decode(bytes.value()).map(|record| record.content)))
    }

    /// Returns whether the record `id` already has this content.
    pub(super) fn holds(&self, id: &Id, content: ContentLocation) -> Result<bool, IndexError> {
        Ok(match (content, self.content_of(id)?) {
            (ContentLocation::File { id, .. }, Some(ContentLocation::File { id: other, .. })) => id == other,
            (ContentLocation::Inline { sum, .. }, Some(ContentLocation::Inline { sum: other, .. })) => sum == other,
            _ => false,
        })
    }

    /// Writes a record. `body` is the content if it belongs in the index. If the existing record has the same content,
    /// that is retained.
    pub(super) fn put(
        &mut self,
        (id, sequence): (&Id, u64),
        record: &[u8],
        content: ContentLocation,
        body: Option<&[u8]>,
    ) -> Result<(), IndexError> {
        let kept = self.holds(id, content)?;
        let former = self.index.get(id)?.map(|row| row.value());
        let sequence = match former {
            Some(same) if kept => {
                if let Some(old) = self.records.get(same)? {
                    self.written.bytes = self.written.bytes.saturating_sub(cost(old.value().len(), content));
                    self.written.objects = self.written.objects.saturating_sub(1);
                }
                same
            }
            _ => {
                self.remove(id)?;
                if let (ContentLocation::Inline { .. }, Some(body)) = (content, body) {
                    self.bodies.insert(sequence, body)?;
                }
                if let ContentLocation::File { id, .. } = content {
                    self.files.insert(id.encode(), sequence)?;
                }
                self.index.insert(id, sequence)?;
                sequence
            }
        };
        self.records.insert(sequence, record)?;
        self.written.bytes += cost(record.len(), content);
        self.written.objects += 1;
        Ok(())
    }

    /// Removes the record `id`, if it exists.
    pub(super) fn remove(&mut self, id: &Id) -> Result<(), IndexError> {
        let Some(sequence) = self.index.remove(id)?.map(|row| row.value()) else { return Ok(()) };
        self.drop_record(sequence)?;
        self.note_if_empty(id)
    }

    /// Removes all variants of a key.
    pub(super) fn remove_key(&mut self, primary: &Primary) -> Result<(), IndexError> {
        let mut ids = Vec::new();
        for row in self.index.range(range_of(primary))? {
            ids.push(row?.0.value());
        }
        ids.iter().try_for_each(|id| self.remove(id))
    }

    /// Removes the record with this sequence number, if it exists and `goes` returns true for it.
    pub(super) fn remove_sequence(
        &mut self,
        sequence: u64,
        goes: impl FnOnce(&Record<'_>) -> bool,
    ) -> Result<(), IndexError> {
        let id = {
            let Some(bytes) = self.records.get(sequence)? else { return Ok(()) };
            let record = Record::decode_unchecked(bytes.value()).filter(|record| goes(record));
            record.map(|record| id_of(&primary_of(record.key), record.variant))
        };
        id.map_or(Ok(()), |id| self.remove(&id))
    }

    fn drop_record(&mut self, sequence: u64) -> Result<(), IndexError> {
        self.bodies.remove(sequence)?;
        let record = self.records.remove(sequence)?.map(|record| record.value().to_vec());
        let Some(record) = record else { return Ok(()) };
        let content = Record::decode_unchecked(&record).map_or(ContentLocation::None, |record| record.content);
        self.written.bytes = self.written.bytes.saturating_sub(cost(record.len(), content));
        self.written.objects = self.written.objects.saturating_sub(1);
        if let ContentLocation::File { id, .. } = content {
            self.files.remove(id.encode())?;
            self.written.obsolete.push(id);
        }
        Ok(())
    }

    fn note_if_empty(&mut self, id: &Id) -> Result<(), IndexError> {
        let primary = primary_in(id);
        if self.index.range(range_of(&primary))?.next().is_none() {
            self.written.emptied.push(primary);
        }
        Ok(())
    }

    /// Removes the oldest record or, if `keeps` returns true for it, moves it to the end of the eviction order with the
    /// sequence number `next`. Returns `None` if there are no records.
    pub(super) fn evict(
        &mut self,
        next: u64,
        keeps: impl FnOnce(&Record<'_>) -> bool,
    ) -> Result<Option<Evicted>, IndexError> {
        let oldest = self.records.first()?.map(|(sequence, record)| (sequence.value(), record.value().to_vec()));
        let Some((sequence, bytes)) = oldest else { return Ok(None) };
        let Some(record) = Record::decode(&bytes) else {
            // The record is unreadable, so its name is unknown.
            self.drop_record(sequence)?;
            return Ok(Some(Evicted::Gone(None)));
        };
        let id = id_of(&primary_of(record.key), record.variant);
        if !keeps(&record) {
            self.remove(&id)?;
            // If the name refers to a different record, this one still exists.
            self.drop_record(sequence)?;
            self.written.evicted += 1;
            let file = if let ContentLocation::File { id, .. } = record.content { Some(id) } else { None };
            return Ok(Some(Evicted::Gone(file.map(|file| (record.key.to_vec(), file)))));
        }
        let body = self.bodies.remove(sequence)?.map(|body| body.value().to_vec());
        self.records.remove(sequence)?;
        self.records.insert(next, bytes.as_slice())?;
        self.index.insert(&id, next)?;
        if let Some(body) = body {
            self.bodies.insert(next, body.as_slice())?;
        }
        if let ContentLocation::File { id, .. } = record.content {
            self.files.insert(id.encode(), next)?;
        }
        Ok(Some(Evicted::Moved))
    }

    /// Records a purge.
    pub(super) fn put_purge(&mut self, target: &PurgeTarget, last: LastPurges) -> Result<(), IndexError> {
        let bytes = target.encode();
        let old = self.purges.get(bytes.as_slice())?.map_or((0, 0), |row| row.value());
        self.purges.insert(bytes.as_slice(), (old.0.max(last.hard), old.1.max(last.soft)))?;
        Ok(())
    }

    /// Removes purges up to `generation` from the log.
    pub(super) fn forget_purges(&mut self, generation: u64) -> Result<(), IndexError> {
        self.purges.retain(|_, (hard, soft)| hard.max(soft) > generation)?;
        Ok(())
    }

    pub(super) fn set_generation(&mut self, generation: u64) -> Result<(), IndexError> {
        self.facts.insert("generation", generation)?;
        Ok(())
    }

    pub(super) fn set_floor(&mut self, floor: u64) -> Result<(), IndexError> {
        self.facts.insert("floor", floor)?;
        Ok(())
    }
}

/// The result of evicting the oldest record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Evicted {
    /// The record was removed. If its content is in a file, contains the key and the file.
    Gone(Option<(Vec<u8>, FileId)>),
    /// The record was moved to the end of the eviction order.
    Moved,
}
