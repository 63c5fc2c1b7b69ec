use super::reply::INSERTION;
use super::{Responder, ResponderPlan, ResponderReply};
use crate::cores::Placement;
use flatout_os::testing::wait_until_read;
use std::io::{Read, Write};
use std::net::TcpStream;

fn start(reply: ResponderReply, closes: bool, threads: usize) -> Responder {
    let address = "127.0.0.1:0".parse().unwrap();
    Responder::start(&ResponderPlan { address, placements: vec![Placement::Anywhere; threads], reply, closes }).unwrap()
}

/// Sends `request` and reads until `body_bytes` of each of `answers` responses have arrived, or the end.
fn ask(responder: &Responder, request: &[u8], read_bytes: Option<usize>) -> Vec<u8> {
    let mut stream = TcpStream::connect(responder.address()).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    match read_bytes {
        None => drop(stream.read_to_end(&mut answer).unwrap()),
        Some(count) => {
            answer.resize(count, 0);
            stream.read_exact(&mut answer).unwrap();
        }
    }
    answer
}

fn count(haystack: &[u8], needle: &[u8]) -> usize {
    memchr::memmem::find_iter(haystack, needle).count()
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn close_mode_answers_once_and_closes() {
    let responder = start(ResponderReply::Memory { body_bytes: 1024 }, true, 2);
    for _ in 0..20 {
        let answer = ask(&responder, REQUEST, None);
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert!(answer.ends_with(&[b'x'; 1024]) && count(&answer, b"\r\n\r\nx") == 1);
        assert_eq!(count(&answer, b"Connection: close\r\n"), 1);
    }
    assert!(responder.cpu_ns().unwrap() > 0);
}

#[test]
fn close_mode_waits_for_a_head_that_arrives_in_pieces() {
    let responder = start(ResponderReply::Memory { body_bytes: 1 }, true, 1);
    let mut stream = TcpStream::connect(responder.address()).unwrap();
    for piece in REQUEST.chunks(5) {
        stream.write_all(piece).unwrap();
        wait_until_read(&stream);
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(count(&answer, b"HTTP/1.1 200 OK"), 1);
}

#[test]
fn a_lent_body_arrives_as_a_copied_one_does() {
    for closes in [false, true] {
        let responder = start(ResponderReply::MemoryLent { body_bytes: 200_000 }, closes, 1);
        let copied = start(ResponderReply::Memory { body_bytes: 200_000 }, closes, 1);
        let whole = ask(&copied, b"GET / HTTP/1.0\r\n\r\n", if closes { None } else { Some(200_100) });
        for _ in 0..20 {
            let count = if closes { None } else { Some(whole.len()) };
            assert_eq!(ask(&responder, REQUEST, count), whole);
        }
    }
}

#[test]
fn pipelined_requests_are_each_answered() {
    let responder = start(ResponderReply::Memory { body_bytes: 1000 }, false, 1);
    let one = ask(&responder, REQUEST, Some(1)).len();
    assert_eq!(one, 1);
    let head_bytes = ResponderReply::Memory { body_bytes: 1000 }.assemble(false).unwrap().owed_bytes(1) as usize - 1000;
    let answer = ask(&responder, &REQUEST.repeat(200), Some(200 * (head_bytes + 1000)));
    assert_eq!(count(&answer, b"HTTP/1.1 200 OK"), 200);
}

#[test]
fn large_bodies_arrive_whole_however_they_are_sent() {
    let size = 5_000_017_u64;
    let folder = std::env::temp_dir().join(format!("flatout-responder-{}", std::process::id()));
    std::fs::write(&folder, vec![b'x'; size as usize]).unwrap();
    let replies = [
        ResponderReply::Memory { body_bytes: size },
        ResponderReply::MemoryFile { body_bytes: size },
        ResponderReply::File(folder.clone()),
    ];
    for reply in replies {
        let responder = start(reply.clone(), false, 1);
        let head_bytes = reply.assemble(false).unwrap().owed_bytes(1) as usize - size as usize;
        let answer = ask(&responder, &REQUEST.repeat(2), Some(2 * (head_bytes + size as usize)));
        assert_eq!(count(&answer, b"HTTP/1.1 200 OK"), 2, "{reply:?}");
        assert!(answer.ends_with(b"xxxx"));
    }
    std::fs::remove_file(folder).unwrap();
}

#[test]
fn a_line_is_inserted_in_the_middle_of_the_file() {
    let file = std::env::temp_dir().join(format!("flatout-responder-parts-{}", std::process::id()));
    let content: Vec<u8> = (0..300_001_u32).map(|number| b'a' + (number % 26) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    let responder = start(ResponderReply::FileInParts(file.clone()), true, 1);
    let answer = ask(&responder, REQUEST, None);
    std::fs::remove_file(file).unwrap();
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let (first, second) = content.split_at(150_000 / 4096 * 4096);
    assert_eq!(answer[body..], [first, INSERTION, second].concat());
    let length = format!("Content-Length: {}\r\n", answer.len() - body);
    assert_eq!(count(&answer, length.as_bytes()), 1);
}

#[test]
fn responses_of_an_origin_are_forwarded_unchanged() {
    let origin = start(ResponderReply::Memory { body_bytes: 40_000 }, false, 1);
    let forwarding = start(ResponderReply::Origin(origin.address()), false, 1);
    let bytes = ResponderReply::Memory { body_bytes: 40_000 }.assemble(false).unwrap().owed_bytes(1) as usize;
    let direct = ask(&origin, REQUEST, Some(bytes));
    let mut streams: Vec<_> = (0..8).map(|_| TcpStream::connect(forwarding.address()).unwrap()).collect();
    for _ in 0..20 {
        for stream in &mut streams {
            stream.write_all(REQUEST).unwrap();
        }
        for stream in &mut streams {
            let mut answer = vec![0; bytes];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, direct);
        }
    }
    assert!(forwarding.cpu_ns().unwrap() > 0);
}

#[test]
fn an_exchange_whose_origin_has_gone_is_closed() {
    let origin = start(ResponderReply::Memory { body_bytes: 1 }, false, 1);
    let forwarding = start(ResponderReply::Origin(origin.address()), false, 1);
    assert!(ask(&forwarding, REQUEST, Some(9)).starts_with(b"HTTP/1.1 "));
    drop(origin);
    assert_eq!(ask(&forwarding, REQUEST, None), b"");
}

#[test]
fn what_cannot_be_assembled_says_why() {
    let refuse = |reply: ResponderReply| reply.assemble(false).unwrap_err().into_io().to_string();
    assert!(refuse(ResponderReply::Memory { body_bytes: u64::MAX }).contains("in memory"));
    assert!(refuse(ResponderReply::File("/proc/self/status".into())).contains("empty or not a regular file"));
    assert!(refuse(ResponderReply::File("/nonexistent".into())).contains("No such file"));
}
