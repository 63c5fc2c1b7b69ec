//! Placeholders in URLs, header values and bodies: `--fill`.

use super::routes::requests_at;
use super::{Bench, bench};
use crate::e2e::harness::{Folder, Server};
use crate::e2e::tls::Certificate;
use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::sync::mpsc;

/// A server, its URL, and the requests that it receives.
fn server() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (format!("http://{}", listener.local_addr().unwrap()), requests_at(listener))
}

/// A server for all HTTP versions with this handler, which logs its requests.
pub(super) fn serve(certificate: &Certificate, handler: &str) -> (Folder, Server) {
    let folder = Folder::new();
    let Certificate { chain, key, .. } = certificate;
    let log = folder.path().join("access.log");
    let log = log.display();
    let text = format!(
        "workers 1
log \"{log}\" format=\"combined\"
site \"*\" {{
    listen \"127.0.0.1:0\" tls=#true http3=#true
    tls cert=\"{chain}\" key=\"{key}\"
    {handler}
}}
"
    );
    let server = Server::run(&folder, &text);
    (folder, server)
}

fn received(requests: &mpsc::Receiver<String>, run: &Bench) -> Vec<String> {
    assert_eq!((run.code, run.json["errors"]["total"].as_u64()), (Some(0), Some(0)), "{run:#?}");
    requests.try_iter().collect()
}

/// The value of a field in a request.
fn field<'a>(request: &'a str, name: &str) -> &'a str {
    let line = request.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {name} in {request}"))
}

#[test]
fn each_request_has_its_own_values_and_the_seed_repeats_them() {
    let folder = Folder::with(&[("urls", b"/a/{seq}?n={random:10-99}\nPOST /b {\"id\":{seq},\"to\":{}}\n")]);
    let list = folder.path().join("urls");
    let (url, requests) = server();
    let base = [&url, "--urls", list.to_str().unwrap(), "-n", "20", "-c", "1", "-H", "X-Id: {uuid}", "--seed"];
    let run = bench(&[&base[..], &["5", "--fill"]].concat());
    let first = received(&requests, &run);
    for (index, request) in first.iter().enumerate() {
        let (head, content) = request.split_once("\r\n\r\n").unwrap();
        let seq = index + 1;
        if index % 2 == 0 {
            let number = head.strip_prefix(&format!("GET /a/{seq}?n=")).unwrap().split_once(' ').unwrap().0;
            assert!(number.len() == 2 && number.parse::<u8>().is_ok(), "{request}");
        } else {
            assert!(head.starts_with("POST /b HTTP/1.1\r\n"), "{request}");
            assert_eq!(content, format!("{{\"id\":{seq},\"to\":{{}}}}"));
            assert_eq!(field(request, "Content-Length"), content.len().to_string());
        }
    }
    let ids: BTreeSet<_> = first.iter().map(|request| field(request, "X-Id")).collect();
    assert_eq!(ids.len(), 20, "{ids:?}");
    // Rows are those of the list.
    assert!(run.stdout.contains("  /a/{seq}?n={random:10-99} ") && run.stdout.contains("  POST /b "), "{}", run.stdout);
    let again = bench(&[&base[..], &["5", "--fill"]].concat());
    assert_eq!(received(&requests, &again), first);
    let other = bench(&[&base[..], &["6", "--fill"]].concat());
    assert_ne!(received(&requests, &other), first);
    // Without the flag, braces have no meaning.
    let plain = bench(&[&base[..], &["5"]].concat());
    let plain = received(&requests, &plain);
    assert!(plain[0].starts_with("GET /a/{seq}?n={random:10-99} HTTP/1.1\r\n"), "{}", plain[0]);
    assert_eq!(field(&plain[1], "X-Id"), "{uuid}");
}

#[test]
fn numbers_are_unique_over_threads_levels_and_versions() {
    let (site, certificate) = (Folder::with(&[("a.txt", b"a")]), Certificate::new());
    let authority = certificate.authority();
    for (version, streams) in [("1.1", "1"), ("2", "4"), ("3", "4")] {
        let (folder, server) = serve(&certificate, &format!("files \"{}\"", site.path().display()));
        let url = format!("https://localhost:{}/a.txt?n={{seq}}", server.address.port());
        let base = [&url, "--fill", "--cacert", authority.to_str().unwrap(), "--http", version, "--streams", streams];
        let run = bench(&[&base[..], &["-n", "60", "-c", "2..3:1", "--threads", "2"]].concat());
        assert_eq!((run.code, run.steps().count()), (Some(0), 2), "{run:#?}");
        assert_eq!(run.json["url"], url);
        assert!(server.stop().0.success());
        let lines = fs::read_to_string(folder.path().join("access.log")).unwrap();
        let number = |line: &str| line.split_once("/a.txt?n=").unwrap().1.split_once(' ').unwrap().0.parse::<u64>();
        let numbers: BTreeSet<u64> = lines.lines().map(|line| number(line).unwrap()).collect();
        assert_eq!((lines.lines().count(), numbers.len()), (120, 120), "{version}");
        assert_eq!(numbers.first(), Some(&1));
    }
}

#[test]
fn every_version_sends_the_same_contents() {
    let certificate = Certificate::new();
    let authority = certificate.authority();
    let text = "{\"id\":{seq},\"key\":\"{uuid}\",\"n\":[{random:0-1000},{random:0-1000}]}";
    let contents = ["1.1", "2", "3"].map(|version| {
        let (origin, requests) = server();
        let (_folder, proxy) = serve(&certificate, &format!("proxy {origin:?}"));
        let url = format!("https://localhost:{}/", proxy.address.port());
        let base = [&url, "--fill", "--cacert", authority.to_str().unwrap(), "--http", version];
        let run = bench(&[&base[..], &["-n", "12", "-c", "1", "--body-text", text]].concat());
        let requests = received(&requests, &run);
        assert_eq!(requests.len(), 12, "{version}");
        requests.iter().map(|request| request.split_once("\r\n\r\n").unwrap().1.to_owned()).collect::<Vec<_>>()
    });
    assert!(contents[0][0].starts_with("{\"id\":1,\"key\":\"") && contents[0][11].starts_with("{\"id\":12,"));
    assert_eq!(contents[1], contents[0]);
    assert_eq!(contents[2], contents[0]);
}

#[test]
fn placeholders_that_cannot_be_filled_are_refused() {
    let (url, requests) = server();
    for (arguments, words) in [
        (&["--fill"][..], "no URL, header or body has a placeholder"),
        (&["--fill", "-H", "X: {{seq}"], "no URL, header or body has a placeholder"),
        (&["--fill", "-H", "X: {random:9-1}"], "the range of the placeholder {random:9-1} ends before it begins"),
        (&["--fill", "--body-text", "{random}"], "the placeholder {random} has no valid range"),
        (&["--fill", "--http", "2", "-H", "X: {seq}", "-H", "Keep-Alive: 5"], "have no field `Keep-Alive`"),
    ] {
        let run = bench(&[&[&*url, "-n", "1", "-c", "1"], arguments].concat());
        assert!(run.exit == Some(2) && run.stderr.contains(words), "{run:#?}");
    }
    for (path, words) in [
        ("/{seq}", "the URL contains '{'"),
        ("/{seq}{other} --fill", "the URL contains '{'"),
        ("/{random:9-1} --fill", "the range of the placeholder {random:9-1} ends before it begins"),
    ] {
        let (path, flag) = path.split_once(' ').unwrap_or((path, "--no-tui"));
        let run = bench(&[&format!("{url}{path}"), "-n", "1", flag]);
        assert!(run.exit == Some(2) && run.stderr.contains(words), "{run:#?}");
    }
    assert_eq!(requests.try_iter().count(), 0);
}
