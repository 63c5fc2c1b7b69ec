//! No two crates have more than [`LINES_MAX`] equal lines, whatever their names, numbers and texts are.
//!
//! The lines are those of functions, of several in a row if they are equal. Functions of at most [`SHORT_LINES`] do not
//! count, and neither do the rows of tables: arms with a literal, and names between bars.

use super::Finding;
use super::remaining::{Found, compare};
use super::source::{Kind, Source, Token};
use super::tree::Tree;
use std::collections::{BTreeMap, HashMap};
use std::ops::{Range, RangeFrom};

const LINES_MAX: usize = 10;

/// A function with a single statement.
const SHORT_LINES: usize = 3;

/// Number of consecutive tokens whose hashes are compared to find equal runs.
const WINDOW_TOKENS: usize = 30;

/// Words that are not names.
const KEYWORDS: &[&str] = &[
    "Err", "None", "Ok", "Self", "Some", "as", "async", "await", "break", "const", "continue", "crate", "else", "enum",
    "false", "fn", "for", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return",
    "self", "static", "struct", "super", "trait", "true", "type", "unsafe", "use", "where", "while",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    for Twins { one, other, lines } in twins(&streams(tree)) {
        let place = found.entry(format!("{} ~ {}", one.path, other.path)).or_default();
        place.figures.push(lines);
        let text = format!(
            "{lines} lines are equal to those from {}:{} on, except for names: keep them once",
            other.path, other.line
        );
        place.findings.push(Finding::at(one.path, one.line, text));
    }
    compare(tree, "twins", found)
}

/// The functions of a file as a row of numbers: equal ones stand for tokens that are equal except for names.
struct Stream<'t> {
    path: &'t str,
    package: usize,
    codes: Vec<u32>,
    lines: Vec<usize>,
    /// For each token and the end, how many lines that count have ended before it.
    ended: Vec<usize>,
    /// For each token, true if a line begins with it.
    begins: Vec<bool>,
    /// For each token, true if it is a text, a number or the like.
    literals: Vec<bool>,
}

/// Equal runs in two crates.
struct Twins<'t> {
    one: Place<'t>,
    other: Place<'t>,
    lines: usize,
}

struct Place<'t> {
    path: &'t str,
    line: usize,
}

fn streams(tree: &Tree) -> Vec<Stream<'_>> {
    let keywords: HashMap<&str, u32> = KEYWORDS.iter().copied().zip(FIRST_KEYWORD..).collect();
    let folders: Vec<String> = tree.packages.iter().map(|package| format!("{}/src/", package.folder)).collect();
    let package_of = |path: &str| folders.iter().position(|folder| path.starts_with(folder.trim_start_matches('/')));
    let mut gaps = FIRST_GAP..;
    let product = tree.product();
    product
        .filter_map(|(path, source)| Some(Stream::read(path, package_of(path)?, source, &keywords, &mut gaps)))
        .collect()
}

/// A name or a literal: a constant may replace a number.
const NAME: u32 = 0;
const FIRST_KEYWORD: u32 = 1;
/// Marks are numbered by their characters from here on.
const FIRST_MARK: u32 = 0x100;
/// No gap in place of a short function is equal to another.
const FIRST_GAP: u32 = 0x20_0000;

impl<'t> Stream<'t> {
    fn read(
        path: &'t str,
        package: usize,
        source: &Source,
        keywords: &HashMap<&str, u32>,
        gaps: &mut RangeFrom<u32>,
    ) -> Self {
        let (codes, lines, literals) = (Vec::new(), Vec::new(), Vec::new());
        let mut stream = Self { path, package, codes, lines, ended: Vec::new(), begins: Vec::new(), literals };
        for function in source.outer_functions() {
            if function.lines <= SHORT_LINES {
                stream.codes.extend(gaps.next());
                stream.lines.push(function.line);
                stream.literals.push(false);
                continue;
            }
            let mut at = function.tokens.start;
            while at < function.tokens.end {
                if let Some(end) = source.attribute(at) {
                    at = end;
                    continue;
                }
                let token = &source.tokens[at];
                stream.codes.push(code(token, keywords));
                stream.lines.push(token.line);
                stream.literals.push(!matches!(token.kind, Kind::Word(_) | Kind::Mark(_)));
                at += 1;
            }
        }
        stream.count_lines();
        stream
    }

    fn count_lines(&mut self) {
        let mut count = 0;
        for at in 0..self.codes.len() {
            let begins = at == 0 || self.lines[at] != self.lines[at - 1];
            if begins && at > 0 && self.counts(self.begins.iter().rposition(|begins| *begins).unwrap_or(0)..at) {
                count += 1;
            }
            self.ended.push(count);
            self.begins.push(begins);
        }
        self.ended.push(count + 1);
    }

    /// Returns true if a line is not the row of a table.
    fn counts(&self, line: Range<usize>) -> bool {
        let mark = |mark: char| FIRST_MARK + u32::from(mark);
        let is_literal = line.len() > 1 && self.literals[line.end - 2];
        let codes = &self.codes[line];
        let is_arm = is_literal && codes.ends_with(&[mark('='), mark('>'), NAME, mark(',')]);
        !is_arm && codes.first() != Some(&mark('|'))
    }

    /// The number of whole lines in a run, without the rows of tables.
    fn lines_in(&self, run: &Range<usize>) -> usize {
        let from = if self.begins[run.start] {
            run.start
        } else {
            (run.start..run.end).find(|at| self.begins[*at]).unwrap_or(run.end)
        };
        self.ended[run.end] - self.ended[from]
    }

    /// Where runs are looked for, each with a hash of the window from there on.
    fn windows(&self) -> impl Iterator<Item = (usize, u64)> {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut hashes = vec![0_u64];
        for code in &self.codes {
            let last = hashes[hashes.len() - 1];
            hashes.push(last.wrapping_mul(FACTOR).wrapping_add(u64::from(*code) + 1));
        }
        let factor = (0..WINDOW_TOKENS).fold(1_u64, |factor, _| factor.wrapping_mul(FACTOR));
        let starts = (0..(self.codes.len() + 1).saturating_sub(WINDOW_TOKENS)).filter(move |at| {
            let is_end =
                |code: u32| code >= FIRST_GAP || [';', '{', '}'].iter().any(|end| code == FIRST_MARK + u32::from(*end));
            *at == 0 || is_end(self.codes[at - 1])
        });
        starts.map(move |at| (at, hashes[at + WINDOW_TOKENS].wrapping_sub(hashes[at].wrapping_mul(factor))))
    }
}

fn code(token: &Token, keywords: &HashMap<&str, u32>) -> u32 {
    match &token.kind {
        Kind::Word(word) => keywords.get(word.as_str()).copied().unwrap_or(NAME),
        Kind::Mark(mark) => FIRST_MARK + u32::from(*mark),
        Kind::Text(_) | Kind::Character(_) | Kind::Other => NAME,
    }
}

/// Every run of more than [`LINES_MAX`] equal lines in two packages, once.
fn twins<'t>(streams: &[Stream<'t>]) -> Vec<Twins<'t>> {
    let mut windows: HashMap<u64, Vec<(usize, usize)>> = HashMap::new();
    for (number, stream) in streams.iter().enumerate() {
        for (at, hash) in stream.windows() {
            windows.entry(hash).or_default().push((number, at));
        }
    }
    let mut groups: Vec<Vec<(usize, usize)>> = windows.into_values().filter(|group| group.len() > 1).collect();
    groups.sort_unstable();
    // How far the pair of runs at this offset has been compared.
    let mut compared: HashMap<(usize, usize, isize), usize> = HashMap::new();
    let mut found = Vec::new();
    for group in groups {
        for (index, &(number, at)) in group.iter().enumerate() {
            for &(other_number, other_at) in &group[index + 1..] {
                let (one, other) = (&streams[number], &streams[other_number]);
                if one.package == other.package {
                    continue;
                }
                let offset = at.cast_signed() - other_at.cast_signed();
                let compared = compared.entry((number, other_number, offset)).or_default();
                if *compared > at {
                    continue;
                }
                let (run, other_run) = equal_run(one, at, other, other_at);
                *compared = run.end;
                let lines = one.lines_in(&run).min(other.lines_in(&other_run));
                if lines > LINES_MAX {
                    let place = |stream: &Stream<'t>, at: usize| Place { path: stream.path, line: stream.lines[at] };
                    let (one, other) = (place(one, run.start), place(other, other_run.start));
                    found.push(Twins { one, other, lines });
                }
            }
        }
    }
    found
}

/// The longest equal runs that contain these two places.
fn equal_run(one: &Stream<'_>, at: usize, other: &Stream<'_>, other_at: usize) -> (Range<usize>, Range<usize>) {
    let before = one.codes[..at].iter().rev().zip(other.codes[..other_at].iter().rev());
    let before = before.take_while(|(a, b)| a == b).count();
    let after = one.codes[at..].iter().zip(&other.codes[other_at..]).take_while(|(a, b)| a == b).count();
    (at - before..at + after, other_at - before..other_at + after)
}

#[cfg(test)]
mod tests {
    use super::super::tree::Package;
    use super::*;

    const ORIGINAL: &str = "fn append(mut number: u64, output: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    output.extend_from_slice(&digits[at..]);
}
";

    /// The same with other names, numbers, comments and breaks.
    fn renamed() -> String {
        let text = ORIGINAL.replace("number", "rest").replace("digits", "buffer").replace("at", "start");
        let text = text.replace("b'0'", "48").replace("[0; 20]", "[7; MAX]");
        text.replace("    let mut", "    // A comment.\n\n    let mut").replace(" + (", "\n            + (")
    }

    fn findings(one: &str, other: &str) -> Vec<String> {
        let tree = Tree::of(&[("crates/a/src/lib.rs", one), ("crates/b/src/lib.rs", other)])
            .with(Package::of("flatout-a", "crates/a", &[]))
            .with(Package::of("flatout-b", "crates/b", &[]));
        check(&tree).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_function_with_other_names_is_found_in_another_crate() {
        let one = format!("fn a() {{\n    b(1);\n    c(2)\n}}\n{ORIGINAL}");
        let expected = "crates/a/src/lib.rs:5: 13 lines are equal to those from crates/b/src/lib.rs:1 on, except for \
                        names: keep them once";
        assert_eq!(findings(&one, &renamed()), [expected]);
        let twice = format!("{one}fn z() -> u8 {{\n    x();\n    0\n}}\n");
        assert_eq!(findings(&one, &twice).len(), 1, "a longer run is one finding");
    }

    #[test]
    fn tests_short_functions_and_tables_are_free() {
        let test = format!("#[cfg(test)]\nmod tests {{\n{ORIGINAL}}}\n");
        assert_eq!(findings(ORIGINAL, &test), [""; 0]);
        let ten: String = ORIGINAL.replace("        if number == 0 {\n            break;\n        }\n", "");
        assert_eq!(findings(&ten, &ten), [""; 0]);
        let short = "fn a() -> u8 {\n    self.b.get(1)\n}\n".repeat(9);
        assert_eq!(findings(&short, &short), [""; 0]);
        let table = format!("fn a() {{\n    match b {{\n{}    }}\n}}\n", "        C::D => \"e\",\n".repeat(20));
        assert_eq!(findings(&table, &table), [""; 0]);
        let table = format!(
            "fn a() {{\n    matches!(\n        b,\n        A\n{}    )\n}}\n",
            "            | B::C\n".repeat(20)
        );
        assert_eq!(findings(&table, &table), [""; 0]);
    }

    #[test]
    fn two_files_of_one_crate_are_not_its_concern() {
        let tree = Tree::of(&[("crates/a/src/lib.rs", ORIGINAL), ("crates/a/src/b.rs", ORIGINAL)]).with(Package::of(
            "flatout-a",
            "crates/a",
            &[],
        ));
        assert_eq!(check(&tree), []);
    }
}
