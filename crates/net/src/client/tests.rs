//! The client against servers of a few lines, each with one fault.

use super::{ClientSettings, Drive, Event, Failure, WorkerReport, run_worker};
use crate::clock::precise_ns;
use flatout_http::refusal::Refusal;
use rustix::io::Errno;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Takes a number of requests, or none any more after an interrupt, and keeps every event.
struct Script {
    requests_left: u32,
    pauses_left: u32,
    events: Vec<Event>,
    ticks: u32,
}

impl Drive for Script {
    fn take_request(&mut self, _now_ns: u64) -> bool {
        let takes = self.requests_left > 0;
        self.requests_left = self.requests_left.saturating_sub(1);
        takes
    }

    fn decide_pause_ns(&mut self, _now_ns: u64, _failures_in_a_row: u32) -> Option<u64> {
        self.pauses_left = self.pauses_left.checked_sub(1)?;
        Some(1_000_000)
    }

    fn handle_event(&mut self, event: Event) {
        self.events.push(event);
    }

    fn handle_tick(&mut self, _now_ns: u64) {
        self.ticks += 1;
    }

    fn handle_interrupt(&mut self) {
        self.requests_left = 0;
    }
}

/// Serves connections one after another, each by `serve`, which is told how many came before.
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

/// Reads one request head; false at the end of the connection.
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

/// A server that answers every first request of a connection with `answer` and closes it.
fn answer_once(answer: &'static [u8]) -> SocketAddr {
    server(move |_, mut stream| {
        if read_request(&mut stream) {
            stream.write_all(answer).unwrap();
        }
    })
}

fn settings(address: SocketAddr) -> ClientSettings {
    ClientSettings {
        address,
        request: b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec().into(),
        is_head: false,
        closes: false,
        connections: 1,
        request_timeout_ns: 5_000_000_000,
        handle_interrupts: false,
    }
}

fn run(settings: ClientSettings, requests: u32) -> WorkerReport<Script> {
    let drive = Script { requests_left: requests, pauses_left: 0, events: Vec::new(), ticks: 0 };
    run_worker(settings, drive).unwrap()
}

fn count(report: &WorkerReport<Script>, matches: impl Fn(&Event) -> bool) -> usize {
    report.drive.events.iter().filter(|event| matches(event)).count()
}

fn answered(report: &WorkerReport<Script>) -> usize {
    count(report, |event| matches!(event, Event::Answered { status: 200, .. }))
}

fn failures(report: &WorkerReport<Script>) -> Vec<Failure> {
    let failure = |event: &Event| if let Event::Failed(failure) = event { Some(*failure) } else { None };
    report.drive.events.iter().filter_map(failure).collect()
}

#[test]
fn a_kept_connection_carries_every_request() {
    let address = server(|_, mut stream| while read_request(&mut stream) && stream.write_all(OK).is_ok() {});
    let report = run(settings(address), 50);
    assert_eq!((answered(&report), failures(&report).len()), (50, 0));
    assert_eq!(count(&report, |event| matches!(event, Event::Connected { is_reconnect: false, .. })), 1);
    assert_eq!(count(&report, |event| *event == Event::Sent { bytes: 27 }), 50);
    let head_bytes = OK.len() as u64 - 2;
    assert_eq!(count(&report, |event| *event == Event::Received { head_bytes, body_bytes: 2 }), 50);
    assert!(report.elapsed_ns > 0 && report.cpu_ns > 0 && !report.interrupted);
}

#[test]
fn a_connection_per_request_when_asked() {
    let address = answer_once(OK);
    let report = run(ClientSettings { closes: true, ..settings(address) }, 20);
    assert_eq!((answered(&report), failures(&report).len()), (20, 0));
    assert_eq!(count(&report, |event| matches!(event, Event::Connected { is_reconnect: false, .. })), 20);
}

#[test]
fn a_connection_the_server_closes_is_made_anew_and_counted() {
    let address = answer_once(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    let report = run(settings(address), 5);
    assert_eq!((answered(&report), failures(&report).len()), (5, 0));
    assert_eq!(count(&report, |event| matches!(event, Event::Connected { is_reconnect: true, .. })), 4);
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
        assert_eq!(count(&report, |event| matches!(event, Event::Received { body_bytes: 2, .. })), 2);
    }
}

#[test]
fn every_fault_of_an_answer_has_its_name() {
    for (answer, failure) in [
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok"[..], Failure::ShortBody),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok", Failure::ShortBody),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nok", Failure::Surplus),
        (b"HTTP/1.1 200 OK\r\nContent-Le", Failure::ClosedEarly),
        (b"", Failure::ClosedEarly),
        (b"220 mail.example ESMTP\r\n", Failure::Malformed(Refusal::StatusLine)),
    ] {
        let report = run(settings(answer_once(answer)), 2);
        assert_eq!(failures(&report), vec![failure; 2], "{:?}", String::from_utf8_lossy(answer));
        assert_eq!(count(&report, |event| matches!(event, Event::Sent { .. })), 2);
        assert_eq!(count(&report, |event| matches!(event, Event::Answered { .. })), 0);
    }
}

#[test]
fn a_reused_connection_that_dies_is_an_error_and_not_a_retry() {
    let address = server(|_, mut stream| {
        if read_request(&mut stream) && stream.write_all(OK).is_ok() {
            read_request(&mut stream);
        }
    });
    let report = run(settings(address), 4);
    assert_eq!(answered(&report), 2);
    assert_eq!(failures(&report), vec![Failure::ClosedEarly; 2]);
}

#[test]
fn a_server_that_never_answers_times_out() {
    let address = server(|_, mut stream| while read_request(&mut stream) {});
    let begun_ns = precise_ns();
    let report = run(ClientSettings { request_timeout_ns: 80_000_000, ..settings(address) }, 2);
    assert_eq!(failures(&report), vec![Failure::TimedOut; 2]);
    assert!(precise_ns() - begun_ns >= 160_000_000);
    assert!(report.drive.ticks > 0);
}

#[test]
fn where_nothing_listens_a_connection_is_given_up() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let drive = Script { requests_left: 100, pauses_left: 2, events: Vec::new(), ticks: 0 };
    let report = run_worker(settings(address), drive).unwrap();
    assert_eq!(failures(&report), vec![Failure::System(Errno::CONNREFUSED); 3]);
    assert_eq!(report.drive.requests_left, 97);
}

#[test]
fn a_request_larger_than_the_socket_takes_is_sent_whole() {
    let address = server(|_, mut stream| {
        thread::sleep(Duration::from_millis(50));
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
    let report = run(ClientSettings { request: request.into(), ..settings(address) }, 1);
    assert_eq!((answered(&report), failures(&report)), (1, Vec::new()));
    assert_eq!(count(&report, |event| *event == Event::Sent { bytes }), 1);
}

#[test]
fn large_bodies_are_read_to_their_last_byte() {
    const BODY_BYTES: usize = 20 * 1024 * 1024;
    let address = server(|_, mut stream| {
        while read_request(&mut stream) {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&vec![7; BODY_BYTES])).unwrap();
        }
    });
    let report = run(settings(address), 3);
    assert_eq!((answered(&report), failures(&report)), (3, Vec::new()));
    let body_bytes = BODY_BYTES as u64;
    assert_eq!(
        count(&report, |event| matches!(event, Event::Received { body_bytes: got, .. } if *got == body_bytes)),
        3
    );
}

#[test]
fn many_connections_share_one_worker() {
    let address = server(|_, mut stream| {
        thread::spawn(move || while read_request(&mut stream) && stream.write_all(OK).is_ok() {});
    });
    let report = run(ClientSettings { connections: 50, ..settings(address) }, 500);
    assert_eq!((answered(&report), failures(&report)), (500, Vec::new()));
    let connections = count(&report, |event| matches!(event, Event::Connected { .. }));
    assert!((1..=50).contains(&connections));
}
