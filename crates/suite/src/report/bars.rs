//! Bar charts with one group per value of a variable and one bar per server. Whiskers show the range over the
//! repetitions.

use super::figures::shown;
use flatout_report::chart::{Axis, LOOKS, Quantity};
use flatout_report::svg::{Svg, escape};

/// A bar of a chart.
pub(super) struct Bar {
    /// Label of the bar.
    pub name: String,
    /// Number of the bar's colour and pattern.
    pub look: usize,
    /// Length of the bar: the median over the repetitions.
    pub value: f64,
    /// Smallest value over the repetitions.
    pub min: f64,
    /// Largest value over the repetitions.
    pub max: f64,
    /// Unit of the three values.
    pub unit: String,
    /// True if the figure is from other hardware.
    pub is_other: bool,
}

/// A group of adjacent bars.
pub(super) struct BarGroup {
    /// Label of the group. May be empty.
    pub name: String,
    /// The bars of the group.
    pub bars: Vec<Bar>,
}

const WIDTH: f64 = 480.0;
const LEFT: f64 = 108.0;
const RIGHT: f64 = 66.0;
const BAR: f64 = 13.0;
const GAP: f64 = 9.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 40.0;

/// Draws the groups one below the other, as one `<svg>` element.
pub(super) fn draw(title: &str, what: &str, groups: &[BarGroup]) -> String {
    let bars = || groups.iter().flat_map(|group| &group.bars);
    let quantity = match bars().next().map(|bar| bar.unit.as_str()) {
        Some("ns") => Quantity::Nanoseconds,
        Some("1/s") => Quantity::PerSecond,
        Some("") => Quantity::Share,
        _ => Quantity::Count,
    };
    let axis = Axis::linear(what, quantity, bars().map(|bar| bar.max.max(bar.value)));
    let x = |value: f64| LEFT + axis.place(value).unwrap_or(0.0) * (WIDTH - RIGHT - LEFT);
    let height = |group: &BarGroup| BAR * group.bars.len() as f64 + GAP;
    let bottom = TOP + groups.iter().map(height).sum::<f64>();
    let mut svg = Svg::new(WIDTH, bottom + BOTTOM, title);
    for (place, text) in axis.ticks() {
        let at = LEFT + place * (WIDTH - RIGHT - LEFT);
        svg.grid_line((at, TOP), (at, bottom));
        // An axis in bytes has no ticks; the bars are labelled with their values.
        if quantity != Quantity::Count {
            svg.anchored_text("tick", at, bottom + 15.0, "middle", text);
        }
    }
    let mut y = TOP;
    for group in groups {
        let middle = y + BAR * group.bars.len() as f64 / 2.0 + 4.0;
        svg.anchored_text("axis", LEFT - 7.0, middle, "end", &group.name);
        for bar in &group.bars {
            add_bar(&mut svg, bar, y, x);
            y += BAR;
        }
        y += GAP;
    }
    let what = if quantity == Quantity::Count { what } else { axis.title() };
    svg.anchored_text("axis", f64::midpoint(LEFT, WIDTH - RIGHT), bottom + 34.0, "middle", what);
    svg.finish()
}

fn add_bar(svg: &mut Svg, bar: &Bar, y: f64, x: impl Fn(f64) -> f64) {
    let (look, dashed) = (bar.look % LOOKS, if bar.is_other { " dashed" } else { "" });
    let (end, middle) = (x(bar.value), y + BAR / 2.0);
    let value = shown(&bar.unit, bar.value);
    svg.add(format_args!(
        r#"<rect class="marker s{look}{dashed}" x="{LEFT}" y="{:.1}" width="{:.1}" height="{:.1}"><title>{}: {value}</title></rect>"#,
        y + 1.0,
        (end - LEFT).max(0.8),
        BAR - 2.0,
        escape(&bar.name)
    ));
    if bar.max > bar.min {
        let (from, to) = (x(bar.min), x(bar.max));
        svg.path("grid", format_args!("M{from:.1} {middle:.1}H{to:.1}"));
    }
    svg.text("tick", x(bar.max.max(bar.value)) + 4.0, middle + 4.0, &value);
}
