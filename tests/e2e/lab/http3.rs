//! The lab over HTTP/3: its figures, and its names for failures.

use super::{Bench, bench};
use crate::e2e::harness::{Folder, Server};
use crate::e2e::tls::Certificate;
use crate::e2e::tool::test_tool;
use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Stdio};

/// A server over HTTP/3 and TCP, with a certificate for localhost and 127.0.0.1.
pub(super) fn secure() -> (Folder, Certificate, Server) {
    let site = Folder::with(&[("a.txt", &[b'a'; 1024]), ("large", &vec![b'l'; 3 << 20])]);
    let certificate = Certificate::new();
    let Certificate { chain, key, .. } = &certificate;
    let text = format!(
        "workers 1
admin off=#true
site \"*\" {{
    listen \"127.0.0.1:0\" tls=#true http3=#true
    tls cert=\"{chain}\" key=\"{key}\"
    files \"{}\"
}}
",
        site.path().display()
    );
    let server = Server::run(&site, &text);
    (site, certificate, server)
}

/// The details of the failures counted as `kind`.
fn details(run: &Bench, kind: &str) -> Vec<String> {
    let all = run.json["errors"]["details"].as_array().unwrap();
    let of_kind = all.iter().filter(|detail| detail["kind"] == kind);
    of_kind.map(|detail| detail["detail"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn http_3_reports_the_same_figures_as_the_other_versions() {
    let (site, certificate, server) = secure();
    let port = server.address.port();
    let url = format!("https://localhost:{port}/a.txt");
    let authority = certificate.authority();
    let base = [url.as_str(), "--cacert", authority.to_str().unwrap(), "--threads", "1", "--http", "3"];
    let run = bench(&[&base[..], &["-n", "200", "-c", "4"]].concat());
    assert_eq!((run.code, run.number("responses"), run.number("connections")), (Some(0), 200, 4), "{run:#?}");
    assert_eq!(run.number("body_bytes_in"), 200 * 1024);
    assert_eq!(run.step()["phases"]["connect"]["count"], 4);
    assert!(run.step()["phases"]["tls"].is_null(), "the handshake is a part of connecting");
    assert!(run.stdout.contains("HTTP/3"), "{}", run.stdout);
    // Streams share connections, and streams beyond the server's limit wait.
    let run = bench(&[&base[..], &["-n", "600", "-c", "2", "--streams", "10"]].concat());
    assert_eq!((run.code, run.number("responses"), run.number("connections")), (Some(0), 600, 2), "{run:#?}");
    let run = bench(&[&base[..], &["-n", "600", "-c", "1", "--streams", "200"]].concat());
    assert_eq!((run.code, run.number("responses"), run.number("connections")), (Some(0), 600, 1), "{run:#?}");
    // One connection per request; a fixed rate; large, verified content; uploads.
    let run = bench(&[&base[..], &["-n", "20", "-c", "1", "--close"]].concat());
    assert_eq!((run.code, run.number("responses"), run.number("connections")), (Some(0), 20, 20), "{run:#?}");
    let run = bench(&[&base[..], &["-n", "30", "--rate", "100"]].concat());
    assert_eq!((run.code, run.number("responses")), (Some(0), 30), "{run:#?}");
    let large = format!("https://127.0.0.1:{port}/large");
    let run = bench(&[&large, "--insecure", "--http", "3", "-n", "8", "-c", "2", "--verify-digest", "100%"]);
    assert_eq!((run.code, run.number("body_bytes_in")), (Some(0), 8 * (3 << 20)), "{run:#?}");
    let body = site.path().join("large");
    let body = body.to_str().unwrap();
    let run = bench(&[&base[..], &["-n", "4", "-c", "2", "--method", "PUT", "--body", body]].concat());
    // Files do not support PUT, and the server says so before the content has arrived.
    assert_eq!(run.number("responses"), 4, "{run:#?}");
    assert_eq!(run.json["status_classes"]["4xx"], 4, "{run:#?}");
    let run = bench(&[&base[..], &["-n", "10", "-c", "1", "--method", "HEAD"]].concat());
    assert_eq!((run.code, run.number("responses"), run.number("body_bytes_in")), (Some(0), 10, 0), "{run:#?}");
}

#[test]
fn failures_over_http_3_are_named() {
    let (_site, _certificate, server) = secure();
    let port = server.address.port();
    let url = format!("https://localhost:{port}/a.txt");
    let run = bench(&[&url, "-n", "2", "-c", "1", "--http", "3"]);
    assert_eq!((run.code, details(&run, "tls")), (Some(1), vec!["tls-untrusted".to_owned()]), "{run:#?}");
    let other = Certificate::new();
    let other = other.authority();
    let run = bench(&[&url, "-n", "2", "-c", "1", "--http", "3", "--cacert", other.to_str().unwrap()]);
    assert_eq!((run.code, details(&run, "tls")), (Some(1), vec!["tls-untrusted".to_owned()]), "{run:#?}");
    let wrong = format!("https://127.0.0.2:{port}/a.txt");
    let run = bench(&[&wrong, "-n", "1", "-c", "1", "--http", "3", "--timeout", "1s"]);
    assert_eq!((run.code, details(&run, "quic")), (Some(1), vec!["quic-silent".to_owned()]), "{run:#?}");
    // A port that receives packets and never responds.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}/", silent.local_addr().unwrap().port());
    let run = bench(&[&url, "-n", "1", "-c", "1", "--http", "3", "--insecure", "--timeout", "1s"]);
    assert_eq!((run.code, details(&run, "quic")), (Some(1), vec!["quic-silent".to_owned()]), "{run:#?}");
    assert!(run.stdout.contains("quic-silent"), "{}", run.stdout);
}

#[test]
fn connections_are_closed_at_the_end_of_a_run() {
    let (_site, certificate, server) = secure();
    let url = format!("https://localhost:{}/a.txt", server.address.port());
    let authority = certificate.authority();
    let base = [url.as_str(), "--cacert", authority.to_str().unwrap(), "--threads", "1", "--http", "3"];
    let run = bench(&[&base[..], &["-d", "500ms", "-c", "8", "--streams", "4"]].concat());
    assert_eq!(run.code, Some(0), "{run:#?}");
    // A draining server exits with 3 if it had to close connections.
    let (status, messages) = server.stop();
    assert_eq!(status.code(), Some(0), "{messages}");
}

/// A server based on aioquic.
struct Foreign(Child, String);

impl Foreign {
    fn start(certificate: &Certificate, mode: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/lab/http3/server.py");
        let arguments = [&certificate.chain, &certificate.key, mode];
        let mut child =
            test_tool("python", "http3/bin").arg(script).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self(child, format!("https://localhost:{}/a?b", port.trim()))
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Responses of another implementation, whose field sections refer to the dynamic table and may be blocked.
#[test]
fn responses_of_another_implementation_are_decoded() {
    let certificate = Certificate::new();
    let server = Foreign::start(&certificate, "serve");
    let authority = certificate.authority();
    let base = [&server.1[..], "--cacert", authority.to_str().unwrap(), "--threads", "1", "--http", "3"];
    let run = bench(&[&base[..], &["-n", "300", "-c", "2", "--streams", "20"]].concat());
    assert_eq!((run.code, run.number("responses"), run.number("connections")), (Some(0), 300, 2), "{run:#?}");
    assert_eq!(run.json["status_classes"]["1xx"], 300, "{run:#?}");
    let folder = Folder::with(&[("content", &vec![b'c'; 200_000])]);
    let content = folder.path().join("content");
    let content = content.to_str().unwrap();
    let run = bench(&[&base[..], &["-n", "10", "-c", "2", "--method", "POST", "--body", content]].concat());
    assert_eq!((run.code, run.number("body_bytes_in")), (Some(0), 2_000_000), "{run:#?}");
}

/// Requests that a server states not to have processed are no failures.
#[test]
fn requests_that_another_implementation_did_not_process_are_sent_again() {
    let certificate = Certificate::new();
    let authority = certificate.authority();
    // A connection is used for ten requests, or one of its requests is rejected.
    for (mode, connections, sent_again) in [("goaway", 30, 1), ("reject", 2, 2)] {
        let server = Foreign::start(&certificate, mode);
        let arguments = ["--cacert", authority.to_str().unwrap(), "--http", "3", "--threads", "1"];
        let load = ["-n", "300", "-c", "2", "--streams", "5"];
        let run = bench(&[&[&server.1[..]], &arguments[..], &load].concat());
        let errors = run.json["errors"]["total"].as_u64();
        assert_eq!((run.code, run.number("responses"), errors), (Some(0), 300, Some(0)), "{mode}: {run:#?}");
        let counted = run.step()["record"]["counts"]["sent_again"].as_u64().unwrap();
        assert!(run.number("connections") >= connections && counted >= sent_again, "{mode}: {counted} {run:#?}");
    }
}

#[test]
fn errors_of_another_implementation_are_named() {
    let certificate = Certificate::new();
    let authority = certificate.authority();
    for (mode, kind, name) in [
        ("reset", "http3", "H3_REQUEST_REJECTED"),
        ("close", "http3", "H3_INTERNAL_ERROR"),
        ("length", "http3", "H3_MESSAGE_ERROR"),
        ("no-settings", "http3", "h3_missing_settings"),
        ("no-http3", "http3", "not-spoken"),
    ] {
        let server = Foreign::start(&certificate, mode);
        let arguments = ["--cacert", authority.to_str().unwrap(), "--http", "3", "-n", "1", "-c", "1"];
        let run = bench(&[&[&server.1[..]], &arguments[..]].concat());
        assert_eq!((run.code, details(&run, kind)), (Some(1), vec![name.to_owned()]), "{mode}: {run:#?}");
    }
}
