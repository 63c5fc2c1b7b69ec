//! A real site, fetched completely by third-party clients over every protocol that each of them speaks.
//!
//! Whatever a client reports, the access log must agree: every file once, over the intended version of HTTP.

use super::access_log::whole_lines;
use super::browser::Browser;
use super::harness::{Folder, Server, wait_until};
use super::real_site::{Batch, Tree, encode, published, sha256};
use super::tls::Certificate;
use super::tool::{go, run, said, tool};
use crate::e2e::skip::skip;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The listeners of [`Fixture::server`], in the order of its configuration.
const CLEARTEXT: usize = 0;
const TLS: usize = 1;

/// The site, served by one process over every protocol.
struct Fixture {
    site: PathBuf,
    /// Paths relative to the site, sorted.
    files: Vec<String>,
    certificate: Certificate,
    folder: Folder,
    server: Server,
    /// Number of log lines that earlier clients have left.
    seen: usize,
}

impl Fixture {
    fn new() -> Self {
        Self::of(&super::tool::python_docs())
    }

    fn of(site: &Path) -> Self {
        let (folder, certificate) = (Folder::new(), Certificate::new());
        // Two listeners on ephemeral ports must not have the same address. The certificate names the second address.
        let (log, chain, key) = (folder.path().join("access.log"), &certificate.chain, &certificate.key);
        let server = Server::run(
            &folder,
            &format!(
                "workers 2\nadmin off=#true\nlog \"{}\"\nsite \"*\" {{\n    listen \"127.0.0.2:0\" h2c=#true\n    \
                 listen \"127.0.0.1:0\" tls=#true\n    tls cert=\"{chain}\" key=\"{key}\"\n    files \"{}\"\n}}\n",
                log.display(),
                site.display()
            ),
        );
        let mut files = Tree::read(site).files;
        files.retain(|path| !Tree::is_hidden(path));
        assert!(files.len() >= 1000, "only {} files in {}", files.len(), site.display());
        Self { site: site.to_owned(), files, certificate, folder, server, seen: 0 }
    }

    /// SHA-256 of every file, by its path relative to the site, as computed by sha256sum.
    fn digests(&self) -> BTreeMap<String, String> {
        let text = sha256(&self.site, &self.files.iter().collect::<Vec<_>>());
        let pair = |line: &str| line.split_once("  ").map(|(digest, path)| (path.to_owned(), digest.to_owned()));
        text.lines().filter_map(pair).collect()
    }

    /// The input of the client programs: the files' paths as in URLs.
    fn paths(&self) -> String {
        self.files.iter().map(|path| format!("/{}\n", encode(path))).collect()
    }

    /// Runs a program that reads paths and prints version, status, digest and path of each, and compares every line
    /// with the files.
    fn check_program(&mut self, command: &mut Command, version: &str) {
        let output = with_input(command, &self.paths());
        let label = format!("{command:?}");
        let mut expected: Vec<String> =
            self.digests().iter().map(|(path, digest)| format!("{version} 200 {digest} /{}", encode(path))).collect();
        let mut came: Vec<&str> = output.lines().collect();
        expected.sort();
        came.sort_unstable();
        let differences: Vec<_> = came.iter().zip(&expected).filter(|(one, other)| one != other).take(5).collect();
        assert!(differences.is_empty() && came.len() == expected.len(), "{label}: {differences:?}");
        self.check_log(&label, version, 1);
    }

    /// Fetches every file with curl.
    fn check_curl(&mut self, listener: usize, options: &str, version: &str) {
        let options = format!("cacert = \"{}\"\n{options}\n", self.certificate.authority().display());
        let mut batch = Batch::with(self.server.url_of(listener, "/"), &options);
        for path in &self.files {
            batch.add(path, &[]);
        }
        let responses = if options.contains("prior-knowledge") && curl_has_reuse_bug() {
            batch.fetch_separately()
        } else {
            batch.fetch()
        };
        for (path, response) in self.files.iter().zip(responses) {
            assert_eq!(response.status, 200, "{path}");
        }
        let files: Vec<_> = self.files.iter().collect();
        assert_eq!(sha256(&batch.bodies(), &files), sha256(&self.site, &files), "curl, {options}");
        self.check_log(&format!("curl, {options}"), version, 1);
    }

    /// Has two h2load clients fetch every file, and compares its figures with the files.
    fn check_h2load(&mut self, listener: usize, options: &[&str], version: &str) {
        let list: String = self.files.iter().fold(String::new(), |mut list, path| {
            writeln!(list, "{}", self.server.url_of(listener, &format!("/{}", encode(path)))).unwrap();
            list
        });
        self.folder.write("uris", list.as_bytes());
        let bytes: u64 = self.files.iter().map(|path| fs::metadata(self.site.join(path)).unwrap().len()).sum();
        let requests = self.files.len() * 2;
        let said = run(tool("h2load")
            .args(["-c", "2", "-m", "10", "-n", &requests.to_string(), "-i"])
            .arg(self.folder.path().join("uris"))
            .args(options));
        let all = format!(
            "requests: {requests} total, {requests} started, {requests} done, {requests} succeeded, 0 failed, 0 \
             errored, 0 timeout"
        );
        // Over HTTP/1.1, h2load counts a response that arrives in pieces more than once. The log has the actual number.
        let statuses = " 2xx, 0 3xx, 0 4xx, 0 5xx".to_owned();
        for part in [all, statuses, format!("({}) data", bytes * 2)] {
            assert!(said.contains(&part), "h2load {options:?}, {part}: {said}");
        }
        self.check_log(&format!("h2load {options:?}"), version, 2);
    }

    /// Asserts that the log has every file `times` times, each with 200 over `version`, and nothing else.
    fn check_log(&mut self, label: &str, version: &str, times: usize) {
        let log = self.folder.path().join("access.log");
        let mut lines: Vec<String> = Vec::new();
        wait_until("every request is in the log", || {
            let text = whole_lines(&log);
            lines = text.lines().skip(self.seen).map(str::to_owned).collect();
            lines.len() >= self.files.len() * times
        });
        self.seen += lines.len();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for line in &lines {
            let request = line.split('"').nth(1).unwrap();
            let [method, path, came] = request.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let status = line.split('"').nth(2).unwrap().split_whitespace().next();
            assert_eq!((method, came, status), ("GET", version, Some("200")), "{label}: {line}");
            *counts.entry(path).or_default() += 1;
        }
        let often: Vec<_> = counts.iter().filter(|(_, count)| **count != times).collect();
        assert!(often.is_empty() && counts.len() == self.files.len(), "{label}: {} paths, {often:?}", counts.len());
    }
}

/// Runs `command`, writes `input` to it while it runs, and returns its output.
fn with_input(command: &mut Command, input: &str) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || drop(pipe.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{command:?} ended with {}: {}", output.status, said(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// curl 7.87 and 7.88, which Debian 12 has, fail on the second request of a connection that started with HTTP/2 prior
/// knowledge, with any server (curl/curl#10634; fixed in 8.0).
fn curl_has_reuse_bug() -> bool {
    let version = run(tool("curl").arg("--version"));
    ["curl 7.87.", "curl 7.88."].iter().any(|bad| version.starts_with(bad))
}

#[test]
fn curl_fetches_every_file_over_every_protocol() {
    let mut fixture = Fixture::new();
    fixture.check_curl(CLEARTEXT, "http1.1", "HTTP/1.1");
    fixture.check_curl(CLEARTEXT, "http2-prior-knowledge", "HTTP/2.0");
    fixture.check_curl(TLS, "http1.1", "HTTP/1.1");
    fixture.check_curl(TLS, "http2", "HTTP/2.0");
    fixture.check_curl(TLS, "http2\ntls-max = 1.2", "HTTP/2.0");
}

#[test]
fn go_fetches_every_file_over_every_protocol() {
    let mut fixture = Fixture::new();
    let folder = Folder::new();
    let program = folder.path().join("fetch");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    run(go().current_dir(sources).env("GOWORK", "off").arg("build").arg("-o").arg(&program).arg("."));
    let authority = fixture.certificate.authority();
    let fetch = |listener: usize, mode: &str| {
        let mut command = Command::new(&program);
        command.arg(fixture.server.url_of(listener, "").trim_end_matches('/')).arg(mode).arg(&authority);
        command
    };
    let mut commands = [(CLEARTEXT, "http1", "HTTP/1.1"), (TLS, "http1", "HTTP/1.1"), (TLS, "http2", "HTTP/2.0")]
        .map(|(listener, mode, version)| (fetch(listener, mode), version))
        .into_iter()
        .collect::<Vec<_>>();
    let probe = fetch(CLEARTEXT, "h2c").stdin(Stdio::null()).output().unwrap();
    if probe.status.code() == Some(3) {
        skip(&format!("Go cannot use HTTP/2 without TLS: {}", said(&probe).trim()));
    } else {
        commands.push((fetch(CLEARTEXT, "h2c"), "HTTP/2.0"));
    }
    for (mut command, version) in commands {
        fixture.check_program(&mut command, version);
    }
}

#[test]
fn python_fetches_every_file_with_and_without_tls() {
    let mut fixture = Fixture::new();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/fetch.py");
    let authority = fixture.certificate.authority();
    for (listener, authority) in [(CLEARTEXT, None), (TLS, Some(authority))] {
        let address = fixture.server.address_of(listener).to_string();
        let mut command = tool("python3");
        command.arg(&program).arg(address).args(authority);
        fixture.check_program(&mut command, "HTTP/1.1");
    }
}

#[test]
fn h2load_gets_every_byte_over_every_protocol() {
    let mut fixture = Fixture::new();
    fixture.check_h2load(CLEARTEXT, &["--h1"], "HTTP/1.1");
    fixture.check_h2load(CLEARTEXT, &[], "HTTP/2.0");
    fixture.check_h2load(TLS, &["--h1"], "HTTP/1.1");
    fixture.check_h2load(TLS, &[], "HTTP/2.0");
}

/// A page that makes the browser load every style, script and picture of the site, and every page as text, and shows
/// how many it could use.
fn page_of_everything(files: &[String]) -> (String, usize) {
    let mut page = String::from("<!doctype html><title>none</title><script>let used = 0, failed = [];</script>\n");
    let (mut count, mut pages) = (0, Vec::new());
    for path in files {
        let events = format!("onload='used++' onerror='failed.push(\"{path}\")'");
        count += 1;
        match path.rsplit('.').next().unwrap() {
            "css" => writeln!(page, "<link rel=stylesheet href='{path}' {events}>").unwrap(),
            "js" => writeln!(page, "<script src='{path}' {events}></script>").unwrap(),
            "png" | "svg" => writeln!(page, "<img src='{path}' {events}>").unwrap(),
            "html" => pages.push(path),
            _ => count -= 1,
        }
    }
    // A page counts if it is complete and no other page.
    write!(
        page,
        "<script>addEventListener('load', async () => {{\n\
         await Promise.all({pages:?}.map(async path => {{\n\
         const response = await fetch(path); const text = await response.text();\n\
         if (response.ok && text.trimEnd().endsWith('</html>')) used++; else failed.push(path); }}));\n\
         document.title = `${{used}} used, failed: ${{failed}}.` }})</script>\n"
    )
    .unwrap();
    (page, count)
}

#[test]
fn a_browser_loads_every_page_style_script_and_picture_over_http_and_https() {
    let site = published();
    let mut files = Tree::read(site.path()).files;
    files.retain(|path| !Tree::is_hidden(path));
    let (page, count) = page_of_everything(&files);
    assert!(count >= 400, "only {count} files for the browser");
    site.write("all.html", page.as_bytes());
    let fixture = Fixture::of(site.path());
    for (listener, version) in [(CLEARTEXT, "HTTP/1.1"), (TLS, "HTTP/2.0")] {
        let before = fs::read_to_string(fixture.folder.path().join("access.log")).unwrap_or_default().lines().count();
        let browser = Browser::new().trusting(&fixture.certificate);
        let dom = browser.dom(&fixture.server.url_of(listener, "/all.html"));
        let title = format!("<title>{count} used, failed: .</title>");
        assert!(dom.contains(&title), "{version}: {}", dom.lines().take(3).collect::<String>());
        let lines = || {
            let text = fs::read_to_string(fixture.folder.path().join("access.log")).unwrap();
            text.lines().skip(before).map(str::to_owned).collect::<Vec<_>>()
        };
        wait_until("the log is written", || lines().len() > count);
        let others: Vec<_> = lines().into_iter().filter(|line| !line.contains(&format!(" {version}\" "))).collect();
        assert!(others.is_empty(), "not over {version}: {others:?}");
    }
}
