//! Checks.

use super::Reader;
use crate::model::{Against, Bound, Check, Placed, Where};
use flatout_config::Code;
use flatout_config::diagnostic::Span;
use flatout_config::syntax::Node;

/// Settings of a check.
const SETTINGS: &[&str] =
    &["step", "measure", "of", "where", "at-most", "at-least", "times", "times-peak", "times-step"];

impl Reader<'_> {
    pub(super) fn check(&mut self, node: &Node) -> Option<Check> {
        self.plain(node, &[]);
        let name = self.one(node).and_then(|value| self.word(value))?;
        let mut check = Check {
            name,
            place: self.texts.place(node.span),
            step: Placed::default(),
            measure: Placed::default(),
            of: Placed::default(),
            only: Vec::new(),
            bound: Bound::AtLeast(0.0),
            against: Against::Number,
        };
        let (mut bound, mut seen) = (None, Vec::new());
        for setting in self.block(node, "check \"ours first\" { step \"hits\"; measure \"requests-per-s\"; of \"flatout\"; at-least 1.0; times \"best\" }") {
            if setting.name != "where" && !self.first(&mut seen, setting) {
                continue;
            }
            let span = setting.arguments.first().map_or(setting.span, |value| value.span);
            match setting.name.as_str() {
                "step" => check.step = self.referred("step", setting, span),
                "measure" => {
                    check.measure = self.template_of(setting).unwrap_or_default();
                    let name = check.measure.text.clone();
                    self.measure(&name, span);
                }
                "of" => check.of = self.referred("server", setting, span),
                "where" => {
                    if let Some(variable) = self.variable(setting) {
                        self.refer_kept(&variable, setting);
                        let name = Placed { text: variable.name, place: variable.place };
                        check.only.push(Where { name, values: variable.values });
                    }
                }
                "at-most" | "at-least" => {
                    let number = self.number_of(setting).unwrap_or(1.0);
                    if bound.is_some() {
                        let message = "a check has one bound, and this is another";
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
                        Against::Server(placed)
                    };
                }
                "times-peak" => check.against = Against::Peak(self.referred("variable", setting, span)),
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
        Some(check)
    }

    fn referred(&mut self, kind: &'static str, node: &Node, span: Span) -> Placed {
        let placed = self.template_of(node).unwrap_or_default();
        if !placed.text.is_empty() {
            self.refer(kind, &placed.text, span);
        }
        placed
    }

    /// Whether a part of this name has been read already.
    pub(super) fn references_has(&self, kind: &str, name: &str) -> bool {
        self.references.has(kind, name)
    }
}
