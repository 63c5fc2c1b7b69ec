//! Escapers for HTML text and attribute values.

use super::{push, write};

/// Escapes text between tags, in `<title>` and in `<textarea>`. Browsers display the text unchanged, except for U+0000,
/// which HTML cannot represent and which becomes U+FFFD.
pub fn text(input: &[u8], out: &mut Vec<u8>) {
    write(input, out, is_plain, reference);
}

/// Escapes an attribute's value in double or single quotes.
pub fn attribute(input: &[u8], out: &mut Vec<u8>) {
    // Text is escaped in the same way, including quotes: it costs little, and scripts move text into attributes.
    text(input, out);
}

fn is_plain(byte: u8) -> bool {
    !matches!(byte, b'&' | b'<' | b'>' | b'"' | b'\'' | b'\r' | 0)
}

fn reference(character: char, out: &mut Vec<u8>) {
    let name: &[u8] = match character {
        '&' => b"&amp;",
        '<' => b"&lt;",
        '>' => b"&gt;",
        '"' => b"&#34;",
        '\'' => b"&#39;",
        // A bare CR would be read as LF (HTML, section 13.2.3.5).
        '\r' => b"&#13;",
        '\0' => "\u{fffd}".as_bytes(),
        other => return push(other, out),
    };
    out.extend_from_slice(name);
}
