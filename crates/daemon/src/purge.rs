//! An operator's purge request, as encoded on the admin socket.
//!
//! A purge is `POST /purge?url=…`, `?tag=…`, `?prefix=…`, `?host=…` or `?all`, optionally followed by `&soft` and
//! `&dry-run`; values are percent-encoded. The response is [`PurgeReply`] as JSON.
//!
//! The purge itself is not in this module: the store performs it through [`StoreView`](crate::store::StoreView).

use flatout_http::percent;
use flatout_http::url::Url;
use serde::{Deserialize, Serialize};

/// Name and version of the schema of [`PurgeReply`].
pub const PURGE_SCHEMA: &str = "flatout-purge/1";

/// Maximum length of a tag or a host, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// Maximum length of a URL, in bytes; the same as for a request target.
const URL_BYTES_MAX: usize = 8 * 1024;

/// Describes which stored responses to purge, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeRequest {
    /// The objects to purge.
    pub scope: PurgeScope,
    /// True to mark objects as stale instead of removing them, so that they can still be served according to
    /// stale-while-revalidate and stale-if-error.
    pub soft: bool,
    /// True to only count the objects.
    pub dry_run: bool,
}

/// The objects to purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgeScope {
    /// All variants of this URL, with either scheme.
    Url(Url),
    /// All objects with this tag, compared byte for byte.
    Tag(String),
    /// All objects of this host whose path and query have this prefix, with either scheme.
    Prefix(Url),
    /// All objects of this host and port, in lower case, with either scheme. Without a port, the port is the scheme's
    /// default.
    Host(String),
    /// All objects.
    All,
}

/// The result of a purge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeReply {
    /// [`PURGE_SCHEMA`].
    pub schema: String,
    /// Number of objects purged, or, in a dry run, that would be purged.
    pub objects: u64,
    /// Number of objects per proxy.
    #[serde(default)]
    pub proxies: Vec<PurgedProxy>,
    /// True if the objects were only marked as stale.
    pub soft: bool,
    /// True if the objects were only counted.
    pub dry_run: bool,
}

/// The number of purged responses of one proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgedProxy {
    /// The proxy's name, as in `flatout status`: the first name of its site, with a number if the site has several
    /// proxies.
    pub proxy: String,
    /// Number of objects.
    pub objects: u64,
}

impl PurgeReply {
    /// Creates the reply to `request` with the counts of `proxies`.
    pub fn new(request: &PurgeRequest, proxies: Vec<PurgedProxy>) -> Self {
        let objects = proxies.iter().map(|purged| purged.objects).sum();
        Self { schema: PURGE_SCHEMA.to_owned(), objects, proxies, soft: request.soft, dry_run: request.dry_run }
    }
}

/// Parses the URL of a purge.
fn parse_url(text: &str) -> Result<Url, String> {
    if text.len() > URL_BYTES_MAX {
        return Err(format!("the URL is longer than {URL_BYTES_MAX} bytes"));
    }
    Url::parse_lenient(text).map_err(|error| error.to_string())
}

/// Parses a host with an optional port, and converts it to lower case.
fn parse_host(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("the URL has no host: write http://host/path".to_owned());
    }
    if text.len() > NAME_BYTES_MAX || flatout_http::host::check_host(text.as_bytes()).is_err() {
        return Err(format!("`{text}` is not a host: write example.com, or example.com:8080"));
    }
    // An empty port is equivalent to no port (RFC 9110 §4.2.3).
    Ok(text.strip_suffix(':').unwrap_or(text).to_ascii_lowercase())
}

impl PurgeScope {
    /// Parses the scope of an absolute http or https URL.
    ///
    /// # Errors
    /// Returns a message with the problem and the correct syntax.
    pub fn url(text: &str) -> Result<Self, String> {
        parse_url(text).map(Self::Url)
    }

    /// Parses the scope of all URLs that begin with `text`.
    ///
    /// # Errors
    /// Returns a message with the problem and the correct syntax.
    pub fn prefix(text: &str) -> Result<Self, String> {
        parse_url(text).map(Self::Prefix)
    }

    /// Parses the scope of a host.
    ///
    /// # Errors
    /// If the host is invalid.
    pub fn host(text: &str) -> Result<Self, String> {
        parse_host(text).map(Self::Host)
    }

    /// Parses the scope of a tag. A tag contains neither spaces nor commas, because these separate tags in
    /// Surrogate-Key and Cache-Tag.
    ///
    /// # Errors
    /// If no object could have this tag.
    pub fn tag(text: &str) -> Result<Self, String> {
        let parts = |character: char| character.is_whitespace() || character.is_control() || character == ',';
        if text.is_empty() || text.len() > NAME_BYTES_MAX || text.contains(parts) {
            return Err(format!("`{text}` is not a tag: use 1 to {NAME_BYTES_MAX} bytes without spaces or commas"));
        }
        Ok(Self::Tag(text.to_owned()))
    }
}

impl PurgeRequest {
    /// Returns the request target on the admin socket.
    pub fn to_target(&self) -> String {
        let scope = match &self.scope {
            PurgeScope::Url(url) => format!("url={}", encode(&url.to_string())),
            PurgeScope::Tag(tag) => format!("tag={}", encode(tag)),
            PurgeScope::Prefix(url) => format!("prefix={}", encode(&url.to_string())),
            PurgeScope::Host(host) => format!("host={}", encode(host)),
            PurgeScope::All => "all".to_owned(),
        };
        let soft = if self.soft { "&soft" } else { "" };
        let dry_run = if self.dry_run { "&dry-run" } else { "" };
        format!("/purge?{scope}{soft}{dry_run}")
    }

    /// Parses the query of `POST /purge`.
    ///
    /// # Errors
    /// Returns a message with the problem.
    pub fn parse_query(query: &str) -> Result<Self, String> {
        let mut scope = None;
        let (mut soft, mut dry_run) = (false, false);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value).ok_or_else(|| format!("the value of `{name}` is not percent-encoded UTF-8"))?;
            let found = match name {
                "url" => PurgeScope::url(&value)?,
                "tag" => PurgeScope::tag(&value)?,
                "prefix" => PurgeScope::prefix(&value)?,
                "host" => PurgeScope::host(&value)?,
                "all" if value.is_empty() => PurgeScope::All,
                "soft" | "dry-run" if value.is_empty() => {
                    *(if name == "soft" { &mut soft } else { &mut dry_run }) = true;
                    continue;
                }
                "all" | "soft" | "dry-run" => return Err(format!("`{name}` takes no value")),
                _ => {
                    return Err(format!(
                        "unknown parameter `{name}`; use url, tag, prefix, host, all, soft or dry-run"
                    ));
                }
            };
            if scope.replace(found).is_some() {
                return Err("use only one of url, tag, prefix, host or all".to_owned());
            }
        }
        let scope = scope.ok_or("nothing to purge: use one of url, tag, prefix, host or all")?;
        Ok(Self { scope, soft, dry_run })
    }
}

/// Percent-encodes all characters except unreserved characters, colons and slashes.
pub(crate) fn encode(text: &str) -> String {
    percent::encode(text.as_bytes(), |byte| percent::is_unreserved(byte) || matches!(byte, b':' | b'/'))
}

/// Decodes the output of [`encode`]. Returns `None` if the encoding is invalid or the result is not UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    let is_valid = text.match_indices('%').all(|(at, _)| percent::decode_first(&text.as_bytes()[at..]).is_some());
    String::from_utf8(percent::decode(text.as_bytes()).collect()).ok().filter(|_| is_valid)
}

#[cfg(test)]
mod tests {
    use super::{PurgeRequest, PurgeScope};

    #[test]
    fn urls_may_have_what_a_cache_key_has() {
        for (text, shown) in [("http://a/ü[]?%|", "http://a/ü[]?%|"), ("http://A.example:80/x#d", "http://a.example/x")]
        {
            let Ok(PurgeScope::Url(url)) = PurgeScope::url(text) else { panic!("{text}") };
            assert_eq!(url.to_string(), shown);
        }
        let long = format!("http://a/{}", "x".repeat(9_000));
        for bad in ["/a", "http://a:/", &long] {
            assert!(PurgeScope::url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn requests_round_trip() {
        let scopes = [
            PurgeScope::url("http://a.example:8080/b?c=d&e=%20").unwrap(),
            PurgeScope::prefix("https://[::1]/a/").unwrap(),
            PurgeScope::tag("a&b=c%20+#ü").unwrap(),
            PurgeScope::host("A.example:81").unwrap(),
            PurgeScope::All,
        ];
        for scope in scopes {
            for (soft, dry_run) in [(false, false), (true, false), (false, true), (true, true)] {
                let request = PurgeRequest { scope: scope.clone(), soft, dry_run };
                let target = request.to_target();
                assert!(target.bytes().all(|byte| byte.is_ascii_graphic()), "{target}");
                let query = target.strip_prefix("/purge?").unwrap();
                assert_eq!(PurgeRequest::parse_query(query).as_ref(), Ok(&request), "{target}");
            }
        }
    }

    #[test]
    fn invalid_purges_are_refused() {
        for (query, said) in [
            ("", "nothing to purge"),
            ("soft", "nothing to purge"),
            ("all&tag=x", "only one of"),
            ("tag=x&tag=y", "only one of"),
            ("tag=", "is not a tag"),
            ("tag=a%20b", "is not a tag"),
            ("tag=a,b", "is not a tag"),
            ("tag=a%00", "is not a tag"),
            ("tag=%f", "percent-encoded"),
            ("tag=%ff", "percent-encoded"),
            ("url=/a", "not a URL"),
            ("host=a/b", "is not a host"),
            ("host=", "no host"),
            ("all=1", "takes no value"),
            ("all&soft=1", "takes no value"),
            ("everything", "unknown parameter `everything`"),
        ] {
            let error = PurgeRequest::parse_query(query).unwrap_err();
            assert!(error.contains(said), "{query}: {error}");
        }
    }
}
