//! Both sides over real sockets on loopback.

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
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
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

/// Work that is done as soon as it begins: it brings back what it was given.
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
        // More than TLS and the kernel take at once.
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
        // One machine has one clock, so the difference is within what is said of it.
        assert!(result.skew_ns.unwrap().unsigned_abs() <= result.skew_error_ns_max, "{result:?}");
    }
}

#[test]
fn an_agent_that_cannot_is_told_of_by_name() {
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
    // Certificates of another authority: neither believes the other.
    let told = work(address, &other.0, "peer", false).join().unwrap().unwrap_err();
    assert!(told.contains("certificate"), "{told}");
    // No TLS at all.
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    // Our certificate, and words that are none.
    let config = agent_config(&trust.0).unwrap();
    let tls = ClientConnection::new(config, trust::CONTROLLER.try_into().unwrap()).unwrap();
    let mut link = AgentLink::new(TcpStream::connect(address).unwrap(), tls.into(), FrameLimits::KNOWN).unwrap();
    link.say(Message::Ready {});
    while link.pump().is_ok() {
        thread::sleep(Duration::from_millis(2));
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
    // More than there are places, each of which goes on sending a little: the beginning of a long TLS record.
    let mut crowd: Vec<TcpStream> = (0..3 * UNAUTHENTICATED_MAX)
        .map(|_| {
            let mut peer = TcpStream::connect(address).unwrap();
            peer.write_all(&[22, 3, 1, 16, 0]).unwrap();
            peer
        })
        .collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let (over, left) = (Arc::clone(&is_over), Arc::new(AtomicUsize::new(usize::MAX)));
    let dripping = thread::spawn({
        let left = Arc::clone(&left);
        move || {
            while !over.load(Ordering::Relaxed) {
                // Those that were sent away cannot send any more.
                crowd.retain_mut(|peer| peer.write_all(&[0]).is_ok());
                left.store(crowd.len(), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(10));
            }
        }
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    while left.load(Ordering::Relaxed) > UNAUTHENTICATED_MAX {
        assert!(Instant::now() < deadline, "{} peers hold places", left.load(Ordering::Relaxed));
        thread::sleep(Duration::from_millis(10));
    }
    work(address, &trust.0, "friend", false).join().unwrap().unwrap();
    let results = run.join().unwrap().unwrap();
    is_over.store(true, Ordering::Relaxed);
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
