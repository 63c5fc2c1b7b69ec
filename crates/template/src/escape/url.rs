//! Escapers for URLs in attributes.

use super::{html, write};
use flatout_http::percent::{encode_byte, is_unreserved};

/// The allowed schemes. URLs with these schemes do not execute code.
pub const SCHEMES: &[&str] = &["http", "https", "mailto", "tel", "sms", "geo", "ftp"];

/// The URL that replaces a URL whose scheme is not one of [`SCHEMES`]. It leads nowhere.
pub const REFUSED_URL: &str = "about:invalid#refused";

/// Escapes part of a URL after its beginning. Everything except letters, digits and `-._~` is percent-encoded (RFC
/// 3986, section 2.3), so that the part cannot end a segment, a parameter or the attribute.
pub fn url_part(input: &[u8], out: &mut Vec<u8>) {
    write(input, out, is_unreserved, encode);
}

/// Escapes a whole URL, absolute or relative, in a quoted attribute value. Characters that are invalid in a URL are
/// percent-encoded, and existing encodings stay unchanged. A URL with a scheme that is not one of [`SCHEMES`] is replaced
/// with [`REFUSED_URL`]. As in browsers (URL Standard, section 4.4), leading control characters and spaces are dropped,
/// and tabs and line breaks are dropped everywhere.
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

/// Returns whether a URL has no scheme or an allowed scheme.
fn is_allowed(input: &[u8]) -> bool {
    let mut scheme = [0; 8];
    let mut length = 0;
    for &byte in input.iter().filter(|byte| !matches!(byte, b'\t' | b'\n' | b'\r')) {
        match byte {
            b':' => return SCHEMES.iter().any(|allowed| allowed.as_bytes() == &scheme[..length]),
            b'/' | b'?' | b'#' => return true,
            // The text is longer than any allowed scheme. The following characters determine if it is a scheme.
            _ if length == scheme.len() => scheme[0] = 0,
            _ => {
                scheme[length] = byte.to_ascii_lowercase();
                length += 1;
            }
        }
    }
    true
}

fn encode(character: char, out: &mut Vec<u8>) {
    out.extend(character.encode_utf8(&mut [0; 4]).bytes().flat_map(encode_byte));
}
