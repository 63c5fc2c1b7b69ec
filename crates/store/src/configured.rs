//! Configured volume folders: in use, held by another process, or unusable.

use crate::object::Meta;
use crate::stats::{VolumeState, VolumeStats};
use crate::volume::{OpenError, Volume};
use crate::{Store, hold};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// A configured folder.
#[derive(Debug)]
pub(super) struct ConfiguredVolume<M> {
    path: PathBuf,
    bytes_max: u64,
    pub(super) volume: OnceLock<Arc<Volume<M>>>,
    /// Reason why it is not in use.
    problem: Mutex<(VolumeState, String)>,
}

impl<M: Meta> ConfiguredVolume<M> {
    pub(super) fn new((path, bytes_max): (PathBuf, u64)) -> Self {
        Self { path, bytes_max, volume: OnceLock::new(), problem: Mutex::default() }
    }

    /// Stops waiting for it.
    pub(super) fn give_up(&self) {
        *hold(&self.problem) = (VolumeState::Released, String::new());
    }

    /// Returns whether another process holds it.
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
    /// Attaches a volume. The error is a sentence.
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
                    OpenError::Locked => (VolumeState::Locked, "another process has it".to_owned()),
                    OpenError::Failed(reason) => (VolumeState::Degraded, reason),
                };
                *hold(&slot.problem) = (state, reason.clone());
                return Err(format!("the volume {} is not in use: {reason}", slot.path.display()));
            }
        };
        // The log may no longer have purges that a volume missed, and their targets are unknown.
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
            // Each must have all entries, in case it is the only one next time.
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

/// Retries volumes that another process holds, until none are left.
pub(super) fn wait_for_locked<M: Meta>(store: &Weak<Store<M>>) {
    const INTERVAL: Duration = Duration::from_secs(1);
    loop {
        std::thread::sleep(INTERVAL);
        let Some(store) = store.upgrade() else { return };
        for slot in store.slots.iter().filter(|slot| slot.is_locked()) {
            // Its state has the reason.
            let _ = store.attach(slot);
        }
        if !store.slots.iter().any(ConfiguredVolume::is_locked) {
            return;
        }
    }
}
