//! Tokenizer, which splits a template into text and tags.

use super::{EsiError, EsiLimits};
use memchr::memchr2_iter;

/// ESI elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// `esi:include`.
    Include,
    /// `esi:remove`.
    Remove,
    /// `esi:comment`.
    Comment,
    /// `esi:try`.
    Try,
    /// `esi:attempt`.
    Attempt,
    /// `esi:except`.
    Except,
}

impl Element {
    fn from_name(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"include" => Self::Include,
            b"remove" => Self::Remove,
            b"comment" => Self::Comment,
            b"try" => Self::Try,
            b"attempt" => Self::Attempt,
            b"except" => Self::Except,
            _ => return None,
        })
    }
}

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EsiToken<'a> {
    /// Text up to the next tag.
    Text,
    /// `<esi:name …>`.
    Open {
        /// The element.
        element: Element,
        /// Bytes between the element's name and the end of the tag.
        attributes: &'a [u8],
        /// True if the tag ends in `/>`.
        empty: bool,
    },
    /// `</esi:name>`.
    Close(Element),
    /// `<!--esi` and the following white space.
    CommentOpen,
    /// `-->` that closes `<!--esi`.
    CommentClose,
}

const OPEN: &[u8] = b"<esi:";
const CLOSE: &[u8] = b"</esi:";
const COMMENT_OPEN: &[u8] = b"<!--esi";
const COMMENT_CLOSE: &[u8] = b"-->";

/// Reads the token at the start of `bytes`. Returns the token and its length in bytes, or `None` if more bytes are
/// needed; at the end of a page, the remaining bytes are then text, unless they [begin a tag](begins_tag). `in_comment`
/// is true within `<!--esi`, where `-->` is a token.
pub fn read_token<'a>(
    bytes: &'a [u8],
    in_comment: bool,
    limits: &EsiLimits,
) -> Option<Result<(EsiToken<'a>, usize), EsiError>> {
    // Every `<`, and every `-` that may end a comment, may begin a token.
    let ends = if in_comment { b'-' } else { b'<' };
    for at in memchr2_iter(b'<', ends, bytes) {
        let rest = &bytes[at..];
        let marker = match marker(rest, in_comment) {
            Look::Nothing => continue,
            Look::MoreNeeded => return None,
            Look::Found(marker) => marker,
        };
        if at > 0 {
            return Some(Ok((EsiToken::Text, at)));
        }
        return match marker {
            Marker::CommentOpen => Some(Ok((EsiToken::CommentOpen, COMMENT_OPEN.len() + 1))),
            Marker::CommentClose => Some(Ok((EsiToken::CommentClose, COMMENT_CLOSE.len()))),
            Marker::Open => read_tag(rest, limits).map(|tag| tag.and_then(|tag| open_tag(&tag[OPEN.len()..]))),
            Marker::Close => read_tag(rest, limits).map(|tag| tag.and_then(|tag| close_tag(&tag[CLOSE.len()..]))),
        };
    }
    None
}

/// Returns whether `bytes` begin with a complete or incomplete ESI tag.
pub fn begins_tag(bytes: &[u8]) -> bool {
    bytes.starts_with(OPEN) || bytes.starts_with(CLOSE)
}

enum Marker {
    Open,
    Close,
    CommentOpen,
    CommentClose,
}

enum Look {
    Nothing,
    MoreNeeded,
    Found(Marker),
}

fn marker(rest: &[u8], in_comment: bool) -> Look {
    for (text, marker) in [
        (OPEN, Marker::Open),
        (CLOSE, Marker::Close),
        (COMMENT_OPEN, Marker::CommentOpen),
        (COMMENT_CLOSE, Marker::CommentClose),
    ] {
        if matches!(marker, Marker::CommentClose) && !in_comment {
            continue;
        }
        if text.starts_with(rest) && rest.len() < text.len() {
            return Look::MoreNeeded;
        }
        if rest.starts_with(text) {
            if !matches!(marker, Marker::CommentOpen) {
                return Look::Found(marker);
            }
            // `<!--esidebar` is an ordinary comment.
            return match rest.get(text.len()) {
                None => Look::MoreNeeded,
                Some(byte) if byte.is_ascii_whitespace() => Look::Found(marker),
                Some(_) => Look::Nothing,
            };
        }
    }
    Look::Nothing
}

/// Reads the tag at the start of `rest`, up to the first `>` outside quotes. Returns `None` if the tag is incomplete.
fn read_tag<'a>(rest: &'a [u8], limits: &EsiLimits) -> Option<Result<&'a [u8], EsiError>> {
    let mut quote = None;
    for (at, &byte) in rest.iter().take(limits.tag_bytes_max).enumerate() {
        match (quote, byte) {
            (None, b'>') => return Some(Ok(&rest[..=at])),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    (rest.len() >= limits.tag_bytes_max).then_some(Err(EsiError::TagTooLong))
}

fn split_name(inner: &[u8]) -> (&[u8], &[u8]) {
    inner.split_at(inner.iter().position(|byte| !byte.is_ascii_lowercase()).unwrap_or(inner.len()))
}

/// Parses the part of an opening tag after `<esi:`, up to and including `>`.
fn open_tag(inner: &[u8]) -> Result<(EsiToken<'_>, usize), EsiError> {
    let used = OPEN.len() + inner.len();
    let (name, rest) = split_name(inner);
    let rest = rest.strip_suffix(b">").unwrap_or(rest);
    let (attributes, empty) = match rest.strip_suffix(b"/") {
        Some(attributes) => (attributes, true),
        None => (rest, false),
    };
    if !attributes.is_empty() && !attributes[0].is_ascii_whitespace() {
        return Err(EsiError::TagInvalid);
    }
    let element = Element::from_name(name).ok_or(EsiError::ElementUnknown)?;
    Ok((EsiToken::Open { element, attributes, empty }, used))
}

/// Parses the part of a closing tag after `</esi:`, up to and including `>`.
fn close_tag(inner: &[u8]) -> Result<(EsiToken<'_>, usize), EsiError> {
    let (name, rest) = split_name(inner);
    if !rest.strip_suffix(b">").unwrap_or(rest).trim_ascii().is_empty() {
        return Err(EsiError::TagInvalid);
    }
    let element = Element::from_name(name).ok_or(EsiError::ElementUnknown)?;
    Ok((EsiToken::Close(element), CLOSE.len() + inner.len()))
}
