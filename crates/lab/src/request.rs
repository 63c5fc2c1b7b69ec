//! The requests of a bench, each of which is built once.

use flatout_client::{SharedStreams, StreamVersion};
use flatout_http::http2::hpack;
use flatout_http::http3::qpack;
use flatout_http::token::{is_token, trim};

/// The reason a header field from the command line is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// There is no colon, or no valid name before it.
    #[error("the header {0:?} does not have the form 'Name: value'")]
    Name(String),
    /// The value contains a control character.
    #[error("the header {0:?} has a control character in its value")]
    Value(String),
    /// The client sets this field itself.
    #[error("the client sets the header {0} itself; use {instead}", instead = instead_of(.0))]
    Reserved(String),
}

/// Returns the flag to use instead of a reserved field.
fn instead_of(name: &str) -> &'static str {
    if name.eq_ignore_ascii_case("connection") { "--close for a connection per request" } else { "--body for content" }
}

/// Fields for framing and connection handling, which the client sets itself.
const RESERVED: [&str; 4] = ["connection", "content-length", "transfer-encoding", "expect"];

/// One header field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestField {
    name: String,
    value: String,
}

impl RequestField {
    /// Parses a field line, `Name: value`.
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

/// The HTTP version of a bench.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0: a connection persists only if both sides say so.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
    /// HTTP/2, with this many concurrent streams per connection.
    Http2 {
        /// Number of streams, at least 1.
        streams: u32,
    },
    /// HTTP/3, with this many concurrent streams per connection.
    Http3 {
        /// Number of streams, at least 1.
        streams: u32,
    },
}

impl HttpVersion {
    /// Returns the streams of a connection; `None` for HTTP/1.
    pub const fn streams(self) -> Option<SharedStreams> {
        let (version, streams) = match self {
            Self::Http10 | Self::Http11 => return None,
            Self::Http2 { streams } => (StreamVersion::Http2, streams),
            Self::Http3 { streams } => (StreamVersion::Http3, streams),
        };
        Some(SharedStreams { version, per_connection: if streams == 0 { 1 } else { streams } })
    }

    /// Returns the name for users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 { .. } => "HTTP/2",
            Self::Http3 { .. } => "HTTP/3",
        }
    }
}

/// The meaning of a request's Connection field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionUse {
    /// The connection persists after the request.
    Kept,
    /// The request is the last on its connection.
    Last,
}

/// The parts of a request, before encoding.
#[derive(Clone, Copy, Debug)]
pub struct Outline<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query, in origin form.
    pub target: &'a str,
    /// Value of the Host field.
    pub host: &'a str,
    /// Additional fields, or replacements for default fields.
    pub fields: &'a [RequestField],
    /// Content of the request; empty if it has none.
    pub content: &'a [u8],
}

impl Outline<'_> {
    /// Encodes the request in HTTP/1 form. Fields in `fields` replace default fields of the same name.
    pub fn encode(&self, version: HttpVersion, connection: ConnectionUse) -> Vec<u8> {
        let number = if version == HttpVersion::Http10 { "1.0" } else { "1.1" };
        let mut text = format!("{} {} HTTP/{number}\r\n", self.method, self.target);
        for (name, value) in self.fields(version, connection) {
            for part in [name.as_str(), ": ", &value, "\r\n"] {
                text.push_str(part);
            }
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(self.content);
        bytes
    }

    /// Returns the name and value of every field of the HTTP/1 request, in order.
    pub fn fields(&self, version: HttpVersion, connection: ConnectionUse) -> Vec<(String, String)> {
        let own = [
            ("Host", self.host.to_owned()),
            ("User-Agent", concat!("flatout-bench/", env!("CARGO_PKG_VERSION")).to_owned()),
            ("Accept", "*/*".to_owned()),
        ];
        let is_given = |name: &str| self.fields.iter().any(|field| field.name.eq_ignore_ascii_case(name));
        let mut sent: Vec<_> =
            own.into_iter().filter(|(name, _)| !is_given(name)).map(|(name, value)| (name.to_owned(), value)).collect();
        sent.extend(self.fields.iter().map(|field| (field.name.clone(), field.value.clone())));
        // RFC 9110 §8.6: a method that expects content declares its length even if it is empty.
        if !self.content.is_empty() || ["POST", "PUT", "PATCH"].contains(&self.method) {
            sent.push(("Content-Length".to_owned(), self.content.len().to_string()));
        }
        match (version, connection) {
            (HttpVersion::Http10, ConnectionUse::Kept) => sent.push(("Connection".to_owned(), "keep-alive".to_owned())),
            (HttpVersion::Http11, ConnectionUse::Last) => sent.push(("Connection".to_owned(), "close".to_owned())),
            _ => {}
        }
        sent
    }

    /// Encodes the head of the request in HTTP/2 or HTTP/3, as a field block.
    ///
    /// # Errors
    /// Returns the name of a field that these versions do not permit (RFC 9113 §8.2.2, RFC 9114 §4.2).
    pub fn encode_streamed(&self, version: StreamVersion, secure: bool) -> Result<Vec<u8>, String> {
        const OF_CONNECTIONS: [&str; 5] =
            ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
        let is_of_connection = |field: &&RequestField| OF_CONNECTIONS.contains(&&*field.name.to_ascii_lowercase());
        if let Some(field) = self.fields.iter().find(is_of_connection) {
            return Err(field.name.clone());
        }
        let fields = self.fields(HttpVersion::Http2 { streams: 1 }, ConnectionUse::Kept);
        let is_host = |name: &str| name.eq_ignore_ascii_case("host");
        let authority = fields.iter().find(|(name, _)| is_host(name)).map_or(self.host, |(_, value)| value);
        let encode_field = match version {
            StreamVersion::Http2 => hpack::encode_field,
            StreamVersion::Http3 => qpack::encode_field,
        };
        let mut block = Vec::new();
        for (name, value) in [
            (":method", self.method),
            (":scheme", if secure { "https" } else { "http" }),
            (":authority", authority),
            (":path", self.target),
        ] {
            encode_field(name.as_bytes(), value.as_bytes(), &mut block);
        }
        for (name, value) in fields.iter().filter(|(name, _)| !is_host(name)) {
            encode_field(name.to_ascii_lowercase().as_bytes(), value.as_bytes(), &mut block);
        }
        Ok(block)
    }
}

/// Returns whether a string is a valid method (RFC 9110 §9.1).
pub fn is_method(text: &str) -> bool {
    is_token(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::{ConnectionUse, FieldError, HttpVersion, Outline, RequestField};
    use flatout_client::StreamVersion;
    use flatout_http::head::FieldStorage;
    use flatout_http::http2::hpack::Decoder;
    use flatout_http::http3::qpack;
    use flatout_http::limits::Limits;
    use flatout_http::request::parse_request_head;

    const OUTLINE: Outline<'static> =
        Outline { method: "GET", target: "/a?b", host: "127.0.0.1:8080", fields: &[], content: b"" };

    fn text(fields: &[&str], closes: bool) -> String {
        let fields: Vec<_> = fields.iter().map(|line| RequestField::parse(line).unwrap()).collect();
        let outline = Outline { fields: &fields, ..OUTLINE };
        let connection = if closes { ConnectionUse::Last } else { ConnectionUse::Kept };
        String::from_utf8(outline.encode(HttpVersion::Http11, connection)).unwrap()
    }

    #[test]
    fn http_1_0_says_when_a_connection_is_kept() {
        let encode = |connection| String::from_utf8(OUTLINE.encode(HttpVersion::Http10, connection)).unwrap();
        let kept = encode(ConnectionUse::Kept);
        assert!(kept.starts_with("GET /a?b HTTP/1.0\r\n") && kept.contains("\r\nConnection: keep-alive\r\n"));
        assert!(!encode(ConnectionUse::Last).contains("Connection"));
    }

    #[test]
    fn content_has_its_length() {
        let outline = Outline { method: "POST", content: b"a=b", ..OUTLINE };
        let bytes = outline.encode(HttpVersion::Http11, ConnectionUse::Kept);
        assert!(bytes.ends_with(b"\r\nContent-Length: 3\r\n\r\na=b"));
        let empty = Outline { method: "PUT", ..OUTLINE }.encode(HttpVersion::Http11, ConnectionUse::Kept);
        assert!(empty.ends_with(b"\r\nContent-Length: 0\r\n\r\n"));
    }

    #[test]
    fn streams_have_an_authority_and_no_connection() {
        let fields = [RequestField::parse("Host: x.example").unwrap(), RequestField::parse("X-Y: z").unwrap()];
        let block = Outline { fields: &fields, ..OUTLINE }.encode_streamed(StreamVersion::Http2, true).unwrap();
        let (mut scratch, mut lines) = (Vec::new(), Vec::new());
        Decoder::new()
            .decode(&block, &mut scratch, |scratch, name, value| {
                lines.push([&scratch[name], b"=", &scratch[value]].concat());
            })
            .unwrap();
        let block = Outline { fields: &fields, ..OUTLINE }.encode_streamed(StreamVersion::Http3, true).unwrap();
        let section = [&qpack::SECTION_PREFIX[..], &block].concat();
        let mut same = Vec::new();
        qpack::Decoder::new()
            .decode(&section, &mut scratch, |scratch, name, value| {
                same.push([&scratch[name], b"=", &scratch[value]].concat());
            })
            .unwrap();
        assert_eq!(same, lines);
        let lines: Vec<_> = lines.iter().map(|line| String::from_utf8_lossy(line)).collect();
        assert_eq!(lines[..4], [":method=GET", ":scheme=https", ":authority=x.example", ":path=/a?b"]);
        assert!(lines[4].starts_with("user-agent=flatout-bench/"));
        assert_eq!(lines[5..], ["accept=*/*", "x-y=z"]);
        let fields = [RequestField::parse("Keep-Alive: 5").unwrap()];
        for version in [StreamVersion::Http2, StreamVersion::Http3] {
            let encoded = Outline { fields: &fields, ..OUTLINE }.encode_streamed(version, true);
            assert_eq!(encoded, Err("Keep-Alive".to_owned()));
        }
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
            assert_eq!(RequestField::parse(line), Err(error.clone()));
            assert!(!error.to_string().is_empty());
        }
    }
}
