use super::{
    Held, JOINED_BYTES_MAX, MISSING_MAX, PARTS_MAX, PlacedContent, Stretch, are_combinable, combine, cover, cut_short,
    decide_placing, make_if_range, part_of, whole_of,
};
use crate::lines::with_fields;
use crate::rules::Rules;
use crate::storable::tests::stored_with;
use crate::stored::{Extent, Stored};
use flatout_http::ranges::ByteRange;
use proptest::prelude::*;

fn part(first: u64, last: u64, total: &str, validator: &str) -> Stored {
    let lines = format!(
        "Cache-Control: max-age=60\r\nContent-Range: bytes {first}-{last}/{total}\r\n{validator}Content-Length: {}\r\n",
        last - first + 1
    );
    stored_with("Range: bytes=0-\r\n", 206, &lines, &Rules::default())
}

const TAG: &str = "ETag: \"x\"\r\n";

fn range(first: u64, last: u64) -> ByteRange {
    ByteRange { first, last }
}

fn place(held: &[Stored], new: Stored) -> super::Placing {
    let held: Vec<_> = held.iter().map(|stored| Held { stored, is_inline: true }).collect();
    decide_placing(&held, new, true)
}

/// RFC 9111 §3.4, RFC 9110 §15.3.7.3.
#[test]
fn the_newer_part_describes_the_whole() {
    let old = part(0, 4, "10", &format!("{TAG}Age: 30\r\nContent-Language: de\r\nX-Part: old\r\n"));
    let new = part(5, 9, "10", &format!("{TAG}X-Part: new\r\n"));
    let whole = combine(&old, &new);
    assert_eq!((whole.status, whole.extent), (200, Extent::Whole));
    assert!(whole.initial_age_s == new.initial_age_s && whole.initial_age_s < old.initial_age_s);
    let lines = String::from_utf8_lossy(&whole.lines);
    assert!(lines.contains("X-Part: new") && lines.contains("content-language: de") && !lines.contains("old"));
}

/// RFC 9111 §3.4: nothing is combined without one strong validator.
#[test]
fn only_parts_of_one_representation_are_combined() {
    let combines = |one: &str, other: &str| {
        let (one, other) = (part(0, 4, "10", one), part(5, 9, "10", other));
        let placing = place(std::slice::from_ref(&one), other.clone());
        let combines = are_combinable(&one, &other);
        assert_eq!(placing.content != PlacedContent::New, combines);
        combines
    };
    let date = "Last-Modified: Sun, 06 Nov 1994 07:49:37 GMT\r\n";
    assert!(combines(TAG, TAG) && combines(date, date));
    assert!(combines("ETag: \"x\"\r\nContent-Encoding: br\r\n", "ETag: \"x\"\r\nContent-Encoding: br\r\n"));
    for (one, other) in [
        ("", ""),
        (TAG, "ETag: \"y\"\r\n"),
        ("ETag: W/\"x\"\r\n", "ETag: W/\"x\"\r\n"),
        (TAG, "ETag: W/\"x\"\r\n"),
        (TAG, date),
        (date, "Last-Modified: Sun, 06 Nov 1994 07:49:36 GMT\r\n"),
        // As new as the response itself: it may have changed within that second (RFC 9110 §8.8.2.2).
        ("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"),
        (TAG, "ETag: \"x\"\r\nContent-Encoding: br\r\n"),
        (TAG, "ETag: \"x\"\r\nVary: Foo\r\n"),
        // Anyone who may have the new one may not have the old one.
        (TAG, "ETag: \"x\"\r\nCache-Control: public\r\n"),
    ] {
        assert!(!combines(one, other), "{one} and {other}");
    }
    assert!(!are_combinable(&part(0, 4, "10", TAG), &part(5, 9, "11", TAG)));
    assert!(!are_combinable(&part(0, 4, "*", TAG), &part(5, 9, "*", TAG)));
}

#[test]
fn if_range_names_the_strong_validator() {
    let line = |part: &Stored| String::from_utf8(make_if_range(part).0).unwrap();
    assert_eq!(line(&part(0, 4, "10", TAG)), "If-Range: \"x\"\r\n");
    let date = "Last-Modified: Sun, 06 Nov 1994 07:49:37 GMT\r\n";
    assert_eq!(line(&part(0, 4, "10", date)), "If-Range: Sun, 06 Nov 1994 07:49:37 GMT\r\n");
    assert_eq!(line(&part(0, 4, "10", "")), "");
}

/// Fields that a 206 to If-Range leaves out are taken from the other parts.
#[test]
fn descriptions_of_the_representation_stay() {
    let old = part(0, 4, "10", "ETag: \"x\"\r\nContent-Type: text/plain\r\nContent-Language: en\r\n");
    let new = part(7, 9, "10", "ETag: \"x\"\r\nContent-Language: de\r\n");
    let placed = place(&[old], new).stored;
    let value = |name: &str| with_fields(&placed.lines, |fields| fields.first(name).map(<[u8]>::to_vec)).unwrap();
    assert_eq!(value("content-type").as_deref(), Some(&b"text/plain"[..]));
    assert_eq!(value("content-language").as_deref(), Some(&b"de"[..]));
}

#[test]
fn the_beginning_of_a_truncated_response_is_a_part() {
    let whole = |validator: &str| {
        let lines = format!("Cache-Control: max-age=60\r\n{validator}Content-Length: 10\r\n");
        stored_with("", 200, &lines, &Rules::default())
    };
    let extent = |stored: &Stored, length, bytes| cut_short(stored, length, bytes).map(|cut| (cut.status, cut.extent));
    let of = |first, last| Some((206, Extent::Part { first, last, total: Some(10) }));
    assert_eq!(extent(&whole(TAG), Some(10), 4), of(0, 3));
    assert_eq!(extent(&part(3, 9, "10", TAG), Some(7), 2), of(3, 4));
    for (stored, length, bytes) in [
        (whole(TAG), Some(10), 0),
        (whole(TAG), Some(10), 10),
        (whole(TAG), Some(10), 11),
        (whole(TAG), None, 4),
        (whole(""), Some(10), 4),
        (part(3, 9, "*", TAG), Some(7), 2),
    ] {
        assert_eq!(extent(&stored, length, bytes), None, "{stored:?}");
    }
}

/// However many parts a client requests, and in whatever order, at most the maximum is stored.
#[test]
fn the_number_of_parts_is_bounded() {
    let mut held: Vec<Stored> = Vec::new();
    for number in 0..PARTS_MAX as u64 + 50 {
        // Far apart, so that nothing is joined.
        let first = (number * 7919 % 10_007) * 80_000;
        let placing = place(&held, part(first, first + 9, "900000000", TAG));
        let mut index = 0;
        held.retain(|_| {
            index += 1;
            !placing.superseded.contains(&(index - 1))
        });
        held.insert(0, placing.stored);
        assert!(held.len() <= PARTS_MAX);
    }
    assert_eq!(held.len(), PARTS_MAX);
}

#[test]
fn few_stretches_are_requested() {
    let parts: Vec<_> = (0..100).map(|number| range(number * 10, number * 10 + 4)).collect();
    let stretches = cover(&parts, range(0, 999));
    let missing = stretches.iter().filter(|stretch| matches!(stretch, Stretch::Missing(_)));
    assert_eq!(missing.count(), MISSING_MAX);
    assert_eq!(stretches.last(), Some(&Stretch::Missing(range(15 * 10 + 5, 999))));
}

proptest! {
    /// The plan covers the whole range in order, each piece from a part that has it; no part has a missing piece.
    #[test]
    fn stretches_are_all_that_is_wanted(
        parts in prop::collection::vec((0_u64..60, 1_u64..12), 0..8),
        first in 0_u64..60,
        length in 1_u64..40,
    ) {
        let parts: Vec<_> = parts.iter().map(|(first, length)| range(*first, first + length - 1)).collect();
        let wanted = range(first, first + length - 1);
        let mut at = first;
        for stretch in cover(&parts, wanted) {
            let part = match stretch {
                Stretch::Held { index, part } => {
                    prop_assert!(parts[index].first <= part.first && part.last <= parts[index].last);
                    part
                }
                Stretch::Missing(part) => {
                    let has = |other: &ByteRange| other.first <= part.last && part.first <= other.last;
                    prop_assert!(!parts.iter().any(has));
                    part
                }
            };
            prop_assert!(part.first == at && part.last >= part.first);
            at = part.last + 1;
        }
        prop_assert_eq!(at, wanted.last + 1);
    }

    /// However parts arrive, the stored bytes equal those of the representation, and no received byte is missing.
    #[test]
    fn joined_content_is_the_wholes(
        ranges in prop::collection::vec((0_u64..30, 1_u64..12), 1..12),
        inline in prop::collection::vec(any::<bool>(), 12),
    ) {
        let whole: Vec<u8> = (0..40).collect();
        let bytes = |part: ByteRange| whole[part.first as usize..=part.last as usize].to_vec();
        let all = range(0, 39);
        let mut held: Vec<(Stored, Vec<u8>, bool)> = Vec::new();
        for ((first, length), is_inline) in ranges.into_iter().zip(inline) {
            let new = part(first, (first + length - 1).min(39), "40", TAG);
            let new_part = part_of(&new).unwrap();
            let views: Vec<_> =
                held.iter().map(|(stored, _, is_inline)| Held { stored, is_inline: *is_inline }).collect();
            let placing = decide_placing(&views, new, is_inline);
            let place = |index: Option<usize>| {
                index.map_or((new_part, bytes(new_part)), |index| {
                    (part_of(&held[index].0).unwrap_or(all), held[index].1.clone())
                })
            };
            let (content, inline_now) = match &placing.content {
                PlacedContent::New => (place(None).1, is_inline),
                PlacedContent::Held(index) => (place(Some(*index)).1, held[*index].2),
                PlacedContent::Joined(pieces) => {
                    let mut content = Vec::new();
                    for piece in pieces {
                        let (of, bytes) = place(piece.from);
                        prop_assert!(piece.from.is_none_or(|index| held[index].2) && is_inline);
                        let (from, to) = (piece.part.first - of.first, piece.part.last - of.first);
                        content.extend_from_slice(&bytes[from as usize..=to as usize]);
                    }
                    (content, true)
                }
            };
            let placed = part_of(&placing.stored).unwrap_or(all);
            prop_assert_eq!(&content, &bytes(placed));
            prop_assert!(content.len() as u64 <= JOINED_BYTES_MAX);
            prop_assert_eq!(placing.stored.status, if placing.stored.extent == Extent::Whole { 200 } else { 206 });
            let replaced = if let PlacedContent::Held(index) = placing.content { Some(index) } else { None };
            let mut index = 0;
            held.retain(|_| {
                index += 1;
                !placing.superseded.contains(&(index - 1)) && replaced != Some(index - 1)
            });
            held.insert(0, (placing.stored, content, inline_now));
            let parts: Vec<_> = held.iter().map(|(stored, ..)| part_of(stored).unwrap_or(all)).collect();
            let is_held = cover(&parts, new_part).iter().all(|stretch| matches!(stretch, Stretch::Held { .. }));
            prop_assert!(is_held);
            prop_assert!(held.iter().all(|(stored, ..)| stored.extent == Extent::Whole || whole_of(stored).is_some()));
        }
    }
}
