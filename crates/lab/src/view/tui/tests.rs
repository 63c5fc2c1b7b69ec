use super::{DisplayState, RunProgress, draw};
use hdrhistogram::Histogram;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn histogram(values_ns: &[(u64, u64)]) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
    for (value_ns, count) in values_ns {
        histogram.record_n(*value_ns, *count).unwrap();
    }
    histogram
}

fn screen(watch: &DisplayState, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(watch, frame, false)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect()
}

fn watched() -> DisplayState {
    let mut watch = DisplayState::new("http://127.0.0.1/");
    watch.begin("step 1 of 3", Some(1_000.0));
    let lag = histogram(&[(20_000, 10)]);
    let first = histogram(&[(1_000_000, 400)]);
    watch.push(RunProgress {
        at_s: 0.5,
        responses: 400,
        failures: 0,
        unanswered: 0,
        response: &first,
        lag: Some(&lag),
    });
    let second = histogram(&[(1_000_000, 800), (64_000_000, 5)]);
    watch.push(RunProgress {
        at_s: 1.0,
        responses: 805,
        failures: 3,
        unanswered: 0,
        response: &second,
        lag: Some(&lag),
    });
    watch
}

#[test]
fn a_reading_tells_of_the_time_since_the_last_one() {
    let watch = watched();
    let [first, second] = &watch.readings.iter().collect::<Vec<_>>()[..] else { panic!("{watch:?}") };
    assert_eq!((first.responses_per_s, second.responses_per_s, second.failures), (800.0, 810.0, 3));
    assert_eq!(second.heat.values().copied().collect::<Vec<_>>(), [400, 5]);
    assert_eq!(second.lag_p99_ns, None, "no new lag was told");
    assert!(second.max_ns.unwrap() > 63_000_000 && first.max_ns.unwrap() < 1_100_000);
    let mut watch = watched();
    // The next part starts counting from zero.
    watch.begin("step 2 of 3", None);
    watch.push(RunProgress {
        at_s: 0.5,
        responses: 10,
        failures: 1,
        unanswered: 0,
        response: &histogram(&[(5_000, 10)]),
        lag: None,
    });
    assert_eq!((watch.responses, watch.failures), (815, 4));
    assert!((watch.readings.back().unwrap().responses_per_s - 20.0).abs() < 1e-9);
}

#[test]
fn the_screen_has_rate_heat_errors_and_lag() {
    let mut watch = watched();
    (watch.planned, watch.statuses) = (" of 2.0 s".to_owned(), "200 805  503 3".to_owned());
    let rows = screen(&watch, 80, 25);
    assert_eq!(rows[0], "http://127.0.0.1/   step 1 of 3   1.0 s of 2.0 s");
    assert_eq!(rows[1], "805 responses/s of 1,000 offered   805 total   3 errors (3 now)");
    assert!(rows[2].starts_with("p50 1.00 ms   p99 6"), "{}", rows[2]);
    assert_eq!(rows[3], "200 805  503 3");
    let rows = &rows[1..];
    assert!(rows[3].starts_with("    810"), "{}", rows[3]);
    assert!(rows[7].starts_with("   0 /s  █"), "{}", rows[7]);
    assert_eq!(rows[8], "response time; the right edge is now");
    // 1 ms at the bottom in both readings, 64 ms far above only in the second.
    assert!(rows[22].ends_with("  ██") && rows[22].contains("µs"), "{}", rows[22]);
    let marked: Vec<&String> = rows[9..22].iter().filter(|row| row.contains(['·', '░', '▒', '▓'])).collect();
    assert!(marked.len() == 1 && marked[0].chars().count() == 11, "{rows:#?}");
    assert!(rows[23].starts_with("Ctrl-C"));
}

#[test]
fn any_size_and_nothing_known_are_drawn_without_panic() {
    for (width, height) in [(1, 1), (5, 3), (40, 14), (300, 100)] {
        screen(&watched(), width, height);
        screen(&DisplayState::new(""), width, height);
    }
    let mut watch = DisplayState::new("x");
    for second in 1..2_000 {
        watch.push(RunProgress {
            at_s: f64::from(second),
            responses: 0,
            failures: 0,
            unanswered: 0,
            response: &histogram(&[]),
            lag: None,
        });
    }
    assert_eq!(watch.readings.len(), super::READINGS_MAX);
    assert_eq!(screen(&watch, 40, 14)[1], "0.00 responses/s   0 total   no errors");
}
