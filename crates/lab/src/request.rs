//! The one request a bench sends over and over, built once.

use crate::url::Url;
use flatout_http::token::{is_token, trim};

/// Why a field given on the command line cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// There is no colon, or no proper name before it.
    Name(String),
    /// The value holds a control character.
    Value(String),
    /// The field belongs to the client itself.
    Reserved(String),
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(line) => write!(formatter, "the header {line:?} is not of the form 'Name: value'"),
            Self::Value(line) => write!(formatter, "the header {line:?} has a control character in its value"),
            Self::Reserved(name) if name.eq_ignore_ascii_case("connection") => {
                write!(formatter, "the header Connection is the client's own; use --close for a connection per request")
            }
            Self::Reserved(name) => {
                write!(formatter, "the header {name} would announce a body, and a bench sends none")
            }
        }
    }
}

impl std::error::Error for FieldError {}

/// Fields that say how a message is framed or what becomes of its connection.
const RESERVED: [&str; 4] = ["connection", "content-length", "transfer-encoding", "expect"];

/// One field line of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    name: String,
    value: String,
}

impl Field {
    /// Parses `Name: value`.
    pub fn parse(line: &str) -> Result<Self, FieldError> {
        let Some((name, value)) = line.split_once(':').filter(|(name, _)| is_token(name.as_bytes())) else {
            return Err(FieldError::Name(line.to_owned()));
        };
        if RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
            return Err(FieldError::Reserved(name.to_owned()));
        }
        let value = String::from_utf8_lossy(trim(value.as_bytes())).into_owned();
        if value.chars().any(|character| character.is_control() && character != '\t') {
            return Err(FieldError::Value(line.to_owned()));
        }
        Ok(Self { name: name.to_owned(), value })
    }
}

/// The bytes of a GET request. Fields given replace our own of the same name.
pub fn build_request(url: &Url, fields: &[Field], closes: bool) -> Vec<u8> {
    let mut text = format!("GET {} HTTP/1.1\r\n", url.target);
    for (name, value) in request_fields(url, fields, closes) {
        for part in [name.as_str(), ": ", &value, "\r\n"] {
            text.push_str(part);
        }
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// Name and value of every field of that request, in the order sent.
pub fn request_fields(url: &Url, fields: &[Field], closes: bool) -> Vec<(String, String)> {
    let own = [
        ("Host", url.authority()),
        ("User-Agent", concat!("flatout-bench/", env!("CARGO_PKG_VERSION")).to_owned()),
        ("Accept", "*/*".to_owned()),
    ];
    let is_given = |name: &str| fields.iter().any(|field| field.name.eq_ignore_ascii_case(name));
    let mut sent: Vec<_> =
        own.into_iter().filter(|(name, _)| !is_given(name)).map(|(name, value)| (name.to_owned(), value)).collect();
    sent.extend(fields.iter().map(|field| (field.name.clone(), field.value.clone())));
    if closes {
        sent.push(("Connection".to_owned(), "close".to_owned()));
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::{Field, FieldError, build_request};
    use crate::url::Url;
    use flatout_http::head::FieldStorage;
    use flatout_http::limits::Limits;
    use flatout_http::request::parse_request_head;

    fn text(fields: &[&str], closes: bool) -> String {
        let fields: Vec<_> = fields.iter().map(|line| Field::parse(line).unwrap()).collect();
        let url = Url::parse("http://127.0.0.1:8080/a?b").unwrap();
        String::from_utf8(build_request(&url, &fields, closes)).unwrap()
    }

    #[test]
    fn a_plain_request_is_whole_and_has_nothing_superfluous() {
        let expected = concat!(
            "GET /a?b HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: flatout-bench/",
            env!("CARGO_PKG_VERSION"),
            "\r\nAccept: */*\r\n\r\n"
        );
        assert_eq!(text(&[], false), expected);
        assert!(text(&[], true).ends_with("\r\nConnection: close\r\n\r\n"));
    }

    #[test]
    fn given_fields_replace_ours() {
        let text = text(&["host:  x.example ", "X-Y: a:b"], false);
        assert!(text.contains("\r\nhost: x.example\r\nX-Y: a:b\r\n") && !text.contains("Host: 127"));
    }

    #[test]
    fn our_own_server_reads_it() {
        let text = text(&["Cookie: a=b"], true);
        let mut storage = FieldStorage::new();
        assert!(parse_request_head(text.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap().is_some());
    }

    #[test]
    fn fields_that_cannot_be_sent_say_why() {
        for (line, error) in [
            ("no colon", FieldError::Name("no colon".to_owned())),
            (": x", FieldError::Name(": x".to_owned())),
            ("A b: x", FieldError::Name("A b: x".to_owned())),
            ("A: x\r\nB: y", FieldError::Value("A: x\r\nB: y".to_owned())),
            ("Connection: close", FieldError::Reserved("Connection".to_owned())),
            ("content-length: 1", FieldError::Reserved("content-length".to_owned())),
        ] {
            assert_eq!(Field::parse(line), Err(error.clone()));
            assert!(!error.to_string().is_empty());
        }
    }
}
