//! Startup, from a configuration to running workers, in the order that privileges require.
//!
//! Each stage is a type that the next stage consumes, so the compiler enforces the order. [`Bound`] has opened
//! everything that may need root. [`Unprivileged`] has dropped privileges, which is proved by [`NoPrivileges`].
//! [`Control`] has running workers.

use crate::Options;
use crate::accelerate::{View, open_store, tell_changes};
use crate::admin::path::Places;
use crate::admin::socket::AdminSocket;
use crate::arrange::arrange;
use crate::certificates::{Certificates, Loaded};
use crate::confine::Confinement;
use crate::control::{ConfigInForce, Control, ControlEvents, Ending, Readiness, StartupLimits};
use crate::events::{EventSender, WorkerEvent, event_channel};
use crate::failure::{Failure, say};
use crate::folders::FolderCheck;
use crate::inherit::Inherited;
use crate::limits::HeldCounters;
use crate::link::SupervisorLink;
use crate::listeners::{Address, bindable};
use crate::messages::History;
use crate::notices::Notices;
use crate::overload::OverloadWatches;
use crate::prepare::prepare_files;
use crate::privileges::{NoPrivileges, decide_identity, drop_privileges, harden, root_warning};
use crate::quic::QuicContext;
use crate::seccomp;
use crate::service_manager::ServiceManager;
use crate::shares::{Shares, raise_open_files, share_descriptors};
use crate::source::{ConfigSource, RecordedFiles, RecordingDisk};
use crate::spec::{compile, metrics_text, open_pages};
use crate::status::StatusState;
use crate::watch::FolderWatcher;
use crate::workers::{Worker, Workers, start_worker};
use arc_swap::ArcSwap;
use flatout_access_log::Logs;
use flatout_config::model::{Admin, Certificate, Config, Protocol};
use flatout_engine::MetricsText;
use flatout_engine::engine::Engine;
use flatout_engine::spec::{PagesShared, Spec};
use flatout_handler::Handler;
use flatout_http::limits::Limits;
use flatout_net::tls::TlsServer;
use flatout_os::process::Identity;
use flatout_os::signals::Signals;
use flatout_proxy::Accelerator;
use flatout_serve::cache::CacheLimits;
use flatout_serve::files::Services;
use flatout_server::counters::Counters;
use flatout_server::http3::QuicParts;
use flatout_server::{Phase, Settings, WorkerParts, command_channel, phase_channel, run_worker};
use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::{Arc, OnceLock};
use std::thread;
use tokio::sync::watch;

/// The first stage: everything that may need root is open, namely listeners, the admin socket and certificates.
pub(crate) struct Bound {
    pub(crate) options: Options,
    pub(crate) signals: Signals,
    pub(crate) inherited: Inherited,
    pub(crate) config: Config,
    /// The files that were read for the configuration.
    pub(crate) files: RecordedFiles,
    pub(crate) compiled: CompiledConfig,
    pub(crate) worker_count: usize,
    /// The number of descriptors that this process may open.
    pub(crate) descriptors: u64,
    /// The user and group to switch to; `None` if they are the current ones.
    pub(crate) identity: Option<Identity>,
    /// `None` if https cannot be used.
    pub(crate) certificates: Option<Certificates>,
    pub(crate) loaded: Option<Loaded>,
    pub(crate) quic: QuicContext,
    pub(crate) addresses: Vec<Address>,
    pub(crate) admin: Option<AdminSocket>,
    pub(crate) root_warning: Option<String>,
    /// The link to the supervisor, and the facts received over it.
    pub(crate) supervised: Option<Supervised>,
}

/// The facts about a worker process that was started by a supervisor.
pub(crate) struct Supervised {
    pub(crate) link: SupervisorLink,
    pub(crate) history: History,
    /// The confinement of the process; `None` if Landlock does not confine it.
    pub(crate) confinement: Option<Confinement>,
    /// The user and group to which the supervisor has switched.
    pub(crate) identity: Option<Identity>,
}

/// A compiled configuration, and the state that it shares with later configurations.
pub(crate) struct CompiledConfig {
    pub(crate) spec: Arc<Spec>,
    metrics: MetricsText,
    accelerator: Arc<Accelerator>,
    pages: Arc<PagesShared>,
    /// Set once the status exists, which the `metrics` step shows.
    status: Arc<OnceLock<Arc<StatusState>>>,
}

impl CompiledConfig {
    /// Compiles the first configuration of the process.
    ///
    /// # Errors
    /// Returns all problems, such as missing folders, with exit code 2.
    pub(crate) fn compile(config: &Config) -> Result<Self, Failure> {
        let status = Arc::default();
        let metrics = metrics_text(&status);
        let (accelerator, pages) = (Arc::<Accelerator>::default(), Arc::<PagesShared>::default());
        let spec = compile(config, None, &metrics, &accelerator, &pages)?;
        Ok(Self { spec, metrics, accelerator, pages, status })
    }

    /// Compiles the first configuration of a worker process, with the rights that such a process has. `identity` is the
    /// user to which its supervisor has switched, if any.
    ///
    /// # Errors
    /// As in [`compile`](Self::compile). The supervisor has compiled the configuration before: what fails here is not
    /// accessible to the user, or was removed.
    pub(crate) fn compile_for_worker(config: &Config, identity: Option<Identity>) -> Result<Self, Failure> {
        Self::compile(config).map_err(|failure| failure.for_worker_process(config, identity))
    }
}

impl Bound {
    /// Reads the configuration, and opens everything that may need root.
    ///
    /// # Errors
    /// If the configuration is invalid, or anything cannot be opened.
    pub(crate) fn open(options: Options) -> Result<Self, Failure> {
        // These calls must precede the first thread, because all threads must inherit no_new_privs and the signal mask.
        harden()?;
        let signals = Signals::take().map_err(|error| Failure::runtime(format!("cannot receive signals: {error}")))?;
        let mut inherited = Inherited::take();
        let disk = RecordingDisk::default();
        let mut config = options.source.load_from(&disk, options.style)?;
        let live = arrange(&mut config, &[]);
        let worker_count = count_workers(&config);
        let descriptors = raise_open_files(config.open_files)?;
        let identity = decide_identity(&config)?;
        let compiled = CompiledConfig::compile(&config)?;
        // A reload can add https if there is a configuration file, but not if there are only flags. So unused objects
        // are not created.
        let mut certificates = match &options.source {
            ConfigSource::Flags(config) if config.listeners.iter().all(|on| on.protocol == Protocol::Plain) => None,
            _ => Some(Certificates::new()?),
        };
        // Only root may be able to read certificate files. The local authority, however, is opened as the final user,
        // who must be able to read it.
        let loaded = if uses_authority(&config) { None } else { load(certificates.as_mut(), &config)? };
        let mut addresses = Vec::new();
        let quic = QuicContext::new(worker_count, inherited.quic.take())?;
        for id in bindable(&config, &live) {
            addresses.push(Address::bind(id, &config, worker_count, &quic, &mut inherited)?);
        }
        inherited.finish();
        let root_warning = root_warning(&config, identity, &options.source);
        let admin = open_admin(&config, &options, &mut inherited)?;
        Ok(Self {
            options,
            signals,
            inherited,
            config,
            files: disk.into_recorded(),
            compiled,
            worker_count,
            descriptors,
            identity,
            certificates,
            loaded,
            quic,
            addresses,
            admin,
            root_warning,
            supervised: None,
        })
    }

    /// Switches to the configured user, if any, and gives up the ability to gain privileges in any case.
    ///
    /// # Errors
    /// If the kernel refuses, or a file for the configured user cannot be created. The process must then exit.
    pub(crate) fn give_up_privileges(self) -> Result<Unprivileged, Failure> {
        if let Some(identity) = self.identity {
            // The user may not be permitted to create these files, but opens them now, and again when logs are reopened
            // and in an upgrade.
            prepare_files(&self.config, identity)?;
            // So that this user can remove the files at the end, and change their permissions.
            let files = self.addresses.iter().filter_map(|address| {
                let has_group = self.config.listeners[address.id as usize].access.group.is_some();
                Some((address.file()?, (!has_group).then_some(identity.gid)))
            });
            let admin = self.admin.iter().map(|admin| (&admin.file, Some(identity.gid)));
            for (file, gid) in files.filter(|(file, _)| file.is_own()).chain(admin) {
                file.give_to(Some(identity.uid), gid).map_err(|error| {
                    Failure::runtime(format!("cannot change the owner of {}: {error}", file.path().display()))
                })?;
            }
        }
        let proof = drop_privileges(self.identity)?;
        if self.identity.is_some() {
            warn_of_unreadable(self.loaded.as_ref());
        }
        Ok(Unprivileged { bound: self, _proof: proof })
    }
}

/// The second stage: the process has its final user and group. It has only this thread so far.
pub(crate) struct Unprivileged {
    pub(crate) bound: Bound,
    _proof: NoPrivileges,
}

impl Unprivileged {
    /// Returns whether a supervisor and a worker process serve, instead of this process alone. This is never the case
    /// with settings from flags, because a reload cannot add folders or ports to them.
    pub(crate) fn is_for_worker_process(&self) -> bool {
        matches!(self.bound.options.source, ConfigSource::File(_)) && self.bound.config.worker_process
    }

    /// Opens everything that belongs to the final user, and starts the workers. On return, the workers may not accept
    /// connections yet; they send an event when they do.
    ///
    /// # Errors
    /// If anything cannot be opened, or a thread cannot be started.
    pub(crate) fn start_workers(self) -> Result<Control, Failure> {
        let Bound {
            options,
            signals,
            mut inherited,
            config,
            compiled,
            worker_count,
            descriptors,
            identity,
            mut certificates,
            mut loaded,
            quic,
            addresses,
            admin,
            root_warning,
            supervised,
            files: _,
        } = self.bound;
        let CompiledConfig { spec, metrics, accelerator, pages, status } = compiled;
        let identity = identity.or_else(|| supervised.as_ref()?.identity);
        let is_worker_process = supervised.is_some();
        let as_user = |failure: Failure| {
            if is_worker_process {
                failure.for_worker_process(&config, identity)
            } else {
                failure.with_user(&config, identity)
            }
        };
        if supervised.is_none() {
            create_state(&config);
        }
        let mut applied = open_pages(&spec, &config, worker_count).map_err(as_user)?;
        if supervised.is_none() {
            applied.drain(..).for_each(|line| say(&line));
        }
        let logs = open_logs(&config).map_err(as_user)?;
        if uses_authority(&config) && supervised.is_none() {
            loaded = load(certificates.as_mut(), &config)?;
        }
        // This is done before the workers start, so that the first handshake finds a certificate, and all possible
        // failures occur before the first connection.
        let shown = certificates.as_mut().map(|certificates| certificates.show(loaded)).unwrap_or_default();
        let watch = FolderWatcher::start(&spec)?;
        let (event_sender, event_receiver) =
            event_channel().map_err(|error| Failure::runtime(format!("no descriptor: {error}")))?;
        tell_changes(&accelerator, &event_sender);
        // A worker process is confined as a whole, including its threads.
        let confines_threads = supervised.is_none();
        let confinement = (config.landlock() && confines_threads).then(|| Confinement::of_thread(&spec));
        let (link, history, of_process) = match supervised {
            Some(Supervised { link, history, confinement, .. }) => (Some(link), Some(history), confinement),
            None => (None, None, None),
        };
        let counters: Vec<Arc<Counters>> = (0..worker_count).map(|_| Arc::default()).collect();
        let shares = share_descriptors(descriptors, worker_count, addresses.len());
        // The store is opened as the final user, who owns the folders on disk.
        open_store(&accelerator, &config, &spec, (shares, worker_count), &event_sender)?;
        let published = Arc::new(ArcSwap::new(Arc::clone(&spec)));
        let said = event_sender.clone();
        let limits = config.limit_connections.for_heads(&config.request_head);
        let held = HeldCounters::new(&limits, &published, move |text| said.send(WorkerEvent::Said(text)));
        let (phase, phases) = phase_channel();
        let configuration = WorkerConfiguration {
            spec: Arc::clone(&spec),
            services: open_services(&config),
            cache_limits: cache_limits(&config, shares),
            settings: settings(&config, shares),
            held: held.clone(),
            confinement: confinement.clone(),
            seccomp: config.seccomp && confines_threads,
            confined: of_process.is_some(),
            tls: certificates.as_ref().map(Certificates::server),
            phases,
            event_sender: event_sender.clone(),
        };
        let all = configuration.start_all(&addresses, &counters, &logs, &quic)?;
        let view = Arc::new(View::new(&accelerator, &published));
        let shared = Arc::new(StatusState::new(counters, Engine::OUTCOMES, Arc::clone(&logs), view).with_limits(held));
        let supervisor = link.as_ref().map(|link| link.pid);
        shared.begin(supervisor, history);
        // The cell is empty until now, so this call succeeds.
        let _ = status.set(Arc::clone(&shared));
        shared.view().certificates = shown;
        Ok(Control {
            in_force: ConfigInForce { options, config, spec, published, metrics, pages },
            limits: StartupLimits { shares, confinement: of_process.or(confinement) },
            accelerator,
            watch,
            certificates,
            quic,
            addresses,
            workers: Workers { all, phase },
            logs,
            admin,
            admin_thread: None,
            shared,
            overload: OverloadWatches::default(),
            notices: Notices::default(),
            has_changed_origins: false,
            events: ControlEvents { signals, sender: event_sender, receiver: event_receiver },
            service_manager: if link.is_some() { ServiceManager::none() } else { ServiceManager::find() },
            link,
            readiness: Readiness { root_warning, previous: inherited.take_previous(), workers_started: 0, applied },
            upgrade: None,
            pending_reload: None,
            reload_number: 0,
            folder_check: FolderCheck::new(),
            announced: false,
            ending: Ending::default(),
        })
    }
}

/// Returns the number of worker threads for `config`.
pub(crate) fn count_workers(config: &Config) -> usize {
    config.workers.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from)
}

pub(crate) fn uses_authority(config: &Config) -> bool {
    config.sites.iter().any(|site| site.certificate == Some(Certificate::Internal))
}

pub(crate) fn load(certificates: Option<&mut Certificates>, config: &Config) -> Result<Option<Loaded>, Failure> {
    certificates.map_or(Ok(None), |certificates| certificates.load(config))
}

/// Warns about certificates that only root can read. They are in use, but replacements for them will be unreadable.
fn warn_of_unreadable(loaded: Option<&Loaded>) {
    for path in loaded.into_iter().flat_map(Loaded::paths) {
        if let Err(error) = File::open(path) {
            say(&format!(
                "warning: the user of this process cannot read {} ({error}); reloads will keep the current content, flatout will not notice a renewed certificate, and an upgrade will fail\n  try: give that user read access, for example through its group",
                path.display()
            ));
        }
    }
}

/// Creates the state folder if it is missing, so that only its owner can access it, and reports this. Without the
/// folder, the server works but loses its digests when it exits.
pub(crate) fn create_state(config: &Config) {
    let Some(path) = &config.state else { return };
    let is_missing = path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    if !is_missing {
        return;
    }
    let shown = path.display();
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Ok(()) => say(&format!("note: the state folder {shown} did not exist, so flatout created it")),
        Err(error) => say(&format!(
            "warning: the state folder {shown} does not exist and cannot be created: {error}\n  flatout computes \
             digests again after each start; create the folder for the user that runs flatout"
        )),
    }
}

/// Opens the services shared by all workers. If a state folder is configured, digests survive a restart; otherwise,
/// they are computed again.
fn open_services(config: &Config) -> Arc<Services> {
    // A missing folder has already been reported.
    let state = config.state.as_deref().filter(|path| path.exists());
    let (services, warning) = Services::open(state);
    if let Some(warning) = warning {
        eprintln!("warning: {warning}");
    }
    Arc::new(services)
}

fn open_logs(config: &Config) -> Result<Arc<Logs>, Failure> {
    let warn = |text: &str| say(&format!("warning: {text}"));
    Logs::open(&config.log_settings(), Box::new(warn)).map(Arc::new).map_err(Failure::usage)
}

/// Opens the admin socket: the one inherited from the previous process, or a new one. Unless `needs_admin` is set, a
/// failure is only a warning, so that a second `flatout accelerate` on the same machine starts without an admin socket.
fn open_admin(config: &Config, options: &Options, inherited: &mut Inherited) -> Result<Option<AdminSocket>, Failure> {
    let handed = inherited.admin.take();
    let path = match (&config.admin, &handed) {
        // The default path depends on the user, who may have changed since the previous process started. An upgrade
        // keeps the socket's path.
        (Admin::Default, Some((_, handed))) => Some(handed.clone()),
        (admin, _) => Places::read().resolve(admin),
    };
    let Some(path) = path else {
        if config.admin == Admin::Default {
            say("warning: no admin socket: neither RUNTIME_DIRECTORY nor XDG_RUNTIME_DIR names a folder for it");
        }
        return Ok(None);
    };
    if let Some((socket, _)) = handed.filter(|(_, handed)| *handed == path)
        && let Some(file) = inherited.take_file(&path)
    {
        return Ok(Some(AdminSocket::adopt(socket, file)));
    }
    match AdminSocket::bind(&path) {
        Err(failure) if !options.needs_admin => {
            let why = failure.text.lines().next().unwrap_or_default().to_owned();
            say(&format!(
                "warning: no admin socket: {why}\n  try: --admin PATH, here and for flatout status and purge"
            ));
            Ok(None)
        }
        bound => bound.map(Some),
    }
}

fn cache_limits(config: &Config, shares: Shares) -> CacheLimits {
    CacheLimits {
        entries_max: config.cache.entries_max,
        bytes_max: config.cache.bytes_max,
        descriptors_max: shares.files_max,
    }
}

fn settings(config: &Config, shares: Shares) -> Settings {
    Settings {
        limits: Limits {
            fields_max: config.request_head.fields_max,
            body_rate_min: config.request_body.rate_min,
            ..Limits::DEFAULT
        }
        .with_head_bytes_max(config.request_head.bytes_max),
        timeouts: config.timeouts,
        connections_max: shares.connections_max,
        backlog: config.sockets.backlog,
        accept_batch: config.sockets.accept_batch as usize,
        quickack: config.sockets.quickack,
        sendfile: config.sockets.sendfile,
    }
}

/// The parts common to all workers.
struct WorkerConfiguration {
    spec: Arc<Spec>,
    services: Arc<Services>,
    cache_limits: CacheLimits,
    settings: Settings,
    held: HeldCounters,
    confinement: Option<Confinement>,
    /// True if the workers enter the seccomp filter.
    seccomp: bool,
    /// True if Landlock confines the whole process.
    confined: bool,
    tls: Option<Arc<TlsServer>>,
    phases: watch::Receiver<Phase>,
    event_sender: EventSender,
}

impl WorkerConfiguration {
    /// Starts a worker for each of `counters`. No worker begins before all threads exist; otherwise, if memory were too
    /// short for the last thread, running workers could fail first.
    fn start_all(
        &self,
        addresses: &[Address],
        counters: &[Arc<Counters>],
        logs: &Logs,
        quic: &QuicContext,
    ) -> Result<Vec<Worker<Engine>>, Failure> {
        let all_exist = Arc::new(OnceLock::new());
        let start = |(index, own)| {
            let parts = quic.take_parts(index);
            self.start(index, addresses, counters.len(), (Arc::clone(own), parts), logs, &all_exist)
        };
        let workers = counters.iter().enumerate().map(start).collect::<Result<_, _>>()?;
        all_exist.get_or_init(|| ());
        Ok(workers)
    }

    fn start(
        &self,
        index: usize,
        addresses: &[Address],
        worker_count: usize,
        (counters, quic): (Arc<Counters>, Option<QuicParts>),
        logs: &Logs,
        all_exist: &Arc<OnceLock<()>>,
    ) -> Result<Worker<Engine>, Failure> {
        let mut listeners = Vec::new();
        for address in addresses {
            let own = address.listeners_of(index, worker_count);
            listeners.extend(own.map_err(|error| Failure::runtime(format!("no descriptor for a listener: {error}")))?);
        }
        let (commands, obeyed) = command_channel();
        let (spec, services) = (Arc::clone(&self.spec), Arc::clone(&self.services));
        let (cache_limits, settings, phases) = (self.cache_limits, self.settings, self.phases.clone());
        let (confinement, tls, log) = (self.confinement.clone(), self.tls.clone(), logs.worker());
        let (started, seccomp, whole) = (self.event_sender.clone(), self.seccomp, self.confined);
        let HeldCounters { connections: held, requests, untrusted } = self.held.clone();
        let all_exist = Arc::clone(all_exist);
        let body = move || {
            all_exist.wait();
            if seccomp {
                filter_calls(index);
            }
            let confined = confine(index, confinement.as_ref()) || whole;
            let handler = Engine::new(spec, services, cache_limits, requests).reporting_untrusted_proxy(untrusted);
            let parts =
                WorkerParts { handler, settings, tls, quic, listeners, commands: obeyed, log, counters, held, phases };
            // Sent once the worker has its listeners.
            run_worker(parts, async move { started.send(WorkerEvent::Started { confined }) })
        };
        start_worker(index, commands, self.event_sender.clone(), body)
    }
}

/// Enters the seccomp filter. If the kernel refuses, the first worker reports it.
pub(crate) fn filter_calls(index: usize) {
    if let Err(error) = seccomp::enter()
        && index == 0
    {
        say(&format!("note: seccomp is unavailable, so the workers' system calls are not restricted: {error}"));
    }
}

/// Confines this thread, as far as the kernel supports this. If it does not, the first worker reports it. Returns
/// whether the thread is confined.
pub(crate) fn confine(index: usize, confinement: Option<&Confinement>) -> bool {
    let Some(confinement) = confinement else { return false };
    let said = match confinement.enter() {
        Ok(true) => return true,
        Ok(false) => "this kernel has no Landlock".to_owned(),
        Err(error) => error.to_string(),
    };
    if index == 0 {
        say(&format!("note: the workers are not confined to the configured folders: {said}"));
    }
    false
}
