//! Rows of settings, and parsing of single values (names, words, numbers) with their errors.

use super::{Reader, SECONDS_MAX};
use crate::model::Placed;
use crate::template::is_of_name;
use flatout_config::diagnostic::Span;
use flatout_config::syntax::{Node, Scalar, Value};
use flatout_config::{Code, SeenSettings, Shape, property, report_unknown};

/// A setting of a block whose model is `T`.
pub(super) struct Row<T: 'static> {
    name: &'static str,
    shape: Shape,
    form: Form<T>,
    /// True if the setting may be repeated.
    repeats: bool,
}

/// How a setting is read, and which field it sets.
enum Form<T: 'static> {
    /// A setting without a value; true if it is present.
    Flag(fn(&mut T) -> &mut bool),
    /// A string without placeholders.
    Text(fn(&mut T) -> &mut String),
    /// A setting that a function reads.
    Custom(Read<T>),
}

/// Reads a node whose shape has been checked.
type Read<T> = fn(&mut Reader<'_>, &Node, &mut T);

impl<T> Row<T> {
    pub(super) const fn flag(name: &'static str, field: fn(&mut T) -> &mut bool) -> Self {
        Self { name, shape: Shape::none(name), form: Form::Flag(field), repeats: false }
    }

    pub(super) const fn text(name: &'static str, example: &'static str, field: fn(&mut T) -> &mut String) -> Self {
        Self { name, shape: Shape::value(example), form: Form::Text(field), repeats: false }
    }

    pub(super) const fn custom(name: &'static str, shape: Shape, read: Read<T>) -> Self {
        Self { name, shape, form: Form::Custom(read), repeats: false }
    }

    /// Creates a setting that may be repeated.
    pub(super) const fn repeated(name: &'static str, shape: Shape, read: Read<T>) -> Self {
        Self { repeats: true, ..Self::custom(name, shape, read) }
    }
}

impl Reader<'_> {
    /// Reads the block of `node` according to `rows`.
    pub(super) fn read_block<T>(&mut self, node: &Node, rows: &[Row<T>], model: &mut T) {
        let mut seen = SeenSettings::default();
        for setting in node.children.iter().flatten() {
            let Some(row) = rows.iter().find(|row| row.name == setting.name) else {
                let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
                report_unknown(setting, &names, self.report);
                continue;
            };
            if (row.repeats || seen.first(setting, self.report)) && row.shape.check(setting, &[], self.report) {
                match &row.form {
                    Form::Flag(field) => *field(model) = true,
                    Form::Text(field) => *field(model) = self.text_of(setting),
                    Form::Custom(read) => read(self, setting, model),
                }
            }
        }
    }

    /// Reads a value as a string. Numbers are returned as written.
    pub(super) fn word(&mut self, value: &Value) -> Option<String> {
        if let Some(annotation) = value.annotation {
            let message = format!("a suite accepts only literal values, not `({})`", annotation.name());
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

    /// Reads the first value of a setting as a string; empty if the value is missing or malformed.
    pub(super) fn text_of(&mut self, node: &Node) -> String {
        node.arguments.first().and_then(|value| self.word(value)).unwrap_or_default()
    }

    /// Reads the first value of a setting, with its place; empty if the value is missing or malformed.
    pub(super) fn template_of(&mut self, node: &Node) -> Placed {
        node.arguments.first().and_then(|value| self.placed(value)).unwrap_or_default()
    }

    /// Reads a value as a string, with its place.
    pub(super) fn placed(&mut self, value: &Value) -> Option<Placed> {
        Some(Placed { text: self.word(value)?, place: self.texts.place(value.span) })
    }

    /// Reads the value of a property, with its place.
    pub(super) fn placed_property(&mut self, node: &Node, name: &str) -> Option<(Placed, Span)> {
        let value = &property(node, name)?.value;
        Some((self.placed(value)?, value.span))
    }

    /// Reads the values of a setting.
    pub(super) fn words_of(&mut self, node: &Node) -> Vec<Placed> {
        node.arguments.iter().filter_map(|value| self.placed(value)).collect()
    }

    /// Reads the values of a setting, each with its span.
    pub(super) fn words_of_spans(&mut self, node: &Node) -> Vec<(Placed, Span)> {
        node.arguments.iter().filter_map(|value| Some((self.placed(value)?, value.span))).collect()
    }

    /// Reads the value of a setting, which must be one of `words`.
    pub(super) fn one_of(&mut self, node: &Node, what: &str, words: &[&str]) -> Option<String> {
        let word = self.text_of(node);
        if words.contains(&word.as_str()) {
            return Some(word);
        }
        self.no_such(what, &word, words, node.span);
        None
    }

    /// Reports a name that is not among `words`.
    pub(super) fn no_such(&mut self, what: &str, word: &str, words: &[&str], span: Span) {
        let near = flatout_config::nearest(word, words);
        let draft = self.report.add(Code::WordUnknown, span, format!("there is no {what} called {word:?}")).meant(near);
        draft.note(format!("use one of: {}", words.join(", ")));
    }

    /// Reads the name of a suite, a server or a step.
    pub(super) fn name(&mut self, value: &Value) -> Option<String> {
        /// Maximum length in bytes, because the name becomes part of file names.
        const NAME_BYTES_MAX: usize = 60;
        let name = self.word(value)?;
        let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins || !name.chars().all(is_of_name) || name.len() > NAME_BYTES_MAX {
            let message = format!("{name:?} is not a valid name");
            self.report.add(Code::TextBad, value.span, message).note(format!(
                "a name must begin with a lowercase letter, contain only lowercase letters, digits, `-` and `_`, and have at most {NAME_BYTES_MAX} characters"
            ));
            return None;
        }
        Some(name)
    }

    /// Reads the name after a block's keyword; empty if it is malformed.
    pub(super) fn name_of(&mut self, node: &Node) -> String {
        node.arguments.first().and_then(|value| self.name(value)).unwrap_or_default()
    }

    /// Reads the value of a setting, which must be a whole number.
    pub(super) fn count_of(&mut self, node: &Node, least: u64, most: u64) -> Option<u64> {
        let value = node.arguments.first()?;
        let Scalar::Integer(number) = value.scalar else {
            let message = format!("`{}` takes a whole number, but this is {}", node.name, kind_of(&value.scalar));
            self.report.add(Code::TypeWrong, value.span, message);
            return None;
        };
        let fitting = u64::try_from(number).ok().filter(|number| (least..=most).contains(number));
        if fitting.is_none() {
            let message = format!("{number} is out of range");
            self.report.add(Code::NumberBounds, value.span, message).label(format!("{least} to {most}"));
        }
        fitting
    }

    /// Reads the value of a setting, which must be a number.
    pub(super) fn number_of(&mut self, node: &Node) -> Option<f64> {
        let value = node.arguments.first()?;
        match value.scalar {
            Scalar::Integer(number) => Some(number as f64),
            Scalar::Float(number) if number.is_finite() => Some(number),
            _ => {
                let message = format!("`{}` takes a number, but this is {}", node.name, kind_of(&value.scalar));
                self.report.add(Code::TypeWrong, value.span, message);
                None
            }
        }
    }

    /// Reads the value of a setting, which must be a number of seconds.
    pub(super) fn seconds_of(&mut self, node: &Node) -> Option<f64> {
        let seconds = self.number_of(node)?;
        if (0.05..=SECONDS_MAX).contains(&seconds) {
            return Some(seconds);
        }
        let message = format!("{seconds} seconds are out of range");
        self.report.add(Code::NumberBounds, node.span, message).label(format!("0.05 to {SECONDS_MAX}"));
        None
    }
}

fn kind_of(scalar: &Scalar) -> &'static str {
    match scalar {
        Scalar::Float(_) => "a number with a fraction",
        other => other.kind(),
    }
}
