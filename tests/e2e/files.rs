//! The contents of the metadata cache besides a file's bytes, namely encodings and digests, compared with the results of
//! other programs.

use super::harness::{Folder, Response, Server, flatout, wait_until};
use super::tool::{run, tool};
use std::fs;
use std::os::unix::fs::symlink;

fn fetch(server: &Server, path: &str, fields: &[&str]) -> String {
    let mut curl = tool("curl");
    curl.args(["--silent", "--include", "--output", "-"]);
    for field in fields {
        curl.args(["--header", field]);
    }
    String::from_utf8_lossy(&curl.arg(server.url(path)).output().unwrap().stdout).into_owned()
}

#[test]
fn codings_follow_the_weights_and_decode_to_the_original() {
    let page = "<!doctype html><title>A page</title><p>Words that can be made smaller.".repeat(200);
    let site = Folder::with(&[("page.html", page.as_bytes())]);
    let folder = Folder::new();
    let root = site.path().display();
    let server = Server::run(
        &folder,
        &format!("site \"*\" {{\nlisten \"127.0.0.1:0\"\nfiles \"{root}\"\n}}\nadmin off=#true\n"),
    );
    for (accept, coding) in [("gzip", "gzip"), ("gzip;q=0.5, br", "br"), ("zstd, br;q=0", "zstd")] {
        let field = format!("Accept-Encoding: {accept}");
        let expected = format!("Content-Encoding: {coding}\r\n");
        wait_until("the encoding is created", || fetch(&server, "/page.html", &[&field]).contains(&expected));
    }
    let plain = run(tool("curl").args(["--silent", "--compressed", &server.url("/page.html")]));
    assert_eq!(plain, page);
}

#[test]
fn paths_are_tried_in_the_written_order() {
    // A static export: pages without their ending, some beside a folder of the same name.
    let site = Folder::with(&[
        ("index.html", b"home"),
        ("join.html", b"join"),
        ("join/team.html", b"team"),
        ("docs.html", b"docs"),
        ("docs/index.html", b"docs/"),
        ("a", b"a"),
        ("a.html", b"a.html"),
        ("app.html", b"app"),
    ]);
    let text = |settings: &str, path: &str| {
        let folder = Folder::new();
        let root = site.path().display();
        let config = format!("site \"*\" {{\nlisten \"127.0.0.1:0\"\nfiles \"{root}\" {{ {settings}; }}\n}}\n");
        let server = Server::run(&folder, &config);
        let answer = server.get(path);
        match answer.status {
            200 => String::from_utf8_lossy(&answer.body).into_owned(),
            status => format!("{status} {}", answer.field("location").unwrap_or_default()),
        }
    };
    let page_first = "try \"{path}.html\" \"{path}\" \"=404\"";
    let path_first = "try \"{path}\" \"{path}.html\" \"=404\"";
    for (path, first, second, spa) in [
        ("/", "home", "home", "home"),
        ("/join", "join", "join", "app"),
        ("/join/team", "team", "team", "app"),
        ("/join/", "404 ", "404 ", "app"),
        ("/docs", "docs", "301 /docs/", "301 /docs/"),
        ("/docs/", "docs/", "docs/", "docs/"),
        ("/a", "a.html", "a", "a"),
        ("/a.html", "a.html", "a.html", "a.html"),
        ("/none", "404 ", "404 ", "app"),
    ] {
        let found = [text(page_first, path), text(path_first, path), text("spa \"app.html\"", path)];
        assert_eq!(found, [first, second, spa], "{path}");
    }
    // A folder that is listed exists.
    assert_eq!(text(&format!("listing #true; {path_first}"), "/join"), "301 /join/");
}

/// A client that sends the default fields of Python's HTTP libraries and decodes the response as they do.
const PYTHON: &str = r#"
import http.client, sys, zlib
host, path, first, last = sys.argv[1:]
connection = http.client.HTTPConnection(host)
fields = {"Accept-Encoding": "gzip, deflate", "Accept": "*/*", "Range": f"bytes={first}-{last}"}
connection.request("GET", path, headers=fields)
response = connection.getresponse()
content = response.read()
if response.headers.get("Content-Encoding") == "gzip":
    content = zlib.decompress(content, 16 + zlib.MAX_WBITS)
print(response.status, content.decode(), end="")
"#;

#[test]
fn clients_that_decode_get_ranges_of_the_plain_file() {
    let page: String = (0..9_000).map(|number| format!("{number} ")).collect();
    let site = Folder::with(&[("page.txt", page.as_bytes()), ("made.txt", page.as_bytes())]);
    run(tool("python3")
        .arg("-c")
        .arg("import gzip, sys; open(sys.argv[1] + '.gz', 'wb').write(gzip.compress(open(sys.argv[1], 'rb').read()))")
        .arg(site.path().join("made.txt")));
    let folder = Folder::new();
    let root = site.path().display();
    let server = Server::run(
        &folder,
        &format!("site \"*\" {{\nlisten \"127.0.0.1:0\"\nfiles \"{root}\"\n}}\nadmin off=#true\n"),
    );
    for path in ["/page.txt", "/made.txt"] {
        // curl requests deflate, gzip, and further codings if it was built with them.
        for accept in ["gzip, deflate", "deflate, gzip, br, zstd"] {
            let field = format!("Accept-Encoding: {accept}");
            wait_until("the encoding exists", || fetch(&server, path, &[&field]).contains("\r\nContent-Encoding: "));
        }
        let url = server.url(path);
        let part = run(tool("curl").args(["--silent", "--compressed", "--range", "100-199", &url]));
        assert_eq!(part, page[100..200], "{path}");
        let half = folder.path().join("half.txt");
        fs::write(&half, &page[..page.len() / 2]).unwrap();
        run(tool("curl").args(["--silent", "--compressed", "--continue-at", "-", "--output"]).arg(&half).arg(&url));
        assert_eq!(fs::read_to_string(&half).unwrap(), page, "{path}");
        let host = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
        let python = run(tool("python3").args(["-c", PYTHON, &host, path, "100", "199"]));
        assert_eq!(python, format!("206 {}", &page[100..200]), "{path}");
        let refusing = fetch(&server, path, &["Accept-Encoding: gzip, identity;q=0", "Range: bytes=100-199"]);
        assert!(refusing.starts_with("HTTP/1.1 200 ") && refusing.contains("\r\nContent-Encoding: gzip\r\n"), "{path}");
    }
}

#[test]
fn files_that_are_stored_compressed_are_sent_with_their_coding() {
    let image = "<svg xmlns='http://www.w3.org/2000/svg'/>".repeat(100);
    let site = Folder::with(&[("logo.svg", image.as_bytes()), ("app.js", b"let a;"), ("list/x.txt", b"x")]);
    let root = site.path().display();
    let gzip = |from: &str, to: &[&str]| {
        let compressed = std::process::Command::new("gzip").arg("-c").arg(site.path().join(from)).output().unwrap();
        for name in to {
            site.write(name, &compressed.stdout);
        }
        compressed.stdout
    };
    let svgz = gzip("logo.svg", &["logo.svgz", "image", "all.tar.gz", "game.wasm.gz"]);
    gzip("app.js", &["game.framework.js.gz", "game.data.gz"]);
    let config = format!(
        "site \"*\" {{\nlisten \"127.0.0.1:0\"\n\
         route \"/image\" {{\nheader \"Content-Encoding\" \"gzip\"\nheader \"Content-Type\" \"image/svg+xml\"\n}}\n\
         route \"/list/*\" \"/none\" {{\nheader \"Content-Encoding\" \"gzip\"\n}}\n\
         files \"{root}\" {{\nlisting #true\nSETTINGS\n}}\n}}\nadmin off=#true\n"
    );
    let folder = Folder::new();
    let plain = Server::run(&folder, &config.replace("SETTINGS", ""));
    let unity = config.replace("SETTINGS", "encoded \"svgz\" \"wasm.gz\" \"js.gz\" \"data.gz\" \"wasm.br\" \"js.zst\"");
    let unity = Server::run(&folder, &unity);
    let download = ("application/gzip", "");
    for (path, by_default, with_extensions) in [
        ("/logo.svgz", ("image/svg+xml", "gzip"), ("image/svg+xml", "gzip")),
        ("/image", ("image/svg+xml", "gzip"), ("image/svg+xml", "gzip")),
        ("/game.wasm.gz", download, ("application/wasm", "gzip")),
        ("/game.framework.js.gz", download, ("text/javascript; charset=utf-8", "gzip")),
        ("/game.data.gz", download, ("application/octet-stream", "gzip")),
        ("/all.tar.gz", download, download),
        ("/list/", ("text/html; charset=utf-8", ""), ("text/html; charset=utf-8", "")),
    ] {
        for (server, expected) in [(&plain, by_default), (&unity, with_extensions)] {
            let response = server.get(path);
            let field = |name| response.field(name).unwrap_or_default();
            assert_eq!(
                (response.status, field("content-type"), field("content-encoding")),
                (200, expected.0, expected.1)
            );
        }
    }
    // The other codings, as flatout itself compresses the image.
    let encode = |coding: &str| {
        let head = "GET /logo.svg HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
        let request = format!("{head}Accept-Encoding: {coding}\r\n\r\n");
        let mut content = Vec::new();
        wait_until("the encoding is created", || {
            let response = Response::parse(&plain.exchange(request.as_bytes()));
            let is_encoded = response.field("content-encoding") == Some(coding);
            content = response.body;
            is_encoded
        });
        content
    };
    for (name, media_type, coding) in
        [("game.wasm.br", "application/wasm", "br"), ("game.js.zst", "text/javascript; charset=utf-8", "zstd")]
    {
        let content = encode(coding);
        site.write(name, &content);
        let path = format!("/{name}");
        let response = unity.get(&path);
        let field = |name| response.field(name);
        assert_eq!((field("content-type"), field("content-encoding")), (Some(media_type), Some(coding)), "{name}");
        assert!(response.body == content, "{name}");
        assert_eq!(run(tool("curl").args(["--silent", "--compressed", &unity.url(&path)])), image, "{name}");
        assert_eq!(plain.get(&path).field("content-encoding"), None, "{name}");
    }
    let error = plain.get("/none");
    assert_eq!((error.status, error.field("content-encoding")), (404, None), "an error page is not compressed");
    // Browsers and curl decode the content, and a download of the file is the file.
    for path in ["/logo.svgz", "/image"] {
        assert_eq!(run(tool("curl").args(["--silent", "--compressed", &plain.url(path)])), image, "{path}");
        let stored = tool("curl").args(["--silent", &plain.url(path)]).output().unwrap().stdout;
        assert_eq!(stored, svgz, "{path}");
    }
    let explained = flatout()
        .args(["explain", "-c"])
        .arg(folder.path().join("flatout.kdl"))
        .arg("http://localhost/logo.svgz")
        .output();
    let explained = String::from_utf8(explained.unwrap().stdout).unwrap();
    assert!(explained.contains("image/svg+xml, stored with the coding gzip"), "{explained}");
}

#[test]
fn sites_with_different_compression_levels_share_no_encodings() {
    let page: String = (0..4000_u32).map(|number| format!("{} ", number.wrapping_mul(2_654_435_761) % 9973)).collect();
    let root = Folder::with(&[("page.txt", page.as_bytes())]);
    let folder = Folder::new();
    let site = |host: &str, level: u32| {
        let files = format!("files \"{}\" {{ compress \"gzip\" gzip-level={level}; }}", root.path().display());
        format!("site \"{host}\" {{\nlisten \"127.0.0.1:0\"\n{files}\n}}\n")
    };
    let server = Server::run(&folder, &format!("{}{}admin off=#true\n", site("fast.test", 1), site("small.test", 9)));
    let encoded = |host: &str| {
        let fields = [&*format!("Host: {host}"), "Accept-Encoding: gzip"];
        wait_until("the encoding is created", || {
            fetch(&server, "/page.txt", &fields).contains("\r\nContent-Encoding: gzip\r\n")
        });
        let response = fetch(&server, "/page.txt", &fields);
        let field = |name: &str| response.split(name).nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
        let decoded =
            run(tool("curl").args(["--silent", "--compressed", "--header", fields[0], &server.url("/page.txt")]));
        assert_eq!(decoded, page, "{host}");
        (field("\r\nContent-Length: ").parse::<u64>().unwrap(), field("\r\nETag: "))
    };
    let (fast, small) = (encoded("fast.test"), encoded("small.test"));
    assert!(small.0 < fast.0, "{small:?} {fast:?}");
    let fields = ["Host: small.test", "Accept-Encoding: gzip", &format!("If-None-Match: {}", fast.1)];
    assert!(fetch(&server, "/page.txt", &fields).starts_with("HTTP/1.1 200 "), "{fast:?} is not a tag of {small:?}");
    assert_eq!((encoded("fast.test"), encoded("small.test")), (fast, small));
}

#[test]
fn digests_match_those_of_other_tools() {
    let content = "digest me\n".repeat(5000);
    let site = Folder::with(&[("file.bin", content.as_bytes())]);
    let folder = Folder::new();
    let (root, state) = (site.path().display(), folder.path().display());
    let text = format!(
        "state \"{state}\"\nadmin off=#true\nsite \"*\" {{\nlisten \"127.0.0.1:0\"\nfiles \"{root}\" {{ digest #true; }}\n}}\n"
    );
    let script = "openssl dgst -sha256 -binary \"$0\" | openssl base64 -A";
    let base64 = run(std::process::Command::new("bash").args(["-c", script]).arg(site.path().join("file.bin")));
    let expected = format!("Repr-Digest: sha-256=:{}:\r\n", base64.trim());
    for _ in 0..2 {
        let server = Server::run(&folder, &text);
        wait_until("the digest is computed", || {
            fetch(&server, "/file.bin", &["Want-Repr-Digest: sha-256=1"]).contains(&expected)
        });
        drop(server.stop());
    }
}

/// `www` is served, the links in it lead to `share` and `lib`, and `secret` is private.
fn linked_folders() -> Folder {
    let folder = Folder::with(&[
        ("www/index.html", b"home"),
        ("share/js/app.js", b"share"),
        ("lib/lib.js", b"lib"),
        ("secret/key", b"secret"),
    ]);
    let path = |name: &str| folder.path().join(name);
    symlink(path("share/js"), path("www/js")).unwrap();
    symlink("../lib/lib.js", path("share/lib.js")).unwrap();
    symlink("../share/lib.js", path("www/lib.js")).unwrap();
    symlink("../secret/key", path("www/key")).unwrap();
    symlink("../secret", path("share/secret")).unwrap();
    symlink("../share/secret", path("www/chain")).unwrap();
    folder
}

fn linked_site(folder: &Folder, global: &str, inside: &str) -> String {
    let path = folder.path().display();
    format!(
        "admin off=#true\nlog \"{path}/access.log\" format=\"json\" {{ fields \"target\" \"outcome\"; }}\n{global}\n\
         site \"*\" {{\nlisten \"127.0.0.1:0\"\n{inside}\n}}\n"
    )
}

fn outcome_of(folder: &Folder, target: &str) -> String {
    let mut outcome = None;
    let is_it = format!("\"target\":\"{target}\"");
    wait_until("the request is logged", || {
        let log = fs::read_to_string(folder.path().join("access.log")).unwrap_or_default();
        let line = log.lines().rfind(|line| line.contains(&is_it));
        outcome = line.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["outcome"].clone());
        outcome.is_some()
    });
    outcome.unwrap().as_str().unwrap().to_owned()
}

#[test]
fn links_are_followed_only_into_trusted_folders() {
    let folder = linked_folders();
    let path = folder.path().display();
    for global in ["", "landlock #false", "worker-process #false", "worker-process #false\nlandlock #true"] {
        let inside = format!("files \"{path}/www\" {{ follow-links \"{path}/share\" \"{path}/lib\"; listing #true; }}");
        let server = Server::run(&folder, &linked_site(&folder, global, &inside));
        assert_eq!(server.get("/js/app.js").body, b"share");
        assert_eq!(server.get("/lib.js").body, b"lib");
        assert_eq!(server.get("/js").status, 301);
        for target in ["/key", "/chain/key", "/chain/"] {
            assert_eq!(server.get(target).status, 404, "{target}");
            assert_eq!(outcome_of(&folder, target), "outside_root", "{target}");
        }
        let listed = |target: &str| String::from_utf8(server.get(target).body).unwrap();
        assert!(listed("/js/").contains("app.js"));
        drop(server.stop());
    }
    // A listing omits entries that would not be served.
    fs::remove_file(folder.path().join("www/index.html")).unwrap();
    let inside = format!("files \"{path}/www\" {{ follow-links \"{path}/share\"; listing #true; }}");
    let server = Server::run(&folder, &linked_site(&folder, "", &inside));
    let listing = String::from_utf8(server.get("/").body).unwrap();
    assert!(listing.contains("./js/"), "{listing}");
    for name in ["lib.js", "key", "chain"] {
        assert!(!listing.contains(name), "{listing}");
    }
    assert_eq!(server.get("/lib.js").status, 404, "one folder in the chain of links is not trusted");
    drop(server.stop());
    // Without the setting, or with other folders in it, links that leave the folder are refused.
    let server = Server::start(&folder.path().join("www"), &[]);
    assert_eq!(server.get("/js/app.js").status, 404);
    drop(server.stop());
    let share = folder.path().join("share");
    let server = Server::start(&folder.path().join("www"), &["--follow-links", share.to_str().unwrap(), "--landlock"]);
    assert_eq!(server.get("/js/app.js").body, b"share");
    assert_eq!(server.get("/lib.js").status, 404);
}

#[test]
fn changes_to_the_target_of_a_link_are_seen() {
    let folder = linked_folders();
    let path = folder.path().display();
    for global in ["file-check-interval \"100ms\"", "file-check-interval \"100ms\"\nwatch #true"] {
        folder.write("share/js/app.js", b"share");
        let inside = format!("{global}\nfiles \"{path}/www\" {{ follow-links \"{path}/share\" \"{path}/lib\"; }}");
        let server = Server::run(&folder, &linked_site(&folder, "", &inside));
        wait_until("the file is served", || server.get("/js/app.js").body == b"share");
        folder.write("share/js/app.js", b"changed");
        wait_until("its new content is served", || server.get("/js/app.js").body == b"changed");
        // The link changes its target. The link itself is an entry in the served folder.
        let link = |target: &str| {
            symlink(folder.path().join(target), folder.path().join("www/new")).unwrap();
            fs::rename(folder.path().join("www/new"), folder.path().join("www/js")).unwrap();
        };
        link("secret");
        wait_until("the link is broken", || server.get("/js/app.js").status == 404);
        assert_eq!(server.get("/js/key").status, 404);
        link("share/js");
        wait_until("the link works again", || server.get("/js/app.js").body == b"changed");
        drop(server.stop());
    }
}

#[test]
fn a_trusted_folder_must_exist_on_this_machine() {
    let folder = linked_folders();
    let path = folder.path().display();
    let config = folder.path().join("flatout.kdl");
    let text = format!(
        "site {{\n    listen \"127.0.0.1:0\"\n    files \"{path}/www\" {{ follow-links \"{path}/none\"; }}\n}}\n"
    );
    fs::write(&config, text).unwrap();
    let validate = |flags: &[&str]| flatout().args(["validate", "-c"]).arg(&config).args(flags).output().unwrap();
    let output = validate(&[]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&format!("{path}/none")) && said.contains("flatout.kdl:3:"), "{said}");
    assert!(validate(&["--no-machine-checks"]).status.success());
}
