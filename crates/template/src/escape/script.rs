//! Escapers for values in scripts: JSON that cannot end an HTML element, and characters inside strings.

use super::{push, write};

/// Writes a string as a quoted value, for script elements with JavaScript or JSON.
pub fn script_string(input: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    script_text(input, out);
    out.push(b'"');
}

/// Writes the JSON of a value, for script elements with JavaScript. It cannot end the element or begin a comment.
pub fn script_json(json: &[u8], out: &mut Vec<u8>) {
    // The sign of a number must not combine with a preceding one: `1-` followed by `-1` would be a decrement.
    if json.first() == Some(&b'-') {
        out.push(b' ');
    }
    harden(json, b"\"", true, out);
}

/// Writes the JSON of a value, for script elements with JSON. The result is valid JSON.
pub fn script_data(json: &[u8], out: &mut Vec<u8>) {
    harden(json, b"\"", false, out);
}

/// Writes a string as a quoted value, for event attributes such as `onclick`.
pub fn handler_string(input: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"&#34;");
    script_text(input, out);
    out.extend_from_slice(b"&#34;");
}

/// Writes the JSON of a value, for event attributes such as `onclick`.
pub fn handler_json(json: &[u8], out: &mut Vec<u8>) {
    if json.first() == Some(&b'-') {
        out.push(b' ');
    }
    harden(json, b"&#34;", true, out);
}

/// Escapes text inside a string of a script, in double or single quotes, in script elements, event attributes and JSON.
/// Every ASCII character except letters, digits and a few symbols is written as `\u` and four digits, which means the
/// same in JavaScript, JSON and HTML.
pub fn script_text(input: &[u8], out: &mut Vec<u8>) {
    write(
        input,
        out,
        |byte| byte.is_ascii_alphanumeric() || b" _.,:-".contains(&byte),
        |character, out| {
            if character.is_ascii() || matches!(character, '\u{2028}' | '\u{2029}') {
                escape(character, out);
            } else {
                push(character, out);
            }
        },
    );
}

/// Rewrites JSON so that it is safe in HTML. All characters that are special in HTML, except quotes, occur only in
/// strings, where an escape with `\u` means the same.
fn harden(json: &[u8], quote: &[u8], is_literal: bool, out: &mut Vec<u8>) {
    const PROTOTYPE: &[u8] = b"\"__proto__\"";
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        let rest = &json[at..];
        let is_key = || rest.strip_prefix(PROTOTYPE).is_some_and(|after| after.trim_ascii_start().starts_with(b":"));
        match byte {
            // In a JavaScript object literal, this key would set the prototype, whereas a computed key is an ordinary
            // key. After a backslash, the quotation mark is inside another string.
            b'"' if is_literal && at.checked_sub(1).is_none_or(|before| json[before] != b'\\') && is_key() => {
                for part in [&b"["[..], quote, b"__proto__", quote, b"]"] {
                    out.extend_from_slice(part);
                }
                at += PROTOTYPE.len();
                continue;
            }
            b'"' => out.extend_from_slice(quote),
            b'\t' | b'\n' | b'\r' => out.push(b' '),
            b'<' | b'>' | b'&' | b'\'' | 0..0x20 | 0x7f => escape(char::from(byte), out),
            _ if byte.is_ascii() => out.push(byte),
            _ => {
                let end = rest.iter().position(u8::is_ascii).unwrap_or(rest.len());
                write(
                    &rest[..end],
                    out,
                    |_| false,
                    |character, out| {
                        if matches!(character, '\u{2028}' | '\u{2029}') {
                            escape(character, out);
                        } else {
                            push(character, out);
                        }
                    },
                );
                at += end;
                continue;
            }
        }
        at += 1;
    }
}

/// Writes a string as a quoted JSON string (RFC 8259 §7) that may be placed anywhere in HTML. Characters that are
/// special in HTML and scripts are escaped, and invalid UTF-8 becomes U+FFFD.
pub fn json_string(input: &[u8], out: &mut Vec<u8>) {
    let is_plain = |byte: u8| byte.is_ascii() && !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&' | 0..0x20 | 0x7f);
    out.push(b'"');
    write(input, out, is_plain, json_escape);
    out.push(b'"');
}

fn json_escape(character: char, out: &mut Vec<u8>) {
    match character {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        '\n' => out.extend_from_slice(b"\\n"),
        '\r' => out.extend_from_slice(b"\\r"),
        '\t' => out.extend_from_slice(b"\\t"),
        '\u{2028}' | '\u{2029}' => escape(character, out),
        character if character.is_ascii() => escape(character, out),
        character => push(character, out),
    }
}

fn escape(character: char, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let code = u32::from(character);
    out.extend_from_slice(b"\\u");
    out.extend([12, 8, 4, 0].map(|shift| DIGITS[(code >> shift & 15) as usize]));
}
