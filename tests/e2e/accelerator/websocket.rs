//! WebSocket and other upgrades through the accelerator.

use super::super::browser::Browser;
use super::super::harness::{Folder, Server, TIMEOUT, read_to_end, uninterrupted, wait_until};
use super::super::http2::client::{Client, END_HEADERS, HEADERS, literal};
use super::super::tls::Certificate;
use super::super::tool::{run, tool};
use super::origin::{Origin, Then, fresh};
use super::{Answer, accelerate, accelerate_url, configure, get, log_of};
use flatout_http::http2::hpack::Decoder;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

fn script(role: &str) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let package: PathBuf = root.join("target/tools/ws/node_modules/ws");
    assert!(package.join("wrapper.mjs").is_file(), "ws is not installed; please run: tools/setup.sh test");
    let mut command = tool("node");
    command.arg(root.join("tests/clients/websocket.mjs")).arg(package).arg(role);
    command
}

/// A server of WebSockets that sends back what it gets.
pub(crate) struct Echo {
    child: Child,
    lines: Receiver<String>,
    pub(crate) url: String,
}

impl Echo {
    pub(crate) fn start() -> Self {
        let mut child = script("server").stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut echo = Self { child, lines, url: String::new() };
        echo.url = format!("http://127.0.0.1:{}", echo.line());
        echo
    }

    /// The next line that the script prints.
    fn line(&self) -> String {
        self.lines.recv_timeout(TIMEOUT).expect("no line from the script")
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn websocket_messages_of_all_sizes_are_echoed() {
    let echo = Echo::start();
    let server = accelerate_url(&echo.url, &["--workers", "2"]);
    let url = format!("ws://{}/chat?room=1", server.address);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(|| run(script("client").arg(&url)))).collect();
        for client in clients {
            assert!(client.join().unwrap().contains("all came back"));
        }
    });
    // The origin has seen each client close its side.
    for _ in 0..4 {
        assert_eq!(echo.line(), "closed 4001");
    }
}

/// RFC 8441 on the way to the origin, which is another flatout in front of a WebSocket server.
#[test]
fn websockets_reach_the_origin_over_http2() {
    let echo = Echo::start();
    let (front, back) = (Folder::new(), Folder::new());
    let config = super::configuration(&back, &echo.url, "", "");
    let origin = Server::run(&back, &config.replace("127.0.0.1:0\"", "127.0.0.1:0\" h2c=#true"));
    let config = super::configuration(&front, &origin.url(""), "", "http2 #true");
    let server = Server::run(&front, &config.replace("127.0.0.1:0\"", "127.0.0.1:0\" h2c=#true"));
    let url = format!("ws://{}/chat?room=1", server.address);
    assert!(run(script("client").arg(&url)).contains("all came back"));
    assert!(run(script("http2").arg(server.url(""))).contains("all came back"));
    for _ in 0..3 {
        assert_eq!(echo.line(), "closed 4001");
    }
    let read_log = || fs::read_to_string(log_of(&back)).unwrap_or_default();
    wait_until("the lines of the log", || read_log().lines().count() == 3);
    let log = read_log();
    for line in log.lines() {
        assert!(line.contains("HTTP/2") && line.contains("tunnel_ended"), "{log}");
    }
}

#[test]
fn two_websocket_clients_on_one_http2_connection_are_isolated() {
    let echo = Echo::start();
    let folder = Folder::new();
    let config = super::configuration(&folder, &echo.url, "", "");
    let server = Server::run(&folder, &config.replace("127.0.0.1:0\"", "127.0.0.1:0\" h2c=#true"));
    assert!(run(script("http2").arg(server.url(""))).contains("all came back"));
    for _ in 0..2 {
        assert_eq!(echo.line(), "closed 4001");
    }
    let read_log = || fs::read_to_string(log_of(&folder)).unwrap_or_default();
    wait_until("both lines of the log", || read_log().lines().count() == 2);
    let log = read_log();
    for line in log.lines() {
        assert!(line.contains("HTTP/2") && line.contains("tunnel_ended"), "{log}");
    }
}

#[test]
fn chromium_opens_websockets_on_its_http2_connection() {
    const PAGE: &str = r"<!doctype html><title>chat</title><script>
        let left = 5;
        function open() {
            const socket = new WebSocket(`wss://${location.host}/chat`);
            let greeted = false;
            socket.onmessage = event => {
                if (!greeted) { greeted = true; socket.send('from the browser'); return; }
                socket.close(event.data === 'from the browser' ? 4001 : 4002);
            };
            socket.onclose = () => { if (--left > 0) open(); };
        }
        open();
    </script>";
    let echo = Echo::start();
    let (folder, certificate) = (Folder::new(), Certificate::new());
    folder.write("site/page.html", PAGE.as_bytes());
    let config = format!(
        "workers 1\nadmin off=#true\nlog {:?}\nsite \"*\" {{\n    listen \"127.0.0.1:0\" tls=#true http3=#false\n    \
         tls cert=\"{}\" key=\"{}\"\n    files \"site\" {{ pass #true; }}\n    proxy \"{}\"\n}}\n",
        log_of(&folder),
        certificate.chain,
        certificate.key,
        echo.url
    );
    let server = Server::run(&folder, &config);
    let browser = Browser::new().trusting(&certificate);
    let mut running = browser.open(&server.url("/page.html"));
    let closed: Vec<_> = (0..5).map_while(|_| echo.lines.recv_timeout(TIMEOUT).ok()).collect();
    let _ = running.kill();
    let _ = running.wait();
    assert_eq!(closed, ["closed 4001"; 5]);
    let read_log = || fs::read_to_string(log_of(&folder)).unwrap_or_default();
    wait_until("the tunnels' lines", || read_log().matches("/chat").count() == 5);
    let log = read_log();
    // The browser may open a connection for the first WebSockets if it is busy; the others use the one that it has.
    assert!(log.lines().any(|line| line.contains("/chat") && line.contains("HTTP/2.0")), "{log}");
}

/// Requests a tunnel to `path` on stream 1 (RFC 8441).
pub(crate) fn connect(client: &mut Client, protocol: &[u8], path: &[u8]) {
    let fields = [
        literal(b":method", b"CONNECT"),
        literal(b":protocol", protocol),
        literal(b":scheme", b"http"),
        literal(b":authority", b"test"),
        literal(b":path", path),
        literal(b"sec-websocket-version", b"13"),
    ];
    client.send_frame(HEADERS, END_HEADERS, 1, &fields.concat());
}

/// The status of the response on stream 1.
pub(crate) fn status(client: &mut Client) -> String {
    let head = client.frame_like("the response", |frame| frame.kind == HEADERS && frame.stream == 1);
    let (mut scratch, mut status) = (Vec::new(), String::new());
    let decoded = Decoder::new().decode(&head.payload, &mut scratch, |scratch, name, value| {
        if &scratch[name] == b":status" {
            status = String::from_utf8(scratch[value].to_vec()).unwrap();
        }
    });
    decoded.unwrap();
    status
}

#[test]
fn a_failed_tunnel_over_http2_is_never_a_2xx_response() {
    // An origin that ignores the upgrade.
    let origin = Origin::responding(|_| fresh(b"plain"));
    let server = accelerate(&origin, &["--h2c"]);
    for (protocol, path) in [(&b"websocket"[..], &b"/"[..]), (b"connect-udp", b"/")] {
        let mut client = Client::connect(&server, &[]);
        connect(&mut client, protocol, path);
        assert_eq!(status(&mut client), "501", "{:?}", String::from_utf8_lossy(protocol));
    }
}

#[test]
fn a_wrong_sec_websocket_accept_opens_no_tunnel() {
    let origin = Origin::start(|_, stream| {
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n";
        let _ =
            stream.write_all(format!("{head}Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n").as_bytes());
        Then::Close
    });
    let server = accelerate(&origin, &["--h2c"]);
    let mut client = Client::connect(&server, &[]);
    connect(&mut client, b"websocket", b"/");
    assert_eq!(status(&mut client), "502");
}

const UPGRADE: &str = "GET /tunnel HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";

/// An origin that accepts every upgrade and echoes what it receives until the end of the stream.
fn echoing_origin() -> Origin {
    Origin::start(|request, stream| {
        if request.field("upgrade").is_none() {
            let _ = stream.write_all(&fresh(b"plain"));
            return Then::Keep;
        }
        let _ =
            stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nfirst");
        let mut reader = stream.try_clone().unwrap();
        let mut buffer = [0; 16 * 1024];
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            if stream.write_all(&buffer[..count]).is_err() {
                return Then::Close;
            }
        }
        let _ = stream.write_all(b"last");
        Then::Close
    })
}

#[test]
fn a_tunnel_stays_open_until_both_sides_have_closed() {
    let origin = echoing_origin();
    let server = accelerate(&origin, &[]);
    let mut stream = server.connect();
    // The bytes after the head already belong to the tunnel.
    stream.write_all(format!("{UPGRADE}early ").as_bytes()).unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"firstearly ") {
        let mut buffer = [0; 1024];
        let count = uninterrupted(|| stream.read(&mut buffer)).unwrap();
        assert!(count > 0, "{:?}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&buffer[..count]);
    }
    let head = Answer::take(&mut bytes.as_slice(), false).unwrap();
    assert_eq!((head.status, head.field("upgrade")), (101, Some("echo")));
    stream.write_all(b"late").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut stream), b"latelast");
    // Nothing is left over from the tunnel, and the server keeps working.
    assert_eq!(get(&server, "/tunnel").text(), "plain");
}

#[test]
fn a_refused_upgrade_is_an_ordinary_response() {
    let origin = Origin::responding(|request| fresh(format!("{:?}", request.field("host")).as_bytes()));
    let server = accelerate(&origin, &[]);
    let mut stream = server.connect();
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    let answer = super::super::harness::read_response(&mut stream);
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"Some(\"test\")"[..]));
}

#[test]
fn upgrades_are_not_forwarded_when_disabled() {
    let origin = echoing_origin();
    let folder = Folder::new();
    let server = configure(&folder, &origin.url(), "", "upgrades #false");
    let mut stream = server.connect();
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    let answer = super::super::harness::read_response(&mut stream);
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"plain"[..]));
    wait_until("the request arrives", || origin.requests().iter().all(|request| request.field("upgrade").is_none()));
}
