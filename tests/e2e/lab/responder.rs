//! A server of a few lines that answers when it is told to, and remembers when it did.

use crate::e2e::tool::tool;
use flatout_os::clock::precise_ns;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What becomes of one request.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// These bytes, not before that moment of the monotonic clock.
    At(u64, Vec<u8>),
    /// The same as the answer of this number, whose departure is noted.
    Noted(u64, Vec<u8>, usize, Arc<Departures>),
    /// These bytes at once, and the end of the connection.
    Last(Vec<u8>),
    /// A reset.
    Reset,
    /// Nothing, until the client gives up.
    Never,
}

/// When answers left, by their numbers: the moments of the monotonic clock between which each was given to the kernel.
#[derive(Debug)]
pub(super) struct Departures(Mutex<Vec<(u64, u64)>>);

impl Departures {
    /// Of so many answers, none of which has left.
    pub(super) fn of(count: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(vec![(0, 0); count])))
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<(u64, u64)> {
        self.0.lock().unwrap().clone()
    }
}

/// Listens on a free port; each request's target and time of arrival is answered by `decide`, each connection on a thread
/// of its own.
pub(super) fn respond(decide: impl Fn(&str, u64) -> Answer + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || accept(&listener, &Arc::new(decide)));
    address
}

/// The same on threads that run before all usual ones, where the user may ask for that.
pub(super) fn respond_before_others(decide: impl Fn(&str, u64) -> Answer + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        // Threads that this one starts inherit it.
        put_before_others();
        accept(&listener, &Arc::new(decide));
    });
    address
}

/// Makes this thread run before all usual ones, where the user may ask for that.
pub(super) fn put_before_others() {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let quiet = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let _ = quiet(tool("renice").args(["-n", "-20", "-p", &thread]));
}

fn accept<D: Fn(&str, u64) -> Answer + Send + Sync + 'static>(listener: &TcpListener, decide: &Arc<D>) {
    for stream in listener.incoming() {
        let (stream, decide) = (stream.unwrap(), Arc::clone(decide));
        thread::Builder::new().stack_size(128 * 1024).spawn(move || serve(stream, &*decide)).unwrap();
    }
}

/// An answer of 200 with so many bytes.
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

/// Sleeping ends late by up to the timer's slack, which a short turn makes up for.
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

/// A socket closed without lingering says RST instead of FIN.
fn reset(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
}
