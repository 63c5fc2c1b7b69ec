//! QPACK, the field compression of HTTP/3 (RFC 9204), with bounded memory on both sides.
//!
//! | file | contents |
//! |---|---|
//! | `table` | static table |
//! | `encoder` | encoder of field sections, without a dynamic table |
//! | `decoder` | decoder of field sections, with its dynamic table and instructions |
//! | `feedback` | instructions on the decoder streams |
//!
//! The encoder never inserts into the peer's table. An encoded head is therefore valid on every connection, a cached
//! response is encoded only once, and no encoder stream is needed.

mod decoder;
mod encoder;
mod feedback;
mod table;

pub use decoder::{Decoder, DecoderError};
pub use encoder::{SECTION_PREFIX, encode_field, encode_status};
pub(super) use feedback::{DecoderFeedback, append_acknowledgment, append_cancellation};

/// Maximum size of the dynamic table that the peer's encoder may use, in bytes.
pub const TABLE_BYTES_MAX: usize = 4096;

/// Maximum number of streams that may be blocked on the dynamic table.
pub const BLOCKED_STREAMS_MAX: usize = 16;

/// Length of the prefix of a value's length, in bits.
const VALUE_PREFIX_BITS: u32 = 7;

#[cfg(test)]
mod tests;
