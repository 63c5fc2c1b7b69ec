//! Reads the syntax tree into the model: finds every setting by name and checks every value's bounds.
//!
//! A mistake does not stop the reader: it reports and skips whatever it cannot read, and continues.

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
pub use shape::{SeenSettings, Shape, nearest, property, report_unknown};
pub use site::FILE_CHECK_INTERVAL_MS_DEFAULT;
pub use store::{MEMORY_OBJECTS, disks_fault, parse_disk, parse_memory};
pub(crate) use text::encode_text;
pub use text::parse_field_text;

use crate::diagnostic::{Report, Span, Texts};
use crate::model::{Config, Place};
use crate::source::Sources;
use crate::syntax::Node;
use std::path::{Path, PathBuf};

/// The inputs of the reader other than the tree, and its report.
pub(crate) struct Reader<'a> {
    pub(crate) report: &'a mut Report,
    pub(crate) texts: &'a Texts,
    pub(crate) paths: &'a [PathBuf],
    pub(crate) sources: &'a dyn Sources,
    /// The contents of the files that `(file)` values have referred to so far.
    pub(crate) secrets: Vec<String>,
}

impl Reader<'_> {
    /// Reads the whole configuration. The result is valid only if the report is still empty afterwards.
    pub(crate) fn read(&mut self, nodes: &[Node]) -> Config {
        let mut config = process::read(self, nodes);
        config.share_trust();
        config.files = self.paths.to_vec();
        config.secrets = std::mem::take(&mut self.secrets);
        config
    }

    fn place(&self, span: Span) -> Place {
        self.texts.place(span)
    }

    /// Resolves a path relative to the file that mentions it.
    fn resolve(&self, span: Span, path: &str) -> PathBuf {
        let file = self.paths.get(span.file as usize);
        file.and_then(|file| file.parent()).unwrap_or(Path::new("")).join(path)
    }
}
