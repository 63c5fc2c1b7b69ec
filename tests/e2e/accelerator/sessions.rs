//! Session affinity: each session stays with the origin that knows it.

use super::super::harness::{Folder, Server, flatout, wait_until};
use super::super::tls::Certificate;
use super::super::tool::{run, test_tool};
use super::origin::{Origin, Request, Then, response};
use super::{Answer, ask, converse};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

const KEY: &[u8] = b"Zm9yIHRlc3RzIG9ubHksIG5vIHNlY3JldCBhdCBhbGw\n";

/// An application that keeps its sessions in memory: `/login` begins one, and every other page needs one.
struct Application {
    origin: Origin,
    /// True after the application has stopped: it resets every connection.
    is_stopped: Arc<AtomicBool>,
}

impl Application {
    fn start(name: &'static str) -> Self {
        let sessions = Mutex::new(HashSet::<String>::new());
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_stopped);
        let origin = Origin::start(move |request, stream| {
            if stopped.load(Ordering::SeqCst) {
                return Then::Reset;
            }
            let session = cookie_of(request, "session");
            let mut fields = format!("X-Origin: {name}\r\n");
            let status = match (request.path(), session) {
                ("/login", _) => {
                    let id = format!("{name}-{}", sessions.lock().unwrap().len());
                    write!(fields, "Set-Cookie: session={id}; Path=/; HttpOnly\r\n").unwrap();
                    sessions.lock().unwrap().insert(id);
                    "200 OK"
                }
                (_, Some(id)) if sessions.lock().unwrap().contains(&id) => "200 OK",
                _ => "403 Forbidden",
            };
            let _ = stream.write_all(&response(status, &fields, name.as_bytes()));
            Then::Keep
        });
        Self { origin, is_stopped }
    }
}

fn cookie_of(request: &Request, name: &str) -> Option<String> {
    let line = request.field("cookie")?;
    line.split("; ").filter_map(|pair| pair.split_once('=')).find(|(n, _)| *n == name).map(|(_, v)| v.to_owned())
}

/// A browser that stores cookies.
#[derive(Default)]
struct Visitor {
    cookies: Vec<(String, String)>,
}

impl Visitor {
    fn ask(&mut self, server: &Server, method: &str, path: &str) -> Answer {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let line = if cookies.is_empty() { String::new() } else { format!("Cookie: {}\r\n", cookies.join("; ")) };
        let answer = ask(server, method, path, &line);
        for (_, value) in answer.fields.iter().filter(|(name, _)| name == "set-cookie") {
            let (name, value) = value.split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.retain(|(other, _)| other != name);
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
        answer
    }

    fn get(&mut self, server: &Server, path: &str) -> Answer {
        self.ask(server, "GET", path)
    }

    fn cookie(&self, name: &str) -> Option<&str> {
        self.cookies.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

fn origin_of(answer: &Answer) -> String {
    answer.field("x-origin").unwrap_or_default().to_owned()
}

/// A configuration with `origins` and these settings in the proxy.
fn configuration(folder: &Folder, origins: &[&Origin], cache: &str, proxy: &str) -> String {
    folder.write("sticky.key", KEY);
    let admin = folder.path().join("admin.sock");
    let admin = admin.display();
    let urls: Vec<String> = origins.iter().map(|origin| format!("{:?}", origin.url())).collect();
    format!(
        "workers 2\nadmin \"{admin}\"\nsite \"*\" {{\n    listen \"127.0.0.1:0\"\n    {cache}\n    proxy {} {{\n        \
         {proxy}\n    }}\n}}\n",
        urls.join(" ")
    )
}

const STICKY: &str = "sticky secret=(file)\"sticky.key\"";

/// The recipe in docs/accelerator.md, with more origins.
#[test]
fn no_session_is_lost_and_only_those_of_a_stopped_origin_move() {
    const SESSIONS: usize = 40;
    let applications = ["one", "two", "three"].map(Application::start);
    let origins: Vec<&Origin> = applications.iter().map(|application| &application.origin).collect();
    let folder = Folder::new();
    let text = configuration(&folder, &origins, "", STICKY);
    let mut server = Server::run(&folder, &text);
    let mut visitors: Vec<Visitor> = (0..SESSIONS).map(|_| Visitor::default()).collect();
    let places: Vec<String> = visitors.iter_mut().map(|visitor| origin_of(&visitor.get(&server, "/login"))).collect();
    for name in ["one", "two", "three"] {
        let count = places.iter().filter(|place| *place == name).count();
        assert!((10..=16).contains(&count), "{name} has {count} of {SESSIONS} sessions");
    }
    let check = |server: &Server, visitors: &mut [Visitor], is_moved: &dyn Fn(&str) -> bool| {
        for (visitor, place) in visitors.iter_mut().zip(&places) {
            let answer = visitor.get(server, "/account");
            let is_lost = answer.status != 200 || origin_of(&answer) != *place;
            assert_eq!(is_lost, is_moved(place), "a session at {place}: {answer:?}");
            // No new cookie unless the session has moved.
            assert_eq!(answer.field("set-cookie").is_some(), is_lost);
        }
    };
    check(&server, &mut visitors, &|_| false);
    // The application sees its own cookie alone.
    for application in &applications {
        let requests = application.origin.requests();
        assert!(requests.iter().all(|request| cookie_of(request, "flatout-origin").is_none()), "{requests:?}");
    }
    // A restart.
    let _ = server.stop();
    server = Server::run(&folder, &text);
    check(&server, &mut visitors, &|_| false);
    // Another origin joins, as the first in the list, by a reload.
    let four = Application::start("four");
    let more: Vec<&Origin> = [&four.origin].into_iter().chain(origins.iter().copied()).collect();
    fs::write(folder.path().join("flatout.kdl"), configuration(&folder, &more, "", STICKY)).unwrap();
    run(flatout().args(["reload", "-c"]).arg(folder.path().join("flatout.kdl")));
    check(&server, &mut visitors, &|_| false);
    assert_eq!(origin_of(&Visitor::default().get(&server, "/login")), "four", "a new session");
    // One stops: its sessions move, and stay where they have moved.
    applications[1].is_stopped.store(true, Ordering::SeqCst);
    check(&server, &mut visitors, &|place| place == "two");
    for (visitor, _) in visitors.iter_mut().zip(&places).filter(|(_, place)| *place == "two") {
        let login = visitor.get(&server, "/login");
        let account = visitor.get(&server, "/account");
        assert_eq!((account.status, origin_of(&account)), (200, origin_of(&login)));
    }
}

/// Without a cookie, the setting for consistent hashing sends no crowd to one origin.
#[test]
fn visitors_without_the_hashed_cookie_are_spread() {
    let origins = ["one", "two", "three"].map(Application::start);
    let origins: Vec<&Origin> = origins.iter().map(|application| &application.origin).collect();
    let folder = Folder::new();
    let server = Server::run(
        &folder,
        &configuration(&folder, &origins, "", "balance \"consistent-hash\" cookie=\"session\"")
            .replace("workers 2", "workers 1"),
    );
    let places: Vec<String> = (0..30).map(|_| origin_of(&Visitor::default().get(&server, "/"))).collect();
    for name in ["one", "two", "three"] {
        assert_eq!(places.iter().filter(|place| *place == name).count(), 10, "{places:?}");
    }
    let hashed: HashSet<String> =
        (0..10).map(|_| origin_of(&ask(&server, "GET", "/", "Cookie: session=1\r\n"))).collect();
    assert_eq!(hashed.len(), 1);
}

#[test]
fn a_forged_cookie_is_as_none() {
    let applications = ["one", "two"].map(Application::start);
    let origins: Vec<&Origin> = applications.iter().map(|application| &application.origin).collect();
    let folder = Folder::new();
    let server = Server::run(&folder, &configuration(&folder, &origins, "", STICKY));
    let explained = run(flatout().args(["explain", "http://test/", "-c"]).arg(folder.path().join("flatout.kdl")));
    assert!(explained.contains("sticky secret="), "{explained}");
    assert!(!explained.contains(std::str::from_utf8(KEY).unwrap().trim()), "{explained}");
    let mut visitor = Visitor::default();
    visitor.get(&server, "/login");
    let value = visitor.cookie("flatout-origin").unwrap();
    let port = applications[0].origin.address.port().to_string();
    assert!(value.len() == 22 && !value.contains(&port), "{value}");
    for forged in [format!("{value}A"), value.to_lowercase(), "127.0.0.1".to_owned(), String::new(), "a=b".to_owned()] {
        let answer = ask(&server, "GET", "/", &format!("Cookie: session=x; flatout-origin={forged}\r\n"));
        let set = answer.field("set-cookie").unwrap();
        assert!(set.starts_with("flatout-origin=") && set.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{set}");
    }
    for application in &applications {
        let requests = application.origin.requests();
        assert!(requests.iter().all(|request| cookie_of(request, "flatout-origin").is_none()), "{requests:?}");
    }
}

/// The cookie is neither stored nor given to another visitor, and it neither prevents nor splits storing.
#[test]
fn the_cache_knows_nothing_of_the_cookie() {
    const WAITING: usize = 8;
    // The origins respond to requests for these paths only after they have been added.
    let open = Arc::new((Mutex::new(HashSet::new()), Condvar::new()));
    let origin = || {
        let open = Arc::clone(&open);
        Origin::start(move |request, stream| {
            let fields = match request.path() {
                "/stored" | "/slow" => "Cache-Control: public, max-age=60\r\n",
                // It is stored for its default lifetime.
                "/plain" => "ETag: \"a\"\r\n",
                "/own" | "/slow-own" => "Cache-Control: private\r\n",
                "/strip" => "Cache-Control: max-age=60\r\nSet-Cookie: theme=dark\r\n",
                _ => "",
            };
            if request.path().starts_with("/slow") {
                let (paths, changed) = &*open;
                drop(changed.wait_while(paths.lock().unwrap(), |paths| !paths.contains(request.path())).unwrap());
            }
            let _ = stream.write_all(&response("200 OK", fields, b"page"));
            Then::Keep
        })
    };
    let origins = [origin(), origin()];
    let all: Vec<&Origin> = origins.iter().collect();
    let folder = Folder::new();
    let server =
        Server::run(&folder, &configuration(&folder, &all, "cache {\n ttl \"60s\"\n set-cookie \"strip\"\n }", STICKY));
    let count = |path: &str| origins.iter().map(|origin| origin.count(path)).sum::<usize>();
    let mut known = Visitor::default();
    let set = known.get(&server, "/own").field("set-cookie").map(str::to_owned);
    assert!(set.is_some_and(|set| set.starts_with("flatout-origin=")));
    for path in ["/stored", "/plain"] {
        for _ in 0..2 {
            // The first response is stored, and the others come from the cache, for visitors with a cookie and without.
            assert_eq!(Visitor::default().get(&server, path).field("set-cookie"), None, "{path}");
            assert_eq!(known.get(&server, path).field("set-cookie"), None, "{path}");
        }
        assert_eq!(count(path), 1, "{path}");
    }
    // `explain` does not see the cookie either: with a cookie of the application, this would be a miss.
    let field = format!("Cookie: flatout-origin={}", known.cookie("flatout-origin").unwrap());
    let mut explain = flatout();
    explain.args(["explain", "http://test/plain", "-H", &field, "-c"]).arg(folder.path().join("flatout.kdl"));
    let explained = run(&mut explain);
    assert!(explained.contains("[hit_fresh]"), "{explained}");
    // The client that fetches a response gets the cookies that are not stored, which may begin a session.
    let mut first = Visitor::default();
    assert_eq!(first.get(&server, "/strip").fields.iter().filter(|(name, _)| name == "set-cookie").count(), 2);
    assert!(first.cookie("theme").is_some() && first.cookie("flatout-origin").is_some());
    assert_eq!(Visitor::default().get(&server, "/strip").field("set-cookie"), None);
    assert_eq!(count("/strip"), 1);
    let visit_at_once = |path: &'static str| {
        thread::scope(|scope| {
            let visitors: Vec<_> =
                (0..WAITING).map(|_| scope.spawn(|| Visitor::default().get(&server, path))).collect();
            wait_until("the first request", || count(path) > 0);
            let (paths, changed) = &*open;
            paths.lock().unwrap().insert(path.to_owned());
            changed.notify_all();
            visitors.into_iter().map(|visitor| visitor.join().unwrap()).collect::<Vec<Answer>>()
        })
    };
    // Several wait for one fetch: none of them gets a cookie.
    let answers = visit_at_once("/slow");
    assert!(answers.iter().all(|answer| (answer.status, answer.field("set-cookie")) == (200, None)), "{answers:?}");
    assert_eq!(count("/slow"), 1);
    // Several wait for a response that turns out to be private: each gets its own, with a cookie.
    for answer in visit_at_once("/slow-own") {
        assert!(answer.field("set-cookie").is_some_and(|set| set.starts_with("flatout-origin=")), "{answer:?}");
    }
    assert_eq!(count("/slow-own"), WAITING);
}

/// A cache between flatout and its clients, such as a CDN, must not store the cookie.
#[test]
fn a_response_that_other_caches_may_store_sets_no_cookie() {
    let origin = Origin::start(|request, stream| {
        let fields = match request.path() {
            "/cdn" => "Cache-Control: private\r\nCDN-Cache-Control: max-age=60\r\n",
            "/login" => "Cache-Control: private\r\nSet-Cookie: session=1\r\n",
            "/esi" => "Cache-Control: private\r\nContent-Type: text/html\r\nSurrogate-Control: content=\"ESI/1.0\"\r\n",
            _ => "Cache-Control: private\r\nETag: \"a\"\r\n",
        };
        let bytes = match request.field("if-none-match") {
            Some(_) => format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").into_bytes(),
            None => response("200 OK", fields, b"<esi:remove>old</esi:remove>page"),
        };
        let _ = stream.write_all(&bytes);
        Then::Keep
    });
    let public = "header \"Cache-Control\" \"public, max-age=60\"";
    for cache in ["", "cache {\n esi #true\n }"] {
        let run = |settings: &str| {
            let folder = Folder::new();
            let text = configuration(&folder, &[&origin], settings, STICKY);
            (Server::run(&folder, &text), folder)
        };
        let sets = |server: &Server, path: &str, lines: &str| {
            let answer = ask(server, "GET", path, lines);
            let mut fields = answer.fields.iter();
            let is_set = fields.any(|(name, value)| name == "set-cookie" && value.starts_with("flatout-origin="));
            (answer.status, is_set)
        };
        let (server, _folder) = run(cache);
        for (path, is_set) in [("/", true), ("/login", true), ("/esi", true), ("/cdn", false)] {
            assert_eq!(sets(&server, path, ""), (200, is_set), "{cache:?} {path}");
        }
        if cache.is_empty() {
            assert_eq!(sets(&server, "/", "If-None-Match: \"a\"\r\n"), (304, false));
        }
        // The configuration makes the responses public.
        let (server, _folder) = run(&format!("{cache}\n{public}"));
        for (path, is_set) in [("/", false), ("/login", true), ("/esi", false), ("/cdn", false)] {
            assert_eq!(sets(&server, path, ""), (200, is_set), "{cache:?} {path}, with public");
        }
    }
}

#[test]
fn websockets_reach_the_origin_of_the_session() {
    let application = |name: &'static str| {
        Origin::start(move |request, stream| {
            let fields = format!("X-Origin: {name}\r\n");
            if request.field("upgrade").is_none() {
                let _ = stream.write_all(&response("200 OK", &fields, b""));
                return Then::Keep;
            }
            let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
            let _ = stream.write_all(format!("{head}{fields}\r\n").as_bytes());
            Then::Close
        })
    };
    let origins = ["one", "two", "three"].map(application);
    let folder = Folder::new();
    let server = Server::run(&folder, &configuration(&folder, &origins.iter().collect::<Vec<_>>(), "", STICKY));
    let open = |cookies: &str| {
        let request = format!(
            "GET /chat HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{cookies}\r\n"
        );
        let answer = converse(&server, request.as_bytes()).into_iter().next().unwrap();
        assert_eq!(answer.status, 101, "{answer:?}");
        answer
    };
    for _ in 0..3 {
        // The handshake itself may begin a session.
        let first = open("");
        let cookie = first.field("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        for _ in 0..3 {
            let again = open(&format!("Cookie: a=1; {cookie}\r\n"));
            assert_eq!((origin_of(&again), again.field("set-cookie")), (origin_of(&first), None));
            let page = ask(&server, "GET", "/", &format!("Cookie: {cookie}\r\n"));
            assert_eq!((origin_of(&page), page.field("set-cookie")), (origin_of(&first), None));
        }
    }
}

/// With an independent client, which stores cookies itself.
#[test]
fn sessions_last_across_http_versions() {
    let (folder, certificate) = (Folder::new(), Certificate::new());
    let applications = ["one", "two", "three"].map(Application::start);
    let origins: Vec<&Origin> = applications.iter().map(|application| &application.origin).collect();
    let Certificate { chain, key, .. } = &certificate;
    let listen = format!("listen \"127.0.0.1:0\" tls=#true http3=#true\n    tls cert={chain:?} key={key:?}");
    let text = configuration(&folder, &origins, "cache", &format!("{STICKY} max-age=\"1d\""));
    let server = Server::run(&folder, &text.replace("listen \"127.0.0.1:0\"", &listen));
    let program = "
import pycurl, sys
from io import BytesIO
for begin in (2, 4, 31):
    for visitor in range(4):
        curl = pycurl.Curl()
        curl.setopt(curl.COOKIEFILE, '')
        origins = set()
        for version, path in ((begin, '/login'), (2, '/a'), (4, '/b'), (31, '/c'), (begin, '/d')):
            body, head = BytesIO(), BytesIO()
            for option, value in ((curl.URL, sys.argv[1] + path), (curl.HTTP_VERSION, version),
                                  (curl.SSL_VERIFYPEER, 0), (curl.SSL_VERIFYHOST, 0), (curl.FRESH_CONNECT, 1),
                                  (curl.WRITEDATA, body), (curl.HEADERFUNCTION, head.write)):
                curl.setopt(option, value)
            curl.perform()
            assert curl.getinfo(curl.RESPONSE_CODE) == 200, head.getvalue()
            lines = head.getvalue().decode()
            assert ('flatout-origin=' in lines) == (path == '/login'), lines
            if path == '/login':
                assert 'HttpOnly; SameSite=Lax; Max-Age=86400; Secure' in lines, lines
            origins.add(body.getvalue().decode())
        assert len(origins) == 1, origins
        print(origins.pop())
";
    let mut command = test_tool("python", "http3/bin");
    let text = run(command.args(["-c", program]).arg(server.url("")));
    assert_eq!(text.lines().count(), 12, "{text}");
    assert_eq!(text.lines().collect::<HashSet<_>>().len(), 3, "{text}");
    for application in &applications {
        let requests = application.origin.requests();
        assert!(requests.iter().all(|request| cookie_of(request, "flatout-origin").is_none()), "{requests:?}");
    }
}
