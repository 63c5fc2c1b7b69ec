//! Where the configuration comes from: a file, or flags.

use crate::failure::Failure;
use flatout_config::model::Config;
use flatout_config::{Disk, Style, load};
use std::path::{Path, PathBuf};

/// Where the configuration comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// This file, and those it includes.
    File(PathBuf),
    /// Settings made from flags. They are the same each time; the folders, certificates and logs they name are opened
    /// anew by a reload.
    Flags(Box<Config>),
}

impl Source {
    /// Reads it. Diagnostics are in `style`.
    ///
    /// # Errors
    /// With all diagnostics, when it makes no sense: exit code 2.
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

    /// The file, when there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Flags(_) => None,
        }
    }
}
