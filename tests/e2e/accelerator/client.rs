//! Behind a proxy that all sites trust, the client that it names is the client in the log, in rules and in variables.

use super::super::harness::{Folder, Server, read_response, wait_until};
use super::super::php::scripted::{Scripted, complete_response, send};
use super::super::tool::{run, tool};
use super::log_of;
use super::origin::{Origin, Then, response};
use std::io::Write as _;

const CLIENT: &str = "203.0.113.7";
const OTHER: &str = "203.0.113.8";

const TRUSTED: &str = "trusted-proxies \"127.0.0.0/8\"";

/// A site that logs to [`log_of`] the folder.
fn config(folder: &Folder, top: &str, origin: &Origin, scripts: &str) -> String {
    format!(
        "workers 1\n{top}\nlog \"{}\"\nsite \"*\" {{\n\
         listen \"127.0.0.1:0\" h2c=#true\nheader \"X-Client\" \"{{client}}\"\n\
         route \"/denied\" {{ deny \"{CLIENT}\"; respond 200 \"allowed\"; }}\n\
         route \"/limited\" {{ rate-limit requests=1 period=\"1h\"; respond 200 \"within\"; }}\n\
         route \"/app\" {{ proxy \"{}\" {{ request-header \"X-Real-IP\" \"{{client}}\"; }} }}\n{scripts}\nfiles \"{}\"\n}}\n",
        log_of(folder).display(),
        origin.url(),
        folder.path().join("site").display(),
    )
}

#[test]
fn the_client_is_the_one_that_a_trusted_proxy_names() {
    let origin = Origin::start(|_, stream| {
        let _ = stream.write_all(&response("200 OK", "Cache-Control: no-store\r\n", b"app"));
        Then::Keep
    });
    let folder = Folder::with(&[("site/a.txt", b"a")]);
    let send = |server: &Server, path: &str, client: &str| {
        let mut stream = server.connect();
        let head = format!("GET {path} HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 1.2.3.4, {client}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let response = read_response(&mut stream);
        (response.status, response.field("x-client").unwrap().to_owned())
    };
    let server = Server::run(&folder, &config(&folder, TRUSTED, &origin, ""));
    for (path, client, status) in [
        ("/a.txt", CLIENT, 200),
        ("/missing", CLIENT, 404),
        ("/denied", CLIENT, 403),
        ("/denied", OTHER, 200),
        ("/limited", CLIENT, 200),
        ("/limited", OTHER, 200),
        ("/limited", CLIENT, 429),
        ("/app", CLIENT, 200),
    ] {
        assert_eq!(send(&server, path, client), (status, client.to_owned()), "{path}");
    }
    let received = || {
        let request = origin.requests().pop().unwrap();
        (request.field("x-real-ip").unwrap(), request.field("x-forwarded-for").unwrap())
    };
    assert_eq!(received(), (CLIENT.to_owned(), format!("1.2.3.4, {CLIENT}, 127.0.0.1")));
    // Requests that reach no site, and a client that the proxy hides.
    let raw = |head: &str| {
        let mut stream = server.connect();
        stream.write_all(head.as_bytes()).unwrap();
        read_response(&mut stream).status
    };
    assert_eq!(raw(&format!("OPTIONS * HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: {CLIENT}\r\n\r\n")), 204);
    // It hides the client as well if its fields cannot be parsed.
    let hidden = [
        "X-Forwarded-For: unknown",
        "X-Forwarded-For: nobody knows",
        "X-Forwarded-For: 1.2.3.4, 203.0.113.8:x, [::1",
        "X-Forwarded-For: 203.0.113.8 203.0.113.9",
        "X-Forwarded-For: \u{fc}",
        "Forwarded: garbage",
        "Forwarded: for=\"203.0.113.8",
        "Forwarded: for=203.0.113.8;for=203.0.113.8",
        "Forwarded: for=203.0.113.8, for=[::1",
        "Forwarded: for=_secret",
    ];
    for field in hidden {
        for (path, status) in [("/denied", 403), ("/a.txt", 200), ("/app", 200)] {
            assert_eq!(raw(&format!("GET {path} HTTP/1.1\r\nHost: test\r\n{field}\r\n\r\n")), status, "{path} {field}");
        }
        assert_eq!(origin.requests().pop().unwrap().field("x-real-ip").unwrap_or_default(), "", "{field}");
    }
    server.stop();
    let lines = std::fs::read_to_string(log_of(&folder)).unwrap();
    assert_eq!(lines.lines().filter(|line| line.contains(CLIENT)).count(), 7, "{lines}");
    assert_eq!(lines.lines().filter(|line| line.contains(OTHER)).count(), 2, "{lines}");
    assert_eq!(lines.lines().filter(|line| line.starts_with("- - -")).count(), 3 * hidden.len(), "{lines}");
    // Without the setting, anyone could claim to be anybody.
    let server = Server::run(&folder, &config(&folder, "", &origin, ""));
    assert_eq!(send(&server, "/denied", CLIENT), (200, "127.0.0.1".to_owned()));
    assert_eq!(send(&server, "/app", CLIENT), (200, "127.0.0.1".to_owned()));
    assert_eq!(received(), ("127.0.0.1".to_owned(), "127.0.0.1".to_owned()));
    wait_until("both lines are written", || {
        std::fs::read_to_string(log_of(&folder)).unwrap().lines().filter(|line| line.contains("127.0.0.1")).count() == 2
    });
}

/// Over both versions, and for scripts.
#[test]
fn the_client_is_the_same_over_http2_and_for_scripts() {
    let origin = Origin::responding(|_| response("200 OK", "Cache-Control: no-store\r\n", b"app"));
    let folder = Folder::with(&[("site/a.txt", b"a"), ("site/x.php", b"<?php")]);
    let php = Scripted::start(folder.path(), |_, stream| send(stream, &complete_response("\r\n\r\nscript")));
    let scripts = php.step(&folder.path().join("site"), "");
    let server = Server::run(&folder, &config(&folder, TRUSTED, &origin, &scripts));
    let cases = [
        ("/a.txt", CLIENT, 200),
        ("/missing", CLIENT, 404),
        ("/denied", CLIENT, 403),
        ("/denied", OTHER, 200),
        ("/limited", CLIENT, 200),
        ("/limited", CLIENT, 429),
        ("/app", CLIENT, 200),
        ("/x.php", CLIENT, 200),
    ];
    for (version, flag) in [("1.1", "--http1.1"), ("2", "--http2-prior-knowledge")] {
        for (path, client, status) in cases {
            let mut curl = tool("curl");
            curl.args(["--silent", flag, "--output", "/dev/null", "--header"]);
            curl.arg(format!("X-Forwarded-For: 1.2.3.4, {client}"));
            curl.args(["--write-out", "%{http_version} %{http_code} %header{x-client}"]);
            // The limit counts the requests of a client over all versions.
            let status = if (version, path) == ("2", "/limited") { 429 } else { status };
            assert_eq!(run(curl.arg(server.url(path))), format!("{version} {status} {client}"), "{path}");
        }
        let (request, script) = (origin.requests().pop().unwrap(), php.asked().pop().unwrap());
        assert_eq!(request.field("x-real-ip").as_deref(), Some(CLIENT));
        assert_eq!(request.field("x-forwarded-for"), Some(format!("1.2.3.4, {CLIENT}, 127.0.0.1")));
        assert_eq!(script.variables["REMOTE_ADDR"], CLIENT);
    }
    server.stop();
    let lines = std::fs::read_to_string(log_of(&folder)).unwrap();
    let count = |client: &str| lines.lines().filter(|line| line.starts_with(client)).count();
    assert_eq!((count(CLIENT), count(OTHER)), (14, 2), "{lines}");
}
