//! Coyote's experiment of 1998 again: nine sizes of a page with the time inserted, asked for by 5 and by 50 clients that
//! keep their connections and that do not. Each size is a case; the sizes of one load are the lines of one table.

use super::cases::{Bound, Case, Kind, Load, Promise, Row, Speech};
use super::site;
use super::subjects::{FLATOUT_STATIC, NGINX_LUA, NGINX_PHP, PAGES as ACTIVE};

/// The seed's figures: a page's bytes with its head, and how many of them Coyote gave a second. They stand in
/// `demo/site/data/coyote-page-sizes.csv` as well.
pub(super) const PAGES: [(usize, f64); 9] = [
    (317, 84.18),
    (1337, 81.04),
    (2357, 78.62),
    (5417, 70.13),
    (10_517, 59.24),
    (20_717, 43.18),
    (51_317, 22.52),
    (102_317, 13.09),
    (204_317, 6.49),
];

/// A page at most so many times a static page of its size.
const SMALLEST: Promise = Promise { subject: ACTIVE, reference: FLATOUT_STATIC, bound: Bound::CostAtMost(1.25) };
const LARGEST: Promise = Promise { subject: ACTIVE, reference: FLATOUT_STATIC, bound: Bound::CostAtMost(1.05) };

/// And at most so many times what the same page costs from others.
const LUA: Promise = Promise { subject: ACTIVE, reference: NGINX_LUA, bound: Bound::CostAtMost(0.70) };
const PHP: Promise = Promise { subject: ACTIVE, reference: NGINX_PHP, bound: Bound::CostAtMost(0.10) };

const fn case(name: &'static str, path: &'static str, row: Row, title: &'static str, load: Load) -> Case {
    let bytes = row.bytes;
    let promises: &[Promise] = if bytes == PAGES[0].0 {
        &[SMALLEST, LUA, PHP]
    } else if bytes == PAGES[PAGES.len() - 1].0 {
        &[LARGEST, LUA, PHP]
    } else {
        &[LUA, PHP]
    };
    Case {
        name,
        title,
        kind: Kind::ServerPerRequest,
        load,
        speech: Speech::Http1,
        file: site::timed(path, bytes),
        behind: None,
        host: None,
        row: Some(row),
        shows_p99: false,
        subjects: &[ACTIVE, FLATOUT_STATIC, NGINX_LUA, NGINX_PHP],
        references: &[FLATOUT_STATIC, NGINX_LUA, NGINX_PHP],
        promises,
    }
}

macro_rules! cases {
    ($($table:literal $title:literal $connections:literal $closes:literal;)*) => {
        &[$(
            cases!(@ $table $title $connections $closes 317),
            cases!(@ $table $title $connections $closes 1337),
            cases!(@ $table $title $connections $closes 2357),
            cases!(@ $table $title $connections $closes 5417),
            cases!(@ $table $title $connections $closes 10517),
            cases!(@ $table $title $connections $closes 20717),
            cases!(@ $table $title $connections $closes 51317),
            cases!(@ $table $title $connections $closes 102317),
            cases!(@ $table $title $connections $closes 204317),
        )*]
    };
    (@ $table:literal $title:literal $connections:literal $closes:literal $bytes:literal) => {
        case(
            concat!($table, "-", $bytes),
            concat!("p", $bytes, ".html"),
            Row { table: $table, bytes: $bytes },
            $title,
            Load::Wrk { connections: $connections, closes: $closes },
        )
    };
}

pub(super) const CASES: &[Case] = cases! {
    "coyote-5" "Coyote's experiment, 5 keep-alive connections" 5 false;
    "coyote-5-close" "Coyote's experiment, 5 clients, a connection per request" 5 true;
    "coyote-50" "Coyote's experiment, 50 keep-alive connections" 50 false;
    "coyote-50-close" "Coyote's experiment, 50 clients, a connection per request" 50 true;
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_the_seeds() {
        let file = crate::shell::root().join("demo/site/data/coyote-page-sizes.csv");
        let text = std::fs::read_to_string(file).unwrap();
        let lines = text.lines().skip(1).map(|line| {
            let mut figures = line.split(',');
            (figures.next().unwrap().parse().unwrap(), figures.next().unwrap().parse().unwrap())
        });
        let seed: Vec<(usize, f64)> = lines.collect();
        assert_eq!(seed, PAGES);
        let tables = CASES.chunks(PAGES.len());
        assert_eq!(tables.len(), 4);
        for table in tables {
            let bytes = table.iter().map(|case| case.row.map_or(0, |row| row.bytes));
            assert!(bytes.eq(PAGES.iter().map(|page| page.0)), "{}", table[0].name);
        }
    }
}
