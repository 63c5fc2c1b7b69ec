//! The result of a statement: rows of typed values, with the contents of all strings and blobs in one buffer.

use crate::value::ValueRef;
use std::ops::Range;
use std::sync::Arc;

/// The result of a statement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    columns: Arc<[Box<str>]>,
    cells: Vec<Cell>,
    bytes: Vec<u8>,
    /// Number of rows changed by an INSERT, UPDATE or DELETE; 0 for other statements.
    pub changes: u64,
    /// Rowid of the last row that any statement has inserted on the writer's connection; 0 if there is none, or if the
    /// statement ran on a reader.
    pub last_insert_rowid: i64,
}

/// A value whose bytes, if any, are in the buffer.
#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(Range<usize>),
    Blob(Range<usize>),
}

impl Rows {
    /// Creates an empty result with these columns.
    pub(crate) fn new(columns: Arc<[Box<str>]>) -> Self {
        Self { columns, ..Self::default() }
    }

    /// Appends the next value, in row-major order.
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

    /// Column names in the statement's order; empty for a statement without result rows.
    pub fn columns(&self) -> &[Box<str>] {
        &self.columns
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.cells.len().checked_div(self.columns.len()).unwrap_or(0)
    }

    /// Returns whether the result has no rows.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The value at a row and a column, both counted from 0; `None` if either is out of range.
    pub fn get(&self, row: usize, column: usize) -> Option<ValueRef<'_>> {
        if column >= self.columns.len() {
            return None;
        }
        self.cells.get(row * self.columns.len() + column).map(|cell| self.value(cell))
    }

    /// The values of a row, in column order; empty if the row is out of range.
    pub fn row(&self, row: usize) -> impl Iterator<Item = ValueRef<'_>> {
        let start = (row * self.columns.len()).min(self.cells.len());
        let end = (start + self.columns.len()).min(self.cells.len());
        self.cells[start..end].iter().map(|cell| self.value(cell))
    }

    /// Size of the values in bytes: eight for each value, plus the length of its string or blob.
    /// [`Limits::bytes_max`](crate::Limits::bytes_max) limits this.
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
