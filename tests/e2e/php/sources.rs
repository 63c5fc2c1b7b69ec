//! No path returns the source of a script, in whatever order the directives are, nor through other names for it.

use super::super::harness::Folder;
use super::scripted::{Scripted, complete_response, send};
use super::{ask, get, serve, text};

const SECRET: &str = "the password is xyzzy";

fn folder() -> Folder {
    let source = format!("<?php // {SECRET}\n");
    let names = [
        "x.php",
        "X.PHP",
        "x.php~",
        "x.php.bak",
        "x.phpold",
        "x.php1",
        "x.phpt",
        "x.php.gz",
        "x.php.br",
        "x.phtml",
        "x.phps",
        "x.php5",
        "x.php.",
        "x.php ",
        ".x.php.swp",
        "dir/index.php",
        "inc.php/page.html",
        "index.php",
        "noext/index.php",
    ];
    let folder = Folder::new();
    for name in names {
        let content = if name.ends_with("page.html") { "a page".to_owned() } else { source.clone() };
        folder.write(&format!("www/{name}"), content.as_bytes());
    }
    folder.write("www/style.css", b"a style");
    folder
}

/// Where an origin interprets unusual paths, scripts can still be reached only under their own names.
#[test]
fn paths_mean_the_same_beside_a_proxy() {
    let folder = folder();
    let app = Scripted::start(folder.path(), |_, stream| send(stream, &complete_response("\r\nran")));
    let step = app.step(&folder.path().join("www"), "");
    let proxy = "    route \"/api/*\" { proxy \"http://127.0.0.1:9\" { retries 0 } }";
    for order in [format!("{step}\n{proxy}"), format!("{proxy}\n{step}")] {
        let server = serve(&folder, &order);
        for path in ["/dir%2Findex.php", "/dir%2findex.php/info", "/dir/index.php%2Fa", "/%2Fx.php", "/x.php/..%2fdir/"]
        {
            assert_eq!(get(&server, path).status, 400, "{path}");
        }
        assert_eq!(text(&get(&server, "/x.php/a%2Fb")), "ran");
        for (path, location) in [("//x.php", "/x.php"), ("//x.php//..x", "/x.php/..x"), ("/dir//?q", "/dir/?q")] {
            let led = get(&server, path);
            assert_eq!((led.status, led.field("location")), (301, Some(location)), "{path}");
        }
        assert_eq!(get(&server, "//a.example/..x").status, 404, "no script has this name");
        assert_eq!(text(&get(&server, "/dir/index.php")), "ran");
    }
}

#[test]
fn no_path_returns_the_source_of_a_script() {
    let folder = folder();
    let app = Scripted::start(folder.path(), |_, stream| send(stream, &complete_response("\r\nran")));
    let root = folder.path().join("www");
    let php = |settings: &str| app.step(&root, settings);
    let files =
        format!("    files {root:?} {{ listing #true; index \"index.php\" \"index.html\"; hidden #true; pass #true }}");
    let tries = format!("    files {root:?} {{ try \"{{path}}\" \"/index.php\" }}");
    let front = php("front-controller \"/index.php\"");
    let orders = [
        format!("{}\n{files}", php("")),
        format!("{files}\n{}", php("")),
        format!("{front}\n{files}"),
        format!("{files}\n{front}"),
        format!("{}\n{tries}", php("")),
        format!("    route \"/dir/*\" {{\n{}\n    }}\n{files}", php("")),
    ];
    for order in orders {
        let server = serve(&folder, &order);
        for path in [
            "/x.php",
            "/X.PHP",
            "/x%2ephp",
            "/x.ph%70",
            "/x.php~",
            "/x.php.bak",
            "/x.phpold",
            "/x.ph%70old",
            "/x.php1",
            "/x.phpt",
            "/x.php.gz",
            "/x.php.br",
            "/x.phtml",
            "/x.phps",
            "/x.php5",
            "/x.php.",
            "/x.php%20",
            "/x.php%0a",
            "/x.php%00",
            "/.x.php.swp",
            "/dir",
            "/dir/",
            "/dir/index.php",
            "/dir/INDEX.PHP",
            "/dir/../x.php",
            "/./x.php",
            "//x.php",
            "/dir//index.php",
            "/x.php/",
            "/x.php/.",
            "/x.php/..",
            "/x.php/a",
            "/x.php%2fa",
            "/x.php;a",
            "/x.php?a",
            "/noext/",
            "/",
            "/none",
            "/x",
            "/inc.php/x.php",
            "/style.css/x.php",
        ] {
            for field in ["", "Accept-Encoding: gzip, br\r\n", "Range: bytes=0-99\r\n"] {
                let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{field}Connection: close\r\n\r\n");
                let response = ask(&server, &request);
                assert!(!text(&response).contains("xyzzy"), "{path} {field}: {}\n{order}", text(&response));
            }
        }
        assert_eq!(text(&get(&server, "/style.css")), "a style", "{order}");
        assert_eq!(text(&get(&server, "/inc.php/page.html")), "a page", "{order}");
        let is_routed = order.contains("route");
        assert_eq!(text(&get(&server, "/dir/index.php/a")), "ran", "{order}");
        assert_eq!(text(&get(&server, "/x.php")) == "ran", !is_routed, "{order}");
        assert!(!app.asked().iter().any(|asked| {
            let script = &asked.variables["SCRIPT_FILENAME"];
            !script.as_bytes().ends_with(b".php") || !std::path::Path::new(script).is_file()
        }));
    }
}

#[test]
fn another_site_on_the_same_folder_returns_no_sources() {
    let folder = folder();
    let app = Scripted::start(folder.path(), |_, stream| send(stream, &complete_response("\r\nran")));
    let root = folder.path().join("www");
    let listen = "listen \"127.0.0.1:0\"";
    let log = "";
    let text_of = format!(
        "workers 1\nadmin off=#true\n{log}site \"a\" {{ {listen}\n{}\n}}\nsite \"b\" {{ {listen}\n files {:?} {{ listing #true }}\n}}\n\
         site \"c\" {{ {listen}\n files {:?}\n}}\n",
        app.step(&root, ""),
        folder.path(),
        root.join("dir"),
    );
    let server = super::super::harness::Server::run(&folder, &text_of);
    for (host, path) in [("b", "/www/x.php"), ("b", "/www/x.php~"), ("c", "/index.php")] {
        let response = ask(&server, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        assert_eq!(response.status, 404, "{host} {path}: {}", text(&response));
    }
    let page = "GET /www/style.css HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n";
    assert_eq!(text(&ask(&server, page)), "a style");
}
