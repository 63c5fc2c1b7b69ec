//! Priorities of responses (RFC 9218) on a slow link: an urgent response overtakes a large one on its connection.

use super::harness::{Folder, Server, flatout};
use super::skip::skip;
use super::tls::Certificate;
use super::tool::{run, test_tool};
use flatout_suite::testbed::{LinkProperties, Network, SERVER_ADDRESS, within};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

const MEBIBYTE: usize = 1 << 20;

/// The size of the urgent response. A server that shared the link fairly would send as much of the large response
/// before
/// the urgent one is complete.
const URGENT_BYTES: usize = 2 * MEBIBYTE;

/// Bytes of the large response that may arrive after the urgent one was requested and before it is complete. They
/// left the server before. Up to 193 KB wait in the queue of the link (50 ms and its bucket), and up to as many have
/// arrived, but count only when the packets that the queue has dropped before them arrive. 64 KiB wait in the kernel
/// (`NOT_SENT_BYTES_MAX`) and 64 KiB in one write of the server. That makes 517 KB.
const OVERTAKEN_BYTES_MAX: u64 = MEBIBYTE as u64;

/// Two hosts with a 10 Mbit/s link between them, and a site on one of them.
struct Fixture {
    network: Network,
    server: Server,
    _folder: Folder,
    _certificate: Certificate,
}

impl Fixture {
    /// Returns `None` if the user may not create networks.
    fn new(listen: &str) -> Option<Self> {
        if !super::process::is_root() {
            skip("only root may create network namespaces");
            return None;
        }
        let link = LinkProperties { rate: Some("10mbit".to_owned()), hosts: 2, ..LinkProperties::default() };
        let network = Network::make(link).unwrap();
        let folder = Folder::with(&[("large", &vec![b'l'; 10 * MEBIBYTE]), ("urgent", &vec![b'u'; URGENT_BYTES])]);
        let certificate = Certificate::new();
        let (path, config) = (folder.path().display(), folder.path().join("flatout.kdl"));
        let tls = if listen.contains("tls") {
            format!("tls cert=\"{}\" key=\"{}\"", certificate.chain, certificate.key)
        } else {
            String::new()
        };
        let text = format!(
            "workers 1\nadmin off=#true\nsite \"*\" {{\n    listen \"{SERVER_ADDRESS}:8443\" {listen}\n    {tls}\n    files \"{path}\"\n}}\n"
        );
        fs::write(&config, text).unwrap();
        let mut command = command_of(&network.server_words("flatout").unwrap());
        command.arg(flatout().get_program()).arg("run").arg("-c").arg(&config);
        command.env("XDG_STATE_HOME", folder.path().join("state"));
        let server = Server::spawn(command);
        Some(Self { network, server, _folder: folder, _certificate: certificate })
    }

    /// The output of a client: bytes of both responses when the urgent one was requested, and when it was complete.
    fn ask(&self, tools: &str, script: &str, words: &[&str]) -> Value {
        let python = test_tool("python", tools);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e").join(script);
        let mut command = command_of(&within(self.network.client()));
        command.arg(python.get_program()).arg(script).args(words).arg(self.server.address.to_string());
        command.args(["/large", "/urgent"]);
        let said = run(&mut command);
        serde_json::from_str(said.trim()).unwrap_or_else(|error| panic!("{error}: {said}"))
    }
}

fn command_of(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// Asserts that the urgent response is complete, while the large one has advanced only by what buffers can hold.
fn assert_overtakes(told: &Value) {
    println!("{told}");
    let bytes = |name: &str| told[name].as_u64().unwrap_or_else(|| panic!("{told}"));
    assert_eq!(bytes("urgent"), URGENT_BYTES as u64, "{told}");
    // The large response was well under way.
    assert!(bytes("before") >= MEBIBYTE as u64, "{told}");
    let overtaken = bytes("after") - bytes("before");
    assert!(overtaken <= OVERTAKEN_BYTES_MAX, "{overtaken} bytes of the large response came first: {told}");
}

#[test]
fn an_urgent_response_overtakes_a_large_one_over_http2() {
    for (listen, scheme) in [("h2c=#true", "http"), ("tls=#true http3=#false", "https")] {
        let Some(fixture) = Fixture::new(listen) else { return };
        assert_overtakes(&fixture.ask("http2/bin", "http2/urgent.py", &[scheme]));
    }
}

#[test]
fn an_urgent_response_overtakes_a_large_one_over_http3() {
    let Some(fixture) = Fixture::new("tls=#true http3=#true") else { return };
    assert_overtakes(&fixture.ask("http3/bin", "http3/client.py", &["overtake"]));
}
