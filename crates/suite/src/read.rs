//! From a suite's file to its model, reporting all mistakes with their lines.
//!
//! A mistake never stops the parser: the malformed part is reported and skipped. References between parts (a step's
//! servers, a check's step) are resolved when all parts are known.

mod check;
mod fixture;
mod refer;
mod server;
mod setting;
mod step;
#[cfg(test)]
mod tests;

use crate::model::{Cores, Placed, Quick, Suite, Testbed, Variable};
use flatout_config::diagnostic::{Report, Span, Texts};
use flatout_config::source::Sources;
use flatout_config::syntax::{FILE_BYTES_MAX, Node, Value, parse_document};
use flatout_config::{Code, Diagnostics};
use refer::References;
use std::path::Path;

/// Upper bound of repetitions of a measurement.
const REPETITIONS_MAX: u64 = 1_000;

/// Upper bound of a measurement's duration, in seconds.
const SECONDS_MAX: f64 = 86_400.0;

/// Upper bound of a suite's measurements, with all combinations and repetitions.
pub(crate) const RUNS_MAX: usize = 100_000;

/// The state of the parser.
pub(crate) struct Reader<'a> {
    report: &'a mut Report,
    texts: &'a Texts,
    references: References,
}

/// Settings of a suite.
const SETTINGS: &[&str] = &[
    "about",
    "seed",
    "repetitions",
    "seconds",
    "quick",
    "cores",
    "let",
    "fixture",
    "server",
    "testbed",
    "step",
    "check",
];

/// Reads a suite.
///
/// # Errors
/// All that is wrong with it.
pub fn read(path: &Path, sources: &dyn Sources) -> Result<Suite, Diagnostics> {
    let shown = path.display().to_string();
    let unreadable = |code, message: String| {
        let place = flatout_config::model::Place { file: shown.clone(), line: 0, column: 0 };
        Diagnostics::of(code, place, message)
    };
    let content = sources
        .read(path, FILE_BYTES_MAX)
        .map_err(|error| unreadable(Code::FileUnreadable, format!("cannot read {shown}: {error}")))?;
    if content.len() > FILE_BYTES_MAX {
        return Err(unreadable(Code::TooLarge, format!("{shown} is larger than 1 MiB")));
    }
    let source =
        String::from_utf8(content).map_err(|_| unreadable(Code::FileNotText, format!("{shown} is not UTF-8")))?;
    let (mut report, mut texts) = (Report::new(), Texts::default());
    let file = texts.add(shown.clone(), source.clone());
    let nodes = parse_document(file, &source, &mut report);
    let mut suite = None;
    if report.is_empty() {
        let mut reader = Reader { report: &mut report, texts: &texts, references: References::default() };
        suite = reader.document(&nodes);
    }
    match suite {
        Some(mut suite) if report.is_empty() => {
            path.clone_into(&mut suite.file);
            suite.source = source;
            Ok(suite)
        }
        _ => {
            if report.is_empty() {
                report
                    .add(Code::BlockMissing, Span::new(file, 0, 0), "the file has no `suite`")
                    .note("as in: suite \"name\" { … }");
            }
            Err(report.finish(&texts))
        }
    }
}

impl Reader<'_> {
    fn document(&mut self, nodes: &[Node]) -> Option<Suite> {
        let mut found = None;
        for node in nodes {
            if node.name != "suite" {
                self.unknown(node, &["suite"]);
            } else if found.is_some() {
                self.report.add(Code::GivenTwice, node.span, "a file has one suite, and this is another");
            } else {
                found = Some(self.suite(node));
            }
        }
        found
    }

    fn suite(&mut self, node: &Node) -> Suite {
        let mut suite = Suite {
            name: self.name_of(node).unwrap_or_default(),
            file: Path::new("").to_owned(),
            source: String::new(),
            about: String::new(),
            seeds: Vec::new(),
            repetitions: 3,
            seconds: 3.0,
            quick: Quick::default(),
            cores: Cores::default(),
            fixtures: Vec::new(),
            variables: Vec::new(),
            servers: Vec::new(),
            testbeds: Vec::new(),
            steps: Vec::new(),
            checks: Vec::new(),
        };
        self.plain(node, &[]);
        let mut seen = Vec::new();
        for setting in self.block(node, "suite \"name\" { … }") {
            let once = matches!(setting.name.as_str(), "about" | "repetitions" | "seconds" | "quick" | "cores");
            if once && !self.first(&mut seen, setting) {
                continue;
            }
            self.setting(&mut suite, setting);
        }
        self.resolve(&suite);
        if suite.steps.is_empty() && self.report.is_empty() {
            self.report.add(Code::BlockMissing, node.span, "the suite has no `step`, so there is nothing to measure");
        }
        suite
    }

    fn setting(&mut self, suite: &mut Suite, node: &Node) {
        match node.name.as_str() {
            "about" => suite.about = self.text_of(node),
            "seed" => suite.seeds.extend(self.words_of(node)),
            "repetitions" => suite.repetitions = self.count_of(node, 1, REPETITIONS_MAX).unwrap_or(1) as u32,
            "seconds" => suite.seconds = self.seconds_of(node).unwrap_or(1.0),
            "quick" => suite.quick = self.quick(node),
            "cores" => suite.cores = self.cores(node),
            "let" => {
                if let Some(variable) = self.variable(node) {
                    self.known("variable", &variable.name, node);
                    suite.variables.push(variable);
                }
            }
            "fixture" => {
                let fixture = self.fixture(node);
                self.known("fixture", &fixture.name, node);
                suite.fixtures.push(fixture);
            }
            "server" => {
                let server = self.server(node, &suite.servers);
                self.known("server", &server.name, node);
                suite.servers.push(server);
            }
            "testbed" => {
                let testbed = self.testbed(node);
                self.known("testbed", &testbed.name, node);
                suite.testbeds.push(testbed);
            }
            "step" => {
                let step = self.step(node);
                self.known("step", &step.name, node);
                suite.steps.push(step);
            }
            "check" => suite.checks.extend(self.check(node)),
            _ => self.unknown(node, SETTINGS),
        }
    }

    fn quick(&mut self, node: &Node) -> Quick {
        let mut quick = Quick::default();
        self.none(node);
        for setting in self.block(node, "quick { repetitions 1; seconds 0.3 }") {
            match setting.name.as_str() {
                "repetitions" => {
                    quick.repetitions = self.count_of(setting, 1, REPETITIONS_MAX).map(|count| count as u32);
                }
                "seconds" => quick.seconds = self.seconds_of(setting),
                "keep" => {
                    if let Some(kept) = self.variable(setting) {
                        self.refer_kept(&kept, setting);
                        quick.keep.push(kept);
                    }
                }
                "skip" => {
                    for word in self.words_of_spans(setting) {
                        self.refer("step", &word.0.text, word.1);
                        quick.skip.push(word.0);
                    }
                }
                _ => self.unknown(setting, &["repetitions", "seconds", "keep", "skip"]),
            }
        }
        quick
    }

    fn variable(&mut self, node: &Node) -> Option<Variable> {
        self.plain(node, &[]);
        self.no_block(node);
        let place = self.texts.place(node.span);
        let (first, rest) = node.arguments.split_first().or_else(|| {
            let example = format!("as in: {} \"size\" 317 1337", node.name);
            self.report
                .add(Code::ValueMissing, node.span, format!("`{}` needs a name and values", node.name))
                .note(example);
            None
        })?;
        let name = self.name(first)?;
        if rest.is_empty() {
            let example = format!("as in: {} \"{name}\" 317 1337", node.name);
            self.report.add(Code::ValueMissing, node.span, format!("`{}` needs values", node.name)).note(example);
        }
        let values: Vec<String> = rest.iter().filter_map(|value| self.word(value)).collect();
        for (index, value) in values.iter().enumerate() {
            if values[..index].contains(value) {
                self.report.add(Code::SameTwice, rest[index].span, format!("the value {value} is repeated"));
            }
        }
        Some(Variable { name, values, place })
    }

    fn cores(&mut self, node: &Node) -> Cores {
        self.no_block(node);
        self.plain(node, &["server", "client"]);
        self.no_arguments(node, "cores server=0 client=1");
        let mut of = |name: &str| {
            let property = node.properties.iter().find(|property| property.name == name)?;
            self.core_list(&property.value)
        };
        Cores { server: of("server").unwrap_or_default(), client: of("client").unwrap_or_default() }
    }

    fn core_list(&mut self, value: &Value) -> Option<Vec<usize>> {
        let text = self.word(value)?;
        let cores = parse_cores(&text);
        if cores.is_none() {
            let message = format!("{text:?} is not a list of cores");
            self.report.add(Code::WordUnknown, value.span, message).note("as in: 0, \"0,2\" or \"0-3\"");
        }
        cores
    }

    fn testbed(&mut self, node: &Node) -> Testbed {
        self.plain(node, &[]);
        let mut testbed = Testbed {
            name: self.name_of(node).unwrap_or_default(),
            place: self.texts.place(node.span),
            hosts: 2,
            ..Testbed::default()
        };
        let mut seen = Vec::new();
        for setting in self.block(node, "testbed \"wire\" { mtu 1500; rate \"100mbit\"; hosts 2 }") {
            if !self.first(&mut seen, setting) {
                continue;
            }
            match setting.name.as_str() {
                "about" => testbed.about = self.text_of(setting),
                "mtu" => testbed.mtu = self.template_of(setting),
                "rate" => testbed.rate = self.template_of(setting),
                "delay" => testbed.delay = self.template_of(setting),
                "cpu" => testbed.cpu = self.template_of(setting),
                "hosts" => testbed.hosts = self.count_of(setting, 1, 2).unwrap_or(2) as u8,
                _ => self.unknown(setting, &["about", "mtu", "rate", "delay", "cpu", "hosts"]),
            }
        }
        let texts = [(&testbed.mtu, "mtu"), (&testbed.rate, "rate"), (&testbed.delay, "delay"), (&testbed.cpu, "cpu")];
        for (text, what) in texts {
            if let Some(text) = text {
                self.measurable(what, text, node);
            }
        }
        testbed
    }

    /// Values of a link that stand as they are must be such; those with a variable in them are looked at when they are used.
    fn measurable(&mut self, what: &str, text: &Placed, node: &Node) {
        if crate::template::names(&text.text).next().is_some() {
            return;
        }
        let fault = match what {
            "mtu" => crate::testbed::mtu_fault(&text.text),
            "rate" => crate::testbed::rate_fault(&text.text),
            "cpu" => crate::testbed::share::fault(&text.text),
            _ => crate::testbed::delay_fault(&text.text),
        };
        if let Some(fault) = fault {
            let span = node.children.iter().flatten().find(|child| child.name == what);
            let span = span.and_then(|child| child.arguments.first()).map_or(node.span, |value| value.span);
            self.report.add(Code::NumberBounds, span, fault);
        }
    }
}

/// A list of cores: `0`, `0,2`, `0-3`.
fn parse_cores(text: &str) -> Option<Vec<usize>> {
    /// The kernel's own bound on x86.
    const CORES_MAX: usize = 8_192;
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<usize>().ok()?, last.trim().parse::<usize>().ok()?);
        if first > last || last >= CORES_MAX {
            return None;
        }
        cores.extend(first..=last);
    }
    (cores.len() <= CORES_MAX).then_some(cores)
}
