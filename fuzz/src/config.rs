//! The configuration, as KDL and as JSON.

use flatout_config::encode::without_places;
use flatout_config::{adapt, load_text, to_kdl};

/// Every kind of block, values of every kind, and the JSON form.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"site \"a\" {\n    listen \"127.0.0.1:80\"\n    files \"/srv\" { index \"a\" \"b\"; hidden #false }\n}\n",
    b"workers 2\ntimeouts { idle \"60s\" }\nsite \"*.a\" {\n    listen \":8080\"\n    respond 404 r#\"{{x}}\"#\n}\n",
    b"site \"a\" {\n    listen \"[::1]:80\"\n    proxy \"http://127.0.0.1:1\" { request-header { set \"A\" \"b\" } }\n}\n",
    b"/* c */ site \"a\" { listen \"127.0.0.1:80\" /-tls; route \"/a/*\" method=\"GET\" { metrics } }\n",
    b"[{\"name\":\"workers\",\"args\":[2]},{\"name\":\"site\",\"args\":[\"a\"],\"children\":[{\"name\":\"metrics\"}]}]",
];

/// A valid configuration can be printed, and the printed text is read as the same configuration. JSON of any form is read
/// without a panic.
pub(crate) fn check_config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = adapt::json_to_kdl(text).map(|kdl| load_text(&kdl));
    let Ok(config) = load_text(text) else { return };
    let printed = load_text(&to_kdl(&config));
    assert!(printed.is_ok_and(|printed| without_places(&printed) == without_places(&config)), "printed differently");
}
