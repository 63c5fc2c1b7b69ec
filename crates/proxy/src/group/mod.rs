//! Which origin is asked.
use flatout_config::model::{Origin, Proxy};
use std::sync::Arc;

/// Attempts of one request that are remembered: the first and ten retries, which is all that the settings allow.
pub const TRIED_MAX: usize = 11;

/// The origins that one request has tried. More than [`TRIED_MAX`] are not remembered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried {
    indices: [u16; TRIED_MAX],
    count: u8,
}

impl Tried {
    /// None yet.
    pub const NONE: Self = Self { indices: [0; TRIED_MAX], count: 0 };
    /// Adds the origin of this index.
    pub fn add(&mut self, _index: usize) {
        unimplemented!()
    }
    /// Whether it was tried.
    pub fn contains(&self, _index: usize) -> bool {
        unimplemented!()
    }
    /// Attempts so far.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }
}

/// How a request that an origin was given ended, as far as the origin's health is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It answered, whatever the status: whoever asks for a page that fails must not be able to take an origin out.
    Answered,
    /// It did not: no connection, no whole head in time, an answer that breaks the protocol or off.
    Failed,
    /// It tells nothing: the client went away, or the request was never sent.
    Abandoned,
}

/// Why an origin is in or out now, when that has just changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Checks succeeded so often in a row that it is in again.
    ChecksPassed,
    /// Checks failed so often in a row that it is out.
    ChecksFailed,
    /// Requests failed so often in a row that it is left out for a while.
    Paused,
    /// The request that was tried after the pause was answered: it is in again.
    TrialPassed,
    /// The request that was tried after the pause failed: it is left out for another while.
    TrialFailed,
}

impl Change {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        ""
    }
}

/// What is known of an origin, for metrics and `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It gets its share.
    Well,
    /// It gets a part of its share, in thousandths, as it has just come back.
    Starting(u16),
    /// Requests failed; it is left out up to this time.
    PausedUntil(u64),
    /// Its pause is over and one request is tried, or will be.
    Trial,
    /// Its health checks fail.
    Down,
}

/// The origins of one `proxy`, shared by all workers.
#[derive(Debug)]
pub struct Group {
    origins: Vec<Origin>,
}

impl Group {
    /// All of them well. `settings.origins` has at least one.
    pub fn new(settings: &Proxy) -> Self {
        Self { origins: settings.origins.clone() }
    }

    /// The origins, as configured; indices everywhere are into these.
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// Chooses an origin that is not in `tried`. `key_hash` decides under consistent hashing alone (see
    /// [`hash_key`]). `None`: all that are well enough were tried (`tried.count() > 0`), or none is
    /// ([`OriginNoneWell`](crate::outcome::ForwardOutcome::OriginNoneWell)).
    pub fn choose(self: &Arc<Self>, _now_ms: u64, _key_hash: u64, _tried: &Tried) -> Option<Ticket> {
        unimplemented!()
    }

    /// Takes the result of an active check.
    pub fn handle_check(&self, _index: usize, _good: bool, _now_ms: u64) -> Option<Change> {
        unimplemented!()
    }

    /// What is known of the origin of this index.
    pub fn standing(&self, _index: usize, _now_ms: u64) -> Standing {
        unimplemented!()
    }

    /// Requests under way to the origin of this index.
    pub fn under_way(&self, _index: usize) -> u32 {
        unimplemented!()
    }
}

/// The hash of what [`HashKey`](flatout_config::model::HashKey) names, the same in every process.
pub fn hash_key(_bytes: &[u8]) -> u64 {
    unimplemented!()
}

/// One request to one origin. Dropped, it counts as [`Ending::Abandoned`].
#[derive(Debug)]
pub struct Ticket {
    group: Arc<Group>,
    index: usize,
}

impl Ticket {
    /// Which origin.
    pub fn index(&self) -> usize {
        self.index
    }
    /// The origin.
    pub fn origin(&self) -> &Origin {
        &self.group.origins[self.index]
    }
    /// Whether this request tries out an origin that was left out. Whoever can should send one that may be repeated.
    pub fn is_trial(&self) -> bool {
        unimplemented!()
    }
    /// Tells early, at the head of the answer, how it went; the request stays under way until the ticket is dropped.
    pub fn report(&mut self, _ending: Ending, _now_ms: u64) -> Option<Change> {
        unimplemented!()
    }
    /// Ends the request: [`report`](Self::report) and drop.
    pub fn finish(mut self, ending: Ending, now_ms: u64) -> Option<Change> {
        self.report(ending, now_ms)
    }
}
