//! The pages of one step on one worker: from a path to a page, compiled on first use, and recompiled when one of its
//! files changes.
//!
//! A result is valid for a while (`file-check-interval`), or until the kernel reports a change; then metadata is read, and only
//! files with a new identity are read again. A page is replaced as a whole: a run continues with the one it started
//! with.

use crate::page::Loaded;
use crate::sandbox::Sandbox;
use crate::step::PagesStep;
use flatout_http::path::PathFacts;
use flatout_os::clock::Now;
use flatout_os::root::Named;
use foldhash::fast::RandomState;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Upper bound of cached paths, including those without page.
const PATHS_MAX: usize = 16_384;

/// Upper bound of the length of cached paths, in bytes. Longer ones are looked up each time, so that requests cannot
/// fill memory with them.
const PATH_BYTES_MAX: usize = 256;

/// Upper bound of cached pages.
const PAGES_MAX: usize = 8_192;

/// A change must be visible within the file check interval: this margin covers the tick of the coarse clock and the
/// response itself, in milliseconds.
const CHECK_SLACK_MS: u64 = 50;

/// Recheck interval of an unsettled page in a watched folder, in milliseconds.
const UNSETTLED_MS: u64 = 100;

/// Extensions of pages and scripts. Their sources are never served.
pub const SOURCE_ENDINGS: &[&str] = &[".lhtml", ".luau"];

const PAGE_ENDING: &[u8] = b".lhtml";
const INDEX: &[u8] = b"index.lhtml";

/// The pages of one step on one worker.
pub struct PageFolder {
    step: Arc<PagesStep>,
    paths: RefCell<HashMap<Box<[u8]>, CachedLookup, RandomState>>,
    slots: RefCell<HashMap<Box<str>, Rc<PageEntry>, RandomState>>,
}

/// The result of a lookup.
#[derive(Clone, Debug)]
pub(crate) enum PageLookup {
    /// A page.
    Page(Rc<Loaded>),
    /// A folder with an index page, requested without trailing slash.
    Slash,
    /// No page.
    Nothing,
}

/// A cached lookup.
#[derive(Debug)]
struct CachedLookup {
    what: What,
    checked: Checked,
}

#[derive(Clone, Debug)]
enum What {
    Page(Rc<PageEntry>),
    Slash,
    Nothing,
}

/// A page by its name.
#[derive(Debug)]
struct PageEntry {
    name: Box<str>,
    loaded: RefCell<Option<Rc<Loaded>>>,
    checked: Cell<Checked>,
    /// True if it was used since the last eviction.
    used: Cell<bool>,
}

/// The time of a validation.
#[derive(Clone, Copy, Debug, Default)]
struct Checked {
    at_ms: u64,
    epoch: u64,
}

impl PageFolder {
    /// The pages of `step`, with an empty cache.
    pub fn new(step: Arc<PagesStep>) -> Rc<Self> {
        Rc::new(Self { step, paths: RefCell::default(), slots: RefCell::default() })
    }

    /// The step.
    pub const fn step(&self) -> &Arc<PagesStep> {
        &self.step
    }

    /// The name of the file that currently handles a path, decoded and without its leading slash. Nothing is cached.
    pub fn name_of(&self, path: &[u8], facts: PathFacts) -> Option<String> {
        match self.look(path, facts) {
            (What::Page(slot), _) => Some(slot.name.to_string()),
            _ => None,
        }
    }

    /// The result for `path`, decoded and without its leading slash.
    pub(crate) fn find(&self, path: &[u8], facts: PathFacts, now: Now, sandbox: &Sandbox) -> PageLookup {
        let checked = self.checked(now);
        // One page handles all paths.
        let path = if self.step.only.is_some() { b"" } else { path };
        let known = self.paths.borrow().get(path).and_then(|known| {
            // The existence of a page counts as settled: only its content may change within a tick.
            self.holds(known.checked, checked, true).then(|| known.what.clone())
        });
        let what = known.unwrap_or_else(|| self.look_and_keep(path, facts, checked));
        match what {
            What::Page(slot) => PageLookup::Page(self.loaded(&slot, checked, sandbox)),
            What::Slash => PageLookup::Slash,
            What::Nothing => PageLookup::Nothing,
        }
    }

    fn checked(&self, now: Now) -> Checked {
        let epoch = self.step.epoch.as_ref().map_or(0, |epoch| epoch.load(Ordering::Acquire));
        Checked { at_ms: now.monotonic_ms, epoch }
    }

    /// Returns whether a result validated at `last` may be used at `now`.
    fn holds(&self, last: Checked, now: Checked, settled: bool) -> bool {
        match self.step.epoch {
            Some(_) if last.epoch != now.epoch => false,
            Some(_) => settled || now.at_ms.saturating_sub(last.at_ms) < UNSETTLED_MS,
            None => {
                now.at_ms.saturating_sub(last.at_ms) < self.step.file_check_interval_ms.saturating_sub(CHECK_SLACK_MS)
            }
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
                    // Evicts pages not used since the last eviction; if there are none, all.
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
            // Requests for missing names can cause this: it costs one check per page.
            paths.clear();
        }
        paths.insert(path.into(), CachedLookup { what: what.clone(), checked });
        what
    }

    /// The current result for `path`, and the names of candidate pages that do not exist.
    fn look(&self, path: &[u8], facts: PathFacts) -> (What, Vec<String>) {
        let mut missing = Vec::new();
        let mut page = |name: Vec<u8>| {
            // A name that is not UTF-8 cannot be shown in messages.
            let name = String::from_utf8(name).ok()?;
            if let Ok(Named::File(_)) = self.step.root.identify(name.as_bytes()) {
                let name = name.into_boxed_str();
                return Some(What::Page(Rc::new(PageEntry {
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
        // Included parts handle no requests: they may be incomplete pages.
        let is_part = std::str::from_utf8(path).is_ok_and(flatout_template::is_part);
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

    /// The current page of `slot`.
    #[inline]
    fn loaded(&self, slot: &PageEntry, checked: Checked, sandbox: &Sandbox) -> Rc<Loaded> {
        slot.used.set(true);
        if let Some(loaded) = &*slot.loaded.borrow()
            && self.holds(slot.checked.get(), checked, loaded.settled)
        {
            return Rc::clone(loaded);
        }
        self.load(slot, checked, sandbox)
    }

    #[cold]
    fn load(&self, slot: &PageEntry, checked: Checked, sandbox: &Sandbox) -> Rc<Loaded> {
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

impl fmt::Debug for PageFolder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Folder").field("step", &self.step).finish_non_exhaustive()
    }
}
