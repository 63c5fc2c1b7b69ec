//! Rejects configurations that would let clients download the private data of active pages.
//!
//! Paths are compared as written, because the configuration does not tell where symbolic links lead. The code that
//! opens the folders checks again.

use super::reader::Reader;
use crate::code::Code;
use crate::diagnostic::Span;
use crate::model::is_given_out;
use crate::syntax::{Node, Scalar, Value};
use std::path::{Component, Path, PathBuf};

/// A folder that a `files` step serves.
struct Given {
    root: PathBuf,
    hidden: bool,
    span: Span,
}

/// A setting that specifies a file or folder with private data of pages.
struct KeptValue<'n> {
    what: &'static str,
    value: &'n Value,
}

/// Compares the private files of the pages of all `sites` with the folders that any of the sites serves.
pub(super) fn kept(reader: &mut Reader<'_>, sites: &[&Node]) {
    let (mut given, mut kept) = (Vec::new(), Vec::new());
    for site in sites {
        gather(reader, site, &mut given, &mut kept);
    }
    for KeptValue { what, value } in kept {
        let Some(path) = written(reader, value) else { continue };
        if let Some(folder) = given.iter().find(|folder| is_given_out(&path, &folder.root, folder.hidden)) {
            let draft = reader.report.add(Code::PrivateServed, value.span, format!("visitors could download {what}"));
            draft.related(folder.span, "this folder is served");
            draft.note("move it out of the folder, or into a subfolder whose name begins with a dot");
        }
    }
}

/// Collects both kinds in written order. Recursion is as deep as blocks are nested, which the grammar limits.
fn gather<'n>(reader: &Reader<'_>, node: &'n Node, given: &mut Vec<Given>, kept: &mut Vec<KeptValue<'n>>) {
    for child in node.children.iter().flatten() {
        let inner = || child.children.iter().flatten();
        match child.name.as_str() {
            "route" => gather(reader, child, given, kept),
            "files" => {
                let is_yes = |value: &Value| !matches!(value.scalar, Scalar::Bool(false));
                let hidden = inner().any(|child| child.name == "hidden" && child.arguments.iter().all(is_yes));
                if let Some(value) = child.arguments.first()
                    && let Some(root) = written(reader, value)
                {
                    given.push(Given { root, hidden, span: value.span });
                }
            }
            "pages" | "page" => {
                for setting in inner() {
                    let what = match setting.name.as_str() {
                        "database" => "this database",
                        "secret" => "this secret",
                        _ => continue,
                    };
                    kept.extend(setting.arguments.first().map(|value| KeptValue { what, value }));
                    let migrations = setting.properties.iter().filter(|property| property.name == "migrations");
                    kept.extend(
                        migrations.map(|property| KeptValue { what: "these migrations", value: &property.value }),
                    );
                }
            }
            _ => {}
        }
    }
}

/// Returns a path as written, or `None` if it comes from the environment or a file.
fn written(reader: &Reader<'_>, value: &Value) -> Option<PathBuf> {
    match (&value.scalar, value.annotation) {
        // An empty path is reported elsewhere.
        (Scalar::Text(text), None) if !text.is_empty() => Some(normalise(&reader.resolve(value.span, text))),
        _ => None,
    }
}

/// Removes each `.` and, if a name precedes it, each `..` with that name.
fn normalise(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(plain.components().next_back(), Some(Component::Normal(_))) => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}
