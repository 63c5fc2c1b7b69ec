//! The verdict is per figure, and the server's CPU time includes all threads.

use super::responder::{Answer, ok, respond_at_high_priority};
use super::{Bench, bench, bench_by, high_priority_flatout, lock_high_priority};
use crate::e2e::harness::{Folder, Server, flatout};
use crate::e2e::tool::tool;
use flatout_os::procfs::ProcessStat;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A server with one thread per connection, which exits with the connection.
struct Threading(Child, String);

impl Threading {
    fn start() -> Self {
        let script = "import http.server, sys\n\
            class Handler(http.server.BaseHTTPRequestHandler):\n\
            \x20   protocol_version = 'HTTP/1.1'\n\
            \x20   def do_GET(self):\n\
            \x20       body = str(sum(range(3000))).encode()\n\
            \x20       self.send_response(200)\n\
            \x20       self.send_header('Content-Length', str(len(body)))\n\
            \x20       self.end_headers()\n\
            \x20       self.wfile.write(body)\n\
            \x20   def log_message(self, *words):\n\
            \x20       pass\n\
            class Server(http.server.ThreadingHTTPServer):\n\
            \x20   request_queue_size = 128\n\
            server = Server(('127.0.0.1', 0), Handler)\n\
            print(server.server_address[1], flush=True)\n\
            server.serve_forever()\n";
        let mut child = tool("python3").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self(child, format!("http://127.0.0.1:{}/", port.trim()))
    }

    fn cpu_ns(&self) -> u64 {
        ProcessStat::read(self.0.id()).unwrap().own.total_ns()
    }
}

impl Drop for Threading {
    fn drop(&mut self) {
        let _killed = self.0.kill();
        let _waited = self.0.wait();
    }
}

#[test]
fn server_cpu_time_includes_exited_threads() {
    let server = Threading::start();
    let before_ns = server.cpu_ns();
    let run = bench(&[&server.1, "-n", "600", "-c", "4", "--close"]);
    let used_ns = server.cpu_ns() - before_ns;
    assert_eq!(run.number("responses"), 600, "{run:#?}");
    let report = &run.step()["server"];
    let found_ns = report["cpu"]["user_ns"].as_u64().unwrap() + report["cpu"]["system_ns"].as_u64().unwrap();
    // The last threads may exit after the run, and the ticks of user and system time are each rounded down to 10 ms.
    let slack_ns = 40_000_000 + used_ns / 10;
    assert!(used_ns > 50_000_000 && found_ns.abs_diff(used_ns) < slack_ns, "{found_ns} of {used_ns}");
    assert_eq!(report["cpu_clock"], "process");
    let line = run.stdout.lines().find(|line| line.trim_start().starts_with("server CPU")).unwrap();
    assert!(line.ends_with("; measured with its processes' CPU clocks"), "{line}");
}

/// The client is the limit: responses take no time and come from a server with many threads.
#[test]
fn a_plain_run_succeeds_if_its_figures_hold_and_names_those_that_do_not() {
    let _alone = lock_high_priority();
    let bench = |arguments: &[&str]| bench_by(high_priority_flatout(), arguments);
    let address = respond_at_high_priority(|_, _| Answer::At(0, ok(8)));
    let url = format!("http://{address}/");
    // There are enough connections for the rate, but too few for its bursts. The wait shows in the times and in no
    // other figure.
    let slow = respond_at_high_priority(|_, arrived_ns| Answer::At(arrived_ns + 20_000_000, ok(8)));
    let short = [&format!("http://{slow}/"), "--rate", "150", "--arrivals", "exp", "-c", "4", "-d", "2s"];
    let run = bench(&short);
    assert!(run.invalid().contains(&"connections-short"), "{:?}", run.invalid());
    assert_eq!(run.exit, Some(0), "{} {}", run.stdout, run.stderr);
    assert!(run.stdout.contains("  Partly valid: ") && run.stdout.contains("What to do: "), "{}", run.stdout);
    let figures = run.step()["figures"].as_array().unwrap();
    let p99 = figures.iter().find(|figure| figure["figure"] == "p99").unwrap();
    assert!(p99["soundness"] != "sound" && !p99["reasons"].as_array().unwrap().is_empty(), "{p99}");
    let with = |more: &[&str]| bench(&[&short[..], more].concat()).exit;
    assert_eq!(with(&["--strict"]), Some(5));
    assert_eq!(with(&["--require", "p99<1ms"]), Some(5), "an upper limit may also be lower");
    assert_eq!(with(&["--require", "p99<1m"]), Some(0), "an upper bound decides it");
    let run = bench(&[&url, "-n", "0"]);
    assert_eq!(run.exit, Some(2), "{}", run.stderr);
}

/// Runs a program on one core, the first one available to this process, so that other tests keep the rest.
fn on_one_core(program: &std::ffi::OsStr) -> Command {
    let mut command = tool("taskset");
    command.args(["--cpu-list", &flatout_lab::cores::cores_allowed()[0].to_string()]).arg(program);
    command.env("RUST_BACKTRACE", "0");
    command
}

/// Processes that keep this core busy.
struct BusyLoops(Vec<Child>);

impl BusyLoops {
    fn start() -> Self {
        let start = |_| on_one_core("sh".as_ref()).args(["-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..4).map(start).collect())
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _killed = child.kill();
            let _waited = child.wait();
        }
    }
}

#[test]
fn figures_disturbed_by_other_processes_are_marked() {
    let _alone = lock_high_priority();
    let site = Folder::with(&[("a.txt", &[b'a'; 1024])]);
    let mut command = on_one_core(flatout().get_program());
    command.arg("serve").arg(site.path()).args(["--listen", "127.0.0.1:0", "--workers", "1"]);
    let server = Server::spawn(command);
    let bench = |arguments: &[&str]| bench_by(on_one_core(flatout().get_program()), arguments);
    let busy = BusyLoops::start();
    let reasons = |run: &Bench| run.invalid().into_iter().map(str::to_owned).collect::<Vec<_>>();
    // First too short to tell how much CPU time they took, then long enough.
    for (length, name) in [("400ms", "cpu-contention-unknown"), ("2s", "cpu-contention")] {
        let run = bench(&[&server.url("/a.txt"), "-c", "8", "-d", length]);
        assert!(reasons(&run).iter().any(|reason| reason == name), "{name}: {:?} {}", reasons(&run), run.stdout);
        let figures = run.step()["figures"].as_array().unwrap();
        let p99 = figures.iter().find(|figure| figure["figure"] == "p99").unwrap();
        assert_ne!(p99["soundness"], "sound");
        assert!(p99["reasons"].as_array().unwrap().contains(&name.into()), "{p99}");
        // Each reason on the screen says what to do about it, and where to read more.
        let said = |what: &str| run.stdout.matches(what).count();
        for reason in reasons(&run) {
            assert!(
                said(&format!("  {reason}: ")) == 1 && said(&format!("(flatout help {reason})")) == 1,
                "{}",
                run.stdout
            );
        }
        assert_eq!(said("What to do: "), reasons(&run).len(), "{}", run.stdout);
        let strict = bench(&[&server.url("/a.txt"), "-c", "8", "-d", length, "--strict"]);
        assert_eq!(strict.exit, Some(5), "{}", strict.stdout);
    }
    drop(busy);
}

#[test]
fn help_explains_every_reason() {
    for reason in flatout_load::judge::InvalidReason::ALL {
        let output = flatout().args(["help", reason.name()]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("What to do: "), "{text}");
        assert!(text.contains("affect"), "{text}");
    }
    let findings = flatout_load::judge::failing::Finding::NAMES.iter();
    for name in findings.chain(flatout_load::FailureKind::NAMES) {
        let output = flatout().args(["help", name]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.starts_with(&format!("{name}: ")) && text.ends_with(".\n"), "{text}");
    }
}
