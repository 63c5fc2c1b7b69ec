use crate::database::Database;
use crate::limits::Limits;
use crate::reason::DataReason;
use crate::tests::scratch::{Scratch, number, only, reason, run, with};
use crate::value::Parameters;
use std::time::{Duration, Instant};

fn table(scratch: &Scratch, limits: Limits) -> Database {
    let database = scratch.database(limits);
    run(&database, &["CREATE TABLE t (a UNIQUE)"]);
    database
}

const INSERT: &str = "INSERT INTO t VALUES (?)";
const COUNT: &str = "SELECT count(*) FROM t";

#[test]
fn it_sees_what_it_wrote_and_nobody_else_does() {
    let scratch = Scratch::new();
    let database = table(&scratch, Limits::default());
    let transaction = database.begin().wait().unwrap();
    transaction.execute(INSERT, with(&[1])).wait().unwrap();
    assert_eq!(only(&transaction.execute(COUNT, Parameters::None).wait().unwrap()), 1);
    assert_eq!(number(&database, COUNT), 0);
    // Who writes waits for its end.
    let other = database.execute(INSERT, with(&[2]));
    transaction.commit().wait().unwrap();
    other.wait().unwrap();
    assert_eq!(number(&database, COUNT), 2);
    assert_eq!(database.counts().transactions, 1);
}

#[test]
fn it_is_undone() {
    let scratch = Scratch::new();
    let database = table(&scratch, Limits::default());
    let transaction = database.begin().wait().unwrap();
    transaction.execute(INSERT, with(&[1])).wait().unwrap();
    transaction.rollback().wait().unwrap();
    let transaction = database.begin().wait().unwrap();
    let insert = transaction.execute(INSERT, with(&[1]));
    drop(transaction);
    insert.wait().unwrap();
    run(&database, &["INSERT INTO t VALUES (3)"]);
    assert_eq!(number(&database, COUNT), 1);
    // One that nobody took.
    drop(database.begin());
    run(&database, &["INSERT INTO t VALUES (4)"]);
}

#[test]
fn a_failure_undoes_its_statement_alone() {
    let scratch = Scratch::new();
    let database = table(&scratch, Limits { rows_max: 1, ..Limits::default() });
    let transaction = database.begin().wait().unwrap();
    transaction.execute("INSERT INTO t VALUES (1), (2)", Parameters::None).wait().unwrap();
    let again = transaction.execute("INSERT INTO t VALUES (3), (2)", Parameters::None).wait();
    assert_eq!(reason(again), DataReason::ConstraintUnique);
    let much = transaction.execute("UPDATE t SET a = a + 10 RETURNING a", Parameters::None).wait();
    assert_eq!(reason(much), DataReason::RowsMax);
    let forbidden = transaction.execute("COMMIT", Parameters::None).wait();
    assert_eq!(reason(forbidden), DataReason::SqlForbidden);
    transaction.commit().wait().unwrap();
    assert_eq!((number(&database, COUNT), number(&database, "SELECT sum(a) FROM t")), (2, 3));
}

#[test]
fn a_rollback_of_sqlites_ends_it() {
    let scratch = Scratch::new();
    let database = table(&scratch, Limits::default());
    let transaction = database.begin().wait().unwrap();
    transaction.execute(INSERT, with(&[1])).wait().unwrap();
    let failed = transaction.execute("INSERT OR ROLLBACK INTO t VALUES (1)", Parameters::None).wait();
    assert_eq!(reason(failed), DataReason::ConstraintUnique);
    assert_eq!(reason(transaction.execute(INSERT, with(&[2])).wait()), DataReason::TransactionEnded);
    assert_eq!(reason(transaction.commit().wait()), DataReason::TransactionEnded);
    assert_eq!(number(&database, COUNT), 0);
    run(&database, &["INSERT INTO t VALUES (3)"]);
}

#[test]
fn rules_checked_at_the_end_undo_all() {
    let scratch = Scratch::new();
    let database = table(&scratch, Limits::default());
    run(&database, &["CREATE TABLE c (a REFERENCES t (a) DEFERRABLE INITIALLY DEFERRED)"]);
    let transaction = database.begin().wait().unwrap();
    transaction.execute("INSERT INTO c VALUES (1)", Parameters::None).wait().unwrap();
    assert_eq!(reason(transaction.commit().wait()), DataReason::ConstraintForeignKey);
    assert_eq!(number(&database, "SELECT count(*) FROM c"), 0);
    let transaction = database.begin().wait().unwrap();
    transaction.execute("INSERT INTO c VALUES (1)", Parameters::None).wait().unwrap();
    transaction.execute(INSERT, with(&[1])).wait().unwrap();
    transaction.commit().wait().unwrap();
}

#[test]
fn nobody_holds_the_writer_for_ever() {
    let scratch = Scratch::new();
    let database = table(&scratch, Limits { transaction_max_ms: 100, ..Limits::default() });
    let transaction = database.begin().wait().unwrap();
    transaction.execute(INSERT, with(&[1])).wait().unwrap();
    let started = Instant::now();
    run(&database, &["INSERT INTO t VALUES (2)"]);
    assert!(started.elapsed() >= Duration::from_millis(50));
    assert_eq!(reason(transaction.execute(INSERT, with(&[3])).wait()), DataReason::TransactionTimeout);
    assert_eq!(reason(transaction.commit().wait()), DataReason::TransactionTimeout);
    assert_eq!(number(&database, COUNT), 1);
    // Nor by asking without end.
    let transaction = database.begin().wait().unwrap();
    let ended = (0..).find_map(|value| transaction.execute(INSERT, with(&[100 + value])).wait().err());
    assert_eq!(ended.unwrap().reason, DataReason::TransactionTimeout);
    assert_eq!(number(&database, COUNT), 1);
    // Nor with one statement.
    let transaction = database.begin().wait().unwrap();
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO t SELECT -i FROM n";
    assert_eq!(reason(transaction.execute(endless, Parameters::None).wait()), DataReason::StatementTimeout);
    // SQLite undoes all when it stops a statement that writes.
    assert_eq!(reason(transaction.commit().wait()), DataReason::TransactionEnded);
    assert_eq!(number(&database, COUNT), 1);
}
