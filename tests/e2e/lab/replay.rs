//! A replayed log: each client in it gets its own connections, as a real server sees them.

use super::bench;
use crate::e2e::harness::{Folder, wait_until};
use crate::e2e::process::free_port;
use crate::e2e::tool::{run, tool};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpStream;
use std::process::{Child, Stdio};

/// Number of clients, each with its own address.
const CLIENTS: usize = 4;

/// Visits per client, with two requests each.
const ROUNDS: usize = 5;

/// nginx with one server to visit, whose log is replayed, and two servers to replay it to, which log connections.
struct Nginx {
    folder: Folder,
    ports: [u16; 3],
    child: Child,
}

impl Nginx {
    fn start() -> Self {
        let folder = Folder::new();
        let ports = [free_port(), free_port(), free_port()];
        let [visited, http1, http2] = ports;
        let temporary =
            ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path {name};"));
        let compressed = "gzip on; gzip_types text/plain; gzip_min_length 20;
            location /compressed { return 200 'visited visited visited visited visited'; }";
        let text = format!(
            "daemon off; master_process off; pid pid; error_log error.log;
             events {{ worker_connections 512; }}
             http {{
                 {}
                 log_format connections '$connection $connection_requests $request_uri';
                 server {{ listen 127.0.0.1:{visited}; access_log visits.log combined; {compressed} location / {{ return 200 'visited'; }} }}
                 server {{ listen 127.0.0.1:{http1}; access_log http1.log connections; {compressed} location / {{ return 200 'visited'; }} }}
                 server {{ listen 127.0.0.1:{http2} http2; access_log http2.log connections; location / {{ return 200 'visited'; }} }}
             }}",
            temporary.join(" ")
        );
        folder.write("nginx.conf", text.as_bytes());
        let mut command = tool("nginx");
        command.arg("-p").arg(folder.path()).arg("-c").arg(folder.path().join("nginx.conf"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("nginx listens", || TcpStream::connect(("127.0.0.1", visited)).is_ok());
        Self { folder, ports, child }
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// The client and the number of its request that a target stands for.
fn of_target(target: &str) -> (usize, usize) {
    let (client, nth) = target.trim_start_matches("/client").split_once('/').unwrap();
    (client.parse().unwrap(), nth.parse().unwrap())
}

#[test]
fn each_client_of_a_log_gets_its_own_connections() {
    let nginx = Nginx::start();
    // Real clients produce the log, one after another, several times.
    for round in 0..ROUNDS {
        for client in 0..CLIENTS {
            let url = |nth: usize| format!("http://127.0.0.1:{}/client{client}/{nth}", nginx.ports[0]);
            let mut curl = tool("curl");
            curl.args(["--silent", "--show-error", "--fail", "--interface", &format!("127.0.0.{}", client + 2)]);
            run(curl.args([url(2 * round), url(2 * round + 1)]));
        }
    }
    let requests = 2 * ROUNDS * CLIENTS;
    wait_until("the log is complete", || nginx.log("visits.log").lines().count() == requests);
    let log = nginx.folder.path().join("visits.log");
    let log = log.to_str().unwrap();
    for (port, name, version) in [(nginx.ports[1], "http1.log", "1.1"), (nginx.ports[2], "http2.log", "2")] {
        let url = format!("http://127.0.0.1:{port}/");
        let played = bench(&[&url, "--replay", log, "--http", version, "--threads", "1"]);
        assert_eq!(played.code, Some(0), "{} {}", played.stdout, played.stderr);
        assert_eq!(played.number("responses"), requests as u64);
        wait_until("the log of the replay is complete", || nginx.log(name).lines().count() == requests);
        let mut of_connections: BTreeMap<u64, Vec<(usize, usize)>> = BTreeMap::new();
        let mut of_clients: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
        for line in nginx.log(name).lines() {
            let [connection, _, target] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let (connection, request) = (connection.parse().unwrap(), of_target(target));
            of_connections.entry(connection).or_default().push(request);
            of_clients.entry(request.0).or_default().insert(connection);
        }
        for requests in of_connections.values() {
            assert!(requests.iter().all(|(client, _)| *client == requests[0].0), "HTTP/{version}: {of_connections:?}");
            assert!(requests.is_sorted_by_key(|(_, nth)| *nth), "HTTP/{version}: {of_connections:?}");
        }
        assert_eq!(of_clients.len(), CLIENTS);
        for connections in of_clients.values() {
            // One connection, and another only if a response was late.
            assert!(connections.len() < 2 * ROUNDS, "HTTP/{version}: {of_connections:?}");
        }
        assert_eq!(played.number("connections"), of_connections.len() as u64);
    }
}

#[test]
fn sizes_of_compressed_responses_are_checked_only_on_request() {
    let nginx = Nginx::start();
    let url = format!("http://127.0.0.1:{}/compressed", nginx.ports[0]);
    for _ in 0..3 {
        run(tool("curl").args(["--silent", "--show-error", "--fail", "--compressed", &url]));
    }
    wait_until("the log is complete", || nginx.log("visits.log").lines().count() == 3);
    let log = nginx.folder.path().join("visits.log");
    let url = format!("http://127.0.0.1:{}/", nginx.ports[1]);
    let played = bench(&[&url, "--replay", log.to_str().unwrap()]);
    assert_eq!(played.code, Some(0), "{} {}", played.stdout, played.stderr);
    let checked = bench(&[&url, "--replay", log.to_str().unwrap(), "--verify-sizes"]);
    assert_eq!((checked.exit, checked.failures("wrong-body")), (Some(1), 3), "{}", checked.stdout);
}
