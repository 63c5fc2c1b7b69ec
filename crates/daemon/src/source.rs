//! The source of the configuration: a file, or flags.

use crate::failure::Failure;
use flatout_config::model::Config;
use flatout_config::{Disk, Style, load};
use std::path::{Path, PathBuf};

/// The source of the configuration.
#[derive(Clone, Debug)]
pub enum ConfigSource {
    /// This file and its includes.
    File(PathBuf),
    /// Settings from flags. They never change; a reload reopens the folders, certificates and logs they name.
    Flags(Box<Config>),
}

impl ConfigSource {
    /// Reads it. Diagnostics are in `style`.
    ///
    /// # Errors
    /// All diagnostics, if it is invalid: exit code 2.
    pub fn load(&self, style: Style) -> Result<Config, Failure> {
        match self {
            Self::File(path) => load(path, &Disk).map_err(|diagnostics| {
                let count = diagnostics.count();
                let errors = if count == 1 { "error" } else { "errors" };
                Failure::diagnostics(format!("{}\n{}: {count} {errors}", diagnostics.render(style), path.display()))
            }),
            Self::Flags(config) => Ok((**config).clone()),
        }
    }

    /// The file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Flags(_) => None,
        }
    }
}
