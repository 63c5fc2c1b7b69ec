//! `flatout explain` in front of a running accelerator: what it says is what the next request meets.

use super::super::harness::{Folder, Server, flatout, wait_until};
use super::origin::{Origin, response};
use super::{accelerate, ask, configuration, get};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Output;
use std::time::Instant;

fn origin() -> Origin {
    Origin::answering(|request| {
        let fields = match request.path() {
            "/private" => "Cache-Control: private\r\n",
            "/cookie" => "Cache-Control: max-age=60\r\nSet-Cookie: sid=1\r\n",
            "/short" => "Cache-Control: max-age=1\r\nETag: \"a\"\r\n",
            "/vary" => "Cache-Control: max-age=60\r\nVary: Accept-Language\r\n",
            _ => "Cache-Control: max-age=600\r\n",
        };
        response("200 OK", fields, b"hello")
    })
}

/// An accelerator whose own folder is the home of anyone who asks it.
struct Subject {
    origin: Origin,
    server: Server,
    admin: PathBuf,
    folder: Folder,
}

impl Subject {
    fn start() -> Self {
        let (origin, folder) = (origin(), Folder::new());
        let admin = folder.path().join("admin");
        let server = accelerate(&origin, &["--workers", "2", "--admin", admin.to_str().unwrap()]);
        Self { origin, server, admin, folder }
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let mut command = flatout();
        command.current_dir(self.folder.path()).env("HOME", self.folder.path()).env_remove("XDG_CONFIG_HOME");
        command.arg("explain").args(arguments).arg("--admin").arg(&self.admin).output().unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What the store says.
    fn cache(&self, arguments: &[&str]) -> Value {
        let output = self.output(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{output:?}");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&told["status"], &told["outcome"]), (&Value::Null, &Value::Null), "{told}");
        told["proxy"]["cache"].clone()
    }

    fn lookup(&self, arguments: &[&str]) -> String {
        self.cache(arguments)["lookup"]["name"].as_str().unwrap().to_owned()
    }
}

fn assert_parts(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn hits_and_misses_are_explained_with_their_arithmetic() {
    let subject = Subject::start();
    let url = "http://test/page?b=c";
    let text = subject.text(&[url]);
    let origin = subject.origin.url();
    assert_parts(
        &text,
        &[&origin, "key       http://test/page?b=c", "[miss_cold]", "stored    nothing", "fix       Repeat"],
    );
    assert!(subject.origin.requests().is_empty(), "nothing is asked of the origin");
    get(&subject.server, "/page?b=c");
    wait_until("it is kept", || subject.lookup(&[url]) == "hit_fresh");
    let text = subject.text(&[url]);
    assert_parts(
        &text,
        &[
            "[hit_fresh] A stored response was fresh.",
            "The stored response is served, with Age: ",
            "memory: 200, 5 bytes",
            "lifetime     600 s, from max-age in Cache-Control",
            "fresh        for another ",
        ],
    );
    assert_eq!(subject.lookup(&[url, "-H", "Cache-Control: no-cache"]), "request_no_cache");
    assert_eq!(subject.lookup(&[url, "-X", "POST"]), "unsafe_method");
    assert_eq!(subject.lookup(&["http://other/page?b=c"]), "miss_cold");
    // Explaining changes nothing.
    assert_eq!(subject.origin.requests().len(), 1);
}

#[test]
fn what_is_not_kept_says_why_and_what_to_do() {
    let subject = Subject::start();
    let begun = Instant::now();
    get(&subject.server, "/private");
    get(&subject.server, "/cookie");
    let text = subject.text(&["http://test/private"]);
    let ago =
        text.split_once("200, ").and_then(|(_, rest)| rest.split_once(" s ago")).map(|(ago, _)| ago.parse::<u64>());
    assert!(ago.is_some_and(|ago| ago.is_ok_and(|ago| ago <= begun.elapsed().as_secs() + 1)), "{text}");
    assert_parts(
        &text,
        &["[hit_for_miss]", "NO: [private] It says private: it is for one visitor only.", "marker    [private]"],
    );
    assert_parts(&text, &["fix       Send public, or remove private."]);
    let cookie = subject.cache(&["http://test/cookie"]);
    assert_eq!(cookie["not_kept"]["reason"]["name"], "set_cookie");
    assert!(subject.text(&["http://test/cookie"]).contains("set-cookie strip"));
    // And it is counted.
    let ask_admin = |verb: &str| {
        let output = flatout().args([verb, "--admin"]).arg(&subject.admin).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let status = ask_admin("status");
    assert_parts(&status, &["not stored: private", "not stored: set_cookie"]);
}

#[test]
fn another_variant_names_the_field_that_differs() {
    let subject = Subject::start();
    ask(&subject.server, "GET", "/vary", "Accept-Language: de\r\n");
    let german = ["http://test/vary", "-H", "Accept-Language: de"];
    wait_until("it is kept", || subject.lookup(&german) == "hit_fresh");
    let text = subject.text(&["http://test/vary", "-H", "Accept-Language: fr"]);
    assert_parts(&text, &["[miss_vary]", "for another request: accept-language is `fr", "Vary: accept-language"]);
    let none = subject.cache(&["http://test/vary"]);
    let difference = &none["variants"][0]["differences"][0];
    assert_eq!((&difference["name"], &difference["asked"]), (&Value::from("accept-language"), &Value::Null));
}

#[test]
fn stale_and_purged_answers_are_told_apart() {
    let subject = Subject::start();
    get(&subject.server, "/short");
    wait_until("it is stale", || subject.lookup(&["http://test/short"]) == "stale_expired");
    assert_parts(
        &subject.text(&["http://test/short"]),
        &["stale        since", "stored response is validated with an origin", "ETag \"a\""],
    );
    get(&subject.server, "/long");
    wait_until("it is kept", || subject.lookup(&["http://test/long"]) == "hit_fresh");
    let purge = |arguments: &[&str]| {
        let mut command = flatout();
        let output = command.arg("purge").args(arguments).arg("--admin").arg(&subject.admin).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    purge(&["http://test/long", "--soft"]);
    let soft = subject.cache(&["http://test/long"]);
    assert_eq!((&soft["variants"][0]["purged"], &soft["lookup"]["name"]), (&"soft".into(), &"stale_expired".into()));
    purge(&["http://test/long"]);
    assert!(matches!(subject.lookup(&["http://test/long"]).as_str(), "miss_cold" | "miss_purged"));
}

#[test]
fn without_a_running_process_the_walk_is_told() {
    let (origin, folder) = (origin(), Folder::new());
    let admin = folder.path().join("admin");
    let config = configuration(&folder, &origin.url(), "", "").replace("admin off=#true", &format!("admin {admin:?}"));
    folder.write("flatout.kdl", config.as_bytes());
    let explain = |arguments: &[&str]| {
        let mut command = flatout();
        command.current_dir(folder.path()).env("HOME", folder.path()).arg("explain").args(arguments).output().unwrap()
    };
    let output = explain(&["http://test/a"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert_parts(&text, &["asks http://", &origin.url(), "stored    not known: no flatout is running"]);
    folder.write("flatout.kdl", config.replace(&format!("admin {admin:?}"), "admin off=#true").as_bytes());
    let output = explain(&["http://test/a"]);
    assert!(String::from_utf8(output.stdout).unwrap().contains("has no admin socket"));
    // With one, the configuration says where it is.
    let server = Server::run(&folder, &config);
    get(&server, "/a");
    wait_until("it is kept", || String::from_utf8(explain(&["http://test/a"]).stdout).unwrap().contains("[hit_fresh]"));
    assert!(String::from_utf8(explain(&["http://test/a"]).stdout).unwrap().contains("flatout.kdl:"));
}
