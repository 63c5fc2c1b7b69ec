//! Index of a volume, which contains records, small bodies and the purge log in a redb database.
//!
//! | table | key | value |
//! |---|---|---|
//! | `index` | name of the key and variant | sequence number |
//! | `records` | sequence number | the record |
//! | `bodies` | sequence number | small content |
//! | `files` | name of a body's file | sequence number |
//! | `purges` | target | generation of the last hard and soft purge |
//! | `facts` | name | number |
//!
//! Records are sorted by arrival, which is the order of eviction. New records are appended, and the oldest are removed
//! from the front; only the small `index` table has random writes.

use super::record::{Checksum, ContentLocation, Id, Primary, Record, checksum, id_of, primary_of};
use super::reserve::{IndexFile, Reserve};
use super::writing::{Writing, Written};
use crate::folder::FileId;
use crate::notice::VolumeEvent;
use crate::private::create_private_file;
use crate::purge::{LastPurges, PurgeTarget};
use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use std::fs::File;
use std::ops::Not;
use std::path::Path;
use std::sync::Arc;

pub(super) const INDEX: TableDefinition<'static, Id, u64> = TableDefinition::new("index");
pub(super) const RECORDS: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("records");
pub(super) const BODIES: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("bodies");
pub(super) const FILES: TableDefinition<'static, u128, u64> = TableDefinition::new("files");
pub(super) const PURGES: TableDefinition<'static, &[u8], (u64, u64)> = TableDefinition::new("purges");
pub(super) const FACTS: TableDefinition<'static, &str, u64> = TableDefinition::new("facts");

/// Format version of records and tables. An index with a different version is replaced by an empty one.
const FORMAT: u64 = 2;

/// Name of the index file in the volume's folder.
pub(super) const FILE_NAME: &str = "index.redb";

/// Size in bytes of redb's page cache. The kernel's page cache holds the rest.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// Index error, as text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct IndexError(String);

macro_rules! faults {
    ($($error:ty),+) => { $(
        impl From<$error> for IndexError {
            fn from(error: $error) -> Self {
                Self(error.to_string())
            }
        }
    )+ };
}

faults!(redb::TransactionError, redb::TableError, redb::StorageError, redb::CommitError, DatabaseError);
faults!(std::io::Error, redb::SetDurabilityError);

/// Statistics stored in the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexStatistics {
    pub(super) bytes: u64,
    pub(super) objects: u64,
    pub(super) generation: u64,
    pub(super) floor: u64,
    /// Next sequence number.
    pub(super) sequence: u64,
}

/// A record as stored, with its content if that is in the index.
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
    /// Opens the index in `folder`, or creates an empty one if it is missing, unreadable or outdated. Also returns the
    /// event to report if an old index was lost.
    pub(super) fn open(folder: &Path, reserve: &Arc<Reserve>) -> Result<(Self, Option<VolumeEvent>), IndexError> {
        let path = folder.join(FILE_NAME);
        let is_missing = std::fs::metadata(&path).is_ok_and(|data| data.len() > 0).not();
        let event = match Self::open_file(&path, reserve) {
            // There is content, but no index.
            Ok(index) if is_missing && has_bodies(folder)? => return Ok((index, Some(VolumeEvent::IndexDestroyed))),
            Ok(index) => return Ok((index, None)),
            Err(OpenFault::Unreadable) => VolumeEvent::IndexDestroyed,
            Err(OpenFault::Outdated) => VolumeEvent::IndexOutdated,
            Err(OpenFault::Other(fault)) => return Err(fault),
        };
        std::fs::remove_file(&path)?;
        match Self::open_file(&path, reserve) {
            Ok(index) => Ok((index, Some(event))),
            Err(OpenFault::Other(fault)) => Err(fault),
            Err(_) => Err(IndexError("a new index cannot be read".to_owned())),
        }
    }

    fn open_file(path: &Path, reserve: &Arc<Reserve>) -> Result<Self, OpenFault> {
        // Restrict the file to its owner, regardless of the umask.
        drop(create_private_file(path).map_err(IndexError::from)?);
        let file = File::options().read(true).write(true).open(path).map_err(IndexError::from)?;
        let file = IndexFile::new(FileBackend::new(file).map_err(IndexError::from)?, Arc::clone(reserve));
        let created = Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(file);
        let database = created.map_err(|error| match error {
            DatabaseError::Storage(redb::StorageError::Corrupted(_)) | DatabaseError::UpgradeRequired(_) => {
                OpenFault::Unreadable
            }
            // The file is shorter than a header, because its creation was interrupted.
            DatabaseError::Storage(redb::StorageError::Io(error))
                if matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof) =>
            {
                OpenFault::Unreadable
            }
            error => OpenFault::Other(error.into()),
        })?;
        let index = Self { database };
        if index.begin()? == FORMAT { Ok(index) } else { Err(OpenFault::Outdated) }
    }

    /// Creates the tables if the index is new. Returns the format version.
    fn begin(&self) -> Result<u64, IndexError> {
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

    /// Begins a write transaction that permits quick recovery after a crash.
    fn begin_write(&self) -> Result<WriteTransaction, IndexError> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_quick_repair(true);
        Ok(transaction)
    }

    pub(super) fn facts(&self) -> Result<IndexStatistics, IndexError> {
        let transaction = self.database.begin_read()?;
        let table = transaction.open_table(FACTS)?;
        let fact = |name| Ok::<_, IndexError>(table.get(name)?.map_or(0, |value| value.value()));
        let last = transaction.open_table(RECORDS)?.last()?.map_or(0, |(sequence, _)| sequence.value());
        Ok(IndexStatistics {
            bytes: fact("bytes")?,
            objects: fact("objects")?,
            generation: fact("generation")?,
            floor: fact("floor")?,
            sequence: last + 1,
        })
    }

    pub(super) fn purges(&self) -> Result<Vec<(PurgeTarget, LastPurges)>, IndexError> {
        let table = self.database.begin_read()?.open_table(PURGES)?;
        let mut purges = Vec::new();
        for row in table.iter()? {
            let (target, last) = row?;
            let (hard, soft) = last.value();
            match PurgeTarget::decode(target.value()) {
                Some(target) => purges.push((target, LastPurges { hard, soft })),
                None => return Err(IndexError("the purge log cannot be read".to_owned())),
            }
        }
        Ok(purges)
    }

    /// Reads all variants of a key.
    pub(super) fn read(&self, primary: &Primary) -> Result<Vec<Stored>, IndexError> {
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

    /// Calls `visit` with the name of each record, until it returns false.
    pub(super) fn each_id(&self, mut visit: impl FnMut(Id) -> bool) -> Result<(), IndexError> {
        for row in self.database.begin_read()?.open_table(INDEX)?.iter()? {
            if !visit(row?.0.value()) {
                break;
            }
        }
        Ok(())
    }

    /// Calls `visit` with each readable record and its sequence number.
    pub(super) fn each_record(&self, mut visit: impl FnMut(u64, &Record<'_>)) -> Result<(), IndexError> {
        for row in self.database.begin_read()?.open_table(RECORDS)?.iter()? {
            let (sequence, bytes) = row?;
            if let Some(record) = Record::decode_unchecked(bytes.value()) {
                visit(sequence.value(), &record);
            }
        }
        Ok(())
    }

    /// Returns the first body file after `last` in the order of names, with its key and the length of its content in
    /// bytes.
    pub(super) fn next_body(&self, last: Option<FileId>) -> Result<Option<(FileId, Vec<u8>, u64)>, IndexError> {
        let transaction = self.database.begin_read()?;
        let (files, records) = (transaction.open_table(FILES)?, transaction.open_table(RECORDS)?);
        let first = last.map_or(Some(0), |last| last.encode().checked_add(1));
        let Some(first) = first else { return Ok(None) };
        for row in files.range(first..)? {
            let (id, sequence) = row?;
            let Some(bytes) = records.get(sequence.value())? else { continue };
            // Records that cannot be decoded are handled by lookups.
            let Some(record) = Record::decode_unchecked(bytes.value()) else { continue };
            return Ok(Some((FileId::decode(id.value()), record.key.to_vec(), record.content.bytes())));
        }
        Ok(None)
    }

    /// Returns the name and key of the record whose content is in `file`.
    pub(super) fn find_body(&self, file: FileId) -> Result<Option<(Id, Vec<u8>)>, IndexError> {
        let transaction = self.database.begin_read()?;
        let Some(sequence) = transaction.open_table(FILES)?.get(file.encode())? else { return Ok(None) };
        let Some(bytes) = transaction.open_table(RECORDS)?.get(sequence.value())? else { return Ok(None) };
        let record = Record::decode_unchecked(bytes.value());
        Ok(record.map(|record| (id_of(&primary_of(record.key), record.variant), record.key.to_vec())))
    }

    /// Returns a function that returns whether the index references a file.
    pub(super) fn known_files(&self) -> Result<impl Fn(FileId) -> bool + use<>, IndexError> {
        let table = self.database.begin_read()?.open_table(FILES)?;
        // On a read error, assume that the file is referenced, so that it is not removed.
        Ok(move |id: FileId| table.get(id.encode()).map_or(true, |row| row.is_some()))
    }

    /// Changes the index atomically, by calling `change` within a transaction.
    pub(super) fn write<T>(
        &self,
        change: impl FnOnce(&mut Writing<'_>) -> Result<T, IndexError>,
    ) -> Result<(T, Written), IndexError> {
        let transaction = self.begin_write()?;
        let (outcome, written) = {
            let mut writing = Writing::begin(&transaction)?;
            let outcome = change(&mut writing)?;
            (outcome, writing.end()?)
        };
        transaction.commit()?;
        Ok((outcome, written))
    }
}

/// Returns the range of the names of all variants of a key.
pub(super) fn range_of(primary: &Primary) -> std::ops::RangeInclusive<Id> {
    let (mut first, mut last) = ([0; 32], [0xff; 32]);
    first[..16].copy_from_slice(primary);
    last[..16].copy_from_slice(primary);
    first..=last
}

enum OpenFault {
    /// The file is not an index, or is damaged.
    Unreadable,
    /// The index has a different format version.
    Outdated,
    Other(IndexError),
}

impl From<IndexError> for OpenFault {
    fn from(fault: IndexError) -> Self {
        Self::Other(fault)
    }
}

/// Returns whether there are any non-empty body files.
fn has_bodies(folder: &Path) -> std::io::Result<bool> {
    for subfolder in std::fs::read_dir(folder.join("bodies"))? {
        for file in std::fs::read_dir(subfolder?.path())? {
            if file?.metadata()?.len() > 0 {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns whether content in the index, if there should be any, matches its record.
pub(super) fn is_intact(content: ContentLocation, body: Option<&[u8]>) -> bool {
    let holds = |body: &[u8], bytes: u64, sum: Checksum| body.len() as u64 == bytes && checksum(body) == sum;
    match content {
        ContentLocation::Inline { bytes, sum } => body.is_some_and(|body| holds(body, bytes, sum)),
        ContentLocation::None | ContentLocation::File { .. } => body.is_none(),
    }
}
