//! Caching directives of pages, and a cache that honours them.

use super::{page, site, text};
use crate::e2e::accelerator::wiki::free_port;
use crate::e2e::harness::{Folder, Response, Server, flatout};
use crate::e2e::tool::said;

/// `kv` counts how often the page ran.
const SITE: &[(&str, &str)] = &[
    ("site/kept.lhtml", "<?lua cache(\"60s\", {tags = {\"news\"}}) ?><?= kv.incr(\"kept\") ?>"),
    ("site/own.lhtml", "<?= kv.incr(\"own\") ?>"),
];

#[test]
fn an_accelerator_caches_a_page_for_its_declared_lifetime() {
    let (_folder, origin) = site(SITE, "", "");
    let edge = Folder::new();
    let config = format!(
        "workers 1\nadmin \"admin.sock\"\nsite {{\n listen \"127.0.0.1:0\"\n cache ttl=\"60s\"\n proxy \"http://{}\"\n}}\n",
        origin.address
    );
    let server = Server::run(&edge, &config);
    assert_eq!(page(&server, "/kept"), "1");
    let again = server.get("/kept");
    assert_eq!((text(&again).as_str(), again.field("age").is_some()), ("1", true));
    // A page without caching directives is private, whatever the accelerator's default is.
    assert_eq!((page(&server, "/own"), page(&server, "/own")), ("1".into(), "2".into()));
    let socket = edge.path().join("admin.sock");
    let purged = flatout().args(["purge", "--tag", "news", "--admin"]).arg(socket).output().unwrap();
    assert!(purged.status.success(), "{}", said(&purged));
    assert_eq!(page(&server, "/kept"), "2");
}

/// The example in docs/pages.md: two sites in one process.
#[test]
fn a_caching_site_in_front_stores_what_pages_allow() {
    let content = "<?lua if request.path == \"/kept\" then cache(\"60s\") end ?><p><?= kv.incr(\"runs\") ?> <?= request.url ?></p><?lua if request.query.client then ?><p><?= request.client ?></p><?lua end ?>";
    let folder = Folder::with(&[("site/kept.lhtml", content.as_bytes()), ("site/own.lhtml", content.as_bytes())]);
    let port = free_port();
    let config = format!(
        "workers 1\nadmin off=#true\nsite \"www.example.com\" \"127.0.0.1\" {{\n listen \"127.0.0.1:0\"\n cache\n \
         proxy \"http://127.0.0.1:{port}\"\n}}\nsite {{\n listen \"127.0.0.1:{port}\"\n \
         pages \"./site\" {{ trusted-proxies \"127.0.0.1\" }}\n}}\n"
    );
    let server = Server::run(&folder, &config);
    let ask = |path: &str| {
        let lines = "X-Forwarded-For: 192.0.2.9\r\nForwarded: for=192.0.2.9\r\nX-Forwarded-Proto: https\r\n";
        let request = format!("GET {path} HTTP/1.1\r\nHost: www.example.com\r\n{lines}Connection: close\r\n\r\n");
        text(&Response::parse(&server.exchange(request.as_bytes())))
    };
    // Fields from untrusted clients are removed before they get here.
    assert_eq!(ask("/kept"), "<p>1 http://www.example.com/kept</p>");
    assert_eq!(ask("/kept"), "<p>1 http://www.example.com/kept</p>");
    assert_eq!(ask("/own"), "<p>2 http://www.example.com/own</p>");
    assert_eq!(ask("/own"), "<p>3 http://www.example.com/own</p>");
    // A page that shows its visitor's address is private, whatever it declares.
    assert_eq!(ask("/kept?client=1"), "<p>4 http://www.example.com/kept?client=1</p><p>127.0.0.1</p>");
    assert_eq!(ask("/kept?client=1"), "<p>5 http://www.example.com/kept?client=1</p><p>127.0.0.1</p>");
}

/// Two visitors behind an accelerator: each gets the page made from their own request, however the page reads it.
#[test]
fn a_page_varies_on_what_it_read() {
    const READS: &[(&str, &str)] = &[
        ("language", "request.header(\"Accept-Language\")"),
        ("table", "request.headers[\"accept-language\"]"),
        (
            "loop",
            "(function() for name, value in request.headers do if name == \"accept-language\" then return value end end end)()",
        ),
        (
            "pairs",
            "(function() for name, value in pairs(request.headers) do if name == \"accept-language\" then return value end end end)()",
        ),
        ("cookie", "request.cookies.who"),
        ("basic", "request.header(\"authorization\")"),
        ("client", "request.client"),
        ("forwarded", "request.header(\"X-Forwarded-For\")"),
        ("session", "session.who or request.headers.cookie"),
        ("content", "request.method == \"GET\" and request.text()"),
    ];
    let pages: Vec<(String, String)> = READS
        .iter()
        .flat_map(|(name, read)| {
            let cache = "<?lua cache(\"60s\") ?>";
            [
                (format!("site/{name}-before.lhtml"), format!("{cache}<?= {read} ?>")),
                (format!("site/{name}-after.lhtml"), format!("<?= {read} ?>{cache}")),
            ]
        })
        .collect();
    let pages: Vec<(&str, &str)> = pages.iter().map(|(name, content)| (&**name, &**content)).collect();
    let (_folder, origin) = site(&pages, "secret \"secret\"\n trusted-proxies \"127.0.0.1\"", "");
    let edge = Folder::new();
    let config = format!(
        "workers 1\nadmin off=#true\nsite {{\n listen \"127.0.0.1:0\"\n cache\n proxy \"http://{}\" {{ trusted-proxies \"127.0.0.1\" }}\n}}\n",
        origin.address
    );
    let server = Server::run(&edge, &config);
    let ask = |path: &str, visitor: &str| {
        let lines = format!(
            "Accept-Language: {visitor}\r\nCookie: who={visitor}\r\nX-Forwarded-For: 192.0.2.{}\r\n",
            visitor.len()
        );
        let basic = if path.contains("basic") { format!("Authorization: {visitor}\r\n") } else { String::new() };
        let content = if path.contains("content") {
            format!("Content-Length: {}\r\n\r\n{visitor}", visitor.len())
        } else {
            "\r\n".to_owned()
        };
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: www.example.com\r\n{lines}{basic}Connection: close\r\n{content}");
        text(&Response::parse(&server.exchange(request.as_bytes())))
    };
    for (name, _) in READS {
        for when in ["before", "after"] {
            let path = format!("/{name}-{when}");
            let (first, second) = (ask(&path, "de"), ask(&path, "french"));
            assert_ne!(first, second, "{path}");
            assert_eq!((ask(&path, "de"), ask(&path, "french")), (first, second), "{path}");
        }
    }
}
