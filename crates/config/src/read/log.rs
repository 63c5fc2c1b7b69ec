//! Access logs: the default log, named logs, and logs of single sites.

use super::parse::show_duration;
use super::reader::Reader;
use super::setting::{Group, Inner, List, Parsed, Setting, Words, word_of};
use super::shape::{Shape, property};
use crate::code::Code;
use crate::diagnostic::Span;
use crate::encode::writer::{SettingWriter, path, quote};
use crate::model::Log;
use crate::syntax::{Node, Value};
use flatout_http::access::{AccessField, LogDestination, LogFormat, LogSettings, Rotation};
use std::path::{Path, PathBuf};

/// `log`, except for its target, format and name, which are read separately.
pub(super) const LOG: Group<LogSettings> = Group {
    shape: Shape::none("log \"access.log\" format=\"json\"")
        .takes(0, 1)
        .with(&["name", "format", "path", "off"])
        .may_have_block(),
    properties: &[],
    block: &[
        Setting::list(
            "fields",
            Shape::values(1, "fields \"time\" \"client\" \"status\""),
            &List(
                "this field",
                |reader, value| {
                    let words: Vec<_> = AccessField::ALL.iter().map(|field| (*field, field.name())).collect();
                    reader.word(value, &words)
                },
                |field| field.name().to_owned(),
                |log: &mut LogSettings| &mut log.fields,
            ),
        ),
        Setting::group("rotate", &Inner(&ROTATE, |log: &mut LogSettings| &mut log.rotation)),
        Setting::value("mode", "mode \"0644\"", &Words(MODES, |log: &mut LogSettings| &mut log.mode)),
    ],
};

const ROTATE_EXAMPLE: &str = "rotate size=\"100MiB\" age=\"1d\" keep=7";

/// `rotate`. The lower bounds are 4 KiB and a minute, because smaller values would fill a folder with files.
const ROTATE: Group<Rotation> = Group {
    shape: Shape::none(ROTATE_EXAMPLE),
    properties: &[
        Setting::size("size", "", 4096..=1 << 40, |rotation| &mut rotation.bytes_max),
        Setting::value(
            "age",
            "",
            &Parsed {
                read: |reader, value| {
                    Some(reader.duration(value, 60_000..=366 * 86_400_000).map(|age_ms| age_ms / 1_000))
                },
                show: |age_s| quote(&show_duration(age_s.unwrap_or_default().saturating_mul(1_000))),
                field: |rotation: &mut Rotation| &mut rotation.age_max_s,
            },
        ),
        Setting::number("keep", "", 0..=10_000, |rotation| &mut rotation.keep),
    ],
    block: &[],
};

/// The permissions that a log file can have.
const MODES: &[(u32, &str)] = &[(0o600, "0600"), (0o640, "0640"), (0o644, "0644")];

const FORMATS: &[(LogFormat, &str)] =
    &[(LogFormat::Combined, "combined"), (LogFormat::Short, "short"), (LogFormat::Json, "json")];

/// The socket of the system's syslog daemon.
const SYSLOG: &str = "/dev/log";

/// All logs, with their names.
#[derive(Clone, Default)]
pub(super) struct Logs {
    list: Vec<(Log, Span)>,
    named: Vec<(String, usize, Span)>,
    /// The log of sites without a `log` setting, as an index, and the place of the setting that defines it. The index
    /// is `None` if such sites are not logged.
    default: Option<(Option<usize>, Span)>,
}

impl Logs {
    pub(super) fn into_list(self) -> Vec<Log> {
        self.list.into_iter().map(|(log, _)| log).collect()
    }

    /// The log of sites without a `log` setting; `None` if they are not logged.
    pub(super) fn of_all_sites(&self) -> Option<usize> {
        self.default.and_then(|(log, _)| log)
    }

    /// Reads a top-level `log`: either the default log, or a named log that sites can select.
    pub(super) fn top(&mut self, reader: &mut Reader<'_>, node: &Node) {
        reader.shape(node, &LOG.shape);
        let name = property(node, "name");
        if is_off(reader, node) == Some(true) {
            return self.set_default(reader, None, node.span);
        }
        let Some(target) = node.arguments.first() else {
            let draft = reader.report.add(Code::ValueMissing, node.span, "`log` needs a target");
            draft.note("use a file path, \"stdout\" or \"syslog\", as in: log \"access.log\" format=\"json\"");
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
            let draft = reader.report.add(Code::GivenTwice, span, "two logs apply to all sites");
            draft
                .related(first, "the first one")
                .note("give names to all but one of them, so that sites can select them: log name=\"…\"");
            return;
        }
        self.default = Some((log, span));
    }

    /// Reads a site's `log`: a separate log, a named log, or none.
    pub(super) fn site(&mut self, reader: &mut Reader<'_>, node: &Node) -> Option<usize> {
        reader.shape(node, &LOG.shape);
        if is_off(reader, node) == Some(true) {
            return None;
        }
        let name = property(node, "name");
        match (node.arguments.first(), name) {
            (Some(_), Some(name)) => {
                let draft = reader.report.add(Code::WrongPlace, name.span, "a site's own log needs no name");
                draft.label("define named logs at the top level, and select one here with log name=\"…\"");
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
            let draft = reader.report.add(Code::WrongPlace, span, "a log selected by name takes no other settings");
            draft.label("move this to the log's definition at the top level");
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
                format!("define it at the top level, as in: log \"access.log\" name=\"{text}\"")
            } else {
                format!("defined logs: {}", names.join(", "))
            });
        }
        found.map(|(_, index, _)| *index)
    }

    /// Adds a log, or returns the existing log if it has the same target and the same settings. If the settings differ,
    /// reports it, because two writers to one file would mix their lines and rotate it twice.
    fn insert(&mut self, reader: &mut Reader<'_>, log: Log, span: Span) -> Option<usize> {
        let Some(index) = self.list.iter().position(|(known, _)| known.settings.target == log.settings.target) else {
            self.list.push((log, span));
            return Some(self.list.len() - 1);
        };
        let (known, first) = &self.list[index];
        if known.settings != log.settings {
            let draft =
                reader.report.add(Code::LogConflict, span, "two logs have the same target but different settings");
            draft.related(*first, "the other one").note("define the log once with a name, and select it by that name");
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
        reader
            .report
            .add(Code::Contradiction, other, "this log is turned off, but has other settings")
            .related(off.span, "here");
    }
    Some(flag)
}

fn describe(reader: &mut Reader<'_>, node: &Node, target: &Value) -> Option<Log> {
    let name = reader.line(target)?;
    let path = property(node, "path");
    let target = match name.as_str() {
        "stdout" | "-" => LogDestination::Stdout,
        "syslog" => {
            let socket = path.map_or(Some(PathBuf::from(SYSLOG)), |path| reader.path(&path.value))?;
            LogDestination::Syslog(socket)
        }
        path => LogDestination::File(reader.resolve(target.span, path)),
    };
    if let (Some(path), false) = (path, matches!(target, LogDestination::Syslog(_))) {
        let draft = reader.report.add(Code::Contradiction, path.span, "`path` is only for \"syslog\"");
        draft.note("write a file's path as the value: log \"/var/log/access.log\"");
    }
    let format =
        property(node, "format").map_or(Some(LogFormat::default()), |format| reader.word(&format.value, FORMATS));
    let mut log = LogSettings { format: format.unwrap_or_default(), ..LogSettings::new(target) };
    LOG.read_parts(reader, node, &mut log);
    for child in node.children.iter().flatten() {
        match (child.name.as_str(), &log.target) {
            ("fields", _) => {
                if let Some(format) = format.filter(|format| *format != LogFormat::Json) {
                    let message = format!("the fields of the {} format are fixed", word_of(FORMATS, &format));
                    let draft = reader.report.add(Code::Contradiction, child.span, message);
                    draft.label("to choose fields, use format=\"json\"");
                }
            }
            ("rotate", target) => {
                if property(child, "size").is_none() && property(child, "age").is_none() {
                    let message = "`rotate` needs `size`, `age` or both";
                    let draft = reader.report.add(Code::PropertyMissing, child.span, message);
                    draft.note(format!("as in: {ROTATE_EXAMPLE}"));
                }
                if !matches!(target, LogDestination::File(_)) {
                    reader.report.add(Code::Contradiction, child.span, "only files can be rotated");
                }
            }
            ("mode", LogDestination::Stdout | LogDestination::Syslog(_)) => {
                reader.report.add(Code::Contradiction, child.span, "only files have permissions");
            }
            _ => {}
        }
    }
    Some(Log { place: reader.place(node.span), settings: log })
}

/// Prints a log, with the name by which sites select it.
pub(crate) fn write(writer: &mut SettingWriter, name: &str, log: &LogSettings) {
    writer.begin("log");
    match &log.target {
        LogDestination::Stdout => writer.text("stdout"),
        LogDestination::Syslog(socket) => writer.text("syslog").property("path", &path(socket)),
        LogDestination::File(file) => writer.text(&target_path(file)),
    };
    writer.property("name", name);
    if log.format != LogFormat::default() {
        writer.property("format", word_of(FORMATS, &log.format));
    }
    LOG.write(writer, log, &LogSettings::new(log.target.clone()));
}

/// Returns the path of a log file. A path that would be read as another kind of target gets a leading `./`.
fn target_path(file: &Path) -> String {
    let text = path(file);
    if matches!(text.as_str(), "stdout" | "syslog" | "-") { format!("./{text}") } else { text }
}
