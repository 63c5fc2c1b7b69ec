//! PROXY headers at the beginning of connections: the client that a load balancer names is the client everywhere.

use super::super::harness::{Folder, Server, read_response, read_to_end, wait_until};
use super::super::process::{Running, free_port, is_root};
use super::super::tool::{run, tool};
use super::origin::{Origin, Then, response};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const CLIENT: &str = "203.0.113.7";
const OTHER: &str = "203.0.113.8";

/// A header of version 1 that names `client`.
fn v1(client: &str) -> Vec<u8> {
    let family = if client.contains(':') { "TCP6" } else { "TCP4" };
    let server = if client.contains(':') { "2001:db8::1" } else { "192.0.2.1" };
    format!("PROXY {family} {client} {server} 4711 443\r\n").into_bytes()
}

/// A header of version 2 with `command`, address family `family` and the rest.
fn v2_raw(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [&b"\r\n\r\n\0\r\nQUIT\n"[..], &[command, family], &length, rest].concat()
}

/// A header of version 2 that names the IPv4 client `client`, with an extension (NOOP).
fn v2(client: &str) -> Vec<u8> {
    let octets = client.parse::<std::net::Ipv4Addr>().unwrap().octets();
    v2_raw(0x21, 0x11, &[&octets[..], &[192, 0, 2, 1, 0x12, 0x67, 1, 0xbb], &[4, 0, 3, 0, 0, 0]].concat())
}

/// One site at a listener with `proxy-protocol`, and the metrics at another without.
fn configuration(top: &str, listen: &str, site: &str) -> String {
    configuration_from("#true", top, listen, site)
}

/// As `configuration`, with `senders` as the value of `proxy-protocol`. The server accepts connections on which nothing
/// arrives at once.
fn configuration_from(senders: &str, top: &str, listen: &str, site: &str) -> String {
    format!(
        "workers 1\nsockets {{ defer-accept #false; }}\n{top}\n\
         site \"*\" {{\nlisten \"127.0.0.1:0\" proxy-protocol={senders} {listen}\n\
         header \"X-Client\" \"{{client}}\"\n{site}\n}}\n\
         site \"*\" {{\nlisten \"127.0.0.9:0\"\nmetrics\n}}\n"
    )
}

/// The number of connections that were closed for `reason`.
fn closed(server: &Server, reason: &str) -> u64 {
    let mut stream = TcpStream::connect(server.address_of(1)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let text = String::from_utf8(read_to_end(&mut stream)).unwrap();
    let row = format!("flatout_closes_total{{reason=\"{reason}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&row)).map_or(0, |count| count.parse().unwrap())
}

/// Sends `bytes` one by one, each in a packet of its own.
fn dribble(stream: &mut TcpStream, bytes: &[u8]) {
    stream.set_nodelay(true).unwrap();
    for byte in bytes {
        stream.write_all(&[*byte]).unwrap();
    }
}

/// Sends `header` and a request for `path` at once, or byte by byte, and returns the status and X-Client.
fn send(server: &Server, header: &[u8], path: &str, at_once: bool) -> (u16, String) {
    let mut stream = server.connect();
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
    let bytes = [header, request.as_bytes()].concat();
    if at_once {
        stream.write_all(&bytes).unwrap();
    } else {
        dribble(&mut stream, &bytes);
    }
    let response = read_response(&mut stream);
    (response.status, response.field("x-client").unwrap_or_default().to_owned())
}

/// A TCP load balancer: forwards each connection from the address `source` to `target` after a header, which it sends byte
/// by byte.
fn balance(source: &str, target: SocketAddr, header: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let source: SocketAddr = format!("{source}:0").parse().unwrap();
    thread::spawn(move || {
        for front in listener.incoming().flatten() {
            let back = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            bind(&back, &source).unwrap();
            connect(&back, &target).unwrap();
            let mut back = TcpStream::from(back);
            dribble(&mut back, &header);
            for (mut from, mut to) in
                [(front.try_clone().unwrap(), back.try_clone().unwrap()), (back.try_clone().unwrap(), front)]
            {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    address
}

#[test]
fn the_client_is_the_one_that_the_header_names() {
    let origin = Origin::start(|_, stream| {
        let _ = stream.write_all(&response("200 OK", "Cache-Control: no-store\r\n", b"app"));
        Then::Keep
    });
    let folder = Folder::with(&[("site/a.txt", b"a")]);
    let log = folder.path().join("access.log");
    let site = format!(
        "route \"/denied\" {{ deny \"{CLIENT}\"; respond 200 \"allowed\"; }}\n\
         route \"/limited\" {{ rate-limit requests=1 period=\"1h\"; respond 200 \"within\"; }}\n\
         route \"/app\" {{ proxy \"{}\"; }}\nfiles \"{}\"",
        origin.url(),
        folder.path().join("site").display()
    );
    let top = format!("trusted-proxies \"127.0.0.0/8\"\nlog \"{}\"", log.display());
    let server = Server::run(&folder, &configuration(&top, "", &site));
    let to = |client: &str| client.to_owned();
    for (header, path, expected) in [
        (v1(CLIENT), "/a.txt", (200, to(CLIENT))),
        (v2(CLIENT), "/missing", (404, to(CLIENT))),
        (v1("2001:db8::7"), "/a.txt", (200, to("2001:db8::7"))),
        (v1("::ffff:203.0.113.9"), "/a.txt", (200, to("203.0.113.9"))),
        (v1(CLIENT), "/denied", (403, to(CLIENT))),
        (v2(OTHER), "/denied", (200, to(OTHER))),
        (v2(CLIENT), "/app", (200, to(CLIENT))),
        // LOCAL: the sender is the client.
        (v2_raw(0x20, 0, b""), "/a.txt", (200, to("127.0.0.1"))),
        (v2_raw(0x20, 0x11, b""), "/denied", (200, to("127.0.0.1"))),
    ] {
        assert_eq!(send(&server, &header, path, true), expected, "{header:?} {path}");
        assert_eq!(send(&server, &header, path, false), expected, "byte by byte: {header:?} {path}");
    }
    let forwarded = origin.requests().pop().unwrap().field("x-forwarded-for");
    assert_eq!(forwarded.as_deref(), Some(CLIENT));
    assert_eq!(send(&server, &v1(CLIENT), "/limited", true).0, 200);
    assert_eq!(send(&server, &v2(CLIENT), "/limited", true).0, 429);
    assert_eq!(send(&server, &v1(OTHER), "/limited", true).0, 200);
    server.stop();
    let lines = fs::read_to_string(&log).unwrap();
    let count = |client: &str| lines.lines().filter(|line| line.starts_with(&format!("{client} - "))).count();
    assert_eq!((count(CLIENT), count(OTHER), count("127.0.0.1"), count("2001:db8::7")), (10, 3, 4, 2), "{lines}");
}

#[test]
fn a_header_without_an_address_hides_the_client() {
    let folder = Folder::new();
    let log = folder.path().join("access.log");
    let top = format!("trusted-proxies \"127.0.0.0/8\" \"0.0.0.0/0\"\nlog \"{}\"", log.display());
    let site = format!("route \"/denied\" {{ deny \"{CLIENT}\"; respond 200 \"allowed\"; }}\nrespond 200 \"hello\"");
    let server = Server::run(&folder, &configuration(&top, "", &site));
    let datagram = [203, 0, 113, 8, 192, 0, 2, 1, 0x12, 0x67, 1, 0xbb];
    let hiding = [
        b"PROXY UNKNOWN\r\n".to_vec(),
        v2_raw(0x21, 0, b""),
        v2_raw(0x21, 0x31, &[b'/'; 216]),
        v2_raw(0x21, 0x12, &datagram),
        b"PROXY TCP4 0.0.0.0 192.0.2.1 0 443\r\n".to_vec(),
    ];
    // The same field is effective after LOCAL, whose sender is trusted.
    let claim = format!("X-Forwarded-For: {OTHER}\r\n");
    let get_with = |header: &[u8], path: &str, field: &str| {
        let mut stream = server.connect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n{field}\r\n");
        stream.write_all(&[header, request.as_bytes()].concat()).unwrap();
        let response = read_response(&mut stream);
        (response.status, response.field("x-client").unwrap_or_default().to_owned())
    };
    assert_eq!(get_with(&v2_raw(0x20, 0, b""), "/denied", &claim), (200, OTHER.to_owned()));
    for header in &hiding {
        for field in ["", &claim] {
            assert_eq!(get_with(header, "/denied", field).0, 403, "{header:?} {field}");
            assert_eq!(get_with(header, "/", field), (200, String::new()), "{header:?} {field}");
        }
    }
    server.stop();
    let lines = fs::read_to_string(&log).unwrap();
    assert_eq!(lines.lines().filter(|line| line.starts_with("- - -")).count(), 4 * hiding.len(), "{lines}");
}

#[test]
fn tls_and_every_version_of_http_follow_the_header() {
    let folder = Folder::new();
    let site = "tls \"internal\"\nrespond 200 \"hello\"";
    let secure = Server::run(&folder, &configuration("", "tls=#true", site));
    let plain = Server::run(&Folder::new(), &configuration("", "h2c=#true", "respond 200 \"hello\""));
    for (header, client) in [(v1(CLIENT), CLIENT), (v2(OTHER), OTHER)] {
        for (server, scheme, flag) in [
            (&secure, "https", "--http1.1"),
            (&secure, "https", "--http2"),
            (&plain, "http", "--http1.1"),
            (&plain, "http", "--http2-prior-knowledge"),
        ] {
            let url = format!("{scheme}://{}/", balance("127.0.0.1", server.address, header.clone()));
            let form = "%{http_version} %header{x-client}";
            // Two requests on one connection. This version of curl cannot send a second one with prior knowledge.
            let count = if flag == "--http2-prior-knowledge" { 1 } else { 2 };
            let mut curl = tool("curl");
            curl.args(["-sk", "-w", form, flag]).args(vec![&url[..]; count]).args(vec!["-o/dev/null"; count]);
            let version = if flag == "--http1.1" { "1.1" } else { "2" };
            assert_eq!(run(&mut curl), format!("{version} {client}").repeat(count), "{url} {flag}");
        }
    }
    // curl is its own load balancer.
    for (server, scheme) in [(&secure, "https"), (&plain, "http")] {
        let url = format!("{scheme}://{}/", server.address);
        let text = run(tool("curl").args(["-sk", "--haproxy-protocol", "--interface", "127.0.0.9", &url]));
        assert_eq!(text, "hello");
    }
}

#[test]
fn a_connection_without_a_valid_header_is_closed() {
    let folder = Folder::new();
    let config = configuration("timeouts { handshake \"300ms\"; }", "", "respond 200 \"hello\"");
    let server = Server::run(&folder, &config);
    let long = v2_raw(0x21, 0x11, &[0; 4081]);
    let bad: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: test\r\n\r\n",
        b"PROXY TCP4 203.0.113.7 wrong 1 2\r\n",
        &[b'P'; 200],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        // Larger than any header may be.
        &long,
        b"PROXY UNKNOWN xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n",
    ];
    for bytes in bad {
        let mut stream = server.connect();
        stream.write_all(bytes).unwrap();
        assert_eq!(read_to_end(&mut stream), b"", "{bytes:?}");
    }
    // The client closes in the middle of it.
    let mut stream = server.connect();
    dribble(&mut stream, b"PROXY TCP4 203");
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut stream), b"");
    assert_eq!(closed(&server, "proxy_header_invalid"), 7);
    // It does not arrive.
    for begun in [&b""[..], b"PROXY TCP4 203", b"\r\n\r\n\0"] {
        let mut stream = server.connect();
        stream.write_all(begun).unwrap();
        assert_eq!(read_to_end(&mut stream), b"", "{begun:?}");
    }
    assert_eq!((closed(&server, "proxy_header_timeout"), closed(&server, "proxy_header_invalid")), (3, 7));
}

#[test]
fn health_checks_of_load_balancers_are_no_errors() {
    for (listen, site) in [("", "respond 200 \"hello\""), ("tls=#true", "tls \"internal\"\nrespond 200 \"hello\"")] {
        let server = Server::run(&Folder::new(), &configuration("", listen, site));
        // Each request for the metrics is on a connection of its own, which the server closes.
        let count_of = |reason: &str| closed(&server, reason);
        let mut count = count_of("client_closed");
        for header in [&b""[..], b"PROXY UNKNOWN\r\n", &v2_raw(0x20, 0, b"")] {
            for resets in [false, true] {
                let mut stream = server.connect();
                stream.write_all(header).unwrap();
                if resets {
                    set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
                    drop(stream);
                } else {
                    stream.shutdown(Shutdown::Write).unwrap();
                    assert_eq!(read_to_end(&mut stream), b"", "{header:?}");
                }
                count += 1;
                wait_until("the check ends", || count_of("client_closed") == count);
            }
        }
        let others = ["proxy_header_invalid", "client_reset", "tls_failed"].map(count_of);
        assert_eq!(others, [0; 3], "{listen}");
    }
}

#[test]
fn only_the_listed_peers_may_send_the_header() {
    // `trusted-proxies` is about fields only: the peer 127.0.0.1 may not send a header.
    let top = "trusted-proxies \"127.0.0.1\" \"203.0.113.8\"";
    let site = "respond 200 \"hello\"";
    let server = Server::run(&Folder::new(), &configuration_from("\"192.0.2.0/24 127.0.0.2\"", top, "", site));
    let mut stream = server.connect();
    let _ = stream.write_all(&v1(CLIENT));
    assert_eq!(read_to_end(&mut stream), b"");
    wait_until("the reset", || closed(&server, "proxy_header_untrusted") == 1);
    let client = |flags: &[&str]| {
        let url = format!("http://{}/", balance("127.0.0.2", server.address, v1(flags[0])));
        run(tool("curl").args(["-s", "-o", "/dev/null", "-w", "%header{x-client}"]).args(&flags[1..]).arg(&url))
    };
    assert_eq!(client(&[CLIENT]), CLIENT);
    // The client that the header names may be a trusted proxy, or anyone else.
    let forwarded = ["-H", "X-Forwarded-For: 192.0.2.77"];
    assert_eq!(client(&[OTHER, forwarded[0], forwarded[1]]), "192.0.2.77");
    assert_eq!(client(&[CLIENT, forwarded[0], forwarded[1]]), CLIENT);
    // With #true, everyone may send it, even if other proxies are trusted.
    let server = Server::run(&Folder::new(), &configuration("trusted-proxies \"192.0.2.9\"", "", site));
    assert_eq!(send(&server, &v1(CLIENT), "/", true), (200, CLIENT.to_owned()));
}

#[test]
fn limits_on_connections_are_those_of_the_named_client() {
    let top = "limit-connections { connections per-address=4; }";
    let server = Server::run(&Folder::new(), &configuration(top, "", "respond 200 \"hello\""));
    let open = |client: &str| {
        let mut stream = server.connect();
        stream.write_all(&[&v2(client), &b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"[..]].concat()).unwrap();
        stream.read(&mut [0]).is_ok_and(|count| count == 1).then_some(stream)
    };
    // The load balancer's own address has as many connections as it likes.
    let mut held: Vec<_> = [CLIENT, OTHER].into_iter().cycle().take(8).map(|client| open(client).unwrap()).collect();
    assert!(open(CLIENT).is_none() && open(OTHER).is_none());
    assert_eq!(closed(&server, "connections_limit"), 2);
    held.remove(0);
    wait_until("the client's connection ends", || open(CLIENT).is_some());
}

#[test]
fn varnish_names_its_visitors() {
    let site = "respond 200 \"hello\"";
    let server = Server::run(&Folder::new(), &configuration("", "", site));
    for version in [1, 2] {
        let (folder, port) = (Folder::new(), free_port());
        let vcl = format!(
            "vcl 4.0;\nbackend default {{ .host = \"127.0.0.1\"; .port = \"{}\"; .proxy_header = {version}; }}\n\
             sub vcl_recv {{ return (pass); }}\n",
            server.address.port()
        );
        folder.write("default.vcl", vcl.as_bytes());
        let mut command = tool("varnishd");
        command.args(["-F", "-s", "malloc,10m", "-a", &format!("127.0.0.1:{port}")]);
        command.arg("-n").arg(folder.path().join("varnish")).arg("-f").arg(folder.path().join("default.vcl"));
        let _varnish = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        wait_until("Varnish listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        for visitor in ["127.0.0.3", "127.0.0.4", "127.0.0.3"] {
            let url = format!("http://127.0.0.1:{port}/");
            let form = "%{http_code} %header{x-client}";
            let text = run(tool("curl").args(["-s", "-o", "/dev/null", "-w", form, "--interface", visitor, &url]));
            assert_eq!(text, format!("200 {visitor}"), "version {version}");
        }
    }
}

/// The first line that each connection of an origin begins with, and the paths of the requests on it.
type Connections = Arc<Mutex<Vec<(String, Vec<String>)>>>;

/// An origin whose connections begin with a header of version 1. Only responses below /fresh may be stored.
fn headed_origin() -> (SocketAddr, Connections) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Connections::default());
    let log = Arc::clone(&connections);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                let (mut lines, mut writer) = (BufReader::new(stream.try_clone().unwrap()), stream);
                let mut line = || {
                    let mut line = String::new();
                    lines.read_line(&mut line).ok().filter(|count| *count > 0).map(|_| line.trim_end().to_owned())
                };
                let Some(header) = line() else { return };
                let index = {
                    let mut log = log.lock().unwrap();
                    log.push((header, Vec::new()));
                    log.len() - 1
                };
                while let Some(request) = line() {
                    while line().is_some_and(|field| !field.is_empty()) {}
                    let path = request.split(' ').nth(1).unwrap().to_owned();
                    let control = if path.starts_with("/fresh") { "max-age=60" } else { "no-store" };
                    log.lock().unwrap()[index].1.push(path);
                    let fields = format!("Cache-Control: {control}\r\n");
                    if writer.write_all(&response("200 OK", &fields, b"hello")).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, connections)
}

/// Connects to `server` from the address `visitor`.
fn visit(server: &Server, visitor: &str) -> TcpStream {
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&stream, &format!("{visitor}:0").parse::<SocketAddr>().unwrap()).unwrap();
    connect(&stream, &server.address).unwrap();
    TcpStream::from(stream)
}

/// Sends a request for `path` on `stream`, and returns the client that the response names.
fn get(stream: &mut TcpStream, path: &str) -> String {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).unwrap();
    let response = read_response(stream);
    assert_eq!(response.status, 200, "{path}");
    response.field("x-client").unwrap_or_default().to_owned()
}

#[test]
fn each_connection_to_an_origin_names_its_client() {
    let (address, connections) = headed_origin();
    let config = format!(
        "workers 1\nsite \"*\" {{\nlisten \"127.0.0.1:0\"\ncache\nproxy \"http://{address}\" {{ proxy-protocol \"v1\"; \
         trusted-proxies \"127.0.0.7\"; }}\n}}\n"
    );
    let server = Server::run(&Folder::new(), &config);
    let mut visitors: Vec<TcpStream> = ["127.0.0.3", "127.0.0.4"].map(|visitor| visit(&server, visitor)).into();
    for round in 0..3 {
        for (number, visitor) in visitors.iter_mut().enumerate() {
            get(visitor, &format!("/{number}/{round}"));
        }
    }
    // A response that is stored names its first client only.
    get(&mut visitors[1], "/fresh");
    get(&mut visitors[0], "/fresh");
    let expected = |number: usize, more: &[&str]| {
        let from = visitors[number].local_addr().unwrap();
        let paths: Vec<String> = (0..3).map(|round| format!("/{number}/{round}")).collect();
        let paths = paths.into_iter().chain(more.iter().map(|path| (*path).to_owned())).collect::<Vec<_>>();
        let (to, to_port) = (address.ip(), address.port());
        (format!("PROXY TCP4 {} {to} {} {to_port}", from.ip(), from.port()), paths)
    };
    assert_eq!(*connections.lock().unwrap(), [expected(0, &[]), expected(1, &["/fresh"])]);
    // A client that a trusted proxy names, and one that it hides.
    let mut front = visit(&server, "127.0.0.7");
    for field in ["X-Forwarded-For: 203.0.113.7", "X-Forwarded-For: 203.0.113.7", "X-Forwarded-For: unknown"] {
        front.write_all(format!("GET /front HTTP/1.1\r\nHost: test\r\n{field}\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(read_response(&mut front).status, 200);
    }
    let named = format!("PROXY TCP4 203.0.113.7 127.0.0.1 0 {}", address.port());
    let paths = |count: usize| vec!["/front".to_owned(); count];
    let hidden = format!("PROXY TCP4 0.0.0.0 127.0.0.1 0 {}", address.port());
    assert_eq!(connections.lock().unwrap()[2..], [(named, paths(2)), (hidden, paths(1))]);
}

#[test]
fn health_checks_have_no_client() {
    let (address, connections) = headed_origin();
    let config = format!(
        "workers 1\nsite \"*\" {{\nlisten \"127.0.0.1:0\"\nproxy \"http://{address}\" {{ proxy-protocol \"v1\"; \
         health-check \"/health\" interval=\"100ms\"; }}\n}}\n"
    );
    let server = Server::run(&Folder::new(), &config);
    let is_check = |(header, paths): &(String, Vec<String>)| header == "PROXY UNKNOWN" && paths.len() > 1;
    wait_until("two checks", || connections.lock().unwrap().iter().any(is_check));
    get(&mut server.connect(), "/visit");
    let connections = connections.lock().unwrap();
    let of_visit = connections.iter().filter(|(_, paths)| paths.contains(&"/visit".to_owned()));
    assert!(
        of_visit.clone().count() == 1
            && of_visit.clone().all(|(header, _)| header.starts_with("PROXY TCP4 127.0.0.1 "))
    );
}

#[test]
fn nginx_and_flatout_learn_the_client_from_the_header() {
    let (folder, port) = (Folder::new(), free_port());
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {}/{name};", folder.path().display()))
        .concat();
    let user = if is_root() { "user root;" } else { "" };
    let text = format!(
        "daemon off; {user} pid nginx.pid; error_log stderr; events {{}}
         http {{ {temporary} access_log off; server {{ listen 127.0.0.1:{port} proxy_protocol;
             location / {{ add_header X-Client $proxy_protocol_addr; return 200; }} }} }}"
    );
    folder.write("nginx.conf", text.as_bytes());
    let mut command = tool("nginx");
    command.arg("-p").arg(folder.path()).arg("-c").arg(folder.path().join("nginx.conf"));
    let _nginx = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_until("nginx listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let second = Server::run(&Folder::new(), &configuration("", "tls=#true", "tls \"internal\"\nrespond 200"));
    for version in ["v1", "v2"] {
        for (origin, more) in [(format!("http://127.0.0.1:{port}"), ""), (second.url(""), "tls insecure=#true;")] {
            let proxy = format!("proxy \"{origin}\" {{ proxy-protocol \"{version}\"; {more} }}");
            let server = Server::run(
                &Folder::new(),
                &format!("workers 1\nsite \"*\" {{\nlisten \"127.0.0.1:0\"\n{proxy}\n}}\n"),
            );
            let mut visitors = ["127.0.0.3", "127.0.0.4"].map(|visitor| (visitor, visit(&server, visitor)));
            for _ in 0..2 {
                for (visitor, stream) in &mut visitors {
                    assert_eq!(get(stream, "/"), *visitor, "{origin} {version}");
                }
            }
        }
    }
}
