//! Folders of a configuration: opening them, and the `files` steps that serve them.

use super::compile::Compiler;
use super::{FilesSpec, Folder};
use flatout_config::model::{self, Place};
use flatout_os::root::{OpenFault, Root, check_kernel};
use flatout_serve::outcome::FileOutcome;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

impl Compiler<'_> {
    /// Opens the folder at `path`, once for all steps. If it was open in the previous configuration and is still the
    /// same folder, it is reused.
    pub(super) fn open_folder(&mut self, place: &Place, path: &Path, watched: bool) -> Option<Folder> {
        if let Some(known) = self.spec.folders.iter_mut().find(|folder| folder.path == path) {
            known.watched |= watched;
            return Some(known.clone());
        }
        let shown = path.display();
        let metadata = match path.metadata() {
            Ok(metadata) if metadata.is_dir() => metadata,
            Ok(_) => {
                self.fail(place, format!("`{shown}` is not a folder"), "specify the folder that contains the files");
                return None;
            }
            Err(error) => {
                let advice = match error.kind() {
                    io::ErrorKind::NotFound => "create the folder, or correct its name",
                    io::ErrorKind::PermissionDenied => {
                        "give the user that starts flatout permission to access the folder"
                    }
                    _ => "check whether `ls -la` can list the folder",
                };
                self.fail(place, format!("the folder `{shown}` cannot be used: {}", describe(&error)), advice);
                return None;
            }
        };
        let (identity, owner) = ((metadata.dev(), metadata.ino()), metadata.uid());
        let same = |folder: &&Folder| folder.path == path && folder.identity == identity;
        if let Some(before) = self.previous.and_then(|previous| previous.folders.iter().find(same)) {
            let folder = Folder { owner, watched, ..before.clone() };
            self.spec.folders.push(folder.clone());
            return Some(folder);
        }
        let opened = check_kernel(path).and_then(|()| Root::open(path));
        match opened {
            Ok(root) => {
                let (root, epoch) = (Arc::new(root), Arc::new(AtomicU64::new(0)));
                let folder = Folder { path: path.to_owned(), identity, owner, root, epoch, watched };
                self.spec.folders.push(folder.clone());
                Some(folder)
            }
            Err(error) => {
                const NEEDS: &str = "flatout needs openat2: Linux 5.6 or newer, and no sandbox that forbids the call";
                const DENIED: &str = "give the user of this process access to it and to the folders above";
                let what = format!("the folder `{shown}` cannot be opened safely: {}", describe(&error));
                self.fail(place, what, if error.kind() == io::ErrorKind::PermissionDenied { DENIED } else { NEEDS });
                None
            }
        }
    }

    /// Adds a `files` step for `folder`, whose symbolic links may lead into the folders `trusted`. Returns its index in
    /// [`Spec::files`](super::Spec::files).
    pub(super) fn add_files(
        &mut self,
        folder: &Folder,
        trusted: &[Folder],
        settings: model::Files,
        site: &model::Site,
    ) -> u32 {
        let epoch = site.watch.then(|| Arc::clone(&folder.epoch));
        let trusted: Vec<Arc<Root>> = trusted.iter().map(|folder| Arc::clone(&folder.root)).collect();
        let root =
            if trusted.is_empty() { Arc::clone(&folder.root) } else { Arc::new(folder.root.trusting(trusted.clone())) };
        let folders = [Arc::clone(&folder.root)].into_iter().chain(trusted).collect();
        let sources = self.sources(&settings.root, site);
        let mut files = FilesSpec {
            id: 0,
            root,
            folders,
            settings,
            file_check_interval_ms: site.file_check_interval_ms,
            epoch,
            sources,
        };
        if let Some(index) = self.spec.files.iter().position(|other| other.is_same(&files)) {
            return index as u32;
        }
        let before = self.previous.and_then(|previous| previous.files.iter().find(|other| other.is_same(&files)));
        if let Some(before) = before {
            files.id = before.id;
        } else {
            files.id = self.spec.next_files_id;
            self.spec.next_files_id = self.spec.next_files_id.wrapping_add(1);
        }
        self.spec.files.push(files);
        self.spec.files.len() as u32 - 1
    }
}

/// Returns the reason for a fault, as the end of a sentence.
pub(super) fn describe_fault(fault: OpenFault) -> String {
    FileOutcome::from(fault).text().split(": ").next().unwrap_or_default().trim_end_matches('.').to_lowercase()
}

/// Returns the reason for an error, as the end of a sentence.
fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
