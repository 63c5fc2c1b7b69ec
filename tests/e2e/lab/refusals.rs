//! Impossible measurements: refused immediately if that is known in advance, otherwise reported by name when it
//! happens.

use super::responder::{Answer, ok, respond};
use super::{bench, bench_by, reasons_of, soundness};
use crate::e2e::harness::{Folder, Server, flatout};
use crate::e2e::process::Refusing;
use crate::e2e::skip::skip;
use crate::e2e::tool::tool;
use std::fs;
use std::net::TcpListener;
use std::process::Command;

fn site() -> Folder {
    Folder::with(&[("a.txt", &[b'a'; 64])])
}

#[test]
fn a_rate_that_needs_too_many_ports_is_refused_before_anything_is_sent() {
    let site = site();
    let server = Server::start(site.path(), &[]);
    let url = server.url("/a.txt");
    let asked = ["--rate", "500000", "--arrival-unit", "connection", "-d", "10s"];
    let run = bench(&[&[url.as_str()][..], &asked].concat());
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:#?}");
    assert!(run.stderr.contains("--source-addresses ") && run.stderr.contains("127.0.0.0/8"), "{}", run.stderr);
    // The suggested number of addresses is sufficient.
    let offered = run.stderr.split("--source-addresses ").nth(1).unwrap().split(' ').next().unwrap();
    let run = bench(&[&[url.as_str()][..], &asked, &["-n", "10", "--source-addresses", offered][..]].concat());
    assert_eq!(run.code, Some(2), "-d and -n exclude each other: {run:#?}");
    let few =
        ["--rate", "1000", "--arrival-unit", "connection", "-n", "50", "--source-addresses", "5", "--threads", "1"];
    let run = bench(&[&[url.as_str()][..], &few].concat());
    assert_eq!((run.number("connections"), run.json["errors"]["total"].as_u64()), (50, Some(0)), "{run:#?}");
    let (_, counters) = server.stop();
    assert!(counters.contains("requests"), "{counters}");
}

#[test]
fn source_addresses_are_used_in_turn() {
    let (sender, seen) = std::sync::mpsc::channel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = sender.send(stream.peer_addr().unwrap().ip().to_string());
            let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
            let _ = std::io::Write::write_all(&mut stream, &ok(1));
        }
    });
    let url = format!("http://{address}/");
    let run = bench(&[&url, "-n", "6", "-c", "1", "--close", "--source-addresses", "3", "--threads", "1"]);
    assert_eq!(run.number("responses"), 6, "{run:#?}");
    let seen: Vec<String> = seen.iter().take(6).collect();
    assert_eq!(seen, ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.1", "127.0.0.2", "127.0.0.3"]);
}

/// Returns true if the user may create network namespaces. Otherwise, the test is skipped.
fn has_namespaces() -> bool {
    let has = Command::new("unshare").args(["-rn", "true"]).status().is_ok_and(|status| status.success());
    if !has {
        skip("this user may not create a network namespace");
    }
    has
}

#[test]
fn port_exhaustion_is_counted_separately() {
    // A separate network namespace has separate ports: ten of them.
    let script =
        "ip link set lo up && echo '40000 40009' > /proc/sys/net/ipv4/ip_local_port_range && exec \"$0\" \"$@\"";
    if !has_namespaces() {
        return;
    }
    // Seven ports are already in use. Without these, the five in the plan would fit.
    let inner = "\"$0\" serve \"$1\" --listen 127.0.0.1:50000 > /dev/null & server=$!
        for i in $(seq 1200); do true 2>/dev/null > /dev/tcp/127.0.0.1/50000 && break; sleep 0.05; done
        for held in 3 4 5 6 7 8 9; do eval \"exec $held<>/dev/tcp/127.0.0.1/50000\"; done
        \"$0\" bench http://127.0.0.1:50000/a.txt -n 10 -c 5 --source-addresses 1 --threads 1 --timeout 5s --json \"$2\"
        code=$?; kill $server; exit $code";
    let (site, folder) = (site(), Folder::new());
    let result = folder.path().join("result.json");
    let mut command = Command::new("unshare");
    command.args(["-rn", "sh", "-c", script, "bash", "-c", inner]).arg(flatout().get_program());
    let output = command.arg(site.path()).arg(&result).output().unwrap();
    let text = fs::read_to_string(&result).unwrap_or_else(|_| panic!("{output:?}"));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(json["errors"]["by_kind"]["addrunavail"].as_u64().unwrap() > 0, "{:#}", json["errors"]);
    assert_eq!(json["errors"]["by_kind"]["other"], 0, "{:#}", json["errors"]);
    // The server is not responsible for them.
    assert!(reasons_of(&json["steps"][0]).contains(&"client-starved"), "{:#}", json["steps"][0]["invalid"]);
    assert!(soundness(&json, "p99") != "sound" && soundness(&json, "counts") == "unknown", "{:#}", json["figures"]);
}

#[test]
fn unreachable_servers_are_named() {
    let refusing = Refusing::new();
    let run = bench(&[&format!("http://{}/", refusing.address()), "-n", "3", "-c", "1"]);
    assert_eq!(run.code, Some(1), "{run:#?}");
    assert!(run.failures("connrefused") > 0 && run.stdout.contains("nothing listens at the address"), "{run:#?}");
    if has_namespaces() {
        // A new network namespace has no route to anywhere.
        let mut command = Command::new("unshare");
        command.arg("-rn").arg(flatout().get_program());
        let run = bench_by(command, &["http://192.0.2.1/", "-n", "1", "-c", "1", "--timeout", "2s"]);
        assert_eq!(run.code, Some(1), "{run:#?}");
        assert!(run.json["errors"]["total"].as_u64().unwrap() > 0, "{run:#?}");
        assert!(run.stdout.contains("unreachable"), "{run:#?}");
    }
    let run = bench(&["http://no.such.host.invalid/", "-n", "1"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:#?}");
    assert!(run.stderr.contains("no.such.host.invalid"), "{}", run.stderr);
}

#[test]
fn an_endless_redirect_is_reported_and_not_followed() {
    let address =
        respond(|_, _| Answer::At(0, b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n".to_vec()));
    let run = bench(&[&format!("http://{address}/"), "-n", "20", "-c", "2"]);
    assert_eq!((run.code, run.number("requests_sent")), (Some(0), 20), "{run:#?}");
    let notes = run.json["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note["note"] == "redirects"), "{notes:?}");
    assert!(run.stdout.contains("3xx; the client does not follow redirects"), "{}", run.stdout);
}

#[test]
fn malformed_lists_and_logs_are_reported_with_line_numbers() {
    let folder = Folder::with(&[
        ("filelist", b"/a 1 #5\n/b x y z\nno slash\n"),
        ("urls", b"/a\nftp://x/\n"),
        ("log", b"this is no log\n"),
        ("elsewhere", b"http://127.0.0.9:9/a\n"),
    ]);
    for (flag, name, words) in [
        ("--filelist", "filelist", "line 2"),
        ("--urls", "urls", "line 2"),
        ("--replay", "log", "line 1"),
        ("--urls", "elsewhere", "127.0.0.9:9"),
        ("--urls", "missing", "missing"),
    ] {
        let path = folder.path().join(name);
        let run = bench(&["http://127.0.0.1:9/", flag, path.to_str().unwrap()]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{flag} {run:#?}");
        assert!(run.stderr.contains(words), "{flag}: {}", run.stderr);
    }
}

#[test]
fn an_invalid_command_line_is_refused() {
    for arguments in [
        &["--rate", "0"][..],
        &["--rate", "x"],
        &["--rate", "100..50:10"],
        &["-c", "0"],
        &["--arrivals", "sometimes", "--rate", "5"],
        &["--think-time", "x"],
        &["--arrival-unit", "request", "--calls", "3"],
        &["--require", "p99"],
        &["--http", "3"],
        &["--http", "4"],
        &["--http", "2", "--streams", "0"],
        &["--verify-digest", "200%"],
        &["--precision", "x"],
        &["--workload", "web2000:5"],
        &["--method", "A B"],
        &["--body", "/nowhere"],
        &["--find-knee", "p99<5ms", "--overload"],
        &["--source-addresses", "2", "--server-log", "/nowhere/log"],
        &["--close", "--calls", "4"],
        &["--compare", "http://127.0.0.1:8/", "--limit"],
        &["--find-knee", "p99<5ms", "--precision", "2"],
        &["--insecure"],
    ] {
        let run = bench(&[&["http://127.0.0.1:9/", "-d", "1s"][..], arguments].concat());
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{arguments:?} {run:#?}");
        assert!(!run.stderr.is_empty());
    }
    let run = bench(&["http://[::1]:9/", "--source-addresses", "2", "-n", "1"]);
    assert_eq!(run.code, Some(2), "{run:#?}");
}

#[test]
fn one_unwritable_output_does_not_affect_the_others() {
    let site = site();
    let server = Server::start(site.path(), &[]);
    let folder = Folder::new();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // The output for the table is a device that is always full, and in place of a bundle's first file there is a
    // folder.
    fs::create_dir(at("tables")).unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("tables/series.csv")).unwrap();
    fs::create_dir_all(at("bundle/run.json")).unwrap();
    let output = flatout()
        .args(["bench", &server.url("/a.txt"), "-n", "10", "-c", "1", "--json", "/dev/full"])
        .args(["--csv", &at("tables"), "--bundle", &at("bundle"), "--html", &at("page.html"), "--hlog", &at("hlog")])
        .args(["--prometheus", "/dev/full"])
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stdout} {stderr}");
    assert!(stdout.contains("requests/s") && stdout.contains("latency"), "{stdout}");
    for lost in ["to /dev/full", "series.csv", "run.json"] {
        assert!(stderr.contains(lost), "{lost}: {stderr}");
    }
    for written in ["page.html", "hlog", "tables/steps.csv", "tables/percentiles.csv", "tables/errors.csv"] {
        assert!(fs::metadata(at(written)).is_ok_and(|file| file.len() > 0), "{written}: {stderr}");
    }
    // If standard output cannot be written, the files still have the results.
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = flatout();
    let command = command.args(["bench", &server.url("/a.txt"), "-n", "10", "-c", "1", "--json", &at("run.json")]);
    let status = command.stdout(full).stderr(std::process::Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(fs::read_to_string(at("run.json")).unwrap().contains("\"responses\""));
}

/// The server writes a log line per request, until the file is removed at the fifteenth.
#[test]
fn losing_the_server_counters_keeps_the_levels_and_all_outputs() {
    let folder = Folder::new();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let log = folder.path().join("access.log");
    fs::write(&log, "").unwrap();
    let (counters, lines) = (log.clone(), std::sync::Mutex::new(0));
    let address = respond(move |_, _| {
        let mut lines = lines.lock().unwrap();
        *lines += 1;
        if *lines == 15 {
            fs::remove_file(&counters).unwrap();
        } else if *lines < 15 {
            let line = b"127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 5\n";
            let mut file = fs::OpenOptions::new().append(true).open(&counters).unwrap();
            std::io::Write::write_all(&mut file, line).unwrap();
        }
        Answer::At(0, ok(5))
    });
    let run = bench(&[
        &format!("http://{address}/"),
        "-c",
        "1..4:x2",
        "-n",
        "10",
        "--server-log",
        log.to_str().unwrap(),
        "--csv",
        &at("tables"),
        "--bundle",
        &at("bundle"),
        "--html",
        &at("page.html"),
    ]);
    let missing: Vec<bool> = run.steps().map(|step| reasons_of(step).contains(&"counts-missing")).collect();
    assert_eq!((run.exit, missing), (Some(5), vec![false, true, true]), "{run:#?}");
    assert!(run.steps().all(|step| step["record"]["counts"]["responses"] == 10), "{run:#?}");
    assert_eq!(run.steps().next().unwrap()["evidence"]["reconciliation"]["server"]["requests"], 10);
    assert!(run.stdout.contains("access.log") && run.stderr.contains("could not be measured"), "{run:#?}");
    let rows = fs::read_to_string(folder.path().join("tables/steps.csv")).unwrap().lines().count();
    assert_eq!(rows, 4, "a head and three levels");
    assert!(fs::metadata(at("page.html")).is_ok() && fs::metadata(at("bundle/bundle.json")).is_ok());
}

/// Runs a bench in a separate network namespace with a hundred local ports, against a `flatout serve` there.
fn bench_of_few_ports(arguments: &str) -> Option<(Option<i32>, String, serde_json::Value)> {
    if !has_namespaces() {
        return None;
    }
    let script =
        "ip link set lo up && echo '40000 40099' > /proc/sys/net/ipv4/ip_local_port_range && exec \"$0\" \"$@\"";
    let inner = format!(
        "\"$0\" serve \"$1\" --listen 127.0.0.1:50000 > /dev/null & server=$!
        for i in $(seq 1200); do true 2>/dev/null > /dev/tcp/127.0.0.1/50000 && break; sleep 0.05; done
        \"$0\" bench http://127.0.0.1:50000/a.txt --arrival-unit connection --source-addresses 1 {arguments} --json \"$2\"
        code=$?; kill $server; exit $code"
    );
    let (site, folder) = (site(), Folder::new());
    let result = folder.path().join("result.json");
    let mut command = Command::new("unshare");
    command.args(["-rn", "sh", "-c", script, "bash", "-c", &inner]).arg(flatout().get_program());
    let output = command.arg(site.path()).arg(&result).output().unwrap();
    let text = fs::read_to_string(&result).unwrap_or_else(|_| panic!("{output:?}"));
    let stdout = String::from_utf8(output.stdout).unwrap();
    Some((output.status.code(), stdout, serde_json::from_str(&text).unwrap()))
}

#[test]
fn a_measurement_that_runs_out_of_ports_keeps_its_results() {
    // There are enough ports for a short trial at the lowest rate, but not for a long one.
    let Some((code, stdout, json)) = bench_of_few_ports("--find-knee 'p99<10s' --rate 300..1000 -d 500ms") else {
        return;
    };
    assert_eq!(code, Some(5), "{stdout}");
    let search = &json["findings"]["knee"]["search"];
    assert_eq!(
        (&search["ending"], &search["met_per_s"]),
        (&"client-limited".into(), &serde_json::Value::Null),
        "{search:#}"
    );
    let trials = search["trials"].as_array().unwrap();
    let is_long = |trial: &&serde_json::Value| trial["trial"]["is_long"] == true;
    assert!(trials.iter().filter(is_long).all(|trial| trial["outcome"] == "invalid"), "{search:#}");
    let steps = json["steps"].as_array().unwrap();
    assert_eq!(steps.len(), trials.iter().filter(|trial| !is_long(trial)).count(), "{search:#}");
    assert!(reasons_of(steps.last().unwrap()).contains(&"not-measured"), "{stdout}");
    assert!(stdout.contains("source address"), "{stdout}");
    // There are enough ports for four levels, but not for the other three and the recovery.
    let (code, stdout, json) = bench_of_few_ports("--overload --rate 100 -d 700ms").unwrap();
    assert_eq!((code, json["findings"]["overload"]["levels"].as_array().unwrap().len()), (Some(5), 4), "{stdout}");
    assert!(stdout.contains("goodput peaks at"), "{stdout}");
}

#[test]
fn memory_does_not_grow_with_the_levels_of_a_sweep() {
    let site = site();
    let server = Server::start(site.path(), &[]);
    let run = bench(&[&server.url("/a.txt"), "-c", "1..200:1", "-n", "20", "--threads", "1"]);
    let peaks: Vec<u64> = run.steps().map(|step| step["client"]["memory_bytes_peak"].as_u64().unwrap()).collect();
    assert_eq!(peaks.len(), 200, "{}", run.stderr);
    // Open histograms would take 2.7 MB per level. The first levels are excluded, because they allocate the buffers.
    let grown = peaks[199] - peaks[9];
    assert!(grown < 20 << 20, "{grown} bytes more after 190 levels");
}

#[test]
fn a_full_disk_is_reported_and_the_figures_are_still_shown() {
    let site = site();
    let server = Server::start(site.path(), &[]);
    let folder = Folder::new();
    let mounted = tool("mount").args(["-t", "tmpfs", "-o", "size=16k", "none"]).arg(folder.path()).status().unwrap();
    if !mounted.success() {
        skip("this user may not mount a small disk");
        return;
    }
    let full = folder.path().join("full");
    let _ = fs::write(&full, vec![0; 64 * 1024]);
    let result = folder.path().join("result.json");
    let output = flatout()
        .args(["bench", &server.url("/a.txt"), "-n", "10", "-c", "1", "--json"])
        .arg(&result)
        .output()
        .unwrap();
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(tool("umount").arg(folder.path()).status().unwrap().success());
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(if stderr.contains("cannot write to") { 2 } else { 1 }), "{stdout} {stderr}");
    assert!(stderr.contains("result.json"), "{stderr}");
    if output.status.code() == Some(1) {
        assert!(stdout.contains("requests/s"), "{stdout}");
    }
    // No incomplete file is left behind.
    assert_eq!(left, ["full"]);
    let _ = bench_by(flatout(), &["--help"]);
}
