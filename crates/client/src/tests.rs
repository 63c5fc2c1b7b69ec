//! Tests of the client against small servers, each of which has one fault.

mod cookies;
mod streams;

use super::failure::IDLE_NS_MIN;
use super::{
    ClientSettings, Drive, Made, PreparedRequest, RequestFailure, RequestRecord, RequestTemplate, Sources, WorkerCpu,
    WorkerReport, run_worker,
};
use flatout_http::refusal::Refusal;
use flatout_load::record::{ConnectionEnd, SentAgain};
use flatout_load::schedule::{Begin, Move, Visitor};
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

/// A closed loop. Each slot starts its next burst when the previous burst has ended, until a given number have started.
pub(super) struct Script {
    bursts_left: u32,
    burst: u32,
    /// Number of bursts per connection; 0 for no limit.
    calls: u32,
    /// Number of failures to connect after which a slot is given up.
    pauses_left: u32,
    /// Slots that may start a burst, and the time since when they may.
    free: Vec<(u32, u64)>,
    slots: Vec<u32>,
    under_way: u32,
    begun: u32,
    /// Number of requests at the beginning that are not counted.
    uncounted: u32,
    /// True if each connection is closed after its response; `leaving` lists the slots whose connections are to be
    /// closed.
    leaves: bool,
    leaving: Vec<u32>,
    /// True if the client of a slot, which has the slot's number, is dropped together with each such connection.
    drops_clients: bool,
    dropped: Vec<u64>,
    ended: Vec<RequestRecord>,
    made: Vec<Made>,
    connections: Vec<ConnectionEnd>,
    connecting: u32,
    sent_again: Vec<(u32, SentAgain)>,
    /// Time from the end of a burst to the start of the next one of its slot, in nanoseconds.
    pause_ns: u64,
    /// Slots whose connection the server closed between two bursts.
    closed: Vec<u32>,
    /// Receives a message when a connection is about to be opened.
    begins_to_connect: Option<mpsc::Sender<()>>,
    ticks: u32,
    gave_up: bool,
    /// Returns the client that makes the requests of a burst.
    pub(super) visitor: Option<fn(&Begin) -> Visitor>,
}

impl Script {
    pub(super) fn new(slots: u32, bursts: u32) -> Self {
        Self {
            bursts_left: bursts,
            burst: 1,
            calls: 0,
            pauses_left: 0,
            free: (0..slots).rev().map(|slot| (slot, 0)).collect(),
            slots: vec![0; slots as usize],
            under_way: 0,
            begun: 0,
            uncounted: 0,
            leaves: false,
            leaving: Vec::new(),
            drops_clients: false,
            dropped: Vec::new(),
            ended: Vec::new(),
            made: Vec::new(),
            connections: Vec::new(),
            connecting: 0,
            sent_again: Vec::new(),
            pause_ns: 0,
            closed: Vec::new(),
            begins_to_connect: None,
            ticks: 0,
            gave_up: false,
            visitor: None,
        }
    }

    fn begin(&mut self, slot: u32, now_ns: u64) -> Begin {
        self.bursts_left -= 1;
        self.under_way += 1;
        let calls = &mut self.slots[slot as usize];
        let connect = *calls == 0;
        *calls += 1;
        let closes = self.calls > 0 && *calls == self.calls;
        let visit = u64::from(self.bursts_left);
        if closes {
            *calls = 0;
        }
        Begin { slot, connect, burst: self.burst, closes, intended_ns: now_ns, visit, request: 0, call: 0 }
    }
}

impl Drive for Script {
    fn next(&mut self, now_ns: u64) -> Move {
        if let Some(slot) = self.leaving.pop() {
            return Move::Close(slot);
        }
        if let Some(number) = self.dropped.pop() {
            return Move::DropClient(number);
        }
        if self.bursts_left == 0 || self.gave_up {
            return if self.under_way == 0 { Move::Done } else { Move::Idle };
        }
        let due = self.free.iter().rposition(|(_, from_ns)| *from_ns <= now_ns);
        match due {
            Some(index) => {
                let (slot, _) = self.free.remove(index);
                Move::Begin(self.begin(slot, now_ns))
            }
            None => self.free.iter().map(|(_, from_ns)| *from_ns).min().map_or(Move::Idle, Move::WaitUntil),
        }
    }

    fn choose(&mut self, _begin: &Begin, nth: u32) -> u32 {
        nth
    }

    fn visitor(&self, begin: &Begin) -> Option<Visitor> {
        self.visitor.map(|visitor| visitor(begin))
    }

    fn handle_begun(&mut self, begin: &Begin, _now_ns: u64) -> bool {
        self.begun += begin.burst;
        self.begun > self.uncounted
    }

    fn handle_ended(&mut self, ended: &RequestRecord) {
        self.made.extend(ended.made);
        self.ended.push(*ended);
    }

    fn handle_sent_again(&mut self, requests: u32, why: SentAgain) {
        self.sent_again.push((requests, why));
    }

    fn handle_answered(&mut self, slot: u32, now_ns: u64, is_open: bool) -> Option<Begin> {
        self.under_way -= 1;
        if !is_open {
            self.slots[slot as usize] = 0;
        } else if self.calls == 0 {
            self.slots[slot as usize] = 1;
        }
        if self.leaves {
            self.slots[slot as usize] = 0;
            self.leaving.push(slot);
            self.dropped.extend(self.drops_clients.then_some(u64::from(slot)));
            self.free.push((slot, now_ns));
            return None;
        }
        if self.bursts_left == 0 {
            return None;
        }
        if self.pause_ns > 0 {
            self.free.push((slot, now_ns + self.pause_ns));
            return None;
        }
        Some(self.begin(slot, now_ns))
    }

    fn handle_failed(&mut self, slot: u32, now_ns: u64, connected: bool) {
        self.under_way -= 1;
        self.slots[slot as usize] = 0;
        if connected {
            self.free.push((slot, now_ns + self.pause_ns));
        } else {
            match self.pauses_left.checked_sub(1) {
                Some(left) => self.pauses_left = left,
                None => self.gave_up = true,
            }
            self.free.push((slot, now_ns + 1_000_000));
        }
    }

    fn handle_connecting(&mut self, _now_ns: u64) {
        self.connecting += 1;
        self.begins_to_connect.iter().for_each(|sender| sender.send(()).unwrap());
    }

    fn handle_connected(&mut self, _slot: u32, _made: &Made, _now_ns: u64) {}

    fn handle_connection_end(&mut self, end: &ConnectionEnd) {
        self.connections.push(*end);
    }

    fn handle_closed(&mut self, slot: u32) {
        self.closed.push(slot);
        self.slots[slot as usize] = 0;
    }

    fn handle_tick(&mut self, _now_ns: u64, _late_ns: u64, _connections: u32) {
        self.ticks += 1;
    }

    fn handle_interrupt(&mut self) {
        self.bursts_left = 0;
    }
}

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

/// Starts a server that responds to the first `burst` requests of each connection. When it has read as many again, it
/// sends `last` and closes the connection, with RST instead of FIN if `resets`.
fn close_when_reused(burst: usize, last: &'static [u8], resets: bool) -> SocketAddr {
    server(move |_, mut stream| {
        let answers = (0..burst).all(|_| read_request(&mut stream)) && stream.write_all(&OK.repeat(burst)).is_ok();
        if answers && (0..burst).all(|_| read_request(&mut stream)) {
            stream.write_all(last).unwrap();
            if resets {
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            }
        }
    })
}

/// A script of bursts before each of which the connection is idle, as long as it may be closed as idle.
fn script_with_pauses(bursts: u32, burst: u32) -> Script {
    Script { burst, pause_ns: IDLE_NS_MIN, ..Script::new(1, bursts) }
}

#[test]
fn a_request_on_an_idle_connection_that_the_server_closes_is_sent_again_once() {
    for (burst, resets) in [(1, false), (1, true), (3, false)] {
        let mut settings = settings(close_when_reused(burst as usize, b"", resets));
        settings.requests = (0..burst).map(|_| PreparedRequest::plain(REQUEST.to_vec())).collect();
        let report = run_script(settings, script_with_pauses(4, burst));
        assert_eq!((answered(&report) as u32, failures(&report).len()), (4 * burst, 0), "{burst} {resets}");
        assert_eq!(report.drive.sent_again, [(burst, SentAgain::IdleClose); 3], "{burst} {resets}");
        let made = &report.drive.made;
        assert_eq!((made.len(), made.iter().filter(|made| made.is_reconnect).count()), (4, 3));
        assert!(report.drive.connections.iter().filter(|end| end.by_server).count() >= 3);
        for ended in &report.drive.ended[burst as usize..] {
            // The service time includes the first attempt, and the connect time does not.
            assert_eq!(ended.sent_bytes, REQUEST.len() as u64);
            assert!(ended.made.is_none_or(|made| made.connect_ns < ended.sent_ns - ended.begun_ns), "{ended:?}");
        }
    }
}

#[test]
fn a_request_on_a_busy_connection_that_the_server_closes_is_not_sent_again() {
    for (burst, resets) in [(1, false), (1, true), (3, false)] {
        let mut settings = settings(close_when_reused(burst as usize, b"", resets));
        settings.requests = (0..burst).map(|_| PreparedRequest::plain(REQUEST.to_vec())).collect();
        let report = run_script(settings, Script { burst, ..Script::new(1, 4) });
        let both = 2 * burst as usize;
        assert_eq!((answered(&report), failures(&report).len()), (both, both), "{burst} {resets}");
        assert_eq!(report.drive.sent_again, []);
    }
}

#[test]
fn a_request_is_not_sent_again_after_a_part_of_a_response_or_if_it_is_not_idempotent() {
    let post = PreparedRequest::plain(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".to_vec());
    let get = PreparedRequest::plain(REQUEST.to_vec());
    for (requests, last) in [(vec![post.clone()], &b""[..]), (vec![get.clone()], b"HTTP/1.1 2"), (vec![get, post], b"")]
    {
        let burst = requests.len();
        let settings = ClientSettings { requests: requests.into(), ..settings(close_when_reused(burst, last, false)) };
        let report = run_script(settings, script_with_pauses(4, burst as u32));
        assert_eq!(answered(&report), 2 * burst);
        assert_eq!(report.drive.sent_again, []);
        assert_eq!(failures(&report), vec![RequestFailure::ClosedEarly; 2 * burst]);
    }
}

#[test]
fn a_request_that_is_sent_again_keeps_its_deadline() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let address = server(|index, mut stream| {
        let is_first = index == 0;
        if is_first && read_request(&mut stream) && stream.write_all(OK).is_ok() && read_request(&mut stream) {
            // The server closes the connection after half of the client's time without another byte.
            stream.set_read_timeout(Some(TIMEOUT / 2)).unwrap();
            assert!(stream.read(&mut [0]).is_err());
        } else {
            while read_request(&mut stream) {}
        }
    });
    let request_timeout_ns = TIMEOUT.as_nanos() as u64;
    let report = run_script(ClientSettings { request_timeout_ns, ..settings(address) }, script_with_pauses(2, 1));
    assert_eq!((answered(&report), failures(&report)), (1, vec![RequestFailure::TimedOut]));
    assert_eq!(report.drive.sent_again, [(1, SentAgain::IdleClose)]);
    let late = report.drive.ended.last().unwrap();
    assert!(late.ended_ns - late.begun_ns >= request_timeout_ns, "{late:?}");
    assert!(late.ended_ns - late.sent_ns < request_timeout_ns, "the second attempt has the rest of the time: {late:?}");
}

#[test]
fn responses_that_arrived_before_a_burst_could_not_be_sent_count() {
    // The server responds to the first request, and closes the connection while the client sends the second.
    let address = server(|_, mut stream| {
        if read_request(&mut stream) {
            stream.write_all(OK).unwrap();
        }
    });
    let mut large = b"GET / HTTP/1.1\r\nX: ".to_vec();
    large.resize(16 * 1024 * 1024, b'x');
    large.extend_from_slice(b"\r\n\r\n");
    let requests = [PreparedRequest::plain(REQUEST.to_vec()), PreparedRequest::plain(large)].into();
    let report = run_script(ClientSettings { requests, ..settings(address) }, Script { burst: 2, ..Script::new(1, 1) });
    assert_eq!((answered(&report), failures(&report).len(), sent(&report)), (1, 1, 1));
    assert_eq!(report.drive.sent_again, []);
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
