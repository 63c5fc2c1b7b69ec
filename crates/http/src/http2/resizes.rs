//! Changes of the dynamic table's size at the start of a field block (RFC 7541 §4.2, §6.3), counted before the block is decoded.
//!
//! A change is one byte, says nothing that the next one does not overrule, and counts towards no limit of fields. So a block
//! could hold as many as it has bytes.

use super::frame::{Frame, LEAD_BYTES, flag, kind};

/// Changes at the start of a block: the smallest size since the last block, and the final one (RFC 7541 §4.2).
pub const RESIZES_MAX: u8 = 2;

/// Bytes of a change at most: its first, and four more of an integer, which is more than any table's size needs. A decoder
/// refuses longer integers.
const RESIZE_BYTES_MAX: usize = 5;

/// Bytes of HEADERS ahead of its fragment: the length of the padding, and a priority.
const PREFIX_BYTES_MAX: usize = 6;

// What is looked at of a frame shows one change too many, wherever its fragment begins.
const _: () = assert!(LEAD_BYTES > PREFIX_BYTES_MAX + RESIZE_BYTES_MAX * RESIZES_MAX as usize);

/// Counts the changes with which the field block at hand begins.
#[derive(Clone, Debug)]
pub(super) struct ResizeCounter {
    count: u8,
    /// An integer goes on with the next byte.
    within_integer: bool,
    /// A field has come: RFC 7541 §4.2 allows no change after it, which the decoder checks.
    has_field: bool,
}

impl ResizeCounter {
    /// For a connection without a block.
    pub(super) const fn new() -> Self {
        Self { count: 0, within_integer: false, has_field: false }
    }

    /// Looks at a HEADERS or CONTINUATION frame. Returns whether the block still has no more than [`RESIZES_MAX`] changes.
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

/// What is known of the frame's fragment of the block; `None` when it has none.
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
