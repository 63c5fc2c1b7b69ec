//! Stored responses of different sites and `proxy` steps stay apart, at the same time and across reloads.

use super::super::harness::{Folder, Server, flatout};
use super::super::tool::run;
use super::ask;
use super::origin::{Origin, fresh};
use std::io::Write;
use std::net::TcpStream;

/// An origin whose pages say its name and the visitor's group.
fn app(name: &'static str) -> Origin {
    Origin::responding(move |request| {
        fresh(format!("{name} for {}", request.field("x-group").unwrap_or_default()).as_bytes())
    })
}

#[test]
fn an_internal_site_shares_nothing_with_a_public_one_of_the_same_host() {
    let (public, internal, folder) = (app("public"), app("internal"), Folder::new());
    for host in ["", "\"a.example\""] {
        let site = |address: &str, guard: &str, origin: &Origin| {
            let url = origin.url();
            format!("site {host} {{\n listen \"{address}:0\"\n {guard}\n cache\n proxy \"{url}\"\n}}\n")
        };
        let text = "admin off=#true\nworkers 1\n".to_owned()
            + &site("127.0.0.1", "", &public)
            + &site("127.0.0.2", "allow \"127.0.0.0/8\"", &internal);
        let server = Server::run(&folder, &text);
        let visit = |listener: usize, path: &str| {
            let mut stream = TcpStream::connect(server.address_of(listener)).unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let bytes = super::read_to_end(&mut stream);
            super::Answer::take(&mut &bytes[..], false).unwrap().text()
        };
        for (path, order) in [("/one", [0, 1, 0]), ("/two", [1, 0, 1])] {
            for listener in order {
                assert_eq!(visit(listener, path), ["public for ", "internal for "][listener], "{host} {path}");
            }
        }
        drop(server.stop());
    }
}

#[test]
fn a_reload_serves_no_stored_response_of_a_removed_route() {
    let (app, folder) = (app("app"), Folder::new());
    let url = app.url();
    // With Landlock, a worker process that may not connect to the port of the new origin would be replaced, and its
    // memory store with it.
    let text = |inside: &str, more: &str| {
        let admin = folder.path().join("admin");
        format!(
            "admin {admin:?}\nlandlock #false\nworkers 1\nsite \"a.example\" {{\n listen \"127.0.0.1:0\"\n cache\n {inside}\n \
             proxy \"{url}\" {more} {{\n timeouts {{\n head \"20s\"\n }}\n }}\n}}\n"
        )
    };
    let staff = format!(
        "route header=\"X-Staff: yes\" {{\n proxy \"{url}\" {{\n request-header {{\n set \"X-Group\" \"staff\"\n }}\n }}\n }}"
    );
    let server = Server::run(&folder, &text(&staff, ""));
    let visit = |path: &str, fields: &str| ask(&server, "GET", path, &format!("Host: a.example\r\n{fields}")).text();
    let reload = |text: &str| {
        std::fs::write(folder.path().join("flatout.kdl"), text).unwrap();
        run(flatout().args(["reload", "-c"]).arg(folder.path().join("flatout.kdl")));
    };
    assert_eq!(visit("/staff", "X-Staff: yes\r\n"), "app for staff");
    assert_eq!(visit("/open", ""), "app for ");
    let before = app.requests().len();
    reload(&text("", "").replace("20s", "21s"));
    assert_eq!(visit("/open", ""), "app for ");
    assert_eq!(app.requests().len(), before, "a timeout loses nothing");
    assert_eq!(visit("/staff", ""), "app for ");
    // Nor the other way round.
    reload(&text(&staff, ""));
    assert_eq!(visit("/open", "X-Staff: yes\r\n"), "app for staff");
    // Another server of the pool.
    let before = app.requests().len();
    reload(&text(&staff, "\"http://127.0.0.1:1\""));
    assert_eq!(visit("/open", ""), "app for ");
    assert_eq!(app.requests().len(), before, "another origin loses nothing");
}
