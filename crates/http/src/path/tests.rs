use super::{
    PathFacts, Readings, append_local, decode_as, decode_path, decode_unusual, encode_location, is_ordinary,
    normalize_path, raw_offset, raw_part, resolve_dots,
};
use crate::refusal::Refusal;
use proptest::prelude::*;

fn decode(path: &str) -> Result<(String, PathFacts), Refusal> {
    let mut decoded = Vec::new();
    let facts = decode_path(path.as_bytes(), &mut decoded)?;
    Ok((String::from_utf8_lossy(&decoded).into_owned(), facts))
}

fn read(path: &str, readings: Readings) -> Result<String, Refusal> {
    let mut decoded = Vec::new();
    decode_as(path.as_bytes(), readings, &mut decoded)?;
    Ok(String::from_utf8_lossy(&decoded).into_owned())
}

#[test]
fn a_location_stays_on_its_site() {
    for (path, expected) in [
        ("/a/", "/a/"),
        ("//a.example/", "/a.example/"),
        ("/\\/a", "/a"),
        ("\\a", "/a"),
        ("a", "/a"),
        ("", "/"),
        ("/", "/"),
    ] {
        let mut location = Vec::new();
        append_local(path.as_bytes(), &mut location);
        assert_eq!(String::from_utf8(location).unwrap(), expected, "{path}");
    }
}

#[test]
fn a_location_is_a_uri() {
    let all = "/a\\b\"<>^`{|}\u{fc} \r\n%41%?x[]=1&#f";
    assert_eq!(encode_location(all.as_bytes()), "/a%5Cb%22%3C%3E%5E%60%7B%7C%7D%C3%BC%20%0D%0A%41%?x[]=1&#f");
}

#[test]
fn plain_and_encoded_names() {
    let none = PathFacts::default();
    assert_eq!(decode("/"), Ok((String::new(), none)));
    assert_eq!(decode("/a/b.html"), Ok(("a/b.html".into(), none)));
    assert_eq!(decode("/a/"), Ok(("a/".into(), none)));
    assert_eq!(decode("/%61%20%C3%BC"), Ok(("a \u{fc}".into(), none)));
    assert_eq!(decode("/%2561"), Ok(("%61".into(), none)));
    assert_eq!(decode("/a..b/c."), Ok(("a..b/c.".into(), none)));
    assert_eq!(decode("/100%/%zz/%4"), Ok(("100%/%zz/%4".into(), none)), "a percent sign may stand for itself");
}

#[test]
fn hidden_empty_and_slashed_names_are_marked() {
    assert!(decode("/.git/config").unwrap().1.hidden_segment);
    assert!(decode("/a/%2eb").unwrap().1.hidden_segment);
    assert!(decode("/...").unwrap().1.hidden_segment);
    assert!(decode("/a/.well-known").unwrap().1.hidden_segment);
    assert!(!decode("/.well-known/acme-challenge/x").unwrap().1.hidden_segment);
    assert!(decode("/.well-known/.x").unwrap().1.hidden_segment);
    assert!(!decode("/a/../.well-known/x").unwrap().1.hidden_segment);
    assert!(decode("/.well-known/../.env").unwrap().1.hidden_segment);
    assert!(!decode("/.git/../a").unwrap().1.hidden_segment, "what counts is where it leads");
    assert!(decode("//a").unwrap().1.empty_segment);
    assert!(decode("/a//").unwrap().1.empty_segment);
    assert!(decode("/a%2fb").unwrap().1.encoded_slash);
    assert_eq!(decode("/a%2fb/c").unwrap().0, "a\0b/c", "the slash belongs to its segment");
}

#[test]
fn dot_segments_are_resolved_in_every_encoding() {
    for (path, expected) in [
        ("/./a", "a"),
        ("/a/.", "a/"),
        ("/a/./", "a/"),
        ("/a/..", ""),
        ("/a/../b", "b"),
        ("/a/b/../..", ""),
        ("/a/b/..", "a/"),
        ("/a/b/../", "a/"),
        ("/a/%2e%2e/b", "b"),
        ("/a/%2E./b", "b"),
        ("/a/.%2e/b", "b"),
        ("/%2e", ""),
        ("/a//b", "a/b"),
        ("//a", "a"),
        ("/a//", "a/"),
        ("/a//../b", "b"),
        ("/a/b/../c/./d", "a/c/d"),
        ("/..a/...", "..a/..."),
    ] {
        assert_eq!(decode(path).map(|(decoded, _)| decoded), Ok(expected.to_owned()), "{path}");
        let normal = normalize_path(path.as_bytes());
        assert_eq!(decode(std::str::from_utf8(&normal).unwrap()).unwrap().0, expected, "{path}");
    }
    for path in ["/..", "/../", "/a/../..", "/a/../../b", "/%2e%2e/a", "/%2E./a", "/.%2e/a", "/./..", "//.."] {
        assert_eq!(decode(path), Err(Refusal::PathAboveRoot), "{path}");
    }
    assert_eq!(decode("/a%00b"), Err(Refusal::TargetNul));
}

#[test]
fn others_read_some_paths_differently() {
    use Readings as R;
    for (path, readings, expected) in [
        ("/a%2Fb", R::ENCODED_SLASH, Ok("a/b")),
        ("/a/..%2Fb", R::ENCODED_SLASH, Ok("b")),
        ("/..%2fb", R::ENCODED_SLASH, Err(Refusal::PathAboveRoot)),
        ("/a%2f%2fb", R::ENCODED_SLASH, Ok("a/b")),
        ("/a%5cb", R::ENCODED_BACKSLASH, Ok("a/b")),
        ("/a\\b", R::BACKSLASH, Ok("a/b")),
        ("/a\\..\\b", R::BACKSLASH, Ok("b")),
        ("/a%5cb\\c%2Fd", R::ENCODED_BACKSLASH.with(R::BACKSLASH), Ok("a/b/c\0d")),
        ("/a//../b", R::EMPTY_SEGMENTS, Ok("a/b")),
        ("/a;x/b;y=z", R::PARAMETERS, Ok("a/b")),
        ("/a/..;x/b", R::PARAMETERS, Ok("b")),
        ("/a;x%2Fb/c", R::PARAMETERS, Ok("a/c")),
        ("/a;x%2Fb", R::PARAMETERS.with(R::ENCODED_SLASH), Ok("a/b")),
        ("/a%3bx", R::PARAMETERS, Ok("a;x")),
        ("/a%", R::ENCODED_SLASH, Ok("a%")),
    ] {
        assert_eq!(read(path, readings), expected.map(str::to_owned), "{path}");
    }
    for (path, readings) in [
        ("/a/b?%", R::NONE),
        ("/a%2f/%5c", R::ENCODED_SLASH.with(R::ENCODED_BACKSLASH)),
        ("/a\\b;c", R::BACKSLASH.with(R::PARAMETERS)),
        ("/a//b", R::NONE),
        ("/a//../b", R::EMPTY_SEGMENTS),
        ("/a//..;/b", R::EMPTY_SEGMENTS.with(R::PARAMETERS)),
        ("/a/\\../b", R::EMPTY_SEGMENTS.with(R::BACKSLASH)),
    ] {
        assert_eq!(decode(path).unwrap().1.readings, readings, "{path}");
    }
    assert_eq!(R::ENCODED_SLASH.with(R::BACKSLASH).combinations().count(), 3);
    assert_eq!(R::NONE.combinations().count(), 0);
}

#[test]
fn offsets() {
    assert_eq!(raw_offset(b"/a%20b/c", 0), 1);
    assert_eq!(raw_offset(b"/a%20b/c", 2), 5);
    assert_eq!(raw_offset(b"/a%20b/c", 99), 8);
    assert_eq!(raw_offset(b"/%zz/c", 4), 5);
}

#[test]
fn a_part_of_a_path_is_what_was_sent() {
    for (path, decoded, start, expected) in [
        ("/a/b", "a/b", 1, "/b"),
        ("/%61/b", "a/b", 1, "/b"),
        ("/a", "a", 1, ""),
        ("/a/", "a/", 1, "/"),
        ("/a//", "a/", 1, "//"),
        ("/a//", "a/", 2, "/"),
        ("/a//b", "a/b", 1, "//b"),
        ("/a//b", "a/b", 2, "/b"),
        ("//a/b", "a/b", 1, "/b"),
        ("//a/b", "a/b", 0, "/a/b"),
        ("//a%2F//./b%20c", "a\0/b c", 2, "//./b%20c"),
        ("/x/../a/./b/..", "a/", 1, "/./b/.."),
        ("/a/../a/b", "a/b", 1, "/b"),
        ("/a/%2e%2E/a//b", "a/b", 1, "//b"),
        ("/x/..", "", 0, "x/.."),
        ("/", "", 0, ""),
    ] {
        assert_eq!(decode(path).unwrap().0, decoded, "{path}");
        let part = raw_part(path.as_bytes(), &(start..decoded.len()));
        assert_eq!(String::from_utf8_lossy(part), expected, "{path} from {start}");
    }
    assert_eq!(raw_part(b"/a//./b.jpg", &(2..3)), b"/./b", "a part may end within a segment");
    assert_eq!(raw_part(b"/x/a//", &(2..3)), b"a", "and before the slash after the last one");
}

#[test]
fn dot_segments_are_resolved_alone() {
    for (path, expected) in [
        ("/a//b", "/a//b"),
        ("/a//", "/a//"),
        ("/a//.", "/a//"),
        ("/./a//b", "/a//b"),
        ("//./a", "//a"),
        ("/x//../b//c", "/b//c"),
        ("/x//%2e%2e/..a", "/..a"),
        ("/a//b/..", "/a//"),
        ("/../a", "/a"),
    ] {
        assert_eq!(String::from_utf8_lossy(&resolve_dots(path.as_bytes())), expected, "{path}");
    }
}

proptest! {
    /// Without special interpretations, both decoders agree, and a normalised path decodes to the same form.
    #[test]
    fn one_form(path in "(/|\\.|%2e|%2f|%5c|\\\\|;|%|a){0,12}") {
        let path = format!("/{path}");
        let mut decoded = Vec::new();
        let facts = decode_path(path.as_bytes(), &mut decoded);
        let mut read = Vec::new();
        prop_assert_eq!(facts.map(|_| decoded.clone()), decode_as(path.as_bytes(), Readings::NONE, &mut read).map(|()| read));
        if facts.is_ok() {
            let normal = normalize_path(path.as_bytes()).into_owned();
            let mut again = Vec::new();
            let facts = decode_path(&normal, &mut again).unwrap();
            prop_assert!(!facts.dot_segment && !facts.empty_segment);
            prop_assert_eq!(raw_offset(&normal, again.len()), normal.len());
            prop_assert_eq!(&again, &decoded);
            let resolved = decode_path(&resolve_dots(path.as_bytes()), &mut again).unwrap();
            prop_assert!(!resolved.dot_segment);
            prop_assert_eq!(&again, &decoded);
            for start in (0..=decoded.len()).filter(|&at| at == 0 || decoded[at - 1] == b'/') {
                let part = raw_part(path.as_bytes(), &(start..decoded.len()));
                decode_path(&[b"/", part].concat(), &mut again).unwrap();
                prop_assert_eq!(&again, &decoded[start..], "from {}", start);
            }
        }
    }
}

#[test]
fn ordinary_paths_are_their_own_decoded_form() {
    const BYTES: &[u8] = b"a./%;\\5c";
    let mut ordinary = 0;
    for number in 0..BYTES.len().pow(5) {
        let digits = std::iter::successors(Some(number), |number| Some(number / BYTES.len()).filter(|rest| *rest > 0));
        let path: Vec<u8> = digits.map(|digit| BYTES[digit % BYTES.len()]).collect();
        if is_ordinary(&path) {
            ordinary += 1;
            let mut decoded = Vec::new();
            let facts = decode_unusual(&path, &mut decoded);
            assert_eq!((facts, &decoded), (Ok(PathFacts::default()), &path), "{}", String::from_utf8_lossy(&path));
        }
    }
    assert!(ordinary > 500, "{ordinary}");
}
