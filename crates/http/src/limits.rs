//! Every bound on what a peer may send, in one place.

/// Digits of a chunk size. 16 hold any number of 64 bits; more could only be zeros, of which a peer could send any
/// number without ever beginning a chunk. Over it: 400.
pub const CHUNK_SIZE_DIGITS_MAX: u8 = 16;

/// Bounds on one message and one connection. All are inclusive maxima.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head, from its first byte to the end of the empty line. Over it: 431.
    pub head_bytes_max: usize,
    /// Bytes of a request target. Over it: 414. RFC 9112 §3 recommends that at least 8,000 be supported.
    pub target_bytes_max: usize,
    /// Bytes of a method. The longest registered one, UPDATEREDIRECTREF, has 17. Over it: 501.
    pub method_bytes_max: usize,
    /// Field lines in a head, and in a trailer section. Over it: 431.
    pub fields_max: usize,
    /// Bytes of a request body that nobody wants and that is read only to find its end. Over it: 413.
    pub body_bytes_max: u64,
    /// Bytes of all chunk extensions of one body together. They carry nothing we use. Over it: 413.
    pub chunk_extension_bytes_max: u32,
    /// Bytes of a trailer section. Over it: 431.
    pub trailer_bytes_max: u32,
    /// Requests answered from one receive before the answers are sent. More stay queued in the kernel or in the
    /// connection's stash; none is refused.
    pub pipelined_max: u32,
    /// Bytes of answers made before they are sent. A client that asks for much and reads nothing has so much, and one
    /// answer more, held for it.
    pub output_bytes_max: usize,
    /// Whether a response in transfer codings none of which is known lasts until the connection's end (RFC 9112 §6.3),
    /// instead of being refused: its content is in a form then that nobody here can tell.
    pub unknown_codings: bool,
}

impl Limits {
    /// What `flatout serve` uses. 16 KiB of head is what Apache and Node allow within a factor of two; browsers send
    /// under 2 KiB. 16 pipelined requests is the depth that common benchmarks use.
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

    /// What the lab's client allows a server: larger heads, any body.
    pub const CLIENT: Self =
        Self { head_bytes_max: 64 * 1024, fields_max: 256, body_bytes_max: u64::MAX, ..Self::DEFAULT };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
