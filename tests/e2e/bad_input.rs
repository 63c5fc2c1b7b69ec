//! Malformed, ambiguous and hostile requests: the exact response to each, and that none of them harms the server.
//!
//! The tables are in tests/vectors. Each row is sent in one piece, byte by byte, and followed by a well-formed request,
//! which must not get a response after a refusal. The access log and the counters must match the tables exactly. Slow
//! peers are covered by `timeouts`.

pub(crate) mod exchange;
pub(crate) mod trapped;
pub(crate) mod vectors;

use super::harness::{Response, Server, wait_until};
use super::timeouts::{CLOSES, wait_until_idle};
use super::{http2, http3, tls};
use exchange::{Way, exchange};
use flatout_handler::ending::CloseReason;
use flatout_http::refusal::Refusal;
use flatout_serve::outcome::FileOutcome;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use trapped::{CANARY, LARGE_BYTES, PAGE, TrappedSite};
use vectors::{Expected, Row, SERVED, parse_table};

const BAD_FILE: &str = "tests/vectors/bad-requests.txt";
const VALID_FILE: &str = "tests/vectors/valid-requests.txt";

/// The outcomes that the log may contain where a table says `served`.
const SERVED_OUTCOMES: [&str; 4] = ["hit", "checked", "loaded", "range_refused"];

pub(crate) fn bad_rows() -> Vec<Row> {
    parse_table(BAD_FILE, include_str!("../vectors/bad-requests.txt")).unwrap()
}

pub(crate) fn valid_rows() -> Vec<Row> {
    parse_table(VALID_FILE, include_str!("../vectors/valid-requests.txt")).unwrap()
}

#[test]
fn every_bad_request_gets_the_expected_response_and_does_no_harm() {
    run_table(&bad_rows());
}

#[test]
fn every_unusual_but_valid_request_gets_the_expected_response() {
    run_table(&valid_rows());
}

#[test]
fn every_refusal_and_every_refusing_outcome_is_in_the_table() {
    let rows = bad_rows();
    assert!(rows.len() >= 130, "only {} rows", rows.len());
    let outcomes: BTreeSet<_> = rows.iter().flat_map(|row| &row.answers).map(|answer| answer.outcome).collect();
    // These refusals are covered by other tests: a client receives a status line, and HTTP on a TLS port and CONNECT in
    // a stream are tested separately.
    let elsewhere = [Refusal::StatusLine, Refusal::HttpOnTlsPort, Refusal::ConnectProtocol];
    let refusals = Refusal::ALL.iter().filter(|refusal| !elsewhere.contains(refusal));
    let missing: Vec<_> = refusals.map(|refusal| refusal.name()).filter(|name| !outcomes.contains(name)).collect();
    assert!(missing.is_empty(), "no row is refused for {missing:?}");
    // These outcomes are caused by a file that changes, fails or is unreadable, or by a lack of descriptors, not by a
    // bad request.
    let elsewhere = ["forbidden", "file_unsettled", "no_descriptor", "file_failed"];
    let valid = valid_rows();
    // These outcomes need settings that this server does not have. `files` and `php` test them.
    let configured = [
        "encoded",
        "encoded_first",
        "encoding_pending",
        "thread_pool_full",
        "fallback",
        "listing",
        "listing_read",
        "parts",
        "source_hidden",
        "try_status",
    ];
    let outcomes = outcomes
        .into_iter()
        .chain(configured)
        .chain(valid.iter().flat_map(|row| &row.answers).map(|answer| answer.outcome));
    let outcomes: BTreeSet<_> = outcomes.chain(elsewhere).chain(SERVED_OUTCOMES).collect();
    let missing: Vec<_> = FileOutcome::NAMES.iter().filter(|name| !outcomes.contains(*name)).collect();
    assert!(missing.is_empty(), "no row has the outcomes {missing:?}");
}

const STREAM_CLOSES: [CloseReason; 12] = [
    CloseReason::ContentTooLarge,
    CloseReason::ClientAborted,
    CloseReason::OriginTruncated,
    CloseReason::OriginCutBody,
    CloseReason::OriginBodyTimeout,
    CloseReason::OriginBodyMalformed,
    CloseReason::LengthBroken,
    CloseReason::TunnelEnded,
    CloseReason::TunnelIdle,
    CloseReason::PageFailed,
    CloseReason::StoredCorrupt,
    CloseReason::DelayedOthers,
];

const PROXY_HEADER_CLOSES: [CloseReason; 3] =
    [CloseReason::ProxyHeaderInvalid, CloseReason::ProxyHeaderTimeout, CloseReason::ProxyHeaderUntrusted];

#[test]
fn every_close_reason_that_a_request_can_cause_is_in_a_table() {
    let closes: BTreeSet<_> = bad_rows()
        .iter()
        .chain(&valid_rows())
        .map(|row| row.closed.unwrap_or(CloseReason::ClientClosed).name())
        .chain(CLOSES)
        .chain(http2::CLOSES)
        .chain(http3::CLOSES)
        .chain(tls::CLOSES)
        // These need a listener with `proxy-protocol`. They are tested in accelerator::proxy_protocol.
        .chain(PROXY_HEADER_CLOSES.map(CloseReason::name))
        // Only a failing disk or a failing kernel causes these.
        .chain([CloseReason::FileFailed.name(), CloseReason::SocketFailed.name()])
        // These need responses that arrive in pieces, or tunnels. They are tested in crates/net/src/server/tests,
        // accelerator::faults, accelerator::damage, accelerator::slow_readers and pages::failures.
        .chain(STREAM_CLOSES.map(CloseReason::name))
        .collect();
    let missing: Vec<_> =
        CloseReason::ALL.iter().map(|reason| reason.name()).filter(|name| !closes.contains(name)).collect();
    assert!(missing.is_empty(), "no test covers the close reasons {missing:?}");
}

/// Sends every row in every way, and compares the responses, the log, the counters and the state of the server with the
/// table.
fn run_table(rows: &[Row]) {
    let site = TrappedSite::new();
    let log = site.log_path();
    let server = Server::start(&site.path(), &["--access-log", log.to_str().unwrap()]);
    let mut counts = Counts::default();
    let descriptors = warm_up(&server, &mut counts);
    wait_until_quiet(&server, descriptors);
    let before_kb = server.memory_kb("RssAnon");
    for row in rows {
        for &way in Way::of(row) {
            let label = format!("{} ({way:?})", row.name);
            let answers = counts.expect(&label, row, way);
            let responses = exchange(&server, row, way).unwrap_or_else(|error| panic!("{label}: {error}"));
            check_responses(&label, row, &answers, &responses);
            check_fresh_connection(&server, &label);
            counts.expect_fresh(&label);
        }
    }
    wait_until_quiet(&server, descriptors);
    let after_kb = server.memory_kb("RssAnon");
    assert!(after_kb <= before_kb + 512, "{before_kb} kB have become {after_kb} kB");
    let (status, counters) = server.stop();
    assert!(status.success(), "{status:?}: {counters}");
    counts.check_log(&fs::read(log).unwrap());
    counts.check_counters(&counters);
}

/// Fills the caches as the visitors of any site would, and returns how many descriptors the server then holds.
fn warm_up(server: &Server, counts: &mut Counts) -> usize {
    for path in ["/", "/docs/", "/large.bin"] {
        assert_eq!(server.get(path).status, 200);
        counts.expect_fresh("warming up");
    }
    // A connection that the server has not closed yet must not be counted.
    wait_until("all connections are closed", || connections(server) == 0);
    descriptors(server)
}

/// Number of connections that the server holds, from the kernel's table: those to its port that a process has open.
pub(crate) fn connections(server: &Server) -> usize {
    let port = format!(":{:04X}", server.address_of(0).port());
    let table = fs::read_to_string(format!("/proc/{}/net/tcp", server.worker())).unwrap();
    let is_held = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1).is_some_and(|local| local.ends_with(&port)) && fields[3] != "0A" && fields[9] != "0"
    };
    table.lines().skip(1).filter(is_held).count()
}

fn descriptors(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.worker())).unwrap().count()
}

/// Waits until every connection is closed and the server is idle.
fn wait_until_quiet(server: &Server, expected_descriptors: usize) {
    wait_until("all connections are closed", || descriptors(server) == expected_descriptors);
    wait_until_idle(server);
}

fn check_responses(label: &str, row: &Row, answers: &[Expected], responses: &[Response]) {
    let expected: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    let came: Vec<_> = responses.iter().map(|response| response.status).collect();
    assert_eq!(came, expected, "{label}");
    for (index, response) in responses.iter().enumerate() {
        assert!(!response.body.windows(CANARY.len()).any(|window| window == CANARY), "{label}: the secret is out");
        let closed =
            matches!(row.closed, Some(CloseReason::Refused | CloseReason::RefusedBody | CloseReason::NotPersistent));
        let says_last = response.field("connection") == Some("close");
        assert_eq!(says_last, closed && index + 1 == responses.len(), "{label}: {:?}", response.fields);
        let to_head = row.bytes.starts_with(b"HEAD ") && index == 0;
        if response.status == 200 && !to_head {
            let large = response.body.len() == LARGE_BYTES && response.body.iter().all(|&byte| byte == b'L');
            assert!(response.body == PAGE || large, "{label}: {:?}", String::from_utf8_lossy(&response.body));
        }
    }
}

fn check_fresh_connection(server: &Server, label: &str) {
    let response = server.get("/");
    assert_eq!((response.status, response.body.as_slice()), (200, PAGE), "the request after {label}");
}

/// The expected contents of the log and the counters.
#[derive(Default)]
struct Counts {
    lines: Vec<Line>,
    closes: BTreeMap<&'static str, u64>,
    refusals: BTreeMap<&'static str, u64>,
}

/// The fields of an access log line that a table determines.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    label: String,
    status: u16,
    outcome: &'static str,
    ending: &'static str,
}

impl Counts {
    /// Records what `row`, sent in `way`, must leave in the log and the counters, and returns the expected responses.
    fn expect(&mut self, label: &str, row: &Row, way: Way) -> Vec<Expected> {
        let mut answers = row.answers.clone();
        if way == Way::Followed && row.closed.is_none() {
            answers.push(Expected { status: 200, outcome: SERVED });
        }
        for answer in &answers {
            self.expect_line(label, answer.status, answer.outcome, "sent");
            // A path above the root is well-formed: the site refuses it, not the core.
            if !FileOutcome::NAMES.contains(&answer.outcome) && answer.outcome != SERVED {
                *self.refusals.entry(answer.outcome).or_default() += 1;
            }
        }
        let closed = row.closed.unwrap_or(CloseReason::ClientClosed).name();
        if row.closed == Some(CloseReason::ClientCutBody) {
            self.expect_line(label, 0, "client_closed", closed);
        }
        *self.closes.entry(closed).or_default() += 1;
        answers
    }

    /// Records a plain GET on its own connection.
    fn expect_fresh(&mut self, label: &str) {
        self.expect_line(&format!("the request after {label}"), 200, SERVED, "sent");
        *self.closes.entry(CloseReason::NotPersistent.name()).or_default() += 1;
    }

    fn expect_line(&mut self, label: &str, status: u16, outcome: &'static str, ending: &'static str) {
        self.lines.push(Line { label: label.to_owned(), status, outcome, ending });
    }

    fn check_log(&self, log: &[u8]) {
        assert!(log.iter().all(|byte| (b' '..=b'~').contains(byte) || *byte == b'\n'), "a line is not plain text");
        let lines: Vec<_> = std::str::from_utf8(log).unwrap().lines().collect();
        let mut differences = Vec::new();
        for (expected, line) in self.lines.iter().zip(&lines) {
            // client - - [date] "request line" status bytes "referer" "user agent" outcome ending duration_us
            let parts: Vec<_> = line.split('"').collect();
            let [_, _, answer, _, _, _, reasons] = parts.as_slice() else { panic!("{}: {line}", expected.label) };
            let status: u16 = answer.split_whitespace().next().unwrap().parse().unwrap();
            let reasons: Vec<_> = reasons.split_whitespace().collect();
            let outcome = if SERVED_OUTCOMES.contains(&reasons[0]) { SERVED } else { reasons[0] };
            if (status, outcome, reasons[1]) != (expected.status, expected.outcome, expected.ending) {
                differences.push(format!("{expected:?}: {line}"));
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
        assert_eq!(lines.len(), self.lines.len(), "lines of the log");
    }

    fn check_counters(&self, counters: &str) {
        let rows: BTreeMap<_, u64> = counters
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(name, count)| Some((name, count.trim().parse().ok()?)))
            .collect();
        let with_prefix = |prefix: &str| -> BTreeMap<_, _> {
            rows.iter().filter_map(|(name, count)| Some((name.strip_prefix(prefix)?, *count))).collect()
        };
        assert_eq!(with_prefix("closed_"), self.closes);
        assert_eq!(with_prefix("refused_"), self.refusals);
        assert_eq!(rows["connections_accepted"], self.closes.values().sum::<u64>());
    }
}
