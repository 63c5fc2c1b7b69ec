//! Compilation of typed settings to a [`Spec`], which collects all problems.

use super::folders::describe_fault;
use super::php::script_folders;
use super::private::exposed;
use super::{Change, ListenerSpec, PageSpec, SiteSpec, Sources, Spec};
use crate::auth::{Auth, Verifier};
use crate::cors::Cors;
use crate::error::{SpecError, show_place};
use crate::rate::RateTable;
use crate::step::{Block, Kind, Rewrite, Route, Step};
use crate::text::{Template, encode_segment};
use crate::walk::readings::ScriptNames;
use flatout_config::encode::{hide_secrets, step_to_kdl};
use flatout_config::model::{
    self, Config, FieldOp, Handler, Http3, ListenAddress, Place, Protocol, StepKind, Text, TextPart, Variable,
};
use flatout_config::parse_field_text;
use flatout_handler::response::LOG_NONE;
use flatout_http::lines::new_fields;
use flatout_http::token::is_token;
use flatout_pages::PagesStep;
use flatout_proxy::realm::SiteIdentity;
use flatout_proxy::{CacheStep, ProxyStep};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum nesting depth of routes, which bounds recursion when a request is handled.
const DEPTH_MAX: usize = 32;

pub(super) fn compile(config: &Config, sources: &Sources<'_>) -> Result<Spec, Vec<SpecError>> {
    let mut compiler = Compiler {
        secrets: &config.secrets,
        previous: sources.previous,
        has_pages: config
            .steps()
            .any(|step| matches!(step.kind, StepKind::Handler(Handler::Pages(_) | Handler::Page(_)))),
        scripts: script_folders(config),
        errors: Vec::new(),
        path: String::new(),
        answers: 0,
        auths: 0,
        site_listeners: Vec::new(),
        proxy_names: HashMap::new(),
        rate_keys: HashSet::new(),
        spec: Spec {
            listeners: Vec::new(),
            sites: Vec::new(),
            folders: Vec::new(),
            files: Vec::new(),
            pages: Vec::new(),
            hints: Vec::new(),
            changes: Vec::new(),
            proxies: Vec::new(),
            cache_steps: Vec::new(),
            active: Vec::new(),
            active_places: Vec::new(),
            pages_shared: sources.pages.clone().unwrap_or_default(),
            php: Vec::new(),
            accelerator: sources.accelerator.clone().unwrap_or_default(),
            rates: Vec::new(),
            trusted: config.trusted.clone(),
            verifier: None,
            metrics: sources.metrics.clone(),
            next_files_id: sources.previous.map_or(0, |previous| previous.next_files_id),
        },
    };
    for (index, listener) in config.listeners.iter().enumerate() {
        compiler.spec.listeners.push(ListenerSpec {
            redirect_https_port: listener.redirect_https_port,
            address: Some(listener.address.clone()),
            secure: listener.protocol == Protocol::Tls,
            http3: config.http3(index) != Http3::Off,
            proxy_protocol: listener.proxy_protocol.clone(),
            log: LOG_NONE,
            ..ListenerSpec::default()
        });
    }
    for site in &config.sites {
        compiler.site_listeners = if shares_host(config, site) {
            site.listeners.iter().filter_map(|&index| Some(config.listeners.get(index)?.address.clone())).collect()
        } else {
            Vec::new()
        };
        compiler.add_site(site);
    }
    for (place, what, advice) in exposed(config) {
        compiler.fail(&place, what, advice);
    }
    add_sites_of_successors(&mut compiler.spec.listeners);
    for listener in &mut compiler.spec.listeners {
        let first = listener.hosts.sites.first().and_then(|&site| compiler.spec.sites.get(site as usize));
        listener.log = first.map_or(LOG_NONE, |site| site.log);
    }
    if compiler.errors.is_empty() { Ok(compiler.spec) } else { Err(compiler.errors) }
}

/// Connects removed listeners with the sites of those that have taken over their addresses, for instance with another
/// setting of HTTP/2: the connections of a removed listener outlive it. Connections without TLS do not continue with
/// sites that now require it.
fn add_sites_of_successors(listeners: &mut [ListenerSpec]) {
    for index in 0..listeners.len() {
        let removed = &listeners[index];
        let is_successor = |other: &&ListenerSpec| {
            other.address == removed.address && other.secure == removed.secure && !other.hosts.sites.is_empty()
        };
        // A listener without sites that redirects to https is not removed.
        if removed.hosts.sites.is_empty()
            && removed.redirect_https_port.is_none()
            && let Some(successor) = listeners.iter().find(is_successor)
        {
            let (hosts, port, http3) = (successor.hosts.clone(), successor.redirect_https_port, successor.http3);
            let listener = &mut listeners[index];
            (listener.hosts, listener.redirect_https_port, listener.http3) = (hosts, port, http3);
        }
    }
}

/// Returns whether another site, which must be on other listeners, has one of the host names of `site`.
fn shares_host(config: &Config, site: &model::Site) -> bool {
    let others = config.sites.iter().filter(|other| !std::ptr::eq(*other, site));
    others.flat_map(|other| &other.hosts).any(|host| site.hosts.contains(host))
}

/// Returns whether there are routes, so that rules apply to some paths and not to others.
fn has_routes(block: &Block) -> bool {
    block.steps.iter().any(|step| matches!(step.kind, Kind::Route(_)))
}

/// Returns the names of the scripts and pages of `site`, or `None` if it has none.
fn names_of_scripts(site: &model::Site) -> Option<ScriptNames> {
    let mut names = ScriptNames::default();
    for step in site.steps() {
        match &step.kind {
            StepKind::Handler(Handler::Php(php)) => {
                names.suffixes.extend_from_slice(&php.split);
                names.index.extend_from_slice(&php.index);
            }
            StepKind::Handler(Handler::Pages(_)) => names.pages = true,
            _ => {}
        }
    }
    (names != ScriptNames::default()).then_some(names)
}

pub(super) struct Compiler<'a> {
    /// Values that must not occur in the description of a step.
    secrets: &'a [String],
    pub(super) previous: Option<&'a Spec>,
    /// True if there are active pages. No site then discloses their sources, whichever folder they are in.
    pub(super) has_pages: bool,
    /// Folders that contain scripts, each with the suffixes of script names.
    pub(super) scripts: Vec<(PathBuf, Vec<String>)>,
    errors: Vec<SpecError>,
    /// Hosts and conditions that enclose the current step, which identify a rate limit across reloads.
    path: String,
    answers: u32,
    auths: u32,
    /// Addresses of the current site's listeners, if another site has one of its host names; otherwise empty.
    site_listeners: Vec<ListenAddress>,
    /// Number of `proxy` steps so far by the site's name.
    proxy_names: HashMap<String, u32>,
    rate_keys: HashSet<String>,
    pub(super) spec: Spec,
}

impl Compiler<'_> {
    pub(super) fn fail(&mut self, place: &Place, what: impl Into<String>, advice: impl Into<String>) {
        self.errors.push(SpecError::new(place, what, advice));
    }

    fn add_site(&mut self, site: &model::Site) {
        let number = self.spec.sites.len() as u32;
        for host in &site.hosts {
            for &listener in &site.listeners {
                let Some(table) = self.spec.listeners.get_mut(listener) else { continue };
                if let Err(other) = table.hosts.insert(host, number) {
                    let other =
                        self.spec.sites.get(other as usize).map_or_else(String::new, |site| show_place(&site.place));
                    self.fail(
                        &site.place,
                        format!("`{host}` already has a site on one of these listeners, at {other}"),
                        "merge the two sites, or give them different hosts",
                    );
                }
            }
        }
        self.path = site.hosts.join(" ");
        let log = site.log.and_then(|log| u8::try_from(log).ok()).unwrap_or(LOG_NONE);
        let name = site.hosts.iter().find(|host| !host.contains('*')).cloned();
        let block = self.compile_block(&site.block, site, 0);
        let forwards =
            site.steps().any(|step| matches!(step.kind, StepKind::Handler(Handler::Proxy(_) | Handler::Php(_))));
        self.spec.sites.push(SiteSpec {
            number,
            place: site.place.clone(),
            hosts: site.hosts.clone(),
            name,
            log,
            forwards,
            keeps_empty_segments: forwards || site.steps().any(redirects_path),
            script_names: has_routes(&block).then(|| names_of_scripts(site)).flatten(),
            block,
        });
    }

    fn compile_block(&mut self, block: &[model::Step], site: &model::Site, depth: usize) -> Block {
        let steps = block.iter().filter_map(|step| {
            let kind = self.compile_step(step, site, depth)?;
            let written = hide_secrets(&write_step(step), self.secrets);
            Some(Step { place: step.place.clone(), written: written.into(), kind })
        });
        Block::new(steps.collect())
    }

    /// Compiles a step. Returns `None` if it is invalid, in which case the configuration is not used.
    fn compile_step(&mut self, step: &model::Step, site: &model::Site, depth: usize) -> Option<Kind> {
        let place = &step.place;
        Some(match &step.kind {
            StepKind::Route(route) => {
                if depth >= DEPTH_MAX {
                    self.fail(
                        place,
                        "routes are nested too deeply",
                        format!("nest them at most {DEPTH_MAX} levels deep"),
                    );
                    return None;
                }
                let outer = self.path.len();
                // Writing to a String cannot fail.
                let _ = write!(self.path, " {:?}", route.matchers);
                let block = self.compile_block(&route.block, site, depth + 1);
                self.path.truncate(outer);
                Kind::Route(Route::new(&route.matchers, block))
            }
            StepKind::Header(fields) => Kind::Header(self.add_change(place, fields.clone())),
            StepKind::BasicAuth(auth) => self.compile_auth(place, auth)?,
            StepKind::Access(access) => Kind::Access(access.clone()),
            StepKind::RateLimit(limit) => Kind::RateLimit(self.rate_table(*limit)),
            StepKind::Cors(cors) => {
                if cors.credentials && cors.origins.iter().any(|origin| origin == "*") {
                    let what = "with credentials, any web site could read your users' responses";
                    self.fail(place, what, "list the origins instead of `*`, or remove the credentials");
                    return None;
                }
                let cors = Cors::new(cors, self.spec.changes.len() as u32);
                for fields in cors.changes() {
                    self.add_change(place, fields);
                }
                Kind::Cors(cors)
            }
            StepKind::EarlyHints(links) => {
                self.spec.hints.push(links.clone());
                Kind::EarlyHints(self.spec.hints.len() as u32 - 1)
            }
            StepKind::Rewrite(model::Rewrite::StripPrefix(prefix)) => {
                Kind::Rewrite(Rewrite::StripPrefix(format!("/{}", prefix.trim_matches('/'))))
            }
            StepKind::Rewrite(model::Rewrite::To(text)) => Kind::Rewrite(Rewrite::To(Template::new(text))),
            StepKind::ErrorPage(page) => Kind::ErrorPage(self.compile_page(place, page, site)?),
            StepKind::Cache(rules) => {
                self.spec.cache_steps.push(Arc::new(CacheStep::new(rules)));
                Kind::Cache(self.spec.cache_steps.len() as u32 - 1)
            }
            StepKind::Handler(handler) => self.compile_handler(place, handler, site)?,
        })
    }

    fn compile_handler(&mut self, place: &Place, handler: &Handler, site: &model::Site) -> Option<Kind> {
        Some(match handler {
            Handler::Files(files) => {
                let folder = self.open_folder(place, &files.root, site.watch)?;
                // These folders are not watched, because the folder of a package may have more subfolders than the
                // kernel permits watches.
                let trusted: Vec<_> =
                    files.follow_links.iter().map(|path| self.open_folder(place, path, false)).collect();
                let trusted = trusted.into_iter().collect::<Option<Vec<_>>>()?;
                let index = self.add_files(&folder, &trusted, (**files).clone(), site);
                Kind::Files { index, pass: files.pass }
            }
            Handler::Redirect(redirect) => {
                let to = Template::new(&redirect.to);
                // A visitor must not control the host of a redirect, and `{rest}` might be `https://elsewhere`.
                if let Some(Variable::Rest | Variable::Query) = to.first_variable() {
                    let what = "this is an open redirect: the visitor's URL could name any host";
                    self.fail(place, what, "begin the target with a slash, or with `https://` and a host");
                    return None;
                }
                let literal = to.literal();
                if literal.as_deref() == Some("") {
                    self.fail(place, "the redirect has no target", "add the target");
                    return None;
                }
                Kind::Redirect { id: self.next_answer(), to, status: redirect.status, literal }
            }
            Handler::Respond(respond) => {
                if !is_field_value(&respond.content_type) {
                    self.fail(
                        place,
                        "the type has a character that is not allowed in a header",
                        "write it as in `text/plain`",
                    );
                    return None;
                }
                Kind::Respond { id: self.next_answer(), respond: respond.clone() }
            }
            Handler::Metrics => Kind::Metrics,
            Handler::Proxy(proxy) => self.add_proxy(place, proxy, site)?,
            Handler::Pages(pages) => self.add_pages(place, pages, None, site)?,
            Handler::Page(page) => {
                let Some(name) = page.path.file_name().and_then(|name| name.to_str()) else {
                    let what = format!("`{}` is not a file name", page.path.display());
                    self.fail(place, what, "specify the page or the script");
                    return None;
                };
                self.add_pages(place, page, Some(name.to_owned()), site)?
            }
            Handler::Php(php) => self.add_php(place, php, site)?,
        })
    }

    /// Adds a `proxy` step. If the previous configuration has an equal one, it is reused along with the state of its
    /// origins.
    fn add_proxy(&mut self, place: &Place, settings: &model::Proxy, site: &model::Site) -> Option<Kind> {
        let identity = SiteIdentity { hosts: &site.hosts, listeners: &self.site_listeners };
        let realm = identity.proxy_realm(settings);
        let nth = self.proxy_names.entry(identity.name().to_owned()).or_default();
        let name = match *nth {
            0 => identity.name().to_owned(),
            nth => format!("{}#{nth}", identity.name()),
        };
        *nth += 1;
        let same = |other: &&Arc<ProxyStep>| other.is(&name, &realm, settings);
        let step = match self.previous.and_then(|previous| previous.proxies.iter().find(same)) {
            Some(step) => Arc::clone(step),
            None => match ProxyStep::new(&name, &realm, settings) {
                Ok(step) => Arc::new(step),
                Err((what, advice)) => {
                    self.fail(place, what, advice);
                    return None;
                }
            },
        };
        self.spec.proxies.push(step);
        Some(Kind::Proxy(self.spec.proxies.len() as u32 - 1))
    }

    /// Adds a `pages` or `page` step. If the previous configuration has an equal one, it is reused along with its
    /// compiled pages and open connections.
    fn add_pages(
        &mut self,
        place: &Place,
        settings: &model::Pages,
        only: Option<String>,
        site: &model::Site,
    ) -> Option<Kind> {
        let path = match &only {
            None => &settings.path,
            Some(_) => match settings.path.parent() {
                Some(parent) if parent != Path::new("") => parent,
                _ => Path::new("."),
            },
        };
        let watched = site.watch || settings.settings.dev;
        let folder = self.open_folder(place, path, watched)?;
        if let Some(name) = &only
            && let Err(fault) = folder.root.open_file(name.as_bytes())
        {
            let what = format!("the page `{}` cannot be read: {}", settings.path.display(), describe_fault(fault));
            self.fail(place, what, "use a file that this user can read");
            return None;
        }
        let realm = SiteIdentity { hosts: &site.hosts, listeners: &self.site_listeners }.realm();
        let same =
            |other: &&Arc<PagesStep>| other.is(&realm, &folder.root, settings, site.file_check_interval_ms, watched);
        let known = self.previous.and_then(|previous| previous.active.iter().find(same)).cloned();
        let step = known.unwrap_or_else(|| {
            let (root, epoch) = (Arc::clone(&folder.root), watched.then(|| Arc::clone(&folder.epoch)));
            Arc::new(PagesStep::new(&realm, root, settings.clone(), only, site.file_check_interval_ms, epoch))
        });
        self.spec.active.push(step);
        self.spec.active_places.push(place.clone());
        Some(Kind::Pages(self.spec.active.len() as u32 - 1))
    }

    fn next_answer(&mut self) -> u32 {
        self.answers += 1;
        self.answers
    }

    fn add_change(&mut self, place: &Place, fields: Vec<FieldOp>) -> u32 {
        for field in &fields {
            let (name, value) = (field.name(), field.value().unwrap_or_default());
            if !is_token(name.as_bytes()) || !is_field_value(value) {
                let what = format!("`{name}: {value}` is not a valid header line");
                self.fail(place, what, "a name must be one word, and a value one line");
            } else if !field.is_permitted() {
                let what = format!("`{name}` is a framing or connection-specific (hop-by-hop) field");
                self.fail(place, what, "remove it: the server sets this field as each protocol requires");
            }
        }
        let (fields, rendered) = split_rendered(fields);
        self.spec.changes.push(Change { place: place.clone(), fields, rendered });
        self.spec.changes.len() as u32 - 1
    }

    fn compile_auth(&mut self, place: &Place, auth: &model::BasicAuth) -> Option<Kind> {
        let auth = match Auth::new(&auth.realm, &auth.users) {
            Ok(auth) => Arc::new(auth),
            Err(faults) => {
                for fault in faults {
                    self.fail(place, fault, "create a hash with `flatout passwd`");
                }
                return None;
            }
        };
        if self.spec.verifier.is_none() {
            let running = self.previous.and_then(|previous| previous.verifier.clone());
            match running.map_or_else(Verifier::start, Ok) {
                Ok(verifier) => self.spec.verifier = Some(verifier),
                Err(error) => {
                    let what = format!("the thread that verifies passwords cannot start: {error}");
                    self.fail(place, what, "raise the process's thread limit");
                    return None;
                }
            }
        }
        self.auths += 1;
        Some(Kind::BasicAuth { id: self.auths, auth })
    }

    /// Returns the table of the equal limit with the same hosts and conditions in the previous configuration, or a new
    /// table.
    fn rate_table(&mut self, limit: model::RateLimit) -> Arc<RateTable> {
        let mut key = format!("{} {limit:?}", self.path);
        let base = key.len();
        let mut nth = 1;
        while !self.rate_keys.insert(key.clone()) {
            nth += 1;
            key.truncate(base);
            let _ = write!(key, " {nth}");
        }
        let known = self.previous.and_then(|previous| previous.rates.iter().find(|(other, _)| *other == key));
        let table = known.map_or_else(|| Arc::new(RateTable::new(limit)), |(_, table)| Arc::clone(table));
        self.spec.rates.push((key, Arc::clone(&table)));
        table
    }

    fn compile_page(&mut self, place: &Place, page: &model::ErrorPage, site: &model::Site) -> Option<u32> {
        let shown = page.file.display();
        let Some(name) = page.file.file_name() else {
            self.fail(place, format!("`{shown}` is not a file name"), "specify the file that contains the page");
            return None;
        };
        let parent = match page.file.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let folder = self.open_folder(place, parent, site.watch)?;
        if let Err(fault) = folder.root.open_file(name.as_bytes()) {
            let what = format!("the error page `{shown}` cannot be read: {}", describe_fault(fault));
            self.fail(place, what, "use a file that this user can read");
            return None;
        }
        let settings = model::Files { root: parent.to_owned(), hidden: true, ..model::Files::default() };
        let files = self.add_files(&folder, &[], settings, site);
        self.spec.pages.push(PageSpec {
            place: place.clone(),
            statuses: page.statuses.clone(),
            path: format!("/{}", encode_segment(name.as_bytes())),
            files,
        });
        Some(self.spec.pages.len() as u32 - 1)
    }
}

/// Separates header operations that prebuilt heads can contain from fields whose values depend on the request. For each
/// of the latter that replaces a field, the former include an operation that removes the field.
pub(super) fn split_rendered(fields: Vec<FieldOp>) -> (Vec<FieldOp>, Vec<(String, Text)>) {
    let rendered = new_fields(&fields, |_| true).filter_map(|(name, value)| {
        let text = parse_field_text(value)?;
        Some((name.to_owned(), text))
    });
    let rendered = rendered.collect();
    let fixed = fields.into_iter().filter_map(|field| match field.value().and_then(parse_field_text) {
        None => Some(field),
        Some(_) => field.kind.removes.then(|| FieldOp::remove(field.name().to_owned())),
    });
    (fixed.collect(), rendered)
}

/// Fields of upstream requests whose values are always secret.
const CREDENTIALS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

/// Returns a step in configuration syntax, without password hashes and credentials.
fn write_step(step: &model::Step) -> String {
    let written = match &step.kind {
        StepKind::BasicAuth(auth) => {
            let users = auth.users.iter().map(|(name, _)| (name.clone(), "(hash)".to_owned())).collect();
            let auth = model::BasicAuth { realm: auth.realm.clone(), users };
            step_to_kdl(&model::Step { place: Place::default(), kind: StepKind::BasicAuth(auth) })
        }
        // Parameters of scripts may be secret too.
        StepKind::Handler(Handler::Php(php)) => {
            let env = php.env.iter().map(|(name, _)| (name.clone(), "(value)".to_owned())).collect();
            let php = Box::new(model::Php { env, ..(**php).clone() });
            step_to_kdl(&model::Step { place: Place::default(), kind: StepKind::Handler(Handler::Php(php)) })
        }
        StepKind::Handler(Handler::Proxy(proxy)) => {
            let hide = |field: &FieldOp| {
                let is_secret = CREDENTIALS.iter().any(|name| field.name().eq_ignore_ascii_case(name));
                let value = field.value().map(|value| if is_secret { "(value)" } else { value });
                FieldOp::new(field.kind, field.name().to_owned(), value.unwrap_or_default().to_owned())
            };
            let request_fields = proxy.request_fields.iter().map(hide).collect();
            let hide_secret = |sticky: model::Sticky| model::Sticky { secret: "(value)".to_owned(), ..sticky };
            let sticky = proxy.sticky.clone().map(hide_secret);
            let proxy = Box::new(model::Proxy { request_fields, sticky, ..(**proxy).clone() });
            step_to_kdl(&model::Step { place: Place::default(), kind: StepKind::Handler(Handler::Proxy(proxy)) })
        }
        StepKind::Route(_) => {
            let written = step_to_kdl(step);
            written.trim_end().trim_end_matches('}').trim_end().trim_end_matches('{').to_owned()
        }
        _ => step_to_kdl(step),
    };
    written.trim().to_owned()
}

fn is_field_value(value: &str) -> bool {
    value.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
}

/// Returns whether `step` redirects to a URL that contains the path, or a part of it.
fn redirects_path(step: &model::Step) -> bool {
    let is_path = |part: &TextPart| matches!(part, TextPart::Variable(Variable::Path | Variable::Uri | Variable::Rest));
    matches!(&step.kind, StepKind::Handler(Handler::Redirect(redirect)) if redirect.to.parts.iter().any(is_path))
}
