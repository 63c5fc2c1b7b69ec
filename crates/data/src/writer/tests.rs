use crate::database::Database;
use crate::limits::Limits;
use crate::reason::{DataError, DataReason};
use crate::tests::scratch::{Scratch, number, only, reason, run, with};
use crate::value::{Parameters, Statement, ValueRef};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const INSERT: &str = "INSERT INTO t VALUES (?)";

/// Keeps the writer busy while writes queue up, so that they share a commit.
fn together<T>(database: &Database, ask: impl FnOnce() -> T) -> T {
    let holder = database.begin().wait().unwrap();
    let asked = ask();
    holder.rollback().wait().unwrap();
    asked
}

#[test]
fn writes_that_wait_share_a_commit() {
    let scratch = Scratch::new();
    let database = scratch.database(Limits::default());
    run(&database, &["CREATE TABLE t (a UNIQUE)"]);
    let before = database.counts();
    let writes =
        together(&database, || (0..100).map(|value| database.execute(INSERT, with(&[value]))).collect::<Vec<_>>());
    for write in writes {
        write.wait().unwrap();
    }
    let after = database.counts();
    assert_eq!(after.writes - before.writes, 100);
    assert!(after.commits - before.commits < 100, "{after:?}");
    assert_eq!(number(&database, "SELECT count(*) FROM t"), 100);
}

#[test]
fn each_fails_alone() {
    let scratch = Scratch::new();
    let database = scratch.database(Limits { statement_max_ms: 100, ..Limits::default() });
    run(&database, &["CREATE TABLE t (a UNIQUE)"]);
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n) INSERT INTO t SELECT i FROM n";
    let (one, again, wrong, long, list, two) = together(&database, || {
        let pair = |values: [i64; 2]| {
            values.map(|value| Statement { sql: INSERT.to_owned(), parameters: with(&[value]) }).to_vec()
        };
        (
            database.execute(INSERT, with(&[1])),
            database.execute("INSERT INTO t VALUES (5), (1)", Parameters::None),
            database.execute("INSERT INTO nowhere VALUES (1)", Parameters::None),
            database.execute(endless, Parameters::None),
            database.transaction(pair([6, 1])),
            database.execute("INSERT INTO t VALUES (2) RETURNING (SELECT count(*) FROM t)", Parameters::None),
        )
    });
    one.wait().unwrap();
    assert_eq!(reason(again.wait()), DataReason::ConstraintUnique);
    assert_eq!(reason(wrong.wait()), DataReason::SqlInvalid);
    assert_eq!(reason(long.wait()), DataReason::StatementTimeout);
    assert_eq!(reason(list.wait()), DataReason::ConstraintUnique);
    two.wait().unwrap();
    assert_eq!((number(&database, "SELECT count(*) FROM t"), number(&database, "SELECT sum(a) FROM t")), (2, 3));
}

/// If SQLite rolls back the whole batch, only the job that caused it fails.
#[test]
fn a_full_rollback_affects_one_job() {
    let scratch = Scratch::new();
    let database = scratch.database(Limits::default());
    run(&database, &["CREATE TABLE t (a UNIQUE)", "CREATE TABLE c (a REFERENCES t (a) DEFERRABLE INITIALLY DEFERRED)"]);
    let before = database.counts();
    let (first, rollback, last) = together(&database, || {
        (
            database.execute(INSERT, with(&[1])),
            database.execute("INSERT OR ROLLBACK INTO t VALUES (1)", Parameters::None),
            database.execute(INSERT, with(&[2])),
        )
    });
    first.wait().unwrap();
    assert_eq!(reason(rollback.wait()), DataReason::ConstraintUnique);
    last.wait().unwrap();
    // A foreign key that is checked at the commit is satisfied by nobody else's row.
    let (first, deferred, last) = together(&database, || {
        (
            database.execute(INSERT, with(&[3])),
            database.execute("INSERT INTO c VALUES (9)", Parameters::None),
            database.execute(INSERT, with(&[9])),
        )
    });
    first.wait().unwrap();
    assert_eq!(reason(deferred.wait()), DataReason::ConstraintForeignKey);
    last.wait().unwrap();
    assert_eq!((number(&database, "SELECT count(*) FROM t"), number(&database, "SELECT count(*) FROM c")), (4, 0));
    let after = database.counts();
    assert_eq!((after.writes - before.writes, after.failed - before.failed), (4, 2));
}

#[test]
fn a_full_file_is_an_answer() {
    let scratch = Scratch::new();
    // The bound on the file's pages stands for the disk's end: SQLite answers either with the same code.
    let other = rusqlite::Connection::open(scratch.path("site.db")).unwrap();
    other.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (a)").unwrap();
    let mut session = crate::connection::Session::open(
        &scratch.path("site.db"),
        crate::connection::Role::Writer,
        std::time::Instant::now(),
    )
    .unwrap();
    session.command("PRAGMA max_page_count = 20").unwrap();
    let (queue, counters) = (crate::queue::JobQueue::new(), crate::database::Counters::default());
    let (promises, pending): (Vec<_>, Vec<_>) = (0..50).map(|_| crate::pending::pair()).unzip();
    for promise in promises {
        let ask = crate::database::ReadJob {
            sql: "INSERT INTO t VALUES (zeroblob(4000))".into(),
            parameters: Parameters::None,
            limits: Limits::default(),
            asked_at: std::time::Instant::now(),
            promise,
        };
        assert!(queue.push(super::WriteJob::One(ask), 100).is_ok());
    }
    queue.finish();
    super::run(&crate::writing::Writing::new(&session).unwrap(), &queue, &counters);
    let answers: Vec<Result<_, DataError>> = pending.into_iter().map(crate::pending::Pending::wait).collect();
    let written = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!((10..20).contains(&written), "{written}");
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|rows| rows.changes == 1)
        || answer.as_ref().is_err_and(|error| error.reason == DataReason::DiskFull)));
    let count: u32 = session.connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
    assert_eq!(count as usize, written);
    session.connection.progress_handler(0, None::<fn() -> bool>).unwrap();
}

/// 50 writers and 500 readers, each in its own thread: acknowledged writes are present, and every reader sees complete
/// transactions.
#[test]
fn a_crowd_reconciles() {
    const WRITERS: i64 = 50;
    const READERS: usize = 500;
    const WRITES: i64 = 20;
    let scratch = Scratch::new();
    let database = scratch.database(Limits::default());
    run(
        &database,
        &[
            "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)",
            "CREATE TABLE entry (writer INTEGER NOT NULL, number INTEGER NOT NULL, UNIQUE (writer, number))",
            "INSERT INTO account SELECT value, 100 FROM json_each('[1,2,3,4,5,6,7,8,9,10]')",
        ],
    );
    let is_over = Arc::new(AtomicBool::new(false));
    let reads = Arc::new(AtomicU64::new(0));
    thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let (database, is_over, reads) = (database.clone(), Arc::clone(&is_over), Arc::clone(&reads));
                scope.spawn(move || {
                    loop {
                        assert_eq!(number(&database, "SELECT sum(balance) FROM account"), 1000);
                        reads.fetch_add(1, Ordering::Relaxed);
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let database = database.clone();
                scope.spawn(move || {
                    for number in 0..WRITES {
                        let entry = "INSERT INTO entry VALUES (?, ?)";
                        let answer = database.execute(entry, with(&[writer, number])).wait().unwrap();
                        assert_eq!(answer.changes, 1);
                        let (from, to) = (1 + writer % 10, 1 + number % 10);
                        let pay = |id, by| Statement {
                            sql: "UPDATE account SET balance = balance + ? WHERE id = ?".to_owned(),
                            parameters: with(&[by, id]),
                        };
                        database.transaction(vec![pay(from, -1), pay(to, 1)]).wait().unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    assert_eq!(number(&database, "SELECT count(*) FROM entry"), WRITERS * WRITES);
    let counts = database.counts();
    assert_eq!((counts.failed, counts.writes), (0, 3 + 2 * (WRITERS * WRITES) as u64));
    assert_eq!(counts.reads, reads.load(Ordering::Relaxed) + 1);
}

/// Statements that a page may execute.
#[derive(Clone, Debug)]
enum Act {
    Insert(i64),
    Add(i64),
    Delete(i64),
    OrRollback(i64),
    Child(i64),
    Whole(Vec<i64>),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0_i64..8).prop_map(Act::Insert),
        (0_i64..3).prop_map(Act::Add),
        (0_i64..8).prop_map(Act::Delete),
        (0_i64..8).prop_map(Act::OrRollback),
        (0_i64..8).prop_map(Act::Child),
        proptest::collection::vec(0_i64..8, 1..4).prop_map(Act::Whole),
    ]
}

impl Act {
    fn statements(&self) -> Vec<(&'static str, i64)> {
        match self {
            Self::Insert(value) => vec![(INSERT, *value)],
            Self::Add(value) => vec![("UPDATE t SET a = a + ?", *value)],
            Self::Delete(value) => vec![("DELETE FROM t WHERE a = ?", *value)],
            Self::OrRollback(value) => vec![("INSERT OR ROLLBACK INTO t VALUES (?)", *value)],
            Self::Child(value) => vec![("INSERT INTO c VALUES (?)", *value)],
            Self::Whole(values) => values.iter().map(|value| (INSERT, *value)).collect(),
        }
    }
}

const SCHEMA: &str = "CREATE TABLE t (a UNIQUE);
    CREATE TABLE c (a REFERENCES t (a) ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED)";

/// The results of plain SQLite with each action in a separate transaction.
fn serial(acts: &[Act]) -> (Vec<Option<u64>>, Vec<i64>) {
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    connection.execute_batch(SCHEMA).unwrap();
    let answers = acts
        .iter()
        .map(|act| {
            connection.execute_batch("BEGIN").unwrap();
            let run: Result<u64, _> =
                act.statements().iter().map(|(sql, value)| connection.execute(sql, [value]).map(|n| n as u64)).sum();
            let run = run.and_then(|changes| connection.execute_batch("COMMIT").map(|()| changes));
            if run.is_err() && !connection.is_autocommit() {
                connection.execute_batch("ROLLBACK").unwrap();
            }
            run.ok()
        })
        .collect();
    let mut statement = connection.prepare("SELECT a FROM t UNION ALL SELECT -1 - a FROM c ORDER BY 1").unwrap();
    let left = statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    (answers, left)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Many concurrent writes, in as few commits as possible, have the same result as sequential ones.
    #[test]
    fn at_once_is_one_after_another(acts in proptest::collection::vec(act(), 1..30)) {
        let scratch = Scratch::new();
        let database = scratch.database(Limits::default());
        run(&database, &SCHEMA.split(';').collect::<Vec<_>>());
        let asked = together(&database, || {
            acts.iter()
                .map(|act| {
                    let statements = act
                        .statements()
                        .into_iter()
                        .map(|(sql, value)| Statement { sql: sql.to_owned(), parameters: with(&[value]) });
                    database.transaction(statements.collect())
                })
                .collect::<Vec<_>>()
        });
        let answers: Vec<_> = asked
            .into_iter()
            .map(|pending| pending.wait().ok().map(|all| all.iter().map(|rows| rows.changes).sum::<u64>()))
            .collect();
        let left = database.query("SELECT a FROM t UNION ALL SELECT -1 - a FROM c ORDER BY 1", Parameters::None).wait().unwrap();
        let left: Vec<_> = (0..left.len())
            .map(|row| match left.get(row, 0) {
                Some(ValueRef::Integer(value)) => value,
                other => panic!("{other:?}"),
            })
            .collect();
        prop_assert_eq!((answers, left), serial(&acts));
    }
}

#[test]
fn the_log_does_not_grow_for_ever() {
    let scratch = Scratch::new();
    let database = scratch.database(Limits::default());
    run(&database, &["CREATE TABLE t (a)", "INSERT INTO t VALUES (zeroblob(400000))"]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Readers overlap without end, and hold the log's tail between them.
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    number(&database, "SELECT sum(length(hex(a))) FROM t");
                }
            });
        }
        for _ in 0..400 {
            run(&database, &["UPDATE t SET a = randomblob(400000)"]);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let log = std::fs::metadata(scratch.path("site.db-wal")).unwrap().len();
    assert!(log < 120 << 20, "{log} of 160 MB written");
    assert_eq!(only(&database.query("SELECT count(*) FROM t", Parameters::None).wait().unwrap()), 1);
}
