//! A small persistent store of digests, by the identity of a file version.
//!
//! The store only saves work: if it is damaged, digests are computed again, and no response fails. Only the threads of
//! the pool read and write it.

use crate::digests::{DIGESTS_BYTES, Digests};
use aws_lc_rs::digest::{SHA256, digest};
use flatout_os::clock;
use flatout_os::file::FileIdentity;
use redb::{Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// File name of the store in the state folder.
pub const FILE_NAME: &str = "digests.redb";

/// Maximum number of versions, which take about 50 MiB. Beyond that, the least recently used versions are removed.
pub(crate) const ENTRIES_MAX: u64 = 262_144;

/// Maximum number of unwritten entries. Further entries are dropped until the next flush.
const UNWRITTEN_MAX: usize = 1024;

/// Size of redb's cache, in bytes. redb's default is 1 GiB.
const CACHE_BYTES: usize = 1024 * 1024;

const KEY_BYTES: usize = 56;
/// Size of the digests, the day of the last use, and a checksum of these and the key.
const VALUE_BYTES: usize = DIGESTS_BYTES + 4 + 8;

type DigestKey = [u8; KEY_BYTES];
type DigestValue = [u8; VALUE_BYTES];

const TABLE: TableDefinition<'static, DigestKey, DigestValue> = TableDefinition::new("digests-1");

/// A redb database of digests, with the entries that have not been written yet.
#[derive(Debug)]
pub(crate) struct DigestStore {
    path: PathBuf,
    entries_max: u64,
    state: Mutex<DigestStoreState>,
}

#[derive(Debug)]
struct DigestStoreState {
    database: Option<Database>,
    unwritten: Vec<(DigestKey, DigestValue)>,
}

impl DigestStore {
    /// Opens or creates the store in `folder`. A store that cannot be read is renamed, and a new one is created. The
    /// warning says so.
    pub(crate) fn open(folder: &Path) -> (Self, Option<String>) {
        Self::open_with(folder, ENTRIES_MAX)
    }

    fn open_with(folder: &Path, entries_max: u64) -> (Self, Option<String>) {
        let path = folder.join(FILE_NAME);
        let (database, warning) = open_or_begin(&path);
        let state = Mutex::new(DigestStoreState { database, unwritten: Vec::new() });
        (Self { path, entries_max, state }, warning)
    }

    fn lock(&self) -> MutexGuard<'_, DigestStoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the stored digests of the version `identity`, and records that they were used today.
    pub(crate) fn get(&self, identity: &FileIdentity) -> Option<Digests> {
        let key = key_of(identity);
        let mut state = self.lock();
        let read = || -> Option<DigestValue> {
            let transaction = state.database.as_ref()?.begin_read().ok()?;
            Some(transaction.open_table(TABLE).ok()?.get(key).ok()??.value())
        };
        let value = read()?;
        let digests = digests_in(&key, &value)?;
        if day_in(&value) != today() {
            add_unwritten(&mut state, key, value_of(&key, &digests, today()));
        }
        Some(digests)
    }

    /// Stores the `digests` of the version `identity`. They can be read after the next [`DigestStore::flush`].
    pub(crate) fn put(&self, identity: &FileIdentity, digests: &Digests) {
        let key = key_of(identity);
        add_unwritten(&mut self.lock(), key, value_of(&key, digests, today()));
    }

    /// Writes the unwritten entries, and waits for the disk.
    pub(crate) fn flush(&self) {
        let mut state = self.lock();
        let unwritten = std::mem::take(&mut state.unwritten);
        if state.database.is_none() {
            // Another process had the database open at startup. This may have been the old process of an upgrade, which
            // may have exited by now.
            state.database = open_existing(&self.path);
        }
        let Some(database) = state.database.as_ref() else { return };
        if !unwritten.is_empty() && write(database, &unwritten, self.entries_max).is_none() {
            // The disk is full, or the store is damaged. The next flush opens it again.
            state.database = None;
        }
    }

    /// Returns the number of stored versions.
    #[cfg(test)]
    pub(crate) fn len(&self) -> u64 {
        let state = self.lock();
        let count = || state.database.as_ref()?.begin_read().ok()?.open_table(TABLE).ok()?.len().ok();
        count().unwrap_or(0)
    }
}

impl Drop for DigestStore {
    fn drop(&mut self) {
        self.flush();
    }
}

fn add_unwritten(state: &mut DigestStoreState, key: DigestKey, value: DigestValue) {
    if state.unwritten.len() < UNWRITTEN_MAX {
        state.unwritten.push((key, value));
    }
}

/// Writes `entries`. If the table then has more than `entries_max` entries, removes the least recently used. Returns
/// `None` if an operation fails.
fn write(database: &Database, entries: &[(DigestKey, DigestValue)], entries_max: u64) -> Option<()> {
    let transaction = database.begin_write().ok()?;
    {
        let mut table = transaction.open_table(TABLE).ok()?;
        for (key, value) in entries {
            table.insert(key, value).ok()?;
        }
        let count = table.len().ok()?;
        if count > entries_max {
            let mut days = Vec::new();
            for entry in table.iter().ok()? {
                let (key, value) = entry.ok()?;
                days.push((day_in(&value.value()), key.value()));
            }
            days.sort_unstable();
            let excess = count - entries_max + entries_max / 8;
            for (_, key) in days.iter().take(excess as usize) {
                table.remove(key).ok()?;
            }
        }
    }
    transaction.commit().ok()
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Opens or creates a store. Catches the panics of redb, which a damaged store can cause.
fn open_existing(path: &Path) -> Option<Database> {
    catch_unwind(AssertUnwindSafe(|| create_private(path).ok())).ok().flatten()
}

fn open_or_begin(path: &Path) -> (Option<Database>, Option<String>) {
    let shown = path.display();
    let broken = match catch_unwind(AssertUnwindSafe(|| open_checked(path))) {
        Ok(Ok(database)) => return (Some(database), None),
        // During an upgrade, the old process still has the database open.
        Ok(Err(DatabaseError::DatabaseAlreadyOpen)) => return (None, None),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "its content is invalid".to_owned(),
    };
    let aside = path.with_extension("redb.broken");
    if let Err(error) = fs::rename(path, &aside) {
        return (None, Some(format!("{shown}: {broken}; digests are not stored ({error})")));
    }
    let database = open_existing(path);
    let outcome = if database.is_some() { "recreated" } else { "digests are not stored" };
    (database, Some(format!("{shown}: {broken}; saved as {}, {outcome}", aside.display())))
}

/// Opens or creates the database. Only its owner can read a new database, whatever the umask.
fn create_private(path: &Path) -> Result<Database, DatabaseError> {
    // redb sets no file mode, but accepts an empty file as a new database.
    let private = fs::File::options().create(true).truncate(false).write(true).mode(0o600).open(path);
    drop(private.map_err(|error| DatabaseError::Storage(redb::StorageError::Io(error)))?);
    builder().create(path)
}

/// Opens or creates the database and its table, and commits a transaction, so that damage is found now.
fn open_checked(path: &Path) -> Result<Database, DatabaseError> {
    let database = create_private(path)?;
    let failed =
        |error: &dyn std::fmt::Display| DatabaseError::Storage(redb::StorageError::Corrupted(error.to_string()));
    let transaction = database.begin_write().map_err(|error| failed(&error))?;
    transaction.open_table(TABLE).map_err(|error| failed(&error))?;
    transaction.commit().map_err(|error| failed(&error))?;
    Ok(database)
}

fn key_of(identity: &FileIdentity) -> DigestKey {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&identity.device.to_le_bytes());
    key[8..16].copy_from_slice(&identity.inode.to_le_bytes());
    key[16..24].copy_from_slice(&identity.size_bytes.to_le_bytes());
    key[24..40].copy_from_slice(&identity.modified_ns.to_le_bytes());
    key[40..].copy_from_slice(&identity.changed_ns.to_le_bytes());
    key
}

fn value_of(key: &DigestKey, digests: &Digests, day: u32) -> DigestValue {
    let mut value = [0; VALUE_BYTES];
    value[..DIGESTS_BYTES].copy_from_slice(digests.as_bytes());
    value[DIGESTS_BYTES..DIGESTS_BYTES + 4].copy_from_slice(&day.to_le_bytes());
    let check = checksum(key, &value);
    value[DIGESTS_BYTES + 4..].copy_from_slice(&check);
    value
}

/// Returns the digests in `value`, or `None` if its checksum does not match. A wrong digest would be worse than none.
fn digests_in(key: &DigestKey, value: &DigestValue) -> Option<Digests> {
    if value[DIGESTS_BYTES + 4..] != checksum(key, value) {
        return None;
    }
    Digests::from_bytes(&value[..DIGESTS_BYTES])
}

fn day_in(value: &DigestValue) -> u32 {
    value[DIGESTS_BYTES..DIGESTS_BYTES + 4].iter().rev().fold(0, |day, &byte| day << 8 | u32::from(byte))
}

fn checksum(key: &DigestKey, value: &DigestValue) -> [u8; 8] {
    let hash = digest(&SHA256, &[&key[..], &value[..DIGESTS_BYTES + 4]].concat());
    let mut check = [0; 8];
    check.copy_from_slice(&hash.as_ref()[..8]);
    check
}

fn today() -> u32 {
    (clock::unix_s().max(0) / 86_400) as u32
}

/// Checks that an entry yields digests only if it is intact and belongs to its key. `bytes` are a key and a value. The
/// function also computes the correct checksum, so that fuzzing reaches the code behind it.
///
/// # Panics
/// Panics if a check fails.
#[cfg(feature = "fuzzing")]
pub fn check_entry(bytes: &[u8]) {
    let part = |at: usize, index: usize| bytes.get(at + index).copied().unwrap_or(0);
    let key: DigestKey = std::array::from_fn(|index| part(0, index));
    let mut value: DigestValue = std::array::from_fn(|index| part(KEY_BYTES, index));
    if let Some(digests) = digests_in(&key, &value) {
        assert_eq!(value_of(&key, &digests, day_in(&value)), value);
    }
    let check = checksum(&key, &value);
    value[DIGESTS_BYTES + 4..].copy_from_slice(&check);
    if let Some(digests) = digests_in(&key, &value) {
        assert_eq!(value_of(&key, &digests, day_in(&value)), value);
    }
    let (mut other_key, mut other_value) = (key, value);
    other_key[usize::from(key[0]) % KEY_BYTES] ^= 1;
    other_value[usize::from(key[1]) % VALUE_BYTES] ^= 1;
    assert!(digests_in(&other_key, &value).is_none() && digests_in(&key, &other_value).is_none());
}

#[cfg(test)]
mod tests {
    use super::{DigestStore, FILE_NAME, TABLE, key_of, value_of};
    use crate::digests::Digests;
    use crate::version::tests::temporary_folder;
    use flatout_os::file::FileIdentity;
    use std::fs;

    fn identity(inode: u64) -> FileIdentity {
        FileIdentity { device: 1, inode, size_bytes: 3, modified_ns: -5, changed_ns: 1_700_000_000_000_000_000 }
    }

    #[test]
    fn digests_outlive_their_process() {
        let folder = temporary_folder("digests");
        let digests = Digests::of_bytes(b"abc");
        let (digest_store, warning) = DigestStore::open(&folder);
        assert_eq!((digest_store.get(&identity(1)), warning), (None, None));
        digest_store.put(&identity(1), &digests);
        digest_store.flush();
        assert_eq!(digest_store.get(&identity(1)), Some(digests.clone()));
        // Another process finds it taken, and goes on without.
        let (second, warning) = DigestStore::open(&folder);
        assert_eq!((second.get(&identity(1)), warning), (None, None));
        second.put(&identity(2), &digests);
        drop(digest_store);
        // A process that another test starts at this moment holds the lock until it runs its program.
        let take_over = |store: &DigestStore| {
            while store.get(&identity(1)).is_none() {
                store.flush();
                std::thread::yield_now();
            }
        };
        take_over(&second);
        assert_eq!(second.get(&identity(1)), Some(digests.clone()));
        drop(second);
        let (digest_store, _) = DigestStore::open(&folder);
        take_over(&digest_store);
        assert_eq!((digest_store.get(&identity(1)), digest_store.len()), (Some(digests), 2));
        let changed = FileIdentity { changed_ns: 7, ..identity(1) };
        assert_eq!(digest_store.get(&changed), None);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn those_least_asked_for_are_forgotten() {
        let folder = temporary_folder("digests-bound");
        let (digest_store, _) = DigestStore::open_with(&folder, 80);
        let digests = Digests::of_bytes(b"abc");
        {
            let mut state = digest_store.lock();
            for inode in 0..80 {
                let key = key_of(&identity(inode));
                state.unwritten.push((key, value_of(&key, &digests, inode as u32)));
            }
        }
        digest_store.flush();
        assert_eq!(digest_store.len(), 80);
        // Asked for, so it is young again.
        assert!(digest_store.get(&identity(0)).is_some());
        digest_store.put(&identity(1000), &digests);
        digest_store.flush();
        assert_eq!(digest_store.len(), 70);
        let known = |inode| digest_store.get(&identity(inode)).is_some();
        assert!(known(0) && known(1000) && known(79) && !known(1) && !known(11) && known(12));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_broken_store_is_saved_under_another_name() {
        let folder = temporary_folder("digests-broken");
        let path = folder.join(FILE_NAME);
        let noise = vec![0xff; 100_000];
        for content in [&b"no store at all"[..], &noise, &[]] {
            fs::write(&path, content).unwrap();
            let (digest_store, warning) = DigestStore::open(&folder);
            assert_eq!(warning.is_some(), !content.is_empty(), "{warning:?}");
            digest_store.put(&identity(1), &Digests::of_bytes(b"abc"));
            digest_store.flush();
            assert!(digest_store.get(&identity(1)).is_some());
        }
        // A real one, cut in half.
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let (digest_store, warning) = DigestStore::open(&folder);
        assert!(warning.is_some_and(|text| text.contains("recreated")));
        assert!(digest_store.len() == 0);
        // A folder that is not there: nothing is kept, and nothing breaks.
        let (digest_store, warning) = DigestStore::open(&folder.join("none"));
        digest_store.put(&identity(1), &Digests::of_bytes(b"abc"));
        digest_store.flush();
        assert!(warning.is_some() && digest_store.get(&identity(1)).is_none());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_turned_bit_is_no_digest() {
        let folder = temporary_folder("digests-bit");
        let (digest_store, _) = DigestStore::open(&folder);
        let key = key_of(&identity(1));
        let mut value = value_of(&key, &Digests::of_bytes(b"abc"), super::today());
        value[40] ^= 1;
        {
            let state = digest_store.lock();
            let transaction = state.database.as_ref().unwrap().begin_write().unwrap();
            transaction.open_table(TABLE).unwrap().insert(key, value).unwrap();
            transaction.commit().unwrap();
        }
        assert_eq!(digest_store.get(&identity(1)), None);
        fs::remove_dir_all(folder).unwrap();
    }
}
