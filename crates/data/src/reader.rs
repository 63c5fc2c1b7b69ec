//! The reading thread.

use crate::connection::Session;
use crate::database::{DatabaseShared, ReadJob};
use crate::statement::{self, Ran};
use crate::writer::WriteJob;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

/// Runs statements until the queue is closed.
pub(crate) fn run(session: &Session, shared: &DatabaseShared) {
    while let Some(ask) = shared.reads.pop() {
        let Some(ask) = ask.in_time(&shared.counters) else { continue };
        // A panic is a defect. The thread continues with the next statement.
        let _ = catch_unwind(AssertUnwindSafe(|| answer(session, shared, ask)));
    }
}

fn answer(session: &Session, shared: &DatabaseShared, ask: ReadJob) {
    session.bounds.wait_until(ask.wait_until());
    match statement::read(session, &ask.sql, &ask.parameters, &ask.limits, ask.promise.watch()) {
        Ok(Ran::Rows(rows)) => {
            shared.counters.reads.fetch_add(1, Ordering::Relaxed);
            ask.promise.keep(Ok(rows));
        }
        // Forwards the statement to the writer. Its waiting time counts from when it was first queued.
        Ok(Ran::Writes) => shared.write(WriteJob::One(ask)),
        Err(error) => {
            shared.counters.failed.fetch_add(1, Ordering::Relaxed);
            ask.promise.keep(Err(error));
        }
    }
}
