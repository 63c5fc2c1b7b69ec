use super::token::{Element, EsiToken, read_token};
use super::{Base, EsiError, EsiLimits, EsiTemplate, Include, Segment, is_asked_for, parse, resolve};
use flatout_http::feed::assert_three_ways;
use flatout_http::head::{Fields, Header};
use proptest::prelude::{prop_assert, proptest};
use std::fmt::Write as _;

const LIMITS: EsiLimits = EsiLimits { tag_bytes_max: 64, tags_max: 24, includes_max: 4, ..EsiLimits::DEFAULT };

/// A page as one line: literals unchanged, `{src|alt|continue}`, `[attempt/except]`; then the error, and the rest.
fn shown(page: &str) -> String {
    let parsed = parse(page.as_bytes(), &LIMITS);
    let mut text = String::new();
    show(page, &parsed.segments, &mut text);
    if let Some((error, at)) = parsed.error {
        assert!(text.ends_with(&page[at..]));
        text.truncate(text.len() - page[at..].len());
        write!(text, " !{} {:?}", error.name(), &page[at..]).unwrap();
    }
    text
}

fn show(page: &str, segments: &[Segment], text: &mut String) {
    for segment in segments {
        match segment {
            Segment::Literal(range) => text.push_str(&page[range.clone()]),
            Segment::Include(Include { src, alt, continue_on_error }) => {
                let alt = alt.as_ref().map(|alt| format!("|{alt}")).unwrap_or_default();
                let end = if *continue_on_error { "|continue" } else { "" };
                write!(text, "{{{src}{alt}{end}}}").unwrap();
            }
            Segment::Try { attempt, except } => {
                text.push('[');
                show(page, attempt, text);
                text.push('/');
                show(page, except, text);
                text.push(']');
            }
        }
    }
}

const PAGES: &[(&str, &str)] = &[
    ("", ""),
    ("plain <b>text</b> <!-- and --> more", "plain <b>text</b> <!-- and --> more"),
    ("a<esi:include src=\"/b\"/>c", "a{/b}c"),
    ("<esi:include src='/b' />", "{/b}"),
    ("<esi:include\n  src = \"/b\"\n  alt='/c'\n  onerror=\"continue\"\n/>", "{/b|/c|continue}"),
    ("<esi:include src=\"/b\"></esi:include>c", "{/b}c"),
    ("<esi:include src=\"/b\">c", "{/b}c"),
    ("<esi:include src=\"/b\" onerror=\"fail\" maxwait='5' x:y=\"\"/>", "{/b}"),
    ("<esi:include src=\"/a>b\"/>c", "{/a>b}c"),
    ("<esi:include src=\"/?a=1&amp;b=&#50;&#x33;&lt;&gt;&quot;&apos;\"/>", "{/?a=1&b=23<>\"'}"),
    ("<esi:include src=\"/?a&b=1&amp&unknown;&#xD800;&#;&#+5;&\"/>", "{/?a&b=1&amp&unknown;&#xD800;&#;&#+5;&}"),
    ("a<esi:comment text=\"x\"/>b<esi:comment text='y'></esi:comment>c", "abc"),
    ("a<esi:remove><img><esi:include src=\"/x\"/></esi:remove>b", "ab"),
    ("a<esi:remove/>b", "ab"),
    ("a<!--esi b<esi:include src=\"/c\"/>d -->e", "ab{/c}d e"),
    ("a<!--esi\n-->b", "ab"),
    ("<!--esidebar --> <!-- esi --> -->", "<!--esidebar --> <!-- esi --> -->"),
    ("<!--esi a <!-- b -->c", "a <!-- b c"),
    ("<!--esi <esi:remove>-->x</esi:remove>y-->z", "yz"),
    (
        "<esi:try><esi:attempt>a{<esi:include src=\"/b\"/></esi:attempt><esi:except>c</esi:except></esi:try>d",
        "[a{{/b}/c]d",
    ),
    ("<esi:try> x <esi:except>c</esi:except> y <esi:attempt/> </esi:try>", "[/c]"),
    (
        "<esi:try><esi:attempt><esi:try><esi:attempt>a</esi:attempt><esi:except>b</esi:except></esi:try></esi:attempt>\
      <esi:except>c</esi:except></esi:try>",
        "[[a/b]/c]",
    ),
    ("<esi:try><esi:attempt><!--esi a --></esi:attempt><esi:except/></esi:try>", "[a /]"),
    ("<es", "<es"),
    ("a < b <e <esi <ESI:include src=\"/b\"/> </esi", "a < b <e <esi <ESI:include src=\"/b\"/> </esi"),
    // What is wrong, from where, and that all before it stands.
    ("a<esi:include src=\"/b\"/>c<esi:include src=\"/d", "a{/b}c !esi_tag_unclosed \"<esi:include src=\\\"/d\""),
    ("a<esi:", "a !esi_tag_unclosed \"<esi:\""),
    ("a<esi:vars>b", "a !esi_element_unknown \"<esi:vars>b\""),
    ("a</esi:choose>b", "a !esi_element_unknown \"</esi:choose>b\""),
    ("a<esi:>b", "a !esi_element_unknown \"<esi:>b\""),
    ("a<esi:include/>b", "a !esi_src_missing \"<esi:include/>b\""),
    ("a<esi:include src=\"\"/>b", "a !esi_src_missing \"<esi:include src=\\\"\\\"/>b\""),
    ("a<esi:include src=/b />", "a !esi_attribute_invalid \"<esi:include src=/b />\""),
    ("a<esi:include src/>", "a !esi_attribute_invalid \"<esi:include src/>\""),
    ("a<esi:include =\"b\"/>", "a !esi_attribute_invalid \"<esi:include =\\\"b\\\"/>\""),
    ("a<esi:include src='/b'alt='/c'/>", "a !esi_attribute_invalid \"<esi:include src='/b'alt='/c'/>\""),
    ("a<esi:include src='/b' src='/c'/>", "a !esi_attribute_invalid \"<esi:include src='/b' src='/c'/>\""),
    ("a<esi:comment x/>", "a !esi_attribute_invalid \"<esi:comment x/>\""),
    ("a<esi:include_x src='/b'/>", "a !esi_tag_invalid \"<esi:include_x src='/b'/>\""),
    ("a</esi:try x>", "a !esi_tag_invalid \"</esi:try x>\""),
    ("a</esi:try>", "a !esi_element_misplaced \"</esi:try>\""),
    ("a</esi:remove>", "a !esi_element_misplaced \"</esi:remove>\""),
    ("a<esi:attempt>b", "a !esi_element_misplaced \"<esi:attempt>b\""),
    ("<esi:try><esi:include src='/b'/>", " !esi_element_misplaced \"<esi:try><esi:include src='/b'/>\""),
    ("<esi:try><esi:attempt>a</esi:try>", " !esi_element_misplaced \"<esi:try><esi:attempt>a</esi:try>\""),
    ("a<!--esi b<!--esi c--> d-->", "ab !esi_element_misplaced \"<!--esi c--> d-->\""),
    ("a<!--esi b<esi:try>--></esi:try>", "ab !esi_element_misplaced \"<esi:try>--></esi:try>\""),
    (
        "a<esi:try><esi:attempt><!--esi b</esi:attempt>",
        "a !esi_element_misplaced \"<esi:try><esi:attempt><!--esi b</esi:attempt>\"",
    ),
    ("a<esi:remove>b", "a !esi_element_unclosed \"<esi:remove>b\""),
    ("a<esi:try><esi:attempt>b", "a !esi_element_unclosed \"<esi:try><esi:attempt>b\""),
    ("a<!--esi b", "ab !esi_element_unclosed \"\""),
    ("a<esi:try/>b", "a !esi_try_incomplete \"<esi:try/>b\""),
    ("a<esi:try><esi:attempt/></esi:try>b", "a !esi_try_incomplete \"<esi:try><esi:attempt/></esi:try>b\""),
    ("a<esi:try><esi:attempt/><esi:attempt/>b", "a !esi_try_incomplete \"<esi:try><esi:attempt/><esi:attempt/>b\""),
];

#[test]
fn pages() {
    for (page, expected) in PAGES {
        assert_eq!(&shown(page), expected, "{page:?}");
    }
}

#[test]
fn tokens_do_not_depend_on_how_the_page_was_cut() {
    for (page, _) in PAGES {
        for start in (0..page.len()).filter(|&start| page.is_char_boundary(start)) {
            for in_comment in [false, true] {
                assert_three_ways(&page.as_bytes()[start..], |bytes| {
                    read_token(bytes, in_comment, &LIMITS)
                        .map(|read| read.map(|(token, used)| (format!("{token:?}"), used)))
                });
            }
        }
    }
}

#[test]
fn tokens_know_their_ends() {
    let token = |text: &'static str| read_token(text.as_bytes(), true, &LIMITS);
    assert_eq!(token("ab<esi:try>"), Some(Ok((EsiToken::Text, 2))));
    let open = EsiToken::Open { element: Element::Include, attributes: b" a='>'", empty: true };
    assert_eq!(token("<esi:include a='>'/>x"), Some(Ok((open, 20))));
    assert_eq!(token("</esi:try  >x"), Some(Ok((EsiToken::Close(Element::Try), 12))));
    assert_eq!(token("<!--esi\n"), Some(Ok((EsiToken::CommentOpen, 8))));
    assert_eq!(token("-->"), Some(Ok((EsiToken::CommentClose, 3))));
    for unfinished in ["", "a", "<", "<e", "<esi:try", "<!--esi", "--", "a--", "<esi:include src='>"] {
        assert_eq!(token(unfinished), None, "{unfinished:?}");
    }
}

#[test]
fn bounds_hold() {
    let error = |page: String, limits: &EsiLimits| parse(page.as_bytes(), limits).error.map(|(error, _)| error);
    let include = "<esi:include src='/a'/>";
    assert_eq!(error(include.repeat(4), &LIMITS), None);
    assert_eq!(error(include.repeat(5), &LIMITS), Some(EsiError::IncludesTooMany));
    assert_eq!(parse(include.repeat(5).as_bytes(), &LIMITS).includes, 4);
    assert_eq!(error("<esi:comment/>".repeat(24), &LIMITS), None);
    assert_eq!(error("<esi:comment/>".repeat(25), &LIMITS), Some(EsiError::TagsTooMany));
    assert_eq!(error(format!("<esi:comment text='{}'/>", "x".repeat(42)), &LIMITS), None);
    assert_eq!(error(format!("<esi:comment text='{}'/>", "x".repeat(43)), &LIMITS), Some(EsiError::TagTooLong));
    assert_eq!(error(format!("<esi:comment text='{}", "x".repeat(99)), &LIMITS), Some(EsiError::TagTooLong));
    let deep = |depth: usize| {
        let inner = "<esi:try><esi:except/><esi:attempt>".repeat(depth);
        inner + &"</esi:attempt></esi:try>".repeat(depth)
    };
    let limits = EsiLimits { depth_max: 3, tags_max: 1_000, ..LIMITS };
    assert_eq!(error(deep(3), &limits), None);
    assert_eq!(error(deep(4), &limits), Some(EsiError::TooDeep));
    let limits = EsiLimits { page_bytes_max: 10, ..LIMITS };
    assert_eq!(error("a".repeat(10), &limits), None);
    let large = parse(&[b'a'; 11], &limits);
    let expected =
        EsiTemplate { segments: vec![Segment::Literal(0..11)], includes: 0, error: Some((EsiError::PageTooLarge, 0)) };
    assert_eq!(large, expected);
    // A page full of tags that come to nothing takes time in proportion to its length.
    let limits = EsiLimits { tags_max: usize::MAX, ..EsiLimits::DEFAULT };
    assert_eq!(error("<esi <!--es </esi ".repeat(100_000), &limits), None);
}

#[test]
fn not_text_in_an_attribute() {
    let parsed = parse(b"a<esi:include src='/\xff'/>", &LIMITS);
    assert_eq!(parsed.error, Some((EsiError::AttributeInvalid, 1)));
    assert_eq!(parse(b"\xff\0<esi:include src='/a'/>\xfe", &LIMITS).includes, 1);
}

fn resolved(src: &str) -> Result<String, &'static str> {
    let base = Base { secure: false, authority: b"Site.example:8080", path: b"/shop/page.html", query: Some(b"q=1") };
    resolve(src, &base).map_err(EsiError::name)
}

#[test]
fn references_lead_to_the_same_host() {
    for (src, expected) in [
        ("/a", Ok("/a")),
        ("/a?b=c&d", Ok("/a?b=c&d")),
        ("a", Ok("/shop/a")),
        ("a/b?c", Ok("/shop/a/b?c")),
        ("./a", Ok("/shop/a")),
        ("../a", Ok("/a")),
        ("../../../a", Ok("/a")),
        ("..", Ok("/")),
        (".", Ok("/shop/")),
        ("/a/b/../c/./d/..", Ok("/a/c/")),
        ("/a/%2e%2E/b", Ok("/b")),
        ("/a/...", Ok("/a/...")),
        ("/a//b", Ok("/a//b")),
        ("?x", Ok("/shop/page.html?x")),
        ("", Ok("/shop/page.html?q=1")),
        ("#f", Ok("/shop/page.html?q=1")),
        ("/a#f", Ok("/a")),
        ("http://site.example:8080/a", Ok("/a")),
        ("HTTP://SITE.example:8080", Ok("/")),
        ("http://site.example:8080?x", Ok("/?x")),
        ("//site.example:8080/../a", Ok("/a")),
        ("http://site.example/a", Err("esi_src_host")),
        ("http://site.example:80/a", Err("esi_src_host")),
        ("http://other.example:8080/a", Err("esi_src_host")),
        ("//other.example/a", Err("esi_src_host")),
        ("http://127.0.0.1:8080/", Err("esi_src_host")),
        ("http://169.254.169.254/latest/meta-data/", Err("esi_src_host")),
        ("http://[::1]:8080/", Err("esi_src_host")),
        ("http://site.example:8080.evil.example/", Err("esi_src_invalid")),
        ("http://site.example:8080@evil.example/", Err("esi_src_invalid")),
        ("http://evil.example#@site.example:8080/", Err("esi_src_host")),
        ("http://evil.example\\@site.example:8080/", Err("esi_src_invalid")),
        ("//", Err("esi_src_invalid")),
        ("http:/a", Err("esi_src_invalid")),
        ("http:a", Err("esi_src_invalid")),
        ("ftp://site.example:8080/", Err("esi_src_scheme")),
        ("file:///etc/passwd", Err("esi_src_scheme")),
        ("javascript:alert(1)", Err("esi_src_scheme")),
        ("/a b", Err("esi_src_invalid")),
        ("/a\r\nHost: x", Err("esi_src_invalid")),
        ("/\u{fc}", Ok("/\u{fc}")),
        ("/%zz", Ok("/%zz")),
        ("/a?\"", Ok("/a?\"")),
        // Not a separator here: it stays on this host.
        ("\\\\evil.example/a", Ok("/shop/\\\\evil.example/a")),
    ] {
        assert_eq!(resolved(src), expected.map(str::to_owned), "{src:?}");
    }
}

#[test]
fn ports_of_a_scheme_may_be_said() {
    let resolve = |src, secure, authority: &str| {
        resolve(src, &Base { secure, authority: authority.as_bytes(), path: b"/", query: None }).is_ok()
    };
    assert!(resolve("http://a:80/", false, "a") && resolve("http://a/", false, "a:80"));
    assert!(
        resolve("https://a/", false, "a") && resolve("https://a:443/", true, "a") && resolve("//a/", true, "a:443")
    );
    assert!(!resolve("https://a:80/", false, "a") && !resolve("http://a:443/", true, "a"));
    assert!(resolve("http://[::1]/", false, "[::1]:80") && !resolve("http://[::2]/", false, "[::1]"));
}

#[test]
fn who_asks_for_esi() {
    for (value, expected) in [
        ("content=\"ESI/1.0\"", true),
        ("max-age=60, content=\"ESI/1.0\"", true),
        ("content=\"ESI/1.0 ESI-Inline/1.0\"", true),
        ("no-store", false),
        ("content=ESI/1.0", false),
        ("content=\"ESI/1.05\"", false),
        ("content=\"ESI/1.0", false),
        ("x-content=\"ESI/1.0\"", false),
    ] {
        let lines = [Header { name: "Surrogate-Control", value: value.as_bytes() }];
        assert_eq!(is_asked_for(Fields::from_lines(&lines)), expected, "{value}");
    }
    assert!(!is_asked_for(Fields::EMPTY));
}

proptest! {
    /// Whatever the page: its literals are parts of it in their order, and its rest is the last of them.
    #[test]
    fn whatever_comes(page in "(<esi:|</esi:|<!--esi |-->|try|attempt|except|remove|include|comment|>|/>| src='/a'|x| ){0,40}") {
        let parsed = parse(page.as_bytes(), &LIMITS);
        let mut end = 0;
        check(&parsed.segments, &mut end);
        prop_assert!(end <= page.len());
        if let Some((_, at)) = parsed.error {
            prop_assert!(at == page.len() || parsed.segments.last().is_some_and(|last| matches!(last, Segment::Literal(range) if range.end == page.len())));
        }
        if !page.contains("esi") {
            prop_assert!(parsed.error.is_none() && end == page.len());
        }
    }

    #[test]
    fn references_never_leave(src in "(http|https|:|/|//|site.example|:8080|evil|@|\\.|\\.\\.|%2e|\\?|#|a|\\\\){0,12}") {
        if let Ok(target) = resolved(&src) {
            prop_assert!(target.starts_with('/'));
            let path = target.split('?').next().unwrap_or_default();
            prop_assert!(!path.split('/').any(|segment| segment == ".." || segment == "."), "{}", target);
        }
    }
}

/// Ranges come one after the other; a `try`'s branches may be in either order.
fn check(segments: &[Segment], end: &mut usize) {
    for segment in segments {
        match segment {
            Segment::Literal(range) => {
                assert!(range.start >= *end && range.end > range.start);
                *end = range.end;
            }
            Segment::Include(include) => assert!(!include.src.is_empty()),
            Segment::Try { attempt, except } => {
                let (mut one, mut other) = (*end, *end);
                check(attempt, &mut one);
                check(except, &mut other);
                *end = one.max(other);
            }
        }
    }
}
