//! The invalid figures of a step's runs, with reasons and remedies.

use crate::document::StepEntry;
use flatout_load::judge::{Figure, InvalidReason};
use flatout_report::verdict::label;
use flatout_units::show;

/// Returns one line per reason, in the order of the table of reasons. Each says in how many runs the reason was found,
/// which figures it affected, and what to do.
pub(super) fn unsound_lines(step: &StepEntry) -> Vec<String> {
    let runs: Vec<_> = step.cells.iter().flat_map(|cell| &cell.runs).collect();
    let of = |reason: &InvalidReason| {
        let touched: Vec<_> =
            runs.iter().filter(|run| run.figures.iter().any(|verdict| verdict.reasons.contains(reason))).collect();
        let verdicts = || touched.iter().flat_map(|run| &run.figures);
        let labels: Vec<&str> = Figure::ALL
            .iter()
            .filter(|figure| verdicts().any(|of| of.figure == **figure && of.reasons.contains(reason)))
            .map(|figure| label(*figure))
            .collect();
        (!touched.is_empty()).then(|| {
            format!(
                "{}: {} left out of {}; {} (flatout help {})",
                reason.name(),
                labels.join(", "),
                show::plural(touched.len() as u64, "run", "runs"),
                reason.remedy(),
                reason.name()
            )
        })
    };
    InvalidReason::ALL.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::unsound_lines;
    use crate::document::{Cell, RunEntry, StepEntry};
    use flatout_load::judge::{Evidence, Invalid, InvalidReason, figures};

    #[test]
    fn each_reason_says_what_it_left_out_and_what_to_do() {
        let run = |reason| {
            let invalid = [Invalid { reason, text: "so".to_owned() }];
            RunEntry { figures: figures::verdicts(&Evidence::default(), &invalid), ..RunEntry::default() }
        };
        let runs = vec![run(InvalidReason::ClientSaturated), RunEntry::default(), run(InvalidReason::ClientSaturated)];
        let step = StepEntry { cells: vec![Cell { runs, ..Cell::default() }], ..StepEntry::default() };
        let lines = unsound_lines(&step);
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        assert!(
            line.starts_with("client-saturated: requests/s, p50, p99 left out of 2 runs; give the client"),
            "{line}"
        );
        assert!(line.ends_with("(flatout help client-saturated)"), "{line}");
        assert!(unsound_lines(&StepEntry::default()).is_empty());
    }
}
