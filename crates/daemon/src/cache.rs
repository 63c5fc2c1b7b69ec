//! An operator's query about one request, as encoded on the admin socket.
//!
//! A query is `GET /cache?url=…`, followed by `&method=…`, `&header=…` (once per field) and `&from=…` (the client's
//! address); values are percent-encoded. The response is [`CacheReply`] as JSON.
//!
//! The stored responses and the handling of requests are not in this module; see
//! [`StoreView`](crate::store::StoreView).

use crate::purge::{decode, encode};
use flatout_engine::explain::{Explanation, Question};
use flatout_proxy::CacheExplanation;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// Name and version of the schema of [`CacheReply`].
pub const CACHE_SCHEMA: &str = "flatout-cache/1";

/// Maximum number of header fields in a query.
const FIELDS_MAX: usize = 100;

/// Describes how the running process would handle a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CacheReply {
    /// [`CACHE_SCHEMA`].
    pub schema: String,
    /// The stored responses; `None` if the request would not be forwarded to an origin, or no cache applies to it.
    pub cache: Option<CacheExplanation>,
    /// The origins to which the request would be forwarded, as in
    /// [`ProxyExplanation`](flatout_engine::explain::ProxyExplanation), and their states; or the application server that
    /// would run a script, and its state.
    #[serde(default)]
    pub origins: Option<(String, Vec<String>)>,
    /// The whole explanation, as printed by `flatout explain --json`.
    pub explanation: Value,
    /// The whole explanation, as printed by `flatout explain`.
    pub text: String,
}

impl CacheReply {
    /// Creates a reply from an explanation.
    pub(crate) fn new(told: &Explanation) -> Self {
        let php = told.php.as_ref().map(|php| (php.server.clone(), php.state.iter().cloned().collect()));
        Self {
            schema: CACHE_SCHEMA.to_owned(),
            cache: told.proxy.as_ref().and_then(|proxy| proxy.kept.clone()),
            origins: told.proxy.as_ref().map(|proxy| (proxy.origins.clone(), proxy.states.clone())).or(php),
            explanation: told.to_json(),
            text: told.to_text(false),
        }
    }

    /// Returns the states of `servers`, or `None` if the request would be sent to others.
    pub fn states_of(&self, servers: &str) -> Option<Vec<String>> {
        self.origins.as_ref().filter(|(origins, _)| origins == servers).map(|(_, states)| states.clone())
    }

    /// Returns whether the process serves a folder whose path names another one now, and `local`, an explanation of the
    /// same request by another process, is about a file below that path.
    pub fn keeps_folder_of(&self, local: &Explanation) -> bool {
        let kept = self.explanation["replaced"].as_array().into_iter().flatten();
        let mut paths = kept.filter_map(|folder| folder["name"].as_str());
        paths.any(|path| local.files.iter().any(|(name, _)| Path::new(name).starts_with(path)))
    }
}

/// Returns the request target for `question` on the admin socket.
pub fn cache_target(question: &Question) -> String {
    let fields = question.fields.iter().map(|(name, value)| format!("&header={}", encode(&format!("{name}: {value}"))));
    format!(
        "/cache?url={}&method={}{}{}",
        encode(&question.url()),
        encode(&question.method),
        question.client.map(|client| format!("&from={}", encode(&client.to_string()))).unwrap_or_default(),
        fields.collect::<String>()
    )
}

/// Parses the query of `GET /cache`.
pub(crate) fn parse_question(query: &str) -> Result<Question, String> {
    let (mut url, mut method, mut client) = (None, "GET".to_owned(), None);
    let mut fields = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decode(value).ok_or_else(|| format!("the value of `{name}` is not percent-encoded UTF-8"))?;
        match name {
            "url" => url = Some(value),
            "method" => method = value,
            "from" => client = Some(value.parse().map_err(|_| format!("`{value}` is not an address"))?),
            "header" if fields.len() < FIELDS_MAX => fields.push(value),
            "header" => return Err(format!("there are more than {FIELDS_MAX} fields")),
            _ => return Err(format!("unknown parameter `{name}`; use url, method, header or from")),
        }
    }
    Question::parse(&method, &url.ok_or("the URL is missing: add url=http%3A//host/path")?, &fields, client)
}

#[cfg(test)]
mod tests {
    use super::{cache_target, parse_question};
    use flatout_engine::explain::Question;

    #[test]
    fn questions_survive_the_way() {
        let fields = ["Accept-Language: de, en;q=0.5".to_owned(), "Cookie: a=b&c".to_owned()];
        let from = Some("2001:db8::1".parse().unwrap());
        let question = Question::parse("HEAD", "https://a.example:8443/ä?b=%20&c", &fields, from).unwrap();
        let target = cache_target(&question);
        assert!(target.is_ascii(), "{target}");
        let parsed = parse_question(target.strip_prefix("/cache?").unwrap()).unwrap();
        assert_eq!(format!("{parsed:?}"), format!("{question:?}"));
    }

    #[test]
    fn invalid_queries_are_refused_with_a_reason() {
        for (query, said) in [
            ("", "URL is missing"),
            ("url=a", "not a URL"),
            ("url=http%3A//a/&from=x", "not an address"),
            ("url=http%3A//a/&header=x", "not a field"),
            ("url=%f", "percent-encoded"),
            ("path=/", "unknown parameter `path`"),
        ] {
            let error = parse_question(query).unwrap_err();
            assert!(error.contains(said), "{query}: {error}");
        }
    }
}
