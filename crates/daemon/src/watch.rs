//! The kernel tells of changes below watched folders (inotify), and a number goes up: whoever holds what is known of
//! files there looks again. One thread for all folders, and none without any.

use crate::failure::{Failure, say};
use flatout_engine::spec::Spec;
use notify::{Event, EventKind, INotifyWatcher, RecursiveMode, Watcher};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Numbers by folder, as the kernel names it.
type Epochs = BTreeMap<PathBuf, Arc<AtomicU64>>;

/// What watches.
pub(crate) struct Watch {
    watcher: INotifyWatcher,
    epochs: Arc<Mutex<Epochs>>,
}

impl Watch {
    /// Watches what `spec` wants watched; `None` when that is nothing.
    ///
    /// # Errors
    /// When the kernel has no watch for us.
    pub(crate) fn start(spec: &Spec) -> Result<Option<Self>, Failure> {
        let wanted = wanted(spec);
        if wanted.is_empty() {
            return Ok(None);
        }
        let epochs = Arc::new(Mutex::new(Epochs::new()));
        let raised = Arc::clone(&epochs);
        let raise = move |event: notify::Result<Event>| {
            raise(&raised.lock().unwrap_or_else(PoisonError::into_inner), &event);
        };
        let failed = |error: notify::Error| Failure::runtime(format!("cannot watch for changes: {error}"));
        let watcher = INotifyWatcher::new(raise, notify::Config::default()).map_err(failed)?;
        let mut watch = Self { watcher, epochs };
        watch.follow(&wanted)?;
        Ok(Some(watch))
    }

    /// Watches these folders and no others.
    fn follow(&mut self, wanted: &Epochs) -> Result<(), Failure> {
        let before =
            std::mem::replace(&mut *self.epochs.lock().unwrap_or_else(PoisonError::into_inner), wanted.clone());
        for folder in before.keys().filter(|folder| !wanted.contains_key(*folder)) {
            // A folder that is gone is watched no more in any case.
            let _ = self.watcher.unwatch(folder);
        }
        for folder in wanted.keys().filter(|folder| !before.contains_key(*folder)) {
            self.watcher.watch(folder, RecursiveMode::Recursive).map_err(|error| explain(folder, &error))?;
        }
        Ok(())
    }
}

/// Brings what is watched to what `spec` wants. It is called when `spec` is in force, so what cannot be watched is
/// reported, and looked at by raising its number never: the interval between two looks holds for it.
pub(crate) fn follow(watch: &mut Option<Watch>, spec: &Spec) {
    let followed = match watch {
        Some(watch) => watch.follow(&wanted(spec)),
        None => Watch::start(spec).map(|started| *watch = started),
    };
    if let Err(failure) = followed {
        say(&format!("warning: {failure}"));
    }
}

fn wanted(spec: &Spec) -> Epochs {
    // The kernel tells real names.
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    spec.watched().map(|(path, epoch)| (real(path), Arc::clone(epoch))).collect()
}

/// Raises the numbers of the folders that `event` is about; of all, when something may have been missed.
fn raise(epochs: &Epochs, event: &notify::Result<Event>) {
    let paths = match event {
        Ok(event) if event.need_rescan() => None,
        // Reading a file changes nothing.
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

fn explain(folder: &Path, error: &notify::Error) -> Failure {
    let shown = folder.display();
    if let notify::ErrorKind::MaxFilesWatch = error.kind {
        return Failure::runtime(format!(
            "cannot watch {shown} and all folders below it: the kernel allows too few watches\n  \
             try: sysctl fs.inotify.max_user_watches=1048576, or leave `watch` out"
        ));
    }
    Failure::runtime(format!("cannot watch {shown} for changes: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{Epochs, raise};
    use notify::event::{AccessKind, Flag, ModifyKind};
    use notify::{Event, EventKind};
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn only_the_folder_that_changed_is_raised_unless_something_was_missed() {
        let (one, two) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let epochs = Epochs::from([("/srv/one".into(), Arc::clone(&one)), ("/srv/two".into(), Arc::clone(&two))]);
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
}
