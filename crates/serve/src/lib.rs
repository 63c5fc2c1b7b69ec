//! Static files: everything below one folder, and nothing else.
//!
//! The kernel confines every request to the folder (`openat2` with `RESOLVE_BENEATH`), whatever the path and its
//! symbolic links. A file's metadata, heads, encodings and digests are cached and validated at most once per
//! `file-check-interval`; a version is swapped as a whole, so no response mixes two.
//!
//! | file | content |
//! |---|---|
//! | [`files`] | the `files` step: from a request to a result |
//! | `rules` | its settings |
//! | `file_request` | the relevant parts of a request |
//! | `answer`, `choice` | from a version to a response; selection of a representation |
//! | `version`, `representation` | one version of a file; one form of it: entity tag, heads, content |
//! | [`cache`] | versions by path, within bounds |
//! | `listing` | directory listings |
//! | [`services`], `thread_pool`, `slot` | work done once for all workers, on a thread pool |
//! | `digests`, `encode`, `digest_store` | hashing, compression, and persistent digests |
//! | [`media`] | media types |
//! | [`outcome`] | outcomes of responses |
//!
//! Absent by design: sockets, sites, routes.

mod answer;
pub mod cache;
mod choice;
mod digest_store;
mod digests;
mod encode;
mod file_request;
pub mod files;
pub mod hidden;
mod lazy;
mod listing;
pub mod media;
pub mod outcome;
pub mod representation;
mod rules;
pub mod services;
mod thread_pool;
mod version;
