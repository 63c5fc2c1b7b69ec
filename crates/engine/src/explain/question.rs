//! A request as an operator specifies it.

use std::net::IpAddr;

/// A request to explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The method.
    pub method: String,
    /// True if the URL begins with `https:`.
    pub secure: bool,
    /// Host, with its port if the URL has one.
    pub host: String,
    /// The URL's port, or the default of its scheme.
    pub port: u16,
    /// Path and query, beginning with a slash.
    pub target: String,
    /// Additional fields.
    pub fields: Vec<(String, String)>,
    /// The client's address.
    pub client: IpAddr,
}

impl Question {
    /// Parses a request with `method` for `url`. `fields` are lines: `Name: value`.
    ///
    /// # Errors
    /// The problem, and the correct syntax.
    pub fn parse(method: &str, url: &str, fields: &[String], client: IpAddr) -> Result<Self, String> {
        let (secure, host, target) = split_url(url)?;
        let port = port_of(host).unwrap_or(if secure { 443 } else { 80 });
        let field = |line: &String| match line.split_once(':') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.trim().to_owned())),
            _ => Err(format!("`{line}` is not a field: write 'Name: value'")),
        };
        let fields = fields.iter().map(field).collect::<Result<_, _>>()?;
        Ok(Self { method: method.to_owned(), secure, host: host.to_owned(), port, target, fields, client })
    }

    /// The URL.
    pub fn url(&self) -> String {
        format!("{}://{}{}", if self.secure { "https" } else { "http" }, self.host, self.target)
    }
}

/// True for https, then the authority, then path and query with their leading slash.
fn split_url(url: &str) -> Result<(bool, &str, String), String> {
    let (scheme, rest) =
        url.split_once("://").ok_or_else(|| format!("`{url}` is not a URL: write http://host/path"))?;
    let secure = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return Err(format!("`{scheme}` is neither http nor https")),
    };
    // The fragment is not sent to servers.
    let rest = rest.split('#').next().unwrap_or_default();
    let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if host.is_empty() {
        return Err(format!("`{url}` names no host"));
    }
    let slash = if target.starts_with('/') { "" } else { "/" };
    Ok((secure, host, format!("{slash}{target}")))
}

fn port_of(host: &str) -> Option<u16> {
    let (name, port) = host.rsplit_once(':')?;
    // A colon within brackets belongs to an address.
    if name.starts_with('[') == name.ends_with(']') { port.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::{port_of, split_url};

    #[test]
    fn urls_are_split() {
        for (url, secure, host, target) in [
            ("http://a/b?c#d", false, "a", "/b?c"),
            ("HTTPS://a:1", true, "a:1", "/"),
            ("https://[::1]:8443?x", true, "[::1]:8443", "/?x"),
        ] {
            assert_eq!(split_url(url), Ok((secure, host, target.to_owned())), "{url}");
        }
        for bad in ["", "a/b", "ftp://a/", "http:///x", "http://#"] {
            assert!(split_url(bad).is_err(), "{bad}");
        }
        for (host, port) in [("a", None), ("a:80", Some(80)), ("[::1]", None), ("[::1]:9", Some(9)), ("a:", None)] {
            assert_eq!(port_of(host), port, "{host}");
        }
    }
}
