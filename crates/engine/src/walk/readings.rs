//! Paths that servers read in different ways.
//!
//! Some take `%2F`, `%5C` or `\\` for a separator, some let `..` remove an empty segment, and servers of Java drop what follows
//! a `;`. The routes are walked by one reading; a request is refused where another would lead elsewhere, as the origin, which
//! gets the path as it came, might see what a rule of this server was to guard.

use super::{Trace, Walk};
use crate::answer::Failure;
use crate::outcome::Outcome;
use crate::step::{Block, Kind, Route, Step};
use flatout_http::path::{PathFacts, Readings, decode_as, decode_path};
use flatout_http::refusal::Refusal;
use flatout_net::response::Response;

/// The path as another program may interpret it.
#[derive(Debug)]
pub(super) struct Reading {
    /// The ways in which this reading differs.
    ways: Readings,
    /// The path decoded so, without its first slash.
    pub(super) decoded: Vec<u8>,
}

impl Reading {
    /// Whether a `;` is what makes it differ. Few servers read it, and many paths hold one.
    pub(super) const fn drops_parameters(&self) -> bool {
        self.ways.has(Readings::PARAMETERS)
    }
}

impl<T: Trace> Walk<'_, T> {
    /// Decodes `path`, which is the path from now on, in every way there is.
    ///
    /// # Errors
    /// As [`decode_path`], also when it leads above the root in one reading only.
    pub(super) fn read_path(&mut self, path: &[u8]) -> Result<PathFacts, Refusal> {
        self.readings.clear();
        self.facts = decode_path(path, &mut self.decoded)?;
        let mut ways = self.facts.readings;
        if !self.site.forwards {
            // No origin drops anything.
            ways = ways.without(Readings::PARAMETERS);
        }
        if !ways.is_empty() {
            self.add_readings(path, ways)?;
        }
        Ok(self.facts)
    }

    #[cold]
    fn add_readings(&mut self, path: &[u8], ways: Readings) -> Result<(), Refusal> {
        for ways in ways.combinations() {
            let mut decoded = Vec::new();
            decode_as(path, ways, &mut decoded)?;
            let is_known = |known: &Reading| known.decoded == decoded;
            if decoded != self.decoded && !self.readings.iter().any(is_known) {
                self.readings.push(Reading { ways, decoded });
            }
        }
        Ok(())
    }

    /// Whether some reading of the path would decide about `route` otherwise than the one that the walk follows.
    ///
    /// A `;` counts for less: a path that has to lose its parameters to match is kept from rules that guard, and a path that
    /// matches because of them (`*.css`) from any.
    pub(super) fn is_ambiguous(&self, route: &Route, matches: bool) -> bool {
        self.readings.iter().any(|reading| {
            let would = route.match_request(self.request.head, &reading.decoded).is_ok();
            would != matches && (matches || !reading.drops_parameters() || guards(&route.block))
        })
    }

    pub(super) fn refuse_ambiguous(&mut self, step: &Step) -> Response {
        self.trace.step(step, || "could match or not, depending on who reads the path: refused".to_owned());
        let text = "Servers read this path in different ways. Write it without `%2F`, `%5C`, `\\` and `;`.";
        self.fail(&Failure::new(400, text, Outcome::AmbiguousPath))
    }
}

/// Whether `block` lets some requests pass and others not. Routes are nested to a bounded depth.
fn guards(block: &Block) -> bool {
    block.steps.iter().any(|step| match &step.kind {
        Kind::Access(_) | Kind::BasicAuth { .. } => true,
        // A status of its own, mostly 403 or 404, keeps others out as well.
        Kind::Respond { respond, .. } => respond.status >= 400,
        Kind::Route(route) => guards(&route.block),
        _ => false,
    })
}
