//! Checks actual output against the schema in docs/schema/.
//!
//! The checker supports only the parts of JSON Schema 2020-12 that this schema uses, and rejects others. It is stricter
//! than a reader has to be: a field that the schema does not describe is an error.

use super::super::harness::{Folder, Server};
use super::bench;
use serde_json::{Map, Value, json};

const SCHEMA: &str = include_str!("../../../docs/schema/bench-report.schema.json");

/// Keywords that do not restrict a value.
const SILENT: [&str; 5] = ["$schema", "$comment", "$defs", "title", "description"];

struct Checker<'a> {
    root: &'a Value,
    findings: Vec<String>,
}

impl Checker<'_> {
    fn check(&mut self, at: &str, schema: &Value, value: &Value) {
        for (keyword, rule) in schema.as_object().unwrap().iter().filter(|(name, _)| !SILENT.contains(&name.as_str())) {
            let holds = match keyword.as_str() {
                "type" => types(rule).any(|name| is_a(name, value)),
                "const" => rule == value,
                "enum" => rule.as_array().unwrap().contains(value),
                "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
                "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
                "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap()),
                "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= rule.as_u64().unwrap()),
                "pattern" => value.as_str().is_none_or(|text| matches_pattern(rule.as_str().unwrap(), text)),
                "required" => value.as_object().is_none_or(|fields| {
                    rule.as_array().unwrap().iter().all(|name| fields.contains_key(name.as_str().unwrap()))
                }),
                "additionalProperties" => *rule == json!(false),
                "properties" => {
                    if let Some(fields) = value.as_object() {
                        self.properties(at, rule.as_object().unwrap(), fields);
                    }
                    true
                }
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(&format!("{at}/{index}"), rule, item);
                    }
                    true
                }
                "prefixItems" => {
                    for (index, (rule, item)) in
                        rule.as_array().unwrap().iter().zip(value.as_array().into_iter().flatten()).enumerate()
                    {
                        self.check(&format!("{at}/{index}"), rule, item);
                    }
                    true
                }
                "anyOf" => rule.as_array().unwrap().iter().any(|rule| {
                    let mut one = Checker { root: self.root, findings: Vec::new() };
                    one.check(at, rule, value);
                    one.findings.is_empty()
                }),
                "$ref" => {
                    let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                    self.check(at, &self.root["$defs"][name], value);
                    true
                }
                other => panic!("the checker does not support {other:?}"),
            };
            if !holds {
                self.findings.push(format!("{at}: {keyword} {rule} does not hold for {value:.200}"));
            }
        }
    }

    fn properties(&mut self, at: &str, rules: &Map<String, Value>, fields: &Map<String, Value>) {
        for (name, field) in fields {
            match rules.get(name) {
                Some(rule) => self.check(&format!("{at}/{name}"), rule, field),
                None => self.findings.push(format!("{at}/{name} is not described")),
            }
        }
    }
}

fn types(rule: &Value) -> impl Iterator<Item = &str> {
    rule.as_array().map_or(std::slice::from_ref(rule), Vec::as_slice).iter().map(|name| name.as_str().unwrap())
}

fn is_a(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("no type is called {other}"),
    }
}

/// The two patterns of the schema.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    match pattern {
        "^[0-9]+$" => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()),
        "^HISTFAAA" => text.starts_with("HISTFAAA"),
        other => panic!("the checker does not support {other:?}"),
    }
}

fn findings(value: &Value) -> Vec<String> {
    findings_by(SCHEMA, value)
}

/// How `value` violates the schema.
pub(crate) fn findings_by(schema: &str, value: &Value) -> Vec<String> {
    let schema: Value = serde_json::from_str(schema).unwrap();
    let mut checker = Checker { root: &schema, findings: Vec::new() };
    checker.check("", &schema, value);
    checker.findings
}

#[test]
fn results_match_the_schema() {
    let site = Folder::with(&[("a.txt", &[b'a'; 1024])]);
    let server = Server::start(site.path(), &[]);
    let url = server.url("/a.txt");
    let sessions = [
        "--rate",
        "40",
        "--arrivals",
        "exp",
        "--arrival-unit",
        "session",
        "--session-length",
        "30%:1,70%:uniform:2..5",
    ];
    let mut whole = Value::Null;
    for arguments in [
        &["-n", "100", "-c", "4"][..],
        &["--rate", "50..150:50", "-d", "1s", "--require", "p99<1s", "--arrivals", "uniform:0.5"],
        &[&sessions[..], &["--think-time", "exp:5ms", "-d", "1s", "--warm-up", "200ms"]].concat(),
        &["--precision", "50", "--calls", "3", "-c", "2", "--limit", "-d", "20s"],
    ] {
        let result = bench(&[&[url.as_str()], arguments].concat());
        let findings = findings(&result.json);
        assert!(findings.is_empty(), "{arguments:?}: {findings:#?}");
        whole = result.json;
    }
    // The checker also detects errors.
    type Break = fn(&mut Value);
    let broken: [(&str, Break); 6] = [
        ("schema", |value| value["schema"] = json!("other")),
        ("schema_version", |value| value["schema_version"] = json!(4)),
        ("seed", |value| value["seed"] = json!("42")),
        ("/steps/0/extra is not described", |value| value["steps"][0]["extra"] = json!(1)),
        ("required", |value| {
            value["steps"][0].as_object_mut().unwrap().remove("record");
        }),
        ("loop", |value| value["steps"][0]["plan"]["loop"] = json!("half-open")),
    ];
    for (what, spoil) in broken {
        let mut value = whole.clone();
        spoil(&mut value);
        let findings = findings(&value);
        assert!(findings.len() == 1 && findings[0].contains(what), "{what}: {findings:#?}");
    }
}
