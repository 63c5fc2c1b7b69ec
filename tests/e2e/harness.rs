//! Starts and stops the real flatout, and exchanges raw bytes with it.

use memchr::memmem;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// No step of a test takes longer, however busy the machine is. It makes a hanging test fail and has no other effect.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(2);

/// More than a tick of any kernel's clock: two writes to a file within a tick may leave the same timestamps.
pub(crate) const TICK: Duration = Duration::from_millis(60);

/// The binary under test: `FLATOUT_BIN`, or the one that cargo built together with the tests.
pub(crate) fn flatout() -> Command {
    let binary = std::env::var_os("FLATOUT_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_flatout").into());
    let mut command = Command::new(binary);
    command.env_remove("NO_COLOR").env("RUST_BACKTRACE", "0");
    command
}

/// Returns true if the tests run the release build, for which the figures are promised.
pub(crate) fn is_release() -> bool {
    !cfg!(debug_assertions) || flatout().get_program().to_string_lossy().contains("/release/")
}

/// A folder that is removed when dropped.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("flatout-e2e-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Creates a folder with these files. They are old enough for the server to reuse their entity tags.
    pub(crate) fn with(files: &[(&str, &[u8])]) -> Self {
        let folder = Self::new();
        for (name, content) in files {
            folder.write(name, content);
        }
        thread::sleep(TICK);
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running `flatout serve`, killed when dropped if it still runs.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Scheme and address of every listener, in the order of the configuration.
    listeners: Vec<(&'static str, SocketAddr)>,
    /// The address of the first listener.
    pub(crate) address: SocketAddr,
    stderr: Option<thread::JoinHandle<String>>,
}

/// Parses a listener's URL as `run` and `serve` print it: `https://127.0.0.1:8443/`.
fn parse_url(line: &str) -> Option<(&'static str, SocketAddr)> {
    let scheme = if line.starts_with("https:") { "https" } else { "http" };
    let address = line.trim().strip_prefix(scheme)?.strip_prefix("://")?.strip_suffix('/')?;
    Some((scheme, address.parse().ok()?))
}

impl Server {
    /// Serves `folder` on a free port with one worker, unless `arguments` say otherwise.
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = flatout();
        command.arg("serve").arg(folder).args(["--listen", "127.0.0.1:0"]);
        if !arguments.contains(&"--workers") {
            command.args(["--workers", "1"]);
        }
        command.args(arguments);
        Self::spawn(command)
    }

    /// Runs `flatout run` with the configuration `text`, which is written into `folder`. Relative paths start there.
    /// Without `admin` in it there is no admin socket: the default one can belong to one server of a user only.
    pub(crate) fn run(folder: &Folder, text: &str) -> Self {
        let path = folder.path().join("flatout.kdl");
        let has_admin = text.lines().any(|line| line.trim_start().starts_with("admin "));
        fs::write(&path, format!("{text}\n{}", if has_admin { "" } else { "admin off=#true\n" })).unwrap();
        let mut command = flatout();
        command.arg("run").arg("-c").arg(&path).env("XDG_STATE_HOME", folder.path().join("state"));
        Self::spawn(command)
    }

    /// `flatout accelerate` in front of the origin at `url`, on a free port with one worker and without an admin socket,
    /// unless `arguments` say otherwise.
    pub(crate) fn accelerate(url: &str, arguments: &[&str]) -> Self {
        let mut command = flatout();
        command.args(["accelerate", url]);
        // Not the admin socket of the user who runs the tests.
        for (flag, value) in [("--listen", "127.0.0.1:0"), ("--workers", "1"), ("--admin", "off")] {
            if !arguments.contains(&flag) {
                command.args([flag, value]);
            }
        }
        command.args(arguments);
        Self::spawn(command)
    }

    /// Starts `command`, which must print its URLs first and then a line about what it serves.
    pub(crate) fn spawn(command: Command) -> Self {
        Self::try_spawn(command).unwrap_or_else(|reason| panic!("{reason}"))
    }

    /// Like [`spawn`](Self::spawn), but returns the output of a `command` that prints no URL.
    pub(crate) fn try_spawn(mut command: Command) -> Result<Self, String> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = child.stderr.take().unwrap();
        let stderr = thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let (mut listeners, mut line) = (Vec::new(), String::new());
        while stdout.read_line(&mut line).unwrap() > 0 {
            let Some(listener) = parse_url(&line) else { break };
            listeners.push(listener);
            line.clear();
        }
        let Some(&(_, address)) = listeners.first() else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("the first line is not a URL: {line:?}; {}", stderr.join().unwrap()));
        };
        // Kept open, so that later output does not fail.
        child.stdout = Some(stdout.into_inner());
        Ok(Self { child, listeners, address, stderr: Some(stderr) })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process that serves requests: the worker process of `flatout run`, or the only process.
    pub(crate) fn worker(&self) -> u32 {
        worker_of(self.pid())
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.url_of(0, path)
    }

    /// The URL of `path` on one of several listeners.
    pub(crate) fn url_of(&self, listener: usize, path: &str) -> String {
        let (scheme, address) = self.listeners[listener];
        format!("{scheme}://{address}{path}")
    }

    /// The address of one of several listeners.
    pub(crate) fn address_of(&self, listener: usize) -> SocketAddr {
        self.listeners[listener].1
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    /// Sends `bytes` on a fresh connection and returns everything that arrives until the server closes it. If the head
    /// does not have `Connection: close`, the client then half-closes the connection to make the server close it.
    /// Otherwise it does not, because a half-close while a handler is running counts as a disconnect.
    pub(crate) fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        let _ = stream.write_all(bytes);
        let asks_for_close = bytes.ends_with(b"\r\n\r\n") && bytes.windows(7).any(|window| window == b"close\r\n");
        if !asks_for_close {
            let _ = stream.shutdown(Shutdown::Write);
        }
        read_to_end(&mut stream)
    }

    /// Sends a plain GET for `path` on a fresh connection.
    pub(crate) fn get(&self, path: &str) -> Response {
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        Response::parse(&self.exchange(request.as_bytes()))
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Sends SIGTERM, and returns the exit status and standard error.
    pub(crate) fn stop(mut self) -> (ExitStatus, String) {
        self.signal("TERM");
        self.wait()
    }

    pub(crate) fn wait(&mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        (status, self.stderr.take().map(|thread| thread.join().unwrap()).unwrap_or_default())
    }

    /// The value of a line in /proc/PID/status, in kB.
    pub(crate) fn memory_kb(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.worker())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// CPU time that all its threads have used so far, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.worker())).unwrap();
        tasks
            .flatten()
            .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
            .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
            .sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection to a server on this machine.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// The newest child of the process `pid`, or `pid` itself if it has none.
pub(crate) fn worker_of(pid: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().last().map_or(pid, |child| child.parse().unwrap())
}

/// Repeats `call` while it returns EINTR. The kernel does not restart a call on a socket with a timeout (signal(7)), even
/// if SIGSTOP and SIGCONT interrupted it.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Everything that arrives until the end of the stream. A reset counts as an end.
pub(crate) fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        match uninterrupted(|| stream.read(&mut buffer)) {
            Ok(0) => return bytes,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return bytes,
            Err(error) => panic!("after {} bytes: {error}", bytes.len()),
        }
    }
}

/// Reads one response with a Content-Length (or without content) from a connection that stays open.
pub(crate) fn read_response(stream: &mut TcpStream) -> Response {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        let count = uninterrupted(|| stream.read(&mut byte)).unwrap();
        assert_eq!(count, 1, "cut after {:?}", String::from_utf8_lossy(&bytes));
        bytes.push(byte[0]);
    }
    let head = Response::parse(&bytes);
    let length = head.field("content-length").map_or(0, |value| value.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    Response { body, ..head }
}

/// A response as tests inspect it.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// Parses one response. Everything after the head is its body.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no response head in {:?}", String::from_utf8_lossy(bytes)));
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let fields = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        Self { status, fields, body: bytes[end + 4..].to_vec() }
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

/// Returns the status, or another document, from the admin socket in `folder`.
pub(crate) fn ask_admin(folder: &Folder, path: &str) -> String {
    let mut stream = UnixStream::connect(folder.path().join("admin")).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Waits until `condition` holds. The timeout only determines when a failing test fails.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TIMEOUT, "timed out: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the peer of `stream`, a socket on this machine, has read everything sent on it, for at most five
/// seconds.
pub(crate) fn wait_until_read(stream: &TcpStream) {
    const LONGEST: Duration = Duration::from_secs(5);
    let (Ok(SocketAddr::V4(local)), Ok(SocketAddr::V4(peer))) = (stream.local_addr(), stream.peer_addr()) else {
        return;
    };
    // In the format of the kernel's table.
    let shown =
        |address: SocketAddrV4| format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port());
    let (local, peer) = (shown(local), shown(peer));
    let start = Instant::now();
    while start.elapsed() < LONGEST {
        // Other tests have thousands of sockets, so the table is searched instead of parsed.
        let table = fs::read("/proc/net/tcp").unwrap();
        let queues = |from: &str, to: &str| {
            let key = format!(" {from} {to} ");
            let rest = table.get(memmem::find(&table, key.as_bytes())? + key.len()..)?;
            // After the state.
            let queues = rest.split(u8::is_ascii_whitespace).nth(1)?;
            Some(String::from_utf8_lossy(queues).into_owned())
        };
        // Bytes in the send and the receive queue, in hexadecimal. A closed socket has no line.
        let is_sent = queues(&local, &peer).is_none_or(|queues| queues.starts_with("00000000:"));
        let is_read = queues(&peer, &local).is_none_or(|queues| queues.ends_with(":00000000"));
        if is_sent && is_read {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}
