use super::{Axis, Cell, Chart, Line, POINTS_MAX, Quantity, Side, thin};

fn labels(axis: &Axis) -> Vec<&str> {
    axis.ticks().map(|(_, text)| text).collect()
}

#[test]
fn linear_axes_begin_at_zero_and_end_at_a_round_number() {
    let axis = Axis::linear("reply rate", Quantity::PerSecond, [980.0, 1_040.0].into_iter());
    assert_eq!(axis.title(), "reply rate (1/s)");
    assert_eq!(labels(&axis), ["0", "500", "1,000", "1,500"]);
    assert_eq!(axis.place(0.0), Some(0.0));
    assert_eq!(axis.place(750.0), Some(0.5));
    assert_eq!((axis.place(-5.0), axis.place(1e9), axis.place(f64::NAN)), (Some(0.0), Some(1.0), None));
    let axis = Axis::linear("response time", Quantity::Nanoseconds, [340_000.0].into_iter());
    assert_eq!((axis.title(), labels(&axis)), ("response time (µs)", vec!["0", "100", "200", "300", "400"]));
    let axis = Axis::linear("share", Quantity::Share, [0.0008].into_iter());
    assert_eq!(axis.title(), "share (%)");
    assert_eq!(labels(&axis), ["0.00", "0.02", "0.04", "0.06", "0.08"]);
    // An axis without values can be drawn.
    assert_eq!(labels(&Axis::linear("x", Quantity::Count, std::iter::empty())).last(), Some(&"1.0"));
}

#[test]
fn log_axes_have_decades_and_no_place_for_nothing() {
    let axis = Axis::log("response time", Quantity::Nanoseconds, [45_000.0, 30e6, 0.0, f64::NAN].into_iter());
    assert_eq!(axis.title(), "response time (log scale)");
    assert_eq!(labels(&axis), ["100 µs", "1 ms", "10 ms"]);
    let halfway = axis.place(1e6).unwrap();
    assert!(halfway > 0.4 && halfway < 0.6, "{halfway}");
    assert_eq!(axis.place(0.0), Some(0.0));
    // With few decades, the ticks include 2 and 5.
    let axis = Axis::log("lag", Quantity::Nanoseconds, [1_100.0, 9_000.0].into_iter());
    assert_eq!(labels(&axis), ["1 µs", "2 µs", "5 µs", "10 µs"]);
    // A single value still has space around it.
    assert!(labels(&Axis::log("x", Quantity::Nanoseconds, [5e6].into_iter())).len() >= 3);
    assert!(!labels(&Axis::log("x", Quantity::Nanoseconds, std::iter::empty())).is_empty());
}

#[test]
fn tails_go_as_far_as_the_values_reach() {
    assert_eq!(labels(&Axis::tail("quantile", 10_000)), ["0", "50", "90", "99", "99.9", "99.99"]);
    assert_eq!(labels(&Axis::tail("quantile", 0)), ["0", "50", "90"]);
    let axis = Axis::tail("quantile", 1_000);
    let place = |quantile| axis.place(quantile).unwrap();
    assert!((place(0.99) - place(0.9) - (place(0.999) - place(0.99))).abs() < 1e-9);
    assert_eq!(axis.place(1.0), Some(1.0));
}

fn chart() -> Chart {
    Chart {
        title: "a & b".to_owned(),
        x: Axis::time(10.0),
        left: Axis::linear("rate", Quantity::PerSecond, [100.0].into_iter()),
        right: Some(Axis::log("time", Quantity::Nanoseconds, [1e6, 1e8].into_iter())),
        cells: vec![Cell { x: (0.0, 1.0), y: (0.0, 50.0), depth: 0.5 }],
        lines: vec![Line {
            name: "<one>".to_owned(),
            look: 7,
            side: Side::Right,
            is_dashed: true,
            is_marked: true,
            points: vec![(0.0, 1e6), (5.0, f64::NAN), (10.0, 1e8)],
        }],
    }
}

#[test]
fn a_drawing_has_titles_ticks_lines_and_markers_and_no_raw_text() {
    let svg = chart().draw();
    for part in [
        r#"aria-label="a &amp; b""#,
        ">time since the start (s)</text>",
        ">rate (1/s)</text>",
        ">time (log scale)</text>",
        r#"class="heat" x="66.0" y="133.0" width="34.8" height="121.0" fill-opacity="0.50""#,
        r#"class="line s1 dashed" d="M66.0 254.0M414.0 12.0""#,
        "<title>&lt;one&gt;: 100 ms at 10 s</title>",
    ] {
        assert!(svg.contains(part), "no {part} in {svg}");
    }
    assert!(!svg.contains("<one>") && !svg.contains("NaN"), "{svg}");
    assert_eq!(svg.matches("class=\"marker").count(), 2);
}

#[test]
fn long_series_are_thinned_to_their_means() {
    let points: Vec<_> = (0..1_000).map(|index| (f64::from(index), f64::from(index % 2))).collect();
    let thinned = thin(&points);
    assert!(thinned.len() <= POINTS_MAX && thinned.len() > POINTS_MAX / 2);
    assert_eq!(thinned[0], (2.0, 0.4));
    assert_eq!(thin(&points[..3]), points[..3]);
    assert!(thin(&[]).is_empty());
}
