//! Time and memory accounting of the current run, in Luau's interrupt.
//!
//! Luau calls the interrupt at every call, return and loop iteration. Most of these cost one subtraction and one
//! comparison; the clock is read when [`Meter::fuel`] is used up, or when the machine's memory has grown by
//! [`MEMORY_STEP_BYTES`]. If a check is late, because single steps of the page take long, the next checks come
//! sooner.
//!
//! Slices are measured by the wall clock, for fairness; the limit of CPU time applies to CPU time.
//!
//! Where a run cannot yield, within metamethods and callbacks of natives, a run that has used its slice continues,
//! and blocks the worker: for at most [`HELD_MAX`], then it is terminated.
//!
//! Memory: the machine is shared, so a run is charged for the machine's growth during its slices. If that exceeds its
//! limit, garbage is collected, and the run is charged at most for what is left. A collection traverses the whole
//! heap, so the next one comes after an eighth of the limit was allocated: a run may temporarily exceed its limit by
//! that much. A hard limit of the allocator, further out, prevents single huge allocations.
//!
//! A run that exceeds its limits is terminated: the interrupt yields for good. The page cannot catch that. Where it
//! cannot yield, within metamethods, the interrupt raises an error instead, and again at every later call, return and
//! loop iteration: code that catches one receives the next at its next step, so that a handler makes no progress, and
//! the whole page unwinds.

use super::failure::{CodeLocation, FailureKind, RunFailure};
use super::limits::Limits;
use mlua::{Lua, VmState};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// Interrupts between two clock readings, normally.
const FUEL: u32 = 16;

/// A check later than this after the previous one makes the next ones immediate.
const LATE: Duration = Duration::from_micros(20);

/// CPU time for which a run may block the worker after its slice, where it cannot yield: ten slices of the usual
/// length. A longer slice counts as well.
pub(crate) const HELD_MAX: Duration = Duration::from_millis(2);

/// Length up to which the first slice of a run is measured by the wall clock only: the overcharge on a busy machine
/// is small.
const UNMEASURED_MAX: Duration = Duration::from_millis(1);

/// Divisor of the memory limit: this part must be allocated between two collections.
const COLLECTION_SHARE: usize = 8;

/// Growth of the machine's memory after which the clock is checked, in bytes.
const MEMORY_STEP_BYTES: usize = 64 * 1024;

/// The fate of the current run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It continues.
    Alive,
    /// It yields and is not resumed.
    Leave,
    /// It could not yield: it fails where it is.
    Raise,
}

/// The account of one run between its slices.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// CPU time of its slices.
    pub(crate) cpu: Duration,
    /// Bytes charged to it.
    pub(crate) memory_bytes: usize,
    /// Bytes charged after the last collection on its behalf; `None` if there was none.
    pub(crate) collected_bytes: Option<usize>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Meter {
    fuel: Cell<u32>,
    /// The machine's memory at which the next check is due.
    memory_next: Cell<usize>,
    limits: Cell<Limits>,
    running: Cell<bool>,
    fate: Cell<Fate>,
    started: Cell<Option<Instant>>,
    looked: Cell<Option<Instant>>,
    /// CPU time of the earlier slices.
    cpu_before: Cell<Duration>,
    /// The thread's CPU clock at some moment of this slice, and the slice's use up to then.
    cpu_base: Cell<Option<(Duration, Duration)>>,
    /// The run's use when it should have yielded; `None` if its slice is not used up.
    over_since: Cell<Option<Duration>>,
    /// See [`Account::collected_bytes`].
    collected: Cell<Option<usize>>,
    /// The machine's use without this run's part.
    memory_base: Cell<isize>,
    /// The machine's use without any run.
    memory_floor: Cell<isize>,
    /// The total charged to suspended runs.
    memory_others: Cell<isize>,
    failure: RefCell<Option<RunFailure>>,
    #[cfg(test)]
    collections: Cell<u32>,
}

/// CPU time of this thread. A system call, and so not for every check.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
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
        let now = Instant::now();
        self.limits.set(limits);
        // A run of many short slices is checked immediately once it has used its time.
        self.fuel.set(if account.cpu < limits.cpu { FUEL } else { 0 });
        self.memory_next.set(used + MEMORY_STEP_BYTES);
        self.memory_base.set(used.cast_signed() - account.memory_bytes.cast_signed());
        self.memory_others.set(self.memory_others.get() - account.memory_bytes.cast_signed());
        self.cpu_before.set(account.cpu);
        self.over_since.set(None);
        self.collected.set(account.collected_bytes);
        let long = account.cpu >= limits.slice || limits.slice > UNMEASURED_MAX;
        self.cpu_base.set(long.then(|| (thread_cpu(), Duration::ZERO)));
        self.started.set(Some(now));
        self.looked.set(Some(now));
        self.fate.set(Fate::Alive);
        self.running.set(true);
        // Fails only for an allocator without limits; this one supports them.
        let _ = lua.set_memory_limit(used.saturating_add(limits.memory_bytes.saturating_mul(2)));
    }

    /// Ends the slice: returns the run's account, and its failure if any.
    pub(crate) fn end(&self, lua: &Lua) -> (Account, Option<RunFailure>) {
        let _ = lua.set_memory_limit(0);
        self.running.set(false);
        let charged = self.charged(lua).max(0);
        self.memory_others.set(self.memory_others.get() + charged);
        let cpu = self.cpu_before.get() + self.spent(Instant::now());
        let account = Account { cpu, memory_bytes: charged as usize, collected_bytes: self.collected.get() };
        (account, self.failure.take())
    }

    /// Drops an ended run's account, as its memory is garbage now.
    pub(crate) fn forget(&self, account: Account) {
        self.memory_others.set(self.memory_others.get() - account.memory_bytes.cast_signed());
    }

    /// Excludes permanent memory of the machine from all charges.
    pub(crate) fn raise_floor(&self, bytes: isize) {
        self.memory_floor.set(self.memory_floor.get() + bytes);
    }

    /// Makes the next interrupt check the clock, after long work in a native.
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

    /// Returns whether the run may use `bytes` besides its values.
    fn has_room(&self, lua: &Lua, bytes: usize) -> bool {
        self.charged(lua).max(0).saturating_add_unsigned(bytes) <= self.limits.get().memory_bytes.cast_signed()
    }

    /// Bytes that the run may still use while it holds `held_bytes` besides its values.
    pub(crate) fn room(&self, lua: &Lua, held_bytes: usize) -> usize {
        let charged = self.charged(lua).max(0) as usize;
        self.memory_bytes_max().saturating_sub(charged.saturating_add(held_bytes))
    }

    /// The limit plus the permitted excess between two collections.
    fn memory_bytes_max(&self) -> usize {
        let limit = self.limits.get().memory_bytes;
        limit.saturating_add(limit / COLLECTION_SHARE)
    }

    /// Terminates the run for exceeding its memory limit.
    pub(crate) fn exceed_memory(&self, lua: &Lua) {
        self.fail(lua, FailureKind::MemoryLimit);
    }

    /// The interrupt. `held_bytes` returns the run's use outside of the machine.
    #[inline]
    pub(crate) fn interrupt(&self, lua: &Lua, held_bytes: impl FnOnce() -> usize) -> mlua::Result<VmState> {
        let fuel = self.fuel.get();
        if fuel > 0 && lua.used_memory() < self.memory_next.get() {
            self.fuel.set(fuel - 1);
            return Ok(VmState::Continue);
        }
        self.look(lua, held_bytes())
    }

    #[cold]
    fn look(&self, lua: &Lua, held_bytes: usize) -> mlua::Result<VmState> {
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
        let now = Instant::now();
        let limits = self.limits.get();
        let slice = now - self.started.get().unwrap_or(now);
        if slice > limits.slice && self.cpu_base.get().is_none() {
            self.cpu_base.set(Some((thread_cpu(), limits.slice)));
        }
        let spent = self.spent(now);
        let failed = if self.cpu_before.get() + spent > limits.cpu {
            Some(FailureKind::CpuLimit)
        } else if self.is_held(slice, spent) {
            Some(FailureKind::Held)
        } else if !self.may_go_on(lua, held_bytes) {
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

    /// The use of this slice. Short slices are measured by the wall clock, which is cheap to read; once one becomes
    /// long, and in every slice after the first long one, the thread's CPU clock is used, so that a page is not
    /// charged for other threads of a busy machine.
    fn spent(&self, now: Instant) -> Duration {
        match self.cpu_base.get() {
            Some((base, used)) => used + thread_cpu().saturating_sub(base),
            None => (now - self.started.get().unwrap_or(now)).min(self.limits.get().slice),
        }
    }

    /// Returns whether the run has continued for too long after it should have yielded. A run that can yield has
    /// ended its slice by then.
    fn is_held(&self, slice: Duration, spent: Duration) -> bool {
        let limits = self.limits.get();
        if slice <= limits.slice {
            return false;
        }
        if let Some(since) = self.over_since.get() {
            return spent.saturating_sub(since) > HELD_MAX.max(limits.slice);
        }
        self.over_since.set(Some(spent));
        false
    }

    /// Returns whether the run may hold `held_bytes` besides its values: it is within its memory limit, possibly
    /// after a collection, or not far enough above it for another one.
    pub(crate) fn may_go_on(&self, lua: &Lua, held_bytes: usize) -> bool {
        if self.has_room(lua, held_bytes) {
            return true;
        }
        if self.may_collect(lua) {
            return self.collect(lua, held_bytes);
        }
        self.charged(lua).max(0).saturating_add_unsigned(held_bytes) <= self.memory_bytes_max().cast_signed()
    }

    /// Returns whether enough was allocated since the last collection.
    fn may_collect(&self, lua: &Lua) -> bool {
        let Some(left) = self.collected.get() else { return true };
        let share = self.limits.get().memory_bytes / COLLECTION_SHARE;
        self.charged(lua) >= left.saturating_add(share).cast_signed()
    }

    /// Collections on behalf of runs so far.
    #[cfg(test)]
    pub(crate) const fn collections(&self) -> u32 {
        self.collections.get()
    }

    /// Collects garbage, and charges the run for what is left; returns whether that is within its limit.
    fn collect(&self, lua: &Lua, held_bytes: usize) -> bool {
        #[cfg(test)]
        self.collections.set(self.collections.get() + 1);
        let charged = self.charged(lua);
        if lua.gc_collect().is_err() {
            return false;
        }
        let used = lua.used_memory().cast_signed();
        // The rest, without the shared part and other runs, belongs to this run, but at most what it allocated.
        let left = (used - self.memory_floor.get() - self.memory_others.get()).clamp(0, charged.max(0));
        self.memory_base.set(used - left);
        self.collected.set(Some(left as usize));
        self.has_room(lua, held_bytes)
    }

    /// Bytes currently charged to the run.
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
