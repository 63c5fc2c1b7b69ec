//! Values in scripts: JSON that no HTML parser can end, and text within strings.

use super::{push, write};

/// A text as a value of a script, in its quotes: for script elements, of JavaScript and of JSON.
pub fn script_string(input: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    script_text(input, out);
    out.push(b'"');
}

/// The JSON of a value, for script elements: nothing in it can end the element or begin a comment.
pub fn script_json(json: &[u8], out: &mut Vec<u8>) {
    harden(json, b"\"", b"'", out);
}

/// A text as a value of a script, in its quotes: for event attributes, as `onclick`.
pub fn handler_string(input: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"&#34;");
    script_text(input, out);
    out.extend_from_slice(b"&#34;");
}

/// The JSON of a value, for event attributes, as `onclick`.
pub fn handler_json(json: &[u8], out: &mut Vec<u8>) {
    harden(json, b"&#34;", b"&#39;", out);
}

/// Text within a string of a script, in double or single quotes; in elements, in event attributes, and in JSON. All but
/// letters, digits and a few marks is written as `\uXXXX`, so it means the same to JavaScript, to JSON and to HTML.
pub fn script_text(input: &[u8], out: &mut Vec<u8>) {
    write(input, out, |byte| byte.is_ascii_alphanumeric() || b" _.,:-".contains(&byte), |character, out| {
        if character.is_ascii() || matches!(character, '\u{2028}' | '\u{2029}') {
            escape(character, out);
        } else {
            push(character, out);
        }
    });
}

/// In JSON, everything but quotes that HTML looks at stands within strings, and there `\uXXXX` means the same.
fn harden(json: &[u8], double: &[u8], single: &[u8], out: &mut Vec<u8>) {
    const PROTOTYPE: &[u8] = b"\"__proto__\"";
    // A number's sign must not join one in front: `1-` and `-1` would be a decrement.
    if json.first() == Some(&b'-') {
        out.push(b' ');
    }
    let mut rest = json;
    while let Some((&byte, after)) = rest.split_first() {
        let begins_string = byte == b'"' && json.len() - rest.len() > 0;
        let escaped = begins_string && json[json.len() - rest.len() - 1] == b'\\';
        // In an object literal of JavaScript, this key would set the prototype; a computed one is a plain key.
        let computed = rest.strip_prefix(PROTOTYPE).filter(|_| !escaped);
        if let Some(after) = computed.filter(|after| after.trim_ascii_start().first() == Some(&b':')) {
            for part in [&b"["[..], double, b"__proto__", double, b"]"] {
                out.extend_from_slice(part);
            }
            rest = after;
            continue;
        }
        match byte {
            b'"' => out.extend_from_slice(double),
            b'\'' => out.extend_from_slice(single),
            b'<' | b'>' | b'&' | 0..0x20 | 0x7f => escape(char::from(byte), out),
            _ if byte.is_ascii() => out.push(byte),
            _ => {
                let end = rest.iter().position(u8::is_ascii).unwrap_or(rest.len());
                write(&rest[..end], out, |_| false, |character, out| {
                    if matches!(character, '\u{2028}' | '\u{2029}') { escape(character, out) } else { push(character, out) }
                });
                rest = &rest[end..];
                continue;
            }
        }
        rest = after;
    }
}

fn escape(character: char, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("\\u{:04x}", u32::from(character)).as_bytes());
}
