//! Early hints (RFC 8297) that the cache sends on its own: they come from the stored response that a request selects,
//! and never from another visitor's response.

use super::super::harness::{Folder, Server};
use super::super::tool::{run, tool};
use super::configuration;
use super::origin::{Origin, Request, response};

/// Everything that curl receives for `path` over HTTP/2: the heads of all responses, including interim ones.
fn get(server: &Server, path: &str, arguments: &[&str]) -> String {
    run(tool("curl").args(["-sS", "--http2-prior-knowledge", "-i"]).args(arguments).arg(server.url(path)))
}

fn start(origin: &Origin, folder: &Folder) -> Server {
    let config = configuration(folder, &origin.url(), "purge \"127.0.0.1\"", "");
    Server::run(folder, &config.replace("127.0.0.1:0\"", "127.0.0.1:0\" h2c=#true"))
}

fn visitor(request: &Request) -> String {
    let credentials = ["authorization", "cookie"].iter().find_map(|name| request.field(name)).unwrap_or_default();
    ["ann", "bob"]
        .iter()
        .find(|name| credentials.contains(**name))
        .map_or_else(|| "nobody".to_owned(), ToString::to_string)
}

/// Pages for each visitor, with a link to that visitor's picture. The first path segment selects the header fields.
fn pages() -> Origin {
    Origin::responding(|request| {
        let (visitor, kind) =
            (visitor(request), request.path().trim_start_matches('/').split('/').next().unwrap_or(""));
        let fields = match kind {
            "private" => "Cache-Control: private, max-age=60\r\n",
            "no-store" => "Cache-Control: no-store\r\n",
            "no-cache" => "Cache-Control: no-cache\r\n",
            "max-age-0" => "Cache-Control: max-age=0\r\n",
            "set-cookie" => "Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n",
            "vary-cookie" => "Cache-Control: max-age=60\r\nVary: Cookie\r\n",
            "vary-authorization" => "Cache-Control: public, max-age=60\r\nVary: Authorization\r\n",
            "lifetime" => "Cache-Control: max-age=60\r\n",
            _ => "",
        };
        let lines = format!("{fields}ETag: \"{visitor}\"\r\nLink: </{visitor}.jpg>; rel=preload; as=image\r\n");
        response("200 OK", &lines, visitor.as_bytes())
    })
}

#[test]
fn early_hints_never_contain_the_links_of_another_visitor() {
    let (origin, folder) = (pages(), Folder::new());
    let server = start(&origin, &folder);
    let kinds =
        ["private", "no-store", "no-cache", "max-age-0", "set-cookie", "vary-cookie", "vary-authorization", "nothing"];
    for kind in kinds {
        for (by, ann, bob) in [
            ("cookie", Some("Cookie: u=ann"), Some("Cookie: u=bob")),
            ("password", Some("Authorization: Bearer ann"), Some("Authorization: Bearer bob")),
            ("cookie-or-none", Some("Cookie: u=ann"), None),
            ("password-or-none", Some("Authorization: Bearer ann"), None),
        ] {
            if kind == "vary-authorization" && by.starts_with("cookie") {
                // The response is public, and a cookie does not select one of its variants.
                continue;
            }
            let path = format!("/{kind}/{by}");
            let arguments = |field: Option<&'static str>| field.map_or_else(Vec::new, |field| vec!["-H", field]);
            for _ in 0..2 {
                get(&server, &path, &arguments(ann));
            }
            let seen = get(&server, &path, &arguments(bob));
            assert!(!seen.contains("ann"), "{kind} by {by}:\n{seen}");
        }
    }
}

#[test]
fn early_hints_are_sent_only_from_a_usable_stored_response() {
    let (origin, folder) = (pages(), Folder::new());
    let server = start(&origin, &folder);
    let has_hints = |text: &str| text.contains("HTTP/2 103");
    assert!(!has_hints(&get(&server, "/lifetime", &[])), "nothing was stored");
    let purge = |flags: &[&str]| get(&server, "/lifetime", &[&["-X", "PURGE"], flags].concat());
    purge(&["-H", "Flatout-Purge: soft"]);
    let seen = get(&server, "/lifetime", &[]);
    assert!(has_hints(&seen) && seen.contains("nobody.jpg"), "validated:\n{seen}");
    purge(&[]);
    let seen = get(&server, "/lifetime", &[]);
    assert!(!has_hints(&seen), "purged:\n{seen}");
    // A request that may not use the stored response gets none of its links.
    purge(&["-H", "Flatout-Purge: soft"]);
    let seen = get(&server, "/lifetime", &["-H", "Authorization: Bearer bob"]);
    assert!(!seen.contains("nobody.jpg"), "{seen}");
}
