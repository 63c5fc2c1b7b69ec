//! Statistics of the store.

use flatout_handler::budget::BudgetUser;

/// Statistics of the whole store. Event counters start with the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreStats {
    /// Objects in memory.
    pub memory_objects: u64,
    /// Bytes in memory: content, metadata and overhead.
    pub memory_bytes: u64,
    /// Maximum of `memory_bytes`.
    pub memory_bytes_max: u64,
    /// Bytes held by each share of the budget.
    pub held: [(BudgetUser, u64); BudgetUser::ALL.len()],
    /// Descriptors held by objects in memory.
    pub descriptors: u64,
    /// Objects inserted.
    pub inserted: u64,
    /// Objects evicted from memory.
    pub evicted: u64,
    /// Lookups found in memory, without those served by per-worker caches.
    pub memory_hits: u64,
    /// Lookups not found in memory.
    pub memory_misses: u64,
    /// Lookups found on a disk.
    pub disk_hits: u64,
    /// Lookups not found on any disk, although one was read.
    pub disk_misses: u64,
    /// Markers, including expired ones that are not removed yet.
    pub markers: u64,
    /// Purges since the store was created.
    pub generation: u64,
    /// Entries in the purge log.
    pub purges_remembered: u64,
    /// Volumes in configured order.
    pub volumes: Vec<VolumeStats>,
}

impl Default for StoreStats {
    fn default() -> Self {
        Self {
            memory_objects: 0,
            memory_bytes: 0,
            memory_bytes_max: 0,
            held: BudgetUser::ALL.map(|share| (share, 0)),
            descriptors: 0,
            inserted: 0,
            evicted: 0,
            memory_hits: 0,
            memory_misses: 0,
            disk_hits: 0,
            disk_misses: 0,
            markers: 0,
            generation: 0,
            purges_remembered: 0,
            volumes: Vec::new(),
        }
    }
}

/// Statistics of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Its folder.
    pub folder: std::path::PathBuf,
    /// Its state.
    pub state: VolumeState,
    /// Reason why it is not in use; empty if it is.
    pub problem: String,
    /// Objects on it.
    pub objects: u64,
    /// Bytes of its objects, including metadata.
    pub bytes: u64,
    /// Maximum of `bytes`.
    pub bytes_max: u64,
    /// Objects evicted from it.
    pub evicted: u64,
    /// Objects written to it.
    pub written: u64,
    /// Objects not written because the queue was full.
    pub dropped: u64,
    /// Failed reads and writes.
    pub errors: u64,
    /// Objects queued for writing.
    pub queued: u64,
    /// Files without an index entry that were removed at the start.
    pub orphans: u64,
    /// True if all keys of its index are loaded, so that lookups of unknown keys skip it.
    pub is_loaded: bool,
}

/// State of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VolumeState {
    /// Read and written.
    #[default]
    Good,
    /// Read but not written: its file system is full although its budget is not used up.
    Full,
    /// Another process holds it; the store retries every second.
    Locked,
    /// It failed and stays out of use until the next start.
    Degraded,
    /// This process has released it to its successor.
    Released,
}

impl VolumeState {
    /// Name in metrics and status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Full => "full",
            Self::Locked => "locked",
            Self::Degraded => "degraded",
            Self::Released => "released",
        }
    }
}
