//! Answers that are taken away by hand: by `flatout purge`, and by the method PURGE where it is allowed.

use super::super::harness::{Folder, Server, flatout};
use super::super::tool::{run, said};
use super::origin::{Origin, response};
use super::{accelerate, ask, configure, get};
use serde_json::Value;
use std::path::PathBuf;

/// Pages with two tags each, one of which is their own.
fn origin() -> Origin {
    Origin::answering(|request| {
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

    /// Fetches each twice, so that it is kept.
    fn fill(&self, targets: &[&str]) {
        for target in targets {
            assert_eq!(get(&self.server, target).text(), *target);
            let before = self.origin.requests().len();
            assert_eq!(get(&self.server, target).text(), *target);
            assert_eq!(self.origin.requests().len(), before, "{target} is kept");
        }
    }

    /// Which of these are not kept; they are afterwards.
    fn gone<'a>(&self, targets: &[&'a str]) -> Vec<&'a str> {
        let is_gone = |target: &&&str| {
            let before = self.origin.requests().len();
            assert_eq!(get(&self.server, target).text(), **target);
            self.origin.requests().len() > before
        };
        targets.iter().filter(is_gone).copied().collect()
    }

    /// How many objects `flatout purge` says that it has purged.
    fn purge(&self, arguments: &[&str]) -> u64 {
        let mut command = flatout();
        command.arg("purge").args(arguments).arg("--json").arg("--admin").arg(&self.admin);
        let text = run(&mut command);
        let reply: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
        reply["objects"].as_u64().unwrap()
    }
}

#[test]
fn flatout_purge_takes_away_what_it_is_told_and_says_how_much() {
    let subject = Subject::start();
    let host = format!("http://{}", subject.server.address);
    let all = ["/a", "/b", "/blog/1", "/blog/2", "/blogs", "/a?q=1"];
    // The tests' own requests name another host than the address.
    let site = "http://test";
    subject.fill(&all);
    let purge = |arguments: &[&str]| subject.purge(arguments);
    assert_eq!(purge(&[&format!("{host}/a")]), 0, "of another host");
    assert_eq!(subject.gone(&all), [""; 0]);
    assert_eq!(purge(&[&format!("{site}/a"), "--dry-run"]), 1);
    assert_eq!(subject.gone(&all), [""; 0]);
    assert_eq!(purge(&[&format!("{site}/a")]), 1);
    assert_eq!(subject.gone(&all), ["/a"]);
    assert_eq!(purge(&["--prefix", &format!("{site}/blog/")]), 2);
    assert_eq!(subject.gone(&all), ["/blog/1", "/blog/2"]);
    assert_eq!(purge(&["--tag", "page-b"]), 1);
    assert_eq!(subject.gone(&all), ["/b"]);
    assert_eq!(purge(&["--tag", "no-such-tag"]), 0);
    assert_eq!(subject.gone(&all), [""; 0]);
    assert_eq!(purge(&["--tag", "all"]), 6);
    assert_eq!(subject.gone(&all), all);
    assert_eq!(purge(&["--host", "test"]), 6);
    assert_eq!(subject.gone(&all), all);
    assert_eq!(purge(&["--all"]), 6);
    assert_eq!(subject.gone(&all), all);
}

/// Objects of two proxies, in memory and on a disk: both are named, and none is counted twice.
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
        assert!(text.contains("1 of the proxy test") && text.contains("2 of the proxy test"), "{text}");
        drop(server.stop());
    }
}

#[test]
fn a_purge_takes_all_variants() {
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
fn what_is_purged_softly_is_asked_about() {
    let subject = Subject::start();
    subject.fill(&["/soft"]);
    assert_eq!(subject.purge(&["http://test/soft", "--soft"]), 1);
    let before = subject.origin.requests().len();
    assert_eq!(get(&subject.server, "/soft").text(), "/soft");
    let requests = subject.origin.requests();
    assert_eq!(requests.len(), before + 1);
    assert_eq!(requests.last().unwrap().field("if-none-match").as_deref(), Some("\"a\""), "it is still of use");
}

#[test]
fn what_makes_no_sense_is_a_usage_error() {
    let subject = Subject::start();
    for arguments in [&["not a url"][..], &[], &["--all", "--tag", "a"], &["--tag", ""]] {
        let output = flatout().arg("purge").args(arguments).arg("--admin").arg(&subject.admin).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn the_method_purge_is_for_those_who_are_allowed() {
    let origin = origin();
    for (allowed, status) in [("purge \"127.0.0.0/8\"", 200), ("purge \"10.0.0.0/8\"", 0), ("", 0)] {
        let folder = Folder::new();
        let server = configure(&folder, &origin.url(), allowed, "");
        let count = || origin.count("/page");
        get(&server, "/page");
        let before = count();
        assert_eq!(get(&server, "/page").text(), "/page");
        assert_eq!(count(), before);
        let answer = ask(&server, "PURGE", "/page", "");
        let method_reached_the_origin = count() > before;
        assert!(!method_reached_the_origin || status != 200, "{answer:?}");
        if status == 200 {
            assert_eq!(answer.status, 200, "{answer:?}");
            get(&server, "/page");
            assert_eq!(count(), before + 1, "it went");
        } else {
            // Refused, or passed on as any unknown method: which flatout does not promise, but a client's word for an
            // unsafe method (RFC 9111 §4.4) makes it stale at most.
            assert!(answer.status >= 400 || method_reached_the_origin, "{answer:?}");
        }
    }
}
