//! Our own client against our own server, with exact counts, and its messages when things go wrong.

use super::harness::{Folder, Server, flatout, wait_until};
use super::process::Refusing;
use flatout_os::socket::new_socket;
use rustix::net::{bind, getsockname};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

/// More requests than any test waits for.
const ENDLESS: &str = "1000000000";

/// The exit status and output of a `flatout` command that ran to completion.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    /// Standard output, parsed as JSON.
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self:#?}"))
    }
}

fn run(verb: &str, arguments: &[&str]) -> Ended {
    let output = flatout().arg(verb).args(arguments).output().unwrap();
    let ended = Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    // Neither output is a terminal here.
    assert!(!ended.stdout.contains('\x1b') && !ended.stderr.contains('\x1b'), "{ended:#?}");
    ended
}

/// A bench, or another measurement, that is still running and writes its JSON to a file.
struct UnderWay {
    child: Child,
    folder: Folder,
}

impl UnderWay {
    fn start(arguments: &[&str]) -> Self {
        let folder = Folder::new();
        let mut command = flatout();
        command.args(arguments).arg("--json").arg(folder.path().join("result.json"));
        let words = |name: &str| Stdio::from(File::create(folder.path().join(name)).unwrap());
        let child = command.stdout(words("stdout")).stderr(words("stderr")).spawn().unwrap();
        Self { child, folder }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.read("result.json")).unwrap()
    }

    fn interrupt(&self) {
        assert!(Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Returns true if it has installed its handler for SIGINT.
    fn handles_interrupts(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        // SIGINT is signal 2, the second bit.
        u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0
    }

    /// Waits for it to exit, no longer than the timeout of all tests.
    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the bench ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn site() -> Folder {
    Folder::with(&[("a.txt", &[b'a'; 1024])])
}

/// Starts a server with a log in a separate folder.
fn logging(site: &Folder, logs: &Folder) -> (Server, PathBuf) {
    let log = logs.path().join("access.log");
    (Server::start(site.path(), &["--access-log", log.to_str().unwrap()]), log)
}

/// The number after a name in the server's final output.
fn counter(stderr: &str, name: &str) -> u64 {
    let rows = stderr.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.filter(|row| row.len() == 2).find(|row| row[0] == name);
    row.unwrap_or_else(|| panic!("no {name} in {stderr}"))[1].parse().unwrap()
}

fn lines_of(log: &Path) -> u64 {
    fs::read_to_string(log).unwrap().lines().count() as u64
}

fn names_of<'a>(value: &'a Value, list: &str, name: &str) -> Vec<&'a str> {
    value[list].as_array().unwrap().iter().map(|entry| entry[name].as_str().unwrap()).collect()
}

#[test]
fn the_client_the_log_and_the_counters_agree_on_every_request() {
    let site = site();
    for arguments in [
        &["-n", "5000", "-c", "16"][..],
        &["-d", "1s", "-c", "16"],
        &["-n", "5000", "-c", "16", "--close"],
        &["-d", "1s", "-c", "16", "--close"],
    ] {
        let logs = Folder::new();
        let (server, log) = logging(&site, &logs);
        let ended = run("bench", &[&[&server.url("/a.txt"), "--json", "-"][..], arguments].concat());
        // If the client was the limit, its figures are marked invalid, but the counts still agree.
        assert!(matches!(ended.code, Some(0 | 5)), "{arguments:?} {ended:#?}");
        let json = ended.json();
        let responses = json["counts"]["responses"].as_u64().unwrap();
        assert!(responses > 0 && json["passed"] == true);
        if arguments[0] == "-n" {
            assert_eq!(responses, 5000, "{arguments:?}");
        }
        assert_eq!(json["counts"]["requests_sent"], responses, "{arguments:?}");
        assert_eq!(json["status_classes"]["2xx"], responses, "{arguments:?}");
        assert_eq!(json["counts"]["body_bytes_in"], 1024 * responses, "{arguments:?}");
        assert_eq!(json["latency"]["count"], responses, "{arguments:?}");
        assert_eq!(json["server"]["processes"][0], server.pid(), "{arguments:?}");
        let connections = json["counts"]["connections"].as_u64().unwrap();
        assert_eq!(connections, if arguments.contains(&"--close") { responses } else { 16 }, "{arguments:?}");
        let (status, counters) = server.stop();
        assert_eq!(status.code(), Some(0), "{counters}");
        assert_eq!((lines_of(&log), counter(&counters, "requests")), (responses, responses), "{arguments:?}");
    }
}

#[test]
fn the_exit_code_reports_the_outcome() {
    let site = site();
    let server = Server::start(site.path(), &[]);
    // Bound but not listening: connections are refused, and no other process can get the port.
    let silent = new_socket(&"127.0.0.1:0".parse().unwrap()).unwrap();
    bind(&silent, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
    let refused = SocketAddr::try_from(getsockname(&silent).unwrap()).unwrap();
    let refused = format!("http://{refused}/");
    for (url, code, words) in [
        (server.url("/a.txt").as_str(), 0, "  errors           none\n"),
        (&server.url("/none"), 1, "  FAILED: 10 requests were answered with 4xx\n"),
        (&refused, 1, "  FAILED: no request was sent\n"),
        ("http://", 2, "flatout bench: "),
        ("nonsense", 2, "flatout bench: "),
        ("ftp://127.0.0.1/", 2, "`ftp` is neither http nor https"),
        ("http://127.0.0.1:99999/", 2, "flatout bench: "),
    ] {
        let ended = run("bench", &[url, "-n", "10", "-c", "2"]);
        assert_eq!(ended.code, Some(code), "{url} {ended:#?}");
        let (said, silent) = if code == 2 { (&ended.stderr, &ended.stdout) } else { (&ended.stdout, &ended.stderr) };
        assert!(said.contains(words) && silent.is_empty(), "{url} {ended:#?}");
    }
    for arguments in [
        &["bench", "http://127.0.0.1/", "-c", "0"][..],
        &["bench", "http://127.0.0.1/", "-n", "0"],
        &["bench", "http://127.0.0.1/", "-d", "1sss"],
        &["bench", "http://127.0.0.1/", "--json", "/nowhere/result.json"],
        &["limits", "--seconds", "1sss"],
        &["limits", "--size", "99999999999"],
        &["limits", "--json", "/nowhere/result.json"],
    ] {
        let ended = run(arguments[0], &arguments[1..]);
        assert!(ended.code == Some(2) && ended.stdout.is_empty() && !ended.stderr.is_empty(), "{ended:#?}");
    }
}

/// Responds to the first bytes of every connection with `answer` and closes, for faults that no real server produces on
/// demand.
fn broken_server(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer);
        }
    });
    address
}

#[test]
fn truncated_and_missing_responses_are_explained_in_plain_words() {
    for (answer, words, reasons) in [
        (
            &b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"[..],
            "  FAILED: 8 bodies were cut: the connection closed before the end\n",
            ["nothing-answered", "bodies-short"],
        ),
        (b"", "  FAILED: there was no response\n", ["nothing-answered", "requests-failed"]),
    ] {
        let url = format!("http://{}/", broken_server(answer));
        let folder = Folder::new();
        let file = folder.path().join("result.json");
        let ended = run("bench", &[&url, "-n", "8", "-c", "2", "--json", file.to_str().unwrap()]);
        assert!(ended.code == Some(1) && ended.stdout.contains(words), "{ended:#?}");
        let json: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!(json["passed"], false);
        assert_eq!(names_of(&json, "failing", "reason"), reasons);
    }
}

#[test]
fn a_run_ends_when_the_server_dies() {
    let (site, logs) = (site(), Folder::new());
    let (server, log) = logging(&site, &logs);
    let mut bench = UnderWay::start(&["bench", &server.url("/a.txt"), "-n", ENDLESS, "-c", "4", "--timeout", "300ms"]);
    wait_until("the server responds", || lines_of(&log) > 0);
    let address = server.address;
    server.signal("KILL");
    drop(server);
    let _refusing = Refusing::at(address);
    assert_eq!(bench.wait().code(), Some(1), "{}", bench.read("stderr"));
    let json = bench.json();
    assert!(json["counts"]["responses"].as_u64().unwrap() > 0);
    assert!(names_of(&json, "failing", "reason").contains(&"not-all-sent"), "{json:#}");
    assert!(json["errors"]["by_kind"]["connrefused"].as_u64().unwrap() > 0);
    assert!(bench.read("stdout").contains("of 1000000000 requests were sent\n"), "{}", bench.read("stdout"));
}

#[test]
fn an_interrupted_run_still_reports_its_results() {
    let site = site();
    for (arguments, code) in [(&["-n", ENDLESS][..], 1), (&["-d", "1h"], 5)] {
        let logs = Folder::new();
        let (server, log) = logging(&site, &logs);
        let mut bench = UnderWay::start(&[&["bench", &server.url("/a.txt"), "-c", "4"][..], arguments].concat());
        wait_until("the server responds", || lines_of(&log) > 0);
        bench.interrupt();
        assert_eq!(bench.wait().code(), Some(code), "{arguments:?} {}", bench.read("stderr"));
        let (json, stdout) = (bench.json(), bench.read("stdout"));
        assert!(stdout.contains("  requests/s ") && stdout.contains("  interrupted: the run ended early"), "{stdout}");
        assert!(!stdout.contains('\x1b') && !bench.read("stderr").contains('\x1b'));
        assert!(names_of(&json["steps"][0], "invalid", "reason").contains(&"interrupted"), "{json:#}");
        // All requests in progress were awaited.
        let responses = json["counts"]["responses"].as_u64().unwrap();
        let (_, counters) = server.stop();
        assert_eq!((json["counts"]["requests_sent"].as_u64().unwrap(), lines_of(&log)), (responses, responses));
        assert_eq!(counter(&counters, "requests"), responses);
    }
}

#[test]
fn limits_report_every_measure_as_json() {
    let ended = run("limits", &["--seconds", "0.2", "--rounds", "1", "--json", "-"]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let json = ended.json();
    assert_eq!(json["schema"], "flatout-limits/1");
    assert_eq!((&json["interrupted"], &json["gaps"]), (&false.into(), &Value::Array(Vec::new())));
    for measure in [
        "roundtrips_per_s",
        "roundtrip_ns_p50",
        "roundtrip_ns_p99",
        "connections_per_s",
        "send_bytes_per_s",
        "send_cpu_ns_per_mib",
        "sendfile_bytes_per_s",
        "sendfile_cpu_ns_per_mib",
        "http_requests_per_s",
        "http_cpu_ns_per_request",
        "http_close_requests_per_s",
        "http_close_cpu_ns_per_request",
        "http_large_bytes_per_s",
        "http_large_cpu_ns_per_mib",
    ] {
        assert!(json["measures"][measure]["median"].as_f64().unwrap() > 0.0, "{measure} in {json:#}");
    }
    for measure in ["http_requests_per_s", "http_close_requests_per_s", "http_large_bytes_per_s"] {
        assert!(json["roles"][measure]["server_busy_share"].as_f64().unwrap() > 0.0, "{measure} in {json:#}");
    }
}

#[test]
fn interrupted_limits_report_what_was_measured() {
    let mut limits = UnderWay::start(&["limits", "--seconds", "0.05", "--rounds", "1000"]);
    wait_until("limits handles SIGINT", || limits.handles_interrupts());
    limits.interrupt();
    assert_eq!(limits.wait().code(), Some(1), "{}", limits.read("stderr"));
    assert_eq!(limits.json()["interrupted"], true);
    assert!(limits.read("stdout").contains("  note: the run ended early"), "{}", limits.read("stdout"));
}
