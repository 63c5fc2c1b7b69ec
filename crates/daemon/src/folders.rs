//! Folders whose paths name another folder now: a link was switched to the next release, or a build has deleted the
//! folder and created it again. flatout then puts the same configuration in force again, which opens the new folder.

use flatout_engine::spec::OpenedFolder;
use flatout_os::clock;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often the paths of folders are looked up.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long the next attempt waits after one that the worker process could not complete. It may have needed another
/// process, which takes much more than to look.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// When the paths were last looked up, and the last attempts to follow one.
#[derive(Debug)]
pub(crate) struct FolderLook {
    looked_at: Instant,
    /// When the worker process was last asked to open the folder; `None` if it has succeeded since.
    asked_at: Option<Instant>,
    /// Why the last attempt failed before.
    failure: Option<String>,
}

impl FolderLook {
    pub(crate) fn new() -> Self {
        Self { looked_at: clock::now(), asked_at: None, failure: None }
    }

    /// The time until the next look.
    pub(crate) fn time_left(&self) -> Duration {
        LOOK_INTERVAL.saturating_sub(clock::since(self.looked_at))
    }

    /// Returns a folder in `opened` that was replaced, if it is time to look.
    pub(crate) fn find_replaced(&mut self, opened: &[OpenedFolder]) -> Option<PathBuf> {
        if !self.time_left().is_zero() {
            return None;
        }
        self.looked_at = clock::now();
        if self.asked_at.is_some_and(|at| clock::since(at) < RETRY_INTERVAL) {
            return None;
        }
        opened.iter().find(|folder| folder.is_replaced()).map(|replaced| replaced.path().to_owned())
    }

    /// Notes that the worker process is asked to open the new folder.
    pub(crate) fn ask(&mut self) {
        self.asked_at = Some(clock::now());
    }

    /// Notes that a configuration was put in force, and so that its folders were opened.
    pub(crate) fn succeed(&mut self) {
        (self.asked_at, self.failure) = (None, None);
    }

    /// Notes that the new folder cannot be opened, perhaps because it is being built. Returns whether this is to be
    /// reported: not if the last attempt failed as well for the same reason.
    pub(crate) fn fail(&mut self, failure: String) -> bool {
        let is_new = self.failure.as_ref() != Some(&failure);
        self.failure = Some(failure);
        is_new
    }
}
