//! The folder that is served is the one that its path names now: a link that was switched to the next release, and a
//! folder that was deleted and built again.

use super::cli::get;
use super::harness::{Folder, Response, Server, flatout, uninterrupted, wait_until, worker_of};
use super::php::scripted::{Scripted, complete_response, send};
use super::process::is_root;
use super::site::{Site, TWO_PROCESSES, config, configure};
use super::skip::skip;
use super::tool::said;
use flate2::read::GzDecoder;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{chown, symlink};
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

/// The pages of the release `name`.
fn page_of(name: &str) -> String {
    format!("the release {name}\n").repeat(100)
}

/// Writes the release `name` into `folder`.
fn write_release(folder: &Folder, path: &str, name: &str) {
    let page = page_of(name);
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

/// Requests a page with `fields`, and returns its content.
fn read_page(server: &Server, path: &str, fields: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
    let response = Response::parse(&server.exchange(request.as_bytes()));
    assert!(matches!(response.status, 200 | 206), "{}", response.status);
    let mut text = String::new();
    match response.field("content-encoding") {
        None => text = String::from_utf8(response.body).unwrap(),
        Some(_) => _ = GzDecoder::new(&response.body[..]).read_to_string(&mut text).unwrap(),
    }
    text
}

/// Requests pages until `done`, and all of them once more. Returns the releases that were seen: each response is complete,
/// and belongs wholly to one of `releases`.
fn read_releases(server: &Server, releases: &[&str], done: &AtomicBool) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    loop {
        let is_last = done.load(Ordering::Relaxed);
        for path in ["/", "/page.html"] {
            for (fields, bytes) in
                [("", None), ("Accept-Encoding: gzip\r\n", None), ("Range: bytes=0-49\r\n", Some(50))]
            {
                let text = read_page(server, path, fields);
                let is_of = |release: &&&str| page_of(release)[..bytes.unwrap_or(page_of(release).len())] == text;
                let release = releases.iter().find(is_of).unwrap_or_else(|| panic!("{path} {fields}: {text}"));
                seen.insert((*release).to_owned());
            }
        }
        if is_last {
            return seen;
        }
    }
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
        for [before, release] in [["r1", "r2"], ["r2", "r3"]] {
            let done = AtomicBool::new(false);
            let seen = thread::scope(|scope| {
                let reader = scope.spawn(|| read_releases(&server, &[before, release], &done));
                write_release(&folder, &format!("releases/{release}"), release);
                switch(&folder, &format!("releases/{release}"));
                wait_for(&server, release);
                done.store(true, Ordering::Relaxed);
                reader.join().unwrap()
            });
            assert!(seen.contains(release), "{way:?} {seen:?}");
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

/// The root of `php`, and a folder whose files scripts may send, are links that are switched.
#[test]
fn scripts_run_from_the_folder_to_which_a_link_was_switched() {
    for global in ["", "landlock #false", "worker-process #false"] {
        let folder = Folder::new();
        for release in ["r1", "r2"] {
            let write = |name: &str| folder.write(&format!("releases/{release}/{name}"), release.as_bytes());
            write("page.php");
            write(&format!("only-{release}.php"));
            write("protected/file");
        }
        switch(&folder, "releases/r1");
        // The application server reads scripts at the path that it is given.
        let app = Scripted::start(folder.path(), |asked, stream| {
            let script = fs::read_to_string(&asked.variables["SCRIPT_FILENAME"]).unwrap_or_default();
            let file =
                if asked.variables["QUERY_STRING"] == "file" { "X-Accel-Redirect: /protected/file\r\n" } else { "" };
            send(stream, &complete_response(&format!("Content-Type: text/plain\r\n{file}\r\n{script}")))
        });
        let root = folder.path().join("current");
        let php = app.step(&root, &format!("accel-redirect \"/protected/\" {:?}", root.join("protected")));
        let text = format!("workers 2\n{global}\nsite \"*\" {{\nlisten \"127.0.0.1:0\"\n{php}\n}}\n");
        let server = Server::run(&folder, &text);
        let check = |release: &str, other: &str| {
            for path in ["/page.php", &format!("/only-{release}.php"), "/page.php?file"] {
                assert_eq!(text_of(&server, path), (200, release.to_owned()), "{global} {path}");
            }
            assert_eq!(text_of(&server, &format!("/only-{other}.php")).0, 404, "{global}");
        };
        check("r1", "r2");
        switch(&folder, "releases/r2");
        // All workers.
        wait_until("the new folder is used", || {
            (0..20).all(|_| text_of(&server, "/only-r2.php").0 == 200 && text_of(&server, "/page.php?file").1 == "r2")
        });
        for _ in 0..8 {
            check("r2", "r1");
        }
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

/// A removed listener keeps its number, but not its sockets.
#[test]
fn a_removed_listener_stays_removed_when_a_folder_is_followed() {
    for global in ["", "landlock #false", "worker-process #false"] {
        let folder = Folder::new();
        for release in ["r1", "r2"] {
            write_release(&folder, &format!("releases/{release}"), release);
        }
        switch(&folder, "releases/r1");
        let root = folder.path().join("current");
        let inside = format!("listen \"127.0.0.1:0\"\nfiles \"{}\"", root.display());
        configure(&folder, global, &format!("listen \"127.0.0.2:0\"\n{inside}"));
        let site = Site::run(folder);
        let position = site.addresses.iter().position(|address| address.ip().to_string() == "127.0.0.2").unwrap();
        let (removed, kept) = (site.addresses[position], site.addresses[1 - position]);
        assert_eq!(get(removed, "/only-r1").status, 200);
        configure(&site.folder, global, &inside);
        let text = said(&site.order(&["reload"]));
        assert!(text.contains("no longer listening on 127.0.0.2:"), "{global} {text}");
        wait_until("the listener is closed", || TcpStream::connect(removed).is_err());
        switch(&site.folder, "releases/r2");
        wait_until("the new folder is served", || get(kept, "/only-r2").status == 200);
        wait_until("it is reported", || site.running.stderr().contains("reloaded, generation 3"));
        assert!(TcpStream::connect(removed).is_err(), "{global}");
        let said = site.running.stderr();
        assert!(!said.contains("also listening"), "{global} {said}");
    }
}

/// A user who can switch the link may not be entitled to the folders of other users.
#[test]
fn a_folder_of_another_user_needs_a_reload() {
    if !is_root() {
        skip("only root can change the owner of a folder");
        return;
    }
    for global in ["", "worker-process #false"] {
        let folder = Folder::new();
        for release in ["r1", "r2"] {
            write_release(&folder, &format!("releases/{release}"), release);
        }
        switch(&folder, "releases/r1");
        chown(folder.path().join("releases/r2"), Some(65_534), None).unwrap();
        let root = folder.path().join("current");
        configure(&folder, global, &format!("listen \"127.0.0.1:0\"\nfiles \"{}\"", root.display()));
        let site = Site::run(folder);
        switch(&site.folder, "releases/r2");
        wait_until("it is reported", || {
            site.running.stderr().contains("belongs to another user than before (uid 65534)")
        });
        assert_eq!(get(site.address(), "/only-r1").status, 200);
        // The explanation is about the folder that is served, without options and as JSON.
        for path in ["/only-r1", "/only-r2"] {
            let explain = |options: &[&str]| {
                let mut command = flatout();
                command.args(["explain", &format!("http://a{path}"), "-c"]).arg(config(&site.folder)).args(options);
                String::from_utf8(command.output().unwrap().stdout).unwrap()
            };
            let (text, status) = (explain(&[]), get(site.address(), path).status);
            let folder = "another folder now, but the earlier one remains in use, because the new one belongs to another \
                user than before (uid 65534); to serve it, run flatout reload";
            assert!(text.contains(folder) && text.contains(&format!("response  {status} ")), "{text}");
            let json: serde_json::Value = serde_json::from_str(&explain(&["--json"])).unwrap();
            assert_eq!(json["status"].as_u64(), Some(u64::from(status)), "{json}");
        }
        let output = site.order(&["reload"]);
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(get(site.address(), "/only-r2").status, 200);
        // Back to a folder of root, without an operator.
        switch(&site.folder, "releases/r1");
        wait_until("the new folder is served", || get(site.address(), "/only-r1").status == 200);
        let said = site.running.stderr();
        assert_eq!(said.matches("belongs to another user").count(), 1, "{said}");
    }
}

/// Begins a download that does not end before the connection is closed.
fn begin_download(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /huge HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    uninterrupted(|| stream.read_exact(&mut [0; 1])).unwrap();
    stream
}

/// If four worker processes exist, because three of them finish requests, only a folder that needs another one waits.
#[test]
fn a_folder_that_needs_a_fifth_worker_process_waits() {
    const WAITS: &str = "4 exist until earlier ones have finished their requests";
    for (links, waits) in [("", true), ("{ follow-links \"releases\"; }", false)] {
        let folder = Folder::new();
        for release in ["r1", "r2"] {
            write_release(&folder, &format!("releases/{release}"), release);
        }
        fs::File::create(folder.path().join("releases/r1/huge")).unwrap().set_len(1 << 30).unwrap();
        switch(&folder, "releases/r1");
        let path = folder.path().to_owned();
        let inside = |extra: usize| {
            let path = path.display();
            let extra =
                (0..extra).map(|index| format!("route \"/extra{index}/*\" {{ files \"{path}/extra{index}\"; }}\n"));
            let links = links.replace("releases", &format!("{path}/releases"));
            format!("listen \"127.0.0.1:0\"\n{}files \"{path}/current\" {links}", extra.collect::<String>())
        };
        let global = format!("{TWO_PROCESSES}\ntimeouts {{ drain \"10m\"; }}");
        configure(&folder, &global, &inside(0));
        let site = Site::run(folder);
        let mut downloads = Vec::new();
        // Landlock permits no added folder.
        for index in 0..3 {
            downloads.push(begin_download(site.address()));
            fs::create_dir(path.join(format!("extra{index}"))).unwrap();
            configure(&site.folder, &global, &inside(index + 1));
            let text = said(&site.order(&["reload"]));
            assert!(text.contains("the worker process"), "{text}");
        }
        let supervisor = site.running.pid();
        let children = || fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
        assert_eq!(children().split_whitespace().count(), 4);
        switch(&site.folder, "releases/r2");
        if waits {
            wait_until("it is reported", || site.running.stderr().contains(WAITS));
            assert_eq!(get(site.address(), "/only-r1").status, 200);
            drop(downloads);
        }
        wait_until("the new folder is served", || get(site.address(), "/only-r2").status == 200);
        assert_eq!(site.running.stderr().matches(WAITS).count(), usize::from(waits));
        if !waits {
            assert_eq!(children().split_whitespace().count(), 4);
        }
    }
}
