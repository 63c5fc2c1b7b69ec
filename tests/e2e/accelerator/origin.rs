//! Origins scripted to the byte, for faults, reflections and delays that no real server can produce on demand.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A request as it reached the origin.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) target: String,
    /// Names are in lower case.
    pub(super) fields: Vec<(String, String)>,
    /// Without the transfer coding.
    pub(super) body: Vec<u8>,
    pub(super) trailers: Vec<(String, String)>,
}

impl Request {
    /// All values of a field, joined as in RFC 9110 §5.3.
    pub(super) fn field(&self, name: &str) -> Option<String> {
        let values: Vec<&str> =
            self.fields.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str()).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap()
    }
}

/// How the connection continues or ends after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Keep,
    /// Closes with FIN.
    Close,
    /// Closes with RST.
    Reset,
}

type Handler = dyn Fn(&Request, &mut TcpStream) -> Then + Send + Sync;

/// A listener with a thread for each connection. It stops with the test.
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    is_over: Arc<AtomicBool>,
}

impl Origin {
    /// Records every complete request and passes it to `handler`, which responds.
    pub(super) fn start(handler: impl Fn(&Request, &mut TcpStream) -> Then + Send + Sync + 'static) -> Self {
        Self::start_with(true, handler)
    }

    /// Responds to every request with `response`, keeps the connection open, and records nothing, for very many
    /// requests.
    pub(super) fn responding_unlogged(response: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start_with(false, move |request, stream| {
            let _ = stream.write_all(&response(request));
            Then::Keep
        })
    }

    fn start_with(is_logged: bool, handler: impl Fn(&Request, &mut TcpStream) -> Then + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // The standard library uses a backlog of 128. In a crowd, connection attempts beyond that would be dropped and
        // repeated after one and three seconds, which is as long as the accelerator waits for a connection.
        rustix::net::listen(&listener, 4096).unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let (handler, log, end): (Arc<Handler>, _, _) =
            (Arc::new(handler), Arc::clone(&requests), Arc::clone(&is_over));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let (handler, log) = (Arc::clone(&handler), Arc::clone(&log));
                // Many threads may wait at once.
                let thread = thread::Builder::new().stack_size(256 * 1024);
                thread.spawn(move || serve(stream, handler.as_ref(), is_logged.then_some(&*log))).unwrap();
            }
        });
        Self { address, requests, is_over }
    }

    /// Responds to every request with `response` and keeps the connection open.
    pub(super) fn responding(response: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start(move |request, stream| {
            let _ = stream.write_all(&response(request));
            Then::Keep
        })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests received so far.
    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The number of requests for this path received so far.
    pub(super) fn count(&self, path: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|request| request.path() == path).count()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// A response with Content-Length. `fields` contains complete lines, each with its CRLF.
pub(super) fn response(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A response that is fresh for a minute.
pub(super) fn fresh(body: &[u8]) -> Vec<u8> {
    response("200 OK", "Cache-Control: max-age=60\r\n", body)
}

fn serve(mut stream: TcpStream, handler: &Handler, log: Option<&Mutex<Vec<Request>>>) {
    let mut bytes = Vec::new();
    let _ = stream.set_nodelay(true);
    while let Some(request) = read_request(&mut stream, &mut bytes) {
        if let Some(log) = log {
            log.lock().unwrap().push(request.clone());
        }
        match handler(&request, &mut stream) {
            Then::Keep => {}
            Then::Close => {
                let _ = stream.shutdown(Shutdown::Write);
                // Closing with unread data would send a reset.
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
                return;
            }
            Then::Reset => {
                let linger = rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO));
                return linger.unwrap();
            }
        }
    }
}

/// Reads more into `bytes`. Returns false at the end of the stream.
fn read_more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 16 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(count) => {
                bytes.extend_from_slice(&buffer[..count]);
                return true;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// Takes everything up to and including the next `end`.
fn take_until(stream: &mut TcpStream, bytes: &mut Vec<u8>, end: &[u8]) -> Option<Vec<u8>> {
    loop {
        if let Some(place) = bytes.windows(end.len()).position(|window| window == end) {
            return Some(bytes.drain(..place + end.len()).collect());
        }
        if !read_more(stream, bytes) {
            return None;
        }
    }
}

fn take_exactly(stream: &mut TcpStream, bytes: &mut Vec<u8>, count: usize) -> Option<Vec<u8>> {
    while bytes.len() < count {
        if !read_more(stream, bytes) {
            return None;
        }
    }
    Some(bytes.drain(..count).collect())
}

fn parse_fields(text: &str) -> Vec<(String, String)> {
    let split = |line: &str| line.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()));
    text.split("\r\n").filter_map(split).collect()
}

fn read_request(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Request> {
    let head = take_until(stream, bytes, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&head).into_owned();
    let (line, rest) = head.split_once("\r\n")?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let fields = parse_fields(rest);
    let mut request = Request { method, target, fields, body: Vec::new(), trailers: Vec::new() };
    if request.field("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    if request.field("transfer-encoding").is_some_and(|value| value.to_lowercase().contains("chunked")) {
        loop {
            let line = take_until(stream, bytes, b"\r\n")?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let size = usize::from_str_radix(line.trim().split(';').next()?.trim(), 16).ok()?;
            if size == 0 {
                break;
            }
            request.body.extend(take_exactly(stream, bytes, size)?);
            take_exactly(stream, bytes, 2)?;
        }
        let mut trailers = String::new();
        loop {
            let line = take_until(stream, bytes, b"\r\n")?;
            if line == b"\r\n" {
                break;
            }
            trailers.push_str(&String::from_utf8_lossy(&line));
        }
        request.trailers = parse_fields(&trailers);
    } else if let Some(length) = request.field("content-length") {
        request.body = take_exactly(stream, bytes, length.parse().ok()?)?;
    }
    Some(request)
}
