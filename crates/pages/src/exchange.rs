//! The state of a running page: the request, the response in progress and the output.
//!
//! The driver owns an [`Exchange`], passes it to a [`Run`](crate::sandbox::Run) and gets it back when the run has
//! ended. Its buffers keep their capacity between requests, and unused parts cost nothing. It contains no Luau values
//! and does no I/O.

pub mod draft;
pub mod facts;
pub mod output;

use crate::sandbox::wait::Wanted;
use draft::Draft;
use facts::RequestFacts;
use flatout_handler::content::Offers;
use output::Output;
use std::any::{Any, TypeId};
use std::cell::Cell;
use std::rc::Rc;

/// Maximum number of bytes that one request may print to the log; any more are discarded.
pub const PRINTED_BYTES_MAX: usize = 64 * 1024;

/// A counter of the bytes that a run holds outside of the virtual machine and its exchange: forms, content, rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside(Rc<Cell<usize>>);

impl Beside {
    /// Returns the counter of the current request.
    pub(crate) fn of(exchange: &mut Exchange) -> Self {
        exchange.slot::<Self>().clone()
    }

    /// Total number of bytes held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.0.get()
    }

    /// Counts `bytes` as held until the returned value is dropped.
    pub(crate) fn hold(&self, bytes: usize) -> Held {
        self.0.set(self.0.get().saturating_add(bytes));
        Held { beside: self.clone(), bytes }
    }
}

/// Bytes that are counted as held until this value is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    beside: Beside,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.beside.0.set(self.beside.0.get().saturating_sub(self.bytes));
    }
}

/// A flag that is true while the page has an open transaction, which it must end itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unfinished(Rc<Cell<bool>>);

impl Unfinished {
    /// Returns the flag of the current request.
    pub(crate) fn of(exchange: &mut Exchange) -> Self {
        exchange.slot::<Self>().clone()
    }

    /// Records that a transaction has begun (true) or ended (false).
    pub(crate) fn set(&self, is_unfinished: bool) {
        self.0.set(is_unfinished);
    }
}

/// A transaction that was still open when its page ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abandoned {
    /// The line at which the page ended itself, if known.
    pub(crate) line: Option<u32>,
}

/// Everything that the page of a request reads and writes.
#[derive(Default, derive_more::Debug)]
#[debug("Exchange {{ facts: {facts:?}, draft: {draft:?}, output: {output:?}, .. }}")]
pub struct Exchange {
    /// The request.
    pub facts: RequestFacts,
    /// Status, header fields and cache policy of the response.
    pub draft: Draft,
    /// Static segments and generated text, in the order in which the page has written them.
    pub output: Output,
    /// The request's content and the channel for interim responses. The driver sets it if the request has content.
    pub offers: Option<Offers>,
    /// The operation that the driver must await. A waiting native function sets it, and the run takes it.
    pub(crate) wanted: Option<Wanted>,
    /// True if the page has requested that the output so far be sent.
    pub(crate) flush: bool,
    /// True if the page has ended its run early.
    pub(crate) halted: bool,
    /// The transaction in which the page has ended, if any.
    pub(crate) abandoned: Option<Abandoned>,
    /// True if the head of the response is being sent, so it can no longer change.
    pub(crate) head_sent: bool,
    /// Lines that the page has printed to the log.
    printed: Vec<u8>,
    /// State of API modules for this request, by type.
    slots: Vec<(TypeId, Box<dyn Any>)>,
}

impl Exchange {
    /// Clears the exchange for the next request. Capacity up to [`output::ROOM_KEPT_BYTES_MAX`] is retained.
    pub fn clear(&mut self) {
        self.facts.clear();
        self.draft.clear();
        self.output.clear();
        self.offers = None;
        self.wanted = None;
        self.flush = false;
        self.halted = false;
        self.abandoned = None;
        self.head_sent = false;
        self.printed.clear();
        self.printed.shrink_to(0);
        self.slots.clear();
    }

    /// The lines that the page has printed to the log.
    pub fn printed(&self) -> &[u8] {
        &self.printed
    }

    /// Removes and returns the printed lines.
    pub fn take_printed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.printed)
    }

    /// Appends a line for the log, truncated or discarded if the limit is reached.
    pub fn print(&mut self, text: &[u8]) {
        let room = PRINTED_BYTES_MAX.saturating_sub(self.printed.len());
        if room > 1 {
            self.printed.extend_from_slice(&text[..text.len().min(room - 1)]);
            self.printed.push(b'\n');
        }
    }

    /// Number of bytes held outside of the virtual machine, which count towards the run's memory limit.
    pub(crate) fn held_bytes(&self) -> usize {
        let beside = self.part::<Beside>().map_or(0, Beside::held_bytes);
        self.output.held_bytes() + self.draft.held_bytes() + self.printed.len() + beside
    }

    /// Returns whether the page has an open transaction.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.part::<Unfinished>().is_some_and(|unfinished| unfinished.0.get())
    }

    fn part<T: 'static>(&self) -> Option<&T> {
        self.slots.iter().find_map(|(_, part)| part.downcast_ref())
    }

    /// Returns the state of type `T`, which is created on first use and dropped when the request ends.
    pub fn slot<T: Default + 'static>(&mut self) -> &mut T {
        let wanted = TypeId::of::<T>();
        let at = self.slots.iter().position(|(kind, _)| *kind == wanted).unwrap_or_else(|| {
            self.slots.push((wanted, Box::new(T::default())));
            self.slots.len() - 1
        });
        // The slot was found by its type, so only a broken `TypeId` could make this fail.
        match self.slots[at].1.downcast_mut() {
            Some(part) => part,
            None => unreachable!("a slot is found by its type"),
        }
    }

    /// Returns the state of type `T`, if it exists.
    pub fn slot_if<T: 'static>(&mut self) -> Option<&mut T> {
        self.slots.iter_mut().find_map(|(_, part)| part.downcast_mut())
    }

    /// Ends the page's run as if its last statement had run. If a transaction is open, it is rolled back when the
    /// exchange is cleared, and `line` is called to obtain, for the log, the line at which the page ended itself.
    pub fn halt(&mut self, line: impl FnOnce() -> Option<u32>) {
        self.halted = true;
        if self.is_unfinished() {
            self.abandoned = Some(Abandoned { line: line() });
        }
    }
}
