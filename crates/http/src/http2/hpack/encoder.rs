//! Encoder of HPACK field blocks, without a dynamic table (RFC 7541 §6.1, §6.2.2).

use super::STRING_PREFIX_BITS;
use super::table::STATIC_TABLE;
use crate::compression::{encode_integer, encode_string};
use crate::status::digits;

/// Appends a field in a form that the peer does not add to its table. `name` must be in lower case.
pub fn encode_field(name: &[u8], value: &[u8], output: &mut Vec<u8>) {
    match find_static(name, value) {
        (index @ 1.., true) => encode_integer(index as u64, 7, 0x80, output),
        (index, _) => {
            encode_integer(index as u64, 4, 0, output);
            if index == 0 {
                encode_string(name, STRING_PREFIX_BITS, 0, output);
            }
            encode_string(value, STRING_PREFIX_BITS, 0, output);
        }
    }
}

/// Appends the field `:status`. `status` must have three digits.
pub fn encode_status(status: u16, output: &mut Vec<u8>) {
    encode_field(b":status", &digits(status), output);
}

/// Appends a dynamic table size update, which must precede the first field of a block.
pub fn encode_table_size(size: usize, output: &mut Vec<u8>) {
    encode_integer(size as u64, 5, 0x20, output);
}

/// Returns the index of the static entry that equals the field or has its name, or 0 if there is none. The second value
/// is true if the whole field is equal.
fn find_static(name: &[u8], value: &[u8]) -> (usize, bool) {
    let mut found = (0, false);
    for (at, (other, text)) in STATIC_TABLE.iter().enumerate() {
        if other.as_bytes() != name {
            continue;
        }
        if text.as_bytes() == value {
            return (at + 1, true);
        }
        if found.0 == 0 {
            found.0 = at + 1;
        }
    }
    found
}
