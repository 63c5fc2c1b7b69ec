//! Settings of the shared cache of responses from origins.

use super::Cidr;
use flatout_cache::rules::Rules;
use std::path::PathBuf;

flatout_reason::defaults! {
    /// Settings of `cache`: a shared cache for the responses of the `proxy` handlers that follow.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CacheSettings {
        /// Rules that decide which responses are stored, and for how long.
        pub rules: Rules,
        /// The largest response that is fetched whole when a client requests a range, in bytes; 0 to never do so.
        pub range_fetch_bytes_max: u64 = 16 * 1024 * 1024,
        /// The clients that receive the Cache-Status field.
        pub status_field: StatusField = StatusField::Everybody,
        /// The networks whose clients may use the PURGE method; empty if no client may.
        pub purge: Vec<Cidr>,
        /// True if ESI is processed in HTML from origins that request it (Surrogate-Control: content="ESI/1.0").
        pub esi: bool = false,
        /// True if a 103 with the Link fields of a stale stored response is sent while the response is revalidated.
        pub early_hints: bool = true,
    }
}

/// The clients that receive the Cache-Status field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StatusField {
    /// All clients.
    #[default]
    Everybody,
    /// Clients in these networks.
    Networks(Vec<Cidr>),
    /// No client.
    Nobody,
}

flatout_reason::defaults! {
    /// Limits of the store, which all caches share.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct StoreBudget {
        /// The maximum size of content in memory, in bytes; `None` for a quarter of the memory limit of the process's
        /// cgroup, or [`MEMORY_BYTES_DEFAULT`](Self::MEMORY_BYTES_DEFAULT) if it has no limit.
        pub memory_bytes_max: Option<u64>,
        /// The maximum number of objects in memory.
        pub memory_objects_max: u64 = 1_000_000,
        /// The folder of each volume on disk, and the volume's limit in bytes.
        pub disks: Vec<(PathBuf, u64)>,
    }
}

impl StoreBudget {
    /// The maximum size of content in memory, in bytes, if neither the configuration nor a cgroup sets a limit.
    pub const MEMORY_BYTES_DEFAULT: u64 = 256 * 1024 * 1024;
}
