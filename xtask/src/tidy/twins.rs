//! No two crates have more than [`LINES_MAX`] equal lines, even if their names, numbers and texts differ.
//!
//! Only lines of functions are compared; equal functions in a row are one run. Functions of at most [`SHORT_LINES`] are
//! skipped, and rows of tables are not counted: match arms with a literal, and names between bars.

use super::Finding;
use super::remaining::{Found, compare};
use super::source::{Kind, Source, Token};
use super::tree::Tree;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

const LINES_MAX: usize = 10;

/// A function with a single statement.
const SHORT_LINES: usize = 3;

/// Number of consecutive tokens that must be equal where a run is looked for.
const WINDOW_TOKENS: usize = 30;

/// Words that are not names, in order.
const KEYWORDS: &[&str] = &[
    "Err", "None", "Ok", "Self", "Some", "as", "async", "await", "break", "const", "continue", "crate", "else", "enum",
    "false", "fn", "for", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return",
    "self", "static", "struct", "super", "trait", "true", "type", "unsafe", "use", "where", "while",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    for Twins { one, other, lines } in twins(&streams(tree)) {
        let place = found.entry(format!("{} ~ {}", one.0, other.0)).or_default();
        place.figures.push(lines);
        let text = format!(
            "{lines} lines are equal to those from {}:{} on, except for names: keep them once",
            other.0, other.1
        );
        place.findings.push(Finding::at(one.0, one.1, text));
    }
    compare(tree, "twins", found)
}

/// What two equal tokens have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Shape<'t> {
    /// A name or a literal: a constant may replace a number.
    Name,
    Keyword(&'t str),
    Mark(char),
    /// Stands for a short function, by its line; the gaps of two packages differ by the package's number.
    Gap(usize, usize),
}

/// The functions of a file.
struct Stream<'t> {
    path: &'t str,
    package: usize,
    shapes: Vec<Shape<'t>>,
    /// The line of each token.
    lines: Vec<usize>,
    /// For each token, true if it begins a line that is not the row of a table.
    begins: Vec<bool>,
}

/// Equal runs in two packages, each with its path and first line.
struct Twins<'t> {
    one: (&'t str, usize),
    other: (&'t str, usize),
    lines: usize,
}

fn streams(tree: &Tree) -> Vec<Stream<'_>> {
    let packages = tree.packages.iter().enumerate();
    packages
        .flat_map(|(number, package)| tree.product_of(package).map(move |file| Stream::read(file, number)))
        .collect()
}

impl<'t> Stream<'t> {
    fn read((path, source): (&'t str, &'t Source), package: usize) -> Self {
        let mut stream = Self { path, package, shapes: Vec::new(), lines: Vec::new(), begins: Vec::new() };
        for function in source.outer_functions() {
            if function.lines <= SHORT_LINES {
                stream.push(Shape::Gap(package, function.line), function.line, false);
                continue;
            }
            let mut at = function.tokens.start;
            let mut tokens = Vec::new();
            while at < function.tokens.end {
                at = source.attribute(at).unwrap_or_else(|| {
                    tokens.push(&source.tokens[at]);
                    at + 1
                });
            }
            for line in tokens.chunk_by(|one, next| one.line == next.line) {
                for (at, token) in line.iter().enumerate() {
                    stream.push(Shape::of(token), token.line, at == 0 && !is_row(line));
                }
            }
        }
        stream
    }

    fn push(&mut self, shape: Shape<'t>, line: usize, begins: bool) {
        self.shapes.push(shape);
        self.lines.push(line);
        self.begins.push(begins);
    }

    /// The number of whole lines in a run.
    fn lines_in(&self, run: &Range<usize>) -> usize {
        let line_after = self.lines.get(run.end);
        run.clone().filter(|at| self.begins[*at] && Some(&self.lines[*at]) != line_after).count()
    }

    /// Where runs are looked for: from the beginnings of statements on.
    fn windows(&self) -> impl Iterator<Item = (usize, &[Shape<'t>])> {
        let windows = self.shapes.windows(WINDOW_TOKENS).enumerate();
        windows
            .filter(|(at, _)| *at == 0 || matches!(self.shapes[at - 1], Shape::Mark(';' | '{' | '}') | Shape::Gap(..)))
    }
}

impl<'t> Shape<'t> {
    fn of(token: &'t Token) -> Self {
        match &token.kind {
            Kind::Word(word) if KEYWORDS.binary_search(&word.as_str()).is_ok() => Self::Keyword(word),
            Kind::Mark(mark) => Self::Mark(*mark),
            _ => Self::Name,
        }
    }
}

/// Returns true if a line is the row of a table.
fn is_row(line: &[&Token]) -> bool {
    let is_literal = |token: &Token| !matches!(token.kind, Kind::Word(_) | Kind::Mark(_));
    match line {
        [.., equals, greater, literal, comma] if is_literal(literal) => {
            equals.is_mark('=') && greater.is_mark('>') && comma.is_mark(',')
        }
        [first, ..] => first.is_mark('|'),
        [] => false,
    }
}

/// Every run of more than [`LINES_MAX`] equal lines in two packages, once.
fn twins<'t>(streams: &[Stream<'t>]) -> Vec<Twins<'t>> {
    let mut windows: HashMap<&[Shape<'t>], Vec<(usize, usize)>> = HashMap::new();
    for (number, stream) in streams.iter().enumerate() {
        for (at, shapes) in stream.windows() {
            windows.entry(shapes).or_default().push((number, at));
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
                    let place = |stream: &Stream<'t>, at: usize| (stream.path, stream.lines[at]);
                    found.push(Twins { one: place(one, run.start), other: place(other, other_run.start), lines });
                }
            }
        }
    }
    found
}

/// The longest equal runs that contain these two places.
fn equal_run(one: &Stream<'_>, at: usize, other: &Stream<'_>, other_at: usize) -> (Range<usize>, Range<usize>) {
    let before = one.shapes[..at].iter().rev().zip(other.shapes[..other_at].iter().rev());
    let before = before.take_while(|(a, b)| a == b).count();
    let after = one.shapes[at..].iter().zip(&other.shapes[other_at..]).take_while(|(a, b)| a == b).count();
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
