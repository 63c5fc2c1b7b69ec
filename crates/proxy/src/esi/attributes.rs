//! Parser for tag attributes and the entities in them.

use super::{EsiError, Include};

/// Length in bytes of the longest entity, `&#x10FFFF;`, without `&` and `;`.
const ENTITY_BYTES_MAX: usize = 8;

/// Parses the attributes of an include. Unknown attributes are ignored.
pub(super) fn read_include(attributes: &[u8]) -> Result<Include, EsiError> {
    let (mut src, mut alt, mut onerror) = (None, None, None);
    let mut rest = attributes;
    while let Some((name, value, after)) = read_attribute(rest)? {
        let place = match name {
            b"src" => &mut src,
            b"alt" => &mut alt,
            b"onerror" => &mut onerror,
            _ => {
                rest = after;
                continue;
            }
        };
        let value = std::str::from_utf8(value).map_err(|_| EsiError::AttributeInvalid)?;
        if place.replace(decode_entities(value)).is_some() {
            return Err(EsiError::AttributeInvalid);
        }
        rest = after;
    }
    let src = src.filter(|src| !src.is_empty()).ok_or(EsiError::SrcMissing)?;
    Ok(Include { src, alt, continue_on_error: onerror.as_deref() == Some("continue") })
}

/// Validates the syntax of attributes that are not used.
pub(super) fn check(attributes: &[u8]) -> Result<(), EsiError> {
    let mut rest = attributes;
    while let Some((_, _, after)) = read_attribute(rest)? {
        rest = after;
    }
    Ok(())
}

type Attribute<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// Parses white space, a name, `=` and a quoted value. Returns the name, the value and the remaining bytes, or `None`
/// at the end.
fn read_attribute(bytes: &[u8]) -> Result<Option<Attribute<'_>>, EsiError> {
    let trimmed = bytes.trim_ascii_start();
    if trimmed.is_empty() {
        return Ok(None);
    }
    if trimmed.len() == bytes.len() {
        return Err(EsiError::AttributeInvalid);
    }
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':');
    let name_bytes = trimmed.iter().position(|byte| !is_name(byte)).unwrap_or(trimmed.len());
    let (name, rest) = trimmed.split_at(name_bytes);
    let rest = rest.trim_ascii_start().strip_prefix(b"=").ok_or(EsiError::AttributeInvalid)?.trim_ascii_start();
    let (quote @ (b'"' | b'\''), rest) = rest.split_first().ok_or(EsiError::AttributeInvalid)? else {
        return Err(EsiError::AttributeInvalid);
    };
    let end = rest.iter().position(|byte| byte == quote).ok_or(EsiError::AttributeInvalid)?;
    if name.is_empty() {
        return Err(EsiError::AttributeInvalid);
    }
    Ok(Some((name, &rest[..end], &rest[end + 1..])))
}

/// Decodes the five XML entities and numeric character references. Any other `&` is left unchanged, as in browsers,
/// because authors rarely escape the `&` in a query.
pub(super) fn decode_entities(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        decoded.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let entity = after.as_bytes().iter().take(ENTITY_BYTES_MAX + 1).position(|&byte| byte == b';');
        let character = entity.and_then(|end| decode_entity(&after[..end]).map(|character| (character, end)));
        decoded.push(character.map_or('&', |(character, _)| character));
        rest = character.map_or(after, |(_, end)| &after[end + 1..]);
    }
    decoded.push_str(rest);
    decoded
}

fn decode_entity(name: &str) -> Option<char> {
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let number = name.strip_prefix('#')?;
            let (digits, radix) = match number.strip_prefix(['x', 'X']) {
                Some(digits) => (digits, 16),
                None => (number, 10),
            };
            // `from_str_radix` would accept a sign.
            if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return None;
            }
            char::from_u32(u32::from_str_radix(digits, radix).ok()?)?
        }
    })
}
