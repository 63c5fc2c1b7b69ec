use super::*;
use crate::origin::Repeat;
use flatout_http::head::FieldStorage;
use flatout_http::refusal::Refusal;
use flatout_os::testing::wait_until_read;
use std::sync::mpsc::channel;

#[test]
fn request_and_response_bytes_are_exact() {
    let (told, asked) = channel();
    let origin = serve(move |_, mut stream| {
        told.send(read_request(&mut stream).unwrap()).unwrap();
        stream.write_all(b"HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nX:  a b \r\n\r\nhello").unwrap();
    });
    let answer = get_once(&origin).unwrap();
    let (head, content) = asked.recv().unwrap();
    assert_eq!(head, "GET /path?query HTTP/1.1\r\nHost: origin.example\r\nX-One: 1\r\n\r\n");
    assert!(content.is_empty());
    let lines = "Content-Length: 5\r\nX:  a b \r\n".to_owned();
    assert_eq!(answer, Answer { status: 200, lines, content: b"hello".to_vec(), trailers: None });
}

#[test]
fn a_small_response_has_its_head_and_body_at_once() {
    let origin = serve_answer("HTTP/1.1 404 No\r\nContent-Length: 2\r\nA: 1\r\nA: 2\r\n\r\nno");
    run(async {
        let client = client();
        let incoming = client.exchange(&origin, &mut request("GET"), |_, _| {}).await.unwrap();
        let mut storage = FieldStorage::new();
        let fields = incoming.fields(&mut storage);
        assert_eq!(fields.all("a").collect::<Vec<_>>(), [b"1", b"2"]);
        assert!(incoming.section().ends_with(b"A: 2\r\n\r\n"));
        assert_eq!((incoming.status, incoming.content_length, incoming.reused), (404, Some(2), false));
        assert_eq!(&**incoming.body.whole().unwrap().0, b"no");
        assert_eq!(client.idle_connections(&origin), 1, "before anyone has read the body");
    });
}

const ANSWERS: [(&str, &str, Option<&str>); 8] = [
    ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "abc", None),
    ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", None),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "abc", None),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2;x=y\r\nbc\r\n0\r\n\r\n", "abc", None),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", None),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 6\r\nY: z\r\n\r\n",
        "abc",
        Some("X-Sum: 6\r\nY: z\r\n"),
    ),
    ("HTTP/1.1 204 None\r\nX: y\r\n\r\n", "", None),
    ("HTTP/1.1 304 Same\r\nContent-Length: 9\r\nETag: \"a\"\r\n\r\n", "", None),
];

#[test]
fn responses_parse_equally_whole_and_byte_by_byte() {
    for (answer, content, trailers) in ANSWERS {
        let whole = serve_answer(answer);
        let bytewise = serve(move |_, mut stream| {
            while read_request(&mut stream).is_some() {
                for byte in answer.as_bytes() {
                    stream.write_all(&[*byte]).unwrap();
                    wait_until_read(&stream);
                }
            }
        });
        for origin in [&whole, &bytewise] {
            run(async {
                let client = client();
                for reused in 0..2 {
                    let got = get(&client, origin).await.unwrap();
                    assert_eq!((&*got.content, got.trailers.as_deref()), (content.as_bytes(), trailers), "{answer:?}");
                    assert_eq!(client.counts().connections_reused.get(), reused, "{answer:?}");
                }
                assert_eq!(client.counts().connections_opened.get(), 1);
            });
        }
    }
}

#[test]
fn a_response_to_head_has_no_body() {
    let origin = serve_answer("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n");
    run(async {
        let client = client();
        for _ in 0..2 {
            let mut head = request("HEAD");
            let mut incoming = client.exchange(&origin, &mut head, |_, _| {}).await.unwrap();
            assert_eq!(incoming.content_length, Some(500));
            assert_eq!(finish(&mut incoming).await.unwrap().content, b"");
        }
        assert_eq!(client.counts().connections_opened.get(), 1);
    });
}

#[test]
fn a_body_without_framing_ends_with_the_connection() {
    for version in ["1.0", "1.1"] {
        let origin = serve_last(format!("HTTP/{version} 200 OK\r\nX: y\r\n\r\n{}", "z".repeat(200_000)));
        run(async {
            let client = client();
            let mut incoming = client.exchange(&origin, &mut request("GET"), |_, _| {}).await.unwrap();
            assert!(incoming.ends_with_connection && incoming.body.whole().is_none());
            assert_eq!(finish(&mut incoming).await.unwrap().content.len(), 200_000);
            assert_eq!(client.idle_connections(&origin), 0);
        });
    }
}

#[test]
fn a_large_body_is_received_completely() {
    const BYTES: usize = 20_000_000;
    let body: Vec<u8> = (0..BYTES).map(|index| (index / 251) as u8).collect();
    let expected = body.clone();
    let origin = serve(move |_, mut stream| {
        while let Some((head, _)) = read_request(&mut stream) {
            let chunked = head.starts_with("POST");
            let framing =
                if chunked { "Transfer-Encoding: chunked".into() } else { format!("Content-Length: {BYTES}") };
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n").as_bytes()).unwrap();
            for piece in body.chunks(70_001) {
                if chunked {
                    stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).unwrap();
                }
                stream.write_all(piece).unwrap();
                if chunked {
                    stream.write_all(b"\r\n").unwrap();
                }
            }
            if chunked {
                stream.write_all(b"0\r\n\r\n").unwrap();
            }
        }
    });
    run(async {
        let client = client();
        for method in ["GET", "POST", "GET"] {
            let answer = exchange(&client, &origin, request(method)).await.unwrap();
            assert!(answer.content == expected, "{method}");
        }
        assert_eq!(client.counts().connections_opened.get(), 1);
        assert!(client.counts().bytes_received.get() > 3 * BYTES as u64);
    });
}

#[test]
fn interim_responses_are_forwarded_up_to_a_bound() {
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let origin = serve_answer(format!("HTTP/1.1 100 Continue\r\n\r\n{interim}{interim}{last}"));
    run(async {
        let mut seen = Vec::new();
        let told = |status, lines: &[u8]| seen.push((status, lines.to_vec()));
        let incoming = client().exchange(&origin, &mut request("GET"), told).await.unwrap();
        assert_eq!(incoming.status, 200);
        assert_eq!(seen, vec![(103, b"Link: </a>\r\n".to_vec()); 2]);
    });
    let origin = serve_answer(format!("{}{last}", interim.repeat(1_000)));
    assert_eq!(get_once(&origin).unwrap().status, 200);
    let origin = serve_answer(format!("{}{last}", interim.repeat(1_001)));
    assert_eq!(failure_of(get_once(&origin)), OriginFailure::InterimsTooMany);
}

#[test]
fn invalid_responses_are_refused_by_name() {
    use Refusal::{FieldName, LengthDuplicate, LengthWithTransferEncoding, ObsFold, StatusLine};
    for (answer, refusal) in [
        ("SSH-2.0-OpenSSH\r\n", StatusLine),
        ("HTTP/1.1 2x0 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", LengthDuplicate),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", LengthWithTransferEncoding),
        ("HTTP/1.1 200 OK\r\nA b : c\r\n\r\n", FieldName),
        ("HTTP/1.1 200 OK\r\n b: c\r\n\r\n", ObsFold),
    ] {
        let failure = get_once(&serve_last(answer)).unwrap_err();
        assert_eq!((failure.failure, failure.refusal), (OriginFailure::HeadMalformed, Some(refusal)), "{answer:?}");
        assert_eq!((failure.repeat, failure.failure.status()), (Repeat::Never, 502));
    }
}

#[test]
fn response_heads_are_bounded() {
    let settings = OriginSettings { head_bytes_max: 1_000, ..OriginSettings::default() };
    for answer in [
        format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(2_000)),
        format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(300)),
    ] {
        let failure = run(get(&client_with(settings.clone()), &serve_last(answer)));
        assert_eq!(failure_of(failure), OriginFailure::HeadTooLarge);
    }
    let many = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", "A: b\r\n".repeat(300));
    assert_eq!(failure_of(get_once(&serve_last(many))), OriginFailure::HeadTooLarge);
    // A head without end is given up when it is too large, not when memory is.
    let endless = serve(|_, mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(b"X-Endless: and so on and on\r\n").is_ok() {}
    });
    assert_eq!(failure_of(get_once(&endless)), OriginFailure::HeadTooLarge);
}

#[test]
fn invalid_bodies_never_complete() {
    for (body, refusal) in [
        ("x\r\nabc\r\n0\r\n\r\n", Refusal::ChunkSize),
        ("3\r\nabcd\r\n0\r\n\r\n", Refusal::ChunkEnd),
        ("3\nabc\r\n0\r\n\r\n", Refusal::BareLf),
        ("fffffffffffffffff\r\nabc", Refusal::ChunkSize),
    ] {
        let origin = serve_last(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
        let failure = get_once(&origin).unwrap_err();
        assert_eq!((failure.failure, failure.refusal), (OriginFailure::BodyMalformed, Some(refusal)), "{body:?}");
    }
    let extension = format!("3;{}\r\nabc\r\n", "x".repeat(5_000));
    let origin = serve_last(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{extension}"));
    assert_eq!(get_once(&origin).unwrap_err().refusal, Some(Refusal::ChunkExtensionTooLarge));
}

#[test]
fn a_101_requires_an_upgrade_request() {
    let switch = "HTTP/1.1 101 Switching\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n";
    assert_eq!(failure_of(get_once(&serve_answer(switch))), OriginFailure::SwitchedUnasked);
    let (told, asked) = channel();
    let origin = serve(move |_, mut stream| {
        told.send(read_head(&mut stream).unwrap()).unwrap();
        stream.write_all(format!("{switch}hello ").as_bytes()).unwrap();
        let mut word = [0; 5];
        stream.read_exact(&mut word).unwrap();
        stream.write_all(&word).unwrap();
    });
    run(async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let client = client();
        let mut upgrade = OutgoingRequest { upgrade: Some(b"echo"), ..request("GET") };
        let incoming = client.exchange(&origin, &mut upgrade, |_, _| {}).await.unwrap();
        assert_eq!(incoming.status, 101);
        let mut duplex = incoming.upgraded.unwrap();
        duplex.write_all(b"world").await.unwrap();
        duplex.flush().await.unwrap();
        let mut all = String::new();
        duplex.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "hello world");
        assert_eq!(client.idle_connections(&origin), 0);
        assert!(asked.recv().unwrap().ends_with("\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"));
    });
    // An origin that stays with HTTP says so.
    let origin = serve_answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno");
    run(async {
        let upgrade = OutgoingRequest { upgrade: Some(b"echo"), ..request("GET") };
        assert_eq!(exchange(&client(), &origin, upgrade).await.unwrap().content, b"no");
    });
}
