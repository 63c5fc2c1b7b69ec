//! Variants: selection of a key's stored response for a request (RFC 9111 §4.1).
//!
//! Two requests match if the fields that Vary names are equal after normalisation, which preserves their meaning:
//!
//!
//! - Accept-Encoding, Accept-Language and Accept-Charset: order, case and white space do not matter; members are
//!   compared with their weights. Members of Accept-Language with the same weight are equivalent by RFC 9110 §12.5.4,
//!   and an origin must not depend on their order; browsers give each a different weight. No member is dropped: an
//!   origin with a coding unknown here still gets separate variants.
//! - Fields that are not lists, or whose grammar contains commas, are compared byte for byte.
//! - `cookie:NAME`, an entry for a cookie that the configuration names: its value alone.
//! - `cookies-but:NAME;NAME`, which replaces Cookie if the configuration names cookies: the values of all others.
//! - All others: lines are joined (RFC 9110 §5.3), and white space around commas outside quotes does not matter.
//!
//! Vary refers to the request that the origin received. If its value there differs from the client's
//! ([`Forwarding`](crate::request::Forwarding), Connection), the key says so, or no request matches.

use crate::cookie::{CookieRules, REST_PREFIX, VARY_PREFIX, rest_name, write_cookie, write_rest};
use crate::lines::with_fields;
use crate::request::{CacheRequest, FieldSource};
use crate::rules::Rules;
use crate::stored::Stored;
use flatout_http::head::Fields;
use flatout_http::token::{is_token, trim};

/// Parsed Vary fields of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary {
    /// `*` is present: no request matches.
    Star,
    /// Lower-case, sorted, unique names separated by commas; empty: no variants.
    Names(Box<str>),
    /// Not a list of names, or more than [`NAMES_MAX`].
    Invalid,
}

/// Maximum names in Vary.
pub const NAMES_MAX: usize = 16;

/// Maximum bytes of a variant key; the response to a request with a longer one is not stored.
pub const VARIANT_KEY_BYTES_MAX: usize = 64 * 1024;

/// Fields that are not lists: compared byte for byte.
const VERBATIM: [&str; 14] = [
    "authorization",
    "cookie",
    "date",
    "expect",
    "from",
    "host",
    "if-modified-since",
    "if-range",
    "if-unmodified-since",
    "max-forwards",
    "origin",
    "proxy-authorization",
    "referer",
    "user-agent",
];

/// Parses all Vary lines of a response.
pub fn parse_vary(fields: &Fields<'_>) -> Vary {
    let mut names: Vec<String> = Vec::new();
    let mut invalid = false;
    for name in fields.all("vary").flat_map(|line| line.split(|&byte| byte == b',')).map(trim) {
        match std::str::from_utf8(name) {
            Ok("") => {}
            Ok("*") => return Vary::Star,
            Ok(text) if is_token(name) => names.push(text.to_ascii_lowercase()),
            _ => invalid = true,
        }
    }
    names.sort_unstable();
    names.dedup();
    if invalid || names.len() > NAMES_MAX { Vary::Invalid } else { Vary::Names(names.join(",").into()) }
}

/// Appends the normalised values of `names` (as in [`Vary::Names`] and `Stored::vary`) in `request` to `output`. Two
/// requests match if their keys are equal. Without names, nothing is appended.
pub fn write_variant_key(names: &str, request: &CacheRequest<'_>, output: &mut Vec<u8>) {
    for name in split_names(names) {
        // Each value is preceded by its length, so that no value can look like the end of one and the beginning of the
        // next. The highest length marks an absent field, which differs from an empty one.
        let length_at = output.len();
        output.extend_from_slice(&ABSENT.to_le_bytes());
        if write_forwarded_value(name, request, output) {
            let length = u32::try_from(output.len() - length_at - 4).unwrap_or(ABSENT - 1);
            output[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
        }
    }
}

/// Applies `rules` to `names`, as in [`Vary::Names`]: adds the cookies that are part of the variant key, and replaces
/// Cookie with all cookies that the rules do not name.
pub fn apply_cookie_rules(names: Box<str>, rules: &CookieRules) -> Box<str> {
    let Some(rest) = rest_name(rules) else { return names };
    let keyed: Vec<_> = rules.key.iter().map(|name| format!("{VARY_PREFIX}{name}")).collect();
    let listed = split_names(&names).map(|name| if name == "cookie" { rest.as_str() } else { name });
    let mut all: Vec<&str> = listed.chain(keyed.iter().map(String::as_str)).collect();
    all.sort_unstable();
    all.dedup();
    all.join(",").into()
}

/// Returns whether a response with these `names` was stored under compatible cookie rules: it includes all cookies
/// that `rules` make part of the variant key, and ignores no others than they do.
pub fn has_cookie_rules(names: &str, rules: &CookieRules) -> bool {
    let is_keyed = |key: &String| split_names(names).any(|name| name.strip_prefix(VARY_PREFIX) == Some(key));
    let mut rests = split_names(names).filter(|name| name.starts_with(REST_PREFIX));
    rules.key.iter().all(is_keyed) && rests.all(|rest| rest_name(rules).as_deref() == Some(rest))
}

const ABSENT: u32 = u32::MAX;

/// A byte that no field value contains.
const MARK: u8 = 0;

fn split_names(names: &str) -> impl Iterator<Item = &str> {
    names.split(',').filter(|name| !name.is_empty())
}

/// Returns whether one more variant may be stored besides `held` others of its key. This only bounds the number; a
/// store that can should evict the least recently used variant instead.
pub const fn admits_variant(held: usize, rules: &Rules) -> bool {
    held < rules.variants_max as usize
}

/// Returns whether `request` matches the variant of `stored`.
pub fn matches_variant(request: &CacheRequest<'_>, stored: &Stored) -> bool {
    let mut key = Vec::new();
    write_variant_key(&stored.vary, request, &mut key);
    *key == *stored.variant_key
}

/// Calls `tell` for each field in which `request` differs from the request of `stored`, with its name, its value in
/// the request and its stored value, both normalised; `None`: the field is absent.
pub fn compare_variant(
    stored: &Stored,
    request: &CacheRequest<'_>,
    mut tell: impl FnMut(&str, Option<&[u8]>, Option<&[u8]>),
) {
    let mut rest = &*stored.variant_key;
    let mut asked = Vec::new();
    for name in split_names(&stored.vary) {
        asked.clear();
        write_variant_key(name, request, &mut asked);
        let Some((kept, behind)) = split_value(rest) else { return };
        let Some((asked, _)) = split_value(&asked) else { return };
        rest = behind;
        if asked != kept {
            tell(name, asked, kept);
        }
    }
}

/// Splits the first value of a variant key from the rest. The value is `None` if the field was absent.
fn split_value(key: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = key.split_first_chunk::<4>()?;
    match u32::from_le_bytes(*length) {
        ABSENT => Some((None, rest)),
        length => rest.split_at_checked(length as usize).map(|(value, rest)| (Some(value), rest)),
    }
}

/// Returns whether `stored`, another variant than the requested one, has the request's preferred language and matches
/// it otherwise. For `Rules::language_select`, which documents its limits.
pub fn matches_language(request: &CacheRequest<'_>, stored: &Stored) -> bool {
    const NAME: &str = "accept-language";
    let mut key = Vec::new();
    write_variant_key(&stored.vary, request, &mut key);
    let (mut ours, mut theirs) = (&key[..], &stored.variant_key[..]);
    let mut varies = false;
    for name in split_names(&stored.vary) {
        let (Some(one), Some(two)) = (take_value(&mut ours), take_value(&mut theirs)) else { return false };
        if name == NAME {
            varies = true;
        } else if one != two {
            return false;
        }
    }
    let Some(best) = best_language(request) else { return false };
    let language = with_fields(&stored.lines, |fields| {
        fields.first("content-language").is_some_and(|language| language.eq_ignore_ascii_case(&best))
    });
    varies && language == Some(true)
}

/// Takes one value, with its length, from the beginning of a variant key.
fn take_value<'a>(key: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = key.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length);
    let end = if length == ABSENT { 4 } else { 4 + usize::try_from(length).ok()? };
    let (value, _) = (key.get(..end)?, rest);
    *key = &key[end..];
    Some(value)
}

/// The language with the highest weight in Accept-Language, if exactly one has it.
fn best_language(request: &CacheRequest<'_>) -> Option<Vec<u8>> {
    let mut members = Vec::new();
    for line in request.fields.all("accept-language") {
        members.extend(line.split(|&byte| byte == b',').filter_map(weighted));
    }
    members.sort_unstable();
    match members.as_slice() {
        [best, next, ..] if best.0 == next.0 => None,
        [(weight, language), ..] if *weight < 1000 && language != b"*" => Some(language.clone()),
        _ => None,
    }
}

/// Returns whether Vary with `names` includes a field whose upstream value is in no key: then no other request is
/// known to match.
pub(crate) fn names_unkeyed(names: &str, request: &CacheRequest<'_>) -> bool {
    split_names(names).any(|name| request.forwarding.source(field_of(name)) == FieldSource::Request)
}

/// Field to which a name refers.
fn field_of(name: &str) -> &str {
    if name.starts_with(VARY_PREFIX) || name.starts_with(REST_PREFIX) { "cookie" } else { name }
}

/// Appends the normalised value of `name`, and marks (which no field value contains) that distinguish the values that
/// origins receive for it. Returns false if the field is absent.
fn write_forwarded_value(name: &str, request: &CacheRequest<'_>, output: &mut Vec<u8>) -> bool {
    let source = request.forwarding.source(field_of(name));
    if source == FieldSource::Request {
        // No stored response has this value.
        output.push(MARK);
        return true;
    }
    if !write_value(name, request, output) {
        return false;
    }
    let is_named = |line: &[u8]| line.split(|&byte| byte == b',').any(|option| is_name(trim(option), field_of(name)));
    // RFC 9110 §7.6.1: the origin may not have received the field.
    if request.fields.all("connection").any(is_named) {
        output.push(MARK);
    }
    if source == FieldSource::Trust(true) {
        output.extend_from_slice(&[MARK, MARK]);
    }
    true
}

fn is_name(option: &[u8], name: &str) -> bool {
    option.eq_ignore_ascii_case(name.as_bytes())
}

/// Appends the normalised value of `name`. Returns false if the field is absent.
fn write_value(name: &str, request: &CacheRequest<'_>, output: &mut Vec<u8>) -> bool {
    if let Some(cookie) = name.strip_prefix(VARY_PREFIX) {
        return write_cookie(cookie, request, output);
    }
    if let Some(patterns) = name.strip_prefix(REST_PREFIX) {
        return write_rest(patterns, request, output);
    }
    let lines = || request.fields.iter().filter(|(line, _)| line.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    if lines().next().is_none() {
        return false;
    }
    if matches!(name, "accept-encoding" | "accept-language" | "accept-charset") {
        write_weighted(name, lines(), output);
    } else if VERBATIM.contains(&name) {
        // HTTP/2 may split a cookie into several lines (RFC 9113 §8.2.3); the other fields have one line.
        let separator: &[u8] = if name == "cookie" { b"; " } else { b"\n" };
        for (count, line) in lines().enumerate() {
            if count > 0 {
                output.extend_from_slice(separator);
            }
            output.extend_from_slice(line);
        }
    } else {
        for (count, line) in lines().enumerate() {
            if count > 0 {
                output.push(b',');
            }
            write_list(line, output);
        }
    }
    true
}

/// Appends `line` without the white space around commas outside quotes.
fn write_list(line: &[u8], output: &mut Vec<u8>) {
    let (mut quoted, mut escaped) = (false, false);
    let mut start = 0;
    for (at, &byte) in line.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                output.extend_from_slice(trim(&line[start..at]));
                output.push(b',');
                start = at + 1;
            }
            _ => {}
        }
    }
    output.extend_from_slice(trim(&line[start..]));
}

/// Appends the members of a weighted list in lower case, highest weight first.
fn write_weighted<'a>(name: &str, lines: impl Iterator<Item = &'a [u8]>, output: &mut Vec<u8>) {
    let mut members: Vec<_> = lines.flat_map(|line| line.split(|&byte| byte == b',')).filter_map(weighted).collect();
    if name == "accept-encoding" {
        for (_, member) in &mut members {
            // RFC 9110 §8.4.1.1, §8.4.1.3: the same codings under older names.
            if matches!(member.as_slice(), b"x-gzip" | b"x-compress") {
                member.drain(..2);
            }
        }
    }
    members.sort_unstable();
    members.dedup();
    for (weight, member) in members {
        output.extend_from_slice(&member);
        output.push(b';');
        output.extend_from_slice(weight.to_string().as_bytes());
        output.push(b',');
    }
}

/// Parses one member of a weighted list: thousandths by which its weight is below one, and the member in lower case. A
/// member with another parameter stays whole. `None`: it is empty.
fn weighted(member: &[u8]) -> Option<(u16, Vec<u8>)> {
    let member = trim(member);
    if member.is_empty() {
        return None;
    }
    let Some(semicolon) = member.iter().position(|&byte| byte == b';') else {
        return Some((0, member.to_ascii_lowercase()));
    };
    match parse_weight(trim(&member[semicolon + 1..])) {
        Some(weight) => Some((1000 - weight, trim(&member[..semicolon]).to_ascii_lowercase())),
        None => Some((0, member.to_ascii_lowercase())),
    }
}

/// Parses `weight` without its semicolon, in thousandths (RFC 9110 §12.4.2).
fn parse_weight(bytes: &[u8]) -> Option<u16> {
    let ([b'q' | b'Q', b'=', whole @ (b'0' | b'1')], decimals) = bytes.split_at_checked(3)? else { return None };
    let digits = match decimals {
        [] => &[][..],
        [b'.', digits @ ..] if digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit) => digits,
        _ => return None,
    };
    let mut weight = u16::from(whole - b'0') * 1000;
    for (digit, place) in digits.iter().zip([100, 10, 1]) {
        weight += u16::from(digit - b'0') * place;
    }
    (weight <= 1000).then_some(weight)
}

#[cfg(test)]
mod tests;
