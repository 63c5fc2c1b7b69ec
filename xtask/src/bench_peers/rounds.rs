//! The rounds of a case, taking turns, and what is made of their samples.

use super::cases::{Case, Kind};
use super::clients;
use super::servers::{Bench, Server, Subject};
use crate::failure::Outcome;

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

/// Measures a case: a short round of everyone to warm up, then the rounds in turn.
pub(super) fn measure(case: &'static Case, bench: &Bench, rounds: usize, seconds: u64) -> Outcome<CaseResult> {
    eprintln!("━━━ {}", case.title);
    match case.kind {
        Kind::ClientPerRequest => measure_clients(case, bench, rounds, seconds),
        _ => measure_servers(case, bench, rounds, seconds),
    }
}

fn measure_servers(case: &'static Case, bench: &Bench, rounds: usize, seconds: u64) -> Outcome<CaseResult> {
    let mut result = CaseResult { case, series: Vec::new(), left_out: Vec::new(), client: String::new() };
    let mut servers: Vec<Server> = Vec::new();
    for subject in case.subjects {
        match bench.start(*subject, case) {
            Ok(server) => {
                let (shown, config) = (server.shown.clone(), server.config.clone());
                result.series.push(Series { subject: *subject, samples: Vec::new(), shown, config });
                servers.push(server);
            }
            Err(failure) => result.leave_out(*subject, &failure.to_string()),
        }
    }
    if let Some(server) = servers.first() {
        let wrk = clients::command(Subject::Wrk, bench, case, &server.url(case.file), seconds);
        result.client = bench.shown(&crate::shell::shown(&wrk), server.port());
    }
    for server in &servers {
        clients::server_sample(bench, case, server, 1)?;
    }
    for round in 1..=rounds {
        for (series, server) in result.series.iter_mut().zip(&servers) {
            series.take(round, rounds, clients::server_sample(bench, case, server, seconds)?);
        }
    }
    Ok(result)
}

fn measure_clients(case: &'static Case, bench: &Bench, rounds: usize, seconds: u64) -> Outcome<CaseResult> {
    let mut result = CaseResult { case, series: Vec::new(), left_out: Vec::new(), client: String::new() };
    let server = match bench.start(Subject::Nginx, case) {
        Ok(server) => server,
        Err(failure) => {
            result.leave_out(Subject::Nginx, &failure.to_string());
            return Ok(result);
        }
    };
    for client in case.subjects {
        match clients::client_sample(bench, case, *client, &server, 1) {
            Ok(_) => {
                let command = clients::command(*client, bench, case, &server.url(case.file), seconds);
                let shown = bench.shown(&crate::shell::shown(&command), server.port());
                result.series.push(Series { subject: *client, samples: Vec::new(), shown, config: None });
            }
            Err(failure) => result.leave_out(*client, &failure.to_string()),
        }
    }
    for round in 1..=rounds {
        for series in &mut result.series {
            series.take(round, rounds, clients::client_sample(bench, case, series.subject, &server, seconds)?);
        }
    }
    Ok(result)
}

impl CaseResult {
    fn leave_out(&mut self, subject: Subject, why: &str) {
        super::missing(subject, why);
        self.left_out.push((subject, why.to_owned()));
    }
}

impl Series {
    fn take(&mut self, round: usize, rounds: usize, sample: Sample) {
        let (name, cost, rate) = (self.subject.name(), sample.cost(), sample.rate());
        eprintln!("    {round}/{rounds} {name:<20} {cost:>9.2} µs  {rate:>10.0}/s");
        self.samples.push(sample);
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
}
