//! Parsing of steps.

use super::refer::BUILT_IN;
use super::{REPETITIONS_MAX, Reader};
use crate::client::ClientProgram;
use crate::measure::Measure;
use crate::model::{Client, Expectation, ExpectedField, Placed, Reach, Step, Take};
use flatout_config::diagnostic::Span;
use flatout_config::syntax::Node;
use flatout_config::{Code, nearest};

/// Settings of a step.
const SETTINGS: &[&str] = &[
    "about",
    "servers",
    "path",
    "first",
    "bench",
    "client",
    "compare",
    "expect",
    "reaches",
    "testbed",
    "view",
    "repetitions",
    "seconds",
    "expected-seconds",
    "take",
    "failures-expected",
    "client-limit-expected",
    "fresh-servers",
];

/// The classic views.
const VIEWS: &[&str] = &["httperf", "webstone", "ptester", "wrk", "autobench"];

/// Options of the bench that the engine itself gives, or that make no sense in a suite.
const OWN_OPTIONS: &[&str] = &["--json", "--agents", "--listen", "--certs", "--tui", "--no-tui", "--bundle"];

impl Reader<'_> {
    pub(super) fn step(&mut self, node: &Node) -> Step {
        self.plain(node, &[]);
        let mut step = Step {
            name: self.name_of(node).unwrap_or_default(),
            place: self.texts.place(node.span),
            path: Placed { text: "/".to_owned(), place: self.texts.place(node.span) },
            ..Step::default()
        };
        let (mut seen, mut texts) = (Vec::new(), Vec::new());
        for setting in self.block(node, "step \"hits\" { servers \"flatout\"; path \"/\"; bench \"-c\" \"5\" }") {
            let many = matches!(setting.name.as_str(), "path" | "take" | "client" | "reaches");
            if many || self.first(&mut seen, setting) {
                self.step_setting(&mut step, setting, &mut texts);
            }
        }
        let taken: Vec<String> = step.takes.iter().map(|take| take.name.clone()).collect();
        for (text, span) in texts {
            self.refer_text(&text, span, &taken);
        }
        if step.servers.is_empty() && node.children.is_some() {
            self.report
                .add(Code::PropertyMissing, node.span, format!("the step `{}` has no `servers`", step.name))
                .note("as in: servers \"flatout\" \"nginx\"");
        }
        step
    }

    fn step_setting(&mut self, step: &mut Step, node: &Node, texts: &mut Vec<(String, Span)>) {
        match node.name.as_str() {
            "about" => step.about = self.text_of(node),
            "servers" => {
                for (word, span) in self.words_of_spans(node) {
                    self.refer("server", &word.text, span);
                    if step.servers.iter().any(|other| other.text == word.text) {
                        self.report.add(Code::SameTwice, span, format!("`{}` is repeated", word.text));
                    }
                    step.servers.push(word);
                }
            }
            "path" => self.path(step, node, texts),
            "first" | "bench" => {
                for (word, span) in self.words_of_spans(node) {
                    let option = word.text.split('=').next().unwrap_or("");
                    if OWN_OPTIONS.contains(&option) {
                        let message = format!("{option} is not allowed in a step of a suite");
                        self.report.add(Code::WordUnknown, span, message);
                    }
                    texts.push((word.text.clone(), span));
                    if node.name == "first" {
                        step.first.push(word);
                    } else {
                        step.bench.push(word);
                    }
                }
            }
            "client" => step.clients.extend(self.client(node, texts)),
            "compare" => {
                for (word, span) in self.words_of_spans(node) {
                    self.refer("server", &word.text, span);
                    step.compare.push(word);
                }
            }
            "expect" => step.expect = Some(self.expectation(node, texts)),
            "reaches" => step.reaches.extend(self.reach(node)),
            "testbed" => {
                step.testbed = self.template_of(node);
                if let (Some(testbed), Some(value)) = (&step.testbed, node.arguments.first()) {
                    let name = testbed.text.clone();
                    self.refer("testbed", &name, value.span);
                }
            }
            "view" => {
                let view = self.text_of(node);
                if !VIEWS.contains(&view.as_str()) {
                    let near = nearest(&view, VIEWS);
                    let draft =
                        self.report.add(Code::WordUnknown, node.span, format!("there is no view called {view:?}"));
                    if let Some(near) = near {
                        draft.label(format!("did you mean `{near}`?"));
                    }
                    draft.note(format!("there are: {}", VIEWS.join(", ")));
                }
                step.view = Some(view);
            }
            "repetitions" => step.repetitions = self.count_of(node, 1, REPETITIONS_MAX).map(|count| count as u32),
            "seconds" => step.seconds = self.seconds_of(node),
            "expected-seconds" => step.expected_seconds = self.seconds_of(node),
            "take" => step.takes.extend(self.take(node)),
            "failures-expected" | "client-limit-expected" | "fresh-servers" => {
                self.none(node);
                self.no_block(node);
                match node.name.as_str() {
                    "failures-expected" => step.failures_expected = true,
                    "client-limit-expected" => step.client_limit = true,
                    _ => step.fresh_servers = true,
                }
            }
            _ => self.unknown(node, SETTINGS),
        }
    }

    fn path(&mut self, step: &mut Step, node: &Node, texts: &mut Vec<(String, Span)>) {
        self.plain(node, &["for"]);
        self.no_block(node);
        let Some(value) = self.one(node) else { return };
        let Some(path) = self.placed(value) else { return };
        texts.push((path.text.clone(), value.span));
        if !path.text.starts_with('/') {
            self.report.add(Code::TextBad, value.span, "a path begins with `/`");
        }
        match self.for_server(node) {
            Some(server) => step.paths.push((server, path)),
            None => step.path = path,
        }
    }

    fn client(&mut self, node: &Node, texts: &mut Vec<(String, Span)>) -> Option<Client> {
        self.plain(node, &["for"]);
        self.no_block(node);
        let Some((first, rest)) = node.arguments.split_first() else {
            let message = "`client` needs a program and its arguments";
            self.report.add(Code::ValueMissing, node.span, message).note("as in: client \"wrk\" \"-t1\" \"-c64\"");
            return None;
        };
        let name = self.word(first)?;
        let Some(program) = ClientProgram::parse(&name) else {
            let known: Vec<&str> = ClientProgram::ALL.iter().map(|program| program.name()).collect();
            let message = format!("{name:?} is not a supported client");
            self.report.add(Code::WordUnknown, first.span, message).note(format!("there are: {}", known.join(", ")));
            return None;
        };
        let mut arguments = Vec::new();
        for value in rest {
            let word = self.placed(value)?;
            texts.push((word.text.clone(), value.span));
            arguments.push(word);
        }
        Some(Client { program, arguments, server: self.for_server(node) })
    }

    /// The server in the property `for`.
    fn for_server(&mut self, node: &Node) -> Option<Placed> {
        let property = node.properties.iter().find(|property| property.name == "for")?;
        let server = self.placed(&property.value)?;
        self.refer("server", &server.text, property.value.span);
        Some(server)
    }

    fn expectation(&mut self, node: &Node, texts: &mut Vec<(String, Span)>) -> Expectation {
        let mut expectation = Expectation::default();
        self.none(node);
        for setting in self.block(node, "expect { file \"{site}/index.html\" }") {
            match setting.name.as_str() {
                "file" => {
                    expectation.file = self.template_of(setting);
                    let file = expectation.file.iter().zip(&setting.arguments);
                    texts.extend(file.map(|(file, value)| (file.text.clone(), value.span)));
                }
                "field" => expectation.fields.extend(self.expected_field(setting)),
                "send" => {
                    let lines = self.words_of_spans(setting);
                    expectation.send.extend(lines.into_iter().map(|(line, _)| line));
                }
                "http2" => {
                    self.none(setting);
                    self.no_block(setting);
                    expectation.http2 = true;
                }
                _ => self.unknown(setting, &["file", "field", "send", "http2"]),
            }
        }
        expectation
    }

    fn expected_field(&mut self, node: &Node) -> Option<ExpectedField> {
        self.plain(node, &["for"]);
        self.no_block(node);
        let [name, value @ ..] = node.arguments.as_slice() else {
            let message = "`field` needs the name of a field";
            self.report.add(Code::ValueMissing, node.span, message).note("as in: field \"Content-Encoding\" \"br\"");
            return None;
        };
        if let [_, extra, ..] = value {
            self.report.add(Code::ValueUnexpected, extra.span, "`field` takes a name and a value");
        }
        let name = self.word(name)?;
        let value = value.first().and_then(|value| self.placed(value));
        Some(ExpectedField { name, value, server: self.for_server(node) })
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
        self.plain(node, &[]);
        let name = self.name_of(node)?;
        if BUILT_IN.contains(&name.as_str())
            || ["variable", "fixture"].iter().any(|kind| self.references_has(kind, &name))
        {
            let message = format!("`{{{name}}}` already has a meaning");
            self.report.add(Code::SameTwice, node.span, message).note("choose another name");
        }
        let one = Placed { text: "1".to_owned(), place: self.texts.place(node.span) };
        let place = self.texts.place(node.span);
        let mut take = Take { name, place, times: one, ..Take::default() };
        for setting in self.block(node, "take \"rate\" { step \"knee\"; measure \"knee-per-s\"; times \"{x}\" }") {
            let span = setting.arguments.first().map_or(setting.span, |value| value.span);
            match setting.name.as_str() {
                "step" => {
                    take.step = self.text_of(setting);
                    let known = self.references_has("step", &take.step);
                    if !known {
                        let message = format!("no step `{}` comes before this one", take.step);
                        self.report.add(Code::WordUnknown, span, message);
                    }
                }
                "measure" => {
                    take.measure = self.text_of(setting);
                    let name = take.measure.clone();
                    self.measure(&name, span);
                }
                "of" => {
                    take.of = self.template_of(setting);
                    if let Some(of) = &take.of {
                        let of = of.text.clone();
                        self.refer("server", &of, span);
                    }
                }
                "times" => {
                    take.times = self.template_of(setting).unwrap_or_default();
                    let text = take.times.text.clone();
                    if crate::template::names(&text).next().is_none() && text.parse::<f64>().is_err() {
                        self.report.add(Code::TypeWrong, span, "`times` takes a number, or a variable in braces");
                    }
                    self.refer_text(&text, span, &[]);
                }
                _ => self.unknown(setting, &["step", "measure", "of", "times"]),
            }
        }
        for (value, name) in [(&take.step, "step"), (&take.measure, "measure")] {
            if value.is_empty() {
                self.report.add(Code::PropertyMissing, node.span, format!("`take` needs a `{name}`"));
            }
        }
        Some(take)
    }

    /// A measure must be one.
    pub(super) fn measure(&mut self, name: &str, span: Span) {
        if Measure::parse(name).is_some() {
            return;
        }
        let near = nearest(name, Measure::NAMES);
        let draft = self.report.add(Code::WordUnknown, span, format!("there is no measure called {name:?}"));
        if let Some(near) = near {
            draft.label(format!("did you mean `{near}`?"));
        }
        draft.note(format!("there are: {}", Measure::NAMES.join(", ")));
    }
}
