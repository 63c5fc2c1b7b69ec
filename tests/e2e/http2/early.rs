//! Final responses that are sent before the request's content has arrived: real clients must see them.

use super::super::tls::Certificate;
use super::grpc::accelerate_http1;
use super::site;
use crate::e2e::harness::{Folder, Server};
use crate::e2e::tool::{run, tool};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

/// Size of an upload that is refused.
const UPLOAD_BYTES: usize = 10_000_000;

/// Uploads of each kind: enough to make at least one fail if responses were followed by a reset.
const UPLOADS: usize = 10;

/// Returns the status that curl reports for an upload to `path`.
fn upload(server: &Server, flag: &str, path: &str, file: &std::path::Path) -> String {
    let mut data = std::ffi::OsString::from("@");
    data.push(file);
    run(tool("curl")
        .args(["-sS", "-k", flag, "-o", "/dev/null", "-w", "%{http_code} %{http_version}", "-H", "Expect:"])
        .arg("--data-binary")
        .arg(data)
        .arg(server.url(path)))
}

/// An origin that responds with 403 to the head of each request and reads the rest. It takes one request per
/// connection: if the whole content was sent before the response, the connection would be reused otherwise.
fn refusing_origin() -> String {
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
                let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno");
                let mut rest = [0; 16 * 1024];
                while stream.read(&mut rest).is_ok_and(|count| count > 0) {}
            });
        }
    });
    url
}

#[test]
fn libcurl_gets_a_refusal_while_it_is_still_sending_content() {
    let (folder, certificate) = (site(), Certificate::new());
    let file = folder.path().join(".upload");
    std::fs::write(&file, vec![b'u'; UPLOAD_BYTES]).unwrap();
    // Too large for a site that serves files.
    for (flag, arguments) in [("--http2-prior-knowledge", vec!["--h2c"]), ("--http2", certificate.arguments())] {
        let server = Server::start(folder.path(), &arguments);
        for _ in 0..UPLOADS {
            assert_eq!(upload(&server, flag, "/1k", &file), "413 2");
        }
    }
    // Without a password, and refused by an origin.
    let own = Folder::new();
    let staff = "basic-auth realm=\"Staff\" {\n user \"a\" \"$2b$04$vQ6G4GQfbSCHOeU9kdBQnOHRbHGn2vGYXcNoKzBqXQvFXnOJZ1IQ2\"\n }";
    for (before, expected) in [("", "403 2"), (staff, "401 2")] {
        let server = accelerate_http1(&own, &refusing_origin(), before);
        for _ in 0..UPLOADS {
            assert_eq!(upload(&server, "--http2-prior-knowledge", "/", &file), expected);
        }
    }
}
