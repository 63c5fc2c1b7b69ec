//! The JSON form of diagnostics.

use super::{Diagnostic, Diagnostics};
use crate::model::Place;
use serde_json::{Value, json};

/// The version of the JSON format, which is incremented with every incompatible change.
const SCHEMA: u32 = 1;

impl Diagnostics {
    /// Encodes all diagnostics as one JSON object with the members `schema`, `valid`, `errors` and `more`.
    pub fn to_json(&self) -> Value {
        let errors: Vec<Value> = self.list.iter().map(encode).collect();
        json!({ "schema": SCHEMA, "valid": self.list.is_empty(), "errors": errors, "more": self.more })
    }
}

fn encode(diagnostic: &Diagnostic) -> Value {
    let related = |related: &super::Related| json!({ "place": place(&related.place), "label": related.label });
    let line = diagnostic.excerpt.as_ref().map(|excerpt| excerpt.line.clone());
    json!({
        "code": diagnostic.code.id(),
        "message": diagnostic.message,
        "place": place(&diagnostic.place),
        "line": line,
        "label": diagnostic.label,
        "related": diagnostic.related.iter().map(related).collect::<Vec<_>>(),
        "notes": diagnostic.notes,
    })
}

fn place(place: &Place) -> Value {
    json!({ "file": place.file, "line": place.line, "column": place.column })
}
