//! Reads files into one tree, replacing each `include` with the settings of the included files.

use crate::adapt;
use crate::code::Code;
use crate::diagnostic::{Report, Span, Texts};
use crate::glob;
use crate::source::Sources;
use crate::syntax::{DEPTH_MAX, FILE_BYTES_MAX, Node, Scalar, Value, parse_document};
use std::io;
use std::path::{Path, PathBuf};

/// The maximum depth of nested includes.
const LEVELS_MAX: usize = 16;

/// The maximum number of files read.
const FILES_MAX: usize = 1_000;

/// The maximum total size of all files, in bytes.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// The result of reading a file with its includes.
pub(crate) struct Loaded {
    pub(crate) nodes: Vec<Node>,
    pub(crate) texts: Texts,
    /// The path of each text, by index.
    pub(crate) paths: Vec<PathBuf>,
}

pub(crate) struct Loader<'a> {
    sources: &'a dyn Sources,
    report: &'a mut Report,
    texts: Texts,
    paths: Vec<PathBuf>,
    /// The chain of files from the first one to the current one, each including the next, to detect cycles.
    chain: Vec<PathBuf>,
    /// The number of blocks that enclose the current settings, across all includes.
    depth: usize,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(sources: &'a dyn Sources, report: &'a mut Report) -> Self {
        Self { sources, report, texts: Texts::default(), paths: Vec::new(), chain: Vec::new(), depth: 0 }
    }

    pub(crate) fn load(mut self, path: &Path) -> Loaded {
        let nodes = match self.read(path) {
            Ok(text) => self.parse(path, text),
            Err((code, message)) => {
                // Without content there is no line, so the place is just the file name.
                let file = self.texts.add(path.display().to_string(), String::new());
                self.paths.push(path.to_owned());
                self.report.add(code, Span::new(file, 0, 0), message);
                Vec::new()
            }
        };
        Loaded { nodes, texts: self.texts, paths: self.paths }
    }

    fn read(&self, path: &Path) -> Result<String, (Code, String)> {
        let shown = path.display();
        let content = self
            .sources
            .read(path, FILE_BYTES_MAX)
            .map_err(|error| (Code::FileUnreadable, format!("cannot read {shown}: {}", reason(&error))))?;
        if content.len() > FILE_BYTES_MAX {
            return Err((Code::TooLarge, format!("{shown} is larger than 1 MiB")));
        }
        String::from_utf8(content).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = valid.split(|byte| *byte == b'\n').count();
            (Code::FileNotText, format!("{shown} is not UTF-8 (line {line})"))
        })
    }

    fn parse(&mut self, path: &Path, text: String) -> Vec<Node> {
        let (name, text) = if path.extension().is_some_and(|extension| extension == "json") {
            match adapt::json_to_kdl(&text) {
                Ok(kdl) => (format!("{} (as KDL)", path.display()), kdl),
                Err(error) => {
                    let file = self.texts.add(path.display().to_string(), text);
                    self.paths.push(path.to_owned());
                    let at = self.texts.offset(file, error.line, error.column);
                    self.report.add(Code::JsonBad, Span::new(file, at, at + 1), error.message);
                    return Vec::new();
                }
            }
        } else {
            (path.display().to_string(), text)
        };
        let file = self.texts.add(name, text);
        self.paths.push(path.to_owned());
        let count = self.report.count();
        let nodes = parse_document(file, self.texts.text(file), self.report);
        if self.report.has_since(count, Code::hides_the_rest) {
            // It is unknown which block the following settings belong to.
            return Vec::new();
        }
        self.chain.push(self.sources.identify(path));
        let nodes = self.expand(nodes);
        self.chain.pop();
        nodes
    }

    /// Replaces each `include` with the included settings, also inside blocks.
    fn expand(&mut self, nodes: Vec<Node>) -> Vec<Node> {
        let mut expanded = Vec::with_capacity(nodes.len());
        for mut node in nodes {
            if node.name == "include" {
                expanded.extend(self.include(&node));
                continue;
            }
            if let Some(children) = node.children.take() {
                // Code that reads the tree is recursive, so the depth is limited for the whole tree, not per file.
                if self.depth == DEPTH_MAX {
                    let message = format!("blocks are nested deeper than {DEPTH_MAX} levels");
                    self.report.add(Code::TooDeep, node.span, message).label("through includes");
                    continue;
                }
                self.depth += 1;
                node.children = Some(self.expand(children));
                self.depth -= 1;
            }
            expanded.push(node);
        }
        expanded
    }

    fn include(&mut self, node: &Node) -> Vec<Node> {
        let mut included = Vec::new();
        if node.arguments.is_empty() {
            self.report
                .add(Code::ValueMissing, node.span, "`include` needs a path")
                .note("as in: include \"sites/*.kdl\"");
        }
        if let Some(property) = node.properties.first() {
            let message = format!("`include` has no property `{}`", property.name);
            self.report.add(Code::PropertyUnknown, property.span, message);
        }
        if node.children.is_some() {
            self.report.add(Code::BlockUnexpected, node.span, "`include` takes no block");
        }
        for value in &node.arguments {
            for path in self.matches(value) {
                included.extend(self.include_file(value.span, &path));
            }
        }
        included
    }

    /// Returns the files that a path or pattern refers to, sorted.
    fn matches(&mut self, value: &Value) -> Vec<PathBuf> {
        let Scalar::Text(pattern) = &value.scalar else {
            let message = format!("`include` takes a path, but this is {}", value.scalar.kind());
            self.report.add(Code::TypeWrong, value.span, message);
            return Vec::new();
        };
        if value.annotation.is_some() {
            self.report.add(Code::AnnotationUnknown, value.span, "`include` takes a literal path");
            return Vec::new();
        }
        if pattern.is_empty() || pattern.contains('\0') {
            self.report.add(Code::TextBad, value.span, "this is not a valid path");
            return Vec::new();
        }
        let folder = self.paths.get(value.span.file as usize).and_then(|path| path.parent()).unwrap_or(Path::new(""));
        let path = folder.join(pattern);
        let (parent, last) = (path.parent().unwrap_or(Path::new("")), path.file_name().and_then(|name| name.to_str()));
        if parent.to_str().is_some_and(glob::is_pattern)
            && glob::is_pattern(pattern.rsplit_once('/').map_or("", |(folder, _)| folder))
        {
            self.report.add(
                Code::IncludePattern,
                value.span,
                "`*` and `?` are allowed only in the last component of a path",
            );
            return Vec::new();
        }
        let Some(last) = last.filter(|last| glob::is_pattern(last)) else {
            return vec![path];
        };
        let names = match self.sources.list(parent) {
            Ok(names) => names,
            Err(error) => {
                let message = format!("cannot list {}: {}", parent.display(), reason(&error));
                self.report.add(Code::FileUnreadable, value.span, message);
                return Vec::new();
            }
        };
        let mut names: Vec<String> = names.into_iter().filter_map(|name| name.into_string().ok()).collect();
        names.retain(|name| glob::matches(last, name) && (!name.starts_with('.') || last.starts_with('.')));
        names.sort_unstable();
        names.into_iter().map(|name| parent.join(name)).collect()
    }

    fn include_file(&mut self, span: Span, path: &Path) -> Vec<Node> {
        if self.chain.contains(&self.sources.identify(path)) {
            let message = format!("{} includes itself", path.display());
            self.report.add(Code::IncludeCycle, span, message).label("by this include");
            return Vec::new();
        }
        let fault = if self.chain.len() > LEVELS_MAX {
            Some(format!("includes are nested deeper than {LEVELS_MAX} levels"))
        } else if self.texts.len() >= FILES_MAX {
            Some(format!("more than {FILES_MAX} files are included"))
        } else if self.texts.bytes() > BYTES_MAX {
            Some("the included files are together larger than 32 MiB".to_owned())
        } else {
            None
        };
        if let Some(fault) = fault {
            self.report.add(Code::IncludeTooMany, span, fault);
            return Vec::new();
        }
        match self.read(path) {
            Ok(text) => self.parse(path, text),
            Err((Code::FileUnreadable, message)) if message.ends_with(NOT_FOUND) => {
                self.report
                    .add(Code::IncludeNothing, span, format!("the file {} does not exist", path.display()))
                    .note("a path is relative to the file that contains it; only a pattern such as `sites/*.kdl` may match no file");
                Vec::new()
            }
            Err((code, message)) => {
                self.report.add(code, span, message);
                Vec::new()
            }
        }
    }
}

const NOT_FOUND: &str = "no such file";

/// Describes why a file could not be read, in words that do not depend on the operating system.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND.into(),
        io::ErrorKind::PermissionDenied => "no permission".into(),
        io::ErrorKind::IsADirectory => "it is a folder".into(),
        io::ErrorKind::NotADirectory => "a component of the path is not a folder".into(),
        _ => error.to_string(),
    }
}
