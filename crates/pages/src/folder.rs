//! The pages of a step on one worker. Finds the page for a path, compiles it on first use, and compiles it again when
//! one of its files changes.
//!
//! A result is valid for some time (`file-check-interval`), or until the kernel reports a change. After that, metadata
//! is read, and only files with a new identity are read again. A page is replaced as a whole: a run continues with the
//! version with which it started.

use crate::page::Loaded;
use crate::sandbox::Sandbox;
use crate::step::PagesStep;
use flatout_http::path::PathFacts;
use flatout_os::clock::Now;
use flatout_os::random::HashState;
use flatout_os::root::Named;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of cached paths, including paths without a page.
const PATHS_MAX: usize = 16_384;

/// Maximum length of a cached path, in bytes. Longer paths are looked up for each request, so that requests cannot fill
/// memory with them.
const PATH_BYTES_MAX: usize = 256;

/// Maximum number of cached pages.
const PAGES_MAX: usize = 8_192;

/// A change must take effect within the file check interval. This margin covers the tick of the coarse clock and the
/// response itself, in milliseconds.
const CHECK_SLACK_MS: u64 = 50;

/// Interval between checks of an unsettled page in a watched folder, in milliseconds.
const UNSETTLED_MS: u64 = 100;

/// File name extensions of pages and scripts. Their source is never served.
pub const SOURCE_ENDINGS: &[&str] = &[".lhtml", ".luau"];

const PAGE_ENDING: &[u8] = b".lhtml";
const INDEX: &[u8] = b"index.lhtml";

/// The pages of a step on one worker.
#[derive(derive_more::Debug)]
#[debug("PageFolder({step:?})")]
pub struct PageFolder {
    step: Arc<PagesStep>,
    paths: RefCell<HashMap<Box<[u8]>, CachedLookup, HashState>>,
    slots: RefCell<HashMap<Box<str>, Rc<PageEntry>, HashState>>,
}

/// The result of looking up a path.
#[derive(Clone, Debug)]
pub(crate) enum PageLookup {
    /// The path has a page, which has been read and compiled.
    Page(Rc<Loaded>),
    /// The path is that of a folder with an index page, but has no trailing slash.
    Slash,
    /// The path has no page.
    Nothing,
}

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

/// A page, identified by its name.
#[derive(Debug)]
struct PageEntry {
    name: Box<str>,
    loaded: RefCell<Option<Rc<Loaded>>>,
    checked: Cell<Checked>,
    /// True if the page has been used since the last eviction.
    used: Cell<bool>,
}

/// When a result was last validated: the time in milliseconds, and the number of changes reported by then.
#[derive(Clone, Copy, Debug, Default)]
struct Checked {
    at_ms: u64,
    epoch: u64,
}

impl PageFolder {
    /// Creates the pages of `step`, with an empty cache.
    pub fn new(step: Arc<PagesStep>) -> Rc<Self> {
        Rc::new(Self { step, paths: RefCell::default(), slots: RefCell::default() })
    }

    /// The step that the pages belong to.
    pub const fn step(&self) -> &Arc<PagesStep> {
        &self.step
    }

    /// Returns the name of the file that currently handles `path`, which is decoded and has no leading slash. Caches
    /// nothing.
    pub fn name_of(&self, path: &[u8], facts: PathFacts) -> Option<String> {
        match self.look(path, facts) {
            (What::Page(slot), _) => Some(slot.name.to_string()),
            _ => None,
        }
    }

    /// Returns the result for `path`, which is decoded and has no leading slash.
    pub(crate) fn find(&self, path: &[u8], facts: PathFacts, now: Now, sandbox: &Sandbox) -> PageLookup {
        let checked = self.checked(now);
        // In a `page` step, one page handles all paths.
        let path = if self.step.only.is_some() { b"" } else { path };
        let known = self.paths.borrow().get(path).and_then(|known| {
            // The result counts as settled: within a clock tick, only a page's content can change unnoticed, but not its
            // existence.
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

    /// Returns whether a result that was validated at `last` may be used at `now`.
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
                    // Evicts the pages not used since the last eviction, or all pages if that does not free enough.
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
            // Requests for missing pages can cause this. It costs one check per page.
            paths.clear();
        }
        paths.insert(path.into(), CachedLookup { what: what.clone(), checked });
        what
    }

    /// Looks up `path`. Also returns the names of candidate pages that do not exist.
    fn look(&self, path: &[u8], facts: PathFacts) -> (What, Vec<String>) {
        let mut missing = Vec::new();
        let mut page = |name: Vec<u8>| {
            // A name that is not UTF-8 could not be shown in messages.
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
        // Included files do not handle requests, because they may be incomplete pages.
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

    /// Returns the current version of the page `slot`.
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
