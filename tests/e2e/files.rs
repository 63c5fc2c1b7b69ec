//! What the metadata cache knows of a file beyond its bytes: encodings and digests, held against other programs.

use super::harness::{Folder, Server, flatout, wait_until};
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
fn codings_follow_the_weights_and_come_back_the_same() {
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
        wait_until("the encoding is made", || fetch(&server, "/page.html", &[&field]).contains(&expected));
    }
    let plain = run(tool("curl").args(["--silent", "--compressed", &server.url("/page.html")]));
    assert_eq!(plain, page);
}

#[test]
fn a_digest_is_what_others_say() {
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
        wait_until("the digest is made", || {
            fetch(&server, "/file.bin", &["Want-Repr-Digest: sha-256=1"]).contains(&expected)
        });
        drop(server.stop());
    }
}

/// `www` is served, `share` and `lib` hold what its links lead to, `secret` is nobody's.
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
fn links_lead_where_the_configuration_trusts_them() {
    let folder = linked_folders();
    let path = folder.path().display();
    for global in ["", "landlock #true"] {
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
    // What a folder lists leaves out what would not be served.
    fs::remove_file(folder.path().join("www/index.html")).unwrap();
    let inside = format!("files \"{path}/www\" {{ follow-links \"{path}/share\"; listing #true; }}");
    let server = Server::run(&folder, &linked_site(&folder, "", &inside));
    let listing = String::from_utf8(server.get("/").body).unwrap();
    assert!(listing.contains("./js/"), "{listing}");
    for name in ["lib.js", "key", "chain"] {
        assert!(!listing.contains(name), "{listing}");
    }
    assert_eq!(server.get("/lib.js").status, 404, "one folder of the chain is not trusted");
    drop(server.stop());
    // Without the setting as with other folders, links that leave are refused.
    let server = Server::start(&folder.path().join("www"), &[]);
    assert_eq!(server.get("/js/app.js").status, 404);
    drop(server.stop());
    let share = folder.path().join("share");
    let server = Server::start(&folder.path().join("www"), &["--follow-links", share.to_str().unwrap(), "--landlock"]);
    assert_eq!(server.get("/js/app.js").body, b"share");
    assert_eq!(server.get("/lib.js").status, 404);
}

#[test]
fn changes_behind_a_link_are_seen() {
    let folder = linked_folders();
    let path = folder.path().display();
    for global in ["file-check-interval \"100ms\"", "file-check-interval \"100ms\"\nwatch #true"] {
        folder.write("share/js/app.js", b"share");
        let inside = format!("{global}\nfiles \"{path}/www\" {{ follow-links \"{path}/share\" \"{path}/lib\"; }}");
        let server = Server::run(&folder, &linked_site(&folder, "", &inside));
        wait_until("the file is served", || server.get("/js/app.js").body == b"share");
        folder.write("share/js/app.js", b"changed");
        wait_until("its new content is served", || server.get("/js/app.js").body == b"changed");
        // Another target: the link itself is a name in the folder that is served.
        let link = |target: &str| {
            symlink(folder.path().join(target), folder.path().join("www/new")).unwrap();
            fs::rename(folder.path().join("www/new"), folder.path().join("www/js")).unwrap();
        };
        link("secret");
        wait_until("the link leads nowhere", || server.get("/js/app.js").status == 404);
        assert_eq!(server.get("/js/key").status, 404);
        link("share/js");
        wait_until("the link leads back", || server.get("/js/app.js").body == b"changed");
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
