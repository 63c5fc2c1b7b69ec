//! What the metadata cache knows of a file beyond its bytes: encodings and digests, held against other programs.

use super::harness::{Folder, Server, wait_until};
use super::tool::{run, tool};

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
