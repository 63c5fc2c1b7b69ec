//! Variants: which stored answer of a key is for a request (RFC 9111 §4.1).
//!
//! Two requests match when their fields that Vary names are the same once they are normalised, in ways that keep their
//! meaning:
//!
//! - Accept-Encoding, Accept-Language and Accept-Charset: lists in which neither order, case nor white space matters;
//!   each member with its weight. Members of Accept-Language that have one weight are equal by RFC 9110 §12.5.4, and an
//!   origin must not depend on their order; browsers give each another weight. Nothing is left out: an origin that
//!   knows a coding unknown here still gets its own variants.
//! - Fields that are no lists, or whose grammar has commas of its own, are compared byte for byte.
//! - `cookie:NAME`, which stands among the names for a cookie that the owner of the cache has chosen: its value alone.
//! - `cookies-but:NAME;NAME`, which stands for Cookie where the owner has named cookies: the values of all others.
//! - All others: lines are joined (RFC 9110 §5.3) and white space around commas does not count, outside quotes.
//!
//! Vary speaks of the request that the origin got. Where that has another value than the client sent
//! ([`Forwarding`](crate::request::Forwarding), Connection), the key says so, or no request matches.

use crate::cookie::{CookieRules, REST_PREFIX, VARY_PREFIX, rest_name, write_cookie, write_rest};
use crate::lines::with_fields;
use crate::request::{CacheRequest, FieldSource};
use crate::rules::Rules;
use crate::stored::Stored;
use flatout_http::head::Fields;
use flatout_http::token::{is_token, trim};

/// What the Vary fields of an answer say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary {
    /// `*` is among them: no request matches.
    Star,
    /// These names, in lower case, sorted, each once, separated by commas; empty: no variants.
    Names(Box<str>),
    /// Not a list of names, or more than [`NAMES_MAX`].
    Invalid,
}

/// Names in one Vary at the most.
pub const NAMES_MAX: usize = 16;

/// Bytes of a variant's key at the most; an answer to a request with a longer one is not kept.
pub const VARIANT_KEY_BYTES_MAX: usize = 64 * 1024;

/// Fields that are no lists: compared as they are.
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

/// Reads all Vary lines of an answer.
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

/// Appends the values that `request` has for `names` (as in [`Vary::Names`] and `Stored::vary`), normalised, to
/// `output`. Two requests match when they have the same key here. Nothing is appended for no names.
pub fn write_variant_key(names: &str, request: &CacheRequest<'_>, output: &mut Vec<u8>) {
    for name in split_names(names) {
        // Length first, so that no value can look like the end of one and the beginning of the next; the highest
        // length stands for a field that is not there, which differs from one without a value.
        let length_at = output.len();
        output.extend_from_slice(&ABSENT.to_le_bytes());
        if write_forwarded_value(name, request, output) {
            let length = u32::try_from(output.len() - length_at - 4).unwrap_or(ABSENT - 1);
            output[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
        }
    }
}

/// `names`, as in [`Vary::Names`], with cookies as `rules` have them: those that they make part of the variant key are named,
/// and Cookie stands for those that they do not name.
pub fn apply_cookie_rules(names: Box<str>, rules: &CookieRules) -> Box<str> {
    let Some(rest) = rest_name(rules) else { return names };
    let keyed: Vec<_> = rules.key.iter().map(|name| format!("{VARY_PREFIX}{name}")).collect();
    let listed = split_names(&names).map(|name| if name == "cookie" { rest.as_str() } else { name });
    let mut all: Vec<&str> = listed.chain(keyed.iter().map(String::as_str)).collect();
    all.sort_unstable();
    all.dedup();
    all.join(",").into()
}

/// Whether a response with these `names` was stored under rules that treat no cookie otherwise than `rules`: it has all cookies
/// that they make part of the variant key, and leaves out no others than they do.
pub fn has_cookie_rules(names: &str, rules: &CookieRules) -> bool {
    let is_keyed = |key: &String| split_names(names).any(|name| name.strip_prefix(VARY_PREFIX) == Some(key));
    let mut rests = split_names(names).filter(|name| name.starts_with(REST_PREFIX));
    rules.key.iter().all(is_keyed) && rests.all(|rest| rest_name(rules).as_deref() == Some(rest))
}

const ABSENT: u32 = u32::MAX;

/// A byte that no field value has.
const MARK: u8 = 0;

fn split_names(names: &str) -> impl Iterator<Item = &str> {
    names.split(',').filter(|name| !name.is_empty())
}

/// Whether one more variant may be stored beside `held` others of its key. What has been stored longest without use
/// should make room instead where a store can tell; it is the number that is bounded.
pub const fn admits_variant(held: usize, rules: &Rules) -> bool {
    held < rules.variants_max as usize
}

/// Whether `request` matches the variant that `stored` is.
pub fn matches_variant(request: &CacheRequest<'_>, stored: &Stored) -> bool {
    let mut key = Vec::new();
    write_variant_key(&stored.vary, request, &mut key);
    *key == *stored.variant_key
}

/// Shows `tell` each field in which `request` differs from the one that `stored` answered: its name, its value in the
/// request and its value then, normalised; `None`: no such field.
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

/// The first value of a variant's key, if it says that there is one, and what is behind it.
fn split_value(key: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = key.split_first_chunk::<4>()?;
    match u32::from_le_bytes(*length) {
        ABSENT => Some((None, rest)),
        length => rest.split_at_checked(length as usize).map(|(value, rest)| (Some(value), rest)),
    }
}

/// Whether `stored`, another variant than the one that `request` asks for, has the language that the request likes
/// best, and matches it otherwise. For `Rules::language_select`, which says what is to be said against it.
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

/// Takes one value from the beginning of a variant key, its length included.
fn take_value<'a>(key: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = key.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length);
    let end = if length == ABSENT { 4 } else { 4 + usize::try_from(length).ok()? };
    let (value, _) = (key.get(..end)?, rest);
    *key = &key[end..];
    Some(value)
}

/// The language with the highest weight in Accept-Language, when it is one alone.
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

/// Whether Vary with `names` speaks of a field whose value for the origin no key holds: then no other request is known to
/// match.
pub(crate) fn names_unkeyed(names: &str, request: &CacheRequest<'_>) -> bool {
    split_names(names).any(|name| request.forwarding.source(field_of(name)) == FieldSource::Request)
}

/// The field that one of the names stands for.
fn field_of(name: &str) -> &str {
    if name.starts_with(VARY_PREFIX) || name.starts_with(REST_PREFIX) { "cookie" } else { name }
}

/// Appends the normalised value of `name` and what else tells apart the values that origins get for it: marks that no
/// field value can hold. False: there is no such field.
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
    // RFC 9110 §7.6.1: the origin may not have seen it.
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

/// Appends the normalised value of `name`. False: there is no such field.
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
        // HTTP/2 may send a cookie in pieces (RFC 9113 §8.2.3); of the others there is one line.
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

/// Appends `line` without the white space around its commas, as far as these do not stand in quotes.
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

/// Appends the members of a weighted list, the best first, in lower case.
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

/// One member of a weighted list: thousandths that its weight lacks of one, and itself in lower case. What has a
/// parameter that is no weight stays whole. `None`: it is empty.
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

/// `weight` without its semicolon, in thousandths (RFC 9110 §12.4.2).
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
