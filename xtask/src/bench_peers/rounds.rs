//! The rounds of a case, taking turns, and what is made of their samples.

use super::cases::{Case, Kind};
use super::clients;
use super::servers::{Bench, Server, Subject};
use crate::failure::{Context, Outcome};
use std::collections::BTreeMap;

/// What one subject did in one round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) cpu_ns: u64,
    /// Requests, or MiB.
    pub(super) work: f64,
    pub(super) seconds: f64,
}

impl Sample {
    /// Processor microseconds for each unit of work.
    pub(super) fn cost(self) -> f64 {
        self.cpu_ns as f64 / 1e3 / self.work
    }

    /// Work a second.
    pub(super) fn rate(self) -> f64 {
        self.work / self.seconds
    }
}

/// A subject's samples, one a round.
pub(super) struct Series {
    pub(super) subject: Subject,
    pub(super) samples: Vec<Sample>,
    /// The command it ran by.
    pub(super) shown: String,
    /// The configuration it read.
    pub(super) config: Option<String>,
}

/// All that a case came to.
pub(super) struct CaseResult {
    pub(super) case: &'static Case,
    pub(super) series: Vec<Series>,
    /// Who could not take part, and why.
    pub(super) left_out: Vec<(Subject, String)>,
    /// The client's command.
    pub(super) client: String,
}

/// The middle, the least and the most of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// `None` without a figure.
    pub(super) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self { median, min, max })
    }
}

impl CaseResult {
    /// The samples of a subject, if it took part.
    pub(super) fn series_of(&self, subject: Subject) -> Option<&Series> {
        self.series.iter().find(|series| series.subject == subject)
    }

    /// A subject's cost in multiples of another's, round by round.
    pub(super) fn ratio(&self, subject: Subject, reference: Subject) -> Option<Spread> {
        let (ours, theirs) = (self.series_of(subject)?, self.series_of(reference)?);
        let pairs = ours.samples.iter().zip(&theirs.samples);
        Spread::of(pairs.map(|(ours, theirs)| ours.cost() / theirs.cost()))
    }
}

/// Measures a case. What fails in it stands in the result.
pub(super) fn measure(case: &'static Case, bench: &Bench, rounds: usize, seconds: u64) -> CaseResult {
    eprintln!("━━━ {}", case.title);
    let mut result = match case.kind {
        Kind::ClientPerRequest => measure_clients(case, bench, rounds, seconds),
        _ => measure_servers(case, bench, rounds, seconds),
    };
    for (_, why) in &mut result.left_out {
        // The terminal had all of it; a table wants one line.
        bench.without_paths(why).lines().next().unwrap_or("").clone_into(why);
    }
    result
}

fn measure_servers(case: &'static Case, bench: &Bench, rounds: usize, seconds: u64) -> CaseResult {
    let mut result = CaseResult::of(case);
    let mut servers: BTreeMap<Subject, Server> = BTreeMap::new();
    for subject in case.subjects {
        match bench.start(*subject, case) {
            Ok(server) => {
                let (shown, config) = (server.shown.clone(), server.config.clone());
                result.series.push(Series { subject: *subject, samples: Vec::new(), shown, config });
                servers.insert(*subject, server);
            }
            Err(failure) => result.leave_out(*subject, &failure.to_string()),
        }
    }
    if let Some(server) = servers.values().next() {
        let wrk = clients::command(Subject::Wrk, bench, case, &server.url(case.file), seconds);
        result.client = bench.shown(&crate::shell::shown(&wrk), server.port());
    }
    take_turns(&mut result, rounds, seconds, |subject, seconds| {
        let server = servers.get(&subject).cannot("find its server")?;
        let sample = clients::server_sample(bench, case, server, seconds);
        if sample.is_err() {
            // What failed may not disturb those who go on.
            servers.remove(&subject);
        }
        sample
    });
    result
}

fn measure_clients(case: &'static Case, bench: &Bench, rounds: usize, seconds: u64) -> CaseResult {
    let mut result = CaseResult::of(case);
    let server = match bench.start(Subject::Nginx, case) {
        Ok(server) => server,
        Err(failure) => {
            result.leave_out(Subject::Nginx, &failure.to_string());
            return result;
        }
    };
    for client in case.subjects {
        let command = clients::command(*client, bench, case, &server.url(case.file), seconds);
        let shown = bench.shown(&crate::shell::shown(&command), server.port());
        result.series.push(Series { subject: *client, samples: Vec::new(), shown, config: None });
    }
    take_turns(&mut result, rounds, seconds, |client, seconds| {
        clients::client_sample(bench, case, client, &server, seconds)
    });
    result
}

/// A second of everyone to warm up, then the rounds. Whoever fails is left out from there on; the others go on.
fn take_turns(
    result: &mut CaseResult,
    rounds: usize,
    seconds: u64,
    mut sample: impl FnMut(Subject, u64) -> Outcome<Sample>,
) {
    for round in 0..=rounds {
        let mut turns: Vec<Subject> = result.series.iter().map(|series| series.subject).collect();
        // Whoever always came after the same neighbour would always inherit its warm or cold machine.
        if round % 2 == 0 {
            turns.reverse();
        }
        for subject in turns {
            let seconds = if round == 0 { 1 } else { seconds };
            match sample(subject, seconds) {
                Ok(sample) if round > 0 => result.take(subject, sample, (round, rounds)),
                Ok(_) => {}
                Err(failure) => result.leave_out(subject, &failure.to_string()),
            }
        }
    }
}

impl CaseResult {
    fn of(case: &'static Case) -> Self {
        Self { case, series: Vec::new(), left_out: Vec::new(), client: String::new() }
    }

    /// Half a series is none: its rounds would be compared with other rounds of the others.
    fn leave_out(&mut self, subject: Subject, why: &str) {
        eprintln!("!!! {} is left out: {why}", subject.name());
        self.series.retain(|series| series.subject != subject);
        self.left_out.push((subject, why.to_owned()));
    }

    fn take(&mut self, subject: Subject, sample: Sample, (round, rounds): (usize, usize)) {
        let (name, cost, rate) = (subject.name(), sample.cost(), sample.rate());
        eprintln!("    {round}/{rounds} {name:<20} {cost:>9.2} µs  {rate:>10.0}/s");
        let series = self.series.iter_mut().find(|series| series.subject == subject);
        if let Some(series) = series {
            series.samples.push(sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_middle_the_least_and_the_most() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn ratios_are_taken_within_each_round() {
        let sample = |cpu_ns| Sample { cpu_ns, work: 1.0, seconds: 1.0 };
        let series = |subject, costs: [u64; 3]| {
            let samples = costs.into_iter().map(sample).collect();
            Series { subject, samples, shown: String::new(), config: None }
        };
        let result = CaseResult {
            case: &super::super::cases::CASES[0],
            // The machine was twice as slow in the second round, for both.
            series: vec![series(Subject::Flatout, [11, 22, 11]), series(Subject::Bare, [10, 20, 10])],
            left_out: Vec::new(),
            client: String::new(),
        };
        let ratio = result.ratio(Subject::Flatout, Subject::Bare).unwrap();
        assert!((ratio.min - 1.1).abs() < 1e-9 && (ratio.max - 1.1).abs() < 1e-9);
        assert!(result.ratio(Subject::Flatout, Subject::Nginx).is_none());
    }

    #[test]
    fn the_order_turns_round_and_who_fails_is_left_out_alone() {
        use Subject::{Bare, Flatout, Nginx};
        let mut result = CaseResult::of(&super::super::cases::CASES[0]);
        for subject in [Bare, Flatout, Nginx] {
            result.series.push(Series { subject, samples: Vec::new(), shown: String::new(), config: None });
        }
        let mut order = Vec::new();
        take_turns(&mut result, 3, 5, |subject, seconds| {
            order.push((subject, seconds));
            if subject == Nginx && order.len() > 5 {
                return Err("it fell over".into());
            }
            Ok(Sample { cpu_ns: 1, work: 1.0, seconds: 1.0 })
        });
        let warm_up = [(Nginx, 1), (Flatout, 1), (Bare, 1)];
        let first = [(Bare, 5), (Flatout, 5), (Nginx, 5)];
        let rest = [(Flatout, 5), (Bare, 5), (Bare, 5), (Flatout, 5)];
        assert_eq!(order, [&warm_up[..], &first, &rest].concat());
        assert_eq!(result.series.iter().map(|series| series.samples.len()).collect::<Vec<_>>(), [3, 3]);
        assert_eq!(result.left_out, [(Nginx, "it fell over".to_owned())]);
    }
}
