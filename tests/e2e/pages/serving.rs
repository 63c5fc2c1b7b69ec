//! Which page responds for which path, and what is never served.

use super::{page, site, text};
use crate::e2e::harness::{Folder, Response, Server, flatout, read_response};
use crate::e2e::tool::{said, tool};
use std::io::Write as _;

const SITE: &[(&str, &str)] = &[
    ("site/index.lhtml", "<h1><?= 6 * 7 ?></h1>"),
    ("site/about.lhtml", "<p>about</p>"),
    ("site/about.lhtml~", "an editor's copy"),
    ("site/lib.luau.bak", "another"),
    ("site/about.lhtmlold", "an older page"),
    ("site/shop/index.lhtml", "<p><?= \"a < b\" ?></p>"),
    ("site/shop/cart.lhtml", "<p><?include \"part.lhtml\" ?>!</p>"),
    ("site/shop/part.lhtml", "<b><?= 1 ?></b>"),
    ("site/lib.luau", "return 1"),
    ("site/.hidden.lhtml", "hidden"),
    ("site/plain.txt", "plain"),
    ("public/file.txt", "a file"),
];

/// The links of the page of a folder are relative to its address with the slash.
#[test]
fn the_page_below_a_removed_prefix_has_the_slash() {
    let below = "route \"/app\" \"/app/*\" { rewrite strip-prefix=\"/app\"; pages \"below\"; }";
    let (_folder, server) = site(&[("site/.keep", ""), ("below/index.lhtml", "below")], "", below);
    let slash = server.get("/app?a=b");
    assert_eq!((slash.status, slash.field("location")), (308, Some("/app/?a=b")));
    assert_eq!(page(&server, "/app/"), "below");
}

#[test]
fn every_page_is_served_under_its_names() {
    let (_folder, server) = site(SITE, "", "files \"public\"");
    for (path, expected) in [
        ("/", "<h1>42</h1>"),
        ("/index.lhtml", "<h1>42</h1>"),
        ("/index", "<h1>42</h1>"),
        ("/about", "<p>about</p>"),
        ("/about.lhtml", "<p>about</p>"),
        ("/shop/", "<p>a &lt; b</p>"),
        ("/shop/cart", "<p><b>1</b>!</p>"),
        ("/shop/c%61rt?x=1", "<p><b>1</b>!</p>"),
        ("/file.txt", "a file"),
    ] {
        assert_eq!(page(&server, path), expected, "{path}");
    }
    let slash = server.get("/shop?a=b");
    assert_eq!((slash.status, slash.field("location")), (308, Some("/shop/?a=b")));
    let answer = server.get("/");
    assert_eq!(answer.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(answer.field("content-length"), Some("11"));
    assert_eq!(answer.field("cache-control"), Some("private, no-cache"));
}

/// Paths that are not normalized reach the pages, and all paths lead to a folder: no redirect leads to another site.
#[test]
fn redirects_to_a_folder_stay_on_the_site() {
    let folder = Folder::with(&[("site/app/index.lhtml", b"app")]);
    let config = "workers 1\nadmin off=#true\nsite {\n listen \"127.0.0.1:0\"\n rewrite to=\"/app\"\n pages \"site\"\n \
                  proxy \"http://127.0.0.1:9\"\n}\n";
    let server = Server::run(&folder, config);
    for path in ["//evil.example", "///evil.example", "/\\evil.example", "/x"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        let answer = Response::parse(&server.exchange(request.as_bytes()));
        let location = answer.field("location");
        assert!(
            location.is_none_or(|location| location.starts_with('/') && !location[1..].starts_with(['/', '\\'])),
            "{path}: {location:?}"
        );
        assert!(path != "/x" || location == Some("/x/"), "{location:?}");
    }
}

#[test]
fn a_page_that_allows_ranges_responds_with_them() {
    let large =
        format!("<?lua response.ranges() response.header(\"ETag\", '\"v1\"') ?>{}<?= 1 ?>", "x".repeat(100_000));
    let (_folder, server) = site(&[("site/index.lhtml", &large)], "", "");
    let ask = |method: &str, fields: &str| {
        let request = format!("{method} / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{fields}\r\n");
        Response::parse(&server.exchange(request.as_bytes()))
    };
    for (method, fields, status, range, length) in [
        ("GET", "", 200, None, 100_001),
        ("GET", "Range: bytes=99998-\r\n", 206, Some("bytes 99998-100000/100001"), 3),
        ("GET", "Range: bytes=10-50009\r\nIf-Range: \"v1\"\r\n", 206, Some("bytes 10-50009/100001"), 50_000),
        ("GET", "Range: bytes=10-19\r\nIf-Range: \"v0\"\r\n", 200, None, 100_001),
        ("GET", "Range: bytes=0-0,50000-50000\r\n", 200, None, 100_001),
        ("GET", "Range: bytes=100001-\r\n", 416, Some("bytes */100001"), 0),
    ] {
        let answer = ask(method, fields);
        assert_eq!(
            (answer.status, answer.field("content-range"), answer.body.len()),
            (status, range, length),
            "{fields}"
        );
        assert_eq!(answer.field("content-length"), Some(&*length.to_string()), "{fields}");
        assert_eq!(answer.field("accept-ranges"), Some("bytes"), "{fields}");
    }
    assert!(ask("GET", "Range: bytes=99998-\r\n").body.ends_with(b"xx1"));
    let head = ask("HEAD", "Range: bytes=0-9\r\n");
    assert_eq!((head.status, head.field("content-length")), (200, Some("100001")));
}

/// A page that reads parts of a large object, for example from a database, evaluates Range itself.
#[test]
fn a_page_may_respond_with_a_part_by_itself() {
    const PARTS: &str = r#"<?lua
cache("60s")
response.ranges()
local whole = string.rep("0123456789", 100)
response.header("ETag", '"v1"')
response.header("Content-Type", "text/plain")
local first, last = string.match(request.header("Range") or "", "^bytes=(%d+)-(%d+)$")
if first and (request.header("If-Range") or '"v1"') == '"v1"' then
    if tonumber(first) >= #whole then
        response.status = 416
        response.header("Content-Range", "bytes */" .. #whole)
        exit()
    end
    response.status = 206
    response.header("Content-Range", "bytes " .. first .. "-" .. last .. "/" .. #whole)
    whole = string.sub(whole, first + 1, last + 1)
end
?><?raw whole ?>"#;
    let nothing_said = "<?lua response.status = 206 ?>x";
    let (_folder, server) = site(&[("site/parts.lhtml", PARTS), ("site/wrong.lhtml", nothing_said)], "", "");
    let edge = Folder::new();
    let config = format!(
        "workers 1\nadmin off=#true\nsite {{\n listen \"127.0.0.1:0\"\n cache\n proxy \"http://{}\"\n}}\n",
        server.address
    );
    let edge = Server::run(&edge, &config);
    let whole = "0123456789".repeat(100);
    // The cache in front first sees parts.
    for server in [&server, &edge, &edge] {
        for (fields, status, range, content) in [
            ("Range: bytes=5-14\r\n", 206, Some("bytes 5-14/1000"), "5678901234"),
            (
                "Range: bytes=5-14\r\nIf-Range: \"v1\"\r\nAccept-Encoding: gzip, br\r\n",
                206,
                Some("bytes 5-14/1000"),
                "5678901234",
            ),
            ("Range: bytes=1000-1001\r\n", 416, Some("bytes */1000"), ""),
            ("Range: bytes=5-14\r\nIf-Range: \"v0\"\r\n", 200, None, &*whole),
            ("", 200, None, &*whole),
        ] {
            let request = format!("GET /parts HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{fields}\r\n");
            let answer = Response::parse(&server.exchange(request.as_bytes()));
            assert_eq!((answer.status, answer.field("content-range")), (status, range), "{fields}");
            assert_eq!(String::from_utf8_lossy(&answer.body), content, "{fields}");
            assert_eq!(answer.field("content-encoding"), None, "{fields}");
        }
    }
    assert_eq!(server.get("/wrong").status, 500, "a part of what?");
}

#[test]
fn pages_accept_get_head_options_and_post() {
    let (_folder, server) = site(SITE, "", "");
    let ask = |method: &str, more: &str| {
        let request = format!("{method} / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{more}");
        Response::parse(&server.exchange(request.as_bytes()))
    };
    let head = ask("HEAD", "\r\n");
    assert_eq!((head.status, head.field("content-length"), head.body.len()), (200, Some("11"), 0));
    let options = ask("OPTIONS", "\r\n");
    assert_eq!(options.status, 204);
    assert!(options.field("allow").unwrap().contains("POST"));
    // Content that a page does not read is discarded, and the connection stays open.
    let mut stream = server.connect();
    for _ in 0..3 {
        stream.write_all(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nabcde").unwrap();
        let answer = read_response(&mut stream);
        assert_eq!((answer.status, text(&answer).as_str()), (200, "<h1>42</h1>"));
    }
}

/// The response of a page that has run is delivered, however much content it has left unread.
#[test]
fn unread_content_does_not_replace_the_response() {
    let files = [
        ("site/wrong.luau", "response.json('wrong', 422)"),
        ("site/login.luau", "response.redirect('/login')"),
        ("site/guarded.luau", "csrf.check()"),
        ("site/fine.lhtml", "<?= 'fine' ?>"),
        ("content", &*"x".repeat(3_000_000)),
    ];
    let routes = ["wrong", "login", "guarded"]
        .map(|name| format!("route \"/{name}\" {{ page \"site/{name}.luau\" {{ secret \"secret\"; }}; }}\n "));
    let (folder, server) = site(&files, "", &routes.concat());
    let data = format!("@{}", folder.path().join("content").display());
    for (path, expected) in [("/wrong", "422"), ("/login", "303"), ("/guarded", "403"), ("/fine", "200")] {
        for http in ["--http1.1", "--http2-prior-knowledge"] {
            for framing in ["Expect:", "Transfer-Encoding: chunked"] {
                // HTTP/2 has no chunks, and curl 7.88 keeps sending after a successful response forever.
                if http != "--http1.1" && (framing != "Expect:" || expected == "200") {
                    continue;
                }
                let mut curl = tool("curl");
                curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Expect:", "-H", framing, http]);
                // curl fails when it cannot send the rest, but it has received the response.
                let output = curl.args(["--data-binary", &data, &server.url(path)]).output().unwrap();
                assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{path} {http} {framing}");
            }
        }
    }
    // A short content is read, and the connection stays open.
    let mut stream = server.connect();
    for _ in 0..3 {
        stream.write_all(b"POST /wrong HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nabcde").unwrap();
        let answer = read_response(&mut stream);
        assert_eq!((answer.status, answer.field("connection")), (422, None));
    }
}

/// Whatever follows the pages in the configuration, and whichever path leads there.
#[test]
fn sources_are_never_served() {
    let behind = "files \"site\" { index \"index.lhtml\"; hidden #true; listing #true; try \"{path}\" \"/lib.luau\" }";
    let (folder, server) = site(SITE, "", behind);
    assert_eq!(page(&server, "/plain.txt"), "plain");
    for path in [
        "/lib.luau",
        "/LIB.LUAU",
        "/.hidden.lhtml",
        "/lib%2eluau",
        "/shop/part.lhtml/",
        "/about.lhtml~",
        "/lib.luau.bak",
        "/about.lhtmlold",
        "/nothing",
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, 404, "{path}: {}", text(&answer));
    }
    // Another site in the same process, which has no pages, does not serve the sources either.
    let config = "workers 1\nadmin off=#true\nsite \"a\" { listen \"127.0.0.1:0\"; pages \"site\" }\n\
                  site \"b\" { listen \"127.0.0.2:0\"; files \"site\" { hidden #true; index \"index.lhtml\" } }\n";
    let server = Server::run(&folder, config);
    for path in ["/about.lhtml", "/lib.luau", "/", "/.hidden.lhtml"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n");
        let mut stream = std::net::TcpStream::connect(server.address_of(1)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let answer = Response::parse(&crate::e2e::harness::read_to_end(&mut stream));
        assert_eq!(answer.status, 404, "{path}");
    }
}

#[test]
fn pages_are_served_by_flags_only_on_request() {
    let folder = Folder::with(&[("x.lhtml", b"<p><?= 1 + 1 ?></p>"), ("y.luau", b"return 1"), ("a.txt", b"a")]);
    let plain = Server::start(folder.path(), &[]);
    assert_eq!(page(&plain, "/x.lhtml"), "<p><?= 1 + 1 ?></p>");
    let active = Server::start(folder.path(), &["--pages"]);
    assert_eq!((page(&active, "/x"), page(&active, "/a.txt")), ("<p>2</p>".into(), "a".into()));
    assert_eq!(active.get("/y.luau").status, 404);
    let dev = Server::start(folder.path(), &["--dev"]);
    assert!(page(&dev, "/x").starts_with("<p>2</p><script>"));
}

#[test]
fn a_route_may_have_one_page_or_one_script() {
    let folder = Folder::with(&[
        ("scripts/hello.luau", b"__r(\"from a script\")"),
        ("scripts/gone.lhtml", b"<p>gone: <?= \"&\" ?></p>"),
    ]);
    let config = "workers 1\nadmin off=#true\nsite {\n listen \"127.0.0.1:0\"\n route \"/hello/*\" { page \"scripts/hello.luau\" }\n \
                  page \"scripts/gone.lhtml\"\n}\n";
    let server = Server::run(&folder, config);
    assert_eq!(page(&server, "/hello/anybody"), "from a script");
    assert_eq!(page(&server, "/whatever/else"), "<p>gone: &amp;</p>");
}

#[test]
fn header_directives_and_passwords_apply_to_pages() {
    let folder = Folder::with(&[("site/index.lhtml", b"<p><?= 1 ?></p>")]);
    let config = "workers 1\nadmin off=#true\nsite {\n listen \"127.0.0.1:0\"\n header \"X-Frame-Options\" \"DENY\"\n \
                  header \"Cache-Control\" \"no-store\"\n route \"/a\" { rewrite to=\"/\"; }\n pages \"site\"\n}\n";
    let server = Server::run(&folder, config);
    for path in ["/", "/a"] {
        let answer = server.get(path);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("x-frame-options"), Some("DENY"));
        let lines: Vec<_> = answer.fields.iter().filter(|(name, _)| name == "cache-control").collect();
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].1, "no-store");
    }
}

#[test]
fn the_client_address_comes_from_a_trusted_proxy() {
    let content = "<p><?= request.client ?> <?= request.scheme ?> <?= request.url ?> <?= request.host ?></p>\
                   <?lua session.user = \"ann\" ?>";
    let lines =
        "X-Forwarded-For: 198.51.100.1, 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: a.example\r\n";
    let ask = |server: &Server, lines: &str| {
        let request = format!("GET /x?q HTTP/1.1\r\nHost: inner\r\n{lines}Connection: close\r\n\r\n");
        Response::parse(&server.exchange(request.as_bytes()))
    };
    let session = |answer: &Response| answer.field("set-cookie").unwrap_or_default().to_owned();
    for settings in ["", "trusted-proxies \"192.0.2.0/24\""] {
        let (_folder, server) = site(&[("site/x.lhtml", content)], &format!("secret \"secret\"; {settings}"), "");
        let answer = ask(&server, lines);
        assert_eq!(text(&answer), "<p>127.0.0.1 http http://inner/x?q inner</p>");
        assert!(
            session(&answer).starts_with("session=") && !session(&answer).contains("Secure"),
            "{}",
            session(&answer)
        );
    }
    let settings = "secret \"secret\"; trusted-proxies \"127.0.0.1\"";
    let (_folder, server) = site(&[("site/x.lhtml", content)], settings, "");
    let answer = ask(&server, lines);
    assert_eq!(text(&answer), "<p>192.0.2.1 https https://a.example/x?q a.example</p>");
    assert!(
        session(&answer).starts_with("__Host-session=") && session(&answer).contains("Secure"),
        "{}",
        session(&answer)
    );
    let answer = ask(&server, "Forwarded: for=\"[2001:db8::1]:5\";proto=https\r\n");
    assert_eq!(text(&answer), "<p>2001:db8::1 https https://inner/x?q inner</p>");
    assert_eq!(text(&ask(&server, "")), "<p>127.0.0.1 http http://inner/x?q inner</p>");
}

#[test]
fn files_that_cannot_be_opened_are_reported_at_startup() {
    let folder = Folder::with(&[("site/index.lhtml", b"x")]);
    for (block, expected) in [
        ("pages \"nowhere\"", "the folder `"),
        ("page \"site/nothing.lhtml\"", "cannot be read"),
        ("pages \"site\" { database \"nowhere/site.db\" }", "database `"),
    ] {
        folder.write("bad.kdl", format!("admin off=#true\nsite {{ listen \"127.0.0.1:0\"; {block} }}").as_bytes());
        let output = flatout().arg("run").arg("-c").arg(folder.path().join("bad.kdl")).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(expected), "{}", said(&output));
    }
}

#[test]
fn explain_names_the_page_that_responds() {
    let folder = Folder::with(&[("site/shop/cart.lhtml", b"x")]);
    folder.write("flatout.kdl", super::configure("", "").as_bytes());
    let explain = |path: &str| {
        let url = format!("http://127.0.0.1{path}");
        let output =
            flatout().current_dir(folder.path()).args(["explain", "-c", "flatout.kdl", &url]).output().unwrap();
        said(&output)
    };
    let told = explain("/shop/cart");
    assert!(told.contains("runs ") && told.contains("site/shop/cart.lhtml"), "{told}");
    let told = explain("/nothing");
    assert!(
        told.contains("no page has this name: passes the request to the next step") && told.contains("404"),
        "{told}"
    );
}
