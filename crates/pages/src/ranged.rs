//! Ranges of a page's complete response (RFC 9110 §14), for pages that have called `response.ranges`. The page produces
//! the whole content; only the range that the client requests is sent. A page that sets the status 206 or 416 itself has
//! evaluated the request's Range and If-Range, and its response stays as it is.
//!
//! Absent by design: several ranges in one response, for which the client gets the whole content (§14.2).

use crate::api::policy::forbid_storing;
use crate::exchange::Exchange;
use crate::page::Page;
use flatout_http::etag::ETag;
use flatout_http::ranges::{RangesDecision, decide_ranges};

/// Reduces the response in `exchange`, whose content is `length` bytes long, to the range that the request specifies.
/// Returns the length of the content that remains, in bytes.
pub(crate) fn apply(page: &Page, exchange: &mut Exchange, length: usize) -> usize {
    if !exchange.draft.ranges || exchange.draft.status != 200 {
        return length;
    }
    exchange.draft.set_field(b"Accept-Ranges", b"bytes");
    let facts = &exchange.facts;
    let Some(ranges) = facts.field("range").filter(|_| facts.method() == b"GET" && is_current(exchange)) else {
        return length;
    };
    match decide_ranges(ranges, length as u64) {
        RangesDecision::Whole(_) | RangesDecision::Many(_) => length,
        RangesDecision::One(range) => {
            let described = format!("bytes {}-{}/{length}", range.first, range.last);
            exchange.draft.status = 206;
            exchange.draft.set_field(b"Content-Range", described.as_bytes());
            exchange.output.keep_range(range.first as usize..range.last as usize + 1, |number| page.segment(number));
            range.len() as usize
        }
        RangesDecision::Unsatisfiable => {
            exchange.draft.status = 416;
            exchange.draft.set_field(b"Content-Range", format!("bytes */{length}").as_bytes());
            // The page's own policy applies to its content, not to this error.
            forbid_storing(&mut exchange.draft);
            exchange.output.clear();
            0
        }
    }
}

/// Returns whether If-Range permits Range (RFC 9110 §13.1.5): the field is absent, or has the strong entity tag that the
/// page has set. A date never permits it, because the page may have changed several times within one second.
fn is_current(exchange: &Exchange) -> bool {
    let Some(condition) = exchange.facts.field("if-range") else { return true };
    let own = exchange.draft.field(b"etag").and_then(ETag::parse);
    ETag::parse(condition).zip(own).is_some_and(|(one, other)| one.matches_strongly(&other))
}

#[cfg(test)]
mod tests {
    use super::apply;
    use crate::answer::length;
    use crate::exchange::Exchange;
    use crate::exchange::output::OutputPiece;
    use crate::page::Page;

    /// The status, Content-Range and content of the response to a request with these fields.
    fn answer(method: &str, fields: &[(&str, &str)], ranges: bool, status: u16) -> (u16, String, String) {
        let page = Page::of_segments(&["abc", "ghi"]);
        let mut exchange = Exchange::default();
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        exchange.facts.set(method, b"/", None, fields, None, false);
        exchange.draft.ranges = ranges;
        exchange.draft.status = status;
        exchange.draft.set_field(b"ETag", b"\"v1\"");
        exchange.draft.set_field(b"Cache-Control", b"max-age=3600");
        exchange.draft.set_field(b"CDN-Cache-Control", b"max-age=7200");
        exchange.output.segment(0);
        exchange.output.write(|out| out.extend_from_slice(b"def"));
        exchange.output.segment(1);
        let whole = length(&page, &exchange.output);
        let rest = apply(&page, &mut exchange, whole);
        let mut content = Vec::new();
        for piece in exchange.output.pieces() {
            content.extend_from_slice(match *piece {
                OutputPiece::Static(number) => page.segment(number),
                OutputPiece::Dynamic { start, end } => &exchange.output.dynamic()[start as usize..end as usize],
            });
        }
        assert_eq!((content.len(), length(&page, &exchange.output)), (rest, rest));
        assert_eq!(exchange.draft.field(b"accept-ranges").is_some(), ranges && status == 200);
        let policy: (&[u8], Option<&[u8]>) = match exchange.draft.status {
            416 => (b"no-store", None),
            _ => (b"max-age=3600", Some(b"max-age=7200")),
        };
        let field = |name: &[u8]| exchange.draft.field(name);
        assert_eq!((field(b"cache-control").unwrap_or_default(), field(b"cdn-cache-control")), policy);
        let described = exchange.draft.field(b"content-range").unwrap_or_default();
        (exchange.draft.status, String::from_utf8(described.to_vec()).unwrap(), String::from_utf8(content).unwrap())
    }

    #[test]
    fn a_range_of_the_content() {
        for (range, described, content) in [
            ("bytes=0-0", "bytes 0-0/9", "a"),
            ("bytes=0-8", "bytes 0-8/9", "abcdefghi"),
            ("bytes=1-1", "bytes 1-1/9", "b"),
            ("bytes=2-6", "bytes 2-6/9", "cdefg"),
            ("bytes=3-5", "bytes 3-5/9", "def"),
            ("bytes=4-", "bytes 4-8/9", "efghi"),
            ("bytes=-2", "bytes 7-8/9", "hi"),
            ("bytes=8-100", "bytes 8-8/9", "i"),
        ] {
            let expected = (206, described.to_owned(), content.to_owned());
            assert_eq!(answer("GET", &[("range", range)], true, 200), expected, "{range}");
        }
        let outside = (416, "bytes */9".to_owned(), String::new());
        assert_eq!(answer("GET", &[("Range", "bytes=9-")], true, 200), outside);
    }

    #[test]
    fn the_whole_content() {
        let range = ("Range", "bytes=1-2");
        for (method, fields, ranges, status) in [
            ("GET", &[][..], true, 200),
            ("GET", &[range], false, 200),
            ("GET", &[range], true, 404),
            ("GET", &[range], true, 206),
            ("HEAD", &[range], true, 200),
            ("POST", &[range], true, 200),
            ("GET", &[("Range", "lines=1-2")], true, 200),
            ("GET", &[range, ("If-Range", "\"v2\"")], true, 200),
            ("GET", &[range, ("If-Range", "W/\"v1\"")], true, 200),
            ("GET", &[range, ("If-Range", "Sun, 06 Nov 1994 08:49:37 GMT")], true, 200),
        ] {
            let expected = (status, String::new(), "abcdefghi".to_owned());
            assert_eq!(answer(method, fields, ranges, status), expected, "{method} {fields:?} {ranges}");
        }
        let same = answer("GET", &[range, ("If-Range", "\"v1\"")], true, 200);
        assert_eq!(same, (206, "bytes 1-2/9".to_owned(), "bc".to_owned()));
    }
}
