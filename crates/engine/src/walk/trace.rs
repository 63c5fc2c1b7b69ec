//! Who is told of a walk: nobody when a request is answered, `explain` when one is explained.

use crate::explain::Forwarding;
use crate::host::Match;
use crate::spec::{Change, FilesSpec, PageSpec, SiteSpec};
use crate::step::Step;

/// Is told what happens to a request.
pub(crate) trait Trace {
    /// Whether anybody listens. If so, nothing is counted and no password is verified, and steps that an index would
    /// leave out are walked, too.
    const TOLD: bool;

    /// The site was found.
    fn site(&mut self, site: &SiteSpec, matched: Match);

    /// A step was come to, and this is what it made of the request.
    fn step(&mut self, step: &Step, verdict: impl FnOnce() -> String);

    /// What follows happens within the route just told of.
    fn enter(&mut self);

    /// The route is over.
    fn leave(&mut self);

    /// A step changes the fields of the answer.
    fn change(&mut self, step: &Step, change: &Change);

    /// A file is looked for, with this path below the root, decoded; should it not be there, so are the `tries`, in
    /// their order.
    fn file(&mut self, files: &FilesSpec, decoded: &[u8], tries: &[Vec<u8>]);

    /// A page stands for an error.
    fn page(&mut self, page: &PageSpec);

    /// An origin answers, or what is kept of its answers.
    fn forward(&mut self, step: &Step, forwarding: impl FnOnce() -> Forwarding);

    /// A program answers: the name of that ending, and a sentence.
    fn run(&mut self, ending: (&'static str, &'static str));
}

/// Nobody.
#[derive(Debug)]
pub(crate) struct Silent;

impl Trace for Silent {
    const TOLD: bool = false;

    #[inline]
    fn site(&mut self, _: &SiteSpec, _: Match) {}

    #[inline]
    fn step(&mut self, _: &Step, _: impl FnOnce() -> String) {}

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
