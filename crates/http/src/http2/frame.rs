//! Frames of HTTP/2 (RFC 9113 §4.1, §6): heads, types, flags, error codes, settings.

/// Client preface (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length of a frame head.
pub const HEAD_BYTES: usize = 9;

/// Largest payload that either side may send without a setting, in bytes (RFC 9113 §4.2). Neither role permits more:
/// longer frames would delay those of other streams.
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024;

/// Frame types of RFC 9113 §6 and RFC 9218 §7.1.
pub mod kind {
    /// DATA.
    pub const DATA: u8 = 0;
    /// HEADERS.
    pub const HEADERS: u8 = 1;
    /// PRIORITY.
    pub const PRIORITY: u8 = 2;
    /// RST_STREAM.
    pub const RST_STREAM: u8 = 3;
    /// SETTINGS.
    pub const SETTINGS: u8 = 4;
    /// PUSH_PROMISE.
    pub const PUSH_PROMISE: u8 = 5;
    /// PING.
    pub const PING: u8 = 6;
    /// GOAWAY.
    pub const GOAWAY: u8 = 7;
    /// WINDOW_UPDATE.
    pub const WINDOW_UPDATE: u8 = 8;
    /// CONTINUATION.
    pub const CONTINUATION: u8 = 9;
    /// PRIORITY_UPDATE.
    pub const PRIORITY_UPDATE: u8 = 0x10;
}

/// Frame flags.
pub mod flag {
    /// Of SETTINGS and PING.
    pub const ACK: u8 = 0x1;
    /// Of DATA and HEADERS.
    pub const END_STREAM: u8 = 0x1;
    /// Of HEADERS and CONTINUATION.
    pub const END_HEADERS: u8 = 0x4;
    /// Of DATA and HEADERS.
    pub const PADDED: u8 = 0x8;
    /// Of HEADERS.
    pub const PRIORITY: u8 = 0x20;
}

/// Identifiers of settings (RFC 9113 §6.5.2, RFC 8441 §3, RFC 9218 §2.1).
pub mod setting {
    /// Size of the dynamic table that the peer's encoder may use.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// 1 if the server may push.
    pub const ENABLE_PUSH: u16 = 2;
    /// Streams that the peer may have open.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// Window of each stream.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// Largest payload.
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// Uncompressed size of a field section.
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    /// 1 if extended CONNECT is supported.
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    /// 1 if the priority signals of RFC 7540 are not used.
    pub const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// An error code (RFC 9113 §7). Unknown codes are treated as `INTERNAL_ERROR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// NO_ERROR.
    NoError = 0,
    /// PROTOCOL_ERROR.
    Protocol = 1,
    /// INTERNAL_ERROR.
    Internal = 2,
    /// FLOW_CONTROL_ERROR.
    FlowControl = 3,
    /// SETTINGS_TIMEOUT.
    SettingsTimeout = 4,
    /// STREAM_CLOSED.
    StreamClosed = 5,
    /// FRAME_SIZE_ERROR.
    FrameSize = 6,
    /// REFUSED_STREAM.
    RefusedStream = 7,
    /// CANCEL.
    Cancel = 8,
    /// COMPRESSION_ERROR.
    Compression = 9,
    /// CONNECT_ERROR.
    Connect = 10,
    /// ENHANCE_YOUR_CALM.
    EnhanceYourCalm = 11,
    /// INADEQUATE_SECURITY.
    InadequateSecurity = 12,
    /// HTTP_1_1_REQUIRED.
    Http11Required = 13,
}

impl ErrorCode {
    const ALL: [Self; 14] = [
        Self::NoError,
        Self::Protocol,
        Self::Internal,
        Self::FlowControl,
        Self::SettingsTimeout,
        Self::StreamClosed,
        Self::FrameSize,
        Self::RefusedStream,
        Self::Cancel,
        Self::Compression,
        Self::Connect,
        Self::EnhanceYourCalm,
        Self::InadequateSecurity,
        Self::Http11Required,
    ];

    /// The code with the number `code`.
    pub fn from_number(code: u32) -> Self {
        Self::ALL.get(code as usize).copied().unwrap_or(Self::Internal)
    }
}

/// Head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Length of the payload.
    pub payload_bytes: usize,
    /// The type; see [`kind`].
    pub kind: u8,
    /// The flags; see [`flag`].
    pub flags: u8,
    /// Stream identifier without the reserved bit; 0 for the connection.
    pub stream: u32,
}

impl FrameHead {
    /// Parses the head at the start of `bytes`; `None` if it is incomplete.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let &[first, second, third, kind, flags, a, b, c, d] = bytes.first_chunk::<HEAD_BYTES>()?;
        Some(Self {
            payload_bytes: u32::from_be_bytes([0, first, second, third]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff,
        })
    }

    /// Returns whether all of `flags` are set.
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// The head as bytes.
    pub const fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let [_, first, second, third] = (self.payload_bytes as u32).to_be_bytes();
        let [a, b, c, d] = self.stream.to_be_bytes();
        [first, second, third, self.kind, self.flags, a, b, c, d]
    }
}

/// Appends a frame with `payload`.
pub fn append_frame(kind: u8, flags: u8, stream: u32, payload: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(&FrameHead { payload_bytes: payload.len(), kind, flags, stream }.to_bytes());
    output.extend_from_slice(payload);
}

/// Appends a GOAWAY.
pub fn append_goaway(last_stream: u32, code: ErrorCode, output: &mut Vec<u8>) {
    let payload = u64::from(last_stream) << 32 | u64::from(code as u32);
    append_frame(kind::GOAWAY, 0, 0, &payload.to_be_bytes(), output);
}

/// The number in the first four bytes of `payload`; 0 if there are fewer.
pub(super) fn leading_number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Removes the padding of a DATA or HEADERS payload. `None`: it is as long as the payload (RFC 9113 §6.1).
pub(super) fn without_padding(head: FrameHead, payload: &[u8]) -> Option<&[u8]> {
    if !head.has(flag::PADDED) {
        return Some(payload);
    }
    let (&padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(padding))?)
}

#[cfg(test)]
mod tests {
    use super::{ErrorCode, FrameHead, flag, kind, without_padding};

    #[test]
    fn heads_return_unchanged() {
        let head = FrameHead { payload_bytes: 0x01_0203, kind: kind::DATA, flags: 9, stream: 0x7fff_fffe };
        assert_eq!(FrameHead::parse(&head.to_bytes()), Some(head));
        assert_eq!(FrameHead::parse(&head.to_bytes()[..8]), None);
        assert_eq!(
            FrameHead::parse(&[0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]).map(|head| head.stream),
            Some(0x7fff_ffff)
        );
    }

    #[test]
    fn padding_is_shorter_than_the_payload() {
        let head = FrameHead { payload_bytes: 0, kind: kind::DATA, flags: flag::PADDED, stream: 1 };
        assert_eq!(without_padding(head, &[2, b'a', 0, 0]), Some(&b"a"[..]));
        assert_eq!(without_padding(head, &[3, 0, 0, 0]), Some(&b""[..]));
        assert_eq!((without_padding(head, &[4, 0, 0, 0]), without_padding(head, &[])), (None, None));
    }

    #[test]
    fn codes_have_their_numbers() {
        for (number, code) in ErrorCode::ALL.into_iter().enumerate() {
            assert_eq!((code as usize, ErrorCode::from_number(number as u32)), (number, code));
        }
        assert_eq!(ErrorCode::from_number(99), ErrorCode::Internal);
    }
}
