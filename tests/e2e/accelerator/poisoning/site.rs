//! The careless origin. Each response depends only on its request.

use super::super::origin::{Request, Then, response};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpStream;

/// Fields that tell an origin who sent a request, for which URL, and how. This origin trusts and reflects them all.
const BELIEVED: &[&str] = &[
    "client-ip",
    "forwarded",
    "cloudfront-forwarded-proto",
    "front-end-https",
    "remote-user",
    "surrogate-capability",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-protocol",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-forwarded-uri",
    "x-host",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-host",
    "x-original-url",
    "x-originating-ip",
    "x-override-url",
    "x-real-ip",
    "x-rewrite-url",
    "x-scheme",
    "x-ssl-client-verify",
    "x-url-scheme",
];

const KEPT: &str = "Cache-Control: max-age=60\r\n";

/// Names are compared as by a CGI program, where underscores and hyphens are equal.
fn believed(request: &Request, name: &str) -> Option<String> {
    let values: Vec<&str> =
        request.fields.iter().filter(|(field, _)| field.replace('_', "-") == name).map(|(_, value)| &**value).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

fn reflect(request: &Request) -> String {
    let host = request.field("host").unwrap_or_default();
    // RFC 9110 §9.3.2: HEAD has the fields that GET would have.
    let method = if request.method == "HEAD" { "GET" } else { &request.method };
    let mut text = format!("{method} {}\nhost={host}\n", request.target);
    for name in BELIEVED {
        if let Some(value) = believed(request, name) {
            writeln!(text, "{name}={value}").unwrap();
        }
    }
    text
}

fn visitor(request: &Request) -> String {
    request.field("cookie").unwrap_or_else(|| "nobody".to_owned())
}

/// Decodes `%0d%0a` and other percent-encoded bytes.
fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let (mut out, mut place) = (Vec::new(), 0);
    while place < bytes.len() {
        let code = text.get(place + 1..place + 3).and_then(|code| u8::from_str_radix(code, 16).ok());
        if let Some(byte) = code.filter(|_| bytes[place] == b'%') {
            out.push(byte);
            place += 3;
        } else {
            out.push(bytes[place]);
            place += 1;
        }
    }
    out
}

fn of_account(request: &Request) -> Vec<u8> {
    let rule = match request.target.split("rule=").nth(1) {
        Some("no-store") => "Cache-Control: no-store\r\n",
        Some("no-cache") => "Cache-Control: no-cache\r\n",
        Some("expired") => "Expires: 0\r\n",
        Some("field") => "Cache-Control: private=\"Set-Cookie\", max-age=0\r\n",
        _ => "Cache-Control: private, max-age=60\r\n",
    };
    response("200 OK", rule, format!("the account of {}", visitor(request)).as_bytes())
}

fn of_range(request: &Request) -> Vec<u8> {
    const TEXT: &str = "0123456789";
    let fields = format!("{KEPT}ETag: \"a\"\r\nAccept-Ranges: bytes\r\n");
    let refuses = request.field("if-match").is_some_and(|tag| tag != "\"a\"");
    if refuses {
        return response("412 Precondition Failed", KEPT, b"no");
    }
    if request.field("if-none-match").is_some_and(|tag| tag == "*" || tag.contains("\"a\"")) {
        return format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").into_bytes();
    }
    let if_range = request.field("if-range").is_none_or(|tag| tag == "\"a\"");
    match request.field("range").filter(|_| if_range).as_deref() {
        Some("bytes=0-0") => response("206 Partial Content", &format!("{fields}Content-Range: bytes 0-0/10\r\n"), b"0"),
        Some("bytes=2-4") => {
            response("206 Partial Content", &format!("{fields}Content-Range: bytes 2-4/10\r\n"), b"234")
        }
        Some(other) if other.starts_with("bytes=9999") => {
            response("416 Range Not Satisfiable", &format!("{KEPT}Content-Range: bytes */10\r\n"), b"no such range")
        }
        _ => response("200 OK", &fields, TEXT.as_bytes()),
    }
}

pub(super) fn respond(request: &Request, stream: &mut TcpStream) -> Then {
    let _ = stream.write_all(&bytes(request));
    Then::Keep
}

fn bytes(request: &Request) -> Vec<u8> {
    let path = decoded(request.path());
    let path = String::from_utf8_lossy(&path).replace('\\', "/");
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let is = |name: &str| parts.iter().any(|part| part.starts_with(name));
    // The origin has its own limits, like other servers.
    let longest = request.fields.iter().map(|(_, value)| value.len()).max().unwrap_or(0);
    if longest > 4096 {
        return response("431 Request Header Fields Too Large", "", b"too large for the origin");
    }
    if request.fields.iter().any(|(_, value)| value.contains("{{")) {
        return response("400 Bad Request", "", b"the origin dislikes it");
    }
    if request.field("expect").is_some_and(|value| value != "100-continue") {
        return response("417 Expectation Failed", KEPT, b"no");
    }
    // This origin honours overrides, and its error responses are cacheable.
    if believed(request, "x-http-method-override").is_some_and(|method| method != request.method) {
        return response("405 Method Not Allowed", KEPT, b"overridden");
    }
    if let Some(target) = believed(request, "x-original-url").or_else(|| believed(request, "x-rewrite-url")) {
        return response("404 Not Found", KEPT, format!("no {target}").as_bytes());
    }
    let bytes = if is("account") {
        of_account(request)
    } else if is("login") {
        let cookie = format!("{KEPT}Set-Cookie: sid=for-{}\r\n", visitor(request));
        response("200 OK", &cookie, b"welcome")
    } else if is("secret") {
        let who = request.field("authorization");
        match who {
            Some(who) => response("200 OK", KEPT, format!("secret of {who}").as_bytes()),
            None => response("401 Unauthorized", "WWW-Authenticate: Basic realm=\"a\"\r\n", b"who are you?"),
        }
    } else if is("vary") {
        let name = *parts.last().unwrap();
        let value = request.field(name).unwrap_or_default();
        response("200 OK", &format!("{KEPT}Vary: {}\r\n", name.to_uppercase()), format!("{name}={value}").as_bytes())
    } else if is("star") {
        response("200 OK", &format!("{KEPT}Vary: *\r\n"), format!("for {}", visitor(request)).as_bytes())
    } else if is("silent") {
        response("200 OK", "", format!("for {}", visitor(request)).as_bytes())
    } else if is("redirect") {
        let host = request.field("host").unwrap_or_default();
        let fields = format!("{KEPT}Location: http://{host}{}/there\r\n", request.target);
        response("302 Found", &fields, b"")
    } else if is("range") {
        of_range(request)
    } else if is("fat") {
        response("200 OK", KEPT, &[b"body: ", &request.body[..]].concat())
    } else if is("poster") {
        // Claims that the response is a representation of a different URL.
        let elsewhere = request.target.replace("poster", "reflect");
        response("200 OK", &format!("{KEPT}Content-Location: {elsewhere}\r\n"), b"posted")
    } else if is("split") {
        let value = decoded(request.target.split("u=").nth(1).unwrap_or("/"));
        [b"HTTP/1.1 302 Found\r\nLocation: ", &value[..], b"\r\nContent-Length: 0\r\n\r\n"].concat()
    } else if is("error") {
        response("500 Internal Server Error", "", reflect(request).as_bytes())
    } else if is("missing") {
        response("404 Not Found", KEPT, reflect(request).as_bytes())
    } else {
        response("200 OK", KEPT, reflect(request).as_bytes())
    };
    if request.method == "HEAD" {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        return bytes[..end].to_vec();
    }
    bytes
}
