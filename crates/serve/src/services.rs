//! Services shared by all workers: the thread pool, and its results for each version.
//!
//! Digests and encodings of a version are computed once, however many workers hold it. The workers share them through
//! one map, which is locked when a version is loaded and never when it is served.

use crate::digest_store::DigestStore;
use crate::digests::Digests;
use crate::encode::encode;
use crate::lazy::{ComputeGuard, LazyState, LazyValue};
use crate::thread_pool::{PoolFull, ThreadPool, Urgency};
use flatout_http::encoding::ContentCoding;
use flatout_os::file::FileIdentity;
use foldhash::fast::RandomState;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{Errno, pread, write};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

/// Upper bound of threads, so that the event loops keep their cores.
const THREADS_MAX: usize = 2;

/// Minimum size at which the map is swept of dead entries; otherwise at twice its size after the last sweep.
const SWEEP_MIN: usize = 1024;

/// The thread pool and its results.
#[derive(Debug)]
pub struct Services {
    pub(crate) thread_pool: ThreadPool,
    digest_store: Option<Arc<DigestStore>>,
    flushing: Arc<AtomicBool>,
    known: Mutex<KnownVersions>,
}

#[derive(Debug, Default)]
struct KnownVersions {
    facts: HashMap<FileIdentity, Weak<VersionFacts>, RandomState>,
    sweep_at: usize,
}

/// Results for one version, computed once for all workers.
#[derive(Debug, Default)]
pub(crate) struct VersionFacts {
    /// Digests of the version's plain content.
    pub(crate) digests: Arc<LazyValue<Digests>>,
    /// Its encodings, in the order of `ContentCoding::ALL` without the first; `None` in a slot if not worthwhile.
    encoded: [Arc<LazyValue<Option<Encoded>>>; 3],
}

impl VersionFacts {
    /// The slot for `coding`; `None` for plain content.
    pub(crate) fn encoded(&self, coding: ContentCoding) -> Option<&Arc<LazyValue<Option<Encoded>>>> {
        self.encoded.get((coding as usize).checked_sub(1)?)
    }
}

/// An encoding created at run time.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) content: EncodedContent,
    /// Its length in bytes.
    pub(crate) size_bytes: u64,
    pub(crate) digests: Arc<LazyValue<Digests>>,
}

#[derive(Debug)]
pub(crate) enum EncodedContent {
    /// Small enough for a copy per worker.
    Memory(Arc<[u8]>),
    /// A sealed unnamed file; each worker has a descriptor.
    File(OwnedFd, FileIdentity),
}

/// The source of a version's content for the thread pool.
#[derive(Debug)]
pub(crate) enum VersionSource {
    /// A copy.
    Memory(Arc<[u8]>),
    /// The version's file, validated before and after it is read.
    File(OwnedFd, FileIdentity),
}

impl Default for Services {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            thread_pool: ThreadPool::new(cores.min(THREADS_MAX)),
            digest_store: None,
            flushing: Arc::default(),
            known: Mutex::default(),
        }
    }
}

impl Services {
    /// Services that store digests in the folder `state`, if given; and a warning if stored ones are lost. That is
    /// never an error.
    pub fn open(state: Option<&Path>) -> (Self, Option<String>) {
        let (digest_store, warning) = state.map(DigestStore::open).unzip();
        (Self { digest_store: digest_store.map(Arc::new), ..Self::default() }, warning.flatten())
    }

    /// Jobs refused because the queue was full.
    pub fn refused(&self) -> u64 {
        self.thread_pool.refused()
    }

    /// The facts of the version `identity`, shared by all workers that have it. Only for versions whose identity
    /// cannot come to stand for other content.
    pub(crate) fn facts(&self, identity: FileIdentity) -> Arc<VersionFacts> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(facts) = known.facts.get(&identity).and_then(Weak::upgrade) {
            return facts;
        }
        if known.facts.len() >= known.sweep_at.max(SWEEP_MIN) {
            known.facts.retain(|_, facts| facts.strong_count() > 0);
            known.sweep_at = known.facts.len() * 2;
        }
        let facts = Arc::<VersionFacts>::default();
        known.facts.insert(identity, Arc::downgrade(&facts));
        facts
    }

    /// Requests the digests in `slot`, unless they exist, are in progress, or failed too often.
    pub(crate) fn make_digests(
        &self,
        slot: &Arc<LazyValue<Digests>>,
        kept_as: Option<FileIdentity>,
        source: impl FnOnce() -> Option<VersionSource>,
    ) -> Result<(), PoolFull> {
        let LazyState::Yours(making) = slot.begin() else { return Ok(()) };
        let Some(source) = source() else { return Err(PoolFull) };
        let digest_store = self.digest_store.clone();
        self.thread_pool.submit(Urgency::Patient, move || hash(making, &source, kept_as, digest_store.as_deref()))?;
        if let Some(digest_store) = &self.digest_store
            && !self.flushing.swap(true, Ordering::AcqRel)
        {
            // It queues behind earlier hashing jobs, so one commit contains all their results.
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

    /// Requests the encoding in `slot`. Returns true if it is in progress.
    pub(crate) fn make_encoded(
        &self,
        slot: &Arc<LazyValue<Option<Encoded>>>,
        coding: ContentCoding,
        urgency: Urgency,
        source: impl FnOnce() -> Option<VersionSource>,
    ) -> Result<bool, PoolFull> {
        match slot.begin() {
            LazyState::Never => Ok(false),
            LazyState::UnderWay => Ok(true),
            LazyState::Yours(making) => {
                let source = source().ok_or(PoolFull)?;
                self.thread_pool.submit(urgency, move || encode_source(making, coding, &source))?;
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
        VersionSource::File(fd, identity) => Digests::of_file(fd, identity),
    };
    if let Some(digests) = digests {
        if let Some((digest_store, identity)) = kept {
            digest_store.put(&identity, &digests);
        }
        making.finish(digests);
    }
}

fn encode_source(making: ComputeGuard<Option<Encoded>>, coding: ContentCoding, source: &VersionSource) {
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
    match encode(coding, content) {
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

/// All bytes of one version; `None` if it changed.
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

/// Stores small contents in memory and larger ones in an unnamed file, from which all workers send.
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
