//! A step's charts: lines in an open loop with a variable whose values are numbers, bars otherwise.

use super::bars::{Bar, BarGroup, draw};
use super::columns::{is_open, of_pictures};
use super::figures::{explained, heading};
use super::seeds::{Beside, beside};
use crate::document::{Cell, StepEntry, SuiteReport};
use crate::measure::Measure;
use flatout_report::chart::{Axis, Chart, LOOKS, Line, Quantity, Side};
use flatout_report::html::{capital, figure, swatch};
use maud::{Markup, PreEscaped, html};

/// Maximum number of groups in a chart. The table contains all of them.
const GROUPS_MAX: usize = 16;

/// Maximum number of charts per measure. There is one chart for each combination of the variables that are not on an
/// axis.
const PICTURES_MAX: usize = 6;

/// Returns the charts of a step.
pub(super) fn all(report: &SuiteReport, step: &StepEntry) -> Markup {
    if step.cells.iter().all(|cell| cell.figures.is_empty()) {
        return html! {};
    }
    html! { div.charts { @for measure in of_pictures(report, step) {
        @if is_open(step) && let Some(axis) = axis(step) {
            (lines(report, step, &measure, axis))
        } @else {
            (bars(report, step, &measure))
        }
    } } }
}

/// Returns the variable on the horizontal axis: the variable with the most values, all of which must be numbers.
fn axis(step: &StepEntry) -> Option<&str> {
    let count = |name: &str| {
        let mut values: Vec<&str> = step.cells.iter().filter_map(|cell| value_of(cell, name)).collect();
        values.sort_unstable();
        values.dedup();
        let are_numbers = values.iter().all(|value| value.parse::<f64>().is_ok());
        if are_numbers { values.len() } else { 0 }
    };
    let most = step.variables.iter().max_by_key(|name| count(name))?;
    (count(most) > 1).then_some(most)
}

fn value_of<'a>(cell: &'a Cell, name: &str) -> Option<&'a str> {
    cell.values.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
}

fn others(cell: &Cell, axis: &str) -> Vec<(String, String)> {
    cell.values.iter().filter(|(name, _)| name != axis).cloned().collect()
}

/// Returns the combinations of the other variables' values, in order.
fn combinations(step: &StepEntry, axis: &str) -> Vec<Vec<(String, String)>> {
    let mut all: Vec<Vec<(String, String)>> = Vec::new();
    for cell in &step.cells {
        let values = others(cell, axis);
        if !all.contains(&values) {
            all.push(values);
        }
    }
    all.truncate(PICTURES_MAX);
    all
}

fn lines(report: &SuiteReport, step: &StepEntry, measure: &str, axis: &str) -> Markup {
    html! { @for values in combinations(step, axis) {
        (figure(&line_chart(report, step, measure, axis, &values), explained(measure)))
    } }
}

/// Returns a chart with one line per server. The offered load and figures from other hardware are dashed.
fn line_chart(report: &SuiteReport, step: &StepEntry, measure: &str, axis: &str, values: &[(String, String)]) -> Chart {
    let is_rate = Measure::parse(measure).is_some_and(|measure| measure.unit() == "1/s");
    let mut lines = Vec::new();
    for (look, server) in step.servers.iter().enumerate() {
        let cells = step.cells.iter().filter(|cell| cell.server == *server && others(cell, axis) == *values);
        let mut points: Vec<(f64, f64)> = cells.filter_map(|cell| point(cell, measure, axis)).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        lines.push(Line { name: server.clone(), look, side: Side::Left, is_dashed: false, is_marked: true, points });
    }
    for column in beside(report, step, measure).iter().filter(|column| column.variable == axis) {
        // Earlier figures state their load directly; the load of the new figures may be scaled.
        let mut points: Vec<(f64, f64)> = seed_points(step, column, axis);
        points.dedup();
        let name = format!("{} ({})", column.title(), column.name.replace('_', " "));
        lines.push(Line { name, look: LOOKS - 1, side: Side::Left, is_dashed: true, is_marked: true, points });
    }
    let x_values = || lines.iter().flat_map(|line| &line.points).map(|point| point.0);
    let y_values = || lines.iter().flat_map(|line| &line.points).map(|point| point.1);
    let (x, what) = if step.cells.iter().any(|cell| cell.figure("offered-per-s").is_some()) {
        (Axis::linear("offered", Quantity::PerSecond, x_values()), "the offered load")
    } else {
        (Axis::linear(axis, Quantity::Count, x_values()), axis)
    };
    let left = match Measure::parse(measure).map(Measure::unit) {
        Some("ns") => Axis::log(&heading(measure), Quantity::Nanoseconds, y_values()),
        Some("") => Axis::linear(&heading(measure), Quantity::Share, y_values()),
        _ if is_rate => Axis::linear(&heading(measure), Quantity::PerSecond, y_values()),
        _ => Axis::linear(&heading(measure), Quantity::Count, y_values()),
    };
    let place = if values.is_empty() { String::new() } else { format!(" ({})", super::combination(values)) };
    let title = format!("{} against {what}{place}", capital(&heading(measure)));
    Chart { title, x, left, right: None, cells: Vec::new(), lines }
}

/// Returns the position of a cell. Its horizontal position is the offered load in an open loop, otherwise the
/// variable's value.
fn point(cell: &Cell, measure: &str, axis: &str) -> Option<(f64, f64)> {
    let offered = cell.figure("offered-per-s").map(|figure| figure.median);
    let x = offered.or_else(|| value_of(cell, axis)?.parse().ok())?;
    Some((x, cell.figure(measure)?.median))
}

fn seed_points(step: &StepEntry, column: &Beside<'_>, axis: &str) -> Vec<(f64, f64)> {
    let values = step.cells.iter().filter_map(|cell| value_of(cell, axis));
    let mut points: Vec<(f64, f64)> =
        values.filter_map(|value| Some((value.parse().ok()?, column.at(value)?))).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

fn bars(report: &SuiteReport, step: &StepEntry, measure: &str) -> Markup {
    let axis = axis(step).unwrap_or_default();
    let seeds = beside(report, step, measure);
    html! { @for values in combinations(step, axis) {
        @let groups = groups(step, measure, axis, &values, &seeds);
        @let place = if values.is_empty() { String::new() } else { format!(" ({})", super::combination(&values)) };
        @let title = format!("{}{place}", capital(&heading(measure)));
        @if groups.iter().any(|group| !group.bars.is_empty()) { figure {
            h3 { (title) }
            @if !axis.is_empty() { ul.legend {
                @for (look, server) in step.servers.iter().enumerate() { li { (swatch(look, false)) (server) } }
                @for seed in &seeds { li { (swatch(LOOKS - 1, true)) (seed.title()) } }
            } }
            (PreEscaped(draw(&title, &heading(measure), &groups)))
            figcaption { (explained(measure)) " Bars are medians; a thin line spans the repetitions." }
        } }
    } }
}

fn groups(
    step: &StepEntry,
    measure: &str,
    axis: &str,
    values: &[(String, String)],
    seeds: &[Beside<'_>],
) -> Vec<BarGroup> {
    let mut groups: Vec<BarGroup> = Vec::new();
    for cell in step.cells.iter().filter(|cell| others(cell, axis) == *values) {
        // If there is one bar per server, the server's name is its label.
        let name = value_of(cell, axis).map_or_else(|| cell.server.clone(), |value| format!("{axis} {value}"));
        if groups.last().is_none_or(|group| group.name != name) {
            if groups.len() == GROUPS_MAX {
                break;
            }
            groups.push(BarGroup { name, bars: Vec::new() });
        }
        let (Some(group), Some(figure)) = (groups.last_mut(), cell.figure(measure)) else { continue };
        let look = step.servers.iter().position(|server| *server == cell.server).unwrap_or(0);
        group.bars.push(Bar {
            name: cell.server.clone(),
            // Without groups, names distinguish the bars, so all have the same colour.
            look: if axis.is_empty() { 0 } else { look },
            value: figure.median,
            min: figure.min,
            max: figure.max,
            unit: figure.unit.clone(),
            is_other: false,
        });
    }
    let unit = Measure::parse(measure).map_or("", Measure::unit);
    for seed in seeds.iter().filter(|seed| seed.variable == axis) {
        for group in &mut groups {
            let value = group.name.strip_prefix(axis).map(str::trim);
            if let Some(value) = value.and_then(|value| seed.at(value)) {
                let (name, unit) = (seed.title(), unit.to_owned());
                group.bars.push(Bar { name, look: LOOKS - 1, value, min: value, max: value, unit, is_other: true });
            }
        }
    }
    groups
}
