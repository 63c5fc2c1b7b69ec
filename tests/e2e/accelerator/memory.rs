//! The memory that clients use up by not reading: never more than the budget and a small amount per stream, and nothing
//! after they have disconnected.

use super::super::harness::{Folder, Server, ask_admin, wait_until};
use super::super::http2::client::{Client, WINDOW_UPDATE};
use super::super::memory::{allow_descriptors, bound};
use super::super::tool::tool;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Stdio, id};
use std::time::{Duration, Instant};

const MIB: u64 = 1024 * 1024;

/// SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW: u16 = 4;

/// An origin for very many connections, in a process with its own file descriptors. Each response is cacheable, and its
/// length is in its path. The origin buffers what the client does not take.
const ORIGIN: &str = r#"
import asyncio, socket

async def serve(reader, writer):
    try:
        while True:
            line = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
            length = int(line.split(b"?")[0].strip(b"/"))
            writer.transport.set_write_buffer_limits(high=0)
            writer.write(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: %d\r\n\r\n" % length)
            while length > 0:
                count = min(length, 16384)
                writer.write(bytes(count))
                length -= count
                await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        writer.close()

async def main():
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
    server = await asyncio.start_server(serve, sock=listener)
    print(listener.getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"#;

struct Origin {
    process: Child,
    url: String,
}

impl Origin {
    fn start() -> Self {
        let mut process = tool("python3").args(["-c", ORIGIN]).stdout(Stdio::piped()).spawn().unwrap();
        allow_descriptors(process.id(), 15_000);
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { process, url: format!("http://127.0.0.1:{}", port.trim()) }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start(folder: &Folder, origin: &Origin) -> Server {
    let configuration = format!(
        "workers 2
admin \"{}/admin\"
store memory=\"16MiB\"
timeouts {{ write \"1h\"; idle \"1h\" }}
site \"*\" {{
    listen \"127.0.0.1:0\" h2c=#true
    cache
    proxy \"{}\" {{
        concurrency min=20000 max=20000
        timeouts {{ connect \"1h\"; body \"1h\"; head \"1h\" }}
    }}
}}
",
        folder.path().display(),
        origin.url
    );
    let server = Server::run(folder, &configuration);
    allow_descriptors(server.worker(), 15_000);
    server
}

/// Memory of the process: its private memory and its memory-backed files, each counted once.
fn memory_bytes(server: &Server) -> u64 {
    let mut files = HashMap::new();
    for entry in fs::read_dir(format!("/proc/{}/fd", server.worker())).unwrap().flatten() {
        let is_memory = fs::read_link(entry.path()).is_ok_and(|path| path.to_string_lossy().starts_with("/memfd:"));
        if let Some(data) = is_memory.then(|| fs::metadata(entry.path()).ok()).flatten() {
            files.insert(data.ino(), data.blocks() * 512);
        }
    }
    server.memory_kb("RssAnon") * 1024 + files.values().sum::<u64>()
}

/// Number of the server's connections, including those to its origin.
fn sockets(server: &Server) -> usize {
    let entries = fs::read_dir(format!("/proc/{}/fd", server.worker())).unwrap();
    let is_socket = |path| fs::read_link(path).is_ok_and(|link| link.to_string_lossy().starts_with("socket:"));
    entries.flatten().filter(|entry| is_socket(entry.path())).count()
}

/// Waits until the memory has stopped growing, and returns it.
fn settled_bytes(server: &Server) -> u64 {
    let (mut before, mut same) = (0, 0);
    wait_until("the memory has stopped growing", || {
        std::thread::sleep(Duration::from_millis(200));
        let now = memory_bytes(server);
        same = if now <= before + MIB / 4 { same + 1 } else { 0 };
        before = before.max(now);
        same >= 5
    });
    before
}

fn check(server: &Server, before: u64, connections: usize, allowed: u64, what: &str) -> u64 {
    let mut count = 0;
    wait_until("every request has a connection to the origin", || {
        if sockets(server) != count {
            count = sockets(server);
            println!("{count} sockets");
        }
        count >= connections
    });
    let most = settled_bytes(server);
    println!("{what}: {} MiB before, {} MiB with them", before / MIB, most / MIB);
    assert!(most <= bound(allowed), "{what}: {} MiB, more than {}", most / MIB, bound(allowed) / MIB);
    most
}

/// Maximum time until the memory of disconnected clients is freed: three times the ten seconds stated in
/// docs/accelerator.md, because the machine may be busy.
const GIVEN_BACK_MAX: Duration = Duration::from_secs(30);

/// Waits until no more than `allowed` bytes remain, and prints how long that took.
fn wait_until_freed(server: &Server, allowed: u64) {
    let left_at = Instant::now();
    while memory_bytes(server) > allowed {
        let left = memory_bytes(server) / MIB;
        assert!(left_at.elapsed() < GIVEN_BACK_MAX, "{left} MiB are left, more than {} MiB", allowed / MIB);
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("{} MiB left {} ms after they have gone", memory_bytes(server) / MIB, left_at.elapsed().as_millis());
}

/// One client requests more content than memory can hold: only one window of each response is buffered.
#[test]
fn one_client_cannot_exhaust_the_memory_budget() {
    let (folder, origin) = (Folder::new(), Origin::start());
    let server = start(&folder, &origin);
    let before = memory_bytes(&server);
    let read_nothing = |number: usize| {
        let mut stream: TcpStream = server.connect();
        write!(stream, "GET /20000000?x={number} HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        stream
    };
    let readers: Vec<_> = (0..300).map(read_nothing).collect();
    let most = check(&server, before, 600, (16 + 64) * MIB, "300 readers");
    check_shares(&folder);
    drop(readers);
    wait_until_freed(&server, before + bound((16 + 16) * MIB));

    // One HTTP/2 connection, whose streams have a window of zero.
    let mut client = Client::connect(&server, &[(INITIAL_WINDOW, 0)]);
    for stream in 0..100 {
        client.get(2 * stream + 1, &format!("/20000000?y={stream}"));
    }
    let with_streams = check(&server, before, 100, (16 + 64) * MIB, "100 streams");
    check_shares(&folder);
    drop(client);
    wait_until_freed(&server, before + bound((16 + 16) * MIB));
    println!("{} MiB, {} MiB", most / MIB, with_streams / MIB);
}

/// Memory by holder, from the metrics.
fn shares(folder: &Folder) -> Vec<(String, u64)> {
    let metrics = ask_admin(folder, "/metrics");
    let lines = metrics.lines().filter_map(|line| line.strip_prefix("flatout_memory_held_bytes{share=\""));
    let share = |line: &str| line.split_once("\"} ").map(|(name, value)| (name.to_owned(), value.parse().unwrap()));
    lines.filter_map(share).collect()
}

/// Asserts that the metrics and the status report the same memory by holder, that each name is documented, and that the
/// parts add up to the total.
fn check_shares(folder: &Folder) {
    let documented = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/accelerator.md")).unwrap();
    let show = |bytes: u64| flatout_units::show::bytes(bytes as f64);
    // The metrics and the status are two separate samples of changing values.
    let mut last = (String::new(), String::new());
    wait_until("the metrics and the status agree", || {
        let shares = shares(folder);
        assert_eq!(shares.len(), 6, "{shares:?}");
        let sum: u64 = shares.iter().map(|(_, bytes)| bytes).sum();
        let parts: Vec<_> = shares.iter().map(|(name, bytes)| format!("{name} {}", show(*bytes))).collect();
        let expected = format!("{} of 16.0 MiB: {}", show(sum), parts.join(", "));
        last = (expected, ask_admin(folder, "/status"));
        assert!(shares.iter().all(|(name, _)| documented.contains(&format!("| `{name}` |"))), "{shares:?}");
        assert!(sum > 0, "{shares:?}");
        last.1.contains(&last.0)
    });
}

#[test]
fn clients_that_read_nothing_stay_within_the_budget_and_their_memory_is_freed() {
    let (folder, origin) = (Folder::new(), Origin::start());
    let server = start(&folder, &origin);
    allow_descriptors(id(), 4_000);
    let before = memory_bytes(&server);
    let read_nothing = |number: usize| {
        let mut stream: TcpStream = server.connect();
        write!(stream, "GET /7000000?x={number} HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        stream
    };
    let readers: Vec<_> = (0..1_000).map(read_nothing).collect();
    check(&server, before, 2_000, (16 + 256) * MIB, "1,000 readers");
    drop(readers);
    wait_until_freed(&server, before + bound((16 + 16) * MIB));
}

#[test]
fn ten_thousand_unread_streams_stay_within_the_budget_and_their_memory_is_freed() {
    let (folder, origin) = (Folder::new(), Origin::start());
    let server = start(&folder, &origin);
    allow_descriptors(id(), 4_000);
    let before = memory_bytes(&server);
    let open = |connection: usize| {
        // Half of the streams open no window. The other half open the maximum, but the client does not read from the
        // socket.
        let window = if connection.is_multiple_of(2) { 0 } else { 0x7fff_ffff };
        let mut client = Client::connect(&server, &[(INITIAL_WINDOW, window)]);
        client.send_frame(WINDOW_UPDATE, 0, 0, &(0x7fff_ffff_u32 - 65_535).to_be_bytes());
        for stream in 0..100 {
            client.get(2 * stream + 1, &format!("/131072?x={connection}-{stream}"));
        }
        client
    };
    let clients: Vec<_> = (0..100).map(open).collect();
    // Some responses complete before the budget is used up.
    check(&server, before, 9_500, (16 + 256) * MIB, "10,000 streams");
    drop(clients);
    wait_until_freed(&server, before + bound((16 + 16) * MIB));
}

/// Responses that memory has no room for are forwarded through a small window: complete, and reported as not stored.
#[test]
fn downloads_are_complete_while_memory_is_short() {
    const BYTES: usize = 3_000_000;
    let origin = super::origin::Origin::responding(|_| {
        super::origin::response("200 OK", "Cache-Control: max-age=60\r\n", &vec![b'x'; BYTES])
    });
    for (memory, is_stored) in [("4MiB", false), ("8MiB", true)] {
        let server = Server::accelerate(&origin.url(), &["--memory", memory]);
        std::thread::scope(|scope| {
            for client in 0..4 {
                let server = &server;
                scope.spawn(move || {
                    for number in 0..20 {
                        let response = server.get(&format!("/{client}-{number}"));
                        assert_eq!(response.body.len(), BYTES, "{memory}: {client}-{number}");
                        let status = response.field("cache-status").unwrap();
                        assert!(is_stored || status.ends_with("detail=no_room"), "{status}");
                    }
                });
            }
        });
    }
}
