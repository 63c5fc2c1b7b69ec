//! The servers: how each is started on its core, asked what it has counted, and stopped.

use super::answers;
use super::bench::Bench;
use super::cases::{Case, Kind, Load};
use super::configs::{self, Ground, STATUS_PATH};
use super::proc::OnCpu;
use super::subjects::{NginxLog, Setup, Subject};
use crate::failure::{Context, Failure, Outcome};
use crate::shell;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server; it stops when dropped.
pub(super) struct Server {
    child: Child,
    port: u16,
    scheme: &'static str,
    /// Its log of requests, if it keeps one.
    log: Option<PathBuf>,
    /// Its command, for the report.
    pub(super) shown: String,
    /// Its configuration, for the report.
    pub(super) config: Option<String>,
}

/// How a server is started.
struct Start {
    command: Command,
    config: Option<String>,
    log: Option<PathBuf>,
}

impl Server {
    /// Starts a subject's server on the server's core and waits until it listens.
    pub(super) fn start(bench: &Bench, subject: Subject, case: &Case) -> Outcome<Self> {
        let port = free_port()?;
        let slug = subject.slug();
        let ground = Ground { case, folder: bench.folder(), slug: &slug, port };
        let Start { command, config, log } = start(bench, subject.setup, ground)?;
        let shown = bench.shown(&shell::shown(&command), port);
        let said = bench.folder().join(format!("{slug}.log"));
        let out = std::fs::File::create(&said).cannot("create a server's log")?;
        let child = bench
            .on_server_core(&command)
            .stdin(Stdio::null())
            .stdout(out.try_clone().cannot("create a server's log")?)
            .stderr(out)
            .spawn()
            .cannot(&format!("start {shown}"))?;
        let config = config.map(|text| bench.shown(&text, port));
        let mut server = Self { child, port, scheme: case.speech.scheme(), log, shown, config };
        server.wait_until_ready().map_err(|failure| {
            let said = std::fs::read_to_string(&said).unwrap_or_default();
            // The first line says what is wrong; those behind it say where.
            let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("").to_owned();
            Failure::from(format!("{failure} ({}) {first}", server.shown))
        })?;
        Ok(server)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The address of a path that begins with a slash.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}://127.0.0.1:{}{path}", self.scheme, self.port)
    }

    /// What it has spent so far.
    pub(super) fn on_cpu(&self) -> Outcome<OnCpu> {
        OnCpu::of(self.child.id())
    }

    /// The requests that nginx has counted, this one among them.
    pub(super) fn nginx_requests(&self) -> Outcome<u64> {
        let text = answers::text(&self.url(STATUS_PATH))?;
        let counts = text.lines().skip_while(|line| !line.starts_with("server accepts")).nth(1);
        let requests = counts.and_then(|line| line.split_whitespace().nth(2)?.parse().ok());
        requests.cannot("read how many requests nginx has counted")
    }

    /// The lines of its log of requests, once they are as many as the requests; `None` when it keeps no log.
    ///
    /// A server that drops lines under load would look cheaper than it is.
    pub(super) fn logged(&self, requests: u64) -> Outcome<Option<String>> {
        let Some(log) = &self.log else { return Ok(None) };
        let start = Instant::now();
        loop {
            let bytes = std::fs::read(log).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            let lines = text.matches('\n').count() as u64;
            if lines >= requests {
                return Ok(Some(text.into_owned()));
            }
            if start.elapsed() > LOG_PATIENCE {
                return Err(format!("it logged {lines} of {requests} requests").into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Empties its log, so that rounds do not fill the disk.
    pub(super) fn empty_log(&self) -> Outcome<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let file = std::fs::OpenOptions::new().write(true).open(log).cannot("open a log of requests")?;
        file.set_len(0).cannot("empty a log of requests")
    }

    fn wait_until_ready(&mut self) -> Outcome<()> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait().cannot("look after a server")? {
                return Err(format!("it ended with {status}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("it does not listen".into())
    }
}

/// Longer than anybody buffers lines.
const LOG_PATIENCE: Duration = Duration::from_secs(4);

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let asked = Command::new("kill").arg(self.child.id().to_string()).status();
        let start = Instant::now();
        while asked.is_ok() && start.elapsed() < Duration::from_secs(3) {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command of a server, with its configuration written.
fn start(bench: &Bench, setup: Setup, ground: Ground<'_>) -> Outcome<Start> {
    let address = format!("127.0.0.1:{}", ground.port);
    let program = |name: &str| shell::locate(name).map(Command::new).cannot(&format!("find {name}"));
    let case = ground.case;
    match setup {
        Setup::Bare => {
            let mut command = flatout(bench)?;
            command.args(["limits", "--responder", &address]);
            match case.kind {
                Kind::ServerPerMebibyte => command.arg("--sendfile").arg(case.file.place(bench.folder())),
                _ => command.args(["--size", &case.file.bytes.to_string()]),
            };
            if matches!(case.load, Load::Wrk { closes: true, .. }) {
                command.arg("--close");
            }
            Ok(Start { command, config: None, log: None })
        }
        Setup::Serve => {
            let mut command = flatout(bench)?;
            command.arg("serve").arg(bench.folder().join(case.file.root));
            command.args(["--listen", &address, "--workers", "1"]);
            Ok(Start { command, config: None, log: None })
        }
        Setup::Run(settings) => {
            let mut command = flatout(bench)?;
            command.args(["run", "-c"]);
            let log = settings.log.then(|| ground.access_log());
            configured(command, configs::flatout(settings, ground), ground, "kdl", log)
        }
        Setup::Nginx(settings) => {
            let mut command = program("nginx")?;
            command.arg("-p").arg(bench.folder()).arg("-c");
            let log = (settings.log != NginxLog::Off).then(|| ground.access_log());
            configured(command, configs::nginx(settings, ground), ground, "conf", log)
        }
        Setup::Lighttpd => {
            let mut command = program("lighttpd")?;
            command.args(["-D", "-f"]);
            configured(command, configs::lighttpd(ground), ground, "conf", None)
        }
        Setup::Apache { digest } => {
            let mut command = program("apache2")?;
            command.args(["-D", "FOREGROUND", "-f"]);
            configured(command, configs::apache(digest, ground), ground, "conf", None)
        }
        Setup::H2o => {
            let mut command = program("h2o")?;
            command.arg("-c");
            configured(command, configs::h2o(ground), ground, "conf", None)
        }
        Setup::FlatoutBench | Setup::Wrk => Err("it is a client".into()),
    }
}

/// A command whose last word is the configuration it reads.
fn configured(
    mut command: Command,
    config: String,
    ground: Ground<'_>,
    ending: &str,
    log: Option<PathBuf>,
) -> Outcome<Start> {
    let file = ground.folder.join(format!("{}.{ending}", ground.slug));
    std::fs::write(&file, &config).cannot("write a configuration")?;
    command.arg(file);
    Ok(Start { command, config: Some(config), log })
}

fn flatout(bench: &Bench) -> Outcome<Command> {
    let found = bench.flatout().is_file().then(|| Command::new(bench.flatout()));
    found.cannot(&format!("find {}: cargo build --release", bench.flatout().display()))
}

fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").cannot("find a free port")?;
    Ok(listener.local_addr().cannot("find a free port")?.port())
}
