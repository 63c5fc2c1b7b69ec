//! Forms that are made to cost the server much: each is refused at a limit, and leaves nothing.

use super::site;
use crate::e2e::http2::count_of;
use crate::e2e::memory::bound;
use crate::e2e::tool::{run, tool};
use std::fs;

const MIB: u64 = 1 << 20;

const PAGE: &str = "<?lua local count = 0 for _ in pairs(request.form()) do count = count + 1 end ?><?= count ?>,<?= #request.files() ?>";

fn part(name: &str, fields: &str, content: &str) -> String {
    format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{fields}\r\n\r\n{content}\r\n")
}

/// Kinds, the media type, the content, and the expected status and reason.
fn bombs() -> Vec<(&'static str, &'static str, String, &'static str, &'static str)> {
    const FORM: &str = "multipart/form-data; boundary=b";
    const URLENCODED: &str = "application/x-www-form-urlencoded";
    let end = "--b--\r\n";
    let file = "; filename=\"f\"";
    vec![
        ("many parts", FORM, part("a", "", "").repeat(200_000) + end, "413", "page_form_too_many_fields"),
        ("many files", FORM, part("a", file, "").repeat(65) + end, "413", "page_form_too_many_fields"),
        ("many fields", URLENCODED, "a=&".repeat(300_000), "413", "page_form_too_many_fields"),
        ("long name", FORM, part(&"n".repeat(3000), "", "") + end, "400", "page_form_malformed"),
        ("long head", FORM, part("a", &"; x=y".repeat(200_000), "") + end, "400", "page_form_malformed"),
        ("endless head", FORM, format!("--b\r\n{}", "A: b\r\n".repeat(200_000)), "400", "page_form_malformed"),
        ("preamble", FORM, "\r\n".repeat(500_000) + &part("a", "", "") + end, "400", "page_form_malformed"),
        ("long field", FORM, part("a", "", &"x".repeat(2 << 20)) + end, "413", "page_form_too_large"),
        ("long file", FORM, part("a", file, &"x".repeat(12 << 20)) + end, "413", "page_upload_too_large"),
        (
            "beginnings of delimiters",
            FORM,
            part("a", "", &"\r\n--".repeat(500_000)) + end,
            "413",
            "page_form_too_large",
        ),
    ]
}

#[test]
fn forms_are_refused_at_their_limits() {
    let (folder, server) = site(&[("site/form.lhtml", PAGE)], "", "");
    let post = |media_type: &str, content: &str| {
        fs::write(folder.path().join("content"), content).unwrap();
        let file = format!("@{}", folder.path().join("content").display());
        let mut curl = tool("curl");
        curl.args(["-sS", "-H", &format!("Content-Type: {media_type}"), "-H", "Expect:", "--data-binary", &file]);
        run(curl.args(["-w", " %{http_code}", &server.url("/form")]))
    };
    // Content of a part is only bytes, even if it looks like parts.
    let nested =
        "--b\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n";
    let nested = format!("{nested}{}\r\n--b--\r\n", "--c\r\n\r\n".repeat(10_000));
    assert_eq!(post("multipart/form-data; boundary=b", &nested), "1,0 200");
    let before = server.memory_kb("RssAnon") * 1024;
    let (mut peak, mut reasons) = (before, Vec::new());
    for (kind, media_type, content, status, reason) in bombs() {
        let response = post(media_type, &content);
        assert!(response.ends_with(&format!(" {status}")), "{kind}: {response}");
        peak = peak.max(server.memory_kb("RssAnon") * 1024);
        reasons.push((kind, reason));
    }
    let grown = peak - before;
    println!("memory grew by {grown} bytes");
    assert!(grown <= bound(24 * MIB), "{grown} bytes");
    assert_eq!(post("multipart/form-data; boundary=b", &(part("a", "", "b") + "--b--\r\n")), "1,0 200");
    let (_, counters) = server.stop();
    for (kind, reason) in &reasons {
        let expected = reasons.iter().filter(|(_, other)| other == reason).count() as u64;
        assert_eq!(count_of(&counters, &format!("outcome_{reason}")), expected, "{kind}: {counters}");
    }
}
