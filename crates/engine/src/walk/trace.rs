//! Observers of a walk: none for a request, the recorder of `explain` for an explanation.

use crate::explain::Forwarding;
use crate::host::Match;
use crate::spec::{Change, FilesSpec, PageSpec, SiteSpec};
use crate::step::Step;
use std::fmt;

/// Effect of a step on the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The route applies.
    Matched,
    /// The route does not apply, for this reason.
    NotMatched(&'static str),
    /// Another step's effect, in words.
    Said(String),
}

impl Effect {
    /// An effect in words.
    pub(crate) fn said(text: impl Into<String>) -> Self {
        Self::Said(text.into())
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Matched => formatter.write_str("matches"),
            Self::NotMatched(reason) => write!(formatter, "does not match: {reason}"),
            Self::Said(text) => formatter.write_str(text),
        }
    }
}

/// Receives the events of a request's walk.
pub(crate) trait Trace {
    /// True if events are recorded. Then nothing is counted, no password is verified, and steps that the index would
    /// skip are walked, too.
    const TOLD: bool;

    /// The site was selected.
    fn site(&mut self, site: &SiteSpec, matched: Match);

    /// A step was reached, with this effect.
    fn step(&mut self, step: &Step, effect: impl FnOnce() -> Effect);

    /// The following events are within the route just reported.
    fn enter(&mut self);

    /// The route ended.
    fn leave(&mut self);

    /// A step changes response fields.
    fn change(&mut self, step: &Step, change: &Change);

    /// A file is looked up at this decoded path below the root; if it does not exist, the `tries` follow in order.
    fn file(&mut self, files: &FilesSpec, decoded: &[u8], tries: &[Vec<u8>]);

    /// A custom error page is used.
    fn page(&mut self, page: &PageSpec);

    /// An origin or its stored responses handle the request.
    fn forward(&mut self, step: &Step, forwarding: impl FnOnce() -> Forwarding);

    /// A program handles the request: the outcome's name, and a sentence.
    fn run(&mut self, ending: (&'static str, &'static str));
}

/// Discards all events.
#[derive(Debug)]
pub(crate) struct Silent;

impl Trace for Silent {
    const TOLD: bool = false;

    #[inline]
    fn site(&mut self, _: &SiteSpec, _: Match) {}

    #[inline]
    fn step(&mut self, _: &Step, _: impl FnOnce() -> Effect) {}

    #[inline]
    fn enter(&mut self) {}

    #[inline]
    fn leave(&mut self) {}

    #[inline]
    fn change(&mut self, _: &Step, _: &Change) {}

    #[inline]
    fn file(&mut self, _: &FilesSpec, _: &[u8], _: &[Vec<u8>]) {}

    #[inline]
    fn page(&mut self, _: &PageSpec) {}

    #[inline]
    fn forward(&mut self, _: &Step, _: impl FnOnce() -> Forwarding) {}

    #[inline]
    fn run(&mut self, _: (&'static str, &'static str)) {}
}
