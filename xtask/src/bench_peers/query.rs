//! A page with a query: ten rows of an indexed table of a million, another ten each time.

use super::cases::{Bound, Case, Kind, Load, Promise, Speech};
use super::site::{self, File};
use super::subjects::{NGINX_PHP, PAGES};
use crate::failure::{Context, Outcome};
use crate::shell;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rows of the table, and of each category.
const ROWS: usize = 1_000_000;
const ROWS_SHOWN: usize = 10;
const CATEGORIES: usize = ROWS / ROWS_SHOWN;

/// The database, below the bench's folder. Both read the same file.
const DATABASE: &str = "query-data/items.db";

pub(super) const CASES: &[Case] = &[Case {
    name: "query",
    title: "A page with ten rows of an indexed table of 1,000,000, 64 keep-alive connections",
    kind: Kind::ServerPerRequest,
    load: Load::Wrk { connections: 64, closes: false },
    speech: Speech::Http1,
    file: site::QUERY,
    behind: None,
    host: None,
    row: None,
    shows_p99: true,
    subjects: &[PAGES, NGINX_PHP],
    references: &[NGINX_PHP],
    promises: &[
        // At least five times its requests in a second of a core.
        Promise { subject: PAGES, reference: NGINX_PHP, bound: Bound::CostAtMost(0.20) },
        Promise { subject: PAGES, reference: NGINX_PHP, bound: Bound::RateShown },
    ],
}];

const BEFORE: &str = "<!doctype html>\n<title>Ten of a million</title>\n<table>\n";
const AFTER: &str = "</table>\n";

/// The page with the rows of one category; every page is as long.
pub(super) fn page(category: usize) -> String {
    let mut text = String::from(BEFORE);
    let first = if category == 0 { CATEGORIES } else { category };
    for id in (first..).step_by(CATEGORIES).take(ROWS_SHOWN) {
        let _ = writeln!(text, "<tr><td>{id:07}</td><td>item {id:07} of {category:05}</td></tr>");
    }
    text.push_str(AFTER);
    text
}

/// The category whose page it is.
pub(super) fn category(body: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(body).ok()?;
    let category = text.rsplit_once(" of ")?.1.get(..5)?.parse().ok()?;
    (page(category) == text).then_some(category)
}

const SQL: &str = "SELECT code, title FROM item WHERE category = ? ORDER BY id LIMIT 10";

pub(super) fn database(folder: &Path) -> PathBuf {
    folder.join(DATABASE)
}

/// Writes both templates; the static page beside them shows nothing but how long they are.
pub(super) fn write_templates(folder: &Path, file: File) -> Outcome<()> {
    let last = CATEGORIES - 1;
    let database = database(folder);
    let lhtml = format!(
        "{BEFORE}<?lua for _, item in db.query(\"{SQL}\", math.random(0, {last})) do ?>
<tr><td><?= item.code ?></td><td><?= item.title ?></td></tr>
<?lua end ?>
{AFTER}"
    );
    // The connection is kept from one request to the next.
    let php = format!(
        "<?php
$db = new PDO('sqlite:{}', null, null, [PDO::ATTR_PERSISTENT => true]);
$items = $db->prepare('{SQL}');
$items->execute([mt_rand(0, {last})]);
?>
{BEFORE}<?php foreach ($items as $item): ?>
<tr><td><?= htmlspecialchars($item['code']) ?></td><td><?= htmlspecialchars($item['title']) ?></td></tr>
<?php endforeach ?>
{AFTER}",
        database.display()
    );
    let place = file.place(folder);
    for (ending, text) in [("lhtml", lhtml), ("php", php)] {
        std::fs::write(place.with_extension(ending), text).cannot("write a page's template")?;
    }
    std::fs::write(place.with_file_name(super::timed::ASKS_OPCACHE), super::timed::OPCACHE_SCRIPT)
        .cannot("write a page's template")
}

/// Makes the database, by PHP's own hand, unless it is there. Who opens it and says nothing else keeps as many of its pages as
/// our readers do, 64 MiB, and not SQLite's own 2.
pub(super) fn prepare(folder: &Path) -> Outcome<()> {
    let database = database(folder);
    if database.exists() {
        return Ok(());
    }
    let own = database.parent().cannot("name the database's folder")?;
    std::fs::create_dir_all(own).cannot("create the database's folder")?;
    let script = own.join("make.php");
    let text = format!(
        "<?php
$db = new PDO('sqlite:' . $argv[1]);
$db->exec(\"PRAGMA journal_mode = WAL;
PRAGMA default_cache_size = 16384;
CREATE TABLE item (id INTEGER PRIMARY KEY, category INTEGER NOT NULL, code TEXT NOT NULL, title TEXT NOT NULL) STRICT;
INSERT INTO item
    WITH RECURSIVE number(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM number WHERE id < {ROWS})
    SELECT id, id % {CATEGORIES}, printf('%07d', id), printf('item %07d of %05d', id, id % {CATEGORIES}) FROM number;
CREATE INDEX item_category ON item (category);
ANALYZE\");
"
    );
    std::fs::write(&script, text).cannot("write a script")?;
    let missing = "find php: it is in Debian's package php-cli, and what it needs here in php-sqlite3";
    let php = shell::locate("php").cannot(missing)?;
    eprintln!("making a table of {ROWS} rows");
    shell::output_of(Command::new(php).arg(&script).arg(&database))?;
    // Anyone who reads a database with a write-ahead log writes to what is shared beside it, and PHP is nobody.
    std::fs::set_permissions(own, PermissionsExt::from_mode(0o777)).cannot("open the database's folder to all")?;
    std::fs::set_permissions(&database, PermissionsExt::from_mode(0o666)).cannot("open the database to all")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_category_has_ten_rows_and_a_page_of_one_length() {
        for wanted in [0, 1, 77_777, CATEGORIES - 1] {
            let text = page(wanted);
            assert_eq!(text.len(), site::QUERY.bytes, "{wanted}");
            assert_eq!(text.matches("<tr>").count(), ROWS_SHOWN);
            assert_eq!(category(text.as_bytes()), Some(wanted));
            assert_eq!(category(text.replace("item 0", "item 9").as_bytes()), None);
        }
        assert_eq!(category(b" of 00001"), None);
    }
}
