//! Requests that are sent again because the server closed an idle connection.

use super::{
    ClientSettings, IDLE_NS_MIN, OK, PreparedRequest, REQUEST, RequestFailure, Script, SentAgain, answered, failures,
    read_request, run_script, sent, server, settings,
};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// Starts a server that responds to the first `burst` requests of each connection. When it has read as many again, it
/// sends `last` and closes the connection, with RST instead of FIN if `resets`.
fn close_when_reused(burst: usize, last: &'static [u8], resets: bool) -> SocketAddr {
    server(move |_, mut stream| {
        let answers = (0..burst).all(|_| read_request(&mut stream)) && stream.write_all(&OK.repeat(burst)).is_ok();
        if answers && (0..burst).all(|_| read_request(&mut stream)) {
            stream.write_all(last).unwrap();
            if resets {
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            }
        }
    })
}

/// A script of bursts before each of which the connection is idle, as long as it may be closed as idle.
fn script_with_pauses(bursts: u32, burst: u32) -> Script {
    Script { burst, pause_ns: IDLE_NS_MIN, ..Script::new(1, bursts) }
}

#[test]
fn a_request_on_an_idle_connection_that_the_server_closes_is_sent_again_once() {
    for (burst, resets) in [(1, false), (1, true), (3, false)] {
        let mut settings = settings(close_when_reused(burst as usize, b"", resets));
        settings.requests = (0..burst).map(|_| PreparedRequest::plain(REQUEST.to_vec())).collect();
        let report = run_script(settings, script_with_pauses(4, burst));
        assert_eq!((answered(&report) as u32, failures(&report).len()), (4 * burst, 0), "{burst} {resets}");
        assert_eq!(report.drive.sent_again, [(burst, SentAgain::IdleClose); 3], "{burst} {resets}");
        let made = &report.drive.made;
        assert_eq!((made.len(), made.iter().filter(|made| made.is_reconnect).count()), (4, 3));
        assert!(report.drive.connections.iter().filter(|end| end.by_server).count() >= 3);
        for ended in &report.drive.ended[burst as usize..] {
            // The service time includes the first attempt, and the connect time does not.
            assert_eq!(ended.sent_bytes, REQUEST.len() as u64);
            assert!(ended.made.is_none_or(|made| made.connect_ns < ended.sent_ns - ended.begun_ns), "{ended:?}");
        }
    }
}

#[test]
fn a_request_on_a_busy_connection_that_the_server_closes_is_not_sent_again() {
    for (burst, resets) in [(1, false), (1, true), (3, false)] {
        let mut settings = settings(close_when_reused(burst as usize, b"", resets));
        settings.requests = (0..burst).map(|_| PreparedRequest::plain(REQUEST.to_vec())).collect();
        let report = run_script(settings, Script { burst, ..Script::new(1, 4) });
        let both = 2 * burst as usize;
        assert_eq!((answered(&report), failures(&report).len()), (both, both), "{burst} {resets}");
        assert_eq!(report.drive.sent_again, []);
    }
}

#[test]
fn a_request_is_not_sent_again_after_a_part_of_a_response_or_if_it_is_not_idempotent() {
    let post = PreparedRequest::plain(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".to_vec());
    let get = PreparedRequest::plain(REQUEST.to_vec());
    for (requests, last) in [(vec![post.clone()], &b""[..]), (vec![get.clone()], b"HTTP/1.1 2"), (vec![get, post], b"")]
    {
        let burst = requests.len();
        let settings = ClientSettings { requests: requests.into(), ..settings(close_when_reused(burst, last, false)) };
        let report = run_script(settings, script_with_pauses(4, burst as u32));
        assert_eq!(answered(&report), 2 * burst);
        assert_eq!(report.drive.sent_again, []);
        assert_eq!(failures(&report), vec![RequestFailure::ClosedEarly; 2 * burst]);
    }
}

#[test]
fn a_request_that_is_sent_again_keeps_its_deadline() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let address = server(|index, mut stream| {
        let is_first = index == 0;
        if is_first && read_request(&mut stream) && stream.write_all(OK).is_ok() && read_request(&mut stream) {
            // The server closes the connection after half of the client's time without another byte.
            stream.set_read_timeout(Some(TIMEOUT / 2)).unwrap();
            assert!(stream.read(&mut [0]).is_err());
        } else {
            while read_request(&mut stream) {}
        }
    });
    let request_timeout_ns = TIMEOUT.as_nanos() as u64;
    let report = run_script(ClientSettings { request_timeout_ns, ..settings(address) }, script_with_pauses(2, 1));
    assert_eq!((answered(&report), failures(&report)), (1, vec![RequestFailure::TimedOut]));
    assert_eq!(report.drive.sent_again, [(1, SentAgain::IdleClose)]);
    let late = report.drive.ended.last().unwrap();
    assert!(late.ended_ns - late.begun_ns >= request_timeout_ns, "{late:?}");
    assert!(late.ended_ns - late.sent_ns < request_timeout_ns, "the second attempt has the rest of the time: {late:?}");
}

#[test]
fn responses_that_arrived_before_a_burst_could_not_be_sent_count() {
    // The server responds to the first request, and closes the connection while the client sends the second.
    let address = server(|_, mut stream| {
        if read_request(&mut stream) {
            stream.write_all(OK).unwrap();
        }
    });
    let mut large = b"GET / HTTP/1.1\r\nX: ".to_vec();
    large.resize(16 * 1024 * 1024, b'x');
    large.extend_from_slice(b"\r\n\r\n");
    let requests = [PreparedRequest::plain(REQUEST.to_vec()), PreparedRequest::plain(large)].into();
    let report = run_script(ClientSettings { requests, ..settings(address) }, Script { burst: 2, ..Script::new(1, 1) });
    assert_eq!((answered(&report), failures(&report).len(), sent(&report)), (1, 1, 1));
    assert_eq!(report.drive.sent_again, []);
}
