//! The worker process of `flatout run`: how it ends, and what happens then.

use super::cli::{Running, get};
use super::harness::{Folder, TIMEOUT, flatout, wait_until, worker_of};
use super::process::is_root;
use super::reload::make_certificate;
use super::site::{Site, TWO_PROCESSES, config, configure, files, prepare};
use super::tool::{said, tool};
use crate::e2e::skip::skip;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn kill(signal: &str, pid: u32) {
    assert!(Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().unwrap().success());
}

/// Stops a process. A signal with a lower number that arrives before it has stopped would be handled first.
fn stop(pid: u32) {
    kill("STOP", pid);
    wait_until("all threads have stopped", || {
        let mut threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        threads.all(|thread| fs::read_to_string(thread.unwrap().path().join("stat")).unwrap().contains(") T "))
    });
}

fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Connections that arrive while no worker process runs wait in the listeners' backlogs, which the supervisor keeps
/// open.
#[test]
fn a_worker_that_dies_is_replaced_and_connections_wait() {
    let mut site = Site::start(&format!("workers 2\n{TWO_PROCESSES}"));
    assert_eq!(get(site.address(), "/").body, b"here");
    let (pid, before) = (site.running.pid(), worker_of(site.running.pid()));
    stop(before);
    let mut waiting: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(site.address()).unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
            stream
        })
        .collect();
    kill("ABRT", before);
    kill("CONT", before);
    for stream in &mut waiting {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("here"), "{text}");
    }
    let after = worker_of(pid);
    assert_ne!(after, before);
    assert_eq!((site.pid(), site.status("worker_pid").as_u64()), (pid, Some(u64::from(after))));
    let text = site.running.stderr();
    let expected = format!("error: the worker process {before} was killed by signal 6 (SIGABRT); another one starts");
    assert!(text.contains(&expected), "{text}");
    assert!(text.contains(&format!("the worker process {after} is serving\n")), "{text}");
    // The new worker process handles commands as the first one did.
    configure(
        &site.folder,
        &format!("workers 2\n{TWO_PROCESSES}"),
        &format!("    header \"X-New\" \"1\"\n{}", files(site.folder.path())),
    );
    assert!(site.order(&["reload"]).status.success());
    assert_eq!(get(site.address(), "/").field("x-new"), Some("1"));
    site.running.signal("TERM");
    assert_eq!(site.running.wait().code(), Some(0), "{}", site.running.stderr());
}

#[test]
fn dying_workers_are_replaced_no_more_than_once_a_second() {
    let begun = Instant::now();
    let site = Site::start(TWO_PROCESSES);
    let pid = site.running.pid();
    for _ in 0..3 {
        let before = worker_of(pid);
        kill("KILL", before);
        wait_until("another worker process serves", || {
            let after = worker_of(pid);
            after != before && site.running.stderr().contains(&format!("the worker process {after} is serving\n"))
        });
        assert_eq!(get(site.address(), "/").body, b"here");
    }
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[test]
fn a_worker_exits_with_its_supervisor() {
    let mut site = Site::start(TWO_PROCESSES);
    let worker = worker_of(site.running.pid());
    assert!(is_alive(worker));
    kill("KILL", site.running.pid());
    assert_eq!(site.running.wait().code(), None);
    wait_until("the worker process has exited", || !is_alive(worker));
}

/// Ctrl-C on a terminal reaches both processes, and systemd may signal all processes of a service.
#[test]
fn a_worker_leaves_signals_to_its_supervisor() {
    let mut site = Site::start(TWO_PROCESSES);
    let worker = worker_of(site.running.pid());
    for signal in ["INT", "TERM", "HUP", "USR1", "USR2"] {
        kill(signal, worker);
    }
    assert_eq!(get(site.address(), "/").body, b"here");
    assert_eq!((site.status("generation").as_u64(), worker_of(site.running.pid())), (Some(1), worker));
    site.running.signal("INT");
    assert_eq!(site.running.wait().code(), Some(0), "{}", site.running.stderr());
    assert!(!is_alive(worker));
}

/// The server exits with the reason and the exit code of its first worker process.
#[test]
fn a_worker_that_cannot_start_stops_the_server_with_its_reason() {
    let folder = prepare("", "");
    let database = format!("{}/www/index.html/data.db", folder.path().display());
    let www = folder.path().join("www").display().to_string();
    configure(
        &folder,
        TWO_PROCESSES,
        &format!("listen \"127.0.0.1:0\"\npages \"{www}\" {{ database \"{database}\" }}"),
    );
    let output = flatout().arg("run").arg("-c").arg(config(&folder)).output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.matches("error: ").count(), 1, "{text}");
    assert!(text.contains(&database), "{text}");
}

/// The worker process may connect only to the ports of origins, so another port needs another worker process.
#[test]
fn a_reload_can_add_the_port_of_an_origin() {
    let (one, two) = (Site::start(""), Site::start(""));
    let folder = prepare("", "");
    let to = |origin: &Site| format!("listen \"127.0.0.1:0\"\nproxy \"http://{}\"", origin.address());
    configure(&folder, TWO_PROCESSES, &to(&one));
    let site = Site::run(folder);
    assert_eq!(get(site.address(), "/").body, b"here");
    let before = site.status("worker_pid");
    configure(&site.folder, TWO_PROCESSES, &to(&two));
    let output = site.order(&["reload"]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    if site.status("landlock").as_bool() == Some(true) {
        assert!(text.contains(&format!("may not connect to port {}", two.address().port())), "{text}");
        assert_ne!(site.status("worker_pid"), before);
    }
    assert_eq!(get(site.address(), "/").body, b"here");
    assert_eq!(two.status("requests").as_u64(), Some(1));
    // Without Landlock, the same worker process continues.
    let folder = prepare("", "");
    configure(&folder, "worker-process #true\nlandlock #false", &to(&one));
    let site = Site::run(folder);
    assert_eq!(site.status("landlock").as_bool(), Some(false));
    let before = site.status("worker_pid");
    configure(&site.folder, "worker-process #true\nlandlock #false", &to(&two));
    assert!(site.order(&["reload"]).status.success());
    assert_eq!((get(site.address(), "/").body, site.status("worker_pid")), (b"here".to_vec(), before));
}

/// With one process, as in `flatout serve`, nothing is handed over.
#[test]
fn one_process_serves_without_a_worker_process() {
    let mut site = Site::start("worker-process #false");
    let pid = site.running.pid();
    assert_eq!(get(site.address(), "/").body, b"here");
    assert_eq!((worker_of(pid), site.status("worker_pid").as_u64()), (pid, Some(u64::from(pid))));
    assert_eq!(site.status("landlock").as_bool(), Some(false));
    let other = site.folder.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::copy(site.folder.path().join("www/index.html"), other.join("index.html")).unwrap();
    let inside = files(site.folder.path()).replace("/www", "/other");
    configure(&site.folder, "worker-process #false", &inside);
    assert!(site.order(&["reload"]).status.success());
    assert!(site.order(&["upgrade"]).status.success());
    assert_eq!(site.running.wait().code(), Some(0), "{}", site.running.stderr());
    assert_eq!(get(site.address(), "/").body, b"here");
}

/// A Landlock rule applies to a file, not to its name, so the supervisor watches for replaced files, such as
/// resolver configurations.
#[test]
fn a_replaced_file_causes_a_new_worker_process() {
    let folder = prepare("", "");
    let own = folder.path().display().to_string();
    fs::create_dir(folder.path().join("keys")).unwrap();
    let pages = format!("listen \"127.0.0.1:0\"\npages \"{own}/www\" {{ secret \"{own}/keys/secret\"; }}\n");
    configure(&folder, TWO_PROCESSES, &format!("{pages}files \"{own}/www\""));
    let site = Site::run(folder);
    if site.status("landlock").as_bool() != Some(true) {
        skip("this kernel has no Landlock");
        return;
    }
    let before = site.status("worker_pid");
    let keys = site.folder.path().join("keys");
    fs::copy(keys.join("secret"), keys.join("new")).unwrap();
    fs::rename(keys.join("new"), keys.join("secret")).unwrap();
    wait_until("another worker process serves", || site.status("worker_pid") != before);
    let text = site.running.stderr();
    assert!(text.contains("/keys/secret was replaced, and the previous one may not open the new file"), "{text}");
    assert_eq!(get(site.address(), "/").body, b"here");
}

/// It reads no configuration: its supervisor has sent it. So it starts even if the file is gone, and without `-c`.
#[test]
fn another_one_needs_no_configuration_file() {
    let folder = prepare("", "");
    configure(&folder, "", &files(folder.path()));
    let mut command = flatout();
    command.arg("run").current_dir(folder.path());
    let mut running = Running::spawn(command);
    let address = running.addresses().unwrap_or_else(|| panic!("{}", running.stderr()))[0];
    let before = worker_of(running.pid());
    assert_ne!(before, running.pid(), "two processes are the default");
    fs::remove_file(config(&folder)).unwrap();
    kill("KILL", before);
    wait_until("another one serves", || running.stderr().contains(" is serving\n"));
    assert_eq!(get(address, "/").body, b"here");
    running.signal("TERM");
    assert_eq!(running.wait().code(), Some(0), "{}", running.stderr());
}

/// A migration that never ends, as a file that nobody writes to. The worker process obeys meanwhile, and does not have to
/// finish the reload to leave.
#[test]
fn a_reload_that_is_stuck_gives_way_to_the_next_one() {
    let folder = prepare("", "");
    let own = folder.path().display().to_string();
    fs::create_dir(folder.path().join("migrations")).unwrap();
    let pages = format!(
        "    route \"/p/*\" {{ pages \"{own}/www\" {{ database \"{own}/data.db\" migrations=\"{own}/migrations\"; }} }}\n"
    );
    configure(&folder, TWO_PROCESSES, &format!("{pages}{}", files(folder.path())));
    let mut site = Site::run(folder);
    let before = site.status("worker_pid");
    let stuck = site.folder.path().join("migrations/001_stuck.sql");
    assert!(tool("mkfifo").arg(&stuck).status().unwrap().success());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| site.order(&["reload"]));
        wait_until("the supervisor warns", || site.running.stderr().contains("has not completed the reload after"));
        assert_eq!(get(site.address(), "/").body, b"here");
        fs::remove_file(&stuck).unwrap();
        let next = site.order(&["reload"]);
        let text = said(&next);
        assert!(next.status.success(), "{text}");
        assert!(text.starts_with("reloaded, generation 2\n  the worker process "), "{text}");
        assert!(text.contains("serves: an earlier reload was not complete after "), "{text}");
        let first = first.join().unwrap();
        let text = said(&first);
        assert_eq!(first.status.code(), Some(1), "{text}");
        assert!(text.contains("this reload was not complete after "), "{text}");
    });
    assert_ne!(site.status("worker_pid"), before);
    assert_eq!(get(site.address(), "/").body, b"here");
    let before = before.as_u64().unwrap() as u32;
    wait_until("the stuck process has exited", || !is_alive(before));
    site.running.signal("TERM");
    assert_eq!(site.running.wait().code(), Some(0), "{}", site.running.stderr());
}

/// A long message is a file, whose descriptor a process that may open no more does not get.
#[test]
fn certificates_that_were_lost_are_sent_again() {
    let folder = prepare("", "");
    let (certificate, key) = make_certificate(folder.path(), "site");
    let inside = format!(
        "    listen \"127.0.0.1:0\" tls=#true\n    tls cert=\"{certificate}\" key=\"{key}\"\n    respond 200 \"x\""
    );
    configure(&folder, TWO_PROCESSES, &inside);
    let mut command = flatout();
    command.arg("run").arg("-c").arg(config(&folder));
    let mut running = Running::spawn(command);
    running.addresses();
    let url = running.stdout().lines().next().unwrap_or_default().to_owned();
    let worker = Pid::from_raw(worker_of(running.pid()).cast_signed());
    // The hard limit stays, so that anyone may raise the other one again.
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let limit = prlimit(worker, Resource::Nofile, Rlimit { current: Some(3), maximum }).unwrap();
    make_certificate(folder.path(), "site");
    // More than fits in one packet.
    let text = fs::read_to_string(&certificate).unwrap();
    fs::write(&certificate, text.repeat(20)).unwrap();
    wait_until("the message is lost", || {
        running.stderr().contains("no descriptor is left to receive a message from the supervisor")
    });
    prlimit(worker, Resource::Nofile, limit).unwrap();
    wait_until("the new certificate is used", || {
        tool("curl").args(["--silent", "--cacert", &certificate, &url]).output().unwrap().stdout == b"x"
    });
    assert_eq!(Pid::from_raw(worker_of(running.pid()).cast_signed()), worker);
}

fn validate(folder: &Folder) -> Output {
    flatout().args(["validate", "-c"]).arg(config(folder)).output().unwrap()
}

/// Asserts that `run` refuses the configuration, and that `validate` says the same. Returns what it says.
fn refusal(folder: &Folder) -> String {
    let run = flatout().arg("run").arg("-c").arg(config(folder)).output().unwrap();
    let validate = validate(folder);
    let text = String::from_utf8(validate.stderr).unwrap();
    assert_eq!((run.status.code(), validate.status.code()), (Some(2), Some(2)), "{}\n{text}", said(&run));
    assert!(!text.is_empty() && said(&run).contains(&text), "run says\n{}\nbut validate says\n{text}", said(&run));
    text
}

/// The worker process of root may open no more than any other process of this user.
#[test]
fn a_folder_that_only_its_owner_may_open_is_named_with_a_remedy() {
    if !is_root() {
        skip("these tests do not run as root");
        return;
    }
    let folder = prepare("", "");
    configure(&folder, TWO_PROCESSES, &files(folder.path()));
    let www = folder.path().join("www");
    fs::set_permissions(&www, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&www, Some(65_534), Some(65_534)).unwrap();
    let text = refusal(&folder);
    assert!(text.contains(&www.display().to_string()) && text.contains("permission denied"), "{text}");
    assert!(text.contains("as root without capabilities") && !text.contains("openat2"), "{text}");
    // All problems are reported, each with its place.
    let (private, own) = (folder.path().join("private"), folder.path().display());
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let steps = format!(
        "listen \"127.0.0.1:0\"\nphp \"unix:none.sock\" {{ root \"{own}\"; sendfile \"{own}/private\"; }}\nfiles \"{own}/www\""
    );
    std::os::unix::fs::chown(&www, Some(0), Some(0)).unwrap();
    configure(&folder, &format!("user \"nobody\"\n{TWO_PROCESSES}"), &steps);
    let text = refusal(&folder);
    assert_eq!(text.matches("permission denied").count(), 2, "{text}");
    assert!(text.contains(&private.display().to_string()) && text.contains(&www.display().to_string()), "{text}");
    assert!(
        text.contains("flatout.kdl:7:") && text.contains("flatout.kdl:8:") && text.contains("as user nobody"),
        "{text}"
    );
    // A single process opens folders before it switches users.
    std::os::unix::fs::chown(&www, Some(65_534), Some(65_534)).unwrap();
    configure(&folder, "worker-process #false", &files(folder.path()));
    assert!(validate(&folder).status.success());
    let site = Site::run(folder);
    assert_eq!(get(site.address(), "/").body, b"here");
}

/// Runs a program with system calls missing as on an older kernel: `landlock_create_ruleset`, and seccomp's own call.
const OLD_KERNEL: &str = "
import ctypes, os, platform, struct, sys
seccomp = 317 if platform.machine() == 'x86_64' else 277
rule = lambda code, yes, no, value: struct.pack('HBBI', code, yes, no, value)
program = [rule(0x20, 0, 0, 0)]
for call, error in [(444, 38), (seccomp, 38)]:
    program += [rule(0x15, 0, 1, call), rule(0x06, 0, 0, 0x00050000 | error)]
program += [rule(0x06, 0, 0, 0x7fff0000)]
text = ctypes.create_string_buffer(b''.join(program))
class Program(ctypes.Structure):
    _fields_ = [('count', ctypes.c_ushort), ('rules', ctypes.c_void_p)]
filter = Program(len(program), ctypes.addressof(text))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(filter)) == 0
os.execv(sys.argv[1], sys.argv[1:])
";

#[test]
fn without_landlock_and_seccomp_it_starts_with_a_note() {
    let folder = prepare("", "");
    configure(&folder, "", &files(folder.path()));
    let mut command = tool("python3");
    command.args(["-c", OLD_KERNEL]).arg(flatout().get_program()).arg("run").arg("-c").arg(config(&folder));
    let mut running = Running::spawn(command);
    let address = running.addresses().unwrap_or_else(|| panic!("{}", running.stderr()))[0];
    assert_eq!(get(address, "/").body, b"here");
    let text = running.stderr();
    for note in ["this kernel has no Landlock", "seccomp is unavailable"] {
        assert_eq!(text.matches(note).count(), 1, "{text}");
    }
    assert_ne!(worker_of(running.pid()), running.pid());
    running.signal("TERM");
    assert_eq!(running.wait().code(), Some(0), "{}", running.stderr());
}
