//! Message framing (RFC 9112 §6) with Content-Length and Transfer-Encoding.

use crate::refusal::Refusal;
use crate::token::{parse_decimal, trim};

/// HTTP version. Higher minor versions of HTTP/1 count as 1.1 (RFC 9110 §2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2.
    Http2,
    /// HTTP/3.
    Http3,
}

impl Version {
    /// Returns whether requests are streams of a connection, with pseudo-fields instead of a request line and Host.
    pub const fn has_streams(self) -> bool {
        matches!(self, Self::Http2 | Self::Http3)
    }

    /// Returns the version as it appears in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
            Self::Http3 => "HTTP/3.0",
        }
    }
}

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// A body of exactly this many bytes, never 0.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
    /// The body extends until the connection closes. Responses only.
    UntilClose,
}

/// Framing fields of a message, collected line by line.
#[derive(Clone, Copy, Debug, Default)]
pub struct FramingFields {
    content_length: Option<u64>,
    transfer_encoding: bool,
    chunked: bool,
    coding_unknown: bool,
}

impl FramingFields {
    /// Adds a Content-Length line. Refuses a second line, even if the values are equal.
    pub fn add_content_length(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if self.content_length.is_some() {
            return Err(Refusal::LengthDuplicate);
        }
        self.content_length = Some(parse_decimal(value).ok_or(Refusal::LengthInvalid)?);
        Ok(())
    }

    /// Adds a Transfer-Encoding line. `chunked` must be the last coding and occur only once. Refuses parameters and
    /// empty list elements, which implementations interpret differently.
    pub fn add_transfer_encoding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        self.transfer_encoding = true;
        for coding in value.split(|&byte| byte == b',').map(trim) {
            if self.chunked || !crate::token::is_token(coding) {
                return Err(Refusal::TransferEncodingInvalid);
            }
            if coding.eq_ignore_ascii_case(b"chunked") {
                self.chunked = true;
            } else {
                self.coding_unknown = true;
            }
        }
        Ok(())
    }

    /// Returns the declared length, even if no body follows.
    pub const fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Returns whether the fields declare content: a length above 0, or any transfer coding.
    pub const fn declares_content(&self) -> bool {
        self.transfer_encoding || matches!(self.content_length, Some(1..))
    }

    /// Returns the framing according to the rules common to requests and responses.
    fn decide_common(&self, version: Version) -> Result<Option<Framing>, Refusal> {
        if self.transfer_encoding {
            if self.content_length.is_some() {
                return Err(Refusal::LengthWithTransferEncoding);
            }
            if version < Version::Http11 {
                return Err(Refusal::TransferEncodingVersion);
            }
            if self.chunked {
                if self.coding_unknown {
                    return Err(Refusal::TransferEncodingUnknown);
                }
                return Ok(Some(Framing::Chunked));
            }
            // RFC 9112 §6.3: the length of such a request is unknown; such a response would extend until the connection
            // closes, in an unknown coding.
            return Err(Refusal::TransferEncodingInvalid);
        }
        Ok(self.content_length.map(|length| if length == 0 { Framing::None } else { Framing::Length(length) }))
    }

    /// Returns the framing of a request. Without framing fields, there is no body (RFC 9112 §6.3, rule 7).
    pub fn decide_request(&self, version: Version) -> Result<Framing, Refusal> {
        Ok(self.decide_common(version)?.unwrap_or(Framing::None))
    }

    /// Returns whether the message has transfer codings but neither `chunked` nor Content-Length, so that its length is
    /// unknown.
    pub const fn is_unknown_coding(&self) -> bool {
        self.transfer_encoding && !self.chunked && self.content_length.is_none()
    }

    /// Returns the framing of a response (RFC 9112 §6.3, rules 1 to 8). `to_head` is true if the request was HEAD.
    pub fn decide_response(&self, version: Version, status: u16, to_head: bool) -> Result<Framing, Refusal> {
        let common = self.decide_common(version)?;
        Ok(Self::frame_response(common, status, to_head))
    }

    /// Returns the framing of a response whose body extends until the connection closes.
    pub(crate) fn decide_until_close(status: u16, to_head: bool) -> Framing {
        Self::frame_response(None, status, to_head)
    }

    fn frame_response(common: Option<Framing>, status: u16, to_head: bool) -> Framing {
        if to_head || (100..200).contains(&status) || status == 204 || status == 304 {
            return Framing::None;
        }
        common.unwrap_or(Framing::UntilClose)
    }
}

#[cfg(test)]
mod tests {
    use super::{Framing, FramingFields, Refusal, Version};

    fn transfer_encoding(lines: &[&[u8]]) -> Result<Framing, Refusal> {
        let mut fields = FramingFields::default();
        for line in lines {
            fields.add_transfer_encoding(line)?;
        }
        fields.decide_request(Version::Http11)
    }

    #[test]
    fn chunked_is_last_and_alone() {
        assert_eq!(transfer_encoding(&[b"Chunked"]), Ok(Framing::Chunked));
        for lines in [
            &[&b""[..]][..],
            &[b","],
            &[b"chunked,"],
            &[b",chunked"],
            &[b"chunked, chunked"],
            &[b"chunked", b"chunked"],
            &[b"chunked, gzip"],
            &[b"chunked;q=1"],
            &[b"\"chunked\""],
            &[b"identity"],
            &[b"gzip"],
            &[b"xchunked"],
            &[b"chunked\x0b"],
        ] {
            assert_eq!(transfer_encoding(lines), Err(Refusal::TransferEncodingInvalid), "{lines:?}");
        }
        assert_eq!(transfer_encoding(&[b"gzip, chunked"]), Err(Refusal::TransferEncodingUnknown));
        assert_eq!(transfer_encoding(&[b"gzip", b"chunked"]), Err(Refusal::TransferEncodingUnknown));
    }

    #[test]
    fn one_length_and_no_other_framing() {
        let mut fields = FramingFields::default();
        fields.add_content_length(b"0").unwrap();
        assert_eq!(fields.decide_request(Version::Http11), Ok(Framing::None));
        assert_eq!(fields.add_content_length(b"0"), Err(Refusal::LengthDuplicate));
        fields.add_transfer_encoding(b"chunked").unwrap();
        assert_eq!(fields.decide_request(Version::Http11), Err(Refusal::LengthWithTransferEncoding));
        for bad in [&b""[..], b"5,5", b"5, 5", b"+5", b"-5", b"0x5", b"5 5", b"99999999999999999999"] {
            assert_eq!(FramingFields::default().add_content_length(bad), Err(Refusal::LengthInvalid), "{bad:?}");
        }
    }

    #[test]
    fn http_1_0_has_no_transfer_encoding() {
        let mut fields = FramingFields::default();
        fields.add_transfer_encoding(b"chunked").unwrap();
        assert_eq!(fields.decide_request(Version::Http10), Err(Refusal::TransferEncodingVersion));
    }

    #[test]
    fn responses_without_framing_end_with_the_connection() {
        let none = FramingFields::default();
        assert_eq!(none.decide_response(Version::Http11, 200, false), Ok(Framing::UntilClose));
        for (status, to_head) in [(204, false), (304, false), (100, false), (200, true)] {
            let mut fields = FramingFields::default();
            fields.add_content_length(b"7").unwrap();
            assert_eq!(fields.decide_response(Version::Http11, status, to_head), Ok(Framing::None));
        }
    }
}
