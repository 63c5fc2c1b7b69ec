//! The servers: how each is started on its core, asked what it has counted, and stopped.

use super::answers;
use super::bench::Bench;
use super::cases::{Case, Kind, Load, Speech};
use super::configs::{self, Ground, STATUS_PATH};
use super::dynamic;
use super::fronts;
use super::origin::Origin;
use super::proc::OnCpu;
use super::query;
use super::site;
use super::subjects::{NginxLog, Setup, Subject};
use crate::failure::{Context, Failure, Outcome};
use crate::shell;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server; it stops when dropped.
pub(super) struct Server {
    child: Child,
    /// Who works for it beside its own children.
    companion: Option<Companion>,
    port: u16,
    scheme: &'static str,
    /// What stands behind it, if something does.
    origin: Option<Origin>,
    /// Its log of requests, if it keeps one.
    log: Option<PathBuf>,
    /// Its command, for the report.
    pub(super) shown: String,
    /// Its configuration, for the report.
    pub(super) config: Option<String>,
}

/// A server of its own that a server needs; it stops when dropped.
struct Companion(Child);

impl Drop for Companion {
    fn drop(&mut self) {
        stop(&mut self.0);
    }
}

/// How a server is started.
struct Start {
    command: Command,
    config: Option<String>,
    log: Option<PathBuf>,
    /// What must run before it, and the socket on which it then listens.
    companion: Option<(Command, PathBuf)>,
}

impl Server {
    /// Starts a subject's server on the server's core and waits until it listens.
    pub(super) fn start(bench: &Bench, subject: Subject, case: &Case) -> Outcome<Self> {
        if case.file == site::QUERY {
            query::prepare(bench.folder())?;
        }
        let port = free_port()?;
        let slug = subject.slug();
        let behind = case.behind.filter(|_| subject.setup.is_front());
        let origin = behind.map(|behind| Origin::start(bench, case, behind, &slug)).transpose()?;
        let origin_port = origin.as_ref().map_or(0, |origin| origin.port);
        let ground = Ground { case, folder: bench.folder(), slug: &slug, port, origin: origin_port };
        let Start { command, config, log, companion } = start(bench, subject.setup, ground)?;
        let readable = |text: &str| match origin_port {
            0 => bench.shown(text, port),
            origin => bench.shown(&text.replace(&origin.to_string(), "ORIGIN"), port),
        };
        // The sizes of one table differ by nothing but the page's name.
        let readable =
            |text: &str| case.row.map_or_else(|| readable(text), |_| readable(text).replace(case.file.stem(), "PAGE"));
        let companion =
            companion.map(|(command, socket)| start_companion(bench, &slug, &command, &socket)).transpose()?;
        let shown = readable(&shell::shown(&command));
        let said = bench.folder().join(format!("{slug}.log"));
        let out = std::fs::File::create(&said).cannot("create a server's log")?;
        let child = bench
            .on_server_core(&command)
            .stdin(Stdio::null())
            .stdout(out.try_clone().cannot("create a server's log")?)
            .stderr(out)
            .spawn()
            .cannot(&format!("start {shown}"))?;
        let config = match &origin {
            Some(origin) => Some(readable(&format!("{}{}", config.unwrap_or_default(), origin.shown))),
            None => config.map(|text| readable(&text)),
        };
        let mut server = Self { child, companion, port, scheme: case.speech.scheme(), origin, log, shown, config };
        wait_until_ready(&mut server.child, port).map_err(|failure| {
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
        let companion = self.companion.as_ref().map(|companion| companion.0.id());
        OnCpu::of(&[Some(self.child.id()), companion].into_iter().flatten().collect::<Vec<_>>())
    }

    /// The requests that have reached its origin; `None` when nothing stands behind it.
    pub(super) fn forwarded(&self) -> Outcome<Option<u64>> {
        self.origin.as_ref().map(Origin::requests).transpose()
    }

    /// The requests that nginx has counted, this one among them.
    pub(super) fn nginx_requests(&self, speech: Speech) -> Outcome<u64> {
        let text = answers::text(&self.url(STATUS_PATH), speech)?;
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
            if start.elapsed() > LOG_TIMEOUT {
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
}

/// Starts what a server needs, on the server's core too, and waits until it listens.
fn start_companion(bench: &Bench, slug: &str, command: &Command, socket: &Path) -> Outcome<Companion> {
    let shown = shell::shown(command);
    let said = bench.folder().join(format!("{slug}.companion.log"));
    let out = std::fs::File::create(&said).cannot("create a server's log")?;
    let mut command = bench.on_server_core(command);
    command.stdin(Stdio::null()).stdout(out.try_clone().cannot("create a server's log")?).stderr(out);
    let mut companion = Companion(command.spawn().cannot(&format!("start {shown}"))?);
    let start = Instant::now();
    while UnixStream::connect(socket).is_err() {
        let ended = companion.0.try_wait().cannot("look after a server")?;
        if ended.is_some() || start.elapsed() > START_TIMEOUT {
            let said = std::fs::read_to_string(&said).unwrap_or_default();
            return Err(format!("it does not listen ({shown}) {}", said.lines().next().unwrap_or("")).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(companion)
}

/// Waits until somebody listens.
pub(super) fn wait_until_ready(child: &mut Child, port: u16) -> Outcome<()> {
    let start = Instant::now();
    while start.elapsed() < START_TIMEOUT {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(());
        }
        if let Some(status) = child.try_wait().cannot("look after a server")? {
            return Err(format!("it ended with {status}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err("it does not listen".into())
}

/// Varnish compiles its configuration first.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// Longer than anybody buffers lines.
const LOG_TIMEOUT: Duration = Duration::from_secs(4);

impl Drop for Server {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// Asks a server to stop, and insists after a while.
pub(super) fn stop(child: &mut Child) {
    if matches!(child.try_wait(), Ok(Some(_))) {
        return;
    }
    let asked = Command::new("kill").arg(child.id().to_string()).status();
    let start = Instant::now();
    while asked.is_ok() && start.elapsed() < Duration::from_secs(3) {
        if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The command of a server, with its configuration written.
fn start(bench: &Bench, setup: Setup, ground: Ground<'_>) -> Outcome<Start> {
    let address = format!("127.0.0.1:{}", ground.port);
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
            Ok(Start { command, config: None, log: None, companion: None })
        }
        Setup::Serve => {
            let mut command = flatout(bench)?;
            command.arg("serve").arg(bench.folder().join(case.file.root));
            command.args(["--listen", &address, "--workers", "1"]);
            Ok(Start { command, config: None, log: None, companion: None })
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
        Setup::Accelerate => {
            let mut command = flatout(bench)?;
            command.args(["accelerate", &format!("http://127.0.0.1:{}", ground.origin)]);
            command.args(["--listen", &address, "--workers", "1", "--admin", "off"]);
            Ok(Start { command, config: None, log: None, companion: None })
        }
        Setup::Varnish => {
            let mut command = program("varnishd")?;
            command.args(["-F", "-j", "none", "-a", &address, "-s", "malloc,256m", "-p", "thread_pools=1"]);
            command.args(["-p", fronts::VARNISH_UNLOGGED, "-n"]).arg(bench.folder().join(ground.slug)).arg("-f");
            configured(command, fronts::varnish(ground), ground, "vcl", None)
        }
        Setup::NginxProxy { sendfile } => {
            let mut command = program("nginx")?;
            command.arg("-p").arg(bench.folder()).arg("-c");
            configured(command, fronts::nginx(sendfile, ground), ground, "conf", None)
        }
        Setup::Haproxy => {
            let mut command = program("haproxy")?;
            command.args(["-db", "-f"]);
            configured(command, fronts::haproxy(ground), ground, "cfg", None)
        }
        Setup::TrafficServer => {
            let mut command = program("traffic_server")?;
            let (folder, config) = fronts::traffic_server(ground)?;
            command.arg(format!("--run-root={}", folder.display()));
            Ok(Start { command, config: Some(config), log: None, companion: None })
        }
        Setup::Pages => {
            let mut command = flatout(bench)?;
            command.args(["run", "-c"]);
            configured(command, dynamic::flatout(ground), ground, "kdl", None)
        }
        Setup::NginxLua => {
            let mut command = program("nginx")?;
            command.arg("-p").arg(bench.folder()).arg("-c");
            configured(command, dynamic::nginx_lua(ground), ground, "conf", None)
        }
        Setup::NginxPhp => with_php(bench, ground),
        Setup::FlatoutBench | Setup::FlatoutBenchOpen | Setup::Wrk | Setup::H2load => Err("it is a client".into()),
    }
}

/// nginx, and PHP-FPM before it.
fn with_php(bench: &Bench, ground: Ground<'_>) -> Outcome<Start> {
    let fpm = dynamic::php_fpm_program().cannot("find PHP-FPM: Debian's package php-fpm has it")?;
    let mut fpm = Command::new(fpm);
    let file = bench.folder().join(format!("{}.fpm.conf", ground.slug));
    let text = dynamic::php_fpm(ground);
    std::fs::write(&file, &text).cannot("write a configuration")?;
    fpm.arg("--fpm-config").arg(file);
    let mut nginx = program("nginx")?;
    nginx.arg("-p").arg(bench.folder()).arg("-c");
    let mut start = configured(nginx, dynamic::nginx_php(ground), ground, "conf", None)?;
    start.config = start.config.map(|config| format!("{config}# PHP-FPM: {}\n{text}", shell::shown(&fpm)));
    start.companion = Some((fpm, dynamic::socket(ground)));
    Ok(start)
}

/// Programs whose Debian package has another name.
const PACKAGES: &[(&str, &str)] =
    &[("varnishd", "varnish"), ("traffic_server", "trafficserver"), ("apache2", "apache2-bin")];

/// A peer, or which package it is missing from.
fn program(name: &str) -> Outcome<Command> {
    let package = PACKAGES.iter().find(|known| known.0 == name).map_or(name, |known| known.1);
    let missing = format!("find {name}: it is in Debian's package {package}, which tools/setup.sh bench installs");
    shell::locate(name).map(Command::new).cannot(&missing)
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
    Ok(Start { command, config: Some(config), log, companion: None })
}

pub(super) fn flatout(bench: &Bench) -> Outcome<Command> {
    let found = bench.flatout().is_file().then(|| Command::new(bench.flatout()));
    found.cannot(&format!("find {}: cargo build --release", bench.flatout().display()))
}

pub(super) fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").cannot("find a free port")?;
    Ok(listener.local_addr().cannot("find a free port")?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_peer_is_named_with_its_package() {
        let told = program("no-such-server").unwrap_err().to_string();
        assert!(told.contains("find no-such-server") && told.contains("Debian's package no-such-server"), "{told}");
        // Where it is installed there is nothing to tell.
        if let Err(failure) = program("varnishd") {
            assert!(failure.to_string().contains("package varnish,"), "{failure}");
        }
    }
}
