//! Cache keys, which consist of exactly the parts of the target URI that the origin receives.
//!
//! The key contains the path and query byte for byte. RFC 3986 §6.2 defines normal forms in which `/%7Ea` equals `/~a`
//! and `/b/../a` equals `/a`, but an origin may distinguish them. If the keys were equal, a client could make the
//! response for `/b/../a` the stored response for `/a` (cache deception by path confusion), whereas two keys for one
//! resource cost only space. Only details that origins do not receive are normalised: the case of the host and the
//! scheme's default port, provided that the forwarded Host comes from [`write_authority`].

use crate::request::CacheRequest;
use crate::rules::{QueryKey, Rules};

/// Appends the key of `request` to `output`: the scheme, host, port unless it is the default, path and forwarded query.
/// Example: `http://example.com/a?b=c`.
pub fn write_key(request: &CacheRequest<'_>, rules: &Rules, output: &mut Vec<u8>) {
    write_origin(request.secure, request.authority, output);
    output.extend_from_slice(request.path);
    let query_at = output.len();
    output.push(b'?');
    if !write_query(request.query, &rules.query, output) {
        output.truncate(query_at);
    }
}

/// Appends the part of the key before the path, which identifies the origin (RFC 9110 §4.3.1), to `output`.
pub fn write_origin(secure: bool, authority: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(if secure { b"https://" } else { b"http://" });
    write_authority(secure, authority, output);
}

/// Appends the host and port to `output` as they appear in the key. The Host field sent to the origin has the same
/// form, so that the origin never sees the client's spelling (RFC 9110 §4.2.3).
pub fn write_authority(secure: bool, authority: &[u8], output: &mut Vec<u8>) {
    let own_port: &[u8] = if secure { b"443" } else { b"80" };
    let host = match authority.iter().rposition(|&byte| byte == b':') {
        // A colon within brackets belongs to an IPv6 address.
        Some(colon) if !authority[colon..].contains(&b']') => {
            let port = &authority[colon + 1..];
            if port.is_empty() || port == own_port { &authority[..colon] } else { authority }
        }
        _ => authority,
    };
    let start = output.len();
    output.extend_from_slice(host);
    output[start..].make_ascii_lowercase();
}

/// Appends the forwarded query, without `?`, to `output`. Returns false, and appends nothing, if no query is
/// forwarded.
///
/// Parameter names are compared as written: a percent-encoded name is a different name.
pub fn write_query(query: Option<&[u8]>, rule: &QueryKey, output: &mut Vec<u8>) -> bool {
    let Some(query) = query else { return false };
    let keep = |parameter: &&[u8]| {
        let name = parameter.split(|&byte| byte == b'=').next().unwrap_or_default();
        match rule {
            QueryKey::All => true,
            QueryKey::Without(names) => !names.iter().any(|pattern| is_named(name, pattern)),
            QueryKey::Only(names) => names.iter().any(|pattern| is_named(name, pattern)),
        }
    };
    if *rule == QueryKey::All {
        output.extend_from_slice(query);
        return true;
    }
    let mut any = false;
    for parameter in query.split(|&byte| byte == b'&').filter(keep) {
        if any {
            output.push(b'&');
        }
        any = true;
        output.extend_from_slice(parameter);
    }
    any
}

fn is_named(name: &[u8], pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix.as_bytes()),
        None => name == pattern.as_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::{write_authority, write_key, write_query};
    use crate::request::CacheRequest;
    use crate::rules::{QueryKey, Rules};
    use flatout_http::head::Fields;

    fn key(secure: bool, authority: &str, target: &str, query: QueryKey) -> String {
        let (path, search) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let request = CacheRequest {
            method: "GET",
            secure,
            authority: authority.as_bytes(),
            path: path.as_bytes(),
            query: search.map(str::as_bytes),
            fields: Fields::EMPTY,
            has_content: false,
            forwarding: &crate::request::AsReceived,
        };
        let mut output = Vec::new();
        write_key(&request, &Rules { query, ..Rules::default() }, &mut output);
        String::from_utf8(output).unwrap()
    }

    /// RFC 9110 §4.2.3 for host and port; path and query as they are.
    #[test]
    fn keys_are_what_the_origin_sees() {
        for (secure, authority, target, expected) in [
            (false, "Example.COM", "/", "http://example.com/"),
            (false, "example.com:80", "/a?b", "http://example.com/a?b"),
            (false, "example.com:", "/a?", "http://example.com/a?"),
            (false, "example.com:443", "/", "http://example.com:443/"),
            (true, "example.com:443", "/", "https://example.com/"),
            (true, "example.com:80", "/", "https://example.com:80/"),
            (false, "[::1]:80", "/", "http://[::1]/"),
            (false, "[::1]", "/", "http://[::1]/"),
            (false, "[FE::1]:8080", "/", "http://[fe::1]:8080/"),
            (false, "a", "/x/../y//%7e%2F", "http://a/x/../y//%7e%2F"),
            (false, "a", "/?b=2&a=1", "http://a/?b=2&a=1"),
        ] {
            assert_eq!(key(secure, authority, target, QueryKey::All), expected);
        }
    }

    #[test]
    fn queries_are_filtered_for_key_and_origin_alike() {
        let names = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let without = || QueryKey::Without(names("utm_* fbclid"));
        let only = || QueryKey::Only(names("id p*"));
        for (target, rule, expected) in [
            ("/?utm_source=x&a=1&fbclid=2&utm_=&b", without(), "http://h/?a=1&b"),
            ("/?utm_source=x", without(), "http://h/"),
            ("/?", without(), "http://h/?"),
            ("/", without(), "http://h/"),
            ("/?fbclidx=1&utm=2&%75tm_a=3", without(), "http://h/?fbclidx=1&utm=2&%75tm_a=3"),
            ("/?a=1&id=2&page=3&idx=4&id=5", only(), "http://h/?id=2&page=3&id=5"),
            ("/?a=1", only(), "http://h/"),
        ] {
            assert_eq!(key(false, "h", target, rule), expected, "{target}");
        }
        let mut output = b"x".to_vec();
        assert!(!write_query(Some(b"a"), &only(), &mut output) && output == b"x");
        assert!(!write_query(None, &QueryKey::All, &mut output));
        write_authority(false, b"B:80", &mut output);
        assert_eq!(output, b"xb");
    }
}
