use super::VariableInput;
use crate::params::decode_pair;
use flatout_http::head::FieldStorage;
use flatout_http::limits::Limits;
use flatout_http::request::parse_request_head;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn variables(text: &str, change: impl FnOnce(&mut VariableInput<'_>)) -> BTreeMap<String, String> {
    let mut storage = FieldStorage::new();
    let head = parse_request_head(text.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap().unwrap();
    let mut facts = VariableInput {
        head: &head,
        client: "192.0.2.1:4711".parse().ok(),
        secure: false,
        server: "198.51.100.1:8080".parse().ok(),
        port: None,
        site: Some("site.example"),
        user: None,
        removed: b"",
        path: b"/x.php/a b",
        query: Some(b"q=%41"),
        root: b"/srv/www",
        script: b"x.php",
        path_info: b"/a b",
        content_length: None,
        env: &[],
        underscores: false,
    };
    change(&mut facts);
    let mut output = Vec::new();
    facts.write(&mut output);
    let (mut rest, mut found) = (&output[..], BTreeMap::new());
    while !rest.is_empty() {
        let (name, value, used) = decode_pair(rest).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(found.insert(text(name), text(value)), None, "{} stands twice", text(name));
        rest = &rest[used..];
    }
    found
}

#[test]
fn a_trusted_proxy_sets_client_and_scheme() {
    let text = "GET /x.php HTTP/1.1\r\nHost: a.example:81\r\n\r\n";
    let found = variables(text, |facts| {
        facts.client = "192.0.2.9:0".parse().ok();
        facts.secure = true;
        facts.port = Some(8443);
    });
    for (name, value) in [("REMOTE_ADDR", "192.0.2.9"), ("HTTPS", "on"), ("SERVER_PORT", "8443")] {
        assert_eq!(found[name], value, "{name}");
    }
    assert_eq!(found.get("REMOTE_PORT"), None);
}

#[test]
fn variables_follow_rfc_3875() {
    let text = "POST /x.php/a%20b?q=%41 HTTP/1.1\r\nHost: a.example:81\r\nContent-Type: text/plain\r\n\
                Content-Length: 3\r\nAuthorization: Basic eA==\r\nUser-Agent: c\r\n\r\n";
    let found = variables(text, |facts| facts.content_length = Some(3));
    for (name, value) in [
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", "flatout"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_NAME", "a.example"),
        ("SERVER_PORT", "81"),
        ("SERVER_ADDR", "198.51.100.1"),
        ("REMOTE_ADDR", "192.0.2.1"),
        ("REMOTE_HOST", "192.0.2.1"),
        ("REMOTE_PORT", "4711"),
        ("REQUEST_METHOD", "POST"),
        ("REQUEST_SCHEME", "http"),
        ("REQUEST_URI", "/x.php/a%20b?q=%41"),
        ("QUERY_STRING", "q=%41"),
        ("DOCUMENT_ROOT", "/srv/www"),
        ("DOCUMENT_URI", "/x.php/a b"),
        ("SCRIPT_NAME", "/x.php"),
        ("SCRIPT_FILENAME", "/srv/www/x.php"),
        ("PATH_INFO", "/a b"),
        ("PATH_TRANSLATED", "/srv/www/a b"),
        ("CONTENT_TYPE", "text/plain"),
        ("CONTENT_LENGTH", "3"),
        ("REDIRECT_STATUS", "200"),
        ("HTTP_HOST", "a.example:81"),
        ("HTTP_AUTHORIZATION", "Basic eA=="),
        ("HTTP_USER_AGENT", "c"),
    ] {
        assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
    }
    for name in ["HTTPS", "AUTH_TYPE", "REMOTE_USER", "HTTP_CONTENT_LENGTH", "HTTP_CONTENT_TYPE"] {
        assert_eq!(found.get(name), None);
    }
}

#[test]
fn no_field_sets_the_variable_of_another() {
    let text = "GET / HTTP/1.1\r\nHost: a\r\nProxy: http://evil/\r\nPROXY: x\r\nX_Real_IP: 1\r\nX-Real-IP: 2\r\n\
                X-Real_IP: 3\r\nX.Real.IP: 4\r\nX!: 5\r\nConnection: close\r\nTE: trailers\r\n\
                Proxy-Authorization: Basic eA==\r\nExpect: 100-continue\r\nUpgrade: x\r\n\
                Proxy-Connection: keep-alive\r\nKeep-Alive: 5\r\n\r\n";
    let found = variables(text, |_| {});
    let fields: Vec<_> = found.iter().filter(|(name, _)| name.starts_with("HTTP")).collect();
    let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = [of("HTTP_HOST", "a"), of("HTTP_X_REAL_IP", "2")];
    assert_eq!(fields.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect::<Vec<_>>(), expected);
}

#[test]
fn allowed_underscores_replace_no_other_field() {
    let text = "GET / HTTP/1.1\r\nHost: a\r\nX_Real_IP: 1\r\nX-Real-IP: 2\r\nX-Real_IP: 3\r\napi_key: 4\r\n\
                API_KEY: 5\r\nB-C_D: 6\r\nB_C-D: 7\r\nb-c_d: 8\r\nB_C.D: 9\r\nContent_Length: 10\r\n\
                proxy_authorization: 11\r\nTransfer_Encoding: 12\r\n\r\n";
    let found = variables(text, |facts| facts.underscores = true);
    let fields = found.iter().filter(|(name, _)| name.starts_with("HTTP"));
    let fields: Vec<_> = fields.map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expected = [("HTTP_API_KEY", "4, 5"), ("HTTP_B_C_D", "6, 8"), ("HTTP_HOST", "a"), ("HTTP_X_REAL_IP", "2")];
    assert_eq!(fields, expected);
}

#[test]
fn the_script_is_named_below_a_removed_prefix() {
    let found = variables("GET /shop/x.php/a%20b?q=%41 HTTP/1.1\r\nHost: a\r\n\r\n", |facts| facts.removed = b"/shop");
    for (name, value) in [
        ("REQUEST_URI", "/shop/x.php/a%20b?q=%41"),
        ("DOCUMENT_URI", "/shop/x.php/a b"),
        ("SCRIPT_NAME", "/shop/x.php"),
        ("SCRIPT_FILENAME", "/srv/www/x.php"),
        ("PATH_INFO", "/a b"),
        ("PATH_TRANSLATED", "/srv/www/a b"),
        ("DOCUMENT_ROOT", "/srv/www"),
    ] {
        assert_eq!(found[name], value, "{name}");
    }
}

#[test]
fn fields_with_the_same_name_are_joined() {
    let text = "GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nCookie: a=b\r\na: 2\r\nCookie: c=d\r\nA: \r\n\r\n";
    let found = variables(text, |_| {});
    assert_eq!((found["HTTP_A"].as_str(), found["HTTP_COOKIE"].as_str()), ("1, 2, ", "a=b; c=d"));
}

#[test]
fn host_variables_cover_every_form_of_host() {
    for (text, name, port, host) in [
        ("GET / HTTP/1.1\r\nHost: [::1]:81\r\n\r\n", "[::1]", "81", Some("[::1]:81")),
        ("GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n", "[::1]", "443", Some("[::1]")),
        ("GET / HTTP/1.0\r\n\r\n", "site.example", "8080", None),
        ("GET http://b.example/ HTTP/1.0\r\n\r\n", "b.example", "443", Some("b.example")),
    ] {
        let found = variables(text, |facts| facts.secure = true);
        assert_eq!((found["SERVER_NAME"].as_str(), found["SERVER_PORT"].as_str()), (name, port), "{text}");
        assert_eq!(found.get("HTTP_HOST").map(String::as_str), host);
        assert_eq!((found["HTTPS"].as_str(), found["REQUEST_SCHEME"].as_str()), ("on", "https"));
    }
}

#[test]
fn configured_variables_take_precedence() {
    let env = vec![("APP_ENV".to_owned(), "test".to_owned()), ("HTTP_A".to_owned(), "ours".to_owned())].leak();
    let found = variables("GET / HTTP/1.1\r\nHost: a\r\nA: theirs\r\n\r\n", |facts| {
        facts.env = env;
        facts.user = Some("alice");
        facts.path_info = b"";
        facts.client = "[::ffff:192.0.2.7]:1".parse().ok();
    });
    assert_eq!((found["APP_ENV"].as_str(), found["HTTP_A"].as_str()), ("test", "ours"));
    assert_eq!((found["REMOTE_USER"].as_str(), found["AUTH_TYPE"].as_str()), ("alice", "Basic"));
    assert_eq!((found.get("PATH_TRANSLATED"), found["REMOTE_ADDR"].as_str()), (None, "192.0.2.7"));
    assert_eq!((found["CONTENT_LENGTH"].as_str(), found["CONTENT_TYPE"].as_str()), ("", ""));
}

proptest! {
    #[test]
    fn each_variable_is_sent_once(names in prop::collection::vec("[AaBb_.!-]{1,4}", 0..20)) {
        let lines: String = names.iter().enumerate().map(|(index, name)| format!("X{name}: {index}\r\n")).collect();
        for underscores in [false, true] {
            variables(&format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"), |facts| facts.underscores = underscores);
        }
    }
}
