//! What the store tells about itself.

use flatout_net::budget::Share;

/// Figures of the whole store, since the process began where they count events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreStats {
    /// Objects in memory.
    pub memory_objects: u64,
    /// Bytes in memory, content, metadata and overhead.
    pub memory_bytes: u64,
    /// What those may be at the most.
    pub memory_bytes_max: u64,
    /// Bytes that each share of the budget holds.
    pub held: [(Share, u64); Share::ALL.len()],
    /// Descriptors held by objects in memory.
    pub descriptors: u64,
    /// Objects put in.
    pub inserted: u64,
    /// Objects that had to leave memory for others.
    pub evicted: u64,
    /// Look-ups that memory answered (those that a worker's front answered are not seen here).
    pub memory_hits: u64,
    /// Look-ups that memory could not answer.
    pub memory_misses: u64,
    /// Look-ups that a disk answered.
    pub disk_hits: u64,
    /// Look-ups that no disk could answer, although one was asked.
    pub disk_misses: u64,
    /// Markers in force or expired and still in their place.
    pub markers: u64,
    /// Purges since the store was first made.
    pub generation: u64,
    /// Entries of the purge log.
    pub purges_remembered: u64,
    /// The volumes, in configured order.
    pub volumes: Vec<VolumeStats>,
}

impl Default for StoreStats {
    fn default() -> Self {
        Self {
            memory_objects: 0,
            memory_bytes: 0,
            memory_bytes_max: 0,
            held: Share::ALL.map(|share| (share, 0)),
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

/// Figures of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Its folder.
    pub folder: std::path::PathBuf,
    /// How it is.
    pub state: VolumeState,
    /// Why it is not in use, in words; empty when it is.
    pub problem: String,
    /// Objects on it.
    pub objects: u64,
    /// Bytes of them, metadata included.
    pub bytes: u64,
    /// What those may be at the most.
    pub bytes_max: u64,
    /// Objects that had to leave it for others.
    pub evicted: u64,
    /// Objects written to it.
    pub written: u64,
    /// Objects not written because too much was waiting already.
    pub dropped: u64,
    /// Reads and writes that failed.
    pub errors: u64,
    /// Objects that wait to be written.
    pub queued: u64,
    /// Files without an index entry that were removed at the start.
    pub orphans: u64,
    /// Whether all of its index is known, so that look-ups of unknown keys need not ask it.
    pub is_loaded: bool,
}

/// How a volume is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VolumeState {
    /// Read and written.
    #[default]
    Good,
    /// Read, but not written: its file system has no room although its budget is not used up.
    Full,
    /// Another process has it; it is tried again every second.
    Locked,
    /// It failed, and is left alone until the next start.
    Degraded,
    /// This process has given it to its successor.
    Released,
}

impl VolumeState {
    /// The name in metrics and status.
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
