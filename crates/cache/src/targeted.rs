//! Response fields with directives for specific caches, which replace Cache-Control and Expires: targeted fields (RFC
//! 9213) and the older Surrogate-Control (Edge Architecture Specification 1.0, §2).

use crate::directive::{
    ResponseDirectives, SECONDS_MAX, Seconds, has_word, parse_response_directives, parse_seconds, split_list,
};
use crate::lines::with_fields;
use crate::rules::Rules;
use flatout_http::head::Fields;
use flatout_http::lines::each_line;
use flatout_http::structured::parse_dictionary;
use flatout_http::token::{is_token, trim};
use sfv::{BareItem, Item, ListEntry};

/// Directives of a response that apply to this cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// The directives (RFC 9213 §2.2).
    pub directives: ResponseDirectives,
    /// Index of the directives' targeted field in `Rules::targeted`, or `None` if they come from Cache-Control or
    /// Pragma.
    pub field: Option<usize>,
}

/// Selects the directives for a cache with the target list of `rules`. The first targeted field that is present, valid
/// and not empty applies; Cache-Control, Pragma and Expires are then ignored (RFC 9213 §2.2).
pub fn choose_directives(fields: &Fields<'_>, rules: &Rules) -> Chosen {
    for (place, name) in rules.targeted.iter().enumerate().filter(|(_, name)| fields.first(name).is_some()) {
        let lines = fields.all(name);
        let directives = if name.eq_ignore_ascii_case("surrogate-control") {
            parse_surrogate(lines, &rules.surrogate)
        } else {
            parse_targeted(lines)
        };
        if let Some(directives) = directives {
            return Chosen { directives, field: Some(place) };
        }
    }
    Chosen { directives: parse_response_directives(fields), field: None }
}

/// Returns the field lines in `trailers` without fields that the directives in `lines`, the stored field lines of the
/// same response, name in `no-cache` or `private` (RFC 9111 §5.2.2.4, §5.2.2.7). Both have the format of
/// `Stored::lines`.
pub fn without_named_fields(trailers: &[u8], lines: &[u8], rules: &Rules) -> Vec<u8> {
    let Some(chosen) = with_fields(lines, |fields| choose_directives(fields, rules)) else { return Vec::new() };
    let is_named = |name: &[u8]| chosen.directives.named.iter().any(|named| name.eq_ignore_ascii_case(named));
    each_line(trailers).filter(|(name, _)| !is_named(name)).flat_map(|(_, line)| line).copied().collect()
}

/// Parses the value of a targeted field. Returns `None` if the value is empty or not a dictionary, so that the field
/// must be ignored (RFC 9213 §2.1).
fn parse_targeted<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<ResponseDirectives> {
    let members = parse_dictionary(lines)?;
    if members.is_empty() {
        return None;
    }
    let mut directives = ResponseDirectives::default();
    for (key, value) in members {
        // A value of the wrong type must be ignored (RFC 9213 §2.1). Prohibitions apply nonetheless, unless the value
        // is false: an origin that sends `no-store="x"` does not want the response stored.
        let boolean = match &value {
            ListEntry::Item(item) => item.bare_item.as_boolean(),
            ListEntry::InnerList(_) => None,
        };
        let denied = boolean == Some(false);
        let bare = boolean == Some(true);
        match key.as_str() {
            "no-store" => directives.no_store = !denied,
            "no-cache" => directives.no_cache = !denied,
            "private" => directives.private = !denied,
            "must-revalidate" => directives.must_revalidate = !denied,
            "proxy-revalidate" => directives.proxy_revalidate = !denied,
            "must-understand" => directives.must_understand = bare,
            "no-transform" => directives.no_transform = !denied,
            "public" => directives.public = bare,
            "immutable" => directives.immutable = bare,
            "max-age" => directives.max_age = seconds(&value),
            "s-maxage" => directives.s_maxage = seconds(&value),
            "stale-while-revalidate" => directives.stale_while_revalidate = seconds(&value),
            "stale-if-error" => directives.stale_if_error = seconds(&value),
            _ => {}
        }
    }
    Some(directives)
}

/// Parses Surrogate-Control: `max-age=600`, `max-age=600+60` (fresh for 600 s, then 60 s of stale-while-revalidate) or
/// `no-store`, each optionally followed by `;name` to target one surrogate. Returns `None` if no directive that applies
/// to `surrogate` controls caching; `content="ESI/1.0"` alone does not.
fn parse_surrogate<'a>(lines: impl Iterator<Item = &'a [u8]>, surrogate: &str) -> Option<ResponseDirectives> {
    let mut directives = ResponseDirectives::default();
    for element in lines.flat_map(split_list) {
        let mut parts = element.splitn(2, |&byte| byte == b';').map(trim);
        let directive = parts.next().unwrap_or_default();
        if parts.next().is_some_and(|target| !target.eq_ignore_ascii_case(surrogate.as_bytes())) {
            continue;
        }
        let equals = directive.iter().position(|&byte| byte == b'=').unwrap_or(directive.len());
        let (name, value) = (&directive[..equals], directive.get(equals + 1..).unwrap_or_default());
        let is_unreadable = !is_token(trim(name)) && has_word(directive, "no-store");
        if name.eq_ignore_ascii_case(b"no-store") || is_unreadable {
            directives.no_store = true;
        } else if trim(name).eq_ignore_ascii_case(b"max-age") {
            let plus = value.iter().position(|&byte| byte == b'+');
            // White space before `=` makes the directive invalid, as in Cache-Control.
            let fresh = &value[..plus.unwrap_or(value.len())];
            let valid = trim(name).len() == name.len();
            directives.max_age = directives.max_age.and(if valid { parse_seconds(fresh) } else { Seconds::Invalid });
            if let Some(plus) = plus {
                directives.stale_while_revalidate =
                    directives.stale_while_revalidate.and(parse_seconds(&value[plus + 1..]));
            }
        }
    }
    (directives.no_store || directives.max_age != Seconds::Absent).then_some(directives)
}

fn seconds(value: &ListEntry) -> Seconds {
    match value {
        ListEntry::Item(Item { bare_item: BareItem::Integer(seconds), .. }) if i64::from(*seconds) >= 0 => {
            Seconds::Valid(u32::try_from(i64::from(*seconds)).unwrap_or(SECONDS_MAX).min(SECONDS_MAX))
        }
        _ => Seconds::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::{Chosen, choose_directives, without_named_fields};
    use crate::directive::{SECONDS_MAX, Seconds};
    use crate::lines::with_fields;
    use crate::rules::Rules;

    fn choose(lines: &str) -> Chosen {
        with_fields(lines.as_bytes(), |fields| choose_directives(fields, &Rules::default())).unwrap()
    }

    #[test]
    fn trailer_fields_that_directives_name_are_not_shared() {
        let shared = |control: &str| {
            let lines = format!("Cache-Control: {control}\r\n");
            let shared = without_named_fields(b"X-Sum: 1\r\nX-Secret: 2\r\n", lines.as_bytes(), &Rules::default());
            String::from_utf8(shared).unwrap()
        };
        assert_eq!(shared("max-age=60"), "X-Sum: 1\r\nX-Secret: 2\r\n");
        assert_eq!(shared("max-age=60, private=\"x-secret\""), "X-Sum: 1\r\n");
        assert_eq!(shared("no-cache=\"X-Secret, x-sum\""), "");
    }

    /// Edge Architecture Specification 1.0, §2.2.
    #[test]
    fn surrogate_control() {
        let choose = |value: &str| {
            let lines = format!("Cache-Control: max-age=7\r\nSurrogate-Control: {value}\r\n");
            let Chosen { directives, field } = choose(&lines);
            (field, directives.no_store, directives.max_age, directives.stale_while_revalidate)
        };
        let fresh = |seconds, stale| (Some(2), false, Seconds::Valid(seconds), stale);
        assert_eq!(choose("foobar, MaX-aGe=3600"), fresh(3600, Seconds::Absent));
        assert_eq!(choose("max-age=3600;Flatout"), fresh(3600, Seconds::Absent));
        assert_eq!(choose("max-age=9;other, max-age=600+60;flatout"), fresh(600, Seconds::Valid(60)));
        assert_eq!(choose("max-age=99999999999"), fresh(SECONDS_MAX, Seconds::Absent));
        assert_eq!(choose("no-store, content=\"ESI/1.0\""), (Some(2), true, Seconds::Absent, Seconds::Absent));
        for invalid in ["max-age =60", "max-age= 60", "max-age", "max-age=x"] {
            assert_eq!(choose(invalid), (Some(2), false, Seconds::Invalid, Seconds::Absent), "{invalid}");
        }
        for not_ours in
            ["content=\"ESI/1.0\"", "max-age=60;other", "no-store;other", "no-store-remote", "x=\"no-store, y\""]
        {
            assert_eq!(choose(not_ours), (None, false, Seconds::Valid(7), Seconds::Absent), "{not_ours}");
        }
    }

    /// RFC 9213 §2.2: the target list's order counts, not that of the fields.
    #[test]
    fn the_first_of_the_list_counts() {
        let chosen =
            choose("Cache-Control: no-store\r\nCDN-Cache-Control: max-age=60\r\nflatout-cache-control: max-age=5\r\n");
        assert_eq!((chosen.field, chosen.directives.max_age), (Some(0), Seconds::Valid(5)));
        assert!(!chosen.directives.no_store);
        let chosen = choose("Cache-Control: no-store\r\nCDN-Cache-Control: max-age=60\r\n");
        assert_eq!((chosen.field, chosen.directives.max_age), (Some(1), Seconds::Valid(60)));
    }

    /// RFC 9213 §2.1: what does not parse, or is empty, must be ignored.
    #[test]
    fn invalid_fields_are_ignored() {
        for value in ["", "max-age=", "max-age=60,", "MaX-AgE=60", "max-age=60; X", "max-age=-", "&"] {
            let chosen = choose(&format!("CDN-Cache-Control: {value}\r\nCache-Control: max-age=7\r\n"));
            assert_eq!((chosen.field, chosen.directives.max_age), (None, Seconds::Valid(7)), "{value}");
        }
        let chosen = choose("Flatout-Cache-Control: ???\r\nCDN-Cache-Control: no-store\r\n");
        assert!(chosen.field == Some(1) && chosen.directives.no_store);
    }

    #[test]
    fn types_of_values() {
        let max_age = |value: &str| choose(&format!("CDN-Cache-Control: max-age={value}\r\n")).directives.max_age;
        assert_eq!(max_age("99999999999"), Seconds::Valid(SECONDS_MAX));
        assert_eq!(max_age("2147483647;x=1"), Seconds::Valid(SECONDS_MAX - 1));
        for wrong in ["-1", "1.5", "\"60\"", "?1", "abc", "(60)"] {
            assert_eq!(max_age(wrong), Seconds::Invalid, "{wrong}");
        }
        let chosen = choose("CDN-Cache-Control: no-store=?0, private=\"a\", public=1, max-age=1\r\n").directives;
        assert!(!chosen.no_store && chosen.private && !chosen.public);
        // Two lines are one dictionary, of which the last value of a key counts.
        let chosen = choose("CDN-Cache-Control: max-age=1, foo\r\nCDN-Cache-Control: max-age=9\r\n").directives;
        assert_eq!(chosen.max_age, Seconds::Valid(9));
    }

    /// A prohibition counts even if a separator other than a comma follows.
    #[test]
    fn surrogate_control_that_breaks_the_grammar() {
        let chosen = choose("Surrogate-Control: no-store max-age=0\r\nCache-Control: max-age=7\r\n");
        assert!(chosen.directives.no_store && chosen.field == Some(2));
    }
}
