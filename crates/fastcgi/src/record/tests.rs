use super::{Decoder, EMPTY_RECORDS_MAX, Header, ProtocolStatus, RecordError, RecordEvent, RecordKind};
use super::{encode_begin, encode_end, encode_stream};
use flatout_http::feed::assert_pieces_agree;
use proptest::prelude::*;

fn record(kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
    let header = Header { kind, request_id: id, content_bytes: content.len() as u16, padding_bytes: padding };
    [&header.encode()[..], content, &vec![0xaa; usize::from(padding)]].concat()
}

fn end(status: u8) -> Vec<u8> {
    record(3, 1, &[0, 0, 1, 2, status, 0, 0, 0], 0)
}

/// Stdout unchanged, and everything else as a word in brackets, so that pieces of one text are joined.
fn feed(decoder: &mut Decoder, input: &[u8], output: &mut Vec<u8>) -> Result<(usize, bool), RecordError> {
    let mut used = 0;
    while used < input.len() && !decoder.is_done() {
        let (count, event) = decoder.decode(&input[used..])?;
        used += count;
        match event {
            Some(RecordEvent::Stdout(bytes)) => output.extend_from_slice(bytes),
            Some(RecordEvent::Stderr(bytes)) => output.extend(bytes.iter().map(u8::to_ascii_uppercase)),
            Some(other) => output.extend_from_slice(format!("[{other:?}]").as_bytes()),
            None => {}
        }
    }
    Ok((used, decoder.is_done()))
}

/// The result of `bytes`, however they are divided.
fn decode(bytes: &[u8]) -> (String, Result<bool, RecordError>) {
    assert_pieces_agree(bytes, Decoder::default, feed);
    let mut output = Vec::new();
    let done = feed(&mut Decoder::default(), bytes, &mut output).map(|(_, done)| done);
    (String::from_utf8_lossy(&output).into_owned(), done)
}

#[test]
fn responses_decode_equally_however_they_are_split() {
    let answer = [
        record(6, 1, b"Status: 200\r\n", 3),
        record(7, 1, b"a warning", 7),
        record(6, 1, b"\r\nhello", 0),
        record(7, 1, b"", 0),
        record(6, 1, b"", 255),
        end(0),
    ]
    .concat();
    let (text, done) = decode(&answer);
    let expected = "Status: 200\r\nA WARNING\r\nhello[StderrEnd][StdoutEnd][End { app_status: 258, status: Complete }]";
    assert_eq!((text.as_str(), done), (expected, Ok(true)));
    // What lies behind the end is not used.
    let more = [end(0), b"more".to_vec()].concat();
    let (used, event) = Decoder::default().decode(&more).unwrap();
    assert_eq!((used, event), (16, Some(RecordEvent::End { app_status: 258, status: ProtocolStatus::Complete })));
}

#[test]
fn statuses_have_names() {
    for (status, expected) in [
        (0, ProtocolStatus::Complete),
        (1, ProtocolStatus::CannotMultiplex),
        (2, ProtocolStatus::Overloaded),
        (3, ProtocolStatus::UnknownRole),
    ] {
        assert_eq!(
            Decoder::default().decode(&end(status)).unwrap().1,
            Some(RecordEvent::End { app_status: 258, status: expected })
        );
    }
    assert_eq!(decode(&end(4)).1, Err(RecordError::EndMalformed));
}

#[test]
fn each_invalid_record_has_its_error() {
    let mut other = record(6, 1, b"x", 0);
    other[0] = 2;
    for (bytes, error) in [
        (other, RecordError::Version),
        (record(6, 2, b"x", 0), RecordError::RequestId),
        (record(6, 0, b"x", 0), RecordError::RequestId),
        (record(5, 1, b"x", 0), RecordError::Kind),
        (record(10, 1, b"x", 0), RecordError::Kind),
        (record(0, 1, b"", 0), RecordError::Kind),
        (record(3, 1, b"", 0), RecordError::EndMalformed),
        (record(3, 1, &[0; 9], 0), RecordError::EndMalformed),
        ([record(6, 1, b"", 0), record(6, 1, b"x", 0)].concat(), RecordError::AfterEnd),
        ([record(6, 1, b"", 0), record(6, 1, b"", 0)].concat(), RecordError::AfterEnd),
        (record(7, 1, b"", 0).repeat(EMPTY_RECORDS_MAX as usize + 1), RecordError::EmptyTooMany),
    ] {
        assert_eq!(decode(&bytes).1, Err(error), "{bytes:?}");
        assert!(!error.text().ends_with('.'));
    }
    assert_eq!(decode(&record(7, 1, b"", 9).repeat(EMPTY_RECORDS_MAX as usize)).1, Ok(false));
}

#[test]
fn sent_content_is_framed_in_records() {
    let mut output = Vec::new();
    encode_begin(true, &mut output);
    assert_eq!(output, [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
    output.clear();
    encode_begin(false, &mut output);
    assert_eq!(output[8..], [0, 1, 0, 0, 0, 0, 0, 0]);
    output.clear();
    encode_stream(RecordKind::Params, &vec![7; 70_000], &mut output);
    assert_eq!(output.len(), 70_000 + 16);
    assert_eq!(output[..8], [1, 4, 0, 1, 0xff, 0xff, 0, 0]);
    output.clear();
    encode_stream(RecordKind::Stdin, b"", &mut output);
    assert!(output.is_empty(), "an empty record would end the stream");
    encode_end(RecordKind::Stdin, &mut output);
    assert_eq!(output, [1, 5, 0, 1, 0, 0, 0, 0]);
}

proptest! {
    #[test]
    fn streams_round_trip(parts: Vec<(bool, Vec<u8>, u8)>) {
        let (mut bytes, mut stdout, mut stderr) = (Vec::new(), Vec::new(), Vec::new());
        for (is_out, content, padding) in parts.iter().filter(|(_, content, _)| !content.is_empty()) {
            bytes.extend(record(if *is_out { 6 } else { 7 }, 1, content, *padding));
            if *is_out { &mut stdout } else { &mut stderr }.extend_from_slice(content);
        }
        bytes.extend(end(0));
        let (mut decoder, mut rest) = (Decoder::default(), &bytes[..]);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        loop {
            let (used, event) = decoder.decode(rest).unwrap();
            rest = &rest[used..];
            match event {
                Some(RecordEvent::Stdout(part)) => out.extend_from_slice(part),
                Some(RecordEvent::Stderr(part)) => err.extend_from_slice(part),
                Some(RecordEvent::End { .. }) => break,
                other => prop_assert!(false, "{other:?}"),
            }
        }
        prop_assert!(decoder.is_done() && rest.is_empty());
        prop_assert_eq!((out, err), (stdout, stderr));
    }

    #[test]
    fn arbitrary_input_never_panics(bytes: Vec<u8>) {
        let _ = decode(&bytes);
    }
}
