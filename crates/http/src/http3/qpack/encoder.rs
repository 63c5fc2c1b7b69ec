//! Encoder of QPACK field sections, without a dynamic table (RFC 9204 §4.5).

use super::VALUE_PREFIX_BITS;
use super::table::find_static;
use crate::compression::{encode_integer, encode_string};
use crate::status::digits;

/// The prefix of a field section without references to the dynamic table: required insert count and base, both
/// 0 (RFC 9204 §4.5.1).
pub const SECTION_PREFIX: [u8; 2] = [0, 0];

/// Appends a field without references to the dynamic table. `name` must be in lower case.
pub fn encode_field(name: &[u8], value: &[u8], output: &mut Vec<u8>) {
    match find_static(name, value) {
        Some((index, true)) => encode_integer(index as u64, 6, 0xc0, output),
        Some((index, false)) => {
            encode_integer(index as u64, 4, 0x50, output);
            encode_string(value, VALUE_PREFIX_BITS, 0, output);
        }
        None => {
            encode_string(name, 3, 0x20, output);
            encode_string(value, VALUE_PREFIX_BITS, 0, output);
        }
    }
}

/// Appends the field `:status`. `status` must have three digits.
pub fn encode_status(status: u16, output: &mut Vec<u8>) {
    encode_field(b":status", &digits(status), output);
}
