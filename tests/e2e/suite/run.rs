//! The measurements, results and output of a suite when all goes well.

use super::super::lab::schema;
use super::{FLATOUT, Given, Ran, STEP, assert_nothing_runs};
use crate::e2e::harness::flatout;

const NGINX: &str = r#"
    server "nginx" {
        program "nginx"; package "nginx-light"
        at-least "1.2" { from "-v" }
        config "nginx.conf" """
            daemon off;
            worker_processes {cores};
            pid {dir}/nginx.pid;
            error_log {dir}/error.log;
            events { worker_connections 256; }
            http { access_log off; server { listen {address}:{port}; root {site}; } }
            """
        start "-c" "{dir}/nginx.conf" "-e" "{dir}/start.log"
        ready "/index.html"
    }
"#;

#[test]
fn two_servers_take_turns_and_every_run_is_in_the_bundle() {
    let steps = r#"
        let "clients" 1 4
        step "hits" { servers "flatout" "nginx"; path "/index.html"; bench "-c" "{clients}" "-n" 300; view "httperf" }
        step "half" {
            servers "flatout"
            path "/index.html"
            take "rate" { step "hits"; measure "requests-per-s"; times 0.001 }
            bench "--rate" "{rate}" "-n" 5
        }
        check "every answer" { step "hits"; measure "requests-per-s"; of "flatout"; at-least 1 }
        check "the same" { step "hits"; measure "requests-per-s"; of "flatout"; at-least 0.0001; times "best" }
        check "no errors" { step "hits"; measure "error-share"; of "nginx"; at-most 0; where "clients" 4 }
        check "too much" { step "hits"; measure "requests-per-s"; of "flatout"; at-most 0.001; times "nginx" }
    "#;
    let given = Given::of(&[FLATOUT, NGINX, steps]);
    let ran = given.run(&["--quick"]);
    assert!(matches!(ran.code, 0 | 5), "{}\n{}", ran.stdout, ran.stderr);
    let report = given.report();
    let found = schema::findings_by(include_str!("../../../docs/schema/suite.schema.json"), &report);
    assert!(found.is_empty(), "{found:#?}");
    let cells = report["steps"][0]["cells"].as_array().unwrap();
    let named: Vec<String> = cells.iter().map(|cell| format!("{} {}", cell["server"], cell["values"][0][1])).collect();
    assert_eq!(named, [r#""flatout" "1""#, r#""nginx" "1""#, r#""flatout" "4""#, r#""nginx" "4""#]);
    for cell in cells {
        assert_eq!(cell["runs"].as_array().unwrap().len(), 2);
        let processes = &cell["runs"][0]["processes"][0];
        assert!(processes["cpu_ns"].as_u64().unwrap() > 0, "{processes}");
        assert_eq!(processes["server"], cell["server"]);
    }
    let half = &report["steps"][1]["cells"][0];
    // On a machine that is busy with other tests, there may be no figure to take.
    if half["absent"].is_null() {
        assert_eq!(half["taken"][0][0], "rate");
    } else {
        assert_eq!(half["absent"]["name"], "taken-missing");
    }
    let verdicts: Vec<&str> =
        report["checks"].as_array().unwrap().iter().map(|check| check["verdict"].as_str().unwrap()).collect();
    assert_ne!(verdicts[0], "missed", "{}", ran.stdout);
    assert!(report["checks"][2]["findings"].as_array().unwrap().len() == 1, "where leaves one combination");
    assert_ne!(verdicts[3], "met");
    // Met or missed, the sentence has the same form.
    for (check, verdict) in [(0, "met"), (3, "missed")] {
        let finding = &report["checks"][check]["findings"][0];
        let sentence = finding["sentence"].as_str().unwrap();
        if finding["verdict"] != "not-judged" {
            assert!(sentence.starts_with("hits, clients 1: flatout's requests-per-s is "), "{sentence}");
            assert!(sentence.ends_with(&format!(": {verdict}")) && sentence.contains("; required: at "), "{sentence}");
        }
    }
    let config = std::fs::read_to_string(given.out().join("configs/nginx-1/nginx.conf")).unwrap();
    assert!(config.contains("listen 127.0.0.1:") && config.contains("events { worker_connections 256; }"), "{config}");
    assert_eq!(report["servers"][1]["configs"][0]["text"], config);
    assert!(report["servers"][1]["version"].as_str().unwrap().contains("nginx"));
    assert!(given.out().join("logs/flatout-1.log").is_file() && given.out().join("suite.kdl").is_file());
    assert!(!given.out().join("work").exists(), "what only a run needs is gone");
    assert_nothing_runs(&given);
}

#[test]
fn missing_and_outdated_programs_are_named_with_their_package_and_the_rest_runs() {
    let servers = r#"
        server "gone" { program "no-such-server"; package "such-package"; start "x" }
        server "old" { program "nginx"; package "nginx-light"; at-least "99.1" { from "-v" }; start "x" }
        server "mod" { program "nginx"; needs "/no/such/module.so" package="such-module"; start "x" }
        server "behind" { program "nginx"; after "gone"; start "x" }
        step "all" { servers "flatout" "gone" "old" "mod" "behind"; path "/"; bench "-c" 1 "-n" 50 }
        check "first" { step "all"; measure "requests-per-s"; of "flatout"; at-least 1.0; times "gone" }
    "#;
    let given = Given::of(&[FLATOUT, servers]);
    let ran = given.run(&["--json", "-"]);
    assert!(matches!(ran.code, 0 | 5), "{}\n{}", ran.stdout, ran.stderr);
    for words in [
        "no-such-server is not installed; the Debian package such-package provides it",
        "99.1 or later is required; the Debian package nginx-light provides it",
        "/no/such/module.so is not installed; the Debian package such-module provides it",
        "behind needs gone, which was left out",
    ] {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
        assert!(ran.stdout.contains(words), "{words} in JSON");
    }
    assert!(ran.stderr.contains("a.kdl:") && ran.stderr.contains("left out"), "{}", ran.stderr);
    let report = given.report();
    assert_eq!(report["steps"][0]["cells"][0]["runs"].as_array().unwrap().len(), 2);
    assert_eq!(report["checks"][0]["verdict"], "not-judged");
    let sentence = report["checks"][0]["findings"][0]["sentence"].as_str().unwrap();
    assert!(sentence.contains("not judged: gone was left out: no-such-server is not installed"), "{sentence}");
}

/// A redirect or an empty page is faster than the page.
#[test]
fn servers_with_other_responses_are_not_compared_and_the_report_says_so() {
    let server = |name: &str| {
        format!(
            r#"server "{name}" {{
                program "flatout"
                start "serve" "{{{name}-files}}" "--listen" "{{address}}:{{port}}" "--workers" 1
                ready "/dir"
            }}"#
        )
    };
    let steps = r#"
        fixture "page-files" { text "dir" "A page"; bytes "a.bin" 1000 }
        fixture "folder-files" { text "dir/index.html" "A page"; bytes "a.bin" 50000 }
        step "statuses" { servers "page" "folder"; path "/dir"; bench "-c" 2 "-n" 400 }
        step "named" { servers "page" "folder"; path "/dir"; bench "-c" 2 "-n" 400 "--expect-status" "200,3xx" }
        step "sizes" { servers "page" "folder"; path "/a.bin"; bench "-c" 2 "-n" 400 }
        check "in statuses" { step "statuses"; measure "server-cpu-per-request"; of "folder"; at-most 1000; times "page" }
        check "in named" { step "named"; measure "server-cpu-per-request"; of "folder"; at-most 1000; times "page" }
    "#;
    let given = Given::of(&[&server("page"), &server("folder"), steps]);
    let ran = given.run(&[]);
    let report = given.report();
    let finding = |check: usize| &report["checks"][check]["findings"][0];
    let said = || format!("{}\n{}\n{report:#}", ran.stdout, ran.stderr);
    assert_eq!(finding(0)["verdict"], "not-judged", "{}", said());
    let sentence = finding(0)["sentence"].as_str().unwrap();
    assert!(
        sentence.contains("not judged: the statuses of the responses differ (folder: 100.0 % status 30")
            && sentence.contains("; page: 100.0 % status 200); if that is intended, name each of them"),
        "{sentence}"
    );
    assert_eq!(finding(1)["verdict"], "met", "{}", said());
    let found = schema::findings_by(include_str!("../../../docs/schema/suite.schema.json"), &report);
    assert!(found.is_empty(), "{found:#?}");
    // Each difference is in both reports. In the step "named", the page of the redirect is larger than the other one.
    let html = std::fs::read_to_string(given.out().join("report.html")).unwrap();
    for line in [
        "page and folder are not compared, because the statuses of the responses differ (page: 100.0 % status 200; folder",
        "folder's responses are larger: 48.8 KiB on average, page's 0.98 KiB",
    ] {
        assert_eq!(ran.stdout.matches(line).count(), 1, "{line} {}", said());
        let line = line.replace('\'', "&#39;");
        assert!(html.contains(&line) || html.contains(&line.replace("&#39;", "'")), "{line}");
    }
    assert_nothing_runs(&given);
}

/// A server that responds with 503 to one request in twenty, never responds to it, or serves all.
const FAILING: &[u8] = br#"
import itertools, socket, sys, threading

numbers = itertools.count()

def serve(connection):
    received = b""
    while True:
        while b"\r\n\r\n" not in received:
            piece = connection.recv(65536)
            if not piece:
                return
            received += piece
        received = received.split(b"\r\n\r\n", 1)[1]
        fails = next(numbers) % 20 == 19
        if fails and sys.argv[3] == "hanging":
            while connection.recv(65536):
                pass
            return
        status = b"503 -" if fails and sys.argv[3] == "shedding" else b"200 OK"
        connection.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 4\r\n\r\nhere")

listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

#[test]
#[ignore = "decides by timing"]
fn servers_whose_requests_fail_in_different_shares_are_not_judged() {
    let given = Given::of(&[]);
    given.folder.write("server.py", FAILING);
    let script = given.folder.path().join("server.py");
    let server = |name: &str| {
        format!(
            "server \"{name}\" {{ program \"python3\"; start {script:?} \"{{address}}\" \"{{port}}\" \"{name}\"; ready \"/\"; }}"
        )
    };
    let step = r#"step "hits" {
        servers "serving" "shedding" "hanging"; path "/"; bench "-c" 2 "-n" 200 "--timeout" "500ms"
    }"#;
    let check = |name: &str| {
        format!(
            "check \"{name}\" {{ step \"hits\"; measure \"requests-per-s\"; of {name:?}; at-most 1000; times \"serving\" }}"
        )
    };
    let checks = ["shedding", "hanging"];
    let mut parts: Vec<String> = ["serving", "shedding", "hanging"].map(server).into();
    parts.push(step.to_owned());
    parts.extend(checks.map(check));
    given.write(&parts.iter().map(String::as_str).collect::<Vec<_>>());
    let ran = given.run(&[]);
    let report = given.report();
    for (index, name) in checks.iter().enumerate() {
        let finding = &report["checks"][index]["findings"][0];
        let sentence = finding["sentence"].as_str().unwrap();
        assert_eq!(finding["verdict"], "not-judged", "{sentence}\n{}\n{}", ran.stdout, ran.stderr);
        let why = format!(" % of {name}'s requests failed and 0.0 % of serving's");
        assert!(sentence.contains("not judged: ") && sentence.contains(&why), "{sentence}");
    }
    assert_nothing_runs(&given);
}

#[test]
fn list_describes_a_suite_without_running_it() {
    let given = Given::of(&[FLATOUT, NGINX, STEP]);
    let file = given.folder.path().join("a.kdl");
    let output = flatout().args(["suite", "list"]).arg(&file).output().unwrap();
    let ran = Ran::of(&output);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for words in ["test: ", "flatout", "nginx version", "hits", "2 measurements"] {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
    let output = flatout().args(["suite", "list", "--json"]).arg(&file).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value[0]["steps"][0]["measurements"], 2);
    assert!(!given.out().exists());
}
