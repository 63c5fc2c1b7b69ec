//! Tests of connections that switch to another protocol.

use super::{Running, read_until, timeouts, wait_until};
use flatout_handler::ending::CloseReason;
use flatout_http::timeouts::Timeouts;
use flatout_net::tls::{SiteCertificate, TlsServer};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

const UPGRADE: &[u8] = b"GET /tunnel HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";

/// Sends data through an echoing tunnel.
fn speak(stream: &mut (impl Read + Write)) {
    let head = read_until(stream, "\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert!(head.contains("\r\nConnection: Upgrade\r\n") && !head.contains("close"), "{head}");
    read_until(stream, "first ");
    let piece: Vec<u8> = (0..100_000).map(|at: u32| b'a' + (at % 23) as u8).collect();
    for _ in 0..5 {
        stream.write_all(&piece).unwrap();
        let mut back = vec![0; piece.len()];
        stream.read_exact(&mut back).unwrap();
        assert!(back == piece);
    }
}

#[test]
fn a_tunnel_goes_both_ways_and_ends() {
    let server = Running::start();
    let mut stream = server.connect();
    // Bytes received together with the request belong to the tunnel.
    stream.write_all(&[UPGRADE, b"first "].concat()).unwrap();
    speak(&mut stream);
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    wait_until("the end", || server.closed(CloseReason::TunnelEnded) == 1);
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_tunnel_follows_other_answers_and_ends_with_the_drain() {
    let server = Running::with(Timeouts { drain_timeout_ms: 200, ..timeouts() }, None);
    let mut stream = server.connect();
    stream.write_all(&[b"GET /now HTTP/1.1\r\nHost: test\r\n\r\n", UPGRADE, b"first "].concat()).unwrap();
    read_until(&mut stream, "\r\n\r\nnow");
    speak(&mut stream);
    let counters = Arc::clone(&server.counters);
    assert_eq!(server.stop(), 1);
    assert_eq!(counters.closes[CloseReason::DrainDeadline as usize].get(), 1);
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn what_cannot_be_a_tunnel_is_an_error() {
    let server = Running::start();
    let answer = server.ask("GET /tunnel HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 501 "), "{answer}");
}

/// Returns a server with a self-signed certificate, and a client's TLS session with it.
fn over_tls() -> (Running, StreamOwned<ClientConnection, TcpStream>) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let site = SiteCertificate {
        names: vec!["*".to_owned()],
        chain_pem: cert.pem().into_bytes(),
        key_pem: signing_key.serialize_pem().into_bytes(),
        label: "here.pem".to_owned(),
    };
    let tls = TlsServer::new().unwrap();
    tls.replace(&[site], 1_800_000_000).unwrap();
    let server = Running::with(timeouts(), Some(tls));
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let session = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let stream = StreamOwned::new(session, server.connect());
    (server, stream)
}

#[test]
fn a_tunnel_goes_through_tls() {
    let (server, mut stream) = over_tls();
    stream.write_all(&[UPGRADE, b"first "].concat()).unwrap();
    speak(&mut stream);
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    wait_until("the end", || server.closed(CloseReason::TunnelEnded) == 1);
}

#[test]
fn content_comes_bit_by_bit_through_tls() {
    let (server, mut stream) = over_tls();
    for path in ["/chunked", "/later/files", "/big"] {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        read_until(&mut stream, "\r\n\r\n");
        if path == "/big" {
            let mut big = vec![0; 3_000_000];
            stream.read_exact(&mut big).unwrap();
            assert!(big.iter().all(|&byte| byte == b'z'));
        } else {
            read_until(&mut stream, "0\r\n\r\n");
        }
    }
    // One large write, most of which waits in the TLS session because the reader is slow.
    write!(stream, "POST /slow-count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n\r\n").unwrap();
    stream.write_all(&vec![b'x'; 500_000]).unwrap();
    read_until(&mut stream, "500000 of Some(500000) []");
    write!(stream, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nboth ways").unwrap();
    read_until(&mut stream, "9\r\nboth ways\r\n0\r\n\r\n");
    drop(stream);
    assert_eq!(server.stop(), 0);
}
