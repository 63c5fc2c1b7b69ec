//! Reading a page with its included files as a sequence of parts.

use super::emit::emit;
use super::files::Files;
use super::lines::{LineMap, LineOrigin};
use super::luau::{Code as LuauCode, FaultKind, LuauFault, scan};
use super::segments::Segments;
use super::structure::{Structure, check_expression};
use super::walk::{PageElement, walk};
use super::{Compiled, CompiledPage, FILE_BYTES_MAX, INCLUDES_MAX, LEVELS_MAX, PAGE_BYTES_MAX};
use flatout_config::Code;
use flatout_config::diagnostic::{Report, Span, Texts};
use std::io;
use std::ops::Range;

/// A part of a page.
#[derive(Clone, Debug)]
pub(super) enum TemplatePart {
    /// Literal text.
    Text(Span),
    /// An expression, with the number of the insertion.
    Insert { code: Span, number: usize },
    /// Statements.
    Block(Span),
    /// The beginning of an included file, which has separate local variables.
    Enter(Span),
    /// The end of an included file.
    Leave(Span),
}

/// Compiles a page or a script.
pub(super) fn compile(name: &str, files: &dyn Files) -> Compiled {
    let mut report = Report::new();
    let mut reader = TemplateReader {
        files,
        report: &mut report,
        texts: Texts::default(),
        bytes: 0,
        read: Vec::new(),
        numbers: Vec::new(),
        chain: Vec::new(),
        includes: 0,
        parts: Vec::new(),
        steps: Vec::new(),
        insertions: 0,
        structure: Structure::new(),
    };
    let is_script = std::path::Path::new(name).extension().is_some_and(|extension| extension == "luau");
    let file = reader.file(name, None);
    let (Some(file), false) = (file, is_script) else {
        let (read, texts) = (reader.read, reader.texts);
        let template = if report.is_empty() { Ok(script(&texts, name)) } else { Err(report.finish(&texts)) };
        return Compiled { template, files: read };
    };
    reader.page(file, name);
    let TemplateReader { texts, read, numbers, parts, steps, insertions, .. } = reader;
    // The contexts are meaningless if the code is invalid.
    let chosen = if report.is_empty() { walk(&steps, insertions, &texts, &mut report) } else { Vec::new() };
    let template = if report.is_empty() {
        let names = numbers.iter().map(|&number| read[number].clone()).collect();
        Ok(emit(&parts, &chosen, &texts, names))
    } else {
        Err(report.finish(&texts))
    };
    Compiled { template, files: read }
}

/// Compiles a script, which becomes the chunk line by line.
fn script(texts: &Texts, name: &str) -> CompiledPage {
    let chunk = texts.text(0).to_owned();
    let lines = chunk.split('\n').count() as u32;
    let origins = (1..=lines).map(|line| LineOrigin { file: 0, line, column: 1 }).collect();
    CompiledPage { segments: Segments::default(), chunk, lines: LineMap::new(vec![name.to_owned()], origins, true) }
}

struct TemplateReader<'a> {
    files: &'a dyn Files,
    report: &'a mut Report,
    texts: Texts,
    bytes: usize,
    /// All names of files that were read or looked up.
    read: Vec<String>,
    /// For each text, the index in `read` of its file.
    numbers: Vec<usize>,
    /// The files from the page to the current one, each including the next.
    chain: Vec<String>,
    includes: usize,
    parts: Vec<TemplatePart>,
    steps: Vec<PageElement>,
    insertions: usize,
    structure: Structure,
}

impl TemplateReader<'_> {
    /// Reads a file and returns the number of its text. `asked` is the place of the include, or `None` for the page
    /// itself.
    fn file(&mut self, name: &str, asked: Option<Span>) -> Option<u32> {
        let number = self.read.iter().position(|known| known == name).unwrap_or_else(|| {
            self.read.push(name.to_owned());
            self.read.len() - 1
        });
        let shown = self.files.show(name);
        // A file that is included twice has only one text.
        if let Some(known) = self.numbers.iter().position(|known| *known == number) {
            self.bytes += self.texts.text(known as u32).len();
            return self.fits(asked).then_some(known as u32);
        }
        let fault = match self.files.read(name, FILE_BYTES_MAX) {
            Ok(content) if content.len() > FILE_BYTES_MAX => {
                (Code::PageTooLarge, format!("{shown} is larger than 1 MiB"))
            }
            Ok(content) => match String::from_utf8(content) {
                Ok(text) if text.contains('\0') => (Code::PageNotText, format!("{shown} contains a NUL")),
                Ok(text) => {
                    self.bytes += text.len();
                    self.numbers.push(number);
                    let file = self.texts.add(shown, text);
                    return self.fits(asked).then_some(file);
                }
                Err(error) => {
                    let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                    let line = valid.split(|byte| *byte == b'\n').count();
                    (Code::PageNotText, format!("{shown} is not UTF-8 (line {line})"))
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound && asked.is_some() => {
                (Code::PartMissing, format!("the file {shown} does not exist"))
            }
            Err(error) => (Code::PageUnreadable, format!("cannot read {shown}: {}", reason(&error))),
        };
        let span = asked.unwrap_or_else(|| {
            self.numbers.push(number);
            Span::new(self.texts.add(shown, String::new()), 0, 0)
        });
        let draft = self.report.add(fault.0, span, fault.1);
        if fault.0 == Code::PartMissing {
            draft.note("a path is relative to the file that contains it");
        }
        None
    }

    /// Returns whether the page is still within its size limit, and reports it otherwise.
    fn fits(&mut self, asked: Option<Span>) -> bool {
        if self.bytes <= PAGE_BYTES_MAX {
            return true;
        }
        let message = "the page is larger than 4 MiB, including all included files";
        self.report.add(Code::PageTooLarge, asked.unwrap_or_default(), message);
        false
    }

    /// Splits a file into parts.
    fn page(&mut self, file: u32, name: &str) {
        self.chain.push(name.to_owned());
        let base = self.structure.depth();
        // The text is needed while its parts are added. It is at most 1 MiB, and the nesting depth is limited.
        let text = self.texts.text(file).to_owned();
        let mut at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let mut from = at;
        while let Some(found) = text[from..].find("<?").map(|found| from + found) {
            if is_of_xml(&text[found..]) {
                from = found + 2;
                continue;
            }
            self.text(file, at..found);
            at = self.insertion(file, &text, found, base, name);
            from = at;
        }
        self.text(file, at..text.len());
        self.structure.close(base, self.report);
        self.chain.pop();
    }

    fn text(&mut self, file: u32, range: Range<usize>) {
        if !range.is_empty() {
            let span = Span::new(file, range.start, range.end);
            self.parts.push(TemplatePart::Text(span));
            self.steps.push(PageElement::Text(span));
        }
    }

    /// Reads the construct that begins with `<?` at `start`. Returns the offset at which it ends.
    fn insertion(&mut self, file: u32, text: &str, start: usize, base: usize, name: &str) -> usize {
        let word_bytes = text[start + 2..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let word = &text[start + 2..start + 2 + word_bytes];
        let code_start = start + 2 + if text[start + 2..].starts_with('=') { 1 } else { word_bytes };
        let is_known = code_start > start + 2 && matches!(word, "" | "raw" | "lua" | "include");
        let ends_word = text[code_start..].chars().next().is_none_or(|next| next.is_whitespace() || next == '?');
        if !is_known || !(ends_word || word.is_empty()) {
            let shown: String = text[start..].chars().take_while(|c| !c.is_whitespace()).take(20).collect();
            self.report
                .add(
                    Code::InsertionUnknown,
                    Span::new(file, start, start + shown.len()),
                    format!("`{shown}` is not an insertion"),
                )
                .note("use <?= expression ?>, <?raw expression ?>, <?lua statements ?> or <?include \"file\" ?>")
                .note("to show it as text, write &lt;?; inside a string in a script, write <\\?");
            return start + 2;
        }
        let code = match scan(text, code_start) {
            Ok(code) => code,
            Err(fault) => {
                let resume = fault.resume.map_or(text.len(), |end| end + 2);
                self.fault(&fault, (file, start), text);
                return resume;
            }
        };
        let end = code.range.end + 2;
        let span = Span::new(file, start, end);
        match word {
            "lua" => {
                self.block((file, text), &code, base);
                // As in other template languages, a line that contains only code produces no output line.
                let rest = &text[end..];
                return end + if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with('\n')) };
            }
            "include" => {
                self.include(text, &code, span, name);
                let rest = &text[end..];
                return end + if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with('\n')) };
            }
            _ => {
                check_expression((file, text), &code, self.report);
                let number = self.insertions;
                self.insertions += 1;
                let inner = Span::new(file, code.range.start, code.range.end);
                self.parts.push(TemplatePart::Insert { code: inner, number });
                self.steps.push(PageElement::Insert { span, number, raw: word == "raw" });
            }
        }
        end
    }

    fn block(&mut self, (file, text): (u32, &str), code: &LuauCode, base: usize) {
        if code.tokens.is_empty() {
            return;
        }
        let events = self.structure.read((file, text), &code.tokens, base, self.report);
        self.steps.extend(events.into_iter().map(|(event, span)| PageElement::Event(event, span)));
        self.parts.push(TemplatePart::Block(Span::new(file, code.range.start, code.range.end)));
    }

    fn include(&mut self, text: &str, code: &LuauCode, span: Span, name: &str) {
        let literal = match &code.tokens[..] {
            [token] => text[token.range.clone()]
                .strip_prefix(['"', '\''])
                .and_then(|rest| rest.strip_suffix(['"', '\'']))
                .filter(|path| !path.contains(['\\', '\n', '\r', '\0'])),
            _ => None,
        };
        let Some(path) = literal else {
            self.report
                .add(Code::PartForm, span, "an include must name one file in quotes")
                .note("as in: <?include \"_head.lhtml\" ?>");
            return;
        };
        let target = match resolve(name, path) {
            Ok(target) => target,
            Err(why) => {
                self.report.add(Code::PartForm, span, format!("`{path}` {why}")).note(
                    "a path is relative to the file that contains it, and must not point outside the pages' folder",
                );
                return;
            }
        };
        if self.chain.contains(&target) {
            let mut round = self.chain.clone();
            round.push(target.clone());
            let shown = round.iter().skip_while(|link| **link != target).cloned().collect::<Vec<_>>().join(" → ");
            self.report
                .add(Code::PartCycle, span, format!("{target} includes itself: {shown}"))
                .label("by this include");
            return;
        }
        self.includes += 1;
        let fault = if self.chain.len() > LEVELS_MAX {
            Some(format!("includes are nested deeper than {LEVELS_MAX} levels"))
        } else if self.includes > INCLUDES_MAX {
            Some(format!("the page has more than {INCLUDES_MAX} includes"))
        } else {
            None
        };
        if let Some(fault) = fault {
            if !self.report.has_in(Code::PageTooLarge, span) {
                self.report.add(Code::PageTooLarge, span, fault);
            }
            return;
        }
        if let Some(included) = self.file(&target, Some(span)) {
            self.parts.push(TemplatePart::Enter(span));
            self.page(included, &target);
            self.parts.push(TemplatePart::Leave(span));
        }
    }

    fn fault(&mut self, fault: &LuauFault, (file, start): (u32, usize), text: &str) {
        let span = Span::new(file, fault.range.start, fault.range.end);
        let word = text.get(fault.range.clone()).unwrap_or_default();
        match fault.kind {
            FaultKind::Unclosed => {
                self.report
                    .add(Code::CodeUnclosed, Span::new(file, start, start + 2), "this code is not closed")
                    .note("end it with ?>; inside a Luau string or long comment, ?> does not end it");
            }
            FaultKind::TextOpen => {
                self.report.add(Code::LuauBad, span, "this string is not closed");
            }
            FaultKind::CommentOpen => {
                self.report.add(Code::LuauBad, span, "this comment is not closed");
            }
            FaultKind::BracketOpen => {
                self.report.add(Code::StatementUnfinished, span, format!("`{word}` is not closed in this code"));
            }
            FaultKind::BracketStray => {
                self.report.add(Code::LuauBad, span, format!("`{word}` has no matching opening in this code"));
            }
            FaultKind::BraceTwice => {
                self.report
                    .add(Code::LuauBad, span, "`{{` is not allowed in an interpolated string")
                    .note("to write a literal brace: `\\{`");
            }
            FaultKind::Character => {
                self.report.add(Code::LuauBad, span, format!("`{word}` is not valid here in Luau"));
            }
            FaultKind::NameReserved => {
                self.report
                    .add(Code::NameReserved, span, format!("`{word}` is reserved for compiled pages"))
                    .note("choose another name");
            }
        }
    }
}

/// Returns whether `text` begins with an XML declaration or with an instruction reserved for XML, such as
/// `<?xml-stylesheet`, which are literal text.
fn is_of_xml(text: &str) -> bool {
    text.strip_prefix("<?xml")
        .is_some_and(|rest| rest.starts_with(|next: char| next == '-' || next.is_ascii_whitespace()))
}

/// Resolves a path in an include of the file `name`. Returns the path relative to the folder of the pages.
fn resolve(name: &str, path: &str) -> Result<String, &'static str> {
    if path.is_empty() {
        return Err("is not a path");
    }
    if path.starts_with('/') {
        return Err("begins with a slash");
    }
    if path.len() > 1024 {
        return Err("is too long");
    }
    let mut parts: Vec<&str> = name.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop().ok_or("points outside the folder")?;
            }
            "" => return Err("has an empty part"),
            other => parts.push(other),
        }
    }
    Ok(parts.join("/"))
}

/// Describes why a file could not be read, in words that do not depend on the operating system.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".into(),
        io::ErrorKind::PermissionDenied => "no permission".into(),
        io::ErrorKind::IsADirectory => "it is a folder".into(),
        io::ErrorKind::NotADirectory => "a component of the path is not a folder".into(),
        _ => error.to_string(),
    }
}
