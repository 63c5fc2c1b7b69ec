use super::Dist;
use crate::random::Random;

fn draws(dist: &Dist, count: u32) -> Vec<f64> {
    let mut random = Random::new(7);
    (0..count).map(|_| dist.draw(&mut random)).collect()
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / values.len() as f64).sqrt())
}

#[test]
fn texts_are_read() {
    for (text, expected) in [
        ("20ms", Dist::Fixed(20e6)),
        ("fixed:20ms", Dist::Fixed(20e6)),
        ("0", Dist::ZERO),
        ("exp:1s", Dist::Exp(1e9)),
        ("uniform:5ms..15ms", Dist::Uniform { from: 5e6, to: 15e6 }),
        ("5..15ms", Dist::Uniform { from: 5e6, to: 15e6 }),
        ("0..15ms", Dist::Uniform { from: 0.0, to: 15e6 }),
        (
            "30%:1s,70%:5s..15s",
            Dist::Mix(vec![(30.0, Dist::Fixed(1e9)), (70.0, Dist::Uniform { from: 5e9, to: 15e9 })]),
        ),
    ] {
        assert_eq!(Dist::parse_time(text), Ok(expected), "{text}");
    }
    assert_eq!(Dist::parse_number("uniform:5..15"), Ok(Dist::Uniform { from: 5.0, to: 15.0 }));
    assert!(Dist::parse_number("100%:4").is_ok());
}

#[test]
fn what_is_no_distribution_is_refused_with_its_reason() {
    for (text, reason) in [
        ("", "number"),
        ("exp:", "number"),
        ("exp:-1", "number"),
        ("uniform:5", "two ends"),
        ("9..5", "must have its lower end first"),
        ("30%:1,60%:2", "90 %"),
        ("30%:1,70", "part of a mixture"),
        ("30:1,70:2", "percent sign"),
        ("30%:1,70%:30%:2", "plain number"),
    ] {
        let error = Dist::parse_number(text).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
    assert!(Dist::parse_number(&vec!["1%:1"; 100].join(",")).is_err());
    assert!(Dist::parse_time("5").unwrap_err().to_string().contains("unit"));
}

#[test]
fn what_means_nothing_is_found() {
    for dist in [
        Dist::Fixed(f64::NAN),
        Dist::Exp(-1.0),
        Dist::Exp(f64::INFINITY),
        Dist::Uniform { from: 2.0, to: 1.0 },
        Dist::Mix(vec![]),
        Dist::Mix(vec![(0.0, Dist::Fixed(1.0))]),
        Dist::Mix(vec![(1.0, Dist::Mix(vec![(1.0, Dist::Fixed(1.0))]))]),
    ] {
        assert!(dist.check("the think time").is_err(), "{dist:?}");
    }
}

#[test]
fn draws_have_the_mean_and_the_deviation_of_their_distribution() {
    let (mean, deviation) = mean_and_deviation(&draws(&Dist::Exp(50.0), 200_000));
    assert!((mean - 50.0).abs() < 0.5 && (deviation - 50.0).abs() < 0.7, "{mean} {deviation}");
    let (mean, deviation) = mean_and_deviation(&draws(&Dist::Uniform { from: 10.0, to: 30.0 }, 200_000));
    assert!((mean - 20.0).abs() < 0.05 && (deviation - 20.0 / 12.0_f64.sqrt()).abs() < 0.03, "{mean} {deviation}");
    let mix = Dist::parse_number("30%:1,70%:5..15").unwrap();
    let (mean, _) = mean_and_deviation(&draws(&mix, 200_000));
    assert!((mean - mix.mean()).abs() < 0.05 && (mix.mean() - 7.3).abs() < 1e-9, "{mean}");
}

#[test]
fn counts_are_whole_include_both_ends_and_are_at_least_one() {
    let mut random = Random::new(3);
    let uniform = Dist::Uniform { from: 5.0, to: 15.0 };
    let mut seen = [0_u32; 16];
    (0..110_000).for_each(|_| seen[uniform.draw_count(&mut random) as usize] += 1);
    assert_eq!(seen[..5], [0; 5]);
    // 10,000 each; five standard deviations are about 480.
    assert!(seen[5..].iter().all(|count| count.abs_diff(10_000) < 480), "{seen:?}");
    assert_eq!(Dist::Fixed(0.0).draw_count(&mut random), 1);
    assert_eq!(Dist::Fixed(1e300).draw_count(&mut random), u32::MAX);
    let mix = Dist::parse_number("30%:1,70%:5..15").unwrap();
    let ones = (0..100_000).filter(|_| mix.draw_count(&mut random) == 1).count();
    assert!(ones.abs_diff(30_000) < 750, "{ones}");
}

#[test]
fn the_mean_of_counts_is_that_of_what_is_drawn() {
    for text in ["5", "0", "2.6", "exp:5", "exp:0.4", "uniform:1..9", "0..3", "2.5..7.5", "30%:1,70%:uniform:5..15"] {
        let dist = Dist::parse_number(text).unwrap();
        let mut random = Random::new(3);
        let drawn = 200_000;
        let sum: u64 = (0..drawn).map(|_| u64::from(dist.draw_count(&mut random))).sum();
        let mean = sum as f64 / f64::from(drawn);
        assert!((mean / dist.mean_count() - 1.0).abs() < 0.02, "{text}: {mean} instead of {}", dist.mean_count());
    }
    assert!((Dist::Exp(0.0).mean_count() - 1.0).abs() < 1e-9);
}
