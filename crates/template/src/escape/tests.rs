//! The output of an escaper parses back to the value, and never contains a delimiter of its context.

use super::{
    REFUSED_URL, attribute, handler_json, handler_string, script_data, script_json, script_string, script_text, text,
    url, url_part,
};
use proptest::prelude::*;

/// Characters that end a line in JavaScript but not in JSON.
const LINE: char = '\u{2028}';
const PARAGRAPH: char = '\u{2029}';

type Escaper = fn(&[u8], &mut Vec<u8>);

fn escaped(escaper: Escaper, input: &[u8]) -> String {
    let mut out = Vec::new();
    escaper(input, &mut out);
    String::from_utf8(out).unwrap()
}

/// Decodes character references as a browser does; every `&` must begin one.
fn decode_references(text: &str) -> String {
    let (first, rest) = text.split_once('&').map_or((text, None), |(first, rest)| (first, Some(rest)));
    let Some(rest) = rest else { return first.to_owned() };
    let (name, rest) = rest.split_once(';').unwrap();
    let character = match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        number => char::from_u32(number.strip_prefix('#').unwrap().parse().unwrap()).unwrap(),
    };
    format!("{first}{character}{}", decode_references(rest))
}

fn decode_percent(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::new();
    while let Some(byte) = bytes.next() {
        decoded.push(if byte == b'%' {
            let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
            u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
        } else {
            byte
        });
    }
    decoded
}

/// Arbitrary bytes, with those that are special in HTML, URLs and scripts occurring more often than by chance.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        any::<u8>().prop_map(|byte| vec![byte]),
        "[a-z ]{0,4}".prop_map(String::into_bytes),
        prop::sample::select(vec![
            "<",
            ">",
            "&",
            "\"",
            "'",
            "`",
            "\\",
            "/",
            "\r",
            "\n",
            "\0",
            "-->",
            "<!--",
            "</script",
            "javascript:",
            "data:",
            "]]>",
            "&amp;",
            "&#x3c;",
            "%00",
            "%",
            "${",
            "\u{2028}",
            "\u{2029}",
            "é",
            "\t",
            ":",
            "//",
            "http:",
            "\u{feff}",
            "\u{1f600}",
        ])
        .prop_map(|word| word.as_bytes().to_vec()),
    ];
    prop::collection::vec(word, 0..24).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn text_and_attributes_are_decoded_to_what_went_in(input in hostile()) {
        let expected = String::from_utf8_lossy(&input).replace('\0', "\u{fffd}");
        for escaper in [text as Escaper, attribute] {
            let out = escaped(escaper, &input);
            prop_assert!(!out.contains(['<', '>', '"', '\'', '\r', '\0']));
            prop_assert_eq!(decode_references(&out), expected.clone());
        }
    }

    #[test]
    fn a_part_of_a_url_is_decoded_to_what_went_in(input in hostile()) {
        let out = escaped(url_part, &input);
        prop_assert!(out.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte)));
        let expected = String::from_utf8_lossy(&input).into_owned();
        prop_assert_eq!(decode_percent(&out), expected.into_bytes());
    }

    #[test]
    fn a_url_has_an_allowed_scheme_or_none(input in hostile()) {
        let out = escaped(url, &input);
        prop_assert!(!out.contains(['<', '>', '"', '\'', '`', ' ', '\t', '\n', '\r', '\\']));
        let decoded = decode_references(&out);
        let scheme = decoded.split(['/', '?', '#']).next().unwrap().split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
        prop_assert!(
            decoded == REFUSED_URL || scheme.is_none_or(|scheme| super::SCHEMES.contains(&scheme.as_str())),
            "{}", decoded
        );
    }

    #[test]
    fn texts_in_scripts_are_parsed_to_what_went_in(input in hostile()) {
        let expected = String::from_utf8_lossy(&input).into_owned();
        let out = escaped(script_text, &input);
        prop_assert!(!out.contains(['<', '>', '&', '"', '\'', '`', '/', '\n', '\r', '\0', '$', LINE, PARAGRAPH, '=']));
        let quoted = escaped(script_string, &input);
        prop_assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), expected.clone());
        let handler = escaped(handler_string, &input);
        prop_assert!(!handler.contains(['"', '\'', '<', '>']));
        prop_assert_eq!(serde_json::from_str::<String>(&decode_references(&handler)).unwrap(), expected);
    }

    #[test]
    fn json_in_scripts_stays_what_it_was(keys in prop::collection::vec(hostile(), 0..4), number in any::<i64>()) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let members = keys.iter().map(|key| (text(key), serde_json::Value::from(text(key))));
        let value = serde_json::json!([number, null, true, members.collect::<serde_json::Map<_, _>>()]);
        for json in [value.to_string(), format!("{value:#}")] {
            let data = escaped(script_data, json.as_bytes());
            prop_assert!(!data.contains(['<', '>', '&', '\'', '\n', LINE, PARAGRAPH]));
            prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&data).unwrap(), &value);
            let handler = escaped(handler_json, json.as_bytes());
            prop_assert!(!handler.contains(['"', '\'', '<', '>']));
            prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&decode_references(&handler)).unwrap(), &value);
        }
    }
}

#[test]
fn schemes_that_run_are_refused_however_they_are_written() {
    for refused in [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        " \u{1}javascript:alert(1)",
        "java\nscript:alert(1)",
        "java\tscript\r:alert(1)",
        "vbscript:x",
        "data:text/html,x",
        "blob:x",
        "view-source:x",
        "longerthananyscheme:x",
        "javascript&colon;alert(1):",
        "\u{feff}javascript:x",
        ":x",
    ] {
        assert_eq!(escaped(url, refused.as_bytes()), REFUSED_URL, "{refused:?}");
    }
    for (allowed, written) in [
        ("https://a.b/c?d=e&f='g'#h", "https://a.b/c?d=e&amp;f=%27g%27#h"),
        ("MAILTO:a@b", "MAILTO:a@b"),
        ("/a:b", "/a:b"),
        ("a/b:c", "a/b:c"),
        ("?javascript:x", "?javascript:x"),
        ("a b%20c", "a%20b%20c"),
        (" \t ht\ntp://a b\r\n", "http://a%20b"),
        ("é", "%C3%A9"),
        ("\\\\host\\x", "%5C%5Chost%5Cx"),
        ("", ""),
    ] {
        assert_eq!(escaped(url, allowed.as_bytes()), written);
    }
}

#[test]
fn a_key_that_would_set_the_prototype_is_computed() {
    let json = br#"{"a":"\"__proto__": ","__proto__" : {"__proto__":1},"b":"__proto__"}"#;
    let expected = r#"{"a":"\"__proto__": ",["__proto__"] : {["__proto__"]:1},"b":"__proto__"}"#;
    assert_eq!(escaped(script_json, json), expected);
    assert_eq!(escaped(script_data, json), String::from_utf8_lossy(json));
    assert_eq!(escaped(script_json, b"-1"), " -1");
    assert_eq!(escaped(script_data, b"-1"), "-1");
}
