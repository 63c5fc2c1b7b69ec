//! The subjects: how each is configured, started on its core, asked whether it answers right, and stopped.

use super::cases::{Case, Kind};
use super::cores::Cores;
use super::{machine, proc};
use crate::failure::{Context, Failure, Outcome};
use crate::shell;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The small file's name and size.
pub(super) const SMALL_FILE: &str = "1k.html";
const SMALL_BYTES: usize = 1024;

/// The large file's name and size.
pub(super) const LARGE_FILE: &str = "10m.bin";
const LARGE_BYTES: usize = 10 * 1024 * 1024;

/// Where nginx says how many requests it has counted.
const STATUS_PATH: &str = "/status";

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Subject {
    /// Our own loop without a server around it: the floor.
    Bare,
    Flatout,
    Nginx,
    /// nginx with `sendfile off`: it reads a small file and sends it together with the head.
    NginxReading,
    Lighttpd,
    Wrk,
}

impl Subject {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare loop",
            Self::Flatout => "flatout",
            Self::Nginx => "nginx",
            Self::NginxReading => "nginx, sendfile off",
            Self::Lighttpd => "lighttpd",
            Self::Wrk => "wrk",
        }
    }

    /// For file names.
    fn slug(self) -> String {
        self.name().replace(", ", "-").replace(' ', "-")
    }
}

/// The folder with the site and the configurations, and the programs found.
pub(super) struct Bench {
    folder: PathBuf,
    flatout: PathBuf,
    cores: Cores,
}

impl Drop for Bench {
    fn drop(&mut self) {
        // Left behind at worst; the system clears its temporary folder.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Bench {
    /// Writes the site and checks that the measuring itself can work.
    pub(super) fn prepare(flatout: PathBuf) -> Outcome<Self> {
        for tool in ["taskset", "setpriv", "wrk"] {
            if !shell::is_installed(tool) {
                return Err(format!("{tool} is not installed; tools/setup.sh bench installs it").into());
            }
        }
        let cores = Cores::choose()?;
        eprintln!("server on core {}, client on core {}", cores.server, cores.client);
        let made = shell::output_of(Command::new("mktemp").args(["-d", "-t", "flatout-bench.XXXXXX"]))?;
        let folder = PathBuf::from(made.trim());
        let bench = Self { folder, flatout, cores };
        // nginx drops root's rights before it reads a file.
        shell::output_of(Command::new("chmod").arg("0755").arg(&bench.folder))?;
        std::fs::create_dir(bench.site()).cannot("create the site's folder")?;
        let small = "The quick brown fox jumps over the lazy dog. ".repeat(SMALL_BYTES / 45 + 1);
        std::fs::write(bench.site().join(SMALL_FILE), &small[..SMALL_BYTES]).cannot("write the small file")?;
        let large: Vec<u8> = (0..LARGE_BYTES).map(|at| (at * 31 % 251) as u8).collect();
        std::fs::write(bench.site().join(LARGE_FILE), large).cannot("write the large file")?;
        std::fs::write(bench.wrk_script(), super::clients::WRK_SCRIPT).cannot("write wrk's script")?;
        Ok(bench)
    }

    pub(super) fn site(&self) -> PathBuf {
        self.folder.join("site")
    }

    pub(super) fn wrk_script(&self) -> PathBuf {
        self.folder.join("count.lua")
    }

    pub(super) fn flatout(&self) -> &Path {
        &self.flatout
    }

    pub(super) fn cores(&self) -> Cores {
        self.cores
    }

    /// A command on the client's core.
    pub(super) fn on_client_core(&self, command: &Command) -> Command {
        pinned(self.cores.client, command)
    }

    /// What each program calls itself.
    pub(super) fn versions(&self) -> Vec<(&'static str, String)> {
        let flatout = machine::first_line(Command::new(&self.flatout).arg("--version"));
        vec![
            ("flatout", flatout),
            ("nginx", machine::said_by("nginx", &["-v"])),
            ("lighttpd", machine::said_by("lighttpd", &["-v"])),
            ("wrk", machine::said_by("wrk", &["-v"])),
        ]
    }

    /// Text with this run's own paths and port made readable.
    pub(super) fn shown(&self, text: &str, port: u16) -> String {
        self.without_paths(text).replace(&port.to_string(), "PORT")
    }

    /// Text with this run's own paths made readable.
    pub(super) fn without_paths(&self, text: &str) -> String {
        let site = self.site().display().to_string();
        let folder = self.folder.display().to_string();
        let flatout = self.flatout.display().to_string();
        let text = text.replace(&site, "SITE").replace(&folder, "DIR").replace(&flatout, "flatout");
        text.replace("/usr/sbin/", "")
    }

    /// Starts a server on the server's core and makes sure that it answers right.
    pub(super) fn start(&self, subject: Subject, case: &Case) -> Outcome<Server> {
        let port = free_port()?;
        let (command, config) = self.command(subject, case, port)?;
        let shown = self.shown(&shell::shown(&command), port);
        let mut pinned = pinned(self.cores.server, &command);
        let log = self.folder.join(format!("{}.log", subject.slug()));
        let out = std::fs::File::create(&log).cannot("create a server's log")?;
        let child = pinned
            .stdin(Stdio::null())
            .stdout(out.try_clone().cannot("create a server's log")?)
            .stderr(out)
            .spawn()
            .cannot(&format!("start {shown}"))?;
        let mut server = Server { child, port, shown, config: config.map(|text| self.shown(&text, port)) };
        server.wait_until_ready().and_then(|()| server.check_answer(case)).map_err(|failure| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let last = said.lines().last().unwrap_or("").to_owned();
            Failure::from(format!("{failure} ({}) {last}", server.shown))
        })?;
        Ok(server)
    }

    /// The command of a server, and the configuration it reads.
    fn command(&self, subject: Subject, case: &Case, port: u16) -> Outcome<(Command, Option<String>)> {
        let address = format!("127.0.0.1:{port}");
        let program = |name: &str| shell::locate(name).map(Command::new).cannot(&format!("find {name}"));
        let write = |text: &str| {
            let file = self.folder.join(format!("{}.conf", subject.slug()));
            std::fs::write(&file, text).cannot("write a configuration").map(|()| file)
        };
        match subject {
            Subject::Bare => {
                let mut command = self.flatout_command()?;
                command.args(["limits", "--responder", &address]);
                match case.kind {
                    Kind::ServerPerMebibyte => command.arg("--sendfile").arg(self.site().join(case.file)),
                    _ => command.args(["--size", &SMALL_BYTES.to_string()]),
                };
                if case.kind == (Kind::ServerPerRequest { closes: true }) {
                    command.arg("--close");
                }
                Ok((command, None))
            }
            Subject::Flatout => {
                let mut command = self.flatout_command()?;
                command.arg("serve").arg(self.site()).args(["--listen", &address, "--workers", "1"]);
                Ok((command, None))
            }
            Subject::Nginx | Subject::NginxReading => {
                let config = self.nginx_config(subject, case, port);
                let mut command = program("nginx")?;
                command.arg("-p").arg(&self.folder).arg("-c").arg(write(&config)?);
                Ok((command, Some(config)))
            }
            Subject::Lighttpd => {
                let config = self.lighttpd_config(port);
                let mut command = program("lighttpd")?;
                command.arg("-D").arg("-f").arg(write(&config)?);
                Ok((command, Some(config)))
            }
            Subject::Wrk => Err("wrk is a client".into()),
        }
    }

    fn flatout_command(&self) -> Outcome<Command> {
        let found = self.flatout.is_file().then(|| Command::new(&self.flatout));
        found.cannot(&format!("find {}: cargo build --release", self.flatout.display()))
    }

    /// As nginx's manual advises for static files, save that `tcp_nopush` is kept for large ones: around a small
    /// answer it only adds two system calls.
    fn nginx_config(&self, subject: Subject, case: &Case, port: u16) -> String {
        let sending = match (subject, case.kind) {
            (Subject::NginxReading, _) => "sendfile off;\n    output_buffers 1 32k;",
            (_, Kind::ServerPerMebibyte) => "sendfile on;\n    tcp_nopush on;",
            _ => "sendfile on;",
        };
        let own = subject.slug();
        let folder = self.folder.display();
        let site = self.site();
        let site = site.display();
        format!(
            "daemon off;
worker_processes 1;
worker_rlimit_nofile 65536;
pid {folder}/{own}.pid;
error_log {folder}/{own}.error crit;
events {{
    worker_connections 8192;
}}
http {{
    types {{ text/html html; application/octet-stream bin; }}
    access_log off;
    {sending}
    keepalive_timeout 65;
    keepalive_requests 1000000000;
    open_file_cache max=1000 inactive=60s;
    open_file_cache_valid 60s;
    open_file_cache_min_uses 1;
    client_body_temp_path {folder}/{own}-1;
    proxy_temp_path {folder}/{own}-2;
    fastcgi_temp_path {folder}/{own}-3;
    uwsgi_temp_path {folder}/{own}-4;
    scgi_temp_path {folder}/{own}-5;
    server {{
        listen 127.0.0.1:{port} backlog=4096 deferred;
        root {site};
        location = {STATUS_PATH} {{ stub_status; }}
    }}
}}
"
        )
    }

    fn lighttpd_config(&self, port: u16) -> String {
        let folder = self.folder.display();
        let site = self.site();
        let site = site.display();
        format!(
            r#"server.document-root = "{site}"
server.bind = "127.0.0.1"
server.port = {port}
server.pid-file = "{folder}/lighttpd.pid"
server.errorlog = "{folder}/lighttpd.error"
server.event-handler = "linux-sysepoll"
server.network-backend = "sendfile"
server.stat-cache-engine = "inotify"
server.defer-accept = 1
server.max-fds = 16384
server.max-keep-alive-requests = 65535
server.max-keep-alive-idle = 60
mimetype.assign = ( ".html" => "text/html", ".bin" => "application/octet-stream" )
"#
        )
    }
}

/// A running server; it stops when dropped.
pub(super) struct Server {
    child: Child,
    port: u16,
    /// Its command, for the report.
    pub(super) shown: String,
    /// Its configuration, for the report.
    pub(super) config: Option<String>,
}

impl Server {
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The address of a file.
    pub(super) fn url(&self, file: &str) -> String {
        format!("http://127.0.0.1:{}/{file}", self.port)
    }

    /// The nanoseconds it has spent so far.
    pub(super) fn on_cpu_ns(&self) -> Outcome<u64> {
        proc::on_cpu_ns(self.child.id())
    }

    /// The requests that nginx has counted, this one among them.
    pub(super) fn nginx_requests(&self) -> Outcome<u64> {
        let answer = self.get(STATUS_PATH)?;
        let text = String::from_utf8_lossy(&answer);
        let counts = text.lines().skip_while(|line| !line.starts_with("server accepts")).nth(1);
        let requests = counts.and_then(|line| line.split_whitespace().nth(2)?.parse().ok());
        requests.cannot("read how many requests nginx has counted")
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

    /// A server that answers wrong may well answer fast.
    fn check_answer(&self, case: &Case) -> Outcome<()> {
        let answer = self.get(&format!("/{}", case.file))?;
        let wanted = if case.file == LARGE_FILE { LARGE_BYTES } else { SMALL_BYTES };
        let head_end = head_end(&answer).cannot("find the end of the answer's head")?;
        let body = answer.len() - head_end;
        if answer.starts_with(b"HTTP/1.1 200") && body == wanted {
            return Ok(());
        }
        let first = String::from_utf8_lossy(&answer[..head_end.min(60)]).into_owned();
        Err(format!("it answers wrong: {body} bytes after `{first}`").into())
    }

    fn get(&self, path: &str) -> Outcome<Vec<u8>> {
        let doing = format!("ask for {path}");
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).cannot(&doing)?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).cannot(&doing)?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).cannot(&doing)?;
        let mut answer = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        // The bare loop may keep the connection open whatever it is asked: the declared length ends the answer.
        while !is_whole(&answer) {
            match stream.read(&mut buffer).cannot(&doing)? {
                0 => break,
                length => answer.extend_from_slice(&buffer[..length]),
            }
        }
        Ok(answer)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
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

/// Whether an answer has as many body bytes as its head declares.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = head_end(answer) else { return false };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let declared = head.split("content-length:").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok());
    declared.is_some_and(|length: usize| answer.len() >= end + length)
}

/// Where the head ends and the body begins.
fn head_end(answer: &[u8]) -> Option<usize> {
    answer.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// A command on one core, which ends when we do, however we do.
fn pinned(core: usize, command: &Command) -> Command {
    let mut pinned = Command::new("setpriv");
    pinned.args(["--pdeathsig", "TERM", "taskset", "-c", &core.to_string()]);
    pinned.arg(command.get_program()).args(command.get_args());
    pinned
}

fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").cannot("find a free port")?;
    Ok(listener.local_addr().cannot("find a free port")?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_where_its_head_says() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
        assert!(is_whole(whole));
        assert!(!is_whole(&whole[..whole.len() - 1]));
        assert!(!is_whole(b"HTTP/1.1 200 OK\r\n\r\nno length"));
    }

    #[test]
    fn a_pinned_command_keeps_its_words() {
        let mut command = Command::new("wrk");
        command.arg("-t1");
        assert_eq!(shell::shown(&pinned(3, &command)), "setpriv --pdeathsig TERM taskset -c 3 wrk -t1");
    }

    #[test]
    fn nginx_is_configured_for_what_it_serves() {
        let cores = Cores { server: 0, client: 1 };
        // Dropping it removes a folder, which therefore must not be one that exists.
        let bench = Bench { folder: PathBuf::from("/nonexistent/bench"), flatout: PathBuf::from("flatout"), cores };
        let config = |subject, name: &str| {
            let case = super::super::cases::CASES.iter().find(|case| case.name == name).unwrap();
            bench.nginx_config(subject, case, 1)
        };
        let [alive, close, large] = ["keep-alive", "close", "large-file"].map(|name| config(Subject::Nginx, name));
        assert!(alive.contains("sendfile on;") && close.contains("sendfile on;") && large.contains("sendfile on;"));
        assert!(!alive.contains("tcp_nopush") && !close.contains("tcp_nopush") && large.contains("tcp_nopush on;"));
        assert!(config(Subject::NginxReading, "close").contains("sendfile off;"));
        for text in [alive, close, large] {
            assert!(text.contains("listen 127.0.0.1:1 backlog=4096 deferred;"), "{text}");
        }
    }
}
