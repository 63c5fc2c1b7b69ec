//! Ten visitors at once, each with their own page, with every combination of fields that the storage rules distinguish:
//! no visitor gets another visitor's page, unless the origin or the owner of the cache declares it shareable.

use super::super::harness::{Folder, Server};
use super::super::tool::{run, tool};
use super::origin::{Origin, Request, Then, response};
use super::{Answer, ask, configuration, configure, get};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

const VISITORS: usize = 10;

/// The origin's response time: long enough for several requests to wait at once.
const DELAY: Duration = Duration::from_millis(100);

/// A response's own declaration about its use for other visitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// It is private, or must be validated on every use.
    Own,
    /// It has an explicit lifetime.
    Lifetime,
    /// It is public, but has no lifetime.
    Public,
    /// It has neither. A heuristic lifetime may be derived from Last-Modified.
    Guess,
    /// It declares nothing.
    Nothing,
    /// It may be used while stale.
    Stale,
    /// It has a lifetime, but arrives already stale.
    Aged,
}

/// Header fields of the kinds of responses. Each response also has an ETag.
const KINDS: &[(Says, &str)] = &[
    (Says::Nothing, ""),
    (Says::Nothing, "Cache-Control: must-revalidate\r\n"),
    (Says::Nothing, "Cache-Control: proxy-revalidate\r\n"),
    (Says::Nothing, "Vary: Accept-Encoding\r\n"),
    (Says::Nothing, "Cache-Control: stale-while-revalidate=600\r\n"),
    (Says::Nothing, "Cache-Control: stale-if-error=600\r\n"),
    (Says::Guess, "Last-Modified: Mon, 01 Jan 2001 00:00:00 GMT\r\n"),
    (Says::Public, "Cache-Control: public\r\n"),
    (Says::Own, "Cache-Control: no-cache\r\n"),
    (Says::Own, "Cache-Control: no-cache, max-age=600\r\n"),
    (Says::Own, "Cache-Control: no-store\r\n"),
    (Says::Own, "Cache-Control: private\r\n"),
    (Says::Own, "Cache-Control: private, max-age=600\r\n"),
    (Says::Own, "Cache-Control: max-age=0\r\n"),
    (Says::Own, "Cache-Control: max-age=0, must-revalidate\r\n"),
    (Says::Own, "Cache-Control: s-maxage=0\r\n"),
    (Says::Own, "Cache-Control: max-age=600, s-maxage=0\r\n"),
    (Says::Own, "Cache-Control: max-age=soon\r\n"),
    (Says::Own, "CDN-Cache-Control: max-age=0\r\nCache-Control: max-age=600\r\n"),
    (Says::Own, "CDN-Cache-Control: no-cache\r\nCache-Control: max-age=600\r\n"),
    (Says::Aged, "Cache-Control: max-age=600\r\nAge: 600\r\n"),
    (Says::Own, "Pragma: no-cache\r\n"),
    (Says::Own, "Pragma: no-cache\r\nLast-Modified: Mon, 01 Jan 2001 00:00:00 GMT\r\n"),
    (Says::Own, "Expires: Thu, 19 Nov 1981 08:52:00 GMT\r\n"),
    (Says::Own, "Expires: 0\r\n"),
    (Says::Own, "Expires: -1\r\nLast-Modified: Mon, 01 Jan 2001 00:00:00 GMT\r\n"),
    (Says::Own, "Cache-Control: max-age=600\r\nVary: *\r\n"),
    (Says::Own, "Cache-Control: max-age=600\r\nVary: Cookie, X-Visitor\r\n"),
    (Says::Own, "Cache-Control: max-age=600\r\nSet-Cookie: session=secret\r\n"),
    (Says::Own, "Set-Cookie: session=secret\r\n"),
    (Says::Own, "Cache-Control: max-age=600\r\nContent-Type: text/event-stream\r\n"),
    (Says::Own, "Content-Type: text/event-stream; charset=utf-8\r\n"),
    (Says::Stale, "Cache-Control: max-age=0, stale-while-revalidate=600\r\n"),
    (Says::Lifetime, "Cache-Control: max-age=600\r\n"),
    (Says::Lifetime, "Cache-Control: public, max-age=600\r\n"),
    (Says::Lifetime, "Cache-Control: s-maxage=600\r\n"),
    (Says::Lifetime, "Cache-Control: max-age=0, s-maxage=600\r\n"),
    (Says::Lifetime, "CDN-Cache-Control: max-age=600\r\nCache-Control: no-store\r\n"),
    (Says::Lifetime, "Expires: Fri, 31 Dec 2100 00:00:00 GMT\r\n"),
];

/// Settings of the cache.
const SETTINGS: &[&str] = &[
    "",
    "ttl \"10m\"",
    "stale-while-revalidate \"1h\"; stale-if-error \"1h\"",
    "ttl \"10m\"; stale-while-revalidate \"1h\"; hit-for-miss \"0s\"",
];

/// The field that distinguishes visitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Cookie,
    /// A field that no cache knows.
    Other,
}

/// Returns true if each visitor must get their own page, and `None` if both behaviours are correct.
fn must_be_own(says: Says, settings: &str, by: By, is_cold: bool) -> Option<bool> {
    let has_ttl = settings.contains("ttl");
    let owned = match says {
        Says::Aged if settings.contains("stale") => None,
        Says::Aged | Says::Own => Some(true),
        Says::Lifetime => Some(false),
        Says::Public => Some(!has_ttl),
        Says::Guess => Some(by == By::Cookie),
        Says::Nothing => Some(!has_ttl || by == By::Cookie),
        Says::Stale => None,
    };
    // As long as no response has shown that the page is shareable, requests with cookies do not wait.
    owned.filter(|owned| *owned || !is_cold || by == By::Other)
}

fn visitor_of(request: &Request) -> String {
    let cookie = request.field("cookie");
    let name = cookie.and_then(|cookie| cookie.strip_prefix("visitor=").map(str::to_owned));
    name.or_else(|| request.field("x-visitor")).unwrap_or_default()
}

/// Responds to `/N/…` with the fields of kind N, the visitor's name, and a validator for that visitor's page.
fn pages() -> Origin {
    Origin::responding(|request| {
        thread::sleep(DELAY);
        let kind: usize = request.path().split('/').nth(1).unwrap().parse().unwrap();
        let visitor = visitor_of(request);
        let fields = format!("{}ETag: \"{visitor}\"\r\n", KINDS[kind].1);
        if request.field("if-none-match").is_some_and(|tag| tag == format!("\"{visitor}\"")) {
            return format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").into_bytes();
        }
        response("200 OK", &fields, visitor.as_bytes())
    })
}

/// Requests `target` for all visitors at once over HTTP/1.1, and returns what each of them got.
fn visit(server: &Server, target: &str, by: By) -> Vec<String> {
    let start_line = Barrier::new(VISITORS);
    thread::scope(|scope| {
        let ask = |visitor: usize| {
            let mut stream = server.connect();
            let field = match by {
                By::Cookie => format!("Cookie: visitor={visitor}"),
                By::Other => format!("X-Visitor: {visitor}"),
            };
            start_line.wait();
            write!(stream, "GET {target} HTTP/1.1\r\nHost: test\r\n{field}\r\nConnection: close\r\n\r\n").unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            let answer = Answer::take(&mut bytes.as_slice(), false).unwrap();
            assert_eq!(answer.status, 200, "{target}");
            answer.text()
        };
        let visitors: Vec<_> = (0..VISITORS).map(|visitor| scope.spawn(move || ask(visitor))).collect();
        visitors.into_iter().map(|visitor| visitor.join().unwrap()).collect()
    })
}

/// Like [`visit`], over HTTP/2.
fn visit_by_http2(server: &Server, target: &str, by: By) -> Vec<String> {
    let folder = Folder::new();
    let page = |visitor: usize| folder.path().join(format!("page-{visitor}"));
    let mut config = String::new();
    for visitor in 0..VISITORS {
        let field = match by {
            By::Cookie => format!("cookie: visitor={visitor}"),
            By::Other => format!("x-visitor: {visitor}"),
        };
        let separator = if visitor == 0 { "" } else { "next\n" };
        let (url, page) = (server.url(target), page(visitor).display().to_string());
        writeln!(
            config,
            "{separator}http2-prior-knowledge\nurl = \"{url}\"\nheader = \"{field}\"\noutput = \"{page}\""
        )
        .unwrap();
    }
    folder.write("visitors.curl", config.as_bytes());
    let mut curl = tool("curl");
    curl.args(["--silent", "--show-error", "--parallel", "--parallel-immediate", "--config"]);
    run(curl.arg(folder.path().join("visitors.curl")));
    (0..VISITORS).map(|visitor| std::fs::read_to_string(page(visitor)).unwrap()).collect()
}

/// Checks what visitors got for pages of kind `kind`, and returns a description of what is wrong.
fn judge(kind: usize, settings: &str, by: By, is_cold: bool, answers: &[String]) -> Option<String> {
    let (says, fields) = KINDS[kind];
    let own = answers.iter().enumerate().filter(|(visitor, answer)| **answer == visitor.to_string()).count();
    let is_one = answers.iter().all(|answer| *answer == answers[0]);
    let is_right = match must_be_own(says, settings, by, is_cold) {
        Some(true) => own == VISITORS,
        Some(false) => is_one,
        None => true,
    };
    (!is_right).then(|| format!("{fields:?} by {by:?}: {answers:?}"))
}

/// Number of pages requested at the same time: enough to coincide in the server, and no more than a busy machine can
/// serve before connections time out.
const PAGES_AT_ONCE: usize = 13;

/// Lets ten visitors at once request each kind of page, first with a cold cache and then with whatever is stored.
fn check(settings: &str, ask: impl Fn(&str, By) -> Vec<String> + Sync) {
    let mut wrong = Vec::new();
    let cases: Vec<_> = (0..KINDS.len()).flat_map(|kind| [(kind, By::Cookie), (kind, By::Other)]).collect();
    for round in ["cold", "warm"] {
        for cases in cases.chunks(PAGES_AT_ONCE) {
            thread::scope(|scope| {
                let ask = &ask;
                let judge =
                    move |kind, by| judge(kind, settings, by, round == "cold", &ask(&format!("/{kind}/{by:?}"), by));
                let run = |&(kind, by)| scope.spawn(move || judge(kind, by));
                let cases: Vec<_> = cases.iter().map(run).collect();
                wrong.extend(cases.into_iter().filter_map(|case| case.join().unwrap()).map(|case| (round, case)));
            });
        }
    }
    assert!(wrong.is_empty(), "with {settings:?}, {} of {} wrong: {wrong:#?}", wrong.len(), 4 * KINDS.len());
}

#[test]
fn no_visitor_gets_the_page_of_another() {
    let origin = pages();
    for settings in SETTINGS {
        let folder = Folder::new();
        let server = configure(&folder, &origin.url(), settings, "");
        check(settings, |target, by| visit(&server, target, by));
    }
}

#[test]
fn no_visitor_gets_the_page_of_another_over_http2() {
    let origin = pages();
    for settings in SETTINGS {
        let folder = Folder::new();
        let config = configuration(&folder, &origin.url(), settings, "");
        let server = Server::run(&folder, &config.replace("127.0.0.1:0\"", "127.0.0.1:0\" h2c=#true"));
        check(settings, |target, by| visit_by_http2(&server, target, by));
    }
}

/// An origin that, as with NTLM, serves every request on a connection as the user who has authenticated it.
fn mailboxes() -> Origin {
    let users: Mutex<HashMap<SocketAddr, String>> = Mutex::default();
    Origin::start(move |request, stream| {
        let peer = stream.peer_addr().unwrap();
        let credentials = request.field("authorization").unwrap_or_default();
        let mut users = users.lock().unwrap();
        if let Some(user) = credentials.strip_prefix("NTLM ") {
            users.insert(peer, user.to_owned());
        }
        let answer = match users.get(&peer) {
            Some(user) => response("200 OK", "", format!("mailbox of {user}").as_bytes()),
            None => response("401 Unauthorized", "WWW-Authenticate: NTLM\r\n", b"nobody"),
        };
        let _ = stream.write_all(&answer);
        Then::Keep
    })
}

#[test]
fn a_connection_that_a_visitor_has_authenticated_serves_nobody_else() {
    let (origin, folder) = (mailboxes(), Folder::new());
    let server = configure(&folder, &origin.url(), "", "");
    let visit = |target: &str, fields: &str| ask(&server, "GET", target, fields).text();
    for round in 0..3 {
        // An ordinary exchange leaves a connection for the next request.
        assert_eq!(visit(&format!("/open{round}"), ""), "nobody");
        assert_eq!(visit(&format!("/mail{round}"), "Authorization: NTLM alice\r\n"), "mailbox of alice");
        assert_eq!(visit(&format!("/mail{round}"), ""), "nobody");
        assert_eq!(visit(&format!("/news{round}"), ""), "nobody");
    }
}

/// An error that one visitor provokes does not remove the response that others get. If access is denied, the resource
/// may be restricted from now on.
#[test]
fn errors_of_one_request_leave_the_stored_response_alone() {
    let origin = Origin::responding(|request| match request.field("x-status") {
        Some(status) => response(&format!("{status} Refused"), "", b"refused"),
        None => response("200 OK", "Cache-Control: max-age=600\r\nETag: \"a\"\r\n", b"page"),
    });
    let folder = Folder::new();
    let server = configure(&folder, &origin.url(), "", "");
    for (status, stays) in
        [(400, true), (406, true), (429, true), (431, true), (401, false), (403, false), (404, false)]
    {
        let target = format!("/{status}");
        assert_eq!(get(&server, &target).status, 200);
        let refused = ask(&server, "GET", &target, &format!("Cache-Control: no-cache\r\nX-Status: {status}\r\n"));
        assert_eq!(refused.status, status);
        assert_eq!(get(&server, &target).status, 200);
        assert_eq!(origin.count(&target), if stays { 2 } else { 3 }, "{status}");
    }
}
