//! Cache directives for specific caches, which replace Cache-Control and Expires: targeted fields (RFC 9213) and the
//! older Surrogate-Control (Edge Architecture Specification 1.0, §2).

use crate::directive::{
    ResponseDirectives, SECONDS_MAX, Seconds, has_word, parse_response_directives, parse_seconds, split_list,
};
use crate::rules::Rules;
use flatout_http::head::Fields;
use flatout_http::structured::parse_dictionary;
use flatout_http::token::{is_token, trim};
use sfv::{BareItem, Item, ListEntry};

/// Directives of a response for this cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// The directives.
    pub directives: ResponseDirectives,
    /// Index of their targeted field in the target list; `None`: they come from Cache-Control.
    pub field: Option<usize>,
}

/// Selects the directives for a cache with the target list of `rules`. The first target field that is present, valid
/// and not empty counts; Cache-Control, Pragma and Expires are then ignored (RFC 9213 §2.2).
pub fn choose_directives(fields: &Fields<'_>, rules: &Rules) -> Chosen {
    for (place, name) in rules.targeted.iter().enumerate() {
        let lines = fields.iter().filter(|(line, _)| line.eq_ignore_ascii_case(name)).map(|(_, value)| value);
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

/// Parses the value of a targeted field. `None`: it is empty or not a dictionary, and must be ignored (RFC 9213 §2.1).
fn parse_targeted<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<ResponseDirectives> {
    let members = parse_dictionary(lines)?;
    if members.is_empty() {
        return None;
    }
    let mut directives = ResponseDirectives::default();
    for (key, value) in members {
        // A value of the wrong type must be ignored (RFC 9213 §2.1). Prohibitions count nonetheless, unless the value
        // is false: an origin that sends `no-store="x"` wants no storage.
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

/// Parses Surrogate-Control: `max-age=600`, `max-age=600+60` (then 60 s stale-while-revalidate) or `no-store`, each
/// optionally with `;name` for one surrogate. `None`: no directive for `surrogate` controls caching;
/// `content="ESI/1.0"` alone does not.
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
            // White space around `=` makes it invalid, as in Cache-Control.
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
    use super::{Chosen, choose_directives};
    use crate::directive::{SECONDS_MAX, Seconds};
    use crate::lines::with_fields;
    use crate::rules::Rules;

    fn choose(lines: &str) -> Chosen {
        with_fields(lines.as_bytes(), |fields| choose_directives(fields, &Rules::default())).unwrap()
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
    fn what_is_invalid_is_as_if_it_were_not_there() {
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

    /// A directive that forbids counts even if a separator other than a comma follows.
    #[test]
    fn surrogate_control_that_breaks_the_grammar() {
        let chosen = choose("Surrogate-Control: no-store max-age=0\r\nCache-Control: max-age=7\r\n");
        assert!(chosen.directives.no_store && chosen.field == Some(2));
    }
}
