//! Sessions and the secret that signs them: keys that change on a reload, and sites that share a file.

use super::{site, start, text};
use crate::e2e::harness::{Folder, Response, Server, flatout, read_to_end};
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt as _;

const SITE: &[(&str, &str)] = &[
    ("site/login.lhtml", "<?lua session.user = \"ann\" ?>in"),
    ("site/index.lhtml", "<?= session.user or \"nobody\" ?>"),
    ("data/.keep", ""),
];

const SETTINGS: &str = "secret \"data/secret\"";

fn reload(folder: &Folder) -> bool {
    let socket = folder.path().join("admin.sock");
    flatout().arg("reload").arg("--admin").arg(socket).output().unwrap().status.success()
}

/// The cookie that a response sets, in the form in which a browser sends it back.
fn cookie(answer: &Response) -> String {
    let line = answer.field("set-cookie").unwrap_or_else(|| panic!("no cookie: {}", text(answer)));
    line.split(';').next().unwrap().to_owned()
}

const HOSTS: [&str; 2] = ["a.example", "b.example"];

/// Sends a request to the site at `listener`.
fn ask(server: &Server, listener: usize, path: &str, cookie: &str) -> Response {
    let mut stream = TcpStream::connect(server.address_of(listener)).unwrap();
    let host = HOSTS[listener];
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    Response::parse(&read_to_end(&mut stream))
}

/// The user that a page sees for this cookie.
fn known_user(server: &Server, listener: usize, cookie: &str) -> String {
    text(&ask(server, listener, "/", cookie))
}

fn write_secret(folder: &Folder, lines: &str) {
    let path = folder.path().join("data/secret");
    fs::remove_file(&path).unwrap();
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(lines.as_bytes()).unwrap();
}

#[test]
fn a_removed_key_is_rejected_after_a_reload() {
    let (folder, server) = site(SITE, SETTINGS, "");
    let old = cookie(&server.get("/login"));
    assert_eq!(known_user(&server, 0, &old), "ann");
    let old_key = fs::read_to_string(folder.path().join("data/secret")).unwrap();
    let new_key = "a-new-key-of-more-than-thirty-two-characters";
    // With both keys, the old one is still accepted.
    write_secret(&folder, &format!("{new_key}\n{old_key}"));
    assert!(reload(&folder));
    assert_eq!(known_user(&server, 0, &old), "ann");
    let new = cookie(&server.get("/login"));
    // Without the old key, everything it signed is rejected. Sessions signed with the new key stay valid.
    write_secret(&folder, &format!("{new_key}\n"));
    assert_eq!(known_user(&server, 0, &old), "ann", "nothing holds before the reload");
    assert!(reload(&folder));
    assert_eq!((known_user(&server, 0, &old), known_user(&server, 0, &new)), ("nobody".into(), "ann".into()));
    // An unusable secret changes nothing, and the reload reports the error.
    write_secret(&folder, "short\n");
    assert!(!reload(&folder));
    assert_eq!(known_user(&server, 0, &new), "ann");
}

/// A configuration that is rejected for another reason changes no secret either.
#[test]
fn sessions_survive_a_rejected_reload() {
    let files = [SITE, &[("migrations/001_first.sql", "CREATE TABLE t (a)")]].concat();
    let settings = format!("{SETTINGS}\n database \"data/a.db\" migrations=\"migrations\"");
    let (folder, server) = site(&files, &settings, "");
    let session = cookie(&server.get("/login"));
    write_secret(&folder, "a-new-key-of-more-than-thirty-two-characters\n");
    fs::write(folder.path().join("migrations/002_second.sql"), "BROKEN").unwrap();
    assert!(!reload(&folder));
    assert_eq!(known_user(&server, 0, &session), "ann");
    fs::remove_file(folder.path().join("migrations/002_second.sql")).unwrap();
    assert!(reload(&folder));
    assert_eq!(known_user(&server, 0, &session), "nobody");
}

#[test]
fn a_session_is_valid_only_on_its_own_site() {
    let files: Vec<(&str, &[u8])> = SITE.iter().map(|(name, content)| (*name, content.as_bytes())).collect();
    let folder = Folder::with(&files);
    let block = |host: &str, address: &str| {
        format!("site \"{host}\" {{\n listen \"{address}:0\"\n pages \"site\" {{ {SETTINGS} }}\n}}\n")
    };
    let sites = block(HOSTS[0], "127.0.0.1") + &block(HOSTS[1], "127.0.0.2");
    let server = Server::run(&folder, &format!("workers 1\nadmin off=#true\n{sites}"));
    let signed = cookie(&ask(&server, 0, "/login", ""));
    assert_eq!((known_user(&server, 0, &signed), known_user(&server, 1, &signed)), ("ann".into(), "nobody".into()));
    drop(server);
    // Sessions signed before a restart are accepted after it.
    let server = Server::run(&folder, &format!("workers 1\nadmin off=#true\n{sites}"));
    assert_eq!(known_user(&server, 0, &signed), "ann");
    drop(server);
    // The site's name is part of the signature.
    let server = start(&folder, SETTINGS, "");
    assert_eq!(known_user(&server, 0, &signed), "nobody");
}
