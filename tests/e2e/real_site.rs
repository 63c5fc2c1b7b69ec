//! A real site: the documentation of Python, fetched completely by curl and read by a browser.

use super::browser::Browser;
use super::harness::{Folder, Response, Server, wait_until};
use super::tool::{python_docs, run, tool};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Paths of everything below a folder, relative to the folder and sorted.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<String>,
    links: Vec<String>,
    folders: Vec<String>,
}

impl Tree {
    pub(crate) fn read(root: &Path) -> Self {
        let mut tree = Self::default();
        tree.add(root, "");
        tree.files.sort();
        tree
    }

    fn add(&mut self, root: &Path, below: &str) {
        for entry in fs::read_dir(root.join(below)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{below}{}", entry.file_name().to_str().unwrap());
            let kind = entry.file_type().unwrap();
            if kind.is_symlink() {
                self.links.push(path);
            } else if kind.is_dir() {
                self.add(root, &format!("{path}/"));
                self.folders.push(path);
            } else {
                self.files.push(path);
            }
        }
    }

    pub(crate) fn is_hidden(path: &str) -> bool {
        path.split('/').any(|segment| segment.starts_with('.'))
    }
}

/// The URL path of a file, whose name may contain characters that a URL may not.
pub(crate) fn encode(path: &str) -> String {
    path.replace('%', "%25").replace(' ', "%20").replace('?', "%3f").replace('#', "%23")
}

/// A batch of requests, each with its own fields, sent by one curl over a few connections.
pub(crate) struct Batch {
    base: String,
    /// Settings in curl's configuration for every request.
    options: String,
    /// Settings in curl's configuration for each request.
    configs: Vec<String>,
    folder: Folder,
    paths: Vec<String>,
}

impl Batch {
    fn new(server: &Server) -> Self {
        Self::with(server.url("/"), "")
    }

    /// A batch of requests for paths below `base`, with these lines of curl's configuration for each.
    pub(crate) fn with(base: String, options: &str) -> Self {
        let options = options.to_owned();
        Self { base, options, configs: Vec::new(), folder: Folder::new(), paths: Vec::new() }
    }

    pub(crate) fn bodies(&self) -> PathBuf {
        self.folder.path().join("bodies")
    }

    pub(crate) fn add(&mut self, path: &str, fields: &[String]) {
        let (head, body) = (self.folder.path().join("heads").join(path), self.bodies().join(path));
        for file in [&head, &body] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
        }
        let url = format!("{}{}", self.base, encode(path));
        let (head, body) = (head.display(), body.display());
        let mut config = format!("url = \"{url}\"\noutput = \"{body}\"\ndump-header = \"{head}\"\n{}", self.options);
        for field in fields {
            writeln!(config, "header = \"{}\"", field.replace('"', "\\\"")).unwrap();
        }
        config.push_str("silent\nshow-error\npath-as-is\n");
        self.configs.push(config);
        self.paths.push(path.to_owned());
    }

    /// The responses, in the order of the requests.
    pub(crate) fn fetch(&self) -> Vec<Response> {
        self.curl("config", &self.configs);
        self.responses()
    }

    /// Like [`fetch`](Self::fetch), with a separate curl for each request.
    pub(crate) fn fetch_separately(&self) -> Vec<Response> {
        let part = self.configs.len().div_ceil(4);
        std::thread::scope(|scope| {
            for (number, configs) in self.configs.chunks(part).enumerate() {
                scope.spawn(move || {
                    for config in configs {
                        self.curl(&format!("config-{number}"), std::slice::from_ref(config));
                    }
                });
            }
        });
        self.responses()
    }

    fn curl(&self, file: &str, configs: &[String]) {
        let config = self.folder.path().join(file);
        fs::write(&config, configs.join("next\n")).unwrap();
        run(tool("curl").args(["--parallel", "--parallel-max", "8", "--config"]).arg(&config));
    }

    fn responses(&self) -> Vec<Response> {
        let read = |path: &String| {
            let head = Response::parse(&fs::read(self.folder.path().join("heads").join(path)).unwrap());
            // curl creates no file for an empty body.
            Response { body: fs::read(self.bodies().join(path)).unwrap_or_default(), ..head }
        };
        self.paths.iter().map(read).collect()
    }
}

/// SHA-256 of every file, computed by a third-party program.
pub(crate) fn sha256(folder: &Path, files: &[&String]) -> String {
    run(tool("sha256sum").current_dir(folder).arg("--").args(files))
}

/// Asserts that the media type is what a browser needs to handle the file correctly.
fn assert_media_type(path: &str, response: &Response) {
    let media_type = match path.rsplit('.').next().unwrap() {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "txt" | "py" => "text/plain; charset=utf-8",
        "json" => "application/json",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        _ => return,
    };
    assert_eq!(response.field("content-type"), Some(media_type), "{path}");
}

fn serve_whole(workers: &str) {
    let docs = python_docs();
    let tree = Tree::read(&docs);
    let files: Vec<&String> = tree.files.iter().filter(|path| !Tree::is_hidden(path)).collect();
    assert!(files.len() >= 1000, "only {} files in {}", files.len(), docs.display());
    let server = Server::start(&docs, &["--workers", workers]);

    let mut whole = Batch::new(&server);
    for path in &files {
        whole.add(path, &[]);
    }
    let mut responses = whole.fetch();
    for (path, response) in files.iter().zip(&responses) {
        assert_eq!(response.status, 200, "{path}");
        assert_media_type(path, response);
    }
    // Packages store whole seconds, so the digests of large files are their tags.
    wait_until("every file has a tag", || {
        let untagged = |at: &usize| responses[*at].field("etag").is_none();
        let missing: Vec<usize> = (0..files.len()).filter(untagged).collect();
        let mut again = Batch::new(&server);
        for &at in &missing {
            again.add(files[at], &[]);
        }
        for (&at, response) in missing.iter().zip(if missing.is_empty() { Vec::new() } else { again.fetch() }) {
            assert!(response.body == responses[at].body, "{}", files[at]);
            responses[at] = response;
        }
        missing.is_empty()
    });
    assert_eq!(sha256(&whole.bodies(), &files), sha256(&docs, &files));
    drop(whole);

    let etag = |response: &Response| response.field("etag").unwrap().to_owned();
    let mut known = Batch::new(&server);
    for (path, response) in files.iter().zip(&responses) {
        known.add(path, &[format!("If-None-Match: {}", etag(response))]);
    }
    for ((path, first), again) in files.iter().zip(&responses).zip(known.fetch()) {
        assert_eq!((again.status, again.body.len(), etag(&again)), (304, 0, etag(first)), "{path}");
    }
    drop(known);

    let middle = |response: &Response| (response.body.len() / 3, response.body.len() * 2 / 3);
    let mut parts = Batch::new(&server);
    for (path, response) in files.iter().zip(&responses) {
        let (first, last) = middle(response);
        parts.add(path, &[format!("Range: bytes={first}-{last}"), format!("If-Range: {}", etag(response))]);
    }
    for ((path, whole), part) in files.iter().zip(&responses).zip(parts.fetch()) {
        let (first, last) = middle(whole);
        let range = format!("bytes {first}-{last}/{}", whole.body.len());
        assert_eq!((part.status, part.field("content-range")), (206, Some(range.as_str())), "{path}");
        assert!(part.body == whole.body[first..=last], "wrong bytes in the middle of {path}");
    }
}

#[test]
fn one_worker_serves_every_file() {
    serve_whole("1");
}

#[test]
fn two_workers_serve_every_file() {
    serve_whole("2");
}

#[test]
fn folders_serve_their_index() {
    let docs = python_docs();
    let server = Server::start(&docs, &[]);
    for folder in Tree::read(&docs).folders {
        let without_slash = server.get(&format!("/{folder}"));
        let location = format!("/{folder}/");
        assert_eq!((without_slash.status, without_slash.field("location")), (301, Some(location.as_str())));
        let index = server.get(&location);
        match fs::read(docs.join(&folder).join("index.html")) {
            Ok(content) => assert!(index.status == 200 && index.body == content, "{folder}"),
            Err(_) => assert_eq!(index.status, 404, "{folder}"),
        }
    }
}

/// By default, other servers serve both, which has exposed their users' secrets.
#[test]
fn hidden_names_and_links_that_leave_the_folder_are_not_found() {
    let docs = python_docs();
    let tree = Tree::read(&docs);
    let hidden: Vec<_> = tree.files.iter().filter(|path| Tree::is_hidden(path)).collect();
    assert!(!hidden.is_empty(), "the package has a hidden file, .buildinfo");
    let leads_out = |link: &&String| docs.join(link).canonicalize().is_ok_and(|target| !target.starts_with(&docs));
    let links: Vec<_> = tree.links.iter().filter(leads_out).collect();
    assert!(!links.is_empty(), "the package has links to other packages' scripts");
    for (arguments, hidden_status) in [(&[][..], 404), (&["--hidden"], 200)] {
        let server = Server::start(&docs, arguments);
        for path in &hidden {
            assert_eq!(server.get(&format!("/{path}")).status, hidden_status, "{path}");
        }
        for link in &links {
            assert_eq!(server.get(&format!("/{link}")).status, 404, "{link}");
        }
    }
}

/// A copy of the site in which links to other packages are replaced by the files that they lead to, as before
/// publishing.
pub(crate) fn published() -> Folder {
    let site = Folder::new();
    run(Command::new("cp").args(["--recursive", "--dereference"]).arg(python_docs().join(".")).arg(site.path()));
    site
}

/// The requests in an access log as (path, status), without the browser's own request for an icon.
fn logged(log: &Path) -> Vec<(String, u16)> {
    let text = fs::read_to_string(log).unwrap();
    let request = |line: &str| {
        let mut quoted = line.split('"').skip(1);
        let path = quoted.next().unwrap().split(' ').nth(1).unwrap().to_owned();
        (path, quoted.next().unwrap().split_whitespace().next().unwrap().parse().unwrap())
    };
    text.lines().map(request).filter(|(path, _)| path != "/favicon.ico").collect()
}

#[test]
fn a_browser_loads_a_page_with_its_styles_and_scripts() {
    let (site, logs) = (published(), Folder::new());
    let log = logs.path().join("access.log");
    let server = Server::start(site.path(), &["--access-log", log.to_str().unwrap()]);
    let dom = Browser::new().dom(&server.url("/library/socket.html"));
    assert!(dom.contains("Low-level networking interface") && dom.trim_end().ends_with("</html>"), "{dom}");
    drop(server.stop());
    let requests = logged(&log);
    for ending in [".html", ".css", ".js"] {
        let has_ending = |(path, _): &&(String, u16)| path.split('?').next().unwrap().ends_with(ending);
        assert!(requests.iter().any(|request| has_ending(&request)), "no {ending} among {requests:?}");
    }
    assert!(requests.iter().all(|(_, status)| matches!(status, 200 | 304)), "{requests:?}");
}

/// Our page makes the browser load every style, script and picture of the site, and counts how many it could use.
#[test]
fn a_browser_accepts_every_style_script_and_picture() {
    let site = published();
    let mut page = String::from("<!doctype html><title>none</title><script>let used = 0, failed = [];</script>\n");
    let tree = Tree::read(site.path());
    let mut count = 0;
    for path in tree.files.iter().filter(|path| !Tree::is_hidden(path)) {
        let events = format!("onload='used++' onerror='failed.push(\"{path}\")'");
        count += 1;
        match path.rsplit('.').next().unwrap() {
            "css" => writeln!(page, "<link rel=stylesheet href='{path}' {events}>").unwrap(),
            "js" => writeln!(page, "<script src='{path}' {events}></script>").unwrap(),
            "png" | "svg" => writeln!(page, "<img src='{path}' {events}>").unwrap(),
            _ => count -= 1,
        }
    }
    assert!(count >= 20, "only {count} files for the browser");
    page.push_str(
        "<script>addEventListener('load', () => { document.title = `${used} used, failed: ${failed}.` })</script>\n",
    );
    site.write("all.html", page.as_bytes());
    let server = Server::start(site.path(), &["--workers", "2"]);
    let dom = Browser::new().dom(&server.url("/all.html"));
    assert!(
        dom.contains(&format!("<title>{count} used, failed: .</title>")),
        "{}",
        dom.lines().take(3).collect::<String>()
    );
}
