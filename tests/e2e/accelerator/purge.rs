//! Purging cached responses: with `flatout purge`, and with the PURGE method where it is allowed.

use super::super::harness::{Folder, Server, flatout};
use super::super::tool::{run, said};
use super::origin::{Origin, response};
use super::{accelerate, ask, configure, get};
use serde_json::Value;
use std::path::PathBuf;

/// Pages with two tags each, one of them unique to the page.
fn origin() -> Origin {
    Origin::responding(|request| {
        let tags =
            format!("Cache-Control: max-age=600\r\nSurrogate-Key: all page{}\r\n", request.path().replace('/', "-"));
        response("200 OK", &format!("{tags}ETag: \"a\"\r\nVary: Accept-Language\r\n"), request.target.as_bytes())
    })
}

struct Subject {
    origin: Origin,
    server: Server,
    admin: PathBuf,
    _folder: Folder,
}

impl Subject {
    fn start() -> Self {
        let (origin, folder) = (origin(), Folder::new());
        let admin = folder.path().join("admin");
        let server = accelerate(&origin, &["--workers", "2", "--admin", admin.to_str().unwrap()]);
        Self { origin, server, admin, _folder: folder }
    }

    /// Fetches each target twice, so that it is stored.
    fn fill(&self, targets: &[&str]) {
        for target in targets {
            assert_eq!(get(&self.server, target).text(), *target);
            let before = self.origin.requests().len();
            assert_eq!(get(&self.server, target).text(), *target);
            assert_eq!(self.origin.requests().len(), before, "{target} is kept");
        }
    }

    /// Returns which of these targets are not stored. All of them are stored afterwards.
    fn not_stored<'a>(&self, targets: &[&'a str]) -> Vec<&'a str> {
        let is_gone = |target: &&&str| {
            let before = self.origin.requests().len();
            assert_eq!(get(&self.server, target).text(), **target);
            self.origin.requests().len() > before
        };
        targets.iter().filter(is_gone).copied().collect()
    }

    /// Returns the number of objects that `flatout purge` reports as purged.
    fn purge(&self, arguments: &[&str]) -> u64 {
        let mut command = flatout();
        command.arg("purge").args(arguments).arg("--json").arg("--admin").arg(&self.admin);
        let text = run(&mut command);
        let reply: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
        reply["objects"].as_u64().unwrap()
    }
}

#[test]
fn flatout_purge_removes_and_counts_matching_responses() {
    let subject = Subject::start();
    let host = format!("http://{}", subject.server.address);
    let all = ["/a", "/b", "/blog/1", "/blog/2", "/blogs", "/a?q=1"];
    // The Host of the tests' own requests differs from the address.
    let site = "http://test";
    subject.fill(&all);
    let purge = |arguments: &[&str]| subject.purge(arguments);
    assert_eq!(purge(&[&format!("{host}/a")]), 0, "of another host");
    assert_eq!(subject.not_stored(&all), [""; 0]);
    assert_eq!(purge(&[&format!("{site}/a"), "--dry-run"]), 1);
    assert_eq!(subject.not_stored(&all), [""; 0]);
    assert_eq!(purge(&[&format!("{site}/a")]), 1);
    assert_eq!(subject.not_stored(&all), ["/a"]);
    assert_eq!(purge(&["--prefix", &format!("{site}/blog/")]), 2);
    assert_eq!(subject.not_stored(&all), ["/blog/1", "/blog/2"]);
    assert_eq!(purge(&["--tag", "page-b"]), 1);
    assert_eq!(subject.not_stored(&all), ["/b"]);
    assert_eq!(purge(&["--tag", "no-such-tag"]), 0);
    assert_eq!(subject.not_stored(&all), [""; 0]);
    assert_eq!(purge(&["--tag", "all"]), 6);
    assert_eq!(subject.not_stored(&all), all);
    assert_eq!(purge(&["--host", "test"]), 6);
    assert_eq!(subject.not_stored(&all), all);
    assert_eq!(purge(&["--all"]), 6);
    assert_eq!(subject.not_stored(&all), all);
}

/// Objects of two proxies, in memory and on disk: both proxies are named, and no object is counted twice.
#[test]
fn flatout_purge_names_the_proxy_of_each_object() {
    let (one, two, folder) = (origin(), origin(), Folder::new());
    let path = folder.path().display();
    for store in ["", "store { disk \"cache\" \"64MiB\"; }\n"] {
        let text = format!(
            "admin \"{path}/admin\"\n{store}\
             site \"test\" {{ listen \"127.0.0.1:0\"; cache; route \"/two/*\" {{ proxy \"{}\"; }}; proxy \"{}\"; }}\n",
            two.url(),
            one.url()
        );
        let server = Server::run(&folder, &text);
        for target in ["/a", "/b", "/two/a"] {
            assert_eq!(get(&server, target).text(), target);
            assert_eq!(get(&server, target).text(), target);
        }
        let mut command = flatout();
        command.args(["purge", "--tag", "all", "--admin"]).arg(folder.path().join("admin"));
        let text = said(&command.output().unwrap());
        assert!(text.starts_with("3 objects purged: "), "{text}");
        assert!(text.contains("1 for the proxy test") && text.contains("2 for the proxy test"), "{text}");
        drop(server.stop());
    }
}

#[test]
fn a_purge_removes_all_variants() {
    let subject = Subject::start();
    let languages = ["en", "de", "fr"];
    let visit = || {
        for language in languages {
            ask(&subject.server, "GET", "/page", &format!("Accept-Language: {language}\r\n"));
        }
        subject.origin.requests().len()
    };
    assert_eq!((visit(), visit()), (3, 3));
    subject.purge(&["http://test/page"]);
    assert_eq!((visit(), visit()), (6, 6));
}

#[test]
fn softly_purged_responses_are_validated() {
    let subject = Subject::start();
    subject.fill(&["/soft"]);
    assert_eq!(subject.purge(&["http://test/soft", "--soft"]), 1);
    let before = subject.origin.requests().len();
    assert_eq!(get(&subject.server, "/soft").text(), "/soft");
    let requests = subject.origin.requests();
    assert_eq!(requests.len(), before + 1);
    assert_eq!(
        requests.last().unwrap().field("if-none-match").as_deref(),
        Some("\"a\""),
        "the purged response is still validated"
    );
}

#[test]
fn invalid_purge_arguments_are_usage_errors() {
    let subject = Subject::start();
    for arguments in [&["not a url"][..], &[], &["--all", "--tag", "a"], &["--tag", ""]] {
        let output = flatout().arg("purge").args(arguments).arg("--admin").arg(&subject.admin).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn the_purge_method_is_limited_to_allowed_clients() {
    let origin = origin();
    let terminated = "trusted-proxies \"127.0.0.0/8\"";
    for (allowed, proxy, fields, status) in [
        ("purge \"127.0.0.0/8\"", "", "", 200),
        ("purge \"10.0.0.0/8\"", "", "", 403),
        ("", "", "", 403),
        // A TLS terminator on the same machine says who the client is.
        ("purge \"127.0.0.0/8\"", terminated, "X-Forwarded-For: 192.0.2.1\r\n", 403),
        ("purge \"127.0.0.0/8\"", terminated, "X-Forwarded-For: 127.0.0.1, 192.0.2.1\r\n", 403),
        ("purge \"127.0.0.0/8\"", terminated, "Forwarded: for=unknown\r\n", 403),
        ("purge \"10.0.0.0/8\"", terminated, "X-Forwarded-For: 10.0.0.1\r\n", 200),
        ("purge \"10.0.0.0/8\"", "", "X-Forwarded-For: 10.0.0.1\r\n", 403),
    ] {
        let folder = Folder::new();
        let server = configure(&folder, &origin.url(), allowed, proxy);
        let count = || origin.count("/page");
        get(&server, "/page");
        let before = count();
        assert_eq!(get(&server, "/page").text(), "/page");
        assert_eq!(count(), before);
        let answer = ask(&server, "PURGE", "/page", fields);
        assert_eq!((answer.status, count()), (status, before), "{allowed}: {answer:?}");
        get(&server, "/page");
        let fetches = u32::from(status == 200);
        assert_eq!(count(), before + fetches as usize, "{allowed}: only an allowed client purges");
    }
}
