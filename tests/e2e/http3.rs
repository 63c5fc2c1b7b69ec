//! HTTP/3 with third-party clients.

mod limits;
mod stacks;
mod transport;

use super::accelerator::uploads::expecting_origin;
use super::browser::Browser;
use super::harness::{Folder, Server, TIMEOUT, wait_until};
use super::http2::count_of;
use super::site::{Site, configure, prepare, rss_anon_kb};
use super::tls::Certificate;
use super::tool::{run, said, test_tool};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Instant;

/// The close reasons that the tests here cause.
pub(crate) const CLOSES: [&str; 5] = ["h3_protocol", "h3_client_error", "h3_excess", "h3_flood", "quic_protocol"];

const MEBIBYTE: usize = 1 << 20;

/// Bound of the server's memory for a handshake that does not go on.
const HANDSHAKE_BYTES_MAX: u64 = 48 << 10;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/http3").join(name)
}

fn python(name: &str) -> Command {
    let mut command = test_tool("python", "http3/bin");
    command.arg(script(name));
    command
}

/// The output of aioquic after `arguments`.
pub(crate) fn aioquic(address: SocketAddr, command: &str, arguments: &[&str]) -> Value {
    let said = run(python("client.py").arg(command).arg(address.to_string()).args(arguments));
    serde_json::from_str(said.trim()).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// A script that runs until it gets a line on standard input, and its output up to then.
pub(crate) struct Held {
    child: Child,
    input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}

impl Held {
    pub(crate) fn start(address: SocketAddr, command: &str, arguments: &[&str]) -> Self {
        let (held, first) = Self::start_with(address, command, arguments);
        assert_ne!(first, Value::Null);
        held
    }

    /// The script, and its first line.
    fn start_with(address: SocketAddr, command: &str, arguments: &[&str]) -> (Self, Value) {
        let mut child = python("client.py")
            .arg(command)
            .arg(address.to_string())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut held = Self { child, input, output: BufReader::new(output) };
        let first = held.line();
        (held, first)
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or(Value::Null)
    }

    pub(crate) fn finish(mut self) -> Value {
        self.input.write_all(b"\n").unwrap();
        let last = self.line();
        assert!(self.child.wait().unwrap().success());
        last
    }
}

fn site() -> Folder {
    Folder::with(&[
        ("index.html", b"<!doctype html><title>by three</title>home"),
        ("1k", &[b'k'; 1024]),
        ("10m", &vec![b'm'; 10 * MEBIBYTE]),
    ])
}

/// Serves a site over HTTP/3 with `inside` in its block.
fn serve(folder: &Folder, certificate: &Certificate, workers: usize, inside: &str) -> Server {
    let Certificate { chain, key, .. } = certificate;
    let text = format!(
        "workers {workers}
admin off=#true
site \"*\" {{
    listen \"127.0.0.1:0\" tls=#true http3=#true
    tls cert=\"{chain}\" key=\"{key}\"
    {inside}
}}
"
    );
    Server::run(folder, &text)
}

fn serve_files(folder: &Folder, certificate: &Certificate, workers: usize) -> Server {
    serve(folder, certificate, workers, &format!("files \"{}\"", folder.path().display()))
}

/// An origin that echoes request content.
pub(crate) struct Echo(Child, pub(crate) String, BufReader<std::process::ChildStdout>);

impl Echo {
    pub(crate) fn start() -> Self {
        let mut child = python("origin.py").stdout(Stdio::piped()).spawn().unwrap();
        let (mut port, mut output) = (String::new(), BufReader::new(child.stdout.take().unwrap()));
        output.read_line(&mut port).unwrap();
        Self(child, format!("http://127.0.0.1:{}", port.trim()), output)
    }

    /// Waits until a request for `/slow` has arrived.
    fn wait_for_slow(&mut self) {
        let mut line = String::new();
        self.2.read_line(&mut line).unwrap();
        assert_eq!(line, "slow\n");
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn files_are_served_completely() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = serve_files(&folder, &certificate, 1);
    let answers = aioquic(server.address, "get", &["/", "/1k", "/10m", "/missing"]);
    let statuses: Vec<_> = answers.as_array().unwrap().iter().map(|answer| answer["status"].as_u64()).collect();
    assert_eq!(statuses, [Some(200), Some(200), Some(200), Some(404)]);
    assert_eq!(answers[0]["body"], "<!doctype html><title>by three</title>home");
    assert!(answers[0]["fields"]["date"].is_string() && answers[0]["fields"]["etag"].is_string(), "{answers}");
    let sizes = [answers[1]["size"].as_u64(), answers[2]["size"].as_u64()];
    assert_eq!(sizes, [Some(1024), Some(10 * MEBIBYTE as u64)]);
    let digest = run(super::tool::tool("sha256sum").arg(folder.path().join("10m")));
    assert_eq!(Some(answers[2]["sha256"].as_str().unwrap()), digest.split_whitespace().next());
    let head = aioquic(server.address, "head", &["/1k"]);
    assert_eq!((head["status"].as_u64(), head["size"].as_u64()), (Some(200), Some(0)));
    assert_eq!(head["fields"]["content-length"], "1024");
    let (status, text) = server.stop();
    assert!(status.success(), "{text}");
    assert_eq!((count_of(&text, "http3_connections"), count_of(&text, "status_2xx")), (2, 4), "{text}");
}

/// With a host in the path, or an invalid authority, a site, a cache and an origin could disagree about the host.
#[test]
fn a_request_names_one_host() {
    const CASES: [(&str, &str, u64); 7] = [
        ("localhost", "/1k", 200),
        ("localhost", "//1k", 301),
        ("localhost", "https://other.example/1k", 400),
        ("localhost", "https://localhost/1k", 400),
        ("localhost", "1k", 400),
        ("localhost,other.example", "/1k", 400),
        ("localhost, other.example", "/1k", 400),
    ];
    let (folder, certificate) = (site(), Certificate::new());
    let server = serve_files(&folder, &certificate, 1);
    let arguments: Vec<_> = CASES.iter().flat_map(|(host, path, _)| [*host, *path]).collect();
    let answers = aioquic(server.address, "named", &arguments);
    for ((host, path, status), answer) in CASES.iter().zip(answers.as_array().unwrap()) {
        assert_eq!(answer["status"], *status, "{host} {path}: {answer}");
    }
    let (_, text) = server.stop();
    assert_eq!((count_of(&text, "refused_target"), count_of(&text, "refused_host_invalid")), (3, 2), "{text}");
}

#[test]
fn many_requests_succeed_on_many_connections_and_workers() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = serve_files(&folder, &certificate, 3);
    let statuses = aioquic(server.address, "many", &["/1k", "20", "50"]);
    assert_eq!(statuses.as_array().unwrap().len(), 1000);
    assert!(statuses.as_array().unwrap().iter().all(|status| status == 200), "{statuses}");
    let (_, text) = server.stop();
    // The kernel steers every packet to the right worker.
    assert_eq!((count_of(&text, "http3_connections"), count_of(&text, "quic_datagrams_relayed")), (20, 0), "{text}");
}

#[test]
fn resumed_sessions_are_counted() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = serve_files(&folder, &certificate, 1);
    let connections = aioquic(server.address, "resume", &["/1k", "4"]);
    for (index, connection) in connections.as_array().unwrap().iter().enumerate() {
        assert_eq!(
            (&connection["status"], &connection["resumed"]),
            (&200.into(), &(index > 0).into()),
            "{connections}"
        );
    }
    let (_, text) = server.stop();
    assert_eq!((count_of(&text, "tls_handshakes"), count_of(&text, "tls_resumptions")), (4, 3), "{text}");
}

#[test]
fn content_flows_both_ways_through_the_accelerator() {
    let (folder, certificate, origin) = (site(), Certificate::new(), Echo::start());
    let server = serve(&folder, &certificate, 1, &format!("cache\nproxy \"{}\"", origin.1));
    for bytes in ["0", "1000", &(10 * MEBIBYTE / 1000 * 1000).to_string()] {
        let answer = aioquic(server.address, "post", &["/echo", bytes]);
        assert_eq!(answer["status"], 200, "{answer}");
        assert_eq!(answer["sha256"], answer["sent"], "{answer}");
    }
    let answer = aioquic(server.address, "post", &["/echo", "1000", "te"]);
    assert_eq!((&answer["sha256"], &answer["fields"]["x-trailers"]), (&answer["sent"], &"x-checksum: 7".into()));
    let answers = aioquic(server.address, "get", &["/trailers", "/hints"]);
    assert_eq!((&answers[0]["body"], &answers[0]["trailers"]["x-sum"]), (&"onetwo".into(), &"6".into()), "{answers}");
    assert_eq!(answers[1]["interim"][0], 103, "{answers}");
    // Two visitors share one stored response.
    for word in ["fwd=", "hit"] {
        let answers = aioquic(server.address, "get", &["/kept"]);
        assert_eq!(answers[0]["body"], "kept", "{answers}");
        assert!(answers[0]["fields"]["cache-status"].as_str().unwrap().contains(word), "{answers}");
    }
}

/// RFC 9110 §10.1.1.
#[test]
fn the_origin_decides_whether_a_client_sends_its_content() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = serve(&folder, &certificate, 1, &format!("proxy \"{}\"", expecting_origin()));
    for (path, status, body, is_sent) in [("/wanted", 200, "content", true), ("/refused", 413, "no", false)] {
        let answer = aioquic(server.address, "expect", &[path, "content"]);
        assert_eq!(
            (&answer["status"], &answer["body"], &answer["sent"]),
            (&status.into(), &body.into(), &is_sent.into())
        );
        assert_eq!(answer["interim"].as_array().unwrap().len(), usize::from(is_sent), "{answer}");
    }
}

#[test]
fn a_cancelled_response_ends_only_its_stream() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = serve_files(&folder, &certificate, 1);
    let answer = aioquic(server.address, "cancel", &["/10m", "/1k"]);
    assert_eq!(answer["again"], 200, "{answer}");
    assert!(answer["size"].as_u64().unwrap() < 10 * MEBIBYTE as u64, "{answer}");
    let (_, text) = server.stop();
    assert_eq!(count_of(&text, "http3_streams_cut"), 1, "{text}");
}

#[test]
fn a_client_may_change_its_port() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = serve_files(&folder, &certificate, 3);
    let answer = aioquic(server.address, "migrate", &["/1k"]);
    assert_eq!(answer["closed"], false, "{answer}");
    assert!(answer["responses"].as_array().unwrap().iter().all(|response| response["size"] == 1024), "{answer}");
    let (_, text) = server.stop();
    assert_eq!(count_of(&text, "http3_connections"), 1, "{text}");
}

#[test]
fn libcurl_uses_http3_and_finds_it_in_alt_svc() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = serve_files(&folder, &certificate, 1);
    let program = "
import pycurl, sys
from io import BytesIO
def get(version):
    body, head, curl = BytesIO(), BytesIO(), pycurl.Curl()
    for option, value in ((curl.URL, sys.argv[1]), (curl.HTTP_VERSION, version), (curl.SSL_VERIFYPEER, 0),
                          (curl.SSL_VERIFYHOST, 0), (curl.WRITEDATA, body), (curl.HEADERFUNCTION, head.write)):
        curl.setopt(option, value)
    curl.perform()
    return curl.getinfo(curl.RESPONSE_CODE), len(body.getvalue()), head.getvalue().decode()
for version in (31, 2, 4):
    print(get(version))
";
    let mut command = test_tool("python", "http3/bin");
    let text = run(command.args(["-c", program]).arg(server.url("/10m")));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("(200, 10485760, ")), "{text}");
    assert!(lines[0].contains("HTTP/3 200") && !lines[0].contains("alt-svc"), "{text}");
    let announced = format!("h3=\":{}\"; ma=86400", server.address.port());
    assert!(lines[1].contains(&format!("Alt-Svc: {announced}")), "{text}");
    assert!(lines[2].contains(&format!("alt-svc: {announced}")), "{text}");
}

/// The DOM that Chromium builds from a page over HTTP/3.
fn chromium_dom(server: &Server, certificate: &Certificate, path: &str) -> String {
    let port = server.address.port();
    let origin = format!("--origin-to-force-quic-on=localhost:{port}");
    // Where QUIC is forced, Chromium does not fall back from ::1.
    let resolver = "--host-resolver-rules=MAP localhost 127.0.0.1";
    let browser = Browser::new().trusting(certificate).with("--enable-quic").with(&origin).with(resolver);
    browser.dom_at_once(&format!("https://localhost:{port}{path}"))
}

#[test]
fn chromium_loads_a_page() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = serve_files(&folder, &certificate, 1);
    let dom = chromium_dom(&server, &certificate, "/");
    assert!(dom.contains("by three"), "{dom}");
    let (_, text) = server.stop();
    assert!(count_of(&text, "http3_connections") > 0, "{text}");
}

/// Violations that end the connection: the name in the log, and the error code that the client receives.
const VIOLATIONS: [(&str, &str, u64); 40] = [
    ("data before settings", "h3_missing_settings", 0x10a),
    ("settings twice", "h3_settings_repeated", 0x105),
    ("data on the control stream", "h3_control_frame", 0x105),
    ("headers on the control stream", "h3_control_frame", 0x105),
    ("push promise on the control stream", "h3_control_frame", 0x105),
    ("second control stream", "h3_stream_repeated", 0x103),
    ("second encoder stream", "h3_stream_repeated", 0x103),
    ("second decoder stream", "h3_stream_repeated", 0x103),
    ("control stream closed", "h3_critical_stream_closed", 0x104),
    ("control stream reset", "h3_critical_stream_closed", 0x104),
    ("encoder stream closed", "h3_critical_stream_closed", 0x104),
    ("decoder stream closed", "h3_critical_stream_closed", 0x104),
    ("client push stream", "h3_push_stream", 0x103),
    ("setting repeated", "h3_setting_repeated", 0x109),
    ("setting of http2", "h3_setting_reserved", 0x109),
    ("setting truncated", "h3_frame_length", 0x106),
    ("extended connect of two", "h3_setting_value", 0x109),
    ("frame of http2", "h3_http2_frame", 0x105),
    ("goaway truncated", "h3_frame_length", 0x106),
    ("goaway increased", "h3_goaway_increased", 0x108),
    ("max push id decreased", "h3_max_push_id_decreased", 0x108),
    ("cancel push unknown", "h3_push_id", 0x108),
    ("frame too long", "h3_frame_length", 0x106),
    ("data before headers", "h3_data_first", 0x105),
    ("settings on a request", "h3_request_frame", 0x105),
    ("goaway on a request", "h3_request_frame", 0x105),
    ("cancel push on a request", "h3_request_frame", 0x105),
    ("max push id on a request", "h3_request_frame", 0x105),
    ("push promise of a client", "h3_request_frame", 0x105),
    ("frame truncated", "h3_frame_truncated", 0x106),
    ("http2 frame on a request", "h3_http2_frame", 0x105),
    ("section invalid", "h3_section_invalid", 0x200),
    ("section of a missing entry", "h3_section_invalid", 0x200),
    ("static index invalid", "h3_section_invalid", 0x200),
    ("capacity too large", "h3_encoder_instruction", 0x201),
    ("encoder names a missing entry", "h3_encoder_instruction", 0x201),
    ("decoder increments by zero", "h3_decoder_instruction", 0x202),
    ("decoder acknowledges nothing", "h3_decoder_instruction", 0x202),
    ("fields far too large", "h3_section_excess", 0x107),
    ("rapid reset", "h3_rapid_reset", 0x107),
];

/// Errors that end only their stream: the name in the log, and the error code that the client receives.
const STREAM_ERRORS: [(&str, &str, u64); 19] = [
    ("upper case", "stream_field_name", 0x10e),
    ("line feed in a value", "stream_field_value", 0x10e),
    ("space before a value", "stream_field_space", 0x10e),
    ("pseudo-field repeated", "stream_pseudo_repeated", 0x10e),
    ("pseudo-field after fields", "stream_pseudo_order", 0x10e),
    ("pseudo-field unknown", "stream_pseudo_field", 0x10e),
    ("path missing", "stream_pseudo_missing", 0x10e),
    ("method missing", "stream_pseudo_missing", 0x10e),
    ("scheme missing", "stream_pseudo_missing", 0x10e),
    ("status in a request", "stream_pseudo_field", 0x10e),
    ("pseudo-field in trailers", "stream_pseudo_field", 0x10e),
    ("connection field", "stream_connection_field", 0x10e),
    ("te of gzip", "stream_connection_field", 0x10e),
    ("length invalid", "stream_length_invalid", 0x10e),
    ("lengths differ", "stream_lengths_differ", 0x10e),
    ("content longer than declared", "stream_content_too_long", 0x10e),
    ("content shorter than declared", "stream_content_too_short", 0x10e),
    ("trailers too large", "stream_section_too_large", 0x10e),
    ("request without fields", "stream_incomplete", 0x10d),
];

#[test]
fn each_violation_has_an_error_code_and_a_log_name() {
    let (folder, certificate) = (site(), Certificate::new());
    let log = folder.path().join(".log");
    let inside = format!("files \"{}\"\n    log \"{}\"", folder.path().display(), log.display());
    let server = serve(&folder, &certificate, 1, &inside);
    let mut command = python("violations.py");
    command.arg(server.address.to_string());
    let ended: Value = serde_json::from_str(run(&mut command).trim()).unwrap();
    for (case, name, number) in VIOLATIONS {
        assert_eq!(ended[case], serde_json::json!(["closed", number, name]), "{case}: {ended:#}");
    }
    for (case, name, number) in STREAM_ERRORS {
        assert_eq!(ended[case], serde_json::json!(["reset", number, ""]), "{case}, {name}: {ended:#}");
    }
    assert_eq!(ended["unknown frames and streams"][0], "answered", "{ended:#}");
    let (_, text) = server.stop();
    let lines = fs::read_to_string(log).unwrap();
    // Each has a counter and a line in the log.
    for table in [&VIOLATIONS[..], &STREAM_ERRORS] {
        for (_, name, _) in table {
            let count = table.iter().filter(|(_, other, _)| other == name).count();
            let logged = lines.lines().filter(|line| line.split(' ').any(|word| word == *name)).count();
            assert_eq!(count_of(&text, name), logged as u64, "{name}: {text}\n{lines}");
            // Other cases may end the same way, whatever the client sees.
            assert!(logged >= count, "{name}: {text}\n{lines}");
        }
    }
    // STREAM_LIMIT_ERROR (RFC 9000 §20.1).
    assert_eq!(ended["too many streams"][1], 4, "{ended:#}");
    for name in ["h3_protocol", "h3_excess", "h3_flood", "quic_protocol"] {
        assert!(count_of(&text, &format!("closed_{name}")) > 0, "{name}: {text}");
    }
}

/// A site with an admin socket over HTTP/3.
fn run_site(workers: usize, certificate: &Certificate) -> Site {
    let folder = prepare("", "");
    let text = inside(folder.path(), certificate);
    run_site_with(folder, workers, &text)
}

fn run_site_with(folder: Folder, workers: usize, inside: &str) -> Site {
    configure(&folder, &format!("workers {workers}"), inside);
    Site::run(folder)
}

fn inside(folder: &Path, certificate: &Certificate) -> String {
    format!("{}\nfiles \"{}/www\"", listen(certificate), folder.display())
}

fn listen(certificate: &Certificate) -> String {
    let Certificate { chain, key, .. } = certificate;
    format!("listen \"127.0.0.1:0\" tls=#true http3=#true\ntls cert=\"{chain}\" key=\"{key}\"")
}

#[test]
fn reloads_keep_connections() {
    const RELOADS: usize = 200;
    let certificate = Certificate::new();
    let site = run_site(2, &certificate);
    let crowd = Held::start(site.address(), "load", &["/", "8", "4"]);
    for _ in 0..RELOADS {
        let output = site.order(&["reload"]);
        assert!(output.status.success(), "{}", said(&output));
    }
    let crowd = crowd.finish();
    println!("{crowd}");
    assert_eq!((crowd["failed"].as_array().unwrap().len(), crowd["farewells"].as_u64()), (0, Some(0)), "{crowd}");
    assert!(crowd["done"].as_u64() > Some(8), "{crowd}");
}

#[test]
fn upgrades_fail_no_request() {
    const UPGRADES: usize = 20;
    let certificate = Certificate::new();
    let site = run_site(2, &certificate);
    let crowd = Held::start(site.address(), "load", &["/", "8", "4"]);
    for index in 0..UPGRADES {
        let before = site.pid();
        configure(&site.folder, &format!("workers {}", 1 + index % 3), &inside(site.folder.path(), &certificate));
        let output = site.order(&["upgrade"]);
        assert!(output.status.success(), "{}", said(&output));
        let after = site.pid();
        assert_ne!(before, after);
    }
    let crowd = crowd.finish();
    println!("{crowd}");
    assert_eq!(crowd["failed"].as_array().unwrap().len(), 0, "{crowd}");
    assert!(crowd["done"].as_u64() > Some(UPGRADES as u64) && crowd["farewells"].as_u64() > Some(0), "{crowd}");
}

#[test]
fn a_drain_finishes_requests_in_progress() {
    let (folder, certificate, mut origin) = (site(), Certificate::new(), Echo::start());
    let server = serve(&folder, &certificate, 1, &format!("proxy \"{}\"", origin.1));
    let address = server.address;
    let client = std::thread::spawn(move || aioquic(address, "get", &["/slow"]));
    let begun = Instant::now();
    origin.wait_for_slow();
    let (status, text) = server.stop();
    assert!(status.success(), "{text}");
    assert_eq!(client.join().unwrap()[0]["body"], "onetwo");
    // Either side may notice first.
    let closes = ["closed_draining", "closed_client_closed"].map(|name| count_of(&text, name));
    assert_eq!(closes.iter().sum::<u64>(), 1, "{text}");
    assert!(begun.elapsed() < TIMEOUT);
}
