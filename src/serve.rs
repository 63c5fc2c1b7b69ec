//! `flatout serve`: a folder as a web site.

use clap::Args;
use flatout_config::model::{
    Admin, Certificate, Config, Files, Handler, Listener, Log, LogFormat, LogTarget, Place, Protocol, Rotation, Site,
    Step, StepKind, Timeouts,
};
use flatout_config::{Style, to_kdl};
use flatout_daemon::{Failure, Options, Source};
use flatout_serve::root::check_kernel;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Serve the files below a folder.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout serve                              the current folder on http://127.0.0.1:8080/
  flatout serve ./public --listen 0.0.0.0:80 --access-log /var/log/flatout.log
  flatout serve ./public --access-log - | grep ' 404 '

Names that begin with a dot are not served (.well-known is), and no symbolic link leads out of the folder.
SIGTERM or Ctrl-C finishes what is under way; a second one leaves at once. SIGUSR1 opens the log anew, after it
has been renamed, and prints the counters.")]
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

    /// Believe what is known of a file for so long without looking.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration_ms)]
    recheck: u64,

    /// Have the kernel tell of changes below the folder, so that each is seen at once and nobody needs to look.
    #[arg(long)]
    watch: bool,

    /// Open so many files at the most, connections included; by default as many as the kernel allows.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(64..=1_073_741_824))]
    open_files: Option<u64>,

    /// Let the worker threads open nothing outside the folder, where the kernel can (Landlock).
    #[arg(long)]
    landlock: bool,

    /// Answer `flatout status`, `reload` and `upgrade` on this Unix socket.
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,

    /// Print the configuration that these flags stand for, and exit.
    #[arg(long)]
    print_config: bool,

    /// Speak https: `internal`, with a certificate by an authority of our own, or CERT,KEY, two files in PEM.
    #[arg(long, value_name = "internal|CERT,KEY", value_parser = parse_tls, conflicts_with_all = ["tls_cert", "h2c"])]
    tls: Option<Tls>,

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

/// Where the certificate comes from.
#[derive(Clone, Debug)]
enum Tls {
    Internal,
    Files(PathBuf, PathBuf),
}

fn parse_tls(text: &str) -> Result<Tls, String> {
    if text == "internal" {
        return Ok(Tls::Internal);
    }
    let (chain, key) = text.split_once(',').ok_or("either `internal`, or two files: CERT,KEY")?;
    Ok(Tls::Files(chain.into(), key.into()))
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

/// Runs the verb and says how it ended.
pub(crate) fn run(arguments: &ServeArgs) -> ExitCode {
    match settings(arguments) {
        Ok(config) if arguments.print_config => {
            print!("{}", to_kdl(&config));
            ExitCode::SUCCESS
        }
        Ok(config) => {
            let source = Source::Flags(Box::new(config));
            flatout_daemon::run(Options { source, style: Style::Plain })
        }
        Err(failure) => failure.report(),
    }
}

/// The configuration that the flags stand for.
fn settings(arguments: &ServeArgs) -> Result<Config, Failure> {
    check_folder(&arguments.folder)?;
    let listeners: Vec<Listener> = arguments.listen.iter().map(|&address| listener(arguments, address)).collect();
    for (index, listener) in listeners.iter().enumerate() {
        if listeners[..index].iter().any(|other| other.address == listener.address) {
            return Err(Failure::usage(format!("--listen {} is given twice", listener.address)));
        }
    }
    let log = arguments.access_log.as_deref().map(log);
    let handler =
        Files { root: arguments.folder.clone(), hidden: arguments.hidden, ..flatout_config::files_defaults() };
    let kind = StepKind::Handler(Handler::Files(Box::new(handler)));
    let site = Site {
        place: Place::default(),
        hosts: vec!["*".to_owned()],
        listeners: (0..listeners.len()).collect(),
        certificate: certificate(arguments),
        recheck_ms: arguments.recheck,
        watch: arguments.watch,
        log: log.is_some().then_some(0),
        block: vec![Step { place: Place::default(), kind }],
    };
    Ok(Config {
        workers: arguments.workers,
        open_files: arguments.open_files,
        landlock: arguments.landlock,
        admin: arguments.admin.clone().map_or(Admin::Off, Admin::Path),
        timeouts: timeouts(arguments),
        logs: log.into_iter().collect(),
        listeners,
        sites: vec![site],
        ..Config::default()
    })
}

fn listener(arguments: &ServeArgs, address: SocketAddr) -> Listener {
    Listener {
        place: Place::default(),
        address,
        protocol: if certificate(arguments).is_some() { Protocol::Tls } else { Protocol::Plain },
        http2_cleartext: arguments.h2c,
        redirect_https_port: None,
    }
}

fn log(path: &Path) -> Log {
    let target = if path == Path::new("-") { LogTarget::Stdout } else { LogTarget::File(path.to_owned()) };
    Log {
        place: Place::default(),
        target,
        format: LogFormat::Combined,
        fields: Vec::new(),
        rotation: Rotation::default(),
    }
}

fn timeouts(arguments: &ServeArgs) -> Timeouts {
    Timeouts {
        idle_timeout_ms: arguments.idle_timeout,
        head_timeout_ms: arguments.head_timeout,
        body_timeout_ms: arguments.body_timeout,
        write_timeout_ms: arguments.write_timeout,
        handshake_timeout_ms: arguments.handshake_timeout,
        drain_timeout_ms: arguments.drain_timeout,
    }
}

/// The certificate that the flags name, if they do.
fn certificate(arguments: &ServeArgs) -> Option<Certificate> {
    let files = |chain: &Path, key: &Path| Certificate::Files {
        chain: chain.to_owned(),
        key: key.to_owned(),
        place: Place::default(),
    };
    match (&arguments.tls, &arguments.tls_cert, &arguments.tls_key) {
        (Some(Tls::Internal), ..) => Some(Certificate::Internal),
        (Some(Tls::Files(chain, key)), ..) | (None, Some(chain), Some(key)) => Some(files(chain, key)),
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    use super::parse_duration_ms;

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
