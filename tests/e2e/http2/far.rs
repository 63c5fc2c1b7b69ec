//! Distant peers: windows grow until they cover the bandwidth-delay product.

use super::client::{ACK, PREFACE, SETTINGS};
use super::grpc::accelerate;
use super::site;
use crate::e2e::harness::{Folder, Server};
use crate::e2e::tool::{run, tool};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// One-way delay, which makes a round trip of 50 ms.
const DELAY: Duration = Duration::from_millis(25);

const BYTES: usize = 20_000_000;

/// SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW_SIZE: u16 = 4;

/// Forwards connections to `target` and delays each byte by a fixed time, in order and without limiting data in flight.
struct Relay {
    address: SocketAddr,
    /// All bytes that went to the target, and all that came from it, on all connections.
    carried: [Arc<Mutex<Vec<u8>>>; 2],
}

impl Relay {
    fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let carried: [Arc<Mutex<Vec<u8>>>; 2] = Default::default();
        let log = carried.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(target).unwrap();
                let both = [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))];
                for ((from, to), log) in both.into_iter().zip(&log) {
                    carry(from.unwrap(), to.unwrap(), Arc::clone(log));
                }
            }
        });
        Self { address, carried }
    }

    /// The largest stream window that one side has granted: 0 for the target's client, 1 for the target.
    fn largest_window(&self, side: usize) -> u32 {
        let mut bytes = self.carried[side].lock().unwrap().clone();
        if bytes.starts_with(PREFACE) {
            bytes.drain(..PREFACE.len());
        }
        let (mut largest, mut rest) = (0, &bytes[..]);
        while let Some((head, behind)) = rest.split_at_checked(9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let Some((payload, behind)) = behind.split_at_checked(length) else { break };
            rest = behind;
            let is_told = head[3] == SETTINGS && head[4] & ACK == 0;
            for setting in payload.chunks(6).filter(|_| is_told) {
                if u16::from_be_bytes([setting[0], setting[1]]) == INITIAL_WINDOW_SIZE {
                    largest = largest.max(u32::from_be_bytes(setting[2..].try_into().unwrap()));
                }
            }
        }
        largest
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, log: Arc<Mutex<Vec<u8>>>) {
    let (sender, pieces) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if sender.send((Instant::now() + DELAY, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        to.set_nodelay(true).unwrap();
        for (due, piece) in pieces {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            log.lock().unwrap().extend_from_slice(&piece);
            if to.write_all(&piece).is_err() {
                return;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}

#[test]
fn windows_grow_for_a_response_from_a_distant_origin() {
    let folder = site();
    folder.write("large", &vec![b'l'; BYTES]);
    let origin = Server::start(folder.path(), &["--h2c"]);
    let relay = Relay::start(origin.address);
    let own = Folder::new();
    let server = accelerate(&own, &relay.address.to_string(), "");
    let response = server.get("/large");
    assert_eq!((response.status, response.body.len()), (200, BYTES));
    // How far the windows grow depends on how fast this machine reads.
    let largest = relay.largest_window(0);
    assert!((512 * 1024..=16 * 1024 * 1024).contains(&largest), "{largest}");
}

#[test]
fn windows_grow_for_an_upload_from_a_distant_client() {
    let (folder, own) = (site(), Folder::new());
    let file = folder.path().join(".upload");
    std::fs::write(&file, vec![b'u'; BYTES]).unwrap();
    let origin = accepting_origin();
    let server = super::grpc::accelerate_http1(&own, &origin, "");
    let relay = Relay::start(server.address);
    let said = upload(&file, relay.address, "--http2-prior-knowledge");
    assert_eq!(said, format!("{BYTES} 200 {BYTES}"));
    let largest = relay.largest_window(1);
    assert!((512 * 1024..=16 * 1024 * 1024).contains(&largest), "{largest}");
}

/// Maximum number of additional round trips over HTTP/2, where windows have to grow first. With the
/// initial windows of a connection, it would be 150 from an origin and 300 from a client.
const ROUND_TRIPS_MORE_MAX: u32 = 80;

/// The same transfer over HTTP/1.1 and over HTTP/2, one after the other. A busy machine may slow one of the two, so one
/// of three comparisons must hold.
fn compare(what: &str, over: impl Fn(bool) -> Duration) {
    let mut told = Vec::new();
    let holds = (0..3).any(|_| {
        let (first, second) = (over(false), over(true));
        told.push((first, second));
        second <= first + ROUND_TRIPS_MORE_MAX * 2 * DELAY
    });
    println!("{what}: {told:?}");
    assert!(holds, "{what}: HTTP/1.1 and HTTP/2 took {told:?}");
}

#[test]
fn a_response_from_a_distant_origin_takes_few_more_round_trips_over_http2() {
    let folder = site();
    folder.write("large", &vec![b'l'; BYTES]);
    let origin = Server::start(folder.path(), &["--h2c"]);
    compare("20 MB from an origin", |is_http2| {
        let (relay, own) = (Relay::start(origin.address), Folder::new());
        let address = relay.address.to_string();
        let server = if is_http2 {
            accelerate(&own, &address, "")
        } else {
            super::grpc::accelerate_http1(&own, &format!("http://{address}"), "")
        };
        let begun = Instant::now();
        let response = server.get("/large");
        assert_eq!((response.status, response.body.len()), (200, BYTES));
        begun.elapsed()
    });
}

#[test]
fn an_upload_from_a_distant_client_takes_few_more_round_trips_over_http2() {
    let (folder, own) = (site(), Folder::new());
    let file = folder.path().join(".upload");
    std::fs::write(&file, vec![b'u'; BYTES]).unwrap();
    let server = super::grpc::accelerate_http1(&own, &accepting_origin(), "");
    compare("20 MB to the server", |is_http2| {
        let relay = Relay::start(server.address);
        let begun = Instant::now();
        let said = upload(&file, relay.address, if is_http2 { "--http2-prior-knowledge" } else { "--http1.1" });
        assert_eq!(said, format!("{BYTES} 200 {BYTES}"));
        begun.elapsed()
    });
}

fn upload(file: &Path, to: SocketAddr, protocol: &str) -> String {
    let mut data = std::ffi::OsString::from("@");
    data.push(file);
    // Without Expect, which would cost a round trip only over HTTP/1.1.
    run(tool("curl")
        .args(["-sS", protocol, "-H", "Expect:", "-w", " %{http_code} %{size_upload}", "--data-binary"])
        .arg(data)
        .arg(format!("http://{to}/")))
}

/// An origin that responds with the number of bytes that it received.
fn accepting_origin() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") {
                    if stream.read(&mut byte).unwrap_or(0) == 0 {
                        return;
                    }
                    head.push(byte[0]);
                }
                let (mut left, mut buffer) = (BYTES, vec![0; 256 * 1024]);
                while left > 0 {
                    match stream.read(&mut buffer) {
                        Ok(count @ 1..) => left -= count.min(left),
                        _ => return,
                    }
                }
                let text = BYTES.to_string();
                let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
            });
        }
    });
    url
}
