//! Complete benches against the bare loop and against minimal servers.

use super::levels::halves;
use super::{Bench, BenchReport, BenchSpec, CounterSource, Live, Phase, ProgressReceiver, Unwatched, run};
use crate::cores::Placement;
use crate::limits::responder::{Responder, ResponderPlan, ResponderReply};
use flatout_http::url::Url;
use flatout_load::FailureKind;
use flatout_load::judge::InvalidReason;
use flatout_load::plan::{ArrivalKind, Arrivals, Loop, Plan, Stop, Visit};
use flatout_load::report::RunReport;
use flatout_load::workload::{Method, WorkloadEntry};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

fn asked(address: SocketAddr, stop: Stop) -> BenchSpec {
    let plan = Plan { connections: 4, stop, timeout_ns: 2_000_000_000, ..Plan::default() };
    let ask = BenchSpec::new(Url::parse(&format!("http://{address}/x")).unwrap(), plan).unwrap();
    BenchSpec { threads: 2, request_timeout_ns: 2_000_000_000, ..ask }
}

fn responder(closes: bool) -> Responder {
    let address = "127.0.0.1:0".parse().unwrap();
    let reply = ResponderReply::Memory { body_bytes: 100 };
    Responder::start(&ResponderPlan { address, placements: vec![Placement::Anywhere], reply, closes }).unwrap()
}

/// Responds to the first bytes of each connection with a fixed text, and closes.
fn server(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _request = stream.read(&mut [0; 4096]);
            let _answered = stream.write_all(answer.as_bytes());
        }
    });
    address
}

fn bench(asked: BenchSpec) -> BenchReport {
    run(asked, None, &mut Unwatched).unwrap()
}

#[test]
fn only_a_get_with_content_becomes_a_post() {
    let asked = asked(([127, 0, 0, 1], 9).into(), Stop::Count(1));
    let address = || asked.work.workload().entries[0].address.clone();
    let of = |method, content: &[u8]| {
        asked.method_of(&WorkloadEntry { method, ..WorkloadEntry::get(address()) }, content).to_owned()
    };
    assert_eq!([of(Method::Get, b""), of(Method::Get, b"x"), of(Method::Head, b"x")], ["GET", "POST", "HEAD"]);
}

#[test]
fn a_number_of_requests_is_sent_exactly() {
    for closes in [false, true] {
        let responder = responder(closes);
        let mut asked = asked(responder.address(), Stop::Count(1_001));
        if closes {
            asked.plans[0].visit = Visit::Connection { calls: 1 };
        }
        let report = bench(asked);
        let step = &report.run.steps[0];
        let counts = &step.record.counts;
        assert_eq!((counts.requests_sent, counts.responses, counts.status_classes[1]), (1_001, 1_001, 1_001));
        assert_eq!(counts.body_bytes_in, 100_100);
        let expected = if closes { 1_001 } else { 4 };
        assert_eq!((counts.connections, counts.server_closes, report.threads), (expected, 0, 2));
        assert!(report.passed() && step.record.details.is_empty());
        // The responder runs in this process.
        assert!(report.server.unwrap().processes.contains(&std::process::id()));
    }
}

#[test]
fn after_the_deadline_nothing_is_sent_and_everything_is_answered() {
    let responder = responder(false);
    let report = bench(asked(responder.address(), Stop::After { duration_ns: 200_000_000 }));
    let step = &report.run.steps[0];
    let counts = &step.record.counts;
    assert!(counts.responses > 0 && counts.responses == counts.requests_sent);
    // The last request started just before the end.
    assert!(step.elapsed_ns >= 190_000_000);
}

#[test]
fn the_limit_is_measured_between_two_halves() {
    let responder = responder(false);
    let mut asked = asked(responder.address(), Stop::Count(2_000));
    asked.with_limit = true;
    let report = bench(asked);
    assert_eq!(report.run.steps[0].record.counts.requests_sent, 2_000);
    let limit = report.limit.unwrap();
    assert!(report.run.limit.is_some_and(|limit| limit.value > 0.0 && limit.share > 0.0));
    assert_eq!((limit.body_bytes, limit.by_sendfile, limit.failures), (100, false, 0));
    assert!(limit.threads >= 1 && limit.elapsed_ns >= 1_000_000_000 && limit.requests_per_s > 0.0);
    assert!(limit.requests_share > 0.0 && limit.cpu_ratio.unwrap() > 0.0 && limit.cpu_ns_per_request > 0.0);
}

#[test]
fn a_run_that_failed_says_why() {
    for (answer, failing, kind) in [
        ("HTTP/1.1 404 N\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", &["status-4xx"][..], None),
        ("HTTP/1.1 503 U\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", &["status-5xx"], None),
        (
            "HTTP/1.1 200 K\r\nContent-Length: 9\r\n\r\nshort",
            &["nothing-answered", "bodies-short"],
            Some(FailureKind::ShortBody),
        ),
        ("ICY 200 OK\r\n\r\n", &["nothing-answered", "requests-failed"], Some(FailureKind::BadResponse)),
    ] {
        let report = bench(asked(server(answer), Stop::Count(8)));
        let step = &report.run.steps[0];
        let names: Vec<_> = step.failing.iter().map(|reason| reason.name.as_str()).collect();
        assert_eq!(names, failing, "{answer:?}");
        if let Some(kind) = kind {
            assert_eq!(step.record.counts.failures_of(kind), 8);
        }
    }
}

#[test]
fn where_nothing_listens_nothing_is_sent_and_the_run_ends_at_once() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut asked = asked(address, Stop::After { duration_ns: 60_000_000_000 });
    asked.with_limit = true;
    let report = bench(asked);
    let step = &report.run.steps[0];
    let names: Vec<_> = step.failing.iter().map(|reason| reason.name.as_str()).collect();
    assert_eq!(names, ["nothing-sent", "requests-failed"]);
    assert_eq!(step.record.counts.failures_of(FailureKind::ConnRefused), 4);
    assert!(report.limit.is_none() && step.elapsed_ns < 60_000_000_000);
}

#[test]
fn watchers_see_the_progress_of_a_run() {
    struct Watch(Vec<(Phase, u64)>);
    impl ProgressReceiver for Watch {
        fn is_live(&self) -> bool {
            true
        }

        fn handle_live(&mut self, phase: Phase, live: Option<&Live>) {
            self.0.push((phase, live.map_or(0, |live| live.responses)));
        }
    }
    let responder = responder(false);
    let mut watch = Watch(Vec::new());
    run(asked(responder.address(), Stop::After { duration_ns: 900_000_000 }), None, &mut watch).unwrap();
    assert!(watch.0.len() >= 2 && watch.0.iter().all(|(phase, _)| *phase == Phase::Server));
    assert!(watch.0.is_sorted_by_key(|(_, responses)| *responses) && watch.0.last().unwrap().1 > 0);
}

#[test]
fn halves_add_up() {
    let plan = |stop| Plan { connections: 1, stop, ..Plan::default() };
    let stops = |stop| {
        let (first, second) = halves(&plan(stop));
        (first.stop, second.map(|second| second.stop))
    };
    assert_eq!(stops(Stop::Count(7)), (Stop::Count(3), Some(Stop::Count(4))));
    assert_eq!(stops(Stop::Count(1)), (Stop::Count(1), None));
    let after = |duration_ns| Stop::After { duration_ns };
    assert_eq!(stops(after(9)), (after(4), Some(after(5))));
    // Changing rates and the times of a log would restart in the second half.
    let open = |arrivals| Plan { kind: Loop::Open(arrivals), ..plan(after(9)) };
    let steps = |text| open(Arrivals::parse(text, None).unwrap());
    for whole in [steps("steps:5@1s,9@1s"), steps("steps:5..9@1s")] {
        let (first, second) = halves(&whole);
        assert!(first == whole && second.is_none(), "{whole:?}");
    }
    assert!(halves(&steps("steps:5@1s")).1.is_some());
    assert!(halves(&open(Arrivals::constant(ArrivalKind::Exp, 5.0))).1.is_some());
}

fn reasons_of(run: &RunReport) -> Vec<Vec<InvalidReason>> {
    let is_reported =
        |reason: &InvalidReason| matches!(reason, InvalidReason::CountsMissing | InvalidReason::NotMeasured);
    let reasons =
        run.steps.iter().map(|step| step.invalid.iter().map(|invalid| invalid.reason).filter(is_reported).collect());
    reasons.collect()
}

#[test]
fn server_counters_that_vanish_at_a_later_level_cost_no_level() {
    let responder = responder(false);
    let path = std::env::temp_dir().join(format!("flatout-bench-counters-{}", std::process::id()));
    fs::write(&path, "").unwrap();
    let asked = asked(responder.address(), Stop::Count(20));
    let plan = asked.plans[0].clone();
    let mut bench = Bench::prepare(asked.clone(), Some(CounterSource::Log(path.clone()))).unwrap();
    // The bare loop keeps no counters, so this level waits for them until the timeout.
    assert!(bench.step(&plan, false, &mut Unwatched).is_some());
    fs::remove_file(&path).unwrap();
    assert!(bench.step(&plan, false, &mut Unwatched).is_some() && !bench.is_over());
    assert!(bench.step(&plan, false, &mut Unwatched).is_some());
    let report = bench.finish().unwrap();
    let missing = vec![InvalidReason::CountsMissing];
    assert_eq!(reasons_of(&report.run), [vec![], missing.clone(), missing]);
    let text = report.run.steps[1].evidence.counts_missing.as_deref().unwrap();
    assert!(text.contains("flatout-bench-counters"), "{text}");
    assert!(report.run.steps.iter().all(|step| step.record.counts.responses == 20));
    // Before the first request, nothing can be lost, so missing counters are an error at once.
    assert!(Bench::prepare(asked, Some(CounterSource::Log(path))).is_err_and(|error| error.is_usage()));
}

#[test]
fn a_level_that_cannot_be_run_costs_no_other() {
    let responder = responder(true);
    let mut asked = asked(responder.address(), Stop::Count(5));
    asked.sources = Some(1);
    let at = |rate| Plan {
        kind: Loop::Open(Arrivals::constant(ArrivalKind::Fixed, rate)),
        visit: Visit::Connection { calls: 1 },
        stop: Stop::Count(if rate > 1e6 { 1_000_000 } else { 5 }),
        ..asked.plans[0].clone()
    };
    let mut bench = Bench::prepare(BenchSpec { plans: vec![at(100.0)], ..asked.clone() }, None).unwrap();
    assert!(bench.step(&at(100.0), false, &mut Unwatched).is_some());
    assert!(bench.step(&at(9e6), false, &mut Unwatched).is_none(), "nobody has so many ports");
    assert!(!bench.is_over() && !bench.is_whole(), "fewer may be enough for another");
    assert!(bench.step(&at(200.0), false, &mut Unwatched).is_some());
    let report = bench.finish().unwrap();
    assert_eq!(reasons_of(&report.run), [vec![], vec![InvalidReason::NotMeasured]]);
    let text = report.run.steps[1].evidence.part_missing.as_deref().unwrap();
    assert!(text.contains("use --source-addresses"), "{text}");
    // A run without any result is an error.
    let mut bench = Bench::prepare(BenchSpec { plans: vec![at(100.0)], ..asked.clone() }, None).unwrap();
    assert!(bench.step(&at(9e6), false, &mut Unwatched).is_none());
    assert!(bench.finish().is_err_and(|error| error.is_usage()));
}
