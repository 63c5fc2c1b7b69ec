//! Where text ends and a tag begins, and what a tag is.

use super::{EsiError, EsiLimits};
use memchr::memchr2_iter;

/// The elements that are understood.
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

/// What stands next in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// Text, up to something else.
    Text,
    /// `<esi:name …>`.
    Open {
        /// Which.
        element: Element,
        /// What stands between the name and the end.
        attributes: &'a [u8],
        /// `/>`.
        empty: bool,
    },
    /// `</esi:name>`.
    Close(Element),
    /// `<!--esi` and the white space behind it.
    CommentOpen,
    /// `-->` of the same.
    CommentClose,
}

const OPEN: &[u8] = b"<esi:";
const CLOSE: &[u8] = b"</esi:";
const COMMENT_OPEN: &[u8] = b"<!--esi";
const COMMENT_CLOSE: &[u8] = b"-->";

/// What `bytes` begin with, and how many bytes it takes. `in_comment`: within `<!--esi`, so that `-->` is a token.
/// `None`: more bytes are needed to tell; at the end of a page, then, all of them are text, unless they
/// [begin a tag](begins_tag).
pub fn read_token<'a>(
    bytes: &'a [u8],
    in_comment: bool,
    limits: &EsiLimits,
) -> Option<Result<(Token<'a>, usize), EsiError>> {
    // Candidates: each `<`, and each `-` where it may end a comment.
    let ends = if in_comment { b'-' } else { b'<' };
    for at in memchr2_iter(b'<', ends, bytes) {
        let rest = &bytes[at..];
        let marker = match marker(rest, in_comment) {
            Look::Nothing => continue,
            Look::MoreNeeded => return None,
            Look::Found(marker) => marker,
        };
        if at > 0 {
            return Some(Ok((Token::Text, at)));
        }
        return match marker {
            Marker::CommentOpen => Some(Ok((Token::CommentOpen, COMMENT_OPEN.len() + 1))),
            Marker::CommentClose => Some(Ok((Token::CommentClose, COMMENT_CLOSE.len()))),
            Marker::Open => read_tag(rest, limits).map(|tag| tag.and_then(|tag| open_tag(&tag[OPEN.len()..]))),
            Marker::Close => read_tag(rest, limits).map(|tag| tag.and_then(|tag| close_tag(&tag[CLOSE.len()..]))),
        };
    }
    None
}

/// Whether `bytes` begin with a tag of ESI, finished or not.
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
            // `<!--esidebar` is a comment like any other.
            return match rest.get(text.len()) {
                None => Look::MoreNeeded,
                Some(byte) if byte.is_ascii_whitespace() => Look::Found(marker),
                Some(_) => Look::Nothing,
            };
        }
    }
    Look::Nothing
}

/// The tag that `rest` begins with, up to the first `>` outside quotes.
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

/// Behind `<esi:`, up to and with the `>`.
fn open_tag(inner: &[u8]) -> Result<(Token<'_>, usize), EsiError> {
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
    Ok((Token::Open { element, attributes, empty }, used))
}

/// Behind `</esi:`, up to and with the `>`.
fn close_tag(inner: &[u8]) -> Result<(Token<'_>, usize), EsiError> {
    let (name, rest) = split_name(inner);
    if !rest.strip_suffix(b">").unwrap_or(rest).trim_ascii().is_empty() {
        return Err(EsiError::TagInvalid);
    }
    let element = Element::from_name(name).ok_or(EsiError::ElementUnknown)?;
    Ok((Token::Close(element), CLOSE.len() + inner.len()))
}
