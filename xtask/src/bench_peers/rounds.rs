//! The rounds of a case, taking turns, and what is made of their samples.

use super::bench::Bench;
use super::cases::{Bound, Case, Kind, Promise};
use super::servers::Server;
use super::subjects::{NGINX, Setup, Subject};
use super::{answers, clients};
use crate::failure::{Context, Failure, Outcome};
use crate::shell;

/// What one subject did in one round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) cpu_ns: u64,
    /// What the client spent, where the server is measured.
    pub(super) client_ns: Option<u64>,
    /// Requests, or MiB.
    pub(super) work: f64,
    pub(super) seconds: f64,
    /// The latency that one request in a hundred exceeds, where the client says it.
    pub(super) p99_us: Option<u64>,
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

    /// How much of their cores the server and the client used, where the server is measured.
    pub(super) fn shares(self) -> Option<(f64, f64)> {
        let share = |ns: u64| ns as f64 / 1e9 / self.seconds;
        self.client_ns.map(|client_ns| (share(self.cpu_ns), share(client_ns)))
    }
}

/// A subject's samples, one a round.
pub(super) struct Series {
    pub(super) subject: Subject,
    pub(super) samples: Vec<Sample>,
    /// The command it ran by.
    pub(super) shown: String,
    /// The command that asked it; its own, if it is a client.
    pub(super) client: String,
    /// The configuration it read.
    pub(super) config: Option<String>,
    /// The TLS that was agreed on with it, in the client's words.
    pub(super) tls: Option<String>,
}

impl Series {
    pub(super) fn of(subject: Subject) -> Self {
        Self { subject, samples: Vec::new(), shown: String::new(), client: String::new(), config: None, tls: None }
    }

    /// How much of their cores the server and the client used, in the middle of the rounds.
    pub(super) fn shares(&self) -> Option<(f64, f64)> {
        let shares = || self.samples.iter().filter_map(|sample| sample.shares());
        let (server, client) = (Spread::of(shares().map(|both| both.0))?, Spread::of(shares().map(|both| both.1))?);
        Some((server.median, client.median))
    }
}

/// All that a case came to.
pub(super) struct CaseResult {
    pub(super) case: &'static Case,
    pub(super) series: Vec<Series>,
    /// Who could not take part, and why.
    pub(super) left_out: Vec<(Subject, String)>,
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
        self.compared(subject, reference, Sample::cost)
    }

    /// The ratio that a promise is about, round by round.
    pub(super) fn promised(&self, promise: &Promise) -> Option<Spread> {
        let figure = match promise.bound {
            Bound::CostAtMost(_) => Sample::cost,
            Bound::RateAtLeast(_) | Bound::RateShown => Sample::rate,
        };
        self.compared(promise.subject, promise.reference, figure)
    }

    fn compared(&self, subject: Subject, reference: Subject, figure: fn(Sample) -> f64) -> Option<Spread> {
        let (ours, theirs) = (self.series_of(subject)?, self.series_of(reference)?);
        let pairs = ours.samples.iter().zip(&theirs.samples);
        Spread::of(pairs.map(|(ours, theirs)| figure(*ours) / figure(*theirs)))
    }
}

/// Measures a case. What fails in it stands in the result.
pub(super) fn measure(case: &'static Case, bench: &Bench, rounds: usize, seconds: u64) -> CaseResult {
    eprintln!("━━━ {}{}", case.title, case.row.map_or_else(String::new, |row| format!(", {} bytes", row.bytes)));
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

/// The servers of a case that still run, by what they were started with.
type Running = Vec<(Setup, Server)>;

fn measure_servers(case: &'static Case, bench: &Bench, rounds: usize, seconds: u64) -> CaseResult {
    let mut result = CaseResult::of(case);
    if case.kind == Kind::ServerPerHandshake
        && let Err(failure) = clients::check_full_handshakes(bench, case)
    {
        for subject in case.subjects {
            result.leave_out(*subject, &format!("the client could not be used: {failure}"));
        }
        return result;
    }
    let mut servers = Running::new();
    for subject in case.subjects {
        let mut series = Series::of(*subject);
        match ready(case, bench, *subject, &mut servers) {
            Ok(server) => {
                series.shown.clone_from(&server.shown);
                series.config.clone_from(&server.config);
                let client = clients::command(bench, case, *subject, server, seconds);
                series.client = bench.shown(&shell::shown(&client), server.port());
                if case.row.is_some() {
                    series.client = series.client.replace(case.file.stem(), "PAGE");
                }
                result.series.push(series);
            }
            Err(failure) => result.leave_out(*subject, &failure.to_string()),
        }
    }
    // Who is left out need not run.
    servers.retain(|(setup, _)| result.series.iter().any(|series| series.subject.setup == *setup));
    take_turns(&mut result, rounds, seconds, |series, seconds| {
        let setup = series.subject.setup;
        let server = running(&servers, setup).cannot("ask its server, which was stopped when it failed another")?;
        match clients::server_sample(bench, case, series.subject, server, seconds) {
            Ok((sample, tls)) => {
                series.tls = tls;
                Ok(sample)
            }
            Err(failure) => {
                // What failed may not disturb those who go on.
                servers.retain(|(known, _)| *known != setup);
                Err(failure)
            }
        }
    });
    result
}

fn running(servers: &Running, setup: Setup) -> Option<&Server> {
    servers.iter().find(|(known, _)| *known == setup).map(|(_, server)| server)
}

/// The server of a subject, started unless another subject shares it, answering right and, if it logs, logging.
fn ready<'a>(case: &Case, bench: &Bench, subject: Subject, servers: &'a mut Running) -> Outcome<&'a Server> {
    if running(servers, subject.setup).is_none() {
        servers.push((subject.setup, Server::start(bench, subject, case)?));
    }
    let server = running(servers, subject.setup).cannot("find its server")?;
    let checked = answers::check(bench, subject, case, server).and_then(|()| {
        let logged = server.logged(1)?;
        if logged.is_some_and(|log| !log.contains(case.file.path)) {
            return Err("its log does not name what was asked for".into());
        }
        server.empty_log()
    });
    checked.map_err(|failure| Failure::from(format!("{failure} ({})", server.shown)))?;
    Ok(server)
}

fn measure_clients(case: &'static Case, bench: &Bench, rounds: usize, seconds: u64) -> CaseResult {
    let mut result = CaseResult::of(case);
    let mut servers = Running::new();
    let server = match ready(case, bench, NGINX, &mut servers) {
        Ok(server) => server,
        Err(failure) => {
            result.leave_out(NGINX, &failure.to_string());
            return result;
        }
    };
    for client in case.subjects {
        let command = clients::command(bench, case, *client, server, seconds);
        let mut series = Series::of(*client);
        series.client = bench.shown(&shell::shown(&command), server.port());
        result.series.push(series);
    }
    take_turns(&mut result, rounds, seconds, |series, seconds| {
        clients::client_sample(bench, case, series.subject, server, seconds)
    });
    result
}

/// A second of everyone to warm up, then the rounds. Anyone who fails is left out from there on; the others go on.
fn take_turns(
    result: &mut CaseResult,
    rounds: usize,
    seconds: u64,
    mut sample: impl FnMut(&mut Series, u64) -> Outcome<Sample>,
) {
    for round in 0..=rounds {
        let mut turns: Vec<Subject> = result.series.iter().map(|series| series.subject).collect();
        // Anyone who always came after the same server would always inherit its warm or cold machine.
        if round % 2 == 0 {
            turns.reverse();
        }
        for subject in turns {
            let seconds = if round == 0 { 1 } else { seconds };
            let series = result.series.iter_mut().find(|series| series.subject == subject);
            let Some(series) = series else { continue };
            match sample(series, seconds) {
                Ok(sample) if round > 0 => result.take(subject, sample, (round, rounds)),
                Ok(_) => {}
                Err(failure) => result.leave_out(subject, &failure.to_string()),
            }
        }
    }
}

impl CaseResult {
    fn of(case: &'static Case) -> Self {
        Self { case, series: Vec::new(), left_out: Vec::new() }
    }

    /// Half a series is none: its rounds would be compared with other rounds of the others.
    fn leave_out(&mut self, subject: Subject, why: &str) {
        eprintln!("!!! {} is left out: {why}", subject.name);
        self.series.retain(|series| series.subject != subject);
        self.left_out.push((subject, why.to_owned()));
    }

    fn take(&mut self, subject: Subject, sample: Sample, (round, rounds): (usize, usize)) {
        let (name, cost, rate) = (subject.name, sample.cost(), sample.rate());
        eprintln!("    {round}/{rounds} {name:<32} {cost:>9.2} µs  {rate:>10.0}/s");
        let series = self.series.iter_mut().find(|series| series.subject == subject);
        if let Some(series) = series {
            series.samples.push(sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::CASES;
    use super::super::subjects::{BARE, FLATOUT};
    use super::*;

    #[test]
    fn a_spread_is_the_middle_the_least_and_the_most() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn ratios_are_taken_within_each_round() {
        let series = |subject, costs: [u64; 3]| {
            let sample = |cpu_ns| Sample { cpu_ns, client_ns: None, work: 1.0, seconds: cpu_ns as f64, p99_us: None };
            Series { samples: costs.into_iter().map(sample).collect(), ..Series::of(subject) }
        };
        let result = CaseResult {
            case: &CASES[0],
            // The machine was twice as slow in the second round, for both.
            series: vec![series(FLATOUT, [11, 22, 11]), series(BARE, [10, 20, 10])],
            left_out: Vec::new(),
        };
        let is = |ratio: Spread, wanted: f64| (ratio.min - wanted).abs() < 1e-9 && (ratio.max - wanted).abs() < 1e-9;
        assert!(is(result.ratio(FLATOUT, BARE).unwrap(), 1.1));
        assert!(result.ratio(FLATOUT, NGINX).is_none());
        let promise = |bound| Promise { subject: FLATOUT, reference: BARE, bound };
        assert!(is(result.promised(&promise(Bound::CostAtMost(1.0))).unwrap(), 1.1));
        assert!(is(result.promised(&promise(Bound::RateAtLeast(1.0))).unwrap(), 1.0 / 1.1));
    }

    #[test]
    fn the_order_turns_round_and_who_fails_is_left_out_alone() {
        let mut result = CaseResult::of(&CASES[0]);
        result.series.extend([BARE, FLATOUT, NGINX].map(Series::of));
        let mut order = Vec::new();
        take_turns(&mut result, 3, 5, |series, seconds| {
            order.push((series.subject, seconds));
            if series.subject == NGINX && order.len() > 5 {
                return Err("it fell over".into());
            }
            Ok(Sample { cpu_ns: 1, client_ns: None, work: 1.0, seconds: 1.0, p99_us: None })
        });
        let warm_up = [(NGINX, 1), (FLATOUT, 1), (BARE, 1)];
        let first = [(BARE, 5), (FLATOUT, 5), (NGINX, 5)];
        let rest = [(FLATOUT, 5), (BARE, 5), (BARE, 5), (FLATOUT, 5)];
        assert_eq!(order, [&warm_up[..], &first, &rest].concat());
        assert_eq!(result.series.iter().map(|series| series.samples.len()).collect::<Vec<_>>(), [3, 3]);
        assert_eq!(result.left_out, [(NGINX, "it fell over".to_owned())]);
    }
}
