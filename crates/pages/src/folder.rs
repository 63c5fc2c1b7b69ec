//! The pages of one step on one worker: from a path to a page, compiled when it is first asked for, and again when a
//! file that it was made of has changed.
//!
//! What was found holds for a while (`recheck`), or until the kernel tells of a change; then the kernel is asked, and
//! nothing is read again that has kept its identity. A page is swapped whole: a run goes on with the one it began with.

use crate::page::Loaded;
use crate::sandbox::Sandbox;
use crate::step::PagesStep;
use crate::template;
use flatout_http::path::PathFacts;
use flatout_net::clock::Now;
use flatout_net::root::Named;
use foldhash::fast::RandomState;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Paths that are remembered at the most, those that name no page included.
const PATHS_MAX: usize = 16_384;

/// Longer ones are looked at each time: nobody fills memory with them.
const PATH_BYTES_MAX: usize = 256;

/// Pages held at the most.
const PAGES_MAX: usize = 8_192;

/// A change is promised to be seen within the recheck interval: this much of it is left for the tick of the coarse
/// clock and for the answer itself.
const RECHECK_SLACK_MS: u64 = 50;

/// So long a page that may still change under its identity is believed where the kernel tells of changes.
const UNSETTLED_MS: u64 = 100;

/// Endings of what is run. Their sources are never given out.
pub const SOURCE_ENDINGS: &[&str] = &[".lhtml", ".luau"];

const PAGE_ENDING: &[u8] = b".lhtml";
const INDEX: &[u8] = b"index.lhtml";

/// The pages of one step on one worker.
pub struct Folder {
    step: Arc<PagesStep>,
    paths: RefCell<HashMap<Box<[u8]>, Known, RandomState>>,
    slots: RefCell<HashMap<Box<str>, Rc<Slot>, RandomState>>,
}

/// What a path stands for.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// This page.
    Page(Rc<Loaded>),
    /// A folder with an index page, and the path lacks its slash.
    Slash,
    /// No page.
    Nothing,
}

/// What a path was found to stand for.
#[derive(Debug)]
struct Known {
    what: What,
    checked: Checked,
}

#[derive(Clone, Debug)]
enum What {
    Page(Rc<Slot>),
    Slash,
    Nothing,
}

/// A page by its name.
#[derive(Debug)]
struct Slot {
    name: Box<str>,
    loaded: RefCell<Option<Rc<Loaded>>>,
    checked: Cell<Checked>,
    /// Whether it was asked for since pages were last let go of.
    used: Cell<bool>,
}

/// When something was last looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Checked {
    at_ms: u64,
    epoch: u64,
}

impl Folder {
    /// The pages of `step`: none yet.
    pub fn new(step: Arc<PagesStep>) -> Rc<Self> {
        Rc::new(Self { step, paths: RefCell::default(), slots: RefCell::default() })
    }

    /// The step.
    pub const fn step(&self) -> &Arc<PagesStep> {
        &self.step
    }

    /// The name of the file that would answer for a path, decoded and without its first slash, now. Nothing is kept.
    pub fn name_of(&self, path: &[u8], facts: PathFacts) -> Option<String> {
        match self.look(path, facts) {
            (What::Page(slot), _) => Some(slot.name.to_string()),
            _ => None,
        }
    }

    /// What `path`, decoded and without its first slash, stands for.
    pub(crate) fn find(&self, path: &[u8], facts: PathFacts, now: Now, sandbox: &Sandbox) -> Found {
        let checked = self.checked(now);
        // One page answers for all paths.
        let path = if self.step.only.is_some() { b"" } else { path };
        let known = self.paths.borrow().get(path).and_then(|known| {
            // Whether a page is there is as good as settled: only its content may change within a tick.
            self.holds(known.checked, checked, true).then(|| known.what.clone())
        });
        let what = known.unwrap_or_else(|| self.look_and_keep(path, facts, checked));
        match what {
            What::Page(slot) => Found::Page(self.loaded(&slot, checked, sandbox)),
            What::Slash => Found::Slash,
            What::Nothing => Found::Nothing,
        }
    }

    fn checked(&self, now: Now) -> Checked {
        let epoch = self.step.epoch.as_ref().map_or(0, |epoch| epoch.load(Ordering::Acquire));
        Checked { at_ms: now.monotonic_ms, epoch }
    }

    /// Whether what was found to hold at `last` may be believed at `now`.
    fn holds(&self, last: Checked, now: Checked, settled: bool) -> bool {
        match self.step.epoch {
            Some(_) if last.epoch != now.epoch => false,
            Some(_) => settled || now.at_ms.saturating_sub(last.at_ms) < UNSETTLED_MS,
            None => now.at_ms.saturating_sub(last.at_ms) < self.step.recheck_ms.saturating_sub(RECHECK_SLACK_MS),
        }
    }

    #[cold]
    fn look_and_keep(&self, path: &[u8], facts: PathFacts, checked: Checked) -> What {
        let (what, missing) = self.look(path, facts);
        let mut slots = self.slots.borrow_mut();
        for name in missing {
            slots.remove(name.as_str());
        }
        let what = match what {
            What::Page(slot) => {
                if slots.len() >= PAGES_MAX && !slots.contains_key(&slot.name) {
                    // Pages that nobody asked for since the last time go; if that is none, all do.
                    slots.retain(|_, slot| slot.used.replace(false));
                    if slots.len() >= PAGES_MAX {
                        slots.clear();
                    }
                    self.paths.borrow_mut().clear();
                }
                let name = slot.name.clone();
                What::Page(Rc::clone(slots.entry(name).or_insert(slot)))
            }
            what => what,
        };
        drop(slots);
        if path.len() > PATH_BYTES_MAX {
            return what;
        }
        let mut paths = self.paths.borrow_mut();
        if paths.len() >= PATHS_MAX {
            // Whoever asks for names that are not there can have this done: it costs a look at each page.
            paths.clear();
        }
        paths.insert(path.into(), Known { what: what.clone(), checked });
        what
    }

    /// What stands at `path` now, and the names of pages that could have answered and are not there.
    fn look(&self, path: &[u8], facts: PathFacts) -> (What, Vec<String>) {
        let mut missing = Vec::new();
        let mut page = |name: Vec<u8>| {
            // A name that is not UTF-8 could not be told to anybody.
            let name = String::from_utf8(name).ok()?;
            if let Ok(Named::File(_)) = self.step.root.identify(name.as_bytes()) {
                let name = name.into_boxed_str();
                return Some(What::Page(Rc::new(Slot {
                    name,
                    loaded: RefCell::default(),
                    checked: Cell::default(),
                    used: Cell::new(true),
                })));
            }
            missing.push(name);
            None
        };
        if let Some(only) = &self.step.only {
            let what = page(only.clone().into_bytes()).unwrap_or(What::Nothing);
            return (what, missing);
        }
        // What is only included answers for nothing: it may be half a page.
        let is_part = std::str::from_utf8(path).is_ok_and(template::is_part);
        if facts.hidden_segment || facts.encoded_slash || is_part {
            return (What::Nothing, missing);
        }
        let what = if path.is_empty() || path.ends_with(b"/") {
            page([path, INDEX].concat())
        } else if path.ends_with(PAGE_ENDING) {
            page(path.to_vec())
        } else {
            page([path, PAGE_ENDING].concat()).or_else(|| {
                let index = [path, b"/", INDEX].concat();
                matches!(self.step.root.identify(&index), Ok(Named::File(_))).then_some(What::Slash)
            })
        };
        (what.unwrap_or(What::Nothing), missing)
    }

    /// The page of `slot` as it is now.
    #[inline]
    fn loaded(&self, slot: &Slot, checked: Checked, sandbox: &Sandbox) -> Rc<Loaded> {
        slot.used.set(true);
        if let Some(loaded) = &*slot.loaded.borrow()
            && self.holds(slot.checked.get(), checked, loaded.settled)
        {
            return Rc::clone(loaded);
        }
        self.load(slot, checked, sandbox)
    }

    #[cold]
    fn load(&self, slot: &Slot, checked: Checked, sandbox: &Sandbox) -> Rc<Loaded> {
        let before = slot.loaded.borrow().clone();
        slot.checked.set(checked);
        if let Some(loaded) = before
            && loaded.settled
            && loaded.is_current(&self.step)
        {
            return loaded;
        }
        let loaded = Rc::new(Loaded::read(&self.step, &slot.name, sandbox));
        *slot.loaded.borrow_mut() = Some(Rc::clone(&loaded));
        loaded
    }
}

impl fmt::Debug for Folder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Folder").field("step", &self.step).finish_non_exhaustive()
    }
}
