//! The JSON form of a configuration: converts KDL to JSON and back. Only comments and formatting are lost.
//!
//! A document is an array of settings. Each setting is an object with `name` and, where present, `args` (an array),
//! `props` (an object) and `children` (an array of settings). A value is a string, a number, true, false or null. A
//! value from the environment or a file is an object: `{"env": "NAME"}` or `{"file": "path"}`.

use crate::code::Code;
use crate::diagnostic::{Diagnostics, Report, Texts};
use crate::encode::writer::{SettingWriter, quote};
use crate::syntax::{Annotation, Node, Scalar, Value, parse_document};
use serde_json::{Map, Value as Json, json};

/// The reason why a JSON document is not a valid configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// Line, counted from 1.
    pub line: usize,
    /// Column in bytes, counted from 1.
    pub column: usize,
    /// Description of the problem.
    pub message: String,
}

/// Converts KDL to JSON. Includes are not expanded; they remain settings named `include`.
pub fn kdl_to_json(name: &str, text: &str) -> Result<Json, Diagnostics> {
    let mut report = Report::new();
    let mut texts = Texts::default();
    let file = texts.add(name.to_owned(), text.to_owned());
    let nodes = parse_document(file, text, &mut report);
    let json = nodes.iter().map(|node| encode(node, &mut report)).collect();
    if report.is_empty() { Ok(Json::Array(json)) } else { Err(report.finish(&texts)) }
}

fn encode(node: &Node, report: &mut Report) -> Json {
    let mut object = Map::new();
    object.insert("name".into(), Json::String(node.name.clone()));
    if !node.arguments.is_empty() {
        let values = node.arguments.iter().map(|value| encode_value(value, report)).collect();
        object.insert("args".into(), Json::Array(values));
    }
    if !node.properties.is_empty() {
        let properties = node.properties.iter();
        let properties = properties.map(|property| (property.name.clone(), encode_value(&property.value, report)));
        object.insert("props".into(), Json::Object(properties.collect()));
    }
    if let Some(children) = &node.children {
        let children = children.iter().map(|child| encode(child, report)).collect();
        object.insert("children".into(), Json::Array(children));
    }
    Json::Object(object)
}

fn encode_value(value: &Value, report: &mut Report) -> Json {
    let plain = match &value.scalar {
        Scalar::Text(text) => Some(Json::String(text.clone())),
        Scalar::Bool(flag) => Some(Json::Bool(*flag)),
        Scalar::Null => Some(Json::Null),
        Scalar::Float(float) => serde_json::Number::from_f64(*float).map(Json::Number),
        Scalar::Integer(integer) => {
            let positive = u64::try_from(*integer).ok().map(Json::from);
            positive.or_else(|| i64::try_from(*integer).ok().map(Json::from))
        }
    };
    let Some(plain) = plain else {
        report.add(Code::NumberBounds, value.span, "JSON cannot represent this number");
        return Json::Null;
    };
    match value.annotation {
        Some(annotation) => json!({ annotation.name(): plain }),
        None => plain,
    }
}

/// Converts JSON to KDL.
pub fn json_to_kdl(text: &str) -> Result<String, JsonError> {
    let json: Json = serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        JsonError {
            line: error.line(),
            column: error.column().max(1),
            message: format!("this is not valid JSON: {message}"),
        }
    })?;
    let mut writer = SettingWriter::default();
    decode_list(&json, "", &mut writer)?;
    Ok(writer.finish())
}

fn fault(path: &str, message: &str) -> JsonError {
    let place = if path.is_empty() { "top level" } else { path };
    JsonError { line: 1, column: 1, message: format!("{place}: {message}") }
}

fn decode_list(json: &Json, path: &str, writer: &mut SettingWriter) -> Result<(), JsonError> {
    let Json::Array(list) = json else {
        return Err(fault(path, "expected an array of settings"));
    };
    for (index, setting) in list.iter().enumerate() {
        decode(setting, &format!("{path}/{index}"), writer)?;
    }
    Ok(())
}

fn decode(json: &Json, path: &str, writer: &mut SettingWriter) -> Result<(), JsonError> {
    let Json::Object(object) = json else {
        return Err(fault(path, "a setting must be an object"));
    };
    const KEYS: [&str; 4] = ["name", "args", "props", "children"];
    if let Some(key) = object.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(fault(path, &format!("unknown key \"{key}\"; allowed here: {}", KEYS.join(", "))));
    }
    let Some(Json::String(name)) = object.get("name") else {
        return Err(fault(path, "a setting needs a \"name\", which must be a string"));
    };
    writer.begin(name);
    match object.get("args") {
        None => {}
        Some(Json::Array(values)) => {
            for (index, value) in values.iter().enumerate() {
                writer.raw(&decode_value(value, &format!("{path}/args/{index}"))?);
            }
        }
        Some(_) => return Err(fault(path, "\"args\" must be an array")),
    }
    match object.get("props") {
        None => {}
        Some(Json::Object(properties)) => {
            for (name, value) in properties {
                writer.raw_property(name, &decode_value(value, &format!("{path}/props/{name}"))?);
            }
        }
        Some(_) => return Err(fault(path, "\"props\" must be an object")),
    }
    if let Some(children) = object.get("children") {
        writer.open();
        decode_list(children, &format!("{path}/children"), writer)?;
        writer.close();
    } else {
        writer.end();
    }
    Ok(())
}

fn decode_value(json: &Json, path: &str) -> Result<String, JsonError> {
    Ok(match json {
        Json::Null => "#null".into(),
        Json::Bool(true) => "#true".into(),
        Json::Bool(false) => "#false".into(),
        Json::Number(number) => number.to_string(),
        Json::String(text) => quote(text),
        Json::Array(_) => return Err(fault(path, "a value cannot be an array")),
        Json::Object(object) => {
            let mut entries = object.iter();
            let (Some((name, value)), None) = (entries.next(), entries.next()) else {
                return Err(fault(path, "an object as a value must be {\"env\": …} or {\"file\": …}"));
            };
            let (Some(annotation), Json::String(text)) = (Annotation::of(name), value) else {
                return Err(fault(path, "an object as a value must be {\"env\": \"NAME\"} or {\"file\": \"path\"}"));
            };
            format!("({}){}", annotation.name(), quote(text))
        }
    })
}
