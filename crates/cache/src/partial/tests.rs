use super::parse_content_range;
use crate::stored::Extent;

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
