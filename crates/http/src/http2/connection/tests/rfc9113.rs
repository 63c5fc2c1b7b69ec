//! Runs the cases of `rfc9113.txt`.

use super::{Config, Connection, Event, Role, SentFrame, frame, frames, give_to};
use crate::framing::Framing;
use crate::head::FieldStorage;
use crate::http2::error::StreamError;
use crate::http2::fields::FieldBlock;
use crate::http2::frame::{ErrorCode, PREFACE, flag, kind};
use crate::http2::hpack::{encode_field, encode_status};
use crate::http2::window::Windows;
use crate::limits::Limits;
use std::fmt::Write as _;

const CASES: &str = include_str!("rfc9113.txt");

/// Minimum number of cases in the file.
const CASES_MIN: usize = 60;

struct Case<'a> {
    role: Role,
    name: &'a str,
    steps: Vec<Step<'a>>,
    expected: Vec<String>,
}

enum Step<'a> {
    Frame(Vec<u8>),
    Action(Vec<&'a str>),
}

fn cases() -> Vec<Case<'static>> {
    let mut cases: Vec<Case<'static>> = Vec::new();
    for line in CASES.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (mark, rest) = line.split_once(' ').unwrap();
        let role = match mark {
            "server:" => Some(Role::Server),
            "client:" => Some(Role::Client),
            _ => None,
        };
        if let Some(role) = role {
            cases.push(Case { role, name: rest, steps: Vec::new(), expected: Vec::new() });
            continue;
        }
        let case = cases.last_mut().unwrap();
        match mark {
            ">" => case.steps.push(Step::Frame(parse_frame(rest))),
            "!" => case.steps.push(Step::Action(rest.split(' ').collect())),
            "<" => case.expected.push(rest.to_owned()),
            _ => panic!("{line}"),
        }
    }
    cases
}

/// Returns the bytes that `text` represents.
fn unescape(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&escape, after) = rest.split_first().unwrap();
        rest = after;
        bytes.push(match escape {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b's' => b' ',
            b'e' => b'=',
            b'0' => 0,
            b'x' => {
                let digits = std::str::from_utf8(&rest[..2]).unwrap();
                rest = &rest[2..];
                u8::from_str_radix(digits, 16).unwrap()
            }
            _ => panic!("{text}"),
        });
    }
    bytes
}

fn parse_block(words: &[&str]) -> Vec<u8> {
    let mut block = Vec::new();
    for word in words {
        if let Some((name, value)) = word.split_once('=') {
            encode_field(&unescape(name), &unescape(value), &mut block);
            continue;
        }
        if *word == "LARGE" {
            // Indexed fields have one byte each, and count as 43 bytes towards the limit.
            block.extend(vec![0x8f; 400]);
            continue;
        }
        encode_field(b":method", word.as_bytes(), &mut block);
        encode_field(b":authority", b"a", &mut block);
        if *word != "CONNECT" {
            encode_field(b":scheme", b"http", &mut block);
            encode_field(b":path", b"/", &mut block);
        }
    }
    block
}

fn parse_frame(text: &str) -> Vec<u8> {
    let words: Vec<&str> = text.split(' ').collect();
    let number = |index: usize| words[index].parse::<u32>().unwrap();
    match words[0] {
        "HEADERS" | "CONTINUATION" => {
            let is_first = words[0] == "HEADERS";
            let mut flags = flag::END_HEADERS;
            let mut fields = &words[2..];
            while let Some((word @ (&"end" | &"open"), rest)) = fields.split_first() {
                flags ^= if *word == "end" { flag::END_STREAM } else { flag::END_HEADERS };
                fields = rest;
            }
            frame(if is_first { kind::HEADERS } else { kind::CONTINUATION }, flags, number(1), &parse_block(fields))
        }
        "DATA" => {
            let (mut flags, mut padding, mut bytes) = (0, None, 0);
            for word in &words[2..] {
                match word.split_once('=') {
                    Some(("pad", count)) => padding = Some(count.parse::<u8>().unwrap()),
                    Some(("bytes", count)) => bytes = count.parse().unwrap(),
                    _ => flags |= flag::END_STREAM,
                }
            }
            let content = vec![b'd'; bytes];
            let payload = match padding {
                None => content,
                Some(count) => [&[count][..], &content, &vec![0; usize::from(count)]].concat(),
            };
            let padded = if padding.is_some() { flag::PADDED } else { 0 };
            frame(kind::DATA, flags | padded, number(1), &payload)
        }
        "WINDOW_UPDATE" => frame(kind::WINDOW_UPDATE, 0, number(1), &number(2).to_be_bytes()),
        "RST_STREAM" => frame(kind::RST_STREAM, 0, number(1), &number(2).to_be_bytes()),
        "GOAWAY" => {
            let debug = words[3..].join(" ");
            let payload = [&number(1).to_be_bytes()[..], &number(2).to_be_bytes(), debug.as_bytes()].concat();
            frame(kind::GOAWAY, 0, 0, &payload)
        }
        "PRIORITY_UPDATE" => {
            let payload = [&number(1).to_be_bytes()[..], &unescape(words[2])].concat();
            frame(kind::PRIORITY_UPDATE, 0, 0, &payload)
        }
        "SETTINGS" if words[1] == "ack" => frame(kind::SETTINGS, flag::ACK, 0, &[]),
        "SETTINGS" => {
            let pairs = words[1..].iter().map(|pair| pair.split_once('=').unwrap());
            let bytes = pairs.flat_map(|(id, value)| {
                let (id, value) = (id.parse::<u16>().unwrap(), value.parse::<u32>().unwrap());
                [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
            });
            frame(kind::SETTINGS, 0, 0, &bytes.collect::<Vec<u8>>())
        }
        "RAW" => {
            let digits = words[1..].concat();
            let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
            (0..digits.len()).step_by(2).map(pair).collect()
        }
        _ => panic!("{text}"),
    }
}

/// Returns `bytes` in the notation of the file's expected events.
fn escaped(bytes: &[u8]) -> String {
    let escape = |&byte: &u8| match byte {
        b'\t' => "\\t".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    };
    bytes.iter().map(escape).collect()
}

fn lines(block: &FieldBlock) -> String {
    block.iter().map(|(name, value)| format!(" {name}={}", escaped(value))).collect()
}

/// Describes the request head as converted to HTTP/1.1, or its refusal.
fn describe_request(stream: u32, ends: bool, block: &FieldBlock) -> String {
    let mut storage = FieldStorage::new();
    let head = match block.request_head(ends, &Limits::DEFAULT, &mut storage) {
        Ok(head) => head,
        Err(refusal) => return format!("request {stream} refused {} {}", refusal.name(), refusal.status()),
    };
    let mut text = format!("request {stream} {} {}", head.method.as_str(), escaped(head.target_text));
    write!(text, " host={}", escaped(head.host.unwrap_or_default())).unwrap();
    match head.framing {
        Framing::None => text.push_str(" ends"),
        Framing::Length(length) => write!(text, " length={length}").unwrap(),
        Framing::Chunked | Framing::UntilClose => {}
    }
    for (name, value) in head.fields.iter().filter(|(name, _)| *name != "content-length") {
        write!(text, " {name}={}", escaped(value)).unwrap();
    }
    text
}

fn describe(event: &Event<'_, u32>, block: &FieldBlock) -> String {
    let ended = |ends: bool| if ends { " ends" } else { "" };
    match event {
        Event::Request { stream, ends } => describe_request(*stream, *ends, block),
        Event::Response { stream, ends } => {
            format!("response {stream} {}{}{}", block.status().unwrap(), ended(*ends), lines(block))
        }
        Event::Data { stream, bytes, ends } => format!("data {stream} {} {ends}", bytes.len()),
        Event::Trailers { stream } => format!("trailers {stream}{}", lines(block)),
        Event::Reset { stream, code, error, .. } => {
            format!("reset {stream} {} {}", code.name(), error.map_or("peer", StreamError::name))
        }
        Event::Rejected { stream, error } => format!("rejected {stream} {} {}", error.code().name(), error.name()),
        Event::Acknowledged(_) => "acknowledged".to_owned(),
        Event::GoAway { last_stream, code } => format!("goaway {last_stream} {}", code.name()),
    }
}

/// Performs an action of this side on `connection`.
fn act(connection: &mut Connection<u32>, words: &[&str], output: &mut Vec<u8>) {
    let number = |index: usize| words[index].parse::<u32>().unwrap();
    match words[0] {
        "open" => {
            let id = connection.open(words.get(1) == Some(&"HEAD")).expect("a stream");
            connection.send_fields(id, true, output, |output| output.extend(parse_block(&["GET"])));
        }
        "take" => assert_eq!(connection.take_done(number(1)), Some(0)),
        "full" => assert_eq!(connection.open(false), None),
        "respond" => {
            let ends = words.get(3) == Some(&"end");
            connection.send_fields(number(1), ends, output, |output| encode_status(number(2) as u16, output));
        }
        "data" => {
            let bytes = number(2) as usize;
            assert!(connection.data_room(number(1)) >= bytes);
            output.extend_from_slice(&connection.send_data(number(1), bytes, false));
            output.resize(output.len() + bytes, 0);
        }
        "room" => assert_eq!(connection.data_room(number(1)), number(2) as usize),
        "reset" => {
            connection.reset(number(1), ErrorCode::from_number(number(2)), output).expect("an open stream");
        }
        "window" => connection.set_windows(Windows { stream: number(1), connection: 131_072 }, output),
        "shut" => {
            connection.drain(output);
            assert!(connection.handle_drained(u64::from_be_bytes(*b"draining"), output));
        }
        _ => panic!("{words:?}"),
    }
}

/// Returns the events and sent frames of `case` if received frames arrive in pieces of `piece_bytes`.
fn run(case: &Case<'_>, piece_bytes: usize) -> (Vec<String>, Vec<SentFrame>) {
    let (mut output, mut events) = (Vec::new(), Vec::new());
    let config = Config { windows: Windows { stream: 65_535, connection: 131_072 }, ..super::CONFIG };
    let mut connection = Connection::new(case.role, config, &mut output);
    let preface = if case.role == Role::Server { &PREFACE[..] } else { &[] };
    let opening = Step::Frame([preface, &frame(kind::SETTINGS, 0, 0, &[])].concat());
    for step in std::iter::once(&opening).chain(&case.steps) {
        match step {
            Step::Action(words) => act(&mut connection, words, &mut output),
            Step::Frame(bytes) => {
                let (more, error) = give_to(&mut connection, bytes, piece_bytes, &mut output, |_, event, block, _| {
                    describe(&event, block)
                });
                events.extend(more);
                if let Some(error) = error {
                    events.push(format!("goaway {} {}", error.code().name(), error.name()));
                    break;
                }
            }
        }
    }
    // A client's preface is not a frame.
    let sent = output.strip_prefix(&PREFACE[..]).unwrap_or(&output);
    (events, frames(sent))
}

/// Checks that each error was sent in a frame with the error's code.
fn check_sent(case: &Case<'_>, sent: &[SentFrame]) -> Result<(), String> {
    for event in &case.expected {
        let words: Vec<&str> = event.split(' ').collect();
        let (kind, at, stream) = match &words[..] {
            ["reset", _, _, "peer"] => continue,
            ["reset" | "rejected", stream, ..] => (kind::RST_STREAM, 0, stream.parse().unwrap()),
            ["goaway", _, name] if name.starts_with("h2_") => (kind::GOAWAY, 4, 0),
            _ => continue,
        };
        let code = if kind == kind::GOAWAY { words[1] } else { words[2] };
        let code_of =
            |payload: &[u8]| ErrorCode::from_number(u32::from_be_bytes(payload[at..at + 4].try_into().unwrap()));
        let is_sent =
            |(of, _, id, payload): &SentFrame| *of == kind && *id == stream && code_of(payload).name() == code;
        if !sent.iter().any(is_sent) {
            return Err(format!("no frame for `{event}` in {sent:?}"));
        }
    }
    Ok(())
}

#[test]
fn cases_that_h2spec_lacks() {
    let cases = cases();
    assert!(cases.len() >= CASES_MIN, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let (events, sent) = run(case, usize::MAX);
        if events != case.expected {
            wrong
                .push(format!("{:?}: {}\n  found    {events:?}\n  expected {:?}", case.role, case.name, case.expected));
        } else if let Err(error) = check_sent(case, &sent) {
            wrong.push(format!("{:?}: {}: {error}", case.role, case.name));
        }
        for piece_bytes in [1, 7] {
            assert_eq!(
                run(case, piece_bytes),
                (events.clone(), sent.clone()),
                "{}, in pieces of {piece_bytes}",
                case.name
            );
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
