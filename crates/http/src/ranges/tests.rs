use super::{
    ByteRange, PARTS_MAX, RangesDecision, Unranged, decide_ranges, format_part_head, format_parts_end, make_boundary,
};
use std::collections::HashSet;

fn decide(value: &str, length: u64) -> RangesDecision {
    decide_ranges(value.as_bytes(), length)
}

fn many(value: &str, length: u64) -> Vec<(u64, u64)> {
    match decide(value, length) {
        RangesDecision::Many(parts) => parts.as_slice().iter().map(|part| (part.first, part.last)).collect(),
        other => panic!("{value}: {other:?}"),
    }
}

#[test]
fn one_range_is_one_part() {
    let one = |first, last| RangesDecision::One(ByteRange { first, last });
    for (value, length, expected) in [
        ("bytes=0-0", 10, one(0, 0)),
        ("bytes=0-", 10, one(0, 9)),
        ("BYTES=2-5", 10, one(2, 5)),
        ("bytes=5-100", 10, one(5, 9)),
        ("bytes=-3", 10, one(7, 9)),
        ("bytes=-100", 10, one(0, 9)),
        ("bytes=5-99999999999999999999999", 10, one(5, 9)),
        ("bytes=10-", 10, RangesDecision::Unsatisfiable),
        ("bytes=99999999999999999999999-", 10, RangesDecision::Unsatisfiable),
        ("bytes=-0", 10, RangesDecision::Unsatisfiable),
        ("bytes=0-", 0, RangesDecision::Unsatisfiable),
        ("bytes=-1", 0, RangesDecision::Unsatisfiable),
        ("bytes=20-,30-,-0", 10, RangesDecision::Unsatisfiable),
        // Nearby ranges are joined, and ranges out of bounds are dropped.
        ("bytes=0-1,4-5", 10, one(0, 5)),
        ("bytes=0-1, 100-", 10, one(0, 1)),
        ("bytes=,0-1 ,\t,4-4,", 10, one(0, 4)),
        ("bytes=5-9,0-4", 10, one(0, 9)),
    ] {
        assert_eq!(decide(value, length), expected, "{value} of {length}");
    }
}

#[test]
fn what_is_malformed_is_ignored_as_a_whole() {
    for value in [
        "bytes=5-2",
        "bytes=0-1,5-2",
        "bytes=a-b",
        "bytes=0-1,x",
        "bytes=",
        "bytes=,",
        "bytes",
        "items=0-1",
        "bytes=-",
        "bytes=--1",
        "bytes=1 -2",
        "bytes=+1-2",
        "bytes= 0-1",
        "bytes=0-1 ",
        "bytes=0 -1",
        "bytes=0-1;2-3",
        "bytes =0-1",
        "=0-1",
        "",
    ] {
        assert_eq!(decide(value, 1000), RangesDecision::Whole(Unranged::Malformed), "{value}");
    }
}

#[test]
fn parts_keep_their_order_and_near_ones_are_joined() {
    assert_eq!(many("bytes=0-99,500-599", 10_000), [(0, 99), (500, 599)]);
    assert_eq!(many("bytes=500-599,0-99", 10_000), [(500, 599), (0, 99)]);
    assert_eq!(many("bytes=-100,0-99", 10_000), [(9900, 9999), (0, 99)]);
    // Ranges 80 bytes apart are joined; ranges 81 bytes apart are not.
    assert_eq!(decide("bytes=0-9,90-99", 10_000), RangesDecision::One(ByteRange { first: 0, last: 99 }));
    assert_eq!(many("bytes=0-9,91-99", 10_000), [(0, 9), (91, 99)]);
    // The last range bridges the two before it, and the joined part has the position of the first.
    assert_eq!(many("bytes=5000-5009,0-9,200-209,50-150", 10_000), [(5000, 5009), (0, 209)]);
    assert_eq!(many("bytes=200-209,5000-5009,0-9,50-150", 10_000), [(0, 209), (5000, 5009)]);
}

#[test]
fn abusive_ranges_get_the_whole_representation() {
    let spread = |count: u64| {
        let ranges: Vec<String> = (0..count).map(|index| format!("{}-{}", index * 1000, index * 1000)).collect();
        format!("bytes={}", ranges.join(","))
    };
    let whole = |reason| RangesDecision::Whole(reason);
    assert_eq!(many(&spread(PARTS_MAX as u64), 1_000_000).len(), PARTS_MAX);
    assert_eq!(decide(&spread(PARTS_MAX as u64 + 1), 1_000_000), whole(Unranged::TooMany));
    assert_eq!(decide(&spread(4000), 10_000_000), whole(Unranged::TooMany));
    let tiny: Vec<String> = (0..65).map(|index| format!("{index}-{index}")).collect();
    assert_eq!(decide(&format!("bytes={}", tiny.join(",")), 1_000_000), whole(Unranged::TooMany));
    // The "Apache killer" attack: the same bytes many times.
    assert_eq!(decide("bytes=0-,0-,0-,0-", 1_000_000), whole(Unranged::Overlapping));
    assert_eq!(decide("bytes=0-99,50-149,100-199,9000-9001", 1_000_000), decide("bytes=0-199,9000-9001", 1_000_000));
    assert_eq!(decide("bytes=0-499,520-899", 900), RangesDecision::One(ByteRange { first: 0, last: 899 }));
    // 800 bytes and two part heads of 80 bytes are 960 bytes.
    assert_eq!(decide("bytes=0-399,500-899", 960), whole(Unranged::NotSmaller));
    assert_eq!(many("bytes=0-399,500-899", 961), [(0, 399), (500, 899)]);
    assert_eq!(decide(&(spread(4000) + ",x"), 10_000_000), whole(Unranged::Malformed));
}

#[test]
fn heads_and_ends_of_parts() {
    let part = ByteRange { first: 5, last: 9 };
    let head = format_part_head("B", "Content-Type: text/plain\r\n", part, 20, true);
    assert_eq!(head, "--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 5-9/20\r\n\r\n");
    assert_eq!(format_part_head("B", "", part, 20, false), "\r\n--B\r\nContent-Range: bytes 5-9/20\r\n\r\n");
    assert_eq!(format_parts_end("B"), "\r\n--B--\r\n");
}

#[test]
fn boundaries_differ() {
    let seeds = [&b"a"[..], b"b", b"", b"3e8-0123456789abcdef"];
    let all: HashSet<String> =
        seeds.iter().flat_map(|seed| (0..1000).map(|counter| make_boundary(seed, counter))).collect();
    assert_eq!(all.len(), 4000);
    assert!(all.iter().all(|text| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())));
}
