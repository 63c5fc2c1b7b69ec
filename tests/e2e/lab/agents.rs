//! Several agents generate one load: their shares add up, and a lost agent is reported.

use super::super::harness::{Folder, Server, TIMEOUT, flatout, wait_until};
use super::super::tool::said;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Instant;

/// A process that is killed when dropped.
pub(super) struct Running(pub(super) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder with the certificates for a run.
fn trust() -> Folder {
    let folder = Folder::new();
    let lab = folder.path().join("lab");
    let output = flatout().args(["agent", "init"]).arg(&lab).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let again = flatout().args(["agent", "init"]).arg(&lab).output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert!(said(&again).contains("not empty"), "{}", said(&again));
    folder
}

/// Starts a controller, and returns it with the address that it prints.
fn controller(
    url: &str,
    folder: &Folder,
    agents: &str,
    arguments: &[&str],
) -> (Running, BufReader<ChildStderr>, String) {
    let mut command = flatout();
    command.args(["bench", url, "--agents", agents, "--listen", "127.0.0.1:0", "--no-tui"]).args(arguments);
    command.arg("--certs").arg(folder.path().join("lab")).arg("--json").arg(folder.path().join("run.json"));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap().to_owned();
    assert!(line.contains("waiting for"), "{line}");
    (Running(child), stderr, address)
}

fn agent(folder: &Folder, address: &str, name: &str) -> Running {
    let mut command: Command = flatout();
    command.args(["agent", "--join", address, "--name", name, "--certs"]).arg(folder.path().join("lab"));
    Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
}

fn wait_for_line(stderr: &mut BufReader<ChildStderr>, words: &str) {
    let (begun, mut line) = (Instant::now(), String::new());
    while !line.contains(words) {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0 && begun.elapsed() < TIMEOUT, "never: {words}");
    }
}

#[test]
fn two_agents_generate_one_load() {
    let (site, folder) = (Folder::with(&[("a.txt", &[b'a'; 1024])]), trust());
    let server = Server::start(site.path(), &[]);
    let urls = folder.path().join("urls");
    fs::write(&urls, "/a.txt\n").unwrap();
    let arguments = ["-n", "1000", "-c", "8", "--urls", urls.to_str().unwrap(), "--require", "errors<1%"];
    let (mut bench, _stderr, address) = controller(&server.url("/a.txt"), &folder, "2", &arguments);
    let mut agents = ["one", "two"].map(|name| agent(&folder, &address, name));
    for agent in &mut agents {
        assert!(agent.0.wait().unwrap().success());
    }
    let code = bench.0.wait().unwrap().code();
    assert!(matches!(code, Some(0 | 5)), "{code:?}");
    let run: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("run.json")).unwrap()).unwrap();
    let step = &run["steps"][0];
    assert_eq!((&run["agents"], &step["record"]["counts"]["responses"]), (&2.into(), &1000.into()));
    let (_, counters) = server.stop();
    assert!(counters.lines().any(|line| line.split_whitespace().eq(["requests", "1000"])), "{counters}");
    let shares: Vec<u64> =
        step["client"]["agents"].as_array().unwrap().iter().map(|agent| agent["responses"].as_u64().unwrap()).collect();
    assert_eq!((shares.len(), shares.iter().sum::<u64>()), (2, 1000));
    assert_eq!(run["thresholds"][0]["met"], true);
}

#[test]
fn a_lost_agent_makes_the_run_invalid() {
    let (site, folder) = (Folder::with(&[("a.txt", &[b'a'; 1024])]), trust());
    let server = Server::start(site.path(), &[]);
    let arguments = ["-d", "10s", "--rate", "50"];
    let (mut bench, mut stderr, address) = controller(&server.url("/a.txt"), &folder, "2", &arguments);
    let mut agents = ["one", "two"].map(|name| agent(&folder, &address, name));
    wait_for_line(&mut stderr, "all agents have started");
    let children = format!("/proc/{0}/task/{0}/children", agents[1].0.id());
    let mut child = String::new();
    wait_until("the agent's bench begins", || {
        child = fs::read_to_string(&children).unwrap().trim().to_owned();
        !child.is_empty()
    });
    agents[1].0.kill().unwrap();
    agents[1].0.wait().unwrap();
    // An agent must not keep generating load that nobody counts.
    wait_until("the agent's bench ends", || {
        fs::read_to_string(format!("/proc/{child}/stat")).map_or(true, |state| state.contains(") Z "))
    });
    assert_eq!(bench.0.wait().unwrap().code(), Some(5));
    assert!(agents[0].0.wait().unwrap().success());
    let run: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("run.json")).unwrap()).unwrap();
    let step = &run["steps"][0];
    let reasons: Vec<&str> =
        step["invalid"].as_array().unwrap().iter().map(|invalid| invalid["reason"].as_str().unwrap()).collect();
    assert!(reasons.contains(&"agent-lost"), "{reasons:?}");
    let lost: Vec<bool> =
        step["client"]["agents"].as_array().unwrap().iter().map(|agent| agent["lost"].as_bool().unwrap()).collect();
    assert_eq!(lost.iter().filter(|lost| **lost).count(), 1);
}
