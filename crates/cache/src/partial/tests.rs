use super::{Joining, decide_joining, make_completion, parse_content_range};
use crate::rules::Rules;
use crate::storable::tests::stored_with;
use crate::stored::{Extent, Stored};
use proptest::prelude::*;

fn part(first: u64, last: u64, total: &str, validator: &str) -> Stored {
    let lines = format!(
        "Cache-Control: max-age=60\r\nContent-Range: bytes {first}-{last}/{total}\r\n{validator}Content-Length: {}\r\n",
        last - first + 1
    );
    stored_with("Range: bytes=0-\r\n", 206, &lines, &Rules::default())
}

const TAG: &str = "ETag: \"x\"\r\n";

#[test]
fn content_ranges() {
    let part = |first, last, total| Some(Extent::Part { first, last, total });
    for (value, expected) in [
        ("bytes 0-0/1", part(0, 0, Some(1))),
        ("bytes 5-9/*", part(5, 9, None)),
        ("BYTES 5-9/10", part(5, 9, Some(10))),
        ("bytes 9-5/10", None),
        ("bytes 5-10/10", None),
        ("bytes */10", None),
        ("bytes 5-/10", None),
        ("bytes 5-9/", None),
        ("bytes=5-9/10", None),
        ("bytes  5-9/10", None),
        ("bytes 5-9/10 ", None),
        ("bytes 0-18446744073709551615/*", None),
        ("bytes 0-99999999999999999999999/*", None),
        ("bytes", None),
        ("", None),
    ] {
        assert_eq!(parse_content_range(value.as_bytes()), expected, "{value}");
    }
}

/// RFC 9111 §3.4: nothing is joined without one strong validator.
#[test]
fn only_what_is_one_representation_is_joined() {
    let joins = |one: &str, other: &str| {
        matches!(decide_joining(&part(0, 4, "10", one), &part(5, 9, "10", other)), Joining::Joined { .. })
    };
    let date = "Last-Modified: Sun, 06 Nov 1994 07:49:37 GMT\r\n";
    assert!(joins(TAG, TAG) && joins(date, date));
    assert!(joins("ETag: \"x\"\r\nContent-Encoding: br\r\n", "ETag: \"x\"\r\nContent-Encoding: br\r\n"));
    for (one, other) in [
        ("", ""),
        (TAG, "ETag: \"y\"\r\n"),
        ("ETag: W/\"x\"\r\n", "ETag: W/\"x\"\r\n"),
        (TAG, "ETag: W/\"x\"\r\n"),
        (TAG, date),
        (date, "Last-Modified: Sun, 06 Nov 1994 07:49:36 GMT\r\n"),
        // As new as the answer itself: it may have changed within that second (RFC 9110 §8.8.2.2).
        ("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"),
        (TAG, "ETag: \"x\"\r\nContent-Encoding: br\r\n"),
    ] {
        assert!(!joins(one, other), "{one} and {other}");
    }
    assert_eq!(decide_joining(&part(0, 4, "10", TAG), &part(5, 9, "11", TAG)), Joining::Replace);
}

#[test]
fn completions() {
    let ask = |part: &Stored| make_completion(part).map(|lines| String::from_utf8(lines.0).unwrap());
    assert_eq!(ask(&part(0, 4, "10", TAG)).unwrap(), "Range: bytes=5-\r\nIf-Range: \"x\"\r\n");
    assert_eq!(ask(&part(5, 9, "10", TAG)).unwrap(), "Range: bytes=0-4\r\nIf-Range: \"x\"\r\n");
    assert_eq!(ask(&part(3, 6, "10", TAG)), None);
    assert_eq!(ask(&part(0, 4, "10", "")), None);
    let dated = part(0, 4, "*", "Last-Modified: Sun, 06 Nov 1994 07:49:37 GMT\r\n");
    assert_eq!(ask(&dated).unwrap(), "Range: bytes=5-\r\nIf-Range: Sun, 06 Nov 1994 07:49:37 GMT\r\n");
}

proptest! {
    /// However parts come, what is joined is what the whole has there.
    #[test]
    fn joined_content_is_the_wholes(ranges in prop::collection::vec((0_u64..30, 1_u64..12), 1..8)) {
        let whole: Vec<u8> = (0..40).collect();
        let bytes = |extent: Extent| match extent {
            Extent::Whole => whole.clone(),
            Extent::Part { first, last, .. } => whole[first as usize..=last as usize].to_vec(),
        };
        let mut held: Option<(Stored, Vec<u8>)> = None;
        for (first, length) in ranges {
            let new = part(first, (first + length - 1).min(39), "40", TAG);
            let new_bytes = bytes(new.extent);
            held = Some(match held {
                None => (new, new_bytes),
                Some((old, old_bytes)) => match decide_joining(&old, &new) {
                    Joining::Replace => (new, new_bytes),
                    Joining::Contained(stored) => (*stored, old_bytes),
                    Joining::Joined { stored, old_first, overlap_bytes } => {
                        let (one, two) = if old_first { (old_bytes, new_bytes) } else { (new_bytes, old_bytes) };
                        (*stored, [&one[..], &two[overlap_bytes as usize..]].concat())
                    }
                },
            });
            let (stored, content) = held.as_ref().unwrap();
            prop_assert_eq!(content, &bytes(stored.extent));
            prop_assert_eq!(stored.status, if stored.extent == Extent::Whole { 200 } else { 206 });
        }
    }
}
