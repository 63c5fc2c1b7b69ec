//! Charts as SVG: axes with units, lines, points and heat maps.
//!
//! A chart is a value, and drawing it is a pure function of that value. Colours are CSS classes (`s0`, `s1`, …), so the
//! containing page defines them for light mode, dark mode and print. Charts have no animation and load nothing. Their
//! text is real text, which can be searched, copied and read aloud.

mod axis;
mod draw;

pub use axis::{Axis, Quantity};

/// Number of distinct line styles. Further lines reuse them.
pub const LOOKS: usize = 6;

/// Maximum number of points in a line. A longer series is thinned first; see [`thin`].
pub const POINTS_MAX: usize = 240;

/// The vertical axis that a line refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The left axis, which every chart has.
    Left,
    /// The right axis.
    Right,
}

/// Points joined by a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Name of the line in the legend and in markers.
    pub name: String,
    /// Number of the line's style: its colour, and the shape of its points.
    pub look: usize,
    /// The vertical axis that the line refers to.
    pub side: Side,
    /// True for a dashed line, which shows a requested instead of a measured value, or the second of two related lines.
    pub is_dashed: bool,
    /// True if each point has a marker, which shows its values under a pointer.
    pub is_marked: bool,
    /// Points in the quantities of the two axes. A point that is not finite breaks the line.
    pub points: Vec<(f64, f64)>,
}

/// A rectangle whose depth of colour represents a share. In a heat map, columns are ranges of the horizontal axis, and
/// rows are ranges of the vertical axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Left and right edge.
    pub x: (f64, f64),
    /// Lower and upper edge.
    pub y: (f64, f64),
    /// Depth of colour, 0 to 1.
    pub depth: f64,
}

/// A chart with one or two vertical axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Title of the chart, for the caption and for screen readers.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The left vertical axis.
    pub left: Axis,
    /// The right vertical axis, if there is one.
    pub right: Option<Axis>,
    /// Cells of a heat map, which are drawn below the lines.
    pub cells: Vec<Cell>,
    /// The lines, in drawing order.
    pub lines: Vec<Line>,
}

impl Chart {
    /// Draws the chart as an `<svg>` element.
    pub fn draw(&self) -> String {
        draw::draw(self)
    }
}

/// Reduces a long series to at most [`POINTS_MAX`] points, each of which is the mean of several adjacent points. So no
/// trend is lost.
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
