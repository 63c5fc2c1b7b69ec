//! Bar charts: one group per value of a variable, one bar per server, with the range of repetitions as whiskers.

use super::figures::shown;
use flatout_lab::view::chart::{Axis, LOOKS, Quantity, escape};
use std::fmt::Write as _;

/// One bar.
pub(super) struct Bar {
    /// Whose it is: name and look.
    pub name: String,
    /// Its look.
    pub look: usize,
    /// Median, least and greatest.
    pub value: f64,
    /// Least of the repetitions.
    pub min: f64,
    /// Greatest of the repetitions.
    pub max: f64,
    /// The unit of all three.
    pub unit: String,
    /// True if it is a figure of other hardware.
    pub is_other: bool,
}

/// Bars that stand together.
pub(super) struct Group {
    /// Their common name; may be empty.
    pub name: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

const WIDTH: f64 = 480.0;
const LEFT: f64 = 108.0;
const RIGHT: f64 = 66.0;
const BAR: f64 = 13.0;
const GAP: f64 = 9.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 40.0;

/// The groups below one another, as one `<svg>` element.
pub(super) fn draw(title: &str, what: &str, groups: &[Group]) -> String {
    let bars = || groups.iter().flat_map(|group| &group.bars);
    let quantity = match bars().next().map(|bar| bar.unit.as_str()) {
        Some("ns") => Quantity::Nanoseconds,
        Some("1/s") => Quantity::PerSecond,
        Some("") => Quantity::Share,
        _ => Quantity::Count,
    };
    let axis = Axis::linear(what, quantity, bars().map(|bar| bar.max.max(bar.value)));
    let x = |value: f64| LEFT + axis.place(value).unwrap_or(0.0) * (WIDTH - RIGHT - LEFT);
    let height = |group: &Group| BAR * group.bars.len() as f64 + GAP;
    let bottom = TOP + groups.iter().map(height).sum::<f64>();
    let mut svg = format!(
        r#"<svg class="chart" viewBox="0 0 {WIDTH} {:.0}" role="img" aria-label="{}">"#,
        bottom + BOTTOM,
        escape(title)
    );
    for (place, text) in axis.ticks() {
        let at = LEFT + place * (WIDTH - RIGHT - LEFT);
        // Bytes have no tick of their own in the lab's axes; their bars say them.
        let text = if quantity == Quantity::Count { "" } else { text };
        let _ = write!(
            svg,
            r#"<line class="grid" x1="{at:.1}" y1="{TOP}" x2="{at:.1}" y2="{bottom:.1}"/><text class="tick" x="{at:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            bottom + 15.0,
            escape(text)
        );
    }
    let mut y = TOP;
    for group in groups {
        let middle = y + BAR * group.bars.len() as f64 / 2.0 + 4.0;
        let _ = write!(
            svg,
            r#"<text class="axis" x="{:.1}" y="{middle:.1}" text-anchor="end">{}</text>"#,
            LEFT - 7.0,
            escape(&group.name)
        );
        for bar in &group.bars {
            add_bar(&mut svg, bar, y, x);
            y += BAR;
        }
        y += GAP;
    }
    let _ = write!(
        svg,
        r#"<text class="axis" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text></svg>"#,
        f64::midpoint(LEFT, WIDTH - RIGHT),
        bottom + 34.0,
        escape(if quantity == Quantity::Count { what } else { axis.title() })
    );
    svg
}

fn add_bar(svg: &mut String, bar: &Bar, y: f64, x: impl Fn(f64) -> f64) {
    let (look, dashed) = (bar.look % LOOKS, if bar.is_other { " dashed" } else { "" });
    let (end, middle) = (x(bar.value), y + BAR / 2.0);
    let words = format!("{}: {}", bar.name, shown(&bar.unit, bar.value));
    let _ = write!(
        svg,
        r#"<rect class="marker s{look}{dashed}" x="{LEFT}" y="{:.1}" width="{:.1}" height="{:.1}"><title>{}</title></rect>"#,
        y + 1.0,
        (end - LEFT).max(0.8),
        BAR - 2.0,
        escape(&words)
    );
    if bar.max > bar.min {
        let (from, to) = (x(bar.min), x(bar.max));
        let _ = write!(svg, r#"<path class="grid" d="M{from:.1} {middle:.1}H{to:.1}"/>"#);
    }
    let _ = write!(
        svg,
        r#"<text class="tick" x="{:.1}" y="{:.1}">{}</text>"#,
        x(bar.max.max(bar.value)) + 4.0,
        middle + 4.0,
        escape(&shown(&bar.unit, bar.value))
    );
}
