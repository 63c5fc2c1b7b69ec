//! Input from elsewhere, such as a result file or a server's response, cannot control the reader's terminal.

use super::bench;
use crate::e2e::harness::{Folder, Server, flatout};
use crate::e2e::tool::said;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

/// An escape sequence that sets the title, the C1 start of one that clears the screen, and a bidirectional override.
const ORDERS: &str = "\u{1b}[1m\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}\u{2066}\r\nVALID";

/// [`ORDERS`] as it must be displayed.
const SHOWN: &str = r"\u{1b}[1m\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}\u{2066}\u{d}\u{a}VALID";

fn assert_harmless(what: &str, text: &str) {
    let is_order = |character: char| {
        (character.is_control() && character != '\n' && character != '\t')
            || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!text.contains(is_order), "{what}: {text:?}");
}

/// Inserts escape sequences into every string of a document that is printed unchanged.
fn insert_escapes(value: &mut Value) {
    match value {
        Value::String(text) => text.push_str(ORDERS),
        Value::Array(items) => items.iter_mut().for_each(insert_escapes),
        Value::Object(fields) => fields.values_mut().for_each(insert_escapes),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[test]
fn escape_sequences_in_a_result_are_escaped() {
    let site = Folder::with(&[("a", b"a"), ("b", b"bb"), ("urls", b"/a\n/b\n")]);
    let server = Server::start(site.path(), &[]);
    let urls = site.path().join("urls");
    let run =
        bench(&[&server.url("/"), "--urls", urls.to_str().unwrap(), "-n", "50", "-c", "2", "--require", "p99<1h"]);
    let mut result = run.json.clone();
    for name in
        ["label", "url", "address", "protocol", "workload", "server_software", "command", "class_names", "thresholds"]
    {
        insert_escapes(&mut result[name]);
    }
    for name in ["machine", "flatout_version"] {
        insert_escapes(&mut result[name]);
    }
    let step = &mut result["steps"][0];
    let reason = json!({ "name": format!("n{ORDERS}"), "text": format!("t{ORDERS}") });
    step["notes"] = json!([reason]);
    step["failing"] = json!([reason]);
    step["record"]["details"] = json!([{ "kind": "connreset", "detail": ORDERS, "count": 1 }]);
    step["client"]["agents"] =
        json!([{ "name": format!("a{ORDERS}"), "skew_ns": 1, "busy_share": 0.5, "responses": 1, "lost": true }]);
    result["findings"] = json!({ ORDERS: { "sentence": format!("s{ORDERS}") } });
    // File names may contain escape sequences too.
    let folder = Folder::new();
    let name = folder.path().join(format!("{}.json", ORDERS.replace('\u{7}', "")));
    std::fs::write(&name, result.to_string()).unwrap();
    let mut shown = String::new();
    let views = ["", "httperf", "webstone", "ptester", "wrk", "autobench"];
    for view in views {
        let mut command = flatout();
        command.arg("report").arg(&name);
        if !view.is_empty() {
            command.args(["--view", view]);
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{view}: {}", said(&output));
        assert_harmless(view, &said(&output));
        shown.push_str(&said(&output));
    }
    assert!(shown.contains(SHOWN), "{shown}");
    let output = flatout().arg("compare").arg(&name).arg(&name).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 5)), "{}", said(&output));
    assert_harmless("compare", &said(&output));
    let output = flatout().args(["rerun", "--show"]).arg(&name).output().unwrap();
    assert_harmless("rerun", &said(&output));
    // Also a file that is not a result, and a result with an unknown keyword.
    result["steps"][0]["plan"]["loop"] = json!(ORDERS);
    for text in [result.to_string(), json!({ "schema": ORDERS }).to_string(), ORDERS.to_owned()] {
        std::fs::write(&name, text).unwrap();
        for verb in ["report", "rerun"] {
            let output = flatout().arg(verb).arg(&name).output().unwrap();
            assert_ne!(output.status.code(), Some(0));
            assert_harmless(verb, &said(&output));
        }
    }
}

#[test]
fn escape_sequences_in_a_response_are_escaped() {
    let head = |status: &str, field: &str| format!("HTTP/1.1 {status}\r\n{field}Content-Length: 2\r\n\r\nok");
    let answers = [
        head("200 \u{1b}[2JOK", ""),
        head("404 \u{9b}2J\u{202e}", ""),
        head("200 OK", "Server: \u{1b}]0;owned\u{7}\u{9b}2J\u{202e}\r\n"),
        head("200 OK", "\u{1b}[2J: x\r\n"),
        "\u{1b}[2J\u{9b}2J\r\n\r\n".to_owned(),
    ];
    for answer in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let bytes = answer.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut stream = stream;
                let _read = stream.read(&mut [0; 4096]);
                let _sent = stream.write_all(bytes.as_bytes());
            }
        });
        for view in ["httperf", "wrk"] {
            let run = bench(&[&format!("http://{address}/"), "-n", "3", "-c", "1", "--view", view]);
            assert_harmless(&answer, &format!("{}{}", run.stdout, run.stderr));
        }
        let run = bench(&[&format!("http://{address}/"), "-n", "3", "-c", "1"]);
        assert_harmless(&answer, &format!("{}{}", run.stdout, run.stderr));
    }
}
