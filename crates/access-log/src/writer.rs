//! The writer thread, which receives chunks from the queue and maintains the targets.

use super::failure::OpenError;
use super::logs::Warn;
use super::queue::{Channel, Chunk, Message, Totals};
use super::sink::Sink;
use flatout_http::access::LogSettings;
use flatout_os::clock;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// First retry interval for a blocked target; the interval increases while the target remains blocked. A pipe of 64 KiB
/// then drains at up to 6 MB/s, and a pipe without a reader costs almost nothing.
const BLOCKED_INTERVAL: Duration = Duration::from_millis(10);
const BLOCKED_INTERVAL_MAX: Duration = Duration::from_millis(320);

/// Interval for checking file ages, recoveries and removed targets.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The writer of one process.
pub(super) struct LogWriter {
    messages: Receiver<Message>,
    totals: Arc<Totals>,
    warn: Warn,
    sinks: Vec<Sink>,
    blocked_interval: Duration,
}

impl LogWriter {
    pub(super) const fn new(messages: Receiver<Message>, totals: Arc<Totals>, warn: Warn) -> Self {
        Self { messages, totals, warn, sinks: Vec::new(), blocked_interval: BLOCKED_INTERVAL }
    }

    /// Writes until `Close` is received, or until there are no more senders.
    pub(super) fn run(mut self) {
        let deadline = loop {
            match self.receive() {
                Ok(Message::Chunk(chunk)) => self.handle_chunk(chunk),
                Ok(Message::Replace(settings, answer)) => {
                    let _ = answer.send(self.replace(&settings));
                }
                Ok(Message::Wake) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Close(deadline)) => break deadline,
                Err(RecvTimeoutError::Disconnected) => break clock::now(),
            }
            self.look();
        };
        self.close(deadline);
    }

    fn receive(&self) -> Result<Message, RecvTimeoutError> {
        if self.sinks.iter().any(Sink::is_blocked) {
            self.messages.recv_timeout(self.blocked_interval)
        } else if self.sinks.iter().any(Sink::needs_looks) {
            self.messages.recv_timeout(LOOK_INTERVAL)
        } else {
            self.messages.recv().map_err(|_| RecvTimeoutError::Disconnected)
        }
    }

    fn handle_chunk(&mut self, chunk: Chunk) {
        if let Some(sink) = self.sinks.iter_mut().find(|sink| sink.is_of(&chunk.channel)) {
            sink.handle_chunk(chunk, clock::unix_s(), &self.warn);
        } else {
            chunk.channel.count_lost(chunk.lines);
        }
    }

    fn look(&mut self) {
        if self.totals.reopen.swap(false, Ordering::AcqRel) {
            for sink in &mut self.sinks {
                sink.reopen(clock::unix_s(), &self.warn);
            }
        }
        for sink in &mut self.sinks {
            sink.look(clock::unix_s(), &self.warn);
        }
        self.sinks.retain(|sink| !sink.is_over());
        let progress = self.sinks.iter_mut().fold(false, |progress, sink| sink.take_progress() | progress);
        let longer = (self.blocked_interval * 2).min(BLOCKED_INTERVAL_MAX);
        self.blocked_interval = if progress { BLOCKED_INTERVAL } else { longer };
    }

    /// Opens new targets. Marks absent targets as removed only if all new targets could be opened.
    fn replace(&mut self, settings: &[LogSettings]) -> Result<Vec<Arc<Channel>>, OpenError> {
        let mut opened: Vec<Sink> = Vec::new();
        for log in settings {
            if self.sinks.iter().chain(&opened).all(|sink| *sink.target() != log.target) {
                opened.push(Sink::open(log, &self.totals, clock::unix_s())?);
            }
        }
        self.sinks.append(&mut opened);
        for sink in &mut self.sinks {
            let wanted = settings.iter().rev().find(|log| log.target == *sink.target());
            sink.keep(wanted.map(|log| log.rotation), clock::unix_s());
        }
        let channel = |log: &LogSettings| self.sinks.iter().find(|sink| *sink.target() == log.target);
        Ok(settings.iter().filter_map(channel).map(|sink| Arc::clone(sink.channel())).collect())
    }

    fn close(mut self, deadline: Instant) {
        while self.sinks.iter().any(Sink::is_blocked) && clock::now() < deadline {
            clock::sleep(BLOCKED_INTERVAL);
            self.look();
        }
        // These messages were sent by workers before they learned that the logs were closed.
        while let Ok(message) = self.messages.try_recv() {
            if let Message::Chunk(chunk) = message {
                self.handle_chunk(chunk);
            }
        }
        for sink in &mut self.sinks {
            sink.give_up();
        }
    }
}
