//! Escapers: pure functions that convert the bytes of a value to bytes that represent exactly this value in their
//! context.
//!
//! All of them accept any bytes and write valid UTF-8. Invalid sequences become U+FFFD, so that a partial character
//! cannot consume the quote after it. None of them writes a byte that could end the context, whatever surrounds it.

mod html;
mod script;
mod url;

pub use html::{attribute, text};
pub use script::{handler_json, handler_string, json_string, script_data, script_json, script_string, script_text};
pub use url::{REFUSED_URL, SCHEMES, url, url_part};

/// Writes `input` to `out`. ASCII bytes accepted by `plain` are copied, and `other` writes all other characters.
fn write(input: &[u8], out: &mut Vec<u8>, plain: impl Fn(u8) -> bool, other: impl Fn(char, &mut Vec<u8>)) {
    for chunk in input.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(at) = rest.bytes().position(|byte| !plain(byte)) {
            let (before, after) = rest.split_at(at);
            out.extend_from_slice(before.as_bytes());
            let mut characters = after.chars();
            if let Some(character) = characters.next() {
                other(character, out);
            }
            rest = characters.as_str();
        }
        out.extend_from_slice(rest.as_bytes());
        if !chunk.invalid().is_empty() {
            other(char::REPLACEMENT_CHARACTER, out);
        }
    }
}

/// Writes a character unchanged.
fn push(character: char, out: &mut Vec<u8>) {
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

#[cfg(test)]
mod tests;
