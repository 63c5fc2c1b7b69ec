//! Tests of the client against small servers, each of which has one fault.

mod cookies;
mod resending;
mod script;
mod streams;

pub(super) use script::Script;

use super::failure::IDLE_NS_MIN;
use super::{
    ClientSettings, PreparedRequest, RequestFailure, RequestRecord, RequestTemplate, Sources, WorkerCpu, WorkerReport,
    run_worker,
};
use flatout_http::refusal::Refusal;
use flatout_load::record::SentAgain;
use flatout_load::template::{Template, ValueSource};
use flatout_os::clock::precise_ns;
use rustix::io::Errno;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const LAST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Serves connections one after another. For each connection, `serve` receives the number of earlier connections.
fn server(serve: impl Fn(usize, TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (index, stream) in listener.incoming().enumerate() {
            serve(index, stream.unwrap());
        }
    });
    address
}

/// Reads one request head. Returns false at the end of the connection.
fn read_request(stream: &mut TcpStream) -> bool {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => request.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// Starts a server that responds to the first request of every connection with `answer` and then closes the connection.
fn answer_once(answer: &'static [u8]) -> SocketAddr {
    server(move |_, mut stream| {
        if read_request(&mut stream) {
            stream.write_all(answer).unwrap();
        }
    })
}

pub(super) fn settings(address: SocketAddr) -> ClientSettings {
    ClientSettings {
        addresses: [address].into(),
        unix_socket: None,
        tls: None,
        streams: None,
        requests: [PreparedRequest::plain(REQUEST.to_vec())].into(),
        values: ValueSource::default(),
        slots: 1,
        sources: Sources::Automatic,
        request_timeout_ns: 5_000_000_000,
        stores_cookies: false,
        digest_every: 0,
        stays_awake: false,
        handle_interrupts: false,
    }
}

fn run(settings: ClientSettings, requests: u32) -> WorkerReport<Script> {
    let script = Script::new(settings.slots, requests);
    run_script(settings, script)
}

fn run_script(settings: ClientSettings, script: Script) -> WorkerReport<Script> {
    let report = run_worker(settings, script).unwrap();
    // Every request that was started ended exactly once.
    assert_eq!(report.drive.begun as usize, report.drive.ended.len());
    for ended in &report.drive.ended {
        let times = [ended.begin.intended_ns, ended.begun_ns, ended.sent_ns, ended.first_byte_ns, ended.ended_ns];
        assert!(times.is_sorted(), "{ended:?}");
    }
    report
}

fn answered(report: &WorkerReport<Script>) -> usize {
    report.drive.ended.iter().filter(|ended| ended.result == Ok(200)).count()
}

fn failures(report: &WorkerReport<Script>) -> Vec<RequestFailure> {
    report.drive.ended.iter().filter_map(|ended| ended.result.err()).collect()
}

fn sent(report: &WorkerReport<Script>) -> usize {
    report.drive.ended.iter().filter(|ended| ended.is_sent).count()
}

#[test]
fn one_persistent_connection_carries_every_request() {
    let address = server(|_, mut stream| while read_request(&mut stream) && stream.write_all(OK).is_ok() {});
    let report = run(settings(address), 50);
    assert_eq!((answered(&report), failures(&report).len(), sent(&report)), (50, 0, 50));
    assert_eq!((report.drive.made.len(), report.drive.connecting), (1, 1));
    assert!(!report.drive.made[0].is_reconnect && report.drive.ended[0].made.is_some());
    for ended in &report.drive.ended {
        assert_eq!((ended.sent_bytes, ended.body_bytes), (REQUEST.len() as u64, 2));
        assert_eq!(ended.head_bytes, OK.len() as u64 - 2);
    }
    assert!(report.elapsed_ns > 0 && report.cpu.work_ns > 0 && !report.interrupted);
    assert_eq!((report.cpu.awake_ns, report.counted.awake_ns), (0, 0), "it sleeps");
}

#[test]
fn cpu_time_is_reported_from_the_first_counted_burst() {
    let serve = || server(|_, mut stream| while read_request(&mut stream) && stream.write_all(OK).is_ok() {});
    let run = |uncounted: u32, stays_awake: bool| {
        let mut script = Script::new(1, 400);
        script.uncounted = uncounted;
        run_script(ClientSettings { stays_awake, ..settings(serve()) }, script)
    };
    for stays_awake in [false, true] {
        let none = run(400, stays_awake);
        assert_eq!(none.counted, WorkerCpu::default(), "nothing counts");
        assert!(none.cpu.work_ns > 0 && (none.cpu.awake_ns > 0) == stays_awake);
        let last = run(399, stays_awake);
        // Only one of 400 requests is counted. Half of the time is ample room for the cost of start and end.
        assert!(
            last.counted.work_ns > 0 && last.counted.work_ns < last.cpu.work_ns / 2,
            "{:?} {:?}",
            last.counted,
            last.cpu
        );
        let all = run(0, stays_awake);
        assert!(
            all.counted.work_ns <= all.cpu.work_ns && all.counted.work_ns > all.cpu.work_ns / 2,
            "{:?} {:?}",
            all.counted,
            all.cpu
        );
        assert!(all.counted.awake_ns <= all.cpu.awake_ns);
    }
}

#[test]
fn busy_polling_is_not_work() {
    let address = server(|_, mut stream| {
        while read_request(&mut stream) {
            // The client sends nothing more while it waits for the response.
            stream.set_read_timeout(Some(Duration::from_millis(40))).unwrap();
            assert_eq!(stream.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            stream.set_read_timeout(None).unwrap();
            if stream.write_all(OK).is_err() {
                break;
            }
        }
    });
    let report = run(ClientSettings { stays_awake: true, ..settings(address) }, 10);
    assert_eq!(answered(&report), 10);
    // Ten requests take a millisecond of work. The other CPU time was spent on polling.
    let WorkerCpu { work_ns, awake_ns } = report.cpu;
    assert!(awake_ns > 20_000_000 && 10 * work_ns < awake_ns, "{work_ns} ns of work beside {awake_ns} awake");
}

#[test]
fn an_unneeded_connection_is_closed() {
    // The server accepts the next connection only when the previous one has closed, and does not close any connection
    // itself.
    let address = server(|_, mut stream| while read_request(&mut stream) && stream.write_all(OK).is_ok() {});
    let mut script = Script::new(3, 6);
    script.leaves = true;
    let report = run_script(ClientSettings { slots: 3, ..settings(address) }, script);
    assert_eq!((answered(&report), failures(&report).len(), report.drive.made.len()), (6, 0, 6));
    assert!(report.drive.made.iter().all(|made| !made.is_reconnect), "{:?}", report.drive.made);
    assert!(
        report.drive.connections.iter().all(|end| end.replies == 1 && !end.by_server),
        "{:?}",
        report.drive.connections
    );
}

#[test]
fn a_connection_carries_the_requested_number_of_bursts() {
    let address = server(|_, mut stream| while read_request(&mut stream) && stream.write_all(OK).is_ok() {});
    for calls in [1, 4] {
        let mut script = Script::new(1, 20);
        script.calls = calls;
        let mut settings = settings(address);
        let request = PreparedRequest::new(REQUEST, LAST);
        settings.requests = [request].into();
        let report = run_script(settings, script);
        assert_eq!((answered(&report), failures(&report).len()), (20, 0));
        assert_eq!(report.drive.made.len(), 20 / calls as usize);
        assert!(report.drive.made.iter().all(|made| !made.is_reconnect));
        let ends = &report.drive.connections;
        assert!(ends.iter().all(|end| end.replies == u64::from(calls) && !end.by_server), "{ends:?}");
        let last = report.drive.ended.iter().filter(|ended| ended.sent_bytes == LAST.len() as u64).count();
        assert_eq!(last, 20 / calls as usize);
    }
}

#[test]
fn pipelined_responses_are_matched_to_their_requests() {
    // All requests of a burst are read before the first is answered.
    let address = server(|_, mut stream| {
        while (0..3).all(|_| read_request(&mut stream)) {
            for status in [200, 404, 200] {
                let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok");
                if stream.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
        }
    });
    let mut settings = settings(address);
    settings.requests = (0..3).map(|_| PreparedRequest::plain(REQUEST.to_vec())).collect();
    let mut script = Script::new(1, 5);
    script.burst = 3;
    let report = run_script(settings, script);
    let results: Vec<_> = report.drive.ended.iter().map(|ended| (ended.request, ended.result)).collect();
    assert_eq!(results, [(0, Ok(200)), (1, Ok(404)), (2, Ok(200))].repeat(5));
    assert!(report.drive.ended.iter().all(|ended| ended.head_bytes + ended.body_bytes == 39));
    assert_eq!(report.drive.made.len(), 1);
}

#[test]
fn placeholders_are_filled_for_each_request_of_a_burst() {
    let (sender, lines) = mpsc::channel();
    let address = server(move |_, stream| {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            if line == "\r\n" && reader.get_mut().write_all(OK).is_err() {
                return;
            }
            sender.send(std::mem::take(&mut line)).unwrap();
        }
    });
    let template = RequestTemplate {
        head: Template::parse(b"GET /{seq} HTTP/1.1\r\nX: {random:7-7}\r\n").unwrap(),
        content: None,
        kept_end: b"\r\n"[..].into(),
        last_end: b"\r\n"[..].into(),
        block: [].into(),
    };
    let filled = PreparedRequest { template: Some(template.into()), ..PreparedRequest::plain(Vec::new()) };
    for burst in [1, 3] {
        let mut settings = settings(address);
        settings.requests = vec![filled.clone(); burst as usize].into();
        settings.values.seq_first = 9;
        let mut script = Script::new(1, 1);
        script.burst = burst;
        let report = run_script(settings, script);
        assert_eq!((answered(&report), sent(&report)), (burst as usize, burst as usize));
        let expected: Vec<_> = (9..9 + burst).map(|seq| format!("GET /{seq} HTTP/1.1\r\nX: 7\r\n\r\n")).collect();
        assert_eq!(lines.iter().take(3 * burst as usize).collect::<String>(), expected.concat());
        let lengths: Vec<_> = report.drive.ended.iter().map(|ended| ended.sent_bytes as usize).collect();
        assert_eq!(lengths, expected.iter().map(String::len).collect::<Vec<_>>());
    }
}

#[test]
fn a_truncated_burst_fails_each_remaining_request() {
    let address = server(|_, mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        while read_request(&mut stream) {}
    });
    let mut script = Script::new(1, 2);
    script.burst = 3;
    let mut settings = settings(address);
    settings.requests = (0..3).map(|_| PreparedRequest::plain(REQUEST.to_vec())).collect();
    let report = run_script(settings, script);
    assert_eq!((answered(&report), failures(&report)), (2, vec![RequestFailure::ClosedEarly; 4]));
    assert_eq!(sent(&report), 6);
}

/// A listener at a Unix socket whose queue is full, the connections in the queue, and settings for the socket.
fn full_unix_socket(name: &str) -> (UnixListener, Vec<UnixStream>, ClientSettings) {
    let path = std::env::temp_dir().join(format!("flatout-client-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    // A queue for 0 connections has room for one.
    let queued = vec![UnixStream::connect(&path).unwrap()];
    let settings = settings("127.0.0.1:1".parse().unwrap());
    (listener, queued, ClientSettings { unix_socket: Some(path.into()), addresses: [].into(), ..settings })
}

#[test]
fn a_connection_waits_for_room_in_the_queue_of_a_unix_socket() {
    let (listener, queued, mut settings) = full_unix_socket("queue");
    settings.slots = 3;
    let (sender, begins_to_connect) = mpsc::channel();
    let mut script = Script::new(3, 12);
    script.begins_to_connect = Some(sender);
    thread::spawn(move || {
        begins_to_connect.recv().unwrap();
        drop(queued);
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut byte = [0; 1];
                let mut request = Vec::new();
                while stream.read(&mut byte).is_ok_and(|bytes| bytes == 1) {
                    request.push(byte[0]);
                    if request.ends_with(b"\r\n\r\n") && stream.write_all(OK).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let report = run_script(settings, script);
    assert_eq!((answered(&report), report.drive.made.len()), (12, 3));
    assert!(report.addresses_used.is_empty());
}

#[test]
fn a_full_queue_of_a_unix_socket_is_a_timeout() {
    let (_listener, _queued, settings) = full_unix_socket("full");
    let report = run(ClientSettings { request_timeout_ns: 80_000_000, ..settings }, 1);
    assert_eq!(failures(&report), [RequestFailure::TimedOut]);
}

#[test]
fn unexpected_body_lengths_and_contents_are_failures() {
    let address = server(|_, mut stream| {
        for body in [&b"ok"[..], b"ok", b"ko", b"okay", b"ok"] {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            if !read_request(&mut stream) || stream.write_all(&[head.as_bytes(), body].concat()).is_err() {
                return;
            }
        }
    });
    let mut settings = settings(address);
    let request = PreparedRequest { body_bytes: Some(2), ..PreparedRequest::plain(REQUEST.to_vec()) };
    settings.requests = [request].into();
    settings.digest_every = 1;
    let report = run(settings, 5);
    let results: Vec<_> = report.drive.ended.iter().map(|ended| ended.result).collect();
    assert_eq!(
        results,
        [Ok(200), Ok(200), Err(RequestFailure::WrongDigest), Err(RequestFailure::WrongLength), Ok(200)]
    );
    // The connection is still usable.
    assert_eq!(report.drive.made.len(), 1);
    assert!(report.drive.ended.iter().all(|ended| ended.is_digested));
}

#[test]
fn a_connection_the_server_closes_is_replaced_and_counted() {
    let address = answer_once(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    let report = run(settings(address), 5);
    assert_eq!((answered(&report), failures(&report).len()), (5, 0));
    assert_eq!(report.drive.made.iter().filter(|made| made.is_reconnect).count(), 4);
    assert_eq!(report.drive.connections.iter().filter(|end| end.by_server).count(), report.drive.connections.len());
}

#[test]
fn bodies_may_be_chunked_or_end_with_the_connection() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\no\r\n1;x\r\nk\r\n0\r\n\r\n"[..],
        b"HTTP/1.0 200 OK\r\n\r\nok",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\nok",
    ] {
        let report = run(settings(answer_once(answer)), 2);
        assert_eq!((answered(&report), failures(&report).len()), (2, 0));
        assert!(report.drive.ended.iter().all(|ended| ended.body_bytes == 2));
    }
}

#[test]
fn each_response_failure_has_a_name() {
    for (answer, failure) in [
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok"[..], RequestFailure::ShortBody),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok", RequestFailure::ShortBody),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nok", RequestFailure::Surplus),
        (b"HTTP/1.1 200 OK\r\nContent-Le", RequestFailure::ClosedEarly),
        (b"", RequestFailure::ClosedEarly),
        (b"220 mail.example ESMTP\r\n", RequestFailure::Malformed(Refusal::StatusLine)),
    ] {
        let report = run(settings(answer_once(answer)), 2);
        assert_eq!(failures(&report), vec![failure; 2], "{:?}", String::from_utf8_lossy(answer));
        assert_eq!((sent(&report), answered(&report)), (2, 0));
        let arrived: Vec<_> = report.drive.ended.iter().map(|ended| ended.head_bytes + ended.body_bytes).collect();
        assert_eq!(arrived, vec![answer.len() as u64; 2]);
    }
}

#[test]
fn a_silent_server_times_out() {
    let address = server(|_, mut stream| while read_request(&mut stream) {});
    let begun_ns = precise_ns();
    let report = run(ClientSettings { request_timeout_ns: 80_000_000, ..settings(address) }, 2);
    assert_eq!(failures(&report), vec![RequestFailure::TimedOut; 2]);
    assert!(precise_ns() - begun_ns >= 160_000_000);
    assert!(report.drive.ticks > 0);
}

#[test]
fn a_timeout_is_more_precise_than_the_scan_interval() {
    // Scans are 41 ms apart. The requests start at a scan, so each timeout is due 36 ms before the next scan.
    const TIMEOUT_NS: u64 = 415_000_000;
    let address = server(|_, mut stream| while read_request(&mut stream) {});
    let report = run(ClientSettings { request_timeout_ns: TIMEOUT_NS, ..settings(address) }, 5);
    assert_eq!(failures(&report), vec![RequestFailure::TimedOut; 5]);
    let late_ns = |ended: &RequestRecord| (ended.ended_ns - ended.sent_ns).checked_sub(TIMEOUT_NS).unwrap();
    // On a busy machine, some timeouts are late. If only the scans enforced them, all would be late.
    let least_ns = report.drive.ended.iter().map(late_ns).min().unwrap();
    assert!(least_ns < TIMEOUT_NS / 10 / 2, "{least_ns}");
}

#[test]
fn connecting_to_a_closed_port_fails() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut script = Script::new(1, 100);
    script.pauses_left = 2;
    let report = run_script(settings(address), script);
    assert_eq!(failures(&report), vec![RequestFailure::System(Errno::CONNREFUSED); 3]);
    assert_eq!((report.drive.bursts_left, report.drive.connecting, report.drive.connections.len()), (97, 3, 0));
    assert_eq!(sent(&report), 0);
}

#[test]
fn a_request_larger_than_the_socket_buffer_is_sent_completely() {
    let address = server(|_, mut stream| {
        // Read nothing until the client has filled the socket buffers.
        let mut before = u64::MAX;
        let unread = || rustix::io::ioctl_fionread(&stream).unwrap();
        while before != unread() || before == 0 {
            before = unread();
            (0..1_000).for_each(|_| thread::yield_now());
        }
        let (mut request, mut piece) = (Vec::new(), vec![0; 64 * 1024]);
        while !request.ends_with(b"\r\n\r\n") {
            let read = stream.read(&mut piece).unwrap();
            request.extend_from_slice(&piece[..read]);
        }
        stream.write_all(OK).unwrap();
    });
    let mut request = b"GET / HTTP/1.1\r\nX: ".to_vec();
    request.resize(16 * 1024 * 1024, b'x');
    request.extend_from_slice(b"\r\n\r\n");
    let bytes = request.len() as u64;
    let report = run(ClientSettings { requests: [PreparedRequest::plain(request)].into(), ..settings(address) }, 1);
    assert_eq!((answered(&report), failures(&report)), (1, Vec::new()));
    assert_eq!(report.drive.ended[0].sent_bytes, bytes);
}

#[test]
fn large_bodies_are_read_completely() {
    const BODY_BYTES: usize = 20 * 1024 * 1024;
    let address = server(|_, mut stream| {
        while read_request(&mut stream) {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&vec![7; BODY_BYTES])).unwrap();
        }
    });
    let report = run(settings(address), 3);
    assert_eq!((answered(&report), failures(&report)), (3, Vec::new()));
    assert!(report.drive.ended.iter().all(|ended| ended.body_bytes == BODY_BYTES as u64));
    // The first byte arrived before the last byte.
    assert!(report.drive.ended.iter().all(|ended| ended.first_byte_ns < ended.ended_ns));
}

#[test]
fn many_connections_share_one_worker() {
    let address = server(|_, mut stream| {
        thread::spawn(move || while read_request(&mut stream) && stream.write_all(OK).is_ok() {});
    });
    let report = run(ClientSettings { slots: 50, ..settings(address) }, 500);
    assert_eq!((answered(&report), failures(&report)), (500, Vec::new()));
    assert!((1..=50).contains(&report.drive.made.len()));
}

#[test]
fn a_missing_source_address_is_counted_under_its_own_name() {
    // An address in 127.0.0.0/8 cannot be the source of a connection to an IPv6 address.
    let mut settings = settings("[::1]:9".parse().unwrap());
    settings.sources = Sources::Loopback { first: 0, count: 1 };
    let report = run(settings, 1);
    assert_eq!(failures(&report).len(), 1);
    assert!(matches!(failures(&report)[0], RequestFailure::System(_)));
}
