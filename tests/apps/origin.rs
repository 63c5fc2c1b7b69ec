//! Applications and the servers that they run on.

use crate::harness::{Folder, wait_until};
use crate::process::{Running, free_port, is_root, php_fpm};
use crate::tool::tool;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A path below the folder that `tools/setup.sh apps` installs into, in target/tools.
pub(super) fn installed(path: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools").join(path);
    assert!(file.exists(), "{} is not there; please run: tools/setup.sh apps", file.display());
    file
}

/// A path below the sources of the test applications.
pub(super) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/origins").join(name)
}

/// Node with one of our scripts.
pub(super) fn node(script: &str) -> Command {
    let mut command = tool("node");
    command.arg(source(script));
    command
}

/// The folder with the npm packages.
pub(super) fn node_packages() -> PathBuf {
    installed("apps-node/node_modules").parent().unwrap().to_owned()
}

/// Python from the virtual environment with the PyPI packages.
pub(super) fn python() -> Command {
    let mut command = Command::new(installed("apps-python/bin/python"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// A running origin.
pub(super) struct Origin {
    pub(super) port: u16,
    /// Stopped with the origin.
    processes: Vec<Running>,
}

impl Origin {
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.host())
    }

    pub(super) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Starts a program that prints its port on its first line.
    pub(super) fn script(command: &mut Command) -> Self {
        let mut running = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(running.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap_or_else(|_| panic!("{command:?} printed no port but {line:?}"));
        Self { port, processes: vec![running] }
    }

    /// Starts a program that listens on this port.
    pub(super) fn listening(port: u16, command: &mut Command) -> Self {
        Self { port, processes: vec![start(port, command)] }
    }

    /// Starts nginx with these directives in its `server` block.
    pub(super) fn nginx(folder: &Folder, server: &str) -> Self {
        let port = free_port();
        Self { port, processes: vec![start_nginx(folder, port, server)] }
    }

    /// Starts a PHP application below `root` on nginx and PHP-FPM. `front` is the fallback of `try_files` for paths
    /// that are not files. `lines` are settings of the PHP-FPM pool.
    pub(super) fn php(folder: &Folder, root: &Path, front: &str, lines: &str) -> Self {
        let (fpm_port, port) = (free_port(), free_port());
        let below = folder.path().display();
        let user = if is_root() { "user = root\ngroup = root\n" } else { "" };
        let pool = format!(
            "[global]\nerror_log = {below}/fpm.log\ndaemonize = no\n[www]\n{user}listen = 127.0.0.1:{fpm_port}\n\
             pm = static\npm.max_children = 8\nphp_admin_value[session.save_path] = {below}\n{lines}"
        );
        folder.write("fpm.conf", pool.as_bytes());
        let mut command = Command::new(php_fpm());
        let fpm = start(fpm_port, command.args(["-R", "-F", "-y"]).arg(folder.path().join("fpm.conf")));
        let server = format!(
            "root {root};\nindex index.php;\nlocation / {{ try_files {front}; }}\n\
             location ~ \\.php(/|$) {{\nfastcgi_split_path_info ^(.+\\.php)(/.*)$;\ninclude /etc/nginx/fastcgi_params;\n\
             fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;\nfastcgi_param HTTP_HOST $http_host;\n\
             fastcgi_pass 127.0.0.1:{fpm_port};\n}}\n",
            root = root.display()
        );
        let nginx = start_nginx(folder, port, &server);
        Self { port, processes: vec![nginx, fpm] }
    }

    /// Keeps another process running for as long as the origin runs.
    pub(super) fn with_process(mut self, process: Running) -> Self {
        self.processes.push(process);
        self
    }
}

/// Starts a program and waits until it listens. If the program exits instead, the test fails with the program's output.
pub(super) fn start(port: u16, command: &mut Command) -> Running {
    let words = Folder::new();
    let path = words.path().join("output");
    let output = File::create(&path).unwrap();
    let child = command.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap();
    let mut running = Running(child);
    let is_listening = || TcpStream::connect(("127.0.0.1", port)).is_ok();
    let mut exited = None;
    wait_until(&format!("{command:?} listens"), || {
        exited = running.0.try_wait().unwrap();
        is_listening() || exited.is_some()
    });
    if let Some(status) = exited.filter(|_| !is_listening()) {
        let said = fs::read(&path).unwrap_or_default();
        panic!("{command:?} exited with {status}:\n{}", String::from_utf8_lossy(&said));
    }
    // The program keeps writing to the deleted file.
    drop(words);
    running
}

fn start_nginx(folder: &Folder, port: u16, server: &str) -> Running {
    let root = folder.path().display();
    let mut text = format!("pid {root}/nginx.pid;\nerror_log {root}/nginx.log;\nworker_processes 1;\ndaemon off;\n");
    if is_root() {
        text.push_str("user root;\n");
    }
    text.push_str("events { worker_connections 1000; }\nhttp {\ninclude /etc/nginx/mime.types;\nsendfile on;\n");
    for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        writeln!(text, "{name}_temp_path {root}/nginx-{name};").unwrap();
    }
    text.push_str("log_format short '$status $request_method $request_uri';\n");
    writeln!(text, "access_log {root}/origin.log short;\nserver {{\nlisten 127.0.0.1:{port};\n{server}}}\n}}").unwrap();
    folder.write("nginx.conf", text.as_bytes());
    let config = folder.path().join("nginx.conf");
    start(port, tool("nginx").args([OsStr::new("-p"), folder.path().as_os_str(), OsStr::new("-c"), config.as_os_str()]))
}

/// Status, method and target of each request that `nginx` has received, one per line. nginx logs a request after it has
/// sent the response, so this sends one more request and waits for its line.
pub(super) fn origin_log(folder: &Folder, nginx: &Origin) -> Vec<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let last = format!("{LAST}{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let mut stream = TcpStream::connect(("127.0.0.1", nginx.port)).unwrap();
    write!(stream, "GET {last} HTTP/1.0\r\n\r\n").unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    let mut lines = Vec::new();
    wait_until("nginx has written its log", || {
        let text = fs::read_to_string(folder.path().join("origin.log")).unwrap_or_default();
        lines = text.lines().map(str::to_owned).collect();
        lines.iter().any(|line| line.ends_with(&format!(" {last}")))
    });
    lines.retain(|line| !line.contains(LAST));
    lines
}

/// Prefix of the targets that only [`origin_log`] requests.
const LAST: &str = "/last-of-the-log-";
