//! Tests of the manual's examples: each one is run, and its response is compared with the comments before it.
//!
//! The comments are Markdown comments: `<!-- query: a=b -->` is the query of the request, `<!-- post: a=b -->` a form
//! to send, with a token for `post-with-token`, `<!-- upload: field -->` a form with a file; the response must contain
//! the texts of `<!-- shows: text -->` and `<!-- shows-header: line -->`; `<!-- file: name -->` marks a file that later
//! examples include.

use super::{Answered, Ask, Site};
use flatout_http::url::OriginAddress;
use flatout_template::{MemoryFiles, compile};
use std::fmt::Write as _;
use std::net::TcpListener;

const MANUAL: &str = include_str!("../../../../../docs/pages.md");

/// A block of the manual: its language, its text, and the comments before it.
struct Example {
    language: &'static str,
    text: &'static str,
    comments: Vec<(&'static str, &'static str)>,
}

fn examples() -> Vec<Example> {
    let mut examples = Vec::new();
    let mut comments = Vec::new();
    let mut rest = MANUAL;
    while let Some((line, after)) = rest.split_once('\n') {
        rest = after;
        if let Some(comment) = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->")) {
            comments.push(comment.split_once(": ").unwrap());
        } else if let Some(language) = line.strip_prefix("```") {
            let (text, after) = rest.split_once("\n```\n").unwrap();
            rest = after;
            examples.push(Example { language, text, comments: std::mem::take(&mut comments) });
        }
    }
    assert!(comments.is_empty());
    examples
}

impl Example {
    fn comment(&self, name: &str) -> Option<&'static str> {
        self.comments.iter().find_map(|(known, value)| (*known == name).then_some(*value))
    }

    /// Runs the example as a page or a script; a file that it uploads has the content `file`.
    fn run(&self, site: &Site, parts: &[(&str, &str)], file: &[u8]) -> Answered {
        let name = if self.language == "html" { "example.lhtml" } else { "example.luau" };
        let files = parts
            .iter()
            .fold(MemoryFiles::default().file(name, self.text), |files, (name, text)| files.file(*name, *text));
        let template = compile(name, &files).template.unwrap_or_else(|wrong| panic!("{wrong}\n{}", self.text));
        // Static segments are written by their numbers; here they are written as they are.
        let mut code = String::from("local segments = {");
        for number in 0..template.segments.len() {
            let segment = String::from_utf8_lossy(template.segments.get(number).unwrap());
            let _ = write!(code, "[{number}]=[====[\n{segment}]====],");
        }
        code.push_str("} local function __s(number) __r(segments[number]) end ");
        code.push_str(&template.chunk);
        let mut ask = Ask { query: self.comment("query"), ..Ask::default() };
        let (mut content, mut cookie) = (Vec::new(), String::new());
        let form = ("content-type", "application/x-www-form-urlencoded");
        if let Some(fields) = self.comment("post") {
            content = fields.into();
            ask.fields.push(form);
        } else if let Some(fields) = self.comment("post-with-token") {
            let before = site.run(&Ask::default(), "__r(csrf.token())");
            cookie = before.cookie();
            content = format!("{fields}&csrf={}", before.text).into_bytes();
            ask.fields.push(form);
        } else if let Some(field) = self.comment("upload") {
            let head = format!("--b\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"a.txt\"\r\n\r\n");
            content = [head.as_bytes(), file, b"\r\n--b--\r\n"].concat();
            ask.fields.push(("content-type", "multipart/form-data; boundary=b"));
        }
        if !content.is_empty() {
            ask.method = Some("POST");
            ask.content = Some(&content);
        }
        ask.fields.push(("cookie", &cookie));
        ask.fields.push(("host", "example.com"));
        site.run(&ask, &code)
    }
}

/// Creates the tables of the manual, which examples before the chapter on the database use as well.
fn create_tables(site: &Site, examples: &[Example]) {
    for example in examples.iter().filter(|example| example.language == "sql") {
        for statement in example.text.split_terminator(';').filter(|statement| !statement.trim().is_empty()) {
            let answered = site.run(&Ask::default(), &format!("db.exec([==[{statement}]==])"));
            assert_eq!(answered.error, None, "{statement}");
        }
    }
}

#[test]
fn every_example_runs_and_does_what_it_says() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let examples = examples();
    let site = Site::with_database_and(|settings| {
        settings.upstreams.insert("api".to_owned(), OriginAddress::new(false, "127.0.0.1", nobody));
    });
    create_tables(&site, &examples);
    let mut parts = Vec::new();
    let mut count = 0;
    for example in &examples {
        if let Some(name) = example.comment("file") {
            parts.push((name, example.text));
            continue;
        }
        if !matches!(example.language, "html" | "lua") {
            assert!(matches!(example.language, "kdl" | "sh" | "sql"), "{}", example.text);
            continue;
        }
        count += 1;
        let answered = example.run(&site, &parts, b"hello");
        assert_eq!(answered.error, None, "{}", example.text);
        for (name, expected) in &example.comments {
            let lines = || answered.fields.iter().map(|(name, value)| format!("{name}: {value}"));
            let is_shown = match *name {
                "shows" => answered.text.contains(expected),
                "shows-header" => lines().any(|line| line.starts_with(expected)),
                _ => true,
            };
            assert!(is_shown, "{name} {expected}\n{answered:?}\n{}", example.text);
        }
        assert!(!example.comments.is_empty(), "nothing is said of what this does: {}", example.text);
    }
    assert!(count > 15, "{count}");
}

#[test]
fn examples_store_large_files_whole() {
    let examples = examples();
    let site = Site::with_database();
    create_tables(&site, &examples);
    let file: Vec<u8> = (0..3_000_000_u32).map(|index| b'a' + (index % 23) as u8).collect();
    let uploads: Vec<&Example> = examples.iter().filter(|example| example.comment("upload").is_some()).collect();
    assert_eq!(uploads.len(), 3);
    for example in uploads {
        assert_eq!(example.run(&site, &[], &file).error, None, "{}", example.text);
    }
    for part in [
        "SELECT substr(content, 1 + 1048576 * ?, 1048576) FROM files WHERE content IS NOT NULL",
        "SELECT content FROM pieces WHERE number = ?",
    ] {
        let code = format!("for number = 0, 2 do __r(buffer.tostring(db.value('{part}', number))) end");
        let answered = site.run(&Ask::default(), &code);
        assert!(answered.text.as_bytes() == file, "{part}: {} bytes, {:?}", answered.text.len(), answered.error);
    }
}

/// The manual names every function that a page can call.
#[test]
fn every_function_is_in_the_manual() {
    let site = Site::new();
    let code = "
        for _, library in {'cache', 'csrf', 'date', 'db', 'fetch', 'hash', 'hex', 'base64', 'html', 'json', 'kv', 'log', 'password', 'random',
                           'request', 'response', 'session', 'sleep', 'time', 'TIMEDATE', 'url', 'uuid'} do
            local value = ({cache = cache, csrf = csrf, date = date, db = db, fetch = fetch, hash = hash, hex = hex,
                base64 = base64, html = html, json = json, kv = kv, log = log, password = password, random = random, request = request,
                response = response, session = session, sleep = sleep, time = time, TIMEDATE = TIMEDATE, url = url, uuid = uuid})[library]
            if type(value) == 'table' then
                local name = next(value)
                while name do
                    __r(library .. (if library == 'session' then ':' else '.') .. name .. '\\n')
                    name = next(value, name)
                end
            else
                __r(library .. '(\\n')
            end
        end";
    let answered = site.run(&Ask::default(), code);
    assert_eq!(answered.error, None);
    let missing: Vec<&str> = answered.text.lines().filter(|name| !MANUAL.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(answered.text.lines().count() > 50);
}
