//! From a configuration to running workers, in the order that privileges require: first everything that may need root
//! is opened, then privileges are dropped, then the workers start.

use crate::Options;
use crate::accelerate::{View, open_store, tell_changes};
use crate::admin::path::Places;
use crate::admin::socket::AdminSocket;
use crate::arrange::arrange;
use crate::certificates::{Certificates, Loaded};
use crate::confine::Confinement;
use crate::control::Control;
use crate::events::{EventSender, WorkerEvent, event_channel};
use crate::failure::{Failure, say};
use crate::inherit::Inherited;
use crate::listeners::{Address, listen_options};
use crate::prepare::prepare_files;
use crate::privileges::{decide_identity, drop_privileges, root_warning};
use crate::shares::{Shares, raise_open_files, share_descriptors};
use crate::source::ConfigSource;
use crate::spec::{compile, metrics_text, open_pages};
use crate::status::StatusState;
use crate::supervisor::Supervisor;
use crate::watch::FolderWatcher;
use crate::workers::{Worker, Workers, start_worker};
use arc_swap::ArcSwap;
use flatout_access_log::Logs;
use flatout_config::model::{Admin, Certificate, Config, Protocol};
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
use flatout_server::{Phase, Settings, WorkerParts, command_channel, phase_channel, run_worker};
use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::{Arc, OnceLock};
use std::thread;
use tokio::sync::watch;

/// Starts everything. The workers may not accept connections yet on return; they send an event when they do.
pub(crate) fn start(options: Options) -> Result<Control, Failure> {
    // Before any thread, as all of them inherit the signal mask.
    let signals = Signals::take().map_err(|error| Failure::runtime(format!("cannot listen to signals: {error}")))?;
    let mut inherited = Inherited::take();
    let mut config = options.source.load(options.style)?;
    let live = arrange(&mut config, &[]);
    let worker_count = config.workers.map_or_else(available_cores, usize::from);
    let descriptors = raise_open_files(config.open_files)?;
    let identity = decide_identity(&config)?;
    let told = Arc::default();
    let metrics = metrics_text(&told);
    let accelerator = Arc::<Accelerator>::default();
    let pages = Arc::<PagesShared>::default();
    let spec = compile(&config, None, &metrics, &accelerator, &pages)?;
    // A reload can add https to a configuration file, but not to flags: unused parts are not created.
    let mut certificates = match &options.source {
        ConfigSource::Flags(config) if config.listeners.iter().all(|on| on.protocol == Protocol::Plain) => None,
        _ => Some(Certificates::new()?),
    };
    // Certificate files may be readable by root only; the local authority must be readable by the final user.
    let mut loaded = None;
    if !uses_authority(&config) {
        loaded = load(certificates.as_mut(), &config)?;
    }
    let mut addresses = Vec::new();
    for (id, listener) in config.listeners.iter().enumerate().filter(|(id, _)| live[*id]) {
        addresses.push(Address::bind(id, listener, worker_count, &listen_options(&config), &mut inherited)?);
    }
    inherited.finish();
    let root_warning = root_warning(&config, identity, &options.source);
    let admin = open_admin(&config, &options, &mut inherited)?;
    if let Some(identity) = identity {
        // The user may not create them, but opens them now, and again when logs are reopened and in an upgrade.
        prepare_files(&config, identity)?;
        become_less(identity, admin.as_ref(), loaded.as_ref())?;
    }
    let as_user = |failure: Failure| failure.with_user(&config, identity);
    create_state(&config);
    for applied in open_pages(&spec, &config, worker_count).map_err(as_user)? {
        say(&applied);
    }
    let logs = open_logs(&config).map_err(as_user)?;
    if uses_authority(&config) {
        loaded = load(certificates.as_mut(), &config)?;
    }
    // Before the workers: the first handshake finds a certificate, and everything that can fail has failed before the
    // first connection.
    let shown = certificates.as_mut().map(|certificates| certificates.show(loaded)).unwrap_or_default();
    let watch = FolderWatcher::start(&spec)?;
    let (event_sender, event_receiver) =
        event_channel().map_err(|error| Failure::runtime(format!("no descriptor: {error}")))?;
    tell_changes(&accelerator, &event_sender);
    let confinement = config.landlock.then(|| Confinement::of(&spec));
    let counters: Vec<Arc<Counters>> = (0..worker_count).map(|_| Arc::default()).collect();
    let shares = share_descriptors(descriptors, worker_count, addresses.len());
    // As the final user, who owns the folders on disk.
    open_store(&accelerator, &config, &spec, (shares, worker_count), &event_sender)?;
    let (phase, phases) = phase_channel();
    let configuration = WorkerConfiguration {
        spec: Arc::clone(&spec),
        services: open_services(&config),
        cache_limits: cache_limits(&config, shares),
        settings: settings(&config, shares),
        confinement: confinement.clone(),
        tls: certificates.as_ref().map(Certificates::server),
        phases,
        event_sender: event_sender.clone(),
    };
    let all = configuration.start_all(&addresses, &counters, &logs)?;
    let in_force = Arc::new(ArcSwap::new(Arc::clone(&spec)));
    let view = Arc::new(View::new(&accelerator, &in_force));
    let shared = Arc::new(StatusState::new(counters, Engine::OUTCOMES, Arc::clone(&logs), view));
    // It is empty until now, so this call succeeds.
    let _ = told.set(Arc::clone(&shared));
    shared.view().certificates = shown;
    Ok(Control {
        options,
        config,
        spec,
        in_force,
        metrics,
        accelerator,
        pages,
        shares,
        watch,
        certificates,
        addresses,
        workers: Workers { all, phase },
        logs,
        admin,
        admin_thread: None,
        confinement,
        shared,
        event_sender,
        event_receiver,
        signals,
        supervisor: Supervisor::find(),
        root_warning,
        ready: inherited.ready,
        upgrade: None,
        workers_started: 0,
        announced: false,
        connections_cut: 0,
        failed: false,
    })
}

fn available_cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn uses_authority(config: &Config) -> bool {
    config.sites.iter().any(|site| site.certificate == Some(Certificate::Internal))
}

fn load(certificates: Option<&mut Certificates>, config: &Config) -> Result<Option<Loaded>, Failure> {
    certificates.map_or(Ok(None), |certificates| certificates.load(config))
}

/// Drops privileges, and gives the admin socket to the new user.
fn become_less(identity: Identity, admin: Option<&AdminSocket>, loaded: Option<&Loaded>) -> Result<(), Failure> {
    if let Some(admin) = admin {
        admin.give_to(identity.uid, identity.gid).map_err(|error| {
            Failure::runtime(format!("cannot give {} to its user: {error}", admin.path().display()))
        })?;
    }
    drop_privileges(identity)?;
    warn_of_unreadable(loaded);
    Ok(())
}

/// Warns about certificates that only root can read: they are in use, but replacements will be unreadable.
fn warn_of_unreadable(loaded: Option<&Loaded>) {
    for path in loaded.into_iter().flat_map(Loaded::paths) {
        if let Err(error) = File::open(path) {
            say(&format!(
                "warning: the user of this process cannot read {} ({error}); reloads go on using what was read now, but a renewed \
                 certificate will not be seen, and an upgrade will fail\n  try: let that user read it, for instance through its group",
                path.display()
            ));
        }
    }
}

/// Creates a missing state folder, accessible by its owner only, and reports it. Without it the server works, and
/// loses digests when it exits.
fn create_state(config: &Config) {
    let Some(path) = &config.state else { return };
    let is_missing = path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    if !is_missing {
        return;
    }
    let shown = path.display();
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Ok(()) => say(&format!("note: the state folder {shown} did not exist; it has been created")),
        Err(error) => say(&format!(
            "warning: the state folder {shown} does not exist and cannot be created: {error}\n  \
             digests are computed again after each start; create the folder for the user that runs flatout"
        )),
    }
}

/// The services shared by workers. Digests survive a restart if a state folder is configured; lost ones are
/// recomputed.
fn open_services(config: &Config) -> Arc<Services> {
    // A missing one has been reported.
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

/// The admin socket: inherited from the previous process, or a new one. A socket that the flags do not name is optional, so
/// that a second `flatout accelerate` on the same machine starts without it.
fn open_admin(config: &Config, options: &Options, inherited: &mut Inherited) -> Result<Option<AdminSocket>, Failure> {
    let handed = inherited.admin.take();
    let path = match (&config.admin, &handed) {
        // The default path depends on the user, who may have changed since: an upgrade keeps the socket.
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
        && let Some(admin) = AdminSocket::adopt(socket, &path)
    {
        return Ok(Some(admin));
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
        limits: Limits::DEFAULT,
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
    confinement: Option<Confinement>,
    tls: Option<Arc<TlsServer>>,
    phases: watch::Receiver<Phase>,
    event_sender: EventSender,
}

impl WorkerConfiguration {
    /// Starts a worker for each of `counters`. None begins before all threads exist: if one cannot be created for
    /// lack of memory, the others must not have failed for the same reason.
    fn start_all(
        &self,
        addresses: &[Address],
        counters: &[Arc<Counters>],
        logs: &Logs,
    ) -> Result<Vec<Worker<Engine>>, Failure> {
        let all_exist = Arc::new(OnceLock::new());
        let start = |(index, own)| self.start(index, addresses, counters.len(), Arc::clone(own), logs, &all_exist);
        let workers = counters.iter().enumerate().map(start).collect::<Result<_, _>>()?;
        all_exist.get_or_init(|| ());
        Ok(workers)
    }

    fn start(
        &self,
        index: usize,
        addresses: &[Address],
        worker_count: usize,
        counters: Arc<Counters>,
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
        let started = self.event_sender.clone();
        let all_exist = Arc::clone(all_exist);
        let body = move || {
            all_exist.wait();
            let confined = confine(index, confinement.as_ref());
            let handler = Engine::new(spec, services, cache_limits);
            let parts = WorkerParts { handler, settings, tls, listeners, commands: obeyed, log, counters, phases };
            // Runs after the worker has its listeners.
            run_worker(parts, async move { started.send(WorkerEvent::Started { confined }) })
        };
        start_worker(index, commands, self.event_sender.clone(), body)
    }
}

/// Confines this thread, as far as the kernel supports it; the first worker reports if it does not.
fn confine(index: usize, confinement: Option<&Confinement>) -> bool {
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
