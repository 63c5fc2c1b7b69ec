//! References between parts of a suite: collected during parsing, resolved when all parts are known.

use super::{RUNS_MAX, Reader};
use crate::model::{Suite, Variable};
use crate::template;
use flatout_config::diagnostic::Span;
use flatout_config::syntax::{Node, Value};
use flatout_config::{Code, nearest};

/// Names that every text of a server or step may have in braces.
pub(crate) const BUILT_IN: &[&str] = &["address", "cores", "dir", "flatout", "port", "port2", "suite-dir", "url"];

/// Those of them that may name another server after a colon.
pub(crate) const OF_SERVER: &[&str] = &["address", "dir", "port", "port2", "url"];

/// The references so far.
#[derive(Debug, Default)]
pub(super) struct References {
    /// Existing parts: kind, name, place.
    known: Vec<(&'static str, String, Span)>,
    /// Referenced parts: kind, name, place.
    referred: Vec<(&'static str, String, Span)>,
    /// Names in braces where a wrong one can only be a mistake: the text, its place, and names that are known there besides.
    texts: Vec<(String, Span, Vec<String>)>,
    /// Values of variables that are named elsewhere: variable, value, place.
    values: Vec<(String, String, Span)>,
    /// References of checks to parts of their steps: step, kind, name, place.
    pub(super) parts: Vec<(String, &'static str, String, Span)>,
}

impl References {
    /// Returns whether a part of this name exists already.
    pub(super) fn has(&self, kind: &str, name: &str) -> bool {
        self.known.iter().any(|(of, known, _)| *of == kind && known == name)
    }
}

impl Reader<'_> {
    /// Takes note of a part.
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

    /// Takes note that a part is referred to.
    pub(super) fn refer(&mut self, kind: &'static str, name: &str, span: Span) {
        self.references.referred.push((kind, name.to_owned(), span));
    }

    /// Takes note of a text whose names in braces must all be known; `more` are known there besides.
    pub(super) fn refer_text(&mut self, text: &str, span: Span, more: &[String]) {
        self.references.texts.push((text.to_owned(), span, more.to_owned()));
    }

    /// Records a reference to values of a variable; the setting is `NAME VARIABLE VALUES…`.
    pub(super) fn refer_kept(&mut self, kept: &Variable, node: &Node) {
        let spans: Vec<Span> = node.arguments.iter().map(|value: &Value| value.span).collect();
        self.refer("variable", &kept.name, spans.first().copied().unwrap_or(node.span));
        for (value, span) in kept.values.iter().zip(spans.iter().skip(1)) {
            self.references.values.push((kept.name.clone(), value.clone(), *span));
        }
    }

    /// Looks at everything that was noted.
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
        let draft = self.report.add(Code::WordUnknown, span, message);
        if let Some(near) = near {
            draft.label(format!("did you mean `{near}`?"));
        }
        if there.is_empty() {
            draft.note(format!("the suite has no {kind}"));
        } else {
            draft.note(format!("there are: {}", there.join(", ")));
        }
    }

    /// A suite is to end some day.
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
