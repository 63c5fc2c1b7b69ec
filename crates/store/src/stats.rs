//! Statistics of the store.

use flatout_handler::budget::BudgetUser;

/// Statistics of the whole store. Counters of events start at 0 with the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Number of objects in memory.
    pub memory_objects: u64,
    /// Bytes used by objects in memory: content, metadata and overhead.
    pub memory_bytes: u64,
    /// Limit of `memory_bytes`.
    pub memory_bytes_max: u64,
    /// Bytes of the memory budget held by each user.
    pub held: Vec<(BudgetUser, u64)>,
    /// Number of file descriptors held by objects in memory.
    pub descriptors: u64,
    /// Number of objects inserted.
    pub inserted: u64,
    /// Number of objects evicted from memory.
    pub evicted: u64,
    /// Number of lookups that found the key in memory, not counting hits in per-worker caches.
    pub memory_hits: u64,
    /// Number of lookups that did not find the key in memory.
    pub memory_misses: u64,
    /// Number of lookups that found the key on a volume.
    pub disk_hits: u64,
    /// Number of lookups that read from a volume without finding the key.
    pub disk_misses: u64,
    /// Number of hit-for-miss markers, including expired ones that have not been removed yet.
    pub markers: u64,
    /// Number of purges since the store was created.
    pub generation: u64,
    /// Number of entries in the purge log.
    pub purges_remembered: u64,
    /// Statistics of each volume, in configuration order.
    pub volumes: Vec<VolumeStats>,
}

/// Statistics of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Path of the volume, as configured.
    pub folder: std::path::PathBuf,
    /// State of the volume.
    pub state: VolumeState,
    /// Reason why the volume is not written or not in use. Empty otherwise.
    pub problem: String,
    /// Number of objects on the volume.
    pub objects: u64,
    /// Bytes used by objects on the volume, including metadata.
    pub bytes: u64,
    /// Limit of `bytes`.
    pub bytes_max: u64,
    /// Number of objects evicted from the volume.
    pub evicted: u64,
    /// Number of objects written to the volume.
    pub written: u64,
    /// Number of objects that were not written, for instance because the queue was full.
    pub dropped: u64,
    /// Number of failed reads and writes.
    pub errors: u64,
    /// Number of objects queued for writing.
    pub queued: u64,
    /// Number of files without an index entry that were removed at the start.
    pub orphans: u64,
    /// True if all keys in the volume's index have been loaded, so that lookups of unknown keys skip the volume.
    pub is_loaded: bool,
}

flatout_reason::reasons! {
    /// State of a volume, which determines whether it is read and written.
    #[derive(Default)]
    pub enum VolumeState { name, }
    /// The volume is read and written.
    #[default]
    Good, "good";
    /// The volume is read but not written, because its file system is full although the volume is below its limit.
    Full, "full";
    /// The volume is locked by another process. The store retries every second.
    Locked, "locked";
    /// The volume failed and stays out of use until the next start.
    Degraded, "degraded";
    /// The volume has been released for a successor process.
    Released, "released";
}
