//! Methods and contents of requests: from a list, a file, standard input or the command line.

use super::routes::requests_at;
use super::{Bench, bench, bench_by};
use crate::e2e::harness::{Folder, flatout};
use crate::e2e::tool::said;
use std::fs::File;
use std::net::TcpListener;
use std::sync::mpsc;

/// A server, its URL, and the requests that it receives.
fn server() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (format!("http://{}/", listener.local_addr().unwrap()), requests_at(listener))
}

/// The method, the target and the content of each request.
fn received(requests: &mpsc::Receiver<String>, run: &Bench) -> Vec<String> {
    assert_eq!((run.code, run.json["errors"]["total"].as_u64()), (Some(0), Some(0)), "{run:#?}");
    let parts = |request: String| {
        let (head, content) = request.split_once("\r\n\r\n").unwrap();
        let (line, _) = head.split_once(" HTTP/1.1\r\n").unwrap();
        format!("{line} {content}").trim_end().to_owned()
    };
    requests.try_iter().map(parts).collect()
}

#[test]
fn each_request_of_a_list_has_its_own_method_and_content() {
    let folder = Folder::with(&[("contents/d", b"from a file")]);
    folder.write("urls", b"/a\nPOST /b {\"x\": 1}\nDELETE /c\nPUT /d @contents/d\nGET /e with content\n");
    let list = folder.path().join("urls");
    let list = list.to_str().unwrap();
    let (url, requests) = server();
    let run = bench(&[&url, "--urls", list, "-n", "5", "-c", "1"]);
    let expected = ["GET /a", "POST /b {\"x\": 1}", "DELETE /c", "PUT /d from a file", "GET /e with content"];
    assert_eq!(received(&requests, &run), expected);
    assert!(run.stdout.contains("  POST /b ") && run.stdout.contains("  PUT /d "), "{}", run.stdout);
    // The method of the command line replaces all others, and its content is that of the lines without content.
    let run = bench(&[&url, "--urls", list, "-n", "2", "-c", "1", "--body-text", "z", "--method", "PATCH"]);
    assert_eq!(received(&requests, &run), ["PATCH /a z", "PATCH /b {\"x\": 1}"]);
    folder.write("urls", b"POST /b @none\n");
    let run = bench(&[&url, "--urls", list, "-n", "1"]);
    assert!(run.exit == Some(2) && run.stderr.contains("none: No such file"), "{run:#?}");
}

#[test]
fn a_request_with_content_is_a_post_unless_the_command_line_says_otherwise() {
    let folder = Folder::with(&[("body", b"from standard input")]);
    let (url, requests) = server();
    let once = [url.as_str(), "-n", "1", "-c", "1"];
    let run = bench(&[&once[..], &["--body-text", "a=b"]].concat());
    assert_eq!(received(&requests, &run), ["POST / a=b"]);
    assert_eq!(run.json["request"]["method"], "POST");
    let run = bench(&[&once[..], &["--body-text", "a=b", "--method", "GET"]].concat());
    assert_eq!(received(&requests, &run), ["GET / a=b"]);
    let mut command = flatout();
    command.stdin(File::open(folder.path().join("body")).unwrap());
    let run = bench_by(command, &[&once[..], &["--body", "-"]].concat());
    assert_eq!(received(&requests, &run), ["POST / from standard input"]);
}

#[test]
fn a_controller_cannot_make_an_agent_send_its_files() {
    let folder = Folder::with(&[("secret", b"the agent's")]);
    folder.write("urls", b"POST /b @secret\n");
    let list = folder.path().join("urls");
    let (url, requests) = server();
    // An agent runs its share with these flags.
    let run = bench(&[&url, "--urls", list.to_str().unwrap(), "-n", "1", "--share", "0/1"]);
    assert!(run.exit == Some(2) && run.stderr.contains("which agents do not read"), "{run:#?}");
    assert_eq!(requests.try_iter().count(), 0);
}

#[test]
fn a_foreign_bundle_cannot_make_a_rerun_send_local_files() {
    let folder = Folder::with(&[("secret", b"the user's"), ("urls", b"/a\n")]);
    let path = |name: &str| folder.path().join(name);
    let (url, requests) = server();
    let (list, bundle) = (path("urls"), path("bundle"));
    let run =
        bench(&[&url, "--urls", list.to_str().unwrap(), "-n", "1", "-c", "1", "--bundle", bundle.to_str().unwrap()]);
    assert_eq!(received(&requests, &run), ["GET /a"]);
    for name in [path("secret").to_str().unwrap(), "../../secret"] {
        folder.write("bundle/inputs/0-urls", format!("POST /b @{name}\n").as_bytes());
        let refused = flatout().arg("rerun").arg(&bundle).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(said(&refused).contains("0-urls names files with @"), "{}", said(&refused));
    }
    assert_eq!(requests.try_iter().count(), 0);
}

#[test]
fn a_result_does_not_store_the_body_from_the_command_line() {
    let folder = Folder::new();
    let (url, requests) = server();
    let run = bench(&[&url, "-n", "1", "-c", "1", "--body-text", "password=hidden"]);
    assert_eq!(received(&requests, &run), ["POST / password=hidden"]);
    let result = run.json.to_string();
    assert!(!result.contains("hidden") && !run.stdout.contains("hidden"), "{result}");
    folder.write("result.json", result.as_bytes());
    let rerun = |arguments: &[&str]| {
        let file = folder.path().join("result.json");
        flatout().arg("rerun").arg(&file).args(arguments).output().unwrap()
    };
    let refused = rerun(&[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("specify it again: -- --body-text '...'"), "{}", said(&refused));
    let repeated = rerun(&["--", "--body-text", "x"]);
    assert!(requests.try_iter().any(|request| request.ends_with("\r\n\r\nx")), "{}", said(&repeated));
}
