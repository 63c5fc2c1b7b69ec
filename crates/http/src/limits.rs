//! Limits on what a peer may send.

/// Maximum digits of a chunk size. 16 digits hold any 64-bit number; more could only be leading zeros, with which a
/// peer could delay a chunk indefinitely. If exceeded: 400.
pub const CHUNK_SIZE_DIGITS_MAX: u8 = 16;

/// Limits on one message and one connection. All limits are inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of a head, including the empty line. If exceeded: 431.
    pub head_bytes_max: usize,
    /// Maximum bytes of a request target. If exceeded: 414. RFC 9112 §3 recommends supporting at least 8,000.
    pub target_bytes_max: usize,
    /// Maximum bytes of a method. The longest registered method, UPDATEREDIRECTREF, has 17. If exceeded: 501.
    pub method_bytes_max: usize,
    /// Maximum field lines in a head or a trailer section. If exceeded: 431.
    pub fields_max: usize,
    /// Maximum bytes of a request body that no handler reads and that is received only to find its end. If exceeded:
    /// 413.
    pub body_bytes_max: u64,
    /// Minimum rate of request content in bytes per second, on average over each body timeout; 0 for none. If not
    /// reached: 408.
    pub body_rate_min: u64,
    /// Maximum total bytes of chunk extensions in one body. The extensions are ignored. If exceeded: 413.
    pub chunk_extension_bytes_max: u32,
    /// Maximum bytes of a trailer section. If exceeded: 431.
    pub trailer_bytes_max: u32,
    /// Maximum requests from one receive call that are handled before their responses are sent. Further requests stay
    /// in the kernel's or the connection's buffer; none is refused.
    pub pipelined_max: u32,
    /// Maximum bytes of responses buffered before sending. A client that reads nothing can occupy this much memory plus
    /// one response.
    pub output_bytes_max: usize,
    /// True if a response with only unknown transfer codings extends until the connection closes (RFC 9112 §6.3)
    /// instead of being refused. Its content is then in an unknown format.
    pub unknown_codings: bool,
}

impl Limits {
    /// Limits of `flatout serve`. A head of 32 KiB is also the default of nginx (`large_client_header_buffers`): single
    /// sign-on and consent managers set cookies of more than 16 KiB. A pipelining depth of 16 is common in benchmarks.
    pub const DEFAULT: Self = Self {
        head_bytes_max: 32 * 1024,
        target_bytes_max: 16 * 1024,
        method_bytes_max: 32,
        fields_max: 100,
        body_bytes_max: 1024 * 1024,
        body_rate_min: 0,
        chunk_extension_bytes_max: 4 * 1024,
        trailer_bytes_max: 4 * 1024,
        pipelined_max: 16,
        output_bytes_max: 32 * 1024,
        unknown_codings: false,
    };

    /// Limits of clients, such as the proxy and the benchmark client: larger heads, and bodies of any size.
    pub const CLIENT: Self =
        Self { head_bytes_max: 64 * 1024, fields_max: 256, body_bytes_max: u64::MAX, ..Self::DEFAULT };

    /// The same limits for heads of up to `bytes_max`, half of which the target may take, as by default. At least the
    /// default: a smaller head bounds its target anyway.
    #[must_use]
    pub const fn with_head_bytes_max(self, bytes_max: usize) -> Self {
        let half = bytes_max / 2;
        let least = Self::DEFAULT.target_bytes_max;
        Self { head_bytes_max: bytes_max, target_bytes_max: if half > least { half } else { least }, ..self }
    }

    /// Returns the maximum size of a field section over HTTP/2 and HTTP/3, in bytes. It counts 32 bytes more for each
    /// field (RFC 9113 §6.5.2), and browsers send each cookie in a field of its own; so the limit is twice that of a
    /// head. [`assemble_request_head`](crate::request::assemble_request_head) compares the head itself with its limit.
    pub const fn section_bytes_max(&self) -> usize {
        self.head_bytes_max.saturating_mul(2)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::Limits;

    #[test]
    fn a_target_may_take_half_of_a_larger_head() {
        for (head, target) in [(4 << 10, 16 << 10), (32 << 10, 16 << 10), (40_000, 20_000), (256 << 10, 128 << 10)] {
            let limits = Limits::DEFAULT.with_head_bytes_max(head);
            assert_eq!((limits.head_bytes_max, limits.target_bytes_max), (head, target));
        }
        let same = Limits::DEFAULT.with_head_bytes_max(Limits::DEFAULT.head_bytes_max);
        assert_eq!(same, Limits::DEFAULT);
    }
}
