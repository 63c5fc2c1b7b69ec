//! inotify watches. A change below a watched folder increments a counter, so that cached metadata of files in the
//! folder is revalidated. There is one thread for all folders, and one for what it could not see; neither if no folder is
//! watched.

use crate::failure::Failure;
use flatout_engine::spec::Spec;
use flatout_os::clock;
use notify::event::{CreateKind, ModifyKind, RenameMode};
use notify::{Event, EventKind, INotifyWatcher, RecursiveMode, Watcher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time after which a new folder certainly has its watch. The watch is added after the folder is reported, so a change
/// between the two is not reported; what was cached between the two is revalidated after this time.
const SETTLES_AFTER: Duration = Duration::from_secs(1);

/// Counters with the canonical paths of their folders. If a folder was replaced by another with the same name, there
/// are two entries until the configuration with the first folder is dropped.
type Epochs = Vec<(PathBuf, Arc<AtomicU64>)>;

/// Watches the served folders with inotify.
pub(crate) struct FolderWatcher {
    watcher: INotifyWatcher,
    epochs: Arc<Mutex<Epochs>>,
}

impl FolderWatcher {
    /// Watches the folders of `spec`. Returns `None` if there are none.
    ///
    /// # Errors
    /// If no inotify watch is available.
    pub(crate) fn start(spec: &Spec) -> Result<Option<Self>, Failure> {
        let mut watch = None;
        extend(&mut watch, spec)?;
        Ok(watch)
    }

    fn new() -> Result<Self, Failure> {
        let epochs = Arc::new(Mutex::new(Epochs::new()));
        let failed = |error: notify::Error| Failure::runtime(format!("cannot watch for changes: {error}"));
        // One signal that waits stands for all later ones.
        let (settling, new_folders) = mpsc::sync_channel(1);
        let raised = Arc::clone(&epochs);
        std::thread::Builder::new()
            .name("watch-settle".to_owned())
            .spawn(move || raise_settled(&raised, &new_folders))
            .map_err(|error| failed(notify::Error::io(error)))?;
        let raised = Arc::clone(&epochs);
        let raise = move |event: notify::Result<Event>| {
            raise(&raised.lock().unwrap_or_else(PoisonError::into_inner), &event);
            if event.is_ok_and(|event| may_add_folder(event.kind)) {
                // A failure means that a signal already waits.
                let _ = settling.try_send(());
            }
        };
        let watcher = INotifyWatcher::new(raise, notify::Config::default()).map_err(failed)?;
        Ok(Self { watcher, epochs })
    }

    fn epochs(&self) -> MutexGuard<'_, Epochs> {
        self.epochs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds watches for `spec` before it is put into use. Cached metadata below a watched folder is valid until the
/// folder's counter increases, so a configuration with a folder that cannot be watched must be rejected.
///
/// # Errors
/// If no inotify watch is available.
pub(crate) fn extend(watch: &mut Option<FolderWatcher>, spec: &Spec) -> Result<(), Failure> {
    for (folder, epoch) in wanted(spec) {
        let watch = match watch {
            Some(watch) => watch,
            None => watch.insert(FolderWatcher::new()?),
        };
        let is_known = watch.epochs().iter().any(|(_, known)| Arc::ptr_eq(known, &epoch));
        if is_known {
            continue;
        }
        // The counter is added before the watch; otherwise, a change between the two calls would be missed.
        watch.epochs().push((folder.clone(), epoch));
        watch.watcher.watch(&folder, RecursiveMode::Recursive).map_err(|error| explain(&folder, &error))?;
    }
    Ok(())
}

/// Removes watches that `spec`, the configuration in use, does not need.
pub(crate) fn retain(watch: Option<&mut FolderWatcher>, spec: &Spec) {
    let Some(watch) = watch else { return };
    let wanted = wanted(spec);
    let gone: Epochs = watch
        .epochs()
        .extract_if(.., |(_, known)| !wanted.iter().any(|(_, epoch)| Arc::ptr_eq(known, epoch)))
        .collect();
    for (folder, _) in gone {
        if !wanted.iter().any(|(kept, _)| *kept == folder) {
            // The watch of a deleted folder no longer exists, so errors are ignored.
            let _ = watch.watcher.unwatch(&folder);
        }
    }
}

fn wanted(spec: &Spec) -> Epochs {
    // The kernel reports canonical paths.
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    spec.watched().map(|(path, epoch)| (real(path), Arc::clone(epoch))).collect()
}

/// Increments the counters of the folders to which `event` applies, or of all folders if events may have been lost.
fn raise(epochs: &Epochs, event: &notify::Result<Event>) {
    let paths = match event {
        Ok(event) if event.need_rescan() => None,
        // Read accesses change nothing.
        Ok(event) if matches!(event.kind, EventKind::Access(_)) => return,
        Ok(event) => Some(&event.paths),
        Err(_) => None,
    };
    for (folder, epoch) in epochs {
        if paths.is_none_or(|paths| paths.iter().any(|path| path.starts_with(folder))) {
            epoch.fetch_add(1, Ordering::Release);
        }
    }
}

/// Returns whether an event of this kind may report a new folder.
const fn may_add_folder(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::Create(CreateKind::Folder) | EventKind::Modify(ModifyKind::Name(RenameMode::To | RenameMode::Both))
    )
}

/// Increments all counters when the watches of new folders exist. Ends after the watcher is dropped.
fn raise_settled(epochs: &Mutex<Epochs>, new_folders: &mpsc::Receiver<()>) {
    while new_folders.recv().is_ok() {
        clock::sleep(SETTLES_AFTER);
        let lost = Err(notify::Error::generic("a change before the watch of a new folder"));
        raise(&epochs.lock().unwrap_or_else(PoisonError::into_inner), &lost);
    }
}

fn explain(folder: &Path, error: &notify::Error) -> Failure {
    let shown = folder.display();
    if let notify::ErrorKind::MaxFilesWatch = error.kind {
        return Failure::runtime(format!(
            "cannot watch {shown} and all its subfolders: the kernel allows too few watches\n  try: sysctl \
             fs.inotify.max_user_watches=1048576, or remove `watch`"
        ));
    }
    Failure::runtime(format!("cannot watch {shown} for changes: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{Epochs, FolderWatcher, raise};
    use notify::event::{AccessKind, Flag, ModifyKind};
    use notify::{Event, EventKind, RecursiveMode, Watcher};
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn only_the_folder_that_changed_is_raised_unless_something_was_missed() {
        let (one, two) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let epochs: Epochs = vec![("/srv/one".into(), Arc::clone(&one)), ("/srv/two".into(), Arc::clone(&two))];
        let event = |kind, path: &str| Ok(Event::new(kind).add_path(Path::new(path).to_owned()));
        let is = |ones: u64, twos: u64| (one.load(Ordering::Acquire), two.load(Ordering::Acquire)) == (ones, twos);
        raise(&epochs, &event(EventKind::Modify(ModifyKind::Any), "/srv/one/a/b"));
        assert!(is(1, 0));
        raise(&epochs, &event(EventKind::Access(AccessKind::Any), "/srv/one/a/b"));
        raise(&epochs, &event(EventKind::Modify(ModifyKind::Any), "/srv/onetwo"));
        assert!(is(1, 0));
        raise(&epochs, &Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan)));
        raise(&epochs, &Err(notify::Error::generic("lost")));
        assert!(is(3, 2));
    }

    #[test]
    fn new_files_in_new_folders_are_reported() {
        let folder = std::env::temp_dir().join(format!("flatout-watch-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let epoch = Arc::new(AtomicU64::new(0));
        let mut watch = FolderWatcher::new().unwrap();
        watch.epochs().push((folder.canonicalize().unwrap(), Arc::clone(&epoch)));
        watch.watcher.watch(&folder, RecursiveMode::Recursive).unwrap();
        let mut seen = 0;
        let mut wait_for_more = || {
            let begun = std::time::Instant::now();
            while epoch.load(Ordering::Acquire) <= seen {
                assert!(begun.elapsed().as_secs() < 60, "nothing was told");
                std::thread::yield_now();
            }
            seen = epoch.load(Ordering::Acquire);
        };
        std::fs::create_dir(folder.join("new")).unwrap();
        wait_for_more();
        std::fs::write(folder.join("new/file"), b"x").unwrap();
        wait_for_more();
        std::fs::remove_dir_all(folder).unwrap();
        wait_for_more();
    }
}
