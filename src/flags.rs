//! The flags that all serving commands share: listeners, logs and timeouts.

use clap::Args;
use flatout_config::model::{
    Certificate, Config, ListenAddress, Listener, Log, Place, Protocol, Site, SocketAccess, Step, StepKind,
};
use flatout_config::{FILE_CHECK_INTERVAL_MS_DEFAULT, Style, parse_addresses, to_kdl};
use flatout_daemon::{ConfigSource, Failure, Options};
use flatout_http::access::{LogDestination, LogFormat, LogSettings};
use flatout_http::timeouts::Timeouts;
use flatout_units::quantity::{MILLISECOND, parse_duration};
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

// No doc comment: clap would take it for the description of the verb.
#[derive(Args, Debug)]
pub(crate) struct ServerArgs {
    /// Listen on this address; may be repeated
    ///
    /// `:8080` means port 8080 on all IPv4 and IPv6 addresses; port 0 means any free port. `unix:/run/flatout/site.sock`
    /// is a Unix socket.
    #[arg(long, value_name = "ADDR:PORT|unix:PATH", default_value = "127.0.0.1:8080", value_parser = parse_listen)]
    listen: Vec<Listen>,

    /// Number of worker threads, 1 to 1024 [default: one per available core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,

    /// Append one line per request to FILE; `-` means standard output [default: no log]
    ///
    /// The log uses the combined format. If FILE is `-`, all other messages go to standard error.
    #[arg(long, value_name = "FILE|-")]
    access_log: Option<PathBuf>,

    /// Maximum number of open files, including connections [default: the hard limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(64..=1_073_741_824))]
    open_files: Option<u64>,

    /// Print the configuration equivalent to these flags and exit
    #[arg(long)]
    print_config: bool,

    /// Serve HTTPS, with a local certificate authority (`internal`) or two PEM files (CERT,KEY)
    ///
    /// `internal` is for development: flatout creates a local certificate authority and prints the path of the
    /// root certificate to trust. CERT is a certificate with its chain, leaf first; KEY is its private key.
    #[arg(long, value_name = "internal|CERT,KEY", value_parser = parse_tls, conflicts_with_all = ["tls_cert", "h2c"])]
    tls: Option<Tls>,

    /// Serve HTTPS with the certificate and chain in this PEM file, leaf first
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "h2c")]
    tls_cert: Option<PathBuf>,

    /// PEM file with the private key for --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Accept HTTP/2 without TLS from clients with prior knowledge
    #[arg(long)]
    h2c: bool,

    /// Close a connection if no request starts within this time
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration_ms)]
    idle_timeout: u64,

    /// Maximum time to receive a request's header section; after that, respond with 408
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration_ms)]
    head_timeout: u64,

    /// Maximum time between two reads of a request body; after that, respond with 408
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration_ms)]
    body_timeout: u64,

    /// Maximum time for the TLS handshake or the HTTP/2 preface; after that, close the connection
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration_ms)]
    handshake_timeout: u64,

    /// Close a connection if its client stops reading a response for this long
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration_ms)]
    write_timeout: u64,

    /// Maximum time to finish requests in progress when the server stops
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration_ms)]
    drain_timeout: u64,
}

/// The value of `--listen`: a single address, all addresses of the machine, or a Unix socket.
#[derive(Clone, Debug)]
struct Listen(Vec<ListenAddress>);

fn parse_listen(text: &str) -> Result<Listen, String> {
    parse_addresses(text).map(Listen).map_err(|fault| {
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        match text.rsplit_once(':') {
            _ if text.starts_with("unix:") || text.starts_with('/') => fault.to_owned(),
            None if is_port(text) => format!("write :{text} for all addresses, or 127.0.0.1:{text}"),
            Some(("localhost", port)) if is_port(port) => format!("write 127.0.0.1:{port}"),
            Some(("*", port)) if is_port(port) => format!("write :{port}"),
            _ => "use an address such as 127.0.0.1:8080, [::1]:8080, or :8080 for all addresses, or unix:/run/flatout/site.sock"
                .to_owned(),
        }
    })
}

/// The source of the certificate.
#[derive(Clone, Debug)]
enum Tls {
    Internal,
    Files(PathBuf, PathBuf),
}

fn parse_tls(text: &str) -> Result<Tls, String> {
    if text == "internal" {
        return Ok(Tls::Internal);
    }
    let (chain, key) = text.split_once(',').ok_or("use either `internal` or two files: CERT,KEY")?;
    Ok(Tls::Files(chain.into(), key.into()))
}

/// Parses a duration such as `250ms`, `10s` or `2m`, in milliseconds.
pub(crate) fn parse_duration_ms(text: &str) -> Result<u64, String> {
    let duration = parse_duration(text, MILLISECOND);
    let duration_ms = duration.map_err(|_| "a duration is a number with a unit: 250ms, 10s or 2m".to_owned())?;
    let is_within = (1..=86_400_000).contains(&duration_ms);
    is_within.then_some(duration_ms).ok_or_else(|| "a duration must be between 1ms and 1d".to_owned())
}

impl ServerArgs {
    /// Runs the configuration equivalent to a command's flags, or prints it. Returns the exit code. If `needs_admin` is
    /// true, fails without the admin socket. The configuration runs in a single process, whose worker threads are
    /// confined if `landlock` is true.
    pub(crate) fn run(&self, settings: Result<Config, Failure>, needs_admin: bool, landlock: bool) -> ExitCode {
        match settings {
            Ok(config) if self.print_config => {
                // A closed pipe is not an error.
                let _ = io::stdout().write_all(to_kdl(&config).as_bytes());
                ExitCode::SUCCESS
            }
            Ok(config) => {
                let source = ConfigSource::Flags(Box::new(Config { landlock: Some(landlock), ..config }));
                flatout_daemon::run(Options { source, style: Style::Plain, needs_admin })
            }
            Err(failure) => failure.report(),
        }
    }

    /// Returns a configuration with one site, which serves every host with these handlers and directives.
    ///
    /// # Errors
    /// Fails if two `--listen` flags contain the same address.
    pub(crate) fn config(&self, steps: impl IntoIterator<Item = StepKind>) -> Result<Config, Failure> {
        let listeners = self.listeners()?;
        let log = self.access_log.as_deref().map(|path| {
            if path == Path::new("-") {
                log(LogDestination::Stdout, LogFormat::Combined)
            } else {
                log(LogDestination::File(path.to_owned()), LogFormat::Combined)
            }
        });
        let site = Site {
            place: Place::default(),
            hosts: vec!["*".to_owned()],
            listeners: (0..listeners.len()).collect(),
            certificate: self.certificate(),
            file_check_interval_ms: FILE_CHECK_INTERVAL_MS_DEFAULT,
            log: log.is_some().then_some(0),
            block: steps.into_iter().map(|kind| Step { place: Place::default(), kind }).collect(),
            ..Site::default()
        };
        Ok(Config {
            workers: self.workers,
            open_files: self.open_files,
            timeouts: self.timeouts(),
            logs: log.into_iter().collect(),
            listeners,
            sites: vec![site],
            ..Config::default()
        })
    }

    /// Adds a log of requests to the terminal, if there is a terminal and no other log was requested.
    pub(crate) fn show_requests(&self, config: &mut Config) {
        let is_watched = io::stdout().is_terminal() && io::stderr().is_terminal();
        if is_watched && config.logs.is_empty() && !self.print_config {
            config.logs.push(log(LogDestination::Stdout, LogFormat::Short));
            for site in &mut config.sites {
                site.log = Some(0);
            }
        }
    }

    fn listeners(&self) -> Result<Vec<Listener>, Failure> {
        let mut listeners: Vec<Listener> = Vec::new();
        for address in self.listen.iter().flat_map(|listen| &listen.0) {
            if listeners.iter().any(|other| other.address == *address) {
                return Err(Failure::usage(format!("--listen {address} occurs twice")));
            }
            listeners.push(Listener {
                place: Place::default(),
                address: address.clone(),
                access: SocketAccess::default(),
                protocol: if self.certificate().is_some() { Protocol::Tls } else { Protocol::Plain },
                http2_cleartext: self.h2c,
                redirect_https_port: None,
                http3: None,
                proxy_protocol: None,
            });
        }
        Ok(listeners)
    }

    fn timeouts(&self) -> Timeouts {
        Timeouts {
            idle_timeout_ms: self.idle_timeout,
            head_timeout_ms: self.head_timeout,
            body_timeout_ms: self.body_timeout,
            write_timeout_ms: self.write_timeout,
            handshake_timeout_ms: self.handshake_timeout,
            drain_timeout_ms: self.drain_timeout,
            ..Timeouts::DEFAULT
        }
    }

    /// Returns the certificate that the flags specify, if any.
    fn certificate(&self) -> Option<Certificate> {
        let files = |chain: &Path, key: &Path| Certificate::Files {
            chain: chain.to_owned(),
            key: key.to_owned(),
            place: Place::default(),
        };
        match (&self.tls, &self.tls_cert, &self.tls_key) {
            (Some(Tls::Internal), ..) => Some(Certificate::Internal),
            (Some(Tls::Files(chain, key)), ..) | (None, Some(chain), Some(key)) => Some(files(chain, key)),
            _ => None,
        }
    }
}

fn log(target: LogDestination, format: LogFormat) -> Log {
    Log { place: Place::default(), settings: LogSettings { format, ..LogSettings::new(target) } }
}

#[cfg(test)]
mod tests {
    use super::{parse_duration_ms, parse_listen};

    #[test]
    fn durations_need_a_unit_and_a_bound() {
        assert_eq!(parse_duration_ms("250ms"), Ok(250));
        assert_eq!(parse_duration_ms("10s"), Ok(10_000));
        assert_eq!(parse_duration_ms("2m"), Ok(120_000));
        assert_eq!(parse_duration_ms("1.5s"), Ok(1_500));
        assert_eq!(parse_duration_ms("1h"), Ok(3_600_000));
        for bad in ["", "10", "s", "0s", "-1s", "2d", "1.5ms", "99999999999999999999s", "2000m"] {
            assert!(parse_duration_ms(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_of_one_family_or_of_both() {
        assert_eq!(parse_listen("unix:/a.sock").unwrap().0, ["unix:/a.sock".parse().unwrap()]);
        assert_eq!(parse_listen("[::1]:80").unwrap().0, ["[::1]:80".parse().unwrap()]);
        assert_eq!(parse_listen(":80").unwrap().0, ["0.0.0.0:80".parse().unwrap(), "[::]:80".parse().unwrap()]);
        for (bad, advice) in [
            ("8080", "write :8080 for all addresses, or 127.0.0.1:8080"),
            ("localhost:80", "write 127.0.0.1:80"),
            ("*:80", "write :80"),
            ("a.example:80", "use an address such as"),
            ("127.0.0.1", "use an address such as"),
            ("", "use an address such as"),
            ("unix:site.sock", "absolute path"),
            ("/run/site.sock", "write `unix:`"),
        ] {
            assert!(parse_listen(bad).unwrap_err().contains(advice), "{bad}");
        }
    }
}
