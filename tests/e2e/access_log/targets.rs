//! JSON, rotation and syslog: the real workers, sockets and writer in this process, with a site of one page, and real
//! programs that read the logs.

use crate::e2e::harness::{Folder, TIMEOUT, read_response, read_to_end, uninterrupted, wait_until};
use flatout_access_log::{LogCount, LogSet, Logs};
use flatout_handler::response::{Body, Head, Response};
use flatout_handler::shared::SharedBytes;
use flatout_handler::{Handler, Reply, Request};
use flatout_http::access::{AccessField, LogDestination, LogFormat, LogSettings, Rotation};
use flatout_http::limits::Limits;
use flatout_http::timeouts::Timeouts;
use flatout_os::clock::Now;
use flatout_os::socket::{ListenOptions, bind_listener};
use flatout_reason::{Outcome, Table};
use flatout_server::{Command, Phase, run_worker};
use flatout_server::{Listener, Protocol, Settings, WorkerParts, command_channel, phase_channel};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{self, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Responds to every request with ten bytes.
struct OnePage;

impl Handler for OnePage {
    const OUTCOMES: &'static [&'static Table] = &[];

    fn handle(&self, _: &Request<'_>, _: Now) -> Reply {
        let head = Head::new(200, &[("Content-Length", "10")]);
        Response::new(200, head, Body::Bytes(SharedBytes::from(&b"0123456789"[..])), Outcome::NONE).into()
    }
}

/// A server in this process.
struct Inside {
    address: SocketAddr,
    logs: Arc<Logs>,
    /// Makes the workers switch to other logs.
    adopt: Box<dyn Fn(&LogSet)>,
    stop: Option<Box<dyn FnOnce()>>,
}

impl Inside {
    fn start(worker_count: usize, logs: &[LogSettings]) -> Self {
        let logs = Arc::new(Logs::open(logs, Box::new(|text| eprintln!("{text}"))).unwrap());
        let (phase, phases) = phase_channel();
        let settings = Settings {
            limits: Limits::DEFAULT,
            timeouts: Timeouts::DEFAULT,
            connections_max: 1000,
            ..Settings::default()
        };
        let mut address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mut commanders = Vec::new();
        let workers: Vec<_> = (0..worker_count)
            .map(|_| {
                let (fd, bound) = bind_listener(&address, &ListenOptions::DEFAULT).unwrap();
                address = bound;
                let (log, phases) = (logs.worker(), phases.clone());
                let (commander, commands) = command_channel();
                commanders.push(commander);
                thread::spawn(move || {
                    let listeners =
                        vec![Listener { fd, id: 0, protocol: Protocol::Plain { http2: false }, proxy_protocol: false }];
                    let counters = Arc::default();
                    let parts = WorkerParts {
                        handler: OnePage,
                        settings,
                        tls: None,
                        quic: None,
                        listeners,
                        commands,
                        log,
                        counters,
                        held: flatout_server::ConnectionCounters::default(),
                        phases,
                    };
                    run_worker(parts, std::future::pending()).unwrap();
                })
            })
            .collect();
        let adopt = move |set: &LogSet| {
            for commander in &commanders {
                assert!(commander.send(Command::Logs(set.clone(), Box::new(|_: &OnePage| ()))).is_ok());
            }
        };
        let stop = move || {
            phase.send_replace(Phase::Drain);
            for worker in workers {
                worker.join().unwrap();
            }
        };
        Self { address, logs, adopt: Box::new(adopt), stop: Some(Box::new(stop)) }
    }

    fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        read_to_end(&mut stream)
    }

    /// Drains the server, and returns the counts of each log.
    fn stop(mut self) -> Vec<LogCount> {
        self.stop.take().unwrap()();
        self.logs.close();
        self.logs.counts()
    }
}

fn to_file(path: &Path) -> LogSettings {
    LogSettings::new(LogDestination::File(path.to_owned()))
}

/// Feeds `text` to a tool, which must accept it, and returns the tool's output.
fn read_by(program: &str, arguments: &[&str], text: &str) -> String {
    let mut command = process::Command::new(program);
    let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn json_lines_are_valid_whatever_a_client_sends() {
    let logs = Folder::new();
    let path = logs.path().join("log");
    let server = Inside::start(1, &[LogSettings { format: LogFormat::Json, ..to_file(&path) }]);
    let mut requests: Vec<Vec<u8>> = vec![
        b"GET /\"\x1b[31m\x07 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        b"GET /a\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n".to_vec(),
        b"GET /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nfour".to_vec(),
    ];
    let values: [&[u8]; 8] = [
        b"\",\"status\":999,\"x\":\"",
        b"\\",
        b"\\u0000\\",
        b"\xff\xfe\xc3(\xed\xa0\x80",
        "\u{e9}\u{2028}\u{85}\u{1f600}".as_bytes(),
        b"{\"a\":[1,2]}",
        b"\tx\ty",
        b"",
    ];
    for value in values {
        requests.push(
            [b"GET /a.txt HTTP/1.1\r\nHost: a\r\nUser-Agent: ", value, b"\r\nReferer: ", value, b"\r\n\r\n"].concat(),
        );
    }
    // Every byte that a value may contain.
    let every: Vec<u8> = (0x20..=0xff).filter(|&byte| byte != 0x7f).collect();
    requests.push([b"GET /a.txt HTTP/1.1\r\nHost: a\r\nUser-Agent: x", &every[..], b"x\r\n\r\n"].concat());
    for request in &requests {
        server.exchange(request);
    }
    assert_eq!(server.stop()[0].lines_written, requests.len() as u64);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.is_ascii() && text.ends_with('\n'));
    let names: Vec<_> = AccessField::ALL.iter().map(|field| field.name()).collect();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), requests.len(), "{text}");
    for (line, raw) in lines.iter().zip(text.lines()) {
        assert_eq!(line.as_object().unwrap().len(), names.len(), "{raw}");
        assert!(line["client"] == "127.0.0.1" && line["tls"] == false && line["duration_us"].is_u64(), "{raw}");
        let places: Vec<_> = names.iter().map(|name| raw.find(&format!("\"{name}\":")).unwrap()).collect();
        assert!(places.is_sorted(), "{raw}");
    }
    for (line, value) in lines[4..].iter().zip(values) {
        let value = String::from_utf8_lossy(value);
        assert_eq!((&line["user_agent"], &line["referer"]), (&Value::from(value.trim()), &Value::from(value.trim())));
    }
    assert_eq!((&lines[3]["status"], &lines[3]["ending"]), (&Value::Null, &Value::from("client_cut_body")));
    // Two other parsers agree.
    let statuses: Vec<String> = lines.iter().map(|line| line["status"].to_string()).collect();
    assert_eq!(read_by("jq", &["-c", ".status"], &text).lines().collect::<Vec<_>>(), statuses);
    let program =
        "import json,sys\nfor line in sys.stdin.read().splitlines(): print(json.dumps(json.loads(line)['status']))";
    assert_eq!(read_by("python3", &["-c", program], &text).lines().collect::<Vec<_>>(), statuses);
}

#[test]
fn rotation_by_size_under_load_loses_no_lines() {
    const CLIENTS: usize = 4;
    const REQUESTS: usize = 2000;
    const BYTES_MAX: u64 = 50_000;
    let logs = Folder::new();
    let rotation = Rotation { bytes_max: Some(BYTES_MAX), ..Rotation::default() };
    let json = LogSettings { format: LogFormat::Json, rotation, ..to_file(&logs.path().join("log")) };
    let server = Inside::start(2, &[json]);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let address = server.address;
            scope.spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                for number in 0..REQUESTS {
                    let request = format!("GET /a.txt?{client}-{number} HTTP/1.1\r\nHost: a\r\n\r\n");
                    stream.write_all(request.as_bytes()).unwrap();
                    assert_eq!(read_response(&mut stream).status, 200);
                }
            });
        }
    });
    let counts = server.stop();
    let total = (CLIENTS * REQUESTS) as u64;
    assert_eq!((counts[0].lines_written, counts[0].lines_lost), (total, 0));
    let mut seen = Vec::new();
    for entry in fs::read_dir(logs.path()).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(text.len() as u64 <= BYTES_MAX, "{} bytes", text.len());
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            seen.push(line["target"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(fs::read_dir(logs.path()).unwrap().count() as u64, counts[0].rotations + 1);
    assert!(counts[0].rotations > 10, "{counts:?}");
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len() as u64, total);
}

/// Sends requests over persistent connections until `done`, and returns their number.
fn load(address: SocketAddr, done: &AtomicBool) -> usize {
    let (mut stream, mut count) = (TcpStream::connect(address).unwrap(), 0);
    while !done.load(Ordering::Relaxed) {
        stream.write_all(b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(read_response(&mut stream).status, 200);
        count += 1;
    }
    count
}

#[test]
fn a_reload_under_load_loses_no_lines() {
    let logs = Folder::new();
    let settings = |reload: usize| {
        let file = to_file(&logs.path().join(if reload.is_multiple_of(3) { "a" } else { "b" }));
        LogSettings { format: if reload.is_multiple_of(2) { LogFormat::Combined } else { LogFormat::Json }, ..file }
    };
    let server = Inside::start(2, &[settings(0)]);
    let (address, done) = (server.address, AtomicBool::new(false));
    let requests: usize = thread::scope(|scope| {
        let clients: Vec<_> = (0..2).map(|_| scope.spawn(|| load(address, &done))).collect();
        for reload in 1..=30 {
            thread::sleep(Duration::from_millis(20));
            (server.adopt)(&server.logs.replace(&[settings(reload)]).unwrap());
        }
        done.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    let all = Arc::clone(&server.logs);
    server.stop();
    assert_eq!(all.lines_lost(), 0);
    let text = ["a", "b"].map(|name| fs::read_to_string(logs.path().join(name)).unwrap());
    assert!(text.iter().all(|text| text.ends_with('\n')));
    assert_eq!(text.iter().map(|text| text.lines().count()).sum::<usize>(), requests);
}

#[test]
fn rotation_by_age_works_without_requests() {
    let logs = Folder::new();
    let rotation = Rotation { age_max_s: Some(1), ..Rotation::default() };
    let server = Inside::start(2, &[LogSettings { rotation, ..to_file(&logs.path().join("log")) }]);
    server.exchange(b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the log is rotated", || fs::read_dir(logs.path()).unwrap().count() == 2);
    assert_eq!(fs::metadata(logs.path().join("log")).unwrap().len(), 0);
    // An empty file is not rotated.
    thread::sleep(Duration::from_millis(2500));
    assert_eq!(fs::read_dir(logs.path()).unwrap().count(), 2);
    assert_eq!(server.stop()[0].rotations, 1);
}

#[test]
fn syslog_receives_the_lines() {
    const REQUESTS: usize = 50;
    let folder = Folder::new();
    let path = folder.path().join("log");
    let daemon = UnixDatagram::bind(&path).unwrap();
    daemon.set_read_timeout(Some(TIMEOUT)).unwrap();
    let fields = vec![AccessField::Status, AccessField::Target];
    let server = Inside::start(
        2,
        &[LogSettings { format: LogFormat::Json, fields, ..LogSettings::new(LogDestination::Syslog(path)) }],
    );
    for number in 0..REQUESTS {
        server.exchange(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    }
    let mut lines = Vec::new();
    for _ in 0..REQUESTS {
        let mut buffer = [0; 1000];
        let count = uninterrupted(|| daemon.recv(&mut buffer)).unwrap();
        let text = std::str::from_utf8(&buffer[..count]).unwrap();
        let (head, line) = text.split_once(&format!(" flatout[{}]: ", process::id())).unwrap();
        assert!(head.starts_with("<30>") && head.len() == "<30>Nov  6 08:49:37".len(), "{text}");
        lines.push(line.to_owned());
    }
    // There are two workers: the lines of each are in order, but those of both together are not.
    lines.sort();
    let mut expected: Vec<_> =
        (0..REQUESTS).map(|number| format!("{{\"status\":200,\"target\":\"/{number}\"}}")).collect();
    expected.sort();
    assert_eq!(lines, expected);
    assert_eq!(server.stop()[0].lines_lost, 0);
}
