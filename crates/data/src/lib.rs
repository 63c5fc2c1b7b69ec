//! What active pages keep: a SQLite database with one writer and many readers off the event loop, and values shared
//! among workers.
//!
//! A page's statement goes `Database::query` or `Database::execute` → a queue → a thread with a connection of its own
//! → [`Pending`], a future that the thread wakes. Nobody who holds a `Database` ever waits for a disk or a lock.
//!
//! | file | what it knows |
//! |---|---|
//! | [`database`] | a database file: opened once a process, asked by every worker |
//! | [`limits`] | how long, how many and how large |
//! | [`value`], [`rows`] | what goes into a statement, and what comes out |
//! | [`reason`] | why something failed: one table |
//! | [`pending`] | an answer that another thread will give |
//! | `connection`, `statement` | a connection as pages may have it; one statement on it |
//! | `queue`, `reader`, `writer`, `writing` | the threads, and what waits for them |
//! | [`transaction`] | statements that hold together, one at a time |
//! | [`migration`] | a folder of numbered changes, each applied once |
//! | [`kv`] | values shared among workers, in memory |
//!
//! Absent by design: sockets, HTTP, the pages' language, the event loop. A [`Pending`] is woken through its `Waker`,
//! whatever runtime that belongs to.

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
#[cfg(test)]
mod scratch;
mod statement;
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
