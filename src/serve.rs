//! `flatout serve`: a folder as a web site.

use clap::Args;
use flatout_http::limits::Limits;
use flatout_net::clock::Now;
use flatout_net::counters::{Counters, sum_rows};
use flatout_net::handler::Handler;
use flatout_net::server::{
    Listener, Protocol, Settings, Timeouts, WorkerParts, command_channel, follow_signals, phase_channel, run_worker,
};
use flatout_net::socket::{bind_listener, check_free, find_port_owner, raise_descriptor_limit, suggest_port};
use flatout_net::tls::{SiteCertificate, TlsServer};
use flatout_serve::cache::CacheLimits;
use flatout_serve::root::{Root, check_kernel};
use flatout_serve::{Site, SiteOptions};
use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

/// Exit codes, as everywhere in flatout: README, "Exit codes".
const EXIT_FAILED: u8 = 1;
const EXIT_USAGE: u8 = 2;
const EXIT_UNCLEAN: u8 = 3;

/// Serve the files below a folder.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout serve                              the current folder on http://127.0.0.1:8080/
  flatout serve ./public --listen 0.0.0.0:80 --access-log /var/log/flatout.log
  flatout serve ./public --access-log - | grep ' 404 '

Names that begin with a dot are not served (.well-known is), and no symbolic link leads out of the folder.
SIGTERM or Ctrl-C finishes what is under way; a second one leaves at once. SIGUSR1 prints the counters.")]
pub(crate) struct ServeArgs {
    /// The folder to serve.
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,

    /// Where to listen; may be given more than once. Port 0 takes any free port.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    listen: Vec<SocketAddr>,

    /// Worker threads; by default one for each core this process may use.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,

    /// Append a line for each request to FILE; `-` is standard output, and then all else goes to standard error.
    #[arg(long, value_name = "FILE|-")]
    access_log: Option<PathBuf>,

    /// Serve names that begin with a dot, too.
    #[arg(long)]
    hidden: bool,

    /// Speak https, with this certificate and what leads to its authority, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "h2c")]
    tls_cert: Option<PathBuf>,

    /// The private key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Without TLS, speak HTTP/2 with clients that begin with it.
    #[arg(long)]
    h2c: bool,

    /// Close a connection on which no request begins for so long.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration_ms)]
    idle_timeout: u64,

    /// Answer 408 when a request's head takes longer.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration_ms)]
    head_timeout: u64,

    /// Answer 408 when a request's body takes longer.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration_ms)]
    body_timeout: u64,

    /// Close a connection whose TLS handshake, or preface of HTTP/2, takes longer.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration_ms)]
    handshake_timeout: u64,

    /// Close a connection whose client takes no byte of a response for so long.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration_ms)]
    write_timeout: u64,

    /// When told to stop, wait so long for what is under way.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration_ms)]
    drain_timeout: u64,
}

/// `250ms`, `10s`, `2m`, in milliseconds.
pub(crate) fn parse_duration_ms(text: &str) -> Result<u64, String> {
    let digits_end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let unit_ms = match &text[digits_end..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        _ => return Err("a duration is a whole number with a unit: 250ms, 10s or 2m".to_owned()),
    };
    text[..digits_end]
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(unit_ms))
        .filter(|duration_ms| (1..=86_400_000).contains(duration_ms))
        .ok_or_else(|| "a duration lies between 1ms and 1440m".to_owned())
}

/// Why the server could not start, or stopped: what happened, what to do, and the exit code.
struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    fn usage(text: impl fmt::Display) -> Self {
        Self { code: EXIT_USAGE, text: text.to_string() }
    }

    fn runtime(text: impl fmt::Display) -> Self {
        Self { code: EXIT_FAILED, text: text.to_string() }
    }
}

/// Runs the verb and says how it ended.
pub(crate) fn run(arguments: &ServeArgs) -> ExitCode {
    match serve(arguments) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {}", failure.text);
            ExitCode::from(failure.code)
        }
    }
}

fn serve(arguments: &ServeArgs) -> Result<ExitCode, Failure> {
    let descriptors = raise_descriptor_limit();
    check_folder(&arguments.folder)?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let worker_count = arguments.workers.map_or(cores, usize::from);
    let access_file = open_access_log(arguments.access_log.as_deref())?;
    let tls = open_tls(arguments)?;
    let protocol = if tls.is_some() { Protocol::Tls } else { Protocol::Plain { http2: arguments.h2c } };
    let (addresses, mut listeners) = bind_all(&arguments.listen, worker_count)?;
    let counters: Vec<Arc<Counters>> = (0..worker_count).map(|_| Arc::default()).collect();
    let shares = share_descriptors(descriptors, worker_count);
    let settings =
        Settings { limits: Limits::DEFAULT, timeouts: timeouts(arguments), connections_max: shares.connections_max };
    let (phase_sender, phases) = phase_channel();
    let parts = |index: usize, listeners: Vec<OwnedFd>| {
        let folder = arguments.folder.clone();
        let cache_limits = CacheLimits { descriptors_max: shares.files_max, ..CacheLimits::DEFAULT };
        let options = SiteOptions { hidden: arguments.hidden, cache_limits, ..SiteOptions::DEFAULT };
        let tls = tls.clone();
        let (counters, access_file, phases) = (Arc::clone(&counters[index]), access_file.clone(), phases.clone());
        move || -> io::Result<WorkerParts<Site>> {
            let handler = Site::new(Arc::new(Root::open(&folder)?), options);
            let listeners = listeners.into_iter().map(|fd| Listener { fd, id: 0, protocol }).collect();
            // Nobody gives commands here: the receiver ends at once, and nothing waits for it.
            let (_, commands) = command_channel();
            Ok(WorkerParts { handler, settings, tls, listeners, commands, access_file, counters, phases })
        }
    };
    let first = parts(0, listeners.remove(0));
    let mut others = Vec::new();
    for (index, listeners) in listeners.into_iter().enumerate() {
        let parts = parts(index + 1, listeners);
        let thread = thread::Builder::new()
            .name(format!("worker-{}", index + 1))
            .spawn(move || run_worker(parts()?, std::future::pending()));
        others.push(thread.map_err(|error| Failure::runtime(format!("cannot start a worker: {error}")))?);
    }
    announce(arguments, &addresses, worker_count);
    // The first worker runs here, so that one worker is one thread.
    let reported = counters.clone();
    let signals = async move {
        if let Err(error) = follow_signals(&phase_sender, || print_counters(&reported)).await {
            eprintln!("warning: signals are not handled ({error}); SIGTERM will cut what is under way");
            std::future::pending::<()>().await;
        }
    };
    let failed = |error: io::Error| Failure::runtime(format!("a worker failed: {error}"));
    let mut connections_cut = run_worker(first().map_err(failed)?, signals).map_err(failed)?.connections_cut;
    for thread in others {
        let report = thread.join().map_err(|_| Failure::runtime("a worker panicked; please report this"))?;
        connections_cut += report.map_err(failed)?.connections_cut;
    }
    print_counters(&counters);
    if connections_cut > 0 {
        eprintln!("stopped with {connections_cut} connections cut: --drain-timeout passed, or a second signal came");
        return Ok(ExitCode::from(EXIT_UNCLEAN));
    }
    Ok(ExitCode::SUCCESS)
}

/// What a worker may do with the descriptors that the kernel allows the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DescriptorShares {
    connections_max: usize,
    files_max: usize,
}

/// A quarter of what each worker has is for files held open, at most what the cache wants anyway.
fn share_descriptors(limit: u64, worker_count: usize) -> DescriptorShares {
    // Standard streams, log and signals; each worker's listener, folder, runtime, timer, and what it opens to look.
    const PROCESS: usize = 16;
    const WORKER: usize = 12;
    // Below that there is no serving; the kernel will say so in its own way.
    const CONNECTIONS_MIN: usize = 8;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let share = (limit.saturating_sub(PROCESS) / worker_count.max(1)).saturating_sub(WORKER);
    let files_max = (share / 4).clamp(1, CacheLimits::DEFAULT.descriptors_max);
    DescriptorShares { connections_max: share.saturating_sub(files_max).max(CONNECTIONS_MIN), files_max }
}

fn timeouts(arguments: &ServeArgs) -> Timeouts {
    Timeouts {
        idle_timeout_ms: arguments.idle_timeout,
        head_timeout_ms: arguments.head_timeout,
        body_timeout_ms: arguments.body_timeout,
        write_timeout_ms: arguments.write_timeout,
        handshake_timeout_ms: arguments.handshake_timeout,
        drain_timeout_ms: arguments.drain_timeout,
        ..Timeouts::DEFAULT
    }
}

/// The certificate that the flags name, if they do.
fn open_tls(arguments: &ServeArgs) -> Result<Option<Arc<TlsServer>>, Failure> {
    let (Some(chain), Some(key)) = (&arguments.tls_cert, &arguments.tls_key) else { return Ok(None) };
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
    };
    let site = SiteCertificate {
        names: vec!["*".to_owned()],
        chain_pem: read(chain)?,
        key_pem: read(key)?,
        label: chain.display().to_string(),
    };
    let server = TlsServer::new().map_err(|error| Failure::runtime(format!("cannot speak TLS: {error}")))?;
    for warning in server.replace(&[site], Now::read().unix_s).map_err(Failure::usage)? {
        eprintln!("warning: {warning}");
    }
    Ok(Some(server))
}

fn check_folder(folder: &Path) -> Result<(), Failure> {
    let shown = folder.display();
    match folder.metadata() {
        Ok(metadata) if !metadata.is_dir() => {
            return Err(Failure::usage(format!("{shown} is not a folder; name the folder that holds the site")));
        }
        Ok(_) => {}
        Err(error) => return Err(Failure::usage(format!("cannot serve {shown}: {error}"))),
    }
    check_kernel(folder).map_err(|error| {
        Failure::runtime(format!(
            "cannot open {shown} safely: {error}\n  flatout needs openat2 (Linux 5.6 or newer, not forbidden by a sandbox)"
        ))
    })
}

fn open_access_log(path: Option<&Path>) -> Result<Option<Arc<File>>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let file = if path == Path::new("-") {
        rustix::io::fcntl_dupfd_cloexec(io::stdout(), 0).map(File::from).map_err(io::Error::from)
    } else {
        OpenOptions::new().append(true).create(true).open(path)
    };
    file.map(|file| Some(Arc::new(file)))
        .map_err(|error| Failure::usage(format!("cannot write the access log {}: {error}", path.display())))
}

/// Listeners for every worker, in the order of the addresses, and the addresses with their ports.
fn bind_all(addresses: &[SocketAddr], worker_count: usize) -> Result<(Vec<SocketAddr>, Vec<Vec<OwnedFd>>), Failure> {
    let mut workers: Vec<Vec<OwnedFd>> = (0..worker_count).map(|_| Vec::new()).collect();
    let mut bound = Vec::new();
    for &asked in addresses {
        if asked.port() != 0 {
            check_free(&asked).map_err(|error| explain_bind(&asked, &error))?;
        }
        let mut address = asked;
        for listeners in &mut workers {
            let (listener, with_port) = bind_listener(&address).map_err(|error| explain_bind(&asked, &error))?;
            address = with_port;
            listeners.push(listener);
        }
        bound.push(address);
    }
    Ok((bound, workers))
}

/// Says who holds the port and which is free.
fn explain_bind(address: &SocketAddr, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let owner = find_port_owner(address.port())
                .map_or_else(|| "another process".to_owned(), |(pid, name)| format!("{name} (process {pid})"));
            let mut text = format!("port {} on {} is taken by {owner}", address.port(), address.ip());
            if let Some(port) = suggest_port(address) {
                let _ = write!(text, "\n  try: --listen {}", SocketAddr::new(address.ip(), port));
            }
            Failure::runtime(text)
        }
        io::ErrorKind::PermissionDenied => Failure::runtime(format!(
            "may not listen on {address}: ports below 1024 need root or CAP_NET_BIND_SERVICE\n  try: --listen {}:8080",
            address.ip()
        )),
        io::ErrorKind::AddrNotAvailable => {
            Failure::usage(format!("cannot listen on {address}: this machine has no such address"))
        }
        _ => Failure::runtime(format!("cannot listen on {address}: {error}")),
    }
}

/// The URLs first, so that the first line can be clicked.
fn announce(arguments: &ServeArgs, addresses: &[SocketAddr], worker_count: usize) {
    let mut text = String::new();
    for address in addresses {
        // An unspecified address is not one a browser can open; the loopback one is.
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        // Writing to a String cannot fail.
        let scheme = if arguments.tls_cert.is_some() { "https" } else { "http" };
        let _ = writeln!(text, "{scheme}://{}/", SocketAddr::new(ip, address.port()));
    }
    let folder = arguments.folder.canonicalize().unwrap_or_else(|_| arguments.folder.clone());
    let plural = if worker_count == 1 { "worker" } else { "workers" };
    let _ = writeln!(text, "serving {} with {worker_count} {plural}; Ctrl-C stops", folder.display());
    let logs_to_stdout = arguments.access_log.as_deref() == Some(Path::new("-"));
    // Nobody to read it is no reason not to serve.
    let _ = if logs_to_stdout {
        io::stderr().write_all(text.as_bytes())
    } else {
        io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush())
    };
}

fn print_counters(counters: &[Arc<Counters>]) {
    let counters: Vec<&Counters> = counters.iter().map(Arc::as_ref).collect();
    let rows = sum_rows(&counters, Site::OUTCOMES);
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let text: String = rows.iter().map(|(name, count)| format!("{name:width$} {count}\n")).collect();
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::{parse_duration_ms, share_descriptors};

    #[test]
    fn descriptors_are_shared_out() {
        for (limit, workers, connections_max, files_max) in [
            (64, 1, 27, 9),
            (1024, 1, 747, 249),
            (1024, 4, 180, 60),
            (1_048_576, 2, 523_756, 512),
            (u64::MAX, 1, usize::MAX - 540, 512),
            (10, 8, 8, 1),
        ] {
            let shares = share_descriptors(limit, workers);
            assert_eq!((shares.connections_max, shares.files_max), (connections_max, files_max), "{limit} {workers}");
        }
    }

    #[test]
    fn durations_need_a_unit_and_a_bound() {
        assert_eq!(parse_duration_ms("250ms"), Ok(250));
        assert_eq!(parse_duration_ms("10s"), Ok(10_000));
        assert_eq!(parse_duration_ms("2m"), Ok(120_000));
        for bad in ["", "10", "s", "0s", "-1s", "1h", "1.5s", "99999999999999999999s", "2000m"] {
            assert!(parse_duration_ms(bad).is_err(), "{bad}");
        }
    }
}
