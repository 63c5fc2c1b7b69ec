//! The admin socket, queried by curl and by flatout's own commands.

use super::cli::{Running, get};
use super::harness::{Folder, flatout};
use super::site::{Site, configure, prepare};
use super::tool::{run, said, tool};
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};

fn curl(site: &Site, arguments: &[&str], path: &str) -> String {
    let socket = site.folder.path().join("admin");
    let mut command = tool("curl");
    command.args(["--silent", "--show-error", "--include", "--unix-socket"]).arg(socket).args(arguments);
    run(command.arg(format!("http://flatout{path}")))
}

/// Asserts that Prometheus' own checker has no complaints.
fn check_metrics(text: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let told = child.wait_with_output().unwrap();
    assert!(told.status.success() && told.stderr.is_empty(), "{}", String::from_utf8_lossy(&told.stderr));
}

/// With and without `cache`, the metrics and the status list the origins of every proxy.
#[test]
fn metrics_and_status_list_the_origins() {
    let backend = Site::start("");
    for cache in ["cache", "cache off=#true"] {
        let folder = prepare("", "");
        configure(&folder, "", &format!("listen \"127.0.0.1:0\"\n{cache}\nproxy \"http://{}\"", backend.address()));
        let site = Site::run(folder);
        assert_eq!(get(site.address(), "/").status, 200);
        let metrics = curl(&site, &[], "/metrics");
        let address = backend.address().to_string();
        let is_it = |line: &&str| line.starts_with("flatout_origin_available{") && line.contains(&address);
        let line = metrics.lines().find(is_it).unwrap_or_else(|| panic!("{cache}: {metrics}"));
        assert!(line.ends_with(" 1"), "{line}");
        check_metrics(metrics.split_once("\r\n\r\n").unwrap().1);
        let status = curl(&site, &[], "/status");
        assert!(status.contains(&address), "{cache}: {status}");
    }
}

#[test]
fn curl_reads_metrics_and_status() {
    let site = Site::start("workers 2");
    for _ in 0..3 {
        assert_eq!(get(site.address(), "/").status, 200);
    }
    assert_eq!(get(site.address(), "/none").status, 404);
    let metrics = curl(&site, &[], "/metrics");
    assert!(
        metrics.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
        "{metrics}"
    );
    check_metrics(metrics.split_once("\r\n\r\n").unwrap().1);
    let open = curl(&site, &["-H", "Accept: application/openmetrics-text"], "/metrics");
    assert!(open.contains("application/openmetrics-text; version=1.0.0") && open.ends_with("# EOF\n"), "{open}");
    for line in [
        "flatout_requests_total 4",
        "flatout_responses_total{class=\"4xx\"} 1",
        "flatout_outcomes_total{outcome=\"not_found\"} 1",
        "flatout_workers 2",
        "flatout_generation 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    let status = curl(&site, &[], "/status");
    assert!(status.contains("\"schema\": \"flatout-status/1\"") && status.contains("\"requests\": 4"), "{status}");
    let mode = fs::metadata(site.folder.path().join("admin")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn invalid_admin_requests_get_error_responses() {
    let site = Site::start("");
    for (arguments, path, status) in [
        (&[][..], "/", "404 Not Found"),
        (&[], "/reload", "405 Method Not Allowed"),
        (&["--request", "POST"], "/status", "405 Method Not Allowed"),
        (&["--header", "X: \u{1}"], "/status", "400 Bad Request"),
        (&["--data", "content"], "/reload", "200 OK"),
    ] {
        let answer = curl(&site, arguments, path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{path}: {answer}");
    }
    assert!(curl(&site, &[], "/reload").contains("\r\nAllow: POST\r\n"));
    assert_eq!(site.status("generation").as_u64(), Some(2));
}

#[test]
fn status_is_readable_and_reports_when_no_server_runs() {
    let mut site = Site::start("workers 2");
    assert_eq!(get(site.address(), "/").status, 200);
    let output = site.order(&["status"]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    for part in [
        "flatout      0.1.0, process ",
        "generation   1\n",
        "workers      2",
        "listeners    http://127.0.0.1:",
        "sites        *\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
    assert!(said(&site.order(&["status", "--color", "always"])).contains("\x1b[1m"));
    site.stop();
    for verb in [&["status"][..], &["status", "--json"], &["reload"], &["upgrade"]] {
        let output = site.order(verb);
        assert_eq!(output.status.code(), Some(1));
        let text = said(&output);
        assert!(text.starts_with("error: no flatout is running with an admin socket at "), "{text}");
    }
    // The socket file is removed with the server.
    assert!(!site.folder.path().join("admin").exists());
}

/// More silent connections than may be open, none of which delays another query. The responses arrive while the first
/// connection is still silent, so no thread can be waiting for it.
#[test]
fn idle_admin_connections_delay_nobody() {
    let site = Site::start("");
    let connect = || UnixStream::connect(site.folder.path().join("admin")).unwrap();
    let mut silent: Vec<UnixStream> = (0..40).map(|_| connect()).collect();
    // The oldest connections are closed without a response to make room for the others.
    for stream in &mut silent[..8] {
        let mut text = String::new();
        assert_eq!(stream.read_to_string(&mut text).unwrap(), 0, "{text}");
    }
    // These have been accepted by now and are still open: there is nothing to read, not even the end of the stream.
    assert!(curl(&site, &[], "/status").starts_with("HTTP/1.1 200 OK"));
    let newest = silent.last().unwrap();
    newest.set_nonblocking(true).unwrap();
    let mut first = [0];
    assert_eq!((&*newest).read(&mut first).unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// Runs an operator's command in `folder`, where no environment variable names another configuration or socket.
fn run_in(folder: &std::path::Path, arguments: &[&str]) -> Output {
    let mut command = flatout();
    command.args(arguments).current_dir(folder).env("HOME", folder).env("XDG_RUNTIME_DIR", folder);
    command.env_remove("XDG_CONFIG_HOME").env_remove("RUNTIME_DIRECTORY");
    command.output().unwrap()
}

#[test]
fn a_process_is_found_through_its_configuration() {
    let mut site = Site::start("");
    let (folder, elsewhere) = (site.folder.path().to_owned(), Folder::new());
    let pid = format!("process {}", site.running.pid());
    let config = folder.join("flatout.kdl");
    let named = ["-c", config.to_str().unwrap()];
    // The path of the socket is relative, like other paths in a configuration.
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace(&format!("{}/admin", folder.display()), "admin")).unwrap();
    for (at, more) in [(folder.as_path(), &[][..]), (elsewhere.path(), &named[..])] {
        let output = run_in(at, &[&["status"], more].concat());
        assert!(said(&output).contains(&pid), "{}", said(&output));
        assert!(said(&run_in(at, &[&["purge", "--all"], more].concat())).contains("no cache is configured"));
        let output = run_in(at, &[&["reload"], more].concat());
        assert!(output.status.success(), "{}", said(&output));
    }
    // An error added to the configuration since does not matter.
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("files ", "fils ")).unwrap();
    assert!(said(&run_in(&folder, &["status"])).contains(&pid));
    let output = run_in(&folder, &["reload"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("fils"), "{}", said(&output));
    fs::write(&config, text).unwrap();
    // The error names what was tried.
    site.stop();
    let text = said(&run_in(&folder, &["status"]));
    let tried = [
        format!("{}/flatout.sock", folder.display()),
        "admin (`admin` in flatout.kdl)".to_owned(),
        "-c FILE".to_owned(),
    ];
    for part in tried {
        assert!(text.contains(&part), "{part}: {text}");
    }
    let text = said(&run_in(elsewhere.path(), &[&["status"], &named[..]].concat()));
    assert!(text.contains(&format!("admin (`admin` in {})", config.display())), "{text}");
    assert!(!text.contains("flatout.sock"), "{text}");
    let output = run_in(elsewhere.path(), &["status", "-c", "none.kdl"]);
    assert_eq!((output.status.code(), said(&output).contains("cannot read none.kdl")), (Some(2), true));
    fs::write(&config, "admin off=#true\nsite { respond \"a\"; }\n").unwrap();
    let text = said(&run_in(elsewhere.path(), &[&["status"], &named[..]].concat()));
    assert!(text.contains("disables the admin socket (admin off=#true)"), "{text}");
}

#[test]
fn serve_opens_the_admin_socket_named_in_the_configuration() {
    let folder = Folder::with(&[("index.html", b"here"), ("flatout.kdl", b"admin \"ctl\"\nsite { files \".\"; }\n")]);
    let start = || {
        let mut command = flatout();
        command.args(["serve", ".", "--listen", "127.0.0.1:0"]).current_dir(folder.path());
        command.env("HOME", folder.path()).env_remove("XDG_CONFIG_HOME");
        let mut running = Running::spawn(command);
        assert!(running.addresses().is_some(), "{}", running.stderr());
        running
    };
    let first = start();
    let found = || said(&run_in(folder.path(), &["status"]));
    assert!(found().contains(&format!("process {}", first.pid())), "{}", found());
    // Another server runs as well, and reports that it has no admin socket.
    let second = start();
    let words = second.stderr();
    assert!(words.contains("warning: no admin socket: another flatout (process "), "{words}");
    assert!(found().contains(&format!("process {}", first.pid())), "{}", found());
}

#[test]
fn serve_opens_an_admin_socket_only_on_request() {
    let folder = Folder::with(&[("index.html", b"here")]);
    let socket = folder.path().join("admin");
    let arguments = ["--admin", socket.to_str().unwrap()];
    let server = super::harness::Server::start(folder.path(), &arguments);
    let status = || flatout().arg("status").args(arguments).output().unwrap();
    let text = said(&status());
    assert!(text.contains("config       from command-line flags\n"), "{text}");
    assert!(server.stop().0.success());
    assert_eq!(status().status.code(), Some(1));
}
