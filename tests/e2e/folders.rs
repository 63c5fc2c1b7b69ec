//! The folder that is served is the one that its path names now: a link that was switched to the next release, and a
//! folder that was deleted and built again.

use super::cli::get;
use super::harness::{Folder, Response, Server, wait_until, worker_of};
use super::site::{Site, configure};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// How the site is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// `flatout serve`.
    Serve,
    /// `flatout run` with these global settings and settings of `files`.
    Run(&'static str, &'static str),
}

const WAYS: &[Way] = &[
    Way::Serve,
    Way::Run("", ""),
    Way::Run("landlock #false", ""),
    Way::Run("worker-process #false", ""),
    Way::Run("", "watch"),
    Way::Run("", "follow-links"),
];

impl Way {
    /// Serves the folder `name` in `folder`.
    fn start(self, folder: &Folder, name: &str) -> Server {
        let root = folder.path().join(name);
        let Self::Run(global, inside) = self else { return Server::start(&root, &["--workers", "2"]) };
        let root = root.display();
        let (watch, links) = match inside {
            "watch" => ("watch #true", String::new()),
            "follow-links" => ("", format!("; follow-links \"{}\"", folder.path().join("releases").display())),
            _ => ("", String::new()),
        };
        let text = format!(
            "workers 2\n{global}\nsite \"*\" {{\nlisten \"127.0.0.1:0\"\n{watch}\nerror 404 file=\"{root}/404.html\"\n\
             files \"{root}\" {{ try \"{{path}}\" \"{{path}}.html\" \"=404\"{links}; }}\n}}\n"
        );
        Server::run(folder, &text)
    }
}

/// Writes the release `name` into `folder`.
fn write_release(folder: &Folder, path: &str, name: &str) {
    let page = format!("the release {name}\n").repeat(100);
    for (file, content) in [
        ("index.html", page.as_str()),
        ("page.html", &page),
        ("404.html", &format!("not in {name}")),
        (&format!("only-{name}"), name),
        ("large", &name.repeat(100_000)),
    ] {
        folder.write(&format!("{path}/{file}"), content.as_bytes());
    }
}

fn switch(folder: &Folder, release: &str) {
    let (next, link) = (folder.path().join("next"), folder.path().join("current"));
    symlink(folder.path().join(release), &next).unwrap();
    fs::rename(next, link).unwrap();
}

fn text_of(server: &Server, path: &str) -> (u16, String) {
    let response = server.get(path);
    (response.status, String::from_utf8(response.body).unwrap())
}

/// Waits until all workers serve the release.
fn wait_for(server: &Server, release: &str) {
    wait_until("the new folder is served", || (0..20).all(|_| text_of(server, "/").1.contains(release)));
}

/// Requests pages until `done`. Returns the releases that were seen: each response is complete, and from one of them.
fn read_releases(server: &Server, done: &AtomicBool) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    while !done.load(Ordering::Relaxed) {
        for fields in ["", "Accept-Encoding: gzip\r\n", "Range: bytes=0-9\r\n"] {
            let mut stream = server.connect();
            write!(stream, "GET /page.html HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n").unwrap();
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut stream, &mut bytes).unwrap();
            let response = Response::parse(&bytes);
            assert!(matches!(response.status, 200 | 206), "{}", response.status);
        }
        let (status, text) = text_of(server, "/");
        assert_eq!(status, 200, "{text}");
        let line = text.lines().next().unwrap();
        assert!(text.lines().all(|other| other == line), "{text}");
        seen.insert(line.to_owned());
    }
    seen
}

#[test]
fn a_link_that_is_switched_to_another_folder_is_followed() {
    for way in WAYS {
        let folder = Folder::new();
        write_release(&folder, "releases/r1", "r1");
        switch(&folder, "releases/r1");
        let server = way.start(&folder, "current");
        assert_eq!(text_of(&server, "/only-r1"), (200, "r1".to_owned()), "{way:?}");
        let worker = worker_of(server.pid());
        for release in ["r2", "r3"] {
            let done = AtomicBool::new(false);
            let seen = thread::scope(|scope| {
                let reader = scope.spawn(|| read_releases(&server, &done));
                write_release(&folder, &format!("releases/{release}"), release);
                switch(&folder, &format!("releases/{release}"));
                wait_for(&server, release);
                done.store(true, Ordering::Relaxed);
                reader.join().unwrap()
            });
            assert!(seen.iter().all(|line| line.starts_with("the release r")), "{way:?} {seen:?}");
        }
        // Each worker, and each way to the old folder.
        for _ in 0..8 {
            assert_eq!(text_of(&server, "/only-r3"), (200, "r3".to_owned()), "{way:?}");
            assert_eq!(text_of(&server, "/large"), (200, "r3".repeat(100_000)), "{way:?}");
            assert!(text_of(&server, "/page.html").1.starts_with("the release r3"), "{way:?}");
            let missing = text_of(&server, "/only-r1");
            assert_eq!(missing.0, 404, "{way:?}");
            if matches!(way, Way::Run(..)) {
                assert_eq!(missing.1, "not in r3", "{way:?}");
            }
        }
        fs::remove_dir_all(folder.path().join("releases/r1")).unwrap();
        fs::remove_dir_all(folder.path().join("releases/r2")).unwrap();
        assert!(text_of(&server, "/").1.starts_with("the release r3"), "{way:?}");
        // Landlock permits the folders of `follow-links`, so that the worker process stays.
        if matches!(way, Way::Run("", "follow-links") | Way::Run("landlock #false", _)) {
            assert_eq!(worker_of(server.pid()), worker, "{way:?}");
        }
        let (_, said) = server.stop();
        assert_eq!(said.matches("is another folder now").count(), 2, "{way:?} {said}");
    }
}

#[test]
fn a_folder_that_is_deleted_and_built_again_is_served() {
    for way in WAYS {
        let folder = Folder::new();
        fs::create_dir(folder.path().join("releases")).unwrap();
        write_release(&folder, "dist", "b0");
        let server = way.start(&folder, "dist");
        assert!(text_of(&server, "/").1.starts_with("the release b0"), "{way:?}");
        for build in ["b1", "b2"] {
            fs::remove_dir_all(folder.path().join("dist")).unwrap();
            // Without a folder, the missing files are missing, and the server goes on.
            wait_until("the files are gone", || text_of(&server, "/").0 == 404);
            write_release(&folder, "dist", build);
            wait_for(&server, build);
            for _ in 0..8 {
                assert!(text_of(&server, "/page.html").1.contains(build), "{way:?}");
                assert_eq!(text_of(&server, &format!("/only-{build}")), (200, build.to_owned()), "{way:?}");
            }
        }
        drop(server.stop());
    }
}

/// A new folder that cannot be served yet, as while it is being built, is reported once and tried again.
#[test]
fn a_folder_that_cannot_be_served_leaves_the_earlier_one_in_use() {
    for global in ["", "worker-process #false"] {
        let folder = Folder::new();
        for release in ["r1", "r2"] {
            write_release(&folder, &format!("releases/{release}"), release);
        }
        switch(&folder, "releases/r1");
        // The configuration requires this file.
        fs::remove_file(folder.path().join("releases/r2/404.html")).unwrap();
        let root = folder.path().join("current");
        let root = root.display();
        let inside = format!("listen \"127.0.0.1:0\"\nerror 404 file=\"{root}/404.html\"\nfiles \"{root}\"");
        configure(&folder, global, &inside);
        let site = Site::run(folder);
        let text_of = |path: &str| String::from_utf8(get(site.address(), path).body).unwrap();
        assert_eq!(text_of("/none"), "not in r1");
        // What has not been put in force by a reload stays out of force.
        site.folder.write("flatout.kdl", b"half of a new config");
        switch(&site.folder, "releases/r2");
        wait_until("it is reported", || {
            site.running.stderr().contains("is another folder now, but the earlier one remains in use")
        });
        assert!(text_of("/").starts_with("the release r1"));
        assert_eq!(text_of("/none"), "not in r1");
        site.folder.write("releases/r2/404.html", b"not in r2");
        wait_until("it is served", || text_of("/none") == "not in r2");
        let said = site.running.stderr();
        assert_eq!(said.matches("the earlier one remains in use").count(), 1, "{said}");
    }
}
