//! Variants: selection among the responses stored under the same key (RFC 9111 §4.1).
//!
//! Two requests match if the fields that Vary names are equal after normalisation, which preserves their meaning:
//!
//!
//! - Accept-Encoding, Accept-Language and Accept-Charset: order, case and white space do not matter; members are
//!   compared with their weights. According to RFC 9110 §12.5.4, members of Accept-Language with the same weight are
//!   equivalent, so an origin must not depend on their order; browsers give each a different weight. No member is
//!   dropped, so codings unknown to flatout still result in separate variants.
//! - Fields that are not lists, or whose grammar contains commas, are compared byte for byte.
//! - `cookie:NAME`, an entry for a cookie named in the configuration: only the value of this cookie is compared.
//! - `cookies-but:NAME;NAME`, which replaces Cookie if the configuration names cookies: all other cookies are compared.
//! - `x-forwarded-*`, an entry that is added if there are trusted proxies: the scheme, host and other properties of the
//!   request that they claim, except for addresses.
//! - All other fields: lines are joined (RFC 9110 §5.3), and white space around commas outside quotes does not matter.
//!
//! Vary refers to the request that the origin received. If its value there differs from the client's
//! ([`Forwarding`](crate::request::Forwarding), Connection), the variant key records the difference, or no request
//! matches.

use crate::cookie::{CookieRules, REST_PREFIX, VARY_PREFIX, rest_name, write_cookie, write_rest};
use crate::lines::with_fields;
use crate::request::{CacheRequest, FieldSource};
use crate::stored::Stored;
use flatout_http::accept::parse_weight;
use flatout_http::forwarded::{CLAIM_FIELDS, CLAIM_PREFIXES};
use flatout_http::head::Fields;
use flatout_http::token::{is_token, trim};

/// Parsed Vary fields of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary {
    /// `*` is present: no request matches.
    Star,
    /// Lower-case, sorted, unique names separated by commas. Empty if the response does not vary.
    Names(Box<str>),
    /// The value is not a list of names, or has more than [`NAMES_MAX`] names.
    Invalid,
}

/// Maximum number of names in Vary.
pub const NAMES_MAX: usize = 16;

/// Maximum length of a variant key in bytes. A response whose variant key would be longer is not stored.
pub const VARIANT_KEY_BYTES_MAX: usize = 64 * 1024;

/// Fields that are compared byte for byte because they are not lists or contain commas within members.
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
        // Each value is preceded by its length, so that different lists of values never have the same encoding. The
        // highest length marks an absent field, which differs from an empty field.
        let length_at = output.len();
        output.extend_from_slice(&ABSENT.to_le_bytes());
        if write_forwarded_value(name, request, output) {
            let length = u32::try_from(output.len() - length_at - 4).unwrap_or(ABSENT - 1);
            output[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
        }
    }
}

/// Applies `rules` to `names`, which have the format of [`Vary::Names`]: adds the cookies that are part of the variant
/// key, and replaces Cookie with all cookies not named by the rules.
pub fn apply_cookie_rules(names: Box<str>, rules: &CookieRules) -> Box<str> {
    let Some(rest) = rest_name(rules) else { return names };
    let keyed: Vec<_> = rules.key.iter().map(|name| format!("{VARY_PREFIX}{name}")).collect();
    let listed = split_names(&names).map(|name| if name == "cookie" { rest.as_str() } else { name });
    let mut all: Vec<&str> = listed.chain(keyed.iter().map(String::as_str)).collect();
    all.sort_unstable();
    all.dedup();
    all.join(",").into()
}

/// Adds Accept-Encoding to `names`, which have the format of [`Vary::Names`], if the content of a response with these
/// `fields` is encoded. Old origins often compress by Accept-Encoding without saying so in Vary, and a client that cannot
/// decode the stored content must not get it.
pub(crate) fn apply_coding(names: Box<str>, fields: &Fields<'_>) -> Box<str> {
    const NAME: &str = "accept-encoding";
    let mut codings = fields.all("content-encoding").flat_map(|line| line.split(|&byte| byte == b',')).map(trim);
    let is_encoded = codings.any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"));
    if !is_encoded || split_names(&names).any(|name| name == NAME) {
        return names;
    }
    let mut all: Vec<&str> = split_names(&names).chain([NAME]).collect();
    all.sort_unstable();
    all.join(",").into()
}

/// Entry of `Stored::vary` for the claims of trusted proxies. No field name contains an asterisk in Vary, so the entry is
/// unambiguous.
const FORWARDED_ENTRY: &str = "x-forwarded-*";

/// Adds the entry for the claims of trusted proxies to `names`, which have the format of [`Vary::Names`], if there may be
/// any.
///
/// Frameworks derive the URL of a request from these claims, for redirects and links, but rarely send a Vary for them.
/// Without the entry, a response for http could be served to clients of https, and a client that invents a claim could
/// have its response stored for others.
pub(crate) fn apply_trust(names: Box<str>, request: &CacheRequest<'_>) -> Box<str> {
    match &*names {
        _ if !request.forwarding.has_trusted() => names,
        "" => FORWARDED_ENTRY.into(),
        _ => format!("{names},{FORWARDED_ENTRY}").into(),
    }
}

/// Returns whether a response with these `names` was stored under compatible cookie rules: `names` includes all cookies
/// that `rules` make part of the variant key, and excludes only cookies that `rules` exclude.
pub fn has_cookie_rules(names: &str, rules: &CookieRules) -> bool {
    let is_keyed = |key: &String| split_names(names).any(|name| name.strip_prefix(VARY_PREFIX) == Some(key));
    let mut rests = split_names(names).filter(|name| name.starts_with(REST_PREFIX));
    rules.key.iter().all(is_keyed) && rests.all(|rest| rest_name(rules).as_deref() == Some(rest))
}

const ABSENT: u32 = u32::MAX;

/// Separator byte, which no field value contains.
const MARK: u8 = 0;

fn split_names(names: &str) -> impl Iterator<Item = &str> {
    names.split(',').filter(|name| !name.is_empty())
}

/// Returns whether `request` matches the variant of `stored`.
pub fn matches_variant(request: &CacheRequest<'_>, stored: &Stored) -> bool {
    let mut key = Vec::new();
    write_variant_key(&stored.vary, request, &mut key);
    *key == *stored.variant_key
}

/// Calls `tell` for each field in which `request` differs from the request that fetched `stored`. The arguments are the
/// field's name, its value in `request` and its stored value. The values are normalised, and `None` if the field is
/// absent.
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

/// Returns whether `stored` is in the request's preferred language and matches the request in all fields of Vary except
/// Accept-Language. Implements [`Rules::language_select`](crate::rules::Rules::language_select), which documents the
/// limits.
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

/// Removes the first value, including its length prefix, from a variant key and returns it.
fn take_value<'a>(key: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = key.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length);
    let end = if length == ABSENT { 4 } else { 4 + usize::try_from(length).ok()? };
    let (value, _) = (key.get(..end)?, rest);
    *key = &key[end..];
    Some(value)
}

/// Returns the language with the highest weight in Accept-Language, unless several have that weight.
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

/// Returns whether `names` includes a field whose upstream value is not part of any key, so that no other request is
/// known to match.
pub(crate) fn names_unkeyed(names: &str, request: &CacheRequest<'_>) -> bool {
    split_names(names).any(|name| request.forwarding.source(field_of(name)) == FieldSource::Request)
}

/// Returns the field to which an entry of `Stored::vary` refers.
fn field_of(name: &str) -> &str {
    if name.starts_with(VARY_PREFIX) || name.starts_with(REST_PREFIX) {
        "cookie"
    } else if name == FORWARDED_ENTRY {
        "x-forwarded-host"
    } else {
        name
    }
}

/// Appends the normalised value of `name`, followed by [`MARK`] bytes if the origin may receive a different value for
/// it. Returns false if the field is absent.
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

/// Appends the client's normalised value of `name`. Returns false if the field is absent.
fn write_value(name: &str, request: &CacheRequest<'_>, output: &mut Vec<u8>) -> bool {
    if let Some(cookie) = name.strip_prefix(VARY_PREFIX) {
        return write_cookie(cookie, request, output);
    }
    if let Some(patterns) = name.strip_prefix(REST_PREFIX) {
        return write_rest(patterns, request, output);
    }
    if name == FORWARDED_ENTRY {
        return write_claims(request, output);
    }
    let lines = || request.fields.iter().filter(|(line, _)| line.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    if lines().next().is_none() {
        return false;
    }
    if matches!(name, "accept-encoding" | "accept-language" | "accept-charset") {
        write_weighted(name, lines(), output);
    } else if VERBATIM.contains(&name) {
        // HTTP/2 may split Cookie into several lines (RFC 9113 §8.2.3); the other fields have only one line.
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

/// Appends the claims of the proxy that sent `request`, except for addresses. Returns false if there are none, or if the
/// origin does not receive them.
fn write_claims(request: &CacheRequest<'_>, output: &mut Vec<u8>) -> bool {
    if request.forwarding.source("x-forwarded-host") != FieldSource::Trust(true) {
        return false;
    }
    let start = output.len();
    let mut write = |name: &str, value: &[u8]| {
        output.extend_from_slice(name.to_ascii_lowercase().as_bytes());
        output.push(b'=');
        output.extend_from_slice(value);
        output.push(b'\n');
    };
    for (name, value) in request.fields.iter() {
        let is_forwarded = is_name(name.as_bytes(), "forwarded");
        if !(is_forwarded || is_claim(name)) || request.forwarding.removes(name) {
            continue;
        }
        if is_forwarded {
            // RFC 7239 §4. A comma or semicolon in quotes only makes the key more specific.
            let pairs = value.split(|byte| matches!(byte, b',' | b';')).map(trim);
            for pair in pairs.filter(|pair| ["host=", "proto="].iter().any(|claim| begins_with(pair, claim))) {
                write(name, pair);
            }
        } else {
            write(name, value);
        }
    }
    output.len() > start
}

fn begins_with(text: &[u8], beginning: &str) -> bool {
    text.get(..beginning.len()).is_some_and(|start| start.eq_ignore_ascii_case(beginning.as_bytes()))
}

/// Returns whether a trusted proxy's field called `name` describes the request, and not the path that it took.
fn is_claim(name: &str) -> bool {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    let is_of_path = || is("x-forwarded-for") || is("x-forwarded-by") || is("x-forwarded-server");
    let has_prefix = || CLAIM_PREFIXES.iter().any(|prefix| begins_with(name.as_bytes(), prefix));
    has_prefix() && !is_of_path() || CLAIM_FIELDS.iter().any(|field| is(field))
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

/// Parses a member of a weighted list. Returns 1000 minus the weight in thousandths, and the member in lower case
/// without its weight. If the member has any other parameter, it is returned whole with the highest weight. Returns
/// `None` if the member is empty.
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

#[cfg(test)]
mod tests;
