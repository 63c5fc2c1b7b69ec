//! Parsing of checks.

use super::Reader;
use super::setting::Row;
use crate::measure::Measure;
use crate::model::{Against, Bound, Check, Placed, Where};
use flatout_config::diagnostic::Span;
use flatout_config::syntax::Node;
use flatout_config::{Code, Shape};

/// The form of a check in a file.
pub(super) const SHAPE: Shape = Shape::value(
    "check \"ours first\" { step \"hits\"; measure \"requests-per-s\"; of \"flatout\"; at-least 1.0; times \"best\" }",
)
.has_block();

/// A check while it is being read.
struct Draft {
    check: Check,
    bound: Option<Bound>,
    limit_span: Span,
    /// Parts of the step that the check refers to, as kind, name and place.
    parts: Vec<(&'static str, String, Span)>,
}

/// The settings of a check.
static CHECK: &[Row<Draft>] = &[
    Row::custom("step", Shape::value("step \"hits\""), |reader, node, draft| {
        draft.check.step = reader.referred("step", node);
    }),
    Row::custom("measure", Shape::value("measure \"requests-per-s\""), |reader, node, draft| {
        draft.check.measure = reader.measure(node);
    }),
    Row::custom("client-limit", Shape::value("client-limit \"memory\""), |reader, node, draft| {
        draft.check.client_limit = Some(reader.measure(node));
        draft.limit_span = node.arguments[0].span;
    }),
    Row::custom("of", Shape::value("of \"flatout\""), |reader, node, draft| {
        draft.check.of = reader.part(draft, "server", node);
    }),
    Row::repeated("where", Shape::values(2, "where \"size\" 317"), |reader, node, draft| {
        if let Some(variable) = reader.variable(node) {
            reader.refer_kept(&variable, node);
            draft.parts.push(("variable", variable.name.clone(), node.arguments[0].span));
            let name = Placed { text: variable.name, place: variable.place };
            draft.check.only.push(Where { name, values: variable.values });
        }
    }),
    Row::custom("at-most", Shape::value("at-most 1"), |reader, node, draft| reader.bound(draft, Bound::AtMost, node)),
    Row::custom("at-least", Shape::value("at-least 1"), |reader, node, draft| {
        reader.bound(draft, Bound::AtLeast, node);
    }),
    Row::custom("times", Shape::value("times \"best\""), |reader, node, draft| {
        reader.against(draft, node, |reader, draft| match reader.text_of(node) {
            best if best == "best" => Against::Best,
            _ => Against::Server(reader.part(draft, "server", node)),
        });
    }),
    Row::custom("times-peak", Shape::value("times-peak \"connections\""), |reader, node, draft| {
        reader.against(draft, node, |reader, draft| Against::Peak(reader.part(draft, "variable", node)));
    }),
    Row::custom("times-step", Shape::value("times-step \"knee\""), |reader, node, draft| {
        reader.against(draft, node, |reader, _| Against::Step(reader.referred("step", node)));
    }),
];

/// Returns the reason a check's `client-limit` is invalid, if it is.
fn client_limit_fault(check: &Check) -> Option<String> {
    let cost = Measure::parse(&check.client_limit.as_ref()?.text)?;
    let name = cost.name();
    if !cost.is_cost() {
        return Some(format!("{name} is unknown if the client is saturated"));
    }
    let (Bound::AtMost(bound) | Bound::AtLeast(bound)) = check.bound;
    if check.against == Against::Number || bound <= 0.0 {
        return Some(format!("{name} needs a multiple to invert, but this check has none: add `times`"));
    }
    let is_turned = Measure::parse(&check.measure.text)?.is_more_better() != cost.is_more_better();
    (!is_turned).then(|| {
        format!("{name} and {} improve in the same direction, so the bound cannot be inverted", check.measure.text)
    })
}

impl Reader<'_> {
    pub(super) fn check(&mut self, node: &Node) -> Option<Check> {
        let name = self.word(&node.arguments[0])?;
        let check = Check {
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
        let mut draft = Draft { check, bound: None, limit_span: node.span, parts: Vec::new() };
        self.read_block(node, CHECK, &mut draft);
        let Draft { mut check, bound, limit_span, parts } = draft;
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

    fn bound(&mut self, draft: &mut Draft, of: fn(f64) -> Bound, node: &Node) {
        let number = self.number_of(node).unwrap_or(1.0);
        if draft.bound.is_some() {
            let message = "a check may have only one bound, but this is a second one";
            self.report.add(Code::GivenTwice, node.span, message);
        }
        draft.bound = Some(of(number));
    }

    /// Sets the figure with which the check compares.
    fn against(&mut self, draft: &mut Draft, node: &Node, read: impl FnOnce(&mut Self, &mut Draft) -> Against) {
        if draft.check.against != Against::Number {
            let message = "a check may compare with only one figure, but this is a second one";
            self.report.add(Code::GivenTwice, node.span, message);
        }
        draft.check.against = read(self, draft);
    }

    /// Reads the name of a part that the check's step must have.
    fn part(&mut self, draft: &mut Draft, kind: &'static str, node: &Node) -> Placed {
        let part = self.referred(kind, node);
        draft.parts.push((kind, part.text.clone(), node.arguments[0].span));
        part
    }

    fn referred(&mut self, kind: &'static str, node: &Node) -> Placed {
        self.referred_words(kind, node).pop().unwrap_or_default()
    }
}
