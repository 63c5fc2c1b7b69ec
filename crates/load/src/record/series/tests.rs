use super::{HEAT_CLASSES, POINTS_MAX, STEPS_S, Series, heat_class, heat_floor_ns};
use crate::failure::FailureKind;
use crate::record::Sample;
use crate::record::tests::answered;

const SECOND_NS: u64 = 1_000_000_000;

fn at(second: u64) -> Sample {
    answered(second * SECOND_NS, second * SECOND_NS, second * SECOND_NS + 5)
}

#[test]
fn heat_classes_are_an_eighth_of_a_doubling_and_go_back_and_forth() {
    for class in 0..HEAT_CLASSES as u16 {
        let (floor_ns, next_ns) = (heat_floor_ns(class), heat_floor_ns(class + 1));
        assert!(next_ns > floor_ns && (next_ns - floor_ns) as f64 / floor_ns as f64 <= 0.125);
        assert_eq!((heat_class(floor_ns), heat_class(next_ns - 1)), (class, class));
    }
    assert_eq!((heat_class(0), heat_class(u64::MAX)), (0, HEAT_CLASSES as u16 - 1));
    assert!(heat_floor_ns(HEAT_CLASSES as u16) > 3_600 * SECOND_NS);
}

#[test]
fn a_long_run_becomes_coarser_and_loses_nothing() {
    let mut series = Series::new(0);
    let capacity = series.tiles.capacity();
    for second in 0..86_400 {
        series.record(&at(second), true);
        series.record_begun(2, second * SECOND_NS);
    }
    assert_eq!((series.step_s, series.len()), (300, 288));
    let points = series.points();
    assert!(points.iter().all(|point| (point.responses, point.begun) == (300, 600)));
    assert!(points.iter().all(|point| point.heat == vec![(0, 300)]));
    assert_eq!(series.tiles.capacity(), capacity, "recording takes no memory");
    series.record(&Sample { ended_ns: u64::MAX, ..at(1) }, true);
    assert!(series.len() <= POINTS_MAX && series.step_s == STEPS_S[7]);
    assert_eq!(series.points().iter().map(|point| point.responses).sum::<u64>(), 86_401);
}

#[test]
fn series_of_different_steps_add_up() {
    let (mut short, mut long) = (Series::new(7), Series::new(7));
    (0..100).for_each(|second| short.record(&at(second), true));
    (0..1_000).for_each(|second| long.record(&at(second), true));
    let (mut one, mut two) = (short.clone(), long.clone());
    one.merge(&long);
    two.merge(&short);
    assert_eq!(one, two);
    assert_eq!((one.step_s, one.points()[0].responses, one.points()[100].responses), (5, 12, 5));
}

#[test]
fn a_second_half_comes_after_the_first() {
    let (mut first, mut second) = (Series::new(0), Series::new(500 * SECOND_NS));
    (0..3).for_each(|index| first.record(&at(index), true));
    (500..502).for_each(|index| second.record(&at(index), true));
    first.append(&second);
    assert_eq!((first.step_s, first.len()), (1, 5));
    let (mut long, mut again) = (Series::new(0), Series::new(0));
    (0..400).for_each(|index| long.record(&at(index), true));
    (0..300).for_each(|index| again.record(&at(index), true));
    long.append(&again);
    assert_eq!((long.step_s, long.len()), (5, 140));
    let mut coarse = Series::new(0);
    (0..900).for_each(|index| coarse.record(&at(index), true));
    again.append(&coarse);
    assert_eq!((again.step_s, again.len()), (5, 240));
    assert!(again.points().iter().all(|point| point.responses == 5));
}

#[test]
fn a_point_knows_its_sums_and_its_percentiles() {
    let mut series = Series::new(0);
    for index in 1..=100_u64 {
        series.record(&answered(0, index * 10_000, index * 1_000_000), true);
    }
    let failed = Sample { result: Err(FailureKind::ConnReset), ..answered(0, 7_000_000, 9_000_000) };
    series.record(&failed, false);
    series.record(&Sample { result: Ok(503), ..answered(0, 0, 50_000_000) }, false);
    let point = &series.points()[0];
    assert_eq!((point.responses, point.failures, point.errors), (101, 1, 1));
    assert_eq!((point.response_max_ns, point.lag_max_ns), (100_000_000, 7_000_000));
    assert_eq!(point.response_sum_ns, 5_050_000_000);
    for (share, expected_ns) in [(0.5, 50e6), (0.9, 90e6), (0.99, 99e6), (1.0, 100e6)] {
        let found_ns = point.quantile_ns(share).unwrap() as f64;
        assert!((found_ns / expected_ns - 1.0).abs() < 0.125, "{share} {found_ns}");
    }
    assert_eq!(super::Point::default().quantile_ns(0.5), None);
}

#[test]
fn reply_rates_are_of_whole_intervals_of_the_measured_part() {
    let mut series = Series::new(100 * SECOND_NS);
    for second in 0..23 {
        (0..second).for_each(|_| series.record(&at(100 + second), true));
    }
    let rates = |series: &Series, from_s: u64, to_s: u64| {
        series.reply_rates(5, (100 + from_s) * SECOND_NS, (100 + to_s) * SECOND_NS)
    };
    assert_eq!(rates(&series, 0, 23), (5, vec![2.0, 7.0, 12.0, 17.0]));
    assert_eq!(rates(&series, 3, 19), (5, vec![7.0, 12.0]));
    assert_eq!(rates(&series, 0, 4).1, Vec::<f64>::new());
    (600..1_000).for_each(|second| series.record(&at(100 + second), true));
    assert_eq!(rates(&series, 0, 20), (5, vec![2.0, 7.0, 12.0, 17.0]));
}

#[test]
fn hostile_documents_are_refused() {
    let written = serde_json::to_value(Series::new(3)).unwrap();
    assert_eq!(serde_json::from_value::<Series>(written).unwrap(), Series::new(3));
    for text in [
        r#"{"start_ns":0,"step_s":0,"points":[]}"#,
        r#"{"start_ns":0,"step_s":7,"points":[]}"#,
        r#"{"start_ns":0,"step_s":1,"points":[{"heat":[[256,1]]}]}"#,
    ] {
        assert!(serde_json::from_str::<Series>(text).is_err(), "{text}");
    }
    let point = serde_json::to_string(&super::Point::default()).unwrap();
    let many = vec![point; POINTS_MAX + 1].join(",");
    assert!(serde_json::from_str::<Series>(&format!(r#"{{"start_ns":0,"step_s":1,"points":[{many}]}}"#)).is_err());
}
