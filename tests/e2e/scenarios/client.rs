//! The clients of a scenario.

use super::Failure;
use super::script::{Action, Exchange, Expect, Item, What};
use super::stage::Stage;
use super::subject::Kind;
use super::verdict::{Seen, judge, show};
use super::wire::{Flow, Message, Wire};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

/// A client of a scenario: where its requests go, and which kind of server responds.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) kind: Kind,
    pub(crate) stage: Arc<Stage>,
}

/// The state of one exchange.
struct Progress {
    begun: Instant,
    method: String,
    answer: Option<Message>,
    took: std::time::Duration,
    judged_cut: bool,
}

impl Client {
    /// Runs `exchange`, over `kept` if it uses the same connection. Returns the connection.
    pub(crate) fn play(&self, exchange: &Exchange, kept: Option<Wire>) -> Result<Option<Wire>, Failure> {
        let fail = |why: String| Failure::at(exchange.line, why);
        let mut wire = match kept.filter(|_| exchange.same_connection) {
            Some(wire) => wire,
            None if exchange.same_connection => return Err(fail("there is no connection to go on with".to_owned())),
            None => {
                let stream =
                    TcpStream::connect(self.address).map_err(|error| fail(format!("no connection: {error}")))?;
                Wire::new(stream, Arc::clone(&self.stage), false).map_err(fail)?
            }
        };
        let mut progress = Progress {
            begun: Instant::now(),
            method: exchange.method.clone().unwrap_or_else(|| sent_method(exchange)),
            answer: None,
            took: std::time::Duration::ZERO,
            judged_cut: false,
        };
        for item in &exchange.items {
            match item {
                Item::Act(action) => {
                    if let Action::Head(head) = action {
                        self.stage.note(&format!("client sends {} {:?}", head.start, head.fields));
                    }
                    if wire.act(action).map_err(fail)? == Flow::Over {
                        return Ok(None);
                    }
                }
                Item::Continue => {
                    let head = wire.read_head().map_err(fail)?;
                    let status = head.map_or(0, |head| head.status());
                    if status != 100 {
                        return Err(fail(format!("instead of 100 came {status}")));
                    }
                }
                Item::Leave(after) => {
                    wire.read_bytes(*after).map_err(fail)?;
                    self.stage.note("client leaves");
                    return Ok(None);
                }
                Item::StopReading(after) => {
                    wire.read_bytes(*after).map_err(fail)?;
                    return Ok(Some(wire));
                }
                Item::Finish => wire.finish(),
                Item::Expect(expect) => self.expect(expect, &mut wire, &mut progress, exchange.line)?,
            }
        }
        self.ensure_response(&mut wire, &mut progress).map_err(fail)?;
        if progress.answer.as_ref().is_some_and(|answer| !answer.complete) && !progress.judged_cut {
            let body = progress.answer.map(|answer| answer.body).unwrap_or_default();
            return Err(fail(format!("the answer ended before it was whole, after {}", show(&body))));
        }
        Ok(Some(wire))
    }

    /// Reads the response, unless this was already done.
    fn ensure_response(&self, wire: &mut Wire, progress: &mut Progress) -> Result<(), String> {
        if progress.answer.is_none() {
            let answer = wire.read_response(&progress.method)?;
            progress.took = progress.begun.elapsed();
            let (head, body) = (&answer.head, show(&answer.body));
            self.stage.note(&format!("client is answered {} {:?} {body}", head.start, head.fields));
            for name in ["Content-Length", "Date", "Age", "ETag"] {
                if head.values(name).len() > 1 {
                    return Err(format!("{name} came more than once"));
                }
            }
            progress.answer = Some(answer);
        }
        Ok(())
    }

    fn expect(&self, expect: &Expect, wire: &mut Wire, progress: &mut Progress, line: usize) -> Result<(), Failure> {
        let only_ours = match &expect.what {
            What::Cache(_) => true,
            What::Field(name, _) => name == "Cache-Status" || name == "Via",
            _ => false,
        };
        self.ensure_response(wire, progress).map_err(|why| Failure::at(line, why))?;
        if only_ours && self.kind != Kind::Flatout {
            return Ok(());
        }
        progress.judged_cut |= expect.what == What::Cut;
        let Some(message) = &progress.answer else { return Ok(()) };
        let closed = match expect.what {
            What::Closed => wire.closes().map_err(|why| Failure::at(expect.line, why))?,
            _ => wire.ended,
        };
        let seen = Seen { message, took: progress.took, closed, kept: false };
        judge(expect, &seen).map_err(|why| Failure::at(expect.line, format!("expected: {}; but {why}", expect.text)))
    }
}

/// The method of a request that is written out in bytes.
fn sent_method(exchange: &Exchange) -> String {
    let sent = exchange.items.iter().find_map(|item| match item {
        Item::Act(Action::Send(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    });
    sent.and_then(|text| text.split(' ').next().map(str::to_owned)).unwrap_or_default()
}
