//! Selection of Link fields that are sent early, in a 103 (RFC 8297).
//!
//! Links are taken only from the response to the same request, or from the stored response that it selects, because
//! links reveal page content and a page may be private.

use flatout_http::lines::each_line;
use flatout_http::token::trim;

/// Maximum number of links per 103.
pub const LINKS_MAX: usize = 16;

/// Maximum total size of the links in bytes.
pub const BYTES_MAX: usize = 4096;

/// Link relations that are useful before the response arrives.
const RELATIONS: [&str; 4] = ["preload", "modulepreload", "preconnect", "dns-prefetch"];

/// Selects, from the values of Link fields, the links that are useful before the response arrives. Each returned string
/// is the value of one Link line, as in `flatout_handler::response::Response::early_links`. Omits links that violate
/// the grammar of RFC 8288 or exceed [`LINKS_MAX`] or [`BYTES_MAX`].
pub fn early_links<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let (mut links, mut bytes) = (Vec::new(), 0);
    for value in values {
        let Ok(mut rest) = std::str::from_utf8(value) else { continue };
        while let Some((link, after)) = split_link(rest) {
            rest = after;
            let link = link.trim_matches([' ', '\t']);
            if links.len() < LINKS_MAX && bytes + link.len() <= BYTES_MAX && is_early(link) {
                bytes += link.len();
                links.push(link.to_owned());
            }
        }
    }
    links
}

/// Selects the useful links from the Link fields in `lines`, each of which ends in CR LF. See [`early_links`].
pub(crate) fn links_in(lines: &[u8]) -> Vec<String> {
    let links = each_line(lines).filter(|(name, _)| name.eq_ignore_ascii_case(b"link"));
    early_links(links.map(|(name, line)| trim(&line[name.len() + 1..line.len() - 2])))
}

/// Splits the first list element, which ends at a comma outside `<…>` and `"…"`, from the rest. Returns `None` if
/// `rest` is empty.
fn split_link(rest: &str) -> Option<(&str, &str)> {
    if rest.is_empty() {
        return None;
    }
    let (mut in_target, mut in_quotes, mut escaped) = (false, false, false);
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_quotes => escaped = true,
            b'"' if !in_target => in_quotes = !in_quotes,
            b'<' if !in_quotes => in_target = true,
            b'>' if !in_quotes => in_target = false,
            b',' if !in_target && !in_quotes => return Some((&rest[..at], &rest[at + 1..])),
            _ => {}
        }
    }
    Some((rest, ""))
}

/// Returns whether a link (`"<" URI-Reference ">" *( OWS ";" OWS link-param )`) is valid and has a relation in
/// [`RELATIONS`].
fn is_early(link: &str) -> bool {
    let Some((target, parameters)) = link.strip_prefix('<').and_then(|link| link.split_once('>')) else {
        return false;
    };
    if target.is_empty() || !link.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || target.contains([' ', '<']) {
        return false;
    }
    // All `rel` parameters except the first are ignored (RFC 8288 §3.3).
    let mut rest = parameters;
    while let Some((name, value, after)) = split_parameter(rest) {
        if name.eq_ignore_ascii_case("rel") {
            return value.split(' ').any(|one| RELATIONS.iter().any(|relation| relation.eq_ignore_ascii_case(one)));
        }
        rest = after;
    }
    false
}

/// Splits the next `;name=value` from the rest. Returns the name, the value without quotes, and the rest.
fn split_parameter(rest: &str) -> Option<(&str, &str, &str)> {
    let blank = [' ', '\t'];
    let rest = rest.trim_start_matches(blank).strip_prefix(';')?.trim_start_matches(blank);
    let name_end = rest.find(['=', ';']).unwrap_or(rest.len());
    let name = rest[..name_end].trim_end_matches(blank);
    let Some(value) = rest[name_end..].strip_prefix('=') else { return Some((name, "", &rest[name_end..])) };
    let value = value.trim_start_matches(blank);
    if let Some(quoted) = value.strip_prefix('"') {
        // Escapes are not processed: relations need none, so a value with escapes does not match.
        let end = end_of_quotes(quoted.as_bytes())?;
        return Some((name, &quoted[..end], &quoted[end + 1..]));
    }
    let end = value.find(';').unwrap_or(value.len());
    std::str::from_utf8(trim(&value.as_bytes()[..end])).ok().map(|token| (name, token, &value[end..]))
}

fn end_of_quotes(bytes: &[u8]) -> Option<usize> {
    let mut escaped = false;
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, LINKS_MAX, early_links};
    use proptest::prelude::{prop_assert, proptest};

    fn links(value: &str) -> Vec<String> {
        early_links([value.as_bytes()].into_iter())
    }

    #[test]
    fn links_that_help() {
        for (value, expected) in [
            ("</a.css>; rel=preload; as=style", &["</a.css>; rel=preload; as=style"][..]),
            (
                "</a>;rel=\"preload\", </b>; rel=next,</c>;REL=PreConnect",
                &["</a>;rel=\"preload\"", "</c>;REL=PreConnect"],
            ),
            ("</a>; rel=\"stylesheet preload\"", &["</a>; rel=\"stylesheet preload\""]),
            (
                "</a,b>; title=\"x, <y>; rel=preload\"; rel=modulepreload",
                &["</a,b>; title=\"x, <y>; rel=preload\"; rel=modulepreload"],
            ),
            (
                "<https://c.example>; crossorigin; rel=dns-prefetch",
                &["<https://c.example>; crossorigin; rel=dns-prefetch"],
            ),
            ("</a>; title=\"a\\\", b\"; rel=preload", &["</a>; title=\"a\\\", b\"; rel=preload"]),
            ("</a>; rel = preload", &["</a>; rel = preload"]),
            ("</a>; title=\"rel=preload\"", &[]),
            ("</a>; rel=next; rel=preload", &[]),
            ("</a>; rel=preloaded", &[]),
            ("</a>; rel", &[]),
            ("</a>", &[]),
            ("/a; rel=preload", &[]),
            ("<>; rel=preload", &[]),
            ("</a; rel=preload", &[]),
            ("</a b>; rel=preload", &[]),
            ("</a>; title=\"x; rel=preload", &[]),
            ("</\u{fc}>; rel=preload", &[]),
            (" , ,", &[]),
            ("", &[]),
        ] {
            assert_eq!(links(value), expected, "{value}");
        }
    }

    #[test]
    fn not_too_many() {
        assert_eq!(links(&"</a>; rel=preload,".repeat(100)).len(), LINKS_MAX);
        let long = format!("</{}>; rel=preload", "a".repeat(BYTES_MAX / 3));
        assert_eq!(early_links([long.as_bytes(); 9].into_iter()).len(), 2);
    }

    proptest! {
        #[test]
        fn whatever_comes(value in "[<>\"\\\\;=, a-cà/]{0,60}|(</a>; ?rel=\"?preload\"?,? ?){0,3}") {
            let links = links(&value);
            prop_assert!(links.iter().all(|link| link.starts_with('<') && value.contains(link.as_str())));
        }
    }
}
