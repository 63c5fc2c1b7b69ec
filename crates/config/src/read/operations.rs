//! Header operations, in `header` and in `request-header`.

use crate::encode::writer::SettingWriter;
use crate::model::FieldOp;

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
