//! Reads a suite's file into its model, and reports all mistakes with their line numbers.
//!
//! A mistake does not stop the parser: the malformed part is reported and skipped. References between parts (such as a
//! step's servers, or a check's step) are resolved when all parts are known.

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
use flatout_config::{Code, Diagnostics, Shape, property, report_unknown};
use refer::References;
use setting::Row;
use std::path::Path;

/// Maximum number of repetitions of a measurement.
const REPETITIONS_MAX: u64 = 1_000;

/// Maximum duration of a measurement, in seconds.
const SECONDS_MAX: f64 = 86_400.0;

/// Maximum number of measurements in a suite, over all combinations and repetitions.
pub(crate) const RUNS_MAX: usize = 100_000;

/// The state of the parser.
pub(crate) struct Reader<'a> {
    report: &'a mut Report,
    texts: &'a Texts,
    references: References,
    /// Strings of the step that is being read, whose placeholders must be known, with their places.
    step_texts: Vec<(String, Span)>,
}

/// The settings of a suite.
static SUITE: &[Row<Suite>] = &[
    Row::text("about", "about \"Hits of small files\"", |suite| &mut suite.about),
    Row::repeated("seed", Shape::values(1, "seed \"earlier\""), |reader, node, suite| {
        suite.seeds.extend(reader.words_of(node));
    }),
    Row::custom("repetitions", Shape::value("repetitions 5"), |reader, node, suite| {
        suite.repetitions = reader.count_of(node, 1, REPETITIONS_MAX).unwrap_or(1) as u32;
    }),
    Row::custom("seconds", Shape::value("seconds 3"), |reader, node, suite| {
        suite.seconds = reader.seconds_of(node).unwrap_or(1.0);
    }),
    Row::custom("quick", Shape::none("quick { repetitions 1; seconds 0.3 }").has_block(), |reader, node, suite| {
        reader.read_block(node, QUICK, &mut suite.quick);
    }),
    Row::custom("cores", Shape::none("cores server=0 client=1").with(&["server", "client"]), |reader, node, suite| {
        let mut of = |name: &str| {
            let property = property(node, name)?;
            reader.core_list(&property.value)
        };
        suite.cores = Cores { server: of("server").unwrap_or_default(), client: of("client").unwrap_or_default() };
    }),
    Row::repeated("let", LET, |reader, node, suite| {
        if let Some(variable) = reader.variable(node) {
            reader.known("variable", &variable.name, node);
            suite.variables.push(variable);
        }
    }),
    Row::repeated(
        "fixture",
        Shape::value("fixture \"site\" { bytes \"file.bin\" 6537455 }").has_block(),
        |reader, node, suite| {
            let fixture = reader.fixture(node);
            reader.known("fixture", &fixture.name, node);
            suite.fixtures.push(fixture);
        },
    ),
    Row::repeated("server", server::SHAPE, |reader, node, suite| {
        let server = reader.server(node, &suite.servers);
        reader.known("server", &server.name, node);
        suite.servers.push(server);
    }),
    Row::repeated(
        "testbed",
        Shape::value("testbed \"wire\" { mtu 1500; rate \"100mbit\"; hosts 2 }").has_block(),
        |reader, node, suite| {
            let testbed = reader.testbed(node);
            reader.known("testbed", &testbed.name, node);
            suite.testbeds.push(testbed);
        },
    ),
    Row::repeated("step", step::SHAPE, |reader, node, suite| {
        let step = reader.step(node);
        reader.known("step", &step.name, node);
        suite.steps.push(step);
    }),
    Row::repeated("check", check::SHAPE, |reader, node, suite| suite.checks.extend(reader.check(node))),
];

const LET: Shape = Shape::values(2, "let \"size\" 317 1337");

/// The settings of `quick`.
static QUICK: &[Row<Quick>] = &[
    Row::custom("repetitions", Shape::value("repetitions 1"), |reader, node, quick| {
        quick.repetitions = reader.count_of(node, 1, REPETITIONS_MAX).map(|count| count as u32);
    }),
    Row::custom("seconds", Shape::value("seconds 0.3"), |reader, node, quick| quick.seconds = reader.seconds_of(node)),
    Row::repeated("keep", Shape::values(2, "keep \"size\" 317"), |reader, node, quick| {
        if let Some(kept) = reader.variable(node) {
            reader.refer_kept(&kept, node);
            quick.keep.push(kept);
        }
    }),
    Row::repeated("skip", Shape::values(1, "skip \"knee\""), |reader, node, quick| {
        quick.skip.extend(reader.referred_words("step", node));
    }),
];

/// The settings of a testbed.
static TESTBED: &[Row<Testbed>] = &[
    Row::text("about", "about \"A slow link\"", |testbed| &mut testbed.about),
    Row::custom("mtu", Shape::value("mtu 1500"), |reader, node, testbed| {
        testbed.mtu = reader.measurable(node, crate::testbed::mtu_fault);
    }),
    Row::custom("rate", Shape::value("rate \"100mbit\""), |reader, node, testbed| {
        testbed.rate = reader.measurable(node, crate::testbed::rate_fault);
    }),
    Row::custom("delay", Shape::value("delay \"10ms\""), |reader, node, testbed| {
        testbed.delay = reader.measurable(node, crate::testbed::delay_fault);
    }),
    Row::repeated("sysctl", Shape::value("sysctl \"net.ipv4.tcp_sack=0\""), |reader, node, testbed| {
        testbed.sysctls.extend(reader.measurable(node, crate::testbed::sysctl_fault));
    }),
    Row::custom("cpu", Shape::value("cpu 0.1"), |reader, node, testbed| {
        testbed.cpu = reader.measurable(node, crate::testbed::share::fault);
    }),
    Row::custom("hosts", Shape::value("hosts 2"), |reader, node, testbed| {
        testbed.hosts = reader.count_of(node, 1, 2).unwrap_or(2) as u8;
    }),
];

/// Reads a suite's file.
///
/// # Errors
/// Returns all mistakes in the file.
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
        let mut reader =
            Reader { report: &mut report, texts: &texts, references: References::default(), step_texts: Vec::new() };
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
                report_unknown(node, &["suite"], self.report);
            } else if found.is_some() {
                self.report.add(Code::GivenTwice, node.span, "a file must contain one suite, but this is a second one");
            } else if Shape::value("suite \"name\" { … }").has_block().check(node, &[], self.report) {
                found = Some(self.suite(node));
            }
        }
        found
    }

    fn suite(&mut self, node: &Node) -> Suite {
        let mut suite = Suite {
            name: self.name_of(node),
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
        self.read_block(node, SUITE, &mut suite);
        self.resolve(&suite);
        if suite.steps.is_empty() && self.report.is_empty() {
            self.report.add(Code::BlockMissing, node.span, "the suite has no `step`, so there is nothing to measure");
        }
        suite
    }

    fn variable(&mut self, node: &Node) -> Option<Variable> {
        let place = self.texts.place(node.span);
        let (first, rest) = node.arguments.split_first()?;
        let name = self.name(first)?;
        let values: Vec<String> = rest.iter().filter_map(|value| self.word(value)).collect();
        for (index, value) in values.iter().enumerate() {
            if values[..index].contains(value) {
                self.report.add(Code::SameTwice, rest[index].span, format!("the value {value} is repeated"));
            }
        }
        Some(Variable { name, values, place })
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
        let (name, place) = (self.name_of(node), self.texts.place(node.span));
        let mut testbed = Testbed { name, place, hosts: 2, ..Testbed::default() };
        self.read_block(node, TESTBED, &mut testbed);
        if testbed.delay.is_some() && testbed.hosts == 1 {
            let text = "a link with a delay needs two hosts: remove `hosts 1` or `delay`";
            self.report.add(Code::NumberBounds, node.span, text);
        }
        testbed
    }

    /// Reads a value of a link, and checks it with `fault`. A value that contains a variable is checked when it is
    /// used.
    fn measurable(&mut self, node: &Node, fault: fn(&str) -> Option<String>) -> Option<Placed> {
        let value = node.arguments.first()?;
        let text = self.placed(value)?;
        let is_complete = crate::template::names(&text.text).next().is_none();
        if let Some(fault) = fault(&text.text).filter(|_| is_complete) {
            self.report.add(Code::NumberBounds, value.span, fault);
        }
        Some(text)
    }
}

/// Parses a list of cores: `0`, `0,2`, `0-3`.
fn parse_cores(text: &str) -> Option<Vec<usize>> {
    /// Maximum number of cores that Linux supports on x86.
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
