//! Drawing of a [`DisplayState`].

use super::{CLASSES_A_ROW, DisplayState, IntervalReading};
use flatout_load::record::series::heat_floor_ns;
use flatout_report::figures::time;
use flatout_units::show;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};

/// Width of the time labels at the left of the heat map, in columns.
const LABEL_WIDTH: u16 = 9;

/// Height of the rate curve, in rows.
const RATE_HEIGHT: u16 = 5;

/// Symbols and colours from few responses to many: five of the 256 colours that every terminal supports, from dark blue
/// to bright yellow.
const DEPTHS: [(char, u8); 5] = [('·', 24), ('░', 31), ('▒', 37), ('▓', 148), ('█', 226)];

/// Draws a run, with or without colours.
pub fn draw(watch: &DisplayState, frame: &mut Frame, coloured: bool) {
    let [head, figures, rate, heat_title, heat, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(3),
        Constraint::Length(RATE_HEIGHT),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let faint = Style::new().add_modifier(Modifier::DIM);
    let at_s = watch.readings.back().map_or(0.0, |reading| reading.at_s);
    let part = if watch.part.is_empty() { String::new() } else { format!("   {}", watch.part) };
    let title = Line::from(vec![
        Span::styled(watch.title.clone(), bold),
        Span::styled(format!("{part}   {at_s:.1} s{}", watch.planned), faint),
    ]);
    frame.render_widget(Paragraph::new(title), head);
    frame.render_widget(Paragraph::new(figure_lines(watch, coloured)), figures);
    add_rate(watch, frame, rate, coloured);
    frame.render_widget(Paragraph::new(Span::styled("response time; the right edge is now", faint)), heat_title);
    add_heat(watch, frame.buffer_mut(), heat, coloured);
    let words = Span::styled("Ctrl-C ends the run early and shows the results so far", faint);
    frame.render_widget(Paragraph::new(words), foot);
}

fn figure_lines(watch: &DisplayState, coloured: bool) -> Vec<Line<'static>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let last = watch.readings.back().cloned().unwrap_or_default();
    let time = |value_ns: Option<u64>| if last.has_ended { time(value_ns) } else { "-".to_owned() };
    let offered = watch.offered_per_s.map_or_else(String::new, |rate| format!(" of {} offered", show::figure(rate)));
    let errors = match watch.failures {
        0 => Span::raw("no errors"),
        failures => {
            let words = format!("{} ({} now)", show::plural(failures, "error", "errors"), show::count(last.failures));
            Span::styled(words, if coloured { bold.fg(Color::Red) } else { bold })
        }
    };
    let lag = last.lag_p99_ns.map_or_else(String::new, |ns| format!("   lag p99 {}", show::duration(ns as f64)));
    vec![
        Line::from(vec![
            Span::styled(format!("{} responses/s", show::figure(watch.recent_per_s())), bold),
            Span::raw(format!("{offered}   {} total   ", show::count(watch.responses))),
            errors,
        ]),
        Line::from(format!("p50 {}   p99 {}   max {}{lag}", time(last.p50_ns), time(last.p99_ns), time(last.max_ns))),
        Line::from(watch.statuses.clone()),
    ]
}

/// Returns the last readings that fit into the width, oldest first.
fn recent(watch: &DisplayState, width: u16) -> impl Iterator<Item = &IntervalReading> {
    watch.readings.iter().skip(watch.readings.len().saturating_sub(usize::from(width)))
}

fn add_rate(watch: &DisplayState, frame: &mut Frame, area: Rect, coloured: bool) {
    let [labels, curve] = Layout::horizontal([Constraint::Length(LABEL_WIDTH), Constraint::Min(1)]).areas(area);
    let rates: Vec<u64> = recent(watch, curve.width).map(|reading| reading.responses_per_s.round() as u64).collect();
    let most = rates.iter().copied().max().unwrap_or(0).max(1);
    let mut lines = vec![Line::from(format!("{:>7}", show::figure(most as f64)))];
    lines.extend((1..area.height.saturating_sub(1)).map(|_| Line::from("")));
    lines.push(Line::from(format!("{:>7}", "0 /s")));
    frame.render_widget(Paragraph::new(lines), labels);
    let style = if coloured { Style::new().fg(Color::Cyan) } else { Style::new() };
    frame.render_widget(Sparkline::default().data(&rates).max(most).style(style), curve);
}

fn add_heat(watch: &DisplayState, buffer: &mut Buffer, area: Rect, coloured: bool) {
    let width = area.width.saturating_sub(LABEL_WIDTH);
    let readings: Vec<&IntervalReading> = recent(watch, width).collect();
    let rows = || readings.iter().flat_map(|reading| reading.heat.keys().copied());
    let (Some(low), Some(high)) = (rows().min(), rows().max()) else { return };
    // If there are more rows than lines, several rows share a line.
    let each = (high - low + 1).div_ceil(area.height.max(1)).max(1);
    let line_of = |row: u16| (row - low) / each;
    let most = readings.iter().flat_map(|reading| reading.heat.values()).copied().max().unwrap_or(1).max(2);
    for line in (0..=line_of(high)).filter(|line| line % 2 == 0) {
        let floor_ns = heat_floor_ns((low + line * each) * CLASSES_A_ROW);
        let label = format!("{:>7}", show::duration(floor_ns as f64));
        buffer.set_string(area.x, area.bottom() - 1 - line, label, Style::new().add_modifier(Modifier::DIM));
    }
    for (column, reading) in readings.iter().enumerate() {
        let mut lines = vec![0_u64; usize::from(line_of(high)) + 1];
        for (row, count) in &reading.heat {
            lines[usize::from(line_of(*row))] += count;
        }
        for (line, count) in lines.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            let depth = (count as f64).ln_1p() / (most as f64).ln_1p();
            let (symbol, colour) = DEPTHS[((depth * DEPTHS.len() as f64) as usize).min(DEPTHS.len() - 1)];
            let style = if coloured { Style::new().fg(Color::Indexed(colour)) } else { Style::new() };
            let symbol = if coloured { '█' } else { symbol };
            let (x, y) = (area.x + LABEL_WIDTH + column as u16, area.bottom() - 1 - line as u16);
            buffer.set_string(x, y, symbol.to_string(), style);
        }
    }
}
