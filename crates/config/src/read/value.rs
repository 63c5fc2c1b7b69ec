//! Converts values to Rust types, after resolving `(env)` and `(file)`.

use super::reader::Reader;
use super::shape::nearest;
use crate::code::Code;
use crate::diagnostic::Span;
use crate::include::reason;
use crate::syntax::{Annotation, Scalar, Value};
use flatout_units::quantity::{MICROSECOND, MILLISECOND, exact_duration, exact_size, parse_duration, parse_size};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The maximum size of a file that `(file)` refers to, in bytes.
const SECRET_BYTES_MAX: usize = 64 * 1024;

/// The maximum length of a value in bytes.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// The type that a setting requires, for messages.
#[derive(Clone, Copy)]
enum Wanted {
    /// A string, described by these words.
    Text(&'static str),
    /// A boolean: `#true` or `#false`.
    Flag,
    Number,
}

impl Reader<'_> {
    /// Returns a literal value, or the string from the environment or the file that the value refers to.
    pub(super) fn scalar(&mut self, value: &Value) -> Option<Scalar> {
        let Some(annotation) = value.annotation else {
            return Some(value.scalar.clone());
        };
        let Scalar::Text(name) = &value.scalar else {
            let message = format!("`({})` must be followed by a name in quotes", annotation.name());
            self.report.add(Code::TypeWrong, value.span, message);
            return None;
        };
        match annotation {
            Annotation::Environment => self.variable(value.span, name),
            Annotation::File => self.secret(value.span, name),
        }
        .map(Scalar::Text)
    }

    fn variable(&mut self, span: Span, name: &str) -> Option<String> {
        let (name, default) = match name.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (name, None),
        };
        let found = self.sources.variable(name).or_else(|| default.map(str::to_owned));
        if found.is_none() {
            let message = format!("the environment variable {name} is not set");
            let draft = self.report.add(Code::EnvironmentMissing, span, message);
            draft.note(format!("set it, or specify a default: (env)\"{name}:-default\""));
        }
        found
    }

    fn secret(&mut self, span: Span, name: &str) -> Option<String> {
        let path = self.resolve(span, name);
        let why = match self.sources.read(&path, SECRET_BYTES_MAX) {
            Err(error) => reason(&error),
            Ok(content) if content.len() > SECRET_BYTES_MAX => "it is larger than 64 KiB".into(),
            Ok(content) => match String::from_utf8(content) {
                Ok(text) => {
                    let text = text.strip_suffix('\n').unwrap_or(&text);
                    let text = text.strip_suffix('\r').unwrap_or(text).to_owned();
                    self.secrets.push(text.clone());
                    return Some(text);
                }
                Err(_) => "it is not UTF-8".into(),
            },
        };
        let message = format!("cannot read {}: {why}", path.display());
        self.report.add(Code::SecretUnreadable, span, message);
        None
    }

    fn type_wrong(&mut self, value: &Value, found: &Scalar, wanted: Wanted) {
        let shown = match wanted {
            Wanted::Text(shown) => shown,
            Wanted::Flag => "#true or #false",
            Wanted::Number => "a number",
        };
        let draft = self.report.add(Code::TypeWrong, value.span, format!("expected {shown}"));
        draft.label(format!("this is {}", found.kind()));
        match (found, wanted) {
            (Scalar::Integer(number), Wanted::Text(_)) => {
                draft.note(format!("write a string in quotes: \"{number}\""));
            }
            (Scalar::Text(text), Wanted::Number) if text.parse::<i128>().is_ok() => {
                draft.note(format!("write a number without quotes: {text}"));
            }
            (Scalar::Text(text), Wanted::Flag) => {
                let yes = matches!(text.as_str(), "true" | "yes" | "on" | "1");
                draft.note(format!("write {}", if yes { "#true" } else { "#true or #false" }));
            }
            _ => {}
        }
    }

    /// Reads a string of at most 64 KiB, which may be empty.
    pub(super) fn text(&mut self, value: &Value) -> Option<String> {
        let text = match self.scalar(value)? {
            Scalar::Text(text) => text,
            other => {
                self.type_wrong(value, &other, Wanted::Text("a string"));
                return None;
            }
        };
        if text.len() > TEXT_BYTES_MAX {
            self.report.add(Code::TextBad, value.span, "this string is longer than 64 KiB");
            return None;
        }
        Some(text)
    }

    /// Reads a string that is not empty and contains no control characters.
    pub(super) fn line(&mut self, value: &Value) -> Option<String> {
        let text = self.text(value)?;
        if text.is_empty() || text.chars().any(char::is_control) {
            let what = if text.is_empty() { "this string is empty" } else { "this string contains control characters" };
            self.report.add(Code::TextBad, value.span, what);
            return None;
        }
        Some(text)
    }

    /// Reads a boolean: `#true` or `#false`.
    pub(super) fn flag(&mut self, value: &Value) -> Option<bool> {
        match self.scalar(value)? {
            Scalar::Bool(flag) => Some(flag),
            // Values from the environment and from files are always strings.
            Scalar::Text(text) if value.annotation.is_some() && text == "true" => Some(true),
            Scalar::Text(text) if value.annotation.is_some() && text == "false" => Some(false),
            other => {
                self.type_wrong(value, &other, Wanted::Flag);
                None
            }
        }
    }

    /// Reads a whole number within bounds.
    pub(super) fn number(&mut self, value: &Value, bounds: RangeInclusive<u64>) -> Option<u64> {
        let number = match self.scalar(value)? {
            Scalar::Integer(number) => number,
            Scalar::Text(text) if value.annotation.is_some() && text.parse::<i128>().is_ok() => text.parse().ok()?,
            other => {
                self.type_wrong(value, &other, Wanted::Number);
                return None;
            }
        };
        let fitting = u64::try_from(number).ok().filter(|number| bounds.contains(number));
        if fitting.is_none() {
            self.report.add(Code::NumberBounds, value.span, format!("{number} is out of range")).label(format!(
                "{} to {}",
                bounds.start(),
                bounds.end()
            ));
        }
        fitting
    }

    /// Reads a size in bytes.
    pub(super) fn size(&mut self, value: &Value, bounds: RangeInclusive<u64>) -> Option<u64> {
        let text = match self.scalar(value)? {
            Scalar::Text(text) => text,
            Scalar::Integer(number) => {
                let message = format!("the size {number} has no unit");
                self.report
                    .add(Code::SizeBad, value.span, message)
                    .label(format!("write \"{number}B\", or another unit"));
                return None;
            }
            other => {
                self.type_wrong(value, &other, Wanted::Text("a size in quotes, such as \"64MiB\""));
                return None;
            }
        };
        let Ok(size) = parse_size(&text) else {
            let draft = self.report.add(Code::SizeBad, value.span, format!("`{text}` is not a valid size"));
            draft.note("a size is a number with a unit: \"512KiB\", \"64MiB\", \"1GB\"");
            return None;
        };
        if !bounds.contains(&size) {
            let (least, most) = (exact_size(*bounds.start()), exact_size(*bounds.end()));
            let draft = self.report.add(Code::NumberBounds, value.span, format!("{text} is out of range"));
            draft.label(format!("{least} to {most}"));
            return None;
        }
        Some(size)
    }

    /// Reads a duration in milliseconds.
    pub(super) fn duration(&mut self, value: &Value, bounds_ms: RangeInclusive<u64>) -> Option<u64> {
        self.duration_by(value, bounds_ms, MILLISECOND)
    }

    /// Reads a duration in microseconds.
    pub(super) fn duration_us(&mut self, value: &Value, bounds_us: RangeInclusive<u64>) -> Option<u64> {
        self.duration_by(value, bounds_us, MICROSECOND)
    }

    fn duration_by(&mut self, value: &Value, bounds: RangeInclusive<u64>, resolution_ns: u64) -> Option<u64> {
        let text = match self.scalar(value)? {
            Scalar::Text(text) => text,
            Scalar::Integer(number) => {
                let message = format!("the duration {number} has no unit");
                let draft = self.report.add(Code::DurationBad, value.span, message);
                draft.label(format!("write \"{number}s\", or another unit"));
                return None;
            }
            other => {
                self.type_wrong(value, &other, Wanted::Text("a duration in quotes, such as \"10s\""));
                return None;
            }
        };
        let Ok(duration) = parse_duration(&text, resolution_ns) else {
            let draft = self.report.add(Code::DurationBad, value.span, format!("`{text}` is not a valid duration"));
            draft.note("a duration is a number with a unit: \"250ms\", \"10s\", \"2m\", \"1h\", \"7d\"");
            return None;
        };
        if !bounds.contains(&duration) {
            let show = |bound| exact_duration(bound, resolution_ns);
            let (least, most) = (show(*bounds.start()), show(*bounds.end()));
            let draft = self.report.add(Code::NumberBounds, value.span, format!("{text} is out of range"));
            draft.label(format!("{least} to {most}"));
            return None;
        }
        Some(duration)
    }

    /// Reads a path, relative to the file that mentions it.
    pub(super) fn path(&mut self, value: &Value) -> Option<PathBuf> {
        let text = self.line(value)?;
        Some(self.resolve(value.span, &text))
    }

    /// Reads one of several keywords.
    pub(super) fn word<T: Copy>(&mut self, value: &Value, words: &[(T, &str)]) -> Option<T> {
        let text = self.text(value)?;
        let found = words.iter().find(|(_, word)| *word == text);
        if found.is_none() {
            let words: Vec<&str> = words.iter().map(|(_, word)| *word).collect();
            let near = nearest(&text, &words);
            let draft = self.report.add(Code::WordUnknown, value.span, format!("unknown value `{text}`"));
            if let Some(near) = near {
                draft.label(format!("did you mean \"{near}\"?"));
            }
            draft.note(format!("allowed here: {}", words.join(", ")));
        }
        found.map(|(word, _)| *word)
    }

    /// Reads the entries of a list with `read`, and reports duplicates. `what` describes an entry in the message.
    pub(super) fn list<I: PartialEq>(
        &mut self,
        values: &[Value],
        what: &str,
        read: impl Fn(&mut Self, &Value) -> Option<I>,
    ) -> Vec<I> {
        let mut list = Vec::new();
        for value in values {
            match read(self, value) {
                Some(entry) if list.contains(&entry) => self.same_twice(value.span, what),
                entry => list.extend(entry),
            }
        }
        list
    }

    /// Reads the names of a list with `read`, and reports duplicates, which are compared case-insensitively.
    pub(super) fn names(
        &mut self,
        values: &[Value],
        read: impl Fn(&mut Self, &Value) -> Option<String>,
    ) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for value in values {
            match read(self, value) {
                Some(name) if names.iter().any(|known| known.eq_ignore_ascii_case(&name)) => {
                    self.same_twice(value.span, &format!("`{name}`"));
                }
                name => names.extend(name),
            }
        }
        names
    }

    /// Reports a duplicate entry in a list.
    pub(super) fn same_twice(&mut self, span: Span, what: &str) {
        self.report.add(Code::SameTwice, span, format!("{what} occurs twice in the list"));
    }
}
