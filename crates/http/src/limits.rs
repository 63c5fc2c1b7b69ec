//! Limits on what a peer may send.

/// Maximum digits of a chunk size. 16 hold any 64-bit number; more could only be leading zeros, with which a peer
/// could delay a chunk indefinitely. If exceeded: 400.
pub const CHUNK_SIZE_DIGITS_MAX: u8 = 16;

/// Limits on one message and one connection. All are inclusive maxima.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head, including the empty line. If exceeded: 431.
    pub head_bytes_max: usize,
    /// Bytes of a request target. If exceeded: 414. RFC 9112 §3 recommends supporting at least 8,000.
    pub target_bytes_max: usize,
    /// Bytes of a method. The longest registered one, UPDATEREDIRECTREF, has 17. If exceeded: 501.
    pub method_bytes_max: usize,
    /// Field lines in a head or a trailer section. If exceeded: 431.
    pub fields_max: usize,
    /// Bytes of an unused request body, read only to find its end. If exceeded: 413.
    pub body_bytes_max: u64,
    /// Total bytes of chunk extensions in one body; they are ignored. If exceeded: 413.
    pub chunk_extension_bytes_max: u32,
    /// Bytes of a trailer section. If exceeded: 431.
    pub trailer_bytes_max: u32,
    /// Requests from one receive that are handled before their responses are sent. More stay queued in the kernel or
    /// the connection's buffer; none is refused.
    pub pipelined_max: u32,
    /// Bytes of responses buffered before sending. A client that reads nothing can occupy this much plus one response.
    pub output_bytes_max: usize,
    /// True if a response with only unknown transfer codings extends to the close of the connection (RFC 9112 §6.3)
    /// instead of being refused. Its content is then in an unknown form.
    pub unknown_codings: bool,
}

impl Limits {
    /// Limits of `flatout serve`. 16 KiB per head is within a factor of two of Apache and Node; browsers send under 2
    /// KiB. A pipelining depth of 16 is common in benchmarks.
    pub const DEFAULT: Self = Self {
        head_bytes_max: 16 * 1024,
        target_bytes_max: 8 * 1024,
        method_bytes_max: 32,
        fields_max: 100,
        body_bytes_max: 1024 * 1024,
        chunk_extension_bytes_max: 4 * 1024,
        trailer_bytes_max: 4 * 1024,
        pipelined_max: 16,
        output_bytes_max: 32 * 1024,
        unknown_codings: false,
    };

    /// Limits of the lab's client: larger heads, any body.
    pub const CLIENT: Self =
        Self { head_bytes_max: 64 * 1024, fields_max: 256, body_bytes_max: u64::MAX, ..Self::DEFAULT };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
