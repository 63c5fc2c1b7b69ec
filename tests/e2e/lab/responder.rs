//! A small server that responds at given times and records when it did.

use crate::e2e::tool::tool;
use flatout_os::clock::precise_ns;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The responder's reaction to one request.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// Sends these bytes, no earlier than this time of the monotonic clock.
    At(u64, Vec<u8>),
    /// Like `At`, for the response with this number, whose departure is recorded.
    Noted(u64, Vec<u8>, usize, Arc<Departures>),
    /// Sends these bytes immediately and closes the connection.
    Last(Vec<u8>),
    /// Closes the connection with RST instead of FIN.
    Reset,
    /// Sends nothing until the client gives up.
    Never,
}

/// When responses left, by number: the monotonic times just before and after each was passed to the kernel.
#[derive(Debug)]
pub(super) struct Departures(Mutex<Vec<(u64, u64)>>);

impl Departures {
    /// Creates a record for `count` responses, none of which has left yet.
    pub(super) fn of(count: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(vec![(0, 0); count])))
    }

    /// The times of all responses.
    pub(super) fn all(&self) -> Vec<(u64, u64)> {
        self.0.lock().unwrap().clone()
    }
}

/// Listens on a free port. `decide` gets each request's target and arrival time, and returns the response. Each
/// connection has its own thread.
pub(super) fn respond(decide: impl Fn(&str, u64) -> Answer + Send + Sync + 'static) -> SocketAddr {
    let (listener, address) = listen();
    respond_at(listener, decide);
    address
}

/// Like [`respond`], with a listener.
pub(super) fn respond_at(listener: TcpListener, decide: impl Fn(&str, u64) -> Answer + Send + Sync + 'static) {
    thread::spawn(move || accept(&listener, &Arc::new(decide)));
}

/// Like [`respond`], on threads with a higher priority than all usual ones, if the user may set that.
pub(super) fn respond_at_high_priority(decide: impl Fn(&str, u64) -> Answer + Send + Sync + 'static) -> SocketAddr {
    let (listener, address) = listen();
    thread::spawn(move || {
        // Threads started by this one inherit its priority.
        raise_priority();
        accept(&listener, &Arc::new(decide));
    });
    address
}

/// Raises the priority of this thread above all usual ones, if the user may set that.
pub(super) fn raise_priority() {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let quiet = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let _ = quiet(tool("renice").args(["-n", "-20", "-p", &thread]));
}

/// A listener on a free port whose backlog is large enough for all connections of a run.
fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 4096).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn accept<D: Fn(&str, u64) -> Answer + Send + Sync + 'static>(listener: &TcpListener, decide: &Arc<D>) {
    for stream in listener.incoming() {
        let (stream, decide) = (stream.unwrap(), Arc::clone(decide));
        thread::Builder::new().stack_size(128 * 1024).spawn(move || serve(stream, &*decide)).unwrap();
    }
}

/// A 200 response with this many bytes of content.
pub(super) fn ok(body_bytes: usize) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {body_bytes}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + body_bytes, b'x');
    answer
}

fn serve(mut stream: TcpStream, decide: &dyn Fn(&str, u64) -> Answer) {
    let _ = stream.set_nodelay(true);
    let (mut request, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") else {
            match stream.read(&mut piece) {
                Ok(count) if count > 0 => request.extend_from_slice(&piece[..count]),
                _ => return,
            }
            continue;
        };
        let arrived_ns = precise_ns();
        let head = String::from_utf8_lossy(&request[..end]).into_owned();
        request.drain(..end + 4);
        let target = head.split(' ').nth(1).unwrap_or_default();
        match decide(target, arrived_ns) {
            Answer::At(due_ns, bytes) => {
                wait_until_ns(due_ns);
                if stream.write_all(&bytes).is_err() {
                    return;
                }
            }
            Answer::Noted(due_ns, bytes, number, departures) => {
                wait_until_ns(due_ns);
                let before_ns = precise_ns();
                let written = stream.write_all(&bytes);
                departures.0.lock().unwrap()[number] = (before_ns, precise_ns());
                if written.is_err() {
                    return;
                }
            }
            Answer::Last(bytes) => {
                let _ = stream.write_all(&bytes);
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
            Answer::Reset => return reset(&stream),
            Answer::Never => {
                while stream.read(&mut piece).is_ok_and(|count| count > 0) {}
                return;
            }
        }
    }
}

/// Waits until `due_ns`. Sleeping may overrun by the timer's slack, so the last bit is a busy wait.
fn wait_until_ns(due_ns: u64) {
    const SLACK_NS: u64 = 150_000;
    let left_ns = due_ns.saturating_sub(precise_ns());
    if left_ns > SLACK_NS {
        thread::sleep(Duration::from_nanos(left_ns - SLACK_NS));
    }
    while precise_ns() < due_ns {
        std::hint::spin_loop();
    }
}

/// Closing a socket with a linger time of zero sends RST instead of FIN.
fn reset(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
}
