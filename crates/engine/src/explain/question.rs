//! Requests to explain, as specified by an operator.

use flatout_http::url::Url;
use std::net::IpAddr;

/// A request to explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Request method, such as `GET`. Case-sensitive.
    pub method: String,
    /// True if the URL's scheme is https.
    pub secure: bool,
    /// Host, with the port unless it is the scheme's default.
    pub host: String,
    /// Port of the URL, or the default of its scheme.
    pub port: u16,
    /// Path and query, beginning with a slash.
    pub target: String,
    /// Additional fields, as name and value.
    pub fields: Vec<(String, String)>,
    /// The client's address. By default, the client is on this machine: at 127.0.0.1, or at the other end of a Unix
    /// socket.
    pub client: Option<IpAddr>,
}

impl Question {
    /// Parses a request with `method` for `url`. `fields` are lines of the form `Name: value`.
    ///
    /// # Errors
    /// Returns a description of the problem and the correct syntax.
    pub fn parse(method: &str, url: &str, fields: &[String], client: Option<IpAddr>) -> Result<Self, String> {
        let url = Url::parse_lenient(url).map_err(|error| error.to_string())?;
        let field = |line: &String| match line.split_once(':') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.trim().to_owned())),
            _ => Err(format!("`{line}` is not a field: write 'Name: value'")),
        };
        let fields = fields.iter().map(field).collect::<Result<_, _>>()?;
        let (host, method) = (url.authority(), method.to_owned());
        Ok(Self { method, secure: url.secure, host, port: url.port, target: url.target, fields, client })
    }

    /// Returns the absolute URL.
    pub fn url(&self) -> String {
        format!("{}://{}{}", if self.secure { "https" } else { "http" }, self.host, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::Question;

    #[test]
    fn the_urls_port_is_checked() {
        let parse = |url| Question::parse("GET", url, &[], None);
        let question = parse("https://[::1]:8443?x#y").unwrap();
        assert_eq!((question.host.as_str(), question.port, question.target.as_str()), ("[::1]:8443", 8443, "/?x"));
        assert!(parse("http://a:99999/").unwrap_err().contains("\"99999\" is not a number from 1 to 65535"));
        assert!(parse("http://::1/").unwrap_err().contains("[::1]"));
    }
}
