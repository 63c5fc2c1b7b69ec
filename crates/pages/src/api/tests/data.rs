//! Tests of persistent data: the database, and values shared among workers.

use super::super::refusal::PageRefusal;
use super::{Ask, Site};
use crate::open::database_limits;
use flatout_data::{Database, Limits};
use flatout_handler::routed::Refusal;

#[test]
fn values_among_workers() {
    let site = Site::new();
    for (code, expected) in [
        ("kv.get('a')", "nil"),
        ("kv.set('a', 'x')", ""),
        ("kv.get('a')", "x"),
        ("kv.add('a', 'y')", "false"),
        ("kv.set('t', true)", ""),
        ("kv.get('t')", "true"),
        ("kv.incr('n')", "1"),
        ("kv.incr('n', 41, '1h')", "42"),
        ("kv.get('n')", "42"),
        ("kv.incr('n', -2)", "40"),
        ("kv.delete('a')", "true"),
        ("kv.delete('a')", "false"),
        ("kv.set('r', 0.5, 60)", ""),
        ("kv.get('r')", "0.5"),
    ] {
        let answered =
            site.run(&Ask::default(), &format!("local v = table.pack({code}) if v.n > 0 then __r(tostring(v[1])) end"));
        assert_eq!((answered.error, &*answered.text), (None, expected), "{code}");
    }
    for (code, part) in [
        ("kv.set('a', {})", "json.encode"),
        ("kv.set('', 'a')", "key"),
        ("kv.set('a', 'b', 'x')", "time to live"),
        ("kv.set('a', 'b', 0)", "time to live"),
        ("kv.set('s', 'x') kv.incr('s')", "whole numbers"),
        ("kv.incr('n', 0.5)", "whole numbers"),
    ] {
        let error = site.error(code);
        assert!(error.contains(part), "{code}: {error}");
    }
}

#[test]
fn statements() {
    let site = Site::with_database();
    let run = |code: &str| {
        let answered = site.run(&Ask::default(), code);
        assert_eq!(answered.error, None, "{code}");
        answered.text
    };
    run("db.exec('CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT UNIQUE, size REAL, data BLOB)')");
    assert_eq!(
        run(
            "local r = db.exec('INSERT INTO t (name, size, data) VALUES (?, ?, ?)', 'ann', 1.5, buffer.fromstring('x\\0')) __r(r.changes .. ' ' .. r.last_id)"
        ),
        "1 1"
    );
    run(
        "db.exec('INSERT INTO t (name, size) VALUES (:name, :size)', {name = \"O'Brien; DROP TABLE t\", size = json.null})",
    );
    for (code, expected) in [
        ("#db.query('SELECT * FROM t')", "2"),
        ("db.query('SELECT name FROM t ORDER BY id')[2].name", "O'Brien; DROP TABLE t"),
        ("db.query_one('SELECT * FROM t WHERE id = ?', 1).name", "ann"),
        ("db.query_one('SELECT * FROM t WHERE id = ?', 99)", "nil"),
        ("db.query_one('SELECT * FROM t WHERE id = ?', 2).size", "nil"),
        ("buffer.tostring(db.value('SELECT data FROM t WHERE id = 1'))", "x\0"),
        ("db.value('SELECT count(*) FROM t')", "2"),
        ("db.value('SELECT ?', true)", "1"),
        ("db.value('SELECT ?', nil)", "nil"),
        ("db.value('SELECT typeof(?)', 5)", "integer"),
        // A nil entry is no entry of a table, and a name without an entry is NULL.
        ("db.value('SELECT typeof(:user) || typeof(:id)', {user = nil, id = 1})", "nullinteger"),
        ("db.value('SELECT typeof(:user)', {user = nil})", "null"),
        ("db.value('SELECT typeof(?)', json.null)", "null"),
        ("db.value('SELECT typeof(:user)', json.decode('{\"user\": null}'))", "null"),
        ("json.encode(db.query_one('SELECT NULL AS a, NULL AS b'))", "{}"),
        ("json.encode(db.query('SELECT NULL AS a UNION ALL SELECT 1'))", "[{},{\"a\":1}]"),
        ("json.encode(table.clone(db.query_one('SELECT NULL AS a')))", "{}"),
        ("db.value('SELECT 9007199254740992')", "9007199254740992"),
        ("db.value('SELECT 9007199254740993') == '9007199254740993'", "true"),
    ] {
        assert_eq!(site.value(code), expected, "{code}");
    }
    for (code, part) in [
        ("db.exec('DELETE FROM t; DELETE FROM t')", "more than one statement"),
        ("db.query('SELECT nonsense FROM t')", "SQL"),
        ("db.query('SELECT ?')", "parameters"),
        ("db.exec('INSERT INTO t (name) VALUES (?)', 'ann')", "unique"),
        ("db.query('SELECT ?', {1})", "separate arguments"),
        ("db.query('SELECT :user', {usr = 'ann'})", "no parameter usr; its parameters are: :user"),
        ("db.query('SELECT ?', {user = nil})", "? without a name"),
        ("db.query('SELECT :user')", "1 in the statement"),
        ("db.query('SELECT ?', '\\255')", "buffer"),
        ("db.query('SELECT ?', tonumber('nan'))", "not NaN"),
        ("db.query('SELECT ?', 0/0)", "not NaN"),
        ("db.query('SELECT :a', {a = 1/0})", "not infinity"),
        ("db.exec('INSERT INTO t (size) VALUES (?)', -math.huge)", "not infinity"),
        ("db.query('PRAGMA journal_mode')", "must not"),
    ] {
        let error = site.error(code);
        assert!(error.contains(part) && error.starts_with("test.luau:1:"), "{code}: {error}");
    }
    assert!(Site::new().error("db.query('SELECT 1')").contains("database"));
}

#[test]
fn transactions() {
    let site = Site::with_database();
    let run = |code: &str| site.run(&Ask::default(), code);
    assert_eq!(
        run("db.exec('CREATE TABLE a (id INTEGER PRIMARY KEY, n INTEGER)') db.exec('INSERT INTO a (n) VALUES (10)')")
            .error,
        None
    );
    let moved = run("local a, b = db.transaction(function()
            local n = db.value('SELECT n FROM a WHERE id = 1')
            db.exec('UPDATE a SET n = ? WHERE id = 1', n + 5)
            return db.value('SELECT n FROM a WHERE id = 1'), nil
         end)
         __r(tostring(a) .. tostring(b))");
    assert_eq!((moved.error, &*moved.text), (None, "15nil"));
    let failed = run("db.transaction(function() db.exec('UPDATE a SET n = 99') error('no more') end)");
    assert!(failed.error.unwrap().contains("no more"));
    assert_eq!(site.value("db.value('SELECT n FROM a')"), "15");
    let nested = run("db.transaction(function() db.transaction(function() end) end)");
    assert!(nested.error.unwrap().contains("cannot be nested"));
    // A page that ends within a transaction ends there, and the transaction is rolled back, which the log says.
    for ending in ["response.redirect('/', 302)", "response.json({}, 302)", "response.status = 302 exit()"] {
        for code in [ending.to_owned(), format!("pcall(function() {ending} end)")] {
            let left = run(&format!(
                "db.transaction(function()\ndb.exec('UPDATE a SET n = 77')\n{code}\nkv.set('after', 1) end) kv.set('after', 2)"
            ));
            assert_eq!((left.status, left.error), (302, None), "{code}");
            let log: Vec<_> = left.log.iter().map(|line| (line.line, line.text.contains("rolled back"))).collect();
            assert_eq!(log, [(Some(3), true)], "{code}");
            assert_eq!(site.value("db.value('SELECT n FROM a')"), "15", "{code}");
            assert_eq!(site.value("kv.get('after')"), "nil", "{code}");
        }
    }
    let behind = run("db.transaction(function() db.exec('UPDATE a SET n = 16') end) response.redirect('/')");
    assert_eq!((behind.status, behind.error), (303, None));
    // A page that ends elsewhere, while a coroutine of its own leads a transaction.
    let aside = run("local co = coroutine.create(function() db.transaction(function()
            db.exec('UPDATE a SET n = 77') coroutine.yield() end) end) coroutine.resume(co)");
    assert!(aside.error.unwrap().contains("end the transaction first"));
    // Whatever ends the page ends the transaction, and the writer is free again.
    assert_eq!(run("db.exec('UPDATE a SET n = n + 1')").error, None);
    assert_eq!(site.value("db.value('SELECT n FROM a')"), "17");
}

/// If a statement was never started, the page is not at fault: 503, unless the page catches the error.
#[test]
fn a_saturated_database_is_told_apart() {
    let site = Site::with_database_and(|settings| {
        let path = settings.database.as_ref().unwrap().path().to_owned();
        let limits = Limits { queue_max: 0, ..database_limits() };
        settings.database = Some(Database::open(&path, 1, limits).unwrap());
    });
    for code in ["db.query('SELECT 1')", "db.exec('CREATE TABLE t (a)')", "db.transaction(function() end)"] {
        let answered = site.run(&Ask::default(), code);
        assert_eq!(answered.refusal, Some(PageRefusal::DatabaseBusy), "{code}: {answered:?}");
        assert!(answered.error.unwrap().contains("queue of the database is full"), "{code}");
        let refused = Refusal::from(answered.refusal.unwrap());
        assert_eq!(refused.status, 503);
        assert!(refused.fields.contains(&("Retry-After", "1".to_owned())), "{refused:?}");
        let caught = site.run(&Ask::default(), &format!("__r(tostring(pcall(function() {code} end)))"));
        assert_eq!((caught.error, &*caught.text), (None, "false"), "{code}");
    }
}

/// Only the user that the server runs as can read the data of pages.
#[test]
fn a_database_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let site = Site::with_database();
    let run = site.run(&Ask::default(), "db.exec('CREATE TABLE t (a)')");
    assert_eq!(run.error, None);
    let database = site.api.settings().database.as_ref().unwrap().path().to_owned();
    for ending in ["", "-wal", "-shm"] {
        let mode = std::fs::metadata(format!("{}{ending}", database.display())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "site.db{ending}");
    }
}

#[test]
fn answers_are_bounded() {
    let site = Site::with_database();
    let run = |code: &str| site.run(&Ask::default(), code);
    const COUNT: &str =
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < ?) SELECT n, n * 2 AS m FROM c";
    let code = |count: u32| {
        format!(
            "local r = db.query('{COUNT}', {count}) __r(#r .. ' ' .. r[1].m .. ' ' .. r[#r].n .. ' ' .. r[{count} // 2].m)"
        )
    };
    // More than one block of rows.
    let thousand = run(&code(1000));
    assert_eq!((thousand.error, &*thousand.text), (None, "1000 2 1000 1000"));
    let more = run(&code(1001)).error.unwrap();
    assert!(more.starts_with("test.luau:1:") && more.contains("LIMIT"), "{more}");
    let file = run("__r(buffer.len(db.value('SELECT zeroblob(1048576)')))");
    assert_eq!((file.error, &*file.text), (None, "1048576"));
    let large = run("db.value('SELECT zeroblob(3000000)')").error.unwrap();
    assert!(large.contains("substr"), "{large}");
    let empty = run("__r(#db.query('SELECT 1 WHERE 0'))");
    assert_eq!((empty.error, &*empty.text), (None, "0"));
    let within =
        run("local t = setmetatable({}, { __index = function()\nreturn db.query('SELECT 1') end }) return t.x");
    assert!(within.error.unwrap().starts_with("test.luau:2: cannot yield"));
}
