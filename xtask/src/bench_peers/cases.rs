//! What is measured: one table, from which the rounds, the report and the verdicts are made.

use super::servers::{LARGE_FILE, SMALL_FILE, Subject};

/// One table of the report.
#[derive(Debug)]
pub(super) struct Case {
    /// For `--only` and the JSON.
    pub(super) name: &'static str,
    /// The table's heading.
    pub(super) title: &'static str,
    /// Whose cost is measured, against whom, and counted how.
    pub(super) kind: Kind,
    /// The file asked for.
    pub(super) file: &'static str,
    /// Those who take turns.
    pub(super) subjects: &'static [Subject],
    /// Whom the others are measured against, in the columns' order.
    pub(super) references: &'static [Subject],
    /// What we promise: ours is at most this many times theirs.
    pub(super) targets: &'static [(Subject, f64)],
}

/// Whose processor time counts, and by what it is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The server's, by requests; a new connection for each if `closes`.
    ServerPerRequest { closes: bool },
    /// The server's, by MiB.
    ServerPerMebibyte,
    /// The client's, by the requests that the server counted.
    ClientPerRequest,
}

impl Kind {
    /// What a cost is given in.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::ServerPerRequest { .. } | Self::ClientPerRequest => "CPU µs/request",
            Self::ServerPerMebibyte => "CPU µs/MiB",
        }
    }

    /// What a rate is given in.
    pub(super) fn rate_unit(self) -> &'static str {
        match self {
            Self::ServerPerRequest { .. } | Self::ClientPerRequest => "requests/s",
            Self::ServerPerMebibyte => "MiB/s",
        }
    }
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "keep-alive",
        title: "1 KiB static file, 64 keep-alive connections",
        kind: Kind::ServerPerRequest { closes: false },
        file: SMALL_FILE,
        subjects: SERVERS_SMALL,
        references: SERVERS_SMALL_BUT_OURS,
        // Against nginx with sendfile, as its manual has it; the ratio to the other stands in its column.
        targets: &[(Subject::Bare, 1.10), (Subject::Nginx, 0.70)],
    },
    Case {
        name: "close",
        title: "1 KiB static file, a connection per request",
        kind: Kind::ServerPerRequest { closes: true },
        file: SMALL_FILE,
        subjects: SERVERS_SMALL,
        references: SERVERS_SMALL_BUT_OURS,
        targets: &[(Subject::Bare, 1.10)],
    },
    Case {
        name: "large-file",
        title: "10 MiB static file, 64 keep-alive connections",
        kind: Kind::ServerPerMebibyte,
        file: LARGE_FILE,
        subjects: &[Subject::Bare, Subject::Flatout, Subject::Nginx, Subject::Lighttpd],
        references: &[Subject::Bare, Subject::Nginx, Subject::Lighttpd],
        targets: &[(Subject::Bare, 1.05), (Subject::Lighttpd, 1.05)],
    },
    Case {
        name: "client",
        title: "The client: 1 KiB keep-alive from the same nginx, one thread, 64 connections",
        kind: Kind::ClientPerRequest,
        file: SMALL_FILE,
        subjects: &[Subject::Flatout, Subject::Wrk],
        references: &[Subject::Wrk],
        targets: &[(Subject::Wrk, 1.10)],
    },
];

const SERVERS_SMALL: &[Subject] =
    &[Subject::Bare, Subject::Flatout, Subject::Nginx, Subject::NginxReading, Subject::Lighttpd];

const SERVERS_SMALL_BUT_OURS: &[Subject] = &[Subject::Bare, Subject::Nginx, Subject::NginxReading, Subject::Lighttpd];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_measures_us_and_everyone_its_columns_and_targets_name() {
        for case in CASES {
            assert!(case.subjects.contains(&Subject::Flatout), "{}", case.name);
            let named = case.references.iter().chain(case.targets.iter().map(|(subject, _)| subject));
            for subject in named {
                assert!(case.subjects.contains(subject), "{}: {}", case.name, subject.name());
            }
        }
    }
}
