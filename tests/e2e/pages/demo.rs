//! The pages of the demo, with its own configuration: the guestbook as well-behaved and hostile visitors use it, and
//! the status page. curl stores a visitor's cookies; Chromium renders what a person sees.

use super::super::browser::Browser;
use super::super::harness::{Folder, Response, Server, flatout};
use super::super::process::free_port;
use super::super::tool::tool;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

const WIDE: (u32, u32) = (1280, 1400);
const PHONE: (u32, u32) = (390, 1400);

/// The demo with its data in a folder of the test.
struct Demo {
    folder: Folder,
    server: Server,
}

impl Demo {
    fn start() -> Self {
        let folder = Folder::new();
        fs::create_dir(folder.path().join("data")).unwrap();
        let server = Self::serve(&folder);
        Self { folder, server }
    }

    fn serve(folder: &Folder) -> Server {
        let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo");
        let (demo, data) = (demo.display(), folder.path().display());
        let mut text = include_str!("../../../demo/flatout.kdl").to_owned();
        for (written, wanted) in [
            ("pages \"pages\"", format!("pages \"{demo}/pages\"")),
            ("files \"site\"", format!("files \"{demo}/site\"")),
            ("migrations=\"migrations\"", format!("migrations=\"{demo}/migrations\"")),
            ("\"data/guestbook.db\"", format!("\"{data}/data/guestbook.db\"")),
            ("\"data/secret\"", format!("\"{data}/data/secret\"")),
        ] {
            assert!(text.contains(written), "{written} in {text}");
            text = text.replace(written, &wanted);
        }
        folder.write("flatout.kdl", text.as_bytes());
        // The status page queries the server by its address, so the address must be known in advance.
        let free = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut command = flatout();
        command.args(["run", "-c"]).arg(folder.path().join("flatout.kdl"));
        command.env("DEMO_LISTEN", free.to_string()).env("DEMO_URL", format!("http://{free}"));
        Server::spawn(command)
    }

    fn visitor(&self, name: &str) -> Visitor<'_> {
        Visitor { demo: self, cookies: self.folder.path().join(name).display().to_string() }
    }
}

/// A visitor with a cookie jar.
struct Visitor<'a> {
    demo: &'a Demo,
    cookies: String,
}

impl Visitor<'_> {
    fn curl(&self, path: &str, arguments: &[&str]) -> Response {
        let mut curl = tool("curl");
        curl.args(["--silent", "--show-error", "--include", "--http1.1", "--max-time", "120", "--header", "Expect:"]);
        curl.args(["--cookie", &self.cookies, "--cookie-jar", &self.cookies]).args(arguments);
        let output = curl.arg(self.demo.server.url(path)).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Response::parse(&output.stdout)
    }

    fn get(&self, path: &str) -> String {
        let answer = self.curl(path, &[]);
        assert_eq!(answer.status, 200, "{path}: {}", text(&answer));
        text(&answer)
    }

    /// The token of the form that this visitor gets.
    fn token(&self) -> String {
        let page = self.get("/guestbook");
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").unwrap_or_else(|| panic!("no token in {page}"));
        rest.split_once('"').unwrap().0.to_owned()
    }

    fn post(&self, fields: &[(&str, &str)]) -> Response {
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let arguments: Vec<&str> = fields.iter().flat_map(|field| ["--data-urlencode", field]).collect();
        self.curl("/guestbook", &arguments)
    }

    fn write(&self, name: &str, message: &str) -> Response {
        let token = self.token();
        self.post(&[("csrf", &token), ("name", name), ("message", message)])
    }
}

fn text(response: &Response) -> String {
    String::from_utf8(response.body.clone()).unwrap()
}

#[test]
fn an_entry_is_accepted_once_and_only_with_the_token_of_its_visitor() {
    let demo = Demo::start();
    let (ann, eve) = (demo.visitor("ann"), demo.visitor("eve"));
    assert!(ann.get("/guestbook").contains("One entry"), "the migration writes the first");

    // Neither without a token, nor with another visitor's token, nor with a made-up one.
    let others = eve.token();
    ann.token();
    for token in [None, Some(others.as_str()), Some("invented")] {
        let mut fields = vec![("name", "Mallory"), ("message", "I was never here.")];
        fields.extend(token.map(|token| ("csrf", token)));
        assert_eq!(ann.post(&fields).status, 403, "{token:?}");
    }
    assert_eq!(demo.visitor("nobody").post(&[("name", "a"), ("message", "b"), ("csrf", &others)]).status, 403);
    assert!(!ann.get("/guestbook").contains("Mallory"));

    let answer = ann.write("Ann Müller", "Good morning!\nAnd good night.");
    assert_eq!(
        (answer.status, answer.field("location")),
        (303, Some("/guestbook?thanks#entries")),
        "{}",
        text(&answer)
    );
    let page = ann.get("/guestbook?thanks");
    for wanted in ["2 entries", "Thank you", "<strong>Ann Müller</strong>", "Good morning!\nAnd good night."] {
        assert!(page.contains(wanted), "no {wanted:?} in {page}");
    }
    assert!(eve.get("/guestbook").contains("Ann Müller"));

    // The database outlives the server, and the migration is not applied again.
    let Demo { folder, server } = demo;
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
    let server = Demo::serve(&folder);
    let page = text(&server.get("/guestbook"));
    assert!(page.contains("2 entries") && page.contains("Ann Müller"), "{page}");
}

#[test]
fn a_rejected_entry_is_explained_and_its_text_is_kept() {
    let demo = Demo::start();
    let ann = demo.visitor("ann");
    let (long_name, long_message) = ("n".repeat(61), "ü".repeat(1001));
    for (name, message, complaint) in [
        ("  ", "hello", "Your name is missing."),
        ("Ann", "", "Your message is missing."),
        (&long_name, "hello", "Your name has 61 characters; the maximum is 60."),
        ("Ann", &long_message, "Your message has 1001 characters; the maximum is 1000."),
    ] {
        let answer = ann.write(name, message);
        let page = text(&answer);
        assert_eq!(answer.status, 422, "{page}");
        assert!(page.contains(complaint), "no {complaint:?} in {page}");
        assert!(
            page.contains("aria-invalid=\"true\"") && page.contains(message) && page.contains(name.trim()),
            "{page}"
        );
    }
    assert!(ann.get("/guestbook").contains("One entry"));
    // Invalid UTF-8 gets its own message.
    let token = ann.token();
    let answer = ann.curl("/guestbook", &["--data", &format!("csrf={token}&name=%ff&message=x")]);
    assert_eq!(answer.status, 303, "{answer:?}");
    assert!(ann.get("/guestbook").contains('\u{fffd}'));
    // Exactly the maximum lengths.
    assert_eq!(ann.write(&"n".repeat(60), &"ü".repeat(1000)).status, 303);
}

#[test]
fn visitor_input_is_escaped() {
    let demo = Demo::start();
    let ann = demo.visitor("ann");
    let script = "<script>document.title = 'taken over'</script>";
    let attribute = "\"><img src=x onerror=\"document.title='taken over'\">";
    assert_eq!(ann.write(script, "</p></li></ol><script>document.title='taken over'</script>").status, 303);
    assert_eq!(ann.write(attribute, "'); DROP TABLE entry; --").status, 303);
    let page = ann.get("/guestbook");
    assert!(page.contains("&lt;script&gt;") && page.contains("DROP TABLE entry"), "{page}");
    // Input that is shown again in the form is escaped too.
    let answer = ann.write(attribute, "");
    let shown = text(&answer);
    assert_eq!(answer.status, 422);
    let answer = ann.write("", "</textarea><script>document.title='taken over'</script>");
    for page in [&page, &shown, &text(&answer)] {
        assert!(!page.contains("<script") && !page.contains("<img src=x"), "{page}");
    }
    let dom = Browser::new().dom(&demo.server.url("/guestbook"));
    assert!(dom.contains("<title>Guestbook – flatout</title>"), "{dom}");
    assert!(ann.get("/guestbook").contains("3 entries"));
}

#[test]
fn entries_are_paginated_newest_first() {
    let demo = Demo::start();
    let ann = demo.visitor("ann");
    for count in 1..=11 {
        assert_eq!(ann.write("Ann", &format!("entry number {count}.")).status, 303, "{count}");
    }
    // Twelve entries, including the one from the migration: five, five and two.
    for (path, here, elsewhere, position) in [
        ("/guestbook", ["number 11.", "number 7."], "number 6.", "Page 1 of 3"),
        ("/guestbook?page=2", ["number 6.", "number 2."], "number 7.", "Page 2 of 3"),
        ("/guestbook?page=3", ["number 1.", "001_guestbook.sql"], "number 2.", "Page 3 of 3"),
    ] {
        let page = ann.get(path);
        assert!(here.iter().all(|entry| page.contains(entry)) && page.contains(position), "{path}: {page}");
        assert!(!page.contains(elsewhere), "{path}: {page}");
        assert_eq!(page.contains("rel=\"prev\""), !path.ends_with("guestbook"), "{path}");
        assert_eq!(page.contains("rel=\"next\""), !path.ends_with('3'), "{path}");
    }
    for path in ["0", "4", "-1", "1.5", "two", "1e99", "", "nan", "%00"] {
        let answer = ann.curl(&format!("/guestbook?page={path}"), &[]);
        assert_eq!(answer.status, 404, "{path}");
        assert!(text(&answer).contains("There is no such page."), "{path}");
    }
}

#[test]
fn the_guestbook_allows_form_methods_only_and_limits_the_rate_of_posts() {
    let demo = Demo::start();
    let ann = demo.visitor("ann");
    for method in ["PUT", "DELETE", "PATCH"] {
        let answer = ann.curl("/guestbook", &["--request", method]);
        assert_eq!((answer.status, answer.field("allow")), (405, Some("GET, HEAD, POST")), "{method}");
    }
    let head = ann.curl("/guestbook", &["--head"]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    let mut statuses: Vec<u16> = Vec::new();
    // The minute may end once in between, but not twice.
    while statuses.len() < 41 && statuses.last() != Some(&429) {
        statuses.push(ann.write("Ann", &statuses.len().to_string()).status);
    }
    assert_eq!(statuses.pop(), Some(429), "{statuses:?}");
    assert!(statuses.len() >= 20 && statuses.iter().all(|status| *status == 303), "{statuses:?}");
    // Neither sources nor includes are served.
    for path in ["/guestbook.lhtml.bak", "/parts/top.html", "/status.luau", "/../pages/guestbook.lhtml"] {
        assert_eq!(ann.curl(path, &["--path-as-is"]).status / 100, 4, "{path}");
    }
    assert!(!text(&ann.curl("/guestbook.lhtml", &[])).contains("<?lua"));
}

#[test]
fn the_status_page_matches_the_counters() {
    let demo = Demo::start();
    let ann = demo.visitor("ann");
    for _ in 0..3 {
        ann.get("/");
    }
    let page = ann.get("/status");
    for wanted in ["uptime", "shown once since", env!("CARGO_PKG_VERSION"), "Luau", "<dd>1</dd>"] {
        assert!(page.contains(wanted), "no {wanted:?} in {page}");
    }
    assert!(!page.contains("not available"), "{page}");
    assert!(ann.get("/status").contains("shown 2 times"), "{page}");
    assert_eq!(ann.curl("/status", &[]).field("cache-control"), Some("no-store"));
}

#[test]
fn the_pages_render() {
    let demo = Demo::start();
    let ann = demo.visitor("ann");
    for (name, message) in [
        ("Ann", "Good morning from the first train."),
        (
            "Wolfgang Amadeus",
            "A longer one, which must be broken into several lines on every screen there is, the narrow ones first of all.\n\nAnd a second paragraph.",
        ),
        (
            "größe – 大きさ",
            "https://example.com/a-very-long-address-without-any-place-to-break-it/which-goes-on-and-on-and-on-and-on",
        ),
        ("<b>Bold</b>", "I said <i>nothing</i> & \"meant\" it."),
        ("Five", "5"),
    ] {
        assert_eq!(ann.write(name, message).status, 303);
    }
    for (path, name) in [("/guestbook", "demo-guestbook"), ("/status", "demo-status")] {
        ann.get(path);
        Browser::draw(&demo.server.url(path), name, WIDE, PHONE);
    }
}
