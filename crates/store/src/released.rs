//! Memory files that have left the store while clients still read them: they count in the budget until they are
//! closed.

use crate::body::StoredBody;
use crate::hold;
use flatout_handler::budget::{Budget, BudgetUser, Held};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};

/// Entries checked each time a file is added: more than one, so that the list shrinks.
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

    /// Counts the memory file of `body` until it is closed. Content of other kinds is not counted.
    pub(crate) fn add(&self, body: &StoredBody) {
        let StoredBody::File { fd, bytes, place: None } = body else { return };
        let mut held = Held::new(Arc::clone(&self.budget), BudgetUser::Released);
        held.set(*bytes);
        hold(&self.files).push_back((Arc::downgrade(fd), held));
        self.sweep(SWEEP_COUNT);
    }

    /// Checks up to `count_max` entries and drops those whose file is closed.
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
        drop(body);
        released.sweep(10);
        assert_eq!(budget.held(BudgetUser::Released), 300);
        drop(reader);
        released.sweep(10);
        assert_eq!(budget.held_in_all(), 0);
    }
}
