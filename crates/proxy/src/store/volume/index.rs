//! The index of a volume: records, small bodies and the purge log, in redb.
//!
//! | table | key | value |
//! |---|---|---|
//! | `index` | name of key and variant | sequence number |
//! | `records` | sequence number | the record |
//! | `bodies` | sequence number | small content |
//! | `files` | name of a body's file | sequence number |
//! | `purges` | target | last hard and soft generation |
//! | `facts` | name | number |
//!
//! Records stand in the order of their arrival, which is the order of eviction: new ones are appended, the oldest are
//! taken off the front, and only the small `index` is written all over the place.

use super::record::{Checksum, Content, Id, Primary, Record, checksum, cost, primary_in};
use crate::store::folder::FileId;
use crate::store::purge::{Last, Target};
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, Table, TableDefinition, WriteTransaction,
};
use std::fmt;
use std::path::Path;

const INDEX: TableDefinition<'static, Id, u64> = TableDefinition::new("index");
const RECORDS: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("records");
const BODIES: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("bodies");
const FILES: TableDefinition<'static, u128, u64> = TableDefinition::new("files");
const PURGES: TableDefinition<'static, &[u8], (u64, u64)> = TableDefinition::new("purges");
const FACTS: TableDefinition<'static, &str, u64> = TableDefinition::new("facts");

/// The form of records and tables. Another one is begun anew: a cache may forget.
const FORMAT: u64 = 1;

/// The file's name in the volume's folder.
pub(super) const FILE_NAME: &str = "index.redb";

/// Memory of redb's own for pages; what it does not hold the page cache does.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// What went wrong with an index, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault(String);

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

macro_rules! faults {
    ($($error:ty),+) => { $(
        impl From<$error> for Fault {
            fn from(error: $error) -> Self {
                Self(error.to_string())
            }
        }
    )+ };
}

faults!(redb::TransactionError, redb::TableError, redb::StorageError, redb::CommitError, DatabaseError);
faults!(std::io::Error, redb::SetDurabilityError);

/// Figures that the index keeps of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) bytes: u64,
    pub(super) objects: u64,
    pub(super) generation: u64,
    pub(super) floor: u64,
    /// The next sequence number.
    pub(super) sequence: u64,
}

/// A record with its small content, as stored.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) id: Id,
    pub(super) sequence: u64,
    pub(super) record: Vec<u8>,
    pub(super) body: Option<Vec<u8>>,
}

/// An open index.
#[derive(Debug)]
pub(super) struct Index {
    database: Database,
}

impl Index {
    /// Opens the index in `folder`; begins one where there is none, or none that can be read.
    pub(super) fn open(folder: &Path) -> Result<Self, Fault> {
        let path = folder.join(FILE_NAME);
        match Self::open_file(&path) {
            Ok(index) => Ok(index),
            Err(OpenFault::Unreadable) => {
                std::fs::remove_file(&path)?;
                Self::open_file(&path).map_err(|fault| match fault {
                    OpenFault::Unreadable => Fault("a new index cannot be read".to_owned()),
                    OpenFault::Other(fault) => fault,
                })
            }
            Err(OpenFault::Other(fault)) => Err(fault),
        }
    }

    fn open_file(path: &Path) -> Result<Self, OpenFault> {
        let database = Builder::new().set_cache_size(CACHE_BYTES).create(path).map_err(|error| match error {
            DatabaseError::Storage(redb::StorageError::Corrupted(_)) | DatabaseError::UpgradeRequired(_) => {
                OpenFault::Unreadable
            }
            // Shorter than a header: it was cut while it was made.
            DatabaseError::Storage(redb::StorageError::Io(error))
                if matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof) =>
            {
                OpenFault::Unreadable
            }
            error => OpenFault::Other(error.into()),
        })?;
        let index = Self { database };
        if index.begin()? == FORMAT { Ok(index) } else { Err(OpenFault::Unreadable) }
    }

    /// Makes the tables of a new index. Returns the form.
    fn begin(&self) -> Result<u64, Fault> {
        if let Ok(table) = self.database.begin_read()?.open_table(FACTS)
            && let Some(format) = table.get("format")?
        {
            return Ok(format.value());
        }
        let transaction = self.begin_write()?;
        transaction.open_table(FACTS)?.insert("format", FORMAT)?;
        transaction.open_table(INDEX)?;
        transaction.open_table(RECORDS)?;
        transaction.open_table(BODIES)?;
        transaction.open_table(FILES)?;
        transaction.open_table(PURGES)?;
        transaction.commit()?;
        Ok(FORMAT)
    }

    /// Begins a transaction from which a restart recovers at once, however the process ended.
    fn begin_write(&self) -> Result<WriteTransaction, Fault> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_quick_repair(true);
        Ok(transaction)
    }

    pub(super) fn facts(&self) -> Result<Facts, Fault> {
        let transaction = self.database.begin_read()?;
        let table = transaction.open_table(FACTS)?;
        let fact = |name| Ok::<_, Fault>(table.get(name)?.map_or(0, |value| value.value()));
        let last = transaction.open_table(RECORDS)?.last()?.map_or(0, |(sequence, _)| sequence.value());
        Ok(Facts {
            bytes: fact("bytes")?,
            objects: fact("objects")?,
            generation: fact("generation")?,
            floor: fact("floor")?,
            sequence: last + 1,
        })
    }

    pub(super) fn purges(&self) -> Result<Vec<(Target, Last)>, Fault> {
        let table = self.database.begin_read()?.open_table(PURGES)?;
        let mut purges = Vec::new();
        for row in table.iter()? {
            let (target, last) = row?;
            let (hard, soft) = last.value();
            match Target::decode(target.value()) {
                Some(target) => purges.push((target, Last { hard, soft })),
                None => return Err(Fault("the purge log cannot be read".to_owned())),
            }
        }
        Ok(purges)
    }

    /// All variants of a key.
    pub(super) fn read(&self, primary: &Primary) -> Result<Vec<Stored>, Fault> {
        let transaction = self.database.begin_read()?;
        let index = transaction.open_table(INDEX)?;
        let (mut found, range) = (Vec::new(), range_of(primary));
        for row in index.range(range)? {
            let (id, sequence) = row?;
            found.push((id.value(), sequence.value()));
        }
        let (records, bodies) = (transaction.open_table(RECORDS)?, transaction.open_table(BODIES)?);
        let mut all = Vec::new();
        for (id, sequence) in found {
            let Some(record) = records.get(sequence)? else { continue };
            let record = record.value().to_vec();
            let body = bodies.get(sequence)?.map(|body| body.value().to_vec());
            all.push(Stored { id, sequence, record, body });
        }
        Ok(all)
    }

    /// Visits the name of each record.
    pub(super) fn each_id(&self, mut visit: impl FnMut(Id) -> bool) -> Result<(), Fault> {
        for row in self.database.begin_read()?.open_table(INDEX)?.iter()? {
            if !visit(row?.0.value()) {
                break;
            }
        }
        Ok(())
    }

    /// Visits each record that can be read, with its sequence number.
    pub(super) fn each_record(&self, mut visit: impl FnMut(u64, &Record<'_>)) -> Result<(), Fault> {
        for row in self.database.begin_read()?.open_table(RECORDS)?.iter()? {
            let (sequence, bytes) = row?;
            if let Some(record) = Record::decode_unchecked(bytes.value()) {
                visit(sequence.value(), &record);
            }
        }
        Ok(())
    }

    /// Something that tells whether the index names a file.
    pub(super) fn known_files(&self) -> Result<impl Fn(FileId) -> bool + use<>, Fault> {
        let table = self.database.begin_read()?.open_table(FILES)?;
        // What cannot be read is left where it is.
        Ok(move |id: FileId| table.get(id.encode()).map_or(true, |row| row.is_some()))
    }

    /// Changes the index in one step: all of what `change` does holds after a crash, or nothing.
    pub(super) fn write<T>(
        &self,
        change: impl FnOnce(&mut Writing<'_>) -> Result<T, Fault>,
    ) -> Result<(T, Written), Fault> {
        let transaction = self.begin_write()?;
        let (outcome, written) = {
            let mut writing = Writing {
                index: transaction.open_table(INDEX)?,
                records: transaction.open_table(RECORDS)?,
                bodies: transaction.open_table(BODIES)?,
                files: transaction.open_table(FILES)?,
                purges: transaction.open_table(PURGES)?,
                facts: transaction.open_table(FACTS)?,
                written: Written::default(),
            };
            let fact = |table: &Table<'_, &str, u64>, name| {
                Ok::<_, Fault>(ReadableTable::get(table, name)?.map_or(0, |value| value.value()))
            };
            writing.written.bytes = fact(&writing.facts, "bytes")?;
            writing.written.objects = fact(&writing.facts, "objects")?;
            let outcome = change(&mut writing)?;
            writing.facts.insert("bytes", writing.written.bytes)?;
            writing.facts.insert("objects", writing.written.objects)?;
            (outcome, writing.written)
        };
        transaction.commit()?;
        Ok((outcome, written))
    }
}

enum OpenFault {
    /// What is there is no index of ours.
    Unreadable,
    Other(Fault),
}

impl From<Fault> for OpenFault {
    fn from(fault: Fault) -> Self {
        Self::Other(fault)
    }
}

fn range_of(primary: &Primary) -> std::ops::RangeInclusive<Id> {
    let (mut first, mut last) = ([0; 32], [0xff; 32]);
    first[..16].copy_from_slice(primary);
    last[..16].copy_from_slice(primary);
    first..=last
}

/// What a transaction came to.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) bytes: u64,
    pub(super) objects: u64,
    /// Files that the index names no more.
    pub(super) doomed: Vec<FileId>,
    /// Keys that have no record any more.
    pub(super) emptied: Vec<Primary>,
    pub(super) evicted: u64,
}

/// An index that is being changed.
pub(super) struct Writing<'t> {
    index: Table<'t, Id, u64>,
    records: Table<'t, u64, &'static [u8]>,
    bodies: Table<'t, u64, &'static [u8]>,
    files: Table<'t, u128, u64>,
    purges: Table<'t, &'static [u8], (u64, u64)>,
    facts: Table<'t, &'static str, u64>,
    written: Written,
}

impl Writing<'_> {
    /// Bytes of all records, as reckoned.
    pub(super) const fn bytes(&self) -> u64 {
        self.written.bytes
    }

    /// Whether the index names a file.
    pub(super) fn knows_file(&self, id: FileId) -> Result<bool, Fault> {
        Ok(self.files.get(id.encode())?.is_some())
    }

    /// The content of the record `id`, as it stands there.
    pub(super) fn content_of(&self, id: &Id) -> Result<Option<Content>, Fault> {
        let Some(sequence) = self.index.get(id)?.map(|row| row.value()) else { return Ok(None) };
        let record = self.records.get(sequence)?;
        Ok(record.and_then(|bytes| Record::decode(bytes.value()).map(|record| record.content)))
    }

    /// Writes a record. `body` is small content; `None` keeps what stands there, which is the same.
    pub(super) fn put(
        &mut self,
        (id, sequence): (&Id, u64),
        record: &[u8],
        content: Content,
        body: Option<&[u8]>,
    ) -> Result<(), Fault> {
        let kept = match (content, self.content_of(id)?) {
            (Content::File { id, .. }, Some(Content::File { id: other, .. })) => id == other,
            (Content::Inline { sum, .. }, Some(Content::Inline { sum: other, .. })) => sum == other,
            _ => false,
        };
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
                if let (Content::Inline { .. }, Some(body)) = (content, body) {
                    self.bodies.insert(sequence, body)?;
                }
                if let Content::File { id, .. } = content {
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

    /// Removes the record `id`, where there is one.
    pub(super) fn remove(&mut self, id: &Id) -> Result<(), Fault> {
        let Some(sequence) = self.index.remove(id)?.map(|row| row.value()) else { return Ok(()) };
        self.drop_record(sequence)?;
        self.note_if_empty(id)
    }

    /// Removes all variants of a key.
    pub(super) fn remove_key(&mut self, primary: &Primary) -> Result<(), Fault> {
        let mut ids = Vec::new();
        for row in self.index.range(range_of(primary))? {
            ids.push(row?.0.value());
        }
        ids.iter().try_for_each(|id| self.remove(id))
    }

    /// Removes the record with this sequence number, if it is still there.
    pub(super) fn remove_sequence(&mut self, sequence: u64) -> Result<(), Fault> {
        match self.id_at(sequence)? {
            Some(id) => self.remove(&id),
            None => Ok(()),
        }
    }

    fn id_at(&self, sequence: u64) -> Result<Option<Id>, Fault> {
        let Some(record) = self.records.get(sequence)? else { return Ok(None) };
        Ok(Record::decode_unchecked(record.value())
            .map(|record| super::record::id_of(&super::record::primary_of(record.key), record.variant)))
    }

    fn drop_record(&mut self, sequence: u64) -> Result<(), Fault> {
        self.bodies.remove(sequence)?;
        let record = self.records.remove(sequence)?.map(|record| record.value().to_vec());
        let Some(record) = record else { return Ok(()) };
        let content = Record::decode_unchecked(&record).map_or(Content::None, |record| record.content);
        self.written.bytes = self.written.bytes.saturating_sub(cost(record.len(), content));
        self.written.objects = self.written.objects.saturating_sub(1);
        if let Content::File { id, .. } = content {
            self.files.remove(id.encode())?;
            self.written.doomed.push(id);
        }
        Ok(())
    }

    fn note_if_empty(&mut self, id: &Id) -> Result<(), Fault> {
        let primary = primary_in(id);
        if self.index.range(range_of(&primary))?.next().is_none() {
            self.written.emptied.push(primary);
        }
        Ok(())
    }

    /// Takes the oldest record off, or gives it a second chance at the other end, under the number `next`, when `keeps`
    /// says so. Returns whether there was one, and whether the number was used.
    pub(super) fn evict(
        &mut self,
        next: u64,
        keeps: impl FnOnce(&Record<'_>) -> bool,
    ) -> Result<Option<Evicted>, Fault> {
        let oldest = self.records.first()?.map(|(sequence, record)| (sequence.value(), record.value().to_vec()));
        let Some((sequence, bytes)) = oldest else { return Ok(None) };
        let Some(record) = Record::decode(&bytes) else {
            // Nobody can read it, so nobody can say what its name is.
            self.drop_record(sequence)?;
            return Ok(Some(Evicted::Gone(None)));
        };
        let id = super::record::id_of(&super::record::primary_of(record.key), record.variant);
        if !keeps(&record) {
            self.remove(&id)?;
            // A record that its name does not lead to any more.
            self.drop_record(sequence)?;
            self.written.evicted += 1;
            let file = if let Content::File { id, .. } = record.content { Some(id) } else { None };
            return Ok(Some(Evicted::Gone(file.map(|file| (record.key.to_vec(), file)))));
        }
        let body = self.bodies.remove(sequence)?.map(|body| body.value().to_vec());
        self.records.remove(sequence)?;
        self.records.insert(next, bytes.as_slice())?;
        self.index.insert(&id, next)?;
        if let Some(body) = body {
            self.bodies.insert(next, body.as_slice())?;
        }
        if let Content::File { id, .. } = record.content {
            self.files.insert(id.encode(), next)?;
        }
        Ok(Some(Evicted::Moved))
    }

    /// Remembers a purge.
    pub(super) fn put_purge(&mut self, target: &Target, last: Last) -> Result<(), Fault> {
        let bytes = target.encode();
        let old = self.purges.get(bytes.as_slice())?.map_or((0, 0), |row| row.value());
        self.purges.insert(bytes.as_slice(), (old.0.max(last.hard), old.1.max(last.soft)))?;
        Ok(())
    }

    /// Forgets purges up to `generation`.
    pub(super) fn forget_purges(&mut self, generation: u64) -> Result<(), Fault> {
        self.purges.retain(|_, (hard, soft)| hard.max(soft) > generation)?;
        Ok(())
    }

    pub(super) fn set_generation(&mut self, generation: u64) -> Result<(), Fault> {
        self.facts.insert("generation", generation)?;
        Ok(())
    }

    pub(super) fn set_floor(&mut self, floor: u64) -> Result<(), Fault> {
        self.facts.insert("floor", floor)?;
        Ok(())
    }
}

/// What became of the oldest record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Evicted {
    /// It went, and with it this file of this key.
    Gone(Option<(Vec<u8>, FileId)>),
    /// It stands at the other end now.
    Moved,
}

/// Whether small content is what its record says.
pub(super) fn is_intact(content: Content, body: Option<&[u8]>) -> bool {
    let holds = |body: &[u8], bytes: u64, sum: Checksum| body.len() as u64 == bytes && checksum(body) == sum;
    match content {
        Content::Inline { bytes, sum } => body.is_some_and(|body| holds(body, bytes, sum)),
        Content::None | Content::File { .. } => body.is_none(),
    }
}
