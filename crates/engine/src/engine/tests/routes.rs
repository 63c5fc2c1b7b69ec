//! Tests of hosts, routes, rewrites, redirects, error pages and response fields.

use super::*;

fn hello(name: &str) -> Block {
    vec![respond(200, name)]
}

#[test]
fn hosts_choose_the_site() {
    let sites = vec![
        site(&["example.com", "www.example.com"], hello("one")),
        site(&["*.example.com"], hello("many")),
        Site { listeners: vec![1], ..site(&["*"], hello("elsewhere")) },
    ];
    let config = Config { listeners: vec![listener(None), listener(None)], ..config(sites) };
    let tester = Tester::new(compile(&config));
    let ask = |host: &str| tester.raw(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert_eq!(ask("Example.COM:8080").said(), (200, "one"));
    assert_eq!(ask("a.b.example.com.").said(), (200, "many"));
    let unknown = ask("other.org");
    assert_eq!((unknown.status, unknown.outcome, unknown.response.logged.log), (421, "site_unknown", 3));
    assert_eq!(tester.http2("other.org", "/").status, 421);
    let absolute = "GET http://www.example.com/ HTTP/1.0\r\n\r\n";
    assert_eq!(tester.raw(absolute).said(), (200, "one"));
    let no_host = "GET / HTTP/1.0\r\n\r\n";
    assert_eq!(tester.raw(no_host).status, 421, "two sites, and neither is meant");
    assert_eq!(Answer::of(wait(tester.reply(no_host, 1))).said(), (200, "elsewhere"));
    assert_eq!(Answer::of(wait(tester.reply(no_host, 9))).status, 421);
}

#[test]
fn written_order_is_execution_order() {
    let tester = engine(vec![
        set("X", "1"),
        route(vec![path(&["/a/*", "/b"])], vec![set("X", "2"), route(vec![path(&["/a/x"])], hello("inner"))]),
        route(vec![path(&["/a/*"]), Matcher::Method(vec!["POST".into(), "PUT".into()])], hello("post")),
        route(vec![path(&["/b"])], vec![respond(200, "b"), respond(200, "never")]),
        set("X", "3"),
        respond(200, "last"),
    ]);
    let x = |path: &str| {
        let answer = tester.get(path, &[]);
        (answer.field("x").unwrap().to_owned(), answer.body.clone())
    };
    let said = |x: &str, body: &str| (x.to_owned(), body.to_owned());
    assert_eq!(x("/a/x"), said("2", "inner"));
    assert_eq!(x("/b"), said("2", "b"), "what a route added stays added");
    assert_eq!(x("/a/y"), said("3", "last"));
    assert_eq!(x("/c"), said("3", "last"));
}

#[test]
fn conditions_on_methods_and_fields() {
    let header = |name: &str, values: &[&str]| Matcher::Header {
        name: name.into(),
        values: values.iter().map(|&value| value.into()).collect(),
    };
    let tester = engine(vec![
        route(vec![Matcher::Method(vec!["GET".into()]), header("x-kind", &["a*z", "b"])], hello("kind")),
        route(vec![header("x-kind", &[])], hello("any")),
        route(vec![Matcher::Method(vec!["POST".into()])], vec![respond(403, "no posts")]),
        respond(200, "rest"),
    ]);
    assert_eq!(tester.get("/", &["X-Kind: abcz"]).body, "kind");
    assert_eq!(tester.get("/", &["X-Kind: c", "x-kind: b"]).body, "kind");
    assert_eq!(tester.get("/", &["X-Kind: abc"]).body, "any");
    assert_eq!(tester.get("/", &[]).body, "rest");
    assert_eq!(tester.ask("HEAD", "/", &["X-Kind: b"]).body, "kind", "HEAD is GET without its content");
    assert_eq!(tester.ask("POST", "/", &[]).said(), (403, "no posts"));
    let by_host = engine(vec![route(vec![header("host", &["www.*"])], hello("www")), respond(200, "bare")]);
    assert_eq!(by_host.http2("www.example.com", "/").body, "www");
    assert_eq!(by_host.get("/", &[]).body, "bare");
}

#[test]
fn no_encoding_leads_around_a_route() {
    let guard = |patterns: &[&str]| route(vec![path(patterns)], vec![respond(403, "guarded")]);
    let tester = engine(vec![guard(&["/admin/*", "/secret.txt"]), respond(200, "open")]);
    for guarded in [
        "/admin/",
        "/admin/x",
        "/adm%69n/",
        "/%61dmin/x",
        "/admin/%78",
        "/secret%2etxt",
        "/secret.tx%74",
        "/x/../admin/",
        "/x/%2e%2e/admin/",
        "/./admin/",
        "/admin/.",
        "/admin/x/..",
        "/secret.txt/../secret.txt",
    ] {
        assert_eq!(tester.get(guarded, &[]).said(), (403, "guarded"), "{guarded}");
        assert_eq!(tester.http2("example.com", guarded).said(), (403, "guarded"), "{guarded}");
    }
    for (path, status, outcome) in [
        ("//admin/x", 301, "slashes_merged"),
        ("/admin//x", 301, "slashes_merged"),
        ("/x//admin", 301, "slashes_merged"),
        ("/admin%2fx", 400, "ambiguous_path"),
        ("/admin%5cx", 400, "ambiguous_path"),
        ("/admin\\x", 400, "ambiguous_path"),
        ("/%2fadmin/x", 400, "ambiguous_path"),
        ("/x%2f..%2fadmin%2fx", 400, "ambiguous_path"),
        ("/admin%2f..%2fx", 200, "responded"),
        ("/x%2fy", 200, "responded"),
        ("/x\\y", 200, "responded"),
        ("/../admin/", 400, "path_above_root"),
        ("/..%2fadmin/", 400, "path_above_root"),
        ("/x/..\\..\\admin/", 400, "path_above_root"),
        ("/admin%00/", 400, "target_nul"),
        // Other names, on a file system for which case and dots matter.
        ("/Admin/", 200, "responded"),
        ("/admin./", 200, "responded"),
        ("/admin%20/", 200, "responded"),
        ("/admin;x/", 200, "responded"),
        ("/admin", 200, "responded"),
        ("/adm%2569n/", 200, "responded"),
    ] {
        let answer = tester.get(path, &[]);
        assert_eq!((answer.status, answer.outcome), (status, outcome), "{path}");
    }
    assert_eq!(tester.get("//admin/x?a=//b", &[]).field("location"), Some("/admin/x?a=//b"));
    assert_eq!(tester.ask("POST", "//admin", &[]).status, 308);
    assert_eq!(tester.get("/.%2fadmin/x", &[]).outcome, "ambiguous_path");
    // Merged first: whether a hidden name is served, the step under the merged path says.
    assert_eq!(tester.get("//.git/", &[]).field("location"), Some("/.git/"));
    assert_eq!(tester.get("//\\a.example", &[]).field("location"), Some("/%5Ca.example"), "no other host");
}

#[test]
fn a_condition_on_the_host_means_the_one_that_chose_the_site() {
    let host = Matcher::Header { name: "Host".into(), values: vec!["inner.example".into()] };
    let tester = engine(vec![route(vec![host], vec![respond(403, "guarded")]), respond(200, "open")]);
    for (request, guarded) in [
        ("GET / HTTP/1.1\r\nHost: inner.example\r\n\r\n", true),
        ("GET / HTTP/1.1\r\nHost: INNER.example.:81\r\n\r\n", true),
        ("GET http://inner.example/ HTTP/1.0\r\n\r\n", true),
        ("GET http://other/ HTTP/1.0\r\n\r\n", false),
        ("GET / HTTP/1.0\r\n\r\n", false),
    ] {
        assert_eq!(tester.raw(request).status == 403, guarded, "{request}");
    }
    assert_eq!(tester.http2("inner.example", "/").status, 403);
    assert_eq!(tester.http2("other", "/").status, 200);
}

#[test]
fn no_visitor_chooses_where_a_redirect_leads() {
    let tester = engine(vec![
        route(vec![path(&["/old*"])], vec![redirect(302, text("/{rest}"))]),
        route(vec![path(&["/back"])], vec![redirect(302, text("/{query}"))]),
        redirect(302, text("/a{query}")),
    ]);
    for (path, location) in [
        ("/old/evil.example/x", "/evil.example/x"),
        ("/oldx", "/x"),
        ("/old", "/"),
        ("/back?/evil.example", "/evil.example"),
        ("/back?////evil.example", "/evil.example"),
        ("/back?a//b", "/a//b"),
        ("/other?//b", "/a//b"),
    ] {
        assert_eq!(tester.get(path, &[]).field("location"), Some(location), "{path}");
    }
}

#[test]
fn answers_before_the_first_step_are_the_site_s_all_the_same() {
    let folder = Temporary::new("early", &[("bad.html", "our page")]);
    let page = |statuses: &[u16]| {
        step(StepKind::ErrorPage(ErrorPage { statuses: statuses.to_vec(), file: folder.path().join("bad.html") }))
    };
    let tester = engine(vec![
        set("X", "1"),
        route(vec![path(&["/a/*"])], vec![set("X", "of /a")]),
        route(Vec::new(), vec![page(&[400, 404, 501])]),
        respond(200, "hello"),
        set("X", "behind"),
    ]);
    for (method, path, status, body) in [
        ("GET", "/a/../../b", 400, Some("our page")),
        ("GET", "/%00", 400, Some("our page")),
        ("BREW", "/a/b", 501, Some("our page")),
        ("CONNECT", "a:1", 501, Some("our page")),
        ("TRACE", "/a/b", 405, None),
        ("GET", "//a/b", 301, None),
        ("OPTIONS", "/../b", 204, None),
    ] {
        let answer = tester.ask(method, path, &[]);
        assert_eq!((answer.status, answer.all("x")), (status, vec!["1"]), "{method} {path}");
        assert!(body.is_none_or(|body| answer.body == body), "{method} {path}: {}", answer.body);
        assert_eq!(answer.response.logged.site.as_deref(), Some("*"), "{method} {path}");
    }
    // No site, no headers, whatever the method is.
    let named = Tester::new(compile(&config(vec![site(&["example.com"], vec![set("X", "1"), respond(200, "")])])));
    for method in ["GET", "BREW", "TRACE"] {
        let answer = named.raw(&format!("{method} / HTTP/1.1\r\nHost: other.org\r\n\r\n"));
        assert!(answer.field("x").is_none() && answer.response.logged.site.is_none(), "{method}: {answer:?}");
    }
    assert_eq!(named.get("/", &[]).response.logged.site.as_deref(), Some("example.com"));
}

#[test]
fn redirects_take_from_the_request_what_is_fit() {
    let tester = engine(vec![
        route(vec![path(&["/old/*"])], vec![redirect(301, text("/new/{rest}?from={path}"))]),
        route(vec![path(&["/away"])], vec![redirect(307, text("{scheme}://{host}:1{uri}"))]),
        route(vec![path(&["/fixed"])], vec![set("X-A", "1"), redirect(302, text("https://a.example/b c"))]),
        route(vec![path(&["*.htm"])], vec![redirect(308, text("/{rest}.html"))]),
        redirect(303, text("//{hostport}/{query}")),
    ]);
    let location = |path: &str| tester.get(path, &[]).field("location").map(str::to_owned);
    assert_eq!(location("/old/a%20b/c?d").as_deref(), Some("/new/a%20b/c?from=/old/a%20b/c"));
    assert_eq!(location("/%6fld/%61").as_deref(), Some("/new/%61?from=/%6fld/%61"));
    assert_eq!(location("/away?b=c").as_deref(), Some("http://example.com:1/away?b=c"));
    assert_eq!(location("/a/b.htm").as_deref(), Some("/a/b.html"));
    assert_eq!(location("/other?q").as_deref(), Some("//example.com/q"));
    for _ in 0..2 {
        let fixed = tester.get("/fixed", &[]);
        assert_eq!((fixed.status, fixed.outcome, fixed.field("x-a")), (302, "redirected", Some("1")));
        assert_eq!(fixed.field("location"), Some("https://a.example/b%20c"));
    }
    assert_eq!(tester.ask("POST", "/old/x", &[]).status, 301);
    let without_host = Tester::new(compile(&config(vec![site(&["*"], vec![redirect(302, text("//{host}/"))])])))
        .raw("GET / HTTP/1.0\r\n\r\n");
    assert_eq!((without_host.status, without_host.outcome), (400, "host_needed"));
}

#[test]
fn https_is_where_a_listener_leads() {
    let secure = Site { listeners: vec![1], ..site(&["example.com", "*.example.com"], hello("secure")) };
    let both = Site { listeners: vec![1, 2], ..site(&["b.org"], hello("both")) };
    let listeners = vec![listener(Some(443)), listener(None), listener(Some(8443))];
    let tester = Tester::new(compile(&Config { listeners, ..config(vec![secure, both]) }));
    let ask = |host: &str, path: &str, listener| {
        Answer::of(wait(tester.reply(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"), listener)))
    };
    let led = ask("Example.com:80", "/a%20b?c=/../d", 0);
    assert_eq!((led.status, led.outcome), (308, "https_redirect"));
    assert_eq!(led.field("location"), Some("https://Example.com/a%20b?c=/../d"));
    assert_eq!(ask("b.org", "/", 2).field("location"), Some("https://b.org:8443/"));
    assert_eq!(ask("evil.org", "/", 0).status, 421);
    assert_eq!(ask("example.com", "/", 2).status, 421);
    let token = "/.well-known/acme-challenge/x";
    assert_eq!(ask("b.org", token, 2).said(), (200, "both"));
    assert_eq!(ask("example.com", token, 0).status, 308, "no site here to ask");
    let only = |request: &str| Answer::of(wait(tester.reply(request, 2)));
    assert_eq!(only("GET / HTTP/1.0\r\n\r\n").field("location"), Some("https://b.org:8443/"));
}

/// The client would be redirected again and again, because the proxy forwards https as plain HTTP.
#[test]
fn a_request_that_a_trusted_proxy_got_over_https_is_not_redirected() {
    let listeners = vec![listener(Some(443))];
    let trusted = vec![Cidr { address: "10.0.0.0".parse().unwrap(), bits: 8 }.into()];
    let both = Config { listeners, trusted, ..config(vec![site(&["example.com"], hello("served"))]) };
    let mut tester = Tester::new(compile(&both));
    for (peer, scheme, status) in [
        ("10.1.2.3:4", "https", 200),
        ("10.1.2.3:4", "http", 308),
        ("192.0.2.7:4", "https", 308),
        ("192.0.2.7:4", "http", 308),
    ] {
        tester.client = peer.parse().unwrap();
        let answer = tester.get("/a", &[&format!("X-Forwarded-Proto: {scheme}")]);
        assert_eq!(answer.status, status, "{peer} {scheme}");
    }
}

#[test]
fn rewrites_change_the_path_for_what_follows() {
    let strip = |prefix: &str| step(StepKind::Rewrite(Rewrite::StripPrefix(prefix.into())));
    let to = |written: &str| step(StepKind::Rewrite(Rewrite::To(text(written))));
    let show = || redirect(302, text("/shown?path={path}&rest={rest}"));
    let outer = vec![route(vec![path(&["/outer/in/*"])], vec![to("/there/{rest}?new")]), show()];
    let tester = engine(vec![
        route(vec![path(&["/strip/*"])], vec![strip("/strip")]),
        route(vec![path(&["/to/*"])], vec![to("/seen/{rest}")]),
        route(vec![path(&["/outer/*"])], outer),
        route(vec![path(&["/seen/*"])], vec![show()]),
        route(vec![path(&["/dots/*"])], vec![to("/x/.{rest}")]),
        route(vec![path(&["/up/*"])], vec![to("/../{rest}")]),
        respond(200, "not rewritten"),
    ]);
    let location = |path: &str| tester.get(path, &[]).field("location").map(str::to_owned);
    assert_eq!(location("/to/a%20b").as_deref(), Some("/shown?path=/to/a%20b&rest=a%20b"));
    assert_eq!(location("/strip/seen/x").as_deref(), Some("/shown?path=/strip/seen/x&rest=x"));
    assert_eq!(location("/outer/in/c?d").as_deref(), Some("/shown?path=/outer/in/c&rest=in/c"), "the outer star again");
    assert_eq!(location("/to/x/../a%2fb//c").as_deref(), Some("/shown?path=/to/x/../a%2fb//c&rest=a%2fb//c"));
    assert_eq!(location("/to/x/../a%2fb").as_deref(), Some("/shown?path=/to/x/../a%2fb&rest=a%2fb"));
    assert_eq!(location("/x/../strip/./seen/%zz").as_deref(), Some("/shown?path=/x/../strip/./seen/%zz&rest=%zz"));
    assert_eq!(tester.get("/dots/.", &[]).outcome, "responded", "dots are resolved before and after a rewrite");
    assert_eq!(tester.get("/up/x", &[]).outcome, "path_above_root", "and lead nowhere above the root");
}

/// The path may be for another server, to which a redirect leads. Each file still has only one address.
#[test]
fn a_redirect_keeps_empty_segments() {
    let folder = Temporary::new("slashes", &[("a.txt", "A")]);
    let tester = engine(vec![
        route(vec![path(&["/old/*"])], vec![redirect(301, text("https://cdn.example/{rest}"))]),
        route(vec![path(&["/www/*"])], vec![redirect(301, text("https://www.example{uri}"))]),
        route(vec![path(&["/evil.example/*"])], vec![redirect(301, text("{path}/"))]),
        route(vec![path(&["/admin/*"])], vec![respond(403, "guarded")]),
        files(folder.path()),
    ]);
    for (path, status, location) in [
        ("/old/https://a/b", 301, Some("https://cdn.example/https://a/b")),
        ("/old//a", 301, Some("https://cdn.example//a")),
        ("/www//a?b=//c", 301, Some("https://www.example/www//a?b=//c")),
        ("//evil.example/a", 301, Some("/evil.example/a/")),
        ("//admin/x", 403, None),
        ("/admin//..//admin/x", 403, None),
        ("//a.txt", 301, Some("/a.txt")),
        ("//none", 404, None),
    ] {
        let answer = tester.get(path, &[]);
        assert_eq!((answer.status, answer.field("location")), (status, location), "{path}");
    }
}

#[test]
fn a_folder_below_a_prefix_has_a_slash() {
    let strip = || step(StepKind::Rewrite(Rewrite::StripPrefix("/app".into())));
    let folder = Temporary::new("prefix", &[("index.html", "home"), ("list/a", "")]);
    let files = |listing: bool| {
        let root = if listing { folder.path().join("list") } else { folder.path().to_owned() };
        let listing = listing.then(Listing::default);
        step(StepKind::Handler(Handler::Files(Box::new(Files {
            root,
            listing,
            index: vec!["index.html".into()],
            ..Files::default()
        }))))
    };
    for listing in [false, true] {
        let tester = engine(vec![
            route(vec![path(&["/app", "/app/*"])], vec![strip(), files(listing)]),
            route(
                vec![path(&["/x", "/x/"])],
                vec![step(StepKind::Rewrite(Rewrite::To(text("/app")))), strip(), files(listing)],
            ),
            // The pages of an application that runs in the browser have no slash.
            route(vec![path(&["/page"])], vec![step(StepKind::Rewrite(Rewrite::To(text("/")))), files(listing)]),
        ]);
        let redirected = tester.get("/app?q", &[]);
        assert_eq!(
            (redirected.status, redirected.field("location")),
            (301, Some("/app/?q")),
            "{} {listing}",
            redirected.outcome
        );
        assert_eq!(tester.get("/app/", &[]).status, 200);
        for path in ["/page", "/x", "/x/"] {
            assert_eq!(tester.get(path, &[]).status, 200, "{path}");
        }
    }
}

#[test]
fn a_rewrite_keeps_the_query_of_the_visitor() {
    let to = |pattern: &str, written: &str| {
        let shown = redirect(302, text("/shown"));
        let rewrite = step(StepKind::Rewrite(Rewrite::To(text(written))));
        // Whatever the query has become is shown by the redirect to a folder's slash.
        route(vec![path(&[pattern])], vec![rewrite, route(vec![path(&["/none"])], vec![shown])])
    };
    let folder = Temporary::new("query", &[("d/index.html", "")]);
    let files = Files { root: folder.path().to_owned(), ..Files::default() };
    let tester = engine(vec![
        to("/keep/*", "/d"),
        to("/add/*", "/d?page={rest}"),
        to("/said/*", "/d?q={query}&x"),
        to("/drop/*", "/d?"),
        step(StepKind::Handler(Handler::Files(Box::new(files)))),
    ]);
    for (path, expected) in [
        ("/keep/a?b=[c]", "?b=[c]"),
        ("/add/a?b=c", "?page=a&b=c"),
        ("/add/a", "?page=a"),
        ("/said/a?b=c", "?q=b=c&x"),
        ("/drop/a?b=c", ""),
    ] {
        let location = tester.get(path, &[]).field("location").map(str::to_owned);
        let (asked, _) = path.split_once('?').unwrap_or((path, ""));
        assert_eq!(location, Some(format!("{asked}/{expected}")), "{path}");
    }
}

#[test]
fn fields_of_an_answer_take_from_the_request() {
    let add = |name: &str, value: &str| step(StepKind::Header(vec![FieldOp::add(name.into(), value.into())]));
    let tester = engine(vec![
        set("X-To", "{scheme}://{host_port}{uri}"),
        add("X-To", "{client}"),
        set("X-Json", "{\"a\":{\"b\":1}}"),
        set("X-Gone", "{path}"),
        route(vec![path(&["/a/*"])], vec![set("X-Rest", "<{rest}> {query}"), set("x-gone", "fixed")]),
        respond(200, "hello"),
    ]);
    let answer = tester.get("/a/x%2Fy[]?q=\"", &[]);
    assert_eq!(answer.all("x-to"), ["http://example.com/a/x%2Fy[]?q=\"", &tester.client.ip().to_string()]);
    assert_eq!(answer.all("x-rest"), ["<x%2Fy[]> q=\""]);
    assert_eq!((answer.all("x-json"), answer.all("x-gone")), (vec!["{\"a\":{\"b\":1}}"], vec!["fixed"]));
    let other = tester.get("/b", &[]);
    assert_eq!((other.all("x-to")[0], other.all("x-gone")), ("http://example.com/b", vec!["/b"]));
    assert!(other.all("x-rest").is_empty());
}

#[test]
fn a_prefix_is_whole_segments() {
    let tester = engine(vec![
        step(StepKind::Rewrite(Rewrite::StripPrefix("/api/".into()))),
        route(vec![path(&["/"])], vec![respond(200, "root")]),
        route(vec![path(&["/x"])], vec![respond(200, "x")]),
        respond(200, "other"),
    ]);
    for (path, body) in [("/api", "root"), ("/api/", "root"), ("/%61pi/x", "x"), ("/apix", "other"), ("/x", "x")] {
        assert_eq!(tester.get(path, &[]).body, body, "{path}");
    }
}

#[test]
fn header_steps_concern_every_kind_of_answer() {
    let folder = Temporary::new("headers", &[("pages/404.html", "<p>custom")]);
    let file = folder.path().join("pages/404.html");
    let tester = engine(vec![
        set("X-All", "1"),
        route(vec![path(&["/respond"])], vec![respond(200, "r")]),
        route(vec![path(&["/redirect"])], vec![redirect(302, text("/"))]),
        route(vec![path(&["/dynamic"])], vec![redirect(302, text("{path}"))]),
        route(vec![path(&["/error"])], vec![respond(410, "")]),
        route(vec![path(&["/none"])], vec![respond(204, "")]),
        route(vec![path(&["/metrics"])], vec![handler(Handler::Metrics)]),
        step(StepKind::ErrorPage(ErrorPage { statuses: vec![404], file })),
    ]);
    for path in ["/respond", "/redirect", "/dynamic", "/error", "/none", "/metrics", "/missing"] {
        for method in ["GET", "OPTIONS", "POST"] {
            let answer = tester.ask(method, path, &[]);
            assert_eq!(answer.all("x-all"), ["1"], "{method} {path}");
            let length = answer.field("content-length").map(|length| length.parse().unwrap());
            assert_eq!(length, (answer.status != 204).then_some(answer.body.len()), "{method} {path}");
        }
    }
    assert_eq!(tester.get("/missing", &[]).said(), (404, "<p>custom"));
}

#[test]
fn error_pages_are_files() {
    let folder = Temporary::new("pages", &[("pages/404 page.html", "<p>gone"), ("pages/any.txt", "other")]);
    let page = |statuses: &[u16], name: &str| {
        let file = folder.path().join("pages").join(name);
        step(StepKind::ErrorPage(ErrorPage { statuses: statuses.to_vec(), file }))
    };
    let mut tester = engine(vec![
        page(&[404, 405, 410, 403], "any.txt"),
        page(&[404], "404 page.html"),
        route(vec![path(&["/gone"])], vec![respond(410, "")]),
        route(vec![path(&["/text"])], vec![respond(410, "as it is")]),
    ]);
    let answer = tester.get("/none", &["Range: bytes=0-1", "If-None-Match: *"]);
    assert_eq!((answer.said(), answer.outcome), ((404, "<p>gone"), "unrouted"));
    assert_eq!(answer.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!((answer.field("etag"), answer.field("content-length")), (None, Some("7")));
    assert_eq!(tester.get("/gone", &[]).said(), (410, "other"));
    assert_eq!(tester.get("/text", &[]).said(), (410, "as it is"));
    fs::remove_file(folder.path().join("pages/404 page.html")).unwrap();
    tester.now.monotonic_ms += 2_000;
    assert_eq!(tester.get("/none", &[]).said(), (404, "other"), "a page that is gone leaves it to the one before");
    fs::remove_file(folder.path().join("pages/any.txt")).unwrap();
    tester.now.monotonic_ms += 2_000;
    let plain = tester.get("/none", &[]);
    assert!(plain.status == 404 && plain.body.contains("nothing at this address"), "{plain:?}");
}

#[test]
fn hints_go_with_pages() {
    let hints = |link: &str| step(StepKind::EarlyHints(vec![link.into()]));
    let tester = engine(vec![
        hints("</a.css>; rel=preload"),
        route(vec![path(&["/two"])], vec![hints("</b.js>; rel=preload"), respond(200, "two")]),
        route(vec![path(&["/one"])], vec![respond(200, "one")]),
    ]);
    let links = |path: &str| tester.get(path, &[]).response.early_links.map(|links| links.len());
    assert_eq!((links("/one"), links("/two"), links("/none")), (Some(1), Some(2), None));
}
