//! A worker's part of the logs. No function blocks except `finish`, and none allocates in the steady state.

use super::logs::{LogHandle, LogSet};
use super::queue::{Chunk, Message, send_until};
use super::record::{Description, Logged, LoggedPeer, LoggedResponse, Record};
use super::staged::Staged;
use super::text::Dates;
use flatout_os::clock;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Size at which a buffer is sent to the writer, in bytes. Each sweep sends all buffers, too.
const BUFFER_BYTES_MAX: usize = 32 * 1024;

/// Maximum number of empty buffers retained per worker; others are freed.
const SPARES_MAX: usize = 2;

/// Maximum time that a stopping worker waits for room in the queue for its last lines.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// One worker's part of all logs.
#[derive(Debug)]
pub struct WorkerLog {
    set: LogSet,
    /// The states of the set's logs, by index.
    lanes: Vec<Lane>,
    /// The states of removed logs that still have pending lines.
    retired: Vec<Lane>,
    staged: Staged,
    dates: Dates,
    home: SyncSender<Vec<u8>>,
    spares: Receiver<Vec<u8>>,
}

/// One worker's state for one log.
#[derive(Debug)]
struct Lane {
    log: Arc<LogHandle>,
    buffer: Vec<u8>,
    buffer_lines: u64,
    /// Number of lines staged but not committed.
    staged_lines: usize,
}

impl WorkerLog {
    pub(super) fn new(set: &LogSet) -> Self {
        let (home, spares) = sync_channel(SPARES_MAX);
        let (lanes, retired) = (Vec::new(), Vec::new());
        let mut log = Self {
            set: LogSet::default(),
            lanes,
            retired,
            staged: Staged::default(),
            dates: Dates::new(),
            home,
            spares,
        };
        log.adopt(set);
        log
    }

    /// Creates a worker's part without any log.
    pub fn none() -> Self {
        Self::new(&LogSet::default())
    }

    /// Switches to the logs of `set`. Pending lines still go to their former logs.
    pub fn adopt(&mut self, set: &LogSet) {
        let mut before = std::mem::take(&mut self.lanes);
        for log in set.0.iter() {
            let kept = before.iter().position(|lane| Arc::ptr_eq(&lane.log, log));
            self.lanes.push(match kept {
                Some(index) => before.swap_remove(index),
                None => Lane::new(log),
            });
        }
        self.retired.append(&mut before);
        self.set = set.clone();
        // Logs without pending lines are dropped immediately, because the next sweep may not happen soon.
        self.flush();
    }

    /// Returns whether there are any logs.
    pub const fn is_on(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Stages the line for a request and its response. `unix_ms` is the current time.
    pub fn stage(&mut self, peer: LoggedPeer, unix_ms: i64, logged: Logged<'_>, answer: &LoggedResponse<'_>) {
        if let Some(lane) = self.lanes.get_mut(usize::from(answer.facts.log)) {
            let record = Record::new(peer, unix_ms, logged).with_client(answer.facts.client);
            lane.stage(&mut self.staged, &mut self.dates, &record, answer);
        }
    }

    /// Copies the data to be logged of a request whose response is not known yet.
    pub fn describe(&self, peer: LoggedPeer, unix_ms: i64, logged: Logged<'_>) -> Description {
        Description::new(&Record::new(peer, unix_ms, logged), self.set.clone())
    }

    /// Stages the line for a request from its description.
    pub fn stage_described(&mut self, description: &Description, answer: &LoggedResponse<'_>) {
        let Some(log) = description.logs.0.get(usize::from(answer.facts.log)) else { return };
        let is_its_lane = |lane: &Lane| lane.log.number == log.number;
        let lane = if let Some(index) = self.lanes.iter().position(is_its_lane) {
            &mut self.lanes[index]
        } else {
            let index = self.retired.iter().position(is_its_lane).unwrap_or_else(|| {
                self.retired.push(Lane::new(log));
                self.retired.len() - 1
            });
            &mut self.retired[index]
        };
        let record = description.record().with_client(answer.facts.client);
        lane.stage(&mut self.staged, &mut self.dates, &record, answer);
    }

    /// Returns whether any lines are staged.
    pub fn has_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    /// Records that the response of the last staged line ends at the current end of the output, at `output_bytes`.
    pub fn mark(&mut self, output_bytes: usize) {
        self.staged.mark(output_bytes);
    }

    /// Takes the staged lines, to be committed when their responses have ended. Lines whose responses lie within the
    /// first `taken` bytes of output are immediately committed as `sent`.
    pub fn take_staged(&mut self, taken: usize, now_ns: u64) -> Staged {
        let unsent = self.staged.split_off_unsent(taken);
        self.commit("sent", now_ns);
        unsent
    }

    /// Commits the staged lines, whose responses ended with `ending` at `now_ns`.
    pub fn commit(&mut self, ending: &'static str, now_ns: u64) {
        let mut staged = std::mem::take(&mut self.staged);
        self.commit_staged(&staged, ending, now_ns);
        staged.clear();
        staged.shrink(BUFFER_BYTES_MAX);
        self.staged = staged;
    }

    /// Commits lines that were taken: as `sent` if the response has been sent completely according to
    /// [`Staged::advance`], and otherwise with `ending`.
    pub fn commit_staged(&mut self, staged: &Staged, ending: &'static str, now_ns: u64) {
        for line in staged.ended(ending, now_ns) {
            let is_its_lane = |lane: &&mut Lane| lane.log.number == line.log;
            let Some(lane) = self.lanes.iter_mut().chain(&mut self.retired).find(is_its_lane) else { continue };
            line.append_to(&mut lane.buffer);
            lane.buffer_lines += 1;
            lane.staged_lines = lane.staged_lines.saturating_sub(1);
            if lane.buffer.len() >= BUFFER_BYTES_MAX {
                lane.flush(&self.home, &self.spares);
            }
        }
    }

    /// Returns whether no buffered lines wait to be sent to the writer.
    pub fn is_empty(&self) -> bool {
        self.lanes.iter().chain(&self.retired).all(|lane| lane.buffer.is_empty())
    }

    /// Sends buffered lines to the writer. If the queue is full, the lines are lost and counted.
    pub fn flush(&mut self) {
        for lane in self.lanes.iter_mut().chain(&mut self.retired) {
            lane.flush(&self.home, &self.spares);
        }
        self.retired.retain(|lane| lane.staged_lines > 0);
    }

    /// Sends the last lines when the worker stops, waiting for room in the queue.
    pub fn finish(&mut self) {
        let deadline = clock::now() + FINISH_TIMEOUT;
        for mut lane in self.lanes.drain(..).chain(self.retired.drain(..)) {
            if lane.buffer.is_empty() {
                continue;
            }
            let chunk = lane.take_chunk(&self.home, Vec::new());
            let lines = chunk.lines;
            if send_until(&lane.log.queue, Message::Chunk(chunk), deadline).is_err() {
                lane.log.channel.count_lost(lines);
            }
        }
    }
}

#[cfg(test)]
impl WorkerLog {
    pub(super) fn spare_count(&self) -> usize {
        self.spares.try_iter().count()
    }
}

impl Lane {
    fn new(log: &Arc<LogHandle>) -> Self {
        Self { log: Arc::clone(log), buffer: Vec::new(), buffer_lines: 0, staged_lines: 0 }
    }

    fn stage(&mut self, staged: &mut Staged, dates: &mut Dates, record: &Record<'_>, answer: &LoggedResponse<'_>) {
        let gaps = self.log.form.append(staged.text_mut(), dates, record, answer);
        staged.end_line(self.log.number, gaps, answer.started_ns);
        self.staged_lines += 1;
    }

    fn take_chunk(&mut self, home: &SyncSender<Vec<u8>>, spare: Vec<u8>) -> Chunk {
        let bytes = std::mem::replace(&mut self.buffer, spare);
        let lines = std::mem::take(&mut self.buffer_lines);
        Chunk { channel: Arc::clone(&self.log.channel), bytes, lines, home: home.clone() }
    }

    fn flush(&mut self, home: &SyncSender<Vec<u8>>, spares: &Receiver<Vec<u8>>) {
        if self.buffer.is_empty() {
            return;
        }
        let chunk = self.take_chunk(home, spares.try_recv().unwrap_or_default());
        let Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) =
            self.log.queue.try_send(Message::Chunk(chunk))
        else {
            return;
        };
        if let Message::Chunk(chunk) = message {
            self.log.channel.count_lost(chunk.lines);
            recycle(chunk);
        }
    }
}

/// Returns the emptied buffer of `chunk` to its worker, if the worker can use it.
pub(super) fn recycle(chunk: Chunk) {
    let mut bytes = chunk.bytes;
    // A buffer that grew because of a very long line is freed.
    if bytes.capacity() <= 2 * BUFFER_BYTES_MAX {
        bytes.clear();
        let _ = chunk.home.try_send(bytes);
    }
}
