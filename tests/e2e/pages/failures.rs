//! Pages that fail: what the visitor sees, and what is logged.

use super::{page, site, text};
use crate::e2e::harness::Response;

const BROKEN: &[(&str, &str)] = &[
    ("site/index.lhtml", "fine <?= 1 ?>"),
    ("site/unclosed.lhtml", "<p>one</p>\n<p><?= 1 + ?></p>\n"),
    ("site/include.lhtml", "<p><?include \"nothing.lhtml\" ?></p>"),
    ("site/error.lhtml", "<p>one</p>\n<?lua\nlocal x = nil\nlocal y = x.field\n?>\n"),
    ("site/part.lhtml", "\n\n<?lua error(\"from <within>\") ?>\n"),
    ("site/whole.lhtml", "<p>\n<?include \"part.lhtml\" ?></p>\n"),
    ("site/loop.lhtml", "<?lua\nwhile true do\nend ?>"),
    (
        "site/memory.lhtml",
        "<?lua\nlocal all = {}\nwhile true do\nall[#all + 1] = string.rep(\"x\", 4096) .. #all\nend ?>",
    ),
    ("site/late.lhtml", "<p>first</p><?lua flush() error(\"too late\") ?><p>never</p>"),
    ("public/sorry.html", "SORRY"),
];

fn outcome_of(log: &str, path: &str) -> Option<String> {
    let line = log.lines().find(|line| line.contains(&format!("\"target\":\"{path}\"")))?;
    let (_, rest) = line.split_once("\"outcome\":\"")?;
    Some(rest.split('"').next()?.to_owned())
}

#[test]
fn every_failure_has_a_name_a_location_and_a_status() {
    let settings = "cpu-limit \"300ms\"; memory-limit \"4MiB\"";
    let (folder, server) = site(BROKEN, settings, "log \"access.log\" format=\"json\"");
    let cases = [
        ("/unclosed", 500, "page_malformed", "unclosed.lhtml:2"),
        ("/include", 500, "page_malformed", "include.lhtml:1"),
        ("/error", 500, "page_script_error", "error.lhtml:4"),
        ("/whole", 500, "page_script_error", "part.lhtml:3"),
        ("/loop", 503, "page_cpu_limit", "loop.lhtml:"),
        ("/memory", 503, "page_memory_limit", "memory.lhtml:"),
    ];
    for (path, status, _, _) in cases {
        let answer = server.get(path);
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.field("cache-control"), Some("no-store"), "{path}");
        assert_eq!(answer.field("retry-after").is_some(), status == 503, "{path}");
        let shown = text(&answer);
        assert!(!shown.contains("lhtml") && !shown.contains("within"), "{path} tells too much: {shown}");
        // The worker still works.
        assert_eq!(page(&server, "/"), "fine 1");
    }
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
    let log = std::fs::read_to_string(folder.path().join("access.log")).unwrap();
    for (path, _, name, place) in cases {
        let line = said.lines().find(|line| line.contains(place) && line.contains(name));
        assert!(line.is_some_and(|line| line.starts_with("error: ")), "{path}: {place} {name} in\n{said}");
        assert_eq!(outcome_of(&log, path).as_deref(), Some(name), "{log}");
    }
    assert_eq!(outcome_of(&log, "/").as_deref(), Some("page_answered"));
}

/// An error that a page catches names the file and line in the source, not the line in the compiled code.
#[test]
fn a_caught_error_after_an_include_names_its_own_file() {
    let caught = "local function caught(f) local ok, why = pcall(f) return why end\n";
    let whole = format!(
        "<p>one</p>\n<?include \"part.lhtml\" ?>\n<?lua\n{caught}?><?= caught(inner) ?>|\n\
         <?= caught(function() error(\"mine\") end) ?>|\n\
         <?= select(2, xpcall(inner, function(why) return why end)) ?>|\n\
         <?= select(2, coroutine.resume(coroutine.create(inner))) ?>|\n<?= caught(coroutine.wrap(inner)) ?>"
    );
    let part = "\n\n<?lua function inner()\n  local none = nil\n  return none.field\nend ?>\n";
    let (_folder, server) = site(&[("site/whole.lhtml", &whole), ("site/part.lhtml", part)], "", "");
    let said = page(&server, "/whole");
    let said: Vec<&str> = said.split('|').map(|text| text.trim().rsplit('/').next().unwrap()).collect();
    let inner = "part.lhtml:5: attempt to index nil with &#39;field&#39;";
    assert!(said[0].ends_with(inner), "{said:?}");
    assert_eq!(said[1..], ["whole.lhtml:6: mine", inner, inner, inner], "{said:?}");
}

#[test]
fn a_failed_page_shows_the_error_page_of_the_site() {
    let (folder, server) = site(BROKEN, "cpu-limit \"300ms\"", "");
    drop(server);
    let config = "workers 1\nadmin off=#true\nsite {\n listen \"127.0.0.1:0\"\n error 500 503 file=\"public/sorry.html\"\n \
                  pages \"site\" { cpu-limit \"300ms\" }\n}\n";
    let server = crate::e2e::harness::Server::run(&folder, config);
    for (path, status) in [("/error", 500), ("/loop", 503)] {
        let answer = server.get(path);
        assert_eq!((answer.status, text(&answer).as_str()), (status, "SORRY"), "{path}");
    }
}

#[test]
fn dev_mode_shows_the_location_of_an_error_in_the_browser() {
    let (_folder, server) = site(BROKEN, "dev; cpu-limit \"300ms\"", "");
    let shown = |path: &str, status: u16| {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.field("cache-control")), (status, Some("no-store")), "{path}");
        text(&answer)
    };
    let error = shown("/error", 500);
    assert!(error.contains("error.lhtml:4") && error.contains("<mark>    4  local y = x.field</mark>"), "{error}");
    assert!(error.contains("[page_script_error]") && error.contains("EventSource"), "{error}");
    let whole = shown("/whole", 500);
    assert!(whole.contains("part.lhtml:3") && whole.contains("from &lt;within&gt;"), "{whole}");
    assert!(!whole.contains("<within>"), "{whole}");
    let unclosed = shown("/unclosed", 500);
    assert!(unclosed.contains("unclosed.lhtml:2") && unclosed.contains("&lt;p&gt;&lt;?= 1 + ?&gt;"), "{unclosed}");
    assert!(shown("/loop", 503).contains("[page_cpu_limit]"));
}

#[test]
fn a_page_that_fails_late_truncates_its_response() {
    let (folder, server) = site(BROKEN, "", "log \"access.log\" format=\"json\"");
    let bytes = server.exchange(b"GET /late HTTP/1.1\r\nHost: test\r\n\r\n");
    let answer = Response::parse(&bytes);
    assert_eq!((answer.status, answer.field("transfer-encoding")), (200, Some("chunked")));
    let body = text(&answer);
    assert!(body.contains("first") && !body.contains("never") && !body.ends_with("0\r\n\r\n"), "{body}");
    let (_, said) = server.stop();
    assert!(said.contains("late.lhtml:1") && said.contains("[page_script_error]"), "{said}");
    let log = std::fs::read_to_string(folder.path().join("access.log")).unwrap();
    assert!(log.contains("\"ending\":\"page_failed\""), "{log}");
}
