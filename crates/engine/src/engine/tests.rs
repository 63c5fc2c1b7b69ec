//! Tests of complete requests, through real folders and the real file handler.

use crate::Engine;
use crate::spec::{Sources, Spec};
use flatout_config::model::*;
use flatout_handler::content::Offers;
use flatout_handler::response::{Body, Response};
use flatout_handler::{Handler as _, Reply, Request};
use flatout_http::head::FieldStorage;
use flatout_http::limits::Limits;
use flatout_http::request::{assemble_request_head, parse_request_head};
use flatout_os::clock::Now;
use flatout_os::random::KeyedHashState;
use flatout_overload::{ClientCounter, ClientLimit};
use flatout_serve::cache::CacheLimits;
use flatout_serve::files::Services;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

mod auth;
mod guards;
mod naive;
mod reload;
mod routes;

/// A folder for one test, removed at its end.
pub(crate) struct Temporary(pub(crate) PathBuf);

impl Temporary {
    pub(crate) fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("flatout-engine-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        for (file, content) in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn step(kind: StepKind) -> Step {
    Step { place: Place { file: "test.kdl".into(), line: 1, column: 1 }, kind }
}

pub(crate) fn handler(handler: Handler) -> Step {
    step(StepKind::Handler(handler))
}

pub(crate) fn files(root: &Path) -> Step {
    handler(Handler::Files(Box::new(Files { root: root.into(), index: vec!["index.html".into()], ..Files::default() })))
}

pub(crate) fn respond(status: u16, body: &str) -> Step {
    handler(Handler::Respond(Respond { status, body: body.into(), content_type: "text/plain".into() }))
}

pub(crate) fn redirect(status: u16, to: Text) -> Step {
    handler(Handler::Redirect(Redirect { to, status }))
}

/// A text with variables in braces.
pub(crate) fn text(written: &str) -> Text {
    let mut parts = Vec::new();
    let mut rest = written;
    while let Some((literal, behind)) = rest.split_once('{') {
        let (name, behind) = behind.split_once('}').unwrap();
        parts.push(TextPart::Literal(literal.into()));
        parts.push(TextPart::Variable(match name {
            "host" => Variable::Host,
            "hostport" => Variable::HostPort,
            "path" => Variable::Path,
            "uri" => Variable::Uri,
            "query" => Variable::Query,
            "scheme" => Variable::Scheme,
            "rest" => Variable::Rest,
            other => panic!("{other}"),
        }));
        rest = behind;
    }
    parts.push(TextPart::Literal(rest.into()));
    parts.retain(|part| *part != TextPart::Literal(String::new()));
    Text { parts }
}

pub(crate) fn path(patterns: &[&str]) -> Matcher {
    Matcher::Path(patterns.iter().map(|&pattern| pattern.into()).collect())
}

pub(crate) fn route(matchers: Vec<Matcher>, block: Block) -> Step {
    step(StepKind::Route(Route { matchers, block }))
}

pub(crate) fn set(name: &str, value: &str) -> Step {
    step(StepKind::Header(vec![FieldOp::set(name.into(), value.into())]))
}

pub(crate) fn site(hosts: &[&str], block: Block) -> Site {
    Site {
        hosts: hosts.iter().map(|&host| host.into()).collect(),
        listeners: vec![0],
        file_check_interval_ms: 1000,
        log: Some(3),
        block,
        ..Site::default()
    }
}

pub(crate) fn listener(redirect_https_port: Option<u16>) -> Listener {
    Listener {
        place: Place::default(),
        address: "127.0.0.1:80".parse().unwrap(),
        access: SocketAccess::default(),
        protocol: Protocol::Plain,
        http2_cleartext: false,
        redirect_https_port,
        http3: None,
        proxy_protocol: None,
    }
}

pub(crate) fn config(sites: Vec<Site>) -> Config {
    Config { listeners: vec![listener(None)], sites, ..Config::default() }
}

pub(crate) fn compile(config: &Config) -> Arc<Spec> {
    Arc::new(Spec::compile(config, &Sources::default()).unwrap())
}

/// An engine for one site, `*`.
pub(crate) fn engine(block: Block) -> Tester {
    Tester::new(compile(&config(vec![site(&["*"], block)])))
}

pub(crate) struct Tester {
    pub(crate) engine: Engine,
    pub(crate) client: SocketAddr,
    pub(crate) now: Now,
}

/// The result of a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
    pub(crate) outcome: &'static str,
    pub(crate) response: Response,
}

impl Answer {
    fn of(response: Response) -> Self {
        let mut head = Vec::new();
        response.head.append_to(&mut head, b"Sun, 06 Nov 1994 08:49:37 GMT", response.extra_lines(), None);
        let body = match &response.body {
            Body::Empty => String::new(),
            Body::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => format!("{other:?}"),
        };
        Self {
            status: response.status,
            head: String::from_utf8(head).unwrap(),
            body,
            outcome: response.outcome.name(),
            response,
        }
    }

    /// The values of all fields called `name`.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// Status and content, for comparisons in one line.
    pub(crate) fn said(&self) -> (u16, &str) {
        (self.status, &self.body)
    }
}

impl Tester {
    pub(crate) fn new(spec: Arc<Spec>) -> Self {
        let engine = Engine::new(
            spec,
            Arc::new(Services::default()),
            CacheLimits::DEFAULT,
            ClientCounter::leak(ClientLimit::default(), KeyedHashState::new()),
        );
        Self {
            engine,
            client: "192.0.2.7:1234".parse().unwrap(),
            now: Now { monotonic_ms: 1_000_000, unix_s: 1_000_000 },
        }
    }

    pub(crate) fn reply(&self, request: &str, listener: u32) -> Reply {
        let mut storage = FieldStorage::new();
        let head = parse_request_head(request.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap().unwrap();
        let request = Request {
            head: &head,
            client: Some(self.client),
            unix: false,
            secure: false,
            listener,
            offers: &Offers::new(),
        };
        self.engine.handle(&request, self.now)
    }

    /// The response to `request`, whose lines end with CR LF.
    pub(crate) fn raw(&self, request: &str) -> Answer {
        Answer::of(wait(self.reply(request, 0)))
    }

    /// The response to a GET for `path` with `fields`, each a complete line.
    pub(crate) fn get(&self, path: &str, fields: &[&str]) -> Answer {
        self.ask("GET", path, fields)
    }

    pub(crate) fn ask(&self, method: &str, path: &str, fields: &[&str]) -> Answer {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        self.raw(&format!("{method} {path} HTTP/1.1\r\nHost: example.com\r\n{fields}\r\n"))
    }

    /// The response to a GET over HTTP/2 and TLS.
    pub(crate) fn http2(&self, authority: &str, path: &str) -> Answer {
        let fields = flatout_http::head::Fields::EMPTY;
        let authority = Some(authority.as_bytes());
        let head = assemble_request_head(b"GET", path.as_bytes(), authority, fields, &Limits::DEFAULT).unwrap();
        let request = Request {
            head: &head,
            client: Some(self.client),
            unix: false,
            secure: true,
            listener: 0,
            offers: &Offers::new(),
        };
        Answer::of(wait(self.engine.handle(&request, self.now)))
    }
}

/// Waits for a response that another thread helps to produce.
pub(crate) fn wait(reply: Reply) -> Response {
    let mut future = match reply {
        Reply::Now(response) => return response,
        Reply::Later(future) => future,
    };
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let begun = Instant::now();
    while begun.elapsed() < TIMEOUT {
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(response) => return response,
            Poll::Pending => std::thread::park_timeout(TIMEOUT),
        }
    }
    panic!("no answer in time");
}

/// Time after which a wait fails the test.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Continues a thread that waits for a future.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn one_site_of_files() {
    let folder = Temporary::new("files", &[("index.html", "home"), ("a.txt", "A"), ("docs/index.html", "docs")]);
    let tester = engine(vec![files(folder.path())]);
    assert_eq!(tester.get("/", &[]).said(), (200, "home"));
    let answer = tester.get("/a.txt", &[]);
    assert_eq!((answer.said(), answer.response.logged.log), ((200, "A"), 3));
    assert_eq!(tester.get("/a.txt", &[]).outcome, "hit");
    assert_eq!(tester.get("/docs", &[]).field("location"), Some("/docs/"));
    let missing = tester.get("/none", &[]);
    assert_eq!((missing.status, missing.outcome), (404, "not_found"));
    assert_eq!(tester.http2("example.com", "/a.txt").said(), (200, "A"));
}

#[test]
fn methods_are_answered_as_for_a_folder_of_files() {
    let folder = Temporary::new("methods", &[("a", "A")]);
    for block in [vec![files(folder.path())], vec![respond(200, "hello")], vec![handler(Handler::Metrics)]] {
        let tester = engine(block);
        for (method, path, status, outcome) in [
            ("HEAD", "/a", 200, ""),
            ("OPTIONS", "/a", 204, "options"),
            ("OPTIONS", "*", 204, "options"),
            ("OPTIONS", "/../", 204, "options"),
            ("POST", "/a", 405, "method_not_allowed"),
            ("PUT", "/a", 405, "method_not_allowed"),
            ("DELETE", "/a", 405, "method_not_allowed"),
            ("PATCH", "/a", 405, "method_not_allowed"),
            ("TRACE", "/a", 405, "method_not_allowed"),
            ("POST", "/../a", 405, "method_not_allowed"),
            ("CONNECT", "a:1", 501, "method_unknown"),
            ("get", "/a", 501, "method_unknown"),
            ("PROPFIND", "/a", 501, "method_unknown"),
        ] {
            let answer = tester.ask(method, path, &[]);
            assert_eq!(answer.status, status, "{method} {path} {answer:?}");
            assert!(outcome.is_empty() || answer.outcome == outcome, "{method} {path} {answer:?}");
            assert_eq!(answer.field("allow").is_some(), matches!(status, 204 | 405), "{method} {path} {answer:?}");
        }
    }
}

#[test]
fn nothing_answered_is_404_with_a_name() {
    let tester = engine(vec![set("A", "b")]);
    let answer = tester.get("/", &[]);
    assert_eq!((answer.status, answer.outcome, answer.field("a")), (404, "unrouted", Some("b")));
    assert_eq!(tester.ask("OPTIONS", "/", &[]).status, 204);
}

#[test]
fn refusals_have_plain_pages() {
    let tester = engine(Vec::new());
    let answer = Answer::of(tester.engine.handle_error(431, "The header section is too large."));
    assert!(answer.status == 431 && answer.body.contains("too large"));
}

#[test]
fn the_counters_are_answered_with() {
    let metrics: crate::MetricsText = Arc::new(|format| format!("{format:?} 7\n"));
    let sources = Sources { metrics: Some(metrics), ..Sources::default() };
    let config = config(vec![site(&["*"], vec![handler(Handler::Metrics)])]);
    let tester = Tester::new(Arc::new(Spec::compile(&config, &sources).unwrap()));
    for (accept, content, content_type) in [
        (&[][..], "Text 7\n", "text/plain; version=0.0.4"),
        (&["Accept: application/openmetrics-text"], "OpenMetrics 7\n", "application/openmetrics-text; version=1.0.0"),
    ] {
        let answer = tester.get("/metrics", accept);
        assert_eq!((answer.said(), answer.outcome), ((200, content), "metrics"));
        assert!(answer.field("content-type").unwrap().starts_with(content_type));
    }
}
