//! What a page says of who may keep it, and a cache that listens.

use super::{page, site, text};
use crate::e2e::harness::{Folder, Server, flatout};
use crate::e2e::tool::said;

/// `kv` counts how often the page ran.
const SITE: &[(&str, &str)] = &[
    ("site/kept.lhtml", "<?lua cache(\"60s\", {tags = {\"news\"}}) ?><?= kv.incr(\"kept\") ?>"),
    ("site/own.lhtml", "<?= kv.incr(\"own\") ?>"),
];

#[test]
fn an_accelerator_keeps_a_page_as_long_as_it_says() {
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
    // A page that says nothing is for one visitor alone, whatever the accelerator's own default is.
    assert_eq!((page(&server, "/own"), page(&server, "/own")), ("1".into(), "2".into()));
    let socket = edge.path().join("admin.sock");
    let purged = flatout().args(["purge", "--tag", "news", "--admin"]).arg(socket).output().unwrap();
    assert!(purged.status.success(), "{}", said(&purged));
    assert_eq!(page(&server, "/kept"), "2");
}
