//! Parsing of single settings: names, words, numbers, blocks, and their errors.

use super::{Reader, SECONDS_MAX};
use crate::model::Placed;
use crate::template::is_of_name;
use flatout_config::diagnostic::Span;
use flatout_config::syntax::{Node, Scalar, Value};
use flatout_config::{Code, nearest};

impl Reader<'_> {
    /// Reports an unknown setting.
    pub(super) fn unknown(&mut self, node: &Node, allowed: &[&str]) {
        let near = nearest(&node.name, allowed);
        let draft = self.report.add(Code::SettingUnknown, node.span, format!("unknown setting `{}`", node.name));
        if let Some(near) = near {
            draft.label(format!("did you mean `{near}`?"));
        }
        draft.note(format!("allowed here: {}", allowed.join(", ")));
    }

    /// Returns whether a setting is the first of its name in its block, and reports duplicates.
    pub(super) fn first<'n>(&mut self, seen: &mut Vec<(&'n str, Span)>, node: &'n Node) -> bool {
        if let Some((_, first)) = seen.iter().find(|(name, _)| *name == node.name) {
            let message = format!("`{}` is given twice", node.name);
            self.report.add(Code::GivenTwice, node.span, message).related(*first, "first here");
            return false;
        }
        seen.push((&node.name, node.span));
        true
    }

    /// Its properties, of which only these are known.
    pub(super) fn plain(&mut self, node: &Node, properties: &[&str]) {
        for (index, property) in node.properties.iter().enumerate() {
            if !properties.contains(&property.name.as_str()) {
                let message = format!("`{}` has no property `{}`", node.name, property.name);
                let near = nearest(&property.name, properties);
                let draft = self.report.add(Code::PropertyUnknown, property.span, message);
                if let Some(near) = near {
                    draft.label(format!("did you mean `{near}`?"));
                }
                if !properties.is_empty() {
                    draft.note(format!("allowed here: {}", properties.join(", ")));
                }
            } else if let Some(first) = node.properties[..index].iter().find(|first| first.name == property.name) {
                let message = format!("`{}` is given twice", property.name);
                self.report.add(Code::GivenTwice, property.span, message).related(first.span, "first here");
            }
        }
    }

    /// No block, where one stands.
    pub(super) fn no_block(&mut self, node: &Node) {
        if node.children.is_some() {
            self.report.add(Code::BlockUnexpected, node.span, format!("`{}` takes no block", node.name));
        }
    }

    /// No values, where some stand.
    pub(super) fn no_arguments(&mut self, node: &Node, example: &str) {
        if let Some(value) = node.arguments.first() {
            let message = format!("`{}` takes no value", node.name);
            self.report.add(Code::ValueUnexpected, value.span, message).note(format!("as in: {example}"));
        }
    }

    /// Neither values nor properties.
    pub(super) fn none(&mut self, node: &Node) {
        self.plain(node, &[]);
        self.no_arguments(node, &format!("{} {{ … }}", node.name));
    }

    /// The settings of a block that must be there.
    pub(super) fn block<'n>(&mut self, node: &'n Node, example: &str) -> &'n [Node] {
        match &node.children {
            Some(children) if !children.is_empty() => children,
            _ => {
                let message = format!("`{}` needs a block", node.name);
                self.report.add(Code::BlockMissing, node.span, message).note(format!("as in: {example}"));
                &[]
            }
        }
    }

    /// The one value of a setting.
    pub(super) fn one<'n>(&mut self, node: &'n Node) -> Option<&'n Value> {
        if let Some(extra) = node.arguments.get(1) {
            self.report.add(Code::ValueUnexpected, extra.span, format!("`{}` takes one value", node.name));
        }
        if node.arguments.is_empty() {
            self.report.add(Code::ValueMissing, node.span, format!("`{}` needs a value", node.name));
        }
        node.arguments.first()
    }

    /// The one value of a setting that has nothing else.
    pub(super) fn only<'n>(&mut self, node: &'n Node) -> Option<&'n Value> {
        self.plain(node, &[]);
        self.no_block(node);
        self.one(node)
    }

    /// A value as text, a number as it is written.
    pub(super) fn word(&mut self, value: &Value) -> Option<String> {
        if let Some(annotation) = value.annotation {
            let message = format!("a suite takes literal values, not `({})`", annotation.name());
            self.report.add(Code::AnnotationUnknown, value.span, message);
            return None;
        }
        match &value.scalar {
            Scalar::Text(text) if text.contains('\0') => {
                self.report.add(Code::TextBad, value.span, "this string contains a NUL character");
                None
            }
            Scalar::Text(text) => Some(text.clone()),
            Scalar::Integer(number) => Some(number.to_string()),
            Scalar::Float(number) => Some(number.to_string()),
            other => {
                let message = format!("expected a string or a number, found {}", other.kind());
                self.report.add(Code::TypeWrong, value.span, message);
                None
            }
        }
    }

    /// The text of a setting that has nothing else; empty when it has none.
    pub(super) fn text_of(&mut self, node: &Node) -> String {
        self.only(node).and_then(|value| self.word(value)).unwrap_or_default()
    }

    /// The text of a setting with its place.
    pub(super) fn template_of(&mut self, node: &Node) -> Option<Placed> {
        let value = self.only(node)?;
        self.placed(value)
    }

    /// A value with its place.
    pub(super) fn placed(&mut self, value: &Value) -> Option<Placed> {
        Some(Placed { text: self.word(value)?, place: self.texts.place(value.span) })
    }

    /// The words of a setting, at least one.
    pub(super) fn words_of(&mut self, node: &Node) -> Vec<Placed> {
        self.words_of_spans(node).into_iter().map(|(word, _)| word).collect()
    }

    /// The words of a setting, at least one, each with where it stands.
    pub(super) fn words_of_spans(&mut self, node: &Node) -> Vec<(Placed, Span)> {
        self.plain(node, &[]);
        self.no_block(node);
        if node.arguments.is_empty() {
            self.report.add(Code::ValueMissing, node.span, format!("`{}` needs a value", node.name));
        }
        node.arguments.iter().filter_map(|value| Some((self.placed(value)?, value.span))).collect()
    }

    /// A name: of a suite, a server, a step.
    pub(super) fn name(&mut self, value: &Value) -> Option<String> {
        /// It becomes a part of names of files.
        const NAME_BYTES_MAX: usize = 60;
        let name = self.word(value)?;
        let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins || !name.chars().all(is_of_name) || name.len() > NAME_BYTES_MAX {
            let message = format!("{name:?} is not a valid name");
            self.report.add(Code::TextBad, value.span, message).note(format!(
                "a name begins with a lower-case letter and contains only lower-case letters, digits, `-` and `_`, at most {NAME_BYTES_MAX} characters"
            ));
            return None;
        }
        Some(name)
    }

    /// The name that follows a block's keyword.
    pub(super) fn name_of(&mut self, node: &Node) -> Option<String> {
        let value = self.one(node)?;
        self.name(value)
    }

    /// A whole number of a setting that has nothing else.
    pub(super) fn count_of(&mut self, node: &Node, least: u64, most: u64) -> Option<u64> {
        let value = self.only(node)?;
        let Scalar::Integer(number) = value.scalar else {
            let message = format!("`{}` takes a whole number, and this is {}", node.name, kind_of(&value.scalar));
            self.report.add(Code::TypeWrong, value.span, message);
            return None;
        };
        let fitting = u64::try_from(number).ok().filter(|number| (least..=most).contains(number));
        if fitting.is_none() {
            let message = format!("{number} is out of bounds");
            self.report.add(Code::NumberBounds, value.span, message).label(format!("{least} to {most}"));
        }
        fitting
    }

    /// A number of a setting that has nothing else.
    pub(super) fn number_of(&mut self, node: &Node) -> Option<f64> {
        let value = self.only(node)?;
        match value.scalar {
            Scalar::Integer(number) => Some(number as f64),
            Scalar::Float(number) if number.is_finite() => Some(number),
            _ => {
                let message = format!("`{}` takes a number, and this is {}", node.name, kind_of(&value.scalar));
                self.report.add(Code::TypeWrong, value.span, message);
                None
            }
        }
    }

    /// A number of seconds.
    pub(super) fn seconds_of(&mut self, node: &Node) -> Option<f64> {
        let seconds = self.number_of(node)?;
        if (0.05..=SECONDS_MAX).contains(&seconds) {
            return Some(seconds);
        }
        let message = format!("{seconds} seconds are out of bounds");
        self.report.add(Code::NumberBounds, node.span, message).label(format!("0.05 to {SECONDS_MAX}"));
        None
    }
}

fn kind_of(scalar: &Scalar) -> &'static str {
    match scalar {
        Scalar::Float(_) => "one with a fraction",
        other => other.kind(),
    }
}
