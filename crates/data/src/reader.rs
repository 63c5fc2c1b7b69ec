//! A thread that reads.

use crate::connection::Session;
use crate::database::{Ask, Shared};
use crate::reason::DataReason;
use crate::statement::{self, Ran};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Answers what is asked until the queue is closed.
pub(crate) fn run(session: &Session, shared: &Arc<Shared>) {
    while let Some(ask) = shared.reads.pop() {
        let Some(ask) = ask.in_time(&shared.counters) else { continue };
        session.bounds.wait_until(ask.wait_until());
        match statement::read(session, &ask.sql, &ask.parameters, &ask.limits, ask.promise.watch()) {
            Ok(Ran::Rows(rows)) => {
                shared.counters.reads.fetch_add(1, Ordering::Relaxed);
                ask.promise.keep(Ok(rows));
            }
            Ok(Ran::Writes) => forward(shared, ask),
            Err(error) => {
                shared.counters.failed.fetch_add(1, Ordering::Relaxed);
                ask.promise.keep(Err(error));
            }
        }
    }
}

/// It writes after all: the writer does it. Its time in the queue counts from when it was asked.
fn forward(shared: &Shared, ask: Ask) {
    shared.write(crate::writer::Job::One(ask));
}

impl Ask {
    /// Itself, while somebody waits for it and has not waited for too long.
    pub(crate) fn in_time(self, counters: &crate::database::Counters) -> Option<Self> {
        if self.promise.is_given_up() {
            return None;
        }
        if std::time::Instant::now() >= self.wait_until() {
            counters.failed.fetch_add(1, Ordering::Relaxed);
            self.promise.keep(Err(DataReason::QueueTimeout.into()));
            return None;
        }
        Some(self)
    }
}
