//! Statements that hold together, one at a time: a page looks at what one said before it asks the next.

use crate::pending::Pending;
use crate::rows::Rows;
use crate::value::Parameters;

/// A transaction that a page leads. It sees what it wrote; nobody else does before [`commit`](Self::commit). Dropped
/// without it, and after [`Limits::transaction_max_ms`](crate::Limits::transaction_max_ms), it is rolled back.
#[derive(Debug)]
pub struct Transaction {}

impl Transaction {
    /// Runs a statement, reading or writing. One that fails leaves no effect and the transaction standing, except
    /// where SQLite says that all is rolled back: then everything further is
    /// [`DataReason::TransactionEnded`](crate::DataReason::TransactionEnded).
    pub fn execute(&self, sql: &str, parameters: Parameters) -> Pending<Rows> {
        let _ = (sql, parameters);
        unimplemented!()
    }

    /// Makes what was written lasting. An error means that nothing of it is.
    pub fn commit(self) -> Pending<()> {
        unimplemented!()
    }

    /// Undoes what was written. Dropping does the same, without telling when it is done.
    pub fn rollback(self) -> Pending<()> {
        unimplemented!()
    }
}
