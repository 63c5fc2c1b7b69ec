//! Upgrades: a new process takes over the listeners, and no connection is refused, truncated or reset.

use super::cli::{Running, get};
use super::harness::{Folder, TIMEOUT, flatout, wait_until};
use super::site::{Crowd, Site, config, configure, files};
use super::skip::skip;
use super::tool::said;
use std::fs;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

fn is_alive(pid: u32) -> bool {
    // A process that has exited but was not waited for by its parent is a zombie.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn twenty_upgrades_under_two_hundred_connections_fail_nothing() {
    const UPGRADES: u64 = 20;
    let folder = super::site::prepare("", "");
    let inside = files(folder.path()).replace("\"127.0.0.1:0\"", "\"127.0.0.1:0\" h2c=#true");
    configure(&folder, "workers 2", &inside);
    let site = Site::run(folder);
    // In addition, twenty HTTP/2 streams.
    let crowd = Crowd::during(site.address(), [120, 20, 56], true, |_| {
        for index in 0..UPGRADES {
            let before = site.pid();
            // The number of workers varies, so there are fewer or more sockets than workers.
            configure(&site.folder, &format!("workers {}", 1 + index % 3), &inside);
            let output = site.order(&["upgrade"]);
            assert!(output.status.success(), "{}", said(&output));
            let after = site.pid();
            assert_ne!(before, after);
        }
    });
    println!("{crowd:?}");
    assert!(crowd.answers.load(Ordering::Relaxed) > UPGRADES);
    // Clients with idle connections were told that these would close.
    assert!(crowd.farewells.load(Ordering::Relaxed) > 0);
    assert_eq!(get(site.address(), "/").body, b"here");
}

#[test]
fn the_old_process_exits_after_its_last_connection() {
    let mut site = Site::start("workers 1");
    let old = site.running.pid();
    assert_eq!(site.pid(), old);
    site.running.signal("USR2");
    wait_until("another process responds", || site.pid() != old);
    assert_eq!(site.running.wait().code(), Some(0), "{}", site.running.stderr());
    assert_eq!(get(site.address(), "/").body, b"here");
    let said = site.running.stderr();
    assert!(said.contains("is serving; this process finishes its requests in progress"), "{said}");
}

#[test]
fn a_failed_upgrade_changes_nothing() {
    let site = Site::start("");
    let before = site.pid();
    configure(&site.folder, "", "    nonsense");
    let output = site.order(&["upgrade"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains(
            "the new process exited with exit status: 2 before it was ready; this process continues to serve"
        ),
        "{text}"
    );
    assert_eq!((site.pid(), get(site.address(), "/").body), (before, b"here".to_vec()));
    assert_eq!(site.status("upgrades_failed").as_u64(), Some(1));
    // This includes a failure after it has taken over the admin socket: the folder of this log does not exist.
    configure(&site.folder, "log \"/nowhere/at/all/log\"", &files(site.folder.path()));
    let output = site.order(&["upgrade"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(site.folder.path().join("admin").exists());
    assert_eq!((site.pid(), site.status("upgrades_failed").as_u64()), (before, Some(2)));
    // The next upgrade succeeds.
    configure(&site.folder, "", &files(site.folder.path()));
    assert!(site.order(&["upgrade"]).status.success());
    assert_ne!(site.pid(), before);
}

/// The program was removed or replaced: an upgrade looks it up again by its path.
#[test]
fn an_upgrade_runs_the_program_now_at_the_original_path() {
    let folder = Folder::new();
    let binary = folder.path().join("flatout");
    fs::copy(flatout().get_program(), &binary).unwrap();
    let site = super::site::prepare("", "");
    configure(&site, "", &files(site.path()));
    let mut command = std::process::Command::new(&binary);
    command.arg("run").arg("-c").arg(config(&site));
    let mut running = Running::spawn(command);
    let addresses = running.addresses().unwrap();
    let site = Site { folder: site, running, addresses };
    fs::remove_file(&binary).unwrap();
    let output = site.order(&["upgrade"]);
    assert!(said(&output).contains("cannot start the new process: No such file or directory"), "{}", said(&output));
    // The way an installer does it.
    fs::copy(flatout().get_program(), folder.path().join("next")).unwrap();
    fs::rename(folder.path().join("next"), &binary).unwrap();
    let before = site.pid();
    assert!(site.order(&["upgrade"]).status.success());
    assert!(site.pid() != before && is_alive(site.pid()));
}

/// systemd's protocol: the socket exists before the process, at descriptor 3.
#[test]
fn a_socket_from_systemd_is_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let folder = super::site::prepare("", "");
    let www = folder.path().join("www");
    let serve = |workers: usize| {
        configure(
            &folder,
            &format!("workers {workers}"),
            &format!("    listen \"{address}\"\n    files \"{}\"", www.display()),
        );
        run_activated(&folder, &listener)
    };
    // The connection waits in the queue while no server runs.
    for workers in [1, 3] {
        let waiting = std::thread::spawn(move || get(address, "/").body);
        let mut running = serve(workers);
        assert_eq!(running.addresses().unwrap_or_else(|| panic!("{}", running.stderr())), [address]);
        assert_eq!(waiting.join().unwrap(), b"here");
        for _ in 0..20 {
            assert_eq!(get(address, "/").body, b"here");
        }
        running.signal("TERM");
        assert_eq!(running.wait().code(), Some(0), "{}", running.stderr());
    }
}

/// systemd's `ListenStream=80` is one socket for all addresses of both families.
#[test]
fn a_socket_from_systemd_for_both_families_is_served() {
    let Ok(listener) = TcpListener::bind("[::]:0") else { return skip("this machine has no IPv6") };
    let port = listener.local_addr().unwrap().port();
    let (ipv4, ipv6) = (SocketAddr::from(([127, 0, 0, 1], port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
    let folder = super::site::prepare("", "");
    let (www, log) = (folder.path().join("www"), folder.path().join("log"));
    let inside = format!("files \"{}\"\nlog \"{}\"", www.display(), log.display());
    for listen in [format!(":{port}"), format!("0.0.0.0:{port}")] {
        configure(&folder, "workers 2", &format!("listen \"{listen}\"\n{inside}"));
        let mut running = run_activated(&folder, &listener);
        assert!(running.addresses().is_some(), "{listen}: {}", running.stderr());
        // As often as it takes for the other listener to accept one of them.
        for _ in 0..20 {
            assert_eq!(get(ipv4, "/").body, b"here", "{listen}");
        }
        assert_eq!(get(ipv6, "/").body, b"here", "{listen}");
        // Another address that the socket covers needs no other socket.
        configure(&folder, "workers 2", &format!("listen \":{port}\"\n{inside}"));
        let reload = || flatout().arg("reload").arg("--admin").arg(folder.path().join("admin")).output().unwrap();
        let reloaded = reload();
        assert!(reloaded.status.success(), "{listen}: {}", said(&reloaded));
        assert_eq!(get(ipv4, "/").body, b"here", "{listen}");
        // The socket does not say for which of two listeners a connection is.
        let differ = format!("listen \"0.0.0.0:{port}\" h2c=#true\nlisten \"[::]:{port}\"\n{inside}");
        configure(&folder, "workers 2", &differ);
        let refused = reload();
        assert!(said(&refused).contains("systemd listens on"), "{listen}: {}", said(&refused));
        let both =
            format!("listen \"0.0.0.0:{port}\"\n{inside}\n}}\nsite \"*\" {{\nlisten \"[::]:{port}\"\nrespond 403");
        configure(&folder, "workers 2", &both);
        let refused = reload();
        assert!(!refused.status.success(), "{listen}");
        let expected = format!("systemd listens on [::]:{port} for IPv4 as well, but 0.0.0.0:{port} has other sites");
        assert!(said(&refused).contains(&expected), "{listen}: {}", said(&refused));
        running.signal("TERM");
        assert_eq!(running.wait().code(), Some(0), "{}", running.stderr());
        assert_eq!(run_activated(&folder, &listener).wait().code(), Some(2));
        let lines = fs::read_to_string(&log).unwrap();
        assert!(lines.starts_with("127.0.0.1 ") && !lines.contains("ffff"), "{lines}");
        fs::remove_file(&log).unwrap();
    }
}

/// Runs the configuration in `folder` with a socket from systemd. A shell plays systemd: it knows its own process ID,
/// which stays the same for the program that it executes.
fn run_activated(folder: &Folder, listener: &TcpListener) -> Running {
    let mut command = std::process::Command::new("bash");
    let script = format!("exec 3<&{}; export LISTEN_PID=$$; exec \"$@\"", inherit(listener));
    command.args(["-c", &script, "sh"]).arg(flatout().get_program()).args(["run", "-c"]).arg(config(folder));
    command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "web").arg0("bash");
    Running::spawn(command)
}

/// A copy of the socket's descriptor that a program may inherit, leaked for the duration of the test.
fn inherit(listener: &TcpListener) -> i32 {
    let copy = rustix::io::dup(listener).unwrap();
    let number = copy.as_raw_fd();
    std::mem::forget(copy);
    number
}

/// The error names the running process and its socket.
#[test]
fn two_servers_cannot_share_an_admin_socket() {
    let site = Site::start("");
    let other = super::site::prepare("", "");
    let text = fs::read_to_string(config(&site.folder)).unwrap();
    fs::write(config(&other), text).unwrap();
    let begun = Instant::now();
    let output = flatout().arg("run").arg("-c").arg(config(&other)).output().unwrap();
    let text = said(&output);
    assert!(begun.elapsed() < TIMEOUT);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("another flatout (process {}) uses the admin socket", site.pid())), "{text}");
    assert!(Path::new(&site.folder.path().join("admin")).exists());
}
