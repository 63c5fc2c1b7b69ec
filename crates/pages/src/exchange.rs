//! What a running page works on: the request's facts, the response in progress and the pieces of output.
//!
//! The driver owns an [`Exchange`], gives it to a [`Run`](crate::sandbox::Run) and has it back when the run has ended.
//! Its buffers keep their room from one request to the next, and what a page does not use costs nothing. There is no
//! Luau in here, and no input or output.

pub mod draft;
pub mod facts;
pub mod output;

use crate::sandbox::wait::Wanted;
use draft::Draft;
use facts::Facts;
use flatout_net::content::Offers;
use output::Output;
use std::any::{Any, TypeId};
use std::cell::Cell;
use std::rc::Rc;

/// Bytes that one request may print for the log; the rest is left out.
pub const PRINTED_BYTES_MAX: usize = 64 * 1024;

/// Bytes that a request's run holds outside of the virtual machine and of its exchange: forms, contents, rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside(Rc<Cell<usize>>);

impl Beside {
    /// Those of the running request.
    pub(crate) fn of(exchange: &mut Exchange) -> Self {
        exchange.slot::<Self>().clone()
    }

    /// All of them.
    pub(crate) fn held_bytes(&self) -> usize {
        self.0.get()
    }

    /// Counts `bytes` as long as what comes back is there.
    pub(crate) fn hold(&self, bytes: usize) -> Held {
        self.0.set(self.0.get().saturating_add(bytes));
        Held { beside: self.clone(), bytes }
    }
}

/// Bytes that are counted.
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

/// Whether the page has begun what it must end before it ends: a transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unfinished(Rc<Cell<bool>>);

impl Unfinished {
    /// That of the running request.
    pub(crate) fn of(exchange: &mut Exchange) -> Self {
        exchange.slot::<Self>().clone()
    }

    /// Notes that something has begun, or ended.
    pub(crate) fn set(&self, is_unfinished: bool) {
        self.0.set(is_unfinished);
    }
}

/// A transaction that the page left open when it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abandoned {
    /// The line of the page's code that ended it, where that is known.
    pub(crate) line: Option<u32>,
}

/// Everything one request's page sees and makes.
#[derive(Default)]
pub struct Exchange {
    /// What was asked.
    pub facts: Facts,
    /// Status, field lines and cache policy of the answer.
    pub draft: Draft,
    /// What was written.
    pub output: Output,
    /// The request's content and the way for interim answers; the driver sets it when the request has content.
    pub offers: Option<Offers>,
    /// What was left for the driver to wait for: set by a waiting native, taken by the run.
    pub(crate) wanted: Option<Wanted>,
    /// Whether the page asked for what was written so far to be sent.
    pub(crate) flush: bool,
    /// Whether the page has said that it is done.
    pub(crate) halted: bool,
    /// The transaction that the page has ended within.
    pub(crate) abandoned: Option<Abandoned>,
    /// Whether the head of the answer is on its way, so that nothing of it can be changed.
    pub(crate) head_sent: bool,
    /// What the page printed, a line each, for the log.
    printed: Vec<u8>,
    /// What parts of the interface keep for the length of the request, by their types.
    slots: Vec<(TypeId, Box<dyn Any>)>,
}

impl Exchange {
    /// Empties it for the next request. Room of up to [`output::ROOM_KEPT_BYTES_MAX`] stays.
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

    /// What the page printed: lines, for the log.
    pub fn printed(&self) -> &[u8] {
        &self.printed
    }

    /// The same, which are gone then.
    pub fn take_printed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.printed)
    }

    /// Adds a line for the log, as far as there is room.
    pub fn print(&mut self, text: &[u8]) {
        let room = PRINTED_BYTES_MAX.saturating_sub(self.printed.len());
        if room > 1 {
            self.printed.extend_from_slice(&text[..text.len().min(room - 1)]);
            self.printed.push(b'\n');
        }
    }

    /// Bytes held outside of the virtual machine, which count against the run's memory.
    pub(crate) fn held_bytes(&self) -> usize {
        let beside = self.part::<Beside>().map_or(0, Beside::held_bytes);
        self.output.held_bytes() + self.draft.held_bytes() + self.printed.len() + beside
    }

    /// Whether the page leads a transaction.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.part::<Unfinished>().is_some_and(|unfinished| unfinished.0.get())
    }

    fn part<T: 'static>(&self) -> Option<&T> {
        self.slots.iter().find_map(|(_, part)| part.downcast_ref())
    }

    /// The part of type `T`, made when it is first asked for. It lives until the request ends.
    pub fn slot<T: Default + 'static>(&mut self) -> &mut T {
        let wanted = TypeId::of::<T>();
        let at = self.slots.iter().position(|(kind, _)| *kind == wanted).unwrap_or_else(|| {
            self.slots.push((wanted, Box::new(T::default())));
            self.slots.len() - 1
        });
        // The type was compared: only a broken `TypeId` could get past this to the fallback.
        match self.slots[at].1.downcast_mut() {
            Some(part) => part,
            None => unreachable!("a slot is found by its type"),
        }
    }

    /// The part of type `T`, when there is one.
    pub fn slot_if<T: 'static>(&mut self) -> Option<&mut T> {
        self.slots.iter_mut().find_map(|(_, part)| part.downcast_mut())
    }

    /// Ends the page's run, as if its last statement had run. A transaction that the page leads is rolled back when the
    /// exchange is cleared; `line` then names the line of the page's code that ended it, for the log.
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
