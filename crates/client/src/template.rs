//! Requests with placeholders, which are encoded each time that they are sent.

use super::StreamVersion;
use super::cookies::append_field;
use flatout_http::http2::hpack;
use flatout_http::http3::qpack;
use flatout_http::token::append_decimal;
use flatout_load::template::{Template, ValueSource};

/// A request with placeholders.
#[derive(Clone, Debug)]
pub struct RequestTemplate {
    /// HTTP/1: the request line and the fields. If `content` is present, up to and including `Content-Length: `.
    pub head: Template,
    /// The content, if it has placeholders.
    pub content: Option<Template>,
    /// HTTP/1: the bytes after `head`, or after the value of Content-Length, up to the end of the head, for a request
    /// after which the connection persists. If `content` is `None`, the content follows.
    pub kept_end: Box<[u8]>,
    /// The same for a request that is the last on its connection.
    pub last_end: Box<[u8]>,
    /// The parts of the field block of HTTP/2 or HTTP/3, in order; empty over HTTP/1.
    pub block: Box<[BlockPart]>,
}

/// A part of a field block.
#[derive(Clone, Debug)]
pub enum BlockPart {
    /// Fields that are always the same, in encoded form.
    Encoded(Box<[u8]>),
    /// A field whose value has placeholders: its name in lower case, and its value.
    Filled(Box<[u8]>, Template),
    /// The field content-length of a request whose content has placeholders.
    ContentLength,
}

/// Buffers that a worker reuses for every filled request, so that only the largest request allocates.
#[derive(Debug, Default)]
pub(super) struct FillBuffers {
    /// The field block of a request.
    pub(super) block: Vec<u8>,
    /// The content of a request, if it has placeholders.
    pub(super) content: Vec<u8>,
    value: Vec<u8>,
    /// Buffers of contents that were sent.
    unused: Vec<Vec<u8>>,
}

impl RequestTemplate {
    /// Returns whether the request has a placeholder. Otherwise it has only escapes of placeholders.
    pub fn has_placeholder(&self) -> bool {
        self.head.has_placeholder() || self.content.as_ref().is_some_and(Template::has_placeholder)
    }

    /// Appends the HTTP/1 form of request number `number` to `output`, with a Cookie field if `cookie` is its value.
    pub(super) fn fill_http1(
        &self,
        values: &ValueSource,
        (number, is_last): (u64, bool),
        cookie: Option<&[u8]>,
        buffers: &mut FillBuffers,
        output: &mut Vec<u8>,
    ) {
        self.head.fill(&mut values.of_head(number), output);
        let end = if is_last { &self.last_end } else { &self.kept_end };
        buffers.fill_content(self, values, number);
        if self.content.is_some() {
            append_decimal(output, buffers.content.len() as u64);
        }
        // The line with the length of the content is not complete.
        let (line_end, end) = end.split_at(if self.content.is_some() { b"\r\n".len() } else { 0 });
        output.extend_from_slice(line_end);
        append_field(cookie, output);
        output.extend_from_slice(end);
        output.extend_from_slice(&buffers.content);
    }
}

/// Returns the function that appends a field to a field block.
pub(super) fn encoder(version: StreamVersion) -> fn(&[u8], &[u8], &mut Vec<u8>) {
    match version {
        StreamVersion::Http2 => hpack::encode_field,
        StreamVersion::Http3 => qpack::encode_field,
    }
}

impl FillBuffers {
    /// Fills the field block and the content of request number `number` over HTTP/2 or HTTP/3. Returns the length of its
    /// HTTP/1 form in bytes.
    pub(super) fn fill_stream(
        &mut self,
        template: &RequestTemplate,
        version: StreamVersion,
        values: &ValueSource,
        number: u64,
    ) -> usize {
        self.fill_content(template, values, number);
        let encode_field = encoder(version);
        let mut of_head = values.of_head(number);
        let mut bytes = template.head.fixed_bytes() + template.kept_end.len() + self.content.len();
        self.block.clear();
        for part in &template.block {
            let name = match part {
                BlockPart::Encoded(bytes) => {
                    self.block.extend_from_slice(bytes);
                    continue;
                }
                BlockPart::Filled(name, value) => {
                    self.value.clear();
                    value.fill(&mut of_head, &mut self.value);
                    bytes += self.value.len() - value.fixed_bytes();
                    &name[..]
                }
                BlockPart::ContentLength => {
                    self.value.clear();
                    append_decimal(&mut self.value, self.content.len() as u64);
                    bytes += self.value.len();
                    b"content-length"
                }
            };
            encode_field(name, &self.value, &mut self.block);
        }
        bytes
    }

    /// Fills the content; empty if it has no placeholders.
    fn fill_content(&mut self, template: &RequestTemplate, values: &ValueSource, number: u64) {
        self.content.clear();
        if let Some(content) = &template.content {
            content.fill(&mut values.of_content(number), &mut self.content);
        }
    }

    /// Takes the content out, to send it. [`Self::give_back`] returns its buffer.
    pub(super) fn take_content(&mut self) -> Vec<u8> {
        let next = self.unused.pop().unwrap_or_default();
        std::mem::replace(&mut self.content, next)
    }

    /// Returns the buffer of a content that is no longer needed.
    pub(super) fn give_back(&mut self, content: Vec<u8>) {
        if content.capacity() > 0 {
            self.unused.push(content);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockPart, FillBuffers, RequestTemplate};
    use crate::StreamVersion;
    use flatout_http::http2::hpack;
    use flatout_http::http3::qpack;
    use flatout_load::template::{Template, ValueSource};

    const VALUES: ValueSource = ValueSource { seed: 3, seq_first: 98 };

    fn parse(text: &str) -> Template {
        Template::parse(text.as_bytes()).unwrap()
    }

    fn http1(template: &RequestTemplate, number: u64, is_last: bool) -> String {
        let (mut buffers, mut output) = (FillBuffers::default(), Vec::new());
        template.fill_http1(&VALUES, (number, is_last), None, &mut buffers, &mut output);
        String::from_utf8(output).unwrap()
    }

    /// A POST whose path and content have placeholders.
    fn template(block: &[BlockPart]) -> RequestTemplate {
        RequestTemplate {
            head: parse("POST /{seq} HTTP/1.1\r\nX: {random:0-99999}\r\nContent-Length: "),
            content: Some(parse("{seq},{uuid}")),
            kept_end: b"\r\n\r\n"[..].into(),
            last_end: b"\r\nConnection: close\r\n\r\n"[..].into(),
            block: block.into(),
        }
    }

    #[test]
    fn the_length_of_the_content_is_that_of_the_filled_one() {
        let template = template(&[]);
        for (number, seq, length) in [(0, "98", 39), (1, "99", 39), (2, "100", 40)] {
            let text = http1(&template, number, false);
            let (head, content) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("POST /{seq} HTTP/1.1\r\n")), "{text}");
            assert!(head.ends_with(&format!("\r\nContent-Length: {length}")) && content.len() == length, "{text}");
            assert!(content.starts_with(&format!("{seq},")), "{text}");
            // The last request on a connection has the same values.
            let last = http1(&template, number, true);
            assert_eq!(last, text.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1));
        }
    }

    #[test]
    fn a_content_without_placeholders_follows_the_head() {
        let template = RequestTemplate {
            head: parse("PUT /{seq} HTTP/1.1\r\nContent-Length: 2\r\n"),
            content: None,
            kept_end: b"\r\nok"[..].into(),
            last_end: b"Connection: close\r\n\r\nok"[..].into(),
            block: [].into(),
        };
        assert_eq!(http1(&template, 1, false), "PUT /99 HTTP/1.1\r\nContent-Length: 2\r\n\r\nok");
        assert!(http1(&template, 1, true).ends_with("\r\nConnection: close\r\n\r\nok"));
    }

    #[test]
    fn every_version_sends_the_same_values() {
        let mut buffers = FillBuffers::default();
        for version in [StreamVersion::Http2, StreamVersion::Http3] {
            let mut encoded = Vec::new();
            let encode_field = if version == StreamVersion::Http2 { hpack::encode_field } else { qpack::encode_field };
            encode_field(b":method", b"POST", &mut encoded);
            let template = template(&[
                BlockPart::Encoded(encoded.into()),
                BlockPart::Filled(b":path"[..].into(), parse("/{seq}")),
                BlockPart::Filled(b"x"[..].into(), parse("{random:0-99999}")),
                BlockPart::ContentLength,
            ]);
            for number in 0..4 {
                let http1_bytes = buffers.fill_stream(&template, version, &VALUES, number);
                let (mut scratch, mut fields) = (Vec::new(), Vec::new());
                let mut add = |name: &[u8], value: &[u8]| {
                    fields.push(format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
                };
                if version == StreamVersion::Http2 {
                    let mut decoder = hpack::Decoder::new();
                    decoder
                        .decode(&buffers.block, &mut scratch, |scratch, name, value| {
                            add(&scratch[name], &scratch[value]);
                        })
                        .unwrap();
                } else {
                    let section = [&qpack::SECTION_PREFIX[..], &buffers.block].concat();
                    let decoder = qpack::Decoder::new();
                    decoder
                        .decode(&section, &mut scratch, |scratch, name, value| add(&scratch[name], &scratch[value]))
                        .unwrap();
                }
                let text = http1(&template, number, false);
                let (head, content) = text.split_once("\r\n\r\n").unwrap();
                let lines: Vec<_> = head.split("\r\n").skip(1).map(str::to_lowercase).collect();
                assert_eq!(fields[..2], [":method: POST".to_owned(), format!(":path: /{}", 98 + number)]);
                assert_eq!(fields[2..], lines);
                assert_eq!((http1_bytes, &buffers.content[..]), (text.len(), content.as_bytes()));
            }
        }
    }

    #[test]
    fn buffers_of_contents_are_used_again() {
        let (template, mut buffers) = (template(&[]), FillBuffers::default());
        let mut take = |number, unused: Option<Vec<u8>>| {
            if let Some(content) = unused {
                buffers.give_back(content);
            }
            buffers.fill_stream(&template, StreamVersion::Http2, &VALUES, number);
            buffers.take_content()
        };
        let first = take(0, None);
        let place = first.as_ptr();
        // The buffer that is given back comes after the one that is filled now.
        let second = take(1, Some(first));
        let third = take(2, None);
        assert_ne!(second.as_ptr(), place);
        assert_eq!(third.as_ptr(), place);
    }
}
