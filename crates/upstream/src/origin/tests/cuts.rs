use super::*;
use crate::origin::Repeat;

/// Connections cut at every byte: never a complete response, always a named failure.
#[test]
fn a_truncated_response_is_a_named_failure_wherever_it_is_cut() {
    let length = ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\nX: y\r\n\r\n", "0123456789");
    let chunked = (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n",
    );
    for (head, body) in [length, chunked] {
        let whole = format!("{head}{body}").into_bytes();
        for cut in 0..=whole.len() {
            let answer = get_once(&serve_last(&whole[..cut]));
            if cut == whole.len() {
                assert!(answer.is_ok());
                continue;
            }
            let failure = answer.unwrap_err();
            let expected = match cut {
                0 => (OriginFailure::ClosedBeforeHead, Repeat::Idempotent),
                _ if cut < head.len() => (OriginFailure::CutHead, Repeat::Never),
                _ => (OriginFailure::CutBody, Repeat::Never),
            };
            assert_eq!((failure.failure, failure.repeat), expected, "cut at {cut}");
        }
    }
}

/// A reset is a cut as well, and the data before it is not lost.
#[test]
fn a_reset_differs_from_a_close() {
    let reset = |answer: &'static str| {
        serve(move |_, mut stream| {
            // What is not read when a socket is closed makes its end a reset.
            let mut some = [0; 10];
            stream.read_exact(&mut some).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        })
    };
    assert_eq!(failure_of(get_once(&reset(""))), OriginFailure::Reset);
    let cut = failure_of(get_once(&reset("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n012")));
    assert!(matches!(cut, OriginFailure::CutBody | OriginFailure::Reset), "{cut:?}");
}

#[test]
fn an_interim_response_alone_is_a_failure() {
    let failure = get_once(&serve_last("HTTP/1.1 103 Early\r\n\r\n")).unwrap_err();
    assert_eq!((failure.failure, failure.repeat), (OriginFailure::CutHead, Repeat::Never));
}

#[test]
fn each_failure_is_counted_once_by_name() {
    run(async {
        let client = client();
        let origin = serve_last("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01");
        let mut incoming = client.exchange(&origin, &mut request("GET"), |_, _| {}).await.unwrap();
        assert_eq!(finish(&mut incoming).await.unwrap_err().failure, OriginFailure::CutBody);
        assert_eq!(finish(&mut incoming).await.unwrap_err().failure, OriginFailure::CutBody, "and again");
        let origin = serve_last("");
        assert_eq!(failure_of(get(&client, &origin).await), OriginFailure::ClosedBeforeHead);
        let rows = crate::origin::counts::sum_origin_rows(&[client.counts()]);
        let count = |name: &str| rows.iter().find(|(row, _)| row == name).map(|(_, count)| *count);
        assert_eq!(count("failed_origin_cut_body"), Some(1));
        assert_eq!(count("failed_origin_closed_before_head"), Some(1));
        assert_eq!(count("origin_responses"), Some(1));
    });
}

/// A body that is broken from the beginning fails with the head, so that the client gets an error instead of the head.
#[test]
fn a_broken_chunk_that_comes_with_the_head_fails_the_exchange() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in
        ["x\r\n", " 5\r\nhello\r\n0\r\n\r\n", "5 5\r\nhello\r\n0\r\n\r\n", "2\r\nok\r\nx\r\n\r\n", "2\r\nokay\r\n"]
    {
        let origin = serve_last(format!("{head}{body}"));
        run(async {
            let failure = client().exchange(&origin, &mut request("GET"), |_, _| {}).await.unwrap_err();
            assert_eq!((failure.failure, failure.repeat), (OriginFailure::BodyMalformed, Repeat::Never), "{body:?}");
        });
    }
    for body in ["5  \r\nhello\r\n0\t\r\n\r\n", "5 ;a \r\nhello\r\n0 \r\n\r\n"] {
        assert_eq!(get_once(&serve_last(format!("{head}{body}"))).unwrap().content, b"hello", "{body:?}");
    }
}

/// RFC 9112 §2.2, §5.2, RFC 9110 §8.6.
#[test]
fn heads_of_old_origins_are_read() {
    for (answer, lines) in [
        ("HTTP/1.1 200 OK\nContent-Length: 2\nX: y\n\nok", "Content-Length: 2\r\nX: y\r\n"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok", "Content-Length: 2\r\n"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", "Content-Length: 2\r\n"),
        ("HTTP/1.1 200 OK\r\nX: y\r\n  z\r\nContent-Length: 2\r\n\r\nok", "X: y z\r\nContent-Length: 2\r\n"),
        ("HTTP/1.1 103 Early\nX: y\n\nHTTP/1.1 200 OK\nContent-Length: 2\n\nok", "Content-Length: 2\r\n"),
        ("HTTP/1.1 103 Early\nX: y\n\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "Content-Length: 2\r\n"),
    ] {
        for piece_bytes in [1, 7, usize::MAX] {
            let origin = serve(move |_, mut stream| {
                read_request(&mut stream);
                for piece in answer.as_bytes().chunks(piece_bytes) {
                    stream.write_all(piece).unwrap();
                }
            });
            let answered = get_once(&origin).unwrap();
            assert_eq!((&answered.lines[..], &answered.content[..]), (lines, &b"ok"[..]), "{answer:?}");
        }
    }
    let differing = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok";
    assert_eq!(failure_of(get_once(&serve_last(differing))), OriginFailure::HeadMalformed);
}
