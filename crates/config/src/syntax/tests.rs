//! Compares the trees with the documents of the `kdl` crate.

use super::{Node, Scalar, Value, parse_document};
use crate::code::Code;
use crate::diagnostic::{Report, Texts};
use kdl::{KdlDocument, KdlEntry, KdlNode, KdlValue};
use proptest::prelude::*;

/// A tree as text, without places. Properties follow the values, because their order has no meaning.
fn show(nodes: &[Node]) -> String {
    let value = |value: &Value| {
        let annotation = value.annotation.map_or(String::new(), |annotation| format!("({})", annotation.name()));
        match &value.scalar {
            Scalar::Text(text) => format!("{annotation}{text:?}"),
            Scalar::Integer(integer) => format!("{annotation}{integer}"),
            Scalar::Float(float) => format!("{annotation}{float:?}"),
            Scalar::Bool(flag) => format!("{annotation}#{flag}"),
            Scalar::Null => format!("{annotation}#null"),
        }
    };
    let node = |node: &Node| {
        let values: Vec<String> = node.arguments.iter().map(value).collect();
        let properties =
            node.properties.iter().map(|property| format!("{:?}={}", property.name, value(&property.value)));
        let properties: Vec<String> = properties.collect();
        let children = node.children.as_ref().map_or(String::new(), |children| format!("{{{}}}", show(children)));
        format!("{:?} {values:?} {properties:?} {children};", node.name)
    };
    nodes.iter().map(node).collect()
}

fn show_document(document: &KdlDocument) -> String {
    let value = |entry: &KdlEntry| {
        let annotation = entry.ty().map_or(String::new(), |ty| format!("({})", ty.value()));
        match entry.value() {
            KdlValue::String(text) => format!("{annotation}{text:?}"),
            KdlValue::Integer(integer) => format!("{annotation}{integer}"),
            KdlValue::Float(float) => format!("{annotation}{float:?}"),
            KdlValue::Bool(flag) => format!("{annotation}#{flag}"),
            KdlValue::Null => format!("{annotation}#null"),
        }
    };
    let node = |node: &KdlNode| {
        let values: Vec<String> = node.entries().iter().filter(|entry| entry.name().is_none()).map(value).collect();
        let properties = node.entries().iter().filter_map(|entry| Some((entry.name()?, entry)));
        let properties: Vec<String> =
            properties.map(|(name, entry)| format!("{:?}={}", name.value(), value(entry))).collect();
        let children = node.children().map_or(String::new(), |children| format!("{{{}}}", show_document(children)));
        format!("{:?} {values:?} {properties:?} {children};", node.name().value())
    };
    document.nodes().iter().map(node).collect()
}

/// Valid KDL that is rejected because it is never what the author meant.
const STRICTER: &[Code] = &[
    Code::QuotesMissing,
    Code::CommaStray,
    Code::AnnotationUnknown,
    Code::TooDeep,
    Code::KeywordBare,
    Code::CallForm,
    Code::QuoteUnclosed,
    Code::CharacterBad,
];

fn compare(text: &str) -> Result<(), String> {
    let mut report = Report::new();
    let mut texts = Texts::default();
    texts.add("test.kdl".into(), text.to_owned());
    let ours = parse_document(0, text, &mut report);
    let theirs = KdlDocument::parse(text);
    match (report.is_empty(), theirs) {
        (true, Ok(theirs)) => {
            let (ours, theirs) = (show(&ours), show_document(&theirs));
            if ours == theirs { Ok(()) } else { Err(format!("{text:?}:\nwe read   {ours}\nkdl reads {theirs}")) }
        }
        // A defect of kdl 6.7: `/-a;` is valid KDL, but it accepts only a newline after a commented-out part.
        (true, Err(_)) if text.contains("/-") && text.contains(';') => Ok(()),
        (true, Err(error)) => {
            let why: Vec<_> = error.diagnostics.into_iter().filter_map(|diagnostic| diagnostic.message).collect();
            Err(format!("kdl refuses what we take: {text:?} {why:?}"))
        }
        (false, Ok(_)) => {
            let found = report.finish(&texts);
            let is_stricter = found.list.iter().any(|diagnostic| STRICTER.contains(&diagnostic.code));
            // kdl 6.7 is lenient around `/-`: it accepts `#true/-1`, `/-a {}b`, `/-/-a` and `a {}/-b`.
            let lenient = ["a space is needed", "a block must be", "nothing follows this `/-`", "after a block"];
            let is_lenient = |message: &str| lenient.iter().any(|start| message.starts_with(start));
            let is_lenient = text.contains("/-") && found.list.iter().all(|diagnostic| is_lenient(&diagnostic.message));
            if is_stricter || is_lenient { Ok(()) } else { Err(format!("we refuse what kdl takes: {text:?}\n{found}")) }
        }
        (false, Err(_)) => Ok(()),
    }
}

#[test]
fn examples_of_every_form() {
    let texts = [
        "",
        "\u{feff}a 1",
        "a b c=d \"e\" f=\"g\" 1 -2 +3 0x1F 0b101 0o17 1_000 2.5 1e3 #true #false #null",
        "a; b; c",
        "a { b; c { d 1 } }",
        "a {}",
        "a { }\nb",
        "a \"x\\n\\t\\u{1F600}\\\\ \\\"\" #\"raw \\ \"quote\" \"# ##\"a\"#b\"##",
        "a \"one \\   \n   two\"",
        "a \"\"\"\n    first\n      second\n    \"\"\" b",
        "a #\"\"\"\n  raw \\n\n  \"\"\"#",
        "/- a 1\nb",
        "/-\na 1\nb",
        "a /-1 2 /-x=3 y=4",
        "a /-{ b } { c }",
        "a { c } /-{ d }",
        "a 1 /- { b }\nc",
        "a \\\n  1 \\ // why\n  2",
        "a /* one /* two */ */ 1 // end",
        "\"quoted name\" \"quoted key\"=1",
        "a (env)\"X\" (file)\"y\" k=(env)\"Z\" k2 = ( env ) \"W\"",
        "a\u{2028}b\u{85}c\r\nd\re",
        "a\u{3000}1\u{a0}2",
        "- -a --b .c",
        "a=1",
        "a\"b\"",
        "a\"b\"=1",
        "a }",
        "a { b",
        "a 1.2.3",
        "true",
        "a true",
        "a b=",
        "a =b",
        "{ }",
        "a \"\"",
        "a \"\"\"x\"\"\"",
        "a \"\"\"\"",
        "a #\"\"#",
        "a foo/*c*/bar",
        "a 1/*c*/2",
        "a/*c*/b",
        "a;;b",
        ";a",
        "a /-b=/-c",
        "/-/-a",
        "a /-",
        "a \\ b",
        "a \\",
        "a (env) \"x\"",
        "a\\\n1",
        "a {b}",
        "a {b}{c}",
        "a {b} {c}",
        "a 1{b}",
        "a \u{7f}",
        "a \"\\s\\x\"",
        "a \"\\u{110000}\"",
        "a \"\"\"\n  x\n y\n  \"\"\"",
    ];
    let faults: Vec<String> = texts.iter().filter_map(|text| compare(text).err()).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Pieces whose combinations cover every path of both parsers.
const PIECES: &[&str] = &[
    "a",
    "b",
    " ",
    " ",
    " ",
    "\n",
    "\n",
    ";",
    "{",
    "}",
    "{\n",
    "\n}",
    "\"t\"",
    "=",
    "k=1",
    " 1",
    "-2",
    "0x1f",
    "1.5",
    "#true",
    "#null",
    "(env)",
    "(",
    ")",
    "/-",
    "/- ",
    "// c\n",
    "/* c */",
    "\\\n",
    "\\ ",
    "#\"r\"#",
    "\"\"\"\n x\n \"\"\"",
    "\"\\n\"",
    "\"\\q\"",
    ".",
    "-",
    "\r\n",
    "\u{2028}",
    "é",
    "\u{feff}",
    "true",
    ",",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn our_trees_are_those_of_kdl(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..14)) {
        let compared = compare(&pieces.concat());
        prop_assert!(compared.is_ok(), "{}", compared.unwrap_err());
    }
}
