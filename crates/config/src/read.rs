//! Reads the syntax tree into the model: finds every setting by name and checks every value's bounds.
//!
//! A mistake does not stop the reader: it reports and skips whatever it cannot read, and continues.
//!
//! The modules are in layers. The primitives import no block: [`reader`], [`parse`], [`shape`], [`value`], [`text`] and
//! [`setting`], and [`field`], [`network`], [`origin`] and [`operations`], which read what blocks share. A block imports
//! primitives and the blocks in it; only [`step`] and [`route`] contain each other. [`registry`] imports all blocks, and
//! no block imports it.

pub(crate) mod cache;
mod check;
mod field;
pub(crate) mod files;
pub(crate) mod guard;
pub(crate) mod log;
mod network;
pub(crate) mod operations;
mod origin;
pub(crate) mod pages;
mod parse;
pub(crate) mod php;
mod pool;
mod private;
pub(crate) mod process;
pub(crate) mod proxy;
mod reader;
mod registry;
mod route;
mod setting;
mod shape;
pub(crate) mod site;
mod sockets;
mod step;
mod store;
mod text;
mod value;

pub(crate) use files::defaults as files_defaults;
pub use origin::{OriginFault, parse_origin, show_origin};
pub use parse::addresses as parse_addresses;
pub use php::parse_php_address;
pub use shape::{SeenSettings, Shape, nearest, property, report_unknown};
pub use site::FILE_CHECK_INTERVAL_MS_DEFAULT;
pub use store::{MEMORY_OBJECTS, disks_fault, parse_disk, parse_memory};
pub(crate) use text::encode_text;
pub use text::parse_field_text;

use crate::diagnostic::Report;
use crate::include::Loaded;
use crate::model::Config;
use crate::source::Sources;
use reader::Reader;

/// Reads the whole configuration. The result is valid only if nothing has been added to the report afterwards.
pub(crate) fn read(loaded: &Loaded, sources: &dyn Sources, report: &mut Report) -> Config {
    let Loaded { nodes, texts, paths } = loaded;
    let mut reader = Reader { report, texts, paths, sources, home_of: registry::home_of, secrets: Vec::new() };
    let mut config = process::read(&mut reader, nodes);
    config.share_trust();
    config.files.clone_from(paths);
    config.secrets = reader.secrets;
    config
}
