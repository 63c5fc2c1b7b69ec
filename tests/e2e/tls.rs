//! TLS: real clients, resumption, what is refused and how, and a third-party scanner.

use super::harness::{Folder, Server, TICK, flatout, read_to_end};
use super::http2::{count_of, site};
use super::tool::{run, said, test_tool, tool};
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Stdio;

/// The close reasons that the tests here cause.
pub(crate) const CLOSES: [&str; 2] = ["tls_handshake_timeout", "tls_failed"];

/// A certificate for localhost, and the authority that signed it, in files.
#[derive(Debug)]
pub(crate) struct Certificate {
    folder: Folder,
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Certificate {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let openssl = |arguments: &[&str]| run(tool("openssl").current_dir(folder.path()).args(arguments));
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        let subject = ["-subj", "/CN=Test authority", "-days", "30", "-addext", "basicConstraints=critical,CA:TRUE"];
        let usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", "ca.key", "-out", "ca.pem"];
        openssl(&[&["req", "-x509"][..], &curve, &subject, &usage].concat());
        openssl(
            &[&["req", "-new"][..], &curve, &["-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "csr"]].concat(),
        );
        folder.write(
            "extensions",
            b"subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n\
              keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n\
              subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n",
        );
        let sign =
            ["x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "20"];
        openssl(&[&sign[..], &["-extfile", "extensions", "-out", "site.pem"]].concat());
        let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
        folder.write("chain.pem", &[read("site.pem"), read("ca.pem")].concat());
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (chain, key) = (path("chain.pem"), path("key.pem"));
        Self { folder, chain, key }
    }

    /// The arguments that make a server use it.
    pub(crate) fn arguments(&self) -> Vec<&str> {
        vec!["--tls-cert", &self.chain, "--tls-key", &self.key]
    }

    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }
}

fn start(folder: &Folder, certificate: &Certificate, more: &[&str]) -> Server {
    Server::start(folder.path(), &[&certificate.arguments()[..], more].concat())
}

/// The output of `openssl s_client` when it sends `request`.
fn s_client(server: &Server, arguments: &[&str], request: &str) -> String {
    let mut child = tool("openssl")
        .args(["s_client", "-connect", &server.address.to_string(), "-servername", "localhost", "-ign_eof"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A failed handshake closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(request.as_bytes());
    said(&child.wait_with_output().unwrap())
}

const REQUEST: &str = "GET /1k HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// RFC 9112 §3.2.2: a server accepts the absolute form with either scheme where it serves https, and with http
/// elsewhere.
#[test]
fn an_absolute_form_target_may_use_the_scheme_of_the_listener() {
    let (folder, certificate) = (site(), Certificate::new());
    let fields = "Host: localhost\r\nConnection: close\r\n\r\n";
    let server = start(&folder, &certificate, &[]);
    for target in ["https://localhost/1k", "HTTPS://localhost/1k", "http://localhost/1k"] {
        let said = s_client(&server, &[], &format!("GET {target} HTTP/1.1\r\n{fields}"));
        assert!(said.contains("HTTP/1.1 200 "), "{target}: {said}");
    }
    let plain = Server::start(folder.path(), &[]);
    for (target, status) in [("http://localhost/1k", 200), ("https://localhost/1k", 421)] {
        let said = plain.exchange(format!("GET {target} HTTP/1.1\r\n{fields}").as_bytes());
        assert!(said.starts_with(format!("HTTP/1.1 {status} ").as_bytes()), "{target}");
    }
}

#[test]
fn curl_verifies_the_certificate_and_gets_every_file() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = start(&folder, &certificate, &[]);
    let authority = certificate.authority();
    let curl = |path: &str, arguments: &[&str]| {
        run(tool("curl").arg("-sS").arg("--cacert").arg(&authority).args(arguments).arg(server.url(path)))
    };
    for version in ["--tlsv1.3", "--tls-max=1.2"] {
        let version = version.split('=').collect::<Vec<_>>();
        let home = curl("/", &[&version[..], &["--http1.1", "-i"]].concat());
        assert!(home.starts_with("HTTP/1.1 200 OK\r\n") && home.ends_with("home"), "{home}");
        let got = folder.path().join(".got");
        curl("/big", &[&version[..], &["--http1.1", "-o", got.to_str().unwrap()]].concat());
        assert!(fs::read(&got).unwrap() == fs::read(folder.path().join("big")).unwrap());
    }
    // Without ALPN it is HTTP/1.1, and one connection carries several requests.
    let both = run(tool("curl").args(["-sSk", "--no-alpn"]).arg(server.url("/1k")).arg(server.url("/50k")));
    assert_eq!(both.len(), 51_024);
    // A slow reader gets everything, and the server buffers little for it.
    let before = server.memory_kb("RssAnon");
    let slow = curl("/big", &["--http1.1", "--limit-rate", "3M"]);
    assert_eq!(slow.len(), 5_000_000);
    assert!(server.memory_kb("RssAnon") < before + 2048);
    let (status, text) = server.stop();
    assert!(status.success(), "{text}");
    assert_eq!((count_of(&text, "tls_handshakes"), count_of(&text, "closed_tls_failed")), (6, 0), "{text}");
}

#[test]
fn sessions_are_resumed_by_tickets_and_closed_with_close_notify() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = start(&folder, &certificate, &["--workers", "2"]);
    for version in ["-tls1_3", "-tls1_2"] {
        let session = folder.path().join(".session");
        let session = session.to_str().unwrap();
        let first = s_client(&server, &[version, "-sess_out", session], REQUEST);
        assert!(first.contains("HTTP/1.1 200 OK") && first.contains("New, TLSv1"), "{first}");
        // A TLS session that was closed properly.
        assert!(first.contains("closed\n") && !first.contains("unexpected eof"), "{first}");
        // Another worker may respond: all workers of a process share the ticket keys.
        for _ in 0..4 {
            let again = s_client(&server, &[version, "-sess_in", session], REQUEST);
            assert!(again.contains("HTTP/1.1 200 OK") && again.contains("Reused, TLSv1"), "{again}");
        }
    }
    let (_, text) = server.stop();
    assert_eq!((count_of(&text, "tls_handshakes"), count_of(&text, "tls_resumptions")), (10, 8), "{text}");
}

#[test]
fn clients_without_tls_get_an_explanation() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = start(&folder, &certificate, &["--handshake-timeout", "300ms"]);
    let plain = String::from_utf8(server.exchange(REQUEST.as_bytes())).unwrap();
    assert!(plain.starts_with("HTTP/1.1 400 ") && plain.contains("accepts HTTPS, not HTTP"), "{plain}");
    assert!(plain.contains("Connection: close"));
    // A record of another protocol, an endless record, and an alert.
    for bytes in [
        &b"\x16\x03\x01\xff\xff\x01"[..],
        b"\x00\x01\x02\x03\x04\x05",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x80\x2e\x01",
    ] {
        let _ = server.exchange(bytes);
    }
    // Nothing at all, and a ClientHello without an end, until the timeout.
    let mut silent = server.connect();
    let mut begun = server.connect();
    begun.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").unwrap();
    assert!(read_to_end(&mut silent).is_empty() && read_to_end(&mut begun).is_empty());
    let (_, text) = server.stop();
    assert_eq!(count_of(&text, "refused_http_on_tls_port"), 1, "{text}");
    assert_eq!(count_of(&text, "closed_tls_handshake_timeout"), 2, "{text}");
    assert_eq!(count_of(&text, "closed_tls_failed"), 4, "{text}");
}

#[test]
fn handshakes_without_common_parameters_are_logged_by_name() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = start(&folder, &certificate, &[]);
    let refused = |arguments: &[&str], alert: &str| {
        let said = s_client(&server, &[arguments, &["-cipher", "ALL:@SECLEVEL=0"]].concat(), "");
        assert!(said.contains(alert), "{arguments:?}: {said}");
    };
    let said = s_client(&server, &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"], "");
    assert!(said.contains("handshake failure"), "{said}");
    refused(&["-tls1_1"], "alert handshake failure");
    refused(&["-alpn", "spdy/3"], "no application protocol");
    let (_, text) = server.stop();
    for name in ["tls_no_common_version", "tls_no_common_protocol", "tls_no_common_cipher"] {
        assert_eq!(count_of(&text, name), 1, "{name}: {text}");
    }
}

#[test]
fn a_file_changed_during_transfer_truncates_the_response() {
    let (folder, certificate) = (site(), Certificate::new());
    fs::write(folder.path().join("huge"), vec![b'h'; 30_000_000]).unwrap();
    std::thread::sleep(TICK);
    let server = start(&folder, &certificate, &[]);
    let mut child = tool("curl")
        .args(["-sS", "-k", "--http1.1", "--limit-rate", "2M", &server.url("/huge")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut vec![0; 100_000]).unwrap();
    OpenOptions::new().write(true).open(folder.path().join("huge")).unwrap().write_all_at(b"new", 5).unwrap();
    let mut rest = Vec::new();
    // Faster from here on: only the end matters.
    output.read_to_end(&mut rest).unwrap();
    assert!(!child.wait().unwrap().success() && rest.len() + 100_000 < 30_000_000);
    let (_, text) = server.stop();
    assert_eq!(count_of(&text, "closed_file_changed"), 1, "{text}");
}

#[test]
fn a_file_that_grows_during_transfer_is_sent_as_it_was() {
    let (folder, certificate) = (site(), Certificate::new());
    let content = vec![b'h'; 30_000_000];
    fs::write(folder.path().join("huge"), &content).unwrap();
    std::thread::sleep(TICK);
    let server = start(&folder, &certificate, &[]);
    let mut child =
        tool("curl").args(["-sS", "-k", "--http1.1", &server.url("/huge")]).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut received = vec![0; 100_000];
    output.read_exact(&mut received).unwrap();
    OpenOptions::new().append(true).open(folder.path().join("huge")).unwrap().write_all(b"more").unwrap();
    output.read_to_end(&mut received).unwrap();
    assert!(child.wait().unwrap().success() && received == content, "{} bytes", received.len());
}

#[test]
fn unusable_certificates_are_named() {
    let (one, other) = (Certificate::new(), Certificate::new());
    let folder = site();
    let fails = |chain: &str, key: &str| {
        let mut command = flatout();
        command.arg("serve").arg(folder.path()).args([
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            chain,
            "--tls-key",
            key,
        ]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        said(&output)
    };
    assert!(fails(&one.chain, &other.key).contains("the private key belongs to another certificate"));
    assert!(fails(&one.key, &one.key).contains("no certificate in PEM"));
    assert!(fails(&one.chain, &one.chain).contains("no private key in PEM"));
    assert!(fails("/nowhere", &one.key).contains("cannot read /nowhere"));
}

/// Mozilla's intermediate profile, as checked by sslyze.
#[test]
fn sslyze_confirms_the_intermediate_profile() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = start(&folder, &certificate, &[]);
    let output = test_tool("sslyze", "sslyze/bin")
        .args(["--mozilla_config", "intermediate", "--certinfo_ca_file"])
        .arg(certificate.authority())
        .arg(format!("localhost:{}", server.address.port()))
        .output()
        .unwrap();
    let said = said(&output);
    assert!(output.status.success() && said.contains("OK - Compliant"), "{said}");
    assert!(said.contains("Heartbleed") && !said.contains("VULNERABLE -"), "{said}");
}

#[test]
fn python_reads_a_complete_response_and_close_notify() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = start(&folder, &certificate, &[]);
    let script = "import ssl, socket, sys\n\
        context = ssl.create_default_context(cafile=sys.argv[1])\n\
        raw = socket.create_connection(('127.0.0.1', int(sys.argv[2])))\n\
        tls = context.wrap_socket(raw, server_hostname='localhost', suppress_ragged_eofs=False)\n\
        tls.sendall(b'GET /50k HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n')\n\
        total = 0\n\
        while part := tls.recv(65536): total += len(part)\n\
        print(tls.version(), total)\n";
    let said = run(tool("python3")
        .args(["-c", script])
        .arg(certificate.authority())
        .arg(server.address.port().to_string())
        .stdin(Stdio::null()));
    let total: usize = said.trim().strip_prefix("TLSv1.3 ").unwrap().parse().unwrap();
    assert!(total > 50_000, "{said}");
}

#[test]
fn a_missing_preface_times_out_like_a_handshake() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = start(&folder, &certificate, &["--handshake-timeout", "2s"]);
    // -ign_eof keeps our side open.
    let said = s_client(&server, &["-alpn", "h2"], "");
    assert!(said.contains("ALPN protocol: h2"), "{said}");
    let (_, text) = server.stop();
    assert_eq!(count_of(&text, "closed_preface_timeout"), 1, "{text}");
}
