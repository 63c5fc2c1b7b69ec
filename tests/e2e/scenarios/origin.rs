//! The origins of a scenario: they send what it specifies, byte for byte, and report requests that it does not expect.

use super::Failure;
use super::script::{Expect, Turn, What};
use super::stage::Stage;
use super::verdict::{Seen, judge};
use super::wire::{Flow, Message, Received, Wire};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Listens for requests to the origin called `name` until the scenario ends.
pub(crate) fn listen(name: &str, listener: TcpListener, stage: &Arc<Stage>, turns: &Arc<Vec<Turn>>) {
    let (name, stage, turns) = (name.to_owned(), Arc::clone(stage), Arc::clone(turns));
    thread::spawn(move || {
        for stream in listener.incoming() {
            if stage.is_over() {
                return;
            }
            let Ok(stream) = stream else { continue };
            let (name, stage, turns) = (name.clone(), Arc::clone(&stage), Arc::clone(&turns));
            thread::spawn(move || {
                if let Ok(wire) = Wire::new(stream, Arc::clone(&stage), true) {
                    Origin { name, stage, turns }.serve(wire);
                }
            });
        }
    });
}

/// Wakes the listener at this address, so that it notices the end of the scenario.
pub(crate) fn wake(address: SocketAddr) {
    if let Ok(stream) = TcpStream::connect(address) {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

struct Origin {
    name: String,
    stage: Arc<Stage>,
    turns: Arc<Vec<Turn>>,
}

impl Origin {
    fn serve(&self, mut wire: Wire) {
        let mut kept = false;
        loop {
            match wire.read_head() {
                Ok(Some(head)) => {
                    if self.respond(&mut wire, head, kept) == Flow::Over {
                        return;
                    }
                    kept = true;
                }
                Ok(None) => return,
                Err(why) => {
                    self.stage.note(&format!("{} could not read a request: {why}", self.name));
                    return;
                }
            }
        }
    }

    fn respond(&self, wire: &mut Wire, head: Received, kept: bool) -> Flow {
        let mut words = head.start.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        self.stage.note(&format!("{} is asked: {} {:?}", self.name, head.start, head.fields));
        let Some(index) = self.stage.choose(&self.turns, |turn| self.fits(turn, &method, &target, &head)) else {
            let text = format!("{} was asked more than the scenario says: {method} {target}", self.name);
            self.stage.fail(Failure::at(0, text));
            let answer = b"HTTP/1.1 500 Unforeseen\r\nCache-Control: no-store\r\nContent-Length: 10\r\n\r\nunforeseen";
            let _ = wire.act(&super::script::Action::Send(answer.to_vec()));
            return Flow::Over;
        };
        let turn = &self.turns[index];
        let last = head.closes();
        let message = if turn.early {
            Message { head, complete: true, ..Message::default() }
        } else {
            match wire.read_request_content(head) {
                Ok(message) => message,
                Err(why) => {
                    self.stage.fail(Failure::at(turn.line, format!("the request's content: {why}")));
                    return Flow::Over;
                }
            }
        };
        self.check(turn, &message, kept);
        wire.bodyless = method == "HEAD";
        for action in &turn.actions {
            if let super::script::Action::Head(head) = action {
                wire.bodyless = method == "HEAD" || matches!(head.status, 204 | 304);
                self.stage.note(&format!("{} says {} {:?}", self.name, head.start, head.fields));
            }
            match wire.act(action) {
                Ok(Flow::GoesOn) => {}
                Ok(Flow::Over) => return Flow::Over,
                Err(why) => {
                    self.stage.note(&format!("{} could not go on: {why}", self.name));
                    if matches!(action, super::script::Action::Receive(_) | super::script::Action::Hold(_)) {
                        self.stage.fail(Failure::at(turn.line, why));
                    }
                    return Flow::Over;
                }
            }
        }
        if last || turn.early { Flow::Over } else { Flow::GoesOn }
    }

    fn fits(&self, turn: &Turn, method: &str, target: &str, head: &Received) -> bool {
        let message = Message { head: head.clone(), ..Message::default() };
        let seen = Seen { message: &message, took: Duration::ZERO, closed: false, kept: false };
        turn.origin == self.name
            && turn.methods.iter().any(|other| other == method || other == "*")
            && (turn.target == target || turn.target == "*")
            && turn.conditions.iter().all(|condition| judge(condition, &seen).is_ok())
    }

    fn check(&self, turn: &Turn, message: &Message, kept: bool) {
        let is_cut = |expect: &Expect| expect.what == What::Cut;
        if !message.complete && !turn.expects.iter().any(is_cut) {
            self.stage.fail(Failure::at(turn.line, "the request's content ended before it was whole"));
        }
        let seen = Seen { message, took: Duration::ZERO, closed: false, kept };
        for expect in &turn.expects {
            if let Err(why) = judge(expect, &seen) {
                self.stage
                    .fail(Failure::at(expect.line, format!("expected of the request: {}; but {why}", expect.text)));
            }
        }
    }
}
