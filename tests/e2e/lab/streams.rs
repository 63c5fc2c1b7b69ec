//! HTTP/2 against nginx, which closes each connection after a fixed number of requests.

use super::bench;
use crate::e2e::harness::{Folder, wait_until};
use crate::e2e::process::{Running, free_port};
use crate::e2e::tool::tool;
use std::net::TcpStream;
use std::process::Stdio;

#[test]
fn requests_that_a_closing_server_did_not_process_are_sent_again() {
    let folder = Folder::new();
    let port = free_port();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {name};"))
        .collect();
    let text = format!(
        "daemon off; master_process off; pid pid; error_log error.log;
         events {{ worker_connections 512; }}
         http {{ {temporary} access_log off; keepalive_requests 100;
             server {{ listen 127.0.0.1:{port} http2; location / {{ return 200 'served'; }} }} }}"
    );
    folder.write("nginx.conf", text.as_bytes());
    let mut command = tool("nginx");
    command.arg("-p").arg(folder.path()).arg("-c").arg(folder.path().join("nginx.conf"));
    let _nginx = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_until("nginx listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let url = format!("http://127.0.0.1:{port}/");
    let run = bench(&[&url, "-n", "10000", "-c", "4", "--http", "2", "--streams", "10", "--threads", "1"]);
    assert_eq!(run.code, Some(0), "{} {}", run.stdout, run.stderr);
    assert_eq!((run.number("responses"), run.json["errors"]["total"].as_u64()), (10_000, Some(0)));
    // A connection that closes has up to ten streams, and only those that were open already are processed.
    let counts = &run.step()["record"]["counts"];
    assert!(counts["sent_again"].as_u64().unwrap() > 0 && run.number("connections") >= 100, "{counts:#}");
    assert!(
        run.stdout.contains("sent again, because the server stated that it did not process them"),
        "{}",
        run.stdout
    );
}
