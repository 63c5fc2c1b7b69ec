//! Paths that servers interpret in different ways.
//!
//! Some servers treat `%2F`, `%5C` or `\\` as a separator, in some `..` removes an empty segment, and Java servers
//! ignore everything after a `;` in a segment. Routes are matched against a single interpretation. If another
//! interpretation would match different routes, the request is refused. Otherwise, the origin, which receives the path
//! unchanged, might serve a resource that a rule of this server is meant to protect.
//!
//! A script or page may also have several names: `/a.php/b` runs `/a.php`, and `/a.lhtml` is the page `/a`. A request
//! that uses any other name is refused if a rule protects the plain name. It is also refused if a route leads requests
//! for the plain name elsewhere, for example by a rewrite, and the script or page would run nevertheless.

use super::Walk;
use crate::outcome::RouteOutcome;
use crate::step::{Block, Kind, Rewrite, Route};
use flatout_fastcgi::{Meaning, PhpStep};
use flatout_handler::routed::Refusal;
use flatout_http::path::{PathFacts, Readings, decode_as, decode_path};
use flatout_http::refusal::Refusal as PathRefusal;
use flatout_http::request::RequestHead;
use flatout_pages::PageFolder;

/// An interpretation of the path that another program may use.
#[derive(Debug)]
pub(super) struct Reading {
    /// How this interpretation differs. Empty if it is the plain name of the script or page that the path runs.
    ways: Readings,
    /// The path according to this interpretation, decoded and without its leading slash.
    pub(super) decoded: Vec<u8>,
    /// The kind of plain name that this is, if it is one.
    plain: Option<PlainName>,
    /// True if a route that leads requests for this plain name elsewhere was skipped.
    evades_route: bool,
}

/// The kinds of plain names, by how the path differs from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlainName {
    /// The path continues after the name of a script.
    Script,
    /// The path is that of a folder, for which a script responds, or that of a folder's index page.
    Index,
    /// The path has the ending of a page's file.
    Page,
}

impl Reading {
    /// Returns whether the interpretation differs because of a `;`, which few servers interpret and many paths contain.
    const fn drops_parameters(&self) -> bool {
        self.ways.has(Readings::PARAMETERS)
    }

    /// Returns whether this is the plain name of the script or page that the path runs.
    const fn is_plain_name(&self) -> bool {
        self.plain.is_some()
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
        let mut earlier = std::mem::take(&mut self.readings);
        earlier.retain(|reading| reading.evades_route);
        self.facts = decode_path(path, &mut self.decoded)?;
        let mut ways = self.facts.readings;
        if !self.site.forwards {
            // Without an origin, no server ignores path parameters.
            ways = ways.without(Readings::PARAMETERS);
        }
        if !ways.is_empty() {
            self.add_readings(path, ways)?;
        }
        if let Some(names) = &self.site.script_names {
            for (plain, decoded) in names.plain_names(&self.decoded) {
                // A rewrite may have removed a prefix of the path.
                let evades_route = earlier.iter().any(|e| e.plain == Some(plain) && e.decoded.ends_with(&decoded));
                self.readings.push(Reading { ways: Readings::NONE, decoded, plain: Some(plain), evades_route });
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
                self.readings.push(Reading { ways, decoded, plain: None, evades_route: false });
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

    /// Records that the path does not match `route`, for plain names that match it and that it leads elsewhere.
    pub(super) fn note_skipped(&mut self, route: &Route) {
        let head = self.request.head;
        for reading in &mut self.readings {
            if let Some(plain) = reading.plain
                && route.match_request(head, &reading.decoded).is_ok()
                && leads_elsewhere(&route.block, plain, &reading.decoded, head)
            {
                reading.evades_route = true;
            }
        }
    }

    /// Returns whether the script that `php` would run is one whose plain name a skipped route leads elsewhere. The
    /// front controller runs for every path, so that no path opens it.
    pub(super) fn evades_route_to_script(&self, php: &PhpStep) -> bool {
        let is_script = |reading: &&Reading| reading.evades_route && reading.plain != Some(PlainName::Page);
        let mut names = self.readings.iter().filter(is_script).peekable();
        if names.peek().is_none() {
            return false;
        }
        let Meaning::Script(script, _) = php.find(&self.decoded) else { return false };
        let controller = php.settings().front_controller.as_deref();
        controller.is_none_or(|controller| controller.as_bytes() != script) && names.any(|name| name.decoded == script)
    }

    /// Returns whether the page of `folder` that would run is one whose plain name a skipped route leads elsewhere. A
    /// `page` step runs for every path, so its paths are not names of files.
    pub(super) fn evades_route_to_page(&self, folder: &PageFolder) -> bool {
        let is_page = |reading: &&Reading| reading.evades_route && reading.plain != Some(PlainName::Script);
        let mut names = self.readings.iter().filter(is_page).peekable();
        if names.peek().is_none() || folder.step().is_single() {
            return false;
        }
        let Some(page) = folder.name_of(&self.decoded, self.facts) else { return false };
        names.any(|name| folder.name_of(&name.decoded, self.facts).as_ref() == Some(&page))
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
    fn plain_names(&self, path: &[u8]) -> Vec<(PlainName, Vec<u8>)> {
        let mut names = Vec::new();
        let ends = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/').map(|(at, _)| at);
        let is_script = |name: &[u8]| self.suffixes.iter().any(|suffix| name.ends_with(suffix.as_bytes()));
        let scripts = ends.map(|end| &path[..end]).filter(|name| is_script(name));
        names.extend(scripts.map(|name| (PlainName::Script, name.to_vec())));
        if path.is_empty() || path.ends_with(b"/") {
            names.extend(self.index.iter().map(|index| (PlainName::Index, [path, index.as_bytes()].concat())));
        }
        if self.pages {
            let page = path.strip_suffix(b".lhtml");
            let folder = page.unwrap_or(path).strip_suffix(b"index");
            let folder = folder.filter(|folder| folder.is_empty() || folder.ends_with(b"/"));
            names.extend(page.map(|name| (PlainName::Page, name.to_vec())));
            names.extend(folder.map(|name| (PlainName::Index, name.to_vec())));
        }
        names
    }
}

/// Returns whether `block` restricts access. The recursion is bounded by the maximum nesting depth of routes.
fn guards(block: &Block) -> bool {
    block.steps.iter().any(|step| match &step.kind {
        Kind::Access(_) | Kind::BasicAuth { .. } => true,
        // A configured error status, usually 403 or 404, also restricts access.
        Kind::Respond { respond, .. } => respond.status >= 400,
        Kind::Route(route) => guards(&route.block),
        _ => false,
    })
}

/// Returns whether `block` leads a request for the plain name `script` away from the scripts and pages that run after the
/// block. `head` is that of the request. Of the steps that respond, only a rewrite counts for the index of a folder: `/`
/// may well respond with what `/index.php` redirects to.
fn leads_elsewhere(block: &Block, plain: PlainName, script: &[u8], head: &RequestHead<'_>) -> bool {
    block.steps.iter().any(|step| match &step.kind {
        Kind::Rewrite(Rewrite::To(template)) => !template.is_always_path(script),
        Kind::Rewrite(Rewrite::StripPrefix(_)) => true,
        Kind::Route(route) => {
            route.match_request(head, script).is_ok() && leads_elsewhere(&route.block, plain, script, head)
        }
        Kind::Files { .. } | Kind::Redirect { .. } | Kind::Respond { .. } | Kind::Metrics | Kind::Proxy(_) => {
            plain != PlainName::Index
        }
        // Other steps do not respond, restrict access, which is checked where the route is skipped, or run the script too.
        _ => false,
    })
}
