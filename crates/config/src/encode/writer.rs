//! KDL text, setting by setting, neatly indented.

use crate::diagnostic::is_mark;
use std::fmt::Write as _;

const INDENT: &str = "    ";

/// Writes settings one after another.
#[derive(Debug, Default)]
pub(crate) struct SettingWriter {
    text: String,
    depth: usize,
}

impl SettingWriter {
    /// Begins a setting.
    pub(crate) fn begin(&mut self, name: &str) -> &mut Self {
        self.indent();
        self.text.push_str(&identifier(name));
        self
    }

    /// A value that is written already.
    pub(crate) fn raw(&mut self, value: &str) -> &mut Self {
        let _ = write!(self.text, " {value}");
        self
    }

    /// A text.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.raw(&quote(text))
    }

    /// A property whose value is written already.
    pub(crate) fn raw_property(&mut self, name: &str, value: &str) -> &mut Self {
        let _ = write!(self.text, " {}={value}", identifier(name));
        self
    }

    /// A property with a text.
    pub(crate) fn property(&mut self, name: &str, text: &str) -> &mut Self {
        self.raw_property(name, &quote(text))
    }

    /// Texts.
    pub(crate) fn texts<T: AsRef<str>>(&mut self, texts: &[T]) -> &mut Self {
        for text in texts {
            self.text(text.as_ref());
        }
        self
    }

    /// A setting with texts; none at all when there are none.
    pub(crate) fn list<T: AsRef<str>>(&mut self, name: &str, texts: &[T]) {
        if !texts.is_empty() {
            self.begin(name).texts(texts).end();
        }
    }

    /// A setting with texts, or one that is switched off.
    pub(crate) fn list_or_off<T: AsRef<str>>(&mut self, name: &str, texts: &[T]) {
        if texts.is_empty() {
            self.begin(name).raw_property("off", "#true").end();
        } else {
            self.list(name, texts);
        }
    }

    /// The setting ends.
    pub(crate) fn end(&mut self) {
        self.text.push('\n');
    }

    /// The setting's block begins.
    pub(crate) fn open(&mut self) {
        self.text.push_str(" {\n");
        self.depth += 1;
    }

    /// The block ends, and the setting with it.
    pub(crate) fn close(&mut self) {
        self.depth -= 1;
        self.indent();
        self.text.push_str("}\n");
    }

    /// The setting's block, and the setting ends. A block in which nothing is written is left out.
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

    /// An empty line, but not as the first.
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

/// A name, in quotes when it needs them.
fn identifier(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && !matches!(name, "true" | "false" | "null" | "inf" | "nan");
    if is_plain { name.to_owned() } else { quote(name) }
}

/// A text in quotes.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            // What KDL forbids or takes for a new line, and the marks of direction that would mislead a reader.
            c if c.is_control() || is_mark(c) => {
                let _ = write!(quoted, "\\u{{{:x}}}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
