//! Services that all workers share: the thread pool, and the digests and encodings that it computes.
//!
//! The digests and encodings of a version are computed once, however many workers hold the version. The workers share
//! them through maps, which are locked only when a version is loaded, not when it is served.

use crate::digest_store::DigestStore;
use crate::digests::{Digests, LARGE_FILE_BYTES};
use crate::encode::encode;
use crate::lazy::{ComputeGuard, LazyState, LazyValue};
use crate::thread_pool::{PoolFull, ThreadPool, Urgency};
use flatout_config::model::Compression;
use flatout_os::file::FileIdentity;
use flatout_os::random::HashState;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{Errno, pread, write};
use std::collections::HashMap;
use std::hash::Hash;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

/// Maximum number of threads in the pool. More would take cores from the event loops.
const THREADS_MAX: usize = 2;

/// Maximum number of queued jobs of each urgency.
const JOBS_MAX: usize = 256;

/// Maximum number of large files that wait to be hashed. Each holds a descriptor.
pub(crate) const LARGE_FILES_MAX: usize = 8;

/// Minimum number of entries at which dead entries are removed from a map. The next removal is due at twice the number
/// that is left, if that is more.
const SWEEP_MIN: usize = 1024;

/// The thread pool, and the values that it computes.
#[derive(Debug)]
pub struct Services {
    pub(crate) thread_pool: ThreadPool,
    /// Hashes large files one after the other, so that no other job waits for them, and clients that request many of
    /// them cannot occupy more than one core and one reader of the disk.
    large_files: ThreadPool,
    digest_store: Option<Arc<DigestStore>>,
    flushing: Arc<AtomicBool>,
    digests: Mutex<SharedValues<FileIdentity, Digests>>,
    encodings: Mutex<SharedValues<(FileIdentity, Compression), Option<Encoded>>>,
}

/// Computed values by key. A value exists as long as a worker holds it.
#[derive(Debug)]
struct SharedValues<K, T> {
    known: HashMap<K, Weak<LazyValue<T>>, HashState>,
    sweep_at: usize,
}

impl<K, T> Default for SharedValues<K, T> {
    fn default() -> Self {
        Self { known: HashMap::default(), sweep_at: SWEEP_MIN }
    }
}

impl<K: Eq + Hash, T> SharedValues<K, T> {
    /// Returns the value of `key`, which all callers share.
    fn get(values: &Mutex<Self>, key: K) -> Arc<LazyValue<T>> {
        let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = values.known.get(&key).and_then(Weak::upgrade) {
            return value;
        }
        if values.known.len() >= values.sweep_at {
            values.known.retain(|_, value| value.strong_count() > 0);
            values.sweep_at = SWEEP_MIN.max(values.known.len() * 2);
        }
        let value = Arc::default();
        values.known.insert(key, Arc::downgrade(&value));
        value
    }
}

/// An encoding that the thread pool creates. The value is `None` if encoding does not make the content smaller.
pub(crate) type LazyEncoding = Arc<LazyValue<Option<Encoded>>>;

/// An encoding created at run time.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) content: EncodedContent,
    /// Size of the encoding in bytes.
    pub(crate) size_bytes: u64,
    pub(crate) digests: Arc<LazyValue<Digests>>,
}

#[derive(Debug)]
pub(crate) enum EncodedContent {
    /// Content that is small enough for each worker to have a copy.
    Memory(Arc<[u8]>),
    /// A sealed unnamed file. Each worker has a descriptor for it.
    File(OwnedFd, FileIdentity),
}

/// The content of a version, as the thread pool reads it.
#[derive(Debug)]
pub(crate) enum VersionSource {
    /// A copy of the content.
    Memory(Arc<[u8]>),
    /// The file of the version. The thread pool checks its identity after reading.
    File(OwnedFd, FileIdentity),
}

impl Default for Services {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            thread_pool: ThreadPool::new(cores.min(THREADS_MAX), JOBS_MAX),
            large_files: ThreadPool::new(1, LARGE_FILES_MAX),
            digest_store: None,
            flushing: Arc::default(),
            digests: Mutex::default(),
            encodings: Mutex::default(),
        }
    }
}

impl Services {
    /// Creates services that store digests in the folder `state`, if it is `Some`. Returns a warning if stored digests
    /// are lost, which is not an error.
    pub fn open(state: Option<&Path>) -> (Self, Option<String>) {
        let (digest_store, warning) = state.map(DigestStore::open).unzip();
        (Self { digest_store: digest_store.map(Arc::new), ..Self::default() }, warning.flatten())
    }

    /// Returns the number of jobs that the thread pools have refused, usually because their queues were full.
    pub fn refused(&self) -> u64 {
        self.thread_pool.refused() + self.large_files.refused()
    }

    /// Returns the digests of the version `identity`, which all workers share. Only for settled versions, whose
    /// identity can never belong to other content.
    pub(crate) fn digests(&self, identity: FileIdentity) -> Arc<LazyValue<Digests>> {
        SharedValues::get(&self.digests, identity)
    }

    /// Returns the encoding of the version `identity`, which all workers share. Only for settled versions.
    pub(crate) fn encoding(&self, identity: FileIdentity, compression: Compression) -> LazyEncoding {
        SharedValues::get(&self.encodings, (identity, compression))
    }

    /// Submits the computation of the digests in `slot`, unless they exist, are being computed, or have failed too
    /// often.
    pub(crate) fn make_digests(
        &self,
        slot: &Arc<LazyValue<Digests>>,
        kept_as: Option<FileIdentity>,
        source: impl FnOnce() -> Option<VersionSource>,
    ) -> Result<(), PoolFull> {
        let LazyState::Yours(making) = slot.begin() else { return Ok(()) };
        let Some(source) = source() else { return Err(PoolFull) };
        let digest_store = self.digest_store.clone();
        if kept_as.is_some_and(|identity| identity.size_bytes > LARGE_FILE_BYTES) {
            return self.large_files.submit(Urgency::Patient, move || {
                hash(making, &source, kept_as, digest_store.as_deref());
                if let Some(digest_store) = digest_store {
                    digest_store.flush();
                }
            });
        }
        self.thread_pool.submit(Urgency::Patient, move || hash(making, &source, kept_as, digest_store.as_deref()))?;
        if let Some(digest_store) = &self.digest_store
            && !self.flushing.swap(true, Ordering::AcqRel)
        {
            // The flush queues behind earlier hashing jobs, so that one commit contains all their results.
            let (digest_store, flushing) = (Arc::clone(digest_store), Arc::clone(&self.flushing));
            let flush = move || {
                flushing.store(false, Ordering::Release);
                digest_store.flush();
            };
            if self.thread_pool.submit(Urgency::Patient, flush).is_err() {
                self.flushing.store(false, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Submits the encoding in `slot` if necessary. Returns true if it is queued or in progress, false if it exists or
    /// has failed too often.
    pub(crate) fn make_encoded(
        &self,
        slot: &LazyEncoding,
        compression: Compression,
        urgency: Urgency,
        source: impl FnOnce() -> Option<VersionSource>,
    ) -> Result<bool, PoolFull> {
        match slot.begin() {
            LazyState::Never => Ok(false),
            LazyState::UnderWay => Ok(true),
            LazyState::Yours(making) => {
                let source = source().ok_or(PoolFull)?;
                self.thread_pool.submit(urgency, move || encode_source(making, compression, &source))?;
                Ok(true)
            }
        }
    }
}

fn hash(
    making: ComputeGuard<Digests>,
    source: &VersionSource,
    kept_as: Option<FileIdentity>,
    digest_store: Option<&DigestStore>,
) {
    making.start();
    let kept = digest_store.zip(kept_as);
    if let Some(digests) = kept.and_then(|(digest_store, identity)| digest_store.get(&identity)) {
        return making.finish(digests);
    }
    let digests = match source {
        VersionSource::Memory(content) => Some(Digests::of_bytes(content)),
        // Stored digests are useful even if no worker has the version in its cache any more.
        VersionSource::File(fd, identity) => Digests::of_file(fd, identity, || kept.is_some() || making.is_wanted()),
    };
    if let Some(digests) = digests {
        if let Some((digest_store, identity)) = kept {
            digest_store.put(&identity, &digests);
        }
        making.finish(digests);
    }
}

fn encode_source(making: ComputeGuard<Option<Encoded>>, compression: Compression, source: &VersionSource) {
    making.start();
    let read;
    let content = match source {
        VersionSource::Memory(content) => &content[..],
        VersionSource::File(fd, identity) => {
            let Some(content) = read_version(fd, identity) else { return };
            read = content;
            &read
        }
    };
    match encode(compression, content) {
        Ok(None) => making.finish(None),
        Ok(Some(encoded)) => {
            let size_bytes = encoded.len() as u64;
            if let Some(content) = keep(encoded) {
                making.finish(Some(Encoded { content, size_bytes, digests: Arc::default() }));
            }
        }
        Err(_) => {}
    }
}

/// Reads the complete content of the version `identity` from `fd`. Returns `None` if reading fails, or if the file has
/// changed.
pub(crate) fn read_version(fd: &OwnedFd, identity: &FileIdentity) -> Option<Vec<u8>> {
    let mut content = vec![0; identity.size_bytes as usize];
    let mut read = 0;
    while read < content.len() {
        match pread(fd, &mut content[read..], read as u64) {
            Ok(0) => return None,
            Ok(count) => read += count,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    FileIdentity::read(fd).is_ok_and(|now| now == *identity).then_some(content)
}

/// Stores small content in memory, and larger content in an unnamed file, from which all workers send. Returns `None`
/// if that fails.
fn keep(content: Vec<u8>) -> Option<EncodedContent> {
    if content.len() as u64 <= crate::version::MEMORY_BYTES_MAX {
        return Some(EncodedContent::Memory(content.into()));
    }
    let fd = memfd_create("flatout-encoded", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).ok()?;
    let mut rest = &content[..];
    while !rest.is_empty() {
        match write(&fd, rest) {
            Ok(count) => rest = &rest[count..],
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL).ok()?;
    let identity = FileIdentity::read(&fd).ok()?;
    Some(EncodedContent::File(fd, identity))
}
