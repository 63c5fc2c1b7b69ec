//! The configuration: KDL 2 to typed settings, with all mistakes at once and what to do about each.
//!
//! [`load`] reads a file with all that it includes; the rest is for people: [`mod@format`] writes a file neatly, [`adapt`]
//! has its exact JSON twin, [`encode`] prints a [`Config`] back.
//!
//! Absent by design: sockets, handlers, the clock. Files and the environment come from [`Sources`] only.

pub mod adapt;
pub mod code;
pub mod diagnostic;
pub mod encode;
pub mod format;
mod glob;
mod include;
pub mod model;
mod read;
pub mod source;
pub mod syntax;

pub use code::Code;
pub use diagnostic::{Diagnostic, Diagnostics, Style};
pub use encode::to_kdl;
pub use model::Config;
pub use read::{
    FILE_CHECK_INTERVAL_MS_DEFAULT, MEMORY_OBJECTS, OriginFault, disks_fault, nearest, parse_addresses, parse_disk,
    parse_field_text, parse_memory, parse_origin, parse_php_address, show_origin,
};
pub use source::{Disk, MemorySource, Sources};

use diagnostic::Report;
use include::Loader;
use read::Reader;
use std::path::Path;

/// Reads a configuration, KDL or (by its name, `.json`) JSON, with all that it includes.
pub fn load(path: &Path, sources: &dyn Sources) -> Result<Config, Diagnostics> {
    let mut report = Report::new();
    let loaded = Loader::new(sources, &mut report).load(path);
    let unread = report.count();
    let mut reader = Reader { report: &mut report, texts: &loaded.texts, paths: &loaded.paths, sources };
    let config = reader.read(&loaded.nodes);
    if unread > 0 {
        report.keep_certain_since(unread, &loaded.texts);
    }
    if report.is_empty() { Ok(config) } else { Err(report.finish(&loaded.texts)) }
}

/// The admin socket that the configuration at `path` names, as far as that can be read: an operator must find the process when
/// the configuration has got a mistake since.
pub fn load_admin(path: &Path, sources: &dyn Sources) -> model::Admin {
    let mut report = Report::new();
    let loaded = Loader::new(sources, &mut report).load(path);
    Reader { report: &mut report, texts: &loaded.texts, paths: &loaded.paths, sources }.read(&loaded.nodes).admin
}

/// Reads a text as if it were the file `flatout.kdl` in the current folder, with nothing beside it and no environment.
pub fn load_text(text: &str) -> Result<Config, Diagnostics> {
    let path = Path::new("flatout.kdl");
    load(path, &MemorySource::new().file(path, text))
}

/// The configuration for a folder given only by its path.
pub fn files_defaults() -> model::Files {
    read::files_defaults()
}
