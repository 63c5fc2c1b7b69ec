//! Properties that hold for all inputs of a kind, checked with inputs generated and minimised by proptest.

use flatout_http::chunked::ChunkedDecoder;
use flatout_http::date::{format_date, parse_date};
use flatout_http::digest::choose_digest;
use flatout_http::encoding::{AcceptedCodings, ContentCoding};
use flatout_http::etag::{ETag, list_matches};
use flatout_http::head::FieldStorage;
use flatout_http::limits::Limits;
use flatout_http::path::{SLASH_IN_SEGMENT, decode_path};
use flatout_http::ranges::{ByteRange, PARTS_MAX, RangesDecision, decide_ranges};
use flatout_http::refusal::Refusal;
use flatout_http::request::parse_request_head;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

/// Encodes `content` with the chunked transfer coding, in chunks of the given sizes, each with an extension.
fn encode_chunked(content: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut encoded = Vec::new();
    let mut rest = content;
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let size = sizes.next().copied().unwrap_or(1).clamp(1, rest.len());
        encoded.extend_from_slice(format!("{size:X};n=\"v\"\r\n").as_bytes());
        encoded.extend_from_slice(&rest[..size]);
        encoded.extend_from_slice(b"\r\n");
        rest = &rest[size..];
    }
    encoded.extend_from_slice(b"0\r\nT: x\r\n\r\n");
    encoded
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_chunked_comes_back(content in vec(any::<u8>(), 0..600), sizes in vec(1_usize..200, 1..6), cut in 1_usize..64) {
        let encoded = encode_chunked(&content, &sizes);
        let mut decoder = ChunkedDecoder::new(&Limits { chunk_extension_bytes_max: u32::MAX, ..Limits::DEFAULT });
        let (mut decoded, mut used, mut done) = (Vec::new(), 0, false);
        while !done {
            let piece = &encoded[used..(used + cut).min(encoded.len())];
            let step = decoder.decode(piece).unwrap();
            decoded.extend_from_slice(&piece[step.data_start..][..step.data_bytes]);
            used += step.consumed;
            done = step.done;
        }
        prop_assert_eq!(decoded, content);
        prop_assert_eq!(used, encoded.len());
    }

    #[test]
    fn an_encoded_name_decodes_to_itself(name in vec(1_u8..=255, 1..40)) {
        let encoded: String = name.iter().map(|byte| format!("%{byte:02x}")).collect();
        let mut decoded = Vec::new();
        let facts = decode_path(format!("/{encoded}").as_bytes(), &mut decoded);
        let slashed = name.contains(&b'/');
        match &name[..] {
            b".." => prop_assert_eq!(facts, Err(Refusal::PathAboveRoot)),
            b"." => prop_assert_eq!(&decoded, b""),
            _ => {
                prop_assert_eq!(facts.unwrap().encoded_slash, slashed);
                let kept: Vec<u8> = name.iter().map(|&byte| if byte == b'/' { SLASH_IN_SEGMENT } else { byte }).collect();
                prop_assert_eq!(&decoded, &kept);
            }
        }
    }

    #[test]
    fn a_part_lies_within_and_is_what_was_asked(first in 0_u64..2000, more in 0_u64..2000, length in 0_u64..2000) {
        let last = first + more;
        let expected = if first >= length {
            RangesDecision::Unsatisfiable
        } else {
            RangesDecision::One(ByteRange { first, last: last.min(length - 1) })
        };
        prop_assert_eq!(decide_ranges(format!("bytes={first}-{last}").as_bytes(), length), expected);
    }

    #[test]
    fn parts_hold_what_was_asked_and_little_else(
        asked in vec((0_u64..6000, 0_u64..400), 1..12),
        length in 1_u64..5000,
    ) {
        let ranges: Vec<String> = asked.iter().map(|(first, more)| format!("{first}-{}", first + more)).collect();
        let wanted: Vec<(u64, u64)> = asked
            .iter()
            .filter(|(first, _)| *first < length)
            .map(|(first, more)| (*first, (first + more).min(length - 1)))
            .collect();
        let parts = match decide_ranges(format!("bytes={}", ranges.join(" ,")).as_bytes(), length) {
            RangesDecision::Unsatisfiable => {
                prop_assert!(wanted.is_empty());
                return Ok(());
            }
            RangesDecision::Whole(_) => return Ok(()),
            RangesDecision::One(part) => vec![part],
            RangesDecision::Many(parts) => parts.as_slice().to_vec(),
        };
        prop_assert!(!parts.is_empty() && parts.len() <= PARTS_MAX);
        for (first, last) in &wanted {
            prop_assert!(parts.iter().any(|part| part.first <= *first && *last <= part.last));
        }
        for (index, part) in parts.iter().enumerate() {
            prop_assert!(part.first <= part.last && part.last < length);
            let is_apart = |other: &ByteRange| other.last + 81 < part.first || part.last + 81 < other.first;
            prop_assert!(parts[..index].iter().all(is_apart));
            // The bounds of each part were requested, and no gap within it is too long to be joined.
            prop_assert!(wanted.iter().any(|(first, _)| *first == part.first));
            prop_assert!(wanted.iter().any(|(_, last)| *last == part.last));
            let mut within: Vec<_> = wanted.iter().filter(|(first, last)| part.first <= *first && *last <= part.last).collect();
            within.sort();
            let mut reached = part.first;
            for (first, last) in within {
                prop_assert!(*first <= reached + 81);
                reached = reached.max(*last);
            }
        }
    }

    #[test]
    fn no_bytes_trouble_the_list_readers(line in vec(any::<u8>(), 0..200), length in 0_u64..1000) {
        let _ = choose_digest([&line[..]]);
        let accepted = AcceptedCodings::parse([&line[..]]);
        if let Some(chosen) = accepted.choose(ContentCoding::ALL.iter().copied()) {
            prop_assert!(accepted.weight(chosen) > 0);
        }
        let _ = decide_ranges(&[b"bytes=", &line[..]].concat(), length);
    }

    #[test]
    fn dates_of_8000_years_come_back(seconds in 0_i64..253_402_300_800) {
        prop_assert_eq!(parse_date(&format_date(seconds)), Some(seconds));
    }

    #[test]
    fn every_tag_of_a_list_is_seen(tags in vec("[!#-~]{0,12}", 1..8), weak in vec(any::<bool>(), 8)) {
        let list: Vec<String> =
            tags.iter().zip(&weak).map(|(tag, weak)| format!("{}\"{tag}\"", if *weak { "W/" } else { "" })).collect();
        let mut seen = Vec::new();
        list_matches(list.join(" , ").as_bytes(), |tag| {
            seen.push(String::from_utf8_lossy(tag.opaque).into_owned());
            false
        });
        prop_assert_eq!(&seen, &tags);
        prop_assert!(list.iter().all(|text| ETag::parse(text.as_bytes()).is_some()));
    }

    #[test]
    fn any_field_of_the_grammar_is_read_whole(
        names in vec("[a-zA-Z0-9!#$%&'*+.^_`|~-]{1,20}", 0..20),
        value in "[ -~\u{80}-\u{ff}\t]{0,60}",
    ) {
        let lines: String = names.iter().map(|name| format!("X-{name}:{value}\r\n")).collect();
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let mut storage = FieldStorage::new();
        let head = parse_request_head(request.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap().unwrap();
        prop_assert_eq!(head.fields.len(), names.len() + 1);
        let expected = value.trim_matches([' ', '\t']).as_bytes();
        prop_assert!(head.fields.iter().skip(1).all(|(_, read)| read == expected));
    }
}
