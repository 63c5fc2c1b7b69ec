//! What a page has written: indices of its static segments, and ranges of one buffer for all the rest.

use std::ops::Range;

/// Room that a buffer keeps for the next request, bytes: a page of ordinary size fits, and one giant does not stay.
pub const ROOM_KEPT_BYTES_MAX: usize = 64 * 1024;

/// One piece of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A static segment of the page, by its number.
    Static(u32),
    /// A range of [`Output::dynamic`].
    Dynamic {
        /// First byte.
        start: u32,
        /// Behind the last byte.
        end: u32,
    },
}

impl Piece {
    /// The range of a dynamic piece.
    pub fn range(self) -> Option<Range<usize>> {
        match self {
            Self::Static(_) => None,
            Self::Dynamic { start, end } => Some(start as usize..end as usize),
        }
    }
}

/// The pieces in the order in which they were written.
#[derive(Debug, Default)]
pub struct Output {
    pieces: Vec<Piece>,
    dynamic: Vec<u8>,
}

impl Output {
    /// The pieces.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The bytes that dynamic pieces are ranges of.
    pub fn dynamic(&self) -> &[u8] {
        &self.dynamic
    }

    /// Takes the dynamic bytes out, for a body that owns them; the pieces stay as they are.
    pub fn take_dynamic(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.dynamic)
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Writes static segment number `index`.
    pub fn segment(&mut self, index: u32) {
        self.pieces.push(Piece::Static(index));
    }

    /// Writes whatever `write` appends to the buffer.
    pub fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.dynamic.len();
        write(&mut self.dynamic);
        self.seal(before);
    }

    /// Makes a piece of what stands behind `before`, or lengthens the last one.
    fn seal(&mut self, before: usize) {
        // The run's memory limit keeps the buffer far below what 32 bits can say.
        let (before, now) = (before as u32, self.dynamic.len() as u32);
        if before == now {
            return;
        }
        match self.pieces.last_mut() {
            Some(Piece::Dynamic { end, .. }) if *end == before => *end = now,
            _ => self.pieces.push(Piece::Dynamic { start: before, end: now }),
        }
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.dynamic.clear();
        self.dynamic.shrink_to(ROOM_KEPT_BYTES_MAX);
        self.pieces.shrink_to(ROOM_KEPT_BYTES_MAX / size_of::<Piece>());
    }

    /// Bytes held, which count against the run's memory.
    pub fn held_bytes(&self) -> usize {
        self.dynamic.len() + self.pieces.len() * size_of::<Piece>()
    }
}
