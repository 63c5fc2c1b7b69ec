//! `flatout accelerate` in front of origins: real ones, and scripted ones for faults and delays.

mod buffered;
mod chains;
mod client;
mod coalesce;
mod conformance;
mod crash;
mod crowds;
mod damage;
mod explain;
mod faults;
mod fields;
mod hangs;
mod hints;
mod hits;
mod instructions;
mod limits;
mod memory;
mod origin;
mod parts;
mod paths;
mod poisoning;
mod proxy_protocol;
mod purge;
mod ranges;
mod realms;
mod sessions;
mod silence;
mod slow_readers;
mod targets;
pub(crate) mod uploads;
mod visitors;
mod waits;
pub(crate) mod websocket;
pub(crate) mod wiki;

use super::harness::{Folder, Server, read_to_end};
use origin::Origin;
use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

/// Starts `flatout accelerate` in front of `origin` on a free port, with one worker unless `arguments` say otherwise.
fn accelerate(origin: &Origin, arguments: &[&str]) -> Server {
    accelerate_url(&origin.url(), arguments)
}

fn accelerate_url(url: &str, arguments: &[&str]) -> Server {
    Server::accelerate(url, arguments)
}

/// Starts the accelerator from a configuration with these lines in its `cache` and `proxy` blocks, and an access log in
/// the folder.
fn configure(folder: &Folder, url: &str, cache: &str, proxy: &str) -> Server {
    Server::run(folder, &configuration(folder, url, cache, proxy))
}

fn configuration(folder: &Folder, url: &str, cache: &str, proxy: &str) -> String {
    let log = log_of(folder);
    let log = log.to_str().unwrap();
    format!(
        "workers 1
admin off=#true
log {log:?} format=\"json\"
site \"*\" {{
    listen \"127.0.0.1:0\"
    cache {{
        {cache}
    }}
    proxy \"{url}\" {{
        {proxy}
    }}
}}
"
    )
}

/// The access log of a server that [`configure`] has started.
fn log_of(folder: &Folder) -> PathBuf {
    folder.path().join("access.log")
}

/// A response as a client sees it, including whether it is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    status: u16,
    /// Names are in lower case.
    fields: Vec<(String, String)>,
    /// Without the transfer coding.
    body: Vec<u8>,
    /// True if the response ended as its head declares. A response that ends with its connection is never complete.
    is_whole: bool,
    /// Interim responses before the final one.
    interims: Vec<(u16, Vec<(String, String)>)>,
    trailers: Vec<(String, String)>,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Takes one response from the front of `bytes`. Returns `None` if there is no complete head.
    fn take(bytes: &mut &[u8], to_head: bool) -> Option<Self> {
        let mut interims = Vec::new();
        loop {
            let (status, fields) = take_head(bytes)?;
            if (100..200).contains(&status) && status != 101 {
                interims.push((status, fields));
                continue;
            }
            let mut answer = Self { status, fields, body: Vec::new(), is_whole: false, interims, trailers: Vec::new() };
            answer.take_content(bytes, to_head);
            return Some(answer);
        }
    }

    fn take_content(&mut self, bytes: &mut &[u8], to_head: bool) {
        let is_chunked = self.field("transfer-encoding").is_some_and(|value| value.contains("chunked"));
        if to_head || matches!(self.status, 101 | 204 | 304) {
            self.is_whole = true;
        } else if is_chunked {
            while let Some(line) = take_line(bytes) {
                let Ok(size) = usize::from_str_radix(line.split(';').next().unwrap().trim(), 16) else { return };
                if size == 0 {
                    while let Some(line) = take_line(bytes) {
                        let Some((name, value)) = line.split_once(':') else {
                            self.is_whole = line.is_empty();
                            return;
                        };
                        self.trailers.push((name.to_lowercase(), value.trim().to_owned()));
                    }
                    return;
                }
                let count = size.min(bytes.len());
                self.body.extend_from_slice(&bytes[..count]);
                *bytes = &bytes[count..];
                if count < size || take_line(bytes).is_none() {
                    return;
                }
            }
        } else if let Some(length) = self.field("content-length") {
            let length: usize = length.parse().unwrap();
            let count = length.min(bytes.len());
            self.body = bytes[..count].to_vec();
            *bytes = &bytes[count..];
            self.is_whole = count == length;
        } else {
            self.body = bytes.to_vec();
            *bytes = &[];
        }
    }
}

fn take_line(bytes: &mut &[u8]) -> Option<String> {
    let end = bytes.windows(2).position(|window| window == b"\r\n")?;
    let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
    *bytes = &bytes[end + 2..];
    Some(line)
}

fn take_head(bytes: &mut &[u8]) -> Option<(u16, Vec<(String, String)>)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    *bytes = &bytes[end + 4..];
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let fields = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    Some((status, fields))
}

/// Sends `bytes` on one connection and returns all responses until the server closes it.
fn converse(server: &Server, bytes: &[u8]) -> Vec<Answer> {
    let mut stream = server.connect();
    let _ = stream.write_all(bytes);
    let all = read_to_end(&mut stream);
    let mut rest = all.as_slice();
    let to_head = bytes.starts_with(b"HEAD ");
    let mut answers = Vec::new();
    while let Some(answer) = Answer::take(&mut rest, to_head) {
        answers.push(answer);
    }
    answers
}

/// Sends one request with this method, target and field lines on its own connection.
fn ask(server: &Server, method: &str, target: &str, fields: &str) -> Answer {
    let mut request = format!("{method} {target} HTTP/1.1\r\n");
    if !fields.to_lowercase().contains("host:") || fields.to_lowercase().contains("-host:") {
        request.push_str("Host: test\r\n");
    }
    write!(request, "{fields}Connection: close\r\n\r\n").unwrap();
    let answer = converse(server, request.as_bytes()).into_iter().next();
    answer.unwrap_or_else(|| panic!("no response to {request:?}"))
}

fn get(server: &Server, target: &str) -> Answer {
    ask(server, "GET", target, "")
}
