//! Files below a folder, as a handler of the configuration: one per worker and `files` step.

use crate::cache::CacheLimits;
use crate::outcome::Outcome;
use crate::root::Root;
use crate::site::{Site, SiteOptions};
use flatout_config::model::{self, FieldOp};
use flatout_net::clock::Now;
use flatout_net::handler::{Handler, Reply, Request};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What all workers share: whatever is done beside the event loops.
#[derive(Debug, Default)]
pub struct Services {}

/// What all `files` steps of one worker share: the metadata cache, under one budget.
#[derive(Debug)]
pub struct Store {
    limits: CacheLimits,
}

impl Store {
    /// An empty store.
    pub fn new(limits: CacheLimits, _services: Arc<Services>) -> Rc<Self> {
        Rc::new(Self { limits })
    }
}

/// The header steps in force where a request reached its handler. They are part of the heads that are built once, so
/// every combination has a number of its own.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Its number, unique among the policies of an engine.
    pub id: u32,
    /// The changes, in the order to make them.
    pub fields: Vec<FieldOp>,
}

/// Which file is asked for: the path may have been rewritten.
#[derive(Clone, Copy, Debug)]
pub struct Location<'a> {
    /// The path, still encoded; begins with `/`.
    pub path: &'a [u8],
    /// The query.
    pub query: Option<&'a [u8]>,
}

/// What came of looking for a file.
#[derive(Debug)]
pub enum Found {
    /// The answer.
    Reply(Reply),
    /// An error, without a page yet: the caller may have one of its own, or go on elsewhere.
    Error(ErrorAnswer),
}

/// An error answer that has no content yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorAnswer {
    /// The status.
    pub status: u16,
    /// One sentence for people.
    pub text: &'static str,
    /// Fields that belong to it (`Allow`, `Retry-After`).
    pub fields: Vec<(&'static str, String)>,
    /// Its name for the log.
    pub outcome: Outcome,
}

/// One `files` step.
#[derive(Debug)]
pub struct Files {
    site: Site,
}

impl Files {
    /// The step with number `id`, unique among the steps of an engine, for the folder `root`, which all workers share. `epoch` changes when the kernel has told of a
    /// change below the root; without it, files are looked at every `recheck_ms`.
    pub fn new(
        _id: u32,
        root: Arc<Root>,
        settings: &model::Files,
        recheck_ms: u64,
        _epoch: Option<Arc<AtomicU64>>,
        store: &Rc<Store>,
    ) -> Self {
        let options = SiteOptions { hidden: settings.hidden, recheck_ms, cache_limits: store.limits };
        Self { site: Site::new(root, options) }
    }

    /// Looks for the file at `location` and answers `request` with it, under `policy`.
    pub fn handle(&self, request: &Request<'_>, _location: Location<'_>, _policy: &Rc<Policy>, now: Now) -> Found {
        Found::Reply(self.site.handle(request, now))
    }
}
