//! The template compiler: a page of HTML with insertions, to static segments and one chunk of Luau.
//!
//! | in the page | means |
//! |---|---|
//! | `<?= expression ?>` | its value, escaped for the place where it stands |
//! | `<?raw expression ?>` | its value as it is |
//! | `<?lua block ?>` | statements; a line break straight behind it is not written |
//! | `<?include "file" ?>` | another file of the folder, in this place, with the page's variables in sight |
//!
//! [`compile`] reads a page with all that it includes, follows the HTML through every branch of its code as a browser
//! would read it, and chooses for each insertion the escaper of its place. Where the place cannot be told, or where
//! branches disagree about it, the page does not compile: `context` and `join` have the rule, `luau` and `structure`
//! hold the code to being what it says.
//!
//! Absent by design: the interpreter, sockets, the clock, HTML trees. Files come from [`Files`] only.

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

pub(crate) use files::error_of;
pub use files::{Files, Folder, Memory};
pub use lines::Lines;
pub use segments::Segments;

use flatout_config::Diagnostics;

/// Bytes of one file.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;

/// Levels of includes.
pub const LEVELS_MAX: usize = 16;

/// Includes of one page, all in all; a file that is included twice counts twice.
pub const INCLUDES_MAX: usize = 256;

/// Bytes of one page with all that it includes.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A page, compiled.
#[derive(Clone, Debug, Default)]
pub struct Template {
    /// What never changes, in the order in which it stands in the page.
    pub segments: Segments,
    /// What is run: Luau source. It calls, as globals, only these functions beside what the page itself calls:
    /// `__s(number)` writes the static segment of this number, from 0; the others write one value each, escaped by
    /// the function of [`escape`] that [`Escape`] names.
    pub chunk: String,
    /// Where each line of the chunk comes from.
    pub lines: Lines,
}

impl Template {
    /// Whether nothing is to be run: the page is its first segment, or empty.
    pub fn is_static(&self) -> bool {
        self.lines.is_static()
    }
}

/// What came of a page.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The page, or what is wrong with it.
    pub template: Result<Template, Diagnostics>,
    /// All files that were read or looked for, the page itself first, each once: when one of them changes, or comes to
    /// be, the page is to be compiled anew.
    pub files: Vec<String>,
}

macro_rules! escapes {
    ($($variant:ident, $function:literal, $text:literal;)+) => {
        /// How an inserted value is written.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Escape {
            $(#[doc = $text] $variant,)+
        }

        impl Escape {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The global function that the chunk calls for it.
            pub const fn function(self) -> &'static str {
                match self { $(Self::$variant => $function,)+ }
            }

            /// What it is for.
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

/// Whether a file is only included: a part of its name, or of its path, begins with `_`. Such a one is no page.
pub fn is_part(name: &str) -> bool {
    name.split('/').any(|part| part.starts_with('_'))
}

/// Compiles the page called `name`, a path relative to the folder with `/` between its parts.
///
/// A name that ends in `.luau` is a script: its source is the chunk, line by line.
pub fn compile(name: &str, files: &dyn Files) -> Compiled {
    part::compile(name, files)
}

#[cfg(test)]
mod tests;
