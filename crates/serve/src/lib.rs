//! Serves static files from below a folder, and no others.
//!
//! The kernel confines every request to the folder (`openat2` with `RESOLVE_BENEATH`), whatever the path and its
//! symbolic links are. The metadata, heads, encodings and digests of a file are cached and validated at most once per
//! `file-check-interval`. A version is replaced as a whole, so no response mixes two versions.
//!
//! | file | content |
//! |---|---|
//! | [`files`] | the `files` step: from a request to a response |
//! | `rules` | the settings of a `files` step |
//! | `file_request` | the parts of a request that determine the response |
//! | `answer`, `choice` | from a version to a response; selection of a representation |
//! | `version` | a version of a file |
//! | `entity_tag` | entity tags, which are the same on every machine |
//! | `representation` | a plain or encoded representation of a version: entity tag, heads, content |
//! | [`cache`] | versions by path, within limits |
//! | `listing` | folder listings |
//! | [`hidden`] | names of scripts and active pages, whose source is not served |
//! | [`services`], `thread_pool`, `lazy` | work that a thread pool does once for all workers |
//! | `digests`, `encode`, `digest_store` | hashing, compression, and persistent digests |
//! | [`media`] | media types |
//! | [`outcome`] | outcomes of responses |
//!
//! By design, this crate knows no sockets, sites or routes.

mod answer;
pub mod cache;
mod charset;
mod choice;
mod digest_store;
mod digests;
mod encode;
mod entity_tag;
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

pub use digest_store::FILE_NAME as DIGEST_FILE_NAME;
#[cfg(feature = "fuzzing")]
pub use digest_store::check_entry as check_digest_entry;
