//! The state of a running page: the request's facts, the response in progress and the pieces of output.
//!
//! The driver owns an [`Exchange`], hands it to a [`Run`](crate::sandbox::Run) and receives it back when the run has
//! ended. Its buffers retain their capacity between requests, and unused parts cost nothing. It contains no Luau and
//! no I/O.

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

/// Bytes that one request may print to the log; more are dropped.
pub const PRINTED_BYTES_MAX: usize = 64 * 1024;

/// Bytes that a run holds outside of the virtual machine and its exchange: forms, contents, rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside(Rc<Cell<usize>>);

impl Beside {
    /// The counter of the running request.
    pub(crate) fn of(exchange: &mut Exchange) -> Self {
        exchange.slot::<Self>().clone()
    }

    /// Bytes held in total.
    pub(crate) fn held_bytes(&self) -> usize {
        self.0.get()
    }

    /// Counts `bytes` until the result is dropped.
    pub(crate) fn hold(&self, bytes: usize) -> Held {
        self.0.set(self.0.get().saturating_add(bytes));
        Held { beside: self.clone(), bytes }
    }
}

/// Counted bytes.
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

/// True while the page is in a state that it must end itself: a transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unfinished(Rc<Cell<bool>>);

impl Unfinished {
    /// The flag of the running request.
    pub(crate) fn of(exchange: &mut Exchange) -> Self {
        exchange.slot::<Self>().clone()
    }

    /// Records the start or the end of that state.
    pub(crate) fn set(&self, is_unfinished: bool) {
        self.0.set(is_unfinished);
    }
}

/// A transaction that was open when its page ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abandoned {
    /// The line of the page that ended it, if known.
    pub(crate) line: Option<u32>,
}

/// Everything that the page of one request reads and writes.
#[derive(Default)]
pub struct Exchange {
    /// The request.
    pub facts: RequestFacts,
    /// Status, field lines and cache policy of the response.
    pub draft: Draft,
    /// The output.
    pub output: Output,
    /// The request's content and the channel for interim responses; set by the driver if the request has content.
    pub offers: Option<Offers>,
    /// The operation that the driver must await: set by a waiting native function, taken by the run.
    pub(crate) wanted: Option<Wanted>,
    /// The page requested sending the output so far.
    pub(crate) flush: bool,
    /// The page has ended its run early.
    pub(crate) halted: bool,
    /// The transaction in which the page ended.
    pub(crate) abandoned: Option<Abandoned>,
    /// The head of the response is being sent, so it cannot change.
    pub(crate) head_sent: bool,
    /// Printed lines, for the log.
    printed: Vec<u8>,
    /// Per-request state of API modules, by type.
    slots: Vec<(TypeId, Box<dyn Any>)>,
}

impl Exchange {
    /// Clears it for the next request. Capacity up to [`output::ROOM_KEPT_BYTES_MAX`] is retained.
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

    /// The printed lines, for the log.
    pub fn printed(&self) -> &[u8] {
        &self.printed
    }

    /// Takes the printed lines.
    pub fn take_printed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.printed)
    }

    /// Appends a line for the log, as far as there is room.
    pub fn print(&mut self, text: &[u8]) {
        let room = PRINTED_BYTES_MAX.saturating_sub(self.printed.len());
        if room > 1 {
            self.printed.extend_from_slice(&text[..text.len().min(room - 1)]);
            self.printed.push(b'\n');
        }
    }

    /// Bytes held outside of the virtual machine, which count against the run's memory limit.
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

    /// The state of type `T`, created on first use. It lives until the request ends.
    pub fn slot<T: Default + 'static>(&mut self) -> &mut T {
        let wanted = TypeId::of::<T>();
        let at = self.slots.iter().position(|(kind, _)| *kind == wanted).unwrap_or_else(|| {
            self.slots.push((wanted, Box::new(T::default())));
            self.slots.len() - 1
        });
        // The type was compared: only a broken `TypeId` could reach the fallback.
        match self.slots[at].1.downcast_mut() {
            Some(part) => part,
            None => unreachable!("a slot is found by its type"),
        }
    }

    /// The state of type `T`, if it exists.
    pub fn slot_if<T: 'static>(&mut self) -> Option<&mut T> {
        self.slots.iter_mut().find_map(|(_, part)| part.downcast_mut())
    }

    /// Ends the page's run, as if its last statement had run. An open transaction is rolled back when the exchange is
    /// cleared; `line` then returns the line of the page that ended it, for the log.
    pub fn halt(&mut self, line: impl FnOnce() -> Option<u32>) {
        self.halted = true;
        if self.is_unfinished() {
            self.abandoned = Some(Abandoned { line: line() });
        }
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Exchange")
            .field("facts", &self.facts)
            .field("draft", &self.draft)
            .field("output", &self.output)
            .finish_non_exhaustive()
    }
}
