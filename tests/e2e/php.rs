//! Scripts over FastCGI: PHP-FPM as Debian packages it, and application servers that are scripted to the byte for
//! faults.

mod faults;
mod fpm;
mod outage;
mod processes;
pub(crate) mod scripted;
mod slow;
mod sources;
mod wiki;

use super::harness::{Folder, Response, Server};
use std::time::Duration;

/// A server with these lines in its `site` block, an access log in JSON, and one worker.
fn serve(folder: &Folder, steps: &str) -> Server {
    serve_with(folder, 1, steps)
}

fn serve_with(folder: &Folder, workers: u32, steps: &str) -> Server {
    let log = folder.path().join("access.log");
    let log = log.to_str().unwrap();
    let text = format!(
        "workers {workers}\nadmin off=#true\nlog {log:?} format=\"json\"\nsite \"*\" {{\n    listen \"127.0.0.1:0\"\n{steps}\n}}\n"
    );
    Server::run(folder, &text)
}

/// The outcomes in the access log, once it has `count` lines.
fn outcomes(folder: &Folder, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    super::harness::wait_until("the log has all lines", || {
        let text = std::fs::read_to_string(folder.path().join("access.log")).unwrap_or_default();
        found = text
            .lines()
            .map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                line["outcome"].as_str().unwrap().to_owned()
            })
            .collect();
        found.len() >= count
    });
    found
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

/// Sends a request as written on its own connection.
fn ask(server: &Server, request: &str) -> Response {
    Response::parse(&server.exchange(request.as_bytes()))
}

fn get(server: &Server, path: &str) -> Response {
    ask(server, &format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"))
}

fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
