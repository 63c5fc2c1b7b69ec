use super::{consequence, fields, frame, request};
use crate::http2::frame::{ErrorCode, flag, kind};

const END: u8 = flag::END_HEADERS | flag::END_STREAM;

/// The expected result of an error in the input.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// RST_STREAM with this code; the connection continues.
    Stream(u32, ErrorCode),
    /// GOAWAY with this code.
    Connection(ErrorCode),
    /// Only these events, and no error.
    Events(Vec<String>),
}

fn outcome(input: &[u8]) -> Outcome {
    let (events, sent, error) = consequence(input);
    if let Some(code) = error {
        let goaway = sent.iter().rfind(|(kind, ..)| *kind == kind::GOAWAY).expect("a GOAWAY");
        assert_eq!(&goaway.3[4..], &code.number().to_be_bytes());
        return Outcome::Connection(code);
    }
    match sent.iter().find(|(kind, ..)| *kind == kind::RST_STREAM) {
        Some((_, _, stream, payload)) => {
            let code = u32::from_be_bytes(payload[..].try_into().unwrap());
            Outcome::Stream(*stream, ErrorCode::from_number(code))
        }
        None => Outcome::Events(events),
    }
}

fn open(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_HEADERS, stream, &request("POST", &[]))
}

fn get(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, END, stream, &request("GET", &[]))
}

fn get_with(more: &[(&str, &str)]) -> Vec<u8> {
    frame(kind::HEADERS, END, 1, &request("GET", more))
}

/// Returns a head without END_HEADERS, to be followed by other frames.
fn begun() -> Vec<u8> {
    frame(kind::HEADERS, flag::END_STREAM, 1, &request("GET", &[]))
}

fn then(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    [open(1), frame(kind, flags, 1, payload)].concat()
}

fn ended(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    [get(1), frame(kind, flags, 1, payload)].concat()
}

fn posted(length: &str, content: &[u8]) -> Vec<u8> {
    let head = frame(kind::HEADERS, flag::END_HEADERS, 1, &request("POST", &[("content-length", length)]));
    [head, frame(kind::DATA, flag::END_STREAM, 1, content)].concat()
}

fn update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    frame(kind::SETTINGS, 0, 0, &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

fn check(cases: Vec<(&str, Vec<u8>, Outcome)>) {
    let wrong: Vec<String> = cases
        .into_iter()
        .filter_map(|(what, input, expected)| {
            let found = outcome(&input);
            (found != expected).then(|| format!("{what}: {found:?} instead of {expected:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn frames_of_a_wrong_size_are_errors() {
    use ErrorCode::FrameSize;
    use Outcome::{Connection, Stream};
    check(vec![
        ("PING of 7 bytes", frame(kind::PING, 0, 0, &[0; 7]), Connection(FrameSize)),
        ("SETTINGS of 5 bytes", frame(kind::SETTINGS, 0, 0, &[0; 5]), Connection(FrameSize)),
        ("acknowledged SETTINGS with content", frame(kind::SETTINGS, flag::ACK, 0, &[0; 6]), Connection(FrameSize)),
        ("RST_STREAM of 3 bytes", then(kind::RST_STREAM, 0, &[0; 3]), Connection(FrameSize)),
        ("WINDOW_UPDATE of 5 bytes", frame(kind::WINDOW_UPDATE, 0, 0, &[1; 5]), Connection(FrameSize)),
        ("GOAWAY of 7 bytes", frame(kind::GOAWAY, 0, 0, &[0; 7]), Connection(FrameSize)),
        ("PRIORITY of 4 bytes", then(kind::PRIORITY, 0, &[0; 4]), Stream(1, FrameSize)),
        ("PRIORITY_UPDATE of 3 bytes", frame(kind::PRIORITY_UPDATE, 0, 0, &[0; 3]), Connection(FrameSize)),
        ("HEADERS of 16,385 bytes", frame(kind::HEADERS, END, 1, &[0; 16_385]), Connection(FrameSize)),
        ("DATA of 16,385 bytes", then(kind::DATA, 0, &[0; 16_385]), Stream(1, FrameSize)),
        ("DATA of 16,385 bytes of nobody", frame(kind::DATA, 0, 1, &[0; 16_385]), Connection(FrameSize)),
        ("half a priority", frame(kind::HEADERS, END | flag::PRIORITY, 1, &[0; 4]), Connection(FrameSize)),
    ]);
}

#[test]
fn frames_on_a_wrong_stream_are_errors() {
    use ErrorCode::{Protocol, RefusedStream, StreamClosed};
    use Outcome::{Connection, Stream};
    let reset = || then(kind::RST_STREAM, 0, &[0; 4]);
    let on_itself = [&[0, 0, 0, 1, 1][..], &request("GET", &[])].concat();
    check(vec![
        ("DATA of the connection", frame(kind::DATA, 0, 0, b"a"), Connection(Protocol)),
        ("HEADERS of the connection", frame(kind::HEADERS, END, 0, &request("GET", &[])), Connection(Protocol)),
        ("RST_STREAM of the connection", frame(kind::RST_STREAM, 0, 0, &[0; 4]), Connection(Protocol)),
        ("PRIORITY of the connection", frame(kind::PRIORITY, 0, 0, &[0; 5]), Connection(Protocol)),
        ("SETTINGS of a stream", frame(kind::SETTINGS, 0, 1, &[]), Connection(Protocol)),
        ("PING of a stream", frame(kind::PING, 0, 1, &[0; 8]), Connection(Protocol)),
        ("GOAWAY of a stream", frame(kind::GOAWAY, 0, 1, &[0; 8]), Connection(Protocol)),
        ("PRIORITY_UPDATE of a stream", frame(kind::PRIORITY_UPDATE, 0, 1, &[0; 4]), Connection(Protocol)),
        ("PUSH_PROMISE of a client", frame(kind::PUSH_PROMISE, END, 1, &[0; 4]), Connection(Protocol)),
        ("HEADERS of an even stream", get(2), Connection(Protocol)),
        ("DATA of an idle stream", frame(kind::DATA, 0, 3, b"a"), Connection(Protocol)),
        ("RST_STREAM of an idle stream", frame(kind::RST_STREAM, 0, 3, &[0; 4]), Connection(Protocol)),
        ("WINDOW_UPDATE of an idle stream", update(3, 1), Connection(Protocol)),
        ("a lower stream", [get(3), get(1)].concat(), Connection(Protocol)),
        ("DATA after the end", ended(kind::DATA, 0, b"a"), Stream(1, StreamClosed)),
        ("trailers after the end", ended(kind::HEADERS, END, &fields(&[("a", "b")])), Stream(1, StreamClosed)),
        ("DATA after a reset", [reset(), frame(kind::DATA, 0, 1, b"a")].concat(), Connection(StreamClosed)),
        ("HEADERS after a reset", [reset(), get(1)].concat(), Connection(StreamClosed)),
        ("five streams of four", [open(1), open(3), open(5), open(7), open(9)].concat(), Stream(9, RefusedStream)),
        ("a stream that depends on itself", then(kind::PRIORITY, 0, &[0, 0, 0, 1, 1]), Stream(1, Protocol)),
        ("HEADERS on themselves", frame(kind::HEADERS, END | flag::PRIORITY, 1, &on_itself), Stream(1, Protocol)),
    ]);
}

#[test]
fn padding_settings_and_windows_have_their_bounds() {
    use ErrorCode::{FlowControl, Protocol};
    use Outcome::{Connection, Events, Stream};
    check(vec![
        ("padding longer than DATA", then(kind::DATA, flag::PADDED, &[5, 0, 0]), Connection(Protocol)),
        ("padding longer than HEADERS", frame(kind::HEADERS, END | flag::PADDED, 1, &[9, 0x82]), Connection(Protocol)),
        ("padding without a length", then(kind::DATA, flag::PADDED, &[]), Connection(Protocol)),
        ("push that is neither on nor off", setting(2, 2), Connection(Protocol)),
        ("a window of 2^31", setting(4, 0x8000_0000), Connection(FlowControl)),
        ("a frame size below the minimum", setting(5, 16_383), Connection(Protocol)),
        ("a frame size above the maximum", setting(5, 1 << 24), Connection(Protocol)),
        ("an unknown setting", setting(0x99, 7), Events(Vec::new())),
        ("nothing for a stream's window", [open(1), update(1, 0)].concat(), Stream(1, Protocol)),
        ("nothing for the connection's window", update(0, 0), Connection(Protocol)),
        ("a stream's window overflows", [open(1), update(1, 0x7fff_ffff)].concat(), Stream(1, FlowControl)),
        ("the connection's window overflows", update(0, 0x7fff_ffff), Connection(FlowControl)),
        (
            "a setting makes a window overflow",
            [open(1), update(1, 0x7fff_0000), setting(4, 0x7fff_ffff)].concat(),
            Connection(FlowControl),
        ),
    ]);
}

#[test]
fn malformed_field_sections_are_errors() {
    use ErrorCode::{Compression, EnhanceYourCalm, Protocol};
    use Outcome::{Connection, Stream};
    let continuation = |stream: u32| frame(kind::CONTINUATION, flag::END_HEADERS, stream, &[]);
    check(vec![
        ("CONTINUATION of nothing", continuation(1), Connection(Protocol)),
        ("PING within a section", [begun(), frame(kind::PING, 0, 0, &[0; 8])].concat(), Connection(Protocol)),
        ("CONTINUATION of another stream", [begun(), continuation(3)].concat(), Connection(Protocol)),
        ("an unknown frame within a section", [begun(), frame(0x77, 0, 1, &[])].concat(), Connection(Protocol)),
        ("an index beyond the table", frame(kind::HEADERS, END, 1, &[0xfe]), Connection(Compression)),
        ("three updates of the table", frame(kind::HEADERS, END, 1, &[0x20; 3]), Connection(EnhanceYourCalm)),
        ("a field of the connection", get_with(&[("connection", "close")]), Stream(1, Protocol)),
        ("TE with a coding", get_with(&[("te", "gzip")]), Stream(1, Protocol)),
        ("a name in upper case", get_with(&[("X-A", "b")]), Stream(1, Protocol)),
        ("a value with a line end", get_with(&[("x", "b\r\nc: d")]), Stream(1, Protocol)),
        ("a pseudo-field after a field", get_with(&[("x", "b"), (":path", "/")]), Stream(1, Protocol)),
        ("no path", frame(kind::HEADERS, END, 1, &fields(&[(":method", "GET")])), Stream(1, Protocol)),
        ("trailers without end", then(kind::HEADERS, flag::END_HEADERS, &fields(&[("a", "b")])), Stream(1, Protocol)),
        ("a pseudo-field among trailers", then(kind::HEADERS, END, &fields(&[(":path", "/")])), Stream(1, Protocol)),
        ("less content than declared", posted("3", b"ab"), Stream(1, Protocol)),
        ("more content than declared", posted("1", b"ab"), Stream(1, Protocol)),
        ("no content, but a length", get_with(&[("content-length", "1")]), Stream(1, Protocol)),
    ]);
}

#[test]
fn valid_frames_yield_events() {
    let events = |lines: &[&str]| Outcome::Events(lines.iter().map(|line| (*line).to_owned()).collect());
    let pieces = [
        frame(kind::HEADERS, flag::END_STREAM, 1, &request("GET", &[])[..3]),
        frame(kind::CONTINUATION, flag::END_HEADERS, 1, &request("GET", &[("x", "y")])[3..]),
    ];
    let reset = || then(kind::RST_STREAM, 0, &[0, 0, 0, 8]);
    let was_reset = ["request 1 false", "reset 1 Cancel peer"];
    check(vec![
        ("as much as declared", posted("2", b"ab"), events(&["request 1 false content-length=2", "data 1 2 true"])),
        (
            "padded content",
            then(kind::DATA, flag::PADDED, &[2, b'a', 0, 0]),
            events(&["request 1 false", "data 1 1 false"]),
        ),
        ("an unknown frame", frame(0x77, 0xff, 9, b"abc"), events(&[])),
        ("ORIGIN and ALTSVC", [frame(0xc, 0, 0, b""), frame(0xa, 0, 0, &[0; 2])].concat(), events(&[])),
        ("a section in pieces", pieces.concat(), events(&["request 1 true x=y"])),
        ("trailers", then(kind::HEADERS, END, &fields(&[("a", "b")])), events(&["request 1 false", "trailers 1 a=b"])),
        (
            "cookies in crumbs",
            get_with(&[("cookie", "a=1"), ("cookie", "b=2")]),
            events(&["request 1 true cookie=a=1; b=2"]),
        ),
        ("a reset", reset(), events(&was_reset)),
        ("WINDOW_UPDATE after a reset", [reset(), update(1, 1)].concat(), events(&was_reset)),
        ("GOAWAY", frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 7, 0, 0, 0, 2]), events(&["goaway 7 Internal"])),
    ]);
}

#[test]
fn credit_follows_the_content_that_was_taken() {
    let content = frame(kind::DATA, 0, 1, &[0; 16_000]);
    let all: Vec<u8> = std::iter::once(open(1)).chain(std::iter::repeat_n(content, 20)).flatten().collect();
    let (events, sent, error) = consequence(&all);
    assert_eq!((events.len(), error), (21, None));
    let credit = |of: u32| -> u32 {
        let updates = sent.iter().filter(|(kind, _, stream, _)| *kind == kind::WINDOW_UPDATE && *stream == of);
        updates.map(|(_, _, _, payload)| u32::from_be_bytes(payload[..].try_into().unwrap())).sum()
    };
    assert!(credit(1) >= 320_000 - 32_768 && credit(0) >= 320_000 - 131_072, "{} {}", credit(1), credit(0));
}
