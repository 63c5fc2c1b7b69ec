//! What came out of a statement: rows of typed values, all texts and blobs in one buffer.

use crate::value::ValueRef;
use std::ops::Range;
use std::sync::Arc;

/// What came out of a statement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    columns: Arc<[Box<str>]>,
    cells: Vec<Cell>,
    bytes: Vec<u8>,
    /// Rows that an INSERT, UPDATE or DELETE changed; 0 for any other statement.
    pub changes: u64,
    /// The rowid of the row that this connection inserted last, in whichever statement; 0 when it never did, or the
    /// statement ran on a reader.
    pub last_insert_rowid: i64,
}

/// A value, its bytes elsewhere.
#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(Range<usize>),
    Blob(Range<usize>),
}

impl Rows {
    /// None yet, of these columns.
    pub(crate) fn new(columns: Arc<[Box<str>]>) -> Self {
        Self { columns, ..Self::default() }
    }

    /// Appends the next value, column after column, row after row.
    pub(crate) fn push(&mut self, value: ValueRef<'_>) {
        let cell = match value {
            ValueRef::Null => Cell::Null,
            ValueRef::Integer(value) => Cell::Integer(value),
            ValueRef::Real(value) => Cell::Real(value),
            ValueRef::Text(text) => Cell::Text(self.keep(text)),
            ValueRef::Blob(blob) => Cell::Blob(self.keep(blob)),
        };
        self.cells.push(cell);
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// The columns' names, in the statement's order. Empty for a statement that returns no rows.
    pub fn columns(&self) -> &[Box<str>] {
        &self.columns
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.cells.len().checked_div(self.columns.len()).unwrap_or(0)
    }

    /// True: there are none.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The value of a row and a column, both counted from 0; `None` outside.
    pub fn get(&self, row: usize, column: usize) -> Option<ValueRef<'_>> {
        if column >= self.columns.len() {
            return None;
        }
        self.cells.get(row * self.columns.len() + column).map(|cell| self.value(cell))
    }

    /// The values of a row, in the columns' order; nothing outside.
    pub fn row(&self, row: usize) -> impl Iterator<Item = ValueRef<'_>> {
        let start = (row * self.columns.len()).min(self.cells.len());
        let end = (start + self.columns.len()).min(self.cells.len());
        self.cells[start..end].iter().map(|cell| self.value(cell))
    }

    /// Bytes that the values take here: eight for each besides its text's or blob's. This is what
    /// [`Limits::bytes_max`](crate::Limits::bytes_max) bounds.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + 8 * self.cells.len()
    }

    fn value(&self, cell: &Cell) -> ValueRef<'_> {
        match cell {
            Cell::Null => ValueRef::Null,
            Cell::Integer(value) => ValueRef::Integer(*value),
            Cell::Real(value) => ValueRef::Real(*value),
            Cell::Text(range) => ValueRef::Text(&self.bytes[range.clone()]),
            Cell::Blob(range) => ValueRef::Blob(&self.bytes[range.clone()]),
        }
    }
}
