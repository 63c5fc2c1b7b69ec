//! The suites: what is measured in one run, and where docs/performance.md has its tables.

use super::cases::{self, Case};
use super::coyote;
use super::query;

/// Cases that are one report.
#[derive(Debug)]
pub(super) struct Suite {
    /// For `--suite`, and for the markers of its part of the document.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) cases: &'static [Case],
    /// Rounds of every case, and seconds of each round, unless told otherwise.
    pub(super) rounds: usize,
    pub(super) seconds: u64,
}

/// The first is the one that is run unasked.
pub(super) const SUITES: &[Suite] = &[
    Suite {
        name: "bench-peers",
        title: "beside the bare loop, other servers, caches and clients",
        cases: cases::CASES,
        rounds: 7,
        seconds: 2,
    },
    Suite {
        name: "coyote",
        title: "active pages beside static ones, nginx's Lua module and PHP-FPM",
        cases: coyote::CASES,
        rounds: 5,
        seconds: 1,
    },
    Suite {
        name: "query",
        title: "an active page that asks a database beside the same in PHP",
        cases: query::CASES,
        rounds: 7,
        seconds: 2,
    },
];

impl Suite {
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        SUITES.iter().find(|suite| suite.name == name)
    }

    /// The markers between which the document has its tables.
    pub(super) fn markers(&self) -> (String, String) {
        (format!("<!-- {}:begin -->", self.name), format!("<!-- {}:end -->", self.name))
    }
}
