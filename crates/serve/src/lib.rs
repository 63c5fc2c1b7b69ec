//! A site of files: what is below one folder, and nothing else.
//!
//! The kernel keeps every request inside the folder (`openat2` with `RESOLVE_BENEATH`), whatever the path and the
//! symbolic links say. What is known of a file, its heads included, is kept from one request to the next and looked
//! at again at most once a `recheck`; a version is swapped whole, so no answer mixes two.
//!
//! | file | what it knows |
//! |---|---|
//! | [`root`] | opening below a folder, and why a name cannot be opened |
//! | [`version`] | one version of a file: identity, entity tag, heads, content |
//! | [`cache`] | versions by path, within bounds |
//! | `listing` | the page that lists a folder |
//! | [`media`] | media types |
//! | [`outcome`] | why each answer was what it was |
//! | [`site`] | from a request to a response |
//!
//! Absent by design: sockets, the lab, other sites.

pub mod cache;
pub mod files;
#[allow(dead_code)] // called by nothing yet
mod listing;
pub mod media;
pub mod outcome;
pub mod root;
pub mod site;
pub mod version;

pub use site::{Site, SiteOptions};
