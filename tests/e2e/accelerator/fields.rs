//! Operations of `header` apply alike to every response of an origin, whether it is forwarded, stored or validated.

use super::super::harness::{Folder, Server};
use super::super::tool::tool;
use super::origin::{Origin, response};
use super::{Answer, ask, get};

/// Fields of the origin's responses: end-to-end fields that caches and proxies handle specially, and one that they do
/// not know.
const FIELDS: [(&str, &str); 11] = [
    ("Cache-Control", "max-age=60"),
    ("Content-Language", "de"),
    ("Content-Type", "text/plain"),
    ("ETag", "\"a\""),
    ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ("Link", "</a.css>; rel=preload"),
    ("Server", "origin"),
    ("Vary", "Accept-Language"),
    ("Via", "1.0 other"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Unknown", "one"),
];

const OPERATIONS: [&str; 3] = ["set", "add", "remove"];

/// Compares the fields, except for those that tell the age and the way of the response. Their order does not matter.
fn comparable(fields: &[(String, String)]) -> Vec<(String, String)> {
    let differs =
        |name: &str| matches!(name, "age" | "date" | "cache-status" | "connection" | "alt-svc" | "transfer-encoding");
    let mut kept: Vec<_> = fields.iter().filter(|(name, _)| !differs(name)).cloned().collect();
    kept.sort();
    kept
}

/// The fields of a response over HTTP/2.
fn over_http2(server: &Server, target: &str) -> Vec<(String, String)> {
    let mut command = tool("curl");
    command.args(["-s", "--http2-prior-knowledge", "-D", "-", "-o", "/dev/null", "-H", "Host: test"]);
    let output = command.arg(server.url(target)).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("HTTP/2 200"), "{text}");
    let lines = text.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

#[test]
fn operations_apply_alike_to_forwarded_stored_and_validated_responses() {
    let origin = Origin::responding(|request| {
        let lines: String = FIELDS.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        match request.field("if-none-match") {
            Some(_) => response("304 Not Modified", &lines, b""),
            None => response("200 OK", &lines, b"content"),
        }
    });
    let routes: String = FIELDS
        .iter()
        .flat_map(|(name, _)| OPERATIONS.map(|operation| (operation, name)))
        .map(|(operation, name)| {
            let value = if operation == "remove" { "" } else { " \"changed\"" };
            format!("route \"/{operation}/{name}\" {{\n header {{\n {operation} \"{name}\"{value}\n }}\n}}\n")
        })
        .collect();
    let folder = Folder::new();
    let config = format!(
        "workers 1\nadmin off=#true\nlog off=#true\nsite \"*\" {{\nlisten \"127.0.0.1:0\" h2c=#true\n{routes}\ncache\nproxy \"{}\"\n}}\n",
        origin.url()
    );
    let server = Server::run(&folder, &config);
    for (name, original) in FIELDS {
        let values = |answer: &Answer| {
            let named = answer.fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
            named.map(|(_, value)| value.clone()).collect::<Vec<_>>().join(", ")
        };
        let usual = values(&get(&server, &format!("/usual/{name}")));
        assert!(usual.contains(original), "{name}: {usual}");
        for operation in OPERATIONS {
            let target = format!("/{operation}/{name}");
            let missed = get(&server, &target);
            let expected = match operation {
                "set" => "changed".to_owned(),
                "add" => format!("{usual}, changed"),
                _ => String::new(),
            };
            assert_eq!(values(&missed), expected, "{target}: {missed:?}");
            let expected = comparable(&missed.fields);
            let validated = ask(&server, "GET", &target, "Cache-Control: no-cache\r\n");
            let others = [
                ("a hit", get(&server, &target).fields),
                ("HEAD", ask(&server, "HEAD", &target, "").fields),
                ("HTTP/2", over_http2(&server, &target)),
                ("validated", validated.fields),
            ];
            for (way, fields) in others {
                assert_eq!(comparable(&fields), expected, "{way} of {target}");
            }
            let not_modified = ask(&server, "GET", &target, "If-None-Match: \"a\"\r\n");
            // A new entity tag is that of another response.
            if (name, not_modified.status) != ("ETag", 200) && name != "Content-Type" && name != "Content-Language" {
                assert_eq!((not_modified.status, values(&not_modified)), (304, values(&missed)), "304 of {target}");
            }
        }
    }
    let hits = |target: &str| origin.requests().iter().filter(|request| request.path() == target).count();
    assert_eq!(hits("/remove/Via"), 2, "once for the miss, and once to validate");
}
