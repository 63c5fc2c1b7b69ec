//! Input of the proxy from others: pages with ESI, references in them, links.

use flatout_config::model::{Origin, Proxy};
use flatout_handler::Request;
use flatout_handler::content::Offers;
use flatout_http::feed::assert_three_ways;
use flatout_http::head::{FieldStorage, parse_fields};
use flatout_http::limits::Limits;
use flatout_http::request::parse_request_head;
use flatout_http::target::{Target, parse_target};
use flatout_proxy::esi::token::read_token;
use flatout_proxy::esi::{Base, EsiLimits, Segment, parse, resolve};
use flatout_proxy::forward::{Passage, Strip, write_request_lines};
use flatout_proxy::hints::{BYTES_MAX, LINKS_MAX, early_links};

/// Pages, and references.
pub(crate) const ESI_SEEDS: &[&[u8]] = &[
    b"a<esi:include src=\"/b?c&amp;d\" alt='/e' onerror=\"continue\"/>f<esi:comment text='g'/>",
    b"<esi:try><esi:attempt>a<esi:include src='/b'/></esi:attempt><esi:except>c</esi:except></esi:try>",
    b"<!--esi a<esi:remove><img></esi:remove>--><!--esidebar--></esi:include>",
    b"http://a.example:80/b/../%2e%2e/c?d#e",
    b"//a.example/../..",
];

/// Requests whose fields are passed on.
pub(crate) const FORWARD_SEEDS: &[&[u8]] = &[
    b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: x-b, close\r\nX-B: c\r\nX_Forwarded_For: d\r\nTE: trailers\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\nMax-Forwards: 7\r\nVia: 1.1 flatout\r\nX-Forwarded-For: 1\r\n\r\n",
    b"GET http://b/ HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\nKeep-Alive: 5\r\nProxy: x\r\n\r\n",
];

/// Link fields.
pub(crate) const LINK_SEEDS: &[&[u8]] = &[
    b"</a,b>; title=\"x\\\", <y>\"; rel=preload, </c>;rel=\"next preconnect\" ;as=style",
    b"<https://a>;rel=dns-prefetch,,",
];

/// Small, so that mutated pages reach them.
const LIMITS: EsiLimits =
    EsiLimits { page_bytes_max: 600, tag_bytes_max: 64, tags_max: 12, includes_max: 3, depth_max: 2, nesting_max: 2 };

/// Tokens do not depend on how a page was cut; literals are parts of the page, in order; references stay on their host.
pub(crate) fn check_esi(bytes: &[u8]) {
    for in_comment in [false, true] {
        assert_three_ways(bytes, |bytes| {
            read_token(bytes, in_comment, &LIMITS).map(|read| read.map(|(token, used)| (format!("{token:?}"), used)))
        });
    }
    let page = parse(bytes, &LIMITS);
    assert!(page.includes <= LIMITS.includes_max);
    let mut end = 0;
    check_segments(&page.segments, bytes.len(), &mut end);
    if let Some((_, at)) = page.error {
        assert!(at == bytes.len() || end == bytes.len(), "the rest of the page is lost");
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_reference(text);
    }
}

fn check_segments(segments: &[Segment], page_bytes: usize, end: &mut usize) {
    for segment in segments {
        match segment {
            Segment::Literal(range) => {
                assert!(*end <= range.start && range.start < range.end && range.end <= page_bytes);
                *end = range.end;
            }
            Segment::Include(include) => check_reference(&include.src),
            Segment::Try { attempt, except } => {
                let (mut one, mut other) = (*end, *end);
                check_segments(attempt, page_bytes, &mut one);
                check_segments(except, page_bytes, &mut other);
                *end = one.max(other);
            }
        }
    }
}

fn check_reference(src: &str) {
    let base = Base { secure: false, authority: b"a.example", path: b"/b/c", query: Some(b"d") };
    if let Ok(target) = resolve(src, &base) {
        let parsed = parse_target(b"GET", target.as_bytes());
        assert!(matches!(parsed, Ok(Target::Resource { .. })), "{target}");
    }
}

/// Links are parts of the field, few, and fit for a line.
pub(crate) fn check_links(bytes: &[u8]) {
    let links = early_links([bytes, bytes].into_iter());
    assert!(links.len() <= LINKS_MAX && links.iter().map(String::len).sum::<usize>() <= BYTES_MAX);
    for link in links {
        assert!(link.starts_with('<') && link.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        assert!(bytes.windows(link.len()).any(|window| window == link.as_bytes()));
    }
}

/// A request to an origin has a valid field section again, with one Host and nothing of the client's connection.
pub(crate) fn check_forward(bytes: &[u8]) {
    let mut storage = FieldStorage::new();
    let Ok(Some(head)) = parse_request_head(bytes, &Limits::DEFAULT, &mut storage) else { return };
    let settings = Proxy { request_fields: Vec::new(), ..Proxy::default() };
    let origin = Origin { secure: false, host: "o".to_owned(), port: 80, weight: 1, backup: false };
    let offers = Offers::new();
    let request = Request { head: &head, client: None, unix: false, secure: false, listener: 0, offers: &offers };
    let passage = Passage { origin: &origin, loop_mark: "flatout;id=0", strip: Strip::NOTHING, extra: b"" };
    let mut lines = Vec::new();
    if write_request_lines(&request, &settings, &passage, &mut lines).is_err() {
        return;
    }
    lines.extend_from_slice(b"\r\n");
    let limits = Limits { fields_max: Limits::DEFAULT.fields_max + 8, ..Limits::DEFAULT };
    let mut storage = FieldStorage::new();
    let fields = parse_fields(&lines, &limits, &mut storage);
    assert!(fields.is_ok_and(|fields| {
        // RFC 9110 §10.1.4: TE is a field of the connection.
        let names_te = |value: &[u8]| value.eq_ignore_ascii_case(b"te");
        let absent = ["keep-alive", "upgrade", "http2-settings", "proxy", "content-length", "expect"];
        fields.all("host").count() == 1
            && fields.first("connection").is_none_or(names_te)
            && absent.iter().all(|name| fields.first(name).is_none())
    }));
}
