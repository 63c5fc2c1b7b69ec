//! `flatout accelerate`: a shared cache in front of other servers.

use crate::flags::ServerArgs;
use clap::Args;
use flatout_config::model::{Admin, CacheSettings, Config, Handler, Origin, Proxy, StepKind, StoreBudget};
use flatout_config::{MEMORY_OBJECTS, disks_fault, parse_disk, parse_memory, parse_origin, show_origin};
use flatout_daemon::Failure;
use flatout_daemon::here::leads_to;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run a shared cache in front of other servers
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout accelerate http://127.0.0.1:3000       then open http://127.0.0.1:8080/
  flatout accelerate :3000 --listen :80 --memory 2GiB --disk /var/cache/flatout=50GiB
  flatout accelerate https://a.example https://b.example --no-cache
  flatout accelerate :3000 --print-config > flatout.kdl

The origin needs no changes: flatout obeys its Cache-Control header and forwards the client's Host header. The \
Cache-Status header of each response says whether the response came from the cache, whether it was stored, and if not, \
why. `flatout status` shows cache statistics, and `flatout purge` removes responses from the cache. For settings that \
have no flag, start from the configuration that --print-config prints.")]
pub(crate) struct AccelerateArgs {
    /// URL of a server to forward requests to; `:3000` means port 3000 on this machine
    #[arg(value_name = "ORIGIN", required = true, value_parser = parse)]
    origins: Vec<Origin>,

    /// Maximum memory for response content, stored or in flight [default: 1/4 of the cgroup's limit, or 256MiB if it
    /// has none]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<u64>,

    /// Maximum number of responses stored in memory
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(MEMORY_OBJECTS))]
    memory_objects: u64,

    /// Also store up to SIZE of responses in the folder DIR, such as /var/cache/flatout=50GiB; may be repeated
    ///
    /// Stored responses survive a restart. Give one folder per volume.
    #[arg(long, value_name = "DIR=SIZE", value_parser = parse_disk)]
    disk: Vec<(PathBuf, u64)>,

    /// Disable the cache: forward every request
    #[arg(long, conflicts_with_all = ["memory", "memory_objects", "disk"])]
    no_cache: bool,

    /// Unix socket for `flatout status`, `purge`, `reload` and `upgrade`; `off` disables it
    ///
    /// By default, flatout uses the socket in the user's or the system's runtime folder, unless another process is
    /// using that socket.
    #[arg(long, value_name = "PATH|off")]
    admin: Option<PathBuf>,

    #[command(flatten)]
    server: ServerArgs,
}

fn parse(text: &str) -> Result<Origin, String> {
    parse_origin(text).map_err(|fault| match fault.advice {
        Some(advice) => format!("{}: {advice}", fault.what),
        None => fault.what,
    })
}

/// Runs the command and returns its exit code.
pub(crate) fn run(arguments: &AccelerateArgs) -> ExitCode {
    arguments.server.run(settings(arguments), arguments.admin.is_some(), false)
}

/// Returns the configuration equivalent to the flags.
fn settings(arguments: &AccelerateArgs) -> Result<Config, Failure> {
    for (index, origin) in arguments.origins.iter().enumerate() {
        let is_same = |other: &Origin| (&other.host, other.port) == (&origin.host, origin.port);
        if arguments.origins[..index].iter().any(is_same) {
            return Err(Failure::usage(format!("the origin {} occurs twice", show_origin(origin))));
        }
    }
    if let Some(fault) = disks_fault(&arguments.disk) {
        return Err(Failure::usage(format!("{fault}\n  try: one --disk for each volume")));
    }
    let cache = StepKind::Cache(Box::<CacheSettings>::default());
    let proxy = Proxy { origins: arguments.origins.clone(), ..Proxy::default() };
    let proxy = StepKind::Handler(Handler::Proxy(Box::new(proxy)));
    let steps = (!arguments.no_cache).then_some(cache).into_iter().chain([proxy]);
    let config = arguments.server.config(steps)?;
    check_loop(&config, &arguments.origins)?;
    let admin = match &arguments.admin {
        None => Admin::Default,
        Some(path) if path.as_os_str() == "off" => Admin::Off,
        Some(path) => Admin::Path(path.clone()),
    };
    let store = StoreBudget {
        memory_bytes_max: arguments.memory,
        memory_objects_max: arguments.memory_objects,
        disks: arguments.disk.clone(),
    };
    Ok(Config { admin, store, ..config })
}

/// Reports an origin that is one of the process's own listeners. Such an accelerator would forward to itself, which is
/// always a mistake.
fn check_loop(config: &Config, origins: &[Origin]) -> Result<(), Failure> {
    let is_us = |origin: &&Origin| config.listeners.iter().any(|on| leads_to(origin, &on.address));
    match origins.iter().find(is_us) {
        Some(origin) => Err(Failure::usage(format!(
            "this accelerator itself listens on {}\n  try: --listen with another port, or another origin",
            show_origin(origin)
        ))),
        None => Ok(()),
    }
}
