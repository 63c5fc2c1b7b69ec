//! The configuration: reads KDL 2 into typed settings, and reports all mistakes at once with their remedies.
//!
//! [`load`] reads a file with its includes, [`mod@format`] formats a file, [`adapt`] converts a file to JSON and back,
//! and [`encode`] prints a [`Config`] as KDL.
//!
//! Absent by design: sockets, handlers, the clock. Files and the environment are accessed only through [`Sources`].

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
    FILE_CHECK_INTERVAL_MS_DEFAULT, MEMORY_OBJECTS, OriginFault, SeenSettings, Shape, disks_fault, nearest,
    parse_addresses, parse_disk, parse_field_text, parse_memory, parse_origin, parse_php_address, property,
    report_unknown, show_origin,
};
pub use source::{Disk, MemorySource, Sources};

use diagnostic::Report;
use include::Loader;
use std::path::Path;

/// Reads a configuration with its includes. A file whose name ends in `.json` is read as JSON, any other as KDL.
pub fn load(path: &Path, sources: &dyn Sources) -> Result<Config, Diagnostics> {
    let mut report = Report::new();
    let loaded = Loader::new(sources, &mut report).load(path);
    let unread = report.count();
    let config = read::read(&loaded, sources, &mut report);
    if unread > 0 {
        report.keep_certain_since(unread, &loaded.texts);
    }
    if report.is_empty() { Ok(config) } else { Err(report.finish(&loaded.texts)) }
}

/// Returns the admin socket that the configuration at `path` specifies, as far as the file can be read. An operator
/// must be able to reach the process even if the file has become invalid since the process started.
pub fn load_admin(path: &Path, sources: &dyn Sources) -> model::Admin {
    let mut report = Report::new();
    let loaded = Loader::new(sources, &mut report).load(path);
    read::read(&loaded, sources, &mut report).admin
}

/// Reads a configuration from a string, as if it were the file `flatout.kdl` in the current folder. It cannot access
/// other files or the environment.
pub fn load_text(text: &str) -> Result<Config, Diagnostics> {
    let path = Path::new("flatout.kdl");
    load(path, &MemorySource::new().file(path, text))
}

/// The default settings of `files`, for a folder of which only the path is given.
pub fn files_defaults() -> model::Files {
    read::files_defaults()
}
