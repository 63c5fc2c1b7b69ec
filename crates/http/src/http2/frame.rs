//! HTTP/2 frames (RFC 9113 §4.1, §6): heads, types, flags, error codes and settings.

/// The client connection preface (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length of a frame head, in bytes.
pub const HEAD_BYTES: usize = 9;

/// Maximum payload that either side may send unless a setting permits more, in bytes (RFC 9113 §4.2). Neither role
/// permits more, because longer frames would delay frames of other streams.
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024;

/// Frame types of RFC 9113 §6 and RFC 9218 §7.1.
pub mod kind {
    /// DATA (RFC 9113 §6.1).
    pub const DATA: u8 = 0;
    /// HEADERS (RFC 9113 §6.2).
    pub const HEADERS: u8 = 1;
    /// PRIORITY (RFC 9113 §6.3).
    pub const PRIORITY: u8 = 2;
    /// RST_STREAM (RFC 9113 §6.4).
    pub const RST_STREAM: u8 = 3;
    /// SETTINGS (RFC 9113 §6.5).
    pub const SETTINGS: u8 = 4;
    /// PUSH_PROMISE (RFC 9113 §6.6).
    pub const PUSH_PROMISE: u8 = 5;
    /// PING (RFC 9113 §6.7).
    pub const PING: u8 = 6;
    /// GOAWAY (RFC 9113 §6.8).
    pub const GOAWAY: u8 = 7;
    /// WINDOW_UPDATE (RFC 9113 §6.9).
    pub const WINDOW_UPDATE: u8 = 8;
    /// CONTINUATION (RFC 9113 §6.10).
    pub const CONTINUATION: u8 = 9;
    /// PRIORITY_UPDATE (RFC 9218 §7.1).
    pub const PRIORITY_UPDATE: u8 = 0x10;
}

/// Frame flags.
pub mod flag {
    /// ACK, for SETTINGS and PING.
    pub const ACK: u8 = 0x1;
    /// END_STREAM, for DATA and HEADERS.
    pub const END_STREAM: u8 = 0x1;
    /// END_HEADERS, for HEADERS and CONTINUATION.
    pub const END_HEADERS: u8 = 0x4;
    /// PADDED, for DATA and HEADERS.
    pub const PADDED: u8 = 0x8;
    /// PRIORITY, for HEADERS.
    pub const PRIORITY: u8 = 0x20;
}

/// Identifiers of settings (RFC 9113 §6.5.2, RFC 8441 §3, RFC 9218 §2.1).
pub mod setting {
    /// Size of the dynamic table that the peer's encoder may use, in bytes.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// 1 if the server may push.
    pub const ENABLE_PUSH: u16 = 2;
    /// Number of streams that the peer may have open.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// Initial window of each stream, in bytes.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// Maximum frame payload, in bytes.
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// Maximum uncompressed size of a field section, in bytes.
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    /// 1 if extended CONNECT is supported.
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    /// 1 if the priority signals of RFC 7540 are not used.
    pub const NO_RFC7540_PRIORITIES: u16 = 9;
}

flatout_reason::reasons! {
    /// An HTTP/2 error code (RFC 9113 §7). Unknown codes are treated as `INTERNAL_ERROR`.
    pub enum ErrorCode {
        name,
        /// The number in GOAWAY and RST_STREAM.
        number: u32,
    }
    NoError, "NO_ERROR", 0;
    Protocol, "PROTOCOL_ERROR", 1;
    Internal, "INTERNAL_ERROR", 2;
    FlowControl, "FLOW_CONTROL_ERROR", 3;
    SettingsTimeout, "SETTINGS_TIMEOUT", 4;
    StreamClosed, "STREAM_CLOSED", 5;
    FrameSize, "FRAME_SIZE_ERROR", 6;
    RefusedStream, "REFUSED_STREAM", 7;
    Cancel, "CANCEL", 8;
    Compression, "COMPRESSION_ERROR", 9;
    Connect, "CONNECT_ERROR", 10;
    EnhanceYourCalm, "ENHANCE_YOUR_CALM", 11;
    InadequateSecurity, "INADEQUATE_SECURITY", 12;
    Http11Required, "HTTP_1_1_REQUIRED", 13;
}

impl ErrorCode {
    /// Returns the error code with the number `code`.
    pub fn from_number(code: u32) -> Self {
        Self::ALL.get(code as usize).copied().unwrap_or(Self::Internal)
    }
}

/// The head of a frame (RFC 9113 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Length of the payload, in bytes.
    pub payload_bytes: usize,
    /// The frame type; see [`kind`].
    pub kind: u8,
    /// The flags; see [`flag`].
    pub flags: u8,
    /// Stream identifier without the reserved bit. 0 stands for the connection.
    pub stream: u32,
}

impl FrameHead {
    /// Parses the head at the start of `bytes`. Returns `None` if it is incomplete.
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

    /// Returns the encoded head.
    pub const fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let [_, first, second, third] = (self.payload_bytes as u32).to_be_bytes();
        let [a, b, c, d] = self.stream.to_be_bytes();
        [first, second, third, self.kind, self.flags, a, b, c, d]
    }
}

/// Appends a frame with `payload` to `output`.
pub fn append_frame(kind: u8, flags: u8, stream: u32, payload: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(&FrameHead { payload_bytes: payload.len(), kind, flags, stream }.to_bytes());
    output.extend_from_slice(payload);
}

/// Appends a GOAWAY frame to `output`.
pub fn append_goaway(last_stream: u32, code: ErrorCode, output: &mut Vec<u8>) {
    let payload = u64::from(last_stream) << 32 | u64::from(code.number());
    append_frame(kind::GOAWAY, 0, 0, &payload.to_be_bytes(), output);
}

/// Returns the number in the first four bytes of `payload`, or 0 if there are fewer.
pub(super) fn leading_number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Removes the padding from a DATA or HEADERS payload. Returns `None` if the padding is as long as the payload or
/// longer (RFC 9113 §6.1).
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
        for (number, &code) in ErrorCode::ALL.iter().enumerate() {
            assert_eq!((code as usize, ErrorCode::from_number(number as u32)), (number, code));
        }
        assert_eq!(ErrorCode::from_number(99), ErrorCode::Internal);
    }
}
