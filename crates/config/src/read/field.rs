//! Names and values in requests and responses: methods, fields, cookies.

use super::parse;
use super::reader::Reader;
use crate::code::Code;
use crate::syntax::Value;

/// Reads a field name, which may be any token.
pub(super) fn token(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let name = reader.text(value)?;
    if !parse::is_token(&name) {
        let shown = if name.is_empty() { "an empty string".to_owned() } else { format!("`{name}`") };
        let draft = reader.report.add(Code::FieldNameBad, value.span, format!("{shown} is not a valid field name"));
        if name.ends_with(':') {
            draft.label("remove the colon");
        }
        return None;
    }
    Some(name)
}

/// Reads a field value (RFC 9110 §5.5).
pub(super) fn field_value(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let text = reader.text(value)?;
    if !parse::is_field_value(&text) {
        reader
            .report
            .add(Code::FieldValueBad, value.span, "this is not a valid field value")
            .note("it must not contain control characters, or begin or end with a space");
        return None;
    }
    Some(text)
}

/// Reads a method in upper case.
pub(super) fn method(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let text = reader.text(value)?;
    let upper = text.to_ascii_uppercase();
    if !parse::is_token(&text) || text != upper {
        let draft = reader.report.add(Code::MethodBad, value.span, format!("`{text}` is not a valid method"));
        if parse::is_token(&text) {
            draft.label(format!("write methods in uppercase: \"{upper}\""));
        } else if text.contains([',', ' ']) {
            draft.note("to list multiple methods: route { match { method \"GET\" \"POST\" }; … }");
        }
        return None;
    }
    Some(text)
}

/// Reads a cookie name, optionally with a trailing `*`.
pub(super) fn cookie_pattern(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    cookie(reader, value, "use a cookie name, such as \"sid\" or \"_ga_*\"", |name| {
        name == "*" || parse::is_token(name) && !name.strip_suffix('*').unwrap_or(name).contains('*')
    })
}

/// Reads a cookie name, in which a `*` is not allowed.
pub(super) fn cookie_name(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    cookie(reader, value, "such as \"lang\", without `*`", |name| parse::is_token(name) && !name.contains('*'))
}

fn cookie(reader: &mut Reader<'_>, value: &Value, advice: &str, fits: fn(&str) -> bool) -> Option<String> {
    let name = reader.line(value)?;
    if !fits(&name) {
        let draft = reader.report.add(Code::CookieNameBad, value.span, format!("`{name}` is not a valid cookie name"));
        draft.label(advice);
        return None;
    }
    Some(name)
}
