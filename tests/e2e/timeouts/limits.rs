//! `limit-connections`: a client beyond a limit is refused, and other clients are served.

use super::super::harness::{Folder, Response, Server, TIMEOUT, read_response, read_to_end, uninterrupted, wait_until};
use super::super::http3::aioquic;
use super::super::tls::Certificate;
use super::super::tool::{run, tool};
use super::{count, expect_closed, get, site, stop};
use flatout_handler::ending::CloseReason;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};

/// The beginning of a TLS record that announces more than follows.
const HALF_HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";

/// The beginning of a request head.
const HALF_HEAD: &[u8] = b"GET / HTTP/1.1\r\nHo";

fn start(folder: &Folder, limits: &str) -> Server {
    Server::run(
        folder,
        &format!(
            "workers 1\nadmin off=#true\nlimit-connections {{ {limits} }}\n\
             site \"*\" {{ listen \"127.0.0.1:0\"; files \".\"; }}\n"
        ),
    )
}

/// A connection from an address other than 127.0.0.1.
fn connect_from(server: &Server, address: Ipv4Addr) -> TcpStream {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddrV4::new(address, 0)).unwrap();
    connect(&socket, &server.address).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Sends `bytes`, and returns true if the server resets the connection instead of responding.
fn is_reset(mut stream: TcpStream, bytes: &[u8]) -> bool {
    match stream.write_all(bytes).and_then(|()| uninterrupted(|| stream.read(&mut [0]))) {
        Ok(count) => {
            assert_ne!(count, 0, "closed without a reset");
            false
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
            true
        }
    }
}

#[test]
fn connections_are_limited_per_address() {
    let folder = site();
    let server = start(&folder, "connections per-address=4");
    let request = get("/");
    let mut held: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for stream in &mut held {
        stream.write_all(request.as_bytes()).unwrap();
        assert_eq!(read_response(stream).status, 200);
    }
    for _ in 0..3 {
        assert!(is_reset(server.connect(), request.as_bytes()));
    }
    assert!(!is_reset(connect_from(&server, OTHER), request.as_bytes()), "another address");
    for stream in &mut held {
        stream.write_all(request.as_bytes()).unwrap();
        assert_eq!(read_response(stream).status, 200, "existing connections stay open");
    }
    drop(held);
    let mut refused = 3;
    wait_until("new connections are accepted again", || {
        let is_refused = is_reset(server.connect(), request.as_bytes());
        refused += u64::from(is_refused);
        !is_refused
    });
    expect_closed(&stop(server), CloseReason::ConnectionsLimit, refused);
}

#[test]
fn the_request_head_limit_can_be_raised() {
    let (folder, certificate) = (site(), Certificate::new());
    // Not 64 KiB: curl refuses to send so much over HTTP/2.
    for (setting, bytes_max, fields_max) in
        [("", 32 << 10, 100), ("request-head size=\"48KiB\" fields=300", 48 << 10, 300)]
    {
        let text = format!(
            "workers 1\nadmin off=#true\n{setting}\nsite \"*\" {{ listen \"127.0.0.1:0\" tls=#true http3=#true; \
             tls cert=\"{}\" key=\"{}\"; files \".\"; }}\n",
            certificate.chain, certificate.key
        );
        let server = Server::run(&folder, &text);
        let ask = |version: &str, fields: usize, bytes: usize| {
            let mut curl = tool("curl");
            curl.args(["--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{http_code}", version]);
            for index in 0..fields {
                curl.args(["--header", &format!("X-{index}: {}", "x".repeat(bytes / fields - 60))]);
            }
            run(curl.arg(server.url("/")))
        };
        for version in ["--http1.1", "--http2"] {
            assert_eq!(ask(version, 10, bytes_max - 2000), "200", "{version} {setting}");
            assert_eq!(ask(version, 10, bytes_max + 2000), "431", "{version} {setting}");
            assert_eq!(ask(version, fields_max - 10, 70 * fields_max), "200", "{version} {setting}");
            assert_eq!(ask(version, fields_max + 1, 70 * fields_max), "431", "{version} {setting}");
        }
        for (fields, bytes, status) in [
            (10, bytes_max, 200),
            (10, bytes_max + 100, 431),
            (fields_max, 70 * fields_max, 200),
            (fields_max + 1, 70 * fields_max, 431),
        ] {
            let answer = aioquic(server.address, "large_head", &["/", &bytes.to_string(), &fields.to_string()]);
            assert_eq!(answer["status"], status, "HTTP/3 {fields} {bytes} {setting}");
        }
        let settings = run(tool("nghttp").args(["--verbose", "--no-verify-peer", &server.url("/")]));
        let announced = format!("[SETTINGS_MAX_HEADER_LIST_SIZE(0x06):{}]", 2 * bytes_max);
        assert!(settings.contains(&announced), "{settings}");
    }
}

/// The target may take up half of a head, and at least 16 KiB.
#[test]
fn the_target_may_be_longer_if_heads_may_be_larger() {
    let (folder, certificate) = (site(), Certificate::new());
    for (size, bytes_max) in [("32KiB", 16 << 10), ("64KiB", 32 << 10)] {
        let text = format!(
            "workers 1\nadmin off=#true\nrequest-head size=\"{size}\"\nsite \"*\" {{ listen \"127.0.0.1:0\" tls=#true \
             http3=#true; tls cert=\"{}\" key=\"{}\"; files \".\"; }}\n",
            certificate.chain, certificate.key
        );
        let server = Server::run(&folder, &text);
        let targets = [bytes_max, bytes_max + 1].map(|bytes| format!("/?{}", "x".repeat(bytes - 2)));
        for version in ["--http1.1", "--http2"] {
            let ask = |target: &str| {
                let mut curl = tool("curl");
                curl.args(["--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{http_code}", version]);
                run(curl.arg(server.url(target)))
            };
            assert_eq!(targets.each_ref().map(|target| ask(target)), ["200", "414"], "{version} {size}");
        }
        let answers = aioquic(server.address, "get", &[&targets[0], &targets[1]]);
        let statuses = [&answers[0]["status"], &answers[1]["status"]].map(ToString::to_string);
        assert_eq!(statuses, ["200", "414"], "HTTP/3 {size}");
    }
}

#[test]
fn loopback_has_no_default_limit() {
    let folder = site();
    let server = start(&folder, "connections total=100000");
    let crowd: Vec<_> = (0..300)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(get("/").as_bytes()).unwrap();
            assert_eq!(read_response(&mut stream).status, 200);
            stream
        })
        .collect();
    drop(crowd);
    assert_eq!(count(&stop(server), "closed_connections_limit"), 0);
}

#[test]
fn idle_connections_are_closed_at_the_total_limit() {
    let folder = site();
    let server = start(&folder, "connections total=8");
    let mut held = Vec::new();
    for index in 0..40 {
        let mut stream = server.connect();
        stream.write_all(get(&format!("/?{index}")).as_bytes()).unwrap();
        assert_eq!(read_response(&mut stream).status, 200, "connection {index}");
        held.push(stream);
    }
    drop(held);
    let counters = stop(server);
    assert!(count(&counters, "closed_descriptor_pressure") >= 30, "{counters}");
}

/// Serves `folder` over TLS with these limits on handshakes.
fn start_tls(folder: &Folder, certificate: &Certificate, limits: &str) -> Server {
    let config = format!(
        "workers 1\nadmin off=#true\nlimit-connections {{ handshakes {limits} }}\n\
         site \"*\" {{ listen \"127.0.0.1:0\" tls=#true; tls cert=\"{}\" key=\"{}\"; files \".\"; }}\n",
        certificate.chain, certificate.key
    );
    Server::run(folder, &config)
}

#[test]
fn the_oldest_incomplete_handshake_is_dropped_first_at_the_total_limit() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = start_tls(&folder, &certificate, "per-address=0 total=3");
    let connect = |_| {
        let mut stream = server.connect();
        stream.write_all(HALF_HELLO).unwrap();
        stream
    };
    let mut stalled: Vec<_> = (0..4).map(connect).collect();
    assert_eq!(read_to_end(&mut stalled[0]), b"");
    drop(stalled);
    let said = stop(server);
    assert!(count(&said, "closed_handshakes_total") >= 1, "{said}");
    assert!(said.contains("overload began: ") && said.contains(" × handshakes_total\n"), "{said}");
}

#[test]
fn handshakes_are_limited_per_address() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = start_tls(&folder, &certificate, "per-address=3");
    let mut stalled = Vec::new();
    for _ in 0..3 {
        let mut stream = server.connect();
        stream.write_all(HALF_HELLO).unwrap();
        stalled.push(stream);
    }
    for _ in 0..2 {
        assert!(is_reset(server.connect(), HALF_HELLO));
    }
    let fetch = |arguments: &[&str]| {
        run(tool("curl").arg("-sS").arg("--cacert").arg(certificate.authority()).args(arguments).arg(server.url("/")))
    };
    assert_eq!(fetch(&["--interface", "127.0.0.2"]), "welcome");
    // Completed handshakes do not count.
    stalled.truncate(1);
    assert_eq!(fetch(&["--retry", "30", "--retry-all-errors", "--retry-delay", "1"]), "welcome");
    drop(stalled);
    let counters = stop(server);
    assert!(count(&counters, "closed_handshakes_limit") >= 2, "{counters}");
}

/// As many connections as allowed are no overload, unless another one waits.
#[test]
fn the_total_limit_is_reported_only_if_connections_wait() {
    let folder = site();
    for waits in [false, true] {
        let server = start(&folder, "connections per-address=0 total=2");
        let mut streams = [server.connect(), server.connect()];
        for stream in &mut streams {
            stream.write_all(get("/").as_bytes()).unwrap();
            assert_eq!(read_response(stream).status, 200);
        }
        let [first, second] = streams;
        if waits {
            let mut third = server.connect();
            third.write_all(get("/").as_bytes()).unwrap();
            // flatout closes idle connections to make room.
            assert_eq!(read_response(&mut third).status, 200);
        }
        drop((first, second));
        let said = stop(server);
        let lines = ["overload began: ", " × accept_connections_total", "\naccept_connections_total "];
        assert!(lines.iter().all(|line| said.contains(line) == waits), "{said}");
    }
}

#[test]
fn incomplete_heads_are_limited_per_address() {
    let folder = site();
    let server = start(&folder, "heads per-address=3");
    let mut halves = Vec::new();
    for _ in 0..3 {
        let mut stream = server.connect();
        stream.write_all(HALF_HEAD).unwrap();
        halves.push(stream);
    }
    let mut beyond = server.connect();
    beyond.write_all(HALF_HEAD).unwrap();
    assert_eq!(read_to_end(&mut beyond), b"");
    assert_eq!(server.get("/").status, 200, "a complete head");
    let mut other = connect_from(&server, OTHER);
    for stream in halves.iter_mut().chain([&mut other]) {
        if stream.local_addr().unwrap().ip() == OTHER {
            stream.write_all(HALF_HEAD).unwrap();
        }
        stream.write_all(b"st: test\r\n\r\n").unwrap();
        assert_eq!(read_response(stream).status, 200);
    }
    // Idle connections have no incomplete head.
    let mut next = server.connect();
    next.write_all(HALF_HEAD).unwrap();
    next.write_all(b"st: test\r\n\r\n").unwrap();
    assert_eq!(read_response(&mut next).status, 200);
    drop((halves, other, next));
    expect_closed(&stop(server), CloseReason::HeadsLimit, 1);
}

#[test]
fn the_oldest_incomplete_head_is_dropped_first_at_the_total_limit() {
    let folder = site();
    let server = start(&folder, "heads per-address=0 total=8");
    let mut halves = Vec::new();
    for index in 0..20 {
        let mut stream = server.connect();
        stream.write_all(HALF_HEAD).unwrap();
        // The server has seen it once it has responded to a later connection, so each has a different age.
        assert_eq!(server.get("/").status, 200, "half {index}");
        std::thread::sleep(std::time::Duration::from_millis(10));
        halves.push(stream);
    }
    for (index, stream) in halves.iter_mut().enumerate() {
        if index >= 12 {
            stream.write_all(b"st: test\r\n\r\n").unwrap();
            assert_eq!(read_response(stream).status, 200, "half {index}");
        } else {
            assert_eq!(Response::parse(&read_to_end(stream)).status, 408, "half {index}");
        }
    }
    drop(halves);
    expect_closed(&stop(server), CloseReason::HeadsTotal, 12);
}
