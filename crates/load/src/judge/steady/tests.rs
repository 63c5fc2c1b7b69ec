use super::{BATCHES_MIN, Steady, WarmupDetector, judge, mser5};
use crate::random::Random;

/// `count` batches with a mean that depends on the time, and a standard deviation of 3.
fn noisy(seed: u64, count: u32, level: impl Fn(u32) -> f64) -> Vec<f64> {
    let mut random = Random::new(seed);
    (0..count).map(|index| level(index) + 3.0 * random.next_normal()).collect()
}

fn is_from(steady: Steady, range: std::ops::RangeInclusive<usize>) -> bool {
    matches!(steady, Steady::From(from) if range.contains(&from))
}

#[test]
fn what_is_steady_is_found_steady() {
    let steady = (0..200).filter(|seed| is_from(judge(&noisy(*seed, 100, |_| 100.0)), 0..=50)).count();
    assert!(steady >= 196, "{steady}");
    assert_eq!(judge(&[7.0; 50]), Steady::From(0));
    assert_eq!(judge(&[0.0; 50]), Steady::From(0));
}

#[test]
fn a_warm_up_is_cut_off_where_it_ends() {
    for seed in 0..50 {
        let falling = noisy(seed, 100, |index| 100.0 + 200.0 * (-f64::from(index) / 5.0).exp());
        let outcome = judge(&falling);
        assert!(is_from(outcome, 10..=50), "{seed} {outcome:?}");
        let step = noisy(seed, 100, |index| if index < 20 { 300.0 } else { 100.0 });
        assert!(is_from(judge(&step), 20..=50), "{seed}");
    }
}

#[test]
fn what_drifts_or_changes_late_is_never_steady() {
    for seed in 0..50 {
        assert_eq!(judge(&noisy(seed, 100, |index| 100.0 + f64::from(index))), Steady::Never, "drift {seed}");
        let late = noisy(seed, 100, |index| if index < 70 { 100.0 } else { 130.0 });
        assert_eq!(judge(&late), Steady::Never, "late {seed}");
        let growing = noisy(seed, 100, |index| 100.0 * 1.02_f64.powf(f64::from(index)));
        assert_eq!(judge(&growing), Steady::Never, "growing {seed}");
    }
}

#[test]
fn a_change_too_small_to_matter_is_none() {
    let mut random = Random::new(1);
    let tiny: Vec<f64> =
        (0..100).map(|index| if index < 60 { 100.0 } else { 102.0 } + 0.01 * random.next_f64()).collect();
    assert!(matches!(judge(&tiny), Steady::From(_)));
}

#[test]
fn few_batches_say_nothing() {
    assert_eq!(judge(&vec![1.0; BATCHES_MIN - 1]), Steady::TooShort);
    assert_eq!(judge(&[]), Steady::TooShort);
}

#[test]
fn mser_keeps_everything_of_a_constant() {
    assert_eq!(mser5(&[4.0; 100]), 0);
    let mut late = vec![4.0; 100];
    late[..10].fill(90.0);
    assert_eq!(mser5(&late), 10);
}

#[test]
fn a_watch_waits_for_a_warm_up_to_end() {
    let mut watch = WarmupDetector::new();
    let batches = noisy(3, 200, |index| if index < 40 { 400.0 - 7.5 * f64::from(index) } else { 100.0 });
    let found = batches.iter().position(|mean| watch.push(*mean)).unwrap();
    assert!((45..=120).contains(&found), "{found}");
    let mut never = WarmupDetector::new();
    assert!(!noisy(3, 500, |index| 100.0 * 1.02_f64.powf(f64::from(index))).iter().any(|mean| never.push(*mean)));
    assert_eq!(never.outcome(), Steady::Never);
}
