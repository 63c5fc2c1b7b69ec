//! Express, with pages that read cookies and with express-session.

use super::origin::{Origin, node, node_packages};
use super::recipe::SESSIONS;
use super::stage::{Stage, together};
use super::visitor::Visitor;

fn app() -> Origin {
    Origin::script(node("express.mjs").arg(node_packages()))
}

#[test]
fn express_pages_that_read_a_cookie_are_not_shared_between_visitors() {
    let stage = Stage::new("Express, cookies");
    let app = app();
    for (kind, server) in stage.kinds(&app.url(), SESSIONS) {
        for count in [3, 10] {
            let visitors: Vec<_> = (0..count)
                .map(|number| format!("visitor{number}"))
                .map(|name| Visitor::new(&stage.folder, &server, &name).with_cookie(&format!("name={name}")))
                .collect();
            // First with a cold cache, then with whatever the cache has stored.
            for _ in 0..2 {
                together(&visitors, |visitor| {
                    let page = visitor.get(&format!("/hello?crowd={count}"));
                    assert_eq!(page.text, format!("Hello {}", visitor.name), "{kind}");
                });
            }
        }
    }
}

#[test]
fn express_sessions_are_not_shared_between_visitors() {
    let stage = Stage::new("Express, sessions");
    let app = app();
    for (kind, server) in stage.kinds(&app.url(), SESSIONS) {
        for base in ["/stock", "/app"] {
            let visitors: Vec<_> = ["alice", "bob", "carol", "nobody"]
                .map(|name| Visitor::new(&stage.folder, &server, &format!("{name}{}", base.len())))
                .into();
            let name = |visitor: &Visitor| visitor.name.trim_end_matches(char::is_numeric).to_owned();
            // Once while no visitor is logged in, and once while all but one are.
            let look = |greeting: &str, logged_in: bool| {
                together(&visitors, |visitor| {
                    for _ in 0..2 {
                        let own = Some(name(visitor)).filter(|name| logged_in && name != "nobody");
                        let account = visitor.get(&format!("{base}/account")).text;
                        let expected = own.clone().unwrap_or_else(|| "nobody".to_owned());
                        assert_eq!(account, format!("account of {expected}"), "{kind}, {base}, {}", visitor.name);
                        let front = visitor.get(&format!("{base}/")).text;
                        let expected = own.unwrap_or_else(|| greeting.to_owned());
                        assert_eq!(front, format!("welcome {expected}"), "{kind}, {base}, {}", visitor.name);
                    }
                });
            };
            look("guest", false);
            for visitor in visitors.iter().filter(|visitor| name(visitor) != "nobody") {
                assert_eq!(visitor.get(&format!("{base}/login?name={}", name(visitor))).status, 302);
            }
            look("guest", true);
        }
    }
}

#[test]
fn express_public_pages_are_cache_hits() {
    let stage = Stage::new("Express, hits");
    let app = app();
    for (kind, server) in stage.kinds(&app.url(), SESSIONS) {
        let visitors: Vec<_> = ["alice", "bob"]
            .map(|name| Visitor::new(&stage.folder, &server, name).with_cookie(&format!("name={name}")))
            .into();
        together(&visitors, |visitor| assert_eq!(visitor.get("/news").text, "news"));
        // A `public` response may also be served to visitors with cookies.
        together(&visitors, |visitor| visitor.get("/news").expect_hit(kind));
        if kind == "recipe" {
            let guest = Visitor::new(&stage.folder, &server, "guest").with_cookie("_ga=GA1.2.3.4");
            assert_eq!(guest.get("/app/").text, "welcome guest");
            guest.get("/app/").expect_hit("the front page");
        }
    }
}
