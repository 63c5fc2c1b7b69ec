//! Resolution of references, which may refer only to the page's host.

use super::EsiError;
use flatout_http::host::{check_host, split_port};
use flatout_http::target::{Target, parse_target};

/// URL of the page that contains a reference.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    /// True if the request used https.
    pub secure: bool,
    /// Host and port, as in the Host field.
    pub authority: &'a [u8],
    /// The path, which begins with `/`.
    pub path: &'a [u8],
    /// The query.
    pub query: Option<&'a [u8]>,
}

/// Resolves a reference against the page's URL (RFC 3986 §5.2) to an origin-form target on the same host and port.
///
/// Every other host is refused, so that authors of page content cannot make this server send requests to internal hosts
/// (SSRF). http and https on the same host are treated as the same site, and the part is fetched with the page's
/// scheme. The target is validated as strictly as that of a request.
pub fn resolve(src: &str, base: &Base<'_>) -> Result<String, EsiError> {
    let src = src.split('#').next().unwrap_or_default();
    let (secure, rest) = match split_scheme(src) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
        Some(_) => return Err(EsiError::SrcScheme),
        None => (base.secure, src),
    };
    let has_scheme = rest.len() != src.len();
    let resource = match rest.strip_prefix("//") {
        Some(after) => {
            let end = after.find(['/', '?']).unwrap_or(after.len());
            check_authority(&after.as_bytes()[..end], secure, base)?;
            &after[end..]
        }
        // Authors never intend `http:path`.
        None if has_scheme => return Err(EsiError::SrcInvalid),
        None => rest,
    };
    let (path, query) = match resource.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (resource, None),
    };
    let base_path = std::str::from_utf8(base.path).map_err(|_| EsiError::SrcInvalid)?;
    let merged = if path.starts_with('/') {
        remove_dot_segments(path)
    } else if path.is_empty() && rest.starts_with("//") {
        "/".to_owned()
    } else if path.is_empty() {
        base_path.to_owned()
    } else {
        let folder = base_path.rfind('/').map_or("/", |slash| &base_path[..=slash]);
        remove_dot_segments(&format!("{folder}{path}"))
    };
    let mut target = merged;
    let base_query = base.query.filter(|_| path.is_empty() && !rest.starts_with("//"));
    if let Some(query) = query.map(str::as_bytes).or(base_query) {
        target.push('?');
        target.push_str(std::str::from_utf8(query).map_err(|_| EsiError::SrcInvalid)?);
    }
    match parse_target(b"GET", target.as_bytes()) {
        Ok(Target::Resource { .. }) => Ok(target),
        _ => Err(EsiError::SrcInvalid),
    }
}

/// Splits the scheme (RFC 3986 §3.1) from the rest of a reference at the first `:`. Returns `None` if the colon belongs
/// to a path or a query.
fn split_scheme(src: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = src.split_once(':')?;
    let valid = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    valid.then_some((scheme, rest))
}

/// Checks that the host and port equal those of the page. The scheme's default port may be explicit.
fn check_authority(authority: &[u8], secure: bool, base: &Base<'_>) -> Result<(), EsiError> {
    check_host(authority).map_err(|_| EsiError::SrcInvalid)?;
    let (host, port) = split_port(authority);
    let (base_host, base_port) = split_port(base.authority);
    let (port, base_port) = (port.unwrap_or_default(), base_port.unwrap_or_default());
    // If both have the default port of their scheme, they are the same site, even if the schemes differ.
    let same_port = match (is_default(port, secure), is_default(base_port, base.secure)) {
        (true, true) => true,
        (false, false) => port == base_port,
        _ => false,
    };
    if host.eq_ignore_ascii_case(base_host) && same_port { Ok(()) } else { Err(EsiError::SrcHost) }
}

fn is_default(port: &[u8], secure: bool) -> bool {
    port.is_empty() || port == if secure { b"443".as_slice() } else { b"80" }
}

/// Removes dot segments (RFC 3986 §5.2.4) from a path that begins with `/`. Percent-encoded dots count as dots
/// (§6.2.2.2), since the origin may decode them.
fn remove_dot_segments(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        match count_dots(segment) {
            1 => {}
            2 => drop(kept.pop()),
            _ => {
                kept.push(segment);
                continue;
            }
        }
        if segments.peek().is_none() {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

/// Returns the number of dots in a segment, or 0 if it contains any other character.
fn count_dots(mut segment: &str) -> usize {
    let mut dots = 0;
    while let Some(rest) = ["%2e", "%2E", "."].iter().find_map(|dot| segment.strip_prefix(dot)) {
        segment = rest;
        dots += 1;
    }
    if segment.is_empty() { dots } else { 0 }
}
