//! Common parts of every test: a folder, a timer, and servers in front of the application.

use crate::harness::{Folder, Server};
use std::fmt::Write as _;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// A test's folder. When dropped, it prints how long the test took.
pub(super) struct Stage {
    pub(super) folder: Folder,
    name: &'static str,
    start: Instant,
}

impl Stage {
    pub(super) fn new(name: &'static str) -> Self {
        Self { folder: Folder::new(), name, start: Instant::now() }
    }

    /// Starts a server in front of `url` with these lines in its `cache` block and in its `proxy` block.
    pub(super) fn serve(&self, url: &str, cache: &str, proxy: &str) -> Server {
        self.run(&format!(
            "site \"*\" {{\n    listen \"127.0.0.1:0\" h2c=#true\n    cache {{\n{cache}\n}}\n    proxy \"{url}\" {{\n{proxy}\n}}\n}}\n"
        ))
    }

    /// Starts a server with this `site` block, an access log and two workers.
    pub(super) fn run(&self, site: &str) -> Server {
        let mut text = String::from("workers 2\nadmin off=#true\n");
        writeln!(text, "log \"{}\" format=\"json\"", self.folder.path().join("access.log").display()).unwrap();
        Server::run(&self.folder, &(text + site))
    }

    /// The server in the configurations that users may choose: with default settings, with a TTL for responses that
    /// have no lifetime, and with the documented recipe.
    pub(super) fn kinds(&self, url: &str, recipe: &str) -> impl Iterator<Item = (&'static str, Server)> {
        ["default", "ttl", "recipe"].into_iter().map(move |kind| {
            let server = match kind {
                "default" => Server::accelerate(url, &["--workers", "2"]),
                "ttl" => self.serve(url, "ttl \"60s\"", ""),
                _ => self.run(&super::recipe::recipe(recipe, url)),
            };
            (kind, server)
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        println!("{}: {:.1} s", self.name, self.start.elapsed().as_secs_f64());
    }
}

/// Calls `visit` for all `visitors` at the same time.
pub(super) fn together<T: Sync>(visitors: &[T], visit: impl Fn(&T) + Sync) {
    let start = Barrier::new(visitors.len());
    thread::scope(|scope| {
        for visitor in visitors {
            scope.spawn(|| {
                start.wait();
                visit(visitor);
            });
        }
    });
}
