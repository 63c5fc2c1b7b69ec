//! Variable-length integers (RFC 9000 §16), frames, stream types and settings (RFC 9114 §6.2, §7; RFC 9218 §7.2).

/// Maximum value of a variable-length integer.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Length of the longest frame head, which consists of two variable-length integers, in bytes.
pub const HEAD_BYTES_MAX: usize = 16;

/// Length of the head of a DATA or HEADERS frame that this side sends, in bytes. All such heads have the same length,
/// so a head can be reserved before the length of its payload is known.
pub const FIXED_HEAD_BYTES: usize = 5;

/// Frame types (RFC 9114 §7.2, RFC 9218 §7.2).
pub mod kind {
    /// DATA (RFC 9114 §7.2.1).
    pub const DATA: u64 = 0;
    /// HEADERS (RFC 9114 §7.2.2).
    pub const HEADERS: u64 = 1;
    /// CANCEL_PUSH (RFC 9114 §7.2.3).
    pub const CANCEL_PUSH: u64 = 3;
    /// SETTINGS (RFC 9114 §7.2.4).
    pub const SETTINGS: u64 = 4;
    /// PUSH_PROMISE (RFC 9114 §7.2.5).
    pub const PUSH_PROMISE: u64 = 5;
    /// GOAWAY (RFC 9114 §7.2.6).
    pub const GOAWAY: u64 = 7;
    /// MAX_PUSH_ID (RFC 9114 §7.2.7).
    pub const MAX_PUSH_ID: u64 = 0xd;
    /// PRIORITY_UPDATE for a request.
    pub const PRIORITY_UPDATE_REQUEST: u64 = 0xf_0700;
    /// PRIORITY_UPDATE for a push.
    pub const PRIORITY_UPDATE_PUSH: u64 = 0xf_0701;

    /// Returns whether this is a frame type of HTTP/2 that HTTP/3 does not have (RFC 9114 §11.2.1).
    pub const fn is_of_http2(kind: u64) -> bool {
        matches!(kind, 2 | 6 | 8 | 9)
    }
}

/// Types of unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2).
pub mod stream_kind {
    /// Control stream.
    pub const CONTROL: u64 = 0;
    /// Push stream.
    pub const PUSH: u64 = 1;
    /// QPACK encoder stream.
    pub const ENCODER: u64 = 2;
    /// QPACK decoder stream.
    pub const DECODER: u64 = 3;
}

/// Identifiers of settings (RFC 9114 §7.2.4.1, RFC 9204 §5, RFC 9220 §3).
pub mod setting {
    /// Size of the dynamic table that the peer's encoder may use, in bytes.
    pub const QPACK_MAX_TABLE_CAPACITY: u64 = 1;
    /// Maximum uncompressed size of a field section, in bytes.
    pub const MAX_FIELD_SECTION_SIZE: u64 = 6;
    /// Number of streams that may be blocked on the dynamic table.
    pub const QPACK_BLOCKED_STREAMS: u64 = 7;
    /// 1 if extended CONNECT is supported.
    pub const ENABLE_CONNECT_PROTOCOL: u64 = 8;

    /// Returns whether this is a setting of HTTP/2 that HTTP/3 does not have (RFC 9114 §11.2.2).
    pub const fn is_of_http2(id: u64) -> bool {
        matches!(id, 0 | 2..=5)
    }
}

/// Parses the variable-length integer at the start of `input` and removes it. Returns `None` if it is incomplete.
pub fn take_varint(input: &mut &[u8]) -> Option<u64> {
    let first = *input.first()?;
    let (bytes, rest) = input.split_at_checked(1 << (first >> 6))?;
    *input = rest;
    Some(bytes[1..].iter().fold(u64::from(first & 0x3f), |value, &byte| value << 8 | u64::from(byte)))
}

/// Appends `value`, which is clamped to [`VARINT_MAX`], as a variable-length integer.
pub fn append_varint(value: u64, output: &mut Vec<u8>) {
    match value {
        0..0x40 => output.push(value as u8),
        0x40..0x4000 => output.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => output.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => output.extend_from_slice(&(value.min(VARINT_MAX) | 3 << 62).to_be_bytes()),
    }
}

/// The type and length of a frame (RFC 9114 §7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// The frame type; see [`kind`].
    pub kind: u64,
    /// Length of the payload, in bytes.
    pub payload_bytes: u64,
}

impl FrameHead {
    /// Parses the head at the start of `input` and removes it. Returns `None` if it is incomplete.
    pub fn take(input: &mut &[u8]) -> Option<Self> {
        let mut rest = *input;
        let head = Self { kind: take_varint(&mut rest)?, payload_bytes: take_varint(&mut rest)? };
        *input = rest;
        Some(head)
    }

    /// Appends the encoded head to `output`.
    pub fn append_to(self, output: &mut Vec<u8>) {
        append_varint(self.kind, output);
        append_varint(self.payload_bytes, output);
    }
}

/// Reader of a frame head, or of a stream type, that may arrive in pieces.
#[derive(Clone, Debug, Default)]
pub(super) struct HeadReader {
    bytes: [u8; HEAD_BYTES_MAX],
    count: u8,
}

impl HeadReader {
    /// Returns whether no byte of the next head has arrived.
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Removes a frame head from the start of `input`. Returns `None`, and takes all of `input`, if the head is
    /// incomplete.
    pub(super) fn take(&mut self, input: &mut &[u8]) -> Option<FrameHead> {
        self.take_with(input, FrameHead::take)
    }

    /// Removes whatever `parse` parses, in the same way as [`Self::take`].
    pub(super) fn take_with<T>(&mut self, input: &mut &[u8], parse: impl Fn(&mut &[u8]) -> Option<T>) -> Option<T> {
        if self.count == 0
            && let Some(found) = parse(input)
        {
            return Some(found);
        }
        let before = usize::from(self.count);
        let added = input.len().min(HEAD_BYTES_MAX - before);
        let joined = before + added;
        self.bytes[before..joined].copy_from_slice(&input[..added]);
        let mut rest = &self.bytes[..joined];
        let found = parse(&mut rest);
        let used = if found.is_some() { (joined - rest.len()).saturating_sub(before) } else { added };
        *input = &input[used..];
        self.count = if found.is_some() { 0 } else { joined as u8 };
        found
    }
}

/// Encodes the head of a DATA or HEADERS frame whose payload has fewer than 2^30 bytes.
pub const fn fixed_head(kind: u64, payload_bytes: usize) -> [u8; FIXED_HEAD_BYTES] {
    debug_assert!(kind < 0x40 && payload_bytes < 1 << 30, "a type or a length that does not fit");
    let [a, b, c, d] = (payload_bytes as u32 | 0x8000_0000).to_be_bytes();
    [kind as u8, a, b, c, d]
}

/// Appends a frame with `payload` to `output`.
pub fn append_frame(kind: u64, payload: &[u8], output: &mut Vec<u8>) {
    FrameHead { kind, payload_bytes: payload.len() as u64 }.append_to(output);
    output.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::{FrameHead, VARINT_MAX, append_varint, fixed_head, kind, take_varint};
    use crate::feed::assert_three_ways;
    use proptest::prelude::proptest;

    fn take(bytes: &[u8]) -> Option<Result<(u64, usize), ()>> {
        let mut input = bytes;
        let value = take_varint(&mut input)?;
        Some(Ok((value, bytes.len() - input.len())))
    }

    /// RFC 9000 Appendix A.1.
    #[test]
    fn integers_of_rfc_9000() {
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            assert_three_ways(bytes, take);
            assert_eq!(take(bytes), Some(Ok((value, bytes.len()))));
            let mut output = Vec::new();
            append_varint(value, &mut output);
            assert_eq!(output, bytes);
        }
        assert_eq!(take(&[0x40, 0x25]), Some(Ok((37, 2))), "longer than necessary");
    }

    #[test]
    fn heads_return_unchanged() {
        for head in [
            FrameHead { kind: kind::HEADERS, payload_bytes: 0 },
            FrameHead { kind: kind::PRIORITY_UPDATE_REQUEST, payload_bytes: 64 },
            FrameHead { kind: VARINT_MAX, payload_bytes: VARINT_MAX },
        ] {
            let mut bytes = Vec::new();
            head.append_to(&mut bytes);
            assert_three_ways(&bytes, |bytes| {
                let mut input = bytes;
                let head = FrameHead::take(&mut input)?;
                Some(Ok::<_, ()>((head, bytes.len() - input.len())))
            });
            assert_eq!(FrameHead::take(&mut &bytes[..]), Some(head));
        }
        for payload_bytes in [0_usize, 1, 1 << 14, (1 << 30) - 1] {
            let head = FrameHead { kind: kind::DATA, payload_bytes: payload_bytes as u64 };
            assert_eq!(FrameHead::take(&mut &fixed_head(kind::DATA, payload_bytes)[..]), Some(head));
        }
    }

    proptest! {
        #[test]
        fn any_integer_returns_unchanged(value in 0..=VARINT_MAX) {
            let mut bytes = Vec::new();
            append_varint(value, &mut bytes);
            assert_eq!(take(&bytes), Some(Ok((value, bytes.len()))));
        }
    }
}
