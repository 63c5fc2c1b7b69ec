//! Time and memory of the run under way, looked at from Luau's interrupt.
//!
//! Luau calls the interrupt at every call, return and turn of a loop. Most of these cost one subtraction and one
//! comparison here; the clock is read when [`Meter::fuel`] is used up, or when the machine's memory has grown by
//! [`MEMORY_STEP_BYTES`]. When a look comes late, because single steps of the page take long, the next looks come
//! sooner.
//!
//! Slices are measured by the wall clock, for fairness; what counts against the limit of CPU time is CPU time.
//!
//! Where control cannot be given away, within metamethods and callbacks of natives, a run that has used its slice goes on,
//! and holds the worker: for [`HELD_MAX`] at the most, then it is doomed.
//!
//! Memory: the machine is shared, so a run is charged for what the machine grew by during its slices. When that is
//! more than its limit, garbage is collected, and the run is charged for what is left at the most. A collection goes
//! through all of the heap, so the next one comes when an eighth of the limit was allocated since: that far above its limit
//! a run may be for a while. A hard limit of the allocator stands further out, against single huge allocations.
//!
//! A run that is over its limits is doomed: the interrupt gives control away for good. Nothing in the page can catch
//! that. Where control cannot be given away, within metamethods, the interrupt raises an error instead, and from then on
//! at every call, return and turn of a loop: whoever catches one has the next at the next step, so that a handler gets
//! nothing done, and all of the page unwinds.

use super::failure::{Failure, FailureKind, Place};
use super::limits::Limits;
use mlua::{Lua, VmState};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// Interrupts between two looks at the clock, when all is quiet.
const FUEL: u32 = 16;

/// A look that comes later than this after the one before makes the next ones come at once.
const LATE: Duration = Duration::from_micros(20);

/// CPU time for which a run may hold the worker behind its slice, where it cannot give control away: ten slices of the
/// usual length. A slice that is longer counts as well.
pub(crate) const HELD_MAX: Duration = Duration::from_millis(2);

/// The first slice of a run goes by the wall clock as a whole when it is no longer than this: what it is charged too much
/// on a busy machine is little.
const UNMEASURED_MAX: Duration = Duration::from_millis(1);

/// Of the limit of memory, this part must have been allocated between two collections.
const COLLECTION_SHARE: usize = 8;

/// Growth of the machine's memory after which the clock is looked at, bytes.
const MEMORY_STEP_BYTES: usize = 64 * 1024;

/// What is to become of the run under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It goes on.
    Alive,
    /// It gives control away and does not get it back.
    Leave,
    /// It could not give control away: it is to fail where it stands.
    Raise,
}

/// The account of one run between its slices.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// CPU time of its slices.
    pub(crate) cpu: Duration,
    /// Bytes it is charged for.
    pub(crate) memory_bytes: usize,
    /// Bytes that it was charged for behind the last collection on its behalf; `None`: there was none.
    pub(crate) collected_bytes: Option<usize>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Meter {
    fuel: Cell<u32>,
    /// The machine's memory at which to look again.
    memory_next: Cell<usize>,
    limits: Cell<Limits>,
    running: Cell<bool>,
    fate: Cell<Fate>,
    started: Cell<Option<Instant>>,
    looked: Cell<Option<Instant>>,
    /// CPU time of the slices before this one.
    cpu_before: Cell<Duration>,
    /// The thread's CPU clock at some moment of this slice, and what the slice had used by then.
    cpu_base: Cell<Option<(Duration, Duration)>>,
    /// What the run had used when it was to give control away; `None`: its slice is not used up.
    over_since: Cell<Option<Duration>>,
    /// See [`Account::collected_bytes`].
    collected: Cell<Option<usize>>,
    /// What the machine would use without this run's part.
    memory_base: Cell<isize>,
    /// What the machine uses when no run is under way.
    memory_floor: Cell<isize>,
    /// What runs that are not running are charged for, all in all.
    memory_others: Cell<isize>,
    doom: RefCell<Option<Failure>>,
    #[cfg(test)]
    collections: Cell<u32>,
}

/// CPU time of this thread. A system call, and so not for every look.
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
            doom: RefCell::new(None),
            #[cfg(test)]
            collections: Cell::new(0),
        }
    }
}

impl Meter {
    /// Begins a slice of a run with this account.
    pub(crate) fn begin(&self, lua: &Lua, account: Account, limits: Limits) {
        let used = lua.used_memory();
        let now = Instant::now();
        self.limits.set(limits);
        // A run of many short slices is looked at as well once it has used its time.
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
        // Only a state whose allocator cannot be limited refuses this; this one can.
        let _ = lua.set_memory_limit(used.saturating_add(limits.memory_bytes.saturating_mul(2)));
    }

    /// Ends the slice: the run's account, and why it failed if it did.
    pub(crate) fn end(&self, lua: &Lua) -> (Account, Option<Failure>) {
        let _ = lua.set_memory_limit(0);
        self.running.set(false);
        let charged = self.charged(lua).max(0);
        self.memory_others.set(self.memory_others.get() + charged);
        let cpu = self.cpu_before.get() + self.spent(Instant::now());
        let account = Account { cpu, memory_bytes: charged as usize, collected_bytes: self.collected.get() };
        (account, self.doom.take())
    }

    /// A run has ended; what it was charged for is garbage now.
    pub(crate) fn forget(&self, account: Account) {
        self.memory_others.set(self.memory_others.get() - account.memory_bytes.cast_signed());
    }

    /// What is laid into the machine for good is nobody's.
    pub(crate) fn raise_floor(&self, bytes: isize) {
        self.memory_floor.set(self.memory_floor.get() + bytes);
    }

    /// Makes the next interrupt look at the clock: whoever calls has done long work.
    pub(crate) fn hurry(&self) {
        self.fuel.set(0);
    }

    /// Ends the run, as if it had come to its end.
    pub(crate) fn halt(&self) {
        if self.fate.get() == Fate::Alive {
            self.fate.set(Fate::Leave);
            self.fuel.set(0);
        }
    }

    /// Whether the run may use `bytes` beside what its values take.
    fn has_room(&self, lua: &Lua, bytes: usize) -> bool {
        self.charged(lua).max(0).saturating_add_unsigned(bytes) <= self.limits.get().memory_bytes.cast_signed()
    }

    /// Bytes that the run may still use, when it holds `held_bytes` beside its values.
    pub(crate) fn room(&self, lua: &Lua, held_bytes: usize) -> usize {
        let charged = self.charged(lua).max(0) as usize;
        self.memory_bytes_max().saturating_sub(charged.saturating_add(held_bytes))
    }

    /// The limit with what a run may be above it between two collections.
    fn memory_bytes_max(&self) -> usize {
        let limit = self.limits.get().memory_bytes;
        limit.saturating_add(limit / COLLECTION_SHARE)
    }

    /// Dooms the run for its memory.
    pub(crate) fn exceed_memory(&self, lua: &Lua) {
        self.doom(lua, FailureKind::MemoryLimit);
    }

    /// The interrupt. `held_bytes` says what the run holds outside of the machine.
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
            self.doom(lua, kind);
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

    /// What this slice has used. Short slices go by the wall clock, which is cheap to read; from the moment on when one
    /// becomes long, and in every slice after the first long one, the thread's own clock counts, so that a page is not
    /// charged for what other threads of a busy machine did meanwhile.
    fn spent(&self, now: Instant) -> Duration {
        match self.cpu_base.get() {
            Some((base, used)) => used + thread_cpu().saturating_sub(base),
            None => (now - self.started.get().unwrap_or(now)).min(self.limits.get().slice),
        }
    }

    /// Whether the run has gone on for too long after it was to give control away. A run that can do so ends its slice
    /// then, and is not seen here a second time.
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

    /// Whether the run may hold `held_bytes` beside its values: it is within its limit of memory, after a collection if need
    /// be, or not so far above it that another is due.
    pub(crate) fn may_go_on(&self, lua: &Lua, held_bytes: usize) -> bool {
        if self.has_room(lua, held_bytes) {
            return true;
        }
        if self.may_collect(lua) {
            return self.collect(lua, held_bytes);
        }
        self.charged(lua).max(0).saturating_add_unsigned(held_bytes) <= self.memory_bytes_max().cast_signed()
    }

    /// Whether enough was allocated since the last collection.
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

    /// Collects garbage, and charges the run for what is left; whether that is within its limit.
    fn collect(&self, lua: &Lua, held_bytes: usize) -> bool {
        #[cfg(test)]
        self.collections.set(self.collections.get() + 1);
        let charged = self.charged(lua);
        if lua.gc_collect().is_err() {
            return false;
        }
        let used = lua.used_memory().cast_signed();
        // What is left, less what belongs to nobody and to others, is this run's; and never more than it took.
        let left = (used - self.memory_floor.get() - self.memory_others.get()).clamp(0, charged.max(0));
        self.memory_base.set(used - left);
        self.collected.set(Some(left as usize));
        self.has_room(lua, held_bytes)
    }

    /// What the run is charged for at this moment.
    fn charged(&self, lua: &Lua) -> isize {
        lua.used_memory().cast_signed() - self.memory_base.get()
    }

    fn doom(&self, lua: &Lua, kind: FailureKind) {
        if let Ok(mut doom) = self.doom.try_borrow_mut()
            && doom.is_none()
        {
            *doom = Some(Failure::at(kind, kind.text().to_owned(), Place::here(lua)));
        }
        self.fate.set(Fate::Leave);
        self.fuel.set(0);
    }
}
