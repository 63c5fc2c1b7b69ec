//! Active pages on the real binary: serving, changes, failures, time slices, caching.

mod backlog;
mod bombs;
mod cached;
mod changes;
mod check;
mod database;
mod demo;
mod failures;
mod injection;
mod kept;
mod secrets;
mod serving;
mod streaming;
mod turns;
mod waits;

use super::harness::{Folder, Response, Server};

/// A site that has only pages, with one worker. `settings` go into the `pages` block, `behind` follows it.
pub(crate) fn site(files: &[(&str, &str)], settings: &str, behind: &str) -> (Folder, Server) {
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, content)| (*name, content.as_bytes())).collect();
    let folder = Folder::with(&files);
    let server = start(&folder, settings, behind);
    (folder, server)
}

pub(crate) fn start(folder: &Folder, settings: &str, behind: &str) -> Server {
    Server::run(folder, &configure(settings, behind))
}

pub(crate) fn configure(settings: &str, behind: &str) -> String {
    format!(
        "workers 1\nadmin \"admin.sock\"\nsite {{\n listen \"127.0.0.1:0\" h2c=#true\n pages \"site\" {{\n  {settings}\n }}\n {behind}\n}}\n"
    )
}

pub(crate) fn text(response: &Response) -> String {
    String::from_utf8(response.body.clone()).unwrap()
}

/// The content of a 200 response.
pub(crate) fn page(server: &Server, path: &str) -> String {
    let response = server.get(path);
    assert_eq!(response.status, 200, "{path}: {}", text(&response));
    text(&response)
}
