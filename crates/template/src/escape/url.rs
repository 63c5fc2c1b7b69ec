//! Escapers for URLs in attributes.

use super::{html, write};

/// Allowed schemes. None of them executes its content.
pub const SCHEMES: &[&str] = &["http", "https", "mailto", "tel", "sms", "geo", "ftp"];

/// Replaces a URL whose scheme is not one of [`SCHEMES`]. It leads nowhere.
pub const REFUSED_URL: &str = "about:invalid#refused";

/// A part of a URL after its beginning: everything except letters, digits and `-._~` is percent-encoded (RFC 3986,
/// section 2.3), so that it cannot end a segment, a parameter or the attribute.
pub fn url_part(input: &[u8], out: &mut Vec<u8>) {
    write(input, out, is_unreserved, encode);
}

/// A whole URL, absolute or relative, in a quoted attribute value. Characters that are invalid in a URL are
/// percent-encoded; existing encodings are unchanged. A scheme not in [`SCHEMES`] turns it into [`REFUSED_URL`]. As
/// in browsers (URL Standard, section 4.4), leading controls and spaces are dropped, and tabs and line breaks
/// everywhere.
pub fn url(input: &[u8], out: &mut Vec<u8>) {
    let start = input.iter().position(|&byte| byte > b' ').unwrap_or(input.len());
    let input = &input[start..];
    if !is_allowed(input) {
        out.extend_from_slice(REFUSED_URL.as_bytes());
        return;
    }
    let is_plain = |byte| is_unreserved(byte) || b"%:/?#[]@!$()*+,;=".contains(&byte);
    write(input, out, is_plain, |character, out| match character {
        '&' => html::text(b"&", out),
        '\t' | '\n' | '\r' => {}
        _ => encode(character, out),
    });
}

/// Returns whether a URL has no scheme or an allowed one.
fn is_allowed(input: &[u8]) -> bool {
    let mut scheme = [0; 8];
    let mut length = 0;
    for &byte in input.iter().filter(|byte| !matches!(byte, b'\t' | b'\n' | b'\r')) {
        match byte {
            b':' => return SCHEMES.iter().any(|allowed| allowed.as_bytes() == &scheme[..length]),
            b'/' | b'?' | b'#' => return true,
            // Longer than any allowed scheme; the following characters decide whether it is one.
            _ if length == scheme.len() => scheme[0] = 0,
            _ => {
                scheme[length] = byte.to_ascii_lowercase();
                length += 1;
            }
        }
    }
    true
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn encode(character: char, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in character.encode_utf8(&mut [0; 4]).bytes() {
        out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}
