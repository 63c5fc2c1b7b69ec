//! What a person sees: the demonstration site, by day, by night and on a phone, drawn by a browser. The
//! pictures stay in `target/e2e-artefacts`.

use super::browser::Browser;
use super::harness::Server;
use std::path::Path;

const WIDE: (u32, u32) = (1280, 1000);
const PHONE: (u32, u32) = (390, 844);

fn draw(url: &str, name: &str) {
    Browser::new().screenshot(url, &format!("{name}-light"), WIDE);
    Browser::new().with("--force-dark-mode").screenshot(url, &format!("{name}-dark"), WIDE);
    Browser::new().screenshot(url, &format!("{name}-phone"), PHONE);
}

#[test]
fn the_demonstration_site_is_drawn() {
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/site");
    let server = Server::start(&site, &[]);
    let dom = Browser::new().dom(&server.url("/"));
    for text in ["Flat out, and", "Three verbs", "Your browser asked for this page"] {
        assert!(dom.contains(text), "no {text:?} in {dom}");
    }
    for (path, name) in [("/", "site"), ("/reports.html", "site-reports"), ("/nowhere", "not-found")] {
        draw(&server.url(path), name);
    }
}
