//! REDbot, by an author of the HTTP specifications, finds no problems with our responses.
//!
//! It requests each resource in several ways (plainly, as a range, with conditions, with and without compression) and
//! assesses the responses. Its notes are good, information, warnings or bad. Warnings and bad notes fail the test,
//! except those that are justified here.

use super::harness::{Folder, Server, wait_until};
use super::tls::Certificate;
use super::tool::{run, test_tool, tool};
use serde_json::Value;
use std::fmt::Write as _;

/// A resource, its status, and fields that the response must have, so that there is something to assess.
struct Case {
    path: &'static str,
    status: u64,
    fields: &'static [&'static str],
    /// Accepted warnings, each with the reason.
    exempt: &'static [(&'static str, &'static str)],
}

const fn case(path: &'static str, status: u64, fields: &'static [&'static str]) -> Case {
    Case { path, status, fields, exempt: &[] }
}

/// Files have no freshness lifetime of their own, because their publisher has not declared one either.
const UNSAID_FRESHNESS: &[(&str, &str)] =
    &[("FRESHNESS_HEURISTIC", "RFC 9111 §4.2.2: a cache may guess where the origin says nothing")];

const CASES: &[Case] = &[
    case("/page.html", 200, &["etag", "last-modified", "cache-control"]),
    case("/style.css", 200, &["etag", "cache-control"]),
    case("/picture.png", 200, &["etag", "cache-control", "accept-ranges"]),
    case("/large.bin", 200, &["accept-ranges", "content-length"]),
    case("/", 200, &["etag"]),
    case("/empty.txt", 200, &["content-length"]),
    case("/old", 301, &["location", "cache-control"]),
    Case { exempt: UNSAID_FRESHNESS, ..case("/folder", 301, &["location"]) },
    case("/none", 404, &["content-type"]),
    case("/answer", 200, &["content-type", "cache-control"]),
    case("/private", 401, &["www-authenticate"]),
    Case { exempt: UNSAID_FRESHNESS, ..case("/gone", 410, &["content-type"]) },
    case("/list/", 200, &["content-type", "cache-control"]),
    case("/digest/page.html", 200, &["etag", "repr-digest"]),
    case("/cors/page.html", 200, &["etag"]),
    case("/hinted/page.html", 200, &["etag", "x-one"]),
    Case { exempt: UNSAID_FRESHNESS, ..case("/bare/page.html", 200, &["etag"]) },
];

fn configuration(root: &str, certificate: &Certificate) -> String {
    let mut text = "workers 1\nadmin off=#true\nsite \"*\" {\n".to_owned();
    writeln!(text, "listen \"127.0.0.2:0\"\nlisten \"127.0.0.1:0\" tls=#true").unwrap();
    writeln!(text, "tls cert=\"{}\" key=\"{}\"", certificate.chain, certificate.key).unwrap();
    let hash = "$2b$12$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy";
    let policy = "cache-control \"text/html\" \"no-cache\"\ncache-control \"*\" \"max-age=3600\"";
    let compress = "compress \"br\" \"zstd\" \"gzip\"";
    let fresh = "header { set \"Cache-Control\" \"max-age=600\"; }";
    for (path, inside) in [
        ("/old", format!("{fresh}\nredirect \"/old\" to=\"/page.html\" 301")),
        ("/answer", format!("{fresh}\nrespond 200 \"An answer.\" type=\"text/plain; charset=utf-8\"")),
        ("/private", format!("basic-auth realm=\"Staff\" {{ user \"ann\" \"{hash}\"; }}\nrespond \"in\"")),
        ("/gone", "respond 410".to_owned()),
        (
            "/list/*",
            format!(
                "rewrite strip-prefix=\"/list\"\nfiles \"{root}\" {{ index off=#true\nlisting #true\n{compress}\n\
                 cache-control \"*\" \"no-cache\"; }}"
            ),
        ),
        (
            "/digest/*",
            format!(
                "rewrite strip-prefix=\"/digest\"\nfiles \"{root}\" {{ digest #true always=#true\n{compress}\n\
                 {policy}; }}"
            ),
        ),
        (
            "/cors/*",
            format!(
                "rewrite strip-prefix=\"/cors\"\ncors \"https://a.example\" \"https://b.example\" credentials=#true\n\
                 files \"{root}\" {{ {compress}\n{policy}; }}"
            ),
        ),
        (
            "/hinted/*",
            format!(
                "rewrite strip-prefix=\"/hinted\"\nearly-hints \"</style.css>; rel=preload; as=style\"\n\
                 header {{ set \"X-One\" \"line\"; }}\n\
                 files \"{root}\" {{ {compress}\n{policy}; }}"
            ),
        ),
        ("/bare/*", format!("rewrite strip-prefix=\"/bare\"\nfiles \"{root}\"")),
    ] {
        writeln!(text, "route \"{path}\" {{\n{inside}\n}}").unwrap();
    }
    writeln!(text, "files \"{root}\" {{ {compress}\n{policy}; }}\n}}").unwrap();
    text
}

/// Collects every note below `notes` as level, name and sentence.
fn notes(notes: &Value, found: &mut Vec<(String, String, String)>) {
    for note in notes.as_array().into_iter().flatten() {
        let text = |name: &str| note[name].as_str().unwrap_or_default().to_owned();
        found.push((text("level"), text("note_id"), text("summary")));
        self::notes(&note["subnotes"], found);
    }
}

/// Returns REDbot's complaints about the resource at `url`.
fn complaints(case: &Case, url: &str) -> Vec<String> {
    let text = run(test_tool("redbot", "redbot/bin").args(["-o", "har", url]));
    let har: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{url}: {error}: {text}"));
    let entry = &har["log"]["entries"][0];
    let mut complaints = Vec::new();
    let status = entry["response"]["status"].as_u64();
    if status != Some(case.status) {
        complaints.push(format!("{url}: {status:?} and not {}", case.status));
    }
    let names: Vec<String> = entry["response"]["headers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|field| Some(field["name"].as_str()?.to_ascii_lowercase()))
        .collect();
    complaints.extend(
        case.fields
            .iter()
            .filter(|field| !names.iter().any(|name| name == *field))
            .map(|field| format!("{url}: no {field} among {names:?}")),
    );
    let mut found = Vec::new();
    notes(&entry["_red_messages"], &mut found);
    assert!(found.iter().any(|(level, ..)| level == "GOOD"), "{url}: no good note, so it has not looked: {text}");
    let is_exempt = |name: &str| case.exempt.iter().any(|(exempt, _)| *exempt == name);
    complaints.extend(
        found
            .iter()
            .filter(|(level, name, _)| matches!(level.as_str(), "WARN" | "BAD") && !is_exempt(name))
            .map(|(level, name, summary)| format!("{url}: {level} {name}: {summary}")),
    );
    complaints
}

#[test]
fn redbot_reports_no_problems() {
    let certificate = Certificate::new();
    let page = "<!doctype html><title>A page</title><p>Words that can be made smaller.".repeat(40);
    let large: Vec<u8> = (0..3_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let site = Folder::with(&[
        ("index.html", page.as_bytes()),
        ("page.html", page.as_bytes()),
        ("style.css", "body { color: black; }\n".repeat(80).as_bytes()),
        ("picture.png", &[&b"\x89PNG\r\n\x1a\n"[..], &large[..5000]].concat()),
        ("large.bin", &large),
        ("empty.txt", b""),
        ("folder/page.html", page.as_bytes()),
    ]);
    let folder = Folder::new();
    let server = Server::run(&folder, &configuration(site.path().to_str().unwrap(), &certificate));
    // A digest is sent only after it has been computed, which starts with the first response.
    for coding in ["identity", "gzip", "br", "zstd"] {
        wait_until("the digest is computed", || {
            let field = format!("Accept-Encoding: {coding}");
            let url = server.url_of(0, "/digest/page.html");
            run(tool("curl").args(["--silent", "--head", "--header", &field, &url])).contains("Repr-Digest")
        });
    }
    let judge = |listener: usize| -> Vec<String> {
        CASES.iter().flat_map(|case| complaints(case, &server.url_of(listener, case.path))).collect()
    };
    let found: Vec<String> = std::thread::scope(|scope| {
        let both = [0, 1].map(|listener| scope.spawn(move || judge(listener)));
        both.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found.is_empty(), "{} complaints:\n{}", found.len(), found.join("\n"));
}
