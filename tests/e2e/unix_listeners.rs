//! Listeners at Unix sockets: curl and nginx as clients, and the life of the socket file.

use super::cli::{Running, get};
use super::harness::{Folder, flatout, wait_until};
use super::process::{Running as Child, is_root};
use super::site::{LARGE_BYTES, Site, TWO_PROCESSES, config, configure, prepare};
use super::tool::{run, said, tool};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A folder with a site, whose configuration has these global settings, and the content `inside` of its block, in which
/// SOCK and WWW stand for the path of the socket and the folder of the files.
fn socket_site(global: &str, inside: &str) -> (Folder, PathBuf) {
    let folder = prepare("", "");
    let path = folder.path().join("site.sock");
    reconfigure(&folder, global, inside);
    (folder, path)
}

fn reconfigure(folder: &Folder, global: &str, inside: &str) {
    let place = |name: &str| folder.path().join(name).display().to_string();
    let text = inside.replace("SOCK", &place("site.sock")).replace("WWW", &place("www")).replace("LOG", &place("log"));
    configure(folder, global, &text);
}

/// A setting with which a reload fails late: the file of the log cannot be opened.
const FAILING: &str = "log \"/proc/missing/log\"";

const FILES: &str = "listen \"unix:SOCK\"\nfiles \"WWW\"";

/// curl at the socket `path`. Fails as curl does for an unreachable server.
fn curl(path: &Path, arguments: &[&str]) -> String {
    let mut command = tool("curl");
    command.args(["-sS", "--max-time", "20", "--unix-socket"]).arg(path).args(arguments);
    run(&mut command)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Whether a stream that is connected to the socket gets a response.
fn ask(stream: &mut UnixStream) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"here") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        response.push(byte[0]);
    }
    String::from_utf8(response).unwrap()
}

#[test]
fn curl_is_served_over_http1_http2_and_tls() {
    let global = format!("workers 2\nstate \"state\"\n{TWO_PROCESSES}");
    let (folder, path) = socket_site(
        &global,
        "listen \"unix:SOCK\" h2c=#true\nlisten \"unix:SOCK.tls\" tls=#true\ntls \"internal\"\nfiles \"WWW\"\nlog \"LOG\"",
    );
    let site = Site::run(folder);
    let shown = path.display();
    let words = site.running.stdout();
    assert!(words.starts_with(&format!("unix:{shown}: curl --unix-socket {shown} http://localhost/\n")), "{words}");
    assert!(
        words.contains(&format!("unix:{shown}.tls: curl --unix-socket {shown}.tls https://localhost/\n")),
        "{words}"
    );
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        assert_eq!(curl(&path, &[version, "http://a.example/"]), "here", "{version}");
        let large = [version, "-w", "%{size_download}", "-o", "/dev/null", "http://a.example/large"];
        assert_eq!(curl(&path, &large), LARGE_BYTES.to_string(), "{version}");
    }
    // Several requests over one connection.
    let sizes = "%{num_connects} %{size_download}\n";
    let [one, other] = ["http://a.example/large", "http://a.example/"].map(|url| ["-o", "/dev/null", url]);
    let both = curl(&path, &[&["-w", sizes][..], &one, &other].concat());
    assert_eq!(both, format!("1 {LARGE_BYTES}\n0 4\n"));
    let tls = path.with_file_name("site.sock.tls");
    for (version, shown) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let arguments = [version, "-k", "-w", "%{http_version}", "https://localhost/"];
        assert_eq!(curl(&tls, &arguments), format!("here{shown}"));
    }
    let status = said(&site.order(&["status"]));
    assert!(status.contains(&format!("unix:{shown} (http)")) && status.contains(".tls (https)"), "{status}");
    let log = || fs::read_to_string(site.folder.path().join("log")).unwrap();
    wait_until("the log has all requests", || log().lines().count() == 8);
    let log = log();
    assert!(log.lines().all(|line| line.starts_with("- ")), "{log}");
}

/// nginx at a free port, with the site at `path` as its origin. X-Forwarded-For names the client that `X-Test` does.
fn nginx(folder: &Folder, path: &Path) -> (Child, u16) {
    let port = super::process::free_port();
    let settings = format!(
        "server {{ listen 127.0.0.1:{port}; location / {{
             proxy_pass http://unix:{}; proxy_set_header Host $host; proxy_set_header Forwarded \"\";
             proxy_set_header X-Forwarded-For $http_x_test; proxy_set_header X-Forwarded-Proto https; }} }}",
        path.display()
    );
    let is_ready = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    (super::nginx::start(folder, &settings, is_ready), port)
}

#[test]
fn nginx_names_the_client_if_unix_sockets_are_trusted() {
    let rules = "listen \"unix:SOCK\"\nlog \"LOG\"\nallow \"192.0.2.7\"\ndeny \"all\"\nredirect to=\"{scheme}://x/{client}\" 302";
    let (folder, path) = socket_site("trusted-proxies \"unix\"", rules);
    let site = Site::run(folder);
    let (_nginx, port) = nginx(&site.folder, &path);
    let ask = |client: &str| {
        let mut command = tool("curl");
        command.args(["-sS", "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}", "-H"]);
        run(command.arg(format!("X-Test: {client}")).arg(format!("http://127.0.0.1:{port}/")))
    };
    assert_eq!(ask("192.0.2.7"), "302 https://x/192.0.2.7");
    assert_eq!(ask("192.0.2.8"), "403 ");
    // A client that the proxy hides, and one that claims to be a Unix socket.
    assert_eq!(ask("unknown"), "403 ");
    assert_eq!(ask("unix:"), "403 ");
    // Without the setting, flatout does not trust nginx.
    reconfigure(&site.folder, "", rules);
    assert!(site.order(&["reload"]).status.success());
    assert_eq!(ask("192.0.2.7"), "403 ");
    // The workers write the log independently of each other.
    let clients = || {
        let log = fs::read_to_string(site.folder.path().join("log")).unwrap();
        let mut clients: Vec<_> = log.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
        clients.sort_unstable();
        clients
    };
    wait_until("the log has all requests", || clients().len() == 5);
    assert_eq!(clients(), ["-", "-", "-", "192.0.2.7", "192.0.2.8"]);
}

/// What a client over TCP claims is ignored, although the clients of the Unix socket are trusted.
#[test]
fn a_client_over_tcp_is_not_trusted_like_one_of_the_unix_socket() {
    let (folder, _) = socket_site(
        "trusted-proxies \"unix\"",
        "listen \"127.0.0.1:0\"\nlisten \"unix:SOCK\"\nredirect to=\"{scheme}://x/{client}\" 302",
    );
    let site = Site::run(folder);
    let ask = |arguments: &[&str]| {
        let mut command = tool("curl");
        command.args(["-sS", "-o", "/dev/null", "-w", "%{redirect_url}", "-H", "X-Forwarded-Proto: https", "-H"]);
        run(command.arg("X-Forwarded-For: 192.0.2.7").args(arguments))
    };
    let path = site.folder.path().join("site.sock");
    assert_eq!(ask(&["--unix-socket", path.to_str().unwrap(), "http://x/"]), "https://x/192.0.2.7");
    assert_eq!(ask(&[&format!("http://{}/", site.address())]), "http://x/127.0.0.1");
}

#[test]
fn reloads_add_and_remove_unix_sockets() {
    for global in ["workers 2\nworker-process #false", TWO_PROCESSES] {
        let (folder, path) = socket_site(global, "listen \"127.0.0.1:0\"\nfiles \"WWW\"");
        let mut site = Site::run(folder);
        assert!(!path.exists());
        reconfigure(&site.folder, global, &format!("listen \"127.0.0.1:0\"\n{FILES}"));
        let output = site.order(&["reload"]);
        assert!(said(&output).contains(&format!("also listening on unix:{}\n", path.display())), "{}", said(&output));
        assert_eq!((curl(&path, &["http://a/"]).as_str(), mode(&path)), ("here", 0o666));
        let mut open = UnixStream::connect(&path).unwrap();
        ask(&mut open);
        // Other options: the same socket. Other permissions: the same file.
        let other = "listen \"127.0.0.1:0\"\nlisten \"unix:SOCK\" h2c=#true mode=\"0600\"\nfiles \"WWW\"";
        reconfigure(&site.folder, global, other);
        assert!(site.order(&["reload"]).status.success());
        assert_eq!(curl(&path, &["--http2-prior-knowledge", "http://a/"]), "here");
        wait_until("the mode has changed", || mode(&path) == 0o600);
        reconfigure(&site.folder, global, &other.replace("0600", "0660"));
        assert!(site.order(&["reload"]).status.success());
        wait_until("the mode has changed again", || mode(&path) == 0o660);
        // A reload that is refused changes nothing.
        reconfigure(&site.folder, global, &format!("{FILES}\nlisten \"unix:/proc/nothing.sock\""));
        let output = site.order(&["reload"]);
        assert!(said(&output).contains("cannot listen on unix:/proc/nothing.sock"), "{}", said(&output));
        assert_eq!(curl(&path, &["http://a/"]), "here");
        reconfigure(&site.folder, global, "listen \"127.0.0.1:0\"\nfiles \"WWW\"");
        let output = site.order(&["reload"]);
        let gone = format!("no longer listening on unix:{}\n", path.display());
        assert!(said(&output).contains(&gone), "{}", said(&output));
        // The supervisor changes files after the worker process has switched.
        wait_until("the file is removed", || !path.exists());
        // Its connections are still open, but no site belongs to them.
        open.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        open.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 421 "), "{response}");
        site.stop();
    }
}

#[test]
fn an_upgrade_passes_the_socket_on_and_the_last_process_removes_it() {
    for global in ["worker-process #false", TWO_PROCESSES] {
        let (folder, path) = socket_site(global, FILES);
        let mut site = Site::run(folder);
        let inode = fs::metadata(&path).unwrap().ino();
        for _ in 0..2 {
            // A connected client is served.
            let mut open = UnixStream::connect(&path).unwrap();
            ask(&mut open);
            let output = site.order(&["upgrade"]);
            assert!(output.status.success(), "{}", said(&output));
            ask(&mut open);
            drop(open);
            assert_eq!(curl(&path, &["http://a/"]), "here", "{global}");
        }
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
        assert_eq!(site.running.wait().code(), Some(0), "{}", site.running.stderr());
        assert!(path.exists(), "{global}");
        // A file that somebody has removed is created again. Nobody could find the old socket.
        fs::remove_file(&path).unwrap();
        assert!(site.order(&["upgrade"]).status.success());
        assert_eq!(curl(&path, &["http://a/"]), "here", "{global}");
        // So is one that has been replaced by a stale file, but not by the socket of another process.
        fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        let output = site.order(&["upgrade"]);
        assert!(!output.status.success(), "{}", said(&output));
        assert!(UnixStream::connect(&path).is_ok());
        drop(other);
        assert!(site.order(&["upgrade"]).status.success());
        assert_eq!(curl(&path, &["http://a/"]), "here", "{global}");
        // The new process changes the permissions.
        reconfigure(&site.folder, global, "listen \"unix:SOCK\" mode=\"0600\" h2c=#true\nfiles \"WWW\"");
        assert!(site.order(&["upgrade"]).status.success());
        assert_eq!((curl(&path, &["http://a/"]).as_str(), mode(&path)), ("here", 0o600), "{global}");
        // A new process that fails leaves the file.
        reconfigure(&site.folder, global, &format!("{FILES}\nnonsense"));
        assert!(!site.order(&["upgrade"]).status.success());
        assert_eq!(curl(&path, &["http://a/"]), "here", "{global}");
        // An upgrade whose configuration has no such listener removes its file.
        reconfigure(&site.folder, global, "listen \"127.0.0.1:0\"\nlisten \"unix:SOCK2\"\nfiles \"WWW\"");
        let output = site.order(&["upgrade"]);
        assert!(output.status.success(), "{}", said(&output));
        wait_until("the new process has removed the file", || !path.exists());
        let second = path.with_file_name("site.sock2");
        assert_eq!(curl(&second, &["http://a/"]), "here", "{global}");
        site.stop();
        wait_until("the last process has removed its file", || !second.exists());
    }
}

#[test]
fn reloads_and_upgrades_under_load_fail_no_request() {
    const CHANGES: usize = 12;
    for global in ["workers 2\nworker-process #false", TWO_PROCESSES] {
        let (folder, path) = socket_site(global, FILES);
        let site = Site::run(folder);
        let (responses, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _end = Ending(&is_over);
            for _ in 0..6 {
                scope.spawn(|| {
                    let _end = Ending(&is_over);
                    while !is_over.load(Ordering::Relaxed) {
                        ask(&mut UnixStream::connect(&path).unwrap());
                        responses.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            scope.spawn(|| {
                let _end = Ending(&is_over);
                let downloaded = ["-o", "/dev/null", "-w", "%{size_download}", "http://a/large"];
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(curl(&path, &downloaded), LARGE_BYTES.to_string());
                }
            });
            let changes = [("reload", "mode=\"0660\""), ("reload", ""), ("upgrade", "h2c=#true"), ("upgrade", "")];
            for (verb, options) in changes.iter().cycle().take(CHANGES) {
                reconfigure(&site.folder, global, &format!("listen \"unix:SOCK\" {options}\nfiles \"WWW\""));
                let before = responses.load(Ordering::Relaxed);
                let output = site.order(&[verb]);
                assert!(output.status.success(), "{}", said(&output));
                wait_until("the clients get responses", || responses.load(Ordering::Relaxed) > before + 20);
            }
        });
    }
}

/// Ends the load, also after a failure.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A PROXY header on a Unix socket, as HAProxy sends it.
#[test]
fn a_proxy_header_names_or_hides_the_client_of_a_unix_socket() {
    let inside = "listen \"unix:SOCK\" proxy-protocol=#true\nredirect to=\"http://x/{client}\" 302";
    let (folder, path) = socket_site("trusted-proxies \"unix\"", inside);
    let _site = Site::run(folder);
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    for (header, client) in [
        (&b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"[..], "192.0.2.1"),
        // A hidden client is not the trusted peer of the socket, which a load balancer's own connection comes from.
        (b"PROXY UNKNOWN\r\n", ""),
        (local, "192.0.2.7"),
    ] {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(header).unwrap();
        let request = "GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.7\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.contains(&format!("Location: http://x/{client}\r\n")), "{header:?} {response}");
    }
}

#[test]
fn a_trusted_socket_that_everyone_may_write_is_reported() {
    let (folder, path) = socket_site("trusted-proxies \"unix\"", FILES);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let validate = |folder: &Folder| said(&flatout().args(["validate", "-c"]).arg(config(folder)).output().unwrap());
    let warning = format!("every user of this machine can connect to unix:{}", path.display());
    let found = validate(&folder);
    assert!(found.contains(&warning) && found.contains("is valid"), "{found}");
    let site = Site::run(folder);
    assert!(site.running.stderr().contains(&warning), "{}", site.running.stderr());
    // A restricted socket, one in a restricted folder, and one whose clients are not trusted.
    let restricted = FILES.replace("\"unix:SOCK\"", "\"unix:SOCK\" mode=\"0660\"");
    for (global, inside, mode) in [
        ("trusted-proxies \"unix\"", &*restricted, 0o755),
        ("trusted-proxies \"unix\"", FILES, 0o700),
        ("", FILES, 0o755),
    ] {
        fs::set_permissions(site.folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        reconfigure(&site.folder, global, inside);
        let found = validate(&site.folder);
        assert!(!found.contains("warning") && found.contains("is valid"), "{found}");
        let output = site.order(&["reload"]);
        assert!(output.status.success() && !said(&output).contains("every user"), "{}", said(&output));
    }
    fs::set_permissions(site.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    reconfigure(&site.folder, "trusted-proxies \"unix\"", FILES);
    let output = said(&site.order(&["reload"]));
    assert!(output.contains(&warning), "{output}");
}

#[test]
fn explain_uses_the_unix_socket_and_its_nameless_client() {
    let (folder, path) =
        socket_site("", "listen \"unix:SOCK\"\nallow \"127.0.0.0/8\"\ndeny \"all\"\nrespond 200 \"a\"");
    let explain = |arguments: &[&str]| {
        said(&flatout().args(["explain", "-c"]).arg(config(&folder)).args(arguments).output().unwrap())
    };
    let text = explain(&["http://a.example/"]);
    let listener = format!("unix:{} (http)", path.display());
    assert!(text.contains(&listener) && text.contains("a Unix socket serves any") && text.contains("403"), "{text}");
    // The client that a proxy names, and one of a port.
    assert!(explain(&["http://a.example/", "--from", "127.0.0.1"]).contains("200"));
    reconfigure(
        &folder,
        "",
        "listen \"127.0.0.1:80\"\nlisten \"unix:SOCK\"\nallow \"127.0.0.0/8\"\ndeny \"all\"\nrespond 200 \"a\"",
    );
    let text = explain(&["http://a.example/"]);
    assert!(text.contains("127.0.0.1:80 (http)") && text.contains("200"), "{text}");
}

#[test]
fn a_killed_process_leaves_a_file_that_the_next_one_replaces() {
    for global in ["worker-process #false", TWO_PROCESSES] {
        let (folder, path) = socket_site(global, FILES);
        let mut site = Site::run(folder);
        site.running.signal("KILL");
        site.running.wait();
        // The worker process exits as well, if there is one.
        wait_until("nobody listens", || UnixStream::connect(&path).is_err());
        assert!(path.exists());
        let folder = std::mem::replace(&mut site.folder, Folder::new());
        let mut next = Site::run(folder);
        assert_eq!(curl(&path, &["http://a/"]), "here", "{global}");
        next.running.signal("TERM");
        assert_eq!(next.running.wait().code(), Some(0));
        assert!(!path.exists(), "{global}");
    }
}

#[test]
fn the_path_of_another_process_or_file_is_refused() {
    let (folder, path) = socket_site("", FILES);
    let site = Site::run(folder);
    let (other, _) = socket_site("", "");
    let start = |path: &Path| {
        configure(&other, "", &format!("listen \"unix:{}\"\nrespond 200 \"other\"", path.display()));
        let output = flatout().arg("run").arg("-c").arg(config(&other)).output().unwrap();
        assert!(!output.status.success());
        said(&output)
    };
    let refused = start(&path);
    let expected = format!("unix:{} is already in use by flatout (process {})", path.display(), site.running.pid());
    assert!(refused.contains(&expected), "{refused}");
    assert_eq!(curl(&path, &["http://a/"]), "here");
    // A listener whose queue is full: nobody waits for it.
    let full = other.path().join("full.sock");
    let listener = UnixListener::bind(&full).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _waiting = UnixStream::connect(&full).unwrap();
    let refused = start(&full);
    let owner = format!(" (process {})", std::process::id());
    assert!(refused.contains("is already in use by ") && refused.contains(&owner), "{refused}");
    let datagrams = other.path().join("log.sock");
    let _log = UnixDatagram::bind(&datagrams).unwrap();
    assert!(start(&datagrams).contains("is already in use by another process"));
    other.write("precious", b"kept");
    assert!(start(&other.path().join("precious")).contains("a file that is not a socket already exists"));
    assert_eq!(fs::read(other.path().join("precious")).unwrap(), b"kept");
    // Symbolic links are neither followed nor replaced, wherever they lead.
    for target in [other.path().join("precious"), path.clone()] {
        let (link, before) = (other.path().join("link"), mode(&target));
        symlink(&target, &link).unwrap();
        assert!(start(&link).contains("a file that is not a socket already exists"));
        assert_eq!((mode(&target), fs::read_link(&link).unwrap()), (before, target));
        fs::remove_file(&link).unwrap();
    }
    let missing = start(&other.path().join("no/site.sock"));
    assert!(missing.contains("No such file or directory") && missing.contains("try: create the folder"), "{missing}");
    // `validate` says so beforehand. Its own listener is no obstacle.
    let validate = |folder: &Folder| flatout().args(["validate", "-c"]).arg(config(folder)).output().unwrap();
    assert!(said(&validate(&other)).contains("the folder of"), "{}", said(&validate(&other)));
    assert!(validate(&site.folder).status.success(), "{}", said(&validate(&site.folder)));
}

#[test]
fn mode_and_group_are_those_of_the_configuration() {
    let inside = "listen \"unix:SOCK\" mode=\"0660\" group=\"GROUP\"\nfiles \"WWW\"";
    let group = run(tool("id").arg("-gn"));
    let (folder, path) = socket_site("", &inside.replace("GROUP", group.trim()));
    let mut site = Site::run(folder);
    assert_eq!(mode(&path), 0o660);
    assert_eq!(curl(&path, &["http://a/"]), "here");
    site.stop();
    reconfigure(&site.folder, "", &inside.replace("GROUP", "no-such-group"));
    let output = flatout().arg("run").arg("-c").arg(config(&site.folder)).output().unwrap();
    assert!(said(&output).contains("there is no such group") && !path.exists(), "{}", said(&output));
    let output = flatout().args(["validate", "-c"]).arg(config(&site.folder)).output().unwrap();
    assert!(!output.status.success() && said(&output).contains("there is no such group"), "{}", said(&output));
    if is_root() {
        // The configured user gets the file, so that it can be removed at the end.
        let global = format!("user \"nobody\"\n{TWO_PROCESSES}");
        let inside = inside.replace("GROUP", "daemon");
        reconfigure(&site.folder, &global, &inside);
        fs::set_permissions(site.folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let mut site = Site::run(std::mem::replace(&mut site.folder, Folder::new()));
        let owner = run(tool("stat").args(["-c", "%U:%G %a"]).arg(&path));
        assert_eq!(owner.trim(), "nobody:daemon 660");
        assert_eq!(curl(&path, &["http://a/"]), "here");
        site.running.signal("TERM");
        assert_eq!(site.running.wait().code(), Some(0), "{}", site.running.stderr());
        assert!(!path.exists());
    }
}

/// Otherwise, the socket would stay open to everyone, although the configuration restricts it.
#[test]
fn a_reload_with_permissions_that_cannot_be_set_is_refused() {
    for global in ["workers 1\nworker-process #false", TWO_PROCESSES] {
        let (folder, path) = socket_site(global, FILES);
        let mut site = Site::run(folder);
        reconfigure(
            &site.folder,
            global,
            &FILES.replace("\"unix:SOCK\"", "\"unix:SOCK\" mode=\"0660\" group=\"no-such\""),
        );
        let output = site.order(&["reload"]);
        assert!(!output.status.success() && said(&output).contains("no such group"), "{}", said(&output));
        assert_eq!((mode(&path), curl(&path, &["http://a/"]).as_str()), (0o666, "here"));
        // A configuration that fails for another reason, after the permissions were prepared, leaves them as they are.
        let group = if is_root() { "daemon".to_owned() } else { run(tool("id").arg("-gn")) };
        let other = format!("listen \"unix:SOCK\" mode=\"0600\" group=\"{}\"\nfiles \"WWW\"\n{FAILING}", group.trim());
        let before = fs::metadata(&path).unwrap();
        reconfigure(&site.folder, global, &other);
        let output = site.order(&["reload"]);
        assert!(!output.status.success() && said(&output).contains("missing"), "{}", said(&output));
        let after = fs::metadata(&path).unwrap();
        assert_eq!((after.mode(), after.gid()), (before.mode(), before.gid()));
        // Without the fault, they are those of the new configuration.
        reconfigure(&site.folder, global, &other.replace(FAILING, ""));
        assert!(site.order(&["reload"]).status.success(), "{}", site.running.stderr());
        assert_eq!(mode(&path), 0o600);
        assert!(!is_root() || fs::metadata(&path).unwrap().gid() != before.gid());
        site.stop();
    }
}

/// systemd has bound the socket and keeps it.
#[test]
fn a_unix_socket_from_systemd_is_served_and_kept() {
    let (folder, path) = socket_site("", FILES);
    let listener = UnixListener::bind(&path).unwrap();
    let start = || {
        let copy = rustix::io::dup(&listener).unwrap();
        let script = format!("exec 3<&{}; export LISTEN_PID=$$; exec \"$@\"", copy.as_raw_fd());
        std::mem::forget(copy);
        let mut command = std::process::Command::new("bash");
        command.args(["-c", &script, "sh"]).arg(flatout().get_program()).args(["run", "-c"]).arg(config(&folder));
        command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "site").arg0("bash");
        Running::spawn(command)
    };
    let order = |verb: &str| flatout().arg(verb).arg("--admin").arg(folder.path().join("admin")).output().unwrap();
    for global in ["worker-process #false", TWO_PROCESSES] {
        reconfigure(&folder, global, FILES);
        // The connection waits in the queue while no server runs.
        let mut waiting = UnixStream::connect(&path).unwrap();
        let mut running = start();
        assert!(running.addresses().is_some(), "{}", running.stderr());
        ask(&mut waiting);
        assert_eq!(curl(&path, &["http://a/"]), "here");
        // The next process does not own it either.
        drop(waiting);
        assert!(order("upgrade").status.success());
        assert_eq!(running.wait().code(), Some(0), "{}", running.stderr());
        assert_eq!(curl(&path, &["http://a/"]), "here");
        let mut admin = UnixStream::connect(folder.path().join("admin")).unwrap();
        admin.write_all(b"POST /stop HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let _ = admin.read_to_end(&mut Vec::new());
        wait_until("the process has stopped", || UnixStream::connect(folder.path().join("admin")).is_err());
        assert!(fs::metadata(&path).unwrap().file_type().is_socket(), "{global}");
    }
    // A socket that the configuration does not name.
    reconfigure(&folder, "", "listen \"127.0.0.1:0\"\nfiles \"WWW\"");
    let mut running = start();
    let addresses = running.addresses().unwrap();
    assert_eq!(get(addresses[0], "/").body, b"here");
    let warning = format!("warning: systemd listens on unix:{}, but no site", path.display());
    assert!(running.stderr().contains(&warning), "{}", running.stderr());
}

#[test]
fn commands_listen_on_unix_sockets() {
    let folder = Folder::with(&[("www/index.html", b"here")]);
    let path = folder.path().join("serve.sock");
    let mut command = flatout();
    command.arg("serve").arg(folder.path().join("www")).arg("--listen").arg(format!("unix:{}", path.display()));
    let mut serve = Running::spawn(command);
    assert!(serve.addresses().is_some(), "{}", serve.stderr());
    assert_eq!(curl(&path, &["http://a/"]), "here");
    // An origin at a port whose requests name a client, in front of which the accelerator listens on a Unix socket.
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = origin.local_addr().unwrap();
    let received = std::thread::spawn(move || {
        let (mut stream, _) = origin.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").unwrap();
        String::from_utf8(head).unwrap()
    });
    let front = folder.path().join("front.sock");
    let mut command = flatout();
    command.arg("accelerate").arg(format!("http://{address}")).args(["--admin", "off", "--listen"]);
    let mut accelerate = Running::spawn({
        command.arg(format!("unix:{}", front.display()));
        command
    });
    assert!(accelerate.addresses().is_some(), "{}", accelerate.stderr());
    assert_eq!(curl(&front, &["-H", "X-Forwarded-For: 192.0.2.7", "-H", "X-Real-IP: 192.0.2.7", "http://a/"]), "ok");
    // Its client has no address, and is not trusted.
    let head = received.join().unwrap();
    assert!(!head.contains("192.0.2.7"), "{head}");
    for (mut running, path) in [(serve, path), (accelerate, front)] {
        running.signal("TERM");
        assert_eq!(running.wait().code(), Some(0), "{}", running.stderr());
        assert!(!path.exists());
    }
    let output = flatout().args(["serve", "--listen", "unix:site.sock"]).output().unwrap();
    assert!(said(&output).contains("write an absolute path"), "{}", said(&output));
}
