//! Paths that servers interpret in different ways.
//!
//! Some servers treat `%2F`, `%5C` or `\\` as a separator, in some `..` removes an empty segment, and Java servers
//! ignore everything after a `;` in a segment. Routes are matched against a single interpretation. If another
//! interpretation would match different routes, the request is refused. Otherwise, the origin, which receives the path
//! unchanged, might serve a resource that a rule of this server is meant to protect.
//!
//! A script or page may also have several names: `/a.php/b` runs `/a.php`, and `/a.lhtml` is the page `/a`. A request
//! that uses any other name is refused if a rule protects the plain name.

use super::Walk;
use crate::outcome::RouteOutcome;
use crate::step::{Block, Kind, Route};
use flatout_handler::routed::Refusal;
use flatout_http::path::{PathFacts, Readings, decode_as, decode_path};
use flatout_http::refusal::Refusal as PathRefusal;

/// An interpretation of the path that another program may use.
#[derive(Debug)]
pub(super) struct Reading {
    /// How this interpretation differs. Empty if it is the plain name of the script or page that the path runs.
    ways: Readings,
    /// The path according to this interpretation, decoded and without its leading slash.
    pub(super) decoded: Vec<u8>,
}

impl Reading {
    /// Returns whether the interpretation differs because of a `;`, which few servers interpret and many paths contain.
    const fn drops_parameters(&self) -> bool {
        self.ways.has(Readings::PARAMETERS)
    }

    /// Returns whether this is the plain name of the script or page that the path runs.
    const fn is_plain_name(&self) -> bool {
        self.ways.is_empty()
    }

    /// Returns whether this is an interpretation of another server that affects scripts too. Parameters after a `;` do
    /// not, since scripts receive them.
    pub(super) const fn is_of_servers(&self) -> bool {
        !self.drops_parameters() && !self.is_plain_name()
    }
}

impl Walk<'_> {
    /// Sets the current path to `path`, and determines all its interpretations.
    ///
    /// # Errors
    /// Returns the errors of [`decode_path`], even if only one interpretation leads above the root.
    pub(super) fn read_path(&mut self, path: &[u8]) -> Result<PathFacts, PathRefusal> {
        self.readings.clear();
        self.facts = decode_path(path, &mut self.decoded)?;
        let mut ways = self.facts.readings;
        if !self.site.forwards {
            // Without an origin, no server ignores path parameters.
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

    /// Returns whether any other interpretation of the path leads to a different result for `route`. `matches` is the
    /// result for the current path.
    ///
    /// Path parameters (`;`) are checked less strictly. A path that matches only without its parameters is ambiguous
    /// only for routes that restrict access. A path that matches only because of them (`*.css`) is ambiguous for any
    /// route.
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

/// Returns the refusal of a path whose interpretations lead to different routes or scripts.
pub(super) fn ambiguous() -> Refusal {
    let text = "Servers interpret this path in different ways. Write it without `%2F`, `%5C`, `\\` and `;`, and without anything after the name of a script or page.";
    Refusal::new(400, text, RouteOutcome::AmbiguousPath)
}

/// Rules for the names that scripts and pages of a site have besides their plain names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScriptNames {
    /// Suffixes of script names.
    pub(crate) suffixes: Vec<String>,
    /// Names of the scripts that respond for a folder.
    pub(crate) index: Vec<String>,
    /// True if there are active pages.
    pub(crate) pages: bool,
}

impl ScriptNames {
    /// Returns the plain names of the scripts and pages that `path`, decoded and without its leading slash, may run.
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

/// Returns whether `block` restricts access. The recursion is bounded by the maximum nesting depth of routes.
pub(crate) fn guards(block: &Block) -> bool {
    block.steps.iter().any(|step| match &step.kind {
        Kind::Access(_) | Kind::BasicAuth { .. } => true,
        // A configured error status, usually 403 or 404, also restricts access.
        Kind::Respond { respond, .. } => respond.status >= 400,
        Kind::Route(route) => guards(&route.block),
        _ => false,
    })
}
