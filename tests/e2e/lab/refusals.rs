//! What cannot be measured: said at once where it can be known, and by its name where it comes to light.

use super::responder::{Answer, ok, respond};
use super::{bench, bench_by};
use crate::e2e::harness::{Folder, Server, flatout};
use crate::e2e::tool::tool;
use std::fs;
use std::net::TcpListener;
use std::process::Command;

fn site() -> Folder {
    Folder::with(&[("a.txt", &[b'a'; 64])])
}

#[test]
fn a_rate_that_the_ports_cannot_carry_is_refused_before_anything_is_sent() {
    let site = site();
    let server = Server::start(site.path(), &[]);
    let url = server.url("/a.txt");
    let asked = ["--rate", "500000", "--per", "connection", "-d", "10s"];
    let run = bench(&[&[url.as_str()][..], &asked].concat());
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:#?}");
    assert!(run.stderr.contains("--sources ") && run.stderr.contains("127.0.0.0/8"), "{}", run.stderr);
    // What it offers is enough.
    let offered = run.stderr.split("--sources ").nth(1).unwrap().split(' ').next().unwrap();
    let run = bench(&[&[url.as_str()][..], &asked, &["-n", "10", "--sources", offered][..]].concat());
    assert_eq!(run.code, Some(2), "-d and -n exclude each other: {run:#?}");
    let few = ["--rate", "1000", "--per", "connection", "-n", "50", "--sources", "5", "--threads", "1"];
    let run = bench(&[&[url.as_str()][..], &few].concat());
    assert_eq!((run.number("connections"), run.json["errors"]["total"].as_u64()), (50, Some(0)), "{run:#?}");
    let (_, counters) = server.stop();
    assert!(counters.contains("requests"), "{counters}");
}

#[test]
fn sources_are_really_used_in_turn() {
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
    let run = bench(&[&url, "-n", "6", "-c", "1", "--close", "--sources", "3", "--threads", "1"]);
    assert_eq!(run.number("responses"), 6, "{run:#?}");
    let seen: Vec<String> = seen.iter().take(6).collect();
    assert_eq!(seen, ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.1", "127.0.0.2", "127.0.0.3"]);
}

/// Whether this user may make network namespaces; says so where not.
fn has_namespaces() -> bool {
    let has = Command::new("unshare").args(["-rn", "true"]).status().is_ok_and(|status| status.success());
    if !has {
        eprintln!("not shown: this user may not make a network namespace");
    }
    has
}

#[test]
fn ports_that_run_out_are_counted_by_their_own_name() {
    // A network namespace of its own has ports of its own: ten of them.
    let script =
        "ip link set lo up && echo '40000 40009' > /proc/sys/net/ipv4/ip_local_port_range && exec \"$0\" \"$@\"";
    if !has_namespaces() {
        return;
    }
    // Seven of them are in use already; the plan's five would fit if they were not.
    let inner = "\"$0\" serve \"$1\" --listen 127.0.0.1:50000 > /dev/null & server=$!
        for i in $(seq 200); do true 2>/dev/null > /dev/tcp/127.0.0.1/50000 && break; sleep 0.05; done
        for held in 3 4 5 6 7 8 9; do eval \"exec $held<>/dev/tcp/127.0.0.1/50000\"; done
        \"$0\" bench http://127.0.0.1:50000/a.txt -n 10 -c 5 --sources 1 --threads 1 --timeout 5s --json \"$2\"
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
}

#[test]
fn servers_that_are_not_there_have_names() {
    let refused = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let run = bench(&[&format!("http://{refused}/"), "-n", "3", "-c", "1"]);
    assert_eq!(run.code, Some(1), "{run:#?}");
    assert!(run.failures("connrefused") > 0 && run.stdout.contains("nothing listens at the address"), "{run:#?}");
    if has_namespaces() {
        // A network namespace of its own has no route to anywhere.
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
fn an_endless_redirect_is_named_and_not_followed() {
    let address =
        respond(|_, _| Answer::At(0, b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n".to_vec()));
    let run = bench(&[&format!("http://{address}/"), "-n", "20", "-c", "2"]);
    assert_eq!((run.code, run.number("requests_sent")), (Some(0), 20), "{run:#?}");
    let notes = run.json["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note["note"] == "redirects"), "{notes:?}");
    assert!(run.stdout.contains("3xx, which is not followed"), "{}", run.stdout);
}

#[test]
fn lists_and_logs_that_are_malformed_are_told_with_their_lines() {
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
fn a_command_line_that_makes_no_sense_is_refused() {
    for arguments in [
        &["--rate", "0"][..],
        &["--rate", "x"],
        &["--rate", "100..50:10"],
        &["-c", "0"],
        &["--arrivals", "sometimes", "--rate", "5"],
        &["--think", "x"],
        &["--per", "request", "--calls", "3"],
        &["--require", "p99"],
        &["--http", "3"],
        &["--http", "2", "--streams", "0"],
        &["--verify-digest", "200%"],
        &["--until-tight", "x"],
        &["--workload", "web2000:5"],
        &["--method", "A B"],
        &["--body", "/nowhere"],
        &["--find-knee", "p99<5ms", "--overload"],
        &["--sources", "2", "--server-log", "/nowhere/log"],
    ] {
        let run = bench(&[&["http://127.0.0.1:9/", "-d", "1s"][..], arguments].concat());
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{arguments:?} {run:#?}");
        assert!(!run.stderr.is_empty());
    }
    let run = bench(&["http://[::1]:9/", "--sources", "2", "-n", "1"]);
    assert_eq!(run.code, Some(2), "{run:#?}");
}

#[test]
fn a_full_disk_is_said_and_the_figures_are_shown_all_the_same() {
    let site = site();
    let server = Server::start(site.path(), &[]);
    let folder = Folder::new();
    let mounted = tool("mount").args(["-t", "tmpfs", "-o", "size=16k", "none"]).arg(folder.path()).status().unwrap();
    if !mounted.success() {
        eprintln!("not shown: this user may not mount a small disk");
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
    // Nothing half written is left behind.
    assert_eq!(left, ["full"]);
    let _ = bench_by(flatout(), &["--help"]);
}
