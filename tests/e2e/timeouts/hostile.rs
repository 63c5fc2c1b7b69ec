//! Hostile connections of each kind: what each costs the server, and that honest clients are still served.

use super::super::accelerator::websocket;
use super::super::harness::{Folder, Server, read_response, uninterrupted};
use super::super::http2::client::{Client, HEADERS};
use super::super::memory::allow_descriptors;
use super::super::tls::Certificate;
use super::{connect_with_small_buffer, get, large, reset, stop, wait_until_idle};
use flatout_net::tls::client::client_config;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::id;
use std::sync::Arc;
use std::thread;

/// Number of connections of each kind.
const HOSTILE: u64 = 200;

/// Number of clients that are served while all hostile connections are open.
const HONEST: usize = 64;

/// Number of requests from each of these clients.
const REQUESTS: usize = 5;

/// A hostile connection, held open.
enum Hostile {
    Stream(TcpStream),
    Http2(Client),
}

/// Kinds, how to open one, and the limit on the server's anonymous memory for each, in bytes.
type Kind = (&'static str, fn(&Server) -> Hostile, u64);

const KINDS: [Kind; 12] = [
    ("never closes", idle, 2 << 10),
    ("slow head", |server| begin(server, "GET / HTTP/1.1\r\nHost: a\r\nA: "), 4 << 10),
    ("head of 15 KiB, unfinished", long_head, 20 << 10),
    ("slow body", |server| begin(server, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\nabc"), 4 << 10),
    (
        "slow trailers",
        |server| begin(server, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: "),
        8 << 10,
    ),
    ("slow read", slow_read, 4 << 10),
    ("TLS: half of the client hello", half_hello, 12 << 10),
    ("TLS: nothing after the client hello", whole_hello, 16 << 10),
    ("TLS: nothing after the handshake", whole_handshake, 16 << 10),
    ("HTTP/2: closed windows", closed_windows, 8 << 10),
    ("WebSocket: idle", idle_websocket, 24 << 10),
    ("WebSocket over HTTP/2: idle", idle_websocket_http2, 28 << 10),
];

fn begin(server: &Server, beginning: &str) -> Hostile {
    let mut stream = server.connect();
    stream.write_all(beginning.as_bytes()).unwrap();
    Hostile::Stream(stream)
}

fn idle(server: &Server) -> Hostile {
    let mut stream = server.connect();
    stream.write_all(get("/").as_bytes()).unwrap();
    assert_eq!(read_response(&mut stream).status, 200);
    Hostile::Stream(stream)
}

fn long_head(server: &Server) -> Hostile {
    begin(server, &format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}", "x".repeat(15 << 10)))
}

fn slow_read(server: &Server) -> Hostile {
    let mut stream = connect_with_small_buffer(server);
    stream.write_all(get("/large.bin").as_bytes()).unwrap();
    Hostile::Stream(stream)
}

/// The first bytes that a TLS client sends.
fn client_hello() -> Vec<u8> {
    let config = client_config(true, None).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

fn begin_tls(server: &Server, bytes: &[u8]) -> Hostile {
    let mut stream = TcpStream::connect(server.address_of(1)).unwrap();
    stream.write_all(bytes).unwrap();
    Hostile::Stream(stream)
}

fn half_hello(server: &Server) -> Hostile {
    let hello = client_hello();
    begin_tls(server, &hello[..hello.len() / 2])
}

fn whole_hello(server: &Server) -> Hostile {
    begin_tls(server, &client_hello())
}

fn whole_handshake(server: &Server) -> Hostile {
    let config = client_config(true, None).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let mut stream = TcpStream::connect(server.address_of(1)).unwrap();
    while client.is_handshaking() {
        client.complete_io(&mut stream).unwrap();
    }
    Hostile::Stream(stream)
}

fn closed_windows(server: &Server) -> Hostile {
    // SETTINGS_INITIAL_WINDOW_SIZE: 0.
    let mut client = Client::connect(server, &[(4, 0)]);
    client.get(1, "/large.bin");
    client.frame_like("a response head", |frame| frame.kind == HEADERS);
    Hostile::Http2(client)
}

fn idle_websocket(server: &Server) -> Hostile {
    let mut stream = server.connect();
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    stream.write_all(format!("GET /chat HTTP/1.1\r\nHost: test\r\n{upgrade}\r\n").as_bytes()).unwrap();
    let mut status_line = [0; 12];
    uninterrupted(|| stream.read_exact(&mut status_line)).unwrap();
    assert_eq!(&status_line, b"HTTP/1.1 101");
    Hostile::Stream(stream)
}

fn idle_websocket_http2(server: &Server) -> Hostile {
    let mut client = Client::connect(server, &[]);
    websocket::connect(&mut client, b"websocket", b"/chat");
    assert_eq!(websocket::status(&mut client), "200");
    Hostile::Http2(client)
}

/// Asserts that every request of every honest client gets a correct response.
fn check_honest_clients(server: &Server) {
    thread::scope(|scope| {
        for _ in 0..HONEST {
            scope.spawn(|| {
                let mut stream = server.connect();
                for _ in 0..REQUESTS {
                    stream.write_all(get("/").as_bytes()).unwrap();
                    let response = read_response(&mut stream);
                    assert_eq!((response.status, response.body), (200, b"welcome".to_vec()));
                }
            });
        }
    });
}

#[test]
fn hostile_connections_use_little_memory_and_fail_no_honest_client() {
    let (certificate, chat) = (Certificate::new(), websocket::Echo::start());
    let folder = Folder::with(&[("index.html", b"welcome"), ("large.bin", &large())]);
    // No timeout closes a hostile connection during the test.
    let config = format!(
        "workers 1\nadmin off=#true\ntimeouts {{ idle \"1h\"; head \"1h\"; body \"1h\"; write \"1h\"; handshake \"1h\"; }}\n\
         site \"*\" {{\n listen \"127.0.0.1:0\" h2c=#true\n listen \"[::1]:0\" tls=#true\n\
         tls cert=\"{}\" key=\"{}\"\n route \"/chat\" {{ proxy \"{}\"; }}\n files \".\"\n}}\n",
        certificate.chain, certificate.key, chat.url
    );
    let server = Server::run(&folder, &config);
    for process in [id(), server.worker()] {
        allow_descriptors(process, HOSTILE * KINDS.len() as u64 + 2000);
    }
    // Afterwards, caches, buffers and the connection table have reached their working size.
    for (_, connect, _) in KINDS {
        drop(connect(&server));
    }
    check_honest_clients(&server);
    let mut held = Vec::new();
    let mut excesses = Vec::new();
    for (name, connect, bound) in KINDS {
        wait_until_idle(&server);
        let before_kb = server.memory_kb("RssAnon");
        held.extend((0..HOSTILE).map(|_| connect(&server)));
        wait_until_idle(&server);
        let each = server.memory_kb("RssAnon").saturating_sub(before_kb) * 1024 / HOSTILE;
        println!("{name}: {each} bytes for each connection, at most {bound}");
        if each > bound {
            excesses.push((name, each));
        }
    }
    check_honest_clients(&server);
    assert!(excesses.is_empty(), "{excesses:?}");
    for hostile in held {
        match hostile {
            Hostile::Stream(stream) => reset(stream),
            Hostile::Http2(client) => drop(client),
        }
    }
    stop(server);
}
