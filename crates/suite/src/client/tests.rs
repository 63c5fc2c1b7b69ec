use super::*;
use crate::measure::Measure;
use flatout_load::judge::InvalidReason;
use flatout_load::plan::Stop;
use flatout_load::record::{Point, Series};

fn counts(program: ClientProgram, output: &str) -> Option<(u64, u64, u64, f64)> {
    let counts = program.counts(output, 2.0).ok()?;
    Some((counts.responses, counts.failures + counts.unexpected, counts.bytes_in, (counts.seconds * 1e3).round() / 1e3))
}

#[test]
fn the_counts_of_wrk() {
    let output = "Running 2s test @ http://127.0.0.1:1/\n  1 threads and 64 connections\n\
        \x20 Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency   513.00us  100us  2.0ms   90.00%\n\
        \x20 240500 requests in 2.01s, 300.50MB read\n  Socket errors: connect 1, read 2, write 3, timeout 4\n\
        \x20 Non-2xx or 3xx responses: 5\nRequests/sec: 120250.00\nTransfer/sec:    150.25MB\n";
    assert_eq!(counts(ClientProgram::Wrk, output), Some((240_500, 15, 315_097_088, 2.0)));
    let quiet = "  10 requests in 1.00s, 2.00KB read\nRequests/sec:     10.00\n";
    assert_eq!(counts(ClientProgram::Wrk, quiet), Some((10, 0, 2048, 1.0)));
    for bad in ["", "unable to connect to 127.0.0.1:1", "  x requests in 1s, 2B read\nRequests/sec: 1\n"] {
        assert!(counts(ClientProgram::Wrk, bad).is_none(), "{bad}");
    }
}

#[test]
fn the_counts_of_h2load() {
    let output = "finished in 2.00s, 9.00 req/s, 9KB/s\n\
        requests: 9 total, 12 started, 9 done, 7 succeeded, 1 failed, 1 errored, 3 timeout\n\
        traffic: 9.12KB (9340) total, 1.00KB (1024) headers (space savings 40.00%), 8.00KB (8192) data\n";
    assert_eq!(counts(ClientProgram::H2load, output), Some((7, 4, 9340, 2.0)));
    assert!(counts(ClientProgram::H2load, "requests: none").is_none());
}

#[test]
fn the_counts_of_ab() {
    let output = "Time taken for tests:   1.500 seconds\nComplete requests:      748\nFailed requests:        1\n\
        Total transferred:      1000 bytes\n";
    assert_eq!(counts(ClientProgram::Ab, output), Some((748, 1, 1000, 1.5)));
    let refused = format!("{output}Non-2xx responses:      3\n");
    assert_eq!(counts(ClientProgram::Ab, &refused), Some((748, 4, 1000, 1.5)));
    assert!(counts(ClientProgram::Ab, "Complete requests: many").is_none());
}

#[test]
fn the_counts_of_oha() {
    let output = r#"{"summary":{"successRate":1.0,"total":2.002,"totalData":4096},
        "statusCodeDistribution":{"200":40,"503":2},
        "errorDistribution":{"aborted due to deadline":50,"connection refused":3}}"#;
    assert_eq!(counts(ClientProgram::Oha, output), Some((42, 5, 4096, 2.002)));
    assert!(counts(ClientProgram::Oha, "error: no such option").is_none());
}

#[test]
fn the_duration_and_the_url_come_last() {
    let own = ["-t1".to_owned(), "-c64".to_owned()];
    let line = |program: ClientProgram| program.arguments(&own, 1.5, "http://h/").join(" ");
    assert_eq!(line(ClientProgram::Wrk), "-t1 -c64 -d2s http://h/");
    assert_eq!(line(ClientProgram::H2load), "-t1 -c64 --duration=1500ms http://h/");
    assert_eq!(line(ClientProgram::Ab), "-t1 -c64 -q -t 2 -n 10000000 http://h/");
    assert_eq!(line(ClientProgram::Oha), "-t1 -c64 --no-tui --output-format json -z 1500ms http://h/");
}

#[test]
fn a_run_has_rates_and_costs_and_is_judged_like_a_bench() {
    let report = |cpu_ns: u64, failures: u64| {
        let command = ["wrk", "-t1", "http://h/"].map(str::to_owned).to_vec();
        let run = ClientRun { command, url: "http://h/".to_owned(), cpu_ns, cores: 1, ..ClientRun::default() };
        let counts = ClientCounts { responses: 1_000_000, unexpected: 0, failures, bytes_in: 2_097_152, seconds: 2.0 };
        ClientProgram::Wrk.report(run, counts).unwrap()
    };
    let idle = report(1_000_000_000, 0);
    let value = |measure: Measure| measure.value(&idle, "s", &[]).unwrap();
    assert!((value(Measure::RequestsPerS) - 500_000.0).abs() < 1.0, "{}", value(Measure::RequestsPerS));
    assert!((value(Measure::ClientCpuPerRequest) - 1_000.0).abs() < 1.0);
    assert!((value(Measure::BytesPerS) - 1_048_576.0).abs() < 1.0);
    let reasons = |report: &RunReport| report.steps[0].invalid.iter().map(|found| found.reason).collect::<Vec<_>>();
    assert_eq!(reasons(&idle), []);
    assert!(idle.steps[0].failing.is_empty());
    assert_eq!(reasons(&report(1_990_000_000, 0)), [InvalidReason::ClientSaturated]);
    assert!(!report(1_000_000_000, 3).steps[0].failing.is_empty());
    // The report survives being written to a file and read again.
    let text = serde_json::to_string(&idle).unwrap();
    assert_eq!(RunReport::parse(&text).unwrap().steps[0].record.counts.responses, 1_000_000);
}

/// 400 responses per second while load is offered, and the rest of a queue after that.
#[test]
fn goodput_is_no_more_than_a_server_delivers_under_load() {
    let counts = ClientCounts { responses: 1_200, unexpected: 0, failures: 0, bytes_in: 1_200, seconds: 2.0 };
    let run =
        ClientRun { command: vec!["wrk".to_owned()], url: "http://h/".to_owned(), cores: 1, ..ClientRun::default() };
    let mut report = ClientProgram::Wrk.report(run, counts).unwrap();
    let point = Point { responses: 400, heat: vec![(0, 400)], ..Point::default() };
    let series = serde_json::json!({ "start_ns": 0, "step_s": 1, "points": vec![point; 3] });
    let step = &mut report.steps[0];
    step.plan.stop = Stop::After { duration_ns: 2_000_000_000 };
    step.record.series = serde_json::from_value::<Series>(series).unwrap();
    assert_eq!(Measure::GoodputPerS.value(&report, "s", &[]), Some(400.0));
}
