//! Prints KDL, one setting at a time, with indentation.

use crate::diagnostic::is_mark;
use std::fmt::Write as _;
use std::path::Path;

const INDENT: &str = "    ";

/// Writes settings one after another.
#[derive(Debug, Default)]
pub(crate) struct SettingWriter {
    text: String,
    depth: usize,
}

impl SettingWriter {
    /// Begins a setting with its name.
    pub(crate) fn begin(&mut self, name: &str) -> &mut Self {
        self.indent();
        self.text.push_str(&identifier(name));
        self
    }

    /// Writes a value that is already encoded.
    pub(crate) fn raw(&mut self, value: &str) -> &mut Self {
        let _ = write!(self.text, " {value}");
        self
    }

    /// Writes a string value in quotes.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.raw(&quote(text))
    }

    /// Writes a property whose value is already encoded.
    pub(crate) fn raw_property(&mut self, name: &str, value: &str) -> &mut Self {
        let _ = write!(self.text, " {}={value}", identifier(name));
        self
    }

    /// Writes a property whose value is a string in quotes.
    pub(crate) fn property(&mut self, name: &str, text: &str) -> &mut Self {
        self.raw_property(name, &quote(text))
    }

    /// Writes several string values in quotes.
    pub(crate) fn texts<T: AsRef<str>>(&mut self, texts: &[T]) -> &mut Self {
        for text in texts {
            self.text(text.as_ref());
        }
        self
    }

    /// Writes a setting with strings as its values. Writes nothing if there are no strings.
    pub(crate) fn list<T: AsRef<str>>(&mut self, name: &str, texts: &[T]) {
        if !texts.is_empty() {
            self.begin(name).texts(texts).end();
        }
    }

    /// Writes a setting with strings as its values, or with `off=#true` if there are no strings.
    pub(crate) fn list_or_off<T: AsRef<str>>(&mut self, name: &str, texts: &[T]) {
        if texts.is_empty() {
            self.begin(name).raw_property("off", "#true").end();
        } else {
            self.list(name, texts);
        }
    }

    /// Ends a setting that has no block.
    pub(crate) fn end(&mut self) {
        self.text.push('\n');
    }

    /// Opens the setting's block.
    pub(crate) fn open(&mut self) {
        self.text.push_str(" {\n");
        self.depth += 1;
    }

    /// Closes the block and ends the setting.
    pub(crate) fn close(&mut self) {
        self.depth -= 1;
        self.indent();
        self.text.push_str("}\n");
    }

    /// Writes the setting's block and ends the setting. An empty block is omitted.
    pub(crate) fn block(&mut self, write: impl FnOnce(&mut Self)) {
        let before = self.text.len();
        self.open();
        let within = self.text.len();
        write(self);
        if self.text.len() > within {
            return self.close();
        }
        self.depth -= 1;
        self.text.truncate(before);
        self.end();
    }

    /// Writes an empty line, except at the beginning.
    pub(crate) fn blank(&mut self) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }

    fn indent(&mut self) {
        for _ in 0..self.depth {
            self.text.push_str(INDENT);
        }
    }
}

/// Returns a name, in quotes if KDL requires them.
fn identifier(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && !matches!(name, "true" | "false" | "null" | "inf" | "nan");
    if is_plain { name.to_owned() } else { quote(name) }
}

/// Returns a string in quotes, with escapes where KDL requires them.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            // Escapes characters that KDL forbids or treats as newlines, and direction marks that would mislead a
            // reader.
            c if c.is_control() || is_mark(c) => {
                let _ = write!(quoted, "\\u{{{:x}}}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Converts a path to a string. A path that is not UTF-8 cannot be written in KDL, but paths read from KDL are always
/// UTF-8.
pub(crate) fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
