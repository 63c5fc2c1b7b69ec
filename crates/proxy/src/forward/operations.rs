//! Changes of fields that the settings ask for.

use super::names::{Kind, Name};
use super::write_line;
use flatout_config::model::FieldOp;

/// Changes, in written order. Those of fields that belong to a connection or its framing are void.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operations<'a>(pub(super) &'a [FieldOp]);

impl Operations<'_> {
    /// Whether a field that is there otherwise goes.
    pub(super) fn remove(self, name: &str) -> bool {
        self.0.iter().any(|operation| clears(operation, name)) && is_free(name)
    }

    /// Appends what is set and added, as far as nothing behind it clears it again.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        for (at, operation) in self.0.iter().enumerate() {
            let (FieldOp::Set(name, value) | FieldOp::Add(name, value)) = operation else { continue };
            if is_free(name) && !self.0[at + 1..].iter().any(|later| clears(later, name)) {
                write_line(out, name, value.as_bytes());
            }
        }
    }
}

fn clears(operation: &FieldOp, name: &str) -> bool {
    match operation {
        FieldOp::Set(other, _) | FieldOp::Remove(other) => other.eq_ignore_ascii_case(name),
        FieldOp::Add(..) => false,
    }
}

fn is_free(name: &str) -> bool {
    !matches!(Name::new(name).kind, Kind::HopByHop | Kind::Te | Kind::Length)
}
