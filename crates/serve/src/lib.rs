//! A site of files: what is below one folder, and nothing else.
//!
//! The kernel keeps every request inside the folder (`openat2` with `RESOLVE_BENEATH`), whatever the path and the
//! symbolic links say. What is known of a file, its heads, encodings and digests included, is kept from one request to
//! the next and looked at again at most once a `recheck`; a version is swapped whole, so no answer mixes two.
//!
//! | file | what it knows |
//! |---|---|
//! | [`files`] | a `files` step: from a request to what was found |
//! | `rules`, [`policy`] | its settings; the header steps in force |
//! | `question`, [`found`] | what an answer must know of its request, and what comes of it |
//! | `answer`, `choice` | from a version to a response; which representation |
//! | `version`, `representation` | one version of a file; one form of it: entity tag, heads, content |
//! | [`cache`] | versions by path, within bounds |
//! | `listing` | a folder as a page |
//! | [`services`], `workshop`, `slot` | what is made once for all workers, on threads of its own |
//! | `digests`, `encode`, `ledger` | hashing, compressing, and digests kept over restarts |
//! | [`media`] | media types |
//! | [`outcome`] | why each answer was what it was |
//!
//! Absent by design: sockets, sites, routes.

mod answer;
pub mod cache;
mod choice;
mod digests;
mod encode;
pub mod files;
pub mod found;
mod ledger;
mod listing;
pub mod media;
pub mod outcome;
pub mod policy;
mod question;
mod representation;
mod rules;
pub mod services;
mod slot;
pub mod sources;
mod version;
mod workshop;
