//! Some things are easily written a second time, and copies disagree in the end. Each has one owner in `crates/http`:
//! the splitter of hosts and ports, the list of fields that belong to a connection, the parser of weights (`q=0.5`), and
//! the percent coder.
//!
//! Each is recognized by what its code cannot do without. A function that only resembles one also has a row in the table
//! of what remains.

use super::Finding;
use super::remaining::{Found, compare};
use super::source::{Function, Kind, Source, Token};
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// Something that has an owner.
struct Primitive {
    /// As the rows name it.
    name: &'static str,
    /// Names the copy, and the owner to use in its place.
    instead: &'static str,
    /// The files that may have it.
    owners: &'static [&'static str],
    /// Returns the lines of a file on which one begins.
    find: fn(&Source) -> Vec<usize>,
}

const PRIMITIVES: &[Primitive] = &[
    Primitive {
        name: "hosts",
        instead: "a splitter of hosts and ports: use `http::host` or `http::url`",
        owners: &[
            "crates/http/src/host.rs",
            "crates/http/src/url.rs",
            "crates/http/src/target.rs",
            "crates/http/src/forwarded.rs",
        ],
        find: splitters,
    },
    Primitive {
        name: "connection-fields",
        instead: "a list of fields that belong to a connection: use `http::lines`",
        owners: &["crates/http/src/lines.rs"],
        find: field_lists,
    },
    Primitive {
        name: "weights",
        instead: "a parser of weights: use `http::accept`",
        owners: &["crates/http/src/accept.rs"],
        find: weights,
    },
    Primitive {
        name: "percent",
        instead: "a percent coder: use `http::percent`",
        owners: &["crates/http/src/percent.rs"],
        find: percent_coders,
    },
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    for (path, source) in tree.product().filter(|(path, _)| !path.starts_with("xtask/")) {
        for primitive in PRIMITIVES.iter().filter(|primitive| !primitive.owners.contains(&path)) {
            let lines = (primitive.find)(source);
            if !lines.is_empty() {
                let place = found.entry(format!("{} in {path}", primitive.name)).or_default();
                place.figures.push(lines.len());
                place.findings.extend(lines.into_iter().map(|line| Finding::at(path, line, primitive.instead)));
            }
        }
    }
    compare(tree, "copies", found)
}

/// The functions that find a colon.
const SPLITS: &[&str] = &[
    "char_indices",
    "enumerate",
    "find",
    "memchr",
    "memrchr",
    "position",
    "rfind",
    "rposition",
    "rsplit",
    "rsplit_once",
    "rsplitn",
    "split",
    "split_at",
    "split_first",
    "split_last",
    "split_once",
    "splitn",
];

/// Parts of names that speak of what is split.
const AUTHORITY_WORDS: &[&str] = &["authority", "host", "hostname", "hosts", "port", "ports", "u16"];

/// The functions that look for a colon and know of brackets, or of hosts and ports.
fn splitters(source: &Source) -> Vec<usize> {
    let splits = |function: &Function<'_>| {
        let tokens = &source.tokens[function.tokens.clone()];
        let has_literal = |wanted: &[&str]| tokens.iter().filter_map(literal).any(|text| wanted.contains(&text));
        let has_word = |is_wanted: fn(&str) -> bool| tokens.iter().filter_map(word).any(is_wanted);
        has_literal(&[":"])
            && has_word(|word| SPLITS.contains(&word))
            && (has_literal(&["[", "]"])
                || has_word(|word| word.split('_').any(|part| AUTHORITY_WORDS.contains(&part))))
    };
    source.outer_functions().filter(splits).map(|function| function.line).collect()
}

const CONNECTION_FIELDS: &[&str] =
    &["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

/// Number of different fields that make a list.
const LIST_FIELDS: usize = 3;

/// Number of tokens, from the first field on, within which they must stand.
const LIST_TOKENS: usize = 60;

fn field_lists(source: &Source) -> Vec<usize> {
    let mut found = Vec::new();
    let mut end = 0;
    for (at, _) in product(source).filter(|(_, token)| !fields_of(token).is_empty()) {
        if at >= end {
            let list =
                product(source).skip_while(|(other, _)| *other < at).take_while(|(other, _)| *other < at + LIST_TOKENS);
            let fields: BTreeSet<&str> = list.flat_map(|(_, token)| fields_of(token)).collect();
            if fields.len() >= LIST_FIELDS {
                found.push(source.tokens[at].line);
                end = at + LIST_TOKENS;
            }
        }
    }
    found
}

/// The fields that a text consists of, if of nothing else.
fn fields_of(token: &Token) -> Vec<&'static str> {
    let Kind::Text(text) = &token.kind else { return Vec::new() };
    let known = |name: &str| CONNECTION_FIELDS.iter().copied().find(|field| field.eq_ignore_ascii_case(name));
    let names = text.split([' ', ',', '|', ':', ';']).filter(|name| !name.is_empty());
    names.map(known).collect::<Option<_>>().unwrap_or_default()
}

/// The places with a `q` and an equals sign after it.
fn weights(source: &Source) -> Vec<usize> {
    let is_weight = |at: usize, token: &Token| match literal(token) {
        Some("q" | "Q") => {
            let after = source.tokens[at + 1..].iter().take(8);
            let mut texts = after.filter_map(literal);
            texts.any(|text| text == "=")
        }
        Some(text) => {
            text.strip_suffix("q=").is_some_and(|before| before.trim_end_matches(' ').trim_end_matches(';').is_empty())
        }
        None => false,
    };
    let mut lines: Vec<usize> =
        product(source).filter(|(at, token)| is_weight(*at, token)).map(|(_, token)| token.line).collect();
    lines.dedup();
    lines
}

/// The functions for hexadecimal digits.
const HEX_WORDS: &[&str] = &["from_digit", "from_str_radix", "hex_value", "is_ascii_hexdigit", "to_digit"];

/// The first percent sign of a file that also has hexadecimal digits.
fn percent_coders(source: &Source) -> Vec<usize> {
    let sign = product(source).find(|(_, token)| match literal(token) {
        Some("%") => true,
        Some(text) => text.contains("%{") && is_hex_format(text),
        None => false,
    });
    let has_digits = || {
        product(source).any(|(at, token)| match (word(token), literal(token)) {
            (Some(word), _) => HEX_WORDS.contains(&word),
            // `b'a'..=b'f'`
            (_, Some("a" | "A")) => {
                source.matches(at + 1, &[".", "."])
                    && source.tokens[at + 3..].iter().take(2).filter_map(literal).any(|end| matches!(end, "f" | "F"))
            }
            (_, Some(text)) => text.to_ascii_lowercase().contains("0123456789abcdef") || is_hex_format(text),
            _ => false,
        })
    };
    sign.filter(|_| has_digits()).map(|(_, token)| token.line).into_iter().collect()
}

/// Returns true if `text` formats a number as two hexadecimal digits, as `{:02X}` does.
fn is_hex_format(text: &str) -> bool {
    ["2x}", "2X}"].iter().any(|end| text.contains(end))
}

/// The tokens outside tests, with their indices.
fn product(source: &Source) -> impl Iterator<Item = (usize, &Token)> {
    source.tokens.iter().enumerate().filter(|(at, _)| !source.test_mask[*at])
}

fn word(token: &Token) -> Option<&str> {
    match &token.kind {
        Kind::Word(word) => Some(word),
        _ => None,
    }
}

/// The content of a text or a character.
fn literal(token: &Token) -> Option<&str> {
    match &token.kind {
        Kind::Text(text) | Kind::Character(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings in a file of any crate, without their places.
    fn findings(text: &str) -> Vec<String> {
        let found = check(&Tree::of(&[("crates/a/src/lib.rs", text)]));
        found.into_iter().map(|finding| finding.text).collect()
    }

    fn assert_found(name: &str, planted: &[&str]) {
        let primitive = PRIMITIVES.iter().find(|primitive| primitive.name == name).unwrap();
        for &text in planted {
            assert_eq!(findings(text), [primitive.instead], "{text}");
            let tests = format!("#[cfg(test)] mod tests {{ {text} }}");
            assert_eq!(findings(&tests), [""; 0], "{text}");
            for &owner in primitive.owners {
                assert_eq!(check(&Tree::of(&[(owner, text)])), [], "{text}");
            }
        }
    }

    #[test]
    fn a_second_splitter_of_hosts_is_found() {
        assert_found(
            "hosts",
            &[
                "fn cut(a: &[u8]) -> (&[u8], Option<&[u8]>) {
                     let from = a.iter().rposition(|&byte| byte == b']').map_or(0, |at| at + 1);
                     match a[from..].iter().position(|&byte| byte == b':') {
                         Some(colon) => (&a[..from + colon], Some(&a[from + colon + 1..])),
                         None => (a, None),
                     }
                 }",
                "fn cut(a: &str) -> (&str, Option<&str>) {
                     match a.rsplit_once(':') {
                         Some((b, c)) if !c.contains(']') => (b, Some(c)),
                         _ => (a, None),
                     }
                 }",
                "fn cut(host_port: &str) -> (&str, &str) { host_port.split_once(\":\").unwrap_or((host_port, \"\")) }",
                "fn cut(a: &str) -> Option<(&str, u16)> { let (b, c) = a.rsplit_once(':')?; Some((b, c.parse().ok()?)) }",
                "fn cut(a: &[u8]) -> usize { for (at, b) in a.iter().enumerate() { if *b == b':' { return at } \
                     if *b == b'[' { skip() } } 0 }",
            ],
        );
    }

    #[test]
    fn a_second_list_of_connection_fields_is_found() {
        assert_found(
            "connection-fields",
            &[
                "const LEFT_OUT: [&str; 3] = [\"connection\", \"keep-alive\", \"upgrade\"];",
                "fn a(name: &[u8]) -> bool { matches!(name, b\"te\" | b\"trailer\" | b\"transfer-encoding\") }",
                "fn a() -> &'static [(&'static str, bool)] { &[(\"Connection\", true), (\"x\", true), (\"TE\", false), \
                     (\"Upgrade\", true)] }",
                "const ALL: &str = \"connection keep-alive te\";",
            ],
        );
    }

    #[test]
    fn a_second_parser_of_weights_is_found() {
        assert_found(
            "weights",
            &[
                "fn a(b: &[u8]) -> bool { matches!(b, [b'q' | b'Q', b'=', ..]) }",
                "fn a(b: &str) -> Option<f32> { b.trim().strip_prefix(\"q=\")?.parse().ok() }",
                "fn a(b: &str) -> Option<f32> { b.split_once(\";q=\")?.1.parse().ok() }",
                "fn a(b: &str) -> bool { let (name, _) = b.split_once('=').unwrap(); name == \"q\" && b.contains('=') }",
            ],
        );
    }

    #[test]
    fn a_second_percent_coder_is_found() {
        assert_found(
            "percent",
            &[
                "const DIGITS: &[u8; 16] = b\"0123456789ABCDEF\"; fn a(b: u8) -> [u8; 2] { [b'%', DIGITS[b & 15]] }",
                "fn a(b: u8, text: &mut String) { let _ = write!(text, \"%{b:02X}\"); }",
                "fn a(b: &str) -> Option<u8> { u8::from_str_radix(b.strip_prefix('%')?, 16).ok() }",
                "fn a(b: &[u8]) -> u8 { match b { [b'%', c, ..] => d(*c), _ => 0 } } \
                 fn d(c: u8) -> u8 { match c { b'0'..=b'9' => c - b'0', b'a'..=b'f' => c - b'a' + 10, _ => 0 } }",
            ],
        );
    }

    #[test]
    fn what_only_resembles_one_passes() {
        let good = [
            "fn a(line: &str) -> Option<(&str, &str)> { line.split_once(':') }",
            "fn a(host: &str, port: u16) -> String { format!(\"{host}:{port}\") }",
            "const RESERVED: [&str; 4] = [\"connection\", \"content-length\", \"transfer-encoding\", \"expect\"];",
            "fn a() -> &'static str { \"the connection, or te\" }",
            "fn a() -> (char, char) { ('q', 'r') }",
            "fn a(b: f64) -> String { format!(\"{b:5.1} %\") }",
            "fn a(b: &[u8]) -> String { b.iter().map(|byte| format!(\"{byte:02x}\")).collect() }",
        ];
        for text in good {
            assert_eq!(findings(text), [""; 0], "{text}");
        }
    }
}
