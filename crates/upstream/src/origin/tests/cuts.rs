use super::*;
use crate::origin::Repeat;

/// Cut at every byte: never a whole answer, always a name.
#[test]
fn an_answer_cut_anywhere_has_a_name_and_no_end() {
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

/// A reset is a cut as well, and what came before it is not lost.
#[test]
fn a_reset_is_told_from_an_end() {
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
fn an_interim_answer_is_no_answer() {
    let failure = get_once(&serve_last("HTTP/1.1 103 Early\r\n\r\n")).unwrap_err();
    assert_eq!((failure.failure, failure.repeat), (OriginFailure::CutHead, Repeat::Never));
}

#[test]
fn failures_are_counted_by_name_and_once() {
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
