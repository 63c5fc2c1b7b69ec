//! Attacks through methods, conditions, framing and other visitors' pages.

use super::Step::{Get, Of, Raw};
use super::{Case, Step};

const REFLECT: Step = Get("{p}/reflect", "");
const ALICE: &str = "Cookie: sid=alice\r\n";
const OF_ALICE: &str = "Authorization: Basic YWxpY2U6YQ==\r\n";

const fn case(name: &'static str, before: &'static [Step], last: Step) -> Case {
    Case { name, before, last }
}

pub(super) const CASES: &[Case] = &[
    // Private pages whose URLs look like those of shared files.
    case("a page as a style", &[Get("{p}/account.php/x.css", ALICE)], Get("{p}/account.php/x.css", "")),
    case(
        "a page as a script",
        &[Get("{p}/account.php/x.js?rule=no-store", ALICE)],
        Get("{p}/account.php/x.js?rule=no-store", ""),
    ),
    case(
        "a page as a picture",
        &[Get("{p}/account/x.png?rule=no-cache", ALICE)],
        Get("{p}/account/x.png?rule=no-cache", ""),
    ),
    case("a page with an encoded slash", &[Get("{p}/account.php%2fx.css", ALICE)], Get("{p}/account.php%2fx.css", "")),
    case(
        "a page with an encoded backslash",
        &[Get("{p}/account.php%5cx.css", ALICE)],
        Get("{p}/account.php%5cx.css", ""),
    ),
    case("a page with a semicolon", &[Get("{p}/account.php;x.css", ALICE)], Get("{p}/account.php;x.css", "")),
    case("a page with a NUL", &[Get("{p}/account.php%00.css", ALICE)], Get("{p}/account.php%00.css", "")),
    case(
        "a page with an encoded line end",
        &[Get("{p}/account.php%0ax.css", ALICE)],
        Get("{p}/account.php%0ax.css", ""),
    ),
    case(
        "a page with an encoded question mark",
        &[Get("{p}/account.php%3fx.css", ALICE)],
        Get("{p}/account.php%3fx.css", ""),
    ),
    case("a page with a style in its query", &[Get("{p}/account.php?x.css", ALICE)], Get("{p}/account.php?x.css", "")),
    case("a page below static files", &[Get("{p}/static/../account.php", ALICE)], Get("{p}/static/../account.php", "")),
    case(
        "a page below static files, encoded",
        &[Get("{p}/static/%2e%2e/account.php", ALICE)],
        Get("{p}/static/%2e%2e/account.php", ""),
    ),
    case("a page at two slashes", &[Get("{p}//account.php", ALICE)], Get("{p}//account.php", "")),
    case("a page reached by what is public", &[Get("{p}/static/..%2faccount.php", ALICE)], Get("{p}/account.php", "")),
    case(
        "a page that says it is expired",
        &[Get("{p}/account?rule=expired", ALICE)],
        Get("{p}/account?rule=expired", ""),
    ),
    case("a page with a private field", &[Get("{p}/account?rule=field", ALICE)], Get("{p}/account?rule=field", "")),
    case("another's page", &[Get("{p}/account", ALICE)], Get("{p}/account", "Cookie: sid=bob\r\n")),
    case("a login that may be kept", &[Get("{p}/login", ALICE)], Get("{p}/login", "")),
    case("a secret", &[Get("{p}/secret", OF_ALICE)], Get("{p}/secret", "")),
    case("another's secret", &[Get("{p}/secret", OF_ALICE)], Get("{p}/secret", "Authorization: Basic Ym9iOmI=\r\n")),
    case("no secret for who has one", &[Get("{p}/secret", "")], Get("{p}/secret", OF_ALICE)),
    // Methods and content.
    case("a GET with content", &[Get("{p}/fat", "Content-Length: 4\r\n\r\nevil")], Get("{p}/fat", "")),
    case(
        "a GET with chunks",
        &[Get("{p}/fat", "Transfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n")],
        Get("{p}/fat", ""),
    ),
    case(
        "a GET with content of a form",
        &[Get("{p}/fat", "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 6\r\n\r\na=evil")],
        Get("{p}/fat", ""),
    ),
    case("HEAD before GET", &[Of("HEAD", "{p}/reflect", "")], REFLECT),
    case("GET before HEAD", &[REFLECT], Of("HEAD", "{p}/reflect", "")),
    case("OPTIONS", &[Of("OPTIONS", "{p}/reflect", "")], REFLECT),
    case("POST", &[Of("POST", "{p}/reflect", "Content-Length: 0\r\n")], REFLECT),
    case("PUT", &[Of("PUT", "{p}/reflect", "Content-Length: 0\r\n")], REFLECT),
    case("PATCH", &[Of("PATCH", "{p}/reflect", "Content-Length: 0\r\n")], REFLECT),
    case("a method of one's own", &[Of("BREW", "{p}/reflect", "")], REFLECT),
    case("a method in small letters", &[Of("get", "{p}/reflect", "")], REFLECT),
    case("TRACE", &[Of("TRACE", "{p}/reflect", "")], REFLECT),
    case("POST that speaks for another page", &[Of("POST", "{p}/poster", "Content-Length: 0\r\n")], REFLECT),
    case("GET that speaks for another page", &[Get("{p}/poster", "")], REFLECT),
    // Conditions, ranges and expectations.
    case("a range before the whole", &[Get("{p}/range", "Range: bytes=0-0\r\n")], Get("{p}/range", "")),
    case(
        "two ranges before the whole",
        &[Get("{p}/range", "Range: bytes=0-0\r\n"), Get("{p}/range", "Range: bytes=2-4\r\n")],
        Get("{p}/range", ""),
    ),
    case("another range", &[Get("{p}/range", "Range: bytes=0-0\r\n")], Get("{p}/range", "Range: bytes=2-4\r\n")),
    case("a range that cannot be", &[Get("{p}/range", "Range: bytes=9999-\r\n")], Get("{p}/range", "")),
    case("a range of another unit", &[Get("{p}/range", "Range: evil=0-0\r\n")], Get("{p}/range", "")),
    case(
        "many ranges",
        &[Get("{p}/range", "Range: bytes=0-,0-,0-,0-,0-,0-,0-,0-,0-,0-,0-,0-\r\n")],
        Get("{p}/range", ""),
    ),
    case(
        "If-Range of another version",
        &[Get("{p}/range", "Range: bytes=0-0\r\nIf-Range: \"evil\"\r\n")],
        Get("{p}/range", ""),
    ),
    case("If-None-Match of anything", &[Get("{p}/range", "If-None-Match: *\r\n")], Get("{p}/range", "")),
    case("If-None-Match", &[Get("{p}/range", "If-None-Match: \"a\"\r\n")], Get("{p}/range", "")),
    case("If-Match", &[Get("{p}/range", "If-Match: \"evil\"\r\n")], Get("{p}/range", "")),
    case("Expect", &[Get("{p}/reflect", "Expect: evil\r\n")], REFLECT),
    // Errors.
    case("a field too large for the origin", &[Get("{p}/reflect", "X-Large: {5k}\r\n")], REFLECT),
    case("a field that the origin dislikes", &[Get("{p}/reflect", "X-Meta: {{evil}}\r\n")], REFLECT),
    case("a control character", &[Get("{p}/reflect", "X-Meta: a\x07b\r\n")], REFLECT),
    case("an error", &[Get("{p}/error", "X-Forwarded-Host: evil\r\n")], Get("{p}/error", "")),
    case("an error that may be kept", &[Get("{p}/missing", "X-Forwarded-Host: evil\r\n")], Get("{p}/missing", "")),
    // Hop-by-hop fields.
    case(
        "Connection: Cookie",
        &[Get("{p}/vary/cookie", "Cookie: sid=alice\r\nConnection: close, Cookie\r\n")],
        Get("{p}/vary/cookie", ALICE),
    ),
    case(
        "Connection: Cookie, somebody's page",
        &[Get("{p}/star", "Cookie: sid=alice\r\nConnection: close, Cookie\r\n")],
        Get("{p}/star", ALICE),
    ),
    case(
        "Connection: Authorization",
        &[Get("{p}/secret", "Authorization: Basic YWxpY2U6YQ==\r\nConnection: close, Authorization\r\n")],
        Get("{p}/secret", OF_ALICE),
    ),
    case(
        "Connection: Authorization, vary",
        &[Get("{p}/vary/authorization", "Authorization: a\r\nConnection: close, Authorization\r\n")],
        Get("{p}/vary/authorization", "Authorization: a\r\n"),
    ),
    case("Connection: X-Forwarded-For", &[Get("{p}/reflect", "Connection: close, X-Forwarded-For\r\n")], REFLECT),
    case(
        "Connection: X-Forwarded-Host",
        &[Get("{p}/reflect", "Connection: close, X-Forwarded-Host, X-Forwarded-Proto\r\n")],
        REFLECT,
    ),
    case("Connection: Host", &[Get("{p}/reflect", "Connection: close, Host\r\n")], REFLECT),
    case(
        "Connection: Cache-Control",
        &[Get("{p}/reflect", "Cache-Control: no-store\r\nConnection: close, Cache-Control\r\n")],
        REFLECT,
    ),
    case(
        "Connection: User-Agent",
        &[Get("{p}/vary/user-agent", "User-Agent: good\r\nConnection: close, User-Agent\r\n")],
        Get("{p}/vary/user-agent", "User-Agent: good\r\n"),
    ),
    case(
        "Connection: Accept-Encoding",
        &[Get("{p}/vary/accept-encoding", "Accept-Encoding: gzip\r\nConnection: close, Accept-Encoding\r\n")],
        Get("{p}/vary/accept-encoding", "Accept-Encoding: gzip\r\n"),
    ),
    case(
        "Connection: Range",
        &[Get("{p}/range", "Range: bytes=0-0\r\nConnection: close, Range\r\n")],
        Get("{p}/range", "Range: bytes=0-0\r\n"),
    ),
    case(
        "Connection: Content-Length",
        &[Raw(
            "POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nContent-Length: 46\r\nConnection: Content-Length\r\n\r\nGET /evil HTTP/1.1\r\nHost: site.example\r\nA: bcde\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "Connection: Transfer-Encoding",
        &[Raw(
            "POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\nConnection: Transfer-Encoding\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "Upgrade to h2c",
        &[Raw(
            "GET {p}/reflect HTTP/1.1\r\nHost: site.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n",
        )],
        REFLECT,
    ),
    // One request that may be parsed as two.
    case(
        "CL.TE",
        &[Raw(
            "POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nContent-Length: 47\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: site.example\r\nA: b\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "TE.CL",
        &[Raw(
            "POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2b\r\nGET /evil HTTP/1.1\r\nHost: site.example\r\n\r\n\r\n0\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "0.CL",
        &[Raw(
            "GET {p}/reflect HTTP/1.1\r\nHost: site.example\r\nContent-Length: 44\r\n\r\nGET /evil HTTP/1.1\r\nHost: site.example\r\nA:b\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "a coding before chunked",
        &[Raw(
            "POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: evil, chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "chunked twice",
        &[Raw(
            "POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked, chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "a space in the name of chunked",
        &[Raw(
            "POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nContent-Length: 44\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: site.example\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "chunked by another word",
        &[Raw(
            "POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nContent-Length: 44\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: site.example\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "chunked behind a line end",
        &[Raw(
            "POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nX: y\nTransfer-Encoding: chunked\r\nContent-Length: 44\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: site.example\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "chunked behind a carriage return",
        &[Raw(
            "POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nX: y\rTransfer-Encoding: chunked\r\nContent-Length: 44\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: site.example\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "two lengths",
        &[Raw(
            "POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nContent-Length: 0\r\nContent-Length: 41\r\n\r\nGET /evil HTTP/1.1\r\nHost: site.example\r\n\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "a length with a sign",
        &[Raw(
            "POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nContent-Length: +41\r\n\r\nGET /evil HTTP/1.1\r\nHost: site.example\r\n\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "a chunk's size with a prefix",
        &[Raw(
            "POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n0x0\r\n\r\nGET /evil HTTP/1.1\r\nHost: site.example\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "a chunk's extension with a line end",
        &[Raw(
            "POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n2;\nxx\r\n2b\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: site.example\r\n\r\n0\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "chunks that end by line ends alone",
        &[Raw(
            "POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n4\nevil\n0\n\nGET /evil HTTP/1.1\r\nHost: site.example\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "a trailer that would be a field",
        &[Raw(
            "POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\nTrailer: X-Forwarded-Host\r\n\r\n4\r\nevil\r\n0\r\nX-Forwarded-Host: evil\r\nContent-Length: 5\r\n\r\n",
        )],
        REFLECT,
    ),
    case("a NUL in a name", &[Raw("GET {p}/reflect HTTP/1.1\r\nHost: site.example\r\nX-A\0B: c\r\n\r\n")], REFLECT),
    case("a target with a line end", &[Raw("GET {p}/reflect\nX: y HTTP/1.1\r\nHost: site.example\r\n\r\n")], REFLECT),
    case(
        "a target with spaces",
        &[Raw("GET {p}/reflect HTTP/1.1 evil HTTP/1.1\r\nHost: site.example\r\n\r\n")],
        REFLECT,
    ),
    case(
        "two requests at once",
        &[Raw(
            "GET {p}/reflect?evil HTTP/1.1\r\nHost: site.example\r\n\r\nGET {p}/reflect HTTP/1.1\r\nHost: site.example\r\nX-Forwarded-Host: evil\r\n\r\n",
        )],
        REFLECT,
    ),
    case(
        "half a request",
        &[Raw("POST {p}/fat HTTP/1.1\r\nHost: site.example\r\nContent-Length: 100\r\n\r\nGET /evil HTTP/1.1\r\n")],
        REFLECT,
    ),
    // One response that may be parsed as two.
    case(
        "an answer that is split",
        &[Get(
            "{p}/split?u=/%0d%0aContent-Length:%200%0d%0a%0d%0aHTTP/1.1%20200%20OK%0d%0aCache-Control:%20max-age=60%0d%0aContent-Length:%204%0d%0a%0d%0aevil",
            "",
        )],
        REFLECT,
    ),
    case(
        "a cookie that is split off",
        &[Get("{p}/split?u=/%0d%0aSet-Cookie:%20sid=evil", "")],
        Get("{p}/split?u=/", ""),
    ),
];

/// Cases for rules that exclude query parameters from the key.
pub(super) const OF_RULES: &[Case] = &[
    case("a parameter that is left out", &[Get("{p}/reflect?utm_content=evil", "")], REFLECT),
    case("another beside it", &[Get("{p}/reflect?utm_content=evil&a=evil", "")], Get("{p}/reflect?a=good", "")),
    case("one hidden behind a semicolon", &[Get("{p}/reflect?utm_content=x;a=evil", "")], REFLECT),
    case("one hidden behind an encoded ampersand", &[Get("{p}/reflect?utm_content=x%26a=evil", "")], REFLECT),
    case("a name in part encoded", &[Get("{p}/reflect?u%74m_content=evil", "")], REFLECT),
    case("a redirect that reflects one", &[Get("{p}/redirect?fbclid=evil", "")], Get("{p}/redirect", "")),
];
