//! A page's output: numbers of its static segments, and ranges of one buffer for the rest.

use std::ops::Range;

/// Capacity retained for the next request, in bytes: ordinary pages fit, and giant ones are freed.
pub const ROOM_KEPT_BYTES_MAX: usize = 64 * 1024;

/// A piece of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputPiece {
    /// A static segment of the page, by number.
    Static(u32),
    /// A range of [`Output::dynamic`].
    Dynamic {
        /// First byte.
        start: u32,
        /// End, exclusive.
        end: u32,
    },
}

impl OutputPiece {
    /// The range of a dynamic piece.
    pub fn range(self) -> Option<Range<usize>> {
        match self {
            Self::Static(_) => None,
            Self::Dynamic { start, end } => Some(start as usize..end as usize),
        }
    }
}

/// The pieces in output order.
#[derive(Debug, Default)]
pub struct Output {
    pieces: Vec<OutputPiece>,
    dynamic: Vec<u8>,
}

impl Output {
    /// The pieces.
    pub fn pieces(&self) -> &[OutputPiece] {
        &self.pieces
    }

    /// The buffer of the dynamic pieces.
    pub fn dynamic(&self) -> &[u8] {
        &self.dynamic
    }

    /// Takes the buffer, for a body that owns it; the pieces are unchanged.
    pub fn take_dynamic(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.dynamic)
    }

    /// Returns whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Writes static segment number `index`.
    pub fn segment(&mut self, index: u32) {
        self.pieces.push(OutputPiece::Static(index));
    }

    /// Writes the bytes that `write` appends to the buffer.
    pub fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.dynamic.len();
        write(&mut self.dynamic);
        self.seal(before);
    }

    /// Adds a piece for the bytes after `before`, or extends the last one.
    fn seal(&mut self, before: usize) {
        // The run's memory limit bounds the buffer far below 32 bits.
        let (before, now) = (before as u32, self.dynamic.len() as u32);
        if before == now {
            return;
        }
        match self.pieces.last_mut() {
            Some(OutputPiece::Dynamic { end, .. }) if *end == before => *end = now,
            _ => self.pieces.push(OutputPiece::Dynamic { start: before, end: now }),
        }
    }

    /// Clears it.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.dynamic.clear();
        self.dynamic.shrink_to(ROOM_KEPT_BYTES_MAX);
        self.pieces.shrink_to(ROOM_KEPT_BYTES_MAX / size_of::<OutputPiece>());
    }

    /// Bytes held, which count against the run's memory limit.
    pub fn held_bytes(&self) -> usize {
        self.dynamic.len() + self.pieces.len() * size_of::<OutputPiece>()
    }
}
