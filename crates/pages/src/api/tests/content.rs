//! Tests of the request and its content.

use super::{Answered, Ask, Site};
use crate::api::BodyLimits;
use crate::api::budget::ContentBudget;
use crate::api::refusal::PageRefusal;
use std::sync::Arc;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");
const PARTS: (&str, &str) = ("content-type", "multipart/form-data; boundary=b");

/// A multipart form with the field `a` and the file `f`.
const UPLOAD: &[u8] = b"--b\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n\
    --b\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\nfour\r\n--b--";

fn post(site: &Site, content_type: (&str, &str), content: &[u8], code: &str) -> Answered {
    let fields = vec![content_type];
    site.run(&Ask { method: Some("POST"), fields, content: Some(content), ..Ask::default() }, code)
}

#[test]
fn the_head() {
    let site = Site::new();
    let ask = Ask {
        method: Some("PUT"),
        path: Some("/a%20b/"),
        query: Some("x=1&y=a+b&x=2&z"),
        fields: vec![
            ("host", "a.example:8080"),
            ("Accept", "text/html"),
            ("accept", "text/plain"),
            ("cookie", "a=1; b=\"2\""),
            ("cookie", "a=3"),
        ],
        secure: true,
        ..Ask::default()
    };
    for (code, expected) in [
        ("request.method", "PUT"),
        ("request.path", "/a b/"),
        ("request.query.x .. request.query.y .. request.query.z", "1a b"),
        ("table.concat(request.query_all('x'), ',')", "1,2"),
        ("#request.query_all('no')", "0"),
        ("request.query_string", "x=1&y=a+b&x=2&z"),
        ("request.host", "a.example:8080"),
        ("request.scheme .. tostring(request.secure)", "httpstrue"),
        ("request.url", "https://a.example:8080/a%20b/?x=1&y=a+b&x=2&z"),
        ("request.client", "192.0.2.7"),
        ("request.headers.accept", "text/html, text/plain"),
        ("request.header('ACCEPT')", "text/html, text/plain"),
        ("request.header('No')", "nil"),
        ("request.cookies.a .. request.cookies.b", "12"),
        ("request.query == request.query", "true"),
        ("request.nonsense", "nil"),
        ("request[1]", "nil"),
    ] {
        assert_eq!(site.value_of(&ask, code), expected, "{code}");
    }
    let many = "a&".repeat(2000);
    let answered = site.run(&Ask { query: Some(&many), ..Ask::default() }, "__r(request.query.a)");
    assert!(answered.error.unwrap().contains("1,024"));
}

#[test]
fn forms() {
    let site = Site::new();
    let code = "local f = request.form() __r(f.a .. f.b .. #request.form_all('a') .. tostring(f == request.form()))";
    assert_eq!(post(&site, FORM, b"a=1&b=x+y&a=2", code).text, "1x y2true");
    // None at all is an empty one.
    assert_eq!(site.value("next(request.form())"), "nil");
    assert_eq!(site.value("request.text() == ''"), "true");
    // A page can read the content in every form, in any order, and more than once.
    for (content_type, content, code, expected) in [
        (FORM, &b"a=1"[..], "__r(request.text()) __r(request.form().a) __r(request.text())", "a=11a=1"),
        (FORM, b"a=1", "__r(request.form().a) __r(request.text()) __r(request.form_all('a')[1])", "1a=11"),
        (FORM, b"a=1", "request.files() __r(request.text())", "a=1"),
        (JSON, b"[7]", "__r(request.json()[1]) __r(request.text()) __r(request.json()[1])", "7[7]7"),
        (JSON, b"[7]", "__r(tostring(pcall(request.form))) __r(request.text()) __r(request.json()[1])", "false[7]7"),
        (JSON, b"[7]", "__r(request.text()) __r(tostring(pcall(request.form))) __r(request.json()[1])", "[7]false7"),
        (PARTS, UPLOAD, "__r(#request.text()) __r(request.files()[1]:read()) __r(request.form().a)", "120four1"),
        (PARTS, UPLOAD, "__r(request.form().a) __r(request.files()[1]:read()) __r(request.form().a)", "1four1"),
    ] {
        let answered = post(&site, content_type, content, code);
        assert_eq!((answered.error, &*answered.text), (None, expected), "{code}");
    }
    assert_eq!(site.value("request.form() and request.text() == '' and next(request.form())"), "nil");
    let error = post(&site, PARTS, UPLOAD, "request.form() request.text()").error.unwrap();
    assert!(error.contains("call request.text first"), "{error}");
    // Within a coroutine of the page.
    let within = "coroutine.wrap(function() __r(request.form().a) end)()";
    assert_eq!(post(&site, FORM, b"a=1", within).text, "1");
}

#[test]
fn files() {
    let site = Site::new();
    let large = "y".repeat(200_000);
    let content = format!(
        "--b\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nHello\r\n\
         --b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"../a.txt\"\r\nContent-Type: text/plain\r\n\r\nfour\r\n\
         --b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"big\"\r\n\r\n{large}\r\n--b--\r\n"
    );
    for (code, expected) in [
        ("__r(request.form().title .. #request.files())", "Hello2"),
        (
            "local f = request.files()[1] __r(f.name .. f.type .. f.size .. f.field .. f:read())",
            "a.txttext/plain4ffour",
        ),
        ("local f = request.files()[2] __r(#f:read() .. tostring(f.type) .. f:read(199999))", "200000nily"),
        ("local f = request.files()[2] __r(tostring(buffer.len(f:buffer(10, 20))))", "20"),
    ] {
        let answered = post(&site, PARTS, content.as_bytes(), code);
        assert_eq!((&*answered.text, answered.error.as_deref()), (expected, None), "{code}");
    }
    for code in [
        "request.files()[1].read({})",
        "request.files()[1].read({number = 9})",
        "request.files()[1]:read(-1)",
        "request.files()[1]:read(0, -1)",
        "request.files()[1]:buffer(0/0)",
    ] {
        assert!(post(&site, PARTS, content.as_bytes(), code).error.is_some(), "{code}");
    }
}

/// A file is read as a whole, or the page gets an error because it does not fit; it is never truncated.
#[test]
fn large_files_are_read_whole_or_not_at_all() {
    let site = Site::with(|settings| settings.body.upload_bytes_max = 64 << 20);
    let content = |bytes: usize| {
        let file: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8).collect();
        [&b"--b\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\n"[..], &file, b"\r\n--b--"].concat()
    };
    let (three, forty) = (content(3_000_000), content(40_000_000));
    for (code, expected) in [
        ("#f:read()", "3000000"),
        ("buffer.len(f:buffer())", "3000000"),
        ("buffer.len(f:buffer(1000000))", "2000000"),
        ("#f:read(1, 2e6)", "2000000"),
        ("buffer.len(f:buffer(10, 1e9))", "2999990"),
        ("#f:read(3e6)", "0"),
        ("#f:read(1e18, 1e18)", "0"),
        ("buffer.tostring(f:buffer()) == f:read()", "true"),
        ("buffer.readu8(f:buffer(), 2999999)", "47"),
    ] {
        let answered = post(&site, PARTS, &three, &format!("local f = request.files()[1] __r(tostring({code}))"));
        assert_eq!((&*answered.text, answered.error.as_deref()), (expected, None), "{code}");
    }
    for name in ["read", "buffer"] {
        let failed = post(&site, PARTS, &forty, &format!("\nrequest.files()[1]:{name}()")).error.unwrap();
        let expected = format!(
            "test.luau:2: 40000000 bytes of the file are more than the page's memory-limit allows: read the file in \
             pieces with file:{name}(offset, count)"
        );
        assert_eq!(failed, expected);
        let code = format!(
            "local f, sum = request.files()[1], 0
            for offset = 0, f.size - 1, 1048576 do
                local piece = f:{name}(offset, 1048576)
                sum += if type(piece) == 'string' then #piece else buffer.len(piece)
            end
            __r(sum)"
        );
        let answered = post(&site, PARTS, &forty, &code);
        assert_eq!((&*answered.text, answered.error), ("40000000", None));
    }
}

#[test]
fn json() {
    let site = Site::new();
    assert_eq!(post(&site, JSON, b"{\"a\":[1,2]}", "__r(tostring(request.json().a[2]))").text, "2");
    let vendor = ("content-type", "application/ld+json");
    assert_eq!(post(&site, vendor, b"true", "__r(tostring(request.json()))").text, "true");
}

#[test]
fn what_is_refused() {
    let site = Site::with(|settings| settings.body = BodyLimits { form_bytes_max: 100, upload_bytes_max: 200 });
    let long = vec![b'x'; 300];
    let upload =
        [&b"--b\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\n"[..], &long, b"\r\n--b--"].concat();
    let field = [&b"--b\r\nContent-Disposition: form-data; name=f\r\n\r\n"[..], &long, b"\r\n--b--"].concat();
    let text = ("content-type", "text/plain");
    for (content_type, content, code, refusal) in [
        (FORM, &long[..], "request.form()", PageRefusal::FormTooLarge),
        (FORM, &long[..], "request.text()", PageRefusal::FormTooLarge),
        (PARTS, &upload[..], "request.files()", PageRefusal::UploadTooLarge),
        (PARTS, &field[..], "request.form()", PageRefusal::FormTooLarge),
        (PARTS, b"--b\r\nx", "request.form()", PageRefusal::FormMalformed),
        (PARTS, b"--bx", "request.form()", PageRefusal::FormMalformed),
        (("content-type", "multipart/form-data"), b"--b--", "request.form()", PageRefusal::FormMalformed),
        (text, b"a=1", "request.form()", PageRefusal::ContentType),
        (text, b"{}", "request.json()", PageRefusal::ContentType),
        (JSON, b"{", "request.json()", PageRefusal::JsonMalformed),
        (JSON, b"", "request.json()", PageRefusal::JsonMalformed),
    ] {
        let answered = post(&site, content_type, content, code);
        assert_eq!(answered.refusal, Some(refusal), "{code}");
        assert!(answered.error.unwrap().starts_with("test.luau:1: "), "{code}");
        // Anyone who asks again is told the same, and may catch it.
        let caught =
            post(&site, content_type, content, &format!("pcall(request.text) pcall(function() {code} end) __r('on')"));
        assert_eq!((&*caught.text, caught.error), ("on", None));
        let caught = post(&site, content_type, content, &format!("pcall(function() {code} end) error('another')"));
        assert_eq!((caught.refusal, caught.error.unwrap().ends_with("another")), (None, true));
    }
}

/// All pages of the process together hold no more than their bound, and release what they held.
#[test]
fn what_all_pages_hold_is_bounded() {
    let budget = Arc::new(ContentBudget::new(512 << 10));
    // As much as one request may have, any client may have.
    budget.make_room_for(256 << 10);
    let site = Site::with(|settings| settings.budget = Arc::clone(&budget));
    let large = "y".repeat(200 << 10);
    let upload = format!("--b\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\n{large}\r\n--b--");
    let field = format!("--b\r\nContent-Disposition: form-data; name=f\r\n\r\n{large}\r\n--b--");
    let cases = [
        (FORM, format!("a={large}"), "__r(#request.form().a)"),
        (FORM, large.clone(), "__r(#request.text())"),
        (PARTS, upload, "__r(request.files()[1].size)"),
        (PARTS, field, "__r(#request.form().f)"),
    ];
    for (content_type, content, code) in &cases {
        let read = post(&site, *content_type, content.as_bytes(), code);
        assert_eq!((read.error, &*read.text), (None, "204800"), "{code}");
        assert_eq!(budget.held_bytes(), 0, "{code}");
    }
    // Other clients hold most of it.
    let others = [("192.0.2.8", 256 << 10), ("192.0.2.9", 128 << 10)];
    let _held = others.map(|(client, bytes)| {
        let mut share = budget.share(client.parse().ok());
        share.grow(bytes).unwrap();
        share
    });
    for (content_type, content, code) in &cases {
        let refused = post(&site, *content_type, content.as_bytes(), code);
        assert_eq!(refused.refusal, Some(PageRefusal::ContentBudget), "{code}");
        assert_eq!(budget.held_bytes(), 384 << 10, "{code}");
    }
    assert_eq!(post(&site, FORM, b"a=1", "__r(request.form().a)").text, "1");
}

/// Content that a page has read counts as the page's memory.
#[test]
fn what_was_read_counts() {
    let site = Site::with(|settings| settings.body.form_bytes_max = 64 << 20);
    for (bytes, is_enough) in [(7 << 20, true), (9 << 20, false), (40 << 20, false)] {
        let content = vec![b'x'; bytes];
        let read = post(&site, FORM, &content, "local t = request.text() for i = 1, 100 do end __r(#t)");
        assert_eq!(read.error.is_none(), is_enough, "{bytes}: {:?}", read.error);
        assert!(is_enough || read.error.unwrap().contains("memory"));
    }
}

#[test]
fn what_is_no_utf_8_is_replaced_in_every_form() {
    let site = Site::new();
    let parts = b"--b\r\nContent-Disposition: form-data; name=\"a\xff\"\r\n\r\nx\xfe\r\n\
        --b\r\nContent-Disposition: form-data; name=\"f\xff\"; filename=\"n\xc3\"\r\nContent-Type: text/\xff\r\n\r\n\xff\r\n--b--\r\n";
    let urlencoded = ("content-type", "application/x-www-form-urlencoded");
    for (kind, content) in [(PARTS, &parts[..]), (urlencoded, b"a%FF=x%FE")] {
        let ask = Ask { method: Some("POST"), fields: vec![kind], content: Some(content), ..Ask::default() };
        let answered = site.run(&ask, "local name, value = next(request.form()) response.json({ [name] = value })");
        assert_eq!((answered.error, &*answered.text), (None, "{\"a\u{fffd}\":\"x\u{fffd}\"}"));
    }
    let ask = Ask { method: Some("POST"), fields: vec![PARTS], content: Some(parts), ..Ask::default() };
    let code = "local f = request.files()[1] response.json({ f.field, f.name, f.type, buffer.len(f:buffer()) })";
    let answered = site.run(&ask, code);
    assert_eq!((answered.error, &*answered.text), (None, "[\"f\u{fffd}\",\"n\u{fffd}\",\"text/\u{fffd}\",1]"));
}
