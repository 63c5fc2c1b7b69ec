//! Responses that are shorter than their Content-Length: over each HTTP version, real clients get the content that has
//! arrived, and then the close of the connection or the reset of the stream.

use super::harness::{Folder, Server, wait_until_read};
use super::http3::aioquic;
use super::php::scripted::{Scripted, end, record, send, stdout};
use super::tls::Certificate;
use super::tool::{said, tool};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

const HEAD: &str = "Content-Type: text/plain\r\nContent-Length: 1000000\r\n\r\n";

/// The content that arrives.
const CONTENT: &str = "the beginning";

/// Content that needs many frames, and more than one turn of the server.
const MUCH_BYTES: usize = 500_000;

/// The exit statuses of curl for a connection that closes too early, and for a stream that is reset.
const PARTIAL_FILE: i32 = 18;
const STREAM_RESET: i32 = 92;

/// The error codes of the resets (RFC 9113 §7, RFC 9114 §8.1).
const HTTP2_INTERNAL_ERROR: &str = "INTERNAL_ERROR (err 2)";
const HTTP3_INTERNAL_ERROR: u64 = 0x102;

fn content_of(target: &str) -> String {
    if target.contains("much") { "m".repeat(MUCH_BYTES) } else { CONTENT.to_owned() }
}

/// An origin whose responses break off after the content.
fn origin() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count > 0) {
                head.push(byte[0]);
            }
            let target = String::from_utf8_lossy(&head).into_owned();
            let (head, content) = (format!("HTTP/1.1 200 OK\r\n{HEAD}"), content_of(&target));
            if target.contains("at-once") {
                let _ = stream.write_all((head + &content).as_bytes());
            } else {
                let _ = stream.write_all(head.as_bytes());
                wait_until_read(&stream);
                let _ = stream.write_all(content.as_bytes());
                wait_until_read(&stream);
            }
        }
    });
    url
}

/// An application server whose responses break off after the content: in the middle of the protocol if the query says
/// `closed`, otherwise with its regular end.
fn application(folder: &Folder) -> Scripted {
    Scripted::start(folder.path(), |asked, stream| {
        let query = &asked.variables["QUERY_STRING"];
        let content = content_of(query);
        let mut records = vec![stdout(HEAD)];
        records.extend(content.as_bytes().chunks(50_000).map(|piece| record(6, piece)));
        if query != "closed" {
            records.push([record(6, b""), end(0)].concat());
        }
        if query == "at-once" {
            records = vec![records.concat()];
        }
        records.iter().all(|record| send(stream, record)) && query != "closed"
    })
}

/// Asserts what curl gets with `flag`, and how it ends.
fn assert_curl(flag: &str, url: &str, (status, text): (i32, &str)) {
    let output = tool("curl").args(["-sS", "-k", flag, url]).output().unwrap();
    let expected = content_of(url);
    assert!(output.stdout == expected.as_bytes(), "{flag} {url}: {} bytes: {}", output.stdout.len(), said(&output));
    assert_eq!(output.status.code(), Some(status), "{flag} {url}: {}", said(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains(text), "{flag} {url}: {}", said(&output));
}

#[test]
fn clients_of_each_version_get_what_arrived_of_a_response_that_breaks_off() {
    let (folder, certificate) = (Folder::with(&[("x.php", b"<?php")]), Certificate::new());
    let application = application(&folder);
    let Certificate { chain, key, .. } = &certificate;
    let text = format!(
        "workers 1
site \"*\" {{
    listen \"127.0.0.2:0\" h2c=#true
    listen \"127.0.0.1:0\" tls=#true http3=#true
    tls cert=\"{chain}\" key=\"{key}\"
    route \"/origin/*\" {{ proxy \"{}\"; }}
{}
}}
",
        origin(),
        application.step(folder.path(), "")
    );
    let server = Server::run(&folder, &text);
    let targets = [
        "/x.php?at-once",
        "/x.php?later",
        "/x.php?closed",
        "/x.php?much",
        "/origin/at-once",
        "/origin/later",
        "/origin/much",
    ];
    for target in targets {
        assert_curl("--http1.1", &server.url(target), (PARTIAL_FILE, ""));
        let reset = (STREAM_RESET, HTTP2_INTERNAL_ERROR);
        assert_curl("--http2-prior-knowledge", &server.url(target), reset);
        assert_curl("--http2", &server.url_of(1, target), reset);
        // How much a client gets in time of much content depends on the machine.
        if !target.contains("much") {
            let responses = aioquic(server.address_of(1), "get", &[target]);
            assert_eq!(responses[0]["body"], CONTENT, "{target}: {responses}");
            assert_eq!(responses[0]["reset"], HTTP3_INTERNAL_ERROR, "{target}: {responses}");
        }
    }
}

#[test]
fn other_responses_on_the_connection_are_complete() {
    let (folder, certificate) = (Folder::with(&[("x.php", b"<?php"), ("1k", &[b'k'; 1024])]), Certificate::new());
    let application = application(&folder);
    let Certificate { chain, key, .. } = &certificate;
    let text = format!(
        "workers 1
site \"*\" {{
    listen \"127.0.0.1:0\" tls=#true http3=#true
    tls cert=\"{chain}\" key=\"{key}\"
{}
    files \"{}\"
}}
",
        application.step(folder.path(), ""),
        folder.path().display()
    );
    let server = Server::run(&folder, &text);
    let responses = aioquic(server.address, "get", &["/1k", "/x.php?closed", "/1k", "/x.php?at-once", "/1k"]);
    let sizes: Vec<_> = (0..5).map(|index| responses[index]["size"].as_u64().unwrap()).collect();
    let short = CONTENT.len() as u64;
    assert_eq!(sizes, [1024, short, 1024, short, 1024], "{responses}");
    let (status, text) = server.stop();
    assert!(status.success() && text.contains("http3_streams_cut"), "{text}");
}
