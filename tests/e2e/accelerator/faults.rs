//! Origins that fail, each in a way of its own: what the client gets, what the log says, and that nothing broken stays.
//!
//! Each fault meets a server of its own: twice while the origin is broken, then when it is well again, so that what
//! was left behind would show. Timeouts are short only where the origin would wait forever.

mod answers;

use super::super::harness::{Folder, Server, wait_until};
use super::super::tls::Certificate;
use super::origin::{Origin, Request, Then, fresh, response};
use super::{Answer, ask, configure, get, log_of};
use answers::FAULTS;
use std::fs;
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// What a client may be told of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// One of these statuses, with a reason, and a whole answer.
    Error(&'static [u16]),
    /// The origin's own head may have gone out already: an error, or an answer that never ends as if it were whole.
    Cut,
    /// The origin's answer, mended or not, whole and with these bytes.
    Whole(&'static str),
    /// Either: the RFC lets a proxy mend it or refuse it.
    WholeOrError(&'static str),
}

struct Fault {
    name: &'static str,
    told: Told,
    /// One of these is in the log's line; none for what is no error.
    reasons: &'static [&'static str],
    /// True if it is found out by waiting alone.
    waits: bool,
    answer: fn(&mut TcpStream) -> Then,
}

const HEALTHY: &[u8] = b"the origin is well again";

const TIMEOUTS: &str = "timeouts { connect \"2s\"; head \"2s\"; body \"2s\" }";

/// Retries are for other tests, and no origin is left out here for what it has done.
fn proxy_settings(waits: bool) -> String {
    format!("retries 0\npassive off=#true\n{}", if waits { TIMEOUTS } else { "" })
}

/// Gives the fault while it is broken and a good answer, which may be kept, when it is not.
fn origin_with(fault: &'static Fault, is_broken: &Arc<AtomicBool>) -> Origin {
    let is_broken = Arc::clone(is_broken);
    Origin::start(move |request, stream| {
        if request.path() != "/" {
            return answer(stream, &fresh(request.target.as_bytes()));
        }
        if is_broken.load(Ordering::SeqCst) {
            return (fault.answer)(stream);
        }
        answer(stream, &fresh(HEALTHY))
    })
}

fn answer(stream: &mut TcpStream, bytes: &[u8]) -> Then {
    let _ = stream.write_all(bytes);
    Then::Keep
}

fn check_answer(name: &str, told: Told, answer: &Answer) {
    let shown = format!("{name}: {answer:?}");
    match told {
        Told::Error(statuses) => assert!(answer.is_whole && statuses.contains(&answer.status), "{shown}"),
        Told::Cut => assert!(!answer.is_whole || matches!(answer.status, 502 | 504), "{shown}"),
        Told::Whole(body) => {
            assert!(answer.status == 200 && answer.is_whole && answer.text() == body, "{shown}");
        }
        Told::WholeOrError(body) => {
            let is_mended = answer.status == 200 && answer.text() == body;
            assert!(answer.is_whole && (is_mended || answer.status == 502), "{shown}");
        }
    }
    // Nothing of a broken head reaches a client.
    assert!(answer.fields.iter().all(|(name, value)| !name.contains(' ') && !value.contains('\0')), "{shown}");
}

/// Waits until the log says one of `reasons` in so many lines for the path `/`.
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
        check_answer(fault.name, fault.told, &get(&server, "/"));
        // Nothing of it was kept: it goes to the origin again. A kept connection that ends before any answer may have been
        // idle too long, so a fresh one is tried even without retries.
        let count = origin.count("/");
        assert!((time..2 * time).contains(&count), "{}: {count} requests", fault.name);
        // What the origin has sent too much is nobody's answer.
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
    if !fault.reasons.is_empty() && !matches!(fault.told, Told::WholeOrError(_)) {
        wait_for_reasons(fault.name, &folder, fault.reasons, 2);
    }
    let (status, said) = server.stop();
    assert!(status.success(), "{}: {said}", fault.name);
}

/// In parallel, for most of the time is spent waiting.
fn for_each_fault(check: fn(&'static Fault)) {
    thread::scope(|scope| {
        let threads: Vec<_> = FAULTS.iter().map(|fault| (fault.name, scope.spawn(move || check(fault)))).collect();
        let failed: Vec<_> =
            threads.into_iter().filter_map(|(name, thread)| thread.join().err().map(|_| name)).collect();
        assert!(failed.is_empty(), "failed: {failed:?}");
    });
}

#[test]
fn every_fault_has_a_name_and_leaves_nothing_behind() {
    for_each_fault(check_fault);
}

/// With a stored answer that may stand in for an error, the fault is not seen at all, unless half of it was passed on.
#[test]
fn a_stale_answer_stands_in_when_the_rules_say_so() {
    for_each_fault(|fault| {
        let is_broken = Arc::new(AtomicBool::new(false));
        let broken = Arc::clone(&is_broken);
        let origin = Origin::start(move |_, stream| {
            if broken.load(Ordering::SeqCst) {
                return (fault.answer)(stream);
            }
            answer(stream, &response("200 OK", "Cache-Control: public, max-age=0\r\nETag: \"a\"\r\n", HEALTHY))
        });
        let folder = Folder::new();
        let server = configure(&folder, &origin.url(), "stale-if-error \"1d\"", &proxy_settings(fault.waits));
        assert_eq!(get(&server, "/").body, HEALTHY);
        is_broken.store(true, Ordering::SeqCst);
        for _ in 0..2 {
            let answer = get(&server, "/");
            let is_stale = answer.status == 200 && answer.is_whole && answer.body == HEALTHY;
            match fault.told {
                // A 204 is no error, whatever comes behind it.
                Told::Error(&[204]) => assert!(answer.status == 204 && answer.is_whole, "{}: {answer:?}", fault.name),
                Told::Error(_) => assert!(is_stale, "{}: {answer:?}", fault.name),
                Told::Cut => assert!(is_stale || !answer.is_whole, "{}: {answer:?}", fault.name),
                Told::Whole(body) | Told::WholeOrError(body) => {
                    let is_new = answer.status == 200 && answer.is_whole && answer.text() == body;
                    assert!(is_stale || is_new, "{}: {answer:?}", fault.name);
                }
            }
        }
        let (status, said) = server.stop();
        assert!(status.success(), "{}: {said}", fault.name);
    });
}

/// A server that nobody can be reached behind answers so, whatever is asked, and stays.
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
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    check_unreachable(&format!("http://{address}"), "", &[502], &["origin_refused"]);
}

#[test]
fn a_connection_that_nobody_takes_is_504() {
    // A listener whose queue is full drops what comes.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let _waiting: Vec<_> = (0..3).map(connect).collect();
    check_unreachable(&format!("http://{address}"), "", &[504], &["origin_connect_timeout"]);
}

#[test]
fn a_name_without_an_address_is_502() {
    // RFC 6761 §6.4: never resolves. A resolver that does not answer at all is a timeout.
    let reasons = ["origin_unresolved", "origin_resolve_timeout"];
    check_unreachable("http://nowhere.invalid:8080", "", &[502, 504], &reasons);
}

#[test]
fn tls_that_fails_is_502() {
    // A server without TLS: it does not understand, and says so.
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

/// Of methods that may not be repeated, an origin sees one, whatever became of it.
#[test]
fn only_what_may_be_repeated_is_sent_again() {
    let origin = Origin::start(|_, _| Then::Close);
    let folder = Folder::new();
    let server = configure(&folder, &origin.url(), "", "retries 2\npassive off=#true");
    assert_eq!(ask(&server, "POST", "/post", "Content-Length: 0\r\n").status, 502);
    assert_eq!(origin.count("/post"), 1);
    assert_eq!(ask(&server, "GET", "/get", "").status, 502);
    assert!((1..=3).contains(&origin.count("/get")), "{}", origin.count("/get"));
}

/// Kept connections end when their origin pleases; no client sees anything of it.
#[test]
fn an_origin_that_closes_its_idle_connections_is_not_an_error() {
    let closed = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&closed);
    let origin = Origin::start(move |request, stream| {
        let _ = stream.write_all(&response("200 OK", "Cache-Control: no-store\r\n", request.target.as_bytes()));
        // It has said nothing of closing.
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
            // What is sent while the connection closes may have been done, and is not sent again when it is a POST.
            asked += 1;
            wait_until("the connection is closed", || closed.load(Ordering::SeqCst) == asked);
        }
    }
}

/// What makes an origin close its connections meets one that was kept and one that is fresh, and no third.
#[test]
fn one_attempt_sends_a_request_at_most_twice() {
    let both = Arc::new(Barrier::new(2));
    let origin = Origin::start(move |request, stream| {
        if request.path() == "/deadly" {
            return Then::Close;
        }
        // Two connections are open at once, and kept.
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

/// A request that its origin has not looked at is answered by the next.
#[test]
fn another_origin_steps_in_for_one_that_is_away() {
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let origin = Origin::answering(|request: &Request| fresh(request.target.as_bytes()));
    let folder = Folder::new();
    let other = format!("origin \"http://{away}\"");
    let server = configure(&folder, &origin.url(), "", &other);
    for number in 0..20 {
        let target = format!("/{number}");
        assert_eq!(get(&server, &target).text(), target);
    }
}

/// A client waits as long as one origin may take, not as long as all of them together.
#[test]
fn retries_after_a_head_timeout_end_with_the_first_one() {
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
    assert_eq!(count(), 1, "no second origin is asked once the time is over");
    // The same for a response that is not for the cache.
    assert_eq!(ask(&server, "DELETE", "/", "").status, 504);
    assert_eq!(count(), 2);
    is_over.store(true, Ordering::SeqCst);
}
