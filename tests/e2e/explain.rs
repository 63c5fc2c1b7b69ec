//! `flatout explain` and `flatout config show`, as users run them, compared with the behaviour of a server.

use super::harness::{Folder, Response, Server, flatout, wait_until};
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

const CONFIG: &str = r#"workers 1
admin off=#true
site "example.com" {
    listen "127.0.0.1:0"
    header "X-All" "1"
    error 404 file="404.html"
    route "/old/*" {
        redirect to="/docs/{rest}" 301
    }
    route "/staff/*" {
        basic-auth realm="Staff" {
            user "ada" "$2b$04$vQ6G4GQfbSCHOeU9kdBQnOHRbHGn2vGYXcNoKzBqXQvFXnOJZ1IQ2"
        }
        respond 200 "in"
    }
    route "/docs/*" {
        files "www"
    }
}
"#;

fn site() -> Folder {
    let files: &[(&str, &[u8])] =
        &[("flatout.kdl", CONFIG.as_bytes()), ("404.html", b"<p>no"), ("www/docs/a.html", b"<p>a")];
    Folder::with(files)
}

fn run_flatout(folder: &Folder, arguments: &[&str]) -> Output {
    let mut command: Command = flatout();
    command.current_dir(folder.path()).args(arguments).env("HOME", folder.path()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_request_is_explained_without_a_server() {
    let folder = site();
    let output = run_flatout(&folder, &["explain", "http://example.com/docs/a.html"]);
    let text = stdout(&output);
    assert!(output.status.success(), "{output:?}");
    for part in ["GET http://example.com/docs/a.html", "flatout.kdl:16:5", "matches", "a file of 4 bytes", "200 OK"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains('\x1b'), "no colours but on a terminal");
    let coloured = run_flatout(&folder, &["explain", "http://example.com/", "--color", "always"]);
    assert!(stdout(&coloured).contains('\x1b'));
    let json = run_flatout(&folder, &["explain", "--json", "http://example.com/old/x", "-X", "HEAD", "-H", "A: b"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((json["status"].as_u64(), json["outcome"].as_str()), (Some(301), Some("redirected")));
    let shown = stdout(&run_flatout(&folder, &["config", "show", "http://example.com/docs/a.html"]));
    assert!(shown.contains("files \"www\"  // flatout.kdl:17:9") && !shown.contains("route"), "{shown}");
}

#[test]
fn the_charset_that_a_page_declares_is_shown_and_sent() {
    let folder = site();
    folder.write("404.html", b"<meta charset=iso-8859-1><p>Seite nicht verf\xfcgbar");
    folder.write("www/docs/alt.html", b"<meta charset=iso-8859-1><p>\xfc");
    let server = Server::run(&folder, CONFIG);
    let get = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n");
        let response = Response::parse(&server.exchange(request.as_bytes()));
        (response.status, response.field("content-type").unwrap_or_default().to_owned())
    };
    for (path, status, content_type) in [
        ("/docs/alt.html", 200, "text/html"),
        ("/docs/a.html", 200, "text/html; charset=utf-8"),
        ("/docs/none", 404, "text/html"),
    ] {
        assert_eq!(get(path), (status, content_type.to_owned()), "{path}");
        if status == 200 {
            let explained = stdout(&run_flatout(&folder, &["explain", &format!("http://example.com{path}")]));
            let line = explained.lines().find(|line| line.contains("a file of ")).unwrap();
            assert!(line.trim_end().ends_with(&format!(", {content_type}")), "{line}");
        }
    }
    // The next version of the page declares UTF-8.
    folder.write("404.html", b"<meta charset=utf-8><p>none");
    wait_until("the new error page", || get("/docs/none").1 == "text/html; charset=utf-8");
}

#[test]
fn explain_says_that_a_script_determines_its_response() {
    let folder = Folder::with(&[("x.php", b"<?php")]);
    folder.write("flatout.kdl", b"site { php \"unix:/run/none.sock\" { root \".\"; } }");
    let text = stdout(&run_flatout(&folder, &["explain", "http://example.com/x.php"]));
    assert!(
        text.contains("A script responds; its code determines the response.") && !text.contains("Unknown"),
        "{text}"
    );
}

#[test]
fn a_configuration_on_standard_input_can_include_files_of_the_current_folder() {
    let folder = Folder::with(&[("www/a.txt", b"a"), ("part.kdl", b"files \"www\"")]);
    let mut command = flatout();
    command.args(["validate", "--no-machine-checks", "-c", "-"]).current_dir(folder.path());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"site { include \"part.kdl\" }").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(stdout(&output), "- is valid: 1 site\n", "{output:?}");
}

#[test]
fn requests_that_cannot_be_explained_get_a_reason() {
    let folder = site();
    for (arguments, part) in [
        (&["explain", "example.com"][..], "is not a URL"),
        (&["explain", "ftp://example.com/"], "neither http nor https"),
        (&["explain", "http://example.com/", "-H", "nonsense"], "is not a field"),
        (&["explain", "http://example.com/", "-c", "none.kdl"], "none.kdl"),
        (&["config", "show", "example.com"], "is not a URL"),
    ] {
        let output = run_flatout(&folder, arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(part), "{arguments:?}: {text}");
    }
    folder.write("flatout.kdl", CONFIG.replace("\"www\"", "\"gone\"").as_bytes());
    let output = run_flatout(&folder, &["explain", "http://example.com/"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && text.contains("flatout.kdl:17:9: the folder `gone`"), "{text}");
}

#[test]
fn a_server_behaves_as_explained() {
    let folder = site();
    let mut command = flatout();
    command.current_dir(folder.path()).args(["run", "-c", "flatout.kdl"]).env("HOME", folder.path());
    let server = Server::spawn(command);
    for path in ["/docs/a.html", "/docs/none", "/old/a?b", "/nowhere", "/docs//a.html", "/docs/%2e%2e/x"] {
        let explained = run_flatout(&folder, &["explain", "--json", &format!("http://example.com{path}")]);
        let explained: serde_json::Value = serde_json::from_slice(&explained.stdout).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n");
        let answer = Response::parse(&server.exchange(request.as_bytes()));
        assert_eq!(explained["status"].as_u64(), Some(u64::from(answer.status)), "{path}");
        assert_eq!(explained["body_bytes"].as_u64(), Some(answer.body.len() as u64), "{path}");
        for field in explained["fields"].as_array().unwrap() {
            let (name, value) = (field["name"].as_str().unwrap(), field["value"].as_str());
            assert_eq!(answer.field(&name.to_ascii_lowercase()), value, "{path} {name}");
        }
    }
    let unknown = server.exchange(b"GET / HTTP/1.1\r\nHost: other.org\r\nConnection: close\r\n\r\n");
    assert_eq!(Response::parse(&unknown).status, 421);
    let guarded = server.exchange(b"GET /staff/ HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n");
    assert_eq!(Response::parse(&guarded).status, 401);
}
