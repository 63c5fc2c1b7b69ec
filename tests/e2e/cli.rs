//! The output and exit of `flatout serve`: its first line, its errors and exit codes, its signals.

use super::harness::{Folder, Response, flatout, read_to_end, wait_until};
use super::process::{free_port, is_root};
use super::tool::{said, tool};
use crate::e2e::skip::skip;
use rustix::io::Errno;
use rustix::net::AddressFamily;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output};
use std::thread;

/// A running flatout whose output can be read. It is killed when dropped.
pub(crate) struct Running {
    child: Child,
    words: Folder,
}

impl Running {
    pub(crate) fn spawn(mut command: Command) -> Self {
        let words = Folder::new();
        let file = |name: &str| File::create(words.path().join(name)).unwrap();
        let child = command.stdout(file("stdout")).stderr(file("stderr")).spawn().unwrap();
        Self { child, words }
    }

    pub(crate) fn stdout(&self) -> String {
        fs::read_to_string(self.words.path().join("stdout")).unwrap()
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.words.path().join("stderr")).unwrap()
    }

    /// Waits until it prints what it serves, and returns its addresses. `None` if it exited instead.
    pub(crate) fn addresses(&mut self) -> Option<Vec<SocketAddr>> {
        let is_serving = |words: &str| words.contains("press Ctrl-C to stop\n");
        wait_until("flatout serves or exits", || {
            is_serving(&self.stdout()) || is_serving(&self.stderr()) || self.child.try_wait().unwrap().is_some()
        });
        let words = if is_serving(&self.stdout()) { self.stdout() } else { self.stderr() };
        let parse = |line: &str| line.split_once("://")?.1.strip_suffix('/')?.parse().ok();
        is_serving(&words).then(|| words.lines().map_while(parse).collect())
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Standard error without the line that warns root, which must be present if the tests run as root.
pub(crate) fn without_root_warning(words: &str) -> String {
    const WARNING: &str =
        "warning: flatout runs as root: an attacker who takes over this process controls the whole machine\n";
    assert_eq!(words.matches(WARNING).count(), usize::from(is_root()), "{words}");
    words.replace(WARNING, "")
}

fn serve(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = flatout();
    command.arg("serve").arg(folder).args(arguments);
    command
}

/// Runs it until it exits on its own.
fn output(arguments: &[&str]) -> Output {
    flatout().args(arguments).output().unwrap()
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Response {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    Response::parse(&read_to_end(&mut stream))
}

fn site() -> Folder {
    Folder::with(&[("index.html", b"here")])
}

fn process_name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim().to_owned()
}

#[test]
fn the_first_line_is_only_the_url() {
    let folder = site();
    let mut running = Running::spawn(serve(folder.path(), &["--listen", "127.0.0.1:0", "--workers", "1"]));
    let addresses = running.addresses().unwrap();
    let stdout = running.stdout();
    let lines: Vec<&str> = stdout.lines().collect();
    let shown = folder.path().canonicalize().unwrap();
    assert_eq!(lines[0], format!("http://127.0.0.1:{}/", addresses[0].port()));
    assert_eq!(lines[1..], [format!("serving {} with 1 worker; press Ctrl-C to stop", shown.display())]);
    assert_eq!(without_root_warning(&running.stderr()), "");
    assert_eq!(get(addresses[0], "/").body, b"here");
}

#[test]
fn an_unspecified_address_is_printed_as_one_that_a_browser_can_open() {
    let folder = site();
    let mut running = Running::spawn(serve(folder.path(), &["--listen", "0.0.0.0:0"]));
    let addresses = running.addresses().unwrap();
    assert_eq!(addresses[0].ip().to_string(), "127.0.0.1");
    assert_eq!(get(addresses[0], "/").body, b"here");
}

#[test]
fn the_default_is_the_current_folder_on_port_8080() {
    let folder = site();
    let serve_here = || {
        let mut command = flatout();
        command.arg("serve").current_dir(folder.path());
        Running::spawn(command)
    };
    // While this test or another program holds the port, the error names it.
    let held = TcpListener::bind("127.0.0.1:8080");
    let mut refused = serve_here();
    assert_eq!(refused.addresses(), None);
    assert_eq!(refused.wait().code(), Some(1));
    let stderr = refused.stderr();
    assert!(stderr.starts_with("error: port 8080 on 127.0.0.1 is already in use by "), "{stderr}");
    assert!(stderr.contains("\n  try: --listen 127.0.0.1:80"), "{stderr}");
    if held.is_err() {
        return skip("another program listens on port 8080, so the default address is not tried");
    }
    drop(held);
    let mut running = serve_here();
    let addresses = running.addresses().unwrap();
    assert_eq!(addresses, ["127.0.0.1:8080".parse().unwrap()]);
    assert_eq!(get(addresses[0], "/").body, b"here");
    let cores = thread::available_parallelism().unwrap();
    let workers = if cores.get() == 1 { "1 worker;".to_owned() } else { format!("{cores} workers;") };
    assert!(running.stdout().contains(&workers), "{}", running.stdout());
}

/// The `--listen` value that the message suggests.
fn suggested_address(stderr: &str) -> &str {
    stderr.lines().find_map(|line| line.strip_prefix("  try: --listen ")).unwrap_or_else(|| panic!("{stderr}"))
}

#[test]
fn the_error_for_a_port_in_use_names_its_owner_and_a_free_port() {
    let folder = site();
    let mut first = Running::spawn(serve(folder.path(), &["--listen", "127.0.0.1:0"]));
    let taken = first.addresses().unwrap()[0];
    let output = output(&["serve", folder.path().to_str().unwrap(), "--listen", &taken.to_string()]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    let (port, name, pid) = (taken.port(), process_name(first.pid()), first.pid());
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(output.stdout.is_empty());
    assert_eq!(
        stderr.lines().next().unwrap(),
        format!("error: port {port} on 127.0.0.1 is already in use by {name} (process {pid})")
    );
    // The suggestion works. Another program may take the port first, so this may take a few attempts.
    let mut proposed = suggested_address(&stderr).to_owned();
    for _ in 0..10 {
        let mut second = Running::spawn(serve(folder.path(), &["--listen", &proposed]));
        if let Some(addresses) = second.addresses() {
            assert_eq!(addresses, [proposed.parse().unwrap()]);
            assert_eq!(get(addresses[0], "/").body, b"here");
            return;
        }
        proposed = suggested_address(&second.stderr()).to_owned();
    }
    panic!("no suggested address worked");
}

#[test]
fn the_error_for_a_port_in_use_names_another_program() {
    let folder = site();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let output = output(&["serve", folder.path().to_str().unwrap(), "--listen", &address.to_string()]);
    let (stderr, pid) = (said(&output), std::process::id());
    let owner = format!("is already in use by {} (process {pid})", process_name(pid));
    assert!(output.status.code() == Some(1) && stderr.contains(&owner), "{owner}? {stderr}");
}

#[test]
fn an_address_that_is_not_local_is_a_usage_error() {
    let output = output(&["serve", ".", "--listen", "192.0.2.1:8080"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(said(&output), "error: cannot listen on 192.0.2.1:8080: this machine does not have this address\n");
}

#[test]
fn a_path_that_cannot_be_served_is_a_usage_error() {
    let folder = site();
    let missing = folder.path().join("nowhere");
    let output_of = |path: &Path| output(&["serve", path.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    let output = output_of(&missing);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        said(&output),
        format!("error: cannot serve {}: No such file or directory (os error 2)\n", missing.display())
    );
    let file = folder.path().join("index.html");
    let output = output_of(&file);
    assert_eq!(output.status.code(), Some(2));
    let expected = format!("error: {} is not a folder; specify the folder that contains the site\n", file.display());
    assert_eq!(said(&output), expected);
}

#[test]
fn a_wrong_flag_is_a_usage_error_with_a_hint() {
    for (arguments, hint) in [
        (&["serve", "--lisen", "127.0.0.1:0"][..], "--listen"),
        (&["sevre"], "serve"),
        (&["serve", "--listen", "8080"], "write :8080 for all addresses, or 127.0.0.1:8080"),
        (&["serve", "--listen", "localhost:8080"], "write 127.0.0.1:8080"),
        (&["serve", "--workers", "0"], "1..=1024"),
        (&["serve", "--workers", "many"], "invalid digit"),
        (&["serve", "--idle-timeout", "10"], "a duration is a number with a unit: 250ms, 10s or 2m"),
        (&["serve", "--head-timeout", "0s"], "a duration must be between 1ms and 1d"),
        (&["serve", "one", "two"], "unexpected argument 'two'"),
        (&["serve", "--access-log"], "a value is required"),
        (&[], "Usage: flatout <COMMAND>"),
    ] {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.stdout.is_empty() && stderr.contains(hint), "{arguments:?}: {stderr}");
    }
}

#[test]
fn help_has_examples_and_version_prints_a_number() {
    for arguments in [["serve", "--help"], ["help", "serve"]] {
        let output = output(&arguments);
        let help = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0));
        assert!(help.contains("Examples:") && help.contains("\n  flatout serve "), "{help}");
        for flag in ["--listen", "--workers", "--access-log", "--hidden", "--idle-timeout", "--drain-timeout"] {
            assert!(help.contains(flag), "{flag} is not in {help}");
        }
    }
    assert!(said(&output(&["--help"])).contains("serve"));
    // A failure has the same name.
    assert!(said(&output(&["help", "tls"])).contains("HTTPS and certificates"));
    assert_eq!(said(&output(&["--version"])), concat!("flatout ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn both_of_two_addresses_serve() {
    let folder = site();
    let mut arguments = vec!["--listen", "127.0.0.1:0", "--listen", "127.0.0.2:0"];
    let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    if has_ipv6 {
        arguments.extend(["--listen", "[::1]:0"]);
    } else {
        skip("this machine has no IPv6, so [::1] is not tried");
    }
    let mut running = Running::spawn(serve(folder.path(), &arguments));
    let addresses = running.addresses().unwrap();
    assert_eq!(addresses.len(), if has_ipv6 { 3 } else { 2 });
    for address in addresses {
        assert_eq!(get(address, "/").body, b"here", "{address}");
    }
}

/// A filter of system calls plays the kernel, as systemd's `RestrictAddressFamilies` does.
#[test]
fn without_ipv6_all_addresses_are_those_of_ipv4() {
    let (folder, port) = (site(), free_port());
    let all = format!(":{port}");
    let mut running = without_ipv6(serve(folder.path(), &["--listen", &all]));
    let addresses = running.addresses();
    assert_eq!(addresses, Some(vec![(Ipv4Addr::LOCALHOST, port).into()]), "{}", running.stderr());
    assert_eq!(get(addresses.unwrap()[0], "/").body, b"here");
    let mut running = without_ipv6(serve(folder.path(), &["--listen", &format!("[::]:{}", free_port())]));
    assert_eq!(running.wait().code(), Some(2));
    assert!(running.stderr().contains("this machine has no IPv6\n  try: --listen 0.0.0.0:"), "{}", running.stderr());
}

/// Spawns `command` so that it cannot create sockets for IPv6.
fn without_ipv6(command: Command) -> Running {
    // The filter applies to this thread and to the processes that it starts.
    let spawn = || {
        let is_ipv6 =
            SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, AddressFamily::INET6.as_raw().into());
        let rule = SeccompRule::new(vec![is_ipv6.unwrap()]).unwrap();
        let refuse = SeccompAction::Errno(Errno::AFNOSUPPORT.raw_os_error().unsigned_abs());
        let here = std::env::consts::ARCH.try_into().unwrap();
        let rules = [(libc::SYS_socket, vec![rule])].into();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, here).unwrap();
        seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
        Running::spawn(command)
    };
    thread::scope(|scope| scope.spawn(spawn).join()).unwrap()
}

fn listeners(address: SocketAddr) -> usize {
    const LISTEN: &str = "0A";
    let suffix = format!(":{:04X}", address.port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let is_listener = |line: &&str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        columns[1].ends_with(&suffix) && columns[3] == LISTEN
    };
    table.lines().skip(1).filter(is_listener).count()
}

#[test]
fn each_worker_is_a_thread_with_its_own_listener() {
    let folder = site();
    for workers in [1, 2, 3] {
        let flags = ["--listen", "127.0.0.1:0", "--workers", &workers.to_string()];
        let mut running = Running::spawn(serve(folder.path(), &flags));
        let address = running.addresses().unwrap()[0];
        let threads = || {
            let tasks = fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap();
            tasks
                .map(Result::unwrap)
                .map(|task| fs::read_to_string(task.path().join("comm")).unwrap())
                .collect::<Vec<_>>()
        };
        // A thread sets its name once it runs.
        wait_until("the thread that checks for replaced folders runs", || threads().contains(&"folders\n".to_owned()));
        // One more thread serves no requests: it waits for signals and commands.
        assert_eq!((listeners(address), threads().len()), (workers, workers + 2), "{:?}", threads());
        // The kernel distributes connections over the listeners. If a worker did not accept on its listener, some
        // connections would hang.
        for _ in 0..64 {
            assert_eq!(get(address, "/").body, b"here");
        }
    }
}

#[test]
fn sigterm_and_sigint_stop_the_server_cleanly() {
    let folder = site();
    for signal in ["TERM", "INT"] {
        let mut running = Running::spawn(serve(folder.path(), &["--listen", "127.0.0.1:0", "--workers", "2"]));
        let address = running.addresses().unwrap()[0];
        assert_eq!(get(address, "/").status, 200);
        running.signal(signal);
        assert_eq!(running.wait().code(), Some(0), "SIG{signal}: {}", running.stderr());
        // The final output has a few counters.
        assert!(
            running.stderr().lines().any(|line| line.split_whitespace().eq(["requests", "1"])),
            "{}",
            running.stderr()
        );
        assert!(TcpStream::connect(address).is_err(), "the port is still open");
    }
}

#[test]
fn sigusr1_prints_the_counters_without_stopping() {
    let folder = site();
    let mut running = Running::spawn(serve(folder.path(), &["--listen", "127.0.0.1:0", "--workers", "1"]));
    let address = running.addresses().unwrap()[0];
    for requests in 1..=3 {
        assert_eq!(get(address, "/").status, 200);
        running.signal("USR1");
        let row = ["requests".to_owned(), requests.to_string()];
        wait_until("the counters", || running.stderr().lines().any(|line| line.split_whitespace().eq(row.clone())));
    }
    assert_eq!(get(address, "/none").status, 404);
    running.signal("TERM");
    assert_eq!(running.wait().code(), Some(0));
    assert!(running.stderr().contains("outcome_not_found"), "{}", running.stderr());
}

/// The first 1024 ports are special only for unprivileged users, so root acts as one.
#[test]
fn a_privileged_port_is_explained() {
    let first_free = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    if first_free.trim().parse::<u16>().unwrap() < 1024 {
        skip("every user may bind every port of this machine");
        return;
    }
    // A folder that the other user can read.
    let folder = site();
    let binary = folder.path().join("flatout");
    fs::copy(flatout().get_program(), &binary).unwrap();
    for path in [folder.path(), &binary] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let mut command = if is_root {
        let mut command = tool("setpriv");
        command.args(["--reuid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]).arg(&binary);
        command
    } else {
        Command::new(&binary)
    };
    let output = command.arg("serve").arg(folder.path()).args(["--listen", "127.0.0.1:80"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let expected = "error: cannot listen on 127.0.0.1:80: ports below 1024 need root or CAP_NET_BIND_SERVICE\n  \
        try: --listen 127.0.0.1:8080\n";
    assert_eq!(said(&output), expected);
}
