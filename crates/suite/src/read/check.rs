//! Parsing of checks.

use super::Reader;
use crate::measure::Measure;
use crate::model::{Against, Bound, Check, Placed, Where};
use flatout_config::Code;
use flatout_config::diagnostic::Span;
use flatout_config::syntax::Node;

/// Settings of a check.
const SETTINGS: &[&str] =
    &["step", "measure", "client-limit", "of", "where", "at-most", "at-least", "times", "times-peak", "times-step"];

/// Why the measure to be judged where the client is the limit cannot be.
fn client_limit_fault(check: &Check) -> Option<String> {
    let cost = Measure::parse(&check.client_limit.as_ref()?.text)?;
    let name = cost.name();
    if !cost.is_cost() {
        return Some(format!("{name} is not known where the client is the limit"));
    }
    let (Bound::AtMost(bound) | Bound::AtLeast(bound)) = check.bound;
    if check.against == Against::Number || bound <= 0.0 {
        return Some(format!("{name} is judged by the inverted multiple, and this check has none: give `times`"));
    }
    let is_turned = Measure::parse(&check.measure.text)?.is_more_better() != cost.is_more_better();
    (!is_turned)
        .then(|| format!("of {name} more is better, as of {}: the bound cannot be turned over", check.measure.text))
}

impl Reader<'_> {
    pub(super) fn check(&mut self, node: &Node) -> Option<Check> {
        self.plain(node, &[]);
        let name = self.one(node).and_then(|value| self.word(value))?;
        let mut check = Check {
            name,
            place: self.texts.place(node.span),
            step: Placed::default(),
            measure: Placed::default(),
            client_limit: None,
            of: Placed::default(),
            only: Vec::new(),
            bound: Bound::AtLeast(0.0),
            against: Against::Number,
        };
        let (mut bound, mut seen) = (None, Vec::new());
        let (mut limit_span, mut parts) = (node.span, Vec::new());
        for setting in self.block(node, "check \"ours first\" { step \"hits\"; measure \"requests-per-s\"; of \"flatout\"; at-least 1.0; times \"best\" }") {
            if setting.name != "where" && !self.first(&mut seen, setting) {
                continue;
            }
            if setting.name.starts_with("times") && check.against != Against::Number {
                let message = "a check compares with one figure, and this is a second one";
                self.report.add(Code::GivenTwice, setting.span, message);
            }
            let span = setting.arguments.first().map_or(setting.span, |value| value.span);
            match setting.name.as_str() {
                "step" => check.step = self.referred("step", setting, span),
                "measure" => check.measure = self.measured(setting, span),
                "client-limit" => {
                    check.client_limit = Some(self.measured(setting, span));
                    limit_span = span;
                }
                "of" => {
                    check.of = self.referred("server", setting, span);
                    parts.push(("server", check.of.text.clone(), span));
                }
                "where" => {
                    if let Some(variable) = self.variable(setting) {
                        self.refer_kept(&variable, setting);
                        parts.push(("variable", variable.name.clone(), span));
                        let name = Placed { text: variable.name, place: variable.place };
                        check.only.push(Where { name, values: variable.values });
                    }
                }
                "at-most" | "at-least" => {
                    let number = self.number_of(setting).unwrap_or(1.0);
                    if bound.is_some() {
                        let message = "a check has one bound, and this is a second one";
                        self.report.add(Code::GivenTwice, setting.span, message);
                    }
                    bound = Some(if setting.name == "at-most" { Bound::AtMost(number) } else { Bound::AtLeast(number) });
                }
                "times" => {
                    let placed = self.template_of(setting).unwrap_or_default();
                    check.against = if placed.text == "best" {
                        Against::Best
                    } else {
                        self.refer("server", &placed.text, span);
                        parts.push(("server", placed.text.clone(), span));
                        Against::Server(placed)
                    };
                }
                "times-peak" => {
                    let variable = self.referred("variable", setting, span);
                    parts.push(("variable", variable.text.clone(), span));
                    check.against = Against::Peak(variable);
                }
                "times-step" => check.against = Against::Step(self.referred("step", setting, span)),
                _ => self.unknown(setting, SETTINGS),
            }
        }
        for (value, name) in [(&check.step, "step"), (&check.measure, "measure"), (&check.of, "of")] {
            if value.text.is_empty() {
                self.report.add(Code::PropertyMissing, node.span, format!("the check needs a `{name}`"));
            }
        }
        if bound.is_none() {
            self.report.add(Code::PropertyMissing, node.span, "the check needs `at-most` or `at-least`");
        }
        check.bound = bound.unwrap_or(check.bound);
        if let Some(fault) = client_limit_fault(&check) {
            self.report.add(Code::WordUnknown, limit_span, fault);
        }
        let step = check.step.text.clone();
        self.references.parts.extend(parts.into_iter().map(|(kind, name, span)| (step.clone(), kind, name, span)));
        Some(check)
    }

    /// The name of a measure.
    fn measured(&mut self, node: &Node, span: Span) -> Placed {
        let placed = self.template_of(node).unwrap_or_default();
        self.measure(&placed.text, span);
        placed
    }

    fn referred(&mut self, kind: &'static str, node: &Node, span: Span) -> Placed {
        let placed = self.template_of(node).unwrap_or_default();
        if !placed.text.is_empty() {
            self.refer(kind, &placed.text, span);
        }
        placed
    }

    /// Returns whether a part of this name exists already.
    pub(super) fn references_has(&self, kind: &str, name: &str) -> bool {
        self.references.has(kind, name)
    }
}
