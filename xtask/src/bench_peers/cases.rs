//! What is measured: one table, from which the rounds, the report and the verdicts are made.

use super::site::{self, File};
use super::subjects::{
    ACCELERATE, APACHE, APACHE_DIGEST, BARE, FLATOUT, FLATOUT_BENCH, FLATOUT_BENCH_OPEN, FLATOUT_BROTLI,
    FLATOUT_DIGESTS, FLATOUT_DIGESTS_OFF, FLATOUT_IDENTITY, FLATOUT_LOG, FLATOUT_LOG_OFF, FLATOUT_ROUTES, FLATOUT_RUN,
    FLATOUT_SITES, FLATOUT_STATIC, H2LOAD, H2O, HAPROXY, HAPROXY_CACHE, LIGHTTPD, NGINX, NGINX_CACHE,
    NGINX_CACHE_READING, NGINX_LOG, NGINX_LOG_LINES, NGINX_PROXY, NGINX_READING, Subject, TRAFFIC_SERVER, VARNISH, WRK,
};

/// One table of the report.
#[derive(Debug)]
pub(super) struct Case {
    /// For `--only` and the JSON.
    pub(super) name: &'static str,
    /// The table's heading.
    pub(super) title: &'static str,
    /// Whose cost is measured, and by what it is divided.
    pub(super) kind: Kind,
    /// Who asks, and how many at a time.
    pub(super) load: Load,
    /// What is spoken.
    pub(super) speech: Speech,
    /// The file asked for.
    pub(super) file: File,
    /// What the origin says of its answers, where there is one behind those who are measured.
    pub(super) behind: Option<Behind>,
    /// The host asked for; `None` is the server's address.
    pub(super) host: Option<&'static str>,
    /// Which line it is of which table, where several cases share one.
    pub(super) row: Option<Row>,
    /// True if the table has the latency as well. Clients that ask again as soon as they are answered see in it how
    /// many they are.
    pub(super) shows_p99: bool,
    /// Those who take turns.
    pub(super) subjects: &'static [Subject],
    /// Whom the others are measured against, in the columns' order.
    pub(super) references: &'static [Subject],
    /// What we promise, and what is worth a line beside it.
    pub(super) promises: &'static [Promise],
}

/// A line of a table that several cases share; they share its heading, its subjects and its references too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    /// For `--only`: all cases of the table.
    pub(super) table: &'static str,
    /// The size of the page, with its head.
    pub(super) bytes: usize,
}

/// Whose processor time counts, and by what it is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The server's, by requests.
    ServerPerRequest,
    /// The server's, by requests, each with a full TLS handshake before it.
    ServerPerHandshake,
    /// The server's, by MiB.
    ServerPerMebibyte,
    /// The client's, by the requests that the server counted.
    ClientPerRequest,
}

impl Kind {
    /// What a cost is given in.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::ServerPerRequest | Self::ClientPerRequest => "CPU µs/request",
            Self::ServerPerHandshake => "CPU µs/handshake",
            Self::ServerPerMebibyte => "CPU µs/MiB",
        }
    }

    /// What a rate is given in.
    pub(super) fn rate_unit(self) -> &'static str {
        match self {
            Self::ServerPerRequest | Self::ClientPerRequest => "requests/s",
            Self::ServerPerHandshake => "handshakes/s",
            Self::ServerPerMebibyte => "MiB/s",
        }
    }
}

/// What an origin says of its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    /// That they hold for a day: the cache is warm, and no request of the rounds may reach the origin.
    Kept,
    /// That they are for one alone: every request must reach it.
    Private,
}

impl Behind {
    /// The field's value.
    pub(super) fn cache_control(self) -> &'static str {
        match self {
            Self::Kept => "max-age=86400",
            Self::Private => "private",
        }
    }
}

/// Who asks. Not used by cases whose subjects are the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// wrk, each connection kept or, if it `closes`, used once.
    Wrk { connections: usize, closes: bool },
    /// h2load, which speaks HTTP/2.
    H2load { connections: usize, streams: usize },
    /// ab, a connection for each request. It never takes up a TLS session again; wrk does.
    Ab { connections: usize },
}

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    Http1,
    Http1Tls,
    /// With prior knowledge, in clear text.
    Http2,
    Http2Tls,
}

impl Speech {
    pub(super) fn is_tls(self) -> bool {
        matches!(self, Self::Http1Tls | Self::Http2Tls)
    }

    pub(super) fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Http2Tls)
    }

    pub(super) fn scheme(self) -> &'static str {
        if self.is_tls() { "https" } else { "http" }
    }
}

/// What is said of one subject against another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Promise {
    pub(super) subject: Subject,
    pub(super) reference: Subject,
    pub(super) bound: Bound,
}

/// What a ratio must keep to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bound {
    /// It costs at most so many times as much.
    CostAtMost(f64),
    /// It does at least so many times as much a second.
    RateAtLeast(f64),
    /// Nothing is promised; the ratio of the rates is shown.
    RateShown,
}

const fn costs(subject: Subject, most: f64, reference: Subject) -> Promise {
    Promise { subject, reference, bound: Bound::CostAtMost(most) }
}

const fn does(subject: Subject, least: f64, reference: Subject) -> Promise {
    Promise { subject, reference, bound: Bound::RateAtLeast(least) }
}

const fn shown(subject: Subject, reference: Subject) -> Promise {
    Promise { subject, reference, bound: Bound::RateShown }
}

const WRK_64: Load = Load::Wrk { connections: 64, closes: false };

/// The case from which the others differ.
const KEEP_ALIVE: Case = Case {
    name: "keep-alive",
    title: "1 KiB static file, 64 keep-alive connections",
    kind: Kind::ServerPerRequest,
    load: WRK_64,
    speech: Speech::Http1,
    file: site::SMALL,
    behind: None,
    host: None,
    row: None,
    shows_p99: false,
    subjects: &[BARE, FLATOUT, NGINX, NGINX_READING, LIGHTTPD],
    references: &[BARE, NGINX, NGINX_READING, LIGHTTPD],
    // Against nginx with sendfile, as its manual has it; the ratio to the other stands in its column.
    promises: &[costs(FLATOUT, 1.10, BARE), costs(FLATOUT, 0.70, NGINX)],
};

pub(super) const CASES: &[Case] = &[
    KEEP_ALIVE,
    Case {
        name: "close",
        title: "1 KiB static file, a connection per request",
        load: Load::Wrk { connections: 64, closes: true },
        promises: &[costs(FLATOUT, 1.10, BARE)],
        ..KEEP_ALIVE
    },
    Case {
        name: "large-file",
        title: "10 MiB static file, 64 keep-alive connections",
        kind: Kind::ServerPerMebibyte,
        file: site::LARGE,
        subjects: &[BARE, FLATOUT, NGINX, LIGHTTPD],
        references: &[BARE, NGINX, LIGHTTPD],
        promises: &[costs(FLATOUT, 1.05, BARE), costs(FLATOUT, 1.05, LIGHTTPD)],
        ..KEEP_ALIVE
    },
    Case {
        name: "client",
        title: "The client: 1 KiB keep-alive from the same nginx, one thread, 64 connections",
        kind: Kind::ClientPerRequest,
        subjects: &[FLATOUT_BENCH, WRK],
        references: &[WRK],
        promises: &[costs(FLATOUT_BENCH, 1.00, WRK)],
        ..KEEP_ALIVE
    },
    Case {
        name: "client-http2",
        title: "The client over HTTP/2: 1 KiB from the same nginx, one thread, 64 connections of 10 streams",
        kind: Kind::ClientPerRequest,
        load: Load::H2load { connections: 64, streams: 10 },
        speech: Speech::Http2,
        subjects: &[FLATOUT_BENCH, H2LOAD],
        references: &[H2LOAD],
        promises: &[costs(FLATOUT_BENCH, 1.00, H2LOAD)],
        ..KEEP_ALIVE
    },
    Case {
        name: "client-open-10k",
        title: "The client by the clock: 10,000 requests of 1 KiB a second, beside wrk as fast as it can",
        kind: Kind::ClientPerRequest,
        subjects: &[FLATOUT_BENCH_OPEN, WRK],
        references: &[WRK],
        // Who waits for the clock wakes up for each request, and who is always busy for many at once.
        promises: &[],
        ..KEEP_ALIVE
    },
    Case {
        name: "many-routes",
        title: "1 KiB static file, 64 keep-alive connections, many sites and routes",
        file: site::SMALL_BY_LAST_ROUTE,
        host: Some("s73.example"),
        subjects: &[FLATOUT, FLATOUT_SITES, FLATOUT_ROUTES],
        references: &[FLATOUT],
        promises: &[costs(FLATOUT_SITES, 1.03, FLATOUT), costs(FLATOUT_ROUTES, 1.03, FLATOUT)],
        ..KEEP_ALIVE
    },
    Case {
        name: "log",
        title: "1 KiB static file, 64 keep-alive connections, each request logged",
        subjects: &[FLATOUT_LOG_OFF, FLATOUT_LOG, NGINX_LOG, NGINX_LOG_LINES],
        references: &[FLATOUT_LOG_OFF, NGINX_LOG, NGINX_LOG_LINES],
        promises: &[costs(FLATOUT_LOG, 1.15, FLATOUT_LOG_OFF), costs(FLATOUT_LOG, 0.75, NGINX_LOG)],
        ..KEEP_ALIVE
    },
    Case {
        name: "jigsaw",
        title: "Jigsaw's experiment: a file of 6,537,455 bytes with digests, 5 keep-alive connections",
        load: Load::Wrk { connections: 5, closes: false },
        file: site::JIGSAW,
        subjects: &[FLATOUT_DIGESTS_OFF, FLATOUT_DIGESTS, APACHE, APACHE_DIGEST],
        references: &[FLATOUT_DIGESTS_OFF, APACHE],
        promises: &[
            does(FLATOUT_DIGESTS, 0.98, FLATOUT_DIGESTS_OFF),
            shown(APACHE_DIGEST, APACHE),
            shown(FLATOUT_DIGESTS, APACHE_DIGEST),
        ],
        ..KEEP_ALIVE
    },
    Case {
        name: "http2",
        title: "1 KiB static file, HTTP/2 in clear text, 64 connections of 10 streams",
        load: Load::H2load { connections: 64, streams: 10 },
        speech: Speech::Http2,
        subjects: &[FLATOUT_RUN, NGINX, NGINX_READING, H2O],
        references: &[NGINX, NGINX_READING, H2O],
        promises: &[costs(FLATOUT_RUN, 0.80, NGINX)],
        ..KEEP_ALIVE
    },
    Case {
        name: "http2-tls",
        title: "1 KiB static file, HTTP/2 over TLS 1.3, 64 connections of 10 streams",
        load: Load::H2load { connections: 64, streams: 10 },
        speech: Speech::Http2Tls,
        subjects: &[FLATOUT_RUN, NGINX, H2O],
        references: &[NGINX, H2O],
        promises: &[costs(FLATOUT_RUN, 0.80, NGINX)],
        ..KEEP_ALIVE
    },
    Case {
        name: "tls-handshakes",
        title: "Full TLS 1.3 handshakes, ECDSA P-256, a connection per request for 1 KiB, 64 at a time",
        kind: Kind::ServerPerHandshake,
        load: Load::Ab { connections: 64 },
        speech: Speech::Http1Tls,
        subjects: &[FLATOUT_RUN, NGINX],
        references: &[NGINX],
        // The client works harder at a handshake than a server does, so that one client cannot fill a server, and the
        // rates are equal. What a server can do in a second of its core is one divided by the cost.
        promises: &[costs(FLATOUT_RUN, 1.00, NGINX)],
        ..KEEP_ALIVE
    },
    Case {
        name: "variant",
        title: "An HTML page of 8 KiB, as it is and with brotli from the cache of variants",
        file: site::PAGE,
        subjects: &[FLATOUT_IDENTITY, FLATOUT_BROTLI],
        references: &[FLATOUT_IDENTITY],
        promises: &[costs(FLATOUT_BROTLI, 1.05, FLATOUT_IDENTITY)],
        ..KEEP_ALIVE
    },
    Case {
        name: "hit",
        title: "1 KiB from the cache of an accelerator, 64 keep-alive connections",
        behind: Some(Behind::Kept),
        subjects: &[
            BARE,
            FLATOUT_STATIC,
            ACCELERATE,
            VARNISH,
            NGINX_CACHE,
            NGINX_CACHE_READING,
            HAPROXY_CACHE,
            TRAFFIC_SERVER,
        ],
        references: &[BARE, FLATOUT_STATIC, VARNISH, NGINX_CACHE, NGINX_CACHE_READING, HAPROXY_CACHE, TRAFFIC_SERVER],
        // Held against every peer is held against the best of them.
        promises: &[
            costs(ACCELERATE, 1.05, FLATOUT_STATIC),
            costs(ACCELERATE, 0.60, VARNISH),
            costs(ACCELERATE, 0.60, NGINX_CACHE),
            costs(ACCELERATE, 0.60, NGINX_CACHE_READING),
            costs(ACCELERATE, 0.60, HAPROXY_CACHE),
            costs(ACCELERATE, 0.60, TRAFFIC_SERVER),
        ],
        ..KEEP_ALIVE
    },
    Case {
        name: "hit-large",
        title: "10 MiB from the cache of an accelerator, 64 keep-alive connections",
        kind: Kind::ServerPerMebibyte,
        file: site::LARGE,
        behind: Some(Behind::Kept),
        subjects: &[BARE, ACCELERATE, VARNISH, NGINX_CACHE, HAPROXY_CACHE, TRAFFIC_SERVER],
        references: &[BARE, VARNISH, NGINX_CACHE, HAPROXY_CACHE, TRAFFIC_SERVER],
        promises: &[costs(ACCELERATE, 1.05, BARE)],
        ..KEEP_ALIVE
    },
    Case {
        name: "forward",
        title: "1 KiB forwarded, private to its client, 64 keep-alive connections",
        behind: Some(Behind::Private),
        subjects: &[ACCELERATE, HAPROXY, NGINX_PROXY],
        references: &[HAPROXY, NGINX_PROXY],
        promises: &[costs(ACCELERATE, 0.75, HAPROXY), costs(ACCELERATE, 0.75, NGINX_PROXY)],
        ..KEEP_ALIVE
    },
];

#[cfg(test)]
mod tests {
    use super::super::subjects::Setup;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_case_measures_us_and_everyone_its_columns_and_promises_name() {
        let is_ours = |subject: &Subject| {
            matches!(
                subject.setup,
                Setup::Pages
                    | Setup::Serve
                    | Setup::Run(_)
                    | Setup::Accelerate
                    | Setup::FlatoutBench
                    | Setup::FlatoutBenchOpen
            )
        };
        for case in CASES {
            assert!(case.subjects.iter().any(is_ours), "{}", case.name);
            let promised = case.promises.iter().flat_map(|promise| [&promise.subject, &promise.reference]);
            for subject in case.references.iter().chain(promised) {
                assert!(case.subjects.contains(subject), "{}: {}", case.name, subject.name);
            }
        }
    }

    #[test]
    fn no_two_cases_and_no_two_subjects_of_a_case_share_a_name() {
        let names: BTreeSet<_> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
        for case in CASES {
            let slugs: BTreeSet<_> = case.subjects.iter().map(|subject| subject.slug()).collect();
            assert_eq!(slugs.len(), case.subjects.len(), "{}", case.name);
        }
    }

    #[test]
    fn who_stands_in_front_of_an_origin_has_one() {
        for case in CASES {
            let has_fronts = case.subjects.iter().any(|subject| subject.setup.is_front());
            assert_eq!(has_fronts, case.behind.is_some(), "{}", case.name);
        }
    }

    #[test]
    fn a_case_speaks_what_its_client_can() {
        for case in CASES {
            let speaks_http2 = matches!(case.load, Load::H2load { .. });
            assert_eq!(case.speech.is_http2(), speaks_http2, "{}", case.name);
            // wrk takes sessions up again, so its handshakes are not full ones.
            assert!(case.kind != Kind::ServerPerHandshake || matches!(case.load, Load::Ab { .. }), "{}", case.name);
        }
    }
}
