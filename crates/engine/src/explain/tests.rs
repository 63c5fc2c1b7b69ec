use super::Question;
use crate::engine::tests::Temporary;
use crate::spec::{Sources, Spec};
use flatout_config::load_text;
use std::sync::Arc;

fn question(method: &str, url: &str) -> Question {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let port = host.split_once(':').map_or(if scheme == "https" { 443 } else { 80 }, |(_, port)| port.parse().unwrap());
    Question {
        method: method.into(),
        secure: scheme == "https",
        host: host.into(),
        port,
        target: format!("/{path}"),
        fields: Vec::new(),
        client: None,
    }
}

fn spec(folder: &Temporary) -> Arc<Spec> {
    let root = folder.path().display();
    let routes: String = (0..20).map(|n| format!("    route \"/r{n}/*\" {{\n        respond 410\n    }}\n")).collect();
    let text = format!(
        r#"site "example.com" {{
    listen "127.0.0.1:8080"
    header "X-All" "1"
    error 404 file="{root}/404.html"
{routes}    route "/docs/*" {{
        header "Cache-Control" "no-cache"
        basic-auth realm="Staff" {{
            user "ann" "$2b$04$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy"
        }}
        allow "127.0.0.0/8"
        files "{root}" {{
            try "/fallback.html"
        }}
    }}
}}
"#
    );
    let config = load_text(&text).unwrap_or_else(|errors| panic!("{errors:?}"));
    Arc::new(Spec::compile(&config, &Sources::default()).unwrap())
}

#[test]
fn a_request_is_explained_step_by_step() {
    let folder = Temporary::new("explain", &[("docs/a.html", "<p>a"), ("404.html", "none")]);
    let spec = spec(&folder);
    let told = spec.explain(&question("GET", "http://example.com:8080/docs/a.html?b"));
    assert_eq!((told.status, told.body_bytes), (200, 4), "{}", told.to_text(false));
    let text = told.to_text(false);
    for part in [
        "GET http://example.com:8080/docs/a.html?b\n",
        "127.0.0.1:8080 (http)",
        "it has the requested host name",
        "flatout.kdl:1:1",
        "20 routes",
        "do not match",
        "route \"/docs/*\"",
        "allowed by rule 1",
        "a file of 4 bytes, text/html; charset=utf-8",
        "200 OK, 4 bytes",
        "[loaded]",
        "fallback.html",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("$2b$") && !told.to_effective().contains("$2b$"), "no hash is shown");
    assert!(!text.contains('\x1b') && told.to_text(true).contains('\x1b'));
    let json = told.to_json();
    assert_eq!(json["schema"], "flatout-explain/1");
    assert_eq!(json["steps"].as_array().map(Vec::len), Some(told.steps.len()));
    assert!(told.steps.len() > 24);
    assert!(serde_json::to_string(&json).is_ok());
}

#[test]
fn what_is_in_force_is_shown_with_its_places() {
    let folder = Temporary::new("effective", &[("docs/a.html", "<p>a"), ("404.html", "none")]);
    let spec = spec(&folder);
    let text = spec.explain(&question("GET", "http://example.com:8080/docs/a.html")).to_effective();
    assert!(
        text.starts_with("site \"example.com\" {  // flatout.kdl:1:1\n    // by 127.0.0.1:8080 (http)\n"),
        "{text}"
    );
    for part in
        ["header {  // flatout.kdl:3:5", "set \"X-All\" \"1\"", "\"Cache-Control\"", "basic-auth", "(hash)", "files \""]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("route") && !text.contains("respond"), "{text}");
}

#[test]
fn errors_are_told_as_well() {
    let folder = Temporary::new("explain-errors", &[("404.html", "none")]);
    let spec = spec(&folder);
    let missing = spec.explain(&question("GET", "http://example.com:8080/nowhere"));
    let text = missing.to_text(false);
    assert!(text.contains("404.html") && text.contains("[unrouted]") && text.contains("X-All: 1"), "{text}");
    assert!(missing.fields.iter().any(|field| field.place.as_ref().is_some_and(|place| place.line == 3)));
    let other = spec.explain(&question("GET", "https://other.org/"));
    assert_eq!((other.status, other.outcome.0), (421, "site_unknown"));
    assert!(other.to_text(false).contains("no listener has the URL's scheme"));
    assert!(other.to_effective().contains("no site responds"));
    let bad = spec.explain(&question("GET", "http://example.com:8080/a\u{7f}b"));
    assert_eq!((bad.status, bad.outcome.0), (400, "target_character"));
    let gone = spec.explain(&question("GET", "http://example.com:8080/docs/none\u{7}"));
    assert_eq!(gone.status, 400);
    assert!(!gone.to_text(true).contains('\u{7}'));
}

/// As with a load balancer that ends TLS.
#[test]
fn an_https_url_without_a_tls_listener_is_explained_as_forwarded_by_a_trusted_proxy() {
    let explain = |trusted: &str, from: Option<&str>, fields: &[(&str, &str)]| {
        let site =
            "listen \"127.0.0.1:8080\" redirect-https=443; allow \"192.0.2.7\"; redirect to=\"/{scheme}/{client}\"";
        let config = load_text(&format!("{trusted}\nsite \"app.test\" {{ {site}; }}")).unwrap();
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let client = from.map(|from| from.parse().unwrap());
        let question = Question { fields, client, ..question("GET", "https://app.test/x") };
        let told = Arc::new(Spec::compile(&config, &Sources::default()).unwrap()).explain(&question);
        assert!(told.request == "GET https://app.test/x", "{}", told.request);
        let location = told.fields.iter().find(|field| field.line.0 == "Location").map(|field| field.line.1.clone());
        let is_assumed = told.to_text(false).contains("a trusted proxy is assumed to terminate TLS");
        (told.status, location.unwrap_or_default(), is_assumed)
    };
    let trusted = "trusted-proxies \"10.0.0.0/8\"";
    let served = (302, "/https/192.0.2.7".to_owned(), true);
    assert_eq!(explain(trusted, Some("192.0.2.7"), &[]), served);
    let named = [("x-forwarded-for", "192.0.2.7")];
    assert_eq!(explain(trusted, None, &named), served);
    assert_eq!(explain(trusted, Some("10.1.2.3"), &named), served);
    assert_eq!(explain(trusted, None, &[]).0, 403, "the client is at 127.0.0.1");
    let (status, location, _) = explain(trusted, Some("192.0.2.7"), &[("X-Forwarded-Proto", "http")]);
    assert_eq!((status, location.as_str()), (308, "https://app.test/x"));
    // No proxy may terminate TLS here.
    let (status, location, is_assumed) = explain("", Some("192.0.2.7"), &[]);
    assert_eq!((status, location.as_str(), is_assumed), (308, "https://app.test/x", false));
}
