//! Compilation of `php` steps, and determination of which files are scripts.

use super::PhpSpec;
use super::compile::Compiler;
use crate::step::Kind;
use flatout_config::model::{self, Config, Handler, Place, StepKind};
use flatout_fastcgi::PhpStep;
use flatout_pages::SOURCE_ENDINGS;
use flatout_serve::hidden::SourceNames;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns every folder whose scripts any site runs, with the suffixes of script names.
pub(super) fn script_folders(config: &Config) -> Vec<(PathBuf, Vec<String>)> {
    config.steps().filter_map(php_of).map(|php| (real(&php.root), php.split.clone())).collect()
}

fn php_of(step: &model::Step) -> Option<&model::Php> {
    if let StepKind::Handler(Handler::Php(php)) = &step.kind { Some(php) } else { None }
}

/// Returns the canonical path of a folder, or the path as written if that cannot be determined.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

impl Compiler<'_> {
    /// Returns the names in the folder `root` whose content `site` must not disclose: sources of pages, if any site has
    /// pages, and scripts, if the site runs scripts or any site runs scripts in this folder, a parent or a subfolder.
    pub(super) fn sources(&self, root: &Path, site: &model::Site) -> Option<Arc<SourceNames>> {
        let mut suffixes: Vec<String> = Vec::new();
        if !self.scripts.is_empty() {
            suffixes.extend(site.steps().filter_map(php_of).flat_map(|php| &php.split).cloned());
            let root = real(root);
            for (folder, split) in &self.scripts {
                if folder.starts_with(&root) || root.starts_with(folder) {
                    suffixes.extend_from_slice(split);
                }
            }
        }
        let mut names = SourceNames::default();
        if !suffixes.is_empty() {
            names = names.with_scripts(suffixes.iter().map(String::as_str));
        }
        if self.has_pages {
            names = names.with_pages(SOURCE_ENDINGS.iter().copied());
        }
        (names != SourceNames::default()).then(|| Arc::new(names))
    }

    /// Adds a `php` step. If the previous configuration has an equal one, it is reused along with its connections.
    pub(super) fn add_php(&mut self, place: &Place, settings: &model::Php, site: &model::Site) -> Option<Kind> {
        // Open the folder to check it, to report errors in the usual way, and to make it accessible in the sandbox.
        self.open_folder(place, &settings.root, false)?;
        let before = self.previous.and_then(|previous| {
            previous.php.iter().map(|php| &php.step).find(|step| step.is(settings)).map(Arc::clone)
        });
        let create = || PhpStep::new(settings, self.spec.accelerator.events()).map(Arc::new);
        let step = match before.map_or_else(create, Ok) {
            Ok(step) => step,
            Err(error) => {
                let what = format!("the folder `{}` cannot be used: {error}", settings.root.display());
                self.fail(place, what, "specify the folder that contains the scripts");
                return None;
            }
        };
        let mut files = |folder: &Path| {
            let opened = self.open_folder(place, folder, site.watch)?;
            let settings = model::Files { root: folder.to_owned(), hidden: true, ..model::Files::default() };
            Some(self.add_files(&opened, &[], settings, site))
        };
        let mut sendfile = Vec::new();
        for folder in &settings.sendfile {
            let index = files(folder)?;
            // A script may use the path as configured or with symbolic links resolved.
            let written = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
            let real = real(folder);
            if real != written {
                sendfile.push((real, index));
            }
            sendfile.push((written, index));
        }
        let mut accel = Vec::new();
        for (prefix, folder) in &settings.accel {
            accel.push((prefix.clone(), files(folder)?));
        }
        accel.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        self.spec.php.push(PhpSpec { step, sendfile, accel });
        Some(Kind::Php(self.spec.php.len() as u32 - 1))
    }
}
