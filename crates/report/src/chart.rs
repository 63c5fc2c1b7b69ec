//! Charts as SVG: axes with units, lines, points and heat.
//!
//! A chart is a value; drawing it is a pure function of that value. Colours are classes (`s0`, `s1`, …), so the
//! containing page defines them for light, dark and print. Charts have no animation and load nothing, and their text
//! is real text: it can be searched, copied and read aloud.

mod axis;
mod draw;

pub use axis::{Axis, Quantity};

/// Number of distinct styles of series; further series reuse them.
pub const LOOKS: usize = 6;

/// Longest series drawn point by point; a longer one is thinned first, see [`thin`].
pub const POINTS_MAX: usize = 240;

/// The vertical axis of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The left one, which every chart has.
    Left,
    /// The right one.
    Right,
}

/// Points joined by a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name in the legend and in markers.
    pub name: String,
    /// Its look: colour, and shape of the points.
    pub look: usize,
    /// Its vertical axis.
    pub side: Side,
    /// Dashed, for a requested instead of measured value, or for the second of two related lines.
    pub is_dashed: bool,
    /// True if each point has a marker, which shows its values under a pointer.
    pub is_marked: bool,
    /// Points in the axes' own quantities. One that is not finite breaks the line.
    pub points: Vec<(f64, f64)>,
}

/// Rectangles whose depth of colour is a share: columns over the horizontal axis, rows over the vertical one.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Left and right edge.
    pub x: (f64, f64),
    /// Lower and upper edge.
    pub y: (f64, f64),
    /// 0 to 1.
    pub depth: f64,
}

/// One chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Its title, for the caption and for screen readers.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The left axis.
    pub left: Axis,
    /// The right axis, if there are two.
    pub right: Option<Axis>,
    /// Heat, below the lines.
    pub cells: Vec<Cell>,
    /// Lines, in drawing order.
    pub lines: Vec<Line>,
}

impl Chart {
    /// The chart as one `<svg>` element.
    pub fn draw(&self) -> String {
        draw::draw(self)
    }
}

/// A long series as at most [`POINTS_MAX`] points: each the mean of its neighbours, so that nothing is drawn that was not
/// measured and no trend is lost.
pub fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let each = points.len().div_ceil(POINTS_MAX).max(1);
    points
        .chunks(each)
        .map(|chunk| {
            let count = chunk.len() as f64;
            let sum = chunk.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
            (sum.0 / count, sum.1 / count)
        })
        .collect()
}

#[cfg(test)]
mod tests;
