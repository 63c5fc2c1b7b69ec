//! Logs: the default one, named ones, and those of single sites.

use super::Reader;
use super::shape::{BlockRule, SeenSettings, Shape, property};
use crate::code::Code;
use crate::diagnostic::Span;
use crate::model::{LOG_MODE_DEFAULT, Log, LogField, LogFormat, LogTarget, Rotation};
use crate::syntax::{Node, Value};
use std::path::PathBuf;

const SHAPE: Shape = Shape {
    arguments: (0, 1),
    properties: &["name", "format", "path", "off"],
    block: BlockRule::Optional,
    example: "log \"access.log\" format=\"json\"",
};
const FIELDS: Shape = Shape::values(1, "fields \"time\" \"client\" \"status\"");
const ROTATE: Shape = Shape {
    arguments: (0, 0),
    properties: &["size", "age", "keep"],
    block: BlockRule::None,
    example: "rotate size=\"100MiB\" age=\"1d\" keep=7",
};

const MODE: Shape = Shape::value("mode \"0644\"");

/// The permissions that a log file may have.
const MODES: &[(u32, &str)] = &[(0o600, "0600"), (0o640, "0640"), (0o644, "0644")];

const FORMATS: &[(LogFormat, &str)] =
    &[(LogFormat::Combined, "combined"), (LogFormat::Short, "short"), (LogFormat::Json, "json")];

/// The word for a format.
pub(crate) fn format_name(format: LogFormat) -> &'static str {
    FORMATS.iter().find(|(known, _)| *known == format).map_or("", |(_, name)| name)
}

/// Where the system's log listens, everywhere.
const SYSLOG: &str = "/dev/log";

/// All logs, and which of them has which name.
#[derive(Default)]
pub(super) struct Logs {
    list: Vec<(Log, Span)>,
    named: Vec<(String, usize, Span)>,
    /// The log of sites that say nothing about it: none, or which, and where that was said.
    default: Option<(Option<usize>, Span)>,
}

impl Logs {
    pub(super) fn into_list(self) -> Vec<Log> {
        self.list.into_iter().map(|(log, _)| log).collect()
    }

    /// The log of a site that does not say.
    pub(super) fn of_all_sites(&self) -> Option<usize> {
        self.default.and_then(|(log, _)| log)
    }

    /// At the top level: the default, or one with a name for sites to choose.
    pub(super) fn top(&mut self, reader: &mut Reader<'_>, node: &Node) {
        reader.shape(node, &SHAPE);
        let name = property(node, "name");
        if is_off(reader, node) == Some(true) {
            return self.set_default(reader, None, node.span);
        }
        let Some(target) = node.arguments.first() else {
            let draft = reader.report.add(Code::ValueMissing, node.span, "`log` needs a target");
            draft.note("a file, \"stdout\" or \"syslog\"; as in: log \"access.log\" format=\"json\"");
            return;
        };
        let Some(log) = describe(reader, node, target) else { return };
        let Some(index) = self.insert(reader, log, node.span) else { return };
        let Some(name) = name else {
            return self.set_default(reader, Some(index), node.span);
        };
        let Some(text) = reader.line(&name.value) else { return };
        if let Some((_, _, first)) = self.named.iter().find(|(known, _, _)| *known == text) {
            let draft = reader.report.add(Code::LogConflict, name.value.span, format!("two logs are named `{text}`"));
            draft.related(*first, "the other one");
            return;
        }
        self.named.push((text, index, name.value.span));
    }

    fn set_default(&mut self, reader: &mut Reader<'_>, log: Option<usize>, span: Span) {
        if let Some((_, first)) = self.default {
            let draft = reader.report.add(Code::GivenTwice, span, "two logs are meant for all sites");
            draft
                .related(first, "the first")
                .note("give all but one of them a name, for sites to choose: log name=\"…\"");
            return;
        }
        self.default = Some((log, span));
    }

    /// In a site: one of its own, one by name, or none.
    pub(super) fn site(&mut self, reader: &mut Reader<'_>, node: &Node) -> Option<usize> {
        reader.shape(node, &SHAPE);
        if is_off(reader, node) == Some(true) {
            return None;
        }
        let name = property(node, "name");
        match (node.arguments.first(), name) {
            (Some(_), Some(name)) => {
                let draft = reader.report.add(Code::WrongPlace, name.span, "a site's own log needs no name");
                draft.label("names are given at the top level, and chosen here: log name=\"…\"");
                None
            }
            (Some(target), None) => {
                let log = describe(reader, node, target)?;
                self.insert(reader, log, node.span)
            }
            (None, Some(name)) => self.choose(reader, node, &name.value),
            (None, None) => {
                let draft =
                    reader.report.add(Code::ValueMissing, node.span, "`log` needs a target, a name, or off=#true");
                draft.note("as in: log \"access.log\", log name=\"main\", log off=#true");
                None
            }
        }
    }

    fn choose(&mut self, reader: &mut Reader<'_>, node: &Node, value: &Value) -> Option<usize> {
        let extra = node.properties.iter().find(|property| property.name != "name");
        if let Some(span) = extra.map(|property| property.span).or(node.children.as_ref().map(|_| node.span)) {
            let draft = reader.report.add(Code::WrongPlace, span, "a log that is chosen by name is described already");
            draft.label("this belongs where the name is given, at the top level");
        }
        let text = reader.line(value)?;
        let found = self.named.iter().find(|(known, _, _)| *known == text);
        if found.is_none() {
            let names: Vec<&str> = self.named.iter().map(|(name, _, _)| name.as_str()).collect();
            let near = super::shape::nearest(&text, &names);
            let draft = reader.report.add(Code::LogUnknown, value.span, format!("no log is named `{text}`"));
            if let Some(near) = near {
                draft.label(format!("did you mean \"{near}\"?"));
            }
            draft.note(if names.is_empty() {
                format!("as in, at the top level: log \"access.log\" name=\"{text}\"")
            } else {
                format!("there is: {}", names.join(", "))
            });
        }
        found.map(|(_, index, _)| *index)
    }

    /// One target has one log: two writers of one file would tear its lines and rotate it twice.
    fn insert(&mut self, reader: &mut Reader<'_>, log: Log, span: Span) -> Option<usize> {
        let Some(index) = self.list.iter().position(|(known, _)| known.target == log.target) else {
            self.list.push((log, span));
            return Some(self.list.len() - 1);
        };
        let (known, first) = &self.list[index];
        let same = (&known.format, &known.fields, &known.rotation, known.mode)
            == (&log.format, &log.fields, &log.rotation, log.mode);
        if !same {
            let draft = reader.report.add(Code::LogConflict, span, "two logs have one target and differ otherwise");
            draft.related(*first, "the other one").note("describe it once with a name, and choose it by that");
            return None;
        }
        Some(index)
    }
}

fn is_off(reader: &mut Reader<'_>, node: &Node) -> Option<bool> {
    let off = property(node, "off")?;
    let flag = reader.flag(&off.value)?;
    let others = node.arguments.first().map(|value| value.span);
    if flag && let Some(other) = others.or(node.properties.iter().find(|other| other.name != "off").map(|o| o.span)) {
        reader.report.add(Code::Contradiction, other, "a log is described and switched off").related(off.span, "here");
    }
    Some(flag)
}

fn describe(reader: &mut Reader<'_>, node: &Node, target: &Value) -> Option<Log> {
    let name = reader.line(target)?;
    let path = property(node, "path");
    let target = match name.as_str() {
        "stdout" | "-" => LogTarget::Stdout,
        "syslog" => {
            let socket = path.map_or(Some(PathBuf::from(SYSLOG)), |path| reader.path(&path.value))?;
            LogTarget::Syslog(socket)
        }
        path => LogTarget::File(reader.resolve(target.span, path)),
    };
    if let (Some(path), false) = (path, matches!(target, LogTarget::Syslog(_))) {
        let draft = reader.report.add(Code::Contradiction, path.span, "`path` is for \"syslog\" only");
        draft.note("a file's path is the value itself: log \"/var/log/access.log\"");
    }
    let format =
        property(node, "format").map_or(Some(LogFormat::default()), |format| reader.word(&format.value, FORMATS));
    let mut log = Log {
        place: reader.place(node.span),
        target,
        format: format.unwrap_or_default(),
        fields: Vec::new(),
        rotation: Rotation::default(),
        mode: LOG_MODE_DEFAULT,
    };
    let mut seen = SeenSettings::default();
    for child in node.children.iter().flatten() {
        match child.name.as_str() {
            "fields" | "rotate" | "mode" if !reader.first(&mut seen, child) => {}
            "fields" => {
                fields(reader, child, &mut log);
                if let Some(format) = format.filter(|format| *format != LogFormat::Json) {
                    let draft = reader.report.add(
                        Code::Contradiction,
                        child.span,
                        format!("the {} format has its own fields", format_name(format)),
                    );
                    draft.label("fields can be chosen with format=\"json\"");
                }
            }
            "rotate" => {
                rotate(reader, child, &mut log.rotation);
                if !matches!(log.target, LogTarget::File(_)) {
                    reader.report.add(Code::Contradiction, child.span, "only files can be rotated");
                }
            }
            "mode" => {
                if reader.shape(child, &MODE)
                    && let Some(mode) = reader.word(&child.arguments[0], MODES)
                {
                    log.mode = mode;
                }
                if !matches!(log.target, LogTarget::File(_)) {
                    reader.report.add(Code::Contradiction, child.span, "only files have permissions");
                }
            }
            _ => reader.unknown(child, &["fields", "rotate", "mode"]),
        }
    }
    Some(log)
}

fn fields(reader: &mut Reader<'_>, node: &Node, log: &mut Log) {
    reader.shape(node, &FIELDS);
    for value in &node.arguments {
        let Some(field) = reader.word::<LogField>(value, LogField::ALL) else { continue };
        if log.fields.contains(&field) {
            reader.same_twice(value.span, "this field");
        } else {
            log.fields.push(field);
        }
    }
}

fn rotate(reader: &mut Reader<'_>, node: &Node, rotation: &mut Rotation) {
    reader.shape(node, &ROTATE);
    if property(node, "size").is_none() && property(node, "age").is_none() {
        let draft = reader.report.add(Code::PropertyMissing, node.span, "`rotate` needs size, age, or both");
        draft.note(format!("as in: {}", ROTATE.example));
    }
    // Smaller than 4 KiB, or younger than a minute: a mistake that would fill a folder with files.
    let size = property(node, "size").and_then(|size| reader.size(&size.value, 4096..=1 << 40));
    let age = property(node, "age").and_then(|age| reader.duration(&age.value, 60_000..=366 * 86_400_000));
    let keep = property(node, "keep").and_then(|keep| reader.number(&keep.value, 0..=10_000));
    *rotation =
        Rotation { bytes_max: size, age_max_s: age.map(|age_ms| age_ms / 1_000), keep: keep.unwrap_or(0) as u32 };
}
