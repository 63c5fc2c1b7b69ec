//! The requests of a bench, each of which is built once.

use flatout_client::{BlockPart, RequestTemplate, SharedStreams, StreamVersion};
use flatout_http::http2::hpack;
use flatout_http::http3::qpack;
use flatout_http::lines::is_forbidden_in_streams;
use flatout_http::token::{is_token, trim};
use flatout_load::template::{Template, TemplateError};

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

    /// Returns whether this is the name of the field.
    pub fn is_named(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// Returns the value, which may have placeholders.
    pub fn value(&self) -> &str {
        &self.value
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

    /// Returns the version number in the HTTP/1 form of requests.
    const fn http1_number(self) -> &'static str {
        if matches!(self, Self::Http10) { "1.0" } else { "1.1" }
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
        let mut text = format!("{} {} HTTP/{}\r\n", self.method, self.target, version.http1_number());
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
        let mut sent = self.fields_of_message();
        if self.declares_length() {
            sent.push(("Content-Length".to_owned(), self.content.len().to_string()));
        }
        sent.extend(connection_field(version, connection).map(|value| ("Connection".to_owned(), value.to_owned())));
        sent
    }

    /// Returns the fields that concern neither framing nor the connection.
    fn fields_of_message(&self) -> Vec<(String, String)> {
        let own = [
            ("Host", self.host.to_owned()),
            ("User-Agent", concat!("flatout-bench/", env!("CARGO_PKG_VERSION")).to_owned()),
            ("Accept", "*/*".to_owned()),
        ];
        let is_given = |name: &str| self.fields.iter().any(|field| field.name.eq_ignore_ascii_case(name));
        let mut sent: Vec<_> =
            own.into_iter().filter(|(name, _)| !is_given(name)).map(|(name, value)| (name.to_owned(), value)).collect();
        sent.extend(self.fields.iter().map(|field| (field.name.clone(), field.value.clone())));
        sent
    }

    /// Returns whether the request has the field Content-Length.
    fn declares_length(&self) -> bool {
        // RFC 9110 §8.6: a method that expects content declares its length even if it is empty.
        !self.content.is_empty() || ["POST", "PUT", "PATCH"].contains(&self.method)
    }

    /// Encodes the head of the request in HTTP/2 or HTTP/3, as a field block.
    ///
    /// # Errors
    /// Returns the name of a field that these versions do not permit (RFC 9113 §8.2.2, RFC 9114 §4.2).
    pub fn encode_streamed(&self, version: StreamVersion, secure: bool) -> Result<Vec<u8>, String> {
        let encode_field = encoder(version);
        let mut block = Vec::new();
        for (name, value) in self.streamed_fields(secure)? {
            encode_field(name.as_bytes(), value.as_bytes(), &mut block);
        }
        if self.declares_length() {
            encode_field(b"content-length", self.content.len().to_string().as_bytes(), &mut block);
        }
        Ok(block)
    }

    /// Returns the fields of the request in HTTP/2 or HTTP/3, in order, without content-length.
    ///
    /// # Errors
    /// As [`Self::encode_streamed`].
    fn streamed_fields(&self, secure: bool) -> Result<Vec<(String, String)>, String> {
        if let Some(field) = self.fields.iter().find(|field| is_forbidden_in_streams(field.name.as_bytes())) {
            return Err(field.name.clone());
        }
        let fields = self.fields_of_message();
        let is_host = |name: &str| name.eq_ignore_ascii_case("host");
        let authority = fields.iter().find(|(name, _)| is_host(name)).map_or(self.host, |(_, value)| value);
        let pseudo = [
            (":method", self.method),
            (":scheme", if secure { "https" } else { "http" }),
            (":authority", authority),
            (":path", self.target),
        ];
        let pseudo = pseudo.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let others = fields.iter().filter(|(name, _)| !is_host(name));
        let others = others.map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
        Ok(pseudo.into_iter().chain(others).collect())
    }

    /// Returns the request as a template, or `None` if it has neither placeholders nor escapes of them. Target, values of
    /// fields and content may have placeholders.
    ///
    /// # Errors
    /// Returns the reason a placeholder, or a field over this version, is invalid.
    pub fn template(&self, version: HttpVersion, secure: bool) -> Result<Option<RequestTemplate>, OutlineError> {
        let content = Template::parse(self.content)?;
        let mut head = format!("{} {} HTTP/{}\r\n", self.method, self.target, version.http1_number());
        for (name, value) in self.fields_of_message() {
            for part in [name.as_str(), ": ", &value, "\r\n"] {
                head.push_str(part);
            }
        }
        if Template::parse(head.as_bytes())?.is_verbatim() && content.is_verbatim() {
            return Ok(None);
        }
        let content = Some(content).filter(|content| !content.is_verbatim());
        match content {
            Some(_) => head.push_str("Content-Length: "),
            None if self.declares_length() => {
                head.push_str("Content-Length: ");
                head.push_str(&self.content.len().to_string());
                head.push_str("\r\n");
            }
            None => {}
        }
        let end = |connection| {
            let line_end = if content.is_some() { "\r\n" } else { "" };
            let connection = connection_field(version, connection);
            let connection = connection.map_or(String::new(), |value| format!("Connection: {value}\r\n"));
            let fixed: &[u8] = if content.is_some() { &[] } else { self.content };
            Box::from([line_end.as_bytes(), connection.as_bytes(), b"\r\n", fixed].concat())
        };
        Ok(Some(RequestTemplate {
            head: Template::parse(head.as_bytes())?,
            kept_end: end(ConnectionUse::Kept),
            last_end: end(ConnectionUse::Last),
            block: match version.streams() {
                Some(streams) => self.block_template(streams.version, secure, content.is_some())?,
                None => [].into(),
            },
            content,
        }))
    }

    /// Returns the parts of the field block of a template.
    fn block_template(
        &self,
        version: StreamVersion,
        secure: bool,
        has_template: bool,
    ) -> Result<Box<[BlockPart]>, OutlineError> {
        let encode_field = encoder(version);
        let (mut parts, mut encoded) = (Vec::new(), Vec::new());
        for (name, value) in self.streamed_fields(secure).map_err(OutlineError::FieldInvalid)? {
            let template = Template::parse(value.as_bytes())?;
            if template.is_verbatim() {
                encode_field(name.as_bytes(), value.as_bytes(), &mut encoded);
                continue;
            }
            parts.push(BlockPart::Encoded(std::mem::take(&mut encoded).into()));
            parts.push(BlockPart::Filled(name.into_bytes().into(), template));
        }
        if !has_template && self.declares_length() {
            encode_field(b"content-length", self.content.len().to_string().as_bytes(), &mut encoded);
        }
        parts.push(BlockPart::Encoded(encoded.into()));
        if has_template {
            parts.push(BlockPart::ContentLength);
        }
        Ok(parts.into())
    }
}

/// The reason a request cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutlineError {
    /// HTTP/2 and HTTP/3 do not permit a field. Contains its name.
    #[error("HTTP/2 and HTTP/3 have no field `{0}`; remove it")]
    FieldInvalid(String),
    /// A placeholder is malformed.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// Returns the function that appends a field to a field block.
fn encoder(version: StreamVersion) -> fn(&[u8], &[u8], &mut Vec<u8>) {
    match version {
        StreamVersion::Http2 => hpack::encode_field,
        StreamVersion::Http3 => qpack::encode_field,
    }
}

/// Returns the value of the field Connection, if the request needs it.
const fn connection_field(version: HttpVersion, connection: ConnectionUse) -> Option<&'static str> {
    match (version, connection) {
        (HttpVersion::Http10, ConnectionUse::Kept) => Some("keep-alive"),
        (HttpVersion::Http11, ConnectionUse::Last) => Some("close"),
        _ => None,
    }
}

/// Returns whether a string is a valid method (RFC 9110 §9.1).
pub fn is_method(text: &str) -> bool {
    is_token(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::{ConnectionUse, FieldError, HttpVersion, Outline, RequestField};
    use flatout_client::{BlockPart, RequestTemplate, StreamVersion};
    use flatout_http::head::FieldStorage;
    use flatout_http::http2::hpack::{self, Decoder};
    use flatout_http::http3::qpack;
    use flatout_http::limits::Limits;
    use flatout_http::request::parse_request_head;
    use flatout_http::token::append_decimal;
    use flatout_load::template::ValueSource;

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

    /// Fills the HTTP/1 form of a template with the same values as the client. Every value is 7.
    fn filled(template: &RequestTemplate, is_last: bool) -> String {
        let source = ValueSource { seed: 1, seq_first: 7 };
        let (mut bytes, mut content) = (Vec::new(), Vec::new());
        template.head.fill(&mut source.of_head(0), &mut bytes);
        if let Some(template) = &template.content {
            template.fill(&mut source.of_content(0), &mut content);
            append_decimal(&mut bytes, content.len() as u64);
        }
        bytes.extend_from_slice(if is_last { &template.last_end } else { &template.kept_end });
        String::from_utf8([bytes, content].concat()).unwrap()
    }

    #[test]
    fn a_filled_request_is_encoded_like_one_without_placeholders() {
        let lines = |value: &str| [RequestField::parse(&format!("X: {value}")).unwrap()];
        let (given, expected) = (lines("{seq}"), lines("7"));
        for (content, sent) in [("", ""), ("fixed", "fixed"), ("a={seq}&b={random:7-7}", "a=7&b=7")] {
            let outline = |target, fields, content: &'static str| Outline {
                method: "POST",
                target,
                fields,
                content: content.as_bytes(),
                ..OUTLINE
            };
            let (given, expected) = (outline("/{seq}", &given, content), outline("/7", &expected, sent));
            for version in [HttpVersion::Http10, HttpVersion::Http11] {
                let template = given.template(version, false).unwrap().unwrap();
                assert!(template.block.is_empty());
                for (connection, is_last) in [(ConnectionUse::Kept, false), (ConnectionUse::Last, true)] {
                    let expected = String::from_utf8(expected.encode(version, connection)).unwrap();
                    assert_eq!(filled(&template, is_last), expected);
                }
            }
            let template = given.template(HttpVersion::Http2 { streams: 1 }, false).unwrap().unwrap();
            let encoded: Vec<u8> = template.block.iter().fold(Vec::new(), |mut block, part| {
                match part {
                    BlockPart::Encoded(bytes) => block.extend_from_slice(bytes),
                    BlockPart::Filled(name, _) => {
                        hpack::encode_field(name, if name.starts_with(b":") { b"/7" } else { b"7" }, &mut block);
                    }
                    BlockPart::ContentLength => {
                        hpack::encode_field(b"content-length", sent.len().to_string().as_bytes(), &mut block);
                    }
                }
                block
            });
            assert_eq!(encoded, expected.encode_streamed(StreamVersion::Http2, false).unwrap());
        }
    }

    #[test]
    fn a_request_without_placeholders_has_no_template() {
        let version = HttpVersion::Http3 { streams: 1 };
        let outline = Outline { target: "/{a}", content: b"{\"a\":{}}", ..OUTLINE };
        assert!(outline.template(version, true).unwrap().is_none());
        // An escape must be removed, so it is one.
        assert!(Outline { target: "/{{seq}", ..OUTLINE }.template(version, true).unwrap().is_some());
        let error = Outline { content: b"{random:9-1}", ..OUTLINE }.template(version, true).unwrap_err();
        assert!(error.to_string().contains("{random:9-1}"), "{error}");
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
