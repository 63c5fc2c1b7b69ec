//! Access log lines of streamed responses.

use super::{Running, read_until, timeouts, wait_until};
use flatout_handler::ending::CloseReason;
use flatout_http::access::{LogDestination, LogFormat, LogSettings};
use flatout_os::runtime::build_runtime;
use std::io::{Read, Write};
use std::net::Shutdown;

/// Returns the values of `names` in each log line, in the order of the lines.
fn values(text: &str, names: &[&str]) -> Vec<String> {
    let value = |line: &str, name: &str| {
        let rest = line.split_once(&format!("\"{name}\":")).unwrap().1;
        rest[..rest.find([',', '}']).unwrap()].trim_matches('"').to_owned()
    };
    text.lines().map(|line| names.iter().map(|name| value(line, name)).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn lines_say_what_was_sent_and_how_it_ended() {
    let path = std::env::temp_dir().join(format!("flatout-lines-{}", std::process::id()));
    let log = LogSettings { format: LogFormat::Json, ..LogSettings::new(LogDestination::File(path.clone())) };
    let server = Running::logging(timeouts(), None, &[log]);
    server.get("/chunked");
    server.get("/later/known");
    server.get("/failing");
    server.get("/long");
    server.ask("HEAD /known HTTP/1.1\r\n\r\n");
    let mut stream = server.connect();
    stream.write_all(b"GET /slow HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    read_until(&mut stream, "begun");
    drop(stream);
    wait_until("the end", || server.closed(CloseReason::ClientAborted) == 1);
    let mut stream = server.connect();
    stream.write_all(b"GET /tunnel HTTP/1.1\r\nHost: test\r\n\r\necho").unwrap();
    read_until(&mut stream, "echo");
    stream.shutdown(Shutdown::Write).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    wait_until("the end", || server.closed(CloseReason::TunnelEnded) == 1);
    let mut stream = server.connect();
    stream.write_all(b"POST /count HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\nhalf").unwrap();
    drop(stream);
    wait_until("the end", || server.closed(CloseReason::ClientCutBody) == 1);
    build_runtime().unwrap().block_on(async {
        let mut client = crate::http2::tests::connect(server.address).await;
        let chunked = crate::http2::tests::get(&mut client, "/later/chunked").await.unwrap();
        crate::http2::tests::content(chunked.into_body()).await;
        let mut slow = crate::http2::tests::get(&mut client, "/slow").await.unwrap().into_body();
        slow.data().await.unwrap().unwrap();
        drop(slow);
        let failing = crate::http2::tests::get(&mut client, "/failing").await.unwrap();
        let mut body = failing.into_body();
        while let Some(Ok(_)) = body.data().await {}
    });
    server.stop();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    assert_eq!(
        values(&text, &["version", "target", "status", "body_bytes", "outcome", "ending", "cache"]),
        [
            "HTTP/1.1 /chunked 200 13 made sent miss",
            "HTTP/1.1 /later/known 200 8 made sent miss",
            "HTTP/1.1 /failing 200 4 made origin_truncated miss",
            "HTTP/1.1 /long 200 4 made length_broken miss",
            "HTTP/1.1 /known 200 0 made sent miss",
            "HTTP/1.1 /slow 200 5 made client_aborted miss",
            "HTTP/1.1 /tunnel 101 4 made tunnel_ended null",
            "HTTP/1.1 /count null 0 client_closed client_cut_body null",
            "HTTP/2.0 /later/chunked 200 13 made sent miss",
            "HTTP/2.0 /slow 200 5 made stream_reset miss",
            "HTTP/2.0 /failing 200 4 made origin_truncated miss",
        ]
    );
}
