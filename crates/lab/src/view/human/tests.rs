use super::{print_bench, print_limits};
use crate::bench::{BenchReport, BenchSpec, Limit, ServerFound};
use crate::cores::CorePair;
use crate::limits::{Gap, LimitsPlan, LimitsReport, Measure, Roles};
use crate::request::RequestField;
use crate::spread::Spread;
use crate::target::TargetUnknown;
use crate::view::json::{bench_value, limits_value};
use flatout_http::url::Url;
use flatout_load::FailureKind;
use flatout_load::plan::{ArrivalKind, Arrivals, Loop, Plan, Stop};
use flatout_load::record::{Hdr, Recorder, RecorderSettings, Sample};
use flatout_load::report::{
    ClientReport, Cpu, MachineReport, RunReport, SCHEMA, SCHEMA_VERSION, ServerReport, StepFacts, StepReport, Times,
    WarmUpReport,
};
use flatout_load::schedule::Tally;
use flatout_report::style::Style;
use std::time::Duration;

fn machine() -> MachineReport {
    MachineReport {
        cpu_model: "Some CPU".to_owned(),
        cores: 2,
        kernel: "6.1".to_owned(),
        memory_bytes: 4 << 30,
        ..MachineReport::default()
    }
}

const TENTH_NS: u64 = 100_000_000;

/// One completed request, modified by `change`.
fn sample(change: impl Fn(&mut Sample)) -> Sample {
    let mut sample = Sample {
        class: 0,
        step: 0,
        intended_ns: TENTH_NS,
        begun_ns: TENTH_NS,
        sent_ns: TENTH_NS,
        first_byte_ns: TENTH_NS + 500_000,
        ended_ns: TENTH_NS + 500_000,
        resolve_ns: 0,
        connect_ns: 0,
        tls_ns: 0,
        result: Ok(200),
        detail: "",
        head_bytes: 200,
        body_bytes: 1024,
        sent_bytes: 80,
        interim_responses: 0,
        is_new_connection: false,
    };
    change(&mut sample);
    sample
}

fn add(recorder: &mut Recorder, sample: &Sample) {
    recorder.record_begun(1, sample.intended_ns, sample.begun_ns);
    recorder.record(sample);
}

fn fail(recorder: &mut Recorder, kind: FailureKind, detail: &'static str) {
    add(recorder, &sample(|sample| (sample.result, sample.detail) = (Err(kind), detail)));
}

fn report(record: impl Fn(&mut Recorder)) -> BenchReport {
    report_of(Plan { stop: Stop::After { duration_ns: 1_000_000_000 }, ..Plan::default() }, record)
}

fn report_of(plan: Plan, record: impl Fn(&mut Recorder)) -> BenchReport {
    let settings = RecorderSettings { classes: 1, start_ns: 0, measured_from_ns: 0 };
    let mut recorder = Recorder::new(settings).unwrap();
    recorder.record_connect_begun(TENTH_NS);
    recorder.record_connected(TENTH_NS, None);
    for index in 0..2_000 {
        let is_new_connection = index == 0;
        let connect_ns = if is_new_connection { 20_000 } else { 0 };
        add(
            &mut recorder,
            &sample(|sample| (sample.is_new_connection, sample.connect_ns) = (is_new_connection, connect_ns)),
        );
    }
    record(&mut recorder);
    recorder.finish(1_000_000_000);
    let url = Url::parse("http://127.0.0.1:8080/").unwrap();
    let facts = StepFacts {
        step: 0,
        plan: plan.clone(),
        elapsed_ns: 1_000_000_000,
        tally: Tally { slots_peak: 64, ..Tally::default() },
        warm_up: WarmUpReport::default(),
        client: ClientReport {
            cpu: Cpu { user_ns: 8_000_000, system_ns: 0 },
            cpu_ns_per_response: Some(4_000.0),
            busy_wait_ns: 0,
            busy_share: 0.4,
            wait_share: 0.0,
            held_back_share: None,
            stopped_ns: 0,
            crowded_share: None,
            loop_lag: Times::of(Hdr::new().unwrap()),
            memory_bytes_peak: None,
            other_cpu_share: None,
            agents: Vec::new(),
        },
        server: Some(ServerReport {
            cpu: Cpu { user_ns: 12_000_000, system_ns: 0 },
            cpu_ns_per_response: Some(6_000.0),
            ..ServerReport::default()
        }),
        kernel: None,
        reconciliation: None,
        agents_lost: 0,
        counts_missing: None,
        stopped_early: None,
        interrupted: false,
        overload: false,
    };
    let mut step = StepReport::of(recorder, facts);
    // The validity of an invented one-second record does not matter here.
    step.invalid.clear();
    BenchReport {
        run: RunReport {
            schema: SCHEMA.to_owned(),
            schema_version: SCHEMA_VERSION,
            label: url.to_string(),
            flatout_version: "0".to_owned(),
            command: Vec::new(),
            begun_unix_ms: 1_700_000_000_000,
            url: url.to_string(),
            address: "127.0.0.1:8080".to_owned(),
            protocol: "HTTP/1.1".to_owned(),
            workload: "one URL".to_owned(),
            seed: 1,
            request_timeout_ns: 10_000_000_000,
            threads: 1,
            agents: 0,
            server_software: None,
            machine: machine(),
            class_names: vec!["/".to_owned()],
            steps: vec![step],
            limit: None,
            thresholds: Vec::new(),
            findings: serde_json::Map::new(),
        },
        asked: BenchSpec::new(url, plan).unwrap(),
        addresses_used: vec!["127.0.0.1:8080".parse().unwrap()],
        threads: 1,
        server: Ok(ServerFound { name: "nginx".to_owned(), processes: vec![7, 8], busy_threads: 1 }),
        limit: None,
        interrupted: false,
    }
}

fn limit() -> Limit {
    Limit {
        body_bytes: 1024,
        threads: 1,
        by_sendfile: false,
        elapsed_ns: 1_000_000_000,
        responses: 4_000,
        failures: 0,
        requests_per_s: 4_000.0,
        cpu_ns_per_request: 5_000.0,
        requests_share: 0.5,
        cpu_ratio: Some(1.2),
        client_was_limit: false,
    }
}

#[test]
fn a_good_run_reads_so() {
    let mut report = report(|_| {});
    report.limit = Some(limit());
    let expected = "\
http://127.0.0.1:8080/   64 connections, kept alive, 1 thread, 1.00 s

  Valid: the figures are reliable.

  requests/s       2,000
  received         2.33 MiB/s   2.33 MiB in total
                   mean     p50     p75     p90     p95     p99   p99.9     max
  latency        500 µs  500 µs  500 µs  500 µs  500 µs  500 µs  500 µs  500 µs
    first byte   500 µs  500 µs  500 µs  500 µs  500 µs  500 µs  500 µs  500 µs
  connect       20.0 µs 20.0 µs 20.0 µs 20.0 µs 20.0 µs 20.0 µs 20.0 µs 20.0 µs
    closed loop: latency is from the end of the previous response to the end
    of this one; a stall is one slow response
    first byte: from the end of the request to the first byte of its response
  distribution     393 µs █ 524 µs
  connections      1
  responses        2,000   200 2,000   of 2,000 sent
    in time        2,000   of 2,000 started
  errors           none
  client CPU       4.00 µs per request   1 thread, 40.0 % busy
  server CPU       6.00 µs per request   nginx, 2 processes, 1 busy thread; without threads that have exited

  machine limit    bare loop on 1 thread, 1.00 KiB bodies from memory, kept alive, 1.00 s
    requests/s     4,000   this run: 50.0 % of that limit
    CPU            5.00 µs per request   this run: 1.20 x

  Some CPU, 2 cores, 4.0 GiB, Linux 6.1
  seed 1
";
    assert_eq!(print_bench(&report, Style::PLAIN), expected);
}

#[test]
fn an_open_loop_says_how_many_connections_it_used() {
    let kind = Loop::Open(Arrivals::constant(ArrivalKind::Fixed, 2_000.0));
    let stop = Stop::After { duration_ns: 1_000_000_000 };
    let text = print_bench(&report_of(Plan { kind, stop, ..Plan::default() }, |_| {}), Style::PLAIN);
    assert!(text.contains("   2,000 requests/s, 1 of up to 64 connections, kept alive, 1 thread, 1.00 s\n"), "{text}");
}

#[test]
fn a_bad_run_says_first_what_went_wrong() {
    let mut report = report(|recorder| {
        fail(recorder, FailureKind::BadResponse, "status_line");
        fail(recorder, FailureKind::ClientTimo, "");
        add(recorder, &sample(|sample| sample.result = Ok(503)));
    });
    report.server = Err(TargetUnknown::NotPermitted);
    let text = print_bench(&report, Style::PLAIN);
    for expected in [
        "500 µs  500 µs   never\n",
        "                   of 2,000 responses; 2 requests without a valid response count as slower",
        "  responses        2,001   200 2,000  503 1   of 2,003 sent\n",
        "  errors           1 status 503   the status is not one of 2xx,3xx\n    response time  p50 500 µs",
        "                   1 client-timo   the response was not complete within the request timeout\n",
        "                   1 bad-response   the received data is not an HTTP response (status_line 1)\n",
        "  server CPU       -   unknown: the server's processes belong to another user\n",
        "\n\n  Valid, but requests failed.\n  FAILED: 2 requests failed\n  FAILED: 1 request was answered with 5xx\n\n",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
    assert!(print_bench(&report, Style::COLOURED).contains("\x1b[1;31m  FAILED: 2 requests failed\x1b[0m"));
}

#[test]
fn json_names_its_schema_and_every_error_kind() {
    let mut report = report(|recorder| fail(recorder, FailureKind::ShortBody, ""));
    report.limit = Some(limit());
    let value = bench_value(&report);
    assert_eq!((&value["schema"], &value["schema_version"]), (&"flatout-run".into(), &3.into()));
    assert_eq!(
        (value["passed"].as_bool(), value["failing"][0]["reason"].as_str()),
        (Some(false), Some("bodies-short"))
    );
    assert_eq!(value["counts"]["responses"], 2_000);
    assert_eq!((&value["latency_from"], &value["begun_unix_ms"]), (&"intended".into(), &1_700_000_000_000_u64.into()));
    assert_eq!(value["request"]["fields"][0]["value"], "127.0.0.1:8080");
    assert_eq!(value["errors"]["by_kind"]["short-body"], 1);
    assert_eq!(value["errors"]["by_kind"].as_object().unwrap().len(), FailureKind::COUNT);
    assert_eq!(value["server"]["cpu_ns_per_request"], 6_000.0);
    assert_eq!(value["limit"]["requests_share"], 0.5);
    report.limit = None;
    report.server = Err(TargetUnknown::NotLocal);
    let value = bench_value(&report);
    assert_eq!(value["server"]["unknown"], "not-local");
    assert!(value["limit"].is_null());
}

#[test]
fn both_views_have_the_same_notes() {
    let mut report = report(|_| {});
    report.asked.with_limit = true;
    let names = |report: &BenchReport| {
        let (value, text) = (bench_value(report), print_bench(report, Style::PLAIN));
        let notes = value["notes"].as_array().unwrap();
        for note in notes {
            assert!(text.contains(&format!("  note: {}\n", note["text"].as_str().unwrap())), "{note} in {text}");
        }
        notes.iter().map(|note| note["note"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&report), ["limit-missing"]);
    report.limit = Some(Limit { client_was_limit: true, ..limit() });
    report.server = Err(TargetUnknown::NotLocal);
    assert_eq!(names(&report), ["limit-client-limit", "limit-over-loopback"]);
    report.server = Err(TargetUnknown::NotPermitted);
    assert_eq!(names(&report), ["limit-client-limit", "limit-threads-unknown"]);
}

#[test]
fn secrets_that_were_sent_are_not_kept() {
    let mut report = report(|_| {});
    report.asked.fields = vec![RequestField::parse("Cookie: a=b").unwrap(), RequestField::parse("X: y").unwrap()];
    let value = bench_value(&report);
    let fields = value["request"]["fields"].as_array().unwrap();
    let value_of = |name: &str| fields.iter().find(|field| field["name"] == name).unwrap()["value"].clone();
    assert_eq!((value_of("Cookie"), value_of("X")), (serde_json::Value::Null, "y".into()));
}

#[test]
fn limits_are_a_table_and_json() {
    let report = LimitsReport {
        plan: LimitsPlan { probe: Duration::from_secs(1), rounds: 3, body_bytes: 1024 },
        machine: machine(),
        cores: CorePair { server: 0, client: 1 },
        other_cpu_share: Some(0.5),
        measures: vec![
            (Measure::RoundTripP50, [20_000.0, 30_000.0, 10_000.0].into_iter().collect()),
            (Measure::Http, Spread::default()),
        ],
        roles: vec![Roles {
            measure: Measure::Http,
            server_busy: [0.7].into_iter().collect(),
            client_busy: [0.99].into_iter().collect(),
        }],
        gaps: vec![Gap { round: 2, probe: "sendfile", cause: "no room".to_owned() }],
        interrupted: true,
    };
    let text = print_limits(&report, Style::PLAIN);
    assert!(text.contains("3 rounds of 1.00 s per probe; server role on core 0, client role on core 1\n"), "{text}");
    let row = "    p50                                      20.0 µs       10.0 µs       30.0 µs\n";
    assert!(text.contains(row), "{text}");
    assert!(
        text.contains("  HTTP bare loop, kept alive                       -             -             -\n"),
        "{text}"
    );
    let notes = "
  note: the run ended early: the figures cover only the part that ran
  note: the client was likely the bottleneck of \"HTTP bare loop, kept alive\": it was busy 99 % of the time, the server \
                 role 70 %; the server role could do more, and its CPU figure is valid
  note: other processes used 50 % of the machine during the run; expect the figures to vary
  FAILED: round 2, sendfile: no room
";
    assert!(text.ends_with(notes), "{text}");
    let value = limits_value(&report);
    assert_eq!(value["schema"], "flatout-limits/1");
    assert_eq!(value["measures"]["roundtrip_ns_p50"]["median"], 20_000.0);
    assert!(value["measures"]["http_requests_per_s"]["median"].is_null());
    assert_eq!(value["roles"]["http_requests_per_s"]["client_was_limit"], true);
    assert_eq!((&value["interrupted"], &value["gaps"][0]["probe"]), (&true.into(), &"sendfile".into()));
    assert_eq!(value["notes"].as_array().unwrap().len(), 3);
}
