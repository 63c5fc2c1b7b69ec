//! WebSocket and other upgrades through the accelerator.

use super::super::harness::{Folder, read_to_end, wait_until};
use super::super::tool::{run, tool};
use super::origin::{Origin, Then, fresh};
use super::{Answer, accelerate, accelerate_url, configure, get};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

fn script(role: &str) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let package: PathBuf = root.join("target/tools/ws/node_modules/ws");
    assert!(package.join("wrapper.mjs").is_file(), "ws is not installed; please run: tools/setup.sh test");
    let mut command = tool("node");
    command.arg(root.join("tests/clients/websocket.mjs")).arg(package).arg(role);
    command
}

struct Echo {
    child: Child,
    stdout: BufReader<ChildStdout>,
    url: String,
}

impl Echo {
    fn start() -> Self {
        let mut child = script("server").stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let url = format!("http://127.0.0.1:{}", line.trim());
        Self { child, stdout, url }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn websocket_messages_of_all_sizes_come_back() {
    let mut echo = Echo::start();
    let server = accelerate_url(&echo.url, &["--workers", "2"]);
    let url = format!("ws://{}/chat?room=1", server.address);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(|| run(script("client").arg(&url)))).collect();
        for client in clients {
            assert!(client.join().unwrap().contains("all came back"));
        }
    });
    // The origin has seen each client's own end.
    for _ in 0..4 {
        let mut line = String::new();
        echo.stdout.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "closed 4001");
    }
}

const UPGRADE: &str = "GET /tunnel HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";

/// Agrees to anything and sends back what it gets, until it gets nothing more.
fn agreeing() -> Origin {
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
fn a_tunnel_is_open_both_ways_until_both_ends_are_closed() {
    let origin = agreeing();
    let server = accelerate(&origin, &[]);
    let mut stream = server.connect();
    // What is behind the head belongs to the tunnel already.
    stream.write_all(format!("{UPGRADE}early ").as_bytes()).unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"firstearly ") {
        let mut buffer = [0; 1024];
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "{:?}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&buffer[..count]);
    }
    let head = Answer::take(&mut bytes.as_slice(), false).unwrap();
    assert_eq!((head.status, head.field("upgrade")), (101, Some("echo")));
    stream.write_all(b"late").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut stream), b"latelast");
    // Nothing of it is kept, and the server goes on.
    assert_eq!(get(&server, "/tunnel").text(), "plain");
}

#[test]
fn an_upgrade_that_the_origin_does_not_want_is_a_plain_answer() {
    let origin = Origin::answering(|request| fresh(format!("{:?}", request.field("host")).as_bytes()));
    let server = accelerate(&origin, &[]);
    let mut stream = server.connect();
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    let answer = super::super::harness::read_response(&mut stream);
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"Some(\"test\")"[..]));
}

#[test]
fn where_upgrades_are_off_none_is_passed_on() {
    let origin = agreeing();
    let folder = Folder::new();
    let server = configure(&folder, &origin.url(), "", "upgrades #false");
    let mut stream = server.connect();
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    let answer = super::super::harness::read_response(&mut stream);
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"plain"[..]));
    wait_until("the request came", || origin.requests().iter().all(|request| request.field("upgrade").is_none()));
}
