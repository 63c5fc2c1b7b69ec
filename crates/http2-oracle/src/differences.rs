//! Where other implementations differ, and the section of an RFC that decides or permits either: one class on each line
//! of a text file.

use super::Disagreement;

/// A class of differences.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The frames, the labels of this core's verdicts, and those of the other implementation's.
    columns: [Vec<&'static str>; 3],
    /// Few connections show it.
    pub is_rare: bool,
    /// The section that decides, and what it says.
    pub decides: &'static str,
}

impl Difference {
    /// Returns whether it is of this class.
    pub fn explains(&self, found: &Disagreement) -> bool {
        let [frames, ours, theirs] = &self.columns;
        let has = |words: &[&str], found: &str| words.contains(&found) || words == ["*"];
        has(frames, found.frame) && has(ours, &found.ours) && has(theirs, &found.theirs)
    }

    /// The row as text.
    pub fn text(&self) -> String {
        self.columns.iter().map(|words| words.join(", ")).collect::<Vec<_>>().join(" | ")
    }
}

/// Differences to the h2 crate.
pub const H2_CRATE: &str = include_str!("differences/h2_crate.txt");

/// Differences to PyPI's h2.
pub const PYTHON_H2: &str = include_str!("differences/python_h2.txt");

/// The rows of a table, each after `~` if it is rare: `frames | ours | theirs | what decides`, with alternatives separated
/// by commas.
///
/// # Panics
/// When a line has another form: the tables are part of this crate.
#[allow(clippy::panic)]
pub fn parse(text: &'static str) -> Vec<Difference> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rows = lines.map(|line| {
        let (is_rare, line) = line.strip_prefix("~ ").map_or((false, line), |line| (true, line));
        let columns: Vec<&str> = line.split(" | ").collect();
        let &[frames, ours, theirs, decides] = &columns[..] else { panic!("not a row of four columns: {line}") };
        let words = |column: &'static str| column.split(", ").map(str::trim).collect();
        Difference { columns: [words(frames), words(ours), words(theirs)], is_rare, decides }
    });
    rows.collect()
}
