//! Django on gunicorn, with sessions, a login, and a page that reads a cookie directly.

use super::origin::{Origin, installed, python, source};
use super::stage::{Stage, together};
use super::visitor::{Page, Visitor};
use crate::process::free_port;
use std::process::Command;

fn site(stage: &Stage) -> Origin {
    let folder = stage.folder.path();
    let status = python().arg(source("django_site.py")).env("DJANGO_FOLDER", folder).status().unwrap();
    assert!(status.success());
    let port = free_port();
    let mut gunicorn = Command::new(installed("apps-python/bin/python"));
    gunicorn
        .args(["-m", "gunicorn", "--no-control-socket", "--threads", "16", "--bind", &format!("127.0.0.1:{port}")])
        .arg("--chdir")
        .arg(source(""))
        .arg("django_site:application")
        .env("DJANGO_FOLDER", folder)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    Origin::listening(port, &mut gunicorn)
}

fn log_in(visitor: &Visitor) -> Page {
    let form = visitor.get("/accounts/login/").text;
    let token = form.strip_prefix("token=").and_then(|rest| rest.strip_suffix(';')).unwrap();
    visitor.post("/accounts/login/", &[("name", &visitor.name), ("csrfmiddlewaretoken", token)])
}

#[test]
fn django_never_shows_a_visitor_the_page_or_session_of_another() {
    let stage = Stage::new("Django");
    let site = site(&stage);
    for (kind, server) in stage.kinds(&site.url(), super::recipe::SESSIONS) {
        let visitors: Vec<_> = ["alice", "bob"]
            .map(|name| Visitor::new(&stage.folder, &server, name).with_cookie(&format!("name={name}")))
            .into_iter()
            .chain([Visitor::new(&stage.folder, &server, "nobody")])
            .collect();
        let look = |logged_in: bool| {
            together(&visitors, |visitor| {
                for _ in 0..2 {
                    let is_known = visitor.name != "nobody";
                    let expected = if is_known { visitor.name.as_str() } else { "None" };
                    assert_eq!(visitor.get("/hello").text, format!("Hello {expected}"), "{kind}");
                    let expected = if is_known && logged_in { visitor.name.as_str() } else { "nobody" };
                    assert_eq!(visitor.get("/account").text, format!("account of {expected}"), "{kind}");
                    assert_eq!(visitor.get("/").text, "the front page", "{kind}");
                    assert_eq!(visitor.get("/news").text, "news", "{kind}");
                }
            });
        };
        look(false);
        together(&visitors[..2], |visitor| assert_eq!(log_in(visitor).status, 302, "{kind}: {}", visitor.name));
        look(true);
        visitors[2].get("/news").expect_hit(kind);
        if kind == "recipe" {
            let guest = Visitor::new(&stage.folder, &server, "guest").with_cookie("_ga=GA1.2.3.4");
            guest.get("/").expect_hit("the front page");
        }
    }
}
