//! Several cases as one table, a line each: what a request cost, what that is in multiples of others, and how many there
//! were a second.

use super::super::cases::{Bound, Promise};
use super::super::rounds::{CaseResult, Spread};
use super::super::subjects::Subject;
use super::{Verdict, agreed_tls, client_limited, grouped, spread, verdict};
use std::fmt::Write as _;

/// The table of the cases that share one. They share their subjects and references as well.
pub(super) fn table(text: &mut String, results: &[&CaseResult]) {
    let Some(first) = results.first().map(|result| result.case) else { return };
    let _ = writeln!(text, "\n### {}\n", first.title);
    let costs = |result: &CaseResult, subject: Subject| {
        let series = result.series_of(subject);
        series.map_or_else(|| "–".to_owned(), |s| spread(Spread::of(s.samples.iter().map(|sample| sample.cost()))))
    };
    let names = |subjects: &[Subject]| subjects.iter().map(|subject| subject.name.to_owned()).collect::<Vec<_>>();
    lines(text, first.kind.unit(), &names(first.subjects), results, |result| {
        first.subjects.iter().map(|subject| costs(result, *subject)).collect()
    });
    if let Some(ours) = first.subjects.first() {
        let heads: Vec<String> = first.references.iter().map(|other| format!("× {}", other.name)).collect();
        lines(text, ours.name, &heads, results, |result| {
            let ratio = |other: &Subject| result.ratio(*ours, *other).map_or_else(|| "–".to_owned(), ratio_in_words);
            first.references.iter().map(ratio).collect()
        });
    }
    let rates = |result: &CaseResult, subject: Subject| {
        let samples = result.series_of(subject).map(|series| &series.samples);
        let rate = samples.and_then(|samples| Spread::of(samples.iter().map(|sample| sample.rate())));
        rate.map_or_else(|| "–".to_owned(), |rate| grouped(rate.median))
    };
    lines(text, first.kind.rate_unit(), &names(first.subjects), results, |result| {
        first.subjects.iter().map(|subject| rates(result, *subject)).collect()
    });
    verdicts(text, results);
    for result in results {
        for line in agreed_tls(result).into_iter().chain(client_limited(result)) {
            let _ = writeln!(text, "- {} bytes: {line}", bytes(result));
        }
        for (subject, why) in &result.left_out {
            let _ = writeln!(text, "- {} bytes: {} was left out: {why}", bytes(result), subject.name);
        }
    }
}

fn bytes(result: &CaseResult) -> String {
    grouped(result.case.row.map_or(result.case.file.bytes, |row| row.bytes) as f64)
}

fn ratio_in_words(ratio: Spread) -> String {
    format!("**{:.3}** [{:.3} – {:.3}]", ratio.median, ratio.min, ratio.max)
}

fn lines(
    text: &mut String,
    what: &str,
    heads: &[String],
    results: &[&CaseResult],
    cells: impl Fn(&CaseResult) -> Vec<String>,
) {
    let _ = writeln!(text, "| bytes; {what} | {} |", heads.join(" | "));
    let _ = writeln!(text, "|---:|{}", "---:|".repeat(heads.len()));
    for result in results {
        let _ = writeln!(text, "| {} | {} |", bytes(result), cells(result).join(" | "));
    }
    text.push('\n');
}

/// A line for each promise, whichever sizes it is made of.
fn verdicts(text: &mut String, results: &[&CaseResult]) {
    let mut promises: Vec<Promise> = Vec::new();
    for promise in results.iter().flat_map(|result| result.case.promises) {
        if !promises.contains(promise) {
            promises.push(*promise);
        }
    }
    for promise in promises {
        let (mut held, mut missed) = (Vec::new(), Vec::new());
        for result in results.iter().filter(|result| result.case.promises.contains(&promise)) {
            let Verdict { text, is_held } = verdict(result, &promise);
            let figure = text.rsplit(": ").next().unwrap_or_default().trim_end_matches(", **missed**").to_owned();
            match is_held {
                Some(false) => missed.push(format!("{} bytes: {figure}", bytes(result))),
                _ => held.push(bytes(result)),
            }
        }
        let Promise { subject, reference, bound } = promise;
        let said = match bound {
            Bound::CostAtMost(most) => format!("cost at most {most:.2} × {}", reference.name),
            Bound::RateAtLeast(least) => format!("rate at least {least:.2} × {}", reference.name),
            Bound::RateShown => continue,
        };
        let _ = write!(text, "- {}: {said}: ", subject.name);
        match (held.is_empty(), missed.is_empty()) {
            (false, true) => {
                let _ = writeln!(text, "held at {}", listed(&held));
            }
            (true, _) => {
                let _ = writeln!(text, "**missed** at {}", missed.join("; "));
            }
            (false, false) => {
                let _ = writeln!(text, "held at {}; **missed** at {}", listed(&held), missed.join("; "));
            }
        }
    }
}

fn listed(sizes: &[String]) -> String {
    match sizes {
        [] => String::new(),
        [one] => format!("{one} bytes"),
        [many @ .., last] => format!("{} and {last} bytes", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::coyote;
    use super::super::super::rounds::{Sample, Series};
    use super::super::super::subjects::{FLATOUT_STATIC, NGINX_LUA, NGINX_PHP, PAGES};
    use super::*;

    #[test]
    fn the_sizes_of_one_load_are_the_lines_of_one_table() {
        let series = |subject, cpu_ns| {
            let sample = Sample { cpu_ns, client_ns: Some(990_000), work: 1.0, seconds: 0.001, p99_us: None };
            Series { samples: vec![sample], ..Series::of(subject) }
        };
        let results: Vec<CaseResult> = coyote::CASES[..9]
            .iter()
            .map(|case| {
                let ours = if case.file.bytes < 1000 { 10_000 } else { 20_000 };
                let series = vec![
                    series(PAGES, ours),
                    series(FLATOUT_STATIC, 10_000),
                    series(NGINX_LUA, 20_000),
                    series(NGINX_PHP, 200_000),
                ];
                CaseResult { case, series, left_out: Vec::new() }
            })
            .collect();
        let mut text = String::new();
        table(&mut text, &results.iter().collect::<Vec<_>>());
        assert_eq!(text.matches("\n### ").count(), 1, "{text}");
        assert_eq!(text.matches("\n| 204\u{202f}317 | ").count(), 3, "{text}");
        assert!(text.contains("| 317 | **10.00** [10.00 – 10.00] | **10.00** [10.00 – 10.00] | **20.00**"), "{text}");
        assert!(text.contains("cost at most 0.10 × nginx and PHP-FPM: held at 317, 1\u{202f}337"), "{text}");
        assert!(
            text.contains("× nginx, Lua module: held at 317 bytes; **missed** at 1\u{202f}337 bytes: 1.000 ["),
            "{text}"
        );
        assert!(
            text.contains("cost at most 1.05 × flatout, static file: **missed** at 204\u{202f}317 bytes: 2.000"),
            "{text}"
        );
    }
}
