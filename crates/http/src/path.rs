//! From the path of a target to the names of files: percent-decoding, and the segments no path may have.

use crate::refusal::Refusal;
use crate::token::hex_value;
use memchr::memchr;

/// What a decoded path needs to know beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathFacts {
    /// A segment but the last is empty (`//`), so no file has this name.
    pub empty_segment: bool,
    /// A percent-encoded slash: it is part of a name, and no file's name can hold one.
    pub encoded_slash: bool,
    /// A segment begins with a dot, other than a first segment `.well-known` (RFC 8615).
    pub hidden_segment: bool,
}

/// Decodes `path`, which begins with `/` and holds valid percent-encodings only, into `decoded` without its first
/// slash. A segment `.` or `..`, however encoded, is refused: clients remove them (RFC 3986 §5.2.4), attackers send
/// them.
pub fn decode_path(path: &[u8], decoded: &mut Vec<u8>) -> Result<PathFacts, Refusal> {
    let mut facts = PathFacts::default();
    decoded.clear();
    let mut rest = path.strip_prefix(b"/").unwrap_or(path);
    while let Some(at) = memchr(b'%', rest) {
        let Some(&[high, low]) = rest.get(at + 1..at + 3) else { return Err(Refusal::PercentEncoding) };
        let (Some(high), Some(low)) = (hex_value(high), hex_value(low)) else { return Err(Refusal::PercentEncoding) };
        let byte = high << 4 | low;
        if byte == 0 {
            return Err(Refusal::TargetNul);
        }
        facts.encoded_slash |= byte == b'/';
        decoded.extend_from_slice(&rest[..at]);
        decoded.push(byte);
        rest = &rest[at + 3..];
    }
    decoded.extend_from_slice(rest);
    check_segments(decoded, &mut facts)?;
    Ok(facts)
}

/// Looks at the segments of a decoded path. An encoded slash counts as one here, lest it smuggle a dot segment past.
fn check_segments(decoded: &[u8], facts: &mut PathFacts) -> Result<(), Refusal> {
    let mut segments = decoded.split(|&byte| byte == b'/').peekable();
    let mut first = true;
    while let Some(segment) = segments.next() {
        match segment {
            b"." | b".." => return Err(Refusal::DotSegment),
            b".well-known" if first => {}
            [b'.', ..] => facts.hidden_segment = true,
            [] => facts.empty_segment |= segments.peek().is_some(),
            _ => {}
        }
        first = false;
    }
    Ok(())
}

/// Appends `path` as the path of a Location. Browsers take two slashes at its beginning, or what they think are slashes, for
/// another site's name (WHATWG URL, "special authority slashes state"), so there is one.
pub fn append_local(path: &[u8], out: &mut Vec<u8>) {
    let lead = path.iter().take_while(|byte| matches!(byte, b'/' | b'\\')).count();
    out.push(b'/');
    out.extend_from_slice(&path[lead..]);
}

#[cfg(test)]
mod tests {
    use super::{PathFacts, Refusal, append_local, decode_path};

    fn decode(path: &str) -> Result<(String, PathFacts), Refusal> {
        let mut decoded = Vec::new();
        let facts = decode_path(path.as_bytes(), &mut decoded)?;
        Ok((String::from_utf8_lossy(&decoded).into_owned(), facts))
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
    fn plain_and_encoded_names() {
        let none = PathFacts::default();
        assert_eq!(decode("/"), Ok((String::new(), none)));
        assert_eq!(decode("/a/b.html"), Ok(("a/b.html".into(), none)));
        assert_eq!(decode("/a/"), Ok(("a/".into(), none)));
        assert_eq!(decode("/%61%20%C3%BC"), Ok(("a \u{fc}".into(), none)));
        assert_eq!(decode("/%2561"), Ok(("%61".into(), none)));
        assert_eq!(decode("/a..b/c."), Ok(("a..b/c.".into(), none)));
    }

    #[test]
    fn hidden_empty_and_slashed_names_are_marked() {
        assert!(decode("/.git/config").unwrap().1.hidden_segment);
        assert!(decode("/a/%2eb").unwrap().1.hidden_segment);
        assert!(decode("/...").unwrap().1.hidden_segment);
        assert!(decode("/a/.well-known").unwrap().1.hidden_segment);
        assert!(!decode("/.well-known/acme-challenge/x").unwrap().1.hidden_segment);
        assert!(decode("/.well-known/.x").unwrap().1.hidden_segment);
        assert!(decode("//a").unwrap().1.empty_segment);
        assert!(decode("/a//").unwrap().1.empty_segment);
        assert!(decode("/a%2fb").unwrap().1.encoded_slash);
        assert!(decode("/a%2f.b").unwrap().1.hidden_segment);
    }

    #[test]
    fn climbing_is_refused_in_every_encoding() {
        for path in [
            "/..",
            "/../",
            "/a/..",
            "/a/../b",
            "/./a",
            "/a/.",
            "/%2e%2e/a",
            "/%2E./a",
            "/.%2e/a",
            "/%2e",
            "/..%2fa",
            "/a%2f..",
            "/a%2f..%2fb",
            "/a%2f%2e%2e%2fb",
            "/%2f..",
        ] {
            assert_eq!(decode(path), Err(Refusal::DotSegment), "{path}");
        }
        assert_eq!(decode("/a%00b"), Err(Refusal::TargetNul));
        assert_eq!(decode("/a%0"), Err(Refusal::PercentEncoding));
        assert_eq!(decode("/a%g0"), Err(Refusal::PercentEncoding));
    }
}
