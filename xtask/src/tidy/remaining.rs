//! Figures that may only fall: what remains of a fault that a rule forbids in new code.
//!
//! [`TABLE`] has a row for each place that still has some: rule, place and figures, separated by tabs. A higher or an
//! additional figure fails, and so does a lower one until the row is lowered or deleted.

use super::Finding;
use super::tree::Tree;
use std::collections::BTreeMap;

const TABLE: &str = "xtask/remaining.tsv";

/// The result of a rule in one place.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// One or several; the largest is compared with the largest of the row, and so on.
    pub(super) figures: Vec<usize>,
    /// The report if the figures are higher than the row's.
    pub(super) findings: Vec<Finding>,
}

/// Compares what a rule finds in each place with the rows of the rule.
pub(super) fn compare(tree: &Tree, rule: &str, mut found: BTreeMap<String, Found>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, place, allowed) in rows(tree, rule) {
        let Found { mut figures, findings: new } = found.remove(place).unwrap_or_default();
        figures.sort_unstable_by(|a, b| b.cmp(a));
        let rises =
            figures.iter().enumerate().any(|(at, figure)| allowed.get(at).is_none_or(|allowed| figure > allowed));
        if rises {
            findings.extend(new);
            let text = format!("{rule}: {place} has {} instead of {}", written(&figures), written(&allowed));
            findings.push(Finding::at(TABLE, line, text));
        } else if figures.is_empty() {
            findings.push(Finding::at(TABLE, line, format!("{rule}: nothing remains in {place}: delete the row")));
        } else if figures != allowed {
            let text = format!("{rule}: lower the row of {place} to {}", written(&figures));
            findings.push(Finding::at(TABLE, line, text));
        }
    }
    findings.extend(found.into_values().flat_map(|found| found.findings));
    findings
}

/// The rows of a rule: line, place, figures.
fn rows<'t>(tree: &'t Tree, rule: &str) -> impl Iterator<Item = (usize, &'t str, Vec<usize>)> {
    let lines = tree.text(TABLE).unwrap_or("").lines().enumerate();
    lines.filter_map(move |(at, line)| {
        let (_, row) = line.split_once('\t').filter(|(own, _)| *own == rule)?;
        let (place, figures) = row.split_once('\t')?;
        let figures = figures.split(' ').filter_map(|figure| figure.parse().ok()).collect();
        Some((at + 1, place, figures))
    })
}

fn written(figures: &[usize]) -> String {
    figures.iter().map(usize::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(table: &str, figures: &[usize]) -> Vec<String> {
        let place = Found { figures: figures.to_vec(), findings: vec![Finding::of("a.rs", "new")] };
        let found = if figures.is_empty() { BTreeMap::new() } else { BTreeMap::from([("a".to_owned(), place)]) };
        let findings = compare(&Tree::of(&[(TABLE, table)]), "rule", found);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn figures_equal_their_row() {
        let table = "# Comment\nother\ta\t9\nrule\ta\t3 2\n";
        assert_eq!(texts(table, &[2, 3]), [""; 0]);
        let above = "xtask/remaining.tsv:3: rule: a has 3 3 instead of 3 2";
        assert_eq!(texts(table, &[3, 3]), ["a.rs: new", above]);
        assert_eq!(texts(table, &[3, 2, 2]).len(), 2);
        assert_eq!(texts(table, &[1, 1, 1]).len(), 2);
        assert_eq!(texts("rule\ta\t17 5\n", &[16, 16]).len(), 2, "the second rises");
        assert_eq!(texts(table, &[3]), ["xtask/remaining.tsv:3: rule: lower the row of a to 3"]);
        assert_eq!(texts(table, &[]), ["xtask/remaining.tsv:3: rule: nothing remains in a: delete the row"]);
        assert_eq!(texts("", &[1]), ["a.rs: new"]);
    }
}
