//! Reports about an application server that does not answer.

use super::super::cli;
use super::super::harness::{flatout, wait_until};
use super::super::site::{self, Site};
use super::scripted::{Scripted, complete_response, send};
use std::os::unix::net::UnixListener;

/// As with PHP-FPM that is not running, has left its socket behind, and then starts.
#[test]
fn a_server_that_is_down_is_reported_at_once() {
    let folder = site::prepare("", "");
    folder.write("x.php", b"<?php");
    let root = folder.path().to_owned();
    let socket = root.join("app.sock");
    let server = format!("unix:{}", socket.display());
    let php = format!("listen \"127.0.0.1:0\"\nphp {server:?} {{\nroot {root:?}\n}}");
    site::configure(&folder, "workers 1", &php);
    let site = Site::run(folder);
    let stderr = || site.running.stderr();
    let get = || cli::get(site.address(), "/x.php").status;
    let status = || String::from_utf8(site.order(&["status"]).stdout).unwrap();
    let explain = || {
        let config = site::config(&site.folder);
        let output = flatout().args(["explain", "http://test/x.php", "-c"]).arg(config).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let healthy = format!("state     {server}: healthy, 0 of ");
    assert!(explain().contains(&healthy), "{}", explain());
    assert_eq!(get(), 502);
    let line =
        format!("application server {server} fails: [php_no_socket] The application server's socket does not exist");
    wait_until("the first failure is reported", || stderr().contains(&line));
    let told = explain();
    assert!(told.contains(&format!("state     {server}: failing since ")), "{told}");
    assert!(told.contains(" s ago, 1 attempt: [php_no_socket], 0 of "), "{told}");
    // Its last process has left the socket behind.
    drop(UnixListener::bind(&socket).unwrap());
    assert_eq!(get(), 502);
    let told = status();
    assert!(told.contains(&format!("{server} for {}: failing since ", root.display())), "{told}");
    assert!(told.contains(" s ago, 2 attempts: [php_refused], 0 of "), "{told}");
    let _app = Scripted::start(&root, |_, stream| {
        send(stream, &complete_response("Content-Type: text/plain\r\n\r\nhello"));
        false
    });
    assert_eq!(get(), 200);
    let line = format!("application server {server} answers again, after 2 failed attempts within ");
    wait_until("the end is reported", || stderr().contains(&line));
    assert!(explain().contains(&healthy), "{}", explain());
    assert!(status().contains(&format!("{server} for {}: healthy, ", root.display())), "{}", status());
    assert_eq!(stderr().matches("application server ").count(), 2, "{}", stderr());
}
