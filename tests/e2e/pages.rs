//! Active pages, by the real binary: served, changed, failing, taking turns, kept.

mod backlog;
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

/// A site of pages alone, with one worker; `settings` stand in the block of `pages`, `behind` behind it.
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

/// The content of an answer with 200.
pub(crate) fn page(server: &Server, path: &str) -> String {
    let response = server.get(path);
    assert_eq!(response.status, 200, "{path}: {}", text(&response));
    text(&response)
}
