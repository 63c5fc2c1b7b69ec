//! The admin server: one thread accepts connections, and each connection has a thread of its own, within limits of size
//! and time. So neither a silent connection nor a slow command delays other connections.

use super::socket::AdminSocket;
use super::{AdminCommand, CommandResult, OrderKind};
use crate::cache;
use crate::events::{EventSender, WorkerEvent};
use crate::failure::Failure;
use crate::metrics::encode_metrics;
use crate::purge::PurgeRequest;
use crate::status::StatusState;
use flatout_engine::MetricsFormat;
use flatout_engine::explain::Question as Asked;
use flatout_http::head::FieldStorage;
use flatout_http::limits::Limits;
use flatout_http::request::{Method, parse_request_head};
use flatout_http::status::reason;
use flatout_http::target::Target;
use flatout_os::clock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use serde::Serialize;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Maximum time until a request is complete.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time until a request is complete, after the process has started to stop.
const LAST_QUESTION_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout for each write of the response to the client.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time for a command. An upgrade takes longest, and has its own deadline.
const ORDER_TIMEOUT: Duration = Duration::from_mins(2);

/// Maximum size of a request, in bytes. A URL to purge has at most 8 KiB, and grows when it is encoded. Content is
/// ignored.
const QUESTION_BYTES_MAX: usize = 32 * 1024;

/// Maximum number of connections. If there are more, the connection that has been silent longest is closed.
const CONNECTIONS_MAX: usize = 32;

const TEXT: &str = "text/plain; charset=utf-8";

/// The running thread that serves the admin socket.
#[derive(Debug)]
pub(crate) struct AdminThread {
    stop: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

impl AdminThread {
    /// Makes the thread stop after the responses in progress, without waiting for them.
    pub(crate) fn stop(&self) {
        // The write fails only if the counter is at its maximum; the thread has then been notified already.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }

    /// Stops the thread, and waits until all clients have received their responses. This takes a few seconds at most,
    /// because every step has a timeout.
    pub(crate) fn finish(self) {
        self.stop();
        // The thread has no result.
        let _ = self.thread.join();
    }
}

/// Starts the admin thread.
///
/// # Errors
/// If the thread cannot be started.
pub(crate) fn start(
    socket: &AdminSocket,
    shared: Arc<StatusState>,
    event_sender: EventSender,
) -> Result<AdminThread, Failure> {
    let failed = |error: io::Error| Failure::runtime(format!("cannot respond on the admin socket: {error}"));
    let listener = socket.listener.try_clone().map_err(failed)?;
    // During an upgrade, two processes may poll the listener. The second must not block in `accept`.
    listener.set_nonblocking(true).map_err(failed)?;
    let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from).map_err(failed)?);
    let stopped = Arc::clone(&stop);
    let serve_all = move || {
        let mut open = Vec::new();
        while wait(&listener, &stopped) {
            let accepted = listener.accept().and_then(|(stream, _)| begin(stream, &mut open, &shared, &event_sender));
            match accepted {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // No descriptor or thread is available now; one may become available later.
                Err(_) => clock::sleep(Duration::from_millis(100)),
            }
        }
        // A client that has just connected is still served.
        let deadline = clock::now() + LAST_QUESTION_TIMEOUT;
        while open.iter().any(AdminConnection::is_silent) && clock::now() < deadline {
            clock::sleep(Duration::from_millis(5));
        }
        open.into_iter().for_each(AdminConnection::finish);
    };
    let thread = thread::Builder::new().name("admin".to_owned()).spawn(serve_all).map_err(failed)?;
    Ok(AdminThread { stop, thread })
}

/// A connection and its thread.
struct AdminConnection {
    /// Another handle to the socket, for closing the connection from the admin thread.
    stream: UnixStream,
    /// True once the request is complete.
    is_heard: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl AdminConnection {
    /// Returns whether a request may still arrive.
    fn is_silent(&self) -> bool {
        !self.is_heard.load(Ordering::Acquire) && !self.thread.is_finished()
    }

    /// Closes the connection if no request has arrived. Returns whether it did so.
    fn close_if_silent(&self) -> bool {
        let is_silent = !self.is_heard.load(Ordering::Acquire);
        // If the connection is already closed, nothing more is needed.
        is_silent && self.stream.shutdown(Shutdown::Both).is_ok()
    }

    /// Waits until a received request has its response.
    fn finish(self) {
        self.close_if_silent();
        // The thread has no result.
        let _ = self.thread.join();
    }
}

/// Serves `stream` on a new thread.
fn begin(
    stream: UnixStream,
    open: &mut Vec<AdminConnection>,
    shared: &Arc<StatusState>,
    event_sender: &EventSender,
) -> io::Result<()> {
    open.retain(|connection| !connection.thread.is_finished());
    if open.len() >= CONNECTIONS_MAX {
        match open.iter().position(AdminConnection::close_if_silent) {
            Some(index) => open.remove(index).finish(),
            // All connections are waiting for responses, so this connection is refused, and the client is asked to
            // retry.
            None => return refuse(stream),
        }
    }
    let is_heard = Arc::new(AtomicBool::new(false));
    let (heard, shared, event_sender, own) =
        (Arc::clone(&is_heard), Arc::clone(shared), event_sender.clone(), stream.try_clone()?);
    let serve = move || {
        let mut stream = stream;
        // A client that disconnects early is not reported.
        let _ = serve(&mut stream, &heard, &shared, &event_sender);
        // The other handle would keep the connection open.
        let _ = stream.shutdown(Shutdown::Both);
    };
    let thread = thread::Builder::new().name("admin-ask".to_owned()).spawn(serve)?;
    open.push(AdminConnection { stream: own, is_heard, thread });
    Ok(())
}

/// Responds with status 503 without reading the request.
fn refuse(mut stream: UnixStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(Duration::from_millis(100)))?;
    let text = "All admin connections are busy; retry.\n";
    write_reply(&mut stream, &HttpReply::text(503, text))
}

/// Waits for a client. Returns false if the thread must stop.
fn wait(listener: &UnixListener, stop: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(stop, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
    // An interruption is treated as if a client had connected and left.
    let _ = poll(&mut fds, None);
    fds[0].revents().is_empty()
}

struct HttpReply {
    status: u16,
    content_type: &'static str,
    body: String,
    /// The `Allow` field, for status 405.
    allow: Option<&'static str>,
}

impl HttpReply {
    fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, content_type: TEXT, body: body.into(), allow: None }
    }

    fn json(body: &impl Serialize) -> Self {
        let body = serde_json::to_string_pretty(body).unwrap_or_default() + "\n";
        Self { status: 200, content_type: "application/json", body, allow: None }
    }
}

fn serve(
    stream: &mut UnixStream,
    is_heard: &AtomicBool,
    shared: &StatusState,
    event_sender: &EventSender,
) -> io::Result<()> {
    // On some systems, accepted sockets inherit this flag from the listener.
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let question = read_question(stream)?;
    is_heard.store(true, Ordering::Release);
    let reply = question.map_or_else(
        |refusal| HttpReply::text(refusal.0, format!("{}\n", refusal.1)),
        |question| answer(question, shared, event_sender),
    );
    write_reply(stream, &reply)
}

fn write_reply(stream: &mut UnixStream, reply: &HttpReply) -> io::Result<()> {
    let allow = reply.allow.map(|allow| format!("Allow: {allow}\r\n")).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n{allow}Connection: close\r\n\r\n",
        reply.status,
        reason(reply.status),
        reply.content_type,
        reply.body.len(),
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(reply.body.as_bytes())
}

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AdminRequest {
    /// The metrics, in this format.
    Metrics(MetricsFormat),
    Status,
    Order(OrderKind),
    /// A purge, or the problem with the request.
    Purge(Result<PurgeRequest, String>),
    /// A cache query, or the problem with the request.
    Cache(Result<Box<Asked>, String>),
    /// A known path with an unsupported method. Contains the supported method.
    Method(&'static str),
    Unknown,
}

/// Reads a request head. Returns a status code and a sentence if the head is malformed.
fn read_question(stream: &mut UnixStream) -> io::Result<Result<AdminRequest, (u16, &'static str)>> {
    let deadline = clock::now() + QUESTION_TIMEOUT;
    let mut bytes = Vec::new();
    loop {
        match parse_question(&bytes) {
            Ok(None) if bytes.len() >= QUESTION_BYTES_MAX => return Ok(Err((431, "The head is too large."))),
            Ok(None) => {}
            Ok(Some(question)) => return Ok(Ok(question)),
            Err(refused) => return Ok(Err(refused)),
        }
        let left = deadline.saturating_duration_since(clock::now());
        if left.is_zero() {
            return Ok(Err((408, "The head was not complete in time.")));
        }
        stream.set_read_timeout(Some(left))?;
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
}

fn parse_question(bytes: &[u8]) -> Result<Option<AdminRequest>, (u16, &'static str)> {
    let limits = Limits { head_bytes_max: QUESTION_BYTES_MAX, target_bytes_max: QUESTION_BYTES_MAX, ..Limits::DEFAULT };
    let mut storage = FieldStorage::new();
    let head =
        parse_request_head(bytes, &limits, &mut storage).map_err(|refusal| (refusal.status(), refusal.text()))?;
    let Some(head) = head else { return Ok(None) };
    let Target::Resource { path, query, .. } = head.target else { return Ok(Some(AdminRequest::Unknown)) };
    let read = matches!(head.method, Method::Get);
    let write = head.method == Method::Known("POST");
    Ok(Some(match path {
        b"/metrics" if read => AdminRequest::Metrics(MetricsFormat::of_accept(head.fields.all("accept"))),
        b"/status" if read => AdminRequest::Status,
        b"/cache" if read => {
            let query = String::from_utf8_lossy(query.unwrap_or_default());
            AdminRequest::Cache(cache::parse_question(&query).map(Box::new))
        }
        b"/metrics" | b"/status" | b"/cache" => AdminRequest::Method("GET"),
        b"/reload" if write => AdminRequest::Order(OrderKind::Reload),
        b"/upgrade" if write => AdminRequest::Order(OrderKind::Upgrade),
        b"/stop" if write => AdminRequest::Order(OrderKind::Stop),
        b"/purge" if write => {
            let query = String::from_utf8_lossy(query.unwrap_or_default());
            AdminRequest::Purge(PurgeRequest::parse_query(&query))
        }
        b"/reload" | b"/upgrade" | b"/stop" | b"/purge" => AdminRequest::Method("POST"),
        _ => AdminRequest::Unknown,
    }))
}

/// Checks that a request is parsed as soon as its head is complete, regardless of what follows, and not before that.
///
/// # Panics
/// If the check fails.
#[cfg(feature = "fuzzing")]
pub fn check_request(bytes: &[u8]) {
    let whole = parse_question(bytes);
    if matches!(whole, Ok(Some(_))) {
        assert_eq!(parse_question(&[bytes, b"more"].concat()), whole);
    }
    for end in [bytes.len() / 3, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        let part = parse_question(&bytes[..end]);
        assert!(part == Ok(None) || part == whole, "{part:?} of {end} bytes, {whole:?} of all");
    }
    if let Ok(Some(AdminRequest::Purge(Ok(request)))) = whole {
        let target = request.to_target();
        let head = format!("POST {target} HTTP/1.1\r\nHost: flatout\r\n\r\n");
        assert_eq!(parse_question(head.as_bytes()), Ok(Some(AdminRequest::Purge(Ok(request)))), "{target}");
    }
}

fn answer(question: AdminRequest, shared: &StatusState, event_sender: &EventSender) -> HttpReply {
    match question {
        AdminRequest::Metrics(format) => HttpReply {
            status: 200,
            content_type: format.content_type(),
            body: encode_metrics(shared, Some(shared.measure_unsent()), format),
            allow: None,
        },
        AdminRequest::Status => HttpReply::json(&shared.status()),
        // Not on the control thread, because a purge may take long.
        AdminRequest::Purge(Ok(request)) => match shared.store.purge(&request) {
            Ok(reply) => HttpReply::json(&reply),
            Err(text) => HttpReply::text(409, format!("error: {text}\n")),
        },
        AdminRequest::Purge(Err(text)) | AdminRequest::Cache(Err(text)) => {
            HttpReply::text(422, format!("error: {text}\n"))
        }
        AdminRequest::Cache(Ok(asked)) => match shared.store.explain(&asked) {
            Ok(reply) => HttpReply::json(&reply),
            Err(text) => HttpReply::text(409, format!("error: {text}\n")),
        },
        AdminRequest::Order(kind) => {
            let (answer, answers) = sync_channel(1);
            event_sender.send(WorkerEvent::Order(AdminCommand { kind, answer }));
            let late = |_| CommandResult {
                status: 504,
                text: "The server did not finish in time; its log may say why.\n".to_owned(),
            };
            let answer = answers.recv_timeout(ORDER_TIMEOUT).unwrap_or_else(late);
            HttpReply::text(answer.status, answer.text)
        }
        AdminRequest::Method(allow) => {
            HttpReply { allow: Some(allow), ..HttpReply::text(405, format!("Use {allow}.\n")) }
        }
        AdminRequest::Unknown => {
            let text = "Available: GET /status, GET /metrics, GET /cache, POST /reload, POST /upgrade, POST /stop, POST /purge.\n";
            HttpReply::text(404, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AdminRequest, OrderKind, parse_question};
    use crate::purge::{PurgeRequest, PurgeScope};
    use flatout_engine::MetricsFormat;

    fn parse(text: &str) -> Result<Option<AdminRequest>, u16> {
        parse_question(text.as_bytes()).map_err(|(status, _)| status)
    }

    #[test]
    fn requests_are_parsed_however_they_are_split() {
        let everything = PurgeRequest { scope: PurgeScope::All, soft: true, dry_run: false };
        for (line, question) in [
            ("GET /metrics", AdminRequest::Metrics(MetricsFormat::Text)),
            ("GET /status?x", AdminRequest::Status),
            ("POST /reload", AdminRequest::Order(OrderKind::Reload)),
            ("POST /upgrade", AdminRequest::Order(OrderKind::Upgrade)),
            ("POST /stop", AdminRequest::Order(OrderKind::Stop)),
            ("GET /reload", AdminRequest::Method("POST")),
            ("POST /cache?url=x", AdminRequest::Method("GET")),
            ("PUT /reload", AdminRequest::Method("POST")),
            ("POST /status", AdminRequest::Method("GET")),
            ("GET /", AdminRequest::Unknown),
            ("OPTIONS *", AdminRequest::Unknown),
            ("GET /purge?all", AdminRequest::Method("POST")),
            ("POST /purge?all&soft", AdminRequest::Purge(Ok(everything))),
            (
                "POST /purge",
                AdminRequest::Purge(Err("nothing to purge: use one of url, tag, prefix, host or all".to_owned())),
            ),
        ] {
            let text = format!("{line} HTTP/1.1\r\nHost: flatout\r\n\r\n");
            assert_eq!(parse(&text), Ok(Some(question.clone())), "{line}");
            for end in 0..text.len() {
                assert_eq!(parse(&text[..end]), Ok(None), "{line}, {end} bytes");
            }
            assert_eq!(parse(&format!("{text}more")), Ok(Some(question)), "{line}");
        }
        assert_eq!(parse("GET / HTTP/1.1\r\n\r\n"), Err(400));
    }
}
