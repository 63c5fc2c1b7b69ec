//! Header operations, in `header` and in `request-header`.

use super::field::{field_value, token};
use super::reader::Reader;
use super::setting::{Setting, read_block};
use super::shape::{Shape, property};
use crate::code::Code;
use crate::encode::writer::SettingWriter;
use crate::model::FieldOp;
use crate::syntax::{Node, Scalar, Value};
use flatout_http::lines::{FieldOpKind, is_coding_field};

const SET: Shape = Shape::value("set \"X-Frame-Options\" \"DENY\"").takes(2, 2).with(&["always"]);
const REMOVE: Shape = Shape::values(1, "remove \"Server\"");

/// Returns advice, which may be empty, if a field must not be changed; returns `None` for all other fields.
pub(super) type FindOwned = fn(&str) -> Option<&'static str>;

/// A list of header operations under construction.
struct Operations {
    list: Vec<FieldOp>,
    /// Finds fields that must not be changed.
    owned: FindOwned,
    /// The variables that values must not contain.
    without: &'static [&'static str],
    /// True if the operations change responses.
    of_responses: bool,
}

/// Returns the setting for operations of `kind`. An operation with a value has one field, other operations have a list
/// of fields.
const fn operation(kind: FieldOpKind) -> Setting<Operations> {
    let shape = if kind.has_value { SET } else { REMOVE };
    Setting::read_only(kind.word, shape, |reader, node, operations: &mut Operations| {
        let kind = FieldOpKind::ALL.into_iter().find(|kind| kind.word == node.name);
        operations.read(reader, node, kind.unwrap_or(FieldOpKind::SET));
    })
    .repeated()
}

impl Operations {
    /// Reads the name and value of `node`, or all its names, and skips those that are invalid.
    fn read(&mut self, reader: &mut Reader<'_>, node: &Node, kind: FieldOpKind) {
        if !kind.has_value {
            let names = node.arguments.iter().filter_map(|name| field_name(reader, name, self.owned));
            return self.list.extend(names.map(|name| FieldOp::new(kind, name, String::new())));
        }
        let [name, value, ..] = &node.arguments[..] else { return };
        let sets_coding =
            |name: &str| self.of_responses && kind == FieldOpKind::SET && is_coding_field(name.as_bytes());
        let is_coding = matches!(&name.scalar, Scalar::Text(name) if sets_coding(name));
        let owned: FindOwned = if is_coding { |_| None } else { self.owned };
        let (name, text) = (field_name(reader, name, owned), field_value(reader, value));
        let text = text.filter(|text| reader.check_field_text(value.span, text, self.without));
        let Some((name, text)) = name.zip(text) else { return };
        let operation = FieldOp::new(kind, name, text);
        if is_coding && operation.coding().is_none() {
            let draft = reader.report.add(Code::FieldValueBad, value.span, "this is not a supported content coding");
            draft.label("\"br\", \"zstd\" or \"gzip\"");
            return;
        }
        let property = property(node, "always");
        let always = property.and_then(|property| reader.flag(&property.value)).unwrap_or(false);
        let has_effect = self.of_responses && operation.sets_lifetime();
        if let (true, false, Some(property)) = (always, has_effect, property) {
            let draft = reader.report.add(Code::Contradiction, property.span, "`always` has no effect here");
            draft.label("only a lifetime in a response, such as `max-age` in Cache-Control, is left out of errors");
        }
        self.list.push(if always { operation.always() } else { operation });
    }
}

/// Reads header operations: either a single operation in the line, or several in the block. The shape of `node` has
/// already been checked. Fields for which `owned` returns advice must not be changed, and values must not contain the
/// variables in `without`.
pub(super) fn read(
    reader: &mut Reader<'_>,
    node: &Node,
    example: &str,
    owned: FindOwned,
    without: &'static [&'static str],
) -> Vec<FieldOp> {
    let kind = &node.name;
    if let (Some(always), true) = (property(node, "always"), node.arguments.is_empty()) {
        let draft = reader.report.add(Code::Contradiction, always.span, "`always` belongs to a value");
        draft.label("write it after each value in the block that it applies to");
    }
    let mut operations = Operations { list: Vec::new(), owned, without, of_responses: kind == "header" };
    match (&node.arguments[..], &node.children) {
        ([], None) => {
            let message = format!("`{kind}` needs a name and a value, or a block");
            reader.report.add(Code::ValueMissing, node.span, message).note(format!("as in: {example}"));
        }
        ([name], _) => {
            let message = format!("`{kind}` needs a value after the name");
            let draft = reader.report.add(Code::ValueMissing, name.span, message);
            draft.note(format!("to remove a field: {kind} {{ remove \"Name\" }}"));
        }
        _ => operations.read(reader, node, FieldOpKind::SET),
    }
    read_block(reader, node, &FieldOpKind::ALL.map(operation), &mut operations);
    operations.list
}

/// Reads the name of a field that may be changed, and returns it in its original case.
fn field_name(reader: &mut Reader<'_>, value: &Value, owned: FindOwned) -> Option<String> {
    let name = token(reader, value)?;
    if let Some(instead) = owned(&name) {
        let message = format!("only the server sets `{name}`");
        let draft = reader.report.add(Code::FieldOwned, value.span, message);
        if !instead.is_empty() {
            draft.label(instead);
        }
        return None;
    }
    Some(name)
}

/// Prints header operations as a setting named `name`.
pub(crate) fn write(writer: &mut SettingWriter, name: &str, operations: &[FieldOp]) {
    if operations.is_empty() {
        return writer.begin(name).raw("{}").end();
    }
    writer.begin(name).block(|writer| {
        for operation in operations {
            writer.begin(operation.kind.word).text(operation.name());
            writer.texts(operation.value().as_slice());
            if operation.is_always() {
                writer.raw_property("always", "#true");
            }
            writer.end();
        }
    });
}
