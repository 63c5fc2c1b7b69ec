//! References between parts of a suite. They are collected while the file is read, and resolved when all parts are
//! known.

use super::{RUNS_MAX, Reader};
use crate::model::{Placed, Suite, Variable};
use crate::template;
use flatout_config::diagnostic::Span;
use flatout_config::syntax::{Node, Value};
use flatout_config::{Code, nearest};

/// Placeholders that are available in every setting of a server or a step.
pub(crate) const BUILT_IN: &[&str] = &["address", "cores", "dir", "flatout", "port", "port2", "suite-dir", "url"];

/// Built-in placeholders that can name another server after a colon.
pub(crate) const OF_SERVER: &[&str] = &["address", "dir", "port", "port2", "url"];

/// The references that have been collected so far.
#[derive(Debug, Default)]
pub(super) struct References {
    /// The parts that exist, as kind, name and place.
    known: Vec<(&'static str, String, Span)>,
    /// The parts that are referred to, as kind, name and place.
    referred: Vec<(&'static str, String, Span)>,
    /// Strings in which an unknown placeholder is always a mistake: the string, its place, and additional names that
    /// are known in it.
    texts: Vec<(String, Span, Vec<String>)>,
    /// References to values of variables, as variable, value and place.
    values: Vec<(String, String, Span)>,
    /// References of checks to parts of their steps, as step, kind, name and place.
    pub(super) parts: Vec<(String, &'static str, String, Span)>,
}

impl References {
    /// Returns whether a part with this kind and name already exists.
    pub(super) fn has(&self, kind: &str, name: &str) -> bool {
        self.known.iter().any(|(of, known, _)| *of == kind && known == name)
    }
}

impl Reader<'_> {
    /// Records a part that exists. Reports an error if there is already one with this name.
    pub(super) fn known(&mut self, kind: &'static str, name: &str, node: &Node) {
        if name.is_empty() {
            return;
        }
        let shares_braces = |kind: &str| matches!(kind, "variable" | "fixture");
        let first = self.references.known.iter().find(|(other, known, _)| {
            known == name && (*other == kind || (shares_braces(kind) && shares_braces(other)))
        });
        if let Some((other, _, first)) = first {
            let message = format!("there is already a {other} `{name}`");
            let first = *first;
            self.report.add(Code::SameTwice, node.span, message).related(first, "first here");
            return;
        }
        if shares_braces(kind) && (BUILT_IN.contains(&name) || name == "fill") {
            let message = format!("`{{{name}}}` is a built-in name");
            self.report.add(Code::TextBad, node.span, message).note("choose another name");
        }
        self.references.known.push((kind, name.to_owned(), node.span));
    }

    /// Records a reference to a part.
    pub(super) fn refer(&mut self, kind: &'static str, name: &str, span: Span) {
        self.references.referred.push((kind, name.to_owned(), span));
    }

    /// Reads the values of a setting that are names of parts, and records the references.
    pub(super) fn referred_words(&mut self, kind: &'static str, node: &Node) -> Vec<Placed> {
        let words = self.words_of_spans(node);
        for (word, span) in &words {
            self.refer(kind, &word.text, *span);
        }
        words.into_iter().map(|(word, _)| word).collect()
    }

    /// Records a string whose placeholders must all be known. The names in `more` are also known in it.
    pub(super) fn refer_text(&mut self, text: &str, span: Span, more: &[String]) {
        self.references.texts.push((text.to_owned(), span, more.to_owned()));
    }

    /// Records a reference to values of a variable. The setting has the form `NAME VARIABLE VALUES…`.
    pub(super) fn refer_kept(&mut self, kept: &Variable, node: &Node) {
        let spans: Vec<Span> = node.arguments.iter().map(|value: &Value| value.span).collect();
        self.refer("variable", &kept.name, spans.first().copied().unwrap_or(node.span));
        for (value, span) in kept.values.iter().zip(spans.iter().skip(1)) {
            self.references.values.push((kept.name.clone(), value.clone(), *span));
        }
    }

    /// Checks all references that have been recorded.
    pub(super) fn resolve(&mut self, suite: &Suite) {
        let References { known, referred, texts, values, parts } = std::mem::take(&mut self.references);
        let names = |kind: &str| -> Vec<&str> {
            known.iter().filter(|(of, ..)| *of == kind).map(|(_, name, _)| name.as_str()).collect()
        };
        for (kind, name, span) in &referred {
            let there = names(kind);
            if !there.contains(&name.as_str()) {
                self.missing(kind, name, &there, *span);
            }
        }
        for (variable, value, span) in &values {
            if let Some(variable) = suite.variable(variable)
                && !variable.values.contains(value)
            {
                let message = format!("`{}` has no value {value}", variable.name);
                let note = format!("its values: {}", variable.values.join(", "));
                self.report.add(Code::WordUnknown, *span, message).note(note);
            }
        }
        for (step, kind, name, span) in &parts {
            let Some(step) = suite.step(step).filter(|_| names(kind).contains(&name.as_str())) else { continue };
            let there: Vec<&str> = if *kind == "server" {
                step.servers.iter().map(|server| server.text.as_str()).collect()
            } else {
                crate::combine::variables_of(suite, step).into_iter().map(|variable| variable.name.as_str()).collect()
            };
            if !there.contains(&name.as_str()) {
                let message = format!("the step `{}` has no {kind} `{name}`", step.name);
                self.report.add(Code::WordUnknown, *span, message).note(format!("it has: {}", there.join(", ")));
            }
        }
        let servers = names("server");
        for (text, span, more) in &texts {
            let mut allowed = names("variable");
            allowed.extend(names("fixture"));
            allowed.extend(BUILT_IN);
            allowed.extend(more.iter().map(String::as_str));
            for name in template::names(text) {
                match name.of {
                    None if !allowed.contains(&name.name) => self.missing("name", name.whole, &allowed, *span),
                    Some(_) if !OF_SERVER.contains(&name.name) => {
                        let message = format!("`{}` is not a property of a server", name.whole);
                        self.report
                            .add(Code::WordUnknown, *span, message)
                            .note(format!("servers have: {}", OF_SERVER.join(", ")));
                    }
                    Some(of) if !servers.contains(&of) => self.missing("server", of, &servers, *span),
                    _ => {}
                }
            }
        }
        self.count(suite);
    }

    fn missing(&mut self, kind: &str, name: &str, there: &[&str], span: Span) {
        let message = match kind {
            "name" => format!("there is no `{name}` here"),
            kind => format!("there is no {kind} `{name}`"),
        };
        let near = nearest(name.trim_matches(['{', '}']), there);
        let draft = self.report.add(Code::WordUnknown, span, message).meant(near);
        if there.is_empty() {
            draft.note(format!("the suite has no {kind}"));
        } else {
            draft.note(format!("use one of: {}", there.join(", ")));
        }
    }

    /// Checks that the number of measurements is within its limit.
    fn count(&mut self, suite: &Suite) {
        let runs: usize = suite.steps.iter().fold(0, |sum, step| {
            let repetitions = step.repetitions.unwrap_or(suite.repetitions) as usize;
            let combinations = crate::combine::variables_of(suite, step)
                .iter()
                .fold(1_usize, |product, variable| product.saturating_mul(variable.values.len().max(1)));
            sum.saturating_add(combinations.saturating_mul(step.servers.len()).saturating_mul(repetitions))
        });
        if runs > RUNS_MAX {
            let message = format!("the suite has {runs} measurements, more than the limit of {RUNS_MAX}");
            self.report.add(Code::NumberBounds, Span::default(), message);
        }
    }
}
