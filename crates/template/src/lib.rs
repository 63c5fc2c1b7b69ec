//! The template compiler: from an HTML page with insertions to static segments and one chunk of Luau.
//!
//! | in the page | meaning |
//! |---|---|
//! | `<?= expression ?>` | its value, escaped for its context |
//! | `<?raw expression ?>` | its value, unescaped |
//! | `<?lua block ?>` | statements; a line break immediately after it is not written |
//! | `<?include "file" ?>` | another file of the folder, in this place, with access to the page's variables |
//!
//! [`compile`] reads a page with all its includes, follows the HTML through every branch of its code as a browser
//! would parse it, and chooses the escaper of each insertion by its context. If the context is ambiguous, or branches
//! disagree about it, the page does not compile: `context` and `join` contain the rule, `luau` and `structure` verify
//! that the code is what it claims to be.
//!
//! Absent by design: the interpreter, sockets, the clock, the disk, HTML trees. Files come from [`Files`] only.

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

/// Upper bound of one file, in bytes.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;

/// Upper bound of nested includes.
pub const LEVELS_MAX: usize = 16;

/// Upper bound of includes in one page; a file that is included twice counts twice.
pub const INCLUDES_MAX: usize = 256;

/// Upper bound of one page with all includes, in bytes.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A compiled page.
#[derive(Clone, Debug, Default)]
pub struct CompiledPage {
    /// The static text, in page order.
    pub segments: Segments,
    /// The Luau source to run. Apart from the page's own calls it uses only these global functions: `__s(number)`
    /// writes the static segment of this number, from 0; the others write one value each, escaped by the function of
    /// [`escape`] that [`Escape`] names.
    pub chunk: String,
    /// The source of each line of the chunk.
    pub lines: LineMap,
}

impl CompiledPage {
    /// Returns whether there is no code: the page is its first segment, or empty.
    pub fn is_static(&self) -> bool {
        self.lines.is_static()
    }
}

/// The result of a compilation.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The page, or its problems.
    pub template: Result<CompiledPage, Diagnostics>,
    /// All files that were read or looked up, the page itself first, without duplicates: if one of them changes or is
    /// created, the page must be recompiled.
    pub files: Vec<String>,
}

macro_rules! escapes {
    ($($variant:ident, $function:literal, $text:literal;)+) => {
        /// The escaper of an inserted value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Escape {
            $(#[doc = $text] $variant,)+
        }

        impl Escape {
            /// All escapers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The global function that the chunk calls.
            pub const fn function(self) -> &'static str {
                match self { $(Self::$variant => $function,)+ }
            }

            /// Its purpose.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

escapes! {
    Text, "__w", "Text, also in `<title>` and `<textarea>`: [`escape::text`].";
    Attribute, "__a", "An attribute's value in quotes: [`escape::attribute`].";
    UrlPart, "__u", "A part of a URL behind its beginning, in an attribute: [`escape::url_part`].";
    Url, "__h", "A URL from its beginning, in an attribute: [`escape::url`].";
    Script, "__j", "A value in a script, written as JSON: [`escape::script_string`] for a text, [`escape::script_json`] for the JSON of anything else.";
    Data, "__d", "A value in a script element of JSON: [`escape::script_string`] for a text, [`escape::script_data`] for the JSON of anything else.";
    ScriptText, "__q", "Text within a string in quotes of a script, in a script element or an attribute: [`escape::script_text`].";
    Handler, "__e", "A value in the script of an event attribute, written as JSON: [`escape::handler_string`] for a text, [`escape::handler_json`] for the JSON of anything else.";
    Raw, "__r", "As it is.";
}

/// The global function that writes a static segment.
pub const SEGMENT_FUNCTION: &str = "__s";

/// Returns whether a file is only for inclusion: a part of its name or path begins with `_`. Such a file is not a
/// page.
pub fn is_part(name: &str) -> bool {
    name.split('/').any(|part| part.starts_with('_'))
}

/// Compiles the page `name`, a path relative to the folder with `/` as separator.
///
/// A name that ends in `.luau` is a script: its source is the chunk, line by line.
pub fn compile(name: &str, files: &dyn Files) -> Compiled {
    part::compile(name, files)
}

#[cfg(test)]
mod tests;
