//! From typed settings to a [`Spec`]: collects every problem.

use super::php::script_folders;
use super::private::exposed;
use super::{Change, FilesSpec, Folder, ListenerSpec, PageSpec, SiteSpec, Sources, Spec};
use crate::auth::{Auth, Verifier};
use crate::cors::Cors;
use crate::error::{SpecError, show_place};
use crate::rate::RateTable;
use crate::step::{Block, Kind, Rewrite, Route, Step};
use crate::text::{Template, encode_segment};
use crate::walk::readings::{ScriptNames, guards};
use flatout_config::encode::step_to_kdl;
use flatout_config::model::{self, Config, FieldOp, Handler, Place, Protocol, StepKind, Text, Variable};
use flatout_config::parse_field_text;
use flatout_handler::response::LOG_NONE;
use flatout_http::lines::is_fixed;
use flatout_http::token::is_token;
use flatout_os::root::{OpenFault, Root, check_kernel};
use flatout_pages::PagesStep;
use flatout_proxy::{CacheStep, ProxyStep};
use flatout_serve::media::content_type;
use flatout_serve::outcome::FileOutcome;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Upper bound of nested routes, which bounds the recursion of the walk.
const DEPTH_MAX: usize = 32;

pub(super) fn compile(config: &Config, sources: &Sources<'_>) -> Result<Spec, Vec<SpecError>> {
    let mut compiler = Compiler {
        previous: sources.previous,
        has_pages: config
            .steps()
            .any(|step| matches!(step.kind, StepKind::Handler(Handler::Pages(_) | Handler::Page(_)))),
        scripts: script_folders(config),
        errors: Vec::new(),
        path: String::new(),
        answers: 0,
        auths: 0,
        proxies_of_site: 0,
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
            verifier: None,
            metrics: sources.metrics.clone(),
            next_files_id: sources.previous.map_or(0, |previous| previous.next_files_id),
        },
    };
    for listener in &config.listeners {
        compiler.spec.listeners.push(ListenerSpec {
            redirect_https_port: listener.redirect_https_port,
            address: Some(listener.address),
            secure: listener.protocol == Protocol::Tls,
            log: LOG_NONE,
            ..ListenerSpec::default()
        });
    }
    for site in &config.sites {
        compiler.add_site(site);
    }
    for (place, what, advice) in exposed(config) {
        compiler.fail(&place, what, advice);
    }
    for listener in &mut compiler.spec.listeners {
        let first = listener.hosts.sites.first().and_then(|&site| compiler.spec.sites.get(site as usize));
        listener.log = first.map_or(LOG_NONE, |site| site.log);
    }
    if compiler.errors.is_empty() { Ok(compiler.spec) } else { Err(compiler.errors) }
}

/// Returns whether a rule guards some paths and not others.
fn has_guarded_routes(block: &Block) -> bool {
    block.steps.iter().any(|step| matches!(&step.kind, Kind::Route(route) if guards(&route.block)))
}

/// The names of the scripts and pages of `site`; `None` if there are none.
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
    pub(super) previous: Option<&'a Spec>,
    /// True if there are active pages: then no site reveals their sources, whichever folder they are in.
    pub(super) has_pages: bool,
    /// Folders with scripts, and the suffixes of scripts.
    pub(super) scripts: Vec<(PathBuf, Vec<String>)>,
    errors: Vec<SpecError>,
    /// Hosts and conditions around the current step, which identify a rate limit across a reload.
    path: String,
    answers: u32,
    auths: u32,
    /// Number of proxies so far in the current site.
    proxies_of_site: u32,
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
        self.proxies_of_site = 0;
        let block = self.compile_block(&site.block, site, 0);
        self.spec.sites.push(SiteSpec {
            number,
            place: site.place.clone(),
            hosts: site.hosts.clone(),
            name,
            log,
            forwards: site
                .steps()
                .any(|step| matches!(step.kind, StepKind::Handler(Handler::Proxy(_) | Handler::Php(_)))),
            guarded_names: has_guarded_routes(&block).then(|| names_of_scripts(site)).flatten(),
            block,
        });
    }

    fn compile_block(&mut self, block: &[model::Step], site: &model::Site, depth: usize) -> Block {
        let steps = block.iter().filter_map(|step| {
            let kind = self.compile_step(step, site, depth)?;
            Some(Step { place: step.place.clone(), written: write_step(step).into(), kind })
        });
        Block::new(steps.collect())
    }

    /// `None` if the step is invalid, so the configuration is not used.
    fn compile_step(&mut self, step: &model::Step, site: &model::Site, depth: usize) -> Option<Kind> {
        let place = &step.place;
        Some(match &step.kind {
            StepKind::Route(route) => {
                if depth >= DEPTH_MAX {
                    self.fail(place, "routes are nested too deeply", format!("at most {DEPTH_MAX} deep"));
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
                    let what = "with credentials, any web site could read the responses to your users";
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
                // They are not watched: a package's folder may have more subfolders than the kernel has watches.
                let trusted: Vec<_> =
                    files.follow_links.iter().map(|path| self.open_folder(place, path, false)).collect();
                let trusted = trusted.into_iter().collect::<Option<Vec<_>>>()?;
                let index = self.add_files(&folder, &trusted, (**files).clone(), site);
                Kind::Files { index, pass: files.pass }
            }
            Handler::Redirect(redirect) => {
                let to = Template::new(&redirect.to);
                // A visitor must not control the target of a redirect: `{rest}` may be `https://elsewhere`.
                if let Some(Variable::Rest | Variable::Query) = to.first_variable() {
                    let what = "this would redirect to any host that the visitor's URL names";
                    self.fail(place, what, "begin the address with a slash, or with `https://` and a host");
                    return None;
                }
                let literal = to.literal();
                if literal.as_deref() == Some("") {
                    self.fail(place, "a redirect to nowhere", "give its target");
                    return None;
                }
                Kind::Redirect { id: self.next_answer(), to, status: redirect.status, literal }
            }
            Handler::Respond(respond) => {
                if !is_field_value(&respond.content_type) {
                    self.fail(
                        place,
                        "the type has a character that is not allowed in a header",
                        "write it like `text/plain`",
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
                    self.fail(place, what, "give the page or the script");
                    return None;
                };
                self.add_pages(place, page, Some(name.to_owned()), site)?
            }
            Handler::Php(php) => self.add_php(place, php, site)?,
        })
    }

    /// The equal proxy of the previous configuration, if any, with the learnt state of its origins.
    fn add_proxy(&mut self, place: &Place, settings: &model::Proxy, site: &model::Site) -> Option<Kind> {
        // Stored responses are separated by proxy: two origins may have different responses for one URL.
        let name = site.hosts.first().map_or("*", String::as_str);
        let realm = match self.proxies_of_site {
            0 => name.to_owned(),
            nth => format!("{name}#{nth}"),
        };
        self.proxies_of_site += 1;
        let same = |other: &&Arc<ProxyStep>| other.is(&realm, settings);
        let step = match self.previous.and_then(|previous| previous.proxies.iter().find(same)) {
            Some(step) => Arc::clone(step),
            None => match ProxyStep::new(&realm, settings) {
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

    /// The equal step of the previous configuration, if any, with its compiled and open state.
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
            self.fail(place, what, "give a file that this user may read");
            return None;
        }
        let realm = site.hosts.first().map_or("*", String::as_str);
        let same =
            |other: &&Arc<PagesStep>| other.is(realm, &folder.root, settings, site.file_check_interval_ms, watched);
        let known = self.previous.and_then(|previous| previous.active.iter().find(same)).cloned();
        let step = known.unwrap_or_else(|| {
            let (root, epoch) = (Arc::clone(&folder.root), watched.then(|| Arc::clone(&folder.epoch)));
            Arc::new(PagesStep::new(realm, root, settings.clone(), only, site.file_check_interval_ms, epoch))
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
            let (name, value) = match field {
                FieldOp::Set(name, value) | FieldOp::Add(name, value) => (name, value.as_str()),
                FieldOp::Remove(name) => (name, ""),
            };
            if !is_token(name.as_bytes()) || !is_field_value(value) {
                let what = format!("`{name}: {value}` cannot be a header line");
                self.fail(place, what, "a name is one word, and a value is one line");
            } else if is_fixed(name.as_bytes()) {
                let what = format!("`{name}` belongs to the message or to the connection itself");
                self.fail(place, what, "remove it: the server sets it as each protocol requires");
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
                    self.fail(place, fault, "make a hash with `flatout passwd`");
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
                    self.fail(place, what, "allow the process one more thread");
                    return None;
                }
            }
        }
        self.auths += 1;
        Some(Kind::BasicAuth { id: self.auths, auth })
    }

    /// The table of the equal limit under the same hosts and conditions before, or a new one.
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

    /// The folder at `path`, opened once for all steps; that of the previous configuration if it is still the same.
    pub(super) fn open_folder(&mut self, place: &Place, path: &Path, watched: bool) -> Option<Folder> {
        if let Some(known) = self.spec.folders.iter_mut().find(|folder| folder.path == path) {
            known.watched |= watched;
            return Some(known.clone());
        }
        let shown = path.display();
        let metadata = match path.metadata() {
            Ok(metadata) if metadata.is_dir() => metadata,
            Ok(_) => {
                self.fail(place, format!("`{shown}` is not a folder"), "give the folder that contains the files");
                return None;
            }
            Err(error) => {
                let advice = match error.kind() {
                    io::ErrorKind::NotFound => "create it, or correct its name",
                    io::ErrorKind::PermissionDenied => "give the user that starts flatout permission to enter it",
                    _ => "check whether `ls -la` can list it",
                };
                self.fail(place, format!("the folder `{shown}` cannot be used: {}", describe(&error)), advice);
                return None;
            }
        };
        let identity = (metadata.dev(), metadata.ino());
        let same = |folder: &&Folder| folder.path == path && folder.identity == identity;
        if let Some(before) = self.previous.and_then(|previous| previous.folders.iter().find(same)) {
            let folder = Folder { watched, ..before.clone() };
            self.spec.folders.push(folder.clone());
            return Some(folder);
        }
        let opened = check_kernel(path).and_then(|()| Root::open(path));
        match opened {
            Ok(root) => {
                let (root, epoch) = (Arc::new(root), Arc::new(AtomicU64::new(0)));
                let folder = Folder { path: path.to_owned(), identity, root, epoch, watched };
                self.spec.folders.push(folder.clone());
                Some(folder)
            }
            Err(error) => {
                let what = format!("the folder `{shown}` cannot be opened safely: {}", describe(&error));
                self.fail(place, what, "flatout needs openat2 (Linux 5.6 or newer, not forbidden by a sandbox)");
                None
            }
        }
    }

    /// A `files` step for `folder`, whose links may lead into the folders `trusted`.
    pub(super) fn add_files(
        &mut self,
        folder: &Folder,
        trusted: &[Folder],
        settings: model::Files,
        site: &model::Site,
    ) -> u32 {
        let epoch = site.watch.then(|| Arc::clone(&folder.epoch));
        let trusted: Vec<Arc<Root>> = trusted.iter().map(|folder| Arc::clone(&folder.root)).collect();
        let root =
            if trusted.is_empty() { Arc::clone(&folder.root) } else { Arc::new(folder.root.trusting(trusted.clone())) };
        let folders = [Arc::clone(&folder.root)].into_iter().chain(trusted).collect();
        let sources = self.sources(&settings.root, site);
        let mut files = FilesSpec {
            id: 0,
            root,
            folders,
            settings,
            file_check_interval_ms: site.file_check_interval_ms,
            epoch,
            sources,
        };
        if let Some(index) = self.spec.files.iter().position(|other| other.is_same(&files)) {
            return index as u32;
        }
        let before = self.previous.and_then(|previous| previous.files.iter().find(|other| other.is_same(&files)));
        if let Some(before) = before {
            files.id = before.id;
        } else {
            files.id = self.spec.next_files_id;
            self.spec.next_files_id = self.spec.next_files_id.wrapping_add(1);
        }
        self.spec.files.push(files);
        self.spec.files.len() as u32 - 1
    }

    fn compile_page(&mut self, place: &Place, page: &model::ErrorPage, site: &model::Site) -> Option<u32> {
        let shown = page.file.display();
        let Some(name) = page.file.file_name() else {
            self.fail(place, format!("`{shown}` is not a file name"), "give the file that contains the page");
            return None;
        };
        let parent = match page.file.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let folder = self.open_folder(place, parent, site.watch)?;
        if let Err(fault) = folder.root.open_file(name.as_bytes()) {
            let what = format!("the error page `{shown}` cannot be read: {}", describe_fault(fault));
            self.fail(place, what, "give a file that this user may read");
            return None;
        }
        let settings = model::Files { root: parent.to_owned(), hidden: true, ..model::Files::default() };
        let files = self.add_files(&folder, &[], settings, site);
        self.spec.pages.push(PageSpec {
            place: place.clone(),
            statuses: page.statuses.clone(),
            path: format!("/{}", encode_segment(name.as_bytes())),
            content_type: content_type(name.as_bytes()),
            files,
        });
        Some(self.spec.pages.len() as u32 - 1)
    }
}

/// Separates operations that prebuilt heads can contain from fields whose values depend on the request. The former
/// remove the fields that the latter set.
fn split_rendered(fields: Vec<FieldOp>) -> (Vec<FieldOp>, Vec<(String, Text)>) {
    let mut rendered = Vec::new();
    let fixed = fields.into_iter().filter_map(|field| {
        let (FieldOp::Set(name, value) | FieldOp::Add(name, value)) = &field else { return Some(field) };
        let Some(text) = parse_field_text(value) else { return Some(field) };
        rendered.push((name.clone(), text));
        matches!(field, FieldOp::Set(..)).then(|| FieldOp::Remove(name.clone()))
    });
    let fixed = fixed.collect();
    (fixed, rendered)
}

/// The step as configuration text, without password hashes.
fn write_step(step: &model::Step) -> String {
    let written = match &step.kind {
        StepKind::BasicAuth(auth) => {
            let users = auth.users.iter().map(|(name, _)| (name.clone(), "(hash)".to_owned())).collect();
            let auth = model::BasicAuth { realm: auth.realm.clone(), users };
            step_to_kdl(&model::Step { place: Place::default(), kind: StepKind::BasicAuth(auth) })
        }
        // Parameters of scripts may be secret, too.
        StepKind::Handler(Handler::Php(php)) => {
            let env = php.env.iter().map(|(name, _)| (name.clone(), "(value)".to_owned())).collect();
            let php = Box::new(model::Php { env, ..(**php).clone() });
            step_to_kdl(&model::Step { place: Place::default(), kind: StepKind::Handler(Handler::Php(php)) })
        }
        StepKind::Route(_) => {
            let written = step_to_kdl(step);
            written.trim_end().trim_end_matches('}').trim_end().trim_end_matches('{').to_owned()
        }
        _ => step_to_kdl(step),
    };
    written.trim().to_owned()
}

fn describe_fault(fault: OpenFault) -> String {
    FileOutcome::from(fault).text().split(": ").next().unwrap_or_default().trim_end_matches('.').to_lowercase()
}

fn is_field_value(value: &str) -> bool {
    value.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is none".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
