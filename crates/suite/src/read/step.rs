//! Parsing of steps.

use super::refer::BUILT_IN;
use super::setting::Row;
use super::{REPETITIONS_MAX, Reader};
use crate::client::ClientProgram;
use crate::measure::Measure;
use crate::model::{Client, Expectation, ExpectedField, Placed, Reach, Step, Take};
use flatout_config::diagnostic::Span;
use flatout_config::syntax::Node;
use flatout_config::{Code, Shape};
use flatout_report::classic::Classic;

/// The form of a step in a file.
pub(super) const SHAPE: Shape =
    Shape::value("step \"hits\" { servers \"flatout\"; path \"/\"; bench \"-c\" \"5\" }").has_block();

/// The settings of a step.
static STEP: &[Row<Step>] = &[
    Row::text("about", "about \"Hits\"", |step| &mut step.about),
    Row::custom("servers", SERVERS, |reader, node, step| {
        for (word, span) in reader.words_of_spans(node) {
            reader.refer("server", &word.text, span);
            if step.servers.iter().any(|other| other.text == word.text) {
                reader.report.add(Code::SameTwice, span, format!("`{}` is repeated", word.text));
            }
            step.servers.push(word);
        }
    }),
    Row::repeated("path", Shape::value("path \"/\"").with(&["for"]), |reader, node, step| reader.path(step, node)),
    Row::custom("first", Shape::values(1, "first \"-n\" \"1\""), |reader, node, step| {
        step.first = reader.options(node);
    }),
    Row::custom("bench", Shape::values(1, "bench \"-c\" \"5\""), |reader, node, step| {
        step.bench = reader.options(node);
    }),
    Row::repeated(
        "client",
        Shape::values(1, "client \"wrk\" \"-t1\" \"-c64\"").with(&["for"]),
        |reader, node, step| {
            step.clients.extend(reader.client(node));
        },
    ),
    Row::custom("compare", Shape::values(1, "compare \"nginx\""), |reader, node, step| {
        step.compare = reader.referred_words("server", node);
    }),
    Row::custom("expect", Shape::none("expect { file \"{site}/index.html\" }").has_block(), |reader, node, step| {
        reader.read_block(node, EXPECT, step.expect.insert(Expectation::default()));
    }),
    Row::repeated("reaches", Shape::values(0, "reaches \"origin\" \"none\""), |reader, node, step| {
        step.reaches.extend(reader.reach(node));
    }),
    Row::custom("testbed", Shape::value("testbed \"wire\""), |reader, node, step| {
        step.testbed = reader.referred_words("testbed", node).pop();
    }),
    Row::custom("view", Shape::value("view \"httperf\""), |reader, node, step| {
        step.view = reader.one_of(node, "view", Classic::NAMES);
    }),
    Row::custom("repetitions", Shape::value("repetitions 5"), |reader, node, step| {
        step.repetitions = reader.count_of(node, 1, REPETITIONS_MAX).map(|count| count as u32);
    }),
    Row::custom("seconds", Shape::value("seconds 3"), |reader, node, step| step.seconds = reader.seconds_of(node)),
    Row::custom("expected-seconds", Shape::value("expected-seconds 60"), |reader, node, step| {
        step.expected_seconds = reader.seconds_of(node);
    }),
    Row::repeated("take", TAKE_SHAPE, |reader, node, step| step.takes.extend(reader.take(node))),
    Row::flag("failures-expected", |step| &mut step.failures_expected),
    Row::flag("client-limit-expected", |step| &mut step.client_limit),
    Row::flag("fresh-servers", |step| &mut step.fresh_servers),
];

const SERVERS: Shape = Shape::values(1, "servers \"flatout\" \"nginx\"");

const TAKE_SHAPE: Shape =
    Shape::value("take \"rate\" { step \"knee\"; measure \"knee-per-s\"; times \"{x}\" }").has_block();

/// The settings of an expected response.
static EXPECT: &[Row<Expectation>] = &[
    Row::custom("file", Shape::value("file \"{site}/index.html\""), |reader, node, expectation| {
        expectation.file = reader.step_texts_of(node, 0).pop();
    }),
    Row::repeated(
        "field",
        Shape::none("field \"Content-Encoding\" \"br\"").takes(1, 2).with(&["for"]),
        |reader, node, expectation| {
            let value = node.arguments.get(1).and_then(|value| reader.placed(value));
            let (name, server) = (reader.word(&node.arguments[0]), reader.for_server(node));
            expectation.fields.extend(name.map(|name| ExpectedField { name, value, server }));
        },
    ),
    Row::repeated("send", Shape::values(1, "send \"Accept-Encoding: br\""), |reader, node, expectation| {
        expectation.send.extend(reader.words_of(node));
    }),
    Row::flag("http2", |expectation| &mut expectation.http2),
];

/// The settings of a figure that is taken from an earlier step.
static TAKE: &[Row<Take>] = &[
    Row::custom("step", Shape::value("step \"knee\""), |reader, node, take| {
        take.step = reader.text_of(node);
        if !reader.references.has("step", &take.step) {
            let message = format!("no step `{}` comes before this one", take.step);
            reader.report.add(Code::WordUnknown, node.arguments[0].span, message);
        }
    }),
    Row::custom("measure", Shape::value("measure \"knee-per-s\""), |reader, node, take| {
        take.measure = reader.measure(node).text;
    }),
    Row::custom("of", Shape::value("of \"nginx\""), |reader, node, take| {
        take.of = reader.referred_words("server", node).pop();
    }),
    Row::custom("times", Shape::value("times 0.8"), |reader, node, take| {
        let span = node.arguments[0].span;
        take.times = reader.template_of(node);
        let text = &take.times.text;
        if crate::template::names(text).next().is_none() && text.parse::<f64>().is_err() {
            reader.report.add(Code::TypeWrong, span, "`times` takes a number or a variable in braces");
        }
        reader.refer_text(text, span, &[]);
    }),
];

/// Options of `flatout bench` that the engine sets itself, or that make no sense in a suite.
const OWN_OPTIONS: &[&str] = &["--json", "--agents", "--listen", "--certs", "--tui", "--no-tui", "--bundle"];

impl Reader<'_> {
    pub(super) fn step(&mut self, node: &Node) -> Step {
        let place = self.texts.place(node.span);
        let path = Placed { text: "/".to_owned(), place: place.clone() };
        let mut step = Step { name: self.name_of(node), place, path, ..Step::default() };
        self.read_block(node, STEP, &mut step);
        let taken: Vec<String> = step.takes.iter().map(|take| take.name.clone()).collect();
        for (text, span) in std::mem::take(&mut self.step_texts) {
            self.refer_text(&text, span, &taken);
        }
        if step.servers.is_empty() && node.children.is_some() {
            self.report
                .add(Code::PropertyMissing, node.span, format!("the step `{}` has no `servers`", step.name))
                .note("as in: servers \"flatout\" \"nginx\"");
        }
        step
    }

    /// Reads the values after the first `skipped`. The step's placeholders are known in them.
    fn step_texts_of(&mut self, node: &Node, skipped: usize) -> Vec<Placed> {
        let words: Vec<_> = self.words_of_spans(node).into_iter().skip(skipped).collect();
        self.step_texts.extend(words.iter().map(|(word, span)| (word.text.clone(), *span)));
        words.into_iter().map(|(word, _)| word).collect()
    }

    /// Reads options of `flatout bench`, and reports those that a suite cannot set.
    fn options(&mut self, node: &Node) -> Vec<Placed> {
        let words = self.step_texts_of(node, 0);
        for (word, value) in words.iter().zip(&node.arguments) {
            let option = word.text.split('=').next().unwrap_or("");
            if OWN_OPTIONS.contains(&option) {
                let message = format!("{option} is not allowed in a step of a suite");
                self.report.add(Code::WordUnknown, value.span, message);
            }
        }
        words
    }

    fn path(&mut self, step: &mut Step, node: &Node) {
        let Some(path) = self.step_texts_of(node, 0).pop() else { return };
        if !path.text.starts_with('/') {
            self.report.add(Code::TextBad, node.arguments[0].span, "a path must begin with `/`");
        }
        match self.for_server(node) {
            Some(server) => step.paths.push((server, path)),
            None => step.path = path,
        }
    }

    fn client(&mut self, node: &Node) -> Option<Client> {
        let name = self.word(&node.arguments[0])?;
        let Some(program) = ClientProgram::parse(&name) else {
            let message = format!("{name:?} is not a supported client");
            let note = format!("use one of: {}", ClientProgram::NAMES.join(", "));
            self.report.add(Code::WordUnknown, node.arguments[0].span, message).note(note);
            return None;
        };
        Some(Client { program, arguments: self.step_texts_of(node, 1), server: self.for_server(node) })
    }

    /// Reads the name of a server in the property `for`.
    fn for_server(&mut self, node: &Node) -> Option<Placed> {
        let (server, span) = self.placed_property(node, "for")?;
        self.refer("server", &server.text, span);
        Some(server)
    }

    fn reach(&mut self, node: &Node) -> Option<(Placed, Reach)> {
        let words = self.words_of_spans(node);
        let share = |word: &str| match word {
            "none" => Some(Reach::None),
            "all" => Some(Reach::All),
            _ => None,
        };
        if let [(server, span), (word, _)] = words.as_slice()
            && let Some(reach) = share(&word.text)
        {
            self.refer("server", &server.text, *span);
            return Some((server.clone(), reach));
        }
        let message = "`reaches` takes a server, and `none` or `all`";
        self.report.add(Code::ValueMissing, node.span, message).note("as in: reaches \"origin\" \"none\"");
        None
    }

    fn take(&mut self, node: &Node) -> Option<Take> {
        let name = self.name(&node.arguments[0])?;
        if BUILT_IN.contains(&name.as_str())
            || ["variable", "fixture"].iter().any(|kind| self.references.has(kind, &name))
        {
            let message = format!("`{{{name}}}` already has a meaning");
            self.report.add(Code::SameTwice, node.span, message).note("choose another name");
        }
        let place = self.texts.place(node.span);
        let times = Placed { text: "1".to_owned(), place: place.clone() };
        let mut take = Take { name, place, times, ..Take::default() };
        self.read_block(node, TAKE, &mut take);
        for (value, name) in [(&take.step, "step"), (&take.measure, "measure")] {
            if value.is_empty() {
                self.report.add(Code::PropertyMissing, node.span, format!("`take` needs a `{name}`"));
            }
        }
        Some(take)
    }

    /// Reads the name of a measure, and reports an unknown name.
    pub(super) fn measure(&mut self, node: &Node) -> Placed {
        let measure = self.template_of(node);
        if Measure::parse(&measure.text).is_none() {
            let span: Span = node.arguments[0].span;
            self.no_such("measure", &measure.text, Measure::NAMES, span);
        }
        measure
    }
}
