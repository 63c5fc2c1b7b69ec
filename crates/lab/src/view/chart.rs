//! Charts as SVG, drawn here: axes with units, lines, points and heat.
//!
//! A chart is a value; drawing it is a pure function of that value. Colours are classes (`s0`, `s1`, …), so the page that
//! holds the chart decides what they are by day, by night and on paper. Nothing moves, nothing is loaded, and the text is
//! text: it can be searched, copied and read aloud.

mod axis;
mod draw;

pub use axis::{Axis, Quantity};
pub use draw::escape;

/// How many series have a look of their own; the next ones begin again from the first.
pub const LOOKS: usize = 6;

/// Longest series drawn point by point; a longer one is thinned first, see [`thin`].
pub const POINTS_MAX: usize = 240;

/// Which of two vertical axes a line is read on.
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
    /// What it is, for the legend and for the points' own words.
    pub name: String,
    /// Its look: colour, and shape of the points.
    pub look: usize,
    /// Where it is read.
    pub side: Side,
    /// Dashed, for what was asked for and not measured, or for the second of two related lines.
    pub is_dashed: bool,
    /// Whether each point is marked; its marker says its values when a pointer rests on it.
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
    /// What it shows, in words, for the caption and for readers who cannot see it.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The left axis.
    pub left: Axis,
    /// The right axis, where lines are read on two.
    pub right: Option<Axis>,
    /// Heat, below the lines.
    pub cells: Vec<Cell>,
    /// Lines, in the order they are drawn.
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
