//! A table of cases, run with each third-party stack: aioquic, libcurl with ngtcp2, quic-go, quiche and Chromium.

use super::{Echo, chromium_dom, python, serve, site};
use crate::e2e::harness::Server;
use crate::e2e::http2::count_of;
use crate::e2e::real_site::encode;
use crate::e2e::tls::Certificate;
use crate::e2e::tool::{run, test_tool, tool};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Size of the content that is sent in both directions.
const LARGE: &str = "10485000";

/// Name and command of each case.
const CASES: [(&str, &[&str]); 8] = [
    ("get", &["get", "/1k", "/10m"]),
    ("head", &["head", "/1k"]),
    ("post", &["post", "/echo", "1000"]),
    ("10 MiB both ways", &["post", "/echo", LARGE]),
    ("cancel", &["cancel", "/10m", "/1k"]),
    ("trailers of a response", &["get", "/trailers"]),
    ("trailers of a request", &["post", "/echo", "1000", "te"]),
    ("another port", &["migrate", "/1k"]),
];

/// Cases that a stack's API does not support.
const CURL_LACKS: [&str; 2] = ["trailers of a request", "another port"];
const CHROMIUM_LACKS: [&str; 3] = ["trailers of a response", "trailers of a request", "another port"];

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// Runs each case with a client, except those that it does not support, and asserts the results.
fn assert_each(name: &str, lacking: &[&str], outcomes: impl FnOnce(&Server, &Certificate, &[&[&str]]) -> Vec<Value>) {
    let (folder, certificate, origin) = (site(), Certificate::new(), Echo::start());
    fs::copy(clients().join("http3_fetch.html"), folder.path().join("fetch.html")).unwrap();
    let files = format!("files \"{}\"", folder.path().display());
    let proxy = |path: &str| format!("route \"{path}\" {{ proxy \"{}\"; }}\n", origin.1);
    let server = serve(&folder, &certificate, 2, &(proxy("/echo") + &proxy("/trailers") + &files));
    let digest = run(tool("sha256sum").arg(folder.path().join("10m")));
    let cases: Vec<_> = CASES.iter().filter(|(case, _)| !lacking.contains(case)).collect();
    let commands: Vec<&[&str]> = cases.iter().map(|(_, words)| *words).collect();
    let told = outcomes(&server, &certificate, &commands);
    assert_eq!(told.len(), cases.len(), "{name}");
    for ((case, _), told) in cases.iter().zip(&told) {
        assert_outcome(&format!("{name}, {case}"), case, told, digest.split_whitespace().next());
    }
    let (status, text) = server.stop();
    assert!(status.success(), "{name}: {text}");
    for close in ["closed_h3_protocol", "closed_quic_protocol", "closed_h3_flood"] {
        assert_eq!(count_of(&text, close), 0, "{name}: {text}");
    }
}

fn assert_outcome(label: &str, case: &str, told: &Value, digest: Option<&str>) {
    let size = |value: &Value| value["size"].as_u64().unwrap_or_else(|| panic!("{label}: {told}"));
    match case {
        "get" => {
            assert_eq!((&told[0]["status"], size(&told[0])), (&json!(200), 1024), "{label}");
            assert_eq!((&told[1]["status"], told[1]["sha256"].as_str()), (&json!(200), digest), "{label}");
        }
        "head" => {
            assert_eq!((&told["status"], size(told)), (&json!(200), 0), "{label}: {told}");
            assert_eq!(told["fields"]["content-length"], "1024", "{label}: {told}");
        }
        "post" | "10 MiB both ways" => {
            let bytes = if case == "post" { "1000" } else { LARGE };
            assert_eq!((&told["status"], size(told).to_string().as_str()), (&json!(200), bytes), "{label}: {told}");
            assert_eq!(told["sha256"], told["sent"], "{label}: {told}");
        }
        // The connection stays usable.
        "cancel" => assert!(size(told) < 10 << 20 && told["again"] == 200, "{label}: {told}"),
        "trailers of a response" => assert_eq!(told[0]["trailers"]["x-sum"], "6", "{label}: {told}"),
        "trailers of a request" => {
            assert_eq!(told["fields"]["x-trailers"], "x-checksum: 7", "{label}: {told}");
            assert_eq!(told["sha256"], told["sent"], "{label}: {told}");
        }
        "another port" => {
            assert_eq!(told["closed"], false, "{label}: {told}");
            let responses = told["responses"].as_array().unwrap();
            assert!(responses.len() == 4 && responses.iter().all(|response| size(response) == 1024), "{label}: {told}");
            let mut ports: Vec<String> = told["ports"].as_array().unwrap().iter().map(Value::to_string).collect();
            ports.sort_unstable();
            ports.dedup();
            assert_eq!(ports.len(), 4, "{label}: {told}");
        }
        _ => panic!("{label}"),
    }
}

/// Runs one process of `client` for each case.
fn run_each(server: &Server, commands: &[&[&str]], client: impl Fn() -> Command) -> Vec<Value> {
    let one = |words: &&[&str]| {
        let said = run(client().arg(words[0]).arg(server.address.to_string()).args(&words[1..]));
        serde_json::from_str(said.trim()).unwrap_or_else(|error| panic!("{words:?}: {error}: {said}"))
    };
    commands.iter().map(one).collect()
}

#[test]
fn aioquic_passes_every_case() {
    assert_each("aioquic", &[], |server, _, commands| run_each(server, commands, || python("client.py")));
}

#[test]
fn curl_passes_every_case_that_it_supports() {
    assert_each("libcurl with ngtcp2", &CURL_LACKS, |server, _, commands| {
        run_each(server, commands, || {
            let mut command = test_tool("python", "http3/bin");
            command.arg(clients().join("http3_curl.py"));
            command
        })
    });
}

#[test]
fn quic_go_passes_every_case() {
    assert_each("quic-go", &[], |server, _, commands| run_each(server, commands, || test_tool("http3-quic-go", "bin")));
}

#[test]
fn quiche_passes_every_case() {
    assert_each("quiche", &[], |server, _, commands| run_each(server, commands, || test_tool("http3-quiche", "bin")));
}

#[test]
fn chromium_passes_every_case_that_it_supports() {
    assert_each("Chromium", &CHROMIUM_LACKS, |server, certificate, commands| {
        let dom = chromium_dom(server, certificate, &format!("/fetch.html?{}", encode(&json!(commands).to_string())));
        let text = dom.split_once("<pre>").and_then(|(_, rest)| rest.split_once("</pre>")).map_or("", |(text, _)| text);
        let told: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {dom}"));
        assert_eq!(told["protocols"], json!(["h3"]), "{told}");
        told["told"].as_array().unwrap_or_else(|| panic!("{told}")).clone()
    });
}
