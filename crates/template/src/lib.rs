//! The template compiler: converts an HTML page with insertions to static segments and a chunk of Luau.
//!
//! | in the page | meaning |
//! |---|---|
//! | `<?= expression ?>` | the value of the expression, escaped for its context |
//! | `<?raw expression ?>` | the value of the expression, unescaped |
//! | `<?lua block ?>` | statements; a line break directly after them is not written |
//! | `<?include "file" ?>` | the content of another file in the folder, which can access the page's variables |
//!
//! [`compile`] reads a page with all included files, follows the HTML through every branch of its code as a browser
//! would parse it, and chooses the escaper of each insertion by the context. If the context is ambiguous, or if
//! branches end in different contexts, the page does not compile. `context` and `join` implement this rule; `luau` and
//! `structure` check that each piece of code is self-contained.
//!
//! Absent by design: the interpreter, sockets, the clock, the disk, HTML trees. Files are accessed only through
//! [`Files`].

mod context;
mod emit;
pub mod escape;
mod files;
mod join;
mod lines;
mod luau;
mod names;
mod part;
mod reference;
mod script;
mod segments;
mod structure;
mod url;
mod walk;

pub use files::{Files, MemoryFiles};
pub use lines::LineMap;
pub use segments::Segments;

use flatout_config::Diagnostics;

/// Maximum size of one file, in bytes.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;

/// Maximum nesting depth of includes.
pub const LEVELS_MAX: usize = 16;

/// Maximum number of includes in one page. A file that is included twice counts twice.
pub const INCLUDES_MAX: usize = 256;

/// Maximum size of one page with all included files, in bytes.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The result of compiling a page: static segments and a chunk of Luau.
#[derive(Clone, Debug, Default)]
pub struct CompiledPage {
    /// The static text, in the order of the page.
    pub segments: Segments,
    /// The Luau source to run. Apart from what the page's code calls, it uses only these global functions:
    /// `__s(number)` writes the static segment with this number, counted from 0. The others write one value each,
    /// escaped by the function in [`escape`] that [`Escape`] specifies.
    pub chunk: String,
    /// Maps each line of the chunk to its source.
    pub lines: LineMap,
}

impl CompiledPage {
    /// Returns whether the page has no code, so that it consists of its first segment or is empty.
    pub fn is_static(&self) -> bool {
        self.lines.is_static()
    }
}

/// The result of compiling a page, with the files that it depends on.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The compiled page, or its problems.
    pub template: Result<CompiledPage, Diagnostics>,
    /// All files that were read or looked up, without duplicates and beginning with the page itself. If one of them
    /// changes or is created, the page must be compiled again.
    pub files: Vec<String>,
}

flatout_reason::reasons! {
    /// The escaper of an inserted value. Its name is the global function that the chunk calls.
    pub enum Escape { name, text, }
    Text, "__w", "Text, also in `<title>` and `<textarea>`: [`escape::text`].";
    Attribute, "__a", "An attribute's value in quotes: [`escape::attribute`].";
    UrlPart, "__u", "A part of a URL after its beginning, in an attribute: [`escape::url_part`].";
    Url, "__h", "A URL from its beginning, in an attribute: [`escape::url`].";
    Script, "__j", "A value in a script, written as JSON: [`escape::script_string`] for a text, [`escape::script_json`] for the JSON of anything else.";
    Data, "__d", "A value in a script element of JSON: [`escape::script_string`] for a text, [`escape::script_data`] for the JSON of anything else.";
    ScriptText, "__q", "Text within a string in quotes of a script, in a script element or an attribute: [`escape::script_text`].";
    Handler, "__e", "A value in the script of an event attribute, written as JSON: [`escape::handler_string`] for a text, [`escape::handler_json`] for the JSON of anything else.";
    Raw, "__r", "Unchanged.";
}

/// The global function that writes a static segment.
pub const SEGMENT_FUNCTION: &str = "__s";

/// Returns whether a file is only meant to be included, because a component of its path begins with `_`. Such a file is
/// not a page.
pub fn is_part(name: &str) -> bool {
    name.split('/').any(|part| part.starts_with('_'))
}

/// Compiles the page `name`, a path relative to the folder with `/` as separator.
///
/// If the name ends in `.luau`, the file is a script, and its source is the chunk, line by line.
pub fn compile(name: &str, files: &dyn Files) -> Compiled {
    part::compile(name, files)
}

#[cfg(test)]
mod tests;
