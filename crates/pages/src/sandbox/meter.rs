//! Accounting of the current run's time and memory, in Luau's interrupt.
//!
//! Luau calls the interrupt at every call, return and loop iteration. Most of these interrupts cost one subtraction and
//! one comparison. The clock is read when [`Meter::fuel`] is used up, or when the machine's memory has grown by
//! [`MEMORY_STEP_BYTES`]. If a check is late because single steps of the page take long, the next checks come sooner.
//!
//! Slices are measured by the wall clock, for fairness. The CPU time limit applies to CPU time.
//!
//! Inside metamethods and callbacks of native functions, a run cannot yield. There, a run that has used its slice
//! continues and blocks the worker for at most [`HELD_MAX`]; then it is terminated.
//!
//! The machine's memory is shared, so a run is charged for the machine's growth during its slices. If that exceeds the
//! run's limit, garbage is collected, and the run is charged at most for what remains. A collection traverses the whole
//! heap, so the next one comes only after an eighth of the limit has been allocated. A run may temporarily exceed its
//! limit by that much. A higher, hard limit of the allocator prevents single huge allocations.
//!
//! A run that exceeds its limits is terminated: the interrupt yields and the run is never resumed. The page cannot
//! catch that. Inside metamethods, where it cannot yield, the interrupt raises an error instead, and raises it again at
//! every later call, return and loop iteration. If code catches the error, it receives the next one at its next step,
//! so an error handler makes no progress and the whole page unwinds.

use super::failure::{CodeLocation, FailureKind, RunFailure};
use super::limits::Limits;
use flatout_os::clock;
use mlua::{Lua, VmState};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// Normal number of interrupts between two readings of the clock.
const FUEL: u32 = 16;

/// If a check comes later than this after the previous one, the next checks are immediate.
const LATE: Duration = Duration::from_micros(20);

/// CPU time for which a run may block the worker after its slice where it cannot yield: ten slices of the usual length.
/// If a slice is longer than this, the run may block for the length of a slice.
pub(crate) const HELD_MAX: Duration = Duration::from_millis(2);

/// Longest first slice of a run that is measured only by the wall clock. On a busy machine, such a slice is overcharged
/// only slightly.
const UNMEASURED_MAX: Duration = Duration::from_millis(1);

/// The memory limit divided by this number must be allocated between two collections.
const COLLECTION_SHARE: usize = 8;

/// Growth of the machine's memory after which the limits are checked, in bytes.
const MEMORY_STEP_BYTES: usize = 64 * 1024;

/// The fate of the current run at its next interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The run continues.
    Alive,
    /// The run yields and is not resumed.
    Leave,
    /// The run could not yield, so it gets an error where it is.
    Raise,
}

/// Resources that a run has used, stored between its slices.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// CPU time of the run's slices.
    pub(crate) cpu: Duration,
    /// Number of bytes charged to the run.
    pub(crate) memory_bytes: usize,
    /// Number of bytes that were charged, or held outside of the machine, after the last collection for the run; `None`
    /// if there was none.
    pub(crate) collected_bytes: Option<usize>,
}

/// The meter of a virtual machine; see the module documentation.
#[derive(Debug)]
pub(crate) struct Meter {
    fuel: Cell<u32>,
    /// The machine's memory use in bytes at which the next check is due.
    memory_next: Cell<usize>,
    limits: Cell<Limits>,
    running: Cell<bool>,
    fate: Cell<Fate>,
    started: Cell<Option<Instant>>,
    looked: Cell<Option<Instant>>,
    /// CPU time of the run's earlier slices.
    cpu_before: Cell<Duration>,
    /// A reading of the thread's CPU clock during this slice, and the time that the slice had used by then.
    cpu_base: Cell<Option<(Duration, Duration)>>,
    /// When the time used by this slice was last determined, and that time. An upper bound of the current use follows
    /// from it without a system call.
    spent_known: Cell<Option<(Instant, Duration)>>,
    /// The time that the slice had used when the run should have yielded; `None` if the slice is not used up.
    over_since: Cell<Option<Duration>>,
    /// See [`Account::collected_bytes`].
    collected: Cell<Option<usize>>,
    /// The machine's memory use without the part of this run, in bytes.
    memory_base: Cell<isize>,
    /// The machine's memory use without any run, in bytes.
    memory_floor: Cell<isize>,
    /// Total number of bytes charged to suspended runs.
    memory_others: Cell<isize>,
    failure: RefCell<Option<RunFailure>>,
    #[cfg(test)]
    collections: Cell<u32>,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            fuel: Cell::new(u32::MAX),
            memory_next: Cell::new(usize::MAX),
            limits: Cell::new(Limits::default()),
            running: Cell::new(false),
            fate: Cell::new(Fate::Alive),
            started: Cell::new(None),
            looked: Cell::new(None),
            cpu_before: Cell::new(Duration::ZERO),
            cpu_base: Cell::new(None),
            spent_known: Cell::new(None),
            over_since: Cell::new(None),
            collected: Cell::new(None),
            memory_base: Cell::new(0),
            memory_floor: Cell::new(0),
            memory_others: Cell::new(0),
            failure: RefCell::new(None),
            #[cfg(test)]
            collections: Cell::new(0),
        }
    }
}

impl Meter {
    /// Starts a slice of a run with this account.
    pub(crate) fn begin(&self, lua: &Lua, account: Account, limits: Limits) {
        let used = lua.used_memory();
        let now = clock::now();
        self.limits.set(limits);
        // A run of many short slices must be checked immediately once it has used its CPU time.
        self.fuel.set(if account.cpu < limits.cpu { FUEL } else { 0 });
        self.memory_next.set(used + MEMORY_STEP_BYTES);
        self.memory_base.set(used.cast_signed() - account.memory_bytes.cast_signed());
        self.memory_others.set(self.memory_others.get() - account.memory_bytes.cast_signed());
        self.cpu_before.set(account.cpu);
        self.over_since.set(None);
        self.collected.set(account.collected_bytes);
        let long = account.cpu >= limits.slice || limits.slice > UNMEASURED_MAX;
        self.cpu_base.set(long.then(|| (clock::thread_cpu(), Duration::ZERO)));
        self.started.set(Some(now));
        self.looked.set(Some(now));
        self.spent_known.set(Some((now, Duration::ZERO)));
        self.fate.set(Fate::Alive);
        self.running.set(true);
        // This fails only if the allocator does not support limits, and this one does.
        let _ = lua.set_memory_limit(used.saturating_add(limits.memory_bytes.saturating_mul(2)));
    }

    /// Ends the slice. Returns the run's account, and its failure if there is one.
    pub(crate) fn end(&self, lua: &Lua) -> (Account, Option<RunFailure>) {
        let _ = lua.set_memory_limit(0);
        self.running.set(false);
        let charged = self.charged(lua).max(0);
        self.memory_others.set(self.memory_others.get() + charged);
        let cpu = self.cpu_before.get() + self.spent(clock::now());
        let account = Account { cpu, memory_bytes: charged as usize, collected_bytes: self.collected.get() };
        (account, self.failure.take())
    }

    /// Drops the account of a run that has ended, because its memory is now garbage.
    pub(crate) fn forget(&self, account: Account) {
        self.memory_others.set(self.memory_others.get() - account.memory_bytes.cast_signed());
    }

    /// Excludes `bytes` of permanent memory of the machine from what runs are charged for.
    pub(crate) fn raise_floor(&self, bytes: isize) {
        self.memory_floor.set(self.memory_floor.get() + bytes);
    }

    /// Makes the next interrupt check the limits, after a native function has worked for long.
    pub(crate) fn hurry(&self) {
        self.fuel.set(0);
    }

    /// Ends the run as if it were complete.
    pub(crate) fn halt(&self) {
        if self.fate.get() == Fate::Alive {
            self.fate.set(Fate::Leave);
            self.fuel.set(0);
        }
    }

    /// Returns whether the run is within its limit if it holds `bytes` in addition to its values.
    fn has_room(&self, lua: &Lua, bytes: usize) -> bool {
        self.charged(lua).max(0).saturating_add_unsigned(bytes) <= self.limits.get().memory_bytes.cast_signed()
    }

    /// Number of bytes that the run may still use if it holds `held_bytes` in addition to its values.
    pub(crate) fn room(&self, lua: &Lua, held_bytes: usize) -> usize {
        let charged = self.charged(lua).max(0) as usize;
        self.memory_bytes_max().saturating_sub(charged.saturating_add(held_bytes))
    }

    /// The limit plus the excess that is permitted between two collections, in bytes.
    fn memory_bytes_max(&self) -> usize {
        let limit = self.limits.get().memory_bytes;
        limit.saturating_add(limit / COLLECTION_SHARE)
    }

    /// Terminates the run for exceeding its memory limit.
    pub(crate) fn exceed_memory(&self, lua: &Lua) {
        self.fail(lua, FailureKind::MemoryLimit);
    }

    /// Handles an interrupt. `held_bytes` returns the number of bytes that the run holds outside of the machine.
    #[inline]
    pub(crate) fn interrupt(&self, lua: &Lua, held_bytes: impl Fn() -> usize) -> mlua::Result<VmState> {
        let fuel = self.fuel.get();
        if fuel > 0 && lua.used_memory() < self.memory_next.get() {
            self.fuel.set(fuel - 1);
            return Ok(VmState::Continue);
        }
        self.look(lua, &held_bytes)
    }

    #[cold]
    fn look(&self, lua: &Lua, held_bytes: &dyn Fn() -> usize) -> mlua::Result<VmState> {
        if !self.running.get() {
            self.fuel.set(u32::MAX);
            self.memory_next.set(usize::MAX);
            return Ok(VmState::Continue);
        }
        match self.fate.get() {
            Fate::Alive => {}
            Fate::Leave => {
                self.fate.set(Fate::Raise);
                return Ok(VmState::Yield);
            }
            Fate::Raise => return Err(mlua::Error::runtime("the run has ended")),
        }
        let now = clock::now();
        let limits = self.limits.get();
        let slice = now - self.started.get().unwrap_or(now);
        if slice > limits.slice && self.cpu_base.get().is_none() {
            self.cpu_base.set(Some((clock::thread_cpu(), limits.slice)));
        }
        let failed = if self.has_spent(now, limits.cpu.saturating_sub(self.cpu_before.get())) {
            Some(FailureKind::CpuLimit)
        } else if self.is_held(slice, now) {
            Some(FailureKind::Held)
        } else if !self.may_go_on(lua, 0, held_bytes) {
            Some(FailureKind::MemoryLimit)
        } else {
            None
        };
        if let Some(kind) = failed {
            self.fail(lua, kind);
            self.fate.set(Fate::Raise);
            return Ok(VmState::Yield);
        }
        let late = now - self.looked.get().unwrap_or(now) > LATE;
        self.looked.set(Some(now));
        self.fuel.set(if late { 0 } else { FUEL });
        self.memory_next.set(lua.used_memory() + MEMORY_STEP_BYTES);
        if slice > limits.slice {
            return Ok(VmState::Yield);
        }
        Ok(VmState::Continue)
    }

    /// Returns the time that this slice has used. Short slices are measured by the wall clock, which is cheap to read.
    /// Once a slice becomes long, and in every slice after the first long one, the thread's CPU clock is used, so that
    /// a page is not charged for other threads of a busy machine.
    fn spent(&self, now: Instant) -> Duration {
        let spent = match self.cpu_base.get() {
            Some((base, used)) => used + clock::thread_cpu().saturating_sub(base),
            None => (now - self.started.get().unwrap_or(now)).min(self.limits.get().slice),
        };
        self.spent_known.set(Some((now, spent)));
        spent
    }

    /// Returns whether this slice has used more than `limit`. Reads the CPU clock only if the wall clock does not rule
    /// that out.
    fn has_spent(&self, now: Instant, limit: Duration) -> bool {
        let at_most = self.spent_known.get().map_or(Duration::MAX, |(at, spent)| spent + (now - at));
        at_most > limit && self.spent(now) > limit
    }

    /// Returns whether the run has continued for too long after it should have yielded. A run that can yield has
    /// already ended its slice by then.
    fn is_held(&self, slice: Duration, now: Instant) -> bool {
        let limits = self.limits.get();
        if slice <= limits.slice {
            return false;
        }
        if let Some(since) = self.over_since.get() {
            return self.has_spent(now, since + HELD_MAX.max(limits.slice));
        }
        self.over_since.set(Some(self.spent(now)));
        false
    }

    /// Returns whether the run may use `bytes` more. It may if it is then within its memory limit, possibly after a
    /// collection, or if it does not exceed the limit by enough for another collection. `held_bytes` returns the number
    /// of bytes that the run holds outside of the machine, which a collection may reduce.
    pub(crate) fn may_go_on(&self, lua: &Lua, bytes: usize, held_bytes: impl Fn() -> usize) -> bool {
        let held = held_bytes();
        if self.has_room(lua, held.saturating_add(bytes)) {
            return true;
        }
        if self.may_collect(lua, held) {
            return self.collect(lua, bytes, held_bytes);
        }
        let used = self.charged(lua).max(0).saturating_add_unsigned(held);
        used.saturating_add_unsigned(bytes) <= self.memory_bytes_max().cast_signed()
    }

    /// Returns whether enough has been allocated since the last collection to collect again.
    fn may_collect(&self, lua: &Lua, held_bytes: usize) -> bool {
        let Some(left) = self.collected.get() else { return true };
        let share = self.limits.get().memory_bytes / COLLECTION_SHARE;
        self.charged(lua).saturating_add_unsigned(held_bytes) >= left.saturating_add(share).cast_signed()
    }

    /// Number of collections for runs so far.
    #[cfg(test)]
    pub(crate) const fn collections(&self) -> u32 {
        self.collections.get()
    }

    /// Collects garbage and charges the run for what remains. Returns whether that and `bytes` more are within the run's
    /// limit.
    fn collect(&self, lua: &Lua, bytes: usize, held_bytes: impl Fn() -> usize) -> bool {
        #[cfg(test)]
        self.collections.set(self.collections.get() + 1);
        let charged = self.charged(lua);
        if lua.gc_collect().is_err() {
            return false;
        }
        let used = lua.used_memory().cast_signed();
        // What remains, without the shared part and other runs, belongs to this run, but no more than it was charged
        // for before.
        let left = (used - self.memory_floor.get() - self.memory_others.get()).clamp(0, charged.max(0));
        self.memory_base.set(used - left);
        let held = held_bytes();
        self.collected.set(Some((left as usize).saturating_add(held)));
        self.has_room(lua, held.saturating_add(bytes))
    }

    /// Number of bytes that are currently charged to the run.
    fn charged(&self, lua: &Lua) -> isize {
        lua.used_memory().cast_signed() - self.memory_base.get()
    }

    fn fail(&self, lua: &Lua, kind: FailureKind) {
        if let Ok(mut failure) = self.failure.try_borrow_mut()
            && failure.is_none()
        {
            *failure = Some(RunFailure::at(kind, kind.text().to_owned(), CodeLocation::here(lua)));
        }
        self.fate.set(Fate::Leave);
        self.fuel.set(0);
    }
}
