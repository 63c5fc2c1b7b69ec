//! Origins that fail, each in a different way: what the client gets, what the log says, and that nothing broken is
//! stored.
//!
//! Each fault is tested on its own server: twice while the origin is faulty, and then once it works again, so that
//! anything left behind would show. Timeouts are short only where the origin would wait forever.

mod answers;
mod retries;

use super::super::harness::{Folder, Server, wait_until};
use super::super::http2::client::{END_HEADERS, END_STREAM, HEADERS};
use super::super::http2::origin::FrameOrigin;
use super::super::process::Refusing;
use super::super::tls::Certificate;
use super::super::tool::tool;
use super::origin::{Origin, Request, Then, fresh, response};
use super::{Answer, accelerate_url, ask, configure, get, log_of};
use answers::FAULTS;
use std::fs;
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// The response that a client gets when this fault occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// A complete error response with this status and a reason.
    Error(u16),
    /// The origin's own head, and content that is never completed.
    Cut,
    /// A complete response with the origin's status and this content.
    Whole(u16, &'static str),
}

struct Fault {
    name: &'static str,
    told: Told,
    /// The outcome or the ending in the log line. Empty if the fault is not an error.
    reason: &'static str,
    /// True if only a timeout can detect the fault.
    waits: bool,
    answer: fn(&mut TcpStream) -> Then,
}

const HEALTHY: &[u8] = b"the origin is well again";

const TIMEOUTS: &str = "timeouts { connect \"5s\"; head \"5s\"; body \"5s\" }";

/// Retries have their own tests. Origins are never marked unhealthy here.
fn proxy_settings(waits: bool) -> String {
    format!("retries 0\npassive off=#true\n{}", if waits { TIMEOUTS } else { "" })
}

/// An origin that shows the fault while it is broken, and sends a good cacheable response otherwise.
fn origin_with(fault: &'static Fault, is_broken: &Arc<AtomicBool>) -> Origin {
    let is_broken = Arc::clone(is_broken);
    Origin::start(move |request, stream| {
        if request.path() != "/" {
            return respond(stream, &fresh(request.target.as_bytes()));
        }
        if is_broken.load(Ordering::SeqCst) {
            return (fault.answer)(stream);
        }
        respond(stream, &fresh(HEALTHY))
    })
}

fn respond(stream: &mut TcpStream, bytes: &[u8]) -> Then {
    let _ = stream.write_all(bytes);
    Then::Keep
}

fn check_response(name: &str, told: Told, answer: &Answer) {
    let shown = format!("{name}: {answer:?}");
    match told {
        Told::Error(status) => assert!(answer.is_whole && answer.status == status, "{shown}"),
        Told::Cut => assert!(!answer.is_whole && answer.status == 200, "{shown}"),
        Told::Whole(status, body) => {
            assert!(answer.is_whole && (answer.status, answer.text().as_str()) == (status, body), "{shown}");
        }
    }
    // No part of a malformed head reaches a client.
    assert!(answer.fields.iter().all(|(name, value)| !name.contains(' ') && !value.contains('\0')), "{shown}");
}

/// Waits until the log has `count` lines for the path `/` with one of `reasons`.
fn wait_for_reasons(name: &str, folder: &Folder, reasons: &[&str], count: usize) {
    wait_until(&format!("{name}: one of {reasons:?} in {count} lines of the log"), || {
        let text = fs::read_to_string(log_of(folder)).unwrap_or_default();
        let lines = text.lines().filter(|line| line.contains("\"target\":\"/\""));
        lines.filter(|line| reasons.iter().any(|reason| line.contains(&format!("\"{reason}\"")))).count() >= count
    });
}

fn check_fault(fault: &'static Fault) {
    let is_broken = Arc::new(AtomicBool::new(true));
    let origin = origin_with(fault, &is_broken);
    let folder = Folder::new();
    let server = configure(&folder, &origin.url(), "", &proxy_settings(fault.waits));
    for time in 1..=2 {
        check_response(fault.name, fault.told, &get(&server, "/"));
        // Nothing was stored: the next request goes to the origin again. A pooled connection that ends before any
        // response may have been idle too long, so a fresh one is tried even without retries.
        let count = origin.count("/");
        assert!((time..2 * time).contains(&count), "{}: {count} requests", fault.name);
        // Excess bytes from the origin belong to no response.
        let other = get(&server, &format!("/other-{time}"));
        assert_eq!((other.status, other.text()), (200, format!("/other-{time}")), "{}", fault.name);
    }
    is_broken.store(false, Ordering::SeqCst);
    let before = origin.count("/");
    for _ in 0..2 {
        let well = get(&server, "/");
        assert!(well.is_whole && well.status == 200 && well.body == HEALTHY, "{}: {well:?}", fault.name);
    }
    assert_eq!(origin.count("/"), before + 1, "{}: a good answer is kept", fault.name);
    if !fault.reason.is_empty() {
        wait_for_reasons(fault.name, &folder, &[fault.reason], 2);
    }
    let (status, said) = server.stop();
    assert!(status.success(), "{}: {said}", fault.name);
}

/// Checks all faults in parallel, because most of the time is spent waiting.
fn for_each_fault(check: fn(&'static Fault)) {
    thread::scope(|scope| {
        let threads: Vec<_> = FAULTS.iter().map(|fault| (fault.name, scope.spawn(move || check(fault)))).collect();
        let failed: Vec<_> =
            threads.into_iter().filter_map(|(name, thread)| thread.join().err().map(|_| name)).collect();
        assert!(failed.is_empty(), "failed: {failed:?}");
    });
}

#[test]
fn every_fault_is_logged_by_name_and_leaves_nothing_behind() {
    for_each_fault(check_fault);
}

/// With a stale response that may be served on errors, the client does not notice the fault, unless half of the
/// response was already forwarded.
#[test]
fn a_stale_response_is_served_on_errors_when_allowed() {
    for_each_fault(|fault| {
        let is_broken = Arc::new(AtomicBool::new(false));
        let broken = Arc::clone(&is_broken);
        let origin = Origin::start(move |_, stream| {
            if broken.load(Ordering::SeqCst) {
                return (fault.answer)(stream);
            }
            respond(stream, &response("200 OK", "Cache-Control: public, max-age=0\r\nETag: \"a\"\r\n", HEALTHY))
        });
        let folder = Folder::new();
        let server = configure(&folder, &origin.url(), "stale-if-error \"1d\"", &proxy_settings(fault.waits));
        assert_eq!(get(&server, "/").body, HEALTHY);
        is_broken.store(true, Ordering::SeqCst);
        for _ in 0..2 {
            let answer = get(&server, "/");
            let is_stale = answer.status == 200 && answer.is_whole && answer.body == HEALTHY;
            match fault.told {
                Told::Error(_) => assert!(is_stale, "{}: {answer:?}", fault.name),
                // Either its head was sent before the fault occurred, or the response is not faulty.
                told => check_response(fault.name, told, &answer),
            }
        }
        let (status, said) = server.stop();
        assert!(status.success(), "{}: {said}", fault.name);
    });
}

/// Asserts that a server with an unreachable origin responds with these statuses to every request, and keeps running.
fn check_unreachable(url: &str, proxy: &str, statuses: &[u16], reasons: &[&str]) {
    let folder = Folder::new();
    let server = configure(&folder, url, "", &format!("{}\n{proxy}", proxy_settings(true)));
    for _ in 0..2 {
        let answer = get(&server, "/");
        assert!(statuses.contains(&answer.status) && answer.is_whole, "{url}: {answer:?}");
    }
    wait_for_reasons(url, &folder, reasons, 2);
    assert_eq!(server.stop().0.code(), Some(0));
}

#[test]
fn a_refused_connection_is_502() {
    let refusing = Refusing::new();
    check_unreachable(&format!("http://{}", refusing.address()), "", &[502], &["origin_refused"]);
}

#[test]
fn a_connection_that_is_not_accepted_is_504() {
    // A listener whose backlog is full drops new connections.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let _waiting: Vec<_> = (0..3).map(connect).collect();
    check_unreachable(&format!("http://{address}"), "", &[504], &["origin_connect_timeout"]);
}

#[test]
fn an_unresolvable_origin_name_is_502() {
    // RFC 6761 §6.4: this name never resolves. If the resolver does not respond, that is a timeout.
    let reasons = ["origin_unresolved", "origin_resolve_timeout"];
    check_unreachable("http://nowhere.invalid:8080", "", &[502, 504], &reasons);
}

#[test]
fn a_failed_tls_handshake_is_502() {
    // A server without TLS: it rejects the handshake as a malformed request.
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", plain.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in plain.incoming().flatten() {
            let _ = stream.write_all(&response("400 Bad Request", "Connection: close\r\n", b"plain"));
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    check_unreachable(&url, "tls insecure=#true", &[502], &["origin_tls_failed"]);
    let certificate = Certificate::new();
    let folder = Folder::with(&[("index.html", b"secret")]);
    let server = Server::start(folder.path(), &["--tls-cert", &certificate.chain, "--tls-key", &certificate.key]);
    let url = format!("https://{}", server.address);
    check_unreachable(&url, "", &[502], &["origin_tls_untrusted", "origin_tls_name"]);
}

/// A request that must not be repeated reaches only one origin, whatever the result.
#[test]
fn only_idempotent_requests_are_retried() {
    let origin = Origin::start(|_, _| Then::Close);
    let folder = Folder::new();
    let server = configure(&folder, &origin.url(), "", "retries 2\npassive off=#true");
    assert_eq!(ask(&server, "POST", "/post", "Content-Length: 0\r\n").status, 502);
    assert_eq!(origin.count("/post"), 1);
    assert_eq!(ask(&server, "GET", "/get", "").status, 502);
    assert!((1..=3).contains(&origin.count("/get")), "{}", origin.count("/get"));
}

/// The origin may close idle connections at any time. Clients do not notice.
#[test]
fn an_idle_connection_closed_by_the_origin_is_not_an_error() {
    let closed = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&closed);
    let origin = Origin::start(move |request, stream| {
        let _ = stream.write_all(&response("200 OK", "Cache-Control: no-store\r\n", request.target.as_bytes()));
        // The origin did not announce the close.
        let _ = stream.shutdown(Shutdown::Write);
        counted.fetch_add(1, Ordering::SeqCst);
        Then::Close
    });
    let folder = Folder::new();
    let server = configure(&folder, &origin.url(), "", "");
    let mut asked = 0;
    for number in 0..50 {
        for method in ["GET", "POST"] {
            let target = format!("/{method}{number}");
            let fields = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
            let answer = ask(&server, method, &target, fields);
            assert_eq!((answer.status, answer.text()), (200, target));
            // A request sent while the connection closes may have been processed, so a POST is not sent again.
            asked += 1;
            wait_until("the connection is closed", || closed.load(Ordering::SeqCst) == asked);
        }
    }
}

/// A request that makes the origin close its connections is sent on one pooled connection and one fresh one, and no
/// third.
#[test]
fn one_attempt_sends_a_request_no_more_than_twice() {
    let both = Arc::new(Barrier::new(2));
    let origin = Origin::start(move |request, stream| {
        if request.path() == "/deadly" {
            return Then::Close;
        }
        // Two connections are open at once, and both are pooled.
        both.wait();
        let _ = stream.write_all(&response("200 OK", "", b"warm"));
        Then::Keep
    });
    let folder = Folder::new();
    let config = format!(
        "workers 1\nadmin off=#true\nsite {{ listen \"127.0.0.1:0\"; proxy \"{}\" {{ retries 0; passive off=#true }} }}\n",
        origin.url()
    );
    let server = Server::run(&folder, &config);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_eq!(get(&server, "/warm").text(), "warm"));
        }
    });
    assert_eq!(get(&server, "/deadly").status, 502);
    assert_eq!(origin.count("/deadly"), 2);
}

/// A request that an origin has not processed is sent to the next origin.
#[test]
fn an_unreachable_origin_fails_over_to_the_next() {
    let away = Refusing::new();
    let origin = Origin::responding(|request: &Request| fresh(request.target.as_bytes()));
    let folder = Folder::new();
    let other = format!("origin \"http://{}\"", away.address());
    let server = configure(&folder, &origin.url(), "", &other);
    for number in 0..20 {
        let target = format!("/{number}");
        assert_eq!(get(&server, &target).text(), target);
    }
}

/// A malformed chunk is an error or a truncated response, whether or not the response is stored, and over every version
/// of HTTP.
#[test]
fn a_malformed_chunk_never_completes_a_response() {
    let origin = Origin::start(|request, stream| {
        let control = if request.path().starts_with("/kept") { "max-age=60" } else { "no-store" };
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: {control}\r\nTransfer-Encoding: chunked\r\n\r\n");
        let broken = "5 5\r\nhello\r\n0\r\n\r\n";
        if request.path().ends_with("/first") {
            let _ = stream.write_all(format!("{head}{broken}").as_bytes());
        } else {
            let _ = stream.write_all(format!("{head}5\r\nhello\r\n").as_bytes());
            thread::sleep(Duration::from_millis(100));
            let _ = stream.write_all(broken.as_bytes());
        }
        Then::Close
    });
    let server = accelerate_url(&origin.url(), &["--h2c"]);
    for version in ["--http1.1", "--http1.0", "--http2-prior-knowledge"] {
        for kind in ["kept", "passed"] {
            let ask = |place: &str| {
                let mut curl = tool("curl");
                curl.args(["--silent", version, "--output", "/dev/null", "--write-out", "%{http_code}"]);
                let output = curl.arg(server.url(&format!("/{kind}/{place}"))).output().unwrap();
                (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
            };
            assert_eq!(ask("first"), (true, "502".to_owned()), "{version} {kind}");
            assert_eq!(ask("later"), (false, "200".to_owned()), "{version} {kind}");
        }
    }
}

/// A client waits as long as one origin may take, or two if the request is safe, not as long as all of them together.
#[test]
fn a_safe_request_is_retried_once_after_a_head_timeout() {
    let is_over = Arc::new(AtomicBool::new(false));
    let silent = || {
        let is_over = Arc::clone(&is_over);
        Origin::start(move |_, _| {
            while !is_over.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(10));
            }
            Then::Close
        })
    };
    let origins = [silent(), silent(), silent()];
    let folder = Folder::new();
    let urls = format!("{}\" \"{}\" \"{}", origins[0].url(), origins[1].url(), origins[2].url());
    let server = configure(&folder, &urls, "", "retries 2\ntimeouts { head \"500ms\" }");
    let count = || origins.iter().map(|origin| origin.requests().len()).sum::<usize>();
    assert_eq!(get(&server, "/").status, 504);
    // The origin's thread may not have read the request yet.
    wait_until("two origins have the request", || count() > 1);
    assert_eq!(count(), 2, "no third origin gets the request after the second timeout");
    // No second origin gets a request that may change something.
    assert_eq!(ask(&server, "DELETE", "/", "").status, 504);
    wait_until("the origin has the request", || count() > 2);
    assert_eq!(count(), 3);
    is_over.store(true, Ordering::SeqCst);
}

#[test]
fn one_origin_that_hangs_costs_no_visitor_a_response() {
    let is_over = Arc::new(AtomicBool::new(false));
    let hangs = Arc::clone(&is_over);
    let hanging = Origin::start(move |_, _| {
        while !hangs.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(10));
        }
        Then::Close
    });
    let well = Origin::start(|_, stream| {
        let _ = stream.write_all(&response("200 OK", "Cache-Control: no-store\r\n", b"good"));
        Then::Keep
    });
    let folder = Folder::new();
    let urls = format!("{}\" \"{}", hanging.url(), well.url());
    let server = configure(&folder, &urls, "", "timeouts { head \"500ms\" }");
    for number in 0..6 {
        let response = get(&server, &format!("/{number}"));
        assert_eq!((response.status, response.body.as_slice()), (200, &b"good"[..]), "{number}");
    }
    assert!(!hanging.requests().is_empty(), "the origin that hangs was asked as well");
    is_over.store(true, Ordering::SeqCst);
}

/// The same if both origins speak HTTP/2.
#[test]
fn one_http2_origin_that_hangs_costs_no_visitor_a_response() {
    let hanging = FrameOrigin::start(|_, _| {});
    let well = FrameOrigin::start(|frame, connection| {
        // The status 200.
        connection.send(HEADERS, END_HEADERS | END_STREAM, frame.stream, &[0x88]);
    });
    let folder = Folder::new();
    let urls = format!("http://{}\" \"http://{}", hanging.address(), well.address());
    let server = configure(&folder, &urls, "", "http2 #true\ntimeouts { head \"500ms\" }");
    for number in 0..6 {
        assert_eq!(get(&server, &format!("/{number}")).status, 200, "{number}");
    }
    assert!(hanging.requests() > 0, "the origin that hangs was asked as well");
}
