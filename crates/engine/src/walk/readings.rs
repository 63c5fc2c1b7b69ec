//! Paths that servers read in different ways.
//!
//! Some take `%2F`, `%5C` or `\\` for a separator, some let `..` remove an empty segment, and servers of Java drop what follows
//! a `;`. The routes are walked by one reading; a request is refused where another would lead elsewhere, as the origin, which
//! gets the path as it came, might see what a rule of this server was to guard.
//!
//! A script or a page has several names as well: `/a.php/b` runs `/a.php`, and `/a.lhtml` is the page `/a`. A request for one of
//! the others is refused where a rule guards the plain name.

use super::Walk;
use crate::outcome::RouteOutcome;
use crate::step::{Block, Kind, Route};
use flatout_handler::routed::Refusal;
use flatout_http::path::{PathFacts, Readings, decode_as, decode_path};
use flatout_http::refusal::Refusal as PathRefusal;

/// The path as another program may interpret it.
#[derive(Debug)]
pub(super) struct Reading {
    /// The ways in which this reading differs; none: it is the plain name of the script or page that the path runs.
    ways: Readings,
    /// The path decoded so, without its first slash.
    pub(super) decoded: Vec<u8>,
}

impl Reading {
    /// Returns true if a `;` is what makes it differ. Few servers read it, and many paths hold one.
    const fn drops_parameters(&self) -> bool {
        self.ways.has(Readings::PARAMETERS)
    }

    /// Returns true if it is the plain name of what the path runs.
    const fn is_plain_name(&self) -> bool {
        self.ways.is_empty()
    }

    /// Returns true if another server would read the path so. Scripts see what follows a `;`.
    pub(super) const fn is_of_servers(&self) -> bool {
        !self.drops_parameters() && !self.is_plain_name()
    }
}

impl Walk<'_> {
    /// Decodes `path`, which is the path from now on, in every way there is.
    ///
    /// # Errors
    /// As [`decode_path`], also when it leads above the root in one reading only.
    pub(super) fn read_path(&mut self, path: &[u8]) -> Result<PathFacts, PathRefusal> {
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
        if let Some(names) = &self.site.guarded_names {
            for decoded in names.plain_names(&self.decoded) {
                self.readings.push(Reading { ways: Readings::NONE, decoded });
            }
        }
        Ok(self.facts)
    }

    #[cold]
    fn add_readings(&mut self, path: &[u8], ways: Readings) -> Result<(), PathRefusal> {
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

    /// True if some reading of the path would decide about `route` otherwise than the one that the walk follows.
    ///
    /// A `;` counts for less: a path that has to lose its parameters to match is kept from rules that guard, and a path that
    /// matches because of them (`*.css`) from any.
    pub(super) fn is_ambiguous(&self, route: &Route, matches: bool) -> bool {
        self.readings.iter().any(|reading| {
            let would = route.match_request(self.request.head, &reading.decoded).is_ok();
            match (matches, would) {
                (false, true) => reading.is_of_servers() || guards(&route.block),
                (true, false) => !reading.is_plain_name(),
                _ => false,
            }
        })
    }
}

/// The refusal of a path whose readings lead to different routes or scripts.
pub(super) fn ambiguous() -> Refusal {
    let text = "Servers read this path in different ways. Write it without `%2F`, `%5C`, `\\` and `;`, and without \
                anything behind the name of a script or page.";
    Refusal::new(400, text, RouteOutcome::AmbiguousPath)
}

/// The names that scripts and pages of a site have besides their plain ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScriptNames {
    /// How the names of scripts end.
    pub(crate) suffixes: Vec<String>,
    /// The handlers that respond for a folder.
    pub(crate) index: Vec<String>,
    /// True if there are pages.
    pub(crate) pages: bool,
}

impl ScriptNames {
    /// Returns the other scripts that `path`, decoded and without its first slash, may run.
    fn plain_names(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        let ends = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/').map(|(at, _)| at);
        let is_script = |name: &[u8]| self.suffixes.iter().any(|suffix| name.ends_with(suffix.as_bytes()));
        names.extend(ends.map(|end| &path[..end]).filter(|name| is_script(name)).map(<[u8]>::to_vec));
        if path.is_empty() || path.ends_with(b"/") {
            names.extend(self.index.iter().map(|index| [path, index.as_bytes()].concat()));
        }
        if self.pages {
            let page = path.strip_suffix(b".lhtml");
            names.extend(page.map(<[u8]>::to_vec));
            let folder = page.unwrap_or(path).strip_suffix(b"index");
            names.extend(folder.filter(|folder| folder.is_empty() || folder.ends_with(b"/")).map(<[u8]>::to_vec));
        }
        names
    }
}

/// Returns true if `block` lets some requests pass and others not. Routes are nested to a bounded depth.
pub(crate) fn guards(block: &Block) -> bool {
    block.steps.iter().any(|step| match &step.kind {
        Kind::Access(_) | Kind::BasicAuth { .. } => true,
        // A status of its own, mostly 403 or 404, keeps others out as well.
        Kind::Respond { respond, .. } => respond.status >= 400,
        Kind::Route(route) => guards(&route.block),
        _ => false,
    })
}
