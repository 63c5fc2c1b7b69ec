//! A page's output: numbers of static segments, and ranges of one buffer for everything else.

use std::ops::Range;

/// Buffer capacity kept for the next request, in bytes. Ordinary pages fit, and larger buffers are shrunk.
pub const ROOM_KEPT_BYTES_MAX: usize = 64 * 1024;

/// A piece of output: a static segment of the page, or a range of the generated text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputPiece {
    /// A static segment of the page, by number.
    Static(u32),
    /// A range of [`Output::dynamic`].
    Dynamic {
        /// Offset of the first byte.
        start: u32,
        /// Offset after the last byte.
        end: u32,
    },
}

impl OutputPiece {
    /// The range of a dynamic piece; `None` for a static piece.
    pub fn range(self) -> Option<Range<usize>> {
        match self {
            Self::Static(_) => None,
            Self::Dynamic { start, end } => Some(start as usize..end as usize),
        }
    }
}

/// The output of a page: its pieces, in the order in which they were written.
#[derive(Debug, Default)]
pub struct Output {
    pieces: Vec<OutputPiece>,
    dynamic: Vec<u8>,
}

impl Output {
    /// All pieces that were written and not sent yet, in order.
    pub fn pieces(&self) -> &[OutputPiece] {
        &self.pieces
    }

    /// The buffer that the dynamic pieces refer to.
    pub fn dynamic(&self) -> &[u8] {
        &self.dynamic
    }

    /// Takes the buffer, for a response body that owns it. The pieces do not change.
    pub fn take_dynamic(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.dynamic)
    }

    /// Returns whether the output is empty.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Writes the static segment with number `index`.
    pub fn segment(&mut self, index: u32) {
        self.pieces.push(OutputPiece::Static(index));
    }

    /// Writes the bytes that `write` appends to the buffer.
    pub fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.dynamic.len();
        write(&mut self.dynamic);
        self.seal(before);
    }

    /// Adds a piece for the bytes after `before`, or extends the last piece.
    fn seal(&mut self, before: usize) {
        // The run's memory limit keeps the size of the buffer far below 32 bits.
        let (before, now) = (before as u32, self.dynamic.len() as u32);
        if before == now {
            return;
        }
        match self.pieces.last_mut() {
            Some(OutputPiece::Dynamic { end, .. }) if *end == before => *end = now,
            _ => self.pieces.push(OutputPiece::Dynamic { start: before, end: now }),
        }
    }

    /// Removes everything outside `range`, in bytes of the content. `segment` returns the bytes of a static segment.
    pub fn keep_range<'a>(&mut self, range: Range<usize>, segment: impl Fn(u32) -> &'a [u8]) {
        let mut offset = 0;
        for piece in std::mem::take(&mut self.pieces) {
            let length = match piece {
                OutputPiece::Static(number) => segment(number).len(),
                OutputPiece::Dynamic { start, end } => end.saturating_sub(start) as usize,
            };
            let [first, last] = [range.start, range.end].map(|at| at.saturating_sub(offset).min(length));
            offset += length;
            match piece {
                _ if first >= last => {}
                OutputPiece::Static(_) if last - first == length => self.pieces.push(piece),
                // Part of a static segment becomes generated text.
                OutputPiece::Static(number) => self.write(|out| out.extend_from_slice(&segment(number)[first..last])),
                OutputPiece::Dynamic { start, .. } => {
                    self.pieces.push(OutputPiece::Dynamic { start: start + first as u32, end: start + last as u32 });
                }
            }
        }
    }

    /// Clears the output.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.dynamic.clear();
        self.dynamic.shrink_to(ROOM_KEPT_BYTES_MAX);
        self.pieces.shrink_to(ROOM_KEPT_BYTES_MAX / size_of::<OutputPiece>());
    }

    /// Number of bytes held, which count towards the run's memory limit.
    pub fn held_bytes(&self) -> usize {
        self.dynamic.len() + self.pieces.len() * size_of::<OutputPiece>()
    }
}
