//! Effects: the figure of each server relative to that of the first server, or of the servers in `compare`, with
//! confidence intervals.
//!
//! Servers take turns within every repetition, so repetitions are the blocks of the bootstrap (see
//! `flatout_load::stats::bootstrap`). If a step contains the first server twice (`NAME` and `NAME-again`), the second
//! shows the variation between identical servers, and no smaller difference is reported as an effect.

use super::combination;
use super::figures::{explained, heading};
use crate::document::{Cell, StepEntry};
use crate::measure::Measure;
use crate::pairs::{SEED, pairs};
use flatout_load::stats::Interval;
use flatout_load::stats::bootstrap::Bootstrap;
use flatout_load::stats::compare::{Comparison, Finding, Measure as Compared, MeasureKind};
use flatout_report::svg::{Svg, escape};
use maud::{Markup, PreEscaped, html};

/// The suffix of the name under which the first server is measured again.
const AGAIN: &str = "-again";

/// One server compared with a reference server.
pub(super) struct Effect {
    /// Names and values of the variables.
    pub values: Vec<(String, String)>,
    /// Name of the reference server.
    pub reference: String,
    /// Name of the compared server.
    pub server: String,
    /// Name of the measure.
    pub measure: String,
    /// The figure of the compared server divided by that of the reference server.
    pub comparison: Comparison,
}

impl Effect {
    /// Returns the effect as one sentence, in the same form for every outcome.
    pub(super) fn sentence(&self) -> String {
        let Interval { estimate, low, high } = self.comparison.ratio;
        let place = if self.values.is_empty() { String::new() } else { format!(" ({})", combination(&self.values)) };
        format!(
            "{}{place}: {} is {estimate:.3} times that of {} (95 % CI {low:.3} to {high:.3}): {}.",
            self.server,
            heading(&self.measure),
            self.reference,
            self.finding()
        )
    }

    /// Describes the finding in words.
    pub(super) fn finding(&self) -> String {
        let is_more = self.comparison.ratio.estimate > 1.0;
        match (self.comparison.finding, self.comparison.measure.kind) {
            (Finding::NoDifference, _) => "no difference shown".to_owned(),
            (_, MeasureKind::Rate) => format!("{} is {}", self.server, if is_more { "ahead" } else { "behind" }),
            (_, MeasureKind::Cost) => format!("{} costs {}", self.server, if is_more { "more" } else { "less" }),
        }
    }
}

/// Returns the servers with which a step compares the others: the first server, unless `compare` names others.
pub(super) fn references(step: &StepEntry) -> &[String] {
    if step.compare.is_empty() { step.servers.get(..1).unwrap_or_default() } else { &step.compare }
}

/// Returns the effects of a step for these measures; empty if there are too few repetitions.
pub(super) fn of(step: &StepEntry, measures: &[&str]) -> Vec<Effect> {
    let mut effects = Vec::new();
    for (measure, reference) in measures.iter().flat_map(|measure| references(step).iter().map(move |of| (measure, of)))
    {
        let is_rate = Measure::parse(measure).is_none_or(Measure::is_more_better);
        for one in step.cells.iter().filter(|cell| cell.server == *reference) {
            let others = step.cells.iter().filter(|cell| cell.server != *reference && cell.values == one.values);
            let others: Vec<&Cell> = others.collect();
            let ratio = |other: &Cell| Bootstrap::new(SEED).ratio(&pairs(one, other, measure));
            let again = others.iter().find(|cell| cell.server == format!("{reference}{AGAIN}"));
            let same = again.and_then(|again| ratio(again));
            for other in &others {
                let Some(found) = ratio(other) else { continue };
                let compared = Compared {
                    name: heading(measure),
                    kind: if is_rate { MeasureKind::Rate } else { MeasureKind::Cost },
                };
                // Do not compare the baseline for noise with itself.
                let same = same.filter(|_| !other.server.ends_with(AGAIN));
                effects.push(Effect {
                    values: one.values.clone(),
                    reference: reference.clone(),
                    server: other.server.clone(),
                    measure: (*measure).to_owned(),
                    comparison: Comparison::of(compared, found, 0.95, same),
                });
            }
        }
    }
    effects
}

/// Returns the table and the chart of the effects.
pub(super) fn section(step: &StepEntry, measures: &[&str]) -> Markup {
    let effects = of(step, measures);
    html! { @if !effects.is_empty() {
        h3 { "Compared with " (references(step).join(", ")) ", with 95 % confidence intervals" }
        div.charts { @for measure in measures {
            @let of_measure: Vec<&Effect> = effects.iter().filter(|effect| effect.measure == *measure).collect();
            @if !of_measure.is_empty() { figure {
                h3 { (heading(measure)) ", as a multiple" }
                (PreEscaped(forest(&of_measure)))
                figcaption { (explained(measure)) " The line at 1 means equality; a bar that reaches it shows no difference." }
            } }
        } }
        details { summary { "Summary" } ul { @for effect in &effects { li { (effect.sentence()) } } } }
    } }
}

/// Width of the chart in its own units, as in the lab's charts.
const WIDTH: f64 = 480.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 58.0;
const ROW: f64 = 20.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 40.0;

/// Maximum number of rows in a chart. Further effects appear only in the text.
const ROWS_MAX: usize = 36;

/// Draws each effect as an interval with a mark at the estimate.
fn forest(effects: &[&Effect]) -> String {
    let effects = &effects[..effects.len().min(ROWS_MAX)];
    let is_of_several = effects.iter().any(|effect| effect.reference != effects[0].reference);
    let ends = effects.iter().map(|effect| effect.comparison.ratio);
    let (low, high) = ends.fold((1.0_f64, 1.0_f64), |(low, high), ratio| (low.min(ratio.low), high.max(ratio.high)));
    // On a logarithmic axis, a ratio and its inverse are equally far from 1.
    let (low, high) = (low.max(1e-3).ln() - 0.02, high.max(1e-3).ln() + 0.02);
    let x = |ratio: f64| LEFT + (ratio.max(1e-3).ln() - low) / (high - low) * (WIDTH - RIGHT - LEFT);
    let bottom = TOP + ROW * effects.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + BOTTOM, "confidence intervals");
    for ratio in ticks(low, high) {
        svg.grid_line((x(ratio), TOP), (x(ratio), bottom));
        svg.anchored_text("tick", x(ratio), bottom + 15.0, "middle", &ratio.to_string());
    }
    svg.path("line s5 dashed", format_args!("M{:.1} {TOP}V{bottom:.1}", x(1.0)));
    for (row, effect) in effects.iter().enumerate() {
        let y = TOP + ROW * (row as f64 + 0.5);
        let Interval { estimate, low, high } = effect.comparison.ratio;
        let look = match effect.comparison.finding {
            Finding::NoDifference => 5,
            Finding::Better => 2,
            Finding::Worse => 1,
        };
        let name = if is_of_several {
            format!("{} / {}", effect.server, effect.reference)
        } else if effect.values.is_empty() {
            effect.server.clone()
        } else {
            let values: Vec<&str> = effect.values.iter().map(|(_, value)| value.as_str()).collect();
            format!("{} {}", effect.server, values.join(" "))
        };
        let (from, to, at) = (x(low), x(high), x(estimate));
        svg.anchored_text("axis", LEFT - 8.0, y + 4.0, "end", &name);
        let whiskers = format_args!("M{from:.1} {y:.1}H{to:.1}M{from:.1} {0:.1}v8M{to:.1} {0:.1}v8", y - 4.0);
        svg.path(&format!("line s{look}"), whiskers);
        svg.add(format_args!(
            r#"<circle class="marker s{look}" cx="{at:.1}" cy="{y:.1}" r="3.4"><title>{}</title></circle>"#,
            escape(&effect.sentence())
        ));
        svg.text("tick", WIDTH - RIGHT + 8.0, y + 4.0, &format!("{estimate:.3}"));
    }
    svg.anchored_text("axis", f64::midpoint(LEFT, WIDTH - RIGHT), bottom + 34.0, "middle", "times (log scale)");
    svg.finish()
}

/// Returns a few round ratios between the ends, which are logarithms.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    const NARROW: &[f64] = &[0.8, 0.85, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.15, 1.2];
    const WIDE: &[f64] = &[0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
    let fits = |ratio: &&f64| (low..=high).contains(&ratio.ln());
    let choice = if high - low < 0.4 { NARROW } else { WIDE };
    choice.iter().filter(fits).copied().collect()
}
