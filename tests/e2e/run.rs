//! `flatout run` and related commands: configurations from flags, privileges, completions, manual pages, units.

use super::cli::{Running, get};
use super::harness::{Folder, Server, flatout, uninterrupted, wait_until};
use super::site::{Site, config, configure, files, prepare};
use super::tool::{run, said, tool};
use crate::e2e::skip::skip;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn flags_print_their_equivalent_configuration() {
    let folder = Folder::with(&[("index.html", b"here")]);
    let path = folder.path().to_str().unwrap();
    let print = |flags: &[&str]| {
        let output = flatout().args(["serve", path, "--print-config"]).args(flags).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = print(&["--listen", "127.0.0.1:0", "--workers", "2", "--hidden", "--idle-timeout", "5s"]);
    for part in ["workers 2", "listen \"127.0.0.1:0\"", path] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The printed configuration serves the same site.
    let printed = folder.path().join("printed.kdl");
    fs::write(&printed, &text).unwrap();
    let mut command = flatout();
    command.arg("run").arg("-c").arg(&printed);
    let mut running = Running::spawn(command);
    let address = running.addresses().unwrap_or_else(|| panic!("{}", running.stderr()))[0];
    assert_eq!(get(address, "/").body, b"here");
}

#[test]
fn an_address_given_twice_is_a_usage_error() {
    let output = flatout().args(["serve", ".", "--listen", "127.0.0.1:9", "--listen", "127.0.0.1:9"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(said(&output), "error: --listen 127.0.0.1:9 occurs twice\n");
}

#[test]
fn https_by_our_own_authority_is_trusted_through_its_root() {
    let folder = Folder::with(&[("index.html", b"here")]);
    let data = Folder::new();
    let start = || {
        let mut command = flatout();
        command.arg("serve").arg(folder.path()).args(["--listen", "127.0.0.1:0", "--tls", "internal"]);
        command.env("XDG_DATA_HOME", data.path());
        let mut running = Running::spawn(command);
        running.addresses();
        let url = running.stdout().lines().next().unwrap_or_default().to_owned();
        assert!(url.starts_with("https://"), "{} {}", running.stdout(), running.stderr());
        (running, url)
    };
    let root = data.path().join("flatout/authority/root.pem");
    let mut roots = Vec::new();
    for _ in 0..2 {
        let (running, url) = start();
        assert!(running.stderr().contains(root.to_str().unwrap()), "{}", running.stderr());
        let mut curl = tool("curl");
        assert_eq!(run(curl.args(["--silent", "--show-error", "--cacert"]).arg(&root).arg(&url)), "here");
        let untrusted = tool("curl").args(["--silent", "--show-error", &url]).output().unwrap();
        assert!(!untrusted.status.success());
        roots.push(fs::read(&root).unwrap());
    }
    assert_eq!(roots[0], roots[1]);
    let key = data.path().join("flatout/authority/root.key");
    assert_eq!(fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn changes_in_a_watched_folder_are_seen_without_polling() {
    let folder = Folder::with(&[("a.txt", b"first")]);
    // Without notifications, the next check would be a day later.
    let server = Server::start(folder.path(), &["--watch", "--file-check-interval", "1440m"]);
    assert_eq!(server.get("/a.txt").body, b"first");
    folder.write("next", b"second");
    fs::rename(folder.path().join("next"), folder.path().join("a.txt")).unwrap();
    wait_until("the change is seen", || server.get("/a.txt").body == b"second");
}

#[test]
fn no_new_privs_is_set_on_every_thread() {
    let folder = Folder::with(&[("a.txt", b"first")]);
    let server = Server::start(folder.path(), &["--workers", "2"]);
    assert_eq!(server.get("/a.txt").body, b"first");
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let statuses: Vec<_> = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap()).collect();
    assert!(statuses.len() >= 3, "two workers and the control thread: {statuses:?}");
    assert!(statuses.iter().all(|status| status.contains("\nNoNewPrivs:\t1\n")), "{statuses:?}");
}

/// Root drops to an unprivileged user after binding the port, and cannot come back.
#[test]
fn privileges_are_dropped_permanently() {
    if Command::new("id").arg("-u").output().unwrap().stdout != b"0\n" {
        skip("only root can change the user");
        return;
    }
    let folder = prepare("", "");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let nobody = String::from_utf8(Command::new("id").args(["-u", "nobody"]).output().unwrap().stdout).unwrap();
    // In a folder that belongs to root: the files are created before the user is changed.
    let own = folder.path().canonicalize().unwrap();
    let global = format!("user \"nobody\"\nworkers 2\nstate \"{own}/state\"\nlog \"{own}/log\"", own = own.display());
    let inside = format!("{}\n    listen \"127.0.0.3:0\" tls=#true\n    tls \"internal\"", files(folder.path()));
    configure(&folder, &global, &inside);
    // Where the unprivileged user can start it again.
    let binary = folder.path().join("flatout");
    fs::copy(flatout().get_program(), &binary).unwrap();
    let mut command = Command::new(&binary);
    command.arg("run").arg("-c").arg(config(&folder));
    let mut running = Running::spawn(command);
    let addresses = running.addresses().unwrap_or_else(|| panic!("{}", running.stderr()));
    let site = Site { folder, running, addresses };
    assert_eq!(get(site.address(), "/").body, b"here");
    let tasks = fs::read_dir(format!("/proc/{}/task", site.running.pid())).unwrap();
    for task in tasks {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let line = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(line("Uid:").iter().all(|id| id == nobody.trim()), "{status}");
        assert!(line("Gid:").iter().all(|id| id != "0") && line("Groups:").iter().all(|id| id != "0"), "{status}");
        assert_eq!(line("CapEff:"), ["0000000000000000"]);
        assert_eq!(line("CapPrm:"), ["0000000000000000"]);
        assert_eq!(line("CapInh:"), ["0000000000000000"]);
        assert_eq!(line("NoNewPrivs:"), ["1"]);
    }
    for (name, mode) in [("log", 0o640), ("state", 0o700), ("state/digests.redb", 0o600)] {
        let metadata = fs::metadata(own.join(name)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{name}");
        assert_eq!(metadata.uid().to_string(), nobody.trim(), "{name}");
    }
    assert!(!site.running.stderr().contains("runs as root"), "{}", site.running.stderr());
    // The unprivileged process can still reload and be upgraded.
    for verb in ["reload", "upgrade"] {
        let output = site.order(&[verb]);
        assert!(output.status.success(), "{}", said(&output));
    }
    assert_eq!(get(site.address(), "/").body, b"here");
}

/// Only root may read certbot's keys: reloads reuse what was read before the privileges were dropped.
#[test]
fn a_reload_does_not_reread_a_key_that_only_root_can_read() {
    if Command::new("id").arg("-u").output().unwrap().stdout != b"0\n" {
        skip("only root can change the user");
        return;
    }
    let folder = prepare("", "");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (chain, key) = (folder.path().join("chain.pem"), folder.path().join("key.pem"));
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=a.test -addext subjectAltName=DNS:a.test";
    let mut openssl = Command::new("openssl");
    let made = openssl.args(arguments.split(' ')).arg("-keyout").arg(&key).arg("-out").arg(&chain).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let with = |more: &str| {
        let tls = format!("tls cert=\"{}\" key=\"{}\"", chain.display(), key.display());
        let listen = "listen \"127.0.0.3:0\" tls=#true";
        configure(&folder, "user \"nobody\"", &format!("{more}\n{}\n{listen}\n{tls}", files(folder.path())));
    };
    with("");
    let mut command = flatout();
    command.arg("run").arg("-c").arg(config(&folder));
    let mut running = Running::spawn(command);
    let addresses = running.addresses().unwrap_or_else(|| panic!("{}", running.stderr()));
    assert!(running.stderr().contains("will not notice a renewed certificate"), "{}", running.stderr());
    with("header { set \"X-New\" \"1\"; }");
    let site = Site { folder, running, addresses };
    let output = site.order(&["reload"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(get(site.address(), "/").field("x-new"), Some("1"));
    // A different key in its place cannot be read, and the error says what helps.
    fs::copy(&key, site.folder.path().join("other")).unwrap();
    fs::rename(site.folder.path().join("other"), &key).unwrap();
    let output = site.order(&["reload"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("give the process's user read access"), "{}", said(&output));
}

/// Root gets a warning without `user`. With `user`, the error for a file that this user may not open names the user.
#[test]
fn running_as_root_warns_and_a_permission_error_names_the_user() {
    if Command::new("id").arg("-u").output().unwrap().stdout != b"0\n" {
        skip("only root can change the user");
        return;
    }
    let site = Site::start("");
    let text = site.running.stderr();
    assert!(text.contains("warning: flatout runs as root: an attacker who takes over this process controls"), "{text}");
    let folder = prepare("", "");
    let log = folder.path().join("log");
    fs::write(&log, "").unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o600)).unwrap();
    configure(&folder, &format!("user \"nobody\"\nlog \"{}\"", log.display()), &files(folder.path()));
    let output = flatout().arg("run").arg("-c").arg(config(&folder)).output().unwrap();
    assert!(!output.status.success());
    let text = said(&output);
    assert!(text.contains("flatout does this as user nobody (uid ") && text.contains("Permission denied"), "{text}");
}

/// A limit on the address space also applies to root. It leaves room for the allocations of the workers that started.
#[test]
fn a_worker_that_cannot_start_names_the_limit() {
    let folder = Folder::with(&[("index.html", b"here")]);
    let mut command = tool("prlimit");
    command.arg("--as=300000000").arg(flatout().get_program());
    command.arg("serve").arg(folder.path()).args(["--listen", "127.0.0.1:0", "--workers", "256"]);
    let output = command.output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("error: cannot start worker "), "{text}");
    assert!(text.contains("the address space is limited to 300000000B (ulimit -v)"), "{text}");
    assert!(text.contains("\n  try: fewer `workers`, or a higher limit: ulimit -v unlimited"), "{text}");
}

#[test]
fn a_missing_state_folder_is_created_and_reported_once() {
    let folder = prepare("", "");
    let state = folder.path().join("state/deep");
    configure(&folder, &format!("state \"{}\"", state.display()), &files(folder.path()));
    let note = format!("note: the state folder {} did not exist, so flatout created it\n", state.display());
    let mut site = Site::run(folder);
    assert_eq!(site.running.stderr().matches(&note).count(), 1, "{}", site.running.stderr());
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(site.order(&["reload"]).status.success());
    site.stop();
    assert_eq!(site.running.stderr().matches("the state folder").count(), 1, "{}", site.running.stderr());
}

/// On a terminal, each request is printed as a line, and a summary at the end. Elsewhere neither is printed.
#[test]
fn a_terminal_shows_requests_and_a_final_summary() {
    let folder = Folder::with(&[("index.html", b"here")]);
    let words = Folder::new();
    let path = words.path().join("words");
    let shown = || fs::read_to_string(&path).unwrap_or_default();
    let program = flatout().get_program().to_str().unwrap().to_owned();
    let line = format!("exec {program} serve {} --listen 127.0.0.1:0 --workers 1", folder.path().display());
    let mut command = tool("script");
    command.args(["--quiet", "--flush", "--return", "--command", &line]).arg(&path);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    wait_until("flatout serves", || shown().contains("press Ctrl-C to stop"));
    let shown_now = shown();
    let address = shown_now.lines().find_map(|line| line.trim().strip_prefix("http://")?.strip_suffix('/'));
    let address = address.unwrap_or_else(|| panic!("{shown_now}")).parse().unwrap();
    assert_eq!(get(address, "/").body, b"here");
    assert_eq!(get(address, "/none\u{7f}").status, 400);
    assert_eq!(get(address, "/none").status, 404);
    wait_until("the requests are shown", || shown().contains("not_found"));
    // What the terminal sends for Ctrl-C.
    child.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    assert!(child.wait().unwrap().success(), "{}", shown());
    let shown = shown();
    assert!(shown.contains("200 GET  /  4 B  ") && shown.contains("404 GET  /none  "), "{shown}");
    assert!(shown.contains("\\x7f") && !shown.contains('\u{7f}'), "{shown}");
    assert!(shown.contains("stopped after 3 requests in "), "{shown}");
    assert!(!shown.contains("outcome_"), "{shown}");
}

#[test]
fn more_open_files_than_the_kernel_allows_is_explained() {
    let folder = Folder::with(&[("index.html", b"here")]);
    let mut command = tool("setpriv");
    // Only root may raise the hard limit, so this drops to an unprivileged user.
    command.args(["--bounding-set=-all", "--inh-caps=-all", "--reuid=65534", "--clear-groups"]);
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let binary = folder.path().join("flatout");
    fs::copy(flatout().get_program(), &binary).unwrap();
    for path in [folder.path(), &binary] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = if is_root { command } else { Command::new("env") };
    let output = command
        .arg(&binary)
        .arg("serve")
        .arg(folder.path())
        .args(["--listen", "127.0.0.1:0", "--open-files", "1073741824"])
        .output()
        .unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("error: cannot keep 1073741824 files open: the hard limit is "), "{text}");
    assert!(text.contains("\n  try: LimitNOFILE=1073741824 in the systemd unit"), "{text}");
}

#[test]
fn shells_accept_the_completions() {
    for (shell, check) in [("bash", &["bash", "-n"][..]), ("zsh", &["zsh", "-n"]), ("fish", &["fish", "--no-execute"])]
    {
        let output = flatout().args(["completions", shell]).output().unwrap();
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("serve"));
        let Ok(mut checked) = Command::new(check[0]).args(&check[1..]).stdin(Stdio::piped()).spawn() else {
            skip(&format!("{shell} is not installed, so its completions are not tried"));
            continue;
        };
        checked.stdin.take().unwrap().write_all(&output.stdout).unwrap();
        assert!(checked.wait().unwrap().success(), "{shell}");
    }
}

#[test]
fn the_manual_pages_are_valid() {
    let folder = Folder::new();
    assert!(flatout().args(["man", "--dir"]).arg(folder.path()).status().unwrap().success());
    let pages: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(pages.len() > 8, "{pages:?}");
    for page in pages {
        let mut man = tool("man");
        man.env("MANWIDTH", "80").args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]);
        let output = man.arg(&page).output().unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && complaints.is_empty(), "{}: {complaints}", page.display());
    }
}

#[test]
fn the_systemd_units_are_valid_and_hardened() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging");
    let (service, socket) = (packaging.join("flatout.service"), packaging.join("flatout.socket"));
    // A missing program and missing manual pages are the only allowed complaints.
    let output = tool("systemd-analyze").arg("verify").args([&service, &socket]).output().unwrap();
    let text = said(&output);
    let known = |line: &&str| line.contains("is not executable") || line.contains("man flatout(1)");
    let complaints: Vec<&str> = text.lines().filter(|line| line.contains("flatout.") && !known(line)).collect();
    assert!(complaints.is_empty(), "{text}");
    // In tenths: 2.0 is the score of a service that may only use the network and its own files.
    let output = tool("systemd-analyze")
        .args(["security", "--offline=yes", "--threshold=20", "--no-pager"])
        .arg(&service)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

/// systemd is notified of every state change.
#[test]
fn systemd_is_notified() {
    let folder = prepare("", "");
    configure(&folder, "", &files(folder.path()));
    let socket = folder.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(super::harness::TIMEOUT)).unwrap();
    // Read on a thread, as systemd does, so that no notification waits while this test waits for something else.
    let (lines, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 1024];
        while let Ok(count) = uninterrupted(|| manager.recv(&mut buffer)) {
            for line in String::from_utf8_lossy(&buffer[..count]).lines() {
                let _ = lines.send(line.to_owned());
            }
        }
    });
    let await_line = |wanted: &str| {
        let begun = std::time::Instant::now();
        let mut seen = Vec::new();
        while !seen.last().is_some_and(|line: &String| line.starts_with(wanted)) {
            assert!(begun.elapsed() < super::harness::TIMEOUT, "no {wanted}: {seen:?}");
            seen.push(received.recv().unwrap_or_else(|_| panic!("no {wanted}: {seen:?}")));
        }
    };
    let mut command = flatout();
    command.arg("run").arg("-c").arg(config(&folder)).env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "200000");
    let mut running = Running::spawn(command);
    running.addresses();
    await_line("READY=1");
    await_line("WATCHDOG=1");
    running.signal("HUP");
    await_line("RELOADING=1");
    await_line("READY=1");
    running.signal("USR2");
    await_line("MAINPID=");
    assert_eq!(running.wait().code(), Some(0));
    let mut site = Site { folder, running, addresses: Vec::new() };
    site.stop();
    await_line("STOPPING=1");
}
