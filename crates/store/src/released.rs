//! Memory files that have left the store, or were never stored, while clients are still reading them. They count against
//! the budget until they are closed.

use crate::body::StoredBody;
use crate::hold;
use flatout_handler::budget::{Budget, BudgetUser, Held};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};

/// Number of entries checked whenever a file is added. More than one, so that the list shrinks.
const SWEEP_COUNT: usize = 4;

/// List of released files.
#[derive(Debug)]
pub(crate) struct Released {
    budget: Arc<Budget>,
    files: Mutex<VecDeque<(Weak<OwnedFd>, Held)>>,
}

impl Released {
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), files: Mutex::default() }
    }

    /// Counts the memory file of `body` against the budget until it is closed. Other kinds of content are not counted.
    pub(crate) fn add(&self, body: &StoredBody) {
        let StoredBody::File { fd, bytes, place: None } = body else { return };
        let mut held = Held::new(Arc::clone(&self.budget), BudgetUser::Released);
        held.set(*bytes);
        self.add_held(fd, held);
    }

    /// Keeps `held`, the memory of the file `fd`, until the file is closed.
    pub(crate) fn add_held(&self, fd: &Arc<OwnedFd>, mut held: Held) {
        held.move_to(BudgetUser::Released);
        hold(&self.files).push_back((Arc::downgrade(fd), held));
        self.sweep(SWEEP_COUNT);
    }

    /// Stops counting the memory file of `body`, which is stored again. That happens if a validation began before the
    /// file was released.
    pub(crate) fn remove(&self, body: &StoredBody) {
        let StoredBody::File { fd, place: None, .. } = body else { return };
        hold(&self.files).retain(|(file, _)| !std::ptr::eq(file.as_ptr(), Arc::as_ptr(fd)));
    }

    /// Checks up to `count_max` entries, and drops those whose file has been closed.
    pub(crate) fn sweep(&self, count_max: usize) {
        let mut files = hold(&self.files);
        for _ in 0..count_max.min(files.len()) {
            if let Some(entry) = files.pop_front()
                && entry.0.strong_count() > 0
            {
                files.push_back(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Released;
    use crate::body::StoredBody;
    use flatout_handler::budget::{Budget, BudgetUser};
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::sync::Arc;

    #[test]
    fn a_file_counts_until_its_last_reader_closes_it() {
        let budget = Arc::new(Budget::new(1000));
        let released = Released::new(&budget);
        let fd = Arc::new(memfd_create("released", MemfdFlags::CLOEXEC).unwrap());
        let reader = Arc::clone(&fd);
        let body = StoredBody::File { fd, bytes: 300, place: None };
        released.add(&body);
        released.add(&StoredBody::Memory(b"abc"[..].into()));
        released.remove(&body);
        assert_eq!(budget.held(BudgetUser::Released), 0);
        released.add(&body);
        drop(body);
        released.sweep(10);
        assert_eq!(budget.held(BudgetUser::Released), 300);
        drop(reader);
        released.sweep(10);
        assert_eq!(budget.held_in_all(), 0);
    }
}
