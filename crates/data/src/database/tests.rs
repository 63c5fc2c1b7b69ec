use super::Database;
use crate::connection::{Role, Session, Trust};
use crate::limits::Limits;
use crate::reason::DataReason;
use crate::tests::scratch::{Scratch, number, only, reason, run, with};
use crate::value::{Parameters, Statement, Value, ValueRef};
use flatout_os::testing::wait_until;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

#[test]
fn values_keep_their_types() {
    let scratch = Scratch::new();
    let database = scratch.database(Limits::default());
    run(&database, &["CREATE TABLE t (a, b, c, d, e)"]);
    let values = vec![
        Value::Null,
        Value::Integer(i64::MIN),
        Value::Real(0.5),
        Value::Text("Grüße\0!".to_owned()),
        Value::Blob(vec![0, 255]),
    ];
    let rows = database.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?)", values.clone().into()).wait().unwrap();
    assert_eq!((rows.changes, rows.last_insert_rowid, rows.len()), (1, 1, 0));
    let rows = database.query("SELECT *, '' AS f, x'' AS g FROM t", Parameters::None).wait().unwrap();
    assert_eq!((rows.len(), rows.changes), (1, 0));
    assert_eq!(rows.columns().iter().map(|name| &**name).collect::<String>(), "abcdefg");
    let expected: Vec<_> = values.iter().map(ValueRef::from).collect();
    let found: Vec<_> = rows.row(0).collect();
    assert_eq!(found[..5], expected[..]);
    assert_eq!(found[5..], [ValueRef::Text(b""), ValueRef::Blob(b"")]);
    assert_eq!((rows.get(0, 7), rows.get(1, 0), rows.row(1).count()), (None, None, 0));
}

#[test]
fn parameters_have_names_or_places() {
    let scratch = Scratch::new();
    let database = scratch.database(Limits::default());
    let ask = |sql: &str, parameters| database.query(sql, parameters).wait().map(|rows| only(&rows));
    let named = |names: &[&str]| {
        Parameters::Named((1_i64..).zip(names).map(|(value, name)| ((*name).to_owned(), value.into())).collect())
    };
    assert_eq!(ask("SELECT ?1 * 10 + ?2", with(&[3, 4])), Ok(34));
    assert_eq!(ask("SELECT :a * 100 + @b * 10 + $c", named(&["a", "@b", "$c"])), Ok(123));
    assert_eq!(ask("SELECT :a * 10 + :a", named(&[":a"])), Ok(11));
    // A parameter that is not listed is NULL.
    assert_eq!(ask("SELECT (:a IS 1) * 10 + (:b IS NULL)", named(&["a"])), Ok(11));
    assert_eq!(ask("SELECT :a IS NULL", named(&[])), Ok(1));
    for (sql, parameters) in [
        ("SELECT ?", Parameters::None),
        ("SELECT ?", with(&[1, 2])),
        ("SELECT 1", with(&[1])),
        ("SELECT :a", Parameters::None),
        ("SELECT :a + ?", named(&["a"])),
        ("SELECT ?1", named(&[])),
        ("SELECT :a", named(&["a", "b"])),
        ("SELECT :user", named(&["usr"])),
        ("SELECT @a", named(&["a"])),
    ] {
        assert_eq!(reason(ask(sql, parameters)), DataReason::ParametersMismatch, "{sql}");
    }
}

#[test]
fn one_statement_and_no_more() {
    let scratch = Scratch::new();
    let database = scratch.database(Limits::default());
    run(&database, &["CREATE TABLE t (a)", " -- a note\nINSERT INTO t VALUES (1); -- and another \n ; "]);
    for sql in ["SELECT 1; SELECT 2", "INSERT INTO t VALUES (2); DROP TABLE t", "SELECT 1; nonsense"] {
        let asked = reason(database.query(sql, Parameters::None).wait());
        assert!(matches!(asked, DataReason::SqlMultiple | DataReason::SqlInvalid), "{sql}: {asked:?}");
        let written = reason(database.execute(sql, Parameters::None).wait());
        assert_eq!(written, asked, "{sql}");
    }
    for sql in ["", " ", "-- nothing", ";"] {
        assert_eq!(reason(database.query(sql, Parameters::None).wait()), DataReason::SqlEmpty, "{sql:?}");
        assert_eq!(reason(database.execute(sql, Parameters::None).wait()), DataReason::SqlEmpty, "{sql:?}");
    }
    for sql in ["SELEKT 1", "SELECT nothing", "SELECT \"a text\"", "SELECT * FROM nowhere", "SELECT 1\0"] {
        assert_eq!(reason(database.query(sql, Parameters::None).wait()), DataReason::SqlInvalid, "{sql:?}");
    }
    let error = database.query("SELECT *\nFORM t", Parameters::None).wait().unwrap_err();
    assert!(error.detail.contains("FORM") && error.detail.ends_with("at byte 9"), "{error}");
    let long = format!("SELECT '{}'", "x".repeat(300 << 10));
    assert_eq!(reason(database.query(&long, Parameters::None).wait()), DataReason::SqlTooLong);
    assert_eq!(number(&database, "SELECT count(*) FROM t"), 1);
}

#[test]
fn statements_forbidden_to_pages() {
    let scratch = Scratch::new();
    let database = scratch.database(Limits::default());
    run(&database, &["CREATE TABLE t (a)", "CREATE TABLE u AS SELECT 1 AS a"]);
    let elsewhere = scratch.path("elsewhere.db");
    for sql in [
        "ATTACH ':memory:' AS other",
        &format!("ATTACH '{}' AS other", elsewhere.display()),
        "DETACH main",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA user_version",
        "SELECT * FROM pragma_table_info('t')",
        "BEGIN",
        "BEGIN EXCLUSIVE",
        "COMMIT",
        "END",
        "ROLLBACK",
        "SAVEPOINT a",
        "RELEASE job",
        "ROLLBACK TO job",
        "VACUUM",
        &format!("VACUUM INTO '{}'", elsewhere.display()),
        "SELECT load_extension('/tmp/x.so')",
        "SELECT fts3_tokenizer('simple')",
        "SELECT FTS3_Tokenizer('mine', x'4141414141410000')",
        "CREATE TEMP TABLE mine (a)",
        "CREATE TEMP VIEW mine AS SELECT 1",
        "CREATE TABLE temp.mine (a)",
        "CREATE VIRTUAL TABLE temp.mine USING fts5(a)",
        "EXPLAIN PRAGMA user_version",
    ] {
        let asked = database.query(sql, Parameters::None).wait();
        assert_eq!(asked.map_err(|error| error.reason), Err(DataReason::SqlForbidden), "{sql}");
        let written = database.execute(sql, Parameters::None).wait();
        assert_eq!(written.map_err(|error| error.reason), Err(DataReason::SqlForbidden), "{sql}");
    }
    for sql in
        ["UPDATE sqlite_schema SET sql = ''", "DELETE FROM sqlite_schema", "INSERT INTO sqlite_dbpage VALUES (1, 2)"]
    {
        assert!(database.execute(sql, Parameters::None).wait().is_err(), "{sql}");
    }
    assert!(!elsewhere.exists());
    // Similar statements that are allowed.
    run(&database, &["ALTER TABLE t RENAME TO v", "ALTER TABLE v ADD COLUMN b", "ANALYZE", "REINDEX", "DROP TABLE v"]);
    run(&database, &["CREATE VIRTUAL TABLE words USING fts5(text)", "INSERT INTO words VALUES ('a fox')"]);
    assert_eq!(number(&database, "SELECT count(*) FROM words WHERE words MATCH 'fox'"), 1);
    run(
        &database,
        &["CREATE VIRTUAL TABLE stems USING fts4(text, tokenize=porter)", "INSERT INTO stems VALUES ('foxes')"],
    );
    assert_eq!(number(&database, "SELECT count(*) FROM stems WHERE stems MATCH 'fox'"), 1);
    assert_eq!(number(&database, "SELECT count(*) FROM u"), 1);
}

#[test]
fn rules_of_tables_have_names() {
    let scratch = Scratch::new();
    let database = scratch.database(Limits::default());
    run(
        &database,
        &[
            "CREATE TABLE p (id INTEGER PRIMARY KEY)",
            "CREATE TABLE t (a INTEGER UNIQUE, b NOT NULL, c CHECK (c > 0), d REFERENCES p) STRICT"
                .replace("b NOT", "b TEXT NOT")
                .replace("c CHECK", "c INTEGER CHECK")
                .replace("d REF", "d INTEGER REF")
                .as_str(),
            "CREATE TRIGGER no BEFORE INSERT ON t WHEN new.a = 99 BEGIN SELECT RAISE(ABORT, 'not that'); END",
            "INSERT INTO t VALUES (1, '', 1, NULL)",
        ],
    );
    for (row, expected) in [
        ("1, '', 1, NULL", DataReason::ConstraintUnique),
        ("2, NULL, 1, NULL", DataReason::ConstraintNotNull),
        ("2, '', 0, NULL", DataReason::ConstraintCheck),
        ("2, '', 1, 5", DataReason::ConstraintForeignKey),
        ("'x', '', 1, NULL", DataReason::ValueType),
        ("99, '', 1, NULL", DataReason::ConstraintOther),
    ] {
        let answer = database.execute(&format!("INSERT INTO t VALUES ({row})"), Parameters::None).wait();
        assert_eq!(reason(answer), expected, "{row}");
    }
    let error = database.execute("INSERT INTO t VALUES (1, '', 1, NULL)", Parameters::None).wait().unwrap_err();
    assert_eq!(error.detail, "UNIQUE constraint failed: t.a");
    let wrong = database.execute("INSERT INTO p VALUES ('x')", Parameters::None).wait();
    assert_eq!(reason(wrong), DataReason::ValueType);
}

#[test]
fn answers_have_bounds() {
    let scratch = Scratch::new();
    let limits = Limits { rows_max: 3, bytes_max: 1000, ..Limits::default() };
    let database = scratch.database(limits);
    run(&database, &["CREATE TABLE t (a)", "INSERT INTO t VALUES (1), (2), (3)"]);
    assert_eq!(database.query("SELECT a FROM t", Parameters::None).wait().unwrap().len(), 3);
    run(&database, &["INSERT INTO t VALUES (4)"]);
    assert_eq!(reason(database.query("SELECT a FROM t", Parameters::None).wait()), DataReason::RowsMax);
    let large = "SELECT zeroblob(1000)";
    assert_eq!(reason(database.query(large, Parameters::None).wait()), DataReason::BytesMax);
    let huge = "SELECT length(zeroblob(70000000))";
    assert_eq!(reason(database.query(huge, Parameters::None).wait()), DataReason::ValueTooBig);
    // A statement whose result exceeds the limit has no effect.
    let all = "UPDATE t SET a = a + 1 RETURNING a";
    assert_eq!(reason(database.execute(all, Parameters::None).wait()), DataReason::RowsMax);
    assert_eq!(number(&database, "SELECT sum(a) FROM t"), 10);
    let some = database.execute("UPDATE t SET a = a + 1 WHERE a > 2 RETURNING a", Parameters::None).wait().unwrap();
    assert_eq!((some.len(), some.changes), (2, 2));
    let pattern = format!("SELECT 'a' LIKE '{}'", "%a".repeat(100));
    assert!(database.query(&pattern, Parameters::None).wait().is_err());
}

#[test]
fn a_statement_that_takes_too_long_is_stopped() {
    let scratch = Scratch::new();
    let database = scratch.database(Limits { statement_max_ms: 50, ..Limits::default() });
    run(&database, &["CREATE TABLE t (a)"]);
    assert_eq!(reason(database.query(ENDLESS, Parameters::None).wait()), DataReason::StatementTimeout);
    let write = format!("INSERT INTO t {ENDLESS}");
    assert_eq!(reason(database.execute(&write, Parameters::None).wait()), DataReason::StatementTimeout);
    run(&database, &["INSERT INTO t VALUES (1)"]);
    assert_eq!(number(&database, "SELECT count(*) FROM t"), 1);
    assert_eq!(database.counts().failed, 2);
}

#[test]
fn a_query_that_nobody_waits_for_is_stopped() {
    let scratch = Scratch::new();
    let database =
        Database::open(&scratch.path("site.db"), 1, Limits { statement_max_ms: 600_000, ..Limits::default() });
    let database = database.unwrap();
    let endless = database.query(ENDLESS, Parameters::None);
    wait_until("the reader runs it", || database.file.shared.reads.is_empty());
    drop(endless);
    assert_eq!(number(&database, "SELECT 1"), 1);
}

#[test]
fn a_query_that_writes_is_written() {
    let scratch = Scratch::new();
    let database = scratch.database(Limits::default());
    run(&database, &["CREATE TABLE t (a)"]);
    let rows = database.query("INSERT INTO t VALUES (7) RETURNING a", Parameters::None).wait().unwrap();
    assert_eq!((only(&rows), rows.changes), (7, 1));
    assert_eq!(number(&database, "SELECT count(*) FROM t"), 1);
    // A reading statement may run on the writer.
    assert_eq!(only(&database.execute("SELECT a FROM t", Parameters::None).wait().unwrap()), 7);
}

#[test]
fn statements_that_hold_together() {
    let scratch = Scratch::new();
    let database = scratch.database(Limits::default());
    run(&database, &["CREATE TABLE t (a UNIQUE)"]);
    let insert = |value: i64| Statement { sql: "INSERT INTO t VALUES (?)".to_owned(), parameters: with(&[value]) };
    let count = Statement { sql: "SELECT count(*) FROM t".to_owned(), parameters: Parameters::None };
    let rows = database.transaction(vec![insert(1), insert(2), count]).wait().unwrap();
    assert_eq!((rows.len(), rows[1].last_insert_rowid, only(&rows[2])), (3, 2, 2));
    let failed = database.transaction(vec![insert(3), insert(1), insert(4)]).wait();
    assert_eq!(reason(failed), DataReason::ConstraintUnique);
    assert_eq!(number(&database, "SELECT count(*) FROM t"), 2);
    assert_eq!(database.transaction(Vec::new()).wait(), Ok(Vec::new()));
}

#[test]
fn queues_have_bounds() {
    let scratch = Scratch::new();
    let limits = Limits { queue_max: 2, transaction_max_ms: 60_000, ..Limits::default() };
    let database = scratch.database(limits);
    run(&database, &["CREATE TABLE t (a)"]);
    let holder = database.begin().wait().unwrap();
    let insert = || database.execute("INSERT INTO t VALUES (1)", Parameters::None);
    let (first, given_up, third) = (insert(), insert(), insert());
    assert_eq!(reason(third.wait()), DataReason::QueueFull);
    drop(given_up);
    drop(holder);
    first.wait().unwrap();
    assert_eq!(number(&database, "SELECT count(*) FROM t"), 1);
    assert_eq!(database.counts().failed, 1);
}

#[test]
fn waiting_ends() {
    let scratch = Scratch::new();
    let database = scratch.database(Limits { transaction_max_ms: 200, wait_max_ms: 50, ..Limits::default() });
    let holder = database.begin().wait().unwrap();
    let late = database.execute("CREATE TABLE t (a)", Parameters::None).wait();
    assert_eq!(reason(late), DataReason::QueueTimeout);
    assert_eq!(reason(holder.commit().wait()), DataReason::TransactionTimeout);
}

#[test]
fn another_process_is_waited_for() {
    let scratch = Scratch::new();
    let patient = scratch.database(Limits::default());
    let hasty = scratch.database(Limits { wait_max_ms: 50, ..Limits::default() });
    run(&patient, &["CREATE TABLE t (a)"]);
    let other = rusqlite::Connection::open(scratch.path("site.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)").unwrap();
    let insert = "INSERT INTO t VALUES (2)";
    assert_eq!(reason(hasty.execute(insert, Parameters::None).wait()), DataReason::LockTimeout);
    assert_eq!(reason(hasty.begin().wait()), DataReason::LockTimeout);
    let waiting = patient.execute(insert, Parameters::None);
    wait_until("the writer waits for the lock", || patient.file.shared.writes.is_empty());
    // Readers do not wait.
    assert_eq!(number(&hasty, "SELECT count(*) FROM t"), 0);
    other.execute_batch("COMMIT").unwrap();
    waiting.wait().unwrap();
    assert_eq!(number(&patient, "SELECT count(*) FROM t"), 2);
}

/// Many slow statements: each is stopped at its limit, and a quick one queued after them gets its result.
#[test]
fn slow_statements_do_not_starve_a_quick_one() {
    let scratch = Scratch::new();
    let limits = Limits { statement_max_ms: 20, wait_max_ms: 600_000, ..Limits::default() };
    let database = Database::open(&scratch.path("site.db"), 4, limits).unwrap();
    const SLOW: &str = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c";
    let slow: Vec<_> = (0..40).map(|_| database.query(SLOW, Parameters::None)).collect();
    assert_eq!(number(&database, "SELECT 1"), 1);
    for pending in slow {
        assert_eq!(pending.wait().unwrap_err().reason, DataReason::StatementTimeout);
    }
}

/// A user of a shared file gets synced commits on request, no matter who opened the file first.
#[test]
fn commits_are_synced_on_request() {
    let scratch = Scratch::new();
    let level = |session: &Session| -> i64 {
        session
            .trusted(Trust::Ours, |connection| connection.query_row("PRAGMA synchronous", [], |row| row.get(0)))
            .unwrap()
    };
    let session = Session::open(&scratch.path("own.db"), Role::Writer, Instant::now()).unwrap();
    assert_eq!(level(&session), 1, "NORMAL");
    session.sync_commits().unwrap();
    assert_eq!(level(&session), 2, "FULL");
    let first = scratch.database(Limits::default());
    let second = scratch.database(Limits::default());
    second.sync_commits().unwrap();
    run(&first, &["CREATE TABLE t (a)", "INSERT INTO t VALUES (1)"]);
    assert_eq!(number(&second, "SELECT count(*) FROM t"), 1);
}

#[test]
fn one_file_is_opened_once() {
    let scratch = Scratch::new();
    std::os::unix::fs::symlink(&scratch, scratch.path("again")).unwrap();
    let first = scratch.database(Limits::default());
    let second = Database::open(&scratch.path("again/site.db"), 3, Limits::default()).unwrap();
    assert!(Arc::ptr_eq(&first.file, &second.file));
    assert_eq!(super::lock(&first.file.shared.readers).len(), 3);
    run(&first, &["CREATE TABLE t (a)"]);
    let log = scratch.path("site.db-wal");
    assert!(log.exists());
    drop((first, second));
    // The threads exit, and the last one to close the file copies the log into it.
    wait_until("the file is closed", || !log.exists());
    let third = scratch.database(Limits::default());
    assert_eq!(number(&third, "SELECT count(*) FROM t"), 0);
}

#[test]
fn files_that_are_none() {
    let scratch = Scratch::new();
    let open = |path: &Path| Database::open(path, 1, Limits::default()).unwrap_err();
    assert_eq!(open(&scratch.path("no/such.db")).reason, DataReason::FileMissing);
    scratch.write("file", "");
    assert_eq!(open(&scratch.path("file/x.db")).reason, DataReason::FileMissing);
    assert_eq!(open(scratch.as_ref()).reason, DataReason::FileNotDatabase);
    scratch.write("text.db", &"This is a text and no database. ".repeat(100));
    let error = open(&scratch.path("text.db"));
    assert_eq!(error.reason, DataReason::FileNotDatabase);
    assert!(error.detail.contains("text.db"), "{error}");
    // A folder in which no user can create a file.
    let error = open(Path::new("/sys/flatout.db"));
    assert_eq!(error.reason, DataReason::FileReadOnly, "{error}");
    assert_eq!(open(Path::new("/")).reason, DataReason::FileNotDatabase);
}

#[test]
fn a_damaged_file_says_so_and_the_rest_is_served() {
    let scratch = Scratch::new();
    let path = scratch.path("site.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other
        .execute_batch(
            "CREATE TABLE good (a); INSERT INTO good VALUES (1);
             CREATE TABLE bad (a); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
             INSERT INTO bad SELECT hex(randomblob(100)) FROM n",
        )
        .unwrap();
    let page: u32 =
        other.query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'bad'", [], |row| row.get(0)).unwrap();
    other.close().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let start = (page as usize - 1) * 4096;
    bytes[start..start + 4096].fill(0xAA);
    std::fs::write(&path, bytes).unwrap();
    let database = scratch.database(Limits::default());
    assert_eq!(reason(database.query("SELECT count(*) FROM bad", Parameters::None).wait()), DataReason::FileCorrupt);
    let write = database.execute("INSERT INTO bad VALUES (1)", Parameters::None).wait();
    assert_eq!(reason(write), DataReason::FileCorrupt);
    assert_eq!(number(&database, "SELECT count(*) FROM good"), 1);
    run(&database, &["INSERT INTO good VALUES (2)"]);
}

/// The writer, on another thread, wakes a task of a worker's otherwise idle runtime.
#[test]
fn a_workers_task_is_woken() {
    let scratch = Scratch::new();
    let database = scratch.database(Limits::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .event_interval(256)
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        database.execute("CREATE TABLE t (a)", Parameters::None).await.unwrap();
        let order = Rc::new(std::cell::RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..20)
            .map(|value| {
                let (database, order) = (database.clone(), Rc::clone(&order));
                tokio::task::spawn_local(async move {
                    database.execute("INSERT INTO t VALUES (?)", with(&[value])).await.unwrap();
                    let rows = database.query("SELECT count(*) FROM t WHERE a = ?", with(&[value])).await.unwrap();
                    assert_eq!(only(&rows), 1);
                    order.borrow_mut().push(value);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(order.borrow().len(), 20);
    });
}
