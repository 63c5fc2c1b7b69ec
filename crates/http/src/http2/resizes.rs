//! Dynamic table size updates at the start of a field block (RFC 7541 §4.2, §6.3), counted before decoding.
//!
//! An update is one byte, is superseded by the next one, and counts towards no limit on fields. Without a limit, a
//! block could consist of updates only.

use super::frame::{Frame, LEAD_BYTES, flag, kind};

/// Maximum updates at the start of a block: the smallest size since the last block, and the final one (RFC 7541 §4.2).
pub const RESIZES_MAX: u8 = 2;

/// Maximum bytes of an update: the first, and four more of an integer, which exceeds any table size. Decoders refuse
/// longer integers.
const RESIZE_BYTES_MAX: usize = 5;

/// Bytes before the fragment in HEADERS: pad length and priority.
const PREFIX_BYTES_MAX: usize = 6;

// The inspected bytes always include one update too many, wherever the fragment begins.
const _: () = assert!(LEAD_BYTES > PREFIX_BYTES_MAX + RESIZE_BYTES_MAX * RESIZES_MAX as usize);

/// Counts the updates at the start of the current field block.
#[derive(Clone, Debug)]
pub(super) struct ResizeCounter {
    count: u8,
    /// The integer continues in the next byte.
    within_integer: bool,
    /// A field has occurred: RFC 7541 §4.2 forbids later updates, which the decoder checks.
    has_field: bool,
}

impl ResizeCounter {
    /// State outside a block.
    pub(super) const fn new() -> Self {
        Self { count: 0, within_integer: false, has_field: false }
    }

    /// Handles a HEADERS or CONTINUATION frame. Returns whether the block still has at most [`RESIZES_MAX`] updates.
    pub(super) fn handle_frame(&mut self, frame: &Frame) -> bool {
        if frame.kind == kind::HEADERS {
            *self = Self::new();
        }
        let Some(fragment) = fragment_of(frame) else { return true };
        for &byte in fragment {
            if self.has_field {
                break;
            }
            if self.within_integer {
                self.within_integer = byte & 0x80 != 0;
            } else if byte & 0xe0 == 0x20 {
                self.count = self.count.saturating_add(1);
                self.within_integer = byte & 0x1f == 0x1f;
            } else {
                self.has_field = true;
            }
        }
        self.count <= RESIZES_MAX
    }
}

/// Inspected bytes of the frame's field block fragment; `None` if it has none.
fn fragment_of(frame: &Frame) -> Option<&[u8]> {
    let (mut start, mut end) = (0, frame.payload_bytes as usize);
    if frame.kind == kind::HEADERS && frame.has(flag::PADDED) {
        start += 1;
        end = end.checked_sub(usize::from(frame.lead[0]))?;
    }
    if frame.kind == kind::HEADERS && frame.has(flag::PRIORITY) {
        start += 5;
    }
    frame.lead.get(start..end.min(LEAD_BYTES))
}
