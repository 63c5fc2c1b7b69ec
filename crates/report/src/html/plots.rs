//! The charts of the report, with their legends.

use super::tables::busiest;
use crate::chart::{Axis, Cell, Chart, LOOKS, Line, Quantity, Side, thin};
use crate::series::{StepTimes, times};
use crate::verdict;
use flatout_load::record::series::{Point, heat_floor_ns};
use flatout_load::report::percentiles::{Bucket, buckets, quantile_ns};
use flatout_load::report::{RunReport, StepReport};
use maud::{Markup, PreEscaped, html};
use std::collections::BTreeMap;

/// Maximum number of columns in a heat map.
const COLUMNS_MAX: usize = 120;

/// Number of response-time classes per row of a heat map: half of a doubling.
const CLASSES_A_ROW: u16 = 4;

/// Maximum number of overlaid distributions; more could not be distinguished.
const DISTRIBUTIONS_MAX: usize = LOOKS;

pub(super) fn all(reports: &[RunReport], names: &[String]) -> Markup {
    let sweep = sweep(reports, names);
    html! {
        section {
            h2 { "Charts" }
            div.charts {
                @if let Some((chart, caption)) = sweep { (figure(&chart, caption)) }
                @let (chart, caption) = distribution(reports, names);
                (figure(&chart, caption))
                (figure(&histogram(reports, names), "The share of successful responses in each range of times; failed requests are not shown. Each range is about 1.4 times as wide as the one before. For a run with several steps, the step with the most responses."))
                @let chart = rates(reports, names);
                (figure(&chart, "The chart shows failed requests only if there were any."))
                @for (report, name) in reports.iter().zip(names) {
                    @let chart = heat(report, name);
                    (figure(&chart, "Each column is a period of time, including the warm-up; the darker the color, the more responses took that long. The line is the longest response time."))
                }
            }
        }
    }
}

/// Returns a chart with its title, its legend and a caption.
pub fn figure(chart: &Chart, caption: &str) -> Markup {
    let mut named: Vec<&Line> = Vec::new();
    for line in &chart.lines {
        if !named.iter().any(|other| other.name == line.name) {
            named.push(line);
        }
    }
    html! {
        figure {
            h3 { (chart.title) }
            @if named.len() > 1 || chart.right.is_some() {
                ul.legend { @for line in named { li {
                    (swatch(line.look, line.is_dashed)) (line.name)
                    @if line.side == Side::Right { " (right)" }
                } } }
            }
            (PreEscaped(chart.draw()))
            figcaption { (caption) }
        }
    }
}

/// Returns a sample of a line style for the legend.
pub fn swatch(look: usize, is_dashed: bool) -> Markup {
    let class = format!("line s{}{}", look % LOOKS, if is_dashed { " dashed" } else { "" });
    html! { svg.swatch viewBox="0 0 30 12" aria-hidden="true" { path class=(class) d="M1 6h28" {} } }
}

/// Returns the chart of reply rate and response time by offered load, which shows the limit of a server.
fn sweep(reports: &[RunReport], names: &[String]) -> Option<(Chart, &'static str)> {
    let steps = || reports.iter().flat_map(|report| &report.steps);
    if steps().count() < 2 {
        return None;
    }
    let is_open = steps().all(|step| step.offered.rate_per_s.is_some());
    let offered =
        |step: &StepReport| step.offered.rate_per_s.filter(|_| is_open).unwrap_or(f64::from(step.offered.connections));
    let x = if is_open {
        Axis::linear("offered rate", Quantity::PerSecond, steps().map(offered))
    } else {
        Axis::linear("connections", Quantity::Count, steps().map(offered))
    };
    let rates = steps().flat_map(|step| [step.responses_per_s, if is_open { offered(step) } else { 0.0 }]);
    let left = Axis::linear("reply rate", Quantity::PerSecond, rates);
    let percentiles =
        steps().filter_map(|step| step.response).flat_map(|response| [response.p50_ns, response.p99_ns]).flatten();
    let right = Axis::log("response time", Quantity::Nanoseconds, percentiles.map(|ns| ns as f64));
    let mut lines = Vec::new();
    if is_open {
        let most = steps().map(offered).fold(0.0, f64::max);
        lines.push(line("offered", 5, Side::Left, true, false, vec![(0.0, 0.0), (most, most)]));
    }
    let is_alone = reports.len() == 1;
    for (index, (report, name)) in reports.iter().zip(names).enumerate() {
        let points = |value: &dyn Fn(&StepReport) -> f64| {
            let mut points: Vec<(f64, f64)> = report.steps.iter().map(|step| (offered(step), value(step))).collect();
            // A search does not try the rates in ascending order.
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            points
        };
        let time = |pick: fn(&flatout_load::report::Percentiles) -> Option<u64>| {
            points(&|step| step.response.as_ref().and_then(pick).map_or(f64::NAN, |ns| ns as f64))
        };
        let named = |what: &str| if is_alone { what.to_owned() } else { format!("{name}: {what}") };
        lines.push(line(&named("reply rate"), index, Side::Left, false, true, points(&|step| step.responses_per_s)));
        if is_alone {
            lines.push(line("response time p50", 1, Side::Right, true, true, time(|response| response.p50_ns)));
        }
        let look = if is_alone { 3 } else { index };
        lines.push(line(&named("response time p99"), look, Side::Right, true, true, time(|response| response.p99_ns)));
    }
    let title =
        format!("Reply rate and response time against {}", if is_open { "offered rate" } else { "connections" });
    let chart = Chart { title, x, left, right: Some(right), cells: Vec::new(), lines };
    Some((
        chart,
        "Response time is measured from the intended start to the last byte, so it includes waiting for a busy server.",
    ))
}

fn line(name: &str, look: usize, side: Side, is_dashed: bool, is_marked: bool, points: Vec<(f64, f64)>) -> Line {
    Line { name: name.to_owned(), look, side, is_dashed, is_marked, points }
}

/// Returns the chart of latency by percentile, with both axes logarithmic, because the tail is what users notice.
fn distribution(reports: &[RunReport], names: &[String]) -> (Chart, &'static str) {
    let mut lines = Vec::new();
    let mut count = 0;
    let mut add = |name: String, look: usize, is_dashed: bool, (_, histogram, missing): StepTimes<'_>| {
        count = count.max(histogram.histogram().len().saturating_add(missing));
        let points = quantiles(histogram, missing);
        lines.push(Line { name, look, side: Side::Left, is_dashed, is_marked: false, points });
    };
    let caption = match reports {
        [report] if report.steps.len() == 1 => {
            for step in &report.steps {
                let [response, service, lag] = times(step);
                add("response (from the intended start)".to_owned(), 0, false, response);
                add("service (from the time the client started)".to_owned(), 1, true, service);
                if step.plan.is_open() {
                    add("lag (how late the client started)".to_owned(), 2, true, lag);
                }
            }
            "Where response time and service time differ, requests waited before they were sent: for a free connection, or for this client."
        }
        [report] => {
            let each = report.steps.len().div_ceil(DISTRIBUTIONS_MAX);
            for (look, step) in report.steps.iter().step_by(each.max(1)).enumerate() {
                add(verdict::load(step), look, false, times(step)[0]);
            }
            "Response time, from the intended start to the last byte; some steps of a long sweep are omitted."
        }
        _ => {
            for (look, (report, name)) in reports.iter().zip(names).enumerate() {
                let best = busiest(report);
                if let Some(step) = best {
                    add(format!("{name}, {}", verdict::load(step)), look, false, times(step)[0]);
                }
            }
            "Response time, from the intended start to the last byte; for each run, the step with the most responses."
        }
    };
    let values = lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    let left = Axis::log("time", Quantity::Nanoseconds, values);
    let x = Axis::tail("percentile", count);
    (Chart { title: "Latency by percentile".to_owned(), x, left, right: None, cells: Vec::new(), lines }, caption)
}

/// Returns the chart of response times by range, as steps.
fn histogram(reports: &[RunReport], names: &[String]) -> Chart {
    let mut lines = Vec::new();
    for (look, (report, name)) in reports.iter().zip(names).enumerate() {
        let Some(step) = busiest(report) else { continue };
        let buckets = buckets(&step.record.response.histogram());
        let all = buckets.iter().map(|bucket| bucket.count as f64).sum::<f64>().max(1.0);
        let edges = |bucket: &Bucket| {
            let share = bucket.count as f64 / all;
            [(bucket.from_ns as f64, share), (bucket.to_ns as f64, share)]
        };
        let ends = buckets.first().zip(buckets.last());
        let mut points: Vec<(f64, f64)> = ends.iter().map(|(first, _)| (first.from_ns as f64, 0.0)).collect();
        points.extend(buckets.iter().flat_map(edges));
        points.extend(ends.iter().map(|(_, last)| (last.to_ns as f64, 0.0)));
        lines.push(line(name, look, Side::Left, false, false, points));
    }
    let points = || lines.iter().flat_map(|line: &Line| &line.points);
    let x = Axis::log("response time", Quantity::Nanoseconds, points().map(|point| point.0));
    let left = Axis::linear("share of responses", Quantity::Share, points().map(|point| point.1));
    Chart { title: "Distribution of the response times".to_owned(), x, left, right: None, cells: Vec::new(), lines }
}

/// Returns a histogram as a curve, with eight points per decade of the tail. The curve ends where the `missing` requests
/// begin, which never got a response.
fn quantiles(histogram: &flatout_load::record::Hdr, missing: u64) -> Vec<(f64, f64)> {
    let values = histogram.histogram();
    if values.is_empty() {
        return Vec::new();
    }
    let tails = (values.len() as f64 + missing as f64).log10();
    let points = (8.0 * tails).ceil() as i32;
    (0..=points)
        .map(|index| 1.0 - 10_f64.powf(-f64::from(index) / 8.0))
        .filter_map(|quantile| Some((quantile, quantile_ns(&values, quantile, missing)?.max(1) as f64)))
        .collect()
}

/// Returns the points of a run with the start and length of each in seconds, one step after another.
fn timeline(report: &RunReport) -> Vec<(f64, f64, Point)> {
    let Some(first) = report.steps.first() else { return Vec::new() };
    let start_ns = first.record.series.start_ns;
    let mut all = Vec::new();
    for step in &report.steps {
        let series = &step.record.series;
        let offset_s = series.start_ns.saturating_sub(start_ns) as f64 / 1e9;
        let points = whole_points(step);
        let length_s = series.step_s as f64;
        all.extend(
            points.into_iter().enumerate().map(|(index, point)| (offset_s + index as f64 * length_s, length_s, point)),
        );
    }
    all
}

/// Returns the complete points of a step. The last point is left out if the run ended within it, because its rate would
/// be too low.
pub(crate) fn whole_points(step: &StepReport) -> Vec<Point> {
    let series = &step.record.series;
    let length_ns = series.step_s.max(1) * 1_000_000_000;
    let end_ns = step.record.measured_from_ns.saturating_add(step.elapsed_ns).saturating_sub(series.start_ns);
    // Tolerate a clock that is read slightly early, so that no second is lost.
    let whole = end_ns.saturating_add(length_ns / 100) / length_ns;
    let mut points = series.points();
    points.truncate((whole as usize).max(1));
    points
}

fn end_s(timeline: &[(f64, f64, Point)]) -> f64 {
    timeline.iter().map(|(at_s, length_s, _)| at_s + length_s).fold(0.0, f64::max)
}

/// Returns the chart of requests started, responses and failures over time.
fn rates(reports: &[RunReport], names: &[String]) -> Chart {
    let mut lines = Vec::new();
    let mut last_s = 0.0_f64;
    for (index, (report, name)) in reports.iter().zip(names).enumerate() {
        let timeline = timeline(report);
        last_s = last_s.max(end_s(&timeline));
        let series = |count: fn(&Point) -> u64| -> Vec<(f64, f64)> {
            let point =
                |(at_s, length_s, point): &(f64, f64, Point)| (at_s + length_s / 2.0, count(point) as f64 / length_s);
            thin(&timeline.iter().map(point).collect::<Vec<_>>())
        };
        let is_alone = reports.len() == 1;
        let named = |what: &str| if is_alone { what.to_owned() } else { format!("{name}: {what}") };
        if is_alone {
            lines.push(line("started", 5, Side::Left, true, false, series(|point| point.begun)));
        }
        lines.push(line(&named("responses"), index, Side::Left, false, false, series(Point::successes)));
        if timeline.iter().any(|(_, _, point)| point.failures + point.errors > 0) {
            let look = if is_alone { 1 } else { index };
            let failed = series(|point| point.failures + point.errors);
            lines.push(line(&named("failed"), look, Side::Left, !is_alone, false, failed));
        }
    }
    let values = lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    let left = Axis::linear("rate", Quantity::PerSecond, values);
    Chart { title: "Rates over time".to_owned(), x: Axis::time(last_s), left, right: None, cells: Vec::new(), lines }
}

/// Returns the heat map of response time over time.
fn heat(report: &RunReport, name: &str) -> Chart {
    let timeline = timeline(report);
    let end_s = end_s(&timeline);
    let each = timeline.len().div_ceil(COLUMNS_MAX).max(1);
    let mut cells = Vec::new();
    let mut longest = Vec::new();
    for chunk in timeline.chunks(each) {
        let [(from_s, ..), ..] = chunk else { continue };
        let to_s = chunk.iter().map(|(at_s, length_s, _)| at_s + length_s).fold(*from_s, f64::max);
        let mut rows: BTreeMap<u16, u64> = BTreeMap::new();
        for (class, count) in chunk.iter().flat_map(|(_, _, point)| point.success_heat()) {
            *rows.entry(class / CLASSES_A_ROW).or_insert(0) += u64::from(count);
        }
        cells.extend(rows.into_iter().filter(|(_, count)| *count > 0).map(|(row, count)| {
            let edge = |row: u16| heat_floor_ns(row * CLASSES_A_ROW).max(1) as f64;
            Cell { x: (*from_s, to_s), y: (edge(row), edge(row + 1)), depth: count as f64 }
        }));
        let max_ns = chunk.iter().map(|(_, _, point)| point.response_max_ns).max().unwrap_or(0);
        longest.push((f64::midpoint(*from_s, to_s), if max_ns == 0 { f64::NAN } else { max_ns as f64 }));
    }
    let most = cells.iter().map(|cell| cell.depth).fold(1.0, f64::max);
    for cell in &mut cells {
        // Colour by the logarithm: on a linear scale, a single response among thousands would be invisible.
        cell.depth = 0.1 + 0.9 * (cell.depth.ln_1p() / most.ln_1p());
    }
    let ends = cells.iter().flat_map(|cell| [cell.y.0, cell.y.1]).chain(longest.iter().map(|point| point.1));
    let left = Axis::log("response time", Quantity::Nanoseconds, ends.collect::<Vec<_>>().into_iter());
    let lines = vec![line("longest", 1, Side::Left, false, false, longest)];
    let title = format!("Response time over time: {name}");
    Chart { title, x: Axis::time(end_s), left, right: None, cells, lines }
}
