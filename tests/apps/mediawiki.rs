//! MediaWiki from Debian's package, on SQLite, PHP-FPM and nginx: logged-in users, a title with a slash, and purges.

use super::origin::{Origin, source};
use super::stage::{Stage, together};
use super::visitor::{Page, Visitor};
use crate::harness::wait_until;
use crate::tool::{run, tool};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

const PACKAGE: &str = "/usr/share/mediawiki";
/// Every form of a target that links to the page `AC/DC` may use.
const TITLED: &[&str] = &["/wiki/AC%2FDC", "/wiki/AC/DC", "/index.php?title=AC%2FDC", "/index.php?title=AC/DC"];

fn wiki(stage: &Stage) -> Origin {
    let folder = stage.folder.path();
    assert!(Path::new(PACKAGE).join("index.php").is_file(), "MediaWiki is missing; please run: tools/setup.sh apps");
    let script = |name: &str| {
        let mut php = tool("php");
        php.arg(Path::new(PACKAGE).join("maintenance").join(name))
            .env("MW_CONFIG_FILE", folder.join("LocalSettings.php"));
        php
    };
    let data = folder.join("data");
    let mut install = script("install.php");
    install.env_remove("MW_CONFIG_FILE").args(["--dbtype", "sqlite", "--dbname", "wiki", "--scriptpath", ""]);
    install.args(["--server", "http://www.example", "--pass", "the-secret-of-admin"]);
    run(install.arg("--confpath").arg(folder).arg("--dbpath").arg(&data).args(["A wiki", "Admin"]));
    let more = fs::read_to_string(source("mediawiki.php")).unwrap().replace("FOLDER", folder.to_str().unwrap());
    let mut settings = fs::read_to_string(folder.join("LocalSettings.php")).unwrap();
    settings.push_str(more.strip_prefix("<?php").unwrap());
    stage.folder.write("LocalSettings.php", settings.as_bytes());
    for name in ["Alice", "Bob"] {
        run(script("createAndPromote.php").args([name, &format!("the-secret-of-{name}")]));
    }
    let mut edit = script("edit.php").arg("AC/DC").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    edit.stdin.take().unwrap().write_all(b"a band from Sydney, [[AC/DC/Songs]]").unwrap();
    assert!(edit.wait().unwrap().success());
    let lines = format!("env[MW_CONFIG_FILE] = {}/LocalSettings.php\n", folder.display());
    Origin::php(&stage.folder, Path::new(PACKAGE), "$uri $uri/ /index.php$is_args$args", &lines)
}

fn call(visitor: &Visitor, form: &[(&str, &str)]) -> serde_json::Value {
    let page = visitor.post("/api.php?format=json", form);
    serde_json::from_str(&page.text).unwrap_or_else(|error| panic!("{error}: {page:?}"))
}

fn token(visitor: &Visitor, kind: &str) -> String {
    let answer = call(visitor, &[("action", "query"), ("meta", "tokens"), ("type", kind)]);
    answer["query"]["tokens"][format!("{kind}token")].as_str().unwrap().to_owned()
}

fn log_in(visitor: &Visitor) {
    let (token, password) = (token(visitor, "login"), format!("the-secret-of-{}", visitor.name));
    let answer = call(
        visitor,
        &[
            ("action", "clientlogin"),
            ("username", &visitor.name),
            ("password", &password),
            ("logintoken", &token),
            ("loginreturnurl", "http://www.example/"),
        ],
    );
    assert_eq!(answer["clientlogin"]["status"], "PASS", "{answer}");
}

fn check(kind: &str, user: Option<&str>, target: &str, page: &Page) {
    let what = format!("{kind}: {user:?} at {target}");
    let expected = user.map_or("\"wgUserName\":null".to_owned(), |user| format!("\"wgUserName\":\"{user}\""));
    assert!(page.status == 200 && page.text.contains(&expected), "{what}: {page:?}");
    for other in ["Alice", "Bob"] {
        assert_eq!(page.text.contains(&format!("User:{other}\"")), user == Some(other), "{what}, and {other}");
    }
    if TITLED.contains(&target) {
        assert!(
            page.text.contains("a band from Sydney") && page.text.contains("\"wgTitle\":\"AC/DC\""),
            "{what}: {page:?}"
        );
    }
}

#[test]
fn mediawiki_never_shows_a_visitor_the_page_of_another() {
    let stage = Stage::new("MediaWiki");
    let origin = wiki(&stage);
    for (kind, server) in stage.kinds(&origin.url(), "MediaWiki") {
        stage.folder.write("cache-address", server.address.to_string().as_bytes());
        let visitors: Vec<_> =
            ["Alice", "Bob", "nobody", "guest"].map(|name| Visitor::new(&stage.folder, &server, name)).into();
        let look = |logged_in: bool| {
            together(&visitors, |visitor| {
                let user = Some(visitor.name.as_str()).filter(|name| logged_in && ["Alice", "Bob"].contains(name));
                for _ in 0..2 {
                    for target in TITLED.iter().chain(&["/wiki/Main_Page"]) {
                        check(kind, user, target, &visitor.get(target));
                    }
                }
            });
        };
        look(false);
        together(&visitors[..2], log_in);
        look(true);
        // The s-maxage that MediaWiki sends makes anonymous pages cache hits.
        let guest = Visitor::new(&stage.folder, &server, "another");
        for target in ["/wiki/AC%2FDC", "/wiki/Main_Page"] {
            guest.get(target);
            guest.get(target).expect_hit(target);
        }
        if kind == "recipe" {
            let alice = &visitors[0];
            let token = token(alice, "csrf");
            let form = [("action", "edit"), ("title", "Main Page"), ("text", "as Alice has it"), ("token", &token)];
            let answer = call(alice, &form);
            assert_eq!(answer["edit"]["result"], "Success", "{answer}");
            // MediaWiki sends PURGE after it has responded.
            wait_until("visitors see the edit", || guest.get("/wiki/Main_Page").text.contains("as Alice has it"));
            guest.get("/wiki/Main_Page");
            guest.get("/wiki/Main_Page").expect_hit("the edited page");
        }
    }
}
