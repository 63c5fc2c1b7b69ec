//! Clients that read slowly, beside other clients of the same response, if it does not fit into the store.

use super::super::harness::{Folder, Server, ask_admin, read_to_end, uninterrupted, wait_until};
use super::coalesce::object;
use super::crowds::Door;
use super::origin::{Origin, Request, Then, fresh, response};
use super::parts::{SMALL, range_of};
use super::{Answer, ask, get, log_of};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

const MIB: usize = 1024 * 1024;

/// Size of the large responses: more than the store, the buffers of flatout and those of the kernel contain.
const LARGE: usize = 64 * MIB;

/// An origin with the responses `/chunked`, `/known` and `/ranged` of `body`: without a length, with a length, and in
/// parts. The door is in front of all of `/known`, of everything but the beginning of `/chunked`, and of the later parts
/// of `/ranged`. All other responses are 1 MiB of zeros.
fn start_origin(body: &Arc<Vec<u8>>, door: &Arc<Door>) -> Origin {
    let (body, door) = (Arc::clone(body), Arc::clone(door));
    Origin::start(move |request, stream| {
        let is_sent = match request.path() {
            "/chunked" => send_chunked(stream, &body, &door),
            "/known" => {
                door.pass();
                stream.write_all(&fresh(&body))
            }
            "/ranged" => stream.write_all(&respond_with_range(request, &body, &door)),
            _ => stream.write_all(&fresh(&vec![0; MIB])),
        };
        if is_sent.is_ok() { Then::Keep } else { Then::Close }
    })
}

fn respond_with_range(request: &Request, body: &[u8], door: &Door) -> Vec<u8> {
    let fields = "Cache-Control: max-age=60\r\nETag: \"one\"\r\n";
    let Some((first, last)) = range_of(request, body.len()) else { return response("200 OK", fields, body) };
    if first > 0 {
        door.pass();
    }
    let fields = format!("{fields}Content-Range: bytes {first}-{last}/{}\r\n", body.len());
    response("206 Partial Content", &fields, &body[first..=last])
}

fn send_chunked(stream: &mut TcpStream, body: &[u8], door: &Door) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    for (number, piece) in body.chunks(64 * 1024).enumerate() {
        if number == 1 {
            door.pass();
        }
        write!(stream, "{:x}\r\n", piece.len())?;
        stream.write_all(piece)?;
        stream.write_all(b"\r\n")?;
    }
    stream.write_all(b"0\r\n\r\n")
}

/// Starts the accelerator, which never gives up a client that does not read at all.
fn start(folder: &Folder, origin: &Origin, memory: &str, cache: &str) -> Server {
    let configuration = format!(
        "workers 1
admin \"{}/admin\"
log \"{}\" format=\"json\"
store memory=\"{memory}\"
timeouts {{ write \"1h\" }}
site \"*\" {{
    listen \"127.0.0.1:0\"
    cache {{
        {cache}
    }}
    proxy \"{}\"
}}
",
        folder.path().display(),
        log_of(folder).display(),
        origin.url()
    );
    Server::run(folder, &configuration)
}

fn send(server: &Server, path: &str) -> TcpStream {
    let mut stream = server.connect();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    stream
}

/// Requests `/chunked`, and returns when the beginning of the response has arrived, so that the request has joined the
/// fetch in progress. Also returns what has arrived.
fn begin_chunked(server: &Server) -> (TcpStream, Vec<u8>) {
    let mut stream = send(server, "/chunked");
    let mut begun = vec![0; 32 * 1024];
    stream.read_exact(&mut begun).unwrap();
    (stream, begun)
}

/// Reads the rest of the response.
fn finish((mut stream, mut bytes): (TcpStream, Vec<u8>)) -> Answer {
    bytes.extend(read_to_end(&mut stream));
    Answer::take(&mut bytes.as_slice(), false).unwrap()
}

fn expect_stored(server: &Server, origin: &Origin, path: &str) {
    for _ in 0..2 {
        let answer = get(server, path);
        assert!(answer.is_whole && answer.body.len() == MIB, "{}", answer.body.len());
    }
    assert_eq!(origin.count(path), 1, "{path} was not stored");
}

/// The write timeout of an hour would outlast the test by far if the client that does not read delayed the other one
/// until then.
fn expect_cut_off(memory: &str, cache: &str) {
    let (body, door) = (Arc::new(object(LARGE)), Arc::<Door>::default());
    let (folder, origin) = (Folder::new(), start_origin(&body, &door));
    let server = start(&folder, &origin, memory, cache);
    let paused = begin_chunked(&server);
    let reading = begin_chunked(&server);
    assert_eq!(origin.count("/chunked"), 1);
    door.open();
    let whole = finish(reading);
    assert!(whole.is_whole && whole.body == *body, "{} bytes", whole.body.len());
    // What the paused client leaves behind takes no memory from other responses.
    expect_stored(&server, &origin, "/other");
    // It gets the true beginning of the response, and learns that this is not all.
    let cut = finish(paused);
    assert!(!cut.is_whole && cut.body.len() < body.len() && body.starts_with(&cut.body), "{} bytes", cut.body.len());
    wait_until("the access log names the reason", || {
        fs::read_to_string(log_of(&folder)).is_ok_and(|log| log.contains("delayed_others"))
    });
    // When it sends its request again, it gets its own response.
    let (again, other) = (begin_chunked(&server), begin_chunked(&server));
    assert_eq!(origin.count("/chunked"), 3);
    for answer in [finish(other), finish(again)] {
        assert!(answer.is_whole && answer.body == *body, "{} bytes", answer.body.len());
    }
}

#[test]
fn a_paused_client_delays_others_only_briefly_and_is_then_cut_off() {
    expect_cut_off("48MiB", "");
}

/// The response exceeds a quarter of this store before it exceeds the window of its clients.
#[test]
fn a_paused_client_of_a_small_store_can_repeat_its_request() {
    expect_cut_off("16MiB", "");
}

/// Too little has arrived when flatout finds that it is too large for requests to be separated at once.
#[test]
fn a_paused_client_of_a_response_above_the_maximum_size_can_repeat_its_request() {
    expect_cut_off("48MiB", "object-max \"1MiB\"");
}

/// A client that shares its response with no other client delays none, so it may read as slowly as it likes.
#[test]
fn a_paused_client_alone_keeps_its_response_and_leaves_memory_to_others() {
    let (body, door) = (Arc::new(object(LARGE)), Arc::<Door>::default());
    let (folder, origin) = (Folder::new(), start_origin(&body, &door));
    let server = start(&folder, &origin, "48MiB", "");
    let paused = begin_chunked(&server);
    door.open();
    wait_until("the response does not fit into the store", || {
        let metrics = ask_admin(&folder, "/metrics");
        let windows =
            metrics.lines().find_map(|line| line.strip_prefix("flatout_memory_held_bytes{share=\"windows\"} "));
        windows.unwrap().parse::<u64>().unwrap() > 0
    });
    // As long as it is known that the response does not fit, no other request for it takes as much memory.
    let paused_too = begin_chunked(&server);
    assert!(String::from_utf8_lossy(&paused_too.1).contains("detail=no_room\r\n"));
    expect_stored(&server, &origin, "/other");
    for stream in [paused, paused_too] {
        let whole = finish(stream);
        assert!(whole.is_whole && whole.body == *body, "{} bytes", whole.body.len());
    }
    assert_eq!(origin.count("/chunked"), 2);
}

/// If the head shows that the response does not fit, the requests that have waited for it do not share it.
#[test]
fn a_large_response_of_known_length_that_is_not_stored_is_not_shared() {
    let (body, door) = (Arc::new(object(LARGE)), Arc::<Door>::default());
    let (folder, origin) = (Folder::new(), start_origin(&body, &door));
    let server = start(&folder, &origin, "48MiB", "");
    let paused = send(&server, "/known");
    wait_until("the origin has the request", || origin.count("/known") == 1);
    let reading = send(&server, "/known");
    // The only worker has received that request before this one, and handles both before the response to this one.
    expect_stored(&server, &origin, "/other");
    assert_eq!(origin.count("/known"), 1);
    door.open();
    for stream in [reading, paused] {
        let answer = finish((stream, Vec::new()));
        assert!(answer.is_whole && answer.body == *body, "{} bytes", answer.body.len());
    }
    assert_eq!(origin.count("/known"), 2);
}

/// Reads the head and at least `bytes` bytes of the content of the response to a request for `/ranged`.
fn read_beginning(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let (mut begun, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let count = uninterrupted(|| stream.read(&mut buffer)).unwrap();
        assert!(count > 0, "cut after {} bytes", begun.len());
        begun.extend_from_slice(&buffer[..count]);
        let head = begun.windows(4).position(|window| window == b"\r\n\r\n");
        if head.is_some_and(|head| begun.len() >= head + 4 + bytes) {
            return begun;
        }
    }
}

/// The rest of a response of which `stored` parts are stored is as large as the response itself.
fn expect_separate_rests(stored: &[(usize, usize)]) {
    let (body, door) = (Arc::new(object(LARGE)), Arc::<Door>::default());
    let (folder, origin) = (Folder::new(), start_origin(&body, &door));
    let server = start(&folder, &origin, "48MiB", SMALL);
    for &(first, last) in stored {
        door.let_pass(usize::from(first > 0));
        let part = ask(&server, "GET", "/ranged", &format!("Range: bytes={first}-{last}\r\n"));
        assert!(part.status == 206 && part.body == body[first..=last]);
    }
    let seen = origin.count("/ranged");
    let mut clients = [send(&server, "/ranged"), send(&server, "/ranged")].map(|stream| (stream, Vec::new()));
    // The only worker has received these requests before this one.
    expect_stored(&server, &origin, "/other");
    assert_eq!(origin.count("/ranged"), seen + 1, "the two requests wait for one range");
    if let [_, .., (_, last)] = stored {
        // Both clients share the small range in between, and wait for one request for the rest.
        door.let_pass(1);
        for (stream, begun) in &mut clients {
            *begun = read_beginning(stream, last + 1);
        }
        expect_stored(&server, &origin, "/another");
        assert_eq!(origin.count("/ranged"), seen + 2, "the two requests wait for one rest");
    }
    let waiting = origin.count("/ranged");
    door.open();
    for client in clients {
        let answer = finish(client);
        assert!(answer.is_whole && answer.body == *body, "{} bytes", answer.body.len());
    }
    assert_eq!(origin.count("/ranged"), waiting + 1);
}

/// A request that waits for a part of a response is not delayed by others either.
#[test]
fn a_large_rest_that_is_not_stored_is_not_shared() {
    expect_separate_rests(&[(0, 99_999)]);
    expect_separate_rests(&[(0, 99_999), (200_000, 299_999)]);
}
