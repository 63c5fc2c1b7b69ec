use super::{Migration, apply, read_folder};
use crate::connection::{Role, Session};
use crate::database::Database;
use crate::limits::Limits;
use crate::reason::{DataError, DataReason};
use crate::tests::scratch::{Scratch, number, reason};
use crate::value::Parameters;
use flatout_os::testing::wait_until;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn migrate(scratch: &Scratch) -> Result<Vec<String>, DataError> {
    scratch.database(Limits::default()).migrate(&scratch.path("migrations"))
}

fn tables(database: &Database) -> i64 {
    number(database, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'flatout%'")
}

#[test]
fn each_is_applied_once_and_in_order() {
    let scratch = Scratch::new();
    scratch.write("migrations/010_second.sql", "INSERT INTO t VALUES ('a;b'); INSERT INTO t VALUES ('c') ; -- end");
    scratch.write("migrations/2_first.sql", "CREATE TABLE t (a); CREATE INDEX i ON t (a);");
    scratch.write("migrations/readme.txt", "Not ours.");
    scratch.write("migrations/.3_hidden.sql", "nonsense");
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(migrate(&scratch).unwrap(), names(&["2_first.sql", "010_second.sql"]));
    assert_eq!(migrate(&scratch).unwrap(), names(&[]));
    scratch.write("migrations/011_third.sql", "");
    assert_eq!(migrate(&scratch).unwrap(), names(&["011_third.sql"]));
    let database = scratch.database(Limits::default());
    assert_eq!(number(&database, "SELECT count(*) FROM t"), 2);
    assert_eq!(number(&database, "SELECT sum(length(digest)) FROM flatout_migrations"), 3 * 64);
}

#[test]
fn applied_migrations_must_not_change() {
    let scratch = Scratch::new();
    scratch.write("migrations/1_a.sql", "CREATE TABLE a (x)");
    scratch.write("migrations/3_c.sql", "CREATE TABLE c (x)");
    migrate(&scratch).unwrap();
    scratch.write("migrations/2_b.sql", "CREATE TABLE b (x)");
    assert_eq!(reason(migrate(&scratch)), DataReason::MigrationOrder);
    std::fs::remove_file(scratch.path("migrations/2_b.sql")).unwrap();
    scratch.write("migrations/1_a.sql", "CREATE TABLE a (x, y)");
    let error = migrate(&scratch).unwrap_err();
    assert_eq!((error.reason, error.detail.as_str()), (DataReason::MigrationChanged, "1_a.sql"));
    std::fs::rename(scratch.path("migrations/1_a.sql"), scratch.path("a")).unwrap();
    assert_eq!(reason(migrate(&scratch)), DataReason::MigrationMissing);
    // Renaming a migration without changing its text is not a change.
    scratch.write("migrations/1_begin.sql", "CREATE TABLE a (x)");
    assert_eq!(migrate(&scratch), Ok(Vec::new()));
}

#[test]
fn names_are_told_apart() {
    for (name, expected) in [
        ("a.sql", DataReason::MigrationName),
        ("1.sql", DataReason::MigrationName),
        ("1_.sql", DataReason::MigrationName),
        ("_x.sql", DataReason::MigrationName),
        ("1x_y.sql", DataReason::MigrationName),
        ("-1_x.sql", DataReason::MigrationName),
        ("99999999999_x.sql", DataReason::MigrationName),
        ("1_x.SQL", DataReason::MigrationName),
        ("01_x.sql", DataReason::MigrationOrder),
    ] {
        let scratch = Scratch::new();
        scratch.write("migrations/1_a.sql", "");
        scratch.write(&format!("migrations/{name}"), "");
        let error = read_folder(&scratch.path("migrations")).unwrap_err();
        assert_eq!(error.reason, expected, "{name}");
        assert!(error.detail.contains(name), "{error}");
    }
    let scratch = Scratch::new();
    assert_eq!(reason(read_folder(&scratch.path("migrations"))), DataReason::MigrationUnreadable);
    std::fs::create_dir_all(scratch.path("migrations/1_folder.sql")).unwrap();
    assert_eq!(reason(read_folder(&scratch.path("migrations"))), DataReason::MigrationUnreadable);
}

#[test]
fn a_failure_leaves_nothing_behind() {
    for (sql, expected) in [
        ("CREATE TABLE b (x); INSERT INTO nowhere VALUES (1)", DataReason::MigrationFailed),
        ("CREATE TABLE b (x); SELEKT", DataReason::MigrationFailed),
        ("CREATE TABLE b (x); COMMIT", DataReason::MigrationFailed),
        ("CREATE TABLE b (x); COMMIT; BEGIN; CREATE TABLE d (x)", DataReason::MigrationFailed),
        ("CREATE TABLE b (x); ROLLBACK", DataReason::MigrationFailed),
        ("CREATE TABLE b (x); ATTACH ':memory:' AS m", DataReason::MigrationFailed),
        ("CREATE TABLE b (x REFERENCES a (x)); INSERT INTO b VALUES (7)", DataReason::MigrationFailed),
    ] {
        let scratch = Scratch::new();
        scratch.write("migrations/1_a.sql", "CREATE TABLE a (x UNIQUE)");
        scratch.write("migrations/2_b.sql", sql);
        scratch.write("migrations/3_c.sql", "CREATE TABLE c (x)");
        let error = migrate(&scratch).unwrap_err();
        assert_eq!(error.reason, expected, "{sql}: {error}");
        assert!(error.detail.starts_with("2_b.sql: "), "{error}");
        let database = scratch.database(Limits::default());
        assert_eq!(tables(&database), 1, "{sql}");
        // After the correction, migration continues from there, and pages are still restricted.
        scratch.write("migrations/2_b.sql", "CREATE TABLE b (x)");
        assert_eq!(migrate(&scratch).unwrap().len(), 2);
        let forbidden = database.execute("PRAGMA user_version", Parameters::None).wait();
        assert_eq!(reason(forbidden), DataReason::SqlForbidden);
        let broken = database.execute("CREATE TABLE d (x REFERENCES a (x))", Parameters::None).wait();
        broken.unwrap();
        let orphan = database.execute("INSERT INTO d VALUES (1)", Parameters::None).wait();
        assert_eq!(reason(orphan), DataReason::ConstraintForeignKey);
    }
}

/// SQLite's recommended way to change a table that others refer to.
#[test]
fn a_table_is_rebuilt() {
    let scratch = Scratch::new();
    scratch.write(
        "migrations/1_a.sql",
        "CREATE TABLE a (id INTEGER PRIMARY KEY, x); CREATE TABLE b (a REFERENCES a (id) ON DELETE CASCADE);
         INSERT INTO a VALUES (1, 'x'); INSERT INTO b VALUES (1);",
    );
    scratch.write(
        "migrations/2_b.sql",
        "CREATE TABLE a2 (id INTEGER PRIMARY KEY, x NOT NULL); INSERT INTO a2 SELECT * FROM a; DROP TABLE a;
         ALTER TABLE a2 RENAME TO a; PRAGMA user_version = 2;",
    );
    migrate(&scratch).unwrap();
    assert_eq!(number(&scratch.database(Limits::default()), "SELECT count(*) FROM b JOIN a ON a.id = b.a"), 1);
}

/// Migrations may be longer than statements of pages.
#[test]
fn it_may_be_long() {
    let scratch = Scratch::new();
    let rows = "INSERT INTO t VALUES ('some text, to make it long');\n".repeat(8_000);
    scratch.write("migrations/1_a.sql", &format!("CREATE TABLE t (a);\n{rows}"));
    migrate(&scratch).unwrap();
    assert_eq!(number(&scratch.database(Limits::default()), "SELECT count(*) FROM t"), 8_000);
    let migration = Migration { number: 1, name: String::new(), sql: "abc".to_owned() };
    assert!(migration.digest().starts_with("ba7816bf8f01cfea414140de5dae2223"), "FIPS 180-2, B.1");
}

/// Two processes start at once, as in an upgrade.
#[test]
fn two_at_once_apply_each_once() {
    let scratch = Scratch::new();
    for number in 1..20 {
        scratch.write(&format!("migrations/{number}_t.sql"), &format!("CREATE TABLE t{number} (a)"));
    }
    drop(scratch.database(Limits::default()));
    let applied: usize = std::thread::scope(|scope| {
        let both: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let until = Instant::now() + Duration::from_mins(2);
                    let session = Session::open(&scratch.path("site.db"), Role::Writer, until).unwrap();
                    apply(&session, &scratch.path("migrations")).unwrap().len()
                })
            })
            .collect();
        both.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(applied, 19);
}

const CRASH: &str = "FLATOUT_DATA_CRASH";

/// The process is killed during a migration: it has no effect, and those before it remain applied.
#[test]
fn a_crash_half_way() {
    if let Some(folder) = std::env::var_os(CRASH) {
        let folder = std::path::PathBuf::from(folder);
        let database = Database::open(&folder.join("site.db"), 1, Limits::default()).unwrap();
        let _ = database.migrate(&folder.join("migrations"));
        return;
    }
    let scratch = Scratch::new();
    scratch.write("migrations/1_a.sql", "CREATE TABLE a (x); INSERT INTO a VALUES (1)");
    // An endless migration, too large for SQLite's page cache: part of it is in the log when the process is killed.
    scratch.write(
        "migrations/2_b.sql",
        "CREATE TABLE b (x); INSERT INTO a VALUES (2);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO b SELECT zeroblob(4000) FROM n",
    );
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "migration::tests::a_crash_half_way"])
        .env(CRASH, scratch.as_ref())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("20 MiB are in the log", || {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        std::fs::metadata(scratch.path("site.db-wal")).map_or(0, |log| log.len()) >= 20 << 20
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let database = scratch.database(Limits::default());
    assert_eq!((tables(&database), number(&database, "SELECT sum(x) FROM a")), (1, 1));
    assert_eq!(number(&database, "SELECT max(number) FROM flatout_migrations"), 1);
    scratch.write("migrations/2_b.sql", "CREATE TABLE b (x); INSERT INTO a VALUES (2)");
    assert_eq!(migrate(&scratch).unwrap(), ["2_b.sql"]);
    assert_eq!((tables(&database), number(&database, "SELECT sum(x) FROM a")), (2, 3));
}
