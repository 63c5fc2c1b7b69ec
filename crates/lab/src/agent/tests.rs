//! Tests of both sides over real sockets on loopback.

use super::controller::Controller;
use super::coordinator::{AgentLoss, AgentResult, UNAUTHENTICATED_MAX};
use super::frame::FrameLimits;
use super::link::AgentLink;
use super::member::{AgentWork, Brought, serve};
use super::message::Message;
use super::trust::{self, agent_config};
use rustls::ClientConnection;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

struct Trust(PathBuf);

impl Trust {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flatout-agent-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        let unix_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        trust::init(&path, unix_s).unwrap();
        Self(path)
    }
}

impl Drop for Trust {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Work that finishes immediately and returns its task.
#[derive(Default)]
struct Echo {
    index: u32,
    task: Value,
    begun_ns: Option<u64>,
    fails: bool,
}

impl AgentWork for Echo {
    fn prepare(&mut self, index: u32, _agents: u32, task: &Value) -> Result<(), String> {
        (self.index, self.task) = (index, task.clone());
        if self.fails { Err("no such file".to_owned()) } else { Ok(()) }
    }

    fn begin(&mut self, at_ns: u64) -> Result<(), String> {
        self.begun_ns = Some(at_ns);
        Ok(())
    }

    fn stop(&mut self) {}

    fn poll(&mut self) -> Option<Result<Brought, String>> {
        let begun_ns = self.begun_ns?;
        // The record is longer than what TLS and the kernel accept at once.
        Some(Ok(Brought { begun_ns, facts: self.task.clone(), record: vec![self.index as u8; 3_000_000] }))
    }
}

type Run = JoinHandle<std::io::Result<Vec<AgentResult>>>;

fn control(trust: &Path, wanted: u32) -> (SocketAddr, Run, mpsc::Receiver<u32>) {
    let task = json!({ "arguments": ["--rate", "10"] });
    let controller = Controller::listen("127.0.0.1:0".parse().unwrap(), trust, wanted, task).unwrap();
    let address = controller.address().unwrap();
    let (here, told) = mpsc::channel();
    let run = thread::spawn(move || {
        let mut last = 0;
        controller.run(&AtomicU32::new(0), |coordinator| {
            if std::mem::replace(&mut last, coordinator.here()) != coordinator.here() {
                let _ = here.send(coordinator.here());
            }
        })
    });
    (address, run, told)
}

fn work(address: SocketAddr, trust: &Path, name: &str, fails: bool) -> JoinHandle<Result<(), String>> {
    let (trust, name) = (trust.to_owned(), name.to_owned());
    thread::spawn(move || {
        let mut echo = Echo { fails, ..Echo::default() };
        serve(&address.to_string(), Duration::from_secs(10), &trust, &name, 2, &mut echo)
    })
}

#[test]
fn two_agents_bring_their_shares() {
    let trust = Trust::new("two");
    let (address, run, _) = control(&trust.0, 2);
    let agents = ["one", "two"].map(|name| work(address, &trust.0, name, false));
    for agent in agents {
        agent.join().unwrap().unwrap();
    }
    let results = run.join().unwrap().unwrap();
    assert_eq!(results.len(), 2);
    for (index, result) in results.iter().enumerate() {
        assert_eq!((result.index as usize, &result.lost), (index, &None));
        assert_eq!(result.record, vec![index as u8; 3_000_000]);
        assert_eq!(result.facts["arguments"][1], "10");
        // Both sides share one clock, so the difference is within its error bound.
        assert!(result.skew_ns.unwrap().unsigned_abs() <= result.skew_error_ns_max, "{result:?}");
    }
}

#[test]
fn a_failed_agent_is_reported_by_name() {
    let trust = Trust::new("fails");
    let (address, run, _) = control(&trust.0, 2);
    let good = work(address, &trust.0, "good", false);
    let bad = work(address, &trust.0, "bad", true);
    assert_eq!(bad.join().unwrap().unwrap_err(), "no such file");
    let told = good.join().unwrap().unwrap_err();
    assert!(told.contains("another agent was lost"), "{told}");
    let results = run.join().unwrap().unwrap();
    let lost = results.iter().find(|result| result.name == "bad").unwrap();
    assert_eq!(lost.lost, Some((AgentLoss::Failed, "no such file".to_owned())));
}

#[test]
fn unauthenticated_peers_get_nowhere_and_the_run_goes_on() {
    let (trust, other) = (Trust::new("ours"), Trust::new("theirs"));
    let (address, run, here) = control(&trust.0, 1);
    // The agent has certificates of another authority, so neither side trusts the other.
    let told = work(address, &other.0, "peer", false).join().unwrap().unwrap_err();
    assert!(told.contains("certificate"), "{told}");
    // The peer does not use TLS.
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    // The peer has a valid certificate, but sends an unexpected message.
    let config = agent_config(&trust.0).unwrap();
    let tls = ClientConnection::new(config, trust::CONTROLLER.try_into().unwrap()).unwrap();
    let mut link = AgentLink::new(TcpStream::connect(address).unwrap(), tls.into(), FrameLimits::KNOWN).unwrap();
    link.say(Message::Ready {});
    while link.pump().is_ok() {
        thread::yield_now();
    }
    assert!(matches!(link.take(), Ok(Some(super::frame::AgentFrame::Message(Message::Failed { .. })))));
    work(address, &trust.0, "friend", false).join().unwrap().unwrap();
    assert_eq!(here.recv().unwrap(), 1);
    let results = run.join().unwrap().unwrap();
    assert_eq!((results.len(), results[0].name.as_str()), (1, "friend"));
}

#[test]
fn a_crowd_of_unauthenticated_peers_keeps_no_agent_out() {
    let trust = Trust::new("crowd");
    let (address, run, _) = control(&trust.0, 1);
    // Open more connections than are permitted, each of which sends the beginning of a long TLS record bit by bit.
    let mut crowd: Vec<TcpStream> = (0..3 * UNAUTHENTICATED_MAX)
        .map(|_| {
            let mut peer = TcpStream::connect(address).unwrap();
            peer.write_all(&[22, 3, 1, 16, 0]).unwrap();
            peer
        })
        .collect();
    let (over, is_over) = mpsc::channel::<()>();
    let (tell, left) = mpsc::channel();
    let dripping = thread::spawn(move || {
        // Send a byte on each connection at an interval, until the test is over.
        while is_over.recv_timeout(Duration::from_millis(10)) == Err(RecvTimeoutError::Timeout) {
            // Evicted connections can no longer send.
            crowd.retain_mut(|peer| peer.write_all(&[0]).is_ok());
            let _ = tell.send(crowd.len());
        }
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let left = left.recv().unwrap();
        if left <= UNAUTHENTICATED_MAX {
            break;
        }
        assert!(Instant::now() < deadline, "{left} peers hold places");
    }
    work(address, &trust.0, "friend", false).join().unwrap().unwrap();
    let results = run.join().unwrap().unwrap();
    drop(over);
    dripping.join().unwrap();
    assert_eq!((results.len(), results[0].name.as_str(), &results[0].lost), (1, "friend", &None));
}

#[test]
fn nobody_there_is_said_after_some_timeout() {
    let trust = Trust::new("nobody");
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let told = serve(&unused.to_string(), Duration::ZERO, &trust.0, "x", 1, &mut Echo::default()).unwrap_err();
    assert!(told.starts_with(&format!("cannot reach the controller at {unused}")), "{told}");
    assert!(serve("127.0.0.1:1", Duration::ZERO, Path::new("/nowhere"), "x", 1, &mut Echo::default()).is_err());
    let interrupted = Arc::new(AtomicU32::new(1));
    let controller = Controller::listen("127.0.0.1:0".parse().unwrap(), &trust.0, 1, Value::Null).unwrap();
    assert!(controller.run(&interrupted, |_| {}).unwrap_err().to_string().contains("before all agents"));
}
