//! What all proxies and caches of the process share.

/// One for the process.
#[derive(Debug, Default)]
pub struct Accelerator {}
