//! Memory after many pages have been requested many times.

use super::page;
use crate::e2e::harness::{Folder, Server, read_response};
use std::io::Write as _;

const PAGES: usize = 100;

/// A small version of the test behind the claim that memory does not grow with requests.
#[test]
fn memory_does_not_grow_with_requests() {
    let folder = Folder::new();
    for number in 0..PAGES {
        let content = format!(
            "<h1>Page {number}</h1><?lua local t = {{}} for i = 1, 20 do t[i] = i .. \"x\" end ?><p><?= #t ?></p>"
        );
        folder.write(&format!("p{number}.lhtml"), content.as_bytes());
    }
    let server = Server::start(folder.path(), &["--pages"]);
    let mut stream = server.connect();
    let mut ask = |requests: usize| {
        for number in 0..requests {
            let request = format!("GET /p{} HTTP/1.1\r\nHost: test\r\n\r\n", number % PAGES);
            stream.write_all(request.as_bytes()).unwrap();
            assert_eq!(read_response(&mut stream).status, 200);
        }
    };
    ask(3_000);
    let before = server.memory_kb("RssAnon");
    ask(20_000);
    let after = server.memory_kb("RssAnon");
    assert!(after <= before + before / 10 + 512, "{before} kB before, {after} kB after");
    assert!(page(&server, "/p0").contains("20"));
}
