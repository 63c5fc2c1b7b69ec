//! A `flatout run` with a configuration that a test writes, and clients that detect every failure.

use super::cli::Running;
use super::harness::{Folder, Response, flatout, read_response, uninterrupted, wait_until};
use bytes::Bytes;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Size of the file that is downloaded.
pub(crate) const LARGE_BYTES: usize = 4 * 1024 * 1024;

/// The content of the large file.
static LARGE: LazyLock<Vec<u8>> = LazyLock::new(|| (0..LARGE_BYTES).map(|index| (index / 7 % 251) as u8).collect());

/// Settings for a process with a supervisor and a sandboxed worker process, whether or not this is the default.
pub(crate) const TWO_PROCESSES: &str = "worker-process #true\nlandlock #true";

/// A site, its configuration, and the flatout process that serves it.
pub(crate) struct Site {
    pub(crate) folder: Folder,
    pub(crate) running: Running,
    pub(crate) addresses: Vec<SocketAddr>,
}

/// Creates a folder with a site in `www` and its configuration.
pub(crate) fn prepare(global: &str, inside: &str) -> Folder {
    let folder = Folder::with(&[("www/index.html", b"here"), ("www/large", &LARGE)]);
    configure(&folder, global, inside);
    folder
}

/// Replaces the configuration atomically.
pub(crate) fn configure(folder: &Folder, global: &str, inside: &str) {
    let path = folder.path().display();
    let text = format!("admin \"{path}/admin\"\n{global}\nsite \"*\" {{\n{inside}\n}}\n");
    fs::write(folder.path().join("new.kdl"), text).unwrap();
    fs::rename(folder.path().join("new.kdl"), config(folder)).unwrap();
}

pub(crate) fn config(folder: &Folder) -> PathBuf {
    folder.path().join("flatout.kdl")
}

/// The usual content of the `site` block.
pub(crate) fn files(folder: &Path) -> String {
    format!("    listen \"127.0.0.1:0\"\n    files \"{}/www\"", folder.display())
}

impl Site {
    /// Starts one site on a free port with these global settings.
    pub(crate) fn start(global: &str) -> Self {
        let folder = prepare(global, "");
        configure(&folder, global, &files(folder.path()));
        Self::run(folder)
    }

    /// Runs the configuration in `folder`.
    pub(crate) fn run(folder: Folder) -> Self {
        let mut command = flatout();
        command.arg("run").arg("-c").arg(config(&folder));
        let mut running = Running::spawn(command);
        let addresses = running.addresses().unwrap_or_else(|| panic!("{}", running.stderr()));
        Self { folder, running, addresses }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Runs an operator's command.
    pub(crate) fn order(&self, verb: &[&str]) -> Output {
        flatout().args(verb).arg("--admin").arg(self.folder.path().join("admin")).output().unwrap()
    }

    /// A value in the JSON status.
    pub(crate) fn status(&self, name: &str) -> serde_json::Value {
        let output = self.order(&["status", "--json"]);
        assert!(output.status.success(), "{output:?}");
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        status[name].clone()
    }

    /// The ID of the process that currently serves.
    pub(crate) fn pid(&self) -> u32 {
        self.status("pid").as_u64().unwrap() as u32
    }

    /// Stops whichever process serves now, even after upgrades, and waits until nothing responds.
    pub(crate) fn stop(&mut self) {
        let path = self.folder.path().join("admin");
        while let Ok(mut stream) = std::os::unix::net::UnixStream::connect(&path) {
            let _ = stream.write_all(b"POST /stop HTTP/1.1\r\nHost: x\r\n\r\n");
            let _ = stream.read_to_end(&mut Vec::new());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop();
    }
}

/// RssAnon of a process, in kB.
pub(crate) fn rss_anon_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The results of a crowd of clients. Any failure panics.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    stop: AtomicBool,
    /// Number of responses, each complete and correct.
    pub(crate) answers: AtomicU64,
    /// Number of connections that the server closed between two requests, after announcing it.
    pub(crate) farewells: AtomicU64,
}

impl Crowd {
    /// Runs `work` while clients send requests: `keep_alive` of them use persistent connections, `downloads` download,
    /// and `closers` use a connection per request. With `http2`, four connections carry five streams each.
    /// # Panics
    /// If a request fails: it is refused, truncated or reset, or gets a wrong response.
    pub(crate) fn during(address: SocketAddr, counts: [usize; 3], http2: bool, work: impl FnOnce(&Self)) -> Self {
        let crowd = Self::default();
        let [keep_alive, downloads, closers] = counts;
        thread::scope(|scope| {
            for _ in 0..keep_alive {
                scope.spawn(|| crowd.keep_alive(address));
            }
            for _ in 0..downloads {
                scope.spawn(|| crowd.download(address));
            }
            for _ in 0..if http2 { 4 } else { 0 } {
                scope.spawn(|| crowd.ask_http2(address, 5));
            }
            for _ in 0..closers {
                scope.spawn(|| crowd.close_each(address));
            }
            wait_until("a client gets a response", || crowd.answers.load(Ordering::Relaxed) > 0);
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&crowd)));
            crowd.stop.store(true, Ordering::Relaxed);
            if let Err(panic) = done {
                std::panic::resume_unwind(panic);
            }
        });
        crowd
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    fn keep_alive(&self, address: SocketAddr) {
        let mut stream = connect(address);
        while self.goes_on() {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
            let response = read_response(&mut stream);
            assert_eq!((response.status, &response.body[..]), (200, &b"here"[..]));
            self.count();
            if response.field("connection") == Some("close") {
                self.farewells.fetch_add(1, Ordering::Relaxed);
                // The server closes the connection as announced, and nothing else arrives.
                assert_eq!(uninterrupted(|| stream.read(&mut [0; 1])).unwrap(), 0);
                stream = connect(address);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn download(&self, address: SocketAddr) {
        while self.goes_on() {
            let mut stream = connect(address);
            stream.write_all(b"GET /large HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
            let mut bytes = Vec::with_capacity(LARGE_BYTES + 1024);
            let mut buffer = vec![0; 64 * 1024];
            loop {
                let count = uninterrupted(|| stream.read(&mut buffer)).unwrap();
                if count == 0 {
                    break;
                }
                bytes.extend_from_slice(&buffer[..count]);
                // Slower than loopback, so that reloads happen during downloads.
                thread::sleep(Duration::from_millis(1));
            }
            let response = Response::parse(&bytes);
            assert_eq!((response.status, response.body.len()), (200, LARGE_BYTES));
            assert!(response.body == *LARGE);
            self.count();
        }
    }

    fn close_each(&self, address: SocketAddr) {
        while self.goes_on() {
            let mut stream = connect(address);
            stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            assert_eq!(Response::parse(&bytes).body, b"here");
            self.count();
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(super::harness::TIMEOUT)).unwrap();
    stream
}

impl Crowd {
    /// Sends requests over HTTP/2 with prior knowledge, `streams` at once per connection, until the crowd stops. A
    /// GOAWAY without an error counts as a farewell, and unprocessed requests are repeated on another connection (RFC
    /// 9113 §6.8).
    ///
    /// # Panics
    /// When a request fails.
    pub(crate) fn ask_http2(&self, address: SocketAddr, streams: usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            while self.goes_on() {
                let stream = tokio::net::TcpStream::connect(address).await.unwrap();
                let (requests, connection) = h2::client::handshake(stream).await.unwrap();
                let driven = tokio::task::spawn_local(connection);
                let asking: Vec<_> = (0..streams).map(|_| self.ask_streams(address, requests.clone())).collect();
                drop(requests);
                let mut left = false;
                for asked in asking {
                    left |= asked.await;
                }
                if left {
                    self.farewells.fetch_add(1, Ordering::Relaxed);
                }
                let _ = driven.await;
            }
        });
    }

    /// Sends requests one after another. Returns true if the server announced that the connection closes.
    async fn ask_streams(&self, address: SocketAddr, mut requests: h2::client::SendRequest<Bytes>) -> bool {
        let is_farewell = |error: &h2::Error| error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
        while self.goes_on() {
            requests = match requests.ready().await {
                Ok(ready) => ready,
                Err(error) => {
                    assert!(is_farewell(&error), "{error:?}");
                    return true;
                }
            };
            let request = http::Request::get(format!("http://{address}/")).body(()).unwrap();
            let answer = match requests.send_request(request, true) {
                Ok((answer, _)) => answer.await,
                Err(error) => Err(error),
            };
            let mut body = match answer {
                Ok(answer) => answer.into_body(),
                Err(error) => {
                    assert!(is_farewell(&error), "{error:?}");
                    return true;
                }
            };
            let mut content = Vec::new();
            while let Some(bytes) = body.data().await {
                let bytes = bytes.unwrap();
                body.flow_control().release_capacity(bytes.len()).unwrap();
                content.extend_from_slice(&bytes);
            }
            assert_eq!(content, b"here");
            self.count();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        false
    }
}
