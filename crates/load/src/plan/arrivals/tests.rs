use super::{ArrivalKind, Arrivals, Level, ReplayLines};
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use std::sync::Arc;

const SECOND_NS: u64 = 1_000_000_000;

fn until(arrivals: &Arrivals, seed: u64, end_ns: u64) -> Vec<u64> {
    arrivals.times(seed).take_while(|time_ns| *time_ns < end_ns).collect()
}

fn gaps(times: &[u64]) -> (f64, f64) {
    let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let squares: f64 = gaps.iter().map(|gap| (gap - mean).powi(2)).sum();
    (mean, (squares / gaps.len() as f64).sqrt())
}

#[test]
fn fixed_arrivals_are_exact_to_the_nanosecond_after_a_day() {
    let arrivals = Arrivals::constant(ArrivalKind::Fixed, 10_000.0);
    let first = until(&arrivals, 1, SECOND_NS);
    assert_eq!(first.len(), 10_000);
    assert!(first.iter().enumerate().all(|(index, time_ns)| *time_ns == index as u64 * 100_000));
    let mut times = arrivals.times(1);
    times.leave_out(86_400 * 10_000);
    assert_eq!(times.next(), Some(86_400 * SECOND_NS));
}

#[test]
fn exponential_gaps_have_the_rates_mean_and_as_large_a_deviation() {
    let times = until(&Arrivals::constant(ArrivalKind::Exp, 1_000.0), 5, 200 * SECOND_NS);
    let (mean, deviation) = gaps(&times);
    assert!((mean / 1e6 - 1.0).abs() < 0.01, "{mean}");
    assert!((deviation / 1e6 - 1.0).abs() < 0.015, "{deviation}");
    // In a Poisson process, the variance of the number of arrivals per second equals its mean.
    let mut counts = vec![0_f64; 200];
    for time_ns in &times {
        counts[(time_ns / SECOND_NS) as usize] += 1.0;
    }
    let mean = counts.iter().sum::<f64>() / 200.0;
    let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / 199.0;
    // The ratio has a standard deviation of about 0.1 here.
    assert!((variance / mean - 1.0).abs() < 0.4, "{variance} {mean}");
}

#[test]
fn uniform_gaps_stay_within_their_spread() {
    let times = until(&Arrivals::constant(ArrivalKind::Uniform { spread: 0.5 }, 1_000.0), 5, 100 * SECOND_NS);
    assert!(times.windows(2).all(|pair| (499_999..=1_500_001).contains(&(pair[1] - pair[0]))));
    let (mean, deviation) = gaps(&times);
    assert!((mean / 1e6 - 1.0).abs() < 0.005 && (deviation / 1e6 - 1.0 / 12.0_f64.sqrt()).abs() < 0.005);
}

#[test]
fn seeds_give_the_same_arrivals_and_others_give_others() {
    let arrivals = Arrivals::constant(ArrivalKind::Exp, 100.0);
    let first = |seed| arrivals.times(seed).take(5).collect::<Vec<_>>();
    assert_eq!(first(1), first(1));
    assert_ne!(first(1), first(2));
    // These values must never change: a seed in an old report gives the same arrivals.
    assert_eq!(first(42), vec![KNOWN_42[0], KNOWN_42[1], KNOWN_42[2], KNOWN_42[3], KNOWN_42[4]]);
}

/// The first arrivals at 100/s with seed 42.
const KNOWN_42: [u64; 5] = [2_788_119, 5_286_757, 15_888_276, 23_373_008, 25_435_319];

#[test]
fn steps_and_ramps_have_as_many_arrivals_as_the_integral_of_their_rate() {
    let arrivals = Arrivals::parse("steps:100@10s,0@5s,300@10s,300..100@20s", None).unwrap();
    let times = until(&arrivals, 1, 45 * SECOND_NS);
    let within = |from_s: u64, to_s: u64| {
        times.iter().filter(|time_ns| (from_s * SECOND_NS..to_s * SECOND_NS).contains(time_ns)).count()
    };
    assert_eq!((within(0, 10), within(10, 15), within(15, 25), within(25, 45)), (1000, 0, 3000, 4000));
    // The rate falls from 300 to 100 in 20 s: the mean is 250 per second in the first half, and 150 in the second.
    assert_eq!((within(25, 35), within(35, 45)), (2500, 1500));
    // After the last level, its rate continues.
    assert_eq!(until(&arrivals, 1, 55 * SECOND_NS).len() - times.len(), 1000);
    assert!((arrivals.rate_mean() - 8000.0 / 45.0).abs() < 1e-9);
    assert!((arrivals.rate_mean_until(10 * SECOND_NS) - 100.0).abs() < 1e-9);
    assert!((arrivals.rate_mean_until(35 * SECOND_NS) - 6500.0 / 35.0).abs() < 1e-9);
}

#[test]
fn a_rate_that_ends_at_nought_ends() {
    let arrivals = Arrivals::parse("steps:100@1s,0@1s", None).unwrap();
    assert_eq!(arrivals.times(1).count(), 100);
    let falling = Arrivals::parse("exp:steps:100..0@10s", None).unwrap();
    let count = falling.times(1).count();
    assert!(count.abs_diff(500) < 120, "{count}");
}

#[test]
fn a_replay_gives_its_own_times() {
    let arrivals = Arrivals::replay(Arc::new(ReplayLines::of([(5, 0), (5, 1), (9, 0)])));
    assert_eq!(arrivals.times(1).collect::<Vec<_>>(), vec![5, 5, 9]);
    let mut times = arrivals.times(1);
    times.leave_out(2);
    assert_eq!((times.index(), times.next(), times.next()), (2, Some(9), None));
    assert!((arrivals.rate_mean_until(9) - 2.0 * 1e9 / 9.0).abs() < 1.0);
    let late = Arrivals::replay(Arc::new(ReplayLines::of([(2, 0), (1, 0)])));
    assert!(late.check().unwrap_err().to_string().contains("request 2"));
}

#[test]
fn invalid_arrivals_are_refused_with_a_reason() {
    for (text, rate, reason) in [
        ("fixed", None, "need a rate"),
        ("sometimes", Some(1.0), "not a kind of arrivals"),
        ("uniform:2", Some(1.0), "0 to 1"),
        ("uniform:x", Some(1.0), "0 to 1"),
        ("fixed", Some(0.0), "never sends"),
        ("fixed", Some(1e12), "not possible"),
        ("fixed", Some(f64::NAN), "not possible"),
        ("steps:", None, "not a level"),
        ("steps:100", None, "not a level"),
        ("steps:100@0s", None, "duration of 0"),
        ("steps:100@10", None, "unit"),
        ("steps:x@10s", None, "number"),
        ("steps:1@1s", Some(3.0), "its own rates"),
        ("often:steps:1@1s", None, "not a kind of arrivals"),
    ] {
        let error = Arrivals::parse(text, rate).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
    let level = Level { from_per_s: -1.0, to_per_s: 1.0, duration_ns: 1 };
    let arrivals = Arrivals { kind: ArrivalKind::Fixed, levels: vec![level], replay: None };
    assert!(arrivals.check().is_err());
    assert!(Arrivals { levels: vec![], ..arrivals }.check().is_err());
}

fn any_kind() -> impl Strategy<Value = ArrivalKind> {
    prop_oneof![
        proptest::strategy::Just(ArrivalKind::Fixed),
        proptest::strategy::Just(ArrivalKind::Exp),
        (0.0..=1.0).prop_map(|spread| ArrivalKind::Uniform { spread }),
    ]
}

fn any_level() -> impl Strategy<Value = Level> {
    (0.0..5_000.0, 0.0..5_000.0, 1_u64..2_000_000_000).prop_map(|(from_per_s, to_per_s, duration_ns)| Level {
        from_per_s,
        to_per_s,
        duration_ns,
    })
}

proptest! {
    #[test]
    fn arrivals_never_go_back(kind in any_kind(), levels in proptest::collection::vec(any_level(), 1..6), seed in any::<u64>()) {
        let arrivals = Arrivals { kind, levels, replay: None };
        let times: Vec<u64> = arrivals.times(seed).take(3_000).collect();
        prop_assert!(times.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn fixed_arrivals_are_as_many_as_the_integral_says(levels in proptest::collection::vec(any_level(), 1..6)) {
        let arrivals = Arrivals { kind: ArrivalKind::Fixed, levels, replay: None };
        let end_ns: u64 = arrivals.levels.iter().map(|level| level.duration_ns).sum();
        let expected = arrivals.visits_until(end_ns);
        let count = until(&arrivals, 0, end_ns).len() as f64;
        prop_assert!((count - expected).abs() <= 1.5, "{} {}", count, expected);
    }

    #[test]
    fn leaving_out_is_as_good_as_taking(kind in any_kind(), seed in any::<u64>(), count in 0_u64..500) {
        let arrivals = Arrivals::constant(kind, 1_000.0);
        let (mut taken, mut left_out) = (arrivals.times(seed), arrivals.times(seed));
        taken.by_ref().take(count as usize).for_each(drop);
        left_out.leave_out(count);
        prop_assert_eq!(taken.index(), left_out.index());
        prop_assert_eq!(taken.take(20).collect::<Vec<_>>(), left_out.take(20).collect::<Vec<_>>());
    }
}
