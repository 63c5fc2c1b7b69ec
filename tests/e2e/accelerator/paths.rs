//! Paths that bypass access rules in other servers or get a private page cached as a picture, and what flatout does
//! with each.

use super::super::harness::{Folder, Response, Server, flatout};
use super::super::http2::client::Client;
use super::super::php::scripted::{Scripted, complete_response, send};
use super::log_of;
use super::origin::{Origin, response};
use std::io::Write as _;
use std::process::Stdio;

/// One row: a path, and the expected result on each of four sites.
///
/// `deny` and `basic-auth` guard `/admin` and `/admin/*` in front of a proxy. `cache` stores responses for paths below
/// `/static/` or ending in `.css`. `php` guards like `deny` and runs the scripts of a folder.
///
/// | word | meaning |
/// |---|---|
/// | `guarded` | 403, or 401 |
/// | `refused` | 400: `ambiguous_path`, `path_above_root` or `target_nul` |
/// | `origin` | the origin gets the path unchanged |
/// | `stored`, `passed` | the second request is a cache hit, or goes to the origin again |
/// | a file's name | this script runs |
/// | `none`, `merged` | 404, 301 |
struct Row(&'static str, &'static str, &'static str, &'static str);

const ROWS: &[Row] = &[
    // Ordinary paths.
    Row("/admin", "guarded", "passed", "guarded"),
    Row("/public/a", "origin", "passed", "index.php"),
    Row("/static/a.css", "origin", "stored", "index.php"),
    // Dot segments.
    Row("/public/../admin", "guarded", "passed", "guarded"),
    Row("/public/./../admin/", "guarded", "passed", "guarded"),
    Row("/public/%2e%2e/admin", "guarded", "passed", "guarded"),
    Row("/public/.%2E/%61dmin", "guarded", "passed", "guarded"),
    Row("/./admin", "guarded", "passed", "guarded"),
    Row("/admin/.", "guarded", "passed", "guarded"),
    Row("/admin/../public/a", "origin", "passed", "index.php"),
    Row("/static/../account", "origin", "passed", "index.php"),
    Row("/account/../static/x", "origin", "stored", "index.php"),
    Row("/../admin", "refused", "refused", "refused"),
    Row("/public/../../admin", "refused", "refused", "refused"),
    Row("/static/../../account", "refused", "refused", "refused"),
    // Encoded slashes, and characters that resemble slashes.
    Row("/x/..%2Fadmin", "refused", "passed", "refused"),
    Row("/admin%2f..%2fpublic", "origin", "passed", "index.php"),
    Row("/admin%2fx", "refused", "passed", "refused"),
    Row("/%2fadmin", "refused", "passed", "refused"),
    Row("/public%2f..%2fadmin", "refused", "passed", "refused"),
    Row("/..%2fadmin", "refused", "refused", "refused"),
    Row("/static/..%2faccount", "origin", "refused", "index.php"),
    Row("/static%2f..%2faccount", "origin", "passed", "index.php"),
    Row("/account%2f..%2fstatic%2fx", "origin", "refused", "index.php"),
    Row("/wiki/AC%2FDC", "origin", "passed", "index.php"),
    Row("/admin%5cx", "refused", "passed", "refused"),
    Row("/public\\..\\admin", "refused", "passed", "refused"),
    Row("/public/..\\..\\admin", "refused", "refused", "refused"),
    Row("/account%5c..%5c..%5cstatic", "refused", "refused", "refused"),
    Row("/files/back\\slash", "origin", "passed", "index.php"),
    // Empty segments.
    Row("//admin", "guarded", "passed", "guarded"),
    Row("/public//../admin", "refused", "passed", "refused"),
    Row("/static//../account", "origin", "refused", "merged"),
    Row("/static//b", "origin", "stored", "merged"),
    Row("//public//b", "origin", "passed", "merged"),
    Row("/admin//b", "guarded", "passed", "guarded"),
    // Path parameters, as in Java servers.
    Row("/admin;.css", "refused", "refused", "refused"),
    Row("/y/..;/admin/c//..;/..;/b", "refused", "passed", "refused"),
    Row("/admin;a=b/x", "refused", "passed", "refused"),
    Row("/public/..;/admin", "refused", "passed", "refused"),
    Row("/static/..;/account", "origin", "refused", "index.php"),
    Row("/account;x.css", "origin", "refused", "index.php"),
    Row("/style.css;jsessionid=1", "origin", "passed", "index.php"),
    Row("/shop;view=list/a", "origin", "passed", "index.php"),
    // Double encoding, and invalid encoding.
    Row("/%2561dmin", "origin", "passed", "index.php"),
    Row("/public/%252e%252e/admin", "origin", "passed", "index.php"),
    Row("/admin%00.css", "refused", "refused", "refused"),
    Row("/100%/admin", "origin", "passed", "index.php"),
    Row("/%%61dmin", "origin", "passed", "index.php"),
    // A script, and a path after its name.
    Row("/x.php/a.css", "origin", "stored", "x.php"),
    Row("/x.php%2fa", "origin", "passed", "refused"),
    Row("/x.php/AC%2FDC", "origin", "passed", "x.php"),
    Row("/x.php/..%2fadmin", "refused", "passed", "refused"),
    Row("/x.php/a%2f..%2fb", "origin", "passed", "refused"),
    Row("/x.php%5ca", "origin", "passed", "refused"),
    Row("/image.jpg/x.php", "origin", "passed", "index.php"),
    Row("/image.jpg%2fx.php", "origin", "passed", "index.php"),
];

#[test]
fn no_path_bypasses_a_rule_or_caches_a_private_page() {
    let folder = Folder::with(&[
        ("root/index.php", b"<?php"),
        ("root/x.php", b"<?php"),
        ("root/admin/index.php", b"<?php"),
        ("root/image.jpg", b"<?php"),
    ]);
    let origin = Origin::responding(|request| response("200 OK", "", request.target.as_bytes()));
    let app = Scripted::start(folder.path(), |asked, stream| {
        let script = asked.variables["SCRIPT_NAME"].trim_start_matches('/');
        let uri = &asked.variables["REQUEST_URI"];
        send(stream, &complete_response(&format!("Content-Type: text/plain\r\n\r\n{script} {uri}")));
        false
    });
    let (log, url, root) = (log_of(&folder), origin.url(), folder.path().join("root"));
    let hash = hash("right");
    let site = |host: &str, steps: &str| format!("site {host:?} {{ listen \"127.0.0.1:0\"\n{steps}\n}}\n");
    let guard = "route \"/admin\" \"/admin/*\" { deny \"all\"; }";
    let text = [
        format!("workers 1\nadmin off=#true\nlog {:?} format=\"json\"\n", log.display().to_string()),
        site("deny.test", &format!("{guard}\nproxy \"{url}\"")),
        site(
            "auth.test",
            &format!("route \"/admin\" \"/admin/*\" {{ basic-auth {{ user \"ann\" {hash:?}; }} }}\nproxy \"{url}\""),
        ),
        site("cache.test", &format!("route \"/static/*\" \"*.css\" {{ cache ttl=\"60s\"; }}\nproxy \"{url}\"")),
        site(
            "php.test",
            &format!(
                "{guard}\nphp \"unix:{}\" {{ root {:?}; front-controller \"index.php\"; }}\nproxy \"{url}\"",
                app.socket.display(),
                root.display().to_string()
            ),
        ),
    ]
    .concat();
    let server = Server::run(&folder, &text);
    let ask = |host: &str, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        Response::parse(&server.exchange(request.as_bytes()))
    };
    let mut wrong = Vec::new();
    for Row(path, guarded, cached, run) in ROWS {
        let word = |response: &Response| {
            let body = String::from_utf8_lossy(&response.body).into_owned();
            match (response.status, body.split_once(' ')) {
                (400, _) => "refused".to_owned(),
                (401 | 403, _) => "guarded".to_owned(),
                (404, _) => "none".to_owned(),
                (301, _) => "merged".to_owned(),
                (200, None) if body == *path => "origin".to_owned(),
                // REQUEST_URI is the unchanged path.
                (200, Some((script, uri))) if uri == *path => script.to_owned(),
                (status, _) => format!("{status} {body}"),
            }
        };
        let denied = word(&ask("deny.test", path));
        let asked = word(&ask("auth.test", path));
        let stored = match word(&ask("cache.test", path)).as_str() {
            "origin" => {
                let before = origin.requests().len();
                ask("cache.test", path);
                if origin.requests().len() == before { "stored" } else { "passed" }.to_owned()
            }
            other => other.to_owned(),
        };
        let ran = word(&ask("php.test", path));
        for (site, expected, found) in
            [("deny", guarded, denied), ("basic-auth", guarded, asked), ("cache", cached, stored), ("php", run, ran)]
        {
            if *expected != found {
                wrong.push(format!("{path} {site}: {found}, not {expected}"));
            }
        }
    }
    assert!(ROWS.len() >= 40 && wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A script or page has several names. A rule that guards its plain name cannot be bypassed with the others.
#[test]
fn alternative_names_of_a_script_or_page_do_not_bypass_a_rule() {
    let folder = Folder::with(&[
        ("root/index.php", b"<?php"),
        ("root/wp-login.php", b"<?php"),
        ("root/admin/index.php", b"<?php"),
        ("root/info.php", b"<?php"),
        ("pages/index.lhtml", b"home"),
        ("pages/members.lhtml", b"members"),
        ("pages/adm/index.lhtml", b"admin"),
        ("pages/open.lhtml", b"open"),
        ("pages/moved.lhtml", b"moved"),
    ]);
    let app = Scripted::start(folder.path(), |asked, stream| {
        let script = asked.variables["SCRIPT_NAME"].trim_start_matches('/');
        send(stream, &complete_response(&format!("Content-Type: text/plain\r\n\r\n{script}")));
        false
    });
    let server = Server::run(
        &folder,
        &format!(
            "workers 1\nadmin off=#true
site \"php.test\" {{
    listen \"127.0.0.1:0\"
    route \"/wp-login.php\" \"/admin/index.php\" {{ deny \"all\"; }}
    php \"unix:{socket}\" {{ root {root:?}; front-controller \"index.php\"; }}
}}
site \"pages.test\" {{
    listen \"127.0.0.1:0\"
    route \"/members\" \"/adm/\" {{ deny \"all\"; }}
    route \"/moved\" {{ redirect to=\"/\"; }}
    pages {pages:?}
}}
site \"rewritten.test\" {{
    listen \"127.0.0.1:0\"
    route \"/members\" \"/adm/\" {{ rewrite to=\"/open\"; }}
    pages {pages:?}
}}
site \"one.test\" {{
    listen \"127.0.0.1:0\"
    route \"*.php\" {{ rewrite to=\"/index.php\"; }}
    php \"unix:{socket}\" {{ root {root:?}; }}
}}
site \"nested.test\" {{
    listen \"127.0.0.1:0\"
    route \"*.php\" {{
        route \"/wp-login.php\" {{ redirect to=\"/\"; }}
        header \"X-A\" \"b\"
    }}
    route \"/app/info.php\" {{ redirect to=\"/\"; }}
    route \"/app/*\" {{ rewrite strip-prefix=\"/app\"; }}
    route \"*.php\" {{ php \"unix:{socket}\" {{ root {root:?}; }}; }}
    php \"unix:{socket}\" {{ root {root:?}; }}
}}
site \"query.test\" {{
    listen \"127.0.0.1:0\"
    route \"*.php\" {{ rewrite to=\"/index.php?page={{rest}}\"; }}
    php \"unix:{socket}\" {{ root {root:?}; }}
}}
site \"front.test\" {{
    listen \"127.0.0.1:0\"
    route \"/index.php\" {{ redirect to=\"/\"; }}
    route \"/info.php\" {{ redirect to=\"/\"; }}
    php \"unix:{socket}\" {{ root {root:?}; front-controller \"index.php\"; }}
}}
",
            socket = app.socket.display(),
            root = folder.path().join("root").display().to_string(),
            pages = folder.path().join("pages").display().to_string(),
        ),
    );
    for (host, path, status) in [
        ("php.test", "/wp-login.php", 403),
        ("php.test", "/wp-login.php/", 400),
        ("php.test", "/wp-login.php/x/y", 400),
        ("php.test", "/admin/", 400),
        ("php.test", "/admin/index.php", 403),
        ("php.test", "/", 200),
        ("php.test", "/index.php/a", 200),
        ("php.test", "/post/wp-login.php", 200),
        ("pages.test", "/members", 403),
        ("pages.test", "/members.lhtml", 400),
        ("pages.test", "/adm/", 403),
        ("pages.test", "/adm/index", 400),
        ("pages.test", "/adm/index.lhtml", 400),
        ("pages.test", "/open", 200),
        ("pages.test", "/open.lhtml", 200),
        ("pages.test", "/", 200),
        ("pages.test", "/moved", 302),
        ("pages.test", "/moved.lhtml", 400),
        ("rewritten.test", "/members", 200),
        ("rewritten.test", "/members.lhtml", 400),
        ("rewritten.test", "/adm/", 200),
        ("rewritten.test", "/adm/index", 400),
        ("rewritten.test", "/adm/index.lhtml", 400),
        ("rewritten.test", "/index", 200),
        ("rewritten.test", "/open.lhtml", 200),
        // "Only index.php may run."
        ("one.test", "/", 200),
        ("one.test", "/index.php", 200),
        ("one.test", "/index.php/a", 200),
        ("one.test", "/info.php", 200),
        ("one.test", "/info.php/x", 400),
        ("one.test", "/info.php/", 400),
        // It ends with `.php`, so the route matches.
        ("one.test", "/info.php/index.php", 200),
        ("one.test", "/admin/", 400),
        ("one.test", "/none.php/x", 404),
        ("query.test", "/", 200),
        ("query.test", "/info.php/x", 400),
        // Only what a route does with this plain name counts, also after a prefix has been removed.
        ("nested.test", "/index.php/a", 200),
        ("nested.test", "/info.php/a", 200),
        ("nested.test", "/wp-login.php", 302),
        ("nested.test", "/wp-login.php/", 400),
        ("nested.test", "/app/info.php", 302),
        ("nested.test", "/app/info.php/x", 400),
        ("nested.test", "/app/index.php/x", 200),
        // Other routes for the plain name of a script.
        ("front.test", "/", 200),
        ("front.test", "/index.php", 302),
        ("front.test", "/index.php/a", 200),
        ("front.test", "/admin/", 200),
        ("front.test", "/wp-login.php", 200),
        ("front.test", "/wp-login.php/", 200),
        ("front.test", "/info.php/x", 400),
        ("front.test", "/none.php/x", 200),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(Response::parse(&server.exchange(request.as_bytes())).status, status, "{host}{path}");
    }
}

/// The hash of a password, as printed by `flatout passwd`.
fn hash(password: &str) -> String {
    let mut child = flatout().arg("passwd").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{password}\n").as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim().to_owned()
}

/// Asks for each path over HTTP/1.1 and HTTP/2. Each row has the path, the status, and what is expected with it: the
/// content for 200, and Location for a redirect.
fn check(server: &Server, rows: &[(&str, u16, &str)]) {
    for &(path, status, expected) in rows {
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        let mut client = Client::connect(server, &[]);
        client.get(1, path);
        let responses = [Response::parse(&server.exchange(request.as_bytes())), client.first_response(1)];
        for (response, version) in responses.iter().zip(["HTTP/1.1", "HTTP/2"]) {
            assert_eq!(response.status, status, "{path} {version}");
            match status {
                200 => assert_eq!(String::from_utf8_lossy(&response.body), expected, "{path} {version}"),
                301 | 302 => assert_eq!(response.field("location"), Some(expected), "{path} {version}"),
                _ => {}
            }
        }
    }
}

/// Some origins, such as image servers, take URLs in their paths. `files` after the same rewrite still redirects.
#[test]
fn a_path_without_its_prefix_is_forwarded_as_it_is() {
    let folder = Folder::with(&[("root/a.txt", b"a")]);
    let origin = Origin::responding(|request| response("200 OK", "", request.target.as_bytes()));
    let root = folder.path().join("root");
    let steps = format!(
        "route \"/img/secret/*\" {{ deny \"all\"; }}\n\
         route \"/img/*\" {{ rewrite strip-prefix=\"/img\"; route \"/admin/*\" {{ deny \"all\"; }}; proxy \"{}\"; }}\n\
         route \"/files/*\" {{ rewrite strip-prefix=\"/files\"; files {:?}; }}",
        origin.url(),
        root.display().to_string()
    );
    let site = format!("site \"*\" {{ listen \"127.0.0.1:0\" h2c=#true\n{steps}\n}}\n");
    let server = Server::run(&folder, &format!("workers 1\nadmin off=#true\n{site}"));
    check(
        &server,
        &[
            ("/img/fit/https://example.com/a.jpg?b=//c", 200, "/fit/https://example.com/a.jpg?b=//c"),
            ("/img/a//", 200, "/a//"),
            ("/img//a", 200, "//a"),
            ("/img/%61//b", 200, "/%61//b"),
            ("/img/x//./b", 200, "/x//./b"),
            ("/img/x/..", 200, "/x/.."),
            ("//img/a", 200, "/a"),
            ("/x/../%69mg/./a/b", 200, "/./a/b"),
            ("/img/a/b", 200, "/a/b"),
            // What some servers interpret differently.
            ("/img/w=1;h=2/https://x/a.jpg", 200, "/w=1;h=2/https://x/a.jpg"),
            ("/img/./a;b//c", 200, "/./a;b//c"),
            ("/img/AC%2FDC//x", 200, "/AC%2FDC//x"),
            ("/img/a\\b//c%5cd", 200, "/a\\b//c%5cd"),
            ("/img/x//../b", 200, "/x//../b"),
            // The rules hold before and after the rewrite.
            ("/img//admin/x", 403, ""),
            ("/img/x/../admin//y", 403, ""),
            ("/img/x//../../admin/x", 400, ""),
            ("/img/admin;x//y", 400, ""),
            ("/img/admin%2Fx//y", 400, ""),
            ("/img/..%2Fadmin//x", 400, ""),
            ("/img/..;/admin//x", 400, ""),
            ("/img/secret//b", 403, ""),
            ("/img/secret//../b", 400, ""),
            // An origin that lets `..` remove an empty segment would read `/secret/b` below the prefix.
            ("/img//..//img/secret//../b", 400, ""),
            ("/files//a.txt", 301, "/files/a.txt"),
            ("/files//none", 404, ""),
            ("/files/a.txt", 200, "a"),
        ],
    );
}

/// Only the handler that serves something under the usual spelling of a path redirects to it.
#[test]
fn no_handler_changes_the_path_that_a_later_proxy_forwards() {
    let folder = Folder::with(&[
        ("root/a.txt", b"a"),
        ("root/dir/index.html", b"dir"),
        ("root/x.php", b"<?php"),
        ("pages/open.lhtml", b"open"),
    ]);
    let origin = Origin::responding(|request| response("200 OK", "", request.target.as_bytes()));
    let app = Scripted::start(folder.path(), |_, stream| {
        send(stream, &complete_response("Content-Type: text/plain\r\n\r\nran"));
        false
    });
    let [root, pages] = ["root", "pages"].map(|name| folder.path().join(name).display().to_string());
    let steps = [
        "route \"/admin/*\" { deny \"all\"; }".to_owned(),
        "route \"/said\" { respond 200 \"said\"; }".to_owned(),
        "route \"/old/*\" { redirect to=\"/new/{rest}\"; }".to_owned(),
        "route \"/evil.example/*\" { redirect to=\"{path}/\"; }".to_owned(),
        "route \"/secret/*\" \"/to/secret/*\" { deny \"all\"; }".to_owned(),
        "route \"/cut*\" { rewrite to=\"/new/{rest}\"; }".to_owned(),
        "route \"/to/*\" { rewrite to=\"/x/{rest}\"; }".to_owned(),
        "route \"/base/*\" { rewrite to=\"/y/{path}\"; }".to_owned(),
        "route \"/fetch/*\" { rewrite to=\"/z/https://x/{rest}\"; }".to_owned(),
        format!("pages {pages:?}"),
        format!("php \"unix:{}\" {{ root {root:?}; }}", app.socket.display()),
        format!("files {root:?} {{ pass #true; }}"),
        format!("proxy \"{}\"", origin.url()),
    ]
    .join("\n");
    let site = format!("site \"*\" {{ listen \"127.0.0.1:0\" h2c=#true\n{steps}\n}}\n");
    let server = Server::run(&folder, &format!("workers 1\nadmin off=#true\n{site}"));
    check(
        &server,
        &[
            ("/fit/https://example.com/a.jpg?b=//c", 200, "/fit/https://example.com/a.jpg?b=//c"),
            ("//none//", 200, "//none//"),
            ("/none;a=b/https://x", 200, "/none;a=b/https://x"),
            ("/none//AC%2FDC", 200, "/none//AC%2FDC"),
            ("/none/..//x", 200, "/none/..//x"),
            ("/none//../x", 200, "/none//../x"),
            // What a handler serves has one address.
            ("/a.txt", 200, "a"),
            ("//a.txt?b=//c", 301, "/a.txt?b=//c"),
            ("//dir", 301, "/dir/"),
            ("/dir//", 301, "/dir/"),
            ("/open", 200, "open"),
            ("//open", 301, "/open"),
            ("/x.php/b", 200, "ran"),
            ("//x.php//b", 301, "/x.php/b"),
            // Handlers for which the path is only a name.
            ("//said", 200, "said"),
            ("/old/https://x", 302, "/new/https://x"),
            ("//evil.example/a", 302, "/evil.example/a/"),
            // Rewrites
            ("/to/https://x/a.jpg", 200, "/x/https://x/a.jpg"),
            ("/to//a//b", 200, "/x//a//b"),
            ("/to/./a//b;c=d", 200, "/x/a//b;c=d"),
            ("//base//a", 200, "/y//base//a"),
            ("/fetch/a//b", 200, "/z/https://x/a//b"),
            // Rules
            ("//admin//x", 403, ""),
            ("/admin//", 403, ""),
            // A part of a segment may be `..`, and dot segments may remove what another server calls several segments.
            ("/cut/a", 200, "/new/a"),
            ("/cut..css", 200, "/new/..css"),
            ("/cut../secret/x", 400, ""),
            ("/cut%2e./secret/x", 400, ""),
            ("/cut..;/secret/x", 400, ""),
            ("/cut..", 400, ""),
            ("/to/x/../a%2fb", 200, "/x/a%2fb"),
            ("/to/secret%2Fa/..%2F..%2Fq/..", 400, ""),
            ("/to//../admin/x", 400, ""),
            ("/public//..;/admin/x", 400, ""),
        ],
    );
}
