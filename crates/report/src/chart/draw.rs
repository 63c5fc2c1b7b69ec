//! Drawing of a chart as `<svg>`.

use super::{Axis, Chart, LOOKS, Line, Side};
use crate::svg::{Svg, escape};
use std::fmt::Write as _;

/// Size of the drawing in its own units. It is small, so that text stays legible when a phone shows the whole chart.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;

/// Margins for ticks and titles.
const LEFT: f64 = 66.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;

/// Radius of a marker.
const MARKER: f64 = 3.2;

/// The rectangle of the plot area within the drawing.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Frame {
    fn x(&self, place: f64) -> f64 {
        self.left + place * (self.right - self.left)
    }

    fn y(&self, place: f64) -> f64 {
        self.bottom - place * (self.bottom - self.top)
    }
}

pub(super) fn draw(chart: &Chart) -> String {
    let right = if chart.right.is_some() { LEFT } else { RIGHT };
    let frame = Frame { left: LEFT, right: WIDTH - right, top: TOP, bottom: HEIGHT - BOTTOM };
    let mut svg = Svg::new(WIDTH, HEIGHT, &chart.title);
    add_grid(&mut svg, &frame, chart);
    for cell in &chart.cells {
        let places =
            [chart.x.place(cell.x.0), chart.x.place(cell.x.1), chart.left.place(cell.y.0), chart.left.place(cell.y.1)];
        let [Some(x0), Some(x1), Some(y0), Some(y1)] = places else { continue };
        let (x0, x1, y0, y1) = (frame.x(x0), frame.x(x1), frame.y(y0), frame.y(y1));
        let depth = cell.depth.clamp(0.0, 1.0);
        svg.add(format_args!(
            r#"<rect class="heat" x="{x0:.1}" y="{y1:.1}" width="{:.1}" height="{:.1}" fill-opacity="{depth:.2}"/>"#,
            x1 - x0,
            y0 - y1
        ));
    }
    for line in &chart.lines {
        let axis = match (&chart.right, line.side) {
            (Some(axis), Side::Right) => axis,
            _ => &chart.left,
        };
        add_line(&mut svg, &frame, line, &chart.x, axis);
    }
    svg.finish()
}

fn add_grid(svg: &mut Svg, frame: &Frame, chart: &Chart) {
    for (place, text) in chart.left.ticks() {
        let y = frame.y(place);
        svg.grid_line((frame.left, y), (frame.right, y));
        svg.anchored_text("tick", frame.left - 5.0, y + 4.0, "end", text);
    }
    for (place, text) in chart.right.iter().flat_map(Axis::ticks) {
        svg.text("tick", frame.right + 5.0, frame.y(place) + 4.0, text);
    }
    let mut last_x = f64::NEG_INFINITY;
    for (place, text) in chart.x.ticks() {
        let x = frame.x(place);
        svg.grid_line((x, frame.top), (x, frame.bottom));
        // If a label would touch the label before it, it is left out, and only its grid line is drawn.
        let half = 3.6 * text.chars().count() as f64;
        if x - half > last_x + 4.0 {
            last_x = x + half;
            svg.anchored_text("tick", x, frame.bottom + 15.0, "middle", text);
        }
    }
    let middle = (f64::midpoint(frame.left, frame.right), f64::midpoint(frame.top, frame.bottom));
    svg.anchored_text("axis", middle.0, HEIGHT - 8.0, "middle", chart.x.title());
    add_vertical_title(svg, 11.0, middle.1, chart.left.title());
    if let Some(right) = &chart.right {
        add_vertical_title(svg, WIDTH - 4.0, middle.1, right.title());
    }
}

fn add_vertical_title(svg: &mut Svg, x: f64, y: f64, title: &str) {
    svg.add(format_args!(
        r#"<text class="axis" x="{x:.1}" y="{y:.1}" text-anchor="middle" transform="rotate(-90 {x:.1} {y:.1})">{}</text>"#,
        escape(title)
    ));
}

fn add_line(svg: &mut Svg, frame: &Frame, line: &Line, x_axis: &Axis, y_axis: &Axis) {
    let look = line.look % LOOKS;
    let dashed = if line.is_dashed { " dashed" } else { "" };
    let mut path = String::new();
    let mut is_pen_down = false;
    let mut markers = String::new();
    for (x, y) in &line.points {
        let (Some(x_place), Some(y_place)) = (x_axis.place(*x), y_axis.place(*y)) else {
            is_pen_down = false;
            continue;
        };
        let (at_x, at_y) = (frame.x(x_place), frame.y(y_place));
        let _ = write!(path, "{}{at_x:.1} {at_y:.1}", if is_pen_down { "L" } else { "M" });
        is_pen_down = true;
        if line.is_marked {
            let words = format!("{}: {} at {}", line.name, y_axis.words(*y), x_axis.words(*x));
            // Writing to a String cannot fail.
            let _ = write!(
                markers,
                r#"<path class="marker s{look}{dashed}" d="{}"><title>{}</title></path>"#,
                marker(look, at_x, at_y),
                escape(&words)
            );
        }
    }
    svg.path(&format!("line s{look}{dashed}"), format_args!("{path}"));
    svg.add(format_args!("{markers}"));
}

/// Returns the path of a marker. Lines differ in shape as well as colour, for print and for readers with colour
/// blindness.
fn marker(look: usize, x: f64, y: f64) -> String {
    let r = MARKER;
    match look % 3 {
        0 => format!("M{:.1} {y:.1}a{r} {r} 0 1 0 {} 0a{r} {r} 0 1 0 -{} 0z", x - r, 2.0 * r, 2.0 * r),
        1 => format!("M{:.1} {:.1}h{}v{}h-{}z", x - r, y - r, 2.0 * r, 2.0 * r, 2.0 * r),
        _ => format!("M{x:.1} {:.1}l{r} {}h-{}z", y - r * 1.2, 2.0 * r, 2.0 * r),
    }
}
