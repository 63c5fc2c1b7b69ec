//! The demonstration site and a listing as a browser renders them: in the light and the dark theme, and on a phone. The
//! pictures stay in `target/e2e-artefacts`.

use super::browser::Browser;
use super::harness::{Folder, Server};
use std::path::Path;

const WIDE: (u32, u32) = (1280, 1000);
const PHONE: (u32, u32) = (390, 844);

#[test]
fn the_demonstration_site_renders() {
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/site");
    let server = Server::start(&site, &[]);
    let dom = Browser::new().dom(&server.url("/"));
    for text in ["Flat out, and", "Three commands", "Your browser requested this page"] {
        assert!(dom.contains(text), "no {text:?} in {dom}");
    }
    for (path, name) in [("/", "site"), ("/reports.html", "site-reports"), ("/nowhere", "not-found")] {
        Browser::draw(&server.url(path), name, WIDE, PHONE);
    }
}

#[test]
fn a_listing_renders() {
    let site = Folder::new();
    let files: [(&str, usize); 8] = [
        ("a readme.txt", 1_400),
        ("archive-2026-11-21.tar.gz", 3_200_000),
        ("empty", 0),
        ("photographs/one.jpg", 10),
        ("photographs/two.jpg", 10),
        ("a name so long that no telephone can show it in one line without some thought about it.html", 70_000),
        ("<b>bold & \"quoted\".html", 5),
        ("größe – 大きさ.svg", 900),
    ];
    for (name, bytes) in files {
        site.write(name, &vec![b'x'; bytes]);
    }
    let folder = Folder::new();
    let text = format!(
        "workers 1\nadmin off=#true\nsite \"*\" {{\nlisten \"127.0.0.1:0\"\nfiles \"{}\" {{ listing #true; }}\n}}\n",
        site.path().display()
    );
    let server = Server::run(&folder, &text);
    let dom = Browser::new().dom(&server.url("/"));
    for text in ["a readme.txt", "photographs/", "&lt;b&gt;bold &amp; \"quoted\".html", "größe – 大きさ.svg"] {
        assert!(dom.contains(text), "no {text:?} in {dom}");
    }
    assert!(!dom.contains("<b>bold"), "{dom}");
    let inside = Browser::new().dom(&server.url("/photographs/"));
    assert!(inside.contains("two.jpg"), "{inside}");
    Browser::draw(&server.url("/"), "listing", WIDE, PHONE);
}
