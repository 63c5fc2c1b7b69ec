//! Configured volumes, which may be in use, locked by another process, or unusable.

use crate::object::Meta;
use crate::stats::{VolumeState, VolumeStats};
use crate::volume::{OpenError, Volume};
use crate::{Store, hold};
use flatout_os::clock;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// A configured volume, whether it can be used or not.
#[derive(Debug)]
pub(super) struct ConfiguredVolume<M> {
    path: PathBuf,
    bytes_max: u64,
    pub(super) volume: OnceLock<Arc<Volume<M>>>,
    /// State of the volume, and the reason, if it is not in use.
    problem: Mutex<(VolumeState, String)>,
}

impl<M: Meta> ConfiguredVolume<M> {
    pub(super) fn new((path, bytes_max): (PathBuf, u64)) -> Self {
        Self { path, bytes_max, volume: OnceLock::new(), problem: Mutex::default() }
    }

    /// Stops waiting for the volume to be unlocked.
    pub(super) fn give_up(&self) {
        *hold(&self.problem) = (VolumeState::Released, String::new());
    }

    /// Returns whether another process has locked the volume.
    pub(super) fn is_locked(&self) -> bool {
        self.volume.get().is_none() && hold(&self.problem).0 == VolumeState::Locked
    }

    pub(super) fn stats(&self) -> VolumeStats {
        if let Some(volume) = self.volume.get() {
            return volume.stats();
        }
        let (state, problem) = hold(&self.problem).clone();
        VolumeStats { folder: self.path.clone(), state, problem, bytes_max: self.bytes_max, ..VolumeStats::default() }
    }
}

impl<M: Meta> Store<M> {
    /// Opens a volume and adds it to the store. Returns a sentence for the log if that fails.
    pub(super) fn attach(&self, slot: &ConfiguredVolume<M>) -> Result<(), String> {
        let _one = hold(&self.purging);
        if self.is_released.load(Ordering::Relaxed) {
            return Err(format!("the volume {} was handed over to the new process", slot.path.display()));
        }
        let is_first = self.volumes().next().is_none();
        let (volume, log) = match Volume::open(&slot.path, slot.bytes_max, &self.shared) {
            Ok(opened) => opened,
            Err(error) => {
                let (state, reason) = match error {
                    OpenError::Locked => (VolumeState::Locked, "another process is using it".to_owned()),
                    OpenError::Failed(reason) => (VolumeState::Degraded, reason),
                };
                *hold(&slot.problem) = (state, reason.clone());
                return Err(format!("the volume {} is not in use: {reason}", slot.path.display()));
            }
        };
        // Purges that a volume has missed may have been removed from the log, so it is unknown what they would match.
        // Such a volume must be emptied.
        let floor = self.shared.log.floor();
        if !is_first && log.floor() < floor {
            volume.wipe();
        }
        if !is_first && log.floor() > floor {
            for other in self.volumes() {
                other.wipe();
            }
        }
        self.shared.log.adopt(&log);
        let _ = slot.volume.set(volume);
        if !is_first || log.generation() != self.shared.log.generation() {
            // Each volume must record all purges, in case it is the only one after the next start.
            let (entries, generation) = (self.shared.log.entries(), self.shared.log.generation());
            for volume in self.volumes() {
                volume.put_purges(entries.clone(), generation, Vec::new());
            }
            self.shared.memory.change_all();
        }
        *hold(&slot.problem) = (VolumeState::Good, String::new());
        Ok(())
    }
}

/// Retries volumes locked by another process every second, until none are left.
pub(super) fn wait_for_locked<M: Meta>(store: &Weak<Store<M>>) {
    const INTERVAL: Duration = Duration::from_secs(1);
    loop {
        clock::sleep(INTERVAL);
        let Some(store) = store.upgrade() else { return };
        for slot in store.slots.iter().filter(|slot| slot.is_locked()) {
            // If it fails, the reason is in the volume's state.
            let _ = store.attach(slot);
        }
        if !store.slots.iter().any(ConfiguredVolume::is_locked) {
            return;
        }
    }
}
