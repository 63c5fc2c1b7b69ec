//! Storage for active pages: SQLite with one writer and several readers, which run outside of the event loop, and a
//! shared in-memory key-value store.
//!
//! `Database::query` and `Database::execute` put a page's statement into a queue, from which a thread with a connection
//! takes it. The result is a [`Pending`], a future that the thread wakes. Code that uses a `Database` never waits for a
//! disk or a lock.
//!
//! | file | contents |
//! |---|---|
//! | [`database`] | a database file, opened once per process |
//! | [`limits`] | limits on time, number and size |
//! | [`value`], [`rows`] | inputs and results of statements |
//! | [`reason`] | errors, in one table |
//! | [`pending`] | the future of a result from another thread |
//! | `connection`, `statement` | a restricted connection; running a statement on it |
//! | `queue`, `reader`, `writer`, `writing` | threads and their queues |
//! | [`transaction`] | interactive transactions |
//! | [`migration`] | numbered schema changes, each applied once |
//! | [`kv`] | in-memory key-value store |
//!
//! Absent by design: sockets, HTTP, the pages' language, the event loop. A [`Pending`] needs only a `Waker`, so it
//! works with any runtime.

mod connection;
pub mod database;
pub mod kv;
pub mod limits;
pub mod migration;
pub mod pending;
mod queue;
mod reader;
pub mod reason;
pub mod rows;
mod statement;
#[cfg(test)]
mod tests {
    pub(crate) mod scratch;
}
pub mod transaction;
pub mod value;
mod writer;
mod writing;

pub use database::{Counts, Database};
pub use kv::{Kv, KvError, KvLimits, KvValue};
pub use limits::Limits;
pub use pending::Pending;
pub use reason::{DataError, DataReason};
pub use rows::Rows;
pub use transaction::Transaction;
pub use value::{Parameters, Statement, Value, ValueRef};
