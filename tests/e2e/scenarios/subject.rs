//! The server that scenarios run against: flatout, or another installed cache for comparison.

use super::super::harness::{Folder, Server, flatout};
use super::script::Launch;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The kind of server, from `FLATOUT_SCENARIO_SERVER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Flatout,
    Varnish,
    Nginx,
}

impl Kind {
    pub(crate) fn chosen() -> Self {
        match std::env::var("FLATOUT_SCENARIO_SERVER").as_deref() {
            Ok("varnish") => Self::Varnish,
            Ok("nginx") => Self::Nginx,
            _ => Self::Flatout,
        }
    }

    /// Returns true if this kind of server supports `launch`.
    pub(crate) fn can(self, launch: &Launch) -> bool {
        self == Self::Flatout || matches!(launch, Launch::Verb(arguments) if arguments.is_empty())
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) enum Subject {
    Flatout(Server),
    Other(Child, SocketAddr),
}

impl Subject {
    /// Starts it in front of `origin`. Its files go into `folder`.
    pub(crate) fn start(kind: Kind, launch: &Launch, origin: SocketAddr, folder: &Folder) -> Result<Self, String> {
        match (kind, launch) {
            (Kind::Flatout, Launch::Verb(arguments)) => {
                let mut command = flatout();
                // The location of the admin socket, so that `flatout purge` finds this server and no other.
                command.env("RUNTIME_DIRECTORY", folder.path()).arg("accelerate");
                if !arguments.iter().any(|argument| argument.starts_with("http")) {
                    command.arg(format!("http://{origin}"));
                }
                let more = if arguments.is_empty() { more_arguments(folder) } else { Vec::new() };
                let arguments: Vec<&String> = arguments.iter().chain(&more).collect();
                command.args(&arguments).args(["--listen", "127.0.0.1:0"]);
                if !arguments.iter().any(|argument| *argument == "--workers") {
                    command.args(["--workers", "1"]);
                }
                Ok(Self::Flatout(Server::spawn(command)))
            }
            (Kind::Flatout, Launch::Site(settings)) => {
                let (top, site): (Vec<&str>, Vec<&str>) = settings.lines().partition(|line| line.starts_with("top "));
                let top: String = top.iter().map(|line| format!("{}\n", line.trim_start_matches("top "))).collect();
                let site = site.join("\n");
                let text = format!("workers 1\n{top}site \"*\" {{\nlisten \"127.0.0.1:0\"\n{site}\n}}\n");
                let path = folder.path().join("flatout.kdl");
                std::fs::write(&path, text).map_err(|error| error.to_string())?;
                let mut command = flatout();
                command.env("RUNTIME_DIRECTORY", folder.path()).env("XDG_STATE_HOME", folder.path());
                command.arg("run").arg("-c").arg(&path);
                Ok(Self::Flatout(Server::spawn(command)))
            }
            (Kind::Varnish, _) => {
                let address = free_address()?;
                let mut command = Command::new("varnishd");
                command.arg("-n").arg(folder.path().join("varnish")).arg("-F");
                command.args(["-a", &address.to_string(), "-b", &origin.to_string(), "-s", "malloc,64m"]);
                command.args(["-p", "default_grace=0", "-p", "default_keep=3600", "-p", "shortlived=0"]);
                Self::start_other(command, address)
            }
            (Kind::Nginx, _) => {
                let address = free_address()?;
                let path = folder.path().join("nginx.conf");
                std::fs::write(&path, nginx_settings(address, origin, folder)).map_err(|error| error.to_string())?;
                let mut command = Command::new("nginx");
                command.arg("-c").arg(&path).arg("-p").arg(folder.path());
                Self::start_other(command, address)
            }
        }
    }

    fn start_other(mut command: Command, address: SocketAddr) -> Result<Self, String> {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|error| error.to_string())?;
        let (other, begun) = (Self::Other(child, address), Instant::now());
        while TcpStream::connect(address).is_err() {
            if begun.elapsed() > Duration::from_secs(30) {
                return Err("the other server does not listen".to_owned());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(other)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Flatout(server) => server.address,
            Self::Other(_, address) => *address,
        }
    }

    /// Stops it with this signal and returns its output.
    pub(crate) fn end(self, signal: &str) -> String {
        match self {
            Self::Flatout(mut server) => {
                server.signal(signal);
                let (status, said) = server.wait();
                format!("{status}\n{said}")
            }
            Self::Other(mut child, _) => {
                let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
                let _ = child.wait();
                String::new()
            }
        }
    }
}

/// `FLATOUT_SCENARIO_FLAGS`: arguments for every scenario that has none, to run them all with different settings.
fn more_arguments(folder: &Folder) -> Vec<String> {
    let flags = std::env::var("FLATOUT_SCENARIO_FLAGS").unwrap_or_default();
    let folder = folder.path().display().to_string();
    flags.split_whitespace().map(|flag| flag.replace("{folder}", &folder)).collect()
}

fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map_err(|error| error.to_string())
}

/// nginx as its manual configures a shared cache that honours the origin's directives.
fn nginx_settings(address: SocketAddr, origin: SocketAddr, folder: &Folder) -> String {
    let folder = folder.path().display();
    format!(
        "daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
        events {{ worker_connections 256; }}
        http {{
            access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
            fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
            proxy_cache_path {folder}/cache keys_zone=z:1m;
            server {{
                listen {address};
                location / {{
                    proxy_pass http://{origin}; proxy_http_version 1.1; proxy_set_header Connection \"\";
                    proxy_set_header Host $host; proxy_cache z; proxy_cache_revalidate on; proxy_cache_lock on;
                    proxy_cache_use_stale error timeout updating http_500 http_502 http_503 http_504;
                    proxy_cache_background_update on;
                }}
            }}
        }}"
    )
}
