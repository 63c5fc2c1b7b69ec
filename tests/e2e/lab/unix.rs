//! Connections to a Unix socket: `--unix-socket`.

use super::bench;
use crate::e2e::harness::{Folder, flatout};
use crate::e2e::nginx;
use crate::e2e::process::Running;
use crate::e2e::tool::said;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

/// nginx at two Unix sockets, of which the second is for HTTP/2.
fn start_nginx() -> (Folder, Running, [PathBuf; 2]) {
    let folder = Folder::new();
    let sockets = ["http1.sock", "http2.sock"].map(|name| folder.path().join(name));
    let settings = format!(
        "keepalive_requests 100000;
         server {{ listen unix:{}; listen unix:{} http2; location / {{ return 200 'served to $host'; }} }}",
        sockets[0].display(),
        sockets[1].display()
    );
    let is_ready = || sockets.iter().all(|socket| UnixStream::connect(socket).is_ok());
    let nginx = nginx::start(&folder, &settings, is_ready);
    (folder, nginx, sockets)
}

#[test]
fn a_server_at_a_unix_socket_is_measured_like_any_other() {
    let (_folder, _nginx, [http1, http2]) = start_nginx();
    let base = ["http://site.example/", "--threads", "1", "--unix-socket"];
    for (socket, arguments) in [
        (&http1, &["-n", "400", "-c", "8"][..]),
        (&http1, &["-n", "200", "-c", "4", "--close"]),
        (&http1, &["-n", "100", "--rate", "1000"]),
        (&http2, &["-n", "400", "-c", "2", "--http", "2", "--streams", "4"]),
    ] {
        let path = socket.to_str().unwrap();
        let run = bench(&[&base[..], &[path], arguments].concat());
        assert_eq!((run.code, run.json["errors"]["total"].as_u64()), (Some(0), Some(0)), "{run:#?}");
        // The Host field is that of the URL.
        assert_eq!(run.number("body_bytes_in"), run.number("responses") * "served to site.example".len() as u64);
        assert_eq!(run.json["address"], path);
        let note = format!("connections were opened to the Unix socket {path}");
        assert!(run.stdout.contains(&note), "{}", run.stdout);
        // The server's processes are found by the socket.
        assert_eq!(run.json["server"]["name"], "nginx");
        assert!(run.json["server"]["cpu_ns"].as_u64().is_some(), "{run:#?}");
    }
}

/// A server at a Unix socket that closes each connection after one response. Sends each request.
fn requests_at(path: &Path) -> mpsc::Receiver<String> {
    let listener = UnixListener::bind(path).unwrap();
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut request, mut byte) = (Vec::new(), [0]);
            while !request.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            sender.send(String::from_utf8(request).unwrap()).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").unwrap();
        }
    });
    requests
}

#[test]
fn a_rerun_does_not_take_the_socket_from_a_result() {
    let folder = Folder::new();
    let path = folder.path().join("a.sock");
    let requests = requests_at(&path);
    let result = folder.path().join("result.json");
    let socket = path.to_str().unwrap();
    let run = bench(&["http://127.0.0.1:9/x", "-n", "1", "-c", "1", "--unix-socket", socket]);
    assert_eq!((run.code, run.number("responses")), (Some(0), 1), "{run:#?}");
    assert!(requests.try_recv().unwrap().starts_with("GET /x HTTP/1.1\r\nHost: 127.0.0.1:9\r\n"));
    folder.write("result.json", run.json.to_string().as_bytes());
    let refused = flatout().arg("rerun").arg(&result).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let again = format!("specify it again: -- --unix-socket {socket}");
    assert!(said(&refused).contains(&again), "{}", said(&refused));
    assert_eq!(requests.try_iter().count(), 0);
    let repeated = flatout().arg("rerun").arg(&result).args(["--", "--unix-socket", socket]).output().unwrap();
    assert_eq!(requests.try_iter().count(), 1, "{}", said(&repeated));
}

#[test]
fn a_server_that_is_gone_is_told_from_a_wrong_path() {
    let folder = Folder::with(&[("file", b"")]);
    let path = folder.path().join("a.sock");
    drop(UnixListener::bind(&path).unwrap());
    let at = |path: &Path| bench(&["http://a/", "-n", "1", "-c", "1", "--unix-socket", path.to_str().unwrap()]);
    let run = at(&path);
    assert_eq!((run.exit, run.failures("connrefused")), (Some(1), 1), "{run:#?}");
    for (name, words) in [("none", "none: No such file"), ("file", "file is not a Unix socket")] {
        let run = at(&folder.path().join(name));
        assert!(run.exit == Some(2) && run.stderr.contains(words), "{run:#?}");
    }
    let long = folder.path().join("x".repeat(120));
    let run = at(&long);
    assert!(run.exit == Some(2) && run.stderr.contains("at most 107 are possible"), "{run:#?}");
}
