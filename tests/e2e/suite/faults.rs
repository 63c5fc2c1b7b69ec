//! Servers that fail: each is named with its line and the end of its log, everything is stopped, and the rest is
//! measured.

use super::{FLATOUT, Given, STEP, assert_nothing_runs};
use std::net::TcpListener;

/// A server that is a shell command.
fn shell(name: &str, line: &str, more: &str) -> String {
    format!(
        "server \"{name}\" {{ program \"sh\"; start \"-c\" #\"{line}\"# \"{{dir}}\"; ready \"/\" timeout=1; {more} }}
         step \"{name}\" {{ servers \"{name}\" \"flatout\"; path \"/\"; bench \"-c\" 1 \"-n\" 50 }}"
    )
}

fn trouble(given: &Given, index: usize) -> (String, String) {
    let trouble = &given.report()["troubles"][index];
    (trouble["why"]["name"].as_str().unwrap().to_owned(), trouble["log_tail"].to_string())
}

#[test]
fn a_server_that_is_never_ready_is_named_and_the_others_are_measured() {
    let given = Given::of(&[FLATOUT, &shell("deaf", "echo I hear nothing; sleep 1000", "")]);
    let ran = given.run(&[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let line = std::fs::read_to_string(given.folder.path().join("a.kdl")).unwrap();
    let line = line.lines().position(|line| line.contains("server \"deaf\"")).unwrap() + 1;
    assert!(
        ran.stderr.contains(&format!("a.kdl:{line}: deaf was not ready within 1 s: nothing listens there")),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("| I hear nothing"), "{}", ran.stderr);
    assert_eq!(trouble(&given, 0).0, "never-ready");
    assert_eq!(given.report()["troubles"].as_array().unwrap().len(), 1, "reported once");
    assert_eq!(given.results().len(), 2, "flatout was measured twice");
    assert_nothing_runs(&given);
}

#[test]
fn servers_that_exit_immediately_or_cannot_start_are_named() {
    let given = Given::of(&[FLATOUT, &shell("short", "echo no such option >&2; exit 3", "")]);
    let ran = given.run(&[]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("short exited before it was ready (exit status: 3)"), "{}", ran.stderr);
    let (name, log) = trouble(&given, 0);
    assert_eq!((name.as_str(), log.contains("no such option")), ("died-starting", true));
    assert_eq!(given.results().len(), 2);
}

#[test]
fn a_server_that_dies_during_a_measurement_affects_no_other() {
    let line = "exec python3 -c 'import http.server,os,threading; threading.Timer(1.5, lambda: os._exit(9)).start(); \
                http.server.HTTPServer((\"127.0.0.1\", int(os.environ[\"PORT\"])), http.server.SimpleHTTPRequestHandler).serve_forever()'";
    let text = shell("mortal", line, "env \"PORT\" \"{port}\"").replace("timeout=1", "timeout=20");
    let text = text.replace("bench \"-c\" 1 \"-n\" 50", "bench \"-c\" 1 \"--duration\" \"3s\"");
    let given = Given::of(&[FLATOUT, &text]);
    let ran = given.run(&[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("mortal exited while mortal was measured (exit status: 9)"), "{}", ran.stderr);
    assert_eq!(trouble(&given, 0).0, "died");
    assert_eq!(given.results().len(), 2, "flatout's two, and none of the other's");
    assert_nothing_runs(&given);
}

#[test]
fn a_port_in_use_is_reported_with_its_owner() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let given = Given::of(&[FLATOUT, &shell("late", "sleep 1000", &format!("port {port}"))]);
    let ran = given.run(&[]);
    assert_eq!(ran.code, 1);
    let words = format!("late: 127.0.0.1:{port} is already in use by ");
    assert!(ran.stderr.contains(&words) && ran.stderr.contains(&std::process::id().to_string()), "{}", ran.stderr);
    assert_eq!((trouble(&given, 0).0.as_str(), given.results().len()), ("port-taken", 2));
}

#[test]
fn children_in_their_own_sessions_are_stopped_with_their_server() {
    let line = "setsid sleep 7654 $0 & exec python3 -m http.server $PORT --bind 127.0.0.1";
    let text = shell("parent", line, "env \"PORT\" \"{port}\"").replace("timeout=1", "timeout=20");
    let given =
        Given::of(&[FLATOUT, &text.replace("sleep 7654 $0", "sh -c \\\"sleep 7654; :\\\" $0").replace("\\\"", "'")]);
    let ran = given.run(&[]);
    assert!(matches!(ran.code, 0 | 1 | 5), "{}", ran.stderr);
    assert_nothing_runs(&given);
}

#[test]
fn a_failed_bench_is_reported_and_the_next_step_runs() {
    let wrong = r#"step "wrong" { servers "flatout"; path "/"; bench "--replay" "none.log" }"#;
    let given = Given::of(&[FLATOUT, wrong, STEP]);
    let ran = given.run(&[]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("none.log"), "{}", ran.stderr);
    assert_eq!((trouble(&given, 0).0.as_str(), given.results().len()), ("bench-failed", 2));
}

#[test]
fn failed_requests_are_a_failure_unless_the_step_expects_them() {
    let steps = r#"step "gone" { servers "flatout"; path "/none"; bench "-n" 20 "-c" 1 }
        step "meant" { servers "flatout"; path "/none"; bench "-n" 20 "-c" 1; failures-expected }"#;
    let given = Given::of(&[FLATOUT, steps]);
    let ran = given.run(&[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let report = given.report();
    assert_eq!(report["troubles"].as_array().unwrap().len(), 2, "{}", report["troubles"]);
    assert!(report["troubles"].as_array().unwrap().iter().all(|trouble| trouble["step"] == "gone"));
    assert_eq!(given.results().len(), 4, "all of them are stored");
}
