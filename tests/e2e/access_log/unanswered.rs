//! Requests whose client disconnects before there is a response: their lines name the site and who ended them.

use super::super::harness::{Folder, Server, wait_until};
use super::super::http2::client::{ACK, Client, DATA, END_HEADERS, HEADERS, PING, RST_STREAM, literal, request};
use super::super::timeouts::reset;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

/// Receives requests from `connections` and never responds. Returns the bytes received.
fn never_respond<S: Read + Send + 'static>(
    connections: impl Iterator<Item = S> + Send + 'static,
) -> Arc<Mutex<Vec<u8>>> {
    let received = Arc::<Mutex<Vec<u8>>>::default();
    let all = Arc::clone(&received);
    thread::spawn(move || {
        for mut connection in connections {
            let all = Arc::clone(&all);
            thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(count @ 1..) = connection.read(&mut piece) {
                    all.lock().unwrap().extend_from_slice(&piece[..count]);
                }
            });
        }
    });
    received
}

/// Waits until the log at `path` has `count` lines, and returns them.
fn wait_for_lines(path: &Path, count: usize) -> Vec<serde_json::Value> {
    let mut lines = Vec::new();
    wait_until(&format!("{count} lines in the log"), || {
        let text = fs::read_to_string(path).unwrap();
        lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.len() == count
    });
    lines
}

/// Has clients of both protocols disconnect, while they wait and in the middle of an upload, and checks their log
/// lines.
fn check_lines_of_disconnected_clients(folder: &Folder, handler: &str, received: &Mutex<Vec<u8>>) {
    let [main, own] = ["main.log", "own.log"].map(|name| folder.path().join(name).display().to_string());
    let text = format!(
        "workers 1\nadmin off=#true\nlog \"{main}\"\nsite \"test\" {{\n    listen \"127.0.0.1:0\" h2c=#true\n    \
         log \"{own}\" format=\"json\"\n    {handler}\n}}\n"
    );
    let server = Server::run(folder, &text);
    let wait_for = |query: &str| {
        wait_until("the request has reached the origin", || {
            String::from_utf8_lossy(&received.lock().unwrap()).contains(query)
        });
    };
    let mut stream = server.connect();
    stream.write_all(b"GET /a.php?first HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    wait_for("first");
    reset(stream);
    wait_for_lines(Path::new(&own), 1);
    let mut stream = server.connect();
    stream.write_all(b"POST /a.php HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\nfour").unwrap();
    drop(stream);
    wait_for_lines(Path::new(&own), 2);
    let mut client = Client::connect(&server, &[]);
    client.get(1, "/a.php?second");
    wait_for("second");
    client.send_frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]);
    wait_for_lines(Path::new(&own), 3);
    let upload = [request("POST", "/a.php"), literal(b"content-length", b"9")].concat();
    client.send_frame(HEADERS, END_HEADERS, 3, &upload);
    client.send_frame(DATA, 0, 3, b"four");
    client.send_frame(PING, 0, 0, b"received");
    client.frame_like("the acknowledgement of the ping", |frame| frame.kind == PING && frame.flags == ACK);
    client.send_frame(RST_STREAM, 0, 3, &[0, 0, 0, 8]);
    let lines = wait_for_lines(Path::new(&own), 4);
    let found: Vec<String> = lines
        .iter()
        .map(|line| {
            let fields = ["method", "version", "site", "status", "outcome", "ending"];
            fields.map(|field| line[field].to_string().replace('"', "")).join(" ")
        })
        .collect();
    let expected = [
        "GET HTTP/1.1 test null client_closed client_reset",
        "POST HTTP/1.1 test null client_closed client_cut_body",
        "GET HTTP/2.0 test null client_closed stream_reset",
        "POST HTTP/2.0 test null client_closed stream_reset",
    ];
    assert_eq!(found, expected);
    drop(client);
    server.stop();
    assert_eq!(fs::read_to_string(&main).unwrap(), "");
}

#[test]
fn clients_that_abandon_an_origin_request_are_logged_with_their_site() {
    let folder = Folder::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let received = never_respond(std::iter::from_fn(move || Some(listener.accept().unwrap().0)));
    check_lines_of_disconnected_clients(&folder, &format!("proxy \"http://{address}\""), &received);
}

#[test]
fn clients_that_abandon_a_script_request_are_logged_with_their_site() {
    let folder = Folder::with(&[("a.php", b"<?php")]);
    let socket = folder.path().join("app.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let received = never_respond(std::iter::from_fn(move || Some(listener.accept().unwrap().0)));
    let handler = format!("php \"unix:{}\" {{ root {:?} }}", socket.display(), folder.path());
    check_lines_of_disconnected_clients(&folder, &handler, &received);
}
