//! Attacks through fields, hosts and paths.

use super::Step::{Get, Raw};
use super::{Case, Step};

const REFLECT: Step = Get("{p}/reflect", "");

/// A visitor who sends the steps in `before`, and then a visitor who does not.
const fn unkeyed(name: &'static str, before: &'static [Step]) -> Case {
    Case { name, before, last: REFLECT }
}

const fn case(name: &'static str, before: &'static [Step], last: Step) -> Case {
    Case { name, before, last }
}

const ALICE: &str = "Cookie: sid=alice\r\n";

pub(super) const CASES: &[Case] = &[
    // Fields that are not part of any key and that origins trust.
    unkeyed("X-Forwarded-Host", &[Get("{p}/reflect", "X-Forwarded-Host: evil.example\r\n")]),
    unkeyed(
        "X-Forwarded-Host twice",
        &[Get("{p}/reflect", "X-Forwarded-Host: site.example\r\nX-Forwarded-Host: evil\r\n")],
    ),
    unkeyed("X_Forwarded_Host as CGI reads it", &[Get("{p}/reflect", "X_Forwarded_Host: evil.example\r\n")]),
    unkeyed("x-forwarded-host in small letters", &[Get("{p}/reflect", "x-forwarded-host: evil.example\r\n")]),
    unkeyed("X-Forwarded-Proto", &[Get("{p}/reflect", "X-Forwarded-Proto: evil\r\n")]),
    unkeyed("X-Forwarded-For", &[Get("{p}/reflect", "X-Forwarded-For: 6.6.6.6\r\n")]),
    unkeyed("X-Forwarded-Port", &[Get("{p}/reflect", "X-Forwarded-Port: 666\r\n")]),
    unkeyed("X-Forwarded-Scheme", &[Get("{p}/reflect", "X-Forwarded-Scheme: evil\r\n")]),
    unkeyed("X-Forwarded-Server", &[Get("{p}/reflect", "X-Forwarded-Server: evil.example\r\n")]),
    unkeyed("X-Forwarded-Prefix", &[Get("{p}/reflect", "X-Forwarded-Prefix: /evil\r\n")]),
    unkeyed("X-Forwarded-Ssl", &[Get("{p}/reflect", "X-Forwarded-Ssl: on\r\n")]),
    unkeyed("X-Forwarded-Uri", &[Get("{p}/reflect", "X-Forwarded-Uri: /evil\r\n")]),
    unkeyed("X-Forwarded", &[Get("{p}/reflect", "X-Forwarded: host=evil.example\r\n")]),
    unkeyed("Forwarded", &[Get("{p}/reflect", "Forwarded: for=6.6.6.6;host=evil.example;proto=evil\r\n")]),
    unkeyed("X-Host", &[Get("{p}/reflect", "X-Host: evil.example\r\n")]),
    unkeyed("X-Original-Host", &[Get("{p}/reflect", "X-Original-Host: evil.example\r\n")]),
    unkeyed("X-HTTP-Host-Override", &[Get("{p}/reflect", "X-HTTP-Host-Override: evil.example\r\n")]),
    unkeyed("X-Original-URL", &[Get("{p}/reflect", "X-Original-URL: /evil\r\n")]),
    unkeyed("X-Rewrite-URL", &[Get("{p}/reflect", "X-Rewrite-URL: /evil\r\n")]),
    unkeyed("X-Override-URL", &[Get("{p}/reflect", "X-Override-URL: /evil\r\n")]),
    unkeyed("X-HTTP-Method-Override", &[Get("{p}/reflect", "X-HTTP-Method-Override: DELETE\r\n")]),
    unkeyed("X-HTTP-Method", &[Get("{p}/reflect", "X-HTTP-Method: DELETE\r\n")]),
    unkeyed("X-Method-Override", &[Get("{p}/reflect", "X-Method-Override: DELETE\r\n")]),
    unkeyed("X-Real-IP", &[Get("{p}/reflect", "X-Real-IP: 6.6.6.6\r\n")]),
    unkeyed("True-Client-IP", &[Get("{p}/reflect", "True-Client-IP: 6.6.6.6\r\n")]),
    unkeyed("Client-IP", &[Get("{p}/reflect", "Client-IP: 6.6.6.6\r\n")]),
    unkeyed("Front-End-Https", &[Get("{p}/reflect", "Front-End-Https: on\r\n")]),
    unkeyed("CloudFront-Forwarded-Proto", &[Get("{p}/reflect", "CloudFront-Forwarded-Proto: http\r\n")]),
    unkeyed("X-Scheme", &[Get("{p}/reflect", "X-Scheme: http\r\n")]),
    unkeyed("Remote-User", &[Get("{p}/reflect", "Remote-User: admin\r\n")]),
    unkeyed("X-SSL-Client-Verify", &[Get("{p}/reflect", "X-SSL-Client-Verify: SUCCESS\r\n")]),
    unkeyed("Via", &[Get("{p}/reflect", "Via: 1.1 evil\r\n")]),
    unkeyed("X-Url-Scheme", &[Get("{p}/reflect", "X-Url-Scheme: evil\r\n")]),
    unkeyed("Surrogate-Capability", &[Get("{p}/reflect", "Surrogate-Capability: evil=\"ESI/1.0\"\r\n")]),
    unkeyed("in a redirect", &[Get("{p}/redirect", "X-Forwarded-Host: evil.example\r\n"), Get("{p}/reflect", "")]),
    // If the origin says that a response depends on a field, the cache honours that.
    case(
        "Vary: User-Agent",
        &[Get("{p}/vary/user-agent", "User-Agent: evil\r\n")],
        Get("{p}/vary/user-agent", "User-Agent: good\r\n"),
    ),
    case(
        "Vary: User-Agent, without one",
        &[Get("{p}/vary/user-agent", "User-Agent: evil\r\n")],
        Get("{p}/vary/user-agent", ""),
    ),
    case(
        "Vary: Accept-Language",
        &[Get("{p}/vary/accept-language", "Accept-Language: xx\r\n")],
        Get("{p}/vary/accept-language", "Accept-Language: en\r\n"),
    ),
    case(
        "Vary: Accept-Encoding",
        &[Get("{p}/vary/accept-encoding", "Accept-Encoding: evil\r\n")],
        Get("{p}/vary/accept-encoding", "Accept-Encoding: gzip\r\n"),
    ),
    case(
        "Vary: Origin",
        &[Get("{p}/vary/origin", "Origin: https://evil.example\r\n")],
        Get("{p}/vary/origin", "Origin: https://site.example\r\n"),
    ),
    case("Vary: Cookie", &[Get("{p}/vary/cookie", ALICE)], Get("{p}/vary/cookie", "Cookie: sid=bob\r\n")),
    case(
        "Vary: Cookie, two lines and one",
        &[Get("{p}/vary/cookie", "Cookie: a\r\nCookie: b\r\n")],
        Get("{p}/vary/cookie", "Cookie: a\r\n"),
    ),
    case(
        "Vary: X-Forwarded-Host",
        &[Get("{p}/vary/x-forwarded-host", "X-Forwarded-Host: evil\r\n")],
        Get("{p}/vary/x-forwarded-host", ""),
    ),
    case("Vary: *", &[Get("{p}/star", ALICE)], Get("{p}/star", "")),
    // Hosts.
    case("another host", &[Get("{p}/reflect", "Host: evil.example\r\n")], REFLECT),
    case("a host in capitals", &[Get("{p}/reflect", "Host: SITE.EXAMPLE\r\n")], REFLECT),
    case("a host with the default port", &[Get("{p}/reflect", "Host: site.example:80\r\n")], REFLECT),
    case("a host with another port", &[Get("{p}/reflect", "Host: site.example:666\r\n")], REFLECT),
    case("a host with a dot behind it", &[Get("{p}/reflect", "Host: site.example.\r\n")], REFLECT),
    case("a host with an empty port", &[Get("{p}/reflect", "Host: site.example:\r\n")], REFLECT),
    case("two hosts", &[Get("{p}/reflect", "Host: site.example\r\nHost: evil.example\r\n")], REFLECT),
    case("two hosts, the other first", &[Get("{p}/reflect", "Host: evil.example\r\nHost: site.example\r\n")], REFLECT),
    case("a host with a path", &[Get("{p}/reflect", "Host: site.example/evil\r\n")], REFLECT),
    case("a host with a user", &[Get("{p}/reflect", "Host: evil@site.example\r\n")], REFLECT),
    case("a host with a query", &[Get("{p}/reflect", "Host: site.example?evil\r\n")], REFLECT),
    case("a host with a comma", &[Get("{p}/reflect", "Host: site.example, evil.example\r\n")], REFLECT),
    case("an empty host", &[Get("{p}/reflect", "Host:\r\n")], REFLECT),
    case("a host on a folded line", &[Raw("GET {p}/reflect HTTP/1.1\r\nHost: site.example\r\n evil\r\n\r\n")], REFLECT),
    case(
        "a space before the colon",
        &[Raw("GET {p}/reflect HTTP/1.1\r\nHost: site.example\r\nHost : evil\r\n\r\n")],
        REFLECT,
    ),
    case(
        "a line before the host",
        &[Raw("GET {p}/reflect HTTP/1.1\r\n Host: evil\r\nHost: site.example\r\n\r\n")],
        REFLECT,
    ),
    case(
        "an absolute target of another host",
        &[Raw("GET http://evil.example{p}/reflect HTTP/1.1\r\nHost: site.example\r\n\r\n")],
        REFLECT,
    ),
    case(
        "another host beside an absolute target",
        &[Raw("GET http://site.example{p}/reflect HTTP/1.1\r\nHost: evil.example\r\n\r\n")],
        REFLECT,
    ),
    case(
        "an absolute target of another scheme",
        &[Raw("GET https://site.example{p}/reflect HTTP/1.1\r\nHost: site.example\r\n\r\n")],
        REFLECT,
    ),
    case(
        "an absolute target with a user",
        &[Raw("GET http://evil@site.example{p}/reflect HTTP/1.1\r\nHost: site.example\r\n\r\n")],
        REFLECT,
    ),
    case("HTTP/1.0 without a host", &[Raw("GET {p}/reflect HTTP/1.0\r\n\r\n")], REFLECT),
    case(
        "a target that begins with another host",
        &[Raw("GET //evil.example{p}/reflect HTTP/1.1\r\nHost: site.example\r\n\r\n")],
        REFLECT,
    ),
    case(
        "a target that begins with an at sign",
        &[Raw("GET @evil.example{p}/reflect HTTP/1.1\r\nHost: site.example\r\n\r\n")],
        REFLECT,
    ),
    // Paths that may be confused with another path.
    case("an encoded slash", &[Get("{p}/reflect%2fa", "")], Get("{p}/reflect/a", "")),
    case("an encoded letter", &[Get("{p}/reflect/%61", "")], Get("{p}/reflect/a", "")),
    case("small hexadecimal digits", &[Get("{p}/reflect/%c3%a4", "")], Get("{p}/reflect/%C3%A4", "")),
    case("two slashes", &[Get("{p}//reflect/a", "")], Get("{p}/reflect/a", "")),
    case("a dot segment", &[Get("{p}/./reflect", "")], REFLECT),
    case("two dots", &[Get("{p}/evil/../reflect", "")], REFLECT),
    case("two encoded dots", &[Get("{p}/evil/%2e%2e/reflect", "")], REFLECT),
    case("a backslash", &[Get("{p}/reflect\\a", "")], Get("{p}/reflect/a", "")),
    case("an encoded backslash", &[Get("{p}/reflect%5ca", "")], Get("{p}/reflect/a", "")),
    case("an encoded question mark", &[Get("{p}/reflect%3fa", "")], Get("{p}/reflect?a", "")),
    case("a question mark and nothing", &[Get("{p}/reflect?", "")], REFLECT),
    case("a fragment", &[Get("{p}/reflect#evil", "")], REFLECT),
    case("an encoded fragment", &[Get("{p}/reflect%23evil", "")], REFLECT),
    case("a NUL", &[Get("{p}/reflect%00evil", "")], REFLECT),
    case("a semicolon", &[Get("{p}/reflect;evil", "")], REFLECT),
    case("capitals", &[Get("{p}/REFLECT", "")], REFLECT),
    case("a query in another order", &[Get("{p}/reflect?a=1&b=2", "")], Get("{p}/reflect?b=2&a=1", "")),
    case("a parameter twice", &[Get("{p}/reflect?a=evil&a=good", "")], Get("{p}/reflect?a=good", "")),
    case("a parameter behind a semicolon", &[Get("{p}/reflect?a=good;a=evil", "")], Get("{p}/reflect?a=good", "")),
    case(
        "a query that is reflected by a redirect",
        &[Get("{p}/redirect?next=evil", "")],
        Get("{p}/redirect?next=good", ""),
    ),
    case("a query of marketing", &[Get("{p}/redirect?utm_content=evil", "")], Get("{p}/redirect", "")),
];
