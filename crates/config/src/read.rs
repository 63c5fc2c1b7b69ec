//! The tree to the model: every setting by name, every value in its bounds.
//!
//! A mistake never ends the reading: what cannot be read is left out, said, and the rest is read on.

pub(crate) mod cache;
mod check;
pub(crate) mod files;
pub(crate) mod guard;
pub(crate) mod log;
mod origin;
pub(crate) mod pages;
mod parse;
pub(crate) mod php;
mod pool;
mod private;
pub(crate) mod process;
pub(crate) mod proxy;
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
pub use shape::nearest;
pub use site::FILE_CHECK_INTERVAL_MS_DEFAULT;
pub use store::{MEMORY_OBJECTS, disks_fault, parse_disk, parse_memory};
pub(crate) use text::encode_text;
pub use text::parse_field_text;

use crate::diagnostic::{Report, Span, Texts};
use crate::model::{Config, Place};
use crate::source::Sources;
use crate::syntax::Node;
use std::path::{Path, PathBuf};

/// The reader's inputs besides the tree.
pub(crate) struct Reader<'a> {
    pub(crate) report: &'a mut Report,
    pub(crate) texts: &'a Texts,
    pub(crate) paths: &'a [PathBuf],
    pub(crate) sources: &'a dyn Sources,
}

impl Reader<'_> {
    /// The whole configuration. It is to be used only when the report stays empty.
    pub(crate) fn read(&mut self, nodes: &[Node]) -> Config {
        let mut config = process::read(self, nodes);
        config.files = self.paths.to_vec();
        config
    }

    fn place(&self, span: Span) -> Place {
        self.texts.place(span)
    }

    /// A path is relative to the file that it stands in.
    fn resolve(&self, span: Span, path: &str) -> PathBuf {
        let file = self.paths.get(span.file as usize);
        file.and_then(|file| file.parent()).unwrap_or(Path::new("")).join(path)
    }
}
