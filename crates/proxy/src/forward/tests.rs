use super::{Passage, Return, Strip, forwarded_trailers, unkeyed_fields, write_request_lines, write_response_lines};
use crate::outcome::ForwardOutcome;
use flatout_config::model::{Cidr, FieldOp, Forwarded, HostField, Origin, Proxy};
use flatout_handler::Request;
use flatout_handler::content::Offers;
use flatout_http::framing::Version;
use flatout_http::head::{FieldStorage, Fields, Header, parse_fields};
use flatout_http::limits::Limits;
use flatout_http::lines::FieldOpKind;
use flatout_http::request::{RequestHead, assemble_request_head, parse_request_head};
use proptest::prelude::{prop_assert, proptest};

/// The mark of the proxy under test in CDN-Loop.
const MARK: &str = "flatout;id=0123456789abcdef";

fn origin() -> Origin {
    Origin { secure: false, host: "10.0.0.9".to_owned(), port: 3000, weight: 1, backup: false }
}

/// Settings without fields of our own, so that a table shows only what happens to the client's fields.
fn bare() -> Proxy {
    Proxy { via: None, forwarded: Forwarded { x_forwarded: false, standard: false }, ..Proxy::default() }
}

fn trusting(settings: Proxy) -> Proxy {
    Proxy { trusted: vec![Cidr { address: "192.0.2.0".parse().unwrap(), bits: 24 }.into()], ..settings }
}

fn with_head<T>(text: &str, act: impl FnOnce(&RequestHead<'_>) -> T) -> T {
    let mut storage = FieldStorage::new();
    let head = parse_request_head(text.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap().unwrap();
    act(&head)
}

/// The lines of an upstream request, without those that add the proxy's mark to CDN-Loop.
fn lines_of(
    head: &RequestHead<'_>,
    settings: &Proxy,
    strip: Strip,
    extra: &str,
    client: Option<&str>,
) -> Result<String, ForwardOutcome> {
    let all = all_lines_of(head, settings, strip, extra, client)?;
    Ok(all.replace(&format!("CDN-Loop: {MARK}\r\n"), ""))
}

fn all_lines_of(
    head: &RequestHead<'_>,
    settings: &Proxy,
    strip: Strip,
    extra: &str,
    client: Option<&str>,
) -> Result<String, ForwardOutcome> {
    let offers = Offers::new();
    let client = client.map(|client| client.parse().unwrap());
    let request = Request { head, client, unix: false, secure: false, listener: 0, offers: &offers };
    let passage = Passage { origin: &origin(), loop_mark: MARK, strip, extra: extra.as_bytes() };
    let mut out = Vec::new();
    write_request_lines(&request, settings, &passage, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

/// The fields that the origin receives of a GET with these lines from a client at 192.0.2.7, without Host.
fn passed(settings: &Proxy, lines: &str) -> String {
    let text = format!("GET /a HTTP/1.1\r\nHost: site.example\r\n{lines}\r\n");
    let all = with_head(&text, |head| lines_of(head, settings, Strip::NOTHING, "", Some("192.0.2.7:4711"))).unwrap();
    all.strip_prefix("Host: site.example\r\n").unwrap().to_owned()
}

/// Each line as the client sends it, and what the origin receives.
const ABUSE: &[(&str, &str)] = &[
    // Of the connection.
    ("Connection: keep-alive\r\nA: b\r\n", "A: b\r\n"),
    ("Connection: close\r\n", ""),
    ("Connection: keep-alive\r\nKeep-Alive: timeout=5, max=100\r\n", ""),
    ("Keep-Alive: timeout=5\r\n", ""),
    ("Proxy-Connection: keep-alive\r\n", ""),
    ("Proxy-Authorization: Basic eDp5\r\n", ""),
    ("Proxy-Authenticate: Basic\r\n", ""),
    ("Proxy-Anything-Else: x\r\n", ""),
    ("Proxy: http://evil.example\r\n", ""),
    ("Transfer-Encoding: chunked\r\n", ""),
    ("Content-Length: 5\r\n", ""),
    ("Content-Length: 5\r\nExpect: 100-continue\r\n", ""),
    ("Connection: upgrade\r\nUpgrade: websocket\r\n", ""),
    ("Connection: upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", ""),
    ("HTTP2-Settings: AAMAAABk\r\n", ""),
    ("TE: gzip\r\n", ""),
    ("TE: gzip;q=0.5, Trailers\r\nConnection: TE\r\n", "TE: trailers\r\nConnection: TE\r\n"),
    ("TE: trailers\r\nTE: trailers\r\n", "TE: trailers\r\nConnection: TE\r\n"),
    ("Trailer: Digest\r\n", "Trailer: Digest\r\n"),
    // What Connection names goes.
    ("Connection: x-hop\r\nX-Hop: 1\r\nX-Stay: 2\r\n", "X-Stay: 2\r\n"),
    ("X-Hop: 1\r\nConnection: close, X-HOP\r\nx-hop: 2\r\n", ""),
    ("Connection: a\r\nConnection: b\r\nA: 1\r\nB: 2\r\nC: 3\r\n", "C: 3\r\n"),
    ("Connection: ,,x-hop ,\r\nX-Hop: 1\r\n", ""),
    ("Connection: x-hop-not\r\nX-Hop: 1\r\n", "X-Hop: 1\r\n"),
    ("Connection: x\r\nX-Hop: 1\r\n", "X-Hop: 1\r\n"),
    // But not what matters.
    ("Connection: Cookie\r\nCookie: a=b\r\n", "Cookie: a=b\r\n"),
    ("Connection: cookie, close\r\nCookie: a=b\r\n", "Cookie: a=b\r\n"),
    ("Connection: Authorization\r\nAuthorization: Basic eDp5\r\n", "Authorization: Basic eDp5\r\n"),
    ("Connection: Cache-Control\r\nCache-Control: no-store\r\n", "Cache-Control: no-store\r\n"),
    ("Connection: Pragma\r\nPragma: no-cache\r\n", "Pragma: no-cache\r\n"),
    ("Connection: Content-Type\r\nContent-Type: a/b\r\n", "Content-Type: a/b\r\n"),
    ("Connection: Content-Encoding\r\nContent-Encoding: gzip\r\n", "Content-Encoding: gzip\r\n"),
    ("Connection: Content-Length\r\nContent-Length: 0\r\n", ""),
    ("Connection: Host\r\n", ""),
    ("Connection: Accept\r\nAccept: a/b\r\n", "Accept: a/b\r\n"),
    ("Connection: Accept-Encoding\r\nAccept-Encoding: br\r\n", "Accept-Encoding: br\r\n"),
    ("Connection: Accept-Language\r\nAccept-Language: de\r\n", "Accept-Language: de\r\n"),
    ("Connection: Range\r\nRange: bytes=0-1\r\n", "Range: bytes=0-1\r\n"),
    ("Connection: If-None-Match\r\nIf-None-Match: \"a\"\r\n", "If-None-Match: \"a\"\r\n"),
    ("Connection: If-Match\r\nIf-Match: \"a\"\r\n", "If-Match: \"a\"\r\n"),
    ("Connection: Origin\r\nOrigin: https://a.example\r\n", "Origin: https://a.example\r\n"),
    ("Connection: Referer\r\nReferer: https://a.example/\r\n", "Referer: https://a.example/\r\n"),
    ("Connection: User-Agent\r\nUser-Agent: x\r\n", "User-Agent: x\r\n"),
    ("Connection: Sec-Fetch-Site\r\nSec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Site: cross-site\r\n"),
    ("Connection: Sec-WebSocket-Key\r\nSec-WebSocket-Key: x\r\n", "Sec-WebSocket-Key: x\r\n"),
    (
        "Connection: Access-Control-Request-Method\r\nAccess-Control-Request-Method: PUT\r\n",
        "Access-Control-Request-Method: PUT\r\n",
    ),
    ("Connection: Max-Forwards\r\nMax-Forwards: 3\r\n", "Max-Forwards: 3\r\n"),
    ("Connection: Early-Data\r\nEarly-Data: 1\r\n", "Early-Data: 1\r\n"),
    // Who asks: not by the client's own word.
    ("X-Forwarded-For: 127.0.0.1\r\n", ""),
    ("x-forwarded-for: 127.0.0.1\r\nX-Forwarded-For: 10.0.0.1\r\n", ""),
    ("X-Forwarded-Host: evil.example\r\n", ""),
    ("X-Forwarded-Proto: https\r\n", ""),
    ("X-Forwarded-Port: 443\r\n", ""),
    ("X-Forwarded-Prefix: /admin\r\n", ""),
    ("X-Forwarded-Server: evil.example\r\n", ""),
    ("X-Forwarded-Scheme: http\r\n", ""),
    ("X-Forwarded-Ssl: on\r\n", ""),
    ("Forwarded: for=127.0.0.1;host=evil.example\r\n", ""),
    ("X-Real-IP: 127.0.0.1\r\n", ""),
    ("True-Client-IP: 127.0.0.1\r\n", ""),
    ("Client-IP: 127.0.0.1\r\n", ""),
    ("Front-End-Https: on\r\n", ""),
    ("CloudFront-Forwarded-Proto: https\r\n", ""),
    ("X-Azure-ClientIP: 127.0.0.1\r\n", ""),
    ("Remote-User: admin\r\n", ""),
    ("X-SSL-Client-S-DN: CN=admin\r\n", ""),
    ("X_SSL_Client_Verify: SUCCESS\r\n", ""),
    ("SSL-Client-Verify: SUCCESS\r\n", ""),
    ("Remote-Groups: admins\r\n", ""),
    ("X-Auth-Request-Access-Token: x\r\n", ""),
    ("X-Authentik-Username: admin\r\n", ""),
    ("Remote-Address: a street\r\n", "Remote-Address: a street\r\n"),
    ("Connection: Via\r\nVia: 1.1 other\r\n", ""),
    ("Via: 1.0 other, 1.1 another\r\n", ""),
    ("Surrogate-Capability: x=\"ESI/1.0\"\r\n", ""),
    // Nor by another spelling.
    ("X_Forwarded_For: 127.0.0.1\r\n", ""),
    ("X-Forwarded_Host: evil.example\r\n", ""),
    ("X_Real_IP: 127.0.0.1\r\n", ""),
    ("Transfer_Encoding: chunked\r\n", ""),
    ("Content_Length: 7\r\n", ""),
    ("Proxy_: x\r\n", ""),
    ("Co_kie: x\r\nUnder_Score: y\r\n", "Co_kie: x\r\nUnder_Score: y\r\n"),
    // What has an origin answer for something else than the cache's key says.
    ("X-Original-URL: /admin\r\n", ""),
    ("X-Rewrite-URL: /admin\r\n", ""),
    ("X-Host: evil.example\r\n", ""),
    ("X-HTTP-Host-Override: evil.example\r\n", ""),
    ("X-HTTP-Method-Override: POST\r\n", ""),
    ("X-HTTP-Method: DELETE\r\n", ""),
    ("X-Method-Override: PUT\r\n", ""),
    ("X_HTTP_Method_Override: POST\r\n", ""),
];

#[test]
fn hop_by_hop_and_its_abuse() {
    assert!(ABUSE.len() >= 60);
    for (sent, expected) in ABUSE {
        assert_eq!(&passed(&bare(), sent), expected, "{sent:?}");
        // Whatever else Connection names.
        let sent = format!("{sent}Connection: x-something\r\nX-Something: x\r\n");
        assert_eq!(&passed(&bare(), &sent), expected, "{sent:?}");
    }
}

#[test]
fn everything_else_is_passed_on_in_order() {
    let lines = "Accept: */*\r\nA: 1\r\nCookie: a=b\r\nA: 2\r\nx-custom:\r\nCookie: c=d\r\n";
    assert_eq!(passed(&bare(), lines), lines.replace("x-custom:", "x-custom: "));
}

#[test]
fn the_host_is_whose_the_settings_say() {
    let secure = Origin { secure: true, host: "::1".to_owned(), port: 443, ..origin() };
    for (text, host, expected) in [
        ("GET / HTTP/1.1\r\nHost: a.example:81\r\n\r\n", HostField::Client, "a.example:81"),
        ("GET http://b.example/ HTTP/1.0\r\n\r\n", HostField::Client, "b.example"),
        ("GET / HTTP/1.0\r\n\r\n", HostField::Client, "10.0.0.9:3000"),
        ("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", HostField::Origin, "10.0.0.9:3000"),
        ("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", HostField::Fixed("c.example".to_owned()), "c.example"),
    ] {
        let settings = Proxy { host, ..bare() };
        let lines = with_head(text, |head| lines_of(head, &settings, Strip::NOTHING, "", None)).unwrap();
        assert_eq!(lines, format!("Host: {expected}\r\n"), "{text:?}");
    }
    let mut out = Vec::new();
    super::request::write_origin_host(&mut out, &secure);
    assert_eq!(out, b"[::1]");
    out.clear();
    super::request::write_origin_host(&mut out, &Origin { port: 80, ..secure });
    assert_eq!(out, b"[::1]:80");
}

#[test]
fn who_asks_is_told_and_lies_are_replaced() {
    let settings = Proxy { forwarded: Forwarded { x_forwarded: true, standard: true }, ..Proxy::default() };
    let lies = "X-Forwarded-For: 127.0.0.1\r\nForwarded: for=127.0.0.1\r\nX-Forwarded-Proto: https\r\n\
        X-Forwarded-Host: evil.example\r\nA: b\r\n";
    let told = "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\n\
        X-Forwarded-Host: site.example\r\nForwarded: for=192.0.2.7;host=site.example;proto=http\r\n";
    assert_eq!(passed(&settings, ""), told);
    assert_eq!(passed(&settings, lies), format!("A: b\r\n{told}"));
}

#[test]
fn the_trusted_are_extended() {
    let forwarded = Forwarded { x_forwarded: true, standard: true };
    let settings = trusting(Proxy { forwarded, via_to_origins: true, ..Proxy::default() });
    let said = "X-Forwarded-For: 198.51.100.1\r\nForwarded: for=198.51.100.1\r\nX-Forwarded-Proto: https\r\n\
        X-Forwarded-For: 198.51.100.2\r\nX-Forwarded-Port: 443\r\nX-Original-URL: /x\r\nVia: 1.1 front\r\n";
    let expected = "X-Forwarded-Proto: https\r\nX-Forwarded-Port: 443\r\nX-Original-URL: /x\r\nVia: 1.1 front\r\n\
        Via: 1.1 flatout\r\nX-Forwarded-For: 198.51.100.1, 198.51.100.2, 192.0.2.7\r\n\
        X-Forwarded-Host: site.example\r\n\
        Forwarded: for=198.51.100.1, for=192.0.2.7;host=site.example;proto=http\r\n";
    assert_eq!(passed(&settings, said), expected);
    // Without fields of our own, what they say is passed on as it is.
    let silent = trusting(bare());
    let kept = "X-Forwarded-For: 198.51.100.1\r\nForwarded: for=x\r\nX-Forwarded-Host: a.example\r\n";
    assert_eq!(passed(&silent, kept), kept);
}

#[test]
fn addresses_have_their_forms() {
    let settings = Proxy { forwarded: Forwarded { x_forwarded: true, standard: true }, via: None, ..Proxy::default() };
    for (client, plain, element) in [
        (Some("[2001:db8::1]:5"), "X-Forwarded-For: 2001:db8::1\r\n", "for=\"[2001:db8::1]\""),
        (Some("[::ffff:192.0.2.1]:5"), "X-Forwarded-For: 192.0.2.1\r\n", "for=192.0.2.1"),
        (None, "", "for=unknown"),
    ] {
        let text = "GET / HTTP/1.1\r\nHost: a.example:8080\r\n\r\n";
        let lines = with_head(text, |head| lines_of(head, &settings, Strip::NOTHING, "", client)).unwrap();
        let expected = format!(
            "Host: a.example:8080\r\n{plain}X-Forwarded-Proto: http\r\nX-Forwarded-Host: a.example:8080\r\n\
            Forwarded: {element};host=\"a.example:8080\";proto=http\r\n"
        );
        assert_eq!(lines, expected, "{client:?}");
    }
}

fn outcome_of(settings: &Proxy, text: &str) -> Option<ForwardOutcome> {
    with_head(text, |head| lines_of(head, settings, Strip::NOTHING, "", None)).err()
}

#[test]
fn loops_are_detected_by_the_mark_of_the_proxy() {
    let get = |lines: &str| outcome_of(&Proxy::default(), &format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
    let loops = Some(ForwardOutcome::LoopDetected);
    assert_eq!(get(&format!("CDN-Loop: {MARK}\r\n")), None);
    assert_eq!(get(&format!("CDN-Loop: {MARK}, other;x=\"{MARK}\", flatout;id=2, flatout\r\n")), None);
    assert_eq!(get(&format!("CDN-Loop: {MARK} ,other,{}\r\n", MARK.to_uppercase())), loops);
    assert_eq!(get(&format!("cdn-loop: {MARK}\r\nConnection: cdn-loop\r\nCDN-Loop: {MARK}\r\n")), loops);
    let chain = |count: usize| format!("CDN-Loop: {}\r\n", vec!["flatout;id=2"; count].join(", "));
    assert_eq!((get(&chain(15)), get(&chain(16))), (None, loops));
    // Other servers in a chain have other marks, even if they have the same name.
    assert_eq!(get("Via: 1.1 flatout, 1.1 flatout, 1.1 flatout\r\nCDN-Loop: flatout;id=2, flatout;id=3\r\n"), None);
}

#[test]
fn via_is_extended_and_cdn_loop_added() {
    let named = Proxy { via: Some("edge".to_owned()), via_to_origins: true, ..bare() };
    assert_eq!(passed(&named, ""), "Via: 1.1 edge\r\n");
    assert_eq!(passed(&named, "Via: 1.1 other\r\n"), "Via: 1.1 other\r\nVia: 1.1 edge\r\n");
    let only_responses = Proxy { via_to_origins: false, ..named };
    assert_eq!(passed(&only_responses, "Via: 1.1 other\r\n"), "");
    let removed = Proxy { request_fields: vec![FieldOp::remove("CDN-Loop".to_owned())], ..bare() };
    let text = "GET / HTTP/1.1\r\nHost: a\r\nCDN-Loop: x\r\n\r\n";
    let all =
        |settings: &Proxy| with_head(text, |head| all_lines_of(head, settings, Strip::NOTHING, "", None)).unwrap();
    assert_eq!(all(&bare()), format!("Host: a\r\nCDN-Loop: x\r\nCDN-Loop: {MARK}\r\n"));
    assert_eq!(all(&removed), "Host: a\r\n");
}

#[test]
fn hops_are_counted_for_options_and_trace() {
    let text = |method: &str, hops: &str| format!("{method} / HTTP/1.1\r\nHost: a\r\nMax-Forwards: {hops}\r\n\r\n");
    for method in ["OPTIONS", "TRACE"] {
        assert_eq!(outcome_of(&bare(), &text(method, "0")), Some(ForwardOutcome::MaxForwards));
        for (hops, fewer) in [("1", "0"), ("10", "9"), ("x", "x"), ("-1", "-1")] {
            let text = text(method, hops);
            let lines = with_head(&text, |head| lines_of(head, &bare(), Strip::NOTHING, "", None)).unwrap();
            assert_eq!(lines, format!("Host: a\r\nMax-Forwards: {fewer}\r\n"));
        }
    }
    let lines = with_head(&text("GET", "0"), |head| lines_of(head, &bare(), Strip::NOTHING, "", None)).unwrap();
    assert_eq!(lines, "Host: a\r\nMax-Forwards: 0\r\n");
    let connect = "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n";
    assert_eq!(outcome_of(&bare(), connect), Some(ForwardOutcome::ConnectRefused));
}

#[test]
fn what_the_one_who_forwards_has_of_its_own_stays_behind() {
    let text = "GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"a\"\r\nIf-Match: \"a\"\r\nIf-Modified-Since: x\r\n\
        If-Unmodified-Since: x\r\nRange: bytes=0-1\r\nIf-Range: \"a\"\r\nAccept-Encoding: br\r\nCookie: a=b\r\n\
        Authorization: Basic eDp5\r\nA: b\r\n\r\n";
    let all = Strip::CONDITIONS.and(Strip::RANGE).and(Strip::ENCODING).and(Strip::CREDENTIALS);
    let lines = with_head(text, |head| lines_of(head, &bare(), all, "If-None-Match: \"b\"\r\n", None)).unwrap();
    assert_eq!(lines, "Host: a\r\nA: b\r\nIf-None-Match: \"b\"\r\n");
    let lines = with_head(text, |head| lines_of(head, &bare(), Strip::RANGE, "", None)).unwrap();
    assert!(!lines.contains("Range") && lines.contains("If-None-Match: \"a\"") && lines.contains("Cookie: a=b"));
}

#[test]
fn overrides_of_the_method_pass_where_nothing_is_cached() {
    let text = "POST / HTTP/1.1\r\nHost: a\r\nX-HTTP-Method-Override: PATCH\r\n\r\n";
    let lines = with_head(text, |head| lines_of(head, &bare(), Strip::NOTHING, "", None)).unwrap();
    assert_eq!(lines, "Host: a\r\nX-HTTP-Method-Override: PATCH\r\n");
}

#[test]
fn the_settings_change_fields_in_their_order() {
    let set = |name: &str, value: &str| FieldOp::set(name.to_owned(), value.to_owned());
    let add = |name: &str, value: &str| FieldOp::add(name.to_owned(), value.to_owned());
    let remove = |name: &str| FieldOp::remove(name.to_owned());
    let lines = "A: 1\r\nB: 2\r\nA: 3\r\n";
    for (operations, expected) in [
        (vec![set("a", "x")], "B: 2\r\na: x\r\n"),
        (vec![add("A", "x"), add("A", "y")], "A: 1\r\nB: 2\r\nA: 3\r\nA: x\r\nA: y\r\n"),
        (vec![remove("A")], "B: 2\r\n"),
        (vec![remove("A"), add("A", "x")], "B: 2\r\nA: x\r\n"),
        (vec![add("A", "x"), remove("A")], "B: 2\r\n"),
        (vec![set("A", "x"), set("A", "y"), add("A", "z")], "B: 2\r\nA: y\r\nA: z\r\n"),
        // What the connection needs is not for the settings to break.
        (vec![set("Transfer-Encoding", "chunked"), add("Content-Length", "7"), set("Connection", "x")], lines),
    ] {
        let settings = Proxy { request_fields: operations, ..bare() };
        assert_eq!(passed(&settings, lines), expected);
    }
    let variables = "{scheme} {host} {host_port} {path} {query} {uri} {client} {{host}} {\"a\":{}}";
    let settings = Proxy { request_fields: vec![set("X", variables)], ..bare() };
    let text = "GET /a%2fb|?c[]=d HTTP/1.1\r\nHost: h:81\r\n\r\n";
    let lines = with_head(text, |head| lines_of(head, &settings, Strip::NOTHING, "", Some("192.0.2.1:1"))).unwrap();
    assert_eq!(lines, "Host: h:81\r\nX: http h h:81 /a%2fb| c[]=d /a%2fb|?c[]=d 192.0.2.1 {host} {\"a\":{}}\r\n");
    let settings = Proxy {
        request_fields: vec![remove("x-forwarded-for"), remove("Via"), set("Host", "h"), remove("X-Forwarded-Proto")],
        ..Proxy::default()
    };
    let text = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let lines = with_head(text, |head| lines_of(head, &settings, Strip::NOTHING, "", Some("192.0.2.1:1"))).unwrap();
    assert_eq!(lines, "X-Forwarded-Host: a\r\nHost: h\r\n");
}

#[test]
fn a_value_from_outside_the_key_makes_its_field_unkeyed_whatever_the_operation() {
    for kind in FieldOpKind::ALL {
        let operation = FieldOp::new(kind, "X-Ip".to_owned(), "{client}".to_owned());
        let unkeyed = unkeyed_fields(&Proxy { request_fields: vec![operation], ..bare() });
        assert_eq!(unkeyed.iter().any(|name| &**name == "x-ip"), kind.has_value, "{kind:?}");
    }
}

#[test]
fn cookies_of_http_2_become_one() {
    let lines = [
        Header { name: "cookie", value: b"a=b" },
        Header { name: "x", value: b"y" },
        Header { name: "cookie", value: b"c=d" },
        Header { name: "via", value: b"1.1 other" },
    ];
    let fields = Fields::from_lines(&lines);
    let head = assemble_request_head(b"GET", b"/", Some(b"a"), fields, &Limits::DEFAULT).unwrap();
    let settings = Proxy { via: Some("flatout".to_owned()), via_to_origins: true, ..bare() };
    let lines = lines_of(&head, &settings, Strip::NOTHING, "", None).unwrap();
    assert_eq!(lines, "Host: a\r\nx: y\r\nvia: 1.1 other\r\ncookie: a=b; c=d\r\nVia: 2.0 flatout\r\n");
}

fn returned(lines: &str, answer: &Return, settings: &Proxy) -> String {
    let section = format!("{lines}\r\n");
    let mut storage = FieldStorage::new();
    let fields = parse_fields(section.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap();
    let mut out = Vec::new();
    write_response_lines(fields, settings, answer, &mut out);
    String::from_utf8(out).unwrap()
}

const PLAIN: Return = Return { version: Version::Http11, keep_length: false, keep_upgrade: false, date_s: None };

#[test]
fn answers_lose_what_is_of_the_connection() {
    for (lines, expected) in [
        ("A: b\r\nSet-Cookie: x\r\nset-cookie: y\r\n", "A: b\r\nSet-Cookie: x\r\nset-cookie: y\r\n"),
        ("Connection: close\r\nKeep-Alive: timeout=5\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n", ""),
        ("Proxy-Authenticate: Basic\r\nProxy-Authentication-Info: x\r\nProxy-Connection: close\r\n", ""),
        ("Proxy-Status: a; error=b\r\n", "Proxy-Status: a; error=b\r\n"),
        ("Upgrade: h2c\r\nConnection: upgrade\r\n", ""),
        ("Trailer: Digest\r\nTE: x\r\n", "Trailer: Digest\r\n"),
        ("Connection: a, B\r\nA: 1\r\nb: 2\r\nC: 3\r\n", "C: 3\r\n"),
        ("Connection: a_b\r\na_b: 1\r\nc_d: 2\r\nContent_Length: 3\r\n", "c_d: 2\r\nContent_Length: 3\r\n"),
        ("Connection: cache-control\r\nCache-Control: no-store\r\n", "Cache-Control: no-store\r\n"),
        ("Connection: set-cookie, vary\r\nSet-Cookie: x\r\nVary: y\r\n", "Set-Cookie: x\r\nVary: y\r\n"),
        (
            "Connection: content-type, etag\r\nContent-Type: a/b\r\nETag: \"x\"\r\n",
            "Content-Type: a/b\r\nETag: \"x\"\r\n",
        ),
        ("Connection: content-security-policy\r\nContent-Security-Policy: x\r\n", "Content-Security-Policy: x\r\n"),
        (
            "Connection: strict-transport-security\r\nStrict-Transport-Security: x\r\n",
            "Strict-Transport-Security: x\r\n",
        ),
        ("Connection: location, date\r\nLocation: /\r\nDate: x\r\n", "Location: /\r\nDate: x\r\n"),
        (
            "Connection: cdn-cache-control, age\r\nCDN-Cache-Control: x\r\nAge: 1\r\n",
            "CDN-Cache-Control: x\r\nAge: 1\r\n",
        ),
    ] {
        assert_eq!(returned(lines, &PLAIN, &bare()), expected, "{lines:?}");
    }
}

#[test]
fn answers_get_via_and_a_date_and_keep_what_stands_for_their_framing() {
    let answer = Return { version: Version::Http10, keep_length: true, keep_upgrade: true, date_s: Some(784_111_777) };
    let lines = "Content-Length: 3\r\nUpgrade: websocket\r\nVia: 1.1 other\r\n";
    assert_eq!(
        returned(lines, &answer, &Proxy::default()),
        format!("{lines}Connection: upgrade\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nVia: 1.0 flatout\r\n")
    );
    assert_eq!(returned("date: x\r\n", &answer, &bare()), "date: x\r\n");
}

#[test]
fn trailers_are_what_nobody_needs_before() {
    let forwarded = |section: &str, operations: &[FieldOp]| {
        forwarded_trailers(section.as_bytes(), operations).map(|lines| String::from_utf8(lines.to_vec()).unwrap())
    };
    let section = "Content-Digest: x\r\nX-Checksum: y\r\nETag: \"a\"\r\nContent-Length: 3\r\nTransfer-Encoding: x\r\n\
        Host: a\r\nSet-Cookie: a\r\nCache-Control: a\r\nAuthorization: a\r\nX-Forwarded-For: a\r\nContent-Type: a\r\n\
        Connection: a\r\nTrailer: a\r\nServer-Timing: z\r\nContent_Length: 3\r\nVary: a\r\n\
        grpc-status: 0\r\ngrpc-message: OK\r\ngrpc-status-details-bin: AA\r\n";
    let expected = "Content-Digest: x\r\nX-Checksum: y\r\nETag: \"a\"\r\nServer-Timing: z\r\n\
        grpc-status: 0\r\ngrpc-message: OK\r\ngrpc-status-details-bin: AA\r\n";
    assert_eq!(forwarded(section, &[]).as_deref(), Some(expected));
    for name in [
        "X-Forwarded-For",
        "x_forwarded_for",
        "X-Real-IP",
        "Forwarded",
        "Via",
        "X-Original-URL",
        "X_Original_URL",
        "X-HTTP-Method-Override",
        "X_HTTP_Method_Override",
        "Proxy",
        "Content_Type",
    ] {
        assert_eq!(forwarded(&format!("{name}: a\r\n"), &[]), None, "{name}");
    }
    let operations = [FieldOp::set("X-Api-Key".to_owned(), "a".to_owned()), FieldOp::remove("X-Debug".to_owned())];
    let section = "x-api-key: b\r\nX_Api_Key: b\r\nX-Debug: b\r\nX-Sum: b\r\n";
    assert_eq!(forwarded(section, &operations).as_deref(), Some("X-Sum: b\r\n"));
}

fn asked(lines: &str, settings: &Proxy) -> Option<String> {
    let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    with_head(&text, |head| super::upgrade::asks(head, settings).map(|value| String::from_utf8_lossy(value).into()))
}

#[test]
fn upgrades_that_are_passed_on() {
    for (lines, expected) in [
        ("Connection: Upgrade\r\nUpgrade: websocket\r\n", Some("websocket")),
        ("Connection: keep-alive, upgrade\r\nUpgrade: WebSocket\r\n", Some("WebSocket")),
        ("Upgrade: connect-udp, foo/1.0\r\nConnection: upgrade\r\n", Some("connect-udp, foo/1.0")),
        ("Upgrade: websocket\r\n", None),
        ("Connection: upgrade\r\n", None),
        ("Connection: upgrade\r\nUpgrade:\r\n", None),
        ("Connection: upgrade\r\nUpgrade: h2c\r\n", None),
        ("Connection: upgrade\r\nUpgrade: websocket, H2C\r\n", None),
        ("Connection: upgrade\r\nUpgrade: HTTP/2.0\r\n", None),
        ("Connection: upgrade\r\nUpgrade: TLS/1.0\r\n", None),
        ("Connection: upgrade\r\nUpgrade: web socket\r\n", None),
        ("Connection: upgrade\r\nUpgrade: a/b/c\r\n", None),
        ("Connection: upgrade\r\nUpgrade: websocket\r\nUpgrade: websocket\r\n", None),
        ("Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n", None),
        ("Connection: upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n", None),
    ] {
        assert_eq!(asked(lines, &bare()).as_deref(), expected, "{lines:?}");
        assert_eq!(asked(lines, &Proxy { upgrades: false, ..bare() }), None);
    }
    let old = "GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert!(with_head(old, |head| super::upgrade::asks(head, &bare()).is_none()));
}

#[test]
fn upgrades_that_were_agreed_to() {
    for (asked, lines, expected) in [
        ("websocket", "Connection: upgrade\r\nUpgrade: WebSocket\r\n", true),
        ("a, b/1", "Connection: Upgrade\r\nUpgrade: b/1\r\n", true),
        ("websocket", "Upgrade: websocket\r\n", false),
        ("websocket", "Connection: upgrade\r\n", false),
        ("websocket", "Connection: upgrade\r\nUpgrade: h2c\r\n", false),
        ("a", "Connection: upgrade\r\nUpgrade: a, b\r\n", false),
    ] {
        let section = format!("{lines}\r\n");
        let mut storage = FieldStorage::new();
        let fields = parse_fields(section.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap();
        assert_eq!(super::upgrade::agrees(asked.as_bytes(), fields), expected, "{lines:?}");
    }
}

proptest! {
    /// Whatever fields arrive: no connection-specific field is forwarded, no line is split in two, and the output is a
    /// valid field section.
    #[test]
    fn nothing_of_the_connection_gets_through(
        lines in proptest::collection::vec(("[Cc]onnection|[Kk]eep-[Aa]live|TE|te|[Uu]pgrade|[Hh]ost|[Vv]ia|\
            [Pp]roxy-x|x-a|x_a|[Cc]ookie|[Xx]-[Ff]orwarded-[Ff]or|[Ff]orwarded|[Cc]ontent-[Ll]ength", "[ -~&&[^\"]]{0,20}"), 0..14),
        trusted in proptest::bool::ANY,
    ) {
        let settings = Proxy { forwarded: Forwarded { x_forwarded: true, standard: true }, ..Proxy::default() };
        let settings = if trusted { trusting(settings) } else { settings };
        let headers: Vec<_> = lines.iter().map(|(name, value)| Header { name, value: value.trim().as_bytes() }).collect();
        let offers = Offers::new();
        let mut storage = FieldStorage::new();
        let head = parse_request_head(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &Limits::DEFAULT, &mut storage);
        let head = RequestHead { fields: Fields::from_lines(&headers), ..head.unwrap().unwrap() };
        let client = Some("192.0.2.7:1".parse().unwrap());
        let request = Request { head: &head, client, unix: false, secure: true, listener: 0, offers: &offers };
        let passage = Passage { origin: &origin(), loop_mark: MARK, strip: Strip::NOTHING, extra: b"" };
        let mut out = Vec::new();
        if write_request_lines(&request, &settings, &passage, &mut out).is_ok() {
            out.extend_from_slice(b"\r\n");
            let mut storage = FieldStorage::new();
            let fields = parse_fields(&out, &Limits::DEFAULT, &mut storage);
            prop_assert!(fields.is_ok(), "{:?}", String::from_utf8_lossy(&out));
            let fields = fields.unwrap();
            for name in ["connection", "keep-alive", "upgrade", "proxy-x", "content-length"] {
                prop_assert!(fields.first(name).is_none(), "{} in {:?}", name, String::from_utf8_lossy(&out));
            }
            for name in ["host", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"] {
                prop_assert!(fields.all(name).count() == 1, "{} in {:?}", name, String::from_utf8_lossy(&out));
            }
            let last = fields.first("x-forwarded-for").unwrap_or_default();
            prop_assert!(last.ends_with(b"192.0.2.7"));
        }
    }
}
