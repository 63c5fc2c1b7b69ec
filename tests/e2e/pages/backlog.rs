//! Output that clients do not read: limited in memory and in files, per client and in total, and freed afterwards.

use super::{configure, text};
use crate::e2e::harness::{Folder, Response, Server, flatout, wait_until};
use crate::e2e::http2::client::{Client, HEADERS};
use crate::e2e::memory::bound;
use crate::e2e::tool::{run, tool};
use std::io::Write as _;

const MIB: u64 = 1 << 20;

/// 2 MiB of output, which `flush` sends in two halves.
const SITE: &[(&str, &[u8])] = &[
    ("site/large.lhtml", b"<?lua local half = string.rep('x', 1048576) ?><?raw half ?>|<?raw half ?>"),
    ("site/flush.lhtml", b"<?lua local half = string.rep('x', 1048576) ?><?raw half ?><?lua flush() ?><?raw half ?>"),
    ("site/small.lhtml", b"<?= 1 ?>"),
];

/// With a large `slice`, runs complete in one turn. With a small one, they take turns.
fn start(slice: &str) -> (Folder, Server) {
    let folder = Folder::with(SITE);
    let settings = format!("memory-limit \"4MiB\"\n  cpu-limit \"10s\"\n  cpu-slice \"{slice}\"");
    let config = format!(
        "page-output memory=\"8MiB\" disk=\"32MiB\"\n{}",
        configure(&settings, "route \"/metrics\" { metrics; }")
    );
    let server = Server::run(&folder, &config);
    assert_eq!(server.get("/large").status, 200);
    (folder, server)
}

/// The bytes of `kind` that pages hold, from the metrics.
fn held(server: &Server, kind: &str) -> u64 {
    let name = format!("flatout_pages_held_bytes{{kind=\"{kind}\"}} ");
    let text = text(&server.get("/metrics"));
    let line = text.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_else(|| panic!("{text}"));
    line.parse().unwrap()
}

/// Waits until no output is buffered and the memory has been returned to the kernel.
fn wait_until_freed(server: &Server, bytes_max: u64) {
    wait_until("the output is freed", || held(server, "output_memory") == 0 && held(server, "output_files") == 0);
    wait_until("the memory is freed", || server.memory_kb("RssAnon") * 1024 <= bytes_max);
}

#[test]
fn unread_streams_are_bounded_and_their_memory_is_freed() {
    let (folder, server) = start("50ms");
    let before = server.memory_kb("RssAnon") * 1024;
    for path in ["/large", "/flush"] {
        let mut client = Client::connect(&server, &[(4, 0)]);
        let mut ask = |stream: u32| {
            client.get(2 * stream + 1, path);
            client.frame_like("a response head", |frame| frame.kind == HEADERS)
        };
        let heads: Vec<_> = (0..100).map(&mut ask).collect();
        // 200 is an index in the static table, 503 is not.
        let answered = heads.iter().filter(|head| head.payload.first() == Some(&0x88)).count();
        assert!((3..20).contains(&answered), "{path}: {answered} of 100 were answered");
        let (memory, files) = (held(&server, "output_memory"), held(&server, "output_files"));
        // One client may use a quarter of the files, and as much memory as one page may have.
        assert!(memory > 0 && memory <= 4 * MIB && files > 0 && files <= 8 * MIB, "{path}: {memory}, {files}");
        let grown = (server.memory_kb("RssAnon") * 1024).saturating_sub(before);
        assert!(grown <= bound(32 * MIB), "{path}: {grown} bytes");
        // This client may not buffer more. Other clients are not affected.
        let refused = server.get("/large");
        assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")));
        let other = run(tool("curl").args(["-sS", "--interface", "127.0.0.2", &server.url("/large")]));
        assert_eq!(other.len() as u64, 2 * MIB + 1);
        let status = run(flatout().args(["status", "--admin"]).arg(folder.path().join("admin.sock")));
        assert!(status.contains("pages: output"), "{status}");
        drop(client);
        wait_until_freed(&server, before + bound(16 * MIB));
    }
    let (_, said) = server.stop();
    assert_eq!(said.matches("[page_output_budget]").count(), 1, "{said}");
}

/// All runs start before any completes. The runs themselves are limited in the same way as their output.
#[test]
fn time_sliced_runs_are_bounded_and_their_memory_is_freed() {
    let (_folder, server) = start("200us");
    let before = server.memory_kb("RssAnon") * 1024;
    let mut client = Client::connect(&server, &[(4, 0)]);
    for stream in 0..100 {
        client.get(2 * stream + 1, "/large");
    }
    for _ in 0..100 {
        client.frame_like("a response head", |frame| frame.kind == HEADERS);
    }
    let grown = (server.memory_kb("RssAnon") * 1024).saturating_sub(before);
    assert!(grown <= bound(32 * MIB), "{grown} bytes");
    drop(client);
    wait_until_freed(&server, before + bound(16 * MIB));
}

#[test]
fn output_buffered_in_files_is_unchanged() {
    let (_folder, server) = start("50ms");
    let mut silent = Client::connect(&server, &[(4, 0)]);
    for stream in 0..2 {
        silent.get(2 * stream + 1, "/large");
    }
    wait_until("memory is used up", || held(&server, "output_memory") >= 2 * MIB);
    let expected = ["x".repeat(1 << 20), "x".repeat(1 << 20)].join("|");
    for http in ["--http1.1", "--http2-prior-knowledge"] {
        let output = run(tool("curl").args(["-sS", http, &server.url("/large")]));
        assert!(output == expected, "{http}: {} bytes", output.len());
    }
    drop(silent);
}

#[test]
fn unread_connections_leave_nothing_behind() {
    let (_folder, server) = start("50ms");
    let before = server.memory_kb("RssAnon") * 1024;
    let ask = |_| {
        let mut stream = server.connect();
        stream.write_all(&b"GET /large HTTP/1.1\r\nHost: test\r\n\r\n".repeat(8)).unwrap();
        stream
    };
    let readers: Vec<_> = (0..30).map(ask).collect();
    wait_until("output is buffered", || held(&server, "output_memory") > 0);
    let grown = (server.memory_kb("RssAnon") * 1024).saturating_sub(before);
    assert!(grown <= bound(32 * MIB), "{grown} bytes");
    drop(readers);
    wait_until_freed(&server, before + bound(16 * MIB));
    assert_eq!(Response::parse(&server.exchange(b"GET /small HTTP/1.0\r\n\r\n")).status, 200);
}
